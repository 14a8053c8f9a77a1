%% Asks for a portal's columns.
-module(epgsql_cmd_describe_portal).
-behaviour(epgsql_command).

-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: {ok, [epgsql:column()]} | {error, epgsql:query_error()}.

-spec init(iodata()) -> iodata().
init(Name) -> Name.

-spec execute(epgsql_session:session(), iodata()) -> epgsql_command:execute_return().
execute(Session, Name) ->
    {send_multi, [epgsql_wire:encode_describe(portal, Name), epgsql_wire:encode_flush()],
     Session, Name}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     iodata()) -> epgsql_command:handle_message_return().
handle_message(?ROW_DESCRIPTION, Payload, Session, _) ->
    Columns = epgsql_results:columns(Payload, Session),
    {finish, {ok, Columns}, {columns, Columns}, Session};
handle_message(?NO_DATA, _, Session, _) ->
    {finish, {ok, []}, no_data, Session};
handle_message(?ERROR, Error, _, _) ->
    {sync_required, {error, Error}};
handle_message(_, _, _, _) ->
    unknown.
