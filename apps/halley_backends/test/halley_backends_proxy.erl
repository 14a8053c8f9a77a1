%% A proxy between a back end and its brain that cuts each connection after a random number of
%% bytes, in either direction, until there were so many cuts; then it lets all through.
-module(halley_backends_proxy).

-export([start/3, cuts/1, stop/1]).

%% A cut comes after 64 bytes to 128 KiB; sizes are spread evenly over powers of two.
-define(BITS_MIN, 6).
-define(BITS, 11).

-spec start(To :: inet:port_number(), Cuts :: pos_integer(), Seed :: integer()) ->
    {pid(), inet:port_number()}.
start(To, Cuts, Seed) ->
    Test = self(),
    Proxy = spawn(fun() ->
        {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}},
                                          {nodelay, true}]),
        {ok, Port} = inet:port(Listen),
        _ = rand:seed(exsss, Seed),
        Test ! {self(), Port},
        Self = self(),
        _ = spawn_link(fun() -> accept(Listen, To, Self) end),
        count(Cuts, 0)
    end),
    receive {Proxy, Port} -> {Proxy, Port} end.

-spec cuts(pid()) -> non_neg_integer().
cuts(Proxy) ->
    Proxy ! {cuts, self()},
    receive {Proxy, Cuts} -> Cuts end.

-spec stop(pid()) -> true.
stop(Proxy) -> exit(Proxy, kill).

count(Most, Cuts) ->
    receive
        {bytes, From} when Cuts < Most ->
            Half = 1 bsl (?BITS_MIN + rand:uniform(?BITS) - 1),
            From ! {bytes, Half + rand:uniform(Half)},
            count(Most, Cuts);
        {bytes, From} -> From ! {bytes, 1 bsl 60}, count(Most, Cuts);
        cut -> count(Most, Cuts + 1);
        {cuts, From} -> From ! {self(), Cuts}, count(Most, Cuts)
    end.

accept(Listen, To, Proxy) ->
    {ok, In} = gen_tcp:accept(Listen),
    Relay = spawn_link(fun() ->
        receive go -> ok end,
        Proxy ! {bytes, self()},
        Bytes = receive {bytes, N} -> N end,
        case gen_tcp:connect({127, 0, 0, 1}, To, [binary, {active, false}, {nodelay, true}]) of
            {ok, Out} ->
                _ = [inet:setopts(S, [{active, once}]) || S <- [In, Out]],
                relay(In, Out, Bytes, Proxy);
            {error, _} -> ok
        end
    end),
    _ = gen_tcp:controlling_process(In, Relay),
    Relay ! go,
    accept(Listen, To, Proxy).

relay(In, Out, Left, Proxy) ->
    receive
        {tcp, From, Data} ->
            To = case From of In -> Out; Out -> In end,
            _ = gen_tcp:send(To, binary:part(Data, 0, min(Left, byte_size(Data)))),
            _ = inet:setopts(From, [{active, once}]),
            case Left - byte_size(Data) of
                More when More > 0 -> relay(In, Out, More, Proxy);
                _ ->
                    _ = [gen_tcp:close(S) || S <- [In, Out]],
                    Proxy ! cut
            end;
        {tcp_closed, _} -> ok;
        {tcp_error, _, _} -> ok
    end.
