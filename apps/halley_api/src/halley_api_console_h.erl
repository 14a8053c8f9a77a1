%% The console: `GET /console' on the API listener, a page that shows how Halley goes.
%%
%% The page needs no key, for it has nothing in it; what it shows it asks at this listener, with the
%% key that a person gives it. Its files are in priv/console, built from `console/' and served by
%% name from a fixed list: a path from outside never becomes the path of a file. They are read once,
%% compressed, and named by an ETag, so that a page that is opened again is two small answers.
-module(halley_api_console_h).
-behaviour(halley_api).

-export([handle/3]).

-record(file, {type :: binary(), etag :: binary(), plain :: binary(), gzip :: binary()}).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [], _) ->
    {302, [{<<"location">>, <<"/console">>}], []};
handle(get, [<<"console">> | Asset], #{headers := Headers}) ->
    case name(Asset) of
        {Name, Type} -> answer(file(Name, Type), Headers);
        none -> halley_api_error:response({404, <<"not_found">>, "the console has no such file"})
    end.

name([<<>>]) -> name([]);
name([]) -> {"index.html", <<"text/html; charset=utf-8">>};
name([<<"console.css">>]) -> {"console.css", <<"text/css; charset=utf-8">>};
name([<<"console.js">>]) -> {"console.js", <<"text/javascript; charset=utf-8">>};
name([<<"icon.svg">>]) -> {"icon.svg", <<"image/svg+xml">>};
name(_) -> none.

%% As they were when first asked for: a release's files don't change.
file(Name, Type) ->
    case persistent_term:get({?MODULE, Name}, none) of
        none ->
            Path = filename:join([code:priv_dir(halley_api), "console", Name]),
            {ok, Plain} = file:read_file(Path),
            Hash = binary:encode_hex(binary:part(crypto:hash(sha256, Plain), 0, 12)),
            File = #file{type = Type, etag = <<$", Hash/binary, $">>, plain = Plain,
                         gzip = zlib:gzip(Plain)},
            persistent_term:put({?MODULE, Name}, File),
            File;
        File ->
            File
    end.

answer(#file{etag = Etag} = File, #{<<"if-none-match">> := Etag}) ->
    {304, headers(File), []};
answer(#file{plain = Plain, gzip = Gzip} = File, Headers) ->
    Accepted = maps:get(<<"accept-encoding">>, Headers, <<>>),
    case binary:match(Accepted, <<"gzip">>) of
        nomatch -> {200, headers(File), Plain};
        _ -> {200, [{<<"content-encoding">>, <<"gzip">>} | headers(File)], Gzip}
    end.

headers(#file{type = Type, etag = Etag}) ->
    [{<<"content-type">>, Type},
     {<<"content-security-policy">>, policy()},
     {<<"x-content-type-options">>, <<"nosniff">>},
     {<<"referrer-policy">>, <<"no-referrer">>},
     {<<"etag">>, Etag},
     {<<"vary">>, <<"accept-encoding">>},
     {<<"cache-control">>, <<"no-cache">>}].

%% Nothing inline, nothing from elsewhere, and no text that becomes markup.
policy() ->
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'".
