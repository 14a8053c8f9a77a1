%% The history on a disk that fails: any bytes in a record, any bits of its files.
-module(prop_halley_history).

-include("support/halley_store_proper.hrl").

-export([prop_any_bytes/0, prop_flipped_bits/0]).

-define(H, halley_history_helper).
-define(STORE, 16#ABCD1234).
-define(MAGIC, 16#FF48524C).

prop_any_bytes() ->
    ?FORALL({Bytes, Body}, {proper_types:binary(), proper_types:binary()},
            begin
                _ = halley_history_record:decode(?STORE, Bytes),
                _ = halley_history_record:decode(?STORE, <<?MAGIC:32, Bytes/binary>>),
                lists:all(fun(Kind) -> is_judged(halley_history_record:body(<<Kind, Body/binary>>))
                          end, lists:seq(0, 5))
            end).

is_judged(damaged) -> true;
is_judged({ok, #{kind := _, seq := _}}) -> true.

%% Bits flip anywhere in the files of a brain that was killed. The next one starts; every event
%% is read back as it was, or lies in a range that is told as damaged.
prop_flipped_bits() ->
    ?FORALL({Events, Flips}, {range(1, 40), resize(6, list({range(0, 1 bsl 30), range(0, 7)}))},
            ?H:silently(fun() -> ?H:with([], fun() -> flipped(Events, Flips) end) end)).

flipped(Events, Flips) ->
    {First, Second} = lists:split(Events div 2, lists:seq(1, Events)),
    Publish = fun(N) -> {ok, Seq} = ?H:publish(integer_to_binary(N rem 5), <<"\"data\"">>), Seq end,
    Before = [Publish(N) || N <- First],
    ?H:restart(),
    Seqs = Before ++ [Publish(N) || N <- Second],
    ?H:kill(),
    lists:foreach(fun({Place, Bit}) -> flip(Place, Bit) end, Flips),
    ?H:start(new),
    #{damaged := Damaged} = halley_history:info(),
    Told = fun(Seq) -> Seq =< halley_history:floor()
                           orelse lists:any(fun({From, To, _, _}) -> Seq >= From andalso Seq =< To
                                            end, Damaged)
           end,
    Read = ?H:readable(Seqs),
    {ok, Next} = ?H:publish(<<"next">>, <<"1">>),
    lists:all(fun({Seq, Result}) -> Result =:= ok orelse Told(Seq) end, Read)
        andalso (Flips =/= [] orelse Damaged =:= [])
        andalso few_lost(length([Seq || {Seq, Result} <- Read, Result =/= ok]), length(Flips))
        andalso Next > lists:max(Seqs)
        andalso [{Next, ok}] =:= ?H:readable([Next]).

%% A flipped bit costs its own record and no other.
few_lost(Lost, Flips) -> Lost =< Flips.

flip(Place, Bit) ->
    Paths = filelib:wildcard(filename:join(?H:directory(), "*")),
    Path = lists:nth(Place rem length(Paths) + 1, Paths),
    case filelib:file_size(Path) of
        0 -> ok;
        Size -> ?H:damage(Path, Place div 7 rem Size, fun(Byte) -> Byte bxor (1 bsl Bit) end)
    end.
