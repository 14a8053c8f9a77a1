%% Runs a query with parameters from its text: prepares it (Parse, Describe, Sync), then runs it
%% (Bind, Execute, Sync). Where the connection keeps statements, a known one is only run.
%%
%% A kept statement that the server doesn't know any more (DISCARD, a pooler between), or whose
%% result has another type (the schema has changed), is prepared anew, once; in a transaction that
%% has failed by then, so the error is the answer, and the next query prepares.
%%
%% While it is being prepared, later requests are not sent: they are run in their order.
-module(epgsql_cmd_query).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4, row_decoder/1, known/3, whole/2]).

-export_type([response/0, state/0]).

-type response() :: epgsql_results:result()
                  | {error, epgsql:query_error() | {bad_parameters, any()}}.

%% What is kept of a statement: all that doesn't depend on its parameters' values.
-record(plan, {statement :: #statement{},
               encoder :: epgsql_wire:parameters_encoder(),
               decoder :: epgsql_wire:row_decoder(),
               formats :: iodata(),
               run :: epgsql_wire:run()}).
-record(query, {sql :: binary(),
                parameters :: [any()],
                step = find :: find | prepare | run,
                statement :: undefined | #statement{},
                plan :: undefined | #plan{},
                is_known = false :: boolean(),     %% from the cache, so it may be stale
                is_bound = false :: boolean(),
                stale :: undefined | epgsql:query_error()}).

-opaque state() :: #query{}.

-spec init({epgsql:sql_query(), [epgsql:bind_param()]}) -> #query{}.
init({Sql, Parameters}) -> #query{sql = text(Sql), parameters = Parameters}.

text(Sql) when is_binary(Sql) -> Sql;
text(Sql) ->
    try iolist_to_binary(Sql)
    catch error:badarg -> <<_/binary>> = unicode:characters_to_binary(Sql)
    end.

-spec execute(epgsql_session:session(), #query{}) -> epgsql_command:execute_return().
execute(Session, #query{step = find, sql = Sql} = State) ->
    case epgsql_session:get_attr(statements, Session) of
        none -> prepare(Session, <<>>, [], State);
        Cache ->
            case epgsql_statements:find(Sql, Cache) of
                {ok, Plan} -> run(Session, State#query{plan = Plan, is_known = true});
                none -> prepare_to_keep(Session, Cache, State)
            end
    end;
execute(Session, #query{step = prepare} = State) ->
    prepare_to_keep(Session, epgsql_session:get_attr(statements, Session), State);
execute(Session, #query{step = run} = State) ->
    run(epgsql_session:set_attr(is_held_up, false, Session), State).

prepare_to_keep(Session, Cache, State) ->
    Close = [epgsql_wire:encode_close(statement, Name)
             || Name <- epgsql_statements:to_close(Cache)],
    prepare(Session, epgsql_statements:name(Cache), Close, State).

prepare(Session, Name, Close, #query{sql = Sql} = State) ->
    Oids = epgsql_wire:encode_types([], epgsql_session:get_codec(Session)),
    {send_multi, Close ++ [epgsql_wire:encode_parse(Name, Sql, Oids),
                           epgsql_wire:encode_describe(statement, Name),
                           epgsql_wire:encode_sync()],
     epgsql_session:set_attr(is_held_up, true, Session),
     State#query{step = prepare, statement = #statement{name = Name, columns = []}}}.

run(Session, #query{plan = #plan{encoder = Encoder}, parameters = Parameters} = State) ->
    Codec = epgsql_session:get_codec(Session),
    case epgsql_session:get_attr(statements, Session) of
        %% As in epgsql 4.8, a value that its type can't hold ends the connection.
        none ->
            Encoded = epgsql_wire:encode_parameters_with_encoder(Parameters, Encoder, Codec),
            bind(Session, Encoded, State);
        _ ->
            try epgsql_wire:encode_parameters_with_encoder(Parameters, Encoder, Codec) of
                Encoded -> bind(Session, Encoded, State)
            catch
                error:Reason ->
                    Error = {error, {bad_parameters, Reason}},
                    {finish, Error, Error, Session}
            end
    end.

bind(Session, Encoded, #query{plan = #plan{statement = #statement{name = Name},
                                           formats = Formats}} = State) ->
    {send_multi, [epgsql_wire:encode_bind("", Name, Encoded, Formats),
                  epgsql_wire:encode_execute("", 0), epgsql_wire:encode_sync()],
     Session, State#query{step = run}}.

%% What `execute' would send for a statement that is kept, in one piece, and the state in which its
%% answer is awaited. `none' also where a value can't be written: `execute' says why.
-spec known(binary(), [epgsql:bind_param()], epgsql_statements:cache()) ->
          {ok, iodata(), state()} | none.
known(Sql, Parameters, Cache) ->
    case epgsql_statements:find(Sql, Cache) of
        {ok, #plan{run = Run} = Plan} ->
            try
                {ok, epgsql_wire:encode_run(Parameters, Run),
                 #query{sql = Sql, parameters = Parameters, step = run, plan = Plan,
                        is_known = true}}
            catch
                error:_ -> none
            end;
        none -> none
    end.

%% The answer, if these bytes are all of it and nothing else: BindComplete, rows, CommandComplete,
%% and ReadyForQuery outside of a transaction. Anything else is `handle_message's affair.
-spec whole(binary(), state()) -> {ok, response()} | no.
whole(<<?BIND_COMPLETE, 4:32, Messages/binary>>, #query{plan = Plan}) ->
    Before = byte_size(Messages) - 6,
    case Messages of
        <<Rows:Before/binary, ?READY_FOR_QUERY, 5:32, $I>> ->
            try whole_rows(Rows, Plan, [])
            catch error:{malformed, _} -> no
            end;
        _ -> no
    end;
whole(_, _) -> no.

whole_rows(<<?DATA_ROW, Length:32, _Count:16, Rest/binary>>, #plan{decoder = Decoder} = Plan, Rows)
  when Length >= 6 ->
    Size = Length - 6,
    case Rest of
        <<Cells:Size/binary, After/binary>> ->
            whole_rows(After, Plan, [epgsql_wire:decode_data(Cells, Decoder) | Rows]);
        _ -> no
    end;
whole_rows(<<?COMMAND_COMPLETE, Length:32, Tag/binary>>,
           #plan{statement = #statement{columns = Columns}}, Rows)
  when byte_size(Tag) =:= Length - 4 ->
    case epgsql_backend:complete(Tag) of
        Forgets when Forgets =:= discard; Forgets =:= deallocate -> no;
        Complete -> {ok, epgsql_results:result(Complete, Columns, lists:reverse(Rows))}
    end;
whole_rows(_, _, _) -> no.

-spec row_decoder(#query{}) -> epgsql_wire:row_decoder() | undefined.
row_decoder(#query{step = run, plan = #plan{decoder = Decoder}}) -> Decoder;
row_decoder(_) -> undefined.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     #query{}) -> epgsql_command:handle_message_return().
handle_message(?DATA_ROW, Payload, Session,
               #query{step = run, plan = #plan{decoder = Decoder}} = State) ->
    {add_row, epgsql_results:row(Payload, Decoder), Session, State};
handle_message(?BIND_COMPLETE, _, Session,
               #query{plan = #plan{statement = #statement{columns = Columns}}} = State) ->
    {noaction, epgsql_session:notify(Session, {columns, Columns}), State#query{is_bound = true}};
handle_message(?COMMAND_COMPLETE, Payload, Session,
               #query{plan = #plan{statement = #statement{columns = Columns}}} = State) ->
    {Result, Notice} = epgsql_results:complete(Payload, Columns, Session),
    {add_result, Result, Notice, Session, State};
handle_message(?EMPTY_QUERY, _, Session, State) ->
    {add_result, {ok, [], []}, {complete, empty}, Session, State};
handle_message(?READY_FOR_QUERY, _, Session, State) ->
    ready(Session, State);
handle_message(?ERROR, Error, Session, #query{is_known = true, is_bound = false} = State) ->
    case is_stale(Error) of
        true -> {noaction, Session, State#query{stale = Error}};
        false -> {add_result, {error, Error}, {error, Error}, Session, State}
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(Type, Payload, Session, #query{step = prepare} = State) ->
    described(Type, Payload, Session, State);
handle_message(_, _, _, _) ->
    unknown.

described(?PARAMETER_DESCRIPTION, Payload, Session, #query{statement = Statement} = State) ->
    {Types, Infos} = epgsql_results:described(Payload, Session),
    {noaction, epgsql_session:notify(Session, {types, Types}),
     State#query{statement = Statement#statement{types = Types, parameter_info = Infos}}};
described(?ROW_DESCRIPTION, Payload, Session, #query{statement = Statement} = State) ->
    {noaction, Session,
     State#query{statement = epgsql_results:statement(Payload, Statement, Session)}};
described(Type, _, Session, _) when Type =:= ?PARSE_COMPLETE; Type =:= ?CLOSE_COMPLETE;
                                    Type =:= ?NO_DATA ->
    {noaction, Session};
described(_, _, _, _) ->
    unknown.

ready(Session, #query{step = prepare, sql = Sql, statement = Statement} = State) ->
    case {epgsql_session:get_results(Session), Statement} of
        {[Error | _], _} -> finish(Error, epgsql_session:set_attr(is_held_up, false, Session));
        {[], #statement{types = undefined}} -> unknown;
        {[], #statement{name = Name}} ->
            Plan = plan(Statement, epgsql_session:get_codec(Session)),
            case epgsql_session:get_attr(statements, Session) of
                none -> ok;
                Cache -> epgsql_statements:add(Sql, Name, Plan, Cache)
            end,
            {requeue, Session, State#query{step = run, plan = Plan}}
    end;
ready(Session, #query{step = run, stale = undefined}) ->
    case epgsql_session:get_results(Session) of
        [] -> finish(done, Session);
        %% The commit that Sync makes may fail where the statement didn't.
        Results -> finish(lists:last(Results), Session)
    end;
ready(Session, #query{step = run, sql = Sql, stale = Error} = State) ->
    ok = epgsql_statements:forget(Sql, epgsql_session:get_attr(statements, Session)),
    case epgsql_session:get_attr(txstatus, Session) of
        $I ->
            {requeue, Session, State#query{step = prepare, is_known = false, stale = undefined}};
        _ -> finish({error, Error}, epgsql_session:notify(Session, {error, Error}))
    end.

finish(Result, Session) -> {finish, Result, done, Session}.

plan(#statement{name = Name, types = Types, columns = Columns} = Statement, Codec) ->
    Encoder = epgsql_wire:build_parameters_encoder(Types, Codec),
    Formats = iolist_to_binary(epgsql_wire:encode_formats(Columns)),
    #plan{statement = Statement,
          encoder = Encoder,
          decoder = epgsql_wire:build_decoder(Columns, Codec),
          formats = Formats,
          run = epgsql_wire:build_run(iolist_to_binary(Name), Encoder, Formats, Codec)}.

%% The server's function is named in an error whatever language its message is in.
is_stale(#error{code = <<"26000">>}) -> true;
is_stale(#error{code = <<"0A000">>, extra = Extra}) ->
    lists:member({routine, <<"RevalidateCachedQuery">>}, Extra);
is_stale(_) -> false.
