%% Runs the edge: adopts the one that is there or starts one, watches it, starts it again when it
%% dies, stops it when the brain stops.
%%
%% start_link/0 returns before the handshake: an application that is still starting can't
%% be stopped cleanly, and would leave its edge running.
%%
%% An edge that can't start (its port is in use, its program is missing) ends the node with one line
%% on stderr, but only at the first start. Later, once a link was up or the edge was killed, the
%% runner tries again, after a wait that grows from nothing to five seconds. So does the next
%% runner, if this one crashed. Where the second try in a row is due it looks first whether an edge
%% is there: one that only seemed to be dead holds the ports that the new one wants.
%%
%% The port of an edge that was started here reports its end. Of an adopted edge only the process id
%% is known: /proc is read for it twice a second, and more often while it stops. When the runner or
%% the brain dies, the edge stays.
%%
%% An edge that was started otherwise is replaced: the new one begins while it runs, then the old
%% one stops over `drain.time' (halley_edge_handover).
%%
%% A stop is a SHUTDOWN and a deadline, after which the edge is killed. Links stay up meanwhile: a
%% drain is no reason to lose an event. A second stop may shorten the first.
-module(halley_edge_runner).
-behaviour(gen_server).

-export([start_link/0, await_handshakes/0, stop_edge/1]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

-define(ANSWER_MS_MAX, 15000).
-define(STOP_MS_MAX, 10000).
-define(POLL_MS, 500).
-define(STOPPING_POLL_MS, 20).
-define(WAIT_MS_MIN, 200).
-define(WAIT_MS_MAX, 5000).
-define(LASTED_MS, 30000).
-define(DRAIN_MS, 10000).
%% By somebody, with SIGKILL or SIGTERM.
-define(IS_KILLED(Status), (Status =:= 128 + 9 orelse Status =:= 128 + 15)).

-record(state, {
    config :: halley_edge_process:config(),
    edge :: {port, port()} | {adopted, halley_edge_process:identity()} | none | stopped,
    since = 0 :: integer(),
    wait_ms = 0 :: non_neg_integer(),
    last_line = <<>> :: binary(),
    %% The edge that this one replaces, until it is gone.
    leaving = none :: none | halley_edge_handover:leaving(),
    %% Callers that wait for the edge's end, and the timer after which the edge is killed.
    stopping = no :: no | {[gen_server:from()], Deadline :: integer(), reference()}
}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Returns when the edge has had its handshake, so clients can come.
-spec await_handshakes() -> ok.
await_handshakes() ->
    gen_server:call(?MODULE, await_handshakes, infinity).

%% Asks the edge to close its connections within DrainMs and to stop, and returns when it is gone;
%% it is killed ?STOP_MS_MAX later. May be called again meanwhile, with less.
-spec stop_edge(DrainMs :: non_neg_integer()) -> ok.
stop_edge(DrainMs) ->
    case whereis(?MODULE) of
        undefined -> ok;
        _ -> gen_server:call(?MODULE, {stop_edge, DrainMs}, infinity)
    end.

-spec init([]) -> {ok, #state{}, {continue, begin_with}}.
init([]) ->
    %% Links of an earlier runner would hide which edge is there.
    ok = halley_edge_dialer:disconnect(),
    {ok, #state{config = config(), edge = none}, {continue, begin_with}}.

-spec handle_continue(begin_with, #state{}) -> {noreply, #state{}}.
handle_continue(begin_with, #state{config = Config} = State) ->
    case prepared(Config) of
        {ok, Build, Dir} ->
            ok = halley_pidfile:ensure(Dir),
            ok = halley_launcher:sockets(Dir),
            {noreply, look(Build, State#state{config = Config#{socket_dir := Dir}})};
        {error, Line} -> {noreply, cannot(Line, fun() -> begin_later(State) end)}
    end.

%% A program that has gone is no reason for a later runner to leave a healthy edge alone. The first
%% one must have it: it may be about to stop an edge that was started otherwise.
prepared(Config) ->
    case {halley_edge_directory:choose(Config), halley_edge_process:program(), has_linked()} of
        {{ok, Dir}, {ok, Program}, _} -> {ok, halley_edge_process:build(Program), Dir};
        {{ok, Dir}, {error, _}, true} -> {ok, unknown, Dir};
        {{ok, _}, {error, _} = Missing, false} -> Missing;
        {{error, _} = Unusable, _, _} -> Unusable
    end.

look(Build, #state{config = #{socket_dir := Dir} = Config} = Fresh) ->
    ok = halley_edge_handover:take_back(Dir),
    case halley_edge_adoption:look(Config, Build) of
        {adopt, Identity} ->
            _ = erlang:send_after(?POLL_MS, self(), poll),
            handshake(Fresh#state{edge = {adopted, Identity}, since = now_ms()});
        {replace, OldWorkers, Known} ->
            Workers = maps:get(workers, Config),
            Leaving = halley_edge_handover:handshake(Dir, OldWorkers, Workers, Known),
            hand_over(begin_with(Fresh#state{since = now_ms(), leaving = Leaving}));
        none ->
            begin_with(Fresh#state{since = now_ms()});
        {error, Line} ->
            cannot(Line, fun() -> begin_later(Fresh) end)
    end.

begin_with(State) ->
    begin_with(start_edge(State), State).

start_edge(#state{config = Config, leaving = Leaving}) ->
    case halley_edge_process:program() of
        {ok, Program} ->
            halley_edge_process:start(Program, Config#{beside => Leaving =/= none});
        {error, _} = Missing ->
            Missing
    end.

%% Even if the new edge doesn't stand yet: the old one was started otherwise, and it can't be known
%% how long it would be served by a brain that tries again.
hand_over(#state{config = #{socket_dir := Dir}, leaving = Leaving} = State) ->
    DrainMs = application:get_env(halley, drain_ms, ?DRAIN_MS),
    self() ! look_at_leaving,
    State#state{leaving = halley_edge_handover:begin_drain(Dir, DrainMs, Leaving)}.

begin_with({ok, Port}, State) ->
    handshake(State#state{edge = {port, Port}});
begin_with({error, Line}, State) ->
    cannot(Line, fun() -> begin_later(State) end).

%% An edge that was killed with a million connections is there for a while, and can't be talked to.
begin_later(State) ->
    _ = erlang:send_after(?WAIT_MS_MAX, self(), begin_again),
    State.

%% A runner that crashed mustn't take the brain with it.
cannot(Line, Otherwise) ->
    case has_linked() of
        false -> halley_boot:fail(Line);
        true -> ?LOG_ERROR("~ts", [Line]), Otherwise()
    end.

has_linked() ->
    application:get_env(halley_edge, has_linked, false).

config() ->
    Get = fun(Key, Default) -> application:get_env(halley_edge, Key, Default) end,
    #{public => Get(public_listen, "127.0.0.1:8080"), api => Get(api_listen, "127.0.0.1:8081"),
      workers => Get(workers, halley_config:cores()),
      socket_dir => filename:absname(Get(socket_dir, "data/edge")), sandbox => Get(sandbox, on),
      tls_files => Get(tls_files, []),
      connections_max => Get(connections_max, undefined),
      user => Get(user, undefined)}.

%%% The first handshake

handshake(#state{config = Config} = State) ->
    #{socket_dir := Dir} = Config,
    ok = halley_edge_dialer:connect(Dir, self()),
    await_link(now_ms() + answer_ms_max(), State).

await_link(Deadline, #state{edge = Edge} = State) ->
    receive
        {link_up, _} ->
            ready(State);
        {Port, {data, {_, Line}}} when Edge =:= {port, Port} ->
            await_link(Deadline, said(Line, State));
        {Port, {exit_status, Status}} when Edge =:= {port, Port}, ?IS_KILLED(Status) ->
            gone_early(Status, State);
        poll when element(1, Edge) =:= adopted ->
            case halley_edge_process:is_alive(element(2, Edge)) of
                true ->
                    _ = erlang:send_after(?POLL_MS, self(), poll),
                    await_link(Deadline, State);
                false ->
                    gone_early(adopted, State)
            end;
        {Port, {exit_status, Status}} when Edge =:= {port, Port} ->
            cannot(last_words(Status, State), fun() -> restart_later(State) end)
    after max(0, Deadline - now_ms()) ->
        Line = io_lib:format("the edge did not answer within ~b s", [answer_ms_max() div 1000]),
        ok = end_at_first_start(Edge),
        cannot(Line, fun() -> State end)
    end.

ready(#state{config = #{public := Public, api := Api, workers := Workers}} = State) ->
    ?LOG_NOTICE("edge is ready: streams at ~ts, API at ~ts, ~b workers", [Public, Api, Workers]),
    ok = application:set_env(halley_edge, has_linked, true),
    ok = halley_launcher:ready(),
    State.

answer_ms_max() ->
    application:get_env(halley_edge, answer_ms_max, ?ANSWER_MS_MAX).

%% A brain that refuses to start leaves no edge behind that it has started. An edge of another
%% brain is left, with its connections.
end_at_first_start({port, _} = Edge) ->
    case has_linked() of
        false -> signal(fun halley_edge_process:kill/1, Edge);
        true -> ok
    end;
end_at_first_start(_) ->
    ok.

%% That says nothing about the next one.
gone_early(Status, State) ->
    ok = application:set_env(halley_edge, has_linked, true),
    ended(Status, State).

last_words(Status, #state{last_line = Line} = State) ->
    case drain(State) of
        #state{last_line = <<>>} -> io_lib:format("the edge ended with status ~b", [Status]);
        #state{last_line = <<"halley-edge: ", Sentence/binary>>} -> Sentence;
        #state{last_line = Last} when Last =/= <<>> -> Last;
        _ -> Line
    end.

%% Lines that were on their way when the process ended.
drain(#state{edge = {port, Port}} = State) ->
    receive {Port, {data, {_, Line}}} -> drain(said(Line, State))
    after 50 -> State
    end.

said(Line, State) ->
    Printable = halley_edge_process:printable(Line),
    ?LOG_NOTICE("edge: ~ts", [Printable]),
    State#state{last_line = Printable}.

%%% Afterwards

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, ok, #state{}} | {noreply, #state{}}.
handle_call(await_handshakes, _, State) ->
    {reply, ok, State};
handle_call({stop_edge, DrainMs}, From, #state{leaving = Leaving} = State) ->
    Sooner = case Leaving of
        none -> none;
        _ -> halley_edge_handover:shorten(DrainMs, Leaving)
    end,
    stop_edge(DrainMs, From, State#state{leaving = Sooner}).

stop_edge(_, _, #state{edge = stopped, leaving = none, stopping = no} = State) ->
    {reply, ok, State};
stop_edge(DrainMs, From, #state{edge = stopped} = State) ->
    {noreply, stopping(From, now_ms() + DrainMs + ?STOP_MS_MAX, State)};
stop_edge(DrainMs, From, #state{edge = none, config = Config} = State) ->
    %% There may be one all the same, which something kept from being adopted.
    case halley_edge_adoption:shutdown(maps:get(socket_dir, Config), DrainMs) of
        {ok, {ok, Identity}} ->
            Found = State#state{edge = {adopted, Identity}},
            {noreply, stopping(From, now_ms() + DrainMs + ?STOP_MS_MAX, Found)};
        _ ->
            stop_edge(DrainMs, From, State#state{edge = stopped})
    end;
stop_edge(DrainMs, From, State) ->
    ok = shut_down(DrainMs, State),
    {noreply, stopping(From, now_ms() + DrainMs + ?STOP_MS_MAX, State)}.

%% By a link, or after a handshake for this alone, or, if the edge can't be talked to, by a signal.
shut_down(DrainMs, #state{config = #{socket_dir := Dir}, edge = Edge}) ->
    case halley_edge_dialer:shutdown_edge(DrainMs) of
        ok -> ok;
        no_link ->
            case halley_edge_adoption:shutdown(Dir, DrainMs) of
                {ok, _} -> ok;
                {error, _} -> signal(fun halley_edge_process:terminate/1, Edge)
            end
    end.

signal(_, stopped) ->
    ok;
signal(Signal, {adopted, Identity}) ->
    Signal(Identity);
signal(Signal, {port, Port}) ->
    maybe_signal(Signal, erlang:port_info(Port, os_pid)).

maybe_signal(_, undefined) ->
    ok;
maybe_signal(Signal, {os_pid, Pid}) ->
    case halley_edge_process:identify(Pid) of
        {ok, Identity} -> Signal(Identity);
        gone -> ok
    end.

stopping(From, Deadline, #state{stopping = no} = State) ->
    self() ! poll,
    State#state{stopping = {[From], Deadline, deadline(Deadline)}};
stopping(From, Deadline, #state{stopping = {Waiting, Earlier, Timer}} = State) ->
    _ = erlang:cancel_timer(Timer),
    Sooner = min(Deadline, Earlier),
    State#state{stopping = {[From | Waiting], Sooner, deadline(Sooner)}}.

deadline(Deadline) ->
    erlang:send_after(Deadline, self(), too_late, [{abs, true}]).

%% The edge is gone; the one that it replaced may have some time yet.
stopped(#state{leaving = Leaving} = State) when Leaving =/= none ->
    State#state{edge = stopped};
stopped(#state{stopping = {Waiting, _, Timer}, config = #{socket_dir := Dir}} = State) ->
    _ = erlang:cancel_timer(Timer),
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_directory:leave(Dir),
    lists:foreach(fun(From) -> gen_server:reply(From, ok) end, Waiting),
    State#state{edge = stopped, stopping = no}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({Port, {data, {_, Line}}}, #state{edge = {port, Port}} = State) ->
    {noreply, said(Line, State)};
handle_info({Port, {exit_status, Status}}, #state{edge = {port, Port}} = State) ->
    {noreply, ended(Status, State)};
handle_info(poll, #state{edge = {adopted, Identity}} = State) ->
    case halley_edge_process:is_alive(Identity) of
        true ->
            _ = erlang:send_after(poll_ms(State), self(), poll),
            {noreply, State};
        false ->
            {noreply, ended(adopted, State)}
    end;
handle_info(too_late, #state{edge = Edge, stopping = {_, _, _}} = State) ->
    ?LOG_WARNING("the edge was asked to stop and still runs: killing it"),
    ok = signal(fun halley_edge_process:kill/1, Edge),
    State#state.leaving =:= none orelse halley_edge_handover:kill(State#state.leaving),
    {noreply, State};
handle_info(look_at_leaving, #state{leaving = Leaving} = State) when Leaving =/= none ->
    {noreply, leaving(halley_edge_handover:is_over(Leaving), State)};
handle_info(start, #state{edge = none} = State) ->
    {noreply, start(State)};
handle_info(start_again, #state{edge = none} = State) ->
    {noreply, start_again(State)};
handle_info(begin_again, #state{edge = none} = State) ->
    handle_continue(begin_with, State);
handle_info(_, State) ->
    {noreply, State}.

leaving(true, #state{config = #{socket_dir := Dir}} = State) ->
    ?LOG_NOTICE("the edge that was replaced has ended"),
    ok = halley_edge_handover:forget(Dir),
    case State#state{leaving = none} of
        #state{edge = stopped, stopping = {_, _, _}} = Left -> stopped(Left);
        Left -> Left
    end;
leaving({false, LateMs}, #state{leaving = Leaving} = State) ->
    LateMs > ?STOP_MS_MAX andalso halley_edge_handover:kill(Leaving),
    _ = erlang:send_after(poll_ms(State), self(), look_at_leaving),
    State.

poll_ms(#state{stopping = no}) -> ?POLL_MS;
poll_ms(_) -> ?STOPPING_POLL_MS.

ended(Status, #state{stopping = no} = State) ->
    ?LOG_ERROR("the edge ended ~ts", [status(Status)]),
    restart_later(State);
ended(Status, State) when Status =:= 0; Status =:= adopted ->
    stopped(State);
ended(Status, State) ->
    ?LOG_WARNING("the edge ended ~ts", [status(Status)]),
    stopped(State).

status(adopted) -> "(it was adopted, so nobody knows how)";
status(Status) -> io_lib:format("with status ~b", [Status]).

restart_later(#state{since = Since, wait_ms = Waited} = State) ->
    ok = halley_edge_dialer:disconnect(),
    WaitMs = case now_ms() - Since >= ?LASTED_MS of true -> 0; false -> Waited end,
    _ = erlang:send_after(WaitMs, self(), case WaitMs of 0 -> start; _ -> start_again end),
    State#state{edge = none, wait_ms = min(?WAIT_MS_MAX, max(?WAIT_MS_MIN, 2 * WaitMs))}.

start(#state{config = #{socket_dir := Dir}} = State) ->
    case start_edge(State) of
        {ok, Port} ->
            ok = halley_edge_dialer:connect(Dir, self()),
            State#state{edge = {port, Port}, since = now_ms()};
        {error, Line} ->
            ?LOG_ERROR("~ts", [Line]),
            restart_later(State#state{since = now_ms()})
    end.

%% While an older edge leaves, the names of the sockets may be its.
start_again(#state{config = Config, leaving = none} = State) ->
    case halley_edge_adoption:look(Config, unknown) of
        {adopt, Identity} ->
            #{socket_dir := Dir} = Config,
            _ = erlang:send_after(?POLL_MS, self(), poll),
            ok = halley_edge_dialer:connect(Dir, self()),
            State#state{edge = {adopted, Identity}, since = now_ms()};
        _ ->
            start(State)
    end;
start_again(State) ->
    start(State).

now_ms() ->
    erlang:monotonic_time(millisecond).
