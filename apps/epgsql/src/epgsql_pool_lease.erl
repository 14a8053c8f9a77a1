%% Taking a connection of a pool and giving it back, in the process that wants it.
%%
%% An idle connection is taken by one exchange of a word (`epgsql_pool_slots'). If there is none,
%% the caller puts itself into the queue, and a caller that gives a connection back hands it to the
%% first there, by a message; the pool's server only opens more. Waiters go first, except before a
%% caller that queries again at once in its turn (`epgsql_pool_turn'). A small query of a statement
%% that the connection keeps is written for the waiter before it gets its message: the server is at
%% it while the waiter is being woken.
%%
%% No order of the steps loses a connection, whoever is killed between two of them: an owner that is
%% dead is found by the server, which closes the connection; so is one that was handed to a waiter
%% who doesn't take it, and that goes to the next, unless a request was written to it. A connection
%% on which something is under way, a request or a transaction, is never given to anybody else.
-module(epgsql_pool_lease).

-include("epgsql_pool.hrl").
-include("epgsql_session.hrl").

-export([take/3, give_back/2, give_back/4, drop/2, pass/2, serve/1, store/3, session/2,
         connection/2, count/2, key/1, shared_key/1]).

-export_type([pool/0, slot/0, refusal/0]).

-type pool() :: #pool{}.
-type slot() :: epgsql_pool_slots:slot().
-type refusal() :: pool_timeout | pool_full | {no_connection, any()} | no_pool.

%% How long a message may take from one process to another on this machine.
-define(HANDED_MS, 100).

-spec key(atom()) -> any().
key(Name) -> {epgsql_pool, Name}.

%% Codecs and options are large, and the same for most connections of a pool: they are not copied.
-spec shared_key(atom()) -> any().
shared_key(Name) -> {epgsql_pool, Name, shared}.

%% `sent': the request has been written.
-spec take(epgsql_known:request(), pool(), timeout()) ->
          {ok, slot()} | {sent, slot(), epgsql_known:asked()} | {error, refusal() | timeout}.
take(Request, #pool{slots = Slots, numbers = Numbers} = Pool, Timeout) ->
    Me = epgsql_pool_slots:me(),
    Taken = case atomics:get(Numbers, ?WAITING) of
                0 -> epgsql_pool_slots:take_idle(Me, Slots);
                _ -> epgsql_pool_turn:again(Me, Slots)
            end,
    case Taken of
        {ok, Slot} -> taken(Slot, Request, Pool, Timeout);
        none -> queue(Request, Pool, Me, Timeout)
    end.

%% A connection that was idle for long may have been closed by the server.
taken(Slot, Request, #pool{slots = Slots, numbers = Numbers, look_ms = LookMs} = Pool, Timeout) ->
    case epgsql_pool_slots:idle_since(Slot, Slots) < LookMs orelse is_alive(Slot, Pool) of
        true ->
            ok = atomics:add(Numbers, ?TAKEN, 1),
            {ok, Slot};
        false ->
            ok = drop(Slot, Pool),
            take(Request, Pool, Timeout)
    end.

is_alive(Slot, Pool) ->
    Before = session(Slot, Pool),
    {IsAlive, After} = epgsql_held:is_alive(Before),
    _ = [store(Slot, After, Pool) || IsAlive, After =/= Before],
    IsAlive.

%% --- waiting ------------------------------------------------------------------------------------

queue(Request, #pool{numbers = Numbers, queue_max = QueueMax} = Pool, Me, Timeout) ->
    case atomics:add_get(Numbers, ?WAITING, 1) of
        Waiting when Waiting > QueueMax ->
            ok = atomics:sub(Numbers, ?WAITING, 1),
            ok = atomics:add(Numbers, ?REFUSED, 1),
            {error, pool_full};
        _ ->
            ok = atomics:add(Numbers, ?WAITED, 1),
            wait(Request, Pool, Me, epgsql_transport:deadline(Timeout))
    end.

wait(Request, #pool{slots = Slots, server = Server, size = Size, numbers = Numbers} = Pool, Me,
     Deadline) ->
    ok = epgsql_pool_turn:waits(Slots),
    Alias = alias([reply]),
    Small = epgsql_known:small(Request),
    Number = enter({self(), Me, Alias, Small}, Pool),
    %% One may have been given back before this was in the queue.
    _ = case epgsql_pool_slots:take_idle(Me, Slots) of
            {ok, Slot} -> pass(Slot, Pool);
            none ->
                atomics:get(Numbers, ?SIZE) < Size andalso (Server ! demand)
        end,
    case handed(Small, Pool, Number, Alias, Deadline) of
        {Given, Word, Asked} -> take_handed(Given, Word, Asked, Request, Pool, Me, Deadline);
        {error, _} = Error -> Error
    end.

%% Who serves may pass a number before its row is there: then this gets another one.
enter({Pid, Me, Alias, Request} = Waiter, #pool{waiters = Waiters, numbers = Numbers} = Pool) ->
    Number = atomics:add_get(Numbers, ?TAIL, 1),
    true = ets:insert(Waiters, {Number, Pid, Me, Alias, Request}),
    case atomics:get(Numbers, ?HEAD) >= Number andalso ets:take(Waiters, Number) of
        [_] -> enter(Waiter, Pool);
        _ -> Number
    end.

%% The alias ends with the first message to it.
handed(Small, #pool{waiters = Waiters, numbers = Numbers} = Pool, Number, Alias, Deadline) ->
    receive
        {Alias, Slot, Word, Asked} -> {Slot, Word, Asked}
    after epgsql_transport:milliseconds(Deadline) ->
        case ets:take(Waiters, Number) of
            [{_, _, _, _, _}] ->
                _ = unalias(Alias),
                ok = atomics:sub(Numbers, ?WAITING, 1),
                late(Pool);
            [] -> handed_late(Small, Pool, Alias)
        end
    end.

%% Somebody is at it, or was killed before it was said.
handed_late(Small, Pool, Alias) ->
    receive
        {Alias, Slot, Word, Asked} -> {Slot, Word, Asked}
    after ?HANDED_MS ->
        _ = unalias(Alias),
        receive
            {Alias, Slot, Word, Asked} -> {Slot, Word, Asked}
        after 0 ->
            Late = late(Pool),
            case Small of
                none -> Late;
                %% Whether it was written isn't known.
                _ -> {error, timeout}
            end
        end
    end.

take_handed(Slot, Word, Asked, Request,
            #pool{slots = Slots, numbers = Numbers, turn_ms = TurnMs} = Pool, Me, Deadline) ->
    case epgsql_pool_slots:exchange(Slot, Word, Me, Slots) of
        true when Asked =:= none ->
            ok = epgsql_pool_turn:begins(Slot, Slots, TurnMs),
            taken(Slot, Request, Pool, epgsql_transport:milliseconds(Deadline));
        true ->
            ok = epgsql_pool_turn:begins(Slot, Slots, TurnMs),
            ok = atomics:add(Numbers, ?TAKEN, 1),
            {sent, Slot, Asked};
        %% This process was so slow that the server gave it to somebody else, or closed it.
        false when Asked =:= none ->
            take(Request, Pool, epgsql_transport:milliseconds(Deadline));
        false -> {error, timeout}
    end.

late(#pool{sessions = Sessions, numbers = Numbers}) ->
    ok = atomics:add(Numbers, ?TIMED_OUT, 1),
    case atomics:get(Numbers, ?SIZE) =< atomics:get(Numbers, ?OPENING)
         andalso ets:lookup(Sessions, last_error) of
        [{_, Reason}] -> {error, {no_connection, Reason}};
        _ -> {error, pool_timeout}
    end.

%% --- giving back --------------------------------------------------------------------------------

%% Its session is as it was taken.
-spec give_back(slot(), pool()) -> ok.
give_back(Slot, Pool) ->
    try release(Slot, Pool)
    catch
        %% The pool has ended, and its tables with it.
        error:badarg -> ok
    end.

%% `Before' is as it was taken.
-spec give_back(slot(), Before :: epgsql_session:session(), After :: epgsql_session:session(),
                pool()) -> ok.
give_back(Slot, Before, After, Pool) ->
    try
        case epgsql_held:is_clean(After) of
            true ->
                case After#session{complete_status = undefined} of
                    Before -> ok;
                    Changed -> store(Slot, Changed, Pool)
                end,
                release(Slot, Pool);
            false -> give_back_unclean(Slot, After, Pool)
        end
    catch
        error:badarg -> ok
    end.

%% After a time-out an answer may still come, and then the connection is good for more.
give_back_unclean(Slot, #session{current = #command{reply_to = discard}} = After, Pool) ->
    ok = store(Slot, After, Pool),
    tell(settle, Slot, Pool);
give_back_unclean(Slot, _, Pool) ->
    drop(Slot, Pool).

%% As it was stored, by the owner of the place.
-spec session(slot(), pool()) -> epgsql_session:session().
session(Slot, #pool{sessions = Sessions} = Pool) ->
    with_shared(ets:lookup_element(Sessions, Slot, 2), Pool).

%% As `epgsql_known' needs it.
-spec connection(slot(), pool()) -> epgsql_known:connection().
connection(Slot, #pool{sessions = Sessions}) -> ets:lookup_element(Sessions, Slot, 3).

-spec store(slot(), epgsql_session:session(), pool()) -> ok.
store(Slot, Session, #pool{sessions = Sessions} = Pool) ->
    Stored = without_shared(Session#session{complete_status = undefined}, Pool),
    Connection = case epgsql_held:is_clean(Session) of
                     true -> epgsql_known:connection(Session);
                     false -> none
                 end,
    true = ets:insert(Sessions, {Slot, Stored, Connection}),
    ok.

without_shared(#session{codec = Codec, connect_opts = Options, parameters = Parameters} = Session,
               #pool{name = Name}) ->
    case persistent_term:get(shared_key(Name), none) of
        {Codec, Options, Parameters} ->
            Session#session{codec = undefined, connect_opts = #{}, parameters = #{}};
        _ -> Session
    end.

with_shared(#session{codec = undefined} = Session, #pool{name = Name}) ->
    {Codec, Options, Parameters} = persistent_term:get(shared_key(Name)),
    Session#session{codec = Codec, connect_opts = Options, parameters = Parameters};
with_shared(Session, _) ->
    Session.

%% The caller may take it again at once. If it doesn't, the server serves those who wait.
release(Slot, #pool{slots = Slots, server = Server, numbers = Numbers} = Pool) ->
    case not is_queue_empty(Pool) andalso epgsql_pool_turn:goes_on(Slot, Slots) of
        true ->
            ok = epgsql_pool_slots:put_idle(Slot, Slots),
            _ = atomics:get(Numbers, ?LOOKING) =:= 0
                andalso atomics:exchange(Numbers, ?LOOKING, 1) =:= 0
                andalso (Server ! look_soon),
            ok;
        false -> pass(Slot, Pool)
    end.

%% The first who waits gets it; otherwise it is idle.
-spec pass(slot(), pool()) -> ok.
pass(Slot, #pool{slots = Slots} = Pool) ->
    case next_waiter(Pool) of
        {ok, Waiter} -> hand(Slot, Waiter, Pool);
        none ->
            ok = epgsql_pool_slots:put_idle(Slot, Slots),
            %% Who has put itself into the queue meanwhile may not have seen it.
            case is_queue_empty(Pool) orelse
                 not epgsql_pool_slots:exchange(Slot, idle, epgsql_pool_slots:me(), Slots) of
                true -> ok;
                false -> pass(Slot, Pool)
            end
    end.

%% Nobody waits while a connection is idle; by the server.
-spec serve(pool()) -> ok.
serve(#pool{slots = Slots} = Pool) ->
    case not is_queue_empty(Pool)
         andalso epgsql_pool_slots:take_idle(epgsql_pool_slots:me(), Slots) of
        {ok, Slot} ->
            ok = pass(Slot, Pool),
            serve(Pool);
        _ -> ok
    end.

is_queue_empty(#pool{numbers = Numbers}) ->
    atomics:get(Numbers, ?HEAD) >= atomics:get(Numbers, ?TAIL).

hand(Slot, {_, _, Me, Alias, Request}, #pool{slots = Slots} = Pool) ->
    _ = case Request =/= none andalso epgsql_known:ask(Request, connection(Slot, Pool)) of
            {asked, Asked} ->
                Alias ! {Alias, Slot, epgsql_pool_slots:put_sent(Slot, Me, Slots), Asked};
            _ ->
                Alias ! {Alias, Slot, epgsql_pool_slots:put_handed(Slot, Slots), none}
        end,
    ok.

%% Numbers of those who have left are skipped.
next_waiter(#pool{waiters = Waiters, numbers = Numbers} = Pool) ->
    Head = atomics:get(Numbers, ?HEAD),
    case Head < atomics:get(Numbers, ?TAIL) of
        false -> none;
        true ->
            case atomics:compare_exchange(Numbers, ?HEAD, Head, Head + 1) =:= ok
                 andalso ets:take(Waiters, Head + 1) of
                [{_, Pid, _, _, _} = Waiter] ->
                    ok = atomics:sub(Numbers, ?WAITING, 1),
                    case is_process_alive(Pid) of
                        true -> {ok, Waiter};
                        false -> next_waiter(Pool)
                    end;
                _ -> next_waiter(Pool)
            end
    end.

%% It can't be used any more: the server closes it.
-spec drop(slot(), pool()) -> ok.
drop(Slot, Pool) -> tell(drop, Slot, Pool).

%% It is this process's until the server has heard of it, and a dead process's if this one is killed
%% before it has said so.
tell(What, Slot, #pool{server = Server}) ->
    Server ! {What, Slot, epgsql_pool_slots:me()},
    ok.

-spec count(pos_integer(), pool()) -> integer().
count(Number, #pool{numbers = Numbers}) -> atomics:get(Numbers, Number).
