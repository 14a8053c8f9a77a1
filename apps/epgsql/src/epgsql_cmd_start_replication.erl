%% Begins streaming of a logical slot. The connection does nothing else from then on.
-module(epgsql_cmd_start_replication).
-behaviour(epgsql_command).

-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: ok | {error, epgsql:query_error()}.
-type state() :: {Slot :: iodata(), module() | pid(), State :: any(), Position :: string(),
                  PluginOptions :: iodata(), #{align_lsn => boolean()}}.

-spec init(state()) -> state().
init({_, _, _, _, _, _} = State) -> State.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, {Slot, Receiver, ReceiverState, Position, PluginOptions, Options} = State) ->
    Lsn = lsn(Position),
    Repl = #repl{received = Lsn, flushed = Lsn, applied = Lsn,
                 align_lsn = maps:get(align_lsn, Options, false),
                 receiver = case is_pid(Receiver) of
                                true -> Receiver;
                                false -> {Receiver, ReceiverState}
                            end},
    Plugin = [[" (", PluginOptions, ")"] || iolist_size(PluginOptions) > 0],
    {Type, Payload} = epgsql_wire:encode_query(
        ["START_REPLICATION SLOT ", Slot, " LOGICAL ", Position, Plugin]),
    {send, Type, Payload, epgsql_session:set_attr(subproto_state, Repl, Session), State}.

%% `16/B374D848', two halves of 32 bits.
lsn(Position) ->
    [High, Low] = string:split(Position, "/"),
    (list_to_integer(High, 16) bsl 32) bor list_to_integer(Low, 16).

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), state()) ->
          epgsql_command:handle_message_return().
handle_message(?COPY_BOTH_RESPONSE, _, Session, _) ->
    {finish, ok, ok, epgsql_session:set_packet_handler(on_replication, Session)};
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [Error | _] ->
            {finish, Error, done, epgsql_session:set_attr(subproto_state, undefined, Session)};
        [] -> unknown
    end;
handle_message(_, _, _, _) ->
    unknown.
