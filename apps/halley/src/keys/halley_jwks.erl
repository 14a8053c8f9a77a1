%% A JWK Set (RFC 7517) with the keys that clients' tokens are signed with: checked, and reduced to
%% what the edge needs.
%%
%% The algorithms are HS256, RS256, ES256 and EdDSA with Ed25519 (RFC 7518, RFC 8037): for each type
%% of key there is one, so a key that doesn't name its `alg' has that one, and a token can't choose
%% another. A key that can't be used is left out (RFC 7517, 5): one that isn't for checking
%% signatures (`use', `key_ops'), is of an unknown kind, lacks a member, is too weak, or can't be
%% told from another by its `kid'. The others count: one bad key must not keep a withdrawn key in
%% force. A set without keys is valid, and lets no client in.
%%
%% The result has only the members that checking a signature needs. A private part makes the whole
%% set an error: this machine has no use for it, and its owner must learn of the mistake.
%%
%% Pure. It verifies no token: that is the edge's.
-module(halley_jwks).

-export([parse/1, of_secret/1, empty/0]).
-export_type([set/0, left_out/0]).

%% The JSON text for the edge (link.md 12). It holds secrets if there are `oct' keys.
-type set() :: binary().
%% What is wrong with a key that doesn't count: the end of a sentence, which names the key and never
%% tells what is in it.
-type left_out() :: unicode:chardata().

-define(KEYS_MAX, 64).
-define(SET_BYTES_MAX, 65536).                % link.md 12.2
-define(KID_BYTES_MAX, 255).
-define(SECRET_BYTES_MIN, 32).                % RFC 7518, 3.2: as long as the hash
-define(SECRET_BYTES_MAX, 1024).
-define(RSA_BITS_MIN, 2048).                  % RFC 7518, 3.3
-define(RSA_BITS_MAX, 8192).                  % beyond it one check costs milliseconds
-define(RSA_EXPONENT_MAX, (1 bsl 33)).
-define(PRIVATE, [<<"d">>, <<"p">>, <<"q">>, <<"dp">>, <<"dq">>, <<"qi">>, <<"oth">>]).

%% P-256, FIPS 186-4 D.1.2.3: y^2 = x^3 - 3x + b modulo p.
-define(P256_P, 16#FFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF).
-define(P256_B, 16#5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B).

%% The error is the end of a sentence that begins with what was read.
-spec parse(binary()) -> {ok, set(), [left_out()]} | {error, unicode:chardata()}.
parse(Text) ->
    try decode(Text) of
        #{<<"keys">> := Keys} when is_list(Keys) -> set(Keys);
        _ -> {error, "it is not a JWK Set: an object with a member \"keys\" that is a list"}
    catch
        _:_ -> {error, "it is not JSON"}
    end.

%% jiffy takes some numbers that are none (`1e+'), so the text is judged once more; its nesting is
%% bounded by the file's size.
decode(Text) ->
    Value = jiffy:decode(Text, [return_maps]),
    {ok, _} = halley_json_text:skip(Text, byte_size(Text)),
    Value.

%% A shared secret as the one key of a set.
-spec of_secret(binary()) -> {ok, set()} | {error, unicode:chardata()}.
of_secret(Secret) ->
    try
        ok = secret_size(byte_size(Secret)),
        {ok, encode([[{kty, <<"oct">>}, {alg, <<"HS256">>}, {k, to_base64url(Secret)}]])}
    catch
        throw:{bad, What} -> {error, ["the secret ", What]}
    end.

%% The set by which nobody gets in.
-spec empty() -> set().
empty() ->
    encode([]).

set(Keys) when length(Keys) > ?KEYS_MAX ->
    {error, ["it has more than ", integer_to_list(?KEYS_MAX), " keys"]};
set(Keys) ->
    try lists:append([key(N, Key) || {N, Key} <- lists:zip(lists:seq(1, length(Keys)), Keys)]) of
        Judged ->
            {Told, Unlike} = told_apart([Good || {_, _, _} = Good <- Judged]),
            LeftOut = lists:keysort(1, [Bad || {_, _} = Bad <- Judged] ++ Unlike),
            fitting(encode([Members || {_, _, Members} <- Told]), [Line || {_, Line} <- LeftOut])
    catch
        throw:{private, Line} -> {error, Line}
    end.

sentence(N, Key, What) ->
    ["its key ", name(N, Key), $\s, What].

%% By number and `kid', as a person finds it.
name(N, #{<<"kid">> := Kid}) when is_binary(Kid), byte_size(Kid) =< ?KID_BYTES_MAX ->
    [integer_to_list(N), " (kid ", jiffy:encode(Kid), ")"];
name(N, _) ->
    integer_to_list(N).

%% Of several keys each needs a `kid' of its own; the first that has one keeps it.
told_apart([_] = Only) ->
    {Only, []};
told_apart(Judged) ->
    {Told, Unlike, _} = lists:foldl(fun told_apart/2, {[], [], #{}}, Judged),
    {lists:reverse(Told), Unlike}.

told_apart({N, Key, Members} = Judged, {Told, Unlike, Kids}) ->
    case proplists:get_value(kid, Members) of
        undefined ->
            Line = sentence(N, Key, "has no kid; of several keys each needs one"),
            {Told, [{N, Line} | Unlike], Kids};
        Kid when is_map_key(Kid, Kids) ->
            {Told, [{N, sentence(N, Key, "has the kid of another one")} | Unlike], Kids};
        Kid ->
            {[Judged | Told], Unlike, Kids#{Kid => N}}
    end.

fitting(Set, LeftOut) when byte_size(Set) =< ?SET_BYTES_MAX -> {ok, Set, LeftOut};
fitting(_, _) -> {error, "its keys are too large together"}.

encode(Keys) ->
    iolist_to_binary(jiffy:encode({[{keys, [{Members} || Members <- Keys]}]})).

%% --- one key -----------------------------------------------------------------------------------

%% A key's place in the file and its members, or the line that says why it is left out. Those for
%% encryption aren't worth a line: identity providers publish them beside.
key(_, #{<<"use">> := Use}) when Use =/= <<"sig">> ->
    [];
key(N, #{} = Key) ->
    _ = [throw({private, sentence(N, Key, What)}) || What <- private_part(Key)],
    try
        ok = verifies(Key),
        {Alg, Members} = of_type(Key),
        ok = alg(Alg, Key),
        [{N, Key, [{alg, Alg} | kid(Key)] ++ Members}]
    catch
        throw:{bad, What} -> [{N, sentence(N, Key, What)}]
    end;
key(N, _) ->
    [{N, sentence(N, none, "is not an object")}].

%% RFC 7517, 4.3.
verifies(#{<<"key_ops">> := Operations}) ->
    case is_list(Operations) andalso lists:member(<<"verify">>, Operations) of
        true -> ok;
        false -> bad("is not for checking signatures: its key_ops lack \"verify\"")
    end;
verifies(_) ->
    ok.

of_type(#{<<"kty">> := <<"RSA">>} = Key) ->
    {<<"RS256">>, rsa(number(<<"n">>, Key), number(<<"e">>, Key), Key)};
of_type(#{<<"kty">> := <<"EC">>, <<"crv">> := <<"P-256">>} = Key) ->
    ok = on_curve(number(<<"x">>, 32, Key), number(<<"y">>, 32, Key)),
    {<<"ES256">>, members([<<"kty">>, <<"crv">>, <<"x">>, <<"y">>], Key)};
of_type(#{<<"kty">> := <<"OKP">>, <<"crv">> := <<"Ed25519">>} = Key) ->
    _ = number(<<"x">>, 32, Key),
    {<<"EdDSA">>, members([<<"kty">>, <<"crv">>, <<"x">>], Key)};
of_type(#{<<"kty">> := <<"oct">>} = Key) ->
    ok = secret_size(byte_size(bytes(<<"k">>, Key))),
    {<<"HS256">>, members([<<"kty">>, <<"k">>], Key)};
of_type(#{<<"kty">> := _}) ->
    bad("is of a type that is not supported; those are RSA, EC with P-256, OKP with Ed25519, oct");
of_type(_) ->
    bad("has no kty").

rsa(Modulus, Exponent, Key) ->
    case bits(Modulus) of
        Bits when Bits < ?RSA_BITS_MIN; Bits > ?RSA_BITS_MAX ->
            bad(["is of ", integer_to_list(Bits), " bits; RSA keys have ",
                 integer_to_list(?RSA_BITS_MIN), " to ", integer_to_list(?RSA_BITS_MAX)]);
        _ when Exponent < 3; Exponent >= ?RSA_EXPONENT_MAX; Exponent rem 2 =:= 0 ->
            bad("has no valid public exponent e");
        _ ->
            halley_roca:is_weak(Modulus) andalso
                bad("was made by a broken generator (ROCA, CVE-2017-15361): anybody can forge with "
                    "it, replace it"),
            members([<<"kty">>, <<"n">>, <<"e">>], Key)
    end.

bits(0) -> 0;
bits(N) -> length(integer_to_list(N, 2)).

on_curve(X, Y) when X < ?P256_P, Y < ?P256_P,
                    (Y * Y - X * X * X + 3 * X - ?P256_B) rem ?P256_P =:= 0 -> ok;
on_curve(_, _) -> bad("is not a point of P-256").

secret_size(Bytes) when Bytes >= ?SECRET_BYTES_MIN, Bytes =< ?SECRET_BYTES_MAX ->
    ok;
secret_size(Bytes) ->
    bad(["has ", integer_to_list(Bytes), " bytes; HS256 takes ",
         integer_to_list(?SECRET_BYTES_MIN), " to ", integer_to_list(?SECRET_BYTES_MAX)]).

%% An `oct' key is what it is. It has none of these.
private_part(Key) ->
    case [Member || Member <- ?PRIVATE, is_map_key(Member, Key)] of
        [] -> [];
        [Member | _] -> [["has a private part (", Member, "); only public keys belong here, and "
                          "this one should be replaced if others could read the file"]]
    end.

alg(Alg, #{<<"alg">> := Alg}) -> ok;
alg(Alg, #{<<"alg">> := _}) ->
    bad(["has an alg that is not supported; for its type that is ", Alg]);
alg(_, _) ->
    ok.

kid(#{<<"kid">> := <<Kid/binary>>}) when Kid =/= <<>>, byte_size(Kid) =< ?KID_BYTES_MAX ->
    [{kid, Kid}];
kid(#{<<"kid">> := _}) ->
    bad(["has a kid that is not 1 to ", integer_to_list(?KID_BYTES_MAX), " bytes of text"]);
kid(_) ->
    [].

%% Texts as they stand, which were judged to be base64url or fixed words.
members(Names, Key) ->
    [{Name, map_get(Name, Key)} || Name <- Names].

number(Name, Bytes, Key) ->
    case bytes(Name, Key) of
        <<Number:Bytes/unit:8>> -> Number;
        _ -> bad(["has ", Name, " of another length than ", integer_to_list(Bytes), " bytes"])
    end.

number(Name, Key) ->
    binary:decode_unsigned(bytes(Name, Key)).

bytes(Name, Key) ->
    case Key of
        #{Name := <<Text/binary>>} when Text =/= <<>> -> from_base64url(Name, Text);
        #{} -> bad(["has no ", Name])
    end.

%% RFC 7515, 2: base64url without padding.
from_base64url(Name, Text) ->
    IsPlain = re:run(Text, "^[A-Za-z0-9_-]*$", [dollar_endonly, {capture, none}]) =:= match,
    Standard = << <<(standard(C))>> || <<C>> <= Text >>,
    Padding = binary:copy(<<"=">>, (4 - byte_size(Text) rem 4) rem 4),
    try
        true = IsPlain,
        base64:decode(<<Standard/binary, Padding/binary>>)
    catch
        error:_ -> bad(["has a member ", Name, " that is not base64url"])
    end.

standard($-) -> $+;
standard($_) -> $/;
standard(C) -> C.

to_base64url(Bytes) ->
    << <<(url(C))>> || <<C>> <= base64:encode(Bytes), C =/= $= >>.

url($+) -> $-;
url($/) -> $_;
url(C) -> C.

-spec bad(unicode:chardata()) -> no_return().
bad(What) ->
    throw({bad, What}).
