%% RSA keys that a broken generator made, by what shows in their modulus: ROCA, CVE-2017-15361.
%%
%% The generator's primes are k * M + (65537^a mod M), where M is the product of the first primes.
%% So their product is a power of 65537 modulo each of those primes, which a modulus of another
%% origin is for all of them about once in 2^27 or less; and who sees it can factor it (Nemec, Sys,
%% Svenda, Klinec, Matyas: "The Return of Coppersmith's Attack", CCS 2017, section 2.2).
%%
%% Pure.
-module(halley_roca).

-export([is_weak/1]).

-define(GENERATOR, 65537).
%% Primes up to 167: M of keys of 512 to 960 bits ends with this one, those of longer keys later.
-define(PRIMES, [3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79,
                 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167]).

-spec is_weak(Modulus :: pos_integer()) -> boolean().
is_weak(Modulus) ->
    lists:all(fun(Prime) -> is_power(Modulus rem Prime, 1, Prime) end, ?PRIMES).

is_power(Rest, Rest, _) ->
    true;
is_power(Rest, Power, Prime) ->
    case Power * ?GENERATOR rem Prime of
        1 -> false;
        Next -> is_power(Rest, Next, Prime)
    end.
