%% The sessions of back ends' processes. None is started anew: its back end logs in again.
-module(halley_backends_session_sup).
-behaviour(supervisor).

-export([start_link/0, start_session/1, init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec start_session(halley_backends_session:args()) -> {ok, pid()}.
start_session(Args) ->
    {ok, Pid} = supervisor:start_child(?MODULE, [Args]),
    true = is_pid(Pid),
    {ok, Pid}.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Session = #{id => session, start => {halley_backends_session, start_link, []},
                restart => temporary},
    {ok, {#{strategy => simple_one_for_one}, [Session]}}.
