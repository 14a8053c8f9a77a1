%% The price of an element in a route's queue, and how it travels. Pure.
-module(teleport_cost).

-export([cost/3]).
-export_type([way/0]).

-type way() :: small | large.

%% What it takes as a message in the writer's mailbox and as bytes; of a large one the bytes alone,
%% since it doesn't stay there as a term.
-spec cost(LargeBytes :: pos_integer(), BytesMax :: pos_integer(), teleport_codec:element()) ->
    {way(), Cost :: pos_integer()} | {error, too_large}.
cost(Large, Max, Element) ->
    case erlang:external_size(Element) of
        Bytes when Bytes < Large -> {small, Bytes + 8 * erts_debug:flat_size(Element)};
        Bytes when Bytes =< Max -> {large, Bytes};
        _ -> {error, too_large}
    end.
