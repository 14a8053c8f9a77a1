%% The work of SIGTERM: a drain, then the stop of the node.
%%
%% The drain asks the edge to close its connections over `drain.time' and waits until the edge is
%% gone. The brain works as usual meanwhile: it delivers, replays and answers. Only then the node
%% stops. A second SIGTERM makes the edge close what is left at once. However the edge behaves, the
%% node stops in the end: `drain.time' and ?MARGIN_MS later at the latest.
%%
%% The edge's runner says how it is stopped (`set_edge/1'); a brain without one stops at once. The
%% drain is a process of its own, registered until the node ends. SIGHUP is `halley_reload''s, other
%% signals are passed to OTP's handler, which this one replaces.
-module(halley_drain).
-behaviour(gen_event).

-export([install/0, remove/0, set_edge/1, ask/0, is_draining/0]).
-export([init/1, handle_event/2, handle_call/2]).
-export_type([stop_edge/0]).

-include_lib("kernel/include/logger.hrl").

%% Asks the edge to stop within so many milliseconds and returns when it is gone. It may be called
%% again meanwhile, with less.
-type stop_edge() :: fun((DrainMs :: non_neg_integer()) -> ok).

-define(SERVER, erl_signal_server).
-define(MARGIN_MS, 15000).
-define(PROGRESS_MS, 500).

-spec install() -> ok.
install() ->
    ok = os:set_signal(sighup, handle),
    ok = gen_event:swap_handler(?SERVER, {erl_signal_handler, []}, {?MODULE, []}).

%% SIGTERM is OTP's again, SIGHUP nobody's.
-spec remove() -> ok.
remove() ->
    ok = os:set_signal(sighup, ignore),
    _ = gen_event:swap_handler(?SERVER, {?MODULE, []}, {erl_signal_handler, []}),
    ok.

-spec set_edge(stop_edge()) -> ok.
set_edge(StopEdge) ->
    application:set_env(halley, stop_edge, StopEdge).

%% Does what SIGTERM does. False where SIGTERM is OTP's, and nothing was done.
-spec ask() -> boolean().
ask() ->
    Handled = lists:member(?MODULE, gen_event:which_handlers(?SERVER)),
    _ = Handled andalso gen_event:notify(?SERVER, sigterm),
    Handled.

-spec is_draining() -> boolean().
is_draining() ->
    whereis(?MODULE) =/= undefined.

%% --- the signals' handler ----------------------------------------------------------------------

-spec init(term()) -> {ok, none}.
init(_) ->
    {ok, none}.

-spec handle_event(Signal :: atom(), none) -> {ok, none}.
handle_event(sigterm, State) ->
    case whereis(?MODULE) of
        undefined -> register(?MODULE, spawn(fun run/0));
        Draining -> Draining ! again
    end,
    {ok, State};
handle_event(sighup, State) ->
    ok = halley_reload:ask(),
    {ok, State};
handle_event(Signal, State) ->
    _ = erl_signal_handler:handle_event(Signal, State),
    {ok, State}.

-spec handle_call(term(), none) -> {ok, ok, none}.
handle_call(_, State) ->
    {ok, ok, State}.

%% --- the drain ---------------------------------------------------------------------------------

run() ->
    try
        case application:get_env(halley, stop_edge) of
            {ok, StopEdge} -> drain(StopEdge, application:get_env(halley, drain_ms, 0));
            undefined -> ?LOG_NOTICE("stopping")
        end
    after
        init:stop()
    end,
    receive never -> ok end.

drain(StopEdge, DrainMs) ->
    Began = now_ms(),
    ?LOG_NOTICE("draining: ~b sessions over ~ts", [sessions(), seconds(DrainMs)]),
    {_, Monitor} = spawn_monitor(fun() -> ok = StopEdge(DrainMs) end),
    await(StopEdge, Monitor, Began + DrainMs + ?MARGIN_MS),
    ?LOG_NOTICE("drained after ~ts, stopping", [seconds(now_ms() - Began)]).

await(StopEdge, Monitor, Deadline) ->
    _ = halley_pidfile:write({draining, sessions()}),
    LeftMs = Deadline - now_ms(),
    receive
        {'DOWN', Monitor, process, _, normal} ->
            ok;
        {'DOWN', Monitor, process, _, Reason} ->
            ?LOG_ERROR("the edge could not be stopped: ~0tP", [Reason, 30]);
        again ->
            ?LOG_NOTICE("asked again to stop: closing ~b sessions at once", [sessions()]),
            _ = spawn(fun() -> StopEdge(0) end),
            await(StopEdge, Monitor, min(Deadline, now_ms() + ?MARGIN_MS))
    after max(0, min(?PROGRESS_MS, LeftMs)) ->
        case LeftMs > 0 of
            true -> await(StopEdge, Monitor, Deadline);
            false -> ?LOG_ERROR("the edge did not stop in time")
        end
    end.

sessions() ->
    #{sessions := Sessions} = halley_directory:online(),
    Sessions.

seconds(Ms) ->
    io_lib:format("~.1f s", [Ms / 1000]).

now_ms() ->
    erlang:monotonic_time(millisecond).
