%% A command as an application may bring it: the values of several literals, in one round trip.
-module(epgsql_test_command).
-behaviour(epgsql_command).

-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

init(Literals) -> Literals.

execute(Sock, Literals) ->
    Messages = [[epgsql_wire:encode_parse("", ["select ", Literal], <<0:16>>),
                 epgsql_wire:encode_bind("", "", <<0:16, 0:16>>, <<0:16>>),
                 epgsql_wire:encode_execute("", 0)] || Literal <- Literals],
    {send_multi, lists:append(Messages) ++ [epgsql_wire:encode_sync()], Sock, Literals}.

handle_message(?DATA_ROW, Payload, Sock, State) ->
    {add_row, list_to_tuple(epgsql_backend:cells(Payload)), Sock, State};
handle_message(?READY_FOR_QUERY, _, Sock, _) ->
    {finish, [Value || {Value} <- epgsql_sock:get_rows(Sock)], done, Sock};
handle_message(_, _, Sock, _) ->
    {noaction, Sock}.
