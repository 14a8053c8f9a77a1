%% Whatever a server sends as a change of `pgoutput', it is a map or a named error.
-module(prop_epgsql_pgoutput).

-include("epgsql_proper.hrl").

-export([prop_damaged/0]).

whole() ->
    oneof([<<$R, 5:32, "public", 0, "t", 0, $d, 1:16, 1, "a", 0, 23:32, -1:32>>,
           <<$I, 5:32, $N, 2:16, $t, 1:32, "1", $n>>,
           <<$U, 5:32, $K, 1:16, $n, $N, 1:16, $t, 0:32>>, <<$D, 5:32, $O, 1:16, $b, 1:32, "x">>,
           <<$T, 2:32, 1, 5:32, 6:32>>, <<$M, 1, 9:64, "halley", 0, 2:32, 0, 1>>,
           <<$B, 7:64, -1:64, 3:32>>, <<$Y, 9:32, 0, "mood", 0>>]).

damaged(Bytes, {cut, N}) -> binary:part(Bytes, 0, min(N, byte_size(Bytes)));
damaged(Bytes, {set, At, Byte}) when At < byte_size(Bytes) ->
    <<Before:At/binary, _, After/binary>> = Bytes,
    <<Before/binary, Byte, After/binary>>;
damaged(Bytes, {set, _, Byte}) -> <<Bytes/binary, Byte>>.

prop_damaged() ->
    Damage = oneof([{cut, range(0, 40)}, {set, range(0, 40), range(0, 255)}]),
    ?FORALL({Bytes, Damages}, {whole(), list(Damage)},
        try epgsql_pgoutput:decode(lists:foldl(fun(Each, Acc) -> damaged(Acc, Each) end,
                                               Bytes, Damages), epgsql_pgoutput:new()) of
            {#{type := _}, _} -> true
        catch
            error:{malformed, pgoutput} -> true
        end).
