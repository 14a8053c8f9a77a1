%% Keeps a link of `teleport' to each other brain of the cluster, and reports to
%% `halley_cluster_brain' when one begins or ends. A message to a brain without a link is dropped:
%% the core relies on none.
%%
%% Members come from the table of brains, so a brain that joins is dialled within a second or two. A
%% brain's name is that of its node, which `teleport' has among its peers: a name that isn't there
%% is no member for this brain.
-module(halley_cluster_links).
-behaviour(gen_server).

-export([start_link/1, members/1, send/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(BRAIN, halley_cluster_brain).

-record(state, {me :: binary(),
                %% `dialing': a process connects, as that may take seconds.
                links = #{} :: #{binary() => dialing | {up, Monitor :: reference()}}}).

-spec start_link(Name :: binary()) -> gen_server:start_ret().
start_link(Name) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Name, []).

%% All that the table has, this brain among them.
-spec members([halley_log_engine:brain()]) -> ok.
members(Brains) ->
    gen_server:cast(?MODULE, {members, [Name || #{name := Name} <- Brains]}).

-spec send(Brain :: binary(), term()) -> ok.
send(Brain, Message) ->
    _ = [teleport:send({?BRAIN, Node}, Message, #{full => busy})
         || Node <- teleport:peers(), atom_to_binary(Node) =:= Brain],
    ok.

-spec init(binary()) -> {ok, #state{}}.
init(Name) ->
    {ok, #state{me = Name}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, ok, #state{}}.
handle_call(_, _, State) ->
    {reply, ok, State}.

-spec handle_cast({members, [binary()]}, #state{}) -> {noreply, #state{}}.
handle_cast({members, Names}, State = #state{me = Me, links = Links}) ->
    New = [{Name, Node} || Node <- maps:keys(application:get_env(teleport, peers, #{})),
                           Name <- [atom_to_binary(Node)], lists:member(Name, Names),
                           Name =/= Me, not is_map_key(Name, Links)],
    lists:foreach(fun dial/1, New),
    Dialing = maps:from_list([{Name, dialing} || {Name, _} <- New]),
    {noreply, State#state{links = maps:merge(Links, Dialing)}}.

dial({Name, Node}) ->
    Owner = self(),
    _ = spawn_link(fun() -> Owner ! {dialed, Name, Node, teleport:connect(Node)} end),
    ok.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({dialed, Name, Node, ok}, State = #state{links = Links}) ->
    Monitor = teleport:monitor_peer(Node),
    ?BRAIN ! {link, Name, up},
    {noreply, State#state{links = Links#{Name := {up, Monitor}}}};
handle_info({dialed, Name, _, {error, _}}, State = #state{links = Links}) ->
    {noreply, State#state{links = maps:remove(Name, Links)}};
handle_info({teleport_down, Monitor, _, _}, State = #state{links = Links}) ->
    case [Name || {Name, {up, M}} <- maps:to_list(Links), M =:= Monitor] of
        [Name] ->
            ?BRAIN ! {link, Name, down},
            {noreply, State#state{links = maps:remove(Name, Links)}};
        [] ->
            {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.
