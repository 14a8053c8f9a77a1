%% JWK Sets as files may hold them: every set gets a verdict; the edge's result is a part of the
%% input, and judging it again changes nothing; and no message has a secret. `make fuzz' runs the
%% same for as long as wanted.
-module(prop_halley_jwks).

-include("support/halley_store_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-export([prop_any_set_is_judged/0]).

-define(SET_BYTES_MAX, 65536).
-define(KEYS_MAX, 64).
-define(PUBLIC, [<<"kty">>, <<"alg">>, <<"kid">>, <<"crv">>, <<"n">>, <<"e">>, <<"x">>, <<"y">>,
                 <<"k">>]).
%% No other member of a generated key has this text in it.
-define(SECRET, <<"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA">>).

properties_test_() ->
    Options = [{numtests, 2000}, quiet, {to_file, user}],
    {timeout, 120, fun() ->
        ?assert(proper:quickcheck(prop_any_set_is_judged(), Options))
    end}.

%% --- generators ----------------------------------------------------------------------------------

%% Keys of each type, with a member more, less or other; now and then any JSON, or no JSON.
text() ->
    Keys = ?LET(Keys, frequency([{8, resize(6, list(key()))}, {1, resize(80, list(key()))}]), Keys),
    Set = ?LET(List, Keys, jiffy:encode({[{<<"keys">>, List}]})),
    Text = ?LET(Encoded, Set, iolist_to_binary(Encoded)),
    frequency([{6, Text}, {2, damaged(Text)}, {1, proper_types:binary()},
               {1, oneof([<<"{\"keys\":{}}">>, <<"{\"keys\":[[]]}">>, <<"[]">>, <<"{}">>])}]).

key() ->
    frequency([{12, ?LET({Members, Others}, {good(), resize(3, list(member()))},
                         {Others ++ Members})},
               {1, oneof([7, null, [], {[]}, <<"key">>])}]).

good() ->
    Kinds = [[{<<"kty">>, <<"EC">>}, {<<"crv">>, <<"P-256">>},
              {<<"x">>, <<"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4">>},
              {<<"y">>, <<"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM">>}],
             [{<<"kty">>, <<"OKP">>}, {<<"crv">>, <<"Ed25519">>},
              {<<"x">>, <<"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo">>}],
             [{<<"kty">>, <<"RSA">>}, {<<"e">>, <<"AQAB">>},
              {<<"n">>, <<"gA", (binary:copy(<<"A">>, 339))/binary, "B">>}],
             [{<<"kty">>, <<"oct">>}, {<<"k">>, ?SECRET}]],
    ?LET({Kind, Kid}, {oneof(Kinds), range(1, 200)},
         [{<<"kid">>, integer_to_binary(Kid)} | Kind]).

member() ->
    {oneof([<<"kty">>, <<"crv">>, <<"alg">>, <<"kid">>, <<"use">>, <<"key_ops">>, <<"n">>, <<"e">>,
            <<"x">>, <<"y">>, <<"k">>, <<"d">>, <<"note">>]),
     oneof([<<"RSA">>, <<"EC">>, <<"oct">>, <<"HS256">>, <<"ES256">>, <<"none">>, <<"sig">>,
            <<"enc">>, [<<"verify">>], [<<"sign">>], <<>>, <<"AQAB">>, <<"not base64url!">>, 1, 1.5,
            null, {[{<<"a">>, 1}]}, binary:copy(<<"k">>, 256), <<"ä"/utf8>>])}.

damaged(Text) ->
    ?LET({Bytes, Place, Byte}, {Text, range(0, 1 bsl 20), range(0, 255)},
         begin
             At = Place rem byte_size(Bytes),
             <<Before:At/binary, _, After/binary>> = Bytes,
             <<Before/binary, Byte, After/binary>>
         end).

%% --- properties ----------------------------------------------------------------------------------

prop_any_set_is_judged() ->
    ?FORALL(Text, text(), is_judged(Text, halley_jwks:parse(Text))).

is_judged(_, {error, Why}) ->
    is_sentence(Why);
is_judged(Text, {ok, Set, LeftOut}) ->
    Given = keys(Text),
    Kept = keys(Set),
    byte_size(Set) =< ?SET_BYTES_MAX
        andalso length(Kept) =< ?KEYS_MAX
        andalso length(Kept) + length(LeftOut) =< length(Given)
        andalso lists:all(fun is_sentence/1, LeftOut)
        andalso lists:all(fun(Key) -> maps:keys(Key) -- ?PUBLIC =:= []
                                          andalso is_part_of(maps:remove(<<"alg">>, Key), Given)
                          end, Kept)
        andalso has_names(Kept)
        andalso {ok, Set, []} =:= halley_jwks:parse(Set).

keys(Text) ->
    #{<<"keys">> := Keys} = jiffy:decode(Text, [return_maps]),
    Keys.

is_part_of(Key, Given) ->
    lists:any(fun(Whole) -> is_map(Whole) andalso maps:with(maps:keys(Key), Whole) =:= Key end,
              Given).

%% Of several keys each has a name of its own.
has_names([_]) -> true;
has_names(Keys) -> length(lists:usort([Kid || #{<<"kid">> := Kid} <- Keys])) =:= length(Keys).

is_sentence(Why) ->
    Line = unicode:characters_to_binary(Why),
    is_binary(Line) andalso byte_size(Line) > 0
        andalso binary:match(Line, ?SECRET) =:= nomatch.
