%% A peer that has proven itself and then breaks the protocol, on each kind of connection: its link
%% ends with the reason, and the node goes on.
-module(teleport_malformed_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0]).
-export([control/1, lane/1, large/1]).
%% Run on other nodes.
-export([do_break/4]).

-import(teleport_test_nodes, [call/4, wait/1, on/3]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [control, lane, large].

first(What, Nodes) -> teleport_test_nodes:first(?MODULE, What, Nodes).

%% --- on the first node: a peer by hand ---------------------------------------------------------

%% A link that this process makes, of which teleport here knows nothing.
begin_link(Address, Node) ->
    Hello = #{kind => control, lane => 0, nonce => teleport_handshake:nonce(),
              link => crypto:strong_rand_bytes(16), epoch => 1,
              instance => crypto:strong_rand_bytes(16), from => atom_to_binary(node()),
              to => atom_to_binary(Node)},
    {ok, Control} = dial(Address, Hello),
    {Hello, Control}.

dial(Address, Hello) ->
    About = #{message_bytes_max => 1 bsl 20, lanes => 4, epoch => 1},
    case teleport_greeting:dial(Address, Hello, About) of
        {ok, Socket, _, _} -> {ok, Socket};
        {error, _} = Error -> Error
    end.

%% Writes these bytes on a connection of this kind, and waits until the peer has closed both. Gives
%% the reason that is known there.
do_break(Address, Kind, Bytes, Node) ->
    {Hello, Control} = begin_link(Address, Node),
    Watcher = on(Node, watch_peer, [node()]),
    Socket = case Kind of
        control -> Control;
        _ ->
            {ok, Dialed} = dial(Address, Hello#{kind => Kind, lane => 1}),
            ok = teleport_socket:frames(Dialed, 1 bsl 20),
            [ok = teleport_socket:plain(Dialed) || Kind =:= large],
            Dialed
    end,
    ok = teleport_socket:write(Socket, Bytes),
    _ = [closed(S) || S <- [Control, Socket]],
    on(Node, peer_ended, [Watcher]).

closed(Socket) ->
    case teleport_socket:recv(Socket, 0, 30000) of
        {ok, _} -> closed(Socket);
        {error, Why} when Why =/= timeout -> ok
    end.

%% --- cases -------------------------------------------------------------------------------------

control(_) ->
    broken(control, {malformed, control},
           [<<>>, <<9>>, <<1>>, <<3, 1, 200>>, <<3, 7, 1>>, <<4, 200, 7:64>>, <<4, 1, 1>>,
            <<5, 0:(8 * 201)>>]),
    %% Words of which the link knows that they can't be.
    broken(control, {malformed, connection}, [<<7, 1, 1, 5:64>>]),
    broken(control, {malformed, done}, [<<4, 1, 7:64>>]).

lane(_) ->
    Elements = [no_element, {call, 1, 2, 3}, {demonitor, 7}, {cancel, 7}, {down, 1, 2, 3},
                {monitor, 1, 2, 3}, {reply, 1, 2}, [7 | message]],
    broken(lane, malformed,
           [<<>>, <<0>>, <<131>>, <<131, 80, 0, 0, 0, 1, 1>>, term_to_binary(no_list),
            <<(term_to_binary([]))/binary, 0>>]
           ++ [term_to_binary([Element]) || Element <- Elements]).

large(_) ->
    Good = term_to_binary([[name | hello], none]),
    Size = byte_size(Good),
    Start = fun(Id, Rest, Sizes) ->
        <<1, Id:64, 0:64, Rest:64, (length(Sizes)):16, << <<S:64>> || S <- Sizes >>/binary>>
    end,
    broken(large, malformed,
           [<<0>>, <<3>>,
            %% Nothing, more than is taken, and more parts than are.
            Start(1, 0, []), Start(1, 1 bsl 40, []), Start(1, Size, [1 bsl 30]),
            <<1, 1:64, 0:64, 1:64, 1025:16>>,
            %% The same number twice, and three at a time.
            [Start(1, Size, []), Start(1, Size, [])],
            [Start(N, Size, []) || N <- [1, 2, 3]],
            %% A fragment of none, and one that is longer than what was announced.
            <<2, 1:64, 1:64>>, [Start(1, Size, []), <<2, 1:64, (Size + 1):64>>, Good, 0],
            %% What isn't an element.
            [Start(1, 3, []), <<2, 1:64, 3:64, 131, 97, 1>>],
            [Start(1, Size, [1]), <<2, 1:64, (Size + 1):64>>, Good, 7]]).

broken(Kind, Reason, All) ->
    [{_, Name}, Second] = Nodes =
        teleport_test_nodes:pair(?MODULE, #{message_bytes_max => 1 bsl 20}),
    try
        %% Who accepts must have heard of the name.
        Name = call(Second, erlang, list_to_atom, [atom_to_list(Name)]),
        _ = [broken(Kind, Reason, Bytes, Nodes) || Bytes <- All],
        {_, Node} = Second,
        %% The node is as it was.
        ?assertEqual(ok, call(hd(Nodes), teleport, connect, [Node]))
    after
        teleport_test_nodes:stop(Nodes)
    end.

broken(Kind, Reason, Bytes, [_, Second] = Nodes) ->
    #{port := Port} = call(Second, gen_server, call, [teleport_listener, where]),
    ?assertEqual({Bytes, Reason},
                 {Bytes, first({break, {{127, 0, 0, 1}, Port, any}, Kind, Bytes}, Nodes)}),
    ok = wait(fun() -> call(Second, teleport, peers, []) =:= [] end).
