%% The sessions of this node's processes. A session that ends isn't started anew: who logged in
%% hears of it (halley_remote_watch).
-module(halley_remote_session_sup).
-behaviour(supervisor).

-export([start_link/0, start_session/1, init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec start_session(halley_remote_session:args()) -> {ok, pid()} | {error, not_started}.
start_session(Args) ->
    try supervisor:start_child(?MODULE, [Args]) of
        {ok, Pid} when is_pid(Pid) -> {ok, Pid}
    catch
        exit:{noproc, _} -> {error, not_started}
    end.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Session = #{id => session, start => {halley_remote_session, start_link, []},
                restart => temporary},
    {ok, {#{strategy => simple_one_for_one}, [Session]}}.
