%% Starts the application: the environment says which Halley it is for. It starts teleport with what
%% that needs, unless teleport runs already: then `peers', `secret' and the rest are its own.
-module(halley_remote_app).
-behaviour(application).

-export([start/2, stop/1]).

-define(KEYS, [node, host, port, secret, secret_file]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_, _) ->
    case options(maps:from_list([{Key, Value} || {Key, Value} <- application:get_all_env(),
                                                 lists:member(Key, ?KEYS)])) of
        {ok, Node, Transport} ->
            %% What is read makes no atoms: those of the protocol are in these modules.
            {ok, Modules} = application:get_key(modules),
            ok = code:ensure_modules_loaded(Modules),
            case start_transport(Transport) of
                ok ->
                    ok = halley_remote_node:put(Node),
                    halley_remote_sup:start_link();
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

-spec stop(term()) -> ok.
stop(_) -> ok.

options(#{node := Node, host := Host, port := Port} = Given) when is_atom(Node) ->
    case secret(Given) of
        {ok, Secret} ->
            {ok, Node, #{secret => Secret, peers => #{Node => {Host, Port}}, discovery => false,
                         ip => {127, 0, 0, 1}}};
        {error, _} = Error -> Error
    end;
options(_) ->
    {error, {missing_option, [node, host, port]}}.

secret(#{secret := Secret}) -> {ok, Secret};
secret(#{secret_file := File}) ->
    case file:read_file(File) of
        {ok, Text} -> {ok, string:trim(Text, trailing, "\r\n")};
        {error, Reason} -> {error, {secret_file, File, Reason}}
    end;
secret(_) -> {error, {missing_option, secret}}.

%% It listens for nobody but this machine: it's this side that dials.
start_transport(Options) ->
    case whereis(teleport_sup) of
        undefined ->
            _ = application:load(teleport),
            _ = [application:set_env(teleport, Key, Value)
                 || {Key, Value} <- maps:to_list(Options)],
            teleport:start();
        _ ->
            ok
    end.
