%% Knows the links: which node has one, and which of two is the newer. One link for each node; who
%% sends reads its route from ETS and asks this process only if there is none.
%%
%% Two nodes that dial each other at once: the dial of the one whose name is lower stands. A node
%% that dials although there is a link has lost its own; then the old one ends here before the new
%% one is let in. `epoch' is a node's count of dials and admissions, so that a greeting that was
%% overtaken by a newer link is known (`stale').
%%
%% Invariant: a link's readers are dead before its end is reported and before another link to the
%% same node begins.
-module(teleport_peers).
-behaviour(gen_server).

-export([start_link/0, route/2, admit/2, disconnect/1, monitor_peer/1, demonitor_peer/1]).
-export([whereis_name/1, send/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-ignore_xref([whereis_name/1, send/2]).

-include("teleport.hrl").
-include_lib("kernel/include/logger.hrl").

%% After a crossed dial: the peer's is on its way.
-define(AGAIN_MS, 20).
-define(AGAIN_MAX, 100).
%% Between equal lines of the log about a node.
-define(SAID_AGAIN_MS, 60000).

-record(link, {
    pid :: pid() | none,
    mref = none :: reference() | none,
    state :: dialing | crossed | up,
    id = <<>> :: binary(),
    epoch = 0 :: non_neg_integer(),
    %% The peer's instance and its epoch at the handshake.
    peer = none :: none | {binary(), non_neg_integer()},
    waiting = [] :: [gen_server:from()],
    up_ms = 0 :: integer(),                                % since when
    tries = 0 :: non_neg_integer()
}).
-record(state, {
    epoch = 0 :: non_neg_integer(),
    links = #{} :: #{node() => #link{}},
    %% Of nodes that couldn't be reached, or whose link was refused a connection.
    resting = #{} :: #{node() => teleport_rest:rest()},
    told = teleport_told:new(?SAID_AGAIN_MS) :: teleport_told:told()
}).

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Connects if there is no link, and waits so many milliseconds for that; then `busy', and an answer
%% that comes later is dropped. Who doesn't wait leaves nothing here.
-spec route(node(), timeout()) -> {ok, #route{}} | {error, nodedown | busy}.
route(Node, Ms) ->
    case teleport_table:route(Node) of
        {ok, _} = Found -> Found;
        none when Ms =:= 0 -> ask({begin_to_connect, Node}, infinity);
        none -> ask({connect, Node}, Ms);
        not_running -> {error, nodedown}
    end.

ask(Request, Ms) ->
    try gen_server:call(?MODULE, Request, Ms)
    catch
        exit:{timeout, _} -> {error, busy};
        exit:_ -> {error, nodedown}
    end.

%% Whose connection this is, and what to say of this node to its other end, which has proven that it
%% knows the secret.
-spec admit(teleport_handshake:hello(), teleport_handshake:about()) ->
    {ok, Link :: pid(), teleport_handshake:about()} | {refused, teleport_handshake:refusal()}.
admit(#{from := Name} = Hello, About) ->
    try binary_to_existing_atom(Name) of
        Node when Node =/= node() ->
            gen_server:call(?MODULE, {admit, Node, Hello, About}, infinity);
        _ ->
            {refused, unknown_node}
    catch
        error:badarg -> {refused, unknown_node}
    end.

-spec disconnect(node()) -> ok.
disconnect(Node) -> gen_server:call(?MODULE, {disconnect, Node}, infinity).

-spec monitor_peer(node()) -> reference().
monitor_peer(Node) -> gen_server:call(?MODULE, {monitor_peer, Node, self()}, infinity).

-spec demonitor_peer(reference()) -> ok.
demonitor_peer(Ref) ->
    ok = gen_server:call(?MODULE, {demonitor_peer, Ref}, infinity),
    receive {teleport_down, Ref, _, _} -> ok after 0 -> ok end.

%% For via tuples.
-spec whereis_name(node()) -> pid() | undefined.
whereis_name(Node) ->
    case teleport_table:route(Node) of
        {ok, #route{link = Link}} -> Link;
        _ -> undefined
    end.

-spec send(node(), term()) -> pid().
send(Node, Message) ->
    case whereis_name(Node) of
        undefined -> exit({badarg, {Node, Message}});
        Link -> Link ! Message, Link
    end.

%% --- the process -------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    %% When the application stops, whoever monitors is told.
    process_flag(trap_exit, true),
    %% If this is after a crash, links were there, and are ended by now.
    _ = [purge(Reader) || Reader <- teleport_table:begin_anew()],
    ok = teleport_monitors:all_ended(restarted),
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}}.
handle_call({connect, Node}, From, State) ->
    case connect(Node, State) of
        {reply, _, _} = Known ->
            Known;
        {dialing, #link{waiting = Waiting} = Link, Dialing} ->
            {noreply, put_link(Node, Link#link{waiting = [From | Waiting]}, Dialing)}
    end;
handle_call({begin_to_connect, Node}, _, State) ->
    case connect(Node, State) of
        {reply, _, _} = Known -> Known;
        {dialing, Link, Dialing} -> {reply, {error, busy}, put_link(Node, Link, Dialing)}
    end;
handle_call({admit, Node, Hello, About}, _, State) ->
    {Reply, After} = admit(Node, Hello, About, State),
    {reply, Reply, After};
handle_call({disconnect, Node}, _, #state{links = Links} = State) ->
    case Links of
        #{Node := Link} -> {reply, ok, ended(Node, disconnected, stop(Link), rested(Node, State))};
        #{} -> {reply, ok, rested(Node, State)}
    end;
handle_call({monitor_peer, Node, Pid}, _, #state{links = Links} = State) ->
    Ref = erlang:monitor(process, Pid),
    case Links of
        #{Node := _} ->
            ok = teleport_monitors:put_peer(Ref, Node, Pid),
            {reply, Ref, State};
        #{} ->
            true = erlang:demonitor(Ref, [flush]),
            Pid ! {teleport_down, Ref, Node, not_connected},
            {reply, Ref, State}
    end;
handle_call({demonitor_peer, Ref}, _, State) ->
    true = erlang:demonitor(Ref, [flush]),
    _ = teleport_monitors:drop_peer(Ref),
    {reply, ok, State};
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({up, Node, Pid, Route, Peer}, #state{links = Links} = State) ->
    case Links of
        #{Node := #link{pid = Pid} = Link} -> {noreply, is_up(Node, Route, Peer, Link, State)};
        #{} -> {noreply, State}
    end;
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'DOWN', MRef, process, Pid, Reason}, #state{links = Links} = State) ->
    case [{Node, Link} || {Node, #link{pid = P, mref = M} = Link} <- maps:to_list(Links),
                          P =:= Pid, M =:= MRef] of
        [{Node, Link}] ->
            {noreply, down(Node, reason(Reason), Link, State)};
        [] ->
            _ = teleport_monitors:drop_peer(MRef),
            {noreply, State}
    end;
handle_info({again, Node}, #state{links = Links} = State) ->
    case Links of
        #{Node := #link{state = crossed} = Crossed} ->
            {dialing, Link, Dialing} = dial(Node, Crossed, State),
            {noreply, put_link(Node, Link, Dialing)};
        #{} -> {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% Links end before the tables do, so that all who wait for something are told.
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{links = Links} = State) ->
    %% All at once: each may take a while.
    _ = [ok = gen_server:cast(Pid, disconnect)
         || #link{pid = Pid, state = up} <- maps:values(Links)],
    _ = maps:fold(fun(Node, Link, Left) -> ended(Node, stopped, stop(Link), Left) end,
                  State, Links),
    ok.

reason({shutdown, Reason}) -> Reason;
reason(Reason) -> Reason.

put_link(Node, Link, #state{links = Links} = State) ->
    State#state{links = Links#{Node => Link}}.

%% --- links begin -------------------------------------------------------------------------------

connect(Node, #state{links = Links} = State) ->
    case Links of
        #{Node := #link{state = up}} ->
            {reply, teleport_table:route(Node), State};
        #{Node := Link} ->
            {dialing, Link, State};
        _ when Node =:= node() ->
            {reply, {error, nodedown}, State};
        _ ->
            case teleport_rest:is_over(rest(Node, State), now_ms()) of
                true -> dial(Node, #link{pid = none, state = dialing}, State);
                false -> {reply, {error, nodedown}, State}
            end
    end.

rest(Node, #state{resting = Resting}) -> maps:get(Node, Resting, teleport_rest:new()).

%% The peer has dialled, or this node has ended it: the next dial is as the first one.
rested(Node, #state{resting = Resting} = State) ->
    State#state{resting = maps:remove(Node, Resting)}.

now_ms() -> erlang:monotonic_time(millisecond).

dial(Node, Link, #state{epoch = Epoch} = State) ->
    Id = crypto:strong_rand_bytes(16),
    Started = start(Node, Id, Epoch + 1, dial, Link#link{state = dialing}),
    {dialing, Started, State#state{epoch = Epoch + 1}}.

start(Node, Id, Epoch, Theirs, Link) ->
    {ok, Pid} = teleport_link_sup:start_link_process(
        #{node => Node, id => Id, epoch => Epoch, instance => teleport_table:instance(),
          stats => teleport_table:stats(Node), theirs => Theirs,
          up => fun(Link1, Route, Peer) ->
                    gen_server:cast(?MODULE, {up, Node, Link1, Route, Peer})
                end}),
    Link#link{pid = Pid, mref = erlang:monitor(process, Pid), id = Id, epoch = Epoch}.

is_up(Node, Route, Peer, #link{waiting = Waiting} = Link, State) ->
    ok = teleport_table:put_route(Node, Route),
    _ = [gen_server:reply(From, {ok, Route}) || From <- lists:reverse(Waiting)],
    put_link(Node, Link#link{state = up, peer = Peer, waiting = [], up_ms = now_ms(), tries = 0},
             State).

admit(Node, #{kind := control, instance := Instance, epoch := Epoch} = Hello, About,
      #state{links = Links} = State) ->
    case Links of
        #{Node := #link{state = up, peer = {Instance, Newest}}} when Epoch =< Newest ->
            {{refused, stale}, State};
        #{Node := #link{state = up} = Link} ->
            let_in(Node, Hello, About, ended(Node, replaced, stop(Link), State));
        #{Node := #link{state = dialing}} when Node > node() ->
            {{refused, crossed}, State};
        #{Node := #link{waiting = Waiting} = Link} ->
            _ = stop(Link),
            Rest = State#state{links = maps:remove(Node, Links)},
            {Reply, #state{links = Now} = In} = let_in(Node, Hello, About, Rest),
            #{Node := #link{pid = Pid}} = Now,
            Route = teleport_link:route(Pid),
            _ = [gen_server:reply(From, {ok, Route}) || From <- lists:reverse(Waiting)],
            {Reply, In};
        #{} ->
            let_in(Node, Hello, About, State)
    end;
admit(Node, #{link := Id}, _, #state{links = Links} = State) ->
    case Links of
        #{Node := #link{state = up, id = Id, pid = Pid, epoch = Epoch}} ->
            {{ok, Pid, about(Epoch)}, State};
        #{} ->
            {{refused, no_link}, State}
    end.

let_in(Node, #{link := Id, instance := Instance, epoch := Theirs}, About,
       #state{epoch = Before} = State) ->
    Epoch = Before + 1,
    #link{pid = Pid} = Link = start(Node, Id, Epoch, About, #link{pid = none, state = up}),
    Up = is_up(Node, teleport_link:route(Pid), {Instance, Theirs}, Link,
               rested(Node, State#state{epoch = Epoch})),
    {{ok, Pid, about(Epoch)}, Up}.

about(Epoch) ->
    (maps:with([message_bytes_max, lanes], teleport_options:get()))#{epoch => Epoch}.

%% --- links end ---------------------------------------------------------------------------------

stop(#link{pid = none} = Link) ->
    Link;
stop(#link{pid = Pid, mref = MRef, state = dialing} = Link) ->
    true = exit(Pid, {shutdown, crossed}),
    receive {'DOWN', MRef, process, _, _} -> Link end;
stop(#link{pid = Pid, mref = MRef} = Link) ->
    ok = gen_server:cast(Pid, disconnect),
    receive {'DOWN', MRef, process, _, _} -> Link
    after 1000 ->
        true = exit(Pid, kill),
        receive {'DOWN', MRef, process, _, _} -> Link end
    end.

down(Node, {dial, {refused, Why}}, #link{state = dialing, tries = Tries} = Link, State)
  when (Why =:= crossed orelse Why =:= stale), Tries < ?AGAIN_MAX ->
    _ = erlang:send_after(?AGAIN_MS, self(), {again, Node}),
    put_link(Node, Link#link{pid = none, mref = none, state = crossed, tries = Tries + 1}, State);
down(Node, Reason, #link{state = Before, up_ms = UpMs} = Link,
     #state{resting = Resting} = State0) ->
    ok = counted(Node, Reason, Before),
    #state{} = State = logged(Node, Reason, Before, State0),
    NowMs = now_ms(),
    Rest = case Before of
        up -> teleport_rest:ended(Reason, rest(Node, State), {NowMs - UpMs, NowMs},
                                  rand:uniform());
        _ -> teleport_rest:failed(Reason, rest(Node, State), NowMs, rand:uniform())
    end,
    ended(Node, Reason, Link, case Rest =:= teleport_rest:new() of
        true -> rested(Node, State);
        false -> State#state{resting = Resting#{Node => Rest}}
    end).

counted(Node, Reason, Before) ->
    case {teleport_rest:is_refusal(Reason), Before} of
        {true, _} -> teleport_table:dial_failed(Node, refused);
        {false, up} -> ok;
        {false, _} -> teleport_table:dial_failed(Node, failed)
    end.

%% Once for each reason, and then once a minute with how often it was.
logged(_, Reason, _, State) when Reason =:= disconnected; Reason =:= shutdown ->
    State;
logged(Node, Reason, Before, #state{told = Told} = State) ->
    case teleport_told:told(Node, {Before, Reason}, now_ms(), Told) of
        {log, More, Next} ->
            ?LOG_NOTICE("teleport: ~ts~ts",
                        [teleport_reasons:sentence(Node, Reason, Before =:= up),
                         [io_lib:format("; ~b more since the last line", [More]) || More > 0]]),
            State#state{told = Next};
        {quiet, Next} ->
            State#state{told = Next}
    end.

%% The link's process has ended.
ended(Node, Reason, #link{pid = Pid, waiting = Waiting}, #state{links = Links} = State) ->
    _ = [purge(Reader) || Reader <- teleport_table:take_readers(Pid)],
    ok = teleport_table:drop_route(Node),
    ok = teleport_monitors:link_ended(Pid),
    _ = [gen_server:reply(From, {error, nodedown}) || From <- lists:reverse(Waiting)],
    _ = [true = erlang:demonitor(Ref, [flush])
         || Ref <- teleport_monitors:peer_ended(Node, Reason)],
    State#state{links = maps:remove(Node, Links)}.

purge(Reader) ->
    MRef = erlang:monitor(process, Reader),
    true = exit(Reader, kill),
    receive {'DOWN', MRef, process, _, _} -> ok end.
