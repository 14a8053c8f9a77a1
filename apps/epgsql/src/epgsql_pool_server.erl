%% The process of a pool: it opens connections and closes them, and owns their sockets. No query and
%% no connection that is taken or given back passes it.
%%
%% It looks at all places every 100 ms: a connection whose owner is dead is closed, one that was
%% handed to a waiter who doesn't take it goes to the next, or is closed if a request was written to
%% it. Every second it closes what has been
%% idle for long, down to `min', and has the others asked whether they still answer. If connections
%% can't be opened, it tries again after 100 ms, then after twice as long each time, up to 5 s.
-module(epgsql_pool_server).
-behaviour(gen_server).

-include("epgsql_pool.hrl").

-export([start_link/2, stop/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).

-define(SWEEP_MS, 100).
%% How long a connection may be idle in its last holder's turn while others wait.
-define(LOOK_MS, 1).
-define(TIDY_MS, 1000).
-define(RETRY_MIN_MS, 100).
-define(RETRY_MAX_MS, 5000).
%% For a server to answer a Sync, or a request that was cancelled.
-define(CHECK_MS, 5000).
-define(STATEMENTS, 100).
-define(TURN_MS, 2).
%% For a waiter to take a connection to which its request has been written.
-define(SENT_MS, 5000).

-record(state, {pool :: epgsql_pool_lease:pool(),
                connect :: map(),
                opened :: none | fun((epgsql:connection()) -> ok | {error, term()}),
                min :: non_neg_integer(),
                idle_ms :: timeout(),
                check_ms :: timeout(),
                %% Processes that open or check a connection, by their monitors.
                helpers = #{} :: #{reference() => {open | check, epgsql_pool_lease:slot()}},
                %% Words of places that are handed, as they were at the last look.
                handed = #{} :: #{epgsql_pool_lease:slot() => non_neg_integer()},
                retry = none :: none | reference(),
                retry_ms = ?RETRY_MIN_MS :: pos_integer()}).

-spec start_link(atom(), map()) -> gen_server:start_ret().
start_link(Name, Options) -> gen_server:start_link({local, Name}, ?MODULE, {Name, Options}, []).

-spec stop(atom()) -> ok.
stop(Name) -> gen_server:stop(Name).

-spec init({atom(), map()}) -> {ok, #state{}}.
init({Name, #{connect := Connect} = Options}) ->
    _ = process_flag(trap_exit, true),
    Size = maps:get(size, Options, 10),
    Pool = #pool{name = Name, server = self(), size = Size,
                 slots = epgsql_pool_slots:new(Size),
                 sessions = ets:new(sessions, [set, public, {read_concurrency, true}]),
                 waiters = ets:new(waiters, [set, public, {write_concurrency, true}]),
                 numbers = atomics:new(?NUMBERS, []),
                 queue_max = maps:get(queue_max, Options, 1000),
                 wait_ms = maps:get(wait_ms, Options, 5000),
                 look_ms = maps:get(look_ms, Options, 1000),
                 turn_ms = maps:get(turn_ms, Options, ?TURN_MS)},
    ok = persistent_term:put(epgsql_pool_lease:key(Name), Pool),
    Map = epgsql_cmd_connect:opts_hide_password(epgsql:to_map(Connect)),
    {ok, _} = timer:send_interval(?SWEEP_MS, sweep),
    {ok, _} = timer:send_interval(?TIDY_MS, tidy),
    State = #state{pool = Pool, connect = maps:merge(#{statement_cache => ?STATEMENTS}, Map),
                   opened = maps:get(opened, Options, none),
                   min = min(Size, maps:get(min, Options, 1)),
                   idle_ms = maps:get(idle_ms, Options, 60000),
                   check_ms = maps:get(check_ms, Options, 30000)},
    {ok, grow(State)}.

-spec handle_call(any(), gen_server:from(), #state{}) -> {reply, any(), #state{}}.
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(any(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(any(), #state{}) -> {noreply, #state{}}.
handle_info(demand, State) ->
    {noreply, grow(State)};
handle_info({drop, Slot, Owner}, State) ->
    {noreply, grow(given(Slot, Owner, fun close/2, State))};
handle_info({settle, Slot, Owner}, State) ->
    {noreply, given(Slot, Owner, fun settle/2, State)};
handle_info({opened, Slot, Session}, #state{pool = #pool{sessions = Sessions} = Pool} = State) ->
    ok = share(Session, Pool),
    ok = count(?OPENED, 1, Pool),
    true = ets:delete(Sessions, last_error),
    ok = epgsql_pool_lease:store(Slot, Session, Pool),
    ok = epgsql_pool_lease:pass(Slot, Pool),
    {noreply, State#state{retry_ms = ?RETRY_MIN_MS}};
handle_info({checked, Slot, {true, Session}}, #state{pool = Pool} = State) ->
    ok = epgsql_pool_lease:store(Slot, Session, Pool),
    ok = epgsql_pool_lease:pass(Slot, Pool),
    {noreply, State};
handle_info({checked, Slot, {false, _}}, State) ->
    {noreply, grow(close(Slot, State))};
handle_info({'DOWN', Monitor, process, _, Reason}, #state{helpers = Helpers} = State) ->
    case maps:take(Monitor, Helpers) of
        {Helper, Left} -> {noreply, helped(Helper, Reason, State#state{helpers = Left})};
        error -> {noreply, State}
    end;
handle_info(look_soon, State) ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    {noreply, State};
handle_info(look, State) ->
    ok = looked(State),
    {noreply, State};
handle_info(sweep, State) ->
    ok = looked(State),
    {noreply, sweep(State)};
handle_info(tidy, State) ->
    {noreply, grow(check(shrink(State)))};
handle_info(retry, State) ->
    {noreply, grow(State#state{retry = none})};
%% Sockets that were closed, tables that were given to this process.
handle_info(_, State) ->
    {noreply, State}.

-spec terminate(any(), #state{}) -> ok.
terminate(_, #state{pool = #pool{name = Name, size = Size}} = State) ->
    _ = persistent_term:erase(epgsql_pool_lease:key(Name)),
    _ = lists:foldl(fun close/2, State, lists:seq(1, Size)),
    ok.

-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(#{state := #state{pool = #pool{name = Name}}} = Status) ->
    Status#{state => {pool, Name}};
format_status(Status) ->
    Status.

count(Number, By, #pool{numbers = Numbers}) -> atomics:add(Numbers, Number, By).

%% --- opening ------------------------------------------------------------------------------------

%% Up to `min', and one for each who waits.
grow(#state{retry = Retry} = State) when Retry =/= none -> State;
grow(#state{pool = #pool{size = Size} = Pool, min = Min} = State) ->
    Open = epgsql_pool_lease:count(?SIZE, Pool),
    Wanted = max(Min - Open, epgsql_pool_lease:count(?WAITING, Pool)
                             - epgsql_pool_lease:count(?OPENING, Pool)),
    open(min(Wanted, Size - Open), State).

open(Count, State) when Count =< 0 -> State;
open(Count, #state{pool = #pool{slots = Slots} = Pool, connect = Connect, opened = Opened,
                   helpers = Helpers} = State) ->
    case epgsql_pool_slots:take_empty(epgsql_pool_slots:me(), Slots) of
        none -> State;
        {ok, Slot} ->
            ok = count(?SIZE, 1, Pool),
            ok = count(?OPENING, 1, Pool),
            Self = self(),
            {_, Monitor} = spawn_monitor(fun() -> opener(Slot, Connect, Opened, Self) end),
            open(Count - 1, State#state{helpers = Helpers#{Monitor => {open, Slot}}})
    end.

opener(Slot, Connect, Opened, Server) ->
    case ready(epgsql_held:open(Connect), Opened) of
        {ok, Session} ->
            try
                ok = epgsql_held:give_away(Session, Server),
                Server ! {opened, Slot, Session},
                ok
            catch
                %% The pool has ended meanwhile.
                error:Reason -> exit({not_opened, Reason})
            end;
        {error, Reason} -> exit({not_opened, Reason})
    end.

%% Nobody gets a connection on which something was left under way.
ready({ok, Session}, Opened) when Opened =/= none ->
    C = epgsql_held:hold(Session),
    Answer = Opened(C),
    Behind = epgsql_held:let_go(C),
    case {Answer, epgsql_held:is_clean(Behind)} of
        {ok, true} -> {ok, Behind};
        {ok, false} -> left(Behind, opened_left_something);
        {{error, Reason}, _} -> left(Behind, Reason)
    end;
ready(Answer, _) ->
    Answer.

left(Session, Reason) ->
    ok = epgsql_held:discard(Session),
    {error, Reason}.

%% An opener or a checker has ended. What it has done has been said before.
helped({open, _}, normal, #state{pool = Pool} = State) ->
    ok = count(?OPENING, -1, Pool),
    State;
helped({open, Slot}, Reason, #state{pool = #pool{sessions = Sessions, slots = Slots} = Pool,
                                    retry_ms = RetryMs} = State) ->
    ok = count(?OPENING, -1, Pool),
    ok = count(?SIZE, -1, Pool),
    ok = count(?FAILED, 1, Pool),
    true = ets:insert(Sessions, {last_error, case Reason of
                                                 {not_opened, Why} -> Why;
                                                 _ -> Reason
                                             end}),
    ok = epgsql_pool_slots:put_empty(Slot, Slots),
    retry(State#state{retry_ms = min(2 * RetryMs, ?RETRY_MAX_MS)}, RetryMs);
helped({check, _}, normal, State) ->
    State;
helped({check, Slot}, _, State) ->
    grow(close(Slot, State)).

retry(#state{retry = none} = State, Ms) ->
    State#state{retry = erlang:send_after(Ms, self(), retry)};
retry(State, _) ->
    State.

%% Of the first connection. Others whose codecs differ keep theirs.
share(Session, #pool{name = Name}) ->
    Key = epgsql_pool_lease:shared_key(Name),
    case persistent_term:get(Key, none) of
        none -> persistent_term:put(Key, epgsql_held:shared(Session));
        _ -> ok
    end.

%% --- closing ------------------------------------------------------------------------------------

%% By its owner, unless that has died since and is known to be dead.
given(Slot, Owner, Fun, #state{pool = #pool{slots = Slots}} = State) ->
    case epgsql_pool_slots:exchange(Slot, Owner, epgsql_pool_slots:me(), Slots) of
        true -> Fun(Slot, State);
        false -> State
    end.

settle(Slot, State) ->
    help(Slot, fun(Session) -> epgsql_held:settle(?CHECK_MS, Session) end, State).

close(Slot, #state{pool = #pool{sessions = Sessions, slots = Slots} = Pool} = State) ->
    case ets:take(Sessions, Slot) of
        [{_, Session, _}] ->
            ok = epgsql_held:discard(Session),
            ok = count(?SIZE, -1, Pool),
            ok = count(?CLOSED, 1, Pool),
            epgsql_pool_slots:put_empty(Slot, Slots);
        [] -> ok
    end,
    State.

%% From the end, where the least used ones are.
shrink(#state{idle_ms = infinity} = State) -> State;
shrink(#state{pool = #pool{size = Size} = Pool, min = Min, idle_ms = IdleMs} = State) ->
    lists:foldl(fun(Slot, Acc) ->
        case epgsql_pool_lease:count(?SIZE, Pool) > Min andalso take_idle(Slot, IdleMs, Pool) of
            true -> close(Slot, Acc);
            false -> Acc
        end
    end, State, lists:seq(Size, 1, -1)).

take_idle(Slot, ForMs, #pool{slots = Slots}) ->
    Me = epgsql_pool_slots:me(),
    epgsql_pool_slots:owner(epgsql_pool_slots:word_of(Slot, Slots)) =:= idle
        andalso epgsql_pool_slots:idle_since(Slot, Slots) >= ForMs
        andalso epgsql_pool_slots:exchange(Slot, idle, Me, Slots).

%% A Sync and its answer: what is silent, or behind something that has forgotten the connection, is
%% found before somebody needs it.
check(#state{check_ms = infinity} = State) -> State;
check(#state{pool = #pool{size = Size}} = State) ->
    lists:foldl(fun check/2, State, lists:seq(1, Size)).

check(Slot, #state{pool = Pool, check_ms = CheckMs} = State) ->
    case take_idle(Slot, CheckMs, Pool) of
        true -> help(Slot, fun asked/1, State);
        false -> State
    end.

asked(Session) ->
    case epgsql_held:run(epgsql_cmd_sync, [], ?CHECK_MS, Session) of
        {ok, After} -> {epgsql_held:is_clean(After), After};
        {_, After} -> {false, After}
    end.

%% Is it good? What takes time is done by a process of its own.
help(Slot, IsGood, #state{pool = Pool, helpers = Helpers} = State) ->
    Self = self(),
    Session = epgsql_pool_lease:session(Slot, Pool),
    {_, Monitor} = spawn_monitor(fun() -> Self ! {checked, Slot, IsGood(Session)} end),
    State#state{helpers = Helpers#{Monitor => {check, Slot}}}.

%% --- looking after them -------------------------------------------------------------------------

%% A connection that a caller left in its turn, and doesn't take again, goes to who waits.
looked(#state{pool = #pool{numbers = Numbers} = Pool}) ->
    ok = atomics:put(Numbers, ?LOOKING, 0),
    epgsql_pool_lease:serve(Pool).

sweep(#state{pool = #pool{size = Size, waiters = Waiters, numbers = Numbers}, handed = Before}
      = State) ->
    Swept = lists:foldl(fun sweep/2, State#state{handed = #{}}, lists:seq(1, Size)),
    _ = [ets:take(Waiters, Key) =/= [] andalso atomics:sub(Numbers, ?WAITING, 1)
         || [Key, Pid] <- ets:match(Waiters, {'$1', '$2', '_', '_', '_'}),
            not is_process_alive(Pid)],
    stale(Before, Swept).

sweep(Slot, #state{pool = #pool{slots = Slots}, handed = Handed} = State) ->
    Word = epgsql_pool_slots:word_of(Slot, Slots),
    case epgsql_pool_slots:owner(Word) of
        {pid, Pid} when Pid =/= self() ->
            case is_process_alive(Pid)
                 orelse not epgsql_pool_slots:exchange(Slot, Word, epgsql_pool_slots:me(), Slots) of
                true -> State;
                false -> grow(close(Slot, State))
            end;
        handed -> State#state{handed = Handed#{Slot => Word}};
        sent -> sweep_sent(Slot, Word, State);
        _ -> State
    end.

%% A request is under way on it, so it is nobody else's.
sweep_sent(Slot, Word, #state{pool = #pool{slots = Slots}} = State) ->
    {pid, Pid} = epgsql_pool_slots:sent_to(Slot, Slots),
    case (not is_process_alive(Pid)
          orelse epgsql_pool_slots:idle_since(Slot, Slots) > ?SENT_MS)
         andalso epgsql_pool_slots:exchange(Slot, Word, epgsql_pool_slots:me(), Slots) of
        true -> grow(close(Slot, State));
        false -> State
    end.

%% Handed at the last look and at this one by the same act: nobody takes it.
stale(Before, #state{pool = #pool{slots = Slots} = Pool, handed = Now} = State) ->
    _ = [epgsql_pool_slots:exchange(Slot, Word, epgsql_pool_slots:me(), Slots)
         andalso epgsql_pool_lease:pass(Slot, Pool)
         || {Slot, Word} <- maps:to_list(Now), maps:get(Slot, Before, none) =:= Word],
    State.
