%% Lines out of a body that arrives in chunks, in bounded memory.
%%
%% `feed/2' gives the lines that a chunk completes, as one block of whole lines, each with its line
%% feed, so that a parser runs over many lines at once. `finish/1' gives what remains: the last line
%% may lack its line feed.
%%
%% Invariants: the blocks joined are the body, however it was cut into chunks, except that of a line
%% longer than the bound only some bytes are kept, always more than the bound, so that the parser
%% sees a line that is too long in its place. The state holds at most the bound and one byte.
%%
%% It knows nothing of what is in a line. Pure.
-module(halley_api_lines).

-export([new/1, feed/2, finish/1, split/1, trim/1, first/1]).
-export_type([lines/0]).

-record(lines, {
    bytes_max :: pos_integer(),
    %% The start of a line whose end has not come yet; longer than bytes_max when the rest is
    %% dropped.
    rest = <<>> :: binary()
}).
-opaque lines() :: #lines{}.

-spec new(LineBytesMax :: pos_integer()) -> lines().
new(BytesMax) ->
    #lines{bytes_max = BytesMax}.

-spec feed(binary(), lines()) -> {Block :: binary(), lines()}.
feed(Chunk, #lines{rest = Rest} = Lines) ->
    case last_line_feed(Chunk, byte_size(Chunk)) of
        none ->
            {<<>>, Lines#lines{rest = append(Rest, Chunk, Lines)}};
        End ->
            <<Whole:End/binary, Start/binary>> = Chunk,
            {complete(Rest, Whole, Lines), Lines#lines{rest = append(<<>>, Start, Lines)}}
    end.

%% The end of the body: the last line, if it has not come yet, with a line feed.
-spec finish(lines()) -> Block :: binary().
finish(#lines{rest = <<>>}) -> <<>>;
finish(#lines{rest = Rest}) -> <<Rest/binary, $\n>>.

%% A block's lines, without their ends.
-spec split(Block :: binary()) -> [binary()].
split(<<>>) -> [];
split(Block) -> binary:split(binary_part(Block, 0, byte_size(Block) - 1), <<"\n">>, [global]).

%% The first character that is neither blank nor a line feed.
-spec first(binary()) -> byte() | none.
first(<<C, Rest/binary>>) when C =:= $\s; C =:= $\t; C =:= $\r; C =:= $\n -> first(Rest);
first(<<C, _/binary>>) -> C;
first(<<>>) -> none.

%% A line without the blanks around it, among them the carriage return of CRLF.
-spec trim(binary()) -> binary().
trim(<<C, Line/binary>>) when C =:= $\s; C =:= $\t; C =:= $\r -> trim(Line);
trim(Line) -> trim_end(Line, byte_size(Line)).

trim_end(Line, Size) when Size > 0 ->
    case binary:at(Line, Size - 1) of
        C when C =:= $\s; C =:= $\t; C =:= $\r -> trim_end(Line, Size - 1);
        _ -> binary_part(Line, 0, Size)
    end;
trim_end(_, 0) -> <<>>.

complete(<<>>, Whole, _) ->
    Whole;
complete(Rest, Whole, #lines{bytes_max = Max}) when byte_size(Rest) > Max ->
    {LineFeed, 1} = binary:match(Whole, <<"\n">>),
    <<_:LineFeed/binary, Next/binary>> = Whole,
    <<Rest/binary, Next/binary>>;
complete(Rest, Whole, _) ->
    <<Rest/binary, Whole/binary>>.

append(Rest, Chunk, #lines{bytes_max = Max}) ->
    Keep = min(byte_size(Chunk), Max + 1 - byte_size(Rest)),
    <<Kept:Keep/binary, _/binary>> = Chunk,
    %% A copy: a part would keep the whole chunk alive.
    binary:copy(<<Rest/binary, Kept/binary>>).

last_line_feed(_, 0) -> none;
last_line_feed(Chunk, At) ->
    case binary:at(Chunk, At - 1) of
        $\n -> At;
        _ -> last_line_feed(Chunk, At - 1)
    end.
