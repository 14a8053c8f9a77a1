%% Binds parameters to a prepared statement, which makes a portal: Bind, Flush.
-module(epgsql_cmd_bind).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: ok | {error, epgsql:query_error()}.
-type state() :: {#statement{}, Portal :: iodata(), Parameters :: [any()]}.

-spec init(state()) -> state().
init({_, _, _} = State) -> State.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, {#statement{name = Name, columns = Columns, types = Types}, Portal, Parameters}
        = State) ->
    Encoded = epgsql_wire:encode_parameters(lists:zip(Types, Parameters),
                                            epgsql_session:get_codec(Session)),
    {send_multi, [epgsql_wire:encode_bind(Portal, Name, Encoded,
                                          epgsql_wire:encode_formats(Columns)),
                  epgsql_wire:encode_flush()], Session, State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), state()) ->
          epgsql_command:handle_message_return().
handle_message(?BIND_COMPLETE, _, Session, _) -> {finish, ok, ok, Session};
handle_message(?ERROR, Error, _, _) -> {sync_required, {error, Error}};
handle_message(_, _, _, _) -> unknown.
