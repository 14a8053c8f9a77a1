%% The configuration of the API: where the listeners are and which clients may send requests.
%%
%% The listeners' addresses are in the environment of `halley_edge', which is read here by name: the
%% API tells people where the other listener is, it doesn't call the edge.
-module(halley_api_config).

-export([listen/1, port/1, auth_mode/0]).

%% A listener's key in the configuration and its address, `host:port'.
-spec listen(halley_api:listener()) -> {Key :: binary(), Address :: binary()}.
listen(public) -> {<<"public.listen">>, address(public_listen, "127.0.0.1:8080")};
listen(api) -> {<<"api.listen">>, address(api_listen, "127.0.0.1:8081")}.

address(Name, Default) ->
    unicode:characters_to_binary(application:get_env(halley_edge, Name, Default)).

-spec port(halley_api:listener()) -> inet:port_number().
port(Listener) ->
    {_, Address} = listen(Listener),
    binary_to_integer(lists:last(binary:split(Address, <<":">>, [global]))).

-spec auth_mode() -> none | jwt.
auth_mode() ->
    application:get_env(halley_api, auth_mode, none).
