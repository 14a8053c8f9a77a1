%% The meaning of the keys `remote.*' of the configuration together: where Erlang back ends attach.
%% Pure; it reads no file.
-module(halley_backends_config).

-export([settings/1, names/1]).
-export_type([settings/0]).

-type settings() :: #{ip := inet:ip_address(), port := inet:port_number(),
                      secret_file := file:filename(), backends := [node()]}.

-define(BACKENDS_MAX, 256).

%% Values of the application `halley_backends', as the schema names them. The error is one line.
-spec settings(#{atom() => term()}) -> none | {ok, settings()} | {error, iodata()}.
settings(#{listen := Listen, secret_file := File, backends := Names}) ->
    {Ip, Port} = halley_config_check:address(Listen),
    %% Of a person who may configure this, and so many.
    Nodes = [list_to_atom(Name) || Name <- split(Names)],
    {ok, #{ip => Ip, port => Port, secret_file => filename:absname(File), backends => Nodes}};
settings(#{listen := _, backends := _}) ->
    {error, "remote.secret_file: remote.listen needs it: a file with the secret that back ends "
            "prove to know"};
settings(#{listen := _}) ->
    {error, "remote.backends: remote.listen needs it: the names of the back ends' nodes"};
settings(#{secret_file := _}) ->
    {error, "remote.listen: remote.secret_file is set; say where back ends attach, too"};
settings(#{backends := _}) ->
    {error, "remote.listen: remote.backends is set; say where back ends attach, too"};
settings(_) ->
    none.

%% Whether these are names of nodes, separated by commas.
-spec names(string()) -> boolean().
names(Text) ->
    Names = split(Text),
    Names =/= [] andalso length(Names) =< ?BACKENDS_MAX
        andalso lists:all(fun is_name/1, Names).

split(Text) -> [string:trim(Name) || Name <- string:split(Text, ",", all)].

is_name(Name) ->
    length(Name) =< 255
        andalso match =:= re:run(Name, "^[A-Za-z0-9_.-]+@[A-Za-z0-9_.:-]+$",
                                 [dollar_endonly, {capture, none}]).
