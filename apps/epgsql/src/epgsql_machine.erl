%% How requests and answers go through a connection.
%%
%% A request is sent when it comes, also while answers to others are awaited (pipelining); answers
%% come in the order of requests. `current' is the request whose answers are coming, `queue' has the
%% later ones.
%%
%% After an error in a request without a Sync the server ignores everything up to the next Sync
%% ("Extended Query"). So does this: later requests are answered by `sync_required', up to and with
%% the first that carries a Sync itself, whose ReadyForQuery is swallowed; requests after that one
%% are answered as ever. If none carried a Sync, requests are refused until `sync'.
%%
%% A command that must hear of the server before it can send the rest of its request holds up the
%% later ones (`is_held_up'): they are parked, and sent in their order when it has sent the rest. So
%% are those that come while a cancel for another one is on its way, since a cancel can't name its
%% request; and those after more bytes than a socket takes at once: if both sides waited for room to
%% write, neither would read. At most `parked_max' are; those beyond it are `overloaded'.
%%
%% A message that the protocol doesn't allow ends the connection with `{malformed, What}' or
%% `{unexpected_message, Type, Command}', which callers get as errors.
-module(epgsql_machine).

-include("epgsql_session.hrl").
-include("protocol.hrl").

-export([command/5, asked/5, data/2, flush/2, lost/2, expire/2, expired/2, cancelled/2]).

-export_type([step/0]).

%% Bytes that were sent and not answered yet, when more requests wait.
-define(UNANSWERED_MAX, 32768).
%% Requests that wait to be sent, unless the connection's `parked_max' says otherwise.
-define(PARKED_MAX, 100000).

-type session() :: #session{}.
-type step() :: {noreply, session()} | {stop, Reason :: any(), session()}.

%% A new request. `Timeout' is for its answer.
-spec command(epgsql_session:reply_to(), epgsql_command:command(), any(), timeout(), session()) ->
          step().
command(ReplyTo, Module, Arguments, Timeout, Session) ->
    Command = timed(Timeout, #command{module = Module, state = Module:init(Arguments),
                                      reply_to = ReplyTo}),
    accept(Command, Session).

%% A request that has been written already, to a connection on which nothing else was under way.
-spec asked(epgsql_session:reply_to(), epgsql_command:command(), State :: any(),
            Size :: non_neg_integer(), session()) -> session().
asked(ReplyTo, Module, State, Size, Session) ->
    enqueue(timed(infinity, #command{module = Module, state = State, reply_to = ReplyTo, syncs = 1,
                                     size = Size}),
            Session#session{unanswered = Size}).

accept(Command, #session{is_held_up = IsHeldUp, cancelling = Cancelling, unanswered = Unanswered,
                         parked = Parked, parked_count = Count, connect_opts = Options} = Session)
  when IsHeldUp; Cancelling =/= []; Unanswered > ?UNANSWERED_MAX ->
    case maps:get(parked_max, Options, ?PARKED_MAX) of
        Max when Count >= Max ->
            Error = {error, overloaded},
            {noreply, answer(Command, Error, Error, Session)};
        _ -> {noreply, Session#session{parked = queue:in(Command, Parked),
                                       parked_count = Count + 1}}
    end;
accept(Command, Session) ->
    execute(Command, Session).

%% Those that were parked and may go on.
unpark(#session{is_held_up = false, cancelling = [], unanswered = Unanswered, parked = Parked,
                parked_count = Count} = Session) when Unanswered =< ?UNANSWERED_MAX ->
    case queue:out(Parked) of
        {empty, _} -> {noreply, Session};
        {{value, Command}, Left} ->
            case execute(Command, Session#session{parked = Left, parked_count = Count - 1}) of
                {noreply, Session1} -> unpark(Session1);
                Stop -> Stop
            end
    end;
unpark(Session) ->
    {noreply, Session}.

%% Who asks by `direct' looks after the time itself.
timed(infinity, #command{reply_to = {direct, Ref}} = Command) -> Command#command{id = Ref};
timed(infinity, Command) -> Command;
timed(Timeout, Command) ->
    Id = make_ref(),
    Command#command{id = Id, timer = erlang:start_timer(Timeout, self(), {expire, Id})}.

%% Each host has a time of its own.
retimed(#command{module = epgsql_cmd_connect, state = State, timer = Timer} = Command)
  when Timer =/= undefined ->
    _ = erlang:cancel_timer(Timer),
    timed(epgsql_transport:milliseconds(epgsql_cmd_connect:until(State)), Command);
retimed(Command) -> Command.

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
            {noreply, enqueue(retimed(Command#command{state = State1}), Session1)};
        {send, Type, Payload, Session1, State1} ->
            sent(Command#command{state = State1}, [{Type, Payload}], Session1);
        {send_multi, Messages, Session1, State1} ->
            sent(Command#command{state = State1}, Messages, Session1);
        {finish, Result, Notice, Session1} ->
            {noreply, answer(Command, Result, Notice, Session1)};
        {stop, Reason, Response, Session1} ->
            {stop, Reason, answer(Command, Response, Response, Session1)}
    end.

%% A socket that can't be written to says so when it is read, too; then the queue is answered.
sent(#command{syncs = Syncs} = Command, Messages, #session{unanswered = Unanswered} = Session) ->
    Data = epgsql_frontend:encode(Messages),
    Size = iolist_size(Data),
    _ = epgsql_session:send_data(Session, Data, Size),
    New = length([Type || {Type, _} <- Messages, Type =:= ?SYNC orelse Type =:= ?SIMPLEQUERY]),
    {noreply, enqueue(Command#command{syncs = Syncs + New, size = Size},
                      Session#session{unanswered = Unanswered + Size})}.

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

messages(<<?DATA_ROW, _/binary>> = Bytes, #session{handler = on_message} = Session) ->
    try rows(Bytes, Session) of
        {_, Same} when byte_size(Same) =:= byte_size(Bytes) -> next_message(Bytes, Session);
        {Rows, Rest} -> messages(Rest, add_rows(Rows, Session))
    catch
        error:{malformed, _} = Reason -> stop(Reason, Session)
    end;
messages(Bytes, Session) ->
    next_message(Bytes, Session).

%% Before those that are there already, last first.
rows(Bytes, #session{current = #command{module = Module, state = State}, rows = Rows}) ->
    case erlang:function_exported(Module, row_decoder, 1) andalso Module:row_decoder(State) of
        None when None =:= false; None =:= undefined -> {Rows, Bytes};
        Decoder -> epgsql_wire:decode_rows(Bytes, Decoder, Rows)
    end;
rows(Bytes, #session{rows = Rows}) ->
    {Rows, Bytes}.

%% Those that `epgsqli' has sent aren't in the session, so these are all new.
add_rows(Rows, #session{current = #command{reply_to = {incremental, Pid, Ref}}} = Session) ->
    lists:foreach(fun(Row) -> Pid ! {self(), Ref, {data, Row}} end, lists:reverse(Rows)),
    Session;
add_rows(_, #session{current = #command{reply_to = discard}} = Session) -> Session;
add_rows(Rows, Session) -> Session#session{rows = Rows}.

next_message(Bytes, #session{transport = Transport} = Session) ->
    try epgsql_backend:message(Bytes) of
        more -> {noreply, epgsql_subprotocol:idle(Session#session{buffer = Bytes})};
        {Type, Payload, Rest} ->
            case message(Type, Payload, Session) of
                {noreply, #session{transport = Transport} = Session1} -> messages(Rest, Session1);
                %% Another server is asked now: what is left is none of its bytes.
                {noreply, Session1} -> {noreply, Session1};
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
on_message(?COMMAND_COMPLETE, Payload, #session{statements = Statements} = Session) ->
    Complete = epgsql_backend:complete(Payload),
    _ = [epgsql_statements:clear(Statements)
         || Statements =/= none, Complete =:= discard orelse Complete =:= deallocate],
    to_command(?COMMAND_COMPLETE, Payload, Session#session{complete_status = Complete});
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
        {finish, Result, Notice, Session1} -> unpark(finish(Result, Notice, Session1));
        {requeue, #session{is_held_up = true} = Session1, _}
          when Command#command.reply_to =:= discard ->
            %% Its time is over, and the rest of it hasn't been sent.
            unpark(next(Session1#session{is_held_up = false}));
        {requeue, Session1, State1} ->
            case execute(Command#command{state = State1}, next(Session1)) of
                {noreply, Session2} -> unpark(Session2);
                Stop -> Stop
            end;
        {sync_required, Response} ->
            unpark(skip(finish(Response, Response, Session)));
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
reply({direct, Ref}, Result, _, #session{replies = Replies} = Session) ->
    Session#session{replies = [{Ref, Result} | Replies]};
reply(discard, _, _, Session) -> Session.

%% While a ReadyForQuery is to be swallowed, nobody is `current' who could take it for his.
next(#session{current = #command{size = Size}, unanswered = Unanswered} = Session) ->
    next(Session#session{current = undefined, unanswered = Unanswered - Size});
next(#session{swallow = Swallow} = Session) when Swallow > 0 ->
    Session#session{rows = [], results = []};
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
flush(Error, #session{queue = Queue, parked = Parked} = Session) ->
    flush_all(Error, Session#session{queue = queue:join(Queue, Parked), parked = queue:new(),
                                     parked_count = 0}).

flush_all(Error, #session{current = undefined, queue = Queue} = Session) ->
    case queue:is_empty(Queue) of
        true -> Session;
        false -> flush_all(Error, next(Session#session{swallow = 0}))
    end;
flush_all(Error, Session) ->
    flush_all(Error, finish(Error, Error, Session#session{swallow = 0})).

%% The socket is of no use any more.
-spec lost(Reason :: any(), session()) -> step().
lost(Reason, Session) ->
    case next_host(Session) of
        none -> stop(Reason, Session);
        Step -> Step
    end.

next_host(#session{current = #command{module = epgsql_cmd_connect, state = State} = Command}
          = Session) ->
    case epgsql_cmd_connect:left(Session, State) of
        {requeue, Session1, State1} -> execute(Command#command{state = State1}, next(Session1));
        none -> none
    end;
next_host(_) ->
    none.

%% --- time-outs ----------------------------------------------------------------------------------

%% The time of a request is over: who waits is told, and what still comes is thrown away. `cancel'
%% if it is the one that the server is at, `none' if it isn't there any more, `step' if another
%% server is asked.
-spec expire(reference(), session()) -> {cancel | queued | none, session()} | {step, step()}.
expire(Id, #session{current = #command{id = Id} = Command} = Session) ->
    case next_host(Session) of
        none ->
            {Discarded, Session1} = discard(Command, Session),
            {cancel, Session1#session{current = Discarded, rows = []}};
        Step -> {step, Step}
    end;
expire(Id, #session{queue = Queue, parked = Parked} = Session) ->
    case {take(Id, Queue), take(Id, Parked)} of
        {none, none} -> {none, Session};
        {none, {Command, Left}} ->
            {_, Session1} = discard(Command, Session),
            {queued, Session1#session{parked = queue:from_list(Left), parked_count = length(Left)}};
        {{Command, _}, _} ->
            {Discarded, Session1} = discard(Command, Session),
            {queued, Session1#session{queue = queue:from_list(
                lists:keyreplace(Id, #command.id, queue:to_list(Queue), Discarded))}}
    end.

take(Id, Queue) ->
    case lists:keytake(Id, #command.id, queue:to_list(Queue)) of
        {value, Command, Left} -> {Command, Left};
        false -> none
    end.

discard(Command, Session) ->
    Error = {error, timeout},
    {Command#command{reply_to = discard, timer = undefined},
     answer(Command, Error, Error, Session)}.

%% The server has been asked, or couldn't be.
-spec cancelled(reference(), session()) -> step().
cancelled(Monitor, #session{cancelling = Cancelling} = Session) ->
    unpark(Session#session{cancelling = lists:delete(Monitor, Cancelling)}).

%% Is this request, whose time is over, still the one that the server is at?
-spec expired(reference(), session()) -> boolean().
expired(Id, #session{current = #command{id = Id}}) -> true;
expired(_, _) -> false.
