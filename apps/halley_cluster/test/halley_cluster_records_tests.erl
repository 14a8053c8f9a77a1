%% The meaning of the records of a row. `prop_halley_cluster_records' has their bytes.
-module(halley_cluster_records_tests).

-include_lib("eunit/include/eunit.hrl").

draft(Id, Data) -> halley_event:draft(Id, <<"s">>, Data).

%% One for each user or subject, and for a change of follows; none for what needs no place.
seqs_test() ->
    Private = {private, halley_event:private(generated, [<<"a">>, <<"b">>], <<"1">>)},
    Subjects = [<<"a">>, <<"b">>, <<"c">>],
    Joint = {by, <<"u">>, {joint, halley_event:joint(generated, Subjects, <<"1">>)}},
    ?assertEqual([1, 1, 2, 3, 1, 1, 1, 0, 0, 1],
                 [halley_cluster_records:seqs(Record)
                  || Record <- [{event, draft(generated, <<"1">>)},
                                {event, {keep, keep, {by, <<"u">>, draft(generated, <<"1">>)}}},
                                {event, Private}, {event, Joint}, {follow, <<"u">>, <<"s">>},
                                {unfollow, <<"u">>, <<"s">>}, {forget, <<"u">>},
                                {key, <<"k">>, removed}, {known, <<"i">>}, nothing]]).

%% A batch that chooses an id twice has one event with it, and keeps its order.
id_twice_in_a_proposal_test() ->
    #{seqs := 2, count := 3, ids := [<<"i">>], records := Bytes} = halley_cluster_records:proposal(
        [{event, draft(<<"i">>, <<"1">>)}, {event, draft(<<"i">>, <<"2">>)},
         {event, draft(generated, <<"3">>)}]),
    ?assertEqual({ok, [{event, draft(<<"i">>, <<"1">>)}, {known, <<"i">>},
                       {event, draft(generated, <<"3">>)}]},
                 halley_cluster_records:records(Bytes)).

%% What the log had is named in its place, and takes no seq.
known_ids_test() ->
    Proposal = halley_cluster_records:proposal(
        [{event, draft(<<"i">>, <<"1">>)}, {event, draft(<<"j">>, <<"2">>)}]),
    #{seqs := 1, ids := [<<"j">>], records := Bytes} =
        halley_cluster_records:without([<<"i">>], Proposal),
    ?assertEqual({ok, [{known, <<"i">>}, {event, draft(<<"j">>, <<"2">>)}]},
                 halley_cluster_records:records(Bytes)).

%% Follows, keys and kept values go to the engine's tables, in order, a kept value with its seq.
changes_test() ->
    Kept = {event, {keep, keep, draft(generated, <<"2">>)}},
    #{changing := true, records := Bytes} = halley_cluster_records:proposal(
        [{event, draft(generated, <<"1">>)}, {follow, <<"u">>, <<"s">>}, Kept,
         {event, {keep, clear, draft(generated, <<"null">>)}}, {forget, <<"u">>},
         {key, <<"k">>, <<"r">>}]),
    [{follow, <<"u">>, <<"s">>}, {keep, <<"s">>, 13, Value}, {clear, <<"s">>}, {forget, <<"u">>},
     {key, <<"k">>, <<"r">>}] = halley_cluster_records:changes(77, 10, Bytes),
    ?assertEqual({ok, 77, Kept}, halley_cluster_records:kept(Value)),
    ?assertEqual({error, malformed}, halley_cluster_records:kept(<<"noise">>)),
    #{changing := false} = halley_cluster_records:proposal([{event, draft(generated, <<"1">>)}]).

%% A brain that is older than a row's writer is told so; damage isn't taken for news.
newer_version_test() ->
    Content = <<9, "whatever the future has">>,
    Body = <<Content/binary, (erlang:crc32(Content)):32>>,
    ?assertEqual({error, {newer, 9}}, halley_cluster_records:decode(Body)),
    ?assertEqual(unknown, halley_cluster_records:epoch(Body)),
    <<_, Rest/binary>> = halley_cluster_records:body(3, []),
    ?assertEqual({error, crc}, halley_cluster_records:decode(<<9, Rest/binary>>)),
    ?assertEqual(3, halley_cluster_records:epoch(halley_cluster_records:body(3, []))).

%% Text that isn't UTF-8 would crash whoever makes JSON of it.
bad_text_test_() ->
    [?_assertEqual({error, malformed}, halley_cluster_records:records(Bytes))
     || Bytes <- [<<4, 1, 16#FF, 1, $s>>, <<1, 1, 1, 16#C3, 0, 1, $s, 1:32, $1>>,
                  <<1, 0, 0, 1, 16#80, 1:32, $1>>, <<4, 0, 1, $s>>, <<1, 12, 0, 1, $s, 1:32, $1>>,
                  <<2, 0, 2:16, 1, $b, 1, $a, 1:32, $1>>, <<3, 0, 2:16, 1, $a, 1, $a, 1:32, $1>>,
                  <<2, 0, 0:16, 1:32, $1>>]].
