%% Keeps the stream going: starts a worker, and another one when it ends, later each time while they
%% fail. The brain serves what it has meanwhile.
%%
%% A failure is logged once, until another one comes or the stream runs again.
-module(halley_postgres_runner).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("epgsql/include/epgsql.hrl").
-include_lib("kernel/include/logger.hrl").

-define(WAIT_MS_MIN, 200).
-define(WAIT_MS_MAX, 10000).

-record(runner, {settings :: halley_postgres_config:settings(),
                 worker = none :: none | pid(),
                 %% The slot has changes that the server can't send any more.
                 is_stuck = false :: boolean(),
                 wait_ms = ?WAIT_MS_MIN :: pos_integer(),
                 said = none :: none | binary()}).

-spec start_link(halley_postgres_config:settings()) -> {ok, pid()} | {error, term()}.
start_link(Settings) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Settings, []).

-spec init(halley_postgres_config:settings()) -> {ok, #runner{}}.
init(Settings) ->
    process_flag(trap_exit, true),
    ok = halley_postgres_gauges:new(),
    ok = halley_postgres_waiting:new(),
    ok = backend(Settings),
    ok = halley_postgres_connection:quiet(),
    {ok, started(#runner{settings = Settings})}.

%% Until this ends, changes that the API is asked for go into the table.
backend(#{writes := none}) -> ok;
backend(#{writes := _}) ->
    ok = halley_postgres_writes:gauges(),
    halley_follows_backend:set(fun halley_postgres_writes:change/2).

started(#runner{settings = Settings, is_stuck = IsStuck} = Runner) ->
    Owner = self(),
    Worker = spawn_link(fun() ->
        %% It reads a stream in parts: what it holds of the last one is garbage.
        process_flag(fullsweep_after, 20),
        run(Settings, IsStuck, fun(What) -> Owner ! {What, self()} end)
    end),
    Runner#runner{worker = Worker}.

run(#{publish := outbox} = Settings, _, Tell) ->
    halley_postgres_outbox:run(Settings, fun() -> Tell(streams) end);
run(Settings, IsStuck, Tell) -> halley_postgres_worker:run(Settings, IsStuck, Tell).

-spec handle_call(term(), gen_server:from(), #runner{}) -> {reply, pid() | none, #runner{}}.
handle_call(worker, _, #runner{worker = Worker} = Runner) -> {reply, Worker, Runner}.

-spec handle_cast(term(), #runner{}) -> {noreply, #runner{}}.
handle_cast(_, Runner) -> {noreply, Runner}.

-spec handle_info(term(), #runner{}) -> {noreply, #runner{}}.
handle_info({streams, Worker}, #runner{worker = Worker} = Runner) ->
    ?LOG_NOTICE("postgres: takes what comes"),
    {noreply, Runner#runner{wait_ms = ?WAIT_MS_MIN, said = none}};
%% The slot is another one, and must not be dropped if what comes behind that fails, as a copy may.
handle_info({has_slot, Worker}, #runner{worker = Worker} = Runner) ->
    {noreply, Runner#runner{is_stuck = false}};
handle_info({'EXIT', Worker, {again, Why}}, #runner{worker = Worker} = Runner) ->
    ok = halley_postgres_waiting:unready(),
    ?LOG_NOTICE("postgres: ~ts", [Why]),
    {noreply, started(Runner)};
handle_info({'EXIT', Worker, Reason},
            #runner{worker = Worker, wait_ms = WaitMs, settings = Settings, is_stuck = IsStuck}
            = Runner) ->
    ok = halley_postgres_gauges:set(streaming, 0),
    ok = halley_postgres_waiting:unready(),
    ok = halley_metrics:incr(postgres_failures),
    _ = erlang:send_after(WaitMs, self(), start),
    {noreply, said(Reason, Runner#runner{worker = none,
                                         is_stuck = IsStuck orelse is_stuck(Reason, Settings),
                                         wait_ms = min(WaitMs * 2, ?WAIT_MS_MAX)})};
handle_info(start, #runner{worker = none} = Runner) ->
    {noreply, started(Runner)};
handle_info(_, Runner) ->
    {noreply, Runner}.

%% A change is sent by the publication as it was when the change was made. If there was none, the
%% server refuses that change for good, also when there is a publication of that name again.
is_stuck({error, #error{code = <<"42704">>, message = Message}}, #{publication := Publication}) ->
    binary:match(Message, Publication) =/= nomatch;
is_stuck(_, _) ->
    false.

said(Reason, #runner{said = Before} = Runner) ->
    case unicode:characters_to_binary(halley_postgres_connection:explain(Reason)) of
        Before -> Runner;
        Line ->
            ?LOG_WARNING("postgres: ~ts; Halley serves what it has, and tries again", [Line]),
            Runner#runner{said = Line}
    end.

-spec terminate(term(), #runner{}) -> ok.
terminate(_, #runner{worker = Worker}) ->
    ok = halley_follows_backend:new(),
    ok = halley_postgres_connection:loud(),
    ended(Worker).

ended(none) -> ok;
ended(Worker) ->
    exit(Worker, shutdown),
    receive {'EXIT', Worker, _} -> ok
    after 5000 -> true = exit(Worker, kill), ok
    end.
