%% A lane's writer compared with a model: senders post small and large messages with names, the peer
%% reports now and then how far it is, and at some point the link ends, in one of three ways.
%% Whatever happens in between: of each sender the messages that the peer got are in order, and the
%% others were reported, in order and once.
%%
%% The peer is the other end of a real connection. The test is large writer and large reader.
-module(prop_teleport_writer).

-include("teleport_proper.hrl").
-include("teleport.hrl").

-export([prop_losses_are_told/0]).

-define(WAIT_MS, 30000).
-define(SENDERS, 3).
%% It sends nothing but the message whose write fails.
-define(LAST, 4).

-record(model, {writer, keys, is_open, sent = [], got = [], smalls = 0, large = [],
                confirmed = []}).

prop_losses_are_told() ->
    ?FORALL({Steps, End}, {list(step()), oneof([link_ends, write_fails, socket_never_comes])},
            begin
                #model{sent = Sent, got = Got, confirmed = Confirmed} = Model = start(End),
                [] = Sent ++ Got ++ Confirmed,
                is_kept(finish(End, lists:foldl(fun step/2, Model, Steps)))
            end).

%% Runs of messages are longer than a frame now and then.
step() ->
    oneof([{post, range(1, ?SENDERS), small, range(1, 400)},
           {post, range(1, ?SENDERS), small, range(1, 1500)},
           {post, range(1, ?SENDERS), large, range(1, 2)}, seen, done, done]).

is_kept({Sent, Got, Confirmed, Told}) ->
    lists:all(fun(Who) ->
        Mine = fun(Names) -> [N || {W, N} <- Names, W =:= Who] end,
        MyGot = Mine(Got),
        MyTold = Mine(Told),
        MyGot =:= lists:usort(MyGot) andalso MyTold =:= lists:usort(MyTold)
            andalso ordsets:subtract(Mine(Sent), ordsets:union(MyGot, MyTold)) =:= []
            andalso ordsets:intersection(ordsets:from_list(Mine(Confirmed)), MyTold) =:= []
    end, lists:seq(1, ?SENDERS)).

start(End) ->
    Test = self(),
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {packet, 4}]),
    {ok, Port} = inet:port(Listen),
    {ok, Ours} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, 4}]),
    {ok, Theirs} = gen_tcp:accept(Listen),
    ok = gen_tcp:close(Listen),
    Peer = spawn_link(fun() -> peer(Theirs, Test) end),
    {Link, Ref} = spawn_monitor(fun() ->
        process_flag(trap_exit, true),
        Test ! {writer, element(1, teleport_writer:start_link(
            #{node => node(), number => 1, queue => atomics:new(?QUEUE, []), low_bytes => 1,
              stats => atomics:new(?STATS, []), large => Test,
              calls => teleport_calls:new(), large_bytes => 1 bsl 16,
              message_bytes_max => 1 bsl 20}))},
        receive {'EXIT', _, Why} -> exit(Why) end
    end),
    Writer = receive {writer, Pid} -> Pid end,
    _ = put(?MODULE, {Link, Ref, Ours, Peer}),
    IsOpen = End =/= socket_never_comes,
    _ = [Writer ! {socket, {tcp, Ours}} || IsOpen],
    Keys = [spawn_link(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, ?LAST)],
    #model{writer = Writer, keys = list_to_tuple(Keys), is_open = IsOpen}.

peer(Socket, Test) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Frame} ->
            {ok, Elements} = teleport_codec:decode(Frame, node()),
            Test ! {small, [Name || [_ | Name] <- Elements]},
            peer(Socket, Test);
        {error, _} ->
            Test ! nothing_more,
            receive stop -> ok end
    end.

step({post, Who, Way, Count}, #model{writer = Writer, keys = Keys, sent = Sent} = Model) ->
    First = 1 + length([N || {W, N} <- Sent, W =:= Who]),
    Names = [{Who, N} || N <- lists:seq(First, First + Count - 1)],
    _ = [ok = teleport_writer:post(Writer, element(Who, Keys), payload(Way, Name), 100,
                                   {self(), Name}) || Name <- Names],
    Model#model{sent = Sent ++ Names};
step(seen, Model) ->
    #model{writer = Writer, smalls = Smalls, got = Got, confirmed = Confirmed} = Now = come(Model),
    Writer ! {seen, Smalls},
    Now#model{confirmed = [Name || {small, Name} <- Got] ++ Confirmed};
step(done, Model) ->
    case come(Model) of
        #model{large = [{Id, After, Name} | Rest], writer = Writer, smalls = Smalls, got = Got,
               confirmed = Confirmed} = Now when Smalls >= After ->
            Writer ! {done, [Id]},
            Now#model{large = Rest, got = Got ++ [{large, Name}], confirmed = [Name | Confirmed]};
        #model{is_open = true, large = [_ | _]} = Now ->
            %% Those before it are on their way.
            receive {small, Names} -> step(done, small(Names, Now))
            after ?WAIT_MS -> error(waited_too_long)
            end;
        Now -> Now
    end.

payload(small, Name) -> {small, [some_name | Name]};
payload(large, Name) -> {large, {[<<>>], [term_to_binary(Name)]}}.

%% What came until now.
come(#model{large = Large} = Model) ->
    receive
        {small, Names} -> come(small(Names, Model));
        {item, Id, _, <<1, Id:64, After:64, _/binary>>, [_, Name]} ->
            come(Model#model{large = Large ++ [{Id, After, binary_to_term(Name)}]})
    after 0 -> Model
    end.

small(Names, #model{got = Got, smalls = Smalls} = Model) ->
    Model#model{got = Got ++ [{small, Name} || Name <- Names], smalls = Smalls + length(Names)}.

finish(End, #model{writer = Writer, keys = Keys} = Model) ->
    {Link, Ref, Ours, Peer} = erase(?MODULE),
    case End of
        link_ends -> settle(Writer), exit(Link, ended);
        write_fails -> gen_tcp:close(Ours), step({post, ?LAST, small, 1}, Model);
        socket_never_comes -> exit(Link, ended)
    end,
    receive {'DOWN', Ref, process, Link, _} -> ok after ?WAIT_MS -> error(link_stays) end,
    _ = gen_tcp:close(Ours),
    receive nothing_more -> ok after ?WAIT_MS -> error(waited_too_long) end,
    #model{sent = Sent, got = Got, confirmed = Confirmed} = come(Model),
    %% Told last, since it's posted last.
    ok = teleport_writer:post(Writer, self(), payload(small, last), 1, {self(), last}),
    Told = told([]),
    %% What the writer handed over meanwhile, nobody takes.
    _ = come(Model),
    _ = [begin unlink(Pid), exit(Pid, kill) end || Pid <- [Peer, Writer | tuple_to_list(Keys)]],
    %% A word of the peer that the writer hadn't read yet is as one that didn't come.
    Known = case End of link_ends -> Confirmed; _ -> [] end,
    {Sent, [Name || {_, Name} <- Got], Known, Told}.

settle(Writer) ->
    case process_info(Writer, [message_queue_len, status]) of
        [{_, 0}, {_, waiting}] -> ok;
        _ -> erlang:yield(), settle(Writer)
    end.

told(Told) ->
    receive {teleport_lost, _, Names} ->
        case lists:member(last, Names) of
            true -> lists:append(lists:reverse([Names -- [last] | Told]));
            false -> told([Names | Told])
        end
    after ?WAIT_MS -> error(not_told)
    end.
