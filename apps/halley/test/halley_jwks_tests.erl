%% Keys for tokens: which sets are accepted, the edge's part of them, the message of each mistake,
%% and what happens when a file changes.
-module(halley_jwks_tests).

-include("support/halley_store_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

%% RFC 7517 A.1, RFC 8037 A.2, and a modulus of 2,048 bits.
ec() ->
    #{kty => <<"EC">>, crv => <<"P-256">>,
      x => <<"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4">>,
      y => <<"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM">>}.
okp() ->
    #{kty => <<"OKP">>, crv => <<"Ed25519">>,
      x => <<"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo">>}.
rsa() -> rsa(2048).
rsa(Bits) ->
    #{kty => <<"RSA">>, e => <<"AQAB">>,
      n => base64url(binary:encode_unsigned((1 bsl (Bits - 1)) bor 1))}.
oct() -> oct(32).
oct(Bytes) -> #{kty => <<"oct">>, k => base64url(binary:copy(<<$s>>, Bytes))}.

base64url(Bytes) ->
    Url = binary:replace(base64:encode(Bytes), <<"=">>, <<>>, [global]),
    binary:replace(binary:replace(Url, <<"+">>, <<"-">>, [global]), <<"/">>, <<"_">>, [global]).

parse(Keys) ->
    halley_jwks:parse(iolist_to_binary(jiffy:encode(#{keys => Keys}))).

good(Keys) ->
    {ok, Set, _} = parse(Keys),
    #{<<"keys">> := Judged} = jiffy:decode(Set, [return_maps]),
    Judged.

each_type_has_its_algorithm_test_() ->
    [?_assertMatch([#{<<"alg">> := Alg}], good([Key]))
     || {Key, Alg} <- [{ec(), <<"ES256">>}, {okp(), <<"EdDSA">>}, {rsa(), <<"RS256">>},
                       {rsa(8192), <<"RS256">>}, {oct(), <<"HS256">>},
                       {(ec())#{alg => <<"ES256">>, use => <<"sig">>}, <<"ES256">>}]].

%% What comes out has what a check of a signature takes, as it was given, and nothing else.
the_edge_gets_no_more_than_it_needs_test() ->
    Given = (rsa())#{kid => <<"2026-1">>, alg => <<"RS256">>, x5c => [<<"certificate">>],
                     key_ops => [<<"verify">>], note => <<"internal">>},
    Expected = maps:from_list([{atom_to_binary(Name), map_get(Name, Given)}
                               || Name <- [kty, n, e, kid, alg]]),
    ?assertEqual([Expected], good([Given])).

%% tokens.json: what the edge's test checks tokens with is what it would get from here.
golden_sets_test() ->
    Here = proplists:get_value(source, ?MODULE:module_info(compile)),
    {ok, Text} = file:read_file(filename:join(filename:dirname(Here),
                                              "../../../protocol/tokens.json")),
    #{<<"sets">> := Sets} = jiffy:decode(Text, [return_maps]),
    Filled = [Keys || #{<<"keys">> := [_ | _] = Keys} <- maps:values(Sets)],
    ?assert(length(Filled) >= 10),
    [?assertEqual(Keys, good(Keys)) || Keys <- Filled].

several_keys_test() ->
    Named = fun(Key, Kid) -> Key#{kid => Kid} end,
    Keys = [Named(ec(), <<"a">>), Named(oct(), <<"b">>), Named(rsa(), <<"c">>)],
    ?assertEqual([<<"a">>, <<"b">>, <<"c">>], [Kid || #{<<"kid">> := Kid} <- good(Keys)]),
    %% One that isn't for signatures doesn't count, whatever it is.
    ?assertMatch([#{<<"alg">> := <<"ES256">>}],
                 good([ec(), #{kty => <<"RSA">>, use => <<"enc">>, d => <<"AA">>}])).

%% RFC 7517, 5: what can't be used is left out, and the others count.
mistakes_test_() ->
    [{binary_to_list(Says), fun() ->
        {ok, Set, [Why]} = parse(Keys),
        ?assertEqual(Says, unicode:characters_to_binary(Why)),
        #{<<"keys">> := Left} = jiffy:decode(Set, [return_maps]),
        ?assertEqual(length(Keys) - 1, length(Left)),
        Beside = [(okp())#{kid => <<"good">>} | [Key#{kid => <<"k">>}
                                                 || Key <- Keys, is_map(Key), length(Keys) =:= 1,
                                                    not is_map_key(kid, Key)]],
        ?assertMatch([#{<<"kid">> := <<"good">>}], good(Beside))
     end} || {Keys, Says} <-
        [{[7], <<"its key 1 is not an object">>},
         {[#{}], <<"its key 1 has no kty">>},
         {[#{kty => <<"oct">>}], <<"its key 1 has no k">>},
         {[oct(31)], <<"its key 1 has 31 bytes; HS256 takes 32 to 1024">>},
         {[rsa(2047)], <<"its key 1 is of 2047 bits; RSA keys have 2048 to 8192">>},
         {[rsa(8193)], <<"its key 1 is of 8193 bits; RSA keys have 2048 to 8192">>},
         {[(rsa())#{e => <<"AQ">>}], <<"its key 1 has no valid public exponent e">>},
         {[(rsa())#{e => <<"BA">>}], <<"its key 1 has no valid public exponent e">>},
         {[(rsa())#{alg => <<"RS512">>}],
          <<"its key 1 has an alg that is not supported; for its type that is RS256">>},
         {[(rsa())#{alg => <<"HS256">>}],
          <<"its key 1 has an alg that is not supported; for its type that is RS256">>},
         {[(oct())#{alg => <<"none">>}],
          <<"its key 1 has an alg that is not supported; for its type that is HS256">>},
         {[(ec())#{y => base64url(<<1:256>>)}], <<"its key 1 is not a point of P-256">>},
         {[(ec())#{x => <<"AA">>}], <<"its key 1 has x of another length than 32 bytes">>},
         {[(okp())#{x => <<"!">>}], <<"its key 1 has a member x that is not base64url">>},
         {[(okp())#{x => <<"A">>}], <<"its key 1 has a member x that is not base64url">>},
         {[(ec())#{crv => <<"P-384">>}],
          <<"its key 1 is of a type that is not supported; those are RSA, EC with P-256, OKP with "
            "Ed25519, oct">>},
         {[ec(), (okp())#{kid => <<"o">>}],
          <<"its key 1 has no kid; of several keys each needs one">>},
         {[(ec())#{kid => <<"o">>}, (okp())#{kid => <<"o">>}],
          <<"its key 2 (kid \"o\") has the kid of another one">>},
         {[(ec())#{kid => 7}], <<"its key 1 has a kid that is not 1 to 255 bytes of text">>},
         {[(ec())#{key_ops => [<<"encrypt">>]}],
          <<"its key 1 is not for checking signatures: its key_ops lack \"verify\"">>},
         {[(oct())#{key_ops => <<"verify">>}],
          <<"its key 1 is not for checking signatures: its key_ops lack \"verify\"">>},
         {[roca()],
          <<"its key 1 was made by a broken generator (ROCA, CVE-2017-15361): anybody can forge "
            "with it, replace it">>}]].

%% A modulus of 2,048 bits that is a power of 65537 modulo the first primes.
roca() ->
    M = lists:foldl(fun(N, Product) -> N * Product end, 1,
                    [N || N <- lists:seq(2, 167), [] =:= [D || D <- lists:seq(2, N - 1),
                                                              N rem D =:= 0]]),
    Power = binary:decode_unsigned(crypto:mod_pow(65537, 12345, M)),
    Modulus = ((1 bsl 2047) div M + 1) * M + Power,
    (rsa())#{n => base64url(binary:encode_unsigned(Modulus))}.

%% An empty set is an answer: nobody gets in.
nobody_test_() ->
    [?_assertEqual({ok, halley_jwks:empty(), []}, parse(Keys))
     || Keys <- [[], [(ec())#{use => <<"enc">>}]]]
    ++ [?_assertEqual({error, ["it has more than ", "64", " keys"]},
                      parse(lists:duplicate(65, ec())))].

key_ops_test() ->
    ?assertMatch([_], good([(ec())#{key_ops => [<<"sign">>, <<"verify">>]}])).

private_parts_are_refused_test_() ->
    [?_assertMatch({match, _},
        begin
            {error, Why} = parse([Key#{kid => <<"mine">>, d => <<"c2VjcmV0">>}]),
            Text = unicode:characters_to_binary(Why),
            ?assertEqual(nomatch, binary:match(Text, <<"c2VjcmV0">>)),
            re:run(Text, "^its key 1 \\(kid \"mine\"\\) has a private part \\(d\\)")
        end) || Key <- [ec(), okp(), rsa()]].

texts_that_are_no_sets_test_() ->
    [?_assertMatch({error, _}, halley_jwks:parse(Text))
     || Text <- [<<>>, <<"{">>, <<"[]">>, <<"{\"keys\":{}}">>, <<"{\"keys\":\"x\"}">>, <<255>>]].

%% RFC 8259, 6: behind the e of an exponent come digits. jiffy alone takes these.
numbers_that_are_none_test_() ->
    [?_assertEqual({error, "it is not JSON"},
                   halley_jwks:parse(<<"{\"keys\":[],\"member\":", Number/binary, "}">>))
     || Number <- [<<"1e+">>, <<"1.0e-">>, <<"0.3e+">>, <<"0E+">>, <<"[0e+]">>]].

secret_test_() ->
    Secret = <<"0123456789012345678901234567890/">>,
    {ok, Set} = halley_jwks:of_secret(Secret),
    [?_assertEqual(#{<<"keys">> => [#{<<"kty">> => <<"oct">>, <<"alg">> => <<"HS256">>,
                                      <<"k">> => base64url(Secret)}]},
                   jiffy:decode(Set, [return_maps])),
     ?_assertMatch({error, _}, halley_jwks:of_secret(binary:copy(<<"s">>, 31)))].

properties_test_() ->
    {timeout, 60, [?_assert(proper:quickcheck(prop_damage(), [{numtests, 2000}, quiet]))]}.

%% Whatever is changed in a set: it is judged, what is told of it has no secret, and what is taken
%% is judged the same again.
prop_damage() ->
    Secret = binary:copy(<<"0123456789abcdef">>, 3),
    Keys = [(ec())#{kid => <<"a">>}, (rsa())#{kid => <<"b">>},
            #{kty => <<"oct">>, k => Secret, kid => <<"c">>}],
    Text = iolist_to_binary(jiffy:encode(#{keys => Keys})),
    ?FORALL({At, Bytes}, {proper_types:range(0, byte_size(Text) - 1), proper_types:binary()}, begin
        <<Before:At/binary, _, After/binary>> = Text,
        case halley_jwks:parse(<<Before/binary, Bytes/binary, After/binary>>) of
            {ok, Set, LeftOut} -> {ok, Set, []} =:= halley_jwks:parse(Set) andalso hides(LeftOut);
            {error, Why} -> hides(Why)
        end
    end).

hides(Text) ->
    nomatch =:= binary:match(unicode:characters_to_binary(Text), <<"0123456789abcdef">>).

%% --- the file ----------------------------------------------------------------------------------

file_test_() ->
    {foreach, fun start/0, fun stop/1,
     [fun(Source) -> {Title, {timeout, 120, fun() -> Case(Source) end}} end
      || {Title, Case} <- [{"changes are told", fun changes_are_told/1},
                           {"withdrawn", fun withdrawn_keys_are_out_of_force/1},
                           {"broken", fun a_broken_file_changes_nothing/1}]]}.

start() ->
    Dir = string:trim(os:cmd("mktemp -d")),
    File = filename:join(Dir, "jwks.json"),
    write(File, [(ec())#{kid => <<"1">>}]),
    application:set_env(halley, token_keys, {jwks_file, File}),
    [ok = meck:new(Module, [no_link]) || Module <- [halley_metrics, halley_links]],
    meck:expect(halley_metrics, incr, fun(_) -> ok end),
    Tester = self(),
    meck:expect(halley_links, list, fun() -> [#{info => #{link => Tester}}] end),
    ok = logger:set_module_level(halley_token_keys, none),
    halley_revocations = ets:new(halley_revocations, [named_table, public]),
    ok = halley_token_keys:new(),
    {ok, Pid} = halley_token_keys:start_link(),
    {File, Pid}.

stop({File, Pid}) ->
    ok = gen_server:stop(Pid),
    meck:unload([halley_metrics, halley_links]),
    ok = logger:unset_module_level(halley_token_keys),
    application:unset_env(halley, token_keys),
    ok = halley_token_keys:new(),
    true = ets:delete(halley_revocations),
    ok = file:del_dir_r(filename:dirname(File)).

write(File, Keys) ->
    ok = file:write_file(File, jiffy:encode(#{keys => Keys})).

%% At once: a file that is written in place is empty at first.
replace(File, Bytes) ->
    ok = file:write_file(File ++ ".new", Bytes),
    ok = file:rename(File ++ ".new", File).

told() ->
    receive token_keys_changed -> halley_token_keys:current() after 60000 -> not_told end.

kids({_, Set}) ->
    #{<<"keys">> := Keys} = jiffy:decode(Set, [return_maps]),
    [Kid || #{<<"kid">> := Kid} <- Keys].

%% Of the same size, within the same second, in place or by another file.
changes_are_told({File, _}) ->
    Tester = self(),
    meck:expect(halley_links, list, fun() -> [#{info => #{link => Tester}}] end),
    Versions = [begin
                    case How of
                        in_place -> write(File, [(ec())#{kid => Kid}]);
                        replaced -> replace(File, jiffy:encode(#{keys => [(ec())#{kid => Kid}]}))
                    end,
                    {Version, _} = Current = told(),
                    ?assertEqual([Kid], kids(Current)),
                    Version
                end || {How, Kid} <- [{in_place, <<"2">>}, {in_place, <<"3">>},
                                      {replaced, <<"4">>}]],
    ?assertEqual(3, length(lists:usort(Versions))).

%% Whatever stands beside, and if nothing does; and the next start has the same set.
withdrawn_keys_are_out_of_force({File, _}) ->
    Tester = self(),
    meck:expect(halley_links, list, fun() -> [#{info => #{link => Tester}}] end),
    Unknown = #{kty => <<"AKP">>, kid => <<"pq">>, alg => <<"ML-DSA-44">>, pub => <<"AA">>},
    replace(File, jiffy:encode(#{keys => [Unknown, (okp())#{kid => <<"2">>}]})),
    ?assertEqual([<<"2">>], kids(told())),
    replace(File, jiffy:encode(#{keys => []})),
    ?assertEqual([], kids(told())),
    ?assertEqual(ok, halley_token_keys:check_source({jwks_file, File})),
    ok = halley_token_keys:new(),
    ?assertEqual([], kids(halley_token_keys:current())).

%% Not each time that the file is looked at.
counted_once_more(N) ->
    counted(N, 6000),
    timer:sleep(2500),
    ?assertEqual(N, errors()).

counted(N, Tries) ->
    case errors() < N of
        true when Tries > 0 -> timer:sleep(10), counted(N, Tries - 1);
        _ -> ok
    end.

errors() -> meck:num_calls(halley_metrics, incr, [token_keys_errors]).

a_broken_file_changes_nothing({File, _}) ->
    Tester = self(),
    meck:expect(halley_links, list, fun() -> [#{info => #{link => Tester}}] end),
    Before = halley_token_keys:current(),
    replace(File, "{"),
    counted_once_more(1),
    ?assertEqual(Before, halley_token_keys:current()),
    ok = file:delete(File),
    counted_once_more(2),
    ?assertEqual(Before, halley_token_keys:current()),
    write(File, [(okp())#{kid => <<"5">>}]),
    ?assertEqual([<<"5">>], kids(told())),
    ?assertMatch({error, "auth.keys: /nonexistent: no such file" ++ _},
                 halley_token_keys:check_source({jwks_file, "/nonexistent"})).
