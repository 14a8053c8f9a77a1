%% A statement that is sent whole and once: Parse, Bind, Describe, Execute and Sync in one write,
%% and one round trip for the answer. A command for `epgsql'.
%%
%% It leaves nothing in the session. A pooler that gives each transaction another connection of the
%% server (PgBouncer's transaction mode) can stand between, which a kept statement doesn't allow.
%% The server parses the text each time; but our texts call one function, whose own statements it
%% keeps prepared.
-module(halley_cluster_once).
-behaviour(epgsql_command).

-include_lib("epgsql/include/epgsql.hrl").
-include_lib("epgsql/include/protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([arguments/0, response/0]).

-type arguments() :: {Sql :: iodata(), [{epgsql:epgsql_type(), epgsql:bind_param()}]}.
-type response() :: {ok, [tuple()]} | {error, epgsql:query_error()}.

-record(once, {sql :: iodata(), typed :: [{epgsql:epgsql_type(), epgsql:bind_param()}],
               decoder :: undefined | epgsql_wire:row_decoder()}).

%% One code for all columns: binary.
-define(BINARY_RESULTS, <<1:16, 1:16>>).

-spec init(arguments()) -> #once{}.
init({Sql, Typed}) -> #once{sql = Sql, typed = Typed}.

-spec execute(epgsql_session:session(), #once{}) -> epgsql_command:execute_return().
execute(Session, #once{sql = Sql, typed = Typed} = State) ->
    Codec = epgsql_session:get_codec(Session),
    Types = [Type || {Type, _} <- Typed],
    {send_multi,
     [epgsql_wire:encode_parse(<<>>, Sql, epgsql_wire:encode_types(Types, Codec)),
      epgsql_wire:encode_bind(<<>>, <<>>, epgsql_wire:encode_parameters(Typed, Codec),
                              ?BINARY_RESULTS),
      epgsql_wire:encode_describe(portal, <<>>),
      epgsql_wire:encode_execute(<<>>, 0),
      epgsql_wire:encode_sync()],
     Session, State#once{typed = []}}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), #once{}) ->
          epgsql_command:handle_message_return().
handle_message(Type, _, Session, _) when Type =:= ?PARSE_COMPLETE; Type =:= ?BIND_COMPLETE;
                                         Type =:= ?NO_DATA ->
    {noaction, Session};
handle_message(?ROW_DESCRIPTION, Payload, Session, State) ->
    Columns = epgsql_results:columns(Payload, Session),
    Decoder = epgsql_wire:build_decoder(Columns, epgsql_session:get_codec(Session)),
    {noaction, Session, State#once{decoder = Decoder}};
handle_message(?DATA_ROW, Payload, Session, #once{decoder = Decoder} = State) ->
    {add_row, epgsql_results:row(Payload, Decoder), Session, State};
handle_message(?COMMAND_COMPLETE, _, Session, State) ->
    {add_result, {ok, epgsql_session:get_rows(Session)}, done, Session, State};
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    %% An error at the commit comes after the result, and is what counts.
    Result = lists:last(epgsql_session:get_results(Session)),
    {finish, Result, done, Session};
handle_message(_, _, _, _) ->
    unknown.
