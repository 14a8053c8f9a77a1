%% Events about several subjects in the history: found by each of them, kept over a kill; and the
%% border between past and future events, over all shards.
-module(halley_history_joint_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(SHARD, 3).

joint_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 120, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
      || {Title, Fun} <- cases()]}.

cases() ->
    [{"each of its subjects finds it", fun found/0},
     {"a brain that is killed finds it again", fun killed/0},
     {"whether there are any is one look", fun any/0},
     {"a subject with such events alone has events", fun has_events/0},
     {"a vector has nothing without what came before it", fun cuts/0}].

publish(Subjects) ->
    Seq = halley_history:draw(?SHARD, length(Subjects)),
    Joint = halley_event:joint(id(Seq), Subjects, <<"1">>),
    Event = halley_event:joint_event(Joint, <<>>, {?SHARD, Seq}, 5),
    Ref = make_ref(),
    ok = halley_history:append(?SHARD, [Event#{sessions := 2}], [{{self(), Ref}, ok}]),
    receive {Ref, ok} -> Seq after 60000 -> error(no_answer) end.

id(Seq) -> <<"e", (integer_to_binary(Seq))/binary>>.

chain(Subject) -> chain(Subject, 0, element(?SHARD, halley_history:written())).

chain(_, UpTo, UpTo) -> [];
chain(Subject, After, UpTo) ->
    {Seqs, To, _} = halley_history:stretch(?SHARD, {in, ?SHARD, Subject}, After, UpTo),
    Seqs ++ chain(Subject, To, UpTo).

events(Subject) ->
    Reader = halley_history_reader:new(),
    [begin
         {ok, 5, Body, _} = halley_history_reader:event(Seq, {in, ?SHARD, Subject}, Reader),
         {ok, #{kind := joint, id := Id}} = halley_history_record:body(Body),
         Id
     end || Seq <- chain(Subject)].

found() ->
    A = publish([<<"b">>, <<"a">>]),
    B = publish([<<"a">>, <<"c">>, <<"b">>]),
    ?assertEqual([A, B - 2], chain(<<"a">>)),
    ?assertEqual([A - 1, B], chain(<<"b">>)),
    ?assertEqual([id(A), id(B)], events(<<"b">>)),
    ?assertEqual([id(B)], events(<<"c">>)),
    ?assertEqual([], chain(<<"d">>)),
    ?assertEqual({ok, B}, halley_history:find(id(B))),
    {ok, #{kind := joint, seq := B, first := First, subjects := Subjects}, Reader} =
        halley_history_reader:read(B - 1, halley_history_reader:new()),
    ?assertEqual({B - 2, [<<"a">>, <<"c">>, <<"b">>]}, {First, Subjects}),
    ?assertMatch({ok, ?SHARD, {in, ?SHARD, <<"c">>}, _},
                 halley_history_reader:subject(B - 1, Reader)),
    ?assertEqual(2, ?H:events()).

killed() ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 16)],
    Ids = [id(publish(Subjects)) || _ <- lists:seq(1, 20)],
    Last = id(publish([<<"x">>, <<"s7">>])),
    ?H:restart(),
    ?assertEqual(Ids ++ [Last], events(<<"s7">>)),
    ?assertEqual(Ids, events(<<"s16">>)),
    ?assertEqual([], maps:get(damaged, halley_history:info())),
    ?assertEqual(21, ?H:events()),
    ?assert(halley_history:has_joint(0)),
    ?assert(halley_history:joint(<<"x">>) > 0).

any() ->
    {ok, Before} = ?H:publish(<<"s">>, <<"1">>),
    ?assertNot(halley_history:has_joint(0)),
    ?assertEqual(0, halley_history:joint(<<"s">>)),
    Seq = publish([<<"a">>, <<"b">>]),
    ?assert(Seq > Before),
    ?assert(halley_history:has_joint(Seq - 1)),
    ?assertNot(halley_history:has_joint(Seq)),
    ?assertEqual(Seq, halley_history:joint(<<"b">>)).

has_events() ->
    ?assertNot(halley_history:has_events(<<"a">>)),
    publish([<<"b">>, <<"a">>]),
    ?assert(halley_history:has_events(<<"a">>)),
    ?assertNot(halley_history:has_events(<<"c">>)).

%% A part that is read late has what came after another part was read: that isn't in the vector.
cuts() ->
    {Heads, Written} = {halley_history:heads(), halley_history:written()},
    One = halley_history_atomics:draw(1, 1),
    ok = halley_history_atomics:put(counter, One - 1),
    ?assertEqual(Heads, halley_history:heads()),
    ok = halley_history_atomics:put(counter, One),
    ?assertEqual(setelement(1, Heads, One), halley_history:heads()),
    ok = halley_history_atomics:written(1, One),
    ?assertEqual(Written, halley_history:written()),
    ok = halley_history_atomics:all_written(),
    ?assertEqual(One, element(1, halley_history:written())).
