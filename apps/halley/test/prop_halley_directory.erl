%% The directory against a model: links and processes open and close sessions at the same time,
%% readers read all the while, and in the end the directory holds what each of them believes.
%%
%% Every actor owns its sessions alone, so its own order decides about them and the model is a set
%% that is folded over its commands. The risk is in the transitions of a user's word beneath them.
-module(prop_halley_directory).

-export([prop_state_equals_model/0, prop_shut_slot_stays_empty/0]).

-import(proper_types, [list/1, oneof/1, range/2, vector/2]).

%% Debian's erlang-proper comes without its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(WHENFAIL(Action, Test), proper:whenfail(fun() -> Action end, fun() -> Test end)).

-define(SLOTS, 4).
-define(STABLE_SLOT, 1000).
%% Users near each other, and one in a far chunk that has to be made.
-define(USERS, [1, 2, 3, 200000]).

command() ->
    {oneof([open, open, close]), oneof(?USERS), range(1, 3)}.

prop_state_equals_model() ->
    ?FORALL({Links, Processes, Gone},
            {vector(?SLOTS, list(command())), vector(3, list(command())), range(1, ?SLOTS)},
            with_directory(fun() -> state_equals_model(Links, Processes, Gone) end)).

state_equals_model(Links, Processes, Gone) ->
    [_ = halley_directory:open(User, {link, ?STABLE_SLOT, User}, infinity) || User <- ?USERS],
    Reader = start(fun() -> read_until_stopped(0) end),
    Pids = [spawn(fun() -> receive stop -> ok end end) || _ <- Processes],
    Actors = [link_actor(Slot, Commands) || {Slot, Commands} <- number(Links)]
        ++ [process_actor(Pid, Commands) || {Pid, Commands} <- lists:zip(Pids, Processes)],
    Models = [join(Actor) || Actor <- Actors],
    [DeadPid | _] = Pids,
    ok = end_session_processes([DeadPid]),
    ok = halley_directory:purge(Gone, fun(_) -> ok end),
    Expected = [Entry || {_, Session} = Entry <- lists:append(Models),
                         alive(Session, Gone, DeadPid)]
        ++ [{User, {link, ?STABLE_SLOT, User}} || User <- ?USERS],
    Found = [{User, Session} || User <- ?USERS, Session <- halley_directory:sessions(User)],
    Missed = stop_reader(Reader),
    Online = halley_directory:online(),
    ok = end_session_processes(Pids),
    ?WHENFAIL(io:format(user, "expected ~p~nfound ~p~nonline ~p~nmissed ~p~n",
                        [lists:sort(Expected), lists:sort(Found), Online, Missed]),
              Missed =:= 0
                  andalso lists:sort(Expected) =:= lists:sort(Found)
                  andalso Online =:= #{users => length(?USERS), sessions => length(Expected)}).

%% A link that goes on opening after its slot was shut leaves nothing there, whatever others do
%% meanwhile.
prop_shut_slot_stays_empty() ->
    ?FORALL(Links, vector(?SLOTS, list(command())),
            with_directory(fun() -> shut_slot_stays_empty(Links) end)).

shut_slot_stays_empty(Links) ->
    ok = halley_directory:mark(1, ended),
    Actors = [link_actor(Slot, Commands) || {Slot, Commands} <- number(Links)],
    Models = [join(Actor) || Actor <- Actors],
    Expected = [Entry || {_, {link, Slot, _}} = Entry <- lists:append(Models), Slot =/= 1],
    Found = [{User, Session} || User <- ?USERS, Session <- halley_directory:sessions(User)],
    lists:sort(Expected) =:= lists:sort(Found)
        andalso maps:get(sessions, halley_directory:online()) =:= length(Expected).

%% --- actors ------------------------------------------------------------------------------------

link_actor(Slot, Commands) ->
    start(fun() -> run(Commands, fun(N) -> {link, Slot, N} end) end).

%% One session for each user: the pid, whatever the command's number.
process_actor(Pid, Commands) ->
    start(fun() -> run(Commands, fun(_) -> Pid end) end).

run(Commands, Session) ->
    lists:foldl(fun(Command, Model) -> apply_command(Command, Session, Model) end, [], Commands).

apply_command({open, User, N}, Session, Model) ->
    _ = halley_directory:open(User, Session(N), infinity),
    lists:usort([{User, Session(N)} | Model]);
apply_command({close, User, N}, Session, Model) ->
    ok = halley_directory:close(User, Session(N)),
    lists:delete({User, Session(N)}, Model).

%% How often a session that was open all the time was not found.
read_until_stopped(Missed) ->
    receive
        stop -> Missed
    after 0 ->
        Unseen = [User || User <- ?USERS,
                          Sessions <- [halley_directory:sessions(User)],
                          not lists:member({link, ?STABLE_SLOT, User}, Sessions)],
        read_until_stopped(Missed + length(Unseen))
    end.

stop_reader({Pid, _} = Reader) ->
    Pid ! stop,
    join(Reader).

start(Fun) ->
    spawn_monitor(fun() -> exit({result, Fun()}) end).

join({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> error(Reason)
    after 10000 ->
        error(actor_hangs)
    end.

%% The directory's owner hears of a death after those who monitor the process themselves, at
%% times: a call that follows a signal from the same process doesn't overtake it, so logging out
%% makes sure.
end_session_processes(Pids) ->
    lists:foreach(fun(Pid) -> exit(Pid, kill), halley_directory:logout(Pid) end, Pids).

alive({link, Slot, _}, Gone, _) -> Slot =/= Gone;
alive(Pid, _, DeadPid) -> Pid =/= DeadPid.

number(List) ->
    lists:zip(lists:seq(1, length(List)), List).

with_directory(Fun) ->
    ok = halley_directory:new(),
    {ok, Owner} = halley_directory:start_link(fun(_) -> ok end),
    try Fun()
    after
        gen_server:stop(Owner),
        ets:delete(halley_directory_rows),
        ets:delete(halley_directory_held)
    end.
