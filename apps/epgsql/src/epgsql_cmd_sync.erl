%% Ends the requests since the last Sync, an error included.
-module(epgsql_cmd_sync).
-behaviour(epgsql_command).

-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: ok | {error, epgsql:query_error()}.

-spec init(any()) -> [].
init(_) -> [].

-spec execute(epgsql_session:session(), []) -> epgsql_command:execute_return().
execute(Session, State) ->
    {Type, Payload} = epgsql_wire:encode_sync(),
    {send, Type, Payload, epgsql_session:set_attr(sync_required, false, Session), State}.

%% What a Sync commits may fail, such as a constraint that was deferred.
-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), []) ->
          epgsql_command:handle_message_return().
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [] -> {finish, ok, ok, Session};
        [Error | _] -> {finish, Error, Error, Session}
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(_, _, _, _) ->
    unknown.
