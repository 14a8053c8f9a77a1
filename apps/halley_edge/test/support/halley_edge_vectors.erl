%% Reads protocol/vectors: the frames that both languages must agree on, as this side's codec writes
%% them.
-module(halley_edge_vectors).

-export([good/0, bad/0]).

%% {file, type byte, frame, bytes}
good() ->
    [{Name, maps:get(<<"type">>, V), frame(maps:get(<<"frame">>, V), maps:get(<<"fields">>, V)),
      hex(maps:get(<<"hex">>, V))} || {Name, V} <- read(), not is_map_key(<<"clause">>, V)].

%% {file, clause, bytes}
bad() ->
    [{Name, Clause, hex(maps:get(<<"hex">>, V))}
     || {Name, V = #{<<"clause">> := Clause}} <- read()].

read() ->
    Files = filelib:wildcard(filename:join(directory(filename:absname("")), "*.json")),
    [begin
         {ok, Text} = file:read_file(File),
         {filename:basename(File), jiffy:decode(Text, [return_maps])}
     end || File <- Files].

%% Tests run in the project's root or somewhere below it.
directory(Here) ->
    Vectors = filename:join([Here, "protocol", "vectors"]),
    case filelib:is_dir(Vectors) of
        true -> Vectors;
        false when Here =/= "/" -> directory(filename:dirname(Here))
    end.

frame(Name, #{<<"nonce">> := N}) -> {binary_to_existing_atom(Name), N};
frame(<<"credit">>, #{<<"bytes">> := N}) -> {credit, N};
frame(<<"goodbye">>, #{<<"code">> := C, <<"reason">> := R}) -> {goodbye, C, R};
frame(<<"hello_brain">>, F = #{<<"magic">> := <<"HLY1">>}) ->
    {hello_brain, #{version => maps:get(<<"version">>, F), window => maps:get(<<"window">>, F),
                    node => maps:get(<<"node">>, F), settings => pairs(<<"settings">>, F)}};
frame(<<"opened">>, #{<<"sessions">> := List, <<"cursor">> := Cursor}) ->
    {opened, Cursor, [{C, N} || #{<<"conn">> := C, <<"user_number">> := N} <- List]};
frame(<<"refused">>, #{<<"conn">> := C, <<"status">> := S, <<"retry_after_s">> := R,
                       <<"code">> := Code, <<"message">> := M}) -> {refused, C, S, R, Code, M};
frame(<<"deliver">>, F = #{<<"conns">> := Conns}) ->
    {deliver, item(F), << <<N:64>> || N <- Conns >>};
frame(<<"replay">>, #{<<"conn">> := C, <<"flags">> := Flags, <<"cursor">> := Cursor,
                      <<"heads">> := Heads, <<"items">> := Items}) ->
    {replay, C, Flags, Cursor, Heads, lists:map(fun item/1, Items)};
frame(<<"gap">>, #{<<"reason">> := R, <<"from">> := From, <<"to">> := To, <<"cursor">> := Cursor,
                   <<"conns">> := Conns}) -> {gap, R, From, To, Cursor, Conns};
frame(<<"cursor">>, #{<<"cursor">> := Cursor}) -> {cursor, Cursor};
frame(<<"inspect">>, #{<<"token">> := T, <<"conn">> := C}) -> {inspect, T, C};
frame(<<"presence">>, #{<<"json">> := Json, <<"conns">> := Conns}) -> {presence, Json, Conns};
frame(<<"keys">>, #{<<"keys">> := Keys}) -> {keys, Keys};
frame(<<"group_", What/binary>>, F) -> of_group(What, F);
frame(<<"replayed">>, #{<<"conn">> := C}) -> {replayed, C};
frame(<<"inspected">>, F = #{<<"token">> := T, <<"conn">> := C}) ->
    Keys = [state, transport, outbox_bytes, outbox_pieces, outbox_ms, held, dropped, conflated],
    {inspected, T, C, maps:from_list([{K, maps:get(atom_to_binary(K), F)} || K <- Keys])};
frame(<<"close_sessions">>, #{<<"reason">> := R, <<"conns">> := Conns}) ->
    {close_sessions, R, Conns};
frame(<<"response">>, F = #{<<"conn">> := C, <<"status">> := S, <<"flags">> := Flags,
                            <<"body_bytes">> := N, <<"body">> := B}) ->
    {response, C, S, Flags, N, pairs(<<"headers">>, F), hex(B)};
frame(<<"response_body">>, #{<<"conn">> := C, <<"flags">> := Flags, <<"body">> := B}) ->
    {response_body, C, Flags, hex(B)};
frame(<<"request_credit">>, #{<<"conn">> := C, <<"bytes">> := N}) -> {request_credit, C, N};
frame(<<"shutdown">>, #{<<"drain_ms">> := N}) -> {shutdown, N};
frame(<<"hello_edge">>, F = #{<<"magic">> := <<"HLY1">>, <<"metrics">> := Metrics}) ->
    Kinds = #{1 => counter, 2 => gauge},
    Keys = [version, window, pid, worker, workers, build, public_listen, api_listen,
            connections_max],
    Hello = maps:from_list([{Key, maps:get(atom_to_binary(Key), F)} || Key <- Keys]),
    Metric = fun(#{<<"name">> := N, <<"kind">> := K, <<"help">> := H}) ->
        {N, maps:get(K, Kinds), H}
    end,
    {hello_edge, Hello#{metrics => lists:map(Metric, Metrics)}};
frame(<<"sync_begin">>, #{<<"sessions">> := N, <<"cursor">> := C}) -> {sync_begin, N, C};
frame(<<"sync_end">>, _) -> sync_end;
frame(<<"open">>, #{<<"sessions">> := List}) ->
    {open, [{C, T, U, Cursor} || #{<<"conn">> := C, <<"transport">> := T, <<"user">> := U,
                                   <<"cursor">> := Cursor} <- List]};
frame(<<"close">>, #{<<"sessions">> := List}) ->
    {close, [{C, N, R} || #{<<"conn">> := C, <<"user_number">> := N, <<"reason">> := R} <- List]};
frame(<<"request">>, F = #{<<"conn">> := C, <<"listener">> := L, <<"flags">> := Flags,
                           <<"method">> := M, <<"target">> := T, <<"body">> := B}) ->
    Listener = maps:get(L, #{1 => public, 2 => api}),
    {request, C, Listener, Flags, M, T, pairs(<<"headers">>, F), hex(B)};
frame(<<"request_body">>, #{<<"conn">> := C, <<"flags">> := Flags, <<"body">> := B}) ->
    {request_body, C, Flags, hex(B)};
frame(<<"request_gone">>, #{<<"conn">> := C}) -> {request_gone, C};
frame(<<"stats">>, #{<<"values">> := Values}) -> {stats, Values};
frame(Name, Fields) -> of_trunk(Name, Fields).

of_trunk(<<"subscriptions">>, #{<<"conn">> := C, <<"rights">> := R, <<"subjects">> := S}) ->
    {subscriptions, C, R, S};
of_trunk(<<"operation">>, F = #{<<"conn">> := C, <<"number">> := N, <<"what">> := What,
                                <<"members">> := Members}) ->
    Whats = [publish, follow, unfollow, subscribe, unsubscribe, state],
    Names = [<<"subject">>, <<"subjects">>, <<"to">>, <<"data">>, <<"id">>, <<"ack">>, <<"keep">>],
    Texts = [{Key, maps:get(atom_to_binary(Key), F)} || Key <- [user, rights, subject, last]],
    {operation, C, N,
     (maps:from_list(Texts))#{
         what => lists:nth(What, Whats),
         members => [{lists:nth(Name, Names), Value}
                     || #{<<"name">> := Name, <<"value">> := Value} <- Members]}};
of_trunk(<<"operation_answer">>, #{<<"conn">> := C, <<"number">> := N, <<"flags">> := Flags,
                                   <<"json">> := Json}) ->
    {operation_answer, C, N, Flags, Json};
of_trunk(<<"rights">>, #{<<"conn">> := C, <<"rights">> := R}) -> {rights, C, R};
of_trunk(<<"ended">>, #{<<"conn">> := C, <<"reason">> := R, <<"subjects">> := S}) ->
    {ended, C, R, S};
of_trunk(<<"behind">>, #{<<"token">> := Token, <<"sessions">> := List}) ->
    {behind, Token,
     [{C, N, T, B, P, Ms}
      || #{<<"conn">> := C, <<"user_number">> := N, <<"transport">> := T, <<"outbox_bytes">> := B,
           <<"outbox_pieces">> := P, <<"outbox_ms">> := Ms} <- List]};
of_trunk(<<"to_slot">>, F = #{<<"slot">> := Slot}) -> {to_slot, Slot, inner(F)};
of_trunk(<<"from_worker">>, F = #{<<"worker">> := Worker}) -> {from_worker, Worker, inner(F)};
of_trunk(<<"worker_gone">>, #{<<"worker">> := Worker}) -> {worker_gone, Worker};
of_trunk(<<"place">>, #{<<"worker">> := Worker, <<"slot">> := Slot}) -> {place, Worker, Slot};
of_trunk(<<"trunk_deliver">>, F = #{<<"words">> := Words}) ->
    {trunk_deliver, item(F), << <<Word:64>> || Word <- Words >>};
of_trunk(<<"trunk_group_deliver">>, F = #{<<"group">> := Group, <<"slots">> := Slots}) ->
    {trunk_group_deliver, Group, item(F), << <<Slot:16>> || Slot <- Slots >>}.

%% Decoded by what is tested, as vectors of its own check it.
inner(#{<<"type">> := Type, <<"payload">> := Payload}) ->
    {ok, Frame} = halley_edge_codec:decode(Type, hex(Payload)),
    Frame.

item(Fields = #{<<"event">> := Json}) ->
    Keys = [shard, seq, at, data_offset, subject_offset, subject_bytes, cursor],
    maps:from_list([{json, Json} | [{K, maps:get(atom_to_binary(K), Fields)} || K <- Keys]]).

pairs(Key, Fields) ->
    [{N, V} || #{<<"name">> := N, <<"value">> := V} <- maps:get(Key, Fields)].

hex(Digits) ->
    binary:decode_hex(Digits).

of_group(<<"deliver">>, F = #{<<"group">> := Group}) -> {group_deliver, Group, item(F)};
of_group(<<"end">>, #{<<"group">> := Group}) -> {group_end, Group};
of_group(What, #{<<"group">> := Group, <<"conns">> := Conns}) ->
    Tag = case What of <<"join">> -> group_join; <<"leave">> -> group_leave end,
    {Tag, Group, << <<N:64>> || N <- Conns >>}.
