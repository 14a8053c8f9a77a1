%% Lets peers in: listens, shakes hands in a process for each connection, and hands what is proven
%% to teleport_peers, which says whose it is. Others ask it over the distribution where it listens.
%%
%% At most ?GREETINGS_MAX connections shake hands at a time, ?GREETINGS_EACH_MAX of one address, so
%% that a stranger alone keeps no other peer out; those that come then are closed. Each has
%% `connect_ms_max' for all of it, TLS included: then its process is killed and closes it. Those
%% that are refused are counted and logged, but not each of those that come again (teleport_told).
-module(teleport_listener).
-behaviour(gen_server).

-export([start_link/1, refused/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

-define(GREETINGS_MAX, 64).
-define(GREETINGS_EACH_MAX, 32).
%% Between equal lines of the log about an address.
-define(AGAIN_MS, 600000).

-define(REFUSED, {?MODULE, refused}).

-type address() :: tuple().
-record(state, {listen :: gen_tcp:socket(), port :: inet:port_number(), address :: string(),
                acceptor :: pid(),
                %% From which address each is, and how many are.
                greetings = #{} :: #{MRef :: reference() => address()},
                counts = #{} :: #{address() => pos_integer()},
                told = teleport_told:new(?AGAIN_MS) :: teleport_told:told()}).

-spec start_link(teleport_options:options()) -> gen_server:start_ret().
start_link(Options) -> gen_server:start_link({local, ?MODULE}, ?MODULE, Options, []).

%% Connections that were refused here, since the application first began on this node.
-spec refused() -> non_neg_integer().
refused() ->
    case persistent_term:get(?REFUSED, none) of
        none -> 0;
        Counter -> counters:get(Counter, 1)
    end.

count_refused() -> counters:add(persistent_term:get(?REFUSED), 1, 1).

-spec init(teleport_options:options()) -> {ok, #state{}} | {stop, term()}.
init(#{address := Address} = Options) ->
    process_flag(trap_exit, true),
    _ = [ok = persistent_term:put(?REFUSED, counters:new(1, []))
         || persistent_term:get(?REFUSED, none) =:= none],
    case teleport_socket:listen(Options) of
        {ok, Listen} ->
            Self = self(),
            Acceptor = spawn_link(fun() -> accept(Listen, Self) end),
            {ok, #state{listen = Listen, port = teleport_socket:port(Listen), address = Address,
                        acceptor = Acceptor}};
        {error, Reason} ->
            {stop, {listen, Reason}}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(where, _, #state{port = Port, address = Address} = State) ->
    {reply, #{address => Address, port => Port, instance => teleport_table:instance()}, State};
handle_call({may_greet, Address}, {Pid, _}, #state{greetings = Greetings,
                                                  counts = Counts} = State) ->
    Count = maps:get(Address, Counts, 0),
    case Count < ?GREETINGS_EACH_MAX andalso map_size(Greetings) < ?GREETINGS_MAX of
        true ->
            MRef = erlang:monitor(process, Pid),
            {reply, true, State#state{greetings = Greetings#{MRef => Address},
                                      counts = Counts#{Address => Count + 1}}};
        false ->
            {reply, false, State}
    end;
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({refused, Address, Why}, #state{told = Told} = State) ->
    ok = count_refused(),
    NowMs = erlang:monotonic_time(millisecond),
    case teleport_told:told(Address, Why, NowMs, Told) of
        {log, More, Next} ->
            ?LOG_NOTICE("teleport: a connection from ~ts was refused: ~ts~ts",
                        [text(Address), teleport_reasons:accepted(Why),
                         [io_lib:format("; ~b more since the last line", [More]) || More > 0]]),
            {noreply, State#state{told = Next}};
        {quiet, Next} ->
            {noreply, State#state{told = Next}}
    end;
handle_cast(_, State) ->
    {noreply, State}.

text({0, 0, 0, 0}) ->
    "::/64";
text({A, B, C, D}) when A > 255; B > 255; C > 255; D > 255 ->
    [inet:ntoa({A, B, C, D, 0, 0, 0, 0}), "/64"];
text(Ip) ->
    case inet:ntoa(Ip) of
        {error, einval} -> "an address";
        Text -> Text
    end.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({'DOWN', MRef, process, _, _}, #state{greetings = Greetings,
                                                  counts = Counts} = State) ->
    {Address, Left} = maps:take(MRef, Greetings),
    LeftOfIt = case Counts of
        #{Address := 1} -> maps:remove(Address, Counts);
        #{Address := Count} -> Counts#{Address := Count - 1}
    end,
    {noreply, State#state{greetings = Left, counts = LeftOfIt}};
handle_info({'EXIT', Acceptor, Reason}, #state{acceptor = Acceptor} = State) ->
    {stop, Reason, State};
handle_info(_, State) ->
    {noreply, State}.

accept(Listen, Listener) ->
    case teleport_socket:accept(Listen) of
        {ok, Tcp} ->
            Greeting = spawn(fun() -> receive go -> greet(Tcp, Listener) end end),
            case gen_tcp:controlling_process(Tcp, Greeting) of
                ok -> Greeting ! go;
                {error, _} -> exit(Greeting, kill)
            end,
            accept(Listen, Listener);
        {error, Reason} when Reason =:= emfile; Reason =:= enfile; Reason =:= econnaborted ->
            timer:sleep(100),
            accept(Listen, Listener);
        {error, closed} ->
            ok;
        {error, Reason} ->
            exit({accept, Reason})
    end.

greet(Tcp, Listener) ->
    case inet:peername(Tcp) of
        {ok, {Ip, _}} -> greet(Tcp, address(Ip), Listener);
        {error, _} -> gen_tcp:close(Tcp)
    end.

greet(Tcp, Address, Listener) ->
    case gen_server:call(Listener, {may_greet, Address}, infinity) of
        true ->
            #{connect_ms_max := Ms} = Options = teleport_options:get(),
            {ok, Limit} = timer:kill_after(Ms),
            case teleport_socket:secure(Tcp, Options) of
                {ok, Socket} -> answer(Socket, Limit, Address, Listener);
                {error, Reason} -> gen_server:cast(Listener, {refused, Address, {tls, Reason}})
            end;
        false ->
            ok = count_refused(),
            gen_tcp:close(Tcp)
    end.

%% Of IPv6 the network, whose addresses are one stranger's; but not of an IPv4 address in it.
address({0, 0, 0, 0, 0, 16#ffff, _, _} = Ip) -> Ip;
address({A, B, C, D, _, _, _, _}) -> {A, B, C, D};
address(Ip) -> Ip.

answer(Socket, Limit, Address, Listener) ->
    case teleport_greeting:answer(Socket, teleport_table:instance()) of
        {ok, Hello, About, Asked} ->
            %% Proven: what comes now is between the two nodes.
            {ok, cancel} = timer:cancel(Limit),
            case teleport_peers:admit(Hello, About) of
                {ok, Link, Ours} ->
                    %% If it's gone, the link finds out.
                    _ = teleport_greeting:welcome(Asked, Ours),
                    teleport_link:attach(Link, Hello, Socket);
                {refused, Why} ->
                    _ = [gen_server:cast(Listener, {refused, Address, {refused, Why}})
                         || teleport_rest:is_refusal({dial, {refused, Why}})],
                    teleport_greeting:refuse(Asked, Why)
            end;
        {error, {greeting, _}} ->
            ok;
        {error, Reason} ->
            gen_server:cast(Listener, {refused, Address, Reason})
    end.
