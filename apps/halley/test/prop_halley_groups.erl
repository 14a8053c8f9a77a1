%% Members at workers compared with followers who are online, in one process: however changes of the
%% truth, marks and settling interleave, a group that is settled is exact, and so is its number of
%% sessions. Workers are sets that connections join and leave; a connection that closes leaves its
%% worker by itself, as in edge/halley-edge/src/groups/mod.rs.
%%
%% That the real shard, links and follows keep the order which this takes for granted is shown by
%% `halley_delivery_SUITE'.
-module(prop_halley_groups).

-export([prop_settled_is_exact/0]).

-import(proper_types, [frequency/1, list/1, oneof/1, range/2, resize/2]).

%% Debian's erlang-proper comes without its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(WHENFAIL(Action, Test), proper:whenfail(fun() -> Action end, fun() -> Test end)).

%% Near each other, at both sides of a chunk's end, and far.
-define(USERS, [0, 1, 63, 64, 65535, 65536, 16777215]).

-record(world, {
    follows = #{} :: map(),
    online = #{} :: map(),                    % user => sessions, words and pids
    marks = #{} :: map(),
    worker = #{} :: map(),                    % words that are members
    members = halley_groups_members:new()
}).

step() ->
    frequency([{4, {open, user(), range(1, 4)}}, {2, {open_process, user()}},
               {3, {close, user()}}, {2, {follow, user()}}, {2, {unfollow, user()}},
               {2, {settle, user()}}, {1, {settle_unmarked, user()}}]).

user() -> oneof(?USERS).

prop_settled_is_exact() ->
    ?FORALL(Steps, resize(60, list(step())), begin
        Moved = lists:foldl(fun apply_step/2, #world{}, Steps),
        #world{worker = Worker, members = Members} = World = settle_all(Moved),
        Expected = lists:sort([W || U <- followers(World), W <- sessions(U, World), is_integer(W)]),
        Processes = lists:sort([U || U <- followers(World),
                                     lists:any(fun is_pid/1, sessions(U, World))]),
        ?WHENFAIL(io:format(user, "expected ~p~nfound ~p~n", [Expected, World]),
                  lists:sort(maps:keys(Worker)) =:= Expected
                      andalso halley_groups_members:count(Members) =:= length(Expected)
                      andalso lists:sort(halley_groups_members:with_processes(Members))
                                  =:= Processes)
    end).

followers(#world{follows = Follows}) -> maps:keys(Follows).

sessions(User, #world{online = Online}) -> maps:get(User, Online, []).

apply_step({open, User, N}, World) ->
    opened(User, User bsl 8 bor N, World);
apply_step({open_process, User}, World) ->
    opened(User, self(), World);
apply_step({close, User}, #world{online = Online, worker = Worker} = World) ->
    case sessions(User, World) of
        [] -> World;
        [Session | Rest] -> mark(User, World#world{online = Online#{User => Rest},
                                                   worker = maps:remove(Session, Worker)})
    end;
apply_step({follow, User}, #world{follows = Follows} = World) ->
    mark(User, World#world{follows = Follows#{User => []}});
apply_step({unfollow, User}, #world{follows = Follows} = World) ->
    mark(User, World#world{follows = maps:remove(User, Follows)});
apply_step({settle, User}, #world{marks = Marks} = World) when is_map_key(User, Marks) ->
    settle(User, World);
apply_step({settle, _}, World) ->
    World;
apply_step({settle_unmarked, User}, World) ->
    settle(User, World).

opened(User, Session, #world{online = Online} = World) ->
    Sessions = lists:usort([Session | sessions(User, World)]),
    mark(User, World#world{online = Online#{User => Sessions}}).

mark(User, #world{marks = Marks} = World) ->
    World#world{marks = Marks#{User => []}}.

settle_all(#world{marks = Marks} = World) ->
    lists:foldl(fun settle/2, World, maps:keys(Marks)).

settle(User, #world{follows = Follows, marks = Marks, worker = Worker} = World) ->
    {What, Words, Members} = halley_groups_members:settle(
        User, is_map_key(User, Follows), found(sessions(User, World)), World#world.members),
    Told = case What of
               join -> maps:merge(Worker, maps:from_keys(Words, []));
               leave -> maps:without(Words, Worker)
           end,
    World#world{marks = maps:remove(User, Marks), worker = Told, members = Members}.

%% As the directory says it.
found([]) -> 0;
found([Word]) when is_integer(Word) -> Word;
found(Sessions) -> Sessions.
