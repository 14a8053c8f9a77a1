%% The meaning of the keys `public.tls.*' and `api.tls.*' of the configuration together: the files
%% of the edge's listeners. At a start the edge reads them and reports mistakes; `check_files/1' is
%% for `./halley config', which starts no edge.
-module(halley_config_tls).

-export([check/1, files/1, check_files/1]).
-export_type([files/0]).

%% By the edge's option, in their order.
-type files() :: [{Option :: string(), file:filename()}].

%% Key of the environment, key of the configuration, the edge's option.
-define(KEYS, [{public_tls_certificate, "public.tls.certificate", "--public-certificate"},
               {public_tls_key, "public.tls.key", "--public-key"},
               {api_tls_certificate, "api.tls.certificate", "--api-certificate"},
               {api_tls_key, "api.tls.key", "--api-key"},
               {api_tls_client_ca, "api.tls.client_ca", "--api-client-ca"}]).
%% Whoever has the first needs the second.
-define(NEEDS, [{public_tls_certificate, public_tls_key}, {public_tls_key, public_tls_certificate},
                {api_tls_certificate, api_tls_key}, {api_tls_key, api_tls_certificate},
                {api_tls_client_ca, api_tls_certificate}]).

%% Values of the application `halley_edge', as the schema names them. The error is one line.
-spec check(#{atom() => term()}) -> ok | {error, iodata()}.
check(Edge) ->
    case [{name(Has), name(Needs)} || {Has, Needs} <- ?NEEDS, is_map_key(Has, Edge),
                                      not is_map_key(Needs, Edge)] of
        [] -> ok;
        [{Has, Needs} | _] -> {error, [Has, ": needs ", Needs, " as well; set both or none"]}
    end.

name(Key) ->
    {Key, Name, _} = lists:keyfind(Key, 1, ?KEYS),
    Name.

%% For a map that `check/1' found good; absolute.
-spec files(#{atom() => term()}) -> files().
files(Edge) ->
    [{Option, filename:absname(maps:get(Key, Edge))}
     || {Key, _, Option} <- ?KEYS, is_map_key(Key, Edge)].

%% Whether each can be read, in words like the edge's. What is in them the edge judges.
-spec check_files(files()) -> ok | {error, Line :: string()}.
check_files(Files) ->
    Unreadable = [lists:flatten(io_lib:format("~ts = ~ts: cannot be read: ~ts",
                                              [Name, File, file:format_error(Reason)]))
                  || {Option, File} <- Files, {_, Name, ItsOption} <- ?KEYS, ItsOption =:= Option,
                     {error, Reason} <- [file:read_file(File)]],
    case Unreadable of
        [] -> ok;
        [Line | _] -> {error, Line}
    end.
