%% Supervises links. None is started anew: the next message to its node makes another.
-module(teleport_link_sup).
-behaviour(supervisor).

-export([start_link/0, start_link_process/1, init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec start_link_process(teleport_link:args()) -> {ok, pid()}.
start_link_process(Args) ->
    {ok, Pid} = supervisor:start_child(?MODULE, [Args]),
    true = is_pid(Pid),
    {ok, Pid}.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Link = #{id => teleport_link, start => {teleport_link, start_link, []}, restart => temporary},
    {ok, {#{strategy => simple_one_for_one}, [Link]}}.
