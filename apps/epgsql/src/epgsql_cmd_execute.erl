%% Runs a portal, all of it or some rows: Execute, Flush.
-module(epgsql_cmd_execute).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4, row_decoder/1]).

-export_type([response/0]).

-type response() :: {ok, Count :: non_neg_integer()}
                  | {ok, Count :: non_neg_integer(), [tuple()]}
                  | {ok | partial, [tuple()]}
                  | {error, epgsql:query_error()}.

-record(execute, {columns :: [epgsql:column()], portal :: iodata(), rows_max :: non_neg_integer(),
                  decoder :: undefined | epgsql_wire:row_decoder()}).

-spec init({#statement{}, iodata(), non_neg_integer()}) -> #execute{}.
init({#statement{columns = Columns}, Portal, RowsMax}) ->
    #execute{columns = Columns, portal = Portal, rows_max = RowsMax}.

-spec execute(epgsql_session:session(), #execute{}) -> epgsql_command:execute_return().
execute(Session, #execute{columns = Columns, portal = Portal, rows_max = RowsMax} = State) ->
    Decoder = epgsql_wire:build_decoder(Columns, epgsql_session:get_codec(Session)),
    {send_multi, [epgsql_wire:encode_execute(Portal, RowsMax), epgsql_wire:encode_flush()],
     Session, State#execute{decoder = Decoder}}.

-spec row_decoder(#execute{}) -> epgsql_wire:row_decoder() | undefined.
row_decoder(#execute{decoder = Decoder}) -> Decoder.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     #execute{}) -> epgsql_command:handle_message_return().
handle_message(?DATA_ROW, Payload, Session, #execute{decoder = Decoder} = State) ->
    {add_row, epgsql_results:row(Payload, Decoder), Session, State};
handle_message(?COMMAND_COMPLETE, Payload, Session, #execute{columns = Columns}) ->
    {Result, Notice} = epgsql_results:complete_rows(Payload, Columns, Session),
    {finish, Result, Notice, Session};
handle_message(?EMPTY_QUERY, _, Session, _) ->
    {finish, {ok, [], []}, {complete, empty}, Session};
handle_message(?PORTAL_SUSPENDED, _, Session, _) ->
    {finish, {partial, epgsql_session:get_rows(Session)}, suspended, Session};
handle_message(?ERROR, Error, _, _) ->
    {sync_required, {error, Error}};
handle_message(_, _, _, _) ->
    unknown.
