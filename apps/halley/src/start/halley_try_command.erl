%% `./halley try': what to open, to listen by and to publish by, with the configuration in effect.
%% `make run' says it before it starts Halley.
%%
%% It starts nothing and calls no running Halley. It names the parts that a person has to put in (a
%% token, a key, a certificate's name), with their sources. `lines/1' is pure.
-module(halley_try_command).

-export([main/0, lines/1]).

-type facts() :: #{public := string(), api := string(),           % as the configuration has them
                   auth_mode := none | jwt, tls := [Option :: string()],
                   needs_key := boolean()}.

-spec main() -> no_return().
main() ->
    {Config, _, _} = halley_command:start("try", "usage: ./halley try",
                                          fun(Arguments) -> Arguments =:= [] end),
    io:put_chars(["\n", [["  ", Line, "\n"] || Line <- lines(facts(Config))], "\n"]),
    halt(0).

facts(Config) ->
    Value = fun(App, Key) -> halley_config:value(App, Key, Config) end,
    %% A file that can't be read is told by the start.
    NeedsKey = case halley_server_keys_file:read(Value(halley, data_dir)) of
        {ok, {[], open}} -> false;
        _ -> true
    end,
    #{public => Value(halley_edge, public_listen), api => Value(halley_edge, api_listen),
      auth_mode => Value(halley, auth_mode), needs_key => NeedsKey,
      tls => [Option || {Option, _} <- Value(halley_edge, tls_files)]}.

-spec lines(facts()) -> [unicode:chardata()].
lines(#{auth_mode := AuthMode, needs_key := NeedsKey, tls := Tls} = Facts) ->
    {Public, Api} = {url(public, Facts), url(api, Facts)},
    Key = [" -H \"Authorization: Bearer $KEY\"" || NeedsKey],
    Client = [" --cert client.pem --key client.key" || lists:member("--api-client-ca", Tls)],
    ["When Halley is ready (`./halley foreground` runs it):"] ++
    listen(AuthMode, Public) ++
    [["  publish about ann    curl", Key, Client,
      " -d '{\"subject\":\"ann\",\"data\":\"hello\"}' ", Api, "/v1/events"]] ++
    ["$TOKEN is a token for ann that your system signs: README.md, \"Who may enter\""
     || AuthMode =:= jwt] ++
    ["$KEY is a server key: ./halley key create web --scope publish" || NeedsKey] ++
    ["client.pem is a certificate that api.tls.client_ca has signed" || Client =/= []] ++
    ["localhost stands for the name in the certificate"
     || Tls =/= [], string:find([Public, Api], "s://localhost") =/= nomatch].

%% Where tokens are needed nobody may be anybody, so there is no demo (`halley_api_demo_h').
listen(none, Public) ->
    [["  a page to try it     ", Public, "/demo"],
     ["  listen as ann        curl -N '", Public, "/v1/stream?user=ann'"]];
listen(jwt, Public) ->
    [["  listen as ann        curl -N -H \"Authorization: Bearer $TOKEN\" ", Public, "/v1/stream"]].

url(Listener, #{tls := Tls} = Facts) ->
    Scheme = case lists:member("--" ++ atom_to_list(Listener) ++ "-certificate", Tls) of
        true -> "https://";
        false -> "http://"
    end,
    [Scheme, reachable(maps:get(Listener, Facts))].

%% A listener on all addresses, or on loopback, is at localhost.
reachable(Listen) ->
    {Host, Port} = lists:split(string:rchr(Listen, $:) - 1, Listen),
    case lists:member(Host, ["127.0.0.1", "0.0.0.0", "[::]"]) of
        true -> ["localhost", Port];
        false -> [Host, Port]
    end.
