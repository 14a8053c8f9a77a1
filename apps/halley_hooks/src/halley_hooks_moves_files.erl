%% Paths of the files of `halley_hooks_moves', and the bytes of its mark.
-module(halley_hooks_moves_files).

-export([path/1, numbers/0, mark/0, marked/2, read_mark/0, id_of/1]).

-type stamp() :: halley_history_clock:stamp().

-define(STAMP_BYTES, 20).

-spec path(non_neg_integer()) -> file:filename().
path(Number) ->
    filename:join(halley_hooks_queue:folder(),
                  lists:flatten(io_lib:format("~16.16.0b.moves", [Number]))).

-spec numbers() -> [non_neg_integer()].
numbers() -> halley_hooks_queue:numbers("moves").

-spec mark() -> file:filename().
mark() -> filename:join(halley_hooks_queue:folder(), "moves").

%% Up to when all is written, and when it was known last who is there.
-spec marked(stamp(), stamp()) -> binary().
marked(Written, Known) ->
    Fields = <<(halley_history_clock:pack(Written))/binary,
               (halley_history_clock:pack(Known))/binary>>,
    <<Fields/binary, (erlang:crc32(Fields)):32>>.

-spec read_mark() -> {Written :: stamp(), Known :: stamp()} | none.
read_mark() ->
    case file:read_file(mark()) of
        {ok, <<Written:?STAMP_BYTES/binary, Known:?STAMP_BYTES/binary, Crc:32>>} ->
            case erlang:crc32([Written, Known]) of
                Crc -> {halley_history_clock:unpack(Written), halley_history_clock:unpack(Known)};
                _ -> none
            end;
        _ -> none
    end.

%% A number may be nobody's any more.
-spec id_of(halley_id:user_number()) -> halley_id:id() | undefined.
id_of(User) ->
    try halley_ids:name(User)
    catch error:{no_such_user_number, _} -> undefined
    end.
