%% A connection that one process holds: it writes to the socket and reads from it itself, so that
%% no process is in the way of a query.
%%
%% The session is a term that goes in and comes out (`run/4'), or lies in the holder's dictionary
%% under a handle that `epgsql' takes for a connection (`hold/1'). Calls that need a process aren't
%% there: COPY FROM STDIN, replication, and the calls of `epgsqla' and `epgsqli'.
%%
%% After a time-out the holder, or the next holder of the session, cancels the request at the server
%% before it sends another one, so that the cancel can't end a later request.
-module(epgsql_held).

-include("epgsql_session.hrl").

-export([open/1, run/4, go_on/6, discard/1, give_away/2, shared/1, is_clean/1, is_alive/1, settle/2,
         hold/1, let_go/1, command/3, commands/2, call/2, fold/5]).

-export_type([handle/0]).

-type handle() :: {epgsql_held, reference(), default | timeout()}.
-type session() :: #session{}.

%% How long a server may take to answer a cancelled COPY.
-define(CANCEL_GRACE_MS, 5000).
-define(CONNECT_MS, 5000).
%% What one read takes.
-define(BUFFER_MIN, 16384).
-define(BUFFER_MAX, 262144).

%% --- the session as a term ----------------------------------------------------------------------

-spec open(epgsql:connect_opts_map()) -> {ok, session()} | {error, epgsql:connect_error()}.
open(Given) ->
    Options = epgsql_cmd_connect:opts_hide_password(Given),
    ok = epgsql_transport:prepare(Options),
    Deadline = epgsql_transport:deadline(maps:get(timeout, Options, ?CONNECT_MS)),
    New = (epgsql_session:new())#session{is_held = true},
    case request(epgsql_cmd_connect, Options, Deadline, New) of
        {connected, Session} -> {ok, Session};
        {{error, _} = Error, Session} -> _ = close(Session), Error
    end.

%% One request. The session of a connection that is lost answers every request by `closed'.
-spec run(epgsql_command:command(), any(), default | timeout(), session()) -> {any(), session()}.
run(Command, Arguments, Timeout, Session) ->
    with_statements(Session, fun() ->
        ready(Timeout, Session, fun(Deadline, Ready) ->
            request(Command, Arguments, Deadline, Ready)
        end)
    end).

%% A request of `epgsql_known', of which this has been read.
-spec go_on(epgsql_command:command(), State :: any(), Size :: non_neg_integer(),
            {ok, binary()} | {error, any()}, epgsql_transport:deadline(), session()) ->
          {any(), session()}.
go_on(Command, State, Size, Received, Deadline, Session) ->
    with_statements(Session, fun() ->
        Ref = make_ref(),
        Asked = epgsql_machine:asked({direct, Ref}, Command, State, Size, Session),
        {Answer, After} = await(Ref, Deadline, timely(Ref, received(Received, Asked))),
        {Answer, small(After)}
    end).

with_statements(#session{statements = Statements} = Session, Fun) ->
    try Fun()
    catch
        Class:Reason:Stack ->
            %% They end with their owner, and so does the socket.
            case Statements =:= none orelse epgsql_statements:is_there(Statements) of
                true -> erlang:raise(Class, Reason, Stack);
                false -> {{error, closed}, close(Session)}
            end
    end.

%% Does what needs a connection on which nothing is under way.
ready(Timeout, Session, Fun) ->
    Deadline = deadline(Timeout, Session),
    case cancelled(Deadline, Session) of
        #session{transport = undefined} = Closed -> {{error, closed}, Closed};
        Ready ->
            {Answer, Session1} = Fun(Deadline, Ready),
            {Answer, small(Session1)}
    end.

deadline(default, #session{connect_opts = #{call_timeout := Timeout}}) ->
    epgsql_transport:deadline(Timeout);
deadline(default, _) -> infinity;
deadline(Timeout, _) -> epgsql_transport:deadline(Timeout).

request(Command, Arguments, Deadline, Session) ->
    Ref = make_ref(),
    await(Ref, Deadline, asked(Ref, Command, Arguments, Session)).

asked(Ref, Command, Arguments, Session) ->
    stepped(epgsql_machine:command({direct, Ref}, Command, Arguments, infinity, Session)).

await(Ref, _, #session{replies = [{Ref, Answer}]} = Session) ->
    {Answer, Session#session{replies = []}};
await(Ref, Deadline, #session{replies = Replies} = Session) ->
    case lists:keytake(Ref, 1, Replies) of
        {value, {_, Answer}, Left} -> {Answer, Session#session{replies = Left}};
        false -> await(Ref, Deadline, timely(Ref, read(due(Deadline, Session), Session)))
    end.

%% Each host has a time of its own.
due(_, #session{current = #command{module = epgsql_cmd_connect, state = State}}) ->
    epgsql_cmd_connect:until(State);
due(Deadline, _) -> Deadline.

timely(Ref, {timeout, Session}) -> expire(Ref, Session);
timely(_, {_, Session}) -> Session.

read(_, #session{transport = undefined} = Session) ->
    {closed, epgsql_machine:flush({error, closed}, Session)};
read(Deadline, #session{transport = Transport} = Session) ->
    received(epgsql_transport:recv(Transport, epgsql_transport:milliseconds(Deadline)), Session).

received({ok, Bytes}, Session) -> {data, data(Bytes, enlarged(byte_size(Bytes), Session))};
received({error, timeout}, Session) -> {timeout, Session};
received({error, closed}, Session) -> {closed, lost(sock_closed, Session)};
received({error, Reason}, Session) -> {closed, lost({sock_error, Reason}, Session)}.

%% As long as reads fill it, the buffer grows; the next request begins with a small one.
enlarged(Bytes, #session{buffer_size = Size} = Session) when Bytes < Size; Size >= ?BUFFER_MAX ->
    Session;
enlarged(_, #session{transport = Transport, buffer_size = Size} = Session) ->
    Session#session{buffer_size = epgsql_transport:buffer(Transport, 4 * Size)}.

small(#session{buffer_size = ?BUFFER_MIN} = Session) -> Session;
small(#session{transport = undefined} = Session) -> Session;
small(#session{transport = Transport} = Session) ->
    Session#session{buffer_size = epgsql_transport:buffer(Transport, default)}.

data(Bytes, Session) ->
    try stepped(epgsql_machine:data(Bytes, Session))
    catch Class:Reason:Stack ->
        _ = close(Session),
        erlang:raise(Class, Reason, Stack)
    end.

stepped({noreply, Session}) -> Session;
stepped({stop, _, Session}) -> close(Session).

lost(Reason, Session) -> stepped(epgsql_machine:lost(Reason, Session)).

expire(Ref, Session) ->
    case epgsql_machine:expire(Ref, Session) of
        {cancel, #session{current = #command{module = epgsql_cmd_connect}} = Session1} ->
            close(Session1);
        {step, Step} -> stepped(Step);
        {cancel, Session1} -> Session1#session{is_to_cancel = true};
        {_, Session1} -> Session1
    end.

%% What was under way when its time was over ends first.
cancelled(_, #session{is_to_cancel = false} = Session) -> Session;
cancelled(Deadline, #session{backend = {Pid, Key}, connect_opts = Options} = Session) ->
    Ms = min(epgsql_transport:milliseconds(Deadline), ?CANCEL_GRACE_MS),
    _ = epgsql_transport:cancel(Options#{timeout => Ms}, Pid, Key),
    settle_until(epgsql_transport:deadline(Ms), Session#session{is_to_cancel = false}).

close(#session{transport = undefined} = Session) -> Session;
close(#session{transport = Transport} = Session) ->
    _ = epgsql_transport:close(Transport),
    Session#session{transport = undefined}.

%% With all that belongs to it.
-spec discard(session()) -> ok.
discard(#session{statements = Statements} = Session) ->
    _ = close(Session),
    _ = [epgsql_statements:delete(Statements) || Statements =/= none],
    ok.

%% Its socket, which anybody may use, and its statements end with their owner, which is another
%% process now.
-spec give_away(session(), pid()) -> ok.
give_away(#session{transport = Transport, statements = Statements}, Pid) ->
    _ = [ok = epgsql_statements:give_away(Statements, Pid) || Statements =/= none],
    ok = epgsql_transport:own(Transport, Pid).

%% What is large in a session, and the same in most of a pool.
-spec shared(session()) -> {epgsql_binary:codec() | undefined, map(), map()}.
shared(#session{codec = Codec, connect_opts = Options, parameters = Parameters}) ->
    {Codec, Options, Parameters}.

%% Is nothing under way, neither a request nor a transaction?
-spec is_clean(session()) -> boolean().
is_clean(#session{transport = Transport, txstatus = $I, handler = on_message, buffer = <<>>,
                  sync_required = false, replies = []} = Session) ->
    Transport =/= undefined andalso is_settled(Session);
is_clean(_) ->
    false.

is_settled(#session{current = undefined, queue = Queue, parked = Parked, swallow = 0}) ->
    queue:is_empty(Queue) andalso queue:is_empty(Parked);
is_settled(_) -> false.

%% After a time-out: asks the server to stop, and throws away what still comes. Is the connection
%% good for more?
-spec settle(timeout(), session()) -> {boolean(), session()}.
settle(Timeout, Session) ->
    Settled = cancelled(epgsql_transport:deadline(Timeout), Session),
    {is_clean(Settled), Settled}.

settle_until(Deadline, #session{transport = Transport} = Session) ->
    case is_settled(Session) orelse Transport =:= undefined of
        true -> Session#session{replies = []};
        false ->
            case read(Deadline, Session) of
                {timeout, Session1} -> close(Session1);
                {_, Session1} -> settle_until(Deadline, Session1)
            end
    end.

%% A look at the socket, without asking the server: has it been closed? What the server said
%% meanwhile (a parameter, a notification) is read.
-spec is_alive(session()) -> {boolean(), session()}.
is_alive(Session) ->
    case read(erlang:monotonic_time(millisecond), Session) of
        {timeout, Session1} -> {true, Session1};
        {data, #session{transport = Transport} = Session1} -> {Transport =/= undefined, Session1};
        {closed, Session1} -> {false, Session1}
    end.

%% --- the session in the holder's dictionary -----------------------------------------------------

-spec hold(session()) -> handle().
hold(Session) ->
    Ref = make_ref(),
    undefined = put({?MODULE, Ref}, Session),
    {epgsql_held, Ref, default}.

-spec let_go(handle()) -> session() | undefined.
let_go({epgsql_held, Ref, _}) -> erase({?MODULE, Ref}).

with_session({epgsql_held, Ref, _}, Fun) ->
    case get({?MODULE, Ref}) of
        undefined -> {error, not_held};
        Session ->
            {Answer, Session1} = Fun(Session),
            _ = put({?MODULE, Ref}, Session1),
            Answer
    end.

-spec command(handle(), epgsql_command:command(), any()) -> any().
command({epgsql_held, _, Timeout} = Handle, Command, Arguments) ->
    case lists:member(Command, [epgsql_cmd_copy_from_stdin, epgsql_cmd_start_replication]) of
        true -> {error, {needs_a_process, Command}};
        false ->
            with_session(Handle, fun(Session) -> run(Command, Arguments, Timeout, Session) end)
    end.

%% All are sent before the first is answered, within one time.
-spec commands(handle(), [{epgsql_command:command(), any()}]) ->
          [any()] | {error, not_held | closed}.
commands({epgsql_held, _, Timeout} = Handle, Requests) ->
    with_ready(Handle, Timeout, fun(Deadline, Session) ->
        {Refs, Sent} = lists:mapfoldl(fun({Command, Arguments}, Acc) ->
            Ref = make_ref(),
            {Ref, asked(Ref, Command, Arguments, Acc)}
        end, Session, Requests),
        lists:mapfoldl(fun(Ref, Acc) -> await(Ref, Deadline, Acc) end, Sent, Refs)
    end).

with_ready(Handle, Timeout, Fun) ->
    with_session(Handle, fun(Session) -> ready(Timeout, Session, Fun) end).

%% What the process of a connection is asked without the server.
-spec call(handle(), any()) -> any().
call(Handle, Request) ->
    with_session(Handle, fun(Session) -> called(Request, Session) end).

called({get_parameter, Name}, Session) ->
    {{ok, epgsql_session:get_parameter(Name, Session)}, Session};
called({set_async, Receiver}, #session{async = Before} = Session) ->
    {{ok, Before}, Session#session{async = Receiver}};
called(get_cmd_status, #session{complete_status = Status} = Session) ->
    {{ok, Status}, Session};
called(get_backend_pid, #session{backend = {Pid, _}} = Session) ->
    {Pid, Session};
called(activate, Session) ->
    {ok, Session};
called(close, Session) ->
    {ok, close(Session)};
called(_, Session) ->
    {{error, needs_a_process}, Session}.

%% --- COPY TO STDOUT -----------------------------------------------------------------------------

%% As `epgsql_copy_stream' does it, without a process between: the server waits for the fun.
-spec fold(handle(), epgsql:sql_query(), epgsql_cmd_copy_to_stdout:format(),
           fun(([epgsql_copy_out:row()], Acc) -> Acc), Acc) ->
          {ok, Count :: non_neg_integer(), Acc} | {error, any()}.
fold({epgsql_held, _, Timeout} = Handle, Sql, Format, Fun, Acc) ->
    with_ready(Handle, Timeout, fun(_, Session) ->
        DataRef = make_ref(),
        Ref = make_ref(),
        Begun = asked(Ref, epgsql_cmd_copy_to_stdout, {Sql, Format, direct, DataRef}, Session),
        rows({Handle, Ref, DataRef, Timeout, Fun}, Acc, none, Begun)
    end).

rows({_, Ref, DataRef, Timeout, _} = Stream, Acc, State, #session{replies = Replies} = Session) ->
    Rest = Session#session{replies = []},
    {Data, Answers} = lists:partition(fun({Its, _}) -> Its =:= DataRef end, Replies),
    case taken(lists:reverse(Data), Acc, State, Stream, Rest) of
        {failed, Error, Session1} -> {Error, Session1};
        {Acc1, State1} ->
            case Answers of
                [{Ref, {ok, Count}}] -> {{ok, Count, Acc1}, Rest};
                [{Ref, {error, _} = Error}] -> {Error, Rest};
                [] ->
                    case read(deadline(Timeout, Session), Rest) of
                        {timeout, Session1} -> {{error, timeout}, stop(DataRef, Session1)};
                        {_, Session1} -> rows(Stream, Acc1, State1, Session1)
                    end
            end
    end.

taken([], Acc, State, _, _) -> {Acc, State};
taken([{_, {copy_begin, State}} | Data], Acc, _, Stream, Session) ->
    taken(Data, Acc, State, Stream, Session);
taken([{_, {copy_data, Messages}} | Data], Acc, State, {Handle, _, DataRef, _, Fun} = Stream,
      Session) ->
    try
        case epgsql_copy_out:rows(Messages, State) of
            {[], State1} -> {Acc, State1};
            {Rows, State1} -> {Fun(Rows, Acc), State1}
        end
    of
        {Acc1, State2} -> taken(Data, Acc1, State2, Stream, Session)
    catch
        error:{malformed, _} = Reason -> {failed, {error, Reason}, stop(DataRef, Session)};
        Class:Reason:Stack ->
            {epgsql_held, Ref, _} = Handle,
            _ = put({?MODULE, Ref}, stop(DataRef, Session)),
            erlang:raise(Class, Reason, Stack)
    end.

%% Until the server has stopped, so that the connection is good for more.
stop(DataRef, Session) ->
    case epgsql_subprotocol:copy_stop(DataRef, Session) of
        {_, _, Session1} ->
            cancelled(epgsql_transport:deadline(?CANCEL_GRACE_MS),
                      Session1#session{is_to_cancel = true})
    end.
