%% How requests and answers go through a connection.
%%
%% A request is sent when it comes, also while answers to others are awaited (pipelining); answers
%% come in the order of requests. `current' is whose answers are coming, `queue' those behind it.
%%
%% After an error in a request without a Sync the server ignores everything up to the next Sync
%% ("Extended Query"). So does this: requests behind it are answered by `sync_required', up to and
%% with the first that carries a Sync itself, whose ReadyForQuery is swallowed; what was sent behind
%% that one is answered as ever. If none carried a Sync, requests are refused until `sync'.
%%
%% What the server sends and the protocol doesn't allow ends the connection with
%% `{malformed, What}' or `{unexpected_message, Type, Command}', which callers get as errors.
-module(epgsql_machine).

-include("epgsql_session.hrl").
-include("protocol.hrl").

-export([command/5, data/2, flush/2, expire/2, expired/2]).

-export_type([step/0]).

-type session() :: #session{}.
-type step() :: {noreply, session()} | {stop, Reason :: any(), session()}.

%% A new request. `Timeout' is for its answer.
-spec command(epgsql_session:reply_to(), epgsql_command:command(), any(), timeout(), session()) ->
          step().
command(ReplyTo, Module, Arguments, Timeout, Session) ->
    Command = timed(Timeout, #command{module = Module, state = Module:init(Arguments),
                                      reply_to = ReplyTo}),
    execute(Command, Session).

timed(infinity, Command) -> Command;
timed(Timeout, Command) ->
    Id = make_ref(),
    Command#command{id = Id, timer = erlang:start_timer(Timeout, self(), {expire, Id})}.

execute(#command{module = Module} = Command, #session{sync_required = true} = Session)
  when Module =/= epgsql_cmd_sync ->
    Error = {error, sync_required},
    {noreply, answer(Command, Error, Error, Session)};
execute(#command{module = Module} = Command, #session{handler = Handler} = Session)
  when Handler =/= on_message, Handler =/= on_copy_to_stdout, Module =/= epgsql_cmd_copy_done ->
    Error = {error, {busy, Handler}},
    {noreply, answer(Command, Error, Error, Session)};
execute(#command{module = epgsql_cmd_copy_done} = Command, #session{handler = Handler} = Session)
  when Handler =/= on_copy_from_stdin ->
    Error = {error, not_in_copy_mode},
    {noreply, answer(Command, Error, Error, Session)};
execute(#command{module = Module, state = State} = Command, Session) ->
    case Module:execute(Session, State) of
        {ok, Session1, State1} ->
            {noreply, enqueue(Command#command{state = State1}, Session1)};
        {send, Type, Payload, Session1, State1} ->
            sent(Command#command{state = State1}, [{Type, Payload}], Session1);
        {send_multi, Messages, Session1, State1} ->
            sent(Command#command{state = State1}, Messages, Session1);
        {stop, Reason, Response, Session1} ->
            {stop, Reason, answer(Command, Response, Response, Session1)}
    end.

%% A socket that can't be written to says so when it is read, too; then the queue is answered.
sent(#command{syncs = Syncs} = Command, Messages, Session) ->
    _ = epgsql_session:send_multi(Session, Messages),
    New = length([Type || {Type, _} <- Messages, Type =:= ?SYNC orelse Type =:= ?SIMPLEQUERY]),
    {noreply, enqueue(Command#command{syncs = Syncs + New}, Session)}.

enqueue(Command, #session{current = undefined, swallow = 0} = Session) ->
    Session#session{current = Command, complete_status = undefined};
enqueue(Command, #session{queue = Queue} = Session) ->
    Session#session{queue = queue:in(Command, Queue), complete_status = undefined}.

%% --- what comes ---------------------------------------------------------------------------------

%% Bytes of the server: all messages that are whole.
-spec data(binary(), session()) -> step().
data(Bytes, #session{buffer = <<>>} = Session) -> messages(Bytes, Session);
data(Bytes, #session{buffer = Buffer} = Session) ->
    messages(<<Buffer/binary, Bytes/binary>>, Session#session{buffer = <<>>}).

messages(Bytes, Session) ->
    try epgsql_backend:message(Bytes) of
        more -> {noreply, epgsql_subprotocol:idle(Session#session{buffer = Bytes})};
        {Type, Payload, Rest} ->
            case message(Type, Payload, Session) of
                {noreply, Session1} -> messages(Rest, Session1);
                {stop, _, _} = Stop -> Stop
            end
    catch
        error:{malformed, _} = Reason -> stop(Reason, Session)
    end.

message(Type, Payload, Session) ->
    try handle(Type, Payload, Session)
    catch error:{malformed, _} = Reason -> stop(Reason, Session)
    end.

stop(Reason, Session) -> {stop, Reason, flush({error, Reason}, Session)}.

%% These come at any time.
handle(?PARAMETER_STATUS, Payload, #session{parameters = Parameters} = Session) ->
    {Name, Value} = epgsql_backend:parameter_status(Payload),
    {noreply, Session#session{parameters = Parameters#{Name => Value}}};
handle(?NOTICE, Payload, Session) ->
    ok = epgsql_session:notify_async(Session, {notice, epgsql_backend:error(Payload)}),
    {noreply, Session};
handle(?NOTIFICATION, Payload, Session) ->
    {Channel, Pid, Text} = epgsql_backend:notification(Payload),
    ok = epgsql_session:notify_async(Session, {notification, Channel, Pid, Text}),
    {noreply, Session};
handle(Type, Payload, #session{handler = on_message} = Session) ->
    on_message(Type, Payload, Session);
handle(Type, Payload, Session) ->
    case epgsql_subprotocol:handle(Type, Payload, Session) of
        %% It is over: the command behind it gets the message.
        {leave, Session1} -> on_message(Type, Payload, Session1);
        Step -> Step
    end.

on_message(?READY_FOR_QUERY, Payload, #session{swallow = Count} = Session) when Count > 0 ->
    {noreply, next(Session#session{swallow = Count - 1, txstatus = epgsql_backend:ready(Payload)})};
on_message(?READY_FOR_QUERY, Payload, #session{current = #command{syncs = Syncs} = Command}
           = Session) ->
    to_command(?READY_FOR_QUERY, Payload,
               Session#session{txstatus = epgsql_backend:ready(Payload),
                               current = Command#command{syncs = max(0, Syncs - 1)}});
on_message(?COMMAND_COMPLETE, Payload, Session) ->
    to_command(?COMMAND_COMPLETE, Payload,
               Session#session{complete_status = epgsql_backend:complete(Payload)});
on_message(?ERROR, Payload, #session{current = undefined} = Session) ->
    %% Of itself: the server is stopping, or this connection has been ended by somebody.
    Reason = {shutdown, epgsql_backend:error(Payload)},
    {stop, Reason, flush({error, closed}, Session)};
on_message(?ERROR, Payload, Session) ->
    to_command(?ERROR, epgsql_backend:error(Payload), Session);
on_message(Type, Payload, Session) ->
    to_command(Type, Payload, Session).

to_command(Type, _, #session{current = undefined} = Session) ->
    stop({unexpected_message, Type, none}, Session);
to_command(Type, Payload,
           #session{current = #command{module = Module, state = State} = Command} = Session) ->
    case Module:handle_message(Type, Payload, Session, State) of
        {noaction, Session1} -> {noreply, Session1};
        {noaction, Session1, State1} -> {noreply, current(Command, State1, Session1)};
        {add_row, Row, Session1, State1} ->
            {noreply, add_row(Row, current(Command, State1, Session1))};
        {add_result, Result, Notice, Session1, State1} ->
            {noreply, add_result(Result, Notice, current(Command, State1, Session1))};
        {finish, Result, Notice, Session1} -> {noreply, finish(Result, Notice, Session1)};
        {requeue, Session1, State1} ->
            execute(Command#command{state = State1}, next(Session1));
        {sync_required, Response} ->
            {noreply, skip(finish(Response, Response, Session))};
        {stop, Reason, Response, Session1} ->
            {stop, Reason, flush({error, closed}, finish(Response, Response, Session1))};
        unknown -> stop({unexpected_message, Type, Module}, Session)
    end.

current(Command, State, Session) -> Session#session{current = Command#command{state = State}}.

add_row(Row, #session{current = #command{reply_to = {incremental, Pid, Ref}}} = Session) ->
    Pid ! {self(), Ref, {data, Row}},
    Session;
add_row(_, #session{current = #command{reply_to = discard}} = Session) -> Session;
add_row(Row, #session{rows = Rows} = Session) -> Session#session{rows = [Row | Rows]}.

add_result(_, Notice, #session{current = #command{reply_to = {incremental, Pid, Ref}}} = Session) ->
    Pid ! {self(), Ref, Notice},
    Session#session{rows = []};
add_result(Result, _, #session{results = Results} = Session) ->
    Session#session{rows = [], results = [Result | Results]}.

%% --- answers ------------------------------------------------------------------------------------

finish(Result, Notice, #session{current = Command} = Session) ->
    next(answer(Command, Result, Notice, Session)).

answer(#command{reply_to = ReplyTo, timer = Timer}, Result, Notice, Session) ->
    _ = Timer =/= undefined andalso erlang:cancel_timer(Timer),
    reply(ReplyTo, Result, Notice, Session).

reply({call, From}, Result, _, Session) -> gen_server:reply(From, Result), Session;
reply({cast, Pid, Ref}, Result, _, Session) -> Pid ! {self(), Ref, Result}, Session;
reply({incremental, Pid, Ref}, _, Notice, Session) -> Pid ! {self(), Ref, Notice}, Session;
reply(direct, Result, _, Session) -> Session#session{reply = {reply, Result}};
reply(discard, _, _, Session) -> Session.

%% While a ReadyForQuery is to be swallowed, nobody is `current' who could take it for his.
next(#session{swallow = Swallow} = Session) when Swallow > 0 ->
    Session#session{current = undefined, rows = [], results = []};
next(#session{queue = Queue} = Session) ->
    {Current, Rest} = case queue:out(Queue) of
                          {empty, _} -> {undefined, Queue};
                          {{value, Command}, More} -> {Command, More}
                      end,
    Session#session{current = Current, queue = Rest, rows = [], results = []}.

skip(#session{current = undefined} = Session) -> Session#session{sync_required = true};
skip(#session{current = #command{module = epgsql_cmd_sync}} = Session) -> Session;
skip(#session{current = #command{syncs = 0}} = Session) ->
    Error = {error, sync_required},
    skip(finish(Error, Error, Session));
skip(#session{current = #command{syncs = Syncs}} = Session) ->
    Error = {error, sync_required},
    finish(Error, Error, Session#session{swallow = Syncs}).

%% The connection ends: everybody who waits is told.
-spec flush(any(), session()) -> session().
flush(Error, #session{current = undefined, queue = Queue} = Session) ->
    case queue:is_empty(Queue) of
        true -> Session;
        false -> flush(Error, next(Session#session{swallow = 0}))
    end;
flush(Error, Session) ->
    flush(Error, finish(Error, Error, Session#session{swallow = 0})).

%% --- time-outs ----------------------------------------------------------------------------------

%% The time of a request is over: who waits is told, and what still comes is thrown away. `cancel'
%% if it is the one that the server is at, `none' if it isn't there any more.
-spec expire(reference(), session()) -> {cancel | queued | none, session()}.
expire(Id, #session{current = #command{id = Id} = Command} = Session) ->
    {cancel, Session#session{current = discard(Command, Session), rows = []}};
expire(Id, #session{queue = Queue} = Session) ->
    case lists:keyfind(Id, #command.id, queue:to_list(Queue)) of
        false -> {none, Session};
        Command ->
            Discarded = discard(Command, Session),
            {queued, Session#session{queue = queue:from_list(
                lists:keyreplace(Id, #command.id, queue:to_list(Queue), Discarded))}}
    end.

discard(Command, Session) ->
    Error = {error, timeout},
    _ = answer(Command, Error, Error, Session),
    Command#command{reply_to = discard, timer = undefined}.

%% Is this request, whose time is over, still the one that the server is at?
-spec expired(reference(), session()) -> boolean().
expired(Id, #session{current = #command{id = Id}}) -> true;
expired(_, _) -> false.
