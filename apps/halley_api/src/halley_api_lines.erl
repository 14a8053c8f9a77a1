%% Lines out of a body that arrives in chunks, in bounded memory.
%%
%% `feed/2' gives the lines that a chunk completes, as one block of whole lines, each with its line
%% feed, so that a parser runs over many lines at once. `finish/1' gives what remains: the last line
%% may lack its line feed.
%%
%% The beginning of a line whose end has not come yet is a list of pieces, joined once: a body in
%% pieces of one byte costs as much for each byte as one in large pieces.
%%
%% Invariants: the blocks joined are the body, however it was cut into chunks, except for lines
%% longer than the bound. Of such a line nothing is kept but its first character that is not blank;
%% in its place stands a line of that character, one byte longer than the bound, so that the parser
%% sees a line that is too long. The state holds the bytes of one line within the bound at most.
%%
%% It knows nothing of what is in a line. Pure.
-module(halley_api_lines).

-export([new/1, feed/2, finish/1, split/1, trim/1, first/1]).
-export_type([lines/0]).

-record(lines, {
    bytes_max :: pos_integer(),
    %% The start of a line whose end has not come yet, the latest piece first; or that this line is
    %% too long, and the first character that is not blank.
    rest = [] :: [binary()] | {too_long, byte() | none},
    %% Bytes in `rest'.
    size = 0 :: non_neg_integer()
}).
-opaque lines() :: #lines{}.

-spec new(LineBytesMax :: pos_integer()) -> lines().
new(BytesMax) ->
    #lines{bytes_max = BytesMax}.

-spec feed(binary(), lines()) -> {Block :: binary(), lines()}.
feed(Chunk, Lines) ->
    case last_line_feed(Chunk, byte_size(Chunk)) of
        none ->
            {<<>>, append(Chunk, Lines)};
        End ->
            <<Whole:End/binary, Start/binary>> = Chunk,
            {complete(Whole, Lines), append(Start, Lines#lines{rest = [], size = 0})}
    end.

%% The end of the body: the last line, if it has not come yet, with a line feed.
-spec finish(lines()) -> Block :: binary().
finish(#lines{rest = []}) -> <<>>;
finish(Lines) -> <<(rest(Lines))/binary, $\n>>.

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

complete(Whole, #lines{rest = []}) ->
    Whole;
complete(Whole, Lines) ->
    {LineFeed, 1} = binary:match(Whole, <<"\n">>),
    <<End:LineFeed/binary, Next/binary>> = Whole,
    <<(rest(append(End, Lines)))/binary, Next/binary>>.

append(<<>>, Lines) ->
    Lines;
append(Chunk, #lines{rest = {too_long, none}} = Lines) ->
    Lines#lines{rest = {too_long, first(Chunk)}};
append(_, #lines{rest = {too_long, _}} = Lines) ->
    Lines;
append(Chunk, #lines{rest = Rest, size = Size, bytes_max = Max} = Lines)
  when Size + byte_size(Chunk) > Max ->
    Lines#lines{rest = {too_long, first(iolist_to_binary(lists:reverse(Rest, [Chunk])))}};
append(Chunk, #lines{rest = Rest, size = Size} = Lines) ->
    %% A copy: a part would keep the whole chunk alive.
    Lines#lines{rest = [binary:copy(Chunk) | Rest], size = Size + byte_size(Chunk)}.

rest(#lines{rest = {too_long, none}, bytes_max = Max}) -> binary:copy(<<"\s">>, Max + 1);
rest(#lines{rest = {too_long, First}, bytes_max = Max}) -> binary:copy(<<First>>, Max + 1);
rest(#lines{rest = Pieces}) -> iolist_to_binary(lists:reverse(Pieces)).

last_line_feed(_, 0) -> none;
last_line_feed(Chunk, At) ->
    case binary:at(Chunk, At - 1) of
        $\n -> At;
        _ -> last_line_feed(Chunk, At - 1)
    end.
