%% Whatever a server sends, it is a term or a named error: messages that are whole, and the same
%% with bytes changed, cut, added or made up.
-module(prop_epgsql_backend).

-include("epgsql_proper.hrl").

-export([prop_framing/0, prop_damaged/0, prop_random/0, prop_columns/0, prop_cells/0,
         damaged/2]).

text() -> ?LET(Bytes, list(range(1, 255)), list_to_binary(Bytes)).

string(Text) -> <<Text/binary, 0>>.

%% Payloads as a server makes them, each with the function that reads it.
payload() ->
    oneof([
        {authentication, ?LET({N, Rest}, {range(0, 14), binary()}, <<N:32, Rest/binary>>)},
        {key_data, ?LET({A, B}, {integer(), integer()}, <<A:32, B:32>>)},
        {parameter_status, ?LET({A, B}, {text(), text()}, <<A/binary, 0, B/binary, 0>>)},
        {notification, ?LET({P, A, B}, {integer(), text(), text()},
                            <<P:32, A/binary, 0, B/binary, 0>>)},
        {error, ?LET(Fields, list({range(1, 255), text()}),
                     iolist_to_binary([[[Type, string(Value)] || {Type, Value} <- Fields], 0]))},
        {ready, oneof([<<"I">>, <<"T">>, <<"E">>])},
        {complete, ?LET({Word, N}, {oneof([<<"INSERT 0">>, <<"UPDATE">>, <<"COPY">>, text()]),
                                    integer()},
                        <<Word/binary, " ", (integer_to_binary(N))/binary, 0>>)},
        {columns, columns_payload()},
        {parameters, ?LET(Oids, list(range(0, 1 bsl 32 - 1)),
                          <<(length(Oids)):16, << <<Oid:32>> || Oid <- Oids >>/binary>>)},
        {cells, ?LET(Cells, list(cell()), cells_payload(Cells))},
        {copy_response, ?LET({Format, Formats}, {range(0, 1), list(range(0, 1))},
                             <<Format, (length(Formats)):16,
                               << <<Each:16>> || Each <- Formats >>/binary>>)},
        {copy_data, ?LET({A, B, Data}, {integer(), integer(), binary()},
                         <<$w, A:64, B:64, 0:64, Data/binary>>)},
        {copy_data, ?LET({A, Reply}, {integer(), range(0, 1)}, <<$k, A:64, 0:64, Reply>>)},
        {strings, ?LET(Texts, list(text()), << <<Text/binary, 0>> || Text <- Texts >>)}]).

column() ->
    {text(), range(0, 1 bsl 32 - 1), range(-1, 1600), range(0, 1 bsl 32 - 1),
     range(-2, 16), range(-1, 1000), range(0, 1)}.

columns_payload() -> ?LET(Columns, list(column()), columns_payload(Columns)).

columns_payload(Columns) ->
    iolist_to_binary([<<(length(Columns)):16>>
                      | [<<Name/binary, 0, Table:32, Attribute:16, Oid:32, Size:16, Modifier:32,
                           Format:16>>
                         || {Name, Table, Attribute, Oid, Size, Modifier, Format} <- Columns]]).

cell() -> oneof([null, binary()]).

cells_payload(Cells) ->
    iolist_to_binary([<<(length(Cells)):16>> | [case Cell of
                                                    null -> <<-1:32>>;
                                                    _ -> <<(byte_size(Cell)):32, Cell/binary>>
                                                end || Cell <- Cells]]).

%% Changes of bytes: as a broken proxy, a wrong port or an attacker would make them.
damage() ->
    oneof([{cut, range(0, 200)}, {add, binary()}, {set, range(0, 200), range(0, 255)},
           {set, range(0, 12), oneof([0, 255, 127, 128])}, {drop, range(0, 200)}]).

damaged(Bin, {cut, N}) -> binary:part(Bin, 0, min(N, byte_size(Bin)));
damaged(Bin, {add, More}) -> <<Bin/binary, More/binary>>;
damaged(Bin, {set, At, Byte}) when At < byte_size(Bin) ->
    <<Before:At/binary, _, After/binary>> = Bin,
    <<Before/binary, Byte, After/binary>>;
damaged(Bin, {drop, At}) when At < byte_size(Bin) ->
    <<Before:At/binary, _, After/binary>> = Bin,
    <<Before/binary, After/binary>>;
damaged(Bin, _) -> Bin.

named(Reader, Bin) ->
    try epgsql_backend:Reader(Bin) of
        _ -> true
    catch
        error:{malformed, What} -> is_atom(What)
    end.

prop_damaged() ->
    ?FORALL({{Reader, Payload}, Damages}, {payload(), list(damage())},
            named(Reader, lists:foldl(fun(Damage, Bin) -> damaged(Bin, Damage) end,
                                      Payload, Damages))).

prop_random() ->
    Readers = [authentication, key_data, parameter_status, notification, error, ready, complete,
               columns, parameters, cells, copy_response, copy_data, strings, message],
    ?FORALL({Reader, Bin}, {oneof(Readers), binary()}, named(Reader, Bin)).

%% Messages come out of a stream as they went in, wherever it is cut.
prop_framing() ->
    ?FORALL({Messages, Cut}, {list({range(1, 127), binary()}), range(0, 400)},
            begin
                Stream = iolist_to_binary(epgsql_frontend:encode(Messages)),
                At = min(Cut, byte_size(Stream)),
                <<First:At/binary, Second/binary>> = Stream,
                {Before, Rest} = all(First, []),
                {After, <<>>} = all(<<Rest/binary, Second/binary>>, []),
                Before ++ After =:= Messages
            end).

all(Bin, Acc) ->
    case epgsql_backend:message(Bin) of
        {Type, Payload, Rest} -> all(Rest, [{Type, Payload} | Acc]);
        more -> {lists:reverse(Acc), Bin}
    end.

prop_columns() ->
    ?FORALL(Columns, list(column()),
            epgsql_backend:columns(columns_payload(Columns)) =:= Columns).

prop_cells() ->
    ?FORALL(Cells, list(cell()), epgsql_backend:cells(cells_payload(Cells)) =:= Cells).
