%% Finds a peer: who asks calls the peer's listener over the distribution.
-module(teleport_discovery).

-export([where/2]).

%% Where a node's teleport listens, and which instance it is: asked of the node, unless the
%% environment has its address.
-spec where(node(), timeout()) ->
    {ok, {Host :: term(), inet:port_number(), Instance :: binary() | any}} | error.
where(Node, Ms) ->
    case teleport_options:get() of
        #{peers := #{Node := {Host, Port}}} -> {ok, {Host, Port, any}};
        #{discovery := false} -> error;
        _ ->
            try gen_server:call({teleport_listener, Node}, where, Ms) of
                #{address := Host, port := Port, instance := Instance} ->
                    {ok, {Host, Port, Instance}}
            catch
                exit:_ -> error
            end
    end.
