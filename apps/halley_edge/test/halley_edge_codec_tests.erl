%% The codec against protocol/vectors, and by property.
-module(halley_edge_codec_tests).

-include("support/halley_edge_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-define(TYPES, [16#01, 16#02, 16#03, 16#04, 16#10, 16#11, 16#12, 16#13, 16#14, 16#15, 16#16, 16#17,
                16#18, 16#19, 16#1A, 16#1B, 16#1C, 16#1D, 16#1E, 16#1F, 16#20, 16#21, 16#22, 16#23,
                16#24, 16#25, 16#26, 16#27, 16#28, 16#40, 16#41, 16#42, 16#43, 16#44, 16#45, 16#46,
                16#47, 16#48, 16#49, 16#4A, 16#4B, 16#4C, 16#4D, 16#4E, 16#4F, 16#50]).
-define(FREE, [16#01, 16#02, 16#03, 16#04, 16#10, 16#1D, 16#40]).

%%% Vectors

%% "Every frame has a vector", and this suite knows every frame.
every_frame_has_a_vector_test() ->
    ?assertEqual(?TYPES, lists:usort([Type || {_, Type, _, _} <- halley_edge_vectors:good()])).

vectors_decode_test_() ->
    [{Name, fun() ->
        Cost = case lists:member(Type, ?FREE) of true -> 0; false -> byte_size(Bytes) end,
        ?assertEqual({ok, [{Cost, Frame}], <<>>}, halley_edge_codec:deframe(Bytes))
     end} || {Name, Type, Frame, Bytes} <- halley_edge_vectors:good()].

vectors_encode_test_() ->
    [{Name, fun() ->
        ?assertEqual(Bytes, iolist_to_binary(halley_edge_codec:encode(Frame)))
     end} || {Name, _, Frame, Bytes} <- halley_edge_vectors:good()].

bad_vectors_test_() ->
    Bad = halley_edge_vectors:bad(),
    [?_assert(length(Bad) > 20) |
     [{Name, fun() ->
        ?assertMatch({error, {Clause, _}}, halley_edge_codec:deframe(Bytes))
      end} || {Name, Clause, Bytes} <- Bad]].

every_other_type_is_unknown_test() ->
    [?assertMatch({error, {<<"2.3">>, _}}, halley_edge_codec:decode(Type, <<0:64>>))
     || Type <- lists:seq(0, 255) -- ?TYPES].

%% 7.3
too_many_conns_test() ->
    Deliver = fun(N) ->
        Conns = <<0:(N * 64)>>,
        iolist_to_binary(halley_edge_codec:encode({deliver, smallest_item(), Conns}))
    end,
    ?assertMatch({ok, [_], <<>>}, halley_edge_codec:deframe(Deliver(8192))),
    ?assertMatch({error, {<<"7.3">>, _}}, halley_edge_codec:deframe(Deliver(8193))).

%% What the writer counts on before it encodes.
sizes_are_those_of_the_frames_test() ->
    {_, _, Wire} = halley_event:delivery(smallest_item()),
    [?assertEqual(iolist_size(halley_edge_encoder:encode_deliver(Cursor, Wire, <<0:128>>)),
                  halley_edge_encoder:deliver_bytes(Cursor, Wire, <<0:128>>))
     || Cursor <- [<<>>, <<"abc">>]].

%% An event as the brain made it is the frame that its fields make.
deliver_of_an_event_test() ->
    Item = smallest_item(),
    {_, _, Wire} = halley_event:delivery(Item),
    [?assertEqual(
        iolist_to_binary(halley_edge_codec:encode({deliver, Item#{cursor := Cursor}, <<7:64>>})),
        iolist_to_binary(halley_edge_encoder:encode_deliver(Cursor, Wire, <<7:64>>)))
     || Cursor <- [<<>>, <<"abc">>]].

%% Of trunks likewise, and a frame in TO_SLOT is the one that it is.
frames_of_a_trunk_test() ->
    Item = smallest_item(),
    {_, _, Wire} = halley_event:delivery(Item),
    Words = <<7:16, 1:48, 8:16, 2:48>>,
    Same = fun(Frame, Encoded) ->
        ?assertEqual(iolist_to_binary(halley_edge_codec:encode(Frame)), iolist_to_binary(Encoded))
    end,
    [begin
         With = Item#{cursor := Cursor},
         Deliver = halley_edge_encoder:encode_trunk_deliver(Cursor, Wire, Words),
         Same({trunk_deliver, With, Words}, Deliver),
         ?assertEqual(iolist_size(Deliver),
                      halley_edge_encoder:deliver_bytes(Cursor, Wire, Words)),
         Group = halley_edge_encoder:encode_trunk_group_deliver(Cursor, Wire, 9, <<7:16, 8:16>>),
         Same({trunk_group_deliver, 9, With, <<7:16, 8:16>>}, Group),
         ?assertEqual(iolist_size(Group),
                      halley_edge_encoder:group_deliver_bytes(Cursor, Wire) + 2 + 4),
         Whole = halley_edge_encoder:encode_deliver(Cursor, Wire, <<1:64>>),
         [Same({to_slot, 7, {deliver, With, <<1:64>>}},
               halley_edge_encoder:encode_to_slot(7, Frame))
          || Frame <- [Whole, iolist_to_binary(Whole)]]
     end || Cursor <- [<<>>, <<"abc">>]].

%% 13.5
too_many_words_test() ->
    Deliver = fun(N) ->
        Frame = {trunk_deliver, smallest_item(), <<0:(N * 64)>>},
        halley_edge_codec:deframe(iolist_to_binary(halley_edge_codec:encode(Frame)))
    end,
    ?assertMatch({ok, [_], <<>>}, Deliver(8192)),
    ?assertMatch({error, {<<"13.5">>, _}}, Deliver(8193)).

%% 2.2: an item made of a record of the history is that of the event.
items_of_records_test() ->
    Event = fun(N) ->
        Draft = halley_event:draft(generated, <<"subject">>, <<"{\"n\":1}">>),
        halley_event:event(Draft, <<"p-">>, {3, 1000 + N}, 1700000000000 + N)
    end,
    Bodies = [begin
                  {Record, _} = halley_history_record:event(7, 3, Event(N)),
                  {ok, Body, _} = halley_history_record:decode(7, iolist_to_binary(Record)),
                  {Body, <<"cursor ", (integer_to_binary(N))/binary>>}
              end || N <- lists:seq(1, 3)],
    Items = lists:foldl(fun({Body, Cursor}, Acc) ->
        halley_edge_encoder:add_item(Body, Cursor, Acc)
    end, halley_edge_encoder:no_items(), Bodies),
    ?assertMatch({3, <<"cursor 3">>, _}, Items),
    Records = [begin
                   {ok, Record} = halley_history_record:body(Body),
                   Record#{cursor => Cursor}
               end || {Body, Cursor} <- Bodies],
    ?assertEqual(iolist_to_binary(halley_edge_codec:encode({replay, 1, 8, <<"c">>, [5], Records})),
                 iolist_to_binary(halley_edge_encoder:encode_replay(1, 8, <<"c">>, [5], Items))).

smallest_item() ->
    #{shard => 1, seq => 1, at => 0, data_offset => 8, subject_offset => 0, subject_bytes => 0,
      cursor => <<>>, json => <<"{\"data\":0}">>}.

%% A handler may keep what it got for as long as it runs.
request_does_not_keep_the_receive_buffer_test() ->
    Frame = iolist_to_binary(halley_edge_codec:encode(
        {request, 1, api, 1, <<"GET">>, <<"/">>, [], binary:copy(<<"b">>, 100)})),
    Buffer = <<Frame/binary, 0:1000000>>,
    {ok, [{_, {request, _, _, _, _, Target, _, Body}}], _} =
        halley_edge_codec:deframe(binary:part(Buffer, 0, byte_size(Frame) + 1)),
    [?assert(binary:referenced_byte_size(Part) < 200) || Part <- [Target, Body]].

operation_does_not_keep_the_receive_buffer_test() ->
    Operation = #{what => publish, user => <<"ann">>, rights => <<"{}">>, subject => <<>>,
                  last => 0, members => [{<<"data">>, binary:copy(<<"1">>, 100)}]},
    Frame = iolist_to_binary(halley_edge_codec:encode({operation, 1, 2, Operation})),
    Buffer = <<Frame/binary, 0:1000000>>,
    {ok, [{_, {operation, 1, 2, #{user := User, members := [{_, Text}]} = Decoded}}], _} =
        halley_edge_codec:deframe(binary:part(Buffer, 0, byte_size(Frame) + 1)),
    ?assertEqual(Operation, Decoded),
    [?assert(binary:referenced_byte_size(Part) < 300) || Part <- [User, Text]].

%%% Properties

properties_test_() ->
    [{atom_to_list(Name), {timeout, 60, fun() ->
        ?assert(proper:quickcheck(Property, [{numtests, 300}, quiet]))
     end}} || {Name, Property} <- [{roundtrip, prop_roundtrip()}, {split, prop_split()},
                                   {garbage, prop_garbage()}, {damage, prop_damage()}]].

prop_roundtrip() ->
    ?FORALL(Frames, list(frame()), begin
        {ok, Decoded, <<>>} = halley_edge_codec:deframe(bytes(Frames)),
        [Frame || {_, Frame} <- Decoded] =:= Frames
    end).

%% However the stream is cut, the frames are the same.
prop_split() ->
    ?FORALL({Frames, Cuts}, {list(frame()), list(range(1, 60))}, begin
        feed(bytes(Frames), Cuts, <<>>) =:= Frames
    end).

prop_garbage() ->
    ?FORALL(Bytes, oneof([binary(), garbage_frame()]), ends_well(Bytes)).

garbage_frame() ->
    ?LET({Type, Payload}, {oneof(?TYPES), binary()},
         <<(byte_size(Payload) + 1):32, Type, Payload/binary>>).

%% One changed byte anywhere.
prop_damage() ->
    ?FORALL({Frame, At, Byte}, {frame(), non_neg_integer(), byte()}, begin
        Bytes = bytes([Frame]),
        Index = At rem byte_size(Bytes),
        <<Before:Index/binary, _, After/binary>> = Bytes,
        ends_well(<<Before/binary, Byte, After/binary>>)
    end).

%% Whole streams with bytes changed, put in, taken out and repeated. What is made of them has no
%% more in it than they have.
prop_mutations() ->
    ?FORALL({Frames, Mutations}, {non_empty(list(frame())), non_empty(list(mutation()))}, begin
        Bytes = lists:foldl(fun mutate/2, bytes(Frames), Mutations),
        Made = halley_edge_codec:deframe(Bytes),
        ends_well(Bytes) andalso erlang:external_size(Made) =< 10 * byte_size(Bytes) + 1000
    end).

mutation() ->
    {oneof([change, insert, remove, repeat]), non_neg_integer(), range(1, 300),
     oneof([byte(), oneof([0, 1, 127, 128, 255])])}.

mutate({What, Place, Length, Byte}, Bytes) when Bytes =/= <<>> ->
    At = Place * 7919 rem byte_size(Bytes),
    <<Before:At/binary, After/binary>> = Bytes,
    Some = min(Length, byte_size(After)),
    <<Part:Some/binary, Rest/binary>> = After,
    case What of
        change -> <<Before/binary, Byte, (binary:part(After, 1, byte_size(After) - 1))/binary>>;
        insert -> <<Before/binary, Byte, After/binary>>;
        remove -> <<Before/binary, Rest/binary>>;
        repeat -> <<Before/binary, Part/binary, Part/binary, Rest/binary>>
    end;
mutate(_, <<>>) ->
    <<>>.

%% No name from outside becomes an atom, which would never be given back.
no_atoms_test_() ->
    {timeout, 60, fun() ->
        Run = fun(N) ->
            true = proper:quickcheck(prop_mutations(), [{numtests, N}, quiet])
        end,
        Run(20),
        Before = erlang:system_info(atom_count),
        Run(500),
        ?assert(erlang:system_info(atom_count) - Before < 20)
    end}.

ends_well(Bytes) ->
    case halley_edge_codec:deframe(Bytes) of
        {ok, Frames, Rest} -> is_list(Frames) andalso is_binary(Rest);
        {error, {Clause, What}} -> is_binary(Clause) andalso is_binary(What)
    end.

feed(<<>>, _, <<>>) ->
    [];
feed(Bytes, Cuts, Rest) ->
    {Cut, Later} = case Cuts of
        [First | More] -> {min(First, byte_size(Bytes)), More};
        [] -> {byte_size(Bytes), []}
    end,
    <<Piece:Cut/binary, Next/binary>> = Bytes,
    {ok, Frames, NewRest} = halley_edge_codec:deframe(<<Rest/binary, Piece/binary>>),
    [Frame || {_, Frame} <- Frames] ++ feed(Next, Later, NewRest).

bytes(Frames) ->
    iolist_to_binary([halley_edge_codec:encode(Frame) || Frame <- Frames]).

frame() ->
    oneof([frame_of_link(), of_trunk()]).

of_trunk() ->
    oneof([{place, u(16), range(1, 16#ffff)}, {worker_gone, u(16)},
           {trunk_deliver, item(), ?LET(Words, list(u(64)), << <<W:64>> || W <- Words >>)},
           {trunk_group_deliver, u(32), item(),
            ?LET(Slots, list(u(16)), << <<S:16>> || S <- Slots >>)},
           ?LET(Frame, frame_of_link(), carried(Frame))]).

%% In a frame of a trunk, if it may be in one (13.3).
carried(Frame) ->
    <<_:32, Type, _/binary>> = iolist_to_binary(halley_edge_codec:encode(Frame)),
    case Type of
        _ when Type =< 16#10; Type =:= 16#18; Type =:= 16#1D; Type =:= 16#40 -> Frame;
        _ when Type < 16#40 -> {to_slot, u(16), Frame};
        _ -> {from_worker, u(16), Frame}
    end.

frame_of_link() ->
    oneof([{oneof([ping, pong]), u(64)}, {credit, u(32)}, {goodbye, range(1, 8), binary()},
           {opened, name(), list({conn(), u(32)})},
           {refused, conn(), u(16), u(16), binary(), binary()},
           {deliver, item(), ?LET(Conns, list(conn()), << <<C:64>> || C <- Conns >>)},
           {replay, conn(), oneof([0, 8]), name(), list(u(64)), list(item())},
           {gap, gap_reason(), u(64), u(64), name(), list(conn())},
           {presence, name(), list(conn())}, {cursor, name()}, {inspect, u(32), conn()},
           {close_sessions, binary(), list(conn())}, response(),
           {response_body, conn(), range(0, 1), binary()}, {request_credit, conn(), u(32)},
           {shutdown, u(32)}, hello_brain(), hello_edge(), {sync_begin, u(32), name()}, sync_end,
           {open, list({conn(), range(1, 5), binary(), name()})},
           {close, list({conn(), u(32), range(1, 8)})}, {replayed, conn()}, inspected(),
           {subscriptions, conn(), text(), list(text())},
           {behind, u(32), ?LET(N, range(0, 20),
                                vector(N, {conn(), u(32), range(0, 5), u(32), u(32), u(32)}))},
           {request, conn(), oneof([public, api]), oneof([0, 1, 4, 5]), binary(), binary(),
            list({name(), binary()}), binary()},
           {request_body, conn(), range(0, 1), binary()}, {request_gone, conn()}, operation(),
           {operation_answer, conn(), u(32), oneof([0, 1, 16, 17]), binary()},
           {stats, list(u(64))}]).

operation() ->
    ?LET({What, [User, Rights, Subject], Last, Members},
         {oneof([publish, follow, unfollow, subscribe, unsubscribe, state]), vector(3, text()),
          u(32), [oneof([none, {Name, binary()}])
                  || Name <- [<<"subject">>, <<"subjects">>, <<"to">>, <<"data">>, <<"id">>,
                              <<"ack">>, <<"keep">>]]},
         {operation, conn(), u(32),
          #{what => What, user => User, rights => Rights, subject => Subject, last => Last,
            members => [Member || Member <- Members, Member =/= none]}}).

gap_reason() ->
    oneof([<<"too_old">>, <<"malformed">>, <<"other_store">>, <<"damaged">>]).

item() ->
    ?LET({Shard, Seq, At, Cursor, Before, Value, SubjectBytes},
         {range(1, 64), u(64), u(64), name(), name(), non_empty(name()), range(0, 2)},
         #{shard => Shard, seq => Seq, at => At, data_offset => byte_size(Before),
           subject_offset => byte_size(Before), subject_bytes => SubjectBytes, cursor => Cursor,
           json => <<Before/binary, Value/binary, $}>>}).

inspected() ->
    ?LET({Token, Conn, State, Transport, [Bytes, Pieces, Ms, Held, Dropped, Conflated]},
         {u(32), conn(), range(0, 4), range(0, 5), vector(6, u(32))},
         {inspected, Token, Conn,
          #{state => State, transport => Transport, outbox_bytes => Bytes,
            outbox_pieces => Pieces, outbox_ms => Ms, held => Held, dropped => Dropped,
            conflated => Conflated}}).

response() ->
    ?LET({Flags, Body, More}, {range(0, 3), binary(), u(32)},
         {response, conn(), u(16), Flags, byte_size(Body) + More * (1 - Flags band 1),
          list({binary(), binary()}), Body}).

hello_brain() ->
    ?LET({Window, Node, Settings}, {window(), binary(), list({binary(), binary()})},
         {hello_brain, #{version => 6, window => Window, node => Node, settings => Settings}}).

hello_edge() ->
    ?LET({Window, Pid, Worker, Texts, Metrics},
         {window(), u(32), u(16), vector(3, binary()),
          list({metric_name(), oneof([counter, gauge]), text()})},
         {hello_edge, #{version => 6, window => Window, pid => Pid, worker => Worker,
                        workers => 65535, build => hd(Texts), public_listen => lists:nth(2, Texts),
                        api_listen => lists:nth(3, Texts), connections_max => Pid,
                        metrics => Metrics}}).

metric_name() ->
    ?LET(Name, non_empty(name()), <<"halley_edge_", Name/binary>>).

%% Not more than a str8 has.
text() ->
    ?LET(Chars, proper_types:resize(60, list(range($\s, 16#d7ff))),
         unicode:characters_to_binary(Chars)).
name() -> ?LET(Text, list(oneof([range($a, $z), range($0, $9), $_])), list_to_binary(Text)).
conn() -> range(0, (1 bsl 48) - 1).
window() -> range(524288, (1 bsl 32) - 1).
u(Bits) -> range(0, (1 bsl Bits) - 1).
