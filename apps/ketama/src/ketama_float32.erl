%% C's `float' (IEEE 754 binary32) by means of Erlang's floats, which are binary64.
%%
%% Why: how many points a server gets depends in libketama and in libmemcached on where a value is
%% rounded to 24 bits. A sum, product or quotient of two binary32 values that is computed in
%% binary64 and then rounded is the one that binary32 arithmetic gives: 53 bits are more than twice
%% 24 and 2 (S. Figueroa, "When is double rounding innocuous?", 1995). So `nearest/1' after each
%% operation is all that is needed.
%%
%% It is not for infinities and NaN; nothing here comes near them.
-module(ketama_float32).

-export([nearest/1, of_integer/1]).

-define(MANTISSA_BITS, 24).

%% The nearest binary32 value, halves to the even one: C's `(float) X' of a double.
-spec nearest(float()) -> float().
nearest(X) ->
    <<Nearest:32/float>> = <<X:32/float>>,
    Nearest.

%% C's `(float) N' of an unsigned integer. In one step: by way of binary64, a large N would be
%% rounded twice.
-spec of_integer(non_neg_integer()) -> float().
of_integer(N) when N < 1 bsl ?MANTISSA_BITS ->
    float(N);
of_integer(N) ->
    Dropped = bits(N, 0) - ?MANTISSA_BITS,
    Kept = N bsr Dropped,
    Rest = N band (1 bsl Dropped - 1),
    Half = 1 bsl (Dropped - 1),
    Up = case Rest of
             Half -> Kept band 1;
             _ when Rest > Half -> 1;
             _ -> 0
         end,
    float((Kept + Up) bsl Dropped).

bits(0, Bits) -> Bits;
bits(N, Bits) -> bits(N bsr 1, Bits + 1).
