%% A cursor: all that a user has seen, over all subjects, as one token.
%%
%% In the brain it is a *vector*, one seq for each shard: everything of shard I up to the I-th is
%% seen (docs/internals/delivery.md). Clients see an opaque string of [A-Za-z0-9_-]: base64url of
%%
%%   <<1, Store:32, Seconds:32, Max:48, Others:8, Delta, ...>>
%%
%% padded with zeros to a multiple of three bytes. Max is the vector's largest seq; bit I-1 of
%% Others means that shard I is lower, and then Max minus its seq follows as a varint (seven
%% bits a byte, the lowest first, as in LEB128). The shards mark their positions four times a
%% second, so the deltas are small and a token has some forty characters.
%%
%% The first byte says what follows: 1 a part of one brain with eight shards, 0 padding. So there is
%% room for other layouts, and for the parts of several brains one after the other; today a token is
%% one part. Every vector has one token and every token one vector, so a token that isn't exactly
%% what `encode/3' makes is no cursor.
%%
%% Pure. A token is no secret and no proof. The caller that decodes it must check whose it is, and
%% whether its store is ours.
-module(halley_cursor).

-export([encode/3, decode/1, lacks_since_ms/1]).
-export_type([token/0, vector/0, seq/0, store/0, gap/0]).

-define(PART, 1).
-define(TOKEN_BYTES_MAX, 255).
-define(SEQ_MAX, 16#FFFFFFFFFFFF).
%% For so long two events are on their way beside each other: a cursor that has the later one may
%% lack the earlier one.
-define(IN_FLIGHT_MS, 2000).
%% A delta has 48 bits.
-define(VARINT_BYTES_MAX, 7).
%% Alphabet of RFC 4648, section 5, as a tuple: the JIT reads a literal tuple without a call.
-define(CHAR(Six),
        element((Six) + 1,
                {$A, $B, $C, $D, $E, $F, $G, $H, $I, $J, $K, $L, $M, $N, $O, $P, $Q, $R, $S, $T,
                 $U, $V, $W, $X, $Y, $Z, $a, $b, $c, $d, $e, $f, $g, $h, $i, $j, $k, $l, $m, $n,
                 $o, $p, $q, $r, $s, $t, $u, $v, $w, $x, $y, $z, $0, $1, $2, $3, $4, $5, $6, $7,
                 $8, $9, $-, $_})).
-define(SIX(X, Shift), (?CHAR(((X) bsr (Shift)) band 63))).

-type token() :: binary().
-type seq() :: 0..?SEQ_MAX.
%% One seq for each shard.
-type vector() :: {seq(), seq(), seq(), seq(), seq(), seq(), seq(), seq()}.
-type store() :: 0..16#FFFFFFFF.
%% A time from which a cursor may lack events: milliseconds since 1970, 0 where it isn't known, and
%% the cursor at the gap's end.
-type gap() :: #{from := non_neg_integer(), to := non_neg_integer(),
                 reason := malformed | other_store | too_old | damaged, cursor => token()}.

%% Since when what a cursor with this second lacks was published, in milliseconds since 1970.
-spec lacks_since_ms(Seconds :: non_neg_integer()) -> non_neg_integer().
lacks_since_ms(Seconds) -> max(0, Seconds * 1000 - ?IN_FLIGHT_MS).

%% `Seconds': since 1970; what the vector lacks was published from then on, or at most two seconds
%% before (docs/internals/delivery.md).
-spec encode(store(), Seconds :: non_neg_integer(), vector()) -> token().
encode(Store, Seconds, {N, N, N, N, N, N, N, N}) ->
    %% Replays make little else: <<N:24, 0>>, padded.
    Head = encode_head(Store, Seconds, N),
    <<Head/binary, ?SIX(N, 18), ?SIX(N, 12), ?SIX(N, 6), ?SIX(N, 0), "AAAA">>;
encode(Store, Seconds, {A, B, C, D, E, F, G, H} = Vector) ->
    Max = max(max(max(A, B), max(C, D)), max(max(E, F), max(G, H))),
    base64url(deltas(Vector, Max, <<Max:24, (others(Vector, Max))>>),
              encode_head(Store, Seconds, Max)).

%% Up to the midst of Max. Small integers of 48 bits: building the bytes and matching them again
%% costs twice as much.
encode_head(Store, Seconds, Max) ->
    X = (?PART bsl 40) bor (Store bsl 8) bor (Seconds bsr 24),
    Y = ((Seconds band 16#FFFFFF) bsl 24) bor (Max bsr 24),
    <<?SIX(X, 42), ?SIX(X, 36), ?SIX(X, 30), ?SIX(X, 24), ?SIX(X, 18), ?SIX(X, 12), ?SIX(X, 6),
      ?SIX(X, 0), ?SIX(Y, 42), ?SIX(Y, 36), ?SIX(Y, 30), ?SIX(Y, 24), ?SIX(Y, 18), ?SIX(Y, 12),
      ?SIX(Y, 6), ?SIX(Y, 0)>>.

others({A, B, C, D, E, F, G, H}, Max) ->
    bit(A, Max, 1) bor bit(B, Max, 2) bor bit(C, Max, 4) bor bit(D, Max, 8)
        bor bit(E, Max, 16) bor bit(F, Max, 32) bor bit(G, Max, 64) bor bit(H, Max, 128).

bit(Max, Max, _) -> 0;
bit(_, _, Bit) -> Bit.

deltas({A, B, C, D, E, F, G, H}, Max, Acc0) ->
    Acc1 = delta(Max - D, delta(Max - C, delta(Max - B, delta(Max - A, Acc0)))),
    delta(Max - H, delta(Max - G, delta(Max - F, delta(Max - E, Acc1)))).

delta(0, Acc) -> Acc;
delta(N, Acc) when N < 16#80 -> <<Acc/binary, N>>;
delta(N, Acc) when N < 16#4000 -> <<Acc/binary, (N bor 16#80), (N bsr 7)>>;
delta(N, Acc) -> delta(N bsr 7, <<Acc/binary, (N bor 16#80)>>).

base64url(<<X:48, Rest/binary>>, Acc) ->
    base64url(Rest, <<Acc/binary, ?SIX(X, 42), ?SIX(X, 36), ?SIX(X, 30), ?SIX(X, 24),
                      ?SIX(X, 18), ?SIX(X, 12), ?SIX(X, 6), ?SIX(X, 0)>>);
base64url(<<X:24, Rest/binary>>, Acc) ->
    base64url(Rest, four(X, Acc));
base64url(<<X:16>>, Acc) ->
    four(X bsl 8, Acc);
base64url(<<X>>, Acc) ->
    four(X bsl 16, Acc);
base64url(<<>>, Acc) ->
    Acc.

four(X, Acc) ->
    <<Acc/binary, ?SIX(X, 18), ?SIX(X, 12), ?SIX(X, 6), ?SIX(X, 0)>>.

%% Takes whatever a client sends.
-spec decode(binary()) ->
    {ok, #{store := store(), at := non_neg_integer(), vector := vector()}} | error.
decode(Token) when byte_size(Token) =< ?TOKEN_BYTES_MAX, byte_size(Token) rem 4 =:= 0 ->
    case bytes(Token, <<>>) of
        <<?PART, Store:32, Seconds:32, Max:48, Others, Rest/binary>> ->
            part(Token, Store, Seconds, vector(Others, Max, Rest, halley_shards:count(), []));
        _ ->
            error
    end;
decode(_) ->
    error.

%% Only the one token of this vector is taken.
part(Token, Store, Seconds, {ok, Vector}) ->
    case encode(Store, Seconds, Vector) of
        Token -> {ok, #{store => Store, at => Seconds, vector => Vector}};
        _ -> error
    end;
part(_, _, _, error) ->
    error.

bytes(<<Char, Rest/binary>>, Acc) ->
    case six(Char) of
        error -> error;
        Six -> bytes(Rest, <<Acc/bitstring, Six:6>>)
    end;
bytes(<<>>, Acc) ->
    Acc.

six(C) when C >= $A, C =< $Z -> C - $A;
six(C) when C >= $a, C =< $z -> C - $a + 26;
six(C) when C >= $0, C =< $9 -> C - $0 + 52;
six($-) -> 62;
six($_) -> 63;
six(_) -> error.

vector(_, _, _, 0, Seqs) ->
    {ok, list_to_tuple(lists:reverse(Seqs))};
vector(Others, Max, Rest, N, Seqs) when Others band 1 =:= 0 ->
    vector(Others bsr 1, Max, Rest, N - 1, [Max | Seqs]);
vector(Others, Max, Rest, N, Seqs) ->
    case unvarint(Rest, 0, 0) of
        {Delta, After} when Delta =< Max ->
            vector(Others bsr 1, Max, After, N - 1, [Max - Delta | Seqs]);
        _ ->
            error
    end.

unvarint(<<More:1, Seven:7, Rest/binary>>, Bytes, N) when Bytes < ?VARINT_BYTES_MAX ->
    case {More, N bor (Seven bsl (7 * Bytes))} of
        {0, Delta} -> {Delta, Rest};
        {1, Part} -> unvarint(Rest, Bytes + 1, Part)
    end;
unvarint(_, _, _) ->
    error.
