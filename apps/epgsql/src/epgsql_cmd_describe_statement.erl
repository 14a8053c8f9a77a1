%% Asks for a prepared statement's parameters and columns.
-module(epgsql_cmd_describe_statement).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: {ok, #statement{}} | {error, epgsql:query_error()}.

-spec init(iodata()) -> #statement{}.
init(Name) -> #statement{name = Name}.

-spec execute(epgsql_session:session(), #statement{}) -> epgsql_command:execute_return().
execute(Session, #statement{name = Name} = State) ->
    {send_multi, [epgsql_wire:encode_describe(statement, Name), epgsql_wire:encode_flush()],
     Session, State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     #statement{}) -> epgsql_command:handle_message_return().
handle_message(?PARAMETER_DESCRIPTION, Payload, Session, State) ->
    {Types, Infos} = epgsql_results:described(Payload, Session),
    {noaction, epgsql_session:notify(Session, {types, Types}),
     State#statement{types = Types, parameter_info = Infos}};
handle_message(?ROW_DESCRIPTION, Payload, Session, State) ->
    Described = epgsql_results:statement(Payload, State, Session),
    {finish, {ok, Described}, {columns, Described#statement.columns}, Session};
handle_message(?NO_DATA, _, Session, State) ->
    {finish, {ok, State#statement{columns = []}}, no_data, Session};
handle_message(?ERROR, Error, _, _) ->
    {sync_required, {error, Error}};
handle_message(_, _, _, _) ->
    unknown.
