%% Asks `auth.connect_url' whether a user may open a session.
%%
%% A process that has a session to open calls this (`ask/2', by `halley_hooked:ask/2'): from the
%% cache it is answered at once, else it gets a message. Users wait in a queue, of
%% `connect_waiting_max' at most, for one of `connect_in_flight_max' processes, each with a
%% connection of its own; several sessions of one user wait for one request. Beyond the queue, where
%% no judgement comes in time, and where a user's turn doesn't, `auth.connect_down' decides: by
%% default no user gets in. So all are answered before they give up (halley_edge_asked), also when
%% every request hangs.
%%
%% 2xx lets the user in, 401 and 403 don't; both are remembered for `auth.connect_ttl', by
%% `connect_cache_max' users at most. Anything else is no judgement, and isn't remembered.
%%
%% Of sessions that were there when this brain began, a refusal closes them; no judgement doesn't.
%% Until a user is judged it is a row {user, integer} of a table that the supervisor owns, so who is
%% killed leaves it to the next. Whoever asks has opened the sessions before, and writes the row
%% with another integer. A judgement reads the row, closes the sessions, and then deletes just that
%% row: one that was written meanwhile is about sessions that perhaps weren't closed, and stays.
-module(halley_hooks_connect).
-behaviour(gen_server).

-export([start_link/1, new/0, ask/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

%% Users who are to be judged, of sessions that were there before.
-define(LATER, halley_hooks_connect_later).
-define(RETRY_AFTER_S, 2).
%% For a turn, and between two looks who has waited for longer.
-define(TURN_MS, 5000).
-define(LOOK_MS, 250).
-define(REASON, <<"connect_refused: auth.connect_url doesn't let this user connect">>).

-type from() :: {pid(), Tag :: term()}.
-record(connect, {settings :: halley_hooks_config:connect(),
                  idle = [] :: [pid()],
                  queue = queue:new() :: queue:queue({halley_id:id(), SinceMs :: integer()}),
                  waiting = #{} :: #{halley_id:id() => [from()]}}).

-spec start_link(halley_hooks_config:connect()) -> gen_server:start_ret().
start_link(Connect) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Connect, []).

%% The caller, a supervisor, owns the cache, and whom to ask about later.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [public, named_table, set, {read_concurrency, true}]),
    ?LATER = ets:new(?LATER, [public, named_table, set, {write_concurrency, true}]),
    persistent_term:put(?MODULE, atomics:new(1, [])),
    halley_metrics:gauges([connect_waiting], fun() ->
        #{connect_waiting => atomics:get(persistent_term:get(?MODULE), 1)}
    end).

-spec ask(halley_id:id(), from()) -> halley_hooked:judgement() | asked.
ask(User, {_, Tag} = From) ->
    NowMs = now_ms(),
    case ets:lookup(?MODULE, User) of
        [{_, Judgement, UntilMs}] when UntilMs > NowMs ->
            _ = is_later(Tag) andalso close(User, Judgement),
            Judgement;
        _ ->
            _ = is_later(Tag) andalso ets:insert(?LATER, {User, erlang:unique_integer()}),
            gen_server:cast(?MODULE, {ask, User, From}),
            asked
    end.

is_later({later, _}) -> true;
is_later(_) -> false.

-spec init(halley_hooks_config:connect()) -> {ok, #connect{}}.
init(Connect) ->
    Owner = self(),
    Workers = [spawn_link(fun() -> work(Owner, Connect, none) end)
               || _ <- lists:seq(1, halley_limits:get(connect_in_flight_max))],
    ok = halley_hooked:judge(fun ?MODULE:ask/2),
    _ = erlang:send_after(?LOOK_MS, self(), look),
    {ok, next(with_left_over(#connect{settings = Connect, idle = Workers}))}.

%% Whom the process before this one had still to ask about.
with_left_over(State) ->
    NowMs = now_ms(),
    ets:foldl(fun({User, _}, #connect{queue = Queue, waiting = Waiting} = S) ->
        S#connect{queue = queue:in({User, NowMs}, Queue),
                  waiting = Waiting#{User => [{self(), {later, User}}]}}
    end, State, ?LATER).

-spec handle_call(term(), gen_server:from(), #connect{}) -> {noreply, #connect{}}.
handle_call(_, _, State) -> {noreply, State}.

-spec handle_cast({ask, halley_id:id(), from()}, #connect{}) -> {noreply, #connect{}}.
handle_cast({ask, User, {_, Tag} = From}, State) ->
    %% Without a row it was judged while this was on its way.
    case is_later(Tag) andalso not ets:member(?LATER, User) of
        true -> {noreply, State};
        false -> {noreply, wait(User, From, State)}
    end.

wait(User, {_, Tag} = From, #connect{waiting = Waiting, queue = Queue} = State) ->
    case Waiting of
        #{User := Others} ->
            State#connect{waiting = Waiting#{User := [From | Others]}};
        #{} ->
            %% Those of before have been let in: they may wait as long as there are others.
            case is_later(Tag) orelse
                     map_size(Waiting) < halley_limits:get(connect_waiting_max) of
                true ->
                    next(State#connect{waiting = Waiting#{User => [From]},
                                       queue = queue:in({User, now_ms()}, Queue)});
                false ->
                    ok = halley_metrics:incr(connect_failures),
                    ok = tell([From], unjudged(State)),
                    State
            end
    end.

-spec handle_info(term(), #connect{}) -> {noreply, #connect{}}.
handle_info({judged, Worker, User, Result}, #connect{idle = Idle, waiting = Waiting} = State) ->
    {Froms, Left} = maps:take(User, Waiting),
    Judgement = judgement(Result, User, State),
    ok = tell(Froms, Judgement),
    ok = judged_later(User, Judgement),
    {noreply, next(State#connect{idle = [Worker | Idle], waiting = Left})};
handle_info(look, State) ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    {noreply, next(expired(now_ms() - ?TURN_MS, State))};
handle_info(_, State) ->
    {noreply, State}.

%% Whose turn hasn't come isn't asked about any more, but for sessions that are in already.
expired(BeforeMs, #connect{queue = Queue, waiting = Waiting} = State) ->
    case queue:peek(Queue) of
        {value, {User, SinceMs}} when SinceMs < BeforeMs ->
            Rest = queue:drop(Queue),
            {Later, Others} = lists:partition(fun({_, Tag}) -> is_later(Tag) end,
                                              map_get(User, Waiting)),
            ok = halley_metrics:incr(connect_failures, length(Others)),
            ok = tell(Others, unjudged(State)),
            expired(BeforeMs, case Later of
                [] -> State#connect{queue = Rest, waiting = maps:remove(User, Waiting)};
                _ -> State#connect{queue = queue:in({User, now_ms()}, Rest),
                                   waiting = Waiting#{User := Later}}
            end);
        _ ->
            State
    end.

next(#connect{idle = Idle, queue = Queue, waiting = Waiting} = State) ->
    ok = atomics:put(persistent_term:get(?MODULE), 1, map_size(Waiting)),
    case {Idle, queue:out(Queue)} of
        {[Worker | Rest], {{value, {User, _}}, Left}} ->
            Worker ! {ask, User},
            next(State#connect{idle = Rest, queue = Left});
        _ ->
            State
    end.

%% --- judging -----------------------------------------------------------------------------------

judgement({ok, Status}, User, State) when Status >= 200, Status < 300 ->
    remembered(User, allow, State);
judgement({ok, Status}, User, State) when Status =:= 401; Status =:= 403 ->
    ok = halley_metrics:incr(connect_refused),
    remembered(User, {refuse, 403, 0, <<"connect_refused">>,
                      <<"the application doesn't let this user connect">>}, State);
judgement(Result, _, State) ->
    ok = halley_metrics:incr(connect_failures),
    _ = halley_hooks_said:seldom(failed, fun() ->
        ?LOG_WARNING("auth.connect_url doesn't judge: ~ts; auth.connect_down says what becomes of "
                     "who connects", [explain(Result)])
    end),
    unjudged(State).

explain({ok, Status}) -> ["it answers ", integer_to_list(Status)];
explain({error, {secret, Line}}) -> Line;
explain({error, Reason}) -> halley_hooks_http:explain(Reason).

unjudged(#connect{settings = #{down := allow}}) -> {unjudged, allow};
unjudged(#connect{settings = #{down := refuse}}) ->
    {unjudged, {refuse, 503, ?RETRY_AFTER_S, <<"connect_unavailable">>,
                <<"whether this user may connect can't be said just now; try again">>}}.

remembered(User, Judgement, #connect{settings = #{ttl_ms := TtlMs}}) ->
    NowMs = now_ms(),
    ok = make_room(NowMs, halley_limits:get(connect_cache_max)),
    true = ets:insert(?MODULE, {User, Judgement, NowMs + TtlMs}),
    Judgement.

%% What has expired goes first; where that is nothing, everything: it is asked again.
make_room(NowMs, Max) ->
    _ = ets:info(?MODULE, size) >= Max
        andalso ets:select_delete(?MODULE, [{{'_', '_', '$1'}, [{'=<', '$1', NowMs}], [true]}]),
    _ = ets:info(?MODULE, size) >= Max andalso ets:delete_all_objects(?MODULE),
    ok.

tell(Froms, Judgement) ->
    lists:foreach(fun({_, {later, _}}) -> ok;
                     ({Pid, Tag}) -> Pid ! {connect_judged, Tag, said(Judgement)}
                  end, Froms).

%% Of the sessions that are in already.
judged_later(User, Judgement) ->
    Rows = ets:lookup(?LATER, User),
    _ = Rows =/= [] andalso close(User, Judgement),
    lists:foreach(fun(Row) -> true = ets:delete_object(?LATER, Row) end, Rows).

said({unjudged, Judgement}) -> Judgement;
said(Judgement) -> Judgement.

close(User, {refuse, _, _, _, _}) ->
    _ = halley_sessions:close_user(User, ?REASON),
    ok;
close(_, _) ->
    ok.

%% --- a process that asks -----------------------------------------------------------------------

work(Owner, Connect, Connection) ->
    receive
        {ask, User} ->
            {Result, Next} = asked(User, Connect, Connection),
            Owner ! {judged, self(), User, Result},
            work(Owner, Connect, Next)
    end.

asked(User, #{target := TargetOf, timeout_ms := TimeoutMs}, Connection) ->
    #{secret_file := File} = Target = TargetOf(),
    case halley_hooks_body:read_secrets(File) of
        {ok, Secrets} ->
            ok = halley_metrics:incr(connect_asked),
            Body = halley_hooks_body:connect(User),
            case halley_hooks_http:post(Target, halley_hooks_body:headers(Secrets, Body), Body,
                                        TimeoutMs, Connection) of
                {ok, Status, Next} -> {{ok, Status}, Next};
                {error, _} = Error -> {Error, none}
            end;
        {error, Line} -> {{error, {secret, Line}}, Connection}
    end.

now_ms() -> erlang:monotonic_time(millisecond).
