%% Moduli with the fingerprint of CVE-2017-15361, made by its formula, and others.
-module(halley_roca_tests).

-include_lib("eunit/include/eunit.hrl").

%% The product of the first primes, up to 701: that of keys of 1,984 bits and more.
product() ->
    lists:foldl(fun(P, M) -> P * M end, 1, [P || P <- lists:seq(2, 701), is_prime(P)]).

is_prime(N) -> [] =:= [D || D <- lists:seq(2, N - 1), N rem D =:= 0].

power(Base, Exponent, M) -> binary:decode_unsigned(crypto:mod_pow(Base, Exponent, M)).

%% What two factors of the form k * M + (65537^a mod M) have as their product, prime or not.
fingerprint_test() ->
    M = product(),
    Factor = fun(K, A) -> K * M + power(65537, A, M) end,
    [?assert(halley_roca:is_weak(Factor(K, A) * Factor(K + 5, 3 * A + 1)))
     || K <- [1, 2, 12345678901], A <- [1, 7, 99999]],
    ?assertNot(halley_roca:is_weak(Factor(7, 3) * Factor(11, 5) + 2)).

%% Keys that OpenSSL makes.
others_test() ->
    [begin
         {[_, Modulus], _} = crypto:generate_key(rsa, {2048, 65537}),
         ?assertNot(halley_roca:is_weak(binary:decode_unsigned(Modulus)))
     end || _ <- lists:seq(1, 5)].
