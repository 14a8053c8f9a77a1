%% Begins streaming of a logical slot, or of the WAL itself. The connection does nothing else from
%% then on.
-module(epgsql_cmd_start_replication).
-behaviour(epgsql_command).

-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0, options/0]).

-type response() :: ok | {error, epgsql:query_error()}.
-type state() :: {Slot :: iodata(), module() | pid(), State :: any(), Position :: string(),
                  PluginOptions :: iodata(), options()}.
%% `align_lsn': what a server asks to be told is done, is. `keepalives': a receiver that is a
%% process gets them. `kind', `timeline': of a physical stream, whose slot may be empty.
-type options() :: #{align_lsn => boolean(), keepalives => boolean(),
                     kind => logical | physical, timeline => pos_integer()}.

-spec init(state()) -> state().
init({_, _, _, _, _, _} = State) -> State.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, {Slot, Receiver, ReceiverState, Position, PluginOptions, Options} = State) ->
    Lsn = epgsql_replication:lsn(Position),
    Repl = #repl{received = Lsn, flushed = Lsn, applied = Lsn,
                 align_lsn = maps:get(align_lsn, Options, false),
                 keepalives = maps:get(keepalives, Options, false),
                 receiver = case is_pid(Receiver) of
                                true -> Receiver;
                                false -> {Receiver, ReceiverState}
                            end},
    {Type, Payload} = epgsql_wire:encode_query(
        ["START_REPLICATION", [[" SLOT ", Slot] || iolist_size(Slot) > 0],
         stream(Options, Position, PluginOptions)]),
    {send, Type, Payload, epgsql_session:set_attr(subproto_state, Repl, Session), State}.

stream(#{kind := physical} = Options, Position, _) ->
    Timeline = maps:get(timeline, Options, none),
    [" PHYSICAL ", Position,
     [[" TIMELINE ", integer_to_binary(Timeline)] || Timeline =/= none]];
stream(_, Position, PluginOptions) ->
    [" LOGICAL ", Position, [[" (", PluginOptions, ")"] || iolist_size(PluginOptions) > 0]].

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
