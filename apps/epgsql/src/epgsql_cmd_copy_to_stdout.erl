%% Begins a COPY TO STDOUT. Its rows go to the receiver, as `epgsql_subprotocol' says; the answer
%% is the number of rows.
-module(epgsql_cmd_copy_to_stdout).
-behaviour(epgsql_command).

-include("epgsql_session.hrl").
-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([format/0, response/0]).

-type format() :: text | {binary, [epgsql:epgsql_type()]}.
-type response() :: {ok, Count :: non_neg_integer()}
                  | {error, not_a_copy | {format_mismatch, format(), text | binary}
                          | epgsql:query_error()}.
-type state() :: {Sql :: iodata(), format(), Receiver :: pid() | direct | none,
                  reference()}.

-spec init(state()) -> state().
init({_, _, _, _} = State) -> State.

-spec execute(epgsql_session:session(), state()) -> epgsql_command:execute_return().
execute(Session, {Sql, _, _, _} = State) ->
    {Type, Payload} = epgsql_wire:encode_query(Sql),
    {send, Type, Payload, Session, State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), state()) ->
          epgsql_command:handle_message_return().
handle_message(?COPY_OUT_RESPONSE, Payload, Session, {_, Format, Receiver, Ref} = State) ->
    {Whole, _} = epgsql_backend:copy_response(Payload),
    case decoders(Format, Whole, epgsql_session:get_codec(Session)) of
        {ok, Decoders, Null} ->
            Begun = begin_data(Receiver, Ref, Session),
            {noaction, told(Receiver, Ref, {copy_begin, epgsql_copy_out:new(Decoders, Null)},
                            Begun)};
        {error, _} = Error ->
            %% Its rows are thrown away.
            {add_result, Error, Error, begin_data(none, Ref, Session), State}
    end;
handle_message(?COMMAND_COMPLETE, Payload, Session, State) ->
    case {epgsql_session:get_results(Session), epgsql_backend:complete(Payload)} of
        {[], {copy, Count} = Complete} ->
            {add_result, {ok, Count}, {complete, Complete}, Session, State};
        _ -> {noaction, Session}
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [Result | _] -> {finish, Result, Result, Session};
        [] -> {finish, {error, not_a_copy}, {error, not_a_copy}, Session}
    end;
handle_message(Type, _, Session, _) when Type =:= ?ROW_DESCRIPTION; Type =:= ?DATA_ROW;
                                         Type =:= ?EMPTY_QUERY ->
    {noaction, Session};
handle_message(_, _, _, _) ->
    unknown.

told(none, _, _, Session) -> Session;
told(direct, Ref, Message, #session{replies = Replies} = Session) ->
    Session#session{replies = [{Ref, Message} | Replies]};
told(Receiver, Ref, Message, Session) ->
    Receiver ! {self(), Ref, Message},
    Session.

begin_data(Receiver, Ref, Session) ->
    Monitor = [monitor(process, Receiver) || is_pid(Receiver)],
    epgsql_session:set_packet_handler(on_copy_to_stdout, epgsql_session:set_attr(
        subproto_state, #copy_out{receiver = Receiver, ref = Ref, monitor = Monitor}, Session)).

decoders(text, text, _) -> {ok, text, null};
decoders({binary, Types}, binary, Codec) ->
    {ok, {binary, [epgsql_binary:oid_to_decoder(epgsql_binary:type_to_oid(Type, Codec), binary,
                                                Codec) || Type <- Types]},
     epgsql_binary:null(Codec)};
decoders(Asked, Whole, _) -> {error, {format_mismatch, Asked, Whole}}.
