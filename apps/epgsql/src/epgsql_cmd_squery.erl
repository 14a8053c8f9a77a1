%% Simple query: one or more statements in one text, without parameters; rows as text.
%%
%% PostgreSQL's documentation, "Simple Query". A COPY in the text is refused, since its data has no
%% place in a result: `epgsql:copy_from_stdin/2' and `epgsql:copy_to_stdout/4' are for it.
-module(epgsql_cmd_squery).
-behaviour(epgsql_command).

-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4, row_decoder/1]).

-export_type([response/0]).

-type response_single() :: epgsql_results:result() | {error, epgsql:query_error()}.
-type response() :: response_single() | [response_single()].

-record(squery, {sql :: iodata(), is_copy_refused = false :: boolean(),
                 columns = [] :: [epgsql:column()],
                 decoder :: undefined | epgsql_wire:row_decoder()}).

-spec init(iodata()) -> #squery{}.
init(Sql) -> #squery{sql = Sql}.

-spec execute(epgsql_session:session(), #squery{}) -> epgsql_command:execute_return().
execute(Session, #squery{is_copy_refused = true} = State) ->
    {send, ?COPY_FAIL, <<"use copy_from_stdin", 0>>, Session,
     State#squery{is_copy_refused = false}};
execute(Session, #squery{sql = Sql} = State) ->
    {Type, Payload} = epgsql_wire:encode_query(Sql),
    {send, Type, Payload, Session, State}.

-spec row_decoder(#squery{}) -> epgsql_wire:row_decoder() | undefined.
row_decoder(#squery{decoder = Decoder}) -> Decoder.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     #squery{}) -> epgsql_command:handle_message_return().
handle_message(?DATA_ROW, Payload, Session, #squery{decoder = Decoder} = State) ->
    {add_row, epgsql_results:row(Payload, Decoder), Session, State};
handle_message(?ROW_DESCRIPTION, Payload, Session, State) ->
    Columns = epgsql_results:columns(Payload, Session),
    Decoder = epgsql_wire:build_decoder(Columns, epgsql_session:get_codec(Session)),
    Session1 = epgsql_session:notify(Session, {columns, Columns}),
    {noaction, Session1, State#squery{columns = Columns, decoder = Decoder}};
handle_message(?COMMAND_COMPLETE, Payload, Session, #squery{columns = Columns} = State) ->
    {Result, Notice} = epgsql_results:complete(Payload, Columns, Session),
    {add_result, Result, Notice, Session, State#squery{columns = [], decoder = undefined}};
handle_message(?EMPTY_QUERY, _, Session, State) ->
    {add_result, {ok, [], []}, {complete, empty}, Session, State};
handle_message(?READY_FOR_QUERY, _, Session, _) ->
    case epgsql_session:get_results(Session) of
        [Result] -> {finish, Result, done, Session};
        Results -> {finish, Results, done, Session}
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(?COPY_IN_RESPONSE, _, Session, State) ->
    {requeue, Session, State#squery{is_copy_refused = true}};
handle_message(?COPY_OUT_RESPONSE, _, Session, State) ->
    Error = {error, use_copy_to_stdout},
    {add_result, Error, Error, Session, State};
handle_message(Type, _, Session, _) when Type =:= ?COPY_DATA; Type =:= ?COPY_DONE ->
    {noaction, Session};
handle_message(_, _, _, _) ->
    unknown.
