%% Why there is no link to a node, or no longer one, and why a connection was refused, for lines of
%% the log, with the remedy where a node is configured wrongly. Pure.
%%
%% The handshake's words stand in brackets, so that the lines of both nodes can be compared.
-module(teleport_reasons).

-export([sentence/3, accepted/1]).

%% Of a node's link. `WasUp': it has ended; else it could not be made.
-spec sentence(node(), Reason :: term(), WasUp :: boolean()) -> unicode:chardata().
sentence(Node, Reason, true) ->
    io_lib:format("the link to ~ts ended: ~ts", [Node, explain(Reason)]);
sentence(Node, Reason, false) ->
    io_lib:format("no link to ~ts: ~ts", [Node, explain(Reason)]).

explain({dial, {refused, not_me}}) ->
    "another node listens at its address (not_me); `peers' must have this node's own address";
explain({dial, other_node}) ->
    "another node listens at its address, or it was started again meanwhile (other_node)";
explain({dial, {refused, bad_secret}}) ->
    "it has another secret (bad_secret); `secret' must be the same on both nodes";
explain({dial, bad_secret}) ->
    "what listens at its address doesn't know the secret (bad_secret)";
explain({dial, {refused, unknown_node}}) ->
    "it doesn't know the name of the node that dials (unknown_node); its `peers' must have it";
explain({dial, {refused, bad_version}}) ->
    "it speaks another version (bad_version); both nodes need the same version of teleport";
explain({dial, malformed}) ->
    "what listens at its address speaks another protocol (malformed)";
explain({dial, {connect, Reason}}) when is_atom(Reason) ->
    ["no connection to its address: ", inet:format_error(Reason)];
explain(unknown_address) ->
    "its address isn't known; `peers' must have it, or `discovery' be on at both nodes";
explain(Reason) ->
    io_lib:format("~0tp", [Reason]).

%% Of a connection that another node, or a stranger, made to this one.
-spec accepted(Reason :: term()) -> unicode:chardata().
accepted({refused, not_me}) ->
    "it is for another node (not_me); the dialling node has a wrong name or address for this one";
accepted({refused, bad_secret}) ->
    "it has another secret (bad_secret); the secret must be the same on both nodes";
accepted({refused, unknown_node}) ->
    "this node doesn't know its name (unknown_node); `peers' must have it";
accepted({refused, bad_version}) ->
    "it speaks another version (bad_version); both nodes need the same version of teleport";
accepted(malformed) ->
    "it speaks another protocol (malformed)";
accepted(Reason) ->
    io_lib:format("~0tp", [Reason]).
