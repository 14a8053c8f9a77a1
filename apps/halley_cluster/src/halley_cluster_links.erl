%% Keeps a link of `teleport' to each other brain of the cluster, and reports to
%% `halley_cluster_brain' when one begins or ends. It drops a message to a brain without a link: the
%% core relies on none.
%%
%% Members come from the log's table of brains, with their addresses. `teleport' gets these, so that
%% a brain that joins is dialled within a second or two, and may dial. A brain's name is that of its
%% node, which is an atom here: the process makes ?MEMBERS_MAX of them at most.
-module(halley_cluster_links).
-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start_link/1, members/1, send/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(BRAIN, halley_cluster_brain).
%% Names of brains, also of those that have gone for ever. A name stays when its brain is started
%% anew.
-define(MEMBERS_MAX, 256).
%% Of an atom.
-define(NAME_BYTES_MAX, 255).

-record(state, {me :: binary(),
                nodes = #{} :: #{binary() => node()},
                %% What was logged as no member.
                strange = #{} :: #{binary() => true},
                %% `dialing': a process connects, as that may take seconds.
                links = #{} :: #{binary() => dialing | {up, Monitor :: reference()}}}).

-spec start_link(Name :: binary()) -> gen_server:start_ret().
start_link(Name) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Name, []).

%% All that the table has, this brain among them.
-spec members([halley_log_engine:brain()]) -> ok.
members(Brains) ->
    gen_server:cast(?MODULE, {members, [{Name, Address}
                                        || #{name := Name, address := Address} <- Brains]}).

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

-spec handle_cast({members, [{Name :: binary(), Address :: binary()}]}, #state{}) ->
    {noreply, #state{}}.
handle_cast({members, Members}, State = #state{me = Me}) ->
    {noreply, lists:foldl(fun member/2, State, lists:keydelete(Me, 1, Members))}.

%% A name becomes an atom only if there is a place to dial.
member({Name, Address}, State) ->
    case place(Address) of
        {ok, Place} -> placed(Name, Address, Place, State);
        error -> strange(Name, Address, State)
    end.

placed(Name, Address, Place, State = #state{links = Links}) ->
    case named(Name, State) of
        {ok, Node, Named} ->
            ok = teleport:add_peer(Node, Place),
            case Links of
                #{Name := _} -> Named;
                #{} -> dial(Name, Node, Named)
            end;
        none ->
            strange(Name, Address, State)
    end.

named(Name, State = #state{nodes = Nodes}) ->
    case Nodes of
        #{Name := Node} -> {ok, Node, State};
        #{} when map_size(Nodes) >= ?MEMBERS_MAX; byte_size(Name) > ?NAME_BYTES_MAX -> none;
        #{} ->
            Node = binary_to_atom(Name),
            {ok, Node, State#state{nodes = Nodes#{Name => Node}}}
    end.

%% `HOST:PORT', with the brackets of an IPv6 address.
place(Address) ->
    case string:split(Address, ":", trailing) of
        [Host, Port] ->
            try binary_to_integer(Port) of
                Number when Number > 0, Number < 65536 -> {ok, {host(Host), Number}};
                _ -> error
            catch
                error:badarg -> error
            end;
        _ ->
            error
    end.

host(Host) ->
    Name = string:trim(binary_to_list(Host), both, "[]"),
    case inet:parse_address(Name) of
        {ok, Ip} -> Ip;
        {error, einval} -> Name
    end.

strange(Name, _, State = #state{strange = Strange})
  when is_map_key(Name, Strange); map_size(Strange) >= ?MEMBERS_MAX ->
    State;
strange(Name, Address, State = #state{strange = Strange}) ->
    ?LOG_WARNING("cluster: the brain ~ts at ~ts in halley_cluster.brains gets no link: its address "
                 "must be HOST:PORT, its name have ~b bytes at most, and ~b names may have been "
                 "there; if no brain has that row, delete it",
                 [Name, Address, ?NAME_BYTES_MAX, ?MEMBERS_MAX]),
    State#state{strange = Strange#{Name => true}}.

dial(Name, Node, State = #state{links = Links}) ->
    Owner = self(),
    _ = spawn_link(fun() -> Owner ! {dialed, Name, Node, teleport:connect(Node)} end),
    State#state{links = Links#{Name => dialing}}.

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
