%% A follow counts from when it was made, whatever cursor its user comes back with.
-module(halley_replay_since_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_store_proper.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_replay_SUITE, [cursor/0, replay/2, new/2, ids/1]).
-import(halley_test_brain, [publish/2, publish_all/1, follow_all/2]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [not_before_the_follow, made_up_cursor, each_time_it_was_followed, nothing_without_a_record,
     late_record_of_a_follow, more_than_a_pass_before, more_changes_than_are_remembered,
     no_turn_is_long, a_trace_knows, random_lives].

init_per_testcase(_, Config) ->
    halley_test_brain:start(Config).

end_per_testcase(_, Config) ->
    halley_test_brain:stop(Config).

%% All that is retained, for who follows it now: what nobody was ever given.
from_the_beginning() ->
    halley_cursor:encode(halley_history:store(), 0,
                         erlang:make_tuple(halley_shards:count(), halley_history:floor())).

follow(User, Subject) -> ok = halley:follow(User, Subject).
unfollow(User, Subject) -> ok = halley:unfollow(User, Subject).

%% http.md 10.4: "A follow counts from when it was made".
not_before_the_follow(_) ->
    follow(<<"ann">>, <<"tea">>),
    Cursor = cursor(),
    Before = publish(<<"tea">>, 1),
    publish(<<"room">>, before),
    follow(<<"ann">>, <<"room">>),
    After = publish(<<"room">>, 'after'),
    ?assertEqual([Before, After], ids(replay(<<"ann">>, Cursor))),
    %% With a cursor of anybody, and for who followed before.
    follow_all(<<"bob">>, [<<"tea">>]),
    ?assertEqual([], ids(replay(<<"bob">>, Cursor))).

made_up_cursor(_) ->
    [publish(<<"room">>, N) || N <- lists:seq(1, 50)],
    Own = publish(<<"ann">>, own),
    follow(<<"ann">>, <<"room">>),
    After = publish(<<"room">>, 'after'),
    ?assertEqual([Own, After], ids(replay(<<"ann">>, from_the_beginning()))),
    unfollow(<<"ann">>, <<"room">>),
    publish(<<"room">>, later),
    ?assertEqual([Own, After], ids(replay(<<"ann">>, from_the_beginning()))).

each_time_it_was_followed(_) ->
    publish(<<"room">>, 0),
    Ids = lists:append([begin
        follow(<<"ann">>, <<"room">>),
        Id = publish(<<"room">>, N),
        unfollow(<<"ann">>, <<"room">>),
        publish(<<"room">>, 'not hers'),
        [Id]
    end || N <- lists:seq(1, 20)]),
    ?assertEqual(Ids, ids(replay(<<"ann">>, from_the_beginning()))),
    follow(<<"ann">>, <<"room">>),
    Last = publish(<<"room">>, last),
    ?assertEqual(Ids ++ [Last], ids(replay(<<"ann">>, from_the_beginning()))).

%% A subject without events needs none, nor does what is followed already.
nothing_without_a_record(_) ->
    publish(<<"loud">>, 1),
    {ok, #{added := 2}} = halley:follow([{<<"ann">>, <<"quiet">>}, {<<"ann">>, <<"loud">>}]),
    ?assertMatch([_], halley_history:changes(<<"ann">>, 0)),
    publish(<<"quiet">>, 1),
    {ok, #{already := 2}} = halley:follow([{<<"ann">>, <<"quiet">>}, {<<"ann">>, <<"loud">>}]),
    ?assertMatch([_], halley_history:changes(<<"ann">>, 0)).

%% Two ask at once: the second one looked before the first took effect, and its record is late. It
%% takes nothing away that was published in between.
late_record_of_a_follow(_) ->
    publish(<<"room">>, before),
    From = halley_history:drawn(),
    follow(<<"ann">>, <<"room">>),
    Ids = [publish(<<"room">>, 1)],
    ok = halley_history:followed([{<<"ann">>, <<"room">>}], From),
    Later = [publish(<<"room">>, 2)],
    ?assertEqual(Ids ++ Later, ids(replay(<<"ann">>, from_the_beginning()))).

more_than_a_pass_before(_) ->
    follow(<<"ann">>, <<"tea">>),
    Many = [{<<"room">>, N} || N <- lists:seq(1, 9000)],
    publish_all(Many),
    Tea = publish(<<"tea">>, 1),
    follow(<<"ann">>, <<"room">>),
    Ids = publish_all(Many),
    ?assert([Tea | Ids] =:= ids(replay(<<"ann">>, from_the_beginning()))).

%% ?UNFOLLOWED_MAX of halley_replay_gather are.
more_changes_than_are_remembered(_) ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 9000)],
    publish_all([{Subject, before} || Subject <- [<<"room">> | Subjects]]),
    Cursor = cursor(),
    publish(<<"room">>, 1),
    follow(<<"ann">>, <<"room">>),
    Pairs = [{<<"ann">>, Subject} || Subject <- Subjects],
    {ok, #{added := 9000}} = halley:follow(Pairs),
    Kept = publish_all([{Subject, kept} || Subject <- Subjects]),
    {ok, #{removed := 9000}} = halley:unfollow(Pairs),
    Id = publish(<<"room">>, 2),
    Ids = ids(replay(<<"ann">>, Cursor)),
    ?assertEqual(Id, lists:last(Ids)),
    %% Not a list of thousands in the report.
    ?assert(lists:sort(Kept) =:= lists:sort(lists:droplast(Ids))).

%% A batch with nothing in it gives way to others.
no_turn_is_long(_) ->
    publish_all([{<<"room">>, N} || N <- lists:seq(1, 30000)]),
    follow(<<"ann">>, <<"room">>),
    UpTo = halley_history:written(),
    Yields = yields(new(<<"ann">>, from_the_beginning()), UpTo, 0),
    ?assert(Yields >= 4, Yields).

yields(Replay, UpTo, N) ->
    Limits = #{events_max => 256, bytes_max => 131072},
    case halley_history_helper:replayed(Replay, UpTo, Limits, halley_history_reader:new()) of
        {[], yield, Next, _} -> yields(Next, UpTo, N + 1);
        {[], done, _, _} -> N
    end.

a_trace_knows(_) ->
    Before = publish(<<"room">>, before),
    follow(<<"ann">>, <<"room">>),
    Id = publish(<<"room">>, 1),
    [?assertMatch({ok, #{followed := Followed, unfollowed_at := none}},
                  halley_trace:trace(Event, <<"ann">>))
     || {Event, Followed} <- [{Before, false}, {Id, true}]],
    unfollow(<<"ann">>, <<"room">>),
    Last = publish(<<"room">>, 2),
    ?assertMatch({ok, #{followed := false, unfollowed_at := none}},
                 halley_trace:trace(Before, <<"ann">>)),
    ?assertMatch({ok, #{followed := true, unfollowed_at := At}} when is_integer(At),
                 halley_trace:trace(Id, <<"ann">>)),
    ?assertMatch({ok, #{followed := false}}, halley_trace:trace(Last, <<"ann">>)).

%% Whatever a user does one after the other: exactly what was published while it followed, from any
%% cursor on.
random_lives(_) ->
    ?assert(proper:quickcheck(prop_lives(), [{numtests, 60}, {max_size, 60}, {to_file, user}])).

prop_lives() ->
    ?FORALL(Steps, list(step()), begin
        Life = integer_to_binary(erlang:unique_integer([positive])),
        Start = {cursor(), [], #{}, []},
        {_, Given, _, Cursors} = lists:foldl(fun(Step, Acc) -> live(Step, Life, Acc) end, Start,
                                             Steps),
        User = <<"u", Life/binary>>,
        lists:all(fun({Cursor, Before}) ->
            Missed = [Id || {Seq, Id} <- lists:reverse(Given), Seq > Before],
            Replayed = ids(replay(User, Cursor)),
            Missed =:= Replayed
                orelse begin io:format("~p: ~p, not ~p~n", [Steps, Replayed, Missed]), false end
        end, [{element(1, Start), 0} | Cursors])
    end).

step() ->
    {frequency([{4, publish}, {2, follow}, {2, unfollow}, {1, cursor}]),
     oneof([<<"a">>, <<"b">>])}.

live({publish, S}, Life, {First, Given, Follows, Cursors}) ->
    Id = publish(<<S/binary, Life/binary>>, 1),
    {First, [{halley_history:drawn(), Id} || is_map_key(S, Follows)] ++ Given, Follows, Cursors};
live({follow, S}, Life, {First, Given, Follows, Cursors}) ->
    {ok, _} = halley:follow([{<<"u", Life/binary>>, <<S/binary, Life/binary>>}]),
    {First, Given, Follows#{S => true}, Cursors};
live({unfollow, S}, Life, {First, Given, Follows, Cursors}) ->
    {ok, _} = halley:unfollow([{<<"u", Life/binary>>, <<S/binary, Life/binary>>}]),
    {First, Given, maps:remove(S, Follows), Cursors};
live({cursor, _}, _, {First, Given, Follows, Cursors}) ->
    {First, Given, Follows, [{cursor(), halley_history:drawn()} | Cursors]}.
