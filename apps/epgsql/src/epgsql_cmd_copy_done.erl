%% Ends a COPY FROM STDIN: the answer is the number of rows.
-module(epgsql_cmd_copy_done).
-behaviour(epgsql_command).

-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: {ok, Count :: non_neg_integer()} | {error, epgsql:query_error()}.

-spec init(any()) -> [].
init(_) -> [].

-spec execute(epgsql_session:session(), []) -> epgsql_command:execute_return().
execute(Session, State) ->
    #copy{format = Format} = epgsql_session:get_subproto_state(Session),
    Trailer = [{?COPY_DATA, epgsql_wire:encode_copy_trailer()} || Format =:= binary],
    {send_multi, Trailer ++ [epgsql_wire:encode_copy_done()],
     epgsql_session:set_packet_handler(on_message, epgsql_session:set_attr(
         subproto_state, undefined, Session)), State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), []) ->
          epgsql_command:handle_message_return().
handle_message(?COMMAND_COMPLETE, Payload, Session, State) ->
    case epgsql_backend:complete(Payload) of
        {copy, Count} = Complete ->
            {add_result, {ok, Count}, {complete, Complete}, Session, State};
        _ -> unknown
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [Result | _] -> {finish, Result, done, Session};
        [] -> unknown
    end;
handle_message(_, _, _, _) ->
    unknown.
