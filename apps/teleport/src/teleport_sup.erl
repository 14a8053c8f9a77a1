%% The tree: the owner of the tables, and then the links, their registry, and the listener. The
%% registry ends with the links and the listener, since a link that it doesn't know would never be
%% found stale; the tables outlast that, so that all waiting processes can be informed.
-module(teleport_sup).
-behaviour(supervisor).

-export([start_link/1, init/1]).

-spec start_link(teleport_options:options()) -> {ok, pid()} | {error, term()}.
start_link(Options) ->
    case supervisor:start_link({local, ?MODULE}, ?MODULE, Options) of
        {ok, _} = Started -> Started;
        {error, Reason} -> {error, Reason};
        ignore -> {error, ignore}
    end.

-spec init(teleport_options:options() | {links, teleport_options:options()}) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init({links, Options}) ->
    Links = #{id => teleport_link_sup, type => supervisor,
              start => {teleport_link_sup, start_link, []}},
    Peers = #{id => teleport_peers, start => {teleport_peers, start_link, []}},
    Listener = #{id => teleport_listener, start => {teleport_listener, start_link, [Options]}},
    {ok, {#{strategy => one_for_all, intensity => 5, period => 10}, [Links, Peers, Listener]}};
init(Options) ->
    Keeper = #{id => teleport_keeper, start => {teleport_keeper, start_link, []}},
    Links = #{id => links, type => supervisor,
              start => {supervisor, start_link, [?MODULE, {links, Options}]}},
    {ok, {#{strategy => rest_for_one, intensity => 1, period => 10}, [Keeper, Links]}}.
