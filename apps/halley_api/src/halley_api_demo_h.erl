%% The demo: `GET /demo' on the public listener, a wall where people post, follow and see.
%%
%% Only in auth.mode none, since there every client can be any user. The page's files are in
%% priv/demo, served as they are, by name from a fixed list: a path from outside never becomes the
%% path of a file. Among them is the JavaScript client as `make client' builds it. The page asks at
%% its own origin only, as a user; `config.json' has the API listener's port for the command that it
%% shows, which brain answers, whether that may be killed (`halley_api_demo_act_h'), and whether the
%% wall's presence is sent.
-module(halley_api_demo_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, Path, _) ->
    case {halley_api_config:auth_mode(), Path} of
        {none, []} -> {302, [{<<"location">>, <<"/demo">>}], []};
        {none, [<<"demo">> | Asset]} -> asset(Asset);
        {_, _} -> not_found("the demo is there in auth.mode = none only")
    end.

asset([<<"config.json">>]) ->
    halley_api_reply:json({[{<<"api_port">>, halley_api_config:port(api)},
                            {<<"brain">>, list_to_binary(os:getpid())},
                            {<<"may_kill">>, halley_api_demo_act_h:may_act()},
                            {<<"tells_presence">>, halley_presence_keys:may(<<"wall">>)}]});
asset(Asset) ->
    case file(Asset) of
        {Name, Type} -> {200, headers(Type), read(Name)};
        none -> not_found("the demo has no such file")
    end.

not_found(Message) ->
    halley_api_error:response({404, <<"not_found">>, Message}).

file([<<>>]) -> file([]);
file([]) -> {"index.html", <<"text/html; charset=utf-8">>};
file([Name]) ->
    Files = #{<<"demo.css">> => css, <<"icon.svg">> => svg, <<"halley.min.js">> => js,
              <<"demo.js">> => js, <<"acts.js">> => js, <<"cast.js">> => js, <<"wall.js">> => js,
              <<"wire.js">> => js},
    case Files of
        #{Name := Kind} -> {binary_to_list(Name), type(Kind)};
        #{} -> none
    end;
file(_) -> none.

type(css) -> <<"text/css; charset=utf-8">>;
type(js) -> <<"text/javascript; charset=utf-8">>;
type(svg) -> <<"image/svg+xml">>.

read(Name) ->
    {ok, Content} = file:read_file(filename:join([code:priv_dir(halley_api), "demo", Name])),
    Content.

headers(Type) ->
    [{<<"content-type">>, Type},
     {<<"content-security-policy">>, policy()},
     {<<"x-content-type-options">>, <<"nosniff">>},
     {<<"referrer-policy">>, <<"no-referrer">>},
     {<<"cache-control">>, <<"no-cache">>}].

%% Nothing inline and nothing from elsewhere.
policy() ->
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'".
