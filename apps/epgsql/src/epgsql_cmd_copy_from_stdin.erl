%% Begins a COPY FROM STDIN. From its answer on the connection takes data until `copy_done'.
-module(epgsql_cmd_copy_from_stdin).
-behaviour(epgsql_command).

-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type format() :: text | {binary, [epgsql:epgsql_type()]}.
-type response() :: {ok, [text | binary]} | {error, epgsql:query_error()}.
-type state() :: {iodata(), pid(), format()}.

-spec init(state()) -> state().
init({_, _, _} = State) -> State.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, {Sql, _, _} = State) ->
    {Type, Payload} = epgsql_wire:encode_query(Sql),
    {send, Type, Payload, Session, State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), state()) ->
          epgsql_command:handle_message_return().
handle_message(?COPY_IN_RESPONSE, Payload, Session, {_, Initiator, Format}) ->
    {Whole, Columns} = epgsql_backend:copy_response(Payload),
    Copy = #copy{initiator = Initiator, format = Whole, encoder = encoder(Format, Session)},
    ok = begin_data(Format, Whole, Columns, Session),
    Answer = {ok, Columns},
    {finish, Answer, Answer,
     epgsql_session:set_packet_handler(on_copy_from_stdin, epgsql_session:set_attr(
         subproto_state, Copy, Session))};
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(Type, _, Session, _) when Type =:= ?COMMAND_COMPLETE; Type =:= ?ROW_DESCRIPTION;
                                         Type =:= ?DATA_ROW ->
    {noaction, Session};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [] -> {finish, {error, not_a_copy}, {error, not_a_copy}, Session};
        [Error | _] -> {finish, Error, Error, Session}
    end;
handle_message(_, _, _, _) ->
    unknown.

encoder(text, _) -> undefined;
encoder({binary, Types}, Session) ->
    epgsql_wire:build_copy_row_encoder(Types, epgsql_session:get_codec(Session)).

%% What is asked for and what the statement says must be the same.
begin_data(text, text, _, _) -> ok;
begin_data({binary, Types}, binary, Columns, Session) when length(Types) =:= length(Columns) ->
    epgsql_session:send(Session, ?COPY_DATA, epgsql_wire:encode_copy_header());
begin_data({binary, Types}, binary, Columns, _) ->
    error({column_count_mismatch, Types, length(Columns)});
begin_data(Asked, Whole, _, _) ->
    error({format_mismatch, Asked, Whole}).
