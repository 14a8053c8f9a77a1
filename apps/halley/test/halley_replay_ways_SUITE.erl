%% The two ways of collecting a user's missed events, by its follows and by the events in between,
%% and the events that one session collects for another: all give the same events.
-module(halley_replay_ways_SUITE).

-include("support/halley_store_proper.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_history_helper, [replayed/4]).
-import(halley_test_brain, [publish/2, publish_all/1, follow_all/2, damage/1]).

-define(USERS, 3).
-define(SUBJECTS, 12).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [the_ways_find_the_same, the_shorter_way_is_taken, more_than_a_window,
     an_unreadable_event_in_between, large_events_are_not_read_whole, gathered_for_another,
     gathered_for_nobody].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    _ = [meck:unload(Module) || Module <- [halley_follows, halley_history_reader],
                                is_pid(whereis(mecked(Module)))],
    halley_test_brain:stop(Config).

mecked(Module) -> list_to_atom(atom_to_list(Module) ++ "_meck").

%% --- helpers -------------------------------------------------------------------------------------

vector() ->
    Heads = halley_history:heads(),
    ok = halley_history:await(Heads, ?WAIT_MS),
    Heads.

%% Of a time that has been: a gap begins then, not when it is told.
cursor(Vector) ->
    halley_cursor:encode(halley_history:store(), 1700000000, Vector).

new(User, Vector) ->
    {ok, Replay} = halley_replay:new(User, cursor(Vector)),
    Replay.

%% By a way that is chosen because the user is said to follow so much.
replay(Way, User, From, UpTo) ->
    Follows = case Way of chains -> 0; walk -> 1 bsl 40 end,
    ok = meck:expect(halley_follows, count_following, fun(_) -> Follows end),
    all(new(User, From), UpTo).

ways() ->
    ok = meck:new(halley_follows, [passthrough, no_link, no_history]).

all(Replay, UpTo) ->
    {All, Reader} = all(Replay, UpTo, halley_history_reader:new()),
    ok = halley_history_reader:close(Reader),
    All.

all(Replay, UpTo, Reader) ->
    Limits = #{events_max => 7, bytes_max => 100000},
    {Events, What, Next, Later} = replayed(Replay, UpTo, Limits, Reader),
    Said = [{Seq, Id, Cursor} || #{seq := Seq, id := Id, cursor := Cursor} <- Events],
    case What of
        done ->
            {Said, Later};
        {gap, Gap} ->
            {Rest, Last} = all(Next, UpTo, Later),
            %% The time of the telling differs.
            {Said ++ [maps:without([to], Gap) | Rest], Last};
        _ ->
            {Rest, Last} = all(Next, UpTo, Later),
            {Said ++ Rest, Last}
    end.

ids(Said) -> [Id || {_, Id, _} <- Said].

%% --- both ways -----------------------------------------------------------------------------------

%% Any follows, unfollows and events; from any place to any later one, shard by shard; with records
%% that can't be read.
the_ways_find_the_same(_) ->
    ok = ways(),
    Options = [{numtests, 150}, {max_size, 60}, noshrink, quiet, {to_file, user}],
    ?assert(proper:quickcheck(prop_ways(), Options)).

prop_ways() ->
    User = range(1, ?USERS),
    Subject = range(1, ?SUBJECTS),
    Step = frequency([{6, {publish, Subject}}, {3, {follow, User, Subject}},
                      {2, {unfollow, User, Subject}}, {1, {publish_about, User}}, {2, mark},
                      {1, {damage, range(0, 1000)}}]),
    ?FORALL({Steps, Picks}, {list(Step), list(range(0, 1 bsl 30))},
            begin
                World = integer_to_binary(erlang:unique_integer([positive])),
                Marks = lists:foldl(fun(S, Marks) -> step(S, World, Marks) end, [vector()], Steps),
                lists:all(fun(Pick) -> same(World, Pick, [vector() | Marks]) end, [0 | Picks])
            end).

name(Kind, World, N) -> <<Kind/binary, World/binary, "-", (integer_to_binary(N))/binary>>.

user(World, N) -> name(<<"user">>, World, N).

subject(World, N) -> name(<<"subject">>, World, N).

step({publish, N}, World, Marks) -> _ = publish(subject(World, N), 1), Marks;
step({publish_about, N}, World, Marks) -> _ = publish(user(World, N), 1), Marks;
step({follow, U, S}, World, Marks) -> ok = halley:follow(user(World, U), subject(World, S)), Marks;
step({unfollow, U, S}, World, Marks) ->
    ok = halley:unfollow(user(World, U), subject(World, S)),
    Marks;
step(mark, _, Marks) ->
    [vector() | Marks];
step({damage, Pick}, _, Marks) ->
    {Seqs, _} = halley_history:seqs(halley_vector:smallest(lists:last(Marks)),
                                    halley_vector:largest(vector()), 1000),
    Events = [Seq || Seq <- Seqs, {ok, #{kind := event}} <- [halley_history_index:lookup(Seq)]],
    case Events of
        [] -> Marks;
        _ -> ok = damage(lists:nth(1 + Pick rem length(Events), Events)), Marks
    end.

%% Each shard's part is that of one of the marks.
same(World, Pick, Marks) ->
    User = user(World, 1 + Pick rem ?USERS),
    Mix = fun(Salt) ->
        list_to_tuple([element(Shard, lists:nth(1 + erlang:phash2({Pick, Salt, Shard},
                                                                  length(Marks)), Marks))
                       || Shard <- lists:seq(1, halley_shards:count())])
    end,
    From = Mix(from),
    UpTo = list_to_tuple(lists:zipwith(fun erlang:max/2, tuple_to_list(From),
                                       tuple_to_list(Mix(up_to)))),
    replay(chains, User, From, UpTo) =:= replay(walk, User, From, UpTo).

%% Who follows much and missed little pays for what was published: a few events for 20,000 follows
%% are a call or two, and no chain is looked at.
the_shorter_way_is_taken(_) ->
    Subjects = [subject(<<>>, N) || N <- lists:seq(1, 20000)],
    ok = follow_all(<<"ann">>, Subjects),
    From = vector(),
    Ids = publish_all([{lists:nth(N, Subjects), N} || N <- lists:seq(1, 20000, 2000)]),
    _ = publish_all([{subject(<<"strange">>, N), N} || N <- lists:seq(1, 100)]),
    UpTo = vector(),
    {Reductions, Said} = reductions(fun() -> all(new(<<"ann">>, From), UpTo) end),
    ?assertEqual(lists:sort(Ids), lists:sort(ids(Said))),
    ok = ways(),
    {ByChains, Said} = reductions(fun() -> replay(chains, <<"ann">>, From, UpTo) end),
    ct:pal("~b reductions, ~b by chains", [Reductions, ByChains]),
    ?assert(20 * Reductions < ByChains).

reductions(Fun) ->
    {reductions, Before} = process_info(self(), reductions),
    Result = Fun(),
    {reductions, After} = process_info(self(), reductions),
    {After - Before, Result}.

%% A pass keeps 16,384 candidates at most, of one and a half times as many, and the walk goes on
%% where it ended.
more_than_a_window(_) ->
    Subjects = [subject(<<>>, N) || N <- lists:seq(1, 10)],
    ok = follow_all(<<"ann">>, Subjects),
    From = vector(),
    Ids = [Id || _ <- lists:seq(1, 30),
                 Id <- publish_all([{S, 1} || S <- Subjects, _ <- lists:seq(1, 90)])],
    UpTo = vector(),
    ok = ways(),
    ok = meck:expect(halley_follows, count_following, fun(_) -> 1 bsl 40 end),
    Said = all(new(<<"ann">>, From), UpTo),
    ?assertEqual(lists:sort(Ids), lists:sort(ids(Said))),
    ?assertEqual(Said, replay(chains, <<"ann">>, From, UpTo)).

%% Whose it is can't be known: so the chains say whether it concerns the user.
an_unreadable_event_in_between(_) ->
    ok = ways(),
    ok = follow_all(<<"ann">>, [<<"bob">>]),
    From = vector(),
    [First, Second, Third] = publish_all([{<<"bob">>, N} || N <- [1, 2, 3]]),
    Strange = publish(<<"cid">>, 1),
    [{ok, Bad}, {ok, Other}] = [halley_history:find(Id) || Id <- [Second, Strange]],
    UpTo = vector(),
    Whole = replay(walk, <<"ann">>, From, UpTo),
    ?assertEqual([First, Second, Third], ids(Whole)),
    %% Of a stranger's nothing is said.
    ok = damage_subject(Other),
    ?assertEqual(Whole, replay(walk, <<"ann">>, From, UpTo)),
    ok = damage_subject(Bad),
    Said = replay(walk, <<"ann">>, From, UpTo),
    ?assertMatch([{_, First, _}, #{reason := damaged}, {_, Third, _}], Said),
    ?assertEqual(replay(chains, <<"ann">>, From, UpTo), Said).

%% The last letter of the subject, behind head, numbers, and the id.
damage_subject(Seq) ->
    {ok, #{segment := Segment, offset := Offset}} = halley_history_index:lookup(Seq),
    Path = halley_history_segment:path(halley_history_home:directory(), Segment),
    {ok, File} = file:open(Path, [read, write, raw, binary]),
    {ok, <<IdBytes>>} = file:pread(File, Offset + 12 + 31, 1),
    At = Offset + 12 + 31 + 1 + IdBytes + 1,
    {ok, <<Byte>>} = file:pread(File, At, 1),
    ok = file:pwrite(File, At, <<(Byte bxor 1)>>),
    ok = file:close(File),
    true = ets:delete_all_objects(halley_history_cache),
    true = ets:insert(halley_history_cache, {next, 0}),
    ok.

%% Blocks of the log count: where events are large, the follows are the shorter way.
large_events_are_not_read_whole(_) ->
    ok = follow_all(<<"ann">>, [subject(<<>>, N) || N <- lists:seq(1, 4000)]),
    From = vector(),
    Large = binary:copy(<<"x">>, 60000),
    _ = publish_all([{subject(<<"strange">>, N), Large} || N <- lists:seq(1, 400)]),
    UpTo = vector(),
    ok = meck:new(halley_history_reader, [passthrough, no_link]),
    ?assertEqual([], all(new(<<"ann">>, From), UpTo)),
    ?assertEqual(0, meck:num_calls(halley_history_reader, subject, '_')).

%% --- what one gathers for another ----------------------------------------------------------------

%% What a gathering found that took several calls: so much was published that it goes by the
%% follows.
gathered(User, From, UpTo) ->
    ok = meck:expect(halley_follows, count_following, fun(_) -> 20000 end),
    until_gathered(new(User, From), UpTo, halley_history_reader:new()).

until_gathered(Replay, UpTo, Reader) ->
    Limits = #{events_max => 1, bytes_max => 100000},
    {_, What, Next, Later} = replayed(Replay, UpTo, Limits, Reader),
    case halley_replay:gathered(Next) of
        {none, Left} when What =/= done -> until_gathered(Left, UpTo, Later);
        {Found, _} -> Found
    end.

publish_much() ->
    [_ = publish_all(lists:duplicate(200, {<<"stranger">>, 1})) || _ <- lists:seq(1, 35)],
    ok.

%% A session that comes back from the same place, or from a later one, needs no gathering of its
%% own, and gets what it would have found.
gathered_for_another(_) ->
    ok = ways(),
    Subjects = [subject(<<>>, N) || N <- lists:seq(1, 20000)],
    ok = follow_all(<<"ann">>, Subjects),
    From = vector(),
    ok = publish_much(),
    Publish = fun() -> publish_all([{lists:nth(N, Subjects), 1} || N <- lists:seq(1, 20000, 400)])
              end,
    _ = Publish(),
    Half = vector(),
    _ = Publish(),
    ok = halley:unfollow(<<"ann">>, lists:nth(1, Subjects)),
    UpTo = vector(),
    Found = gathered(<<"ann">>, From, UpTo),
    _ = Publish(),
    Last = vector(),
    Mixed = list_to_tuple([element(Shard, case Shard rem 2 of 0 -> From; 1 -> Half end)
                           || Shard <- lists:seq(1, halley_shards:count())]),
    [begin
         Own = replay(chains, <<"ann">>, Place, To),
         Offered = halley_replay:offer(Found, new(<<"ann">>, Place)),
         {Reductions, Said} = reductions(fun() -> all(Offered, To) end),
         %% An event's cursor is of where its pass goes to.
         ?assertEqual(ids(Own), ids(Said)),
         ?assert(To =/= UpTo orelse Own =:= Said),
         ?assert(To =/= UpTo orelse Reductions < 200000)
     end || Place <- [From, Half, Mixed], To <- [UpTo, Last]].

%% One that comes back from an earlier place, goes less far, or is another's gathers for itself; so
%% does one that follows something else by then.
gathered_for_nobody(_) ->
    ok = ways(),
    Subjects = [subject(<<>>, N) || N <- lists:seq(1, 20000)],
    ok = follow_all(<<"ann">>, Subjects),
    ok = follow_all(<<"bob">>, [lists:nth(1, Subjects)]),
    Start = vector(),
    Publish = fun() -> publish_all([{S, 1} || S <- lists:sublist(Subjects, 20)]) end,
    _ = Publish(),
    From = vector(),
    ok = publish_much(),
    Half = vector(),
    _ = Publish(),
    UpTo = vector(),
    Found = gathered(<<"ann">>, From, UpTo),
    [begin
         Offered = halley_replay:offer(Found, new(User, Place)),
         ?assertEqual(replay(chains, User, Place, To), all(Offered, To))
     end || {User, Place, To} <- [{<<"ann">>, Start, UpTo}, {<<"ann">>, From, Half},
                                  {<<"bob">>, From, UpTo}]],
    %% A follow counts from when it was made (http.md 10.4).
    Old = publish(<<"new">>, 1),
    To = vector(),
    Before = gathered(<<"ann">>, From, To),
    ok = halley:follow(<<"ann">>, <<"new">>),
    Now = all(halley_replay:offer(Before, new(<<"ann">>, From)), To),
    ?assertNot(lists:member(Old, ids(Now))),
    ?assertEqual(replay(chains, <<"ann">>, From, To), Now).
