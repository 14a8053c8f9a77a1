%% Rows of a COPY TO STDOUT: of text and CSV the lines as they come, of the binary format tuples.
%%
%% Pure. PostgreSQL's documentation, COPY, "Binary Format". The header comes with the first row, and
%% a row needn't be one message. Anything else is `error({malformed, copy_row})'.
-module(epgsql_copy_out).

-include("protocol.hrl").

-export([new/2, rows/2]).

-export_type([state/0, row/0]).

-define(SIGNATURE, "PGCOPY\n", 16#ff, "\r\n", 0).
-define(HEADER_SIZE, 19).
%% The header's extension is for later versions; longer than this it is none.
-define(EXTENSION_MAX, 65536).

-record(binary, {stage = header :: header | rows | ended,
                 decoders :: [epgsql_binary:decoder()],
                 null :: any(),
                 rest = <<>> :: binary()}).
-opaque state() :: text | #binary{}.
-type row() :: binary() | tuple().

-spec new(text | {binary, [epgsql_binary:decoder()]}, Null :: any()) -> state().
new(text, _) -> text;
new({binary, Decoders}, Null) -> #binary{decoders = Decoders, null = Null}.

%% What some messages hold.
-spec rows([binary()], state()) -> {[row()], state()}.
rows(Messages, text) -> {Messages, text};
rows(Messages, #binary{} = State) -> rows(Messages, State, []).

rows([], State, Acc) -> {lists:reverse(Acc), State};
rows([Message | Messages], #binary{rest = <<>>} = State, Acc) ->
    {Acc1, State1} = parse(Message, State, Acc),
    rows(Messages, State1, Acc1);
rows([Message | Messages], #binary{rest = Rest} = State, Acc) ->
    {Acc1, State1} = parse(<<Rest/binary, Message/binary>>, State#binary{rest = <<>>}, Acc),
    rows(Messages, State1, Acc1).

parse(<<?SIGNATURE, _Flags:32, Size:32, Rest/binary>> = Bin, #binary{stage = header} = State, Acc)
  when Size =< ?EXTENSION_MAX ->
    case Rest of
        <<_:Size/binary, Rows/binary>> -> parse(Rows, State#binary{stage = rows}, Acc);
        _ -> {Acc, State#binary{rest = Bin}}
    end;
parse(Bin, #binary{stage = header} = State, Acc) when byte_size(Bin) < ?HEADER_SIZE ->
    {Acc, State#binary{rest = Bin}};
parse(<<16#ffff:16, _/binary>>, #binary{stage = rows} = State, Acc) ->
    {Acc, State#binary{stage = ended}};
parse(<<Count:16, Cells/binary>> = Bin, #binary{stage = rows, decoders = Decoders, null = Null}
      = State, Acc) when Count =:= length(Decoders) ->
    try row(Decoders, Cells, Null, []) of
        {Row, Rest} -> parse(Rest, State, [Row | Acc]);
        more -> {Acc, State#binary{rest = Bin}}
    catch
        error:_ -> error({malformed, copy_row})
    end;
parse(Bin, #binary{stage = rows} = State, Acc) when byte_size(Bin) < 2 ->
    {Acc, State#binary{rest = Bin}};
parse(_, #binary{stage = ended} = State, Acc) ->
    {Acc, State};
parse(_, _, _) ->
    error({malformed, copy_row}).

row([int8 | Decoders], <<8:32, Value:64/signed, Rest/binary>>, Null, Acc) ->
    row(Decoders, Rest, Null, [Value | Acc]);
row([], Rest, _, Acc) -> {list_to_tuple(lists:reverse(Acc)), Rest};
row([_ | Decoders], <<-1:?int32, Rest/binary>>, Null, Acc) ->
    row(Decoders, Rest, Null, [Null | Acc]);
row([Decoder | Decoders], <<Size:32, Cell:Size/binary, Rest/binary>>, Null, Acc) ->
    row(Decoders, Rest, Null, [epgsql_binary:decode(Cell, Decoder) | Acc]);
row(_, _, _, _) -> more.
