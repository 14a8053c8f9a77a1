%% Runs a parsed statement with parameters as `epgsql_cmd_prepared_query' does, and closes it in the
%% same round trip.
-module(epgsql_cmd_equery).
-behaviour(epgsql_command).

-include("epgsql.hrl").

-export([init/1, execute/2, handle_message/4, row_decoder/1]).

-export_type([response/0]).

-type response() :: epgsql_cmd_prepared_query:response().
-type state() :: epgsql_cmd_prepared_query:state().

-spec init({epgsql:statement(), [{epgsql:epgsql_type(), any()}]}) -> state().
init({#statement{name = Name}, _} = Arguments) ->
    epgsql_cmd_prepared_query:init(Arguments, [epgsql_wire:encode_close(statement, Name)]).

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, State) -> epgsql_cmd_prepared_query:execute(Session, State).

-spec row_decoder(state()) -> epgsql_wire:row_decoder() | undefined.
row_decoder(State) -> epgsql_cmd_prepared_query:row_decoder(State).

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     state()) -> epgsql_command:handle_message_return().
handle_message(Type, Payload, Session, State) ->
    epgsql_cmd_prepared_query:handle_message(Type, Payload, Session, State).
