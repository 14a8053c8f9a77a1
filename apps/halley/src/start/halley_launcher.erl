%% The launcher, which started this brain and waits for its end: `./halley foreground'
%% (tools/halley.in).
%%
%% The launcher starts a brain that dies again. It learns what it needs for that by lines in a pipe,
%% our descriptor 3: where the data and the edge's sockets are, how long a drain takes, and that the
%% brain is ready. A brain that ends before that has refused to start. The launcher kills a brain
%% that isn't ready when Halley is to stop: a SIGTERM is lost until the emulator listens to it.
%%
%% A brain without its launcher isn't started again, and holds the data for which an operator may
%% start another Halley. So this process looks once a second whether the launcher is still the
%% parent, and drains and stops the brain if it isn't.
-module(halley_launcher).
-behaviour(gen_server).

-export([start_link/0, pid/0, tell/0, sockets/1, ready/0, closed/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

-define(PIPE, "/proc/self/fd/3").
-define(LOOK_MS, 1000).

-spec start_link() -> gen_server:start_ret() | ignore.
start_link() ->
    case application:get_env(halley, launcher) of
        {ok, Launcher} -> gen_server:start_link({local, ?MODULE}, ?MODULE, Launcher, []);
        undefined -> ignore
    end.

%% Its process id, where it is still this brain's parent.
-spec pid() -> pos_integer() | none.
pid() ->
    case {application:get_env(halley, launcher), parent()} of
        {{ok, Pid}, Pid} when is_integer(Pid) -> Pid;
        _ -> none
    end.

%% `unknown': there may be no descriptor to look with.
parent() ->
    case file:read_file("/proc/self/stat") of
        {ok, Stat} ->
            {match, [Parent]} = re:run(Stat, ".*\\) \\S (\\d+) ", [{capture, all_but_first, list}]),
            list_to_integer(Parent);
        {error, _} ->
            unknown
    end.

%% Tells the configuration that is in force.
-spec tell() -> ok.
tell() ->
    {ok, Data} = application:get_env(halley, data_dir),
    {ok, DrainMs} = application:get_env(halley, drain_ms),
    write(io_lib:format("data ~ts~ndrain ~b~n", [Data, DrainMs])).

%% The folder of the sockets between brain and edge, before there is an edge: the launcher finds the
%% edge by it, and ends it if this brain can't.
-spec sockets(file:filename_all()) -> ok.
sockets(Dir) ->
    write(io_lib:format("sockets ~ts~n", [Dir])).

%% Clients can come.
-spec ready() -> ok.
ready() ->
    write("ready\n").

write(Lines) ->
    case pid() of
        none ->
            ok;
        _ ->
            case file:write_file(?PIPE, unicode:characters_to_binary(Lines), [append, raw]) of
                ok -> ok;
                {error, Reason} ->
                    ?LOG_WARNING("the launcher cannot be told how far the brain is: ~ts",
                                 [file:format_error(Reason)])
            end
    end.

%% Says that the brain has stopped as it was asked to. The emulator ends when its log is written,
%% which it never is where nobody reads it: the launcher gives it some seconds for that.
-spec closed() -> ok.
closed() ->
    case pid() of
        none -> ok;
        Pid ->
            %% Without a descriptor nothing can be told.
            _ = try os:cmd(["kill -USR2 ", integer_to_list(Pid)]) catch error:_ -> ok end,
            ok
    end.

%% --- is it there? ------------------------------------------------------------------------------

-spec init(Launcher :: pos_integer()) -> {ok, pos_integer()}.
init(Launcher) ->
    look_later(),
    {ok, Launcher}.

-spec handle_call(term(), gen_server:from(), pos_integer()) -> {reply, ok, pos_integer()}.
handle_call(_, _, Launcher) ->
    {reply, ok, Launcher}.

-spec handle_cast(term(), pos_integer()) -> {noreply, pos_integer()}.
handle_cast(_, Launcher) ->
    {noreply, Launcher}.

-spec handle_info(term(), pos_integer()) -> {noreply, pos_integer()}.
handle_info(look, Launcher) ->
    case parent() of
        Launcher -> look_later();
        unknown -> look_later();
        _ -> stop()
    end,
    {noreply, Launcher};
handle_info(_, Launcher) ->
    {noreply, Launcher}.

%% While the brain is still starting it can't be asked.
stop() ->
    case halley_drain:ask() of
        true -> ?LOG_ERROR("./halley foreground, which started this brain, is gone: stopping");
        false -> look_later()
    end.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.
