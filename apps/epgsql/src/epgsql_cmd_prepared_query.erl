%% Runs a parsed statement with parameters, in one round trip; the statement stays for the next,
%% unless what follows Execute (`init/2') ends it.
-module(epgsql_cmd_prepared_query).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, init/2, execute/2, handle_message/4, row_decoder/1]).

-export_type([response/0, state/0]).

-type response() :: epgsql_results:result() | {error, epgsql:query_error()}.

-record(prepared_query, {statement :: #statement{}, parameters :: [{epgsql:epgsql_type(), any()}],
                         behind :: [epgsql_frontend:message()],
                         decoder :: undefined | epgsql_wire:row_decoder()}).

-opaque state() :: #prepared_query{}.

-spec init({epgsql:statement(), [{epgsql:epgsql_type(), any()}]}) -> state().
init(Arguments) -> init(Arguments, []).

%% `Behind' is sent between Execute and Sync.
-spec init({epgsql:statement(), [{epgsql:epgsql_type(), any()}]}, [epgsql_frontend:message()]) ->
          state().
init({Statement, Parameters}, Behind) ->
    #prepared_query{statement = Statement, parameters = Parameters, behind = Behind}.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, #prepared_query{statement = #statement{name = Name, columns = Columns},
                                 parameters = Parameters, behind = Behind} = State) ->
    Codec = epgsql_session:get_codec(Session),
    Encoded = epgsql_wire:encode_parameters(Parameters, Codec),
    {send_multi, [epgsql_wire:encode_bind("", Name, Encoded, epgsql_wire:encode_formats(Columns)),
                  epgsql_wire:encode_execute("", 0) | Behind ++ [epgsql_wire:encode_sync()]],
     Session, State#prepared_query{decoder = epgsql_wire:build_decoder(Columns, Codec)}}.

-spec row_decoder(state()) -> epgsql_wire:row_decoder() | undefined.
row_decoder(#prepared_query{decoder = Decoder}) -> Decoder.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     state()) -> epgsql_command:handle_message_return().
handle_message(?DATA_ROW, Payload, Session, #prepared_query{decoder = Decoder} = State) ->
    {add_row, epgsql_results:row(Payload, Decoder), Session, State};
handle_message(?BIND_COMPLETE, _, Session,
               #prepared_query{statement = #statement{columns = Columns}}) ->
    {noaction, epgsql_session:notify(Session, {columns, Columns})};
handle_message(?COMMAND_COMPLETE, Payload, Session,
               #prepared_query{statement = #statement{columns = Columns}} = State) ->
    {Result, Notice} = epgsql_results:complete(Payload, Columns, Session),
    {add_result, Result, Notice, Session, State};
handle_message(?EMPTY_QUERY, _, Session, State) ->
    {add_result, {ok, [], []}, {complete, empty}, Session, State};
handle_message(?CLOSE_COMPLETE, _, Session, _) ->
    {noaction, Session};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [] -> {finish, done, done, Session};
        %% The commit that Sync makes may fail where the statement didn't.
        Results -> {finish, lists:last(Results), done, Session}
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(_, _, _, _) ->
    unknown.
