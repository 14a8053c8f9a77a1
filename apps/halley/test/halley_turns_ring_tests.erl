%% Turns of sessions: fair among users, whatever the number of their sessions.
-module(halley_turns_ring_tests).

-include("support/halley_store_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

turns(Sessions) ->
    lists:foldl(fun({User, Conn}, Turns) ->
        {_, Next} = halley_turns_ring:add(User, Conn, Turns),
        Next
    end, halley_turns_ring:new(), Sessions).

%% Connections in the order of their turns, if none yields.
taken(Turns) ->
    case halley_turns_ring:is_empty(Turns) of
        true -> [];
        false ->
            {_, Conn, _, Next} = halley_turns_ring:take(Turns),
            [Conn | taken(Next)]
    end.

users_share_whatever_their_sessions_test() ->
    Much = [{1, Conn} || Conn <- lists:seq(1, 50)],
    Others = [{User, 100 * User} || User <- lists:seq(2, 5)],
    ?assertEqual([1, 200, 300, 400, 500 | lists:seq(2, 50)], taken(turns(Much ++ Others))),
    ?assertEqual([200, 300, 400, 500 | lists:seq(1, 50)], taken(turns(Others ++ Much))).

%% Of six users the first has two sessions, and its first one yields twice: it stays the first of
%% its user's, and has every fifth turn.
who_yields_is_late_and_stays_first_test() ->
    Turns = turns([{1, 10}, {1, 11} | [{User, 10 * User + N} || N <- [0, 1, 2],
                                                               User <- lists:seq(2, 6)]]),
    {1, 10, Place, Taken} = halley_turns_ring:take(Turns),
    {[20, 30, 40], Later} = some(3, halley_turns_ring:yielded(1, 10, Place, Taken)),
    {1, 10, Place, Again} = halley_turns_ring:take(Later),
    {[50, 60, 21, 31], End} = some(4, halley_turns_ring:yielded(1, 10, Place, Again)),
    {1, 10, Place, Done} = halley_turns_ring:take(End),
    ?assert(halley_turns_ring:waits(1, Done)),
    ?assertEqual([41, 51, 61, 22, 32, 11, 42, 52, 62], taken(Done)).

some(0, Turns) -> {[], Turns};
some(N, Turns) ->
    {_, Conn, _, Next} = halley_turns_ring:take(Turns),
    {Conns, Last} = some(N - 1, Next),
    {[Conn | Conns], Last}.

%% Whatever comes, goes and yields: who is taken is the first of its user's, and each session that
%% waits is taken once.
random_turns_test_() ->
    {timeout, 60, fun() ->
        ?assert(proper:quickcheck(prop_each_waits_once(), [{numtests, 500}, quiet,
                                                           {to_file, user}]))
    end}.

prop_each_waits_once() ->
    Step = proper_types:oneof([{add, proper_types:range(1, 5)}, take, yield,
                               {remove, proper_types:range(0, 100)}]),
    ?FORALL(Steps, proper_types:list(Step),
            begin
                {Turns, Waiting, _} = lists:foldl(fun step/2, {halley_turns_ring:new(), #{}, 1},
                                                  Steps),
                lists:sort(taken(Turns)) =:= lists:sort(maps:keys(Waiting))
            end).

step({add, User}, {Turns, Waiting, Conn}) ->
    {Place, Next} = halley_turns_ring:add(User, Conn, Turns),
    {Next, Waiting#{Conn => {User, Place}}, Conn + 1};
step({remove, N}, {Turns, Waiting, Last}) when map_size(Waiting) > 0 ->
    Conn = lists:nth(1 + N rem map_size(Waiting), lists:sort(maps:keys(Waiting))),
    {{User, Place}, Left} = maps:take(Conn, Waiting),
    {halley_turns_ring:remove(User, Conn, Place, Turns), Left, Last};
step(Step, {Turns, Waiting, Last}) when map_size(Waiting) > 0, is_atom(Step) ->
    {User, Conn, Place, Next} = halley_turns_ring:take(Turns),
    #{Conn := {User, Place}} = Waiting,
    %% The first of its user's.
    Place = lists:min([P || {U, P} <- maps:values(Waiting), U =:= User]),
    case Step of
        take -> {Next, maps:remove(Conn, Waiting), Last};
        yield -> {halley_turns_ring:yielded(User, Conn, Place, Next), Waiting, Last}
    end;
step(_, State) ->
    State.
