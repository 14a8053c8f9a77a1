%% The keys of clients' tokens on the link: link.md 12, against a fake edge.
-module(halley_edge_keys_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [keys_follow_the_hello, keys_are_told_when_they_change, a_change_before_the_handshake_is_told,
     no_keys_without_jwt].

init_per_testcase(_, Config) ->
    Brain = halley_edge_test_brain:start(),
    Dir = string:trim(os:cmd("mktemp -d")),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    application:unset_env(halley, token_keys),
    ok = halley_token_keys:new(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%% 12.1: "straight after HELLO_BRAIN, before anything else"
keys_follow_the_hello(Config) ->
    in_force(<<"first">>),
    Edge = edge(Config),
    {hello_brain, _} = next(Edge),
    {keys, Set} = next(Edge),
    ?assertEqual(#{<<"keys">> => [secret(<<"first">>)]}, jiffy:decode(Set, [return_maps])).

%% 12.1: "and again whenever the keys change", and only then.
keys_are_told_when_they_change(Config) ->
    in_force(<<"first">>),
    Edge = linked(Config),
    {keys, _} = keys(Edge),
    Link = halley_edge_helper:link_process(),
    Link ! token_keys_changed,
    in_force(<<"second">>),
    Link ! token_keys_changed,
    {keys, Set} = keys(Edge),
    ?assertEqual(#{<<"keys">> => [secret(<<"second">>)]}, jiffy:decode(Set, [return_maps])).

%% Nobody tells a link of a change before it is registered: it looks by itself.
a_change_before_the_handshake_is_told(Config) ->
    in_force(<<"first">>),
    Edge = edge(Config, none),
    {hello_brain, _} = next(Edge),
    {keys, First} = next(Edge),
    in_force(<<"second">>),
    fake_edge:send(Edge, {hello_edge, fake_edge:hello()}),
    {keys, Second} = keys(Edge),
    ?assertNotEqual(First, Second).

no_keys_without_jwt(Config) ->
    Edge = linked(Config),
    receive
        {Edge, {keys, _}} -> error(keys)
    after 300 -> ok
    end.

%%% Helpers

in_force(Word) ->
    application:set_env(halley, token_keys, {secret, fun() -> binary:copy(Word, 15) end}),
    ok = halley_token_keys:new().

%% Words of multiples of three letters and digits: base64 without padding, and none of its signs.
secret(Word) ->
    #{<<"kty">> => <<"oct">>, <<"alg">> => <<"HS256">>,
      <<"k">> => base64:encode(binary:copy(Word, 15))}.

edge(Config) ->
    edge(Config, fake_edge:hello()).

edge(Config, Hello) ->
    Dir = proplists:get_value(dir, Config),
    Edge = fake_edge:start(halley_edge_dial:path(Dir), Hello),
    ok = halley_edge_dialer:connect(Dir, self()),
    Edge.

linked(Config) ->
    Edge = edge(Config),
    receive {link_up, _} -> ok after 60000 -> error(not_up) end,
    Edge.

keys(Edge) ->
    fake_edge:expect(Edge, fun(Frame) -> is_tuple(Frame) andalso element(1, Frame) =:= keys end).

next(Edge) ->
    receive {Edge, Frame} -> Frame after 60000 -> error(no_frame) end.
