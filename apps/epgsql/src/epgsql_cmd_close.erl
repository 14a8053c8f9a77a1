%% Closes a prepared statement or a portal: Close, Flush.
-module(epgsql_cmd_close).
-behaviour(epgsql_command).

-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: ok | {error, epgsql:query_error()}.
-type state() :: {epgsql_frontend:object(), iodata()}.

-spec init(state()) -> state().
init({_, _} = State) -> State.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, {Object, Name} = State) ->
    {send_multi, [epgsql_wire:encode_close(Object, Name), epgsql_wire:encode_flush()],
     Session, State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), state()) ->
          epgsql_command:handle_message_return().
handle_message(?CLOSE_COMPLETE, _, Session, _) -> {finish, ok, ok, Session};
handle_message(?ERROR, Error, _, _) -> {sync_required, {error, Error}};
handle_message(_, _, _, _) -> unknown.
