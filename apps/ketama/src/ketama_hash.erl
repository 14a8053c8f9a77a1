%% The hash of a key or of a point's name: a u32 on the ring.
%%
%% The names are those of libmemcached's MEMCACHED_HASH_*, in lower case, and the values are what
%% its libhashkit 1.1 gives on x86-64: `char' is signed there, so a byte from 128 on is extended by
%% its sign; `crc' has 15 bits; both 64-bit FNVs give their lower 32 bits. `c_string' is that of
%% libketama: MD5 of the bytes before the first NUL.
%%
%% Left out of libhashkit's: hsieh, murmur, murmur3, jenkins.
-module(ketama_hash).

-export([key/2, md5_points/1, is_hash/1]).
-export_type([hash/0, u32/0]).

-type u32() :: 0..16#FFFFFFFF.
-type hash() :: c_string | md5 | default | crc | fnv1_32 | fnv1a_32 | fnv1_64 | fnv1a_64.

-define(U32, 16#FFFFFFFF).
-define(FNV_32_INIT, 16#811C9DC5).
-define(FNV_32_PRIME, 16#01000193).
%% The lower halves: what is above them never reaches the lower half of a product.
-define(FNV_64_INIT, 16#84222325).
-define(FNV_64_PRIME, 16#000001B3).

%% Whether libmemcached has it, and so have we.
-spec is_hash(term()) -> boolean().
is_hash(Hash) ->
    lists:member(Hash, [md5, default, crc, fnv1_32, fnv1a_32, fnv1_64, fnv1a_64]).

-spec key(hash(), binary()) -> u32().
key(c_string, Key) -> md5(c_string(Key));
key(md5, Key) -> md5(Key);
key(default, Key) -> one_at_a_time(Key, 0);
key(crc, Key) -> (erlang:crc32(Key) bsr 16) band 16#7FFF;
key(fnv1_32, Key) -> fnv1(Key, ?FNV_32_INIT, ?FNV_32_PRIME);
key(fnv1a_32, Key) -> fnv1a(Key, ?FNV_32_INIT, ?FNV_32_PRIME);
key(fnv1_64, Key) -> fnv1(Key, ?FNV_64_INIT, ?FNV_64_PRIME);
key(fnv1a_64, Key) -> fnv1a(Key, ?FNV_64_INIT, ?FNV_64_PRIME).

%% The four points that one MD5 gives, in its order.
-spec md5_points(binary()) -> [u32()].
md5_points(Name) ->
    <<A:32/little, B:32/little, C:32/little, D:32/little>> = erlang:md5(Name),
    [A, B, C, D].

md5(Key) ->
    <<Hash:32/little, _/binary>> = erlang:md5(Key),
    Hash.

c_string(Key) -> c_string(Key, 0, Key).

%% Seven bytes at a time: the guard holds if and only if none of them is 0, and seven are what fits
%% into a small integer.
c_string(<<Seven:56, Rest/binary>>, N, Key)
        when (Seven - 16#01010101010101) band (bnot Seven) band 16#80808080808080 =:= 0 ->
    c_string(Rest, N + 7, Key);
c_string(<<0, _/binary>>, N, Key) ->
    binary:part(Key, 0, N);
c_string(<<_, Rest/binary>>, N, Key) ->
    c_string(Rest, N + 1, Key);
c_string(<<>>, _, Key) ->
    Key.

%% Bob Jenkins, "Hash functions", Dr. Dobb's Journal, September 1997.
one_at_a_time(<<Byte, Rest/binary>>, Hash) ->
    Added = (Hash + extended(Byte)) band ?U32,
    Mixed = (Added + (Added bsl 10)) band ?U32,
    one_at_a_time(Rest, Mixed bxor (Mixed bsr 6));
one_at_a_time(<<>>, Hash) ->
    Added = (Hash + (Hash bsl 3)) band ?U32,
    Mixed = Added bxor (Added bsr 11),
    (Mixed + (Mixed bsl 15)) band ?U32.

%% The Internet-Draft draft-eastlake-fnv.
fnv1(<<Byte, Rest/binary>>, Hash, Prime) ->
    fnv1(Rest, (Hash * Prime) band ?U32 bxor extended(Byte), Prime);
fnv1(<<>>, Hash, _) ->
    Hash.

fnv1a(<<Byte, Rest/binary>>, Hash, Prime) ->
    fnv1a(Rest, ((Hash bxor extended(Byte)) * Prime) band ?U32, Prime);
fnv1a(<<>>, Hash, _) ->
    Hash.

extended(Byte) when Byte < 128 -> Byte;
extended(Byte) -> Byte bor 16#FFFFFF00.
