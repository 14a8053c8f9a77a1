%% The meaning of the keys `auth.*' of the configuration together: the source of the keys of
%% clients' tokens, and the edge's settings about tokens. Pure; it reads no file.
-module(halley_config_auth).

-export([check/1, token_keys/1, edge_settings/1]).

-define(SOURCES, [{auth_keys, "auth.keys"}, {auth_hmac_secret, "auth.hmac_secret"},
                  {auth_hmac_secret_file, "auth.hmac_secret_file"}]).

%% Values of the application `halley', as the schema names them. The error is one line.
-spec check(#{atom() => term()}) -> ok | {error, iodata()}.
check(#{auth_mode := none, auth_anonymous := [_ | _]}) ->
    {error, "auth.anonymous: with auth.mode = none visitors may subscribe to everything; set "
            "auth.mode = jwt"};
check(#{auth_mode := Mode} = Brain) ->
    case {Mode, [Name || {Key, Name} <- ?SOURCES, is_map_key(Key, Brain)]} of
        {jwt, []} ->
            {error, "auth.mode: jwt needs the keys of the tokens; set auth.keys, auth.hmac_secret "
                    "or auth.hmac_secret_file"};
        {none, [Name | _]} ->
            {error, [Name, ": there are keys for tokens, and auth.mode = none asks for no token; "
                     "set auth.mode = jwt"]};
        {_, [First, Second | _]} ->
            {error, [Second, ": ", First, " is set as well; keys come from one place, and a JWK "
                     "Set (auth.keys) has room for several"]};
        {_, _} ->
            secret(Brain)
    end.

secret(#{auth_hmac_secret := Secret}) ->
    case halley_jwks:of_secret(bytes(Secret)) of
        {ok, _} -> ok;
        {error, Reason} -> {error, ["auth.hmac_secret: ", Reason]}
    end;
secret(_) ->
    ok.

bytes(Secret) ->
    unicode:characters_to_binary(Secret).

%% For a map that `check/1' found good.
-spec token_keys(#{atom() => term()}) -> halley_token_keys:source().
token_keys(#{auth_keys := File}) -> {jwks_file, filename:absname(File)};
token_keys(#{auth_hmac_secret_file := File}) -> {secret_file, filename:absname(File)};
token_keys(#{auth_hmac_secret := Secret}) -> {secret, fun() -> bytes(Secret) end};
token_keys(_) -> none.

%% By the names of link.md 5, besides `auth_mode'.
-spec edge_settings(#{atom() => term()}) -> [{binary(), binary()}].
edge_settings(#{auth_mode := none}) ->
    [];
edge_settings(#{auth_issuer := Issuer, auth_audience := Audience,
                auth_leeway_ms := LeewayMs} = Brain) ->
    [{<<"auth_issuer">>, bytes(Issuer)}, {<<"auth_audience">>, bytes(Audience)},
     {<<"auth_leeway_ms">>, integer_to_binary(LeewayMs)},
     {<<"auth_anonymous">>, anonymous(bytes(maps:get(auth_anonymous, Brain, "")))}].

%% As the claim of a token would have it.
anonymous(Text) ->
    case [Pattern || Part <- binary:split(Text, <<",">>, [global]),
                     Pattern <- [string:trim(Part)], Pattern =/= <<>>] of
        [] ->
            <<>>;
        Patterns ->
            Texts = [[$", halley_event:escape(Pattern), $"] || Pattern <- Patterns],
            iolist_to_binary(["{\"subscribe\":[", lists:join($,, Texts), "]}"])
    end.
