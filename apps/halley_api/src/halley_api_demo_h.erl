%% The demo: `GET /demo' on the public listener, a page where two people follow, publish and see.
%%
%% Only in auth.mode none, since it lets anybody be anybody. The page's files are in priv/demo,
%% served as they are, by name from a fixed list: a path from outside never becomes the path of a
%% file. `config.json' tells the page the API listener's port; it uses that port on its own host,
%% and the edge answers CORS.
-module(halley_api_demo_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, Path, Request) ->
    case {halley_api_config:auth_mode(), Path} of
        {none, []} -> {302, [{<<"location">>, <<"/demo">>}], []};
        {none, [<<"demo">> | Asset]} -> asset(Asset, Request);
        {_, _} -> not_found("the demo is there in auth.mode = none only")
    end.

asset([<<"config.json">>], _) ->
    halley_api_reply:json({[{<<"api_port">>, halley_api_config:port(api)}]});
asset(Asset, Request) ->
    case file(Asset) of
        {Name, Type} -> {200, headers(Type, Request), read(Name)};
        none -> not_found("the demo has no such file")
    end.

not_found(Message) ->
    halley_api_error:response({404, <<"not_found">>, Message}).

file([<<>>]) -> file([]);
file([]) -> {"index.html", <<"text/html; charset=utf-8">>};
file([<<"demo.css">>]) -> {"demo.css", <<"text/css; charset=utf-8">>};
file([<<"demo.js">>]) -> {"demo.js", <<"text/javascript; charset=utf-8">>};
file([<<"icon.svg">>]) -> {"icon.svg", <<"image/svg+xml">>};
file(_) -> none.

read(Name) ->
    {ok, Content} = file:read_file(filename:join([code:priv_dir(halley_api), "demo", Name])),
    Content.

headers(Type, Request) ->
    [{<<"content-type">>, Type},
     {<<"content-security-policy">>, policy(Request)},
     {<<"x-content-type-options">>, <<"nosniff">>},
     {<<"referrer-policy">>, <<"no-referrer">>},
     {<<"cache-control">>, <<"no-cache">>}].

%% Nothing inline and nothing from elsewhere; the one other origin is the API listener's on the same
%% host.
policy(Request) ->
    ["default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'",
     api_origin(Request), "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"].

api_origin(#{headers := #{<<"host">> := Host}}) ->
    NamePort = "^([a-zA-Z0-9.-]+|\\[[0-9a-fA-F:.]+\\])(:[0-9]+)?\\z",
    case re:run(Host, NamePort, [{capture, [1], binary}]) of
        {match, [Name]} -> [" http://", Name, $:, integer_to_binary(halley_api_config:port(api))];
        nomatch -> ""
    end;
api_origin(_) ->
    "".
