%% Runs many bound statements in one round trip: one Bind and one Execute each, one Sync at the end.
%%
%% They are one transaction, unless they are in one already. After an error the rest isn't run, and
%% the last result is that error.
-module(epgsql_cmd_batch).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([arguments/0, response/0]).

-type arguments() :: {#statement{}, [[any()]]} | [{#statement{}, [any()]}].
-type response() :: [{ok, Count :: non_neg_integer(), [tuple()]} | {ok, Count :: non_neg_integer()}
                     | {ok, [tuple()]} | {error, epgsql:query_error()}].

%% `left': the columns of those whose answers are still to come.
-record(batch, {batch :: arguments(), left = [] :: [[epgsql:column()]],
                decoder :: undefined | {[epgsql:column()], epgsql_wire:row_decoder()}}).

-spec init(arguments()) -> #batch{}.
init(Batch) -> #batch{batch = Batch}.

-spec execute(epgsql_session:session(), #batch{}) -> epgsql_command:execute_return().
execute(Session, #batch{batch = Batch} = State) ->
    {Messages, Left} = messages(Batch, epgsql_session:get_codec(Session)),
    {send_multi, Messages, Session, State#batch{batch = [], left = Left}}.

messages({#statement{types = Types, columns = Columns} = Statement, Rows}, Codec) ->
    Encoder = epgsql_wire:build_parameters_encoder(Types, Codec),
    Formats = epgsql_wire:encode_formats(Columns),
    {lists:foldr(fun(Parameters, Acc) ->
         Encoded = epgsql_wire:encode_parameters_with_encoder(Parameters, Encoder, Codec),
         pair(Statement, Encoded, Formats, Acc)
     end, [epgsql_wire:encode_sync()], Rows),
     [Columns || _ <- Rows]};
messages(Pairs, Codec) when is_list(Pairs) ->
    {lists:foldr(fun({#statement{types = Types, columns = Columns} = Statement, Parameters}, Acc) ->
         Encoded = epgsql_wire:encode_parameters(lists:zip(Types, Parameters), Codec),
         pair(Statement, Encoded, epgsql_wire:encode_formats(Columns), Acc)
     end, [epgsql_wire:encode_sync()], Pairs),
     [Columns || {#statement{columns = Columns}, _} <- Pairs]}.

pair(#statement{name = Name}, Parameters, Formats, Acc) ->
    [epgsql_wire:encode_bind("", Name, Parameters, Formats), epgsql_wire:encode_execute("", 0)
     | Acc].

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), #batch{}) ->
          epgsql_command:handle_message_return().
handle_message(?BIND_COMPLETE, _, Session, #batch{left = [Columns | _], decoder = {Columns, _}}) ->
    {noaction, Session};
handle_message(?BIND_COMPLETE, _, Session, #batch{left = [Columns | _]} = State) ->
    Decoder = epgsql_wire:build_decoder(Columns, epgsql_session:get_codec(Session)),
    {noaction, Session, State#batch{decoder = {Columns, Decoder}}};
handle_message(?DATA_ROW, Payload, Session, #batch{decoder = {_, Decoder}} = State) ->
    {add_row, epgsql_results:row(Payload, Decoder), Session, State};
handle_message(?COMMAND_COMPLETE, Payload, Session, #batch{left = [Columns | Left]} = State) ->
    {Result, Notice} = epgsql_results:complete_rows(Payload, Columns, Session),
    {add_result, Result, Notice, Session, State#batch{left = Left}};
handle_message(?EMPTY_QUERY, _, Session, #batch{left = [_ | Left]} = State) ->
    {add_result, {ok, []}, {complete, empty}, Session, State#batch{left = Left}};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    {finish, epgsql_session:get_results(Session), done, Session};
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(_, _, _, _) ->
    unknown.
