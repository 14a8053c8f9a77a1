%% The process of a connection, and, under the names of epgsql 4.8, what applications' commands and
%% codecs may ask of its state.
%%
%% It is linked to who has started it. It holds the socket and an `epgsql_session', moves it by
%% `epgsql_machine', and keeps its mailbox bounded: a socket hands over some reads and then waits.
%% A request whose time is over is cancelled at the server; if that doesn't answer either, the
%% connection ends.
-module(epgsql_sock).
-behaviour(gen_server).

-include("epgsql_session.hrl").
-include("epgsql_subprotocol.hrl").

-export([start_link/0, close/1, sync_command/3, async_command/4, get_parameter/2,
         set_notice_receiver/2, get_cmd_status/1, cancel/1, copy_send_rows/3,
         standby_status_update/3, get_backend_pid/1, activate/1, copy_taken/2, copy_stop/2]).
-export([set_net_socket/3, set_attr/3, get_codec/1, get_rows/1, get_results/1, notify/2, send/2,
         send/3, send_multi/2, get_parameter_internal/2, get_subproto_state/1,
         set_packet_handler/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).
-ifdef(TEST).
%% What epgsql 4.8's own suite looks into.
-export([state_to_map/1]).
-endif.

-export_type([pg_sock/0, transport/0, error/0]).

%% How long a server may take to answer a cancelled request.
-define(CANCEL_GRACE_MS, 5000).
%% For all of connecting, unless `timeout' says otherwise.
-define(CONNECT_MS, 5000).

-type pg_sock() :: epgsql_session:session().
-type transport() :: epgsql_session:reply_to().
-type error() :: {error, sync_required | closed | sock_closed | timeout | overloaded
                       | {sock_error, any()}
                       | {malformed, epgsql_backend:malformed()}}.

%% --- for clients --------------------------------------------------------------------------------

-spec start_link() -> {ok, pid()}.
start_link() ->
    {ok, _} = gen_server:start_link(?MODULE, [], []).

-spec close(pid()) -> ok.
close(C) -> gen_server:cast(C, stop).

-spec sync_command(epgsql:connection(), epgsql_command:command(), any()) -> any().
sync_command({epgsql_held, _, _} = Handle, Command, Arguments) ->
    epgsql_held:command(Handle, Command, Arguments);
sync_command({epgsql_timeout, C, Timeout}, Command, Arguments) ->
    gen_server:call(C, {command, Command, Arguments, Timeout}, infinity);
sync_command(C, Command, Arguments) ->
    gen_server:call(C, {command, Command, Arguments, default}, infinity).

-spec async_command(epgsql:connection(), cast | incremental, epgsql_command:command(), any()) ->
          reference().
async_command({epgsql_timeout, C, Timeout}, Way, Command, Arguments) ->
    async_command(C, Way, Command, Arguments, Timeout);
async_command(C, Way, Command, Arguments) ->
    async_command(C, Way, Command, Arguments, default).

async_command(C, Way, Command, Arguments, Timeout) when Way =:= cast; Way =:= incremental ->
    Ref = make_ref(),
    ok = gen_server:cast(C, {command, {Way, self(), Ref}, Command, Arguments, Timeout}),
    Ref.

-spec get_parameter(epgsql:connection(), iodata()) -> {ok, binary() | undefined}.
get_parameter(C, Name) -> call(C, {get_parameter, iolist_to_binary(Name)}).

-spec set_notice_receiver(epgsql:connection(), pid() | atom()) -> {ok, pid() | atom()}.
set_notice_receiver(C, Receiver) when is_pid(Receiver); is_atom(Receiver) ->
    call(C, {set_async, Receiver}).

-spec get_cmd_status(epgsql:connection()) -> {ok, undefined | epgsql_backend:complete()}.
get_cmd_status(C) -> call(C, get_cmd_status).

-spec cancel(epgsql:connection()) -> ok.
cancel({epgsql_held, _, _}) -> ok;
cancel({epgsql_timeout, C, _}) -> cancel(C);
cancel(C) -> gen_server:cast(C, cancel).

-spec copy_send_rows(epgsql:connection(), [tuple() | [any()]], timeout()) -> ok | {error, any()}.
copy_send_rows({epgsql_held, _, _}, _, _) -> {error, not_in_copy_mode};
copy_send_rows({epgsql_timeout, C, _}, Rows, Timeout) -> copy_send_rows(C, Rows, Timeout);
copy_send_rows(C, Rows, Timeout) ->
    gen_server:call(C, {copy_send_rows, Rows, Timeout}, infinity).

-spec standby_status_update(epgsql:connection(), integer(), integer()) ->
          ok | {error, not_in_replication_mode}.
standby_status_update(C, Flushed, Applied) ->
    call(C, {standby_status_update, Flushed, Applied}).

-spec get_backend_pid(epgsql:connection()) -> integer().
get_backend_pid(C) -> call(C, get_backend_pid).

-spec activate(epgsql:connection()) -> ok | {error, any()}.
activate(C) -> call(C, activate).

%% For `epgsql_copy_stream'.
-spec copy_taken(pid(), reference()) -> ok.
copy_taken(C, Ref) -> gen_server:cast(C, {copy_taken, Ref}).

-spec copy_stop(pid(), reference()) -> ok.
copy_stop(C, Ref) -> gen_server:cast(C, {copy_stop, Ref}).

call({epgsql_held, _, _} = Handle, Request) -> epgsql_held:call(Handle, Request);
call({epgsql_timeout, C, _}, Request) -> call(C, Request);
call(C, Request) -> gen_server:call(C, Request, infinity).

%% --- for commands and codecs of applications ----------------------------------------------------

-spec set_net_socket(gen_tcp | ssl, any(), pg_sock()) -> pg_sock().
set_net_socket(Module, Socket, Session) ->
    New = epgsql_session:set_attr(transport, {Module, Socket}, Session),
    ok = epgsql_session:activate(New),
    New.

-spec set_attr(epgsql_session:attribute(), any(), pg_sock()) -> pg_sock().
set_attr(Attribute, Value, Session) -> epgsql_session:set_attr(Attribute, Value, Session).

-spec get_codec(pg_sock()) -> epgsql_binary:codec().
get_codec(Session) -> epgsql_session:get_codec(Session).

-spec get_rows(pg_sock()) -> [tuple()].
get_rows(Session) -> epgsql_session:get_rows(Session).

-spec get_results(pg_sock()) -> [any()].
get_results(Session) -> epgsql_session:get_results(Session).

-spec notify(pg_sock(), any()) -> pg_sock().
notify(Session, Notice) -> epgsql_session:notify(Session, Notice).

-spec send(pg_sock(), iodata()) -> ok | {error, any()}.
send(Session, Payload) -> epgsql_session:send(Session, Payload).

-spec send(pg_sock(), epgsql_wire:packet_type(), iodata()) -> ok | {error, any()}.
send(Session, Type, Payload) -> epgsql_session:send(Session, Type, Payload).

-spec send_multi(pg_sock(), [epgsql_frontend:message()]) -> ok | {error, any()}.
send_multi(Session, Messages) ->
    Data = epgsql_frontend:encode(Messages),
    epgsql_session:send_data(Session, Data, iolist_size(Data)).

-spec get_parameter_internal(binary(), pg_sock()) -> binary() | undefined.
get_parameter_internal(Name, Session) -> epgsql_session:get_parameter(Name, Session).

-spec get_subproto_state(pg_sock()) -> any().
get_subproto_state(Session) -> epgsql_session:get_subproto_state(Session).

-spec set_packet_handler(epgsql_session:handler(), pg_sock()) -> pg_sock().
set_packet_handler(Handler, Session) -> epgsql_session:set_packet_handler(Handler, Session).

%% --- the process --------------------------------------------------------------------------------

-spec init([]) -> {ok, pg_sock()}.
init([]) -> {ok, epgsql_session:new()}.

-spec handle_call(any(), gen_server:from(), pg_sock()) ->
          {reply, any(), pg_sock()} | epgsql_machine:step().
handle_call({command, Command, Arguments, Timeout}, From, Session) ->
    command({call, From}, Command, Arguments, Timeout, Session);
handle_call({get_parameter, Name}, _, Session) ->
    {reply, {ok, epgsql_session:get_parameter(Name, Session)}, Session};
handle_call({set_async, Receiver}, _, #session{async = Before} = Session) ->
    {reply, {ok, Before}, Session#session{async = Receiver}};
handle_call(get_cmd_status, _, #session{complete_status = Status} = Session) ->
    {reply, {ok, Status}, Session};
handle_call(get_backend_pid, _, #session{backend = {Pid, _}} = Session) ->
    {reply, Pid, Session};
handle_call({copy_send_rows, Rows, Timeout}, From, Session) ->
    {noreply, epgsql_copy_in:rows(Rows, From, Timeout, Session)};
handle_call({standby_status_update, Flushed, Applied}, _, Session) ->
    case epgsql_subprotocol:standby_status_update(Flushed, Applied, Session) of
        {ok, Session1} -> {reply, ok, Session1};
        {error, _} = Error -> {reply, Error, Session}
    end;
handle_call(activate, _, Session) ->
    {reply, epgsql_session:activate(Session), Session}.

-spec handle_cast(any(), pg_sock()) -> epgsql_machine:step().
handle_cast({command, ReplyTo, Command, Arguments, Timeout}, Session) ->
    command(ReplyTo, Command, Arguments, Timeout, Session);
handle_cast({copy_taken, Ref}, Session) ->
    resumed(epgsql_subprotocol:copy_taken(Ref, Session));
handle_cast({copy_stop, Ref}, Session) ->
    stopped(epgsql_subprotocol:copy_stop(Ref, Session));
handle_cast(cancel, Session) ->
    {noreply, ask_to_cancel(Session)};
handle_cast(stop, #session{transport = undefined} = Session) ->
    {stop, normal, Session};
handle_cast(stop, #session{transport = Transport} = Session) ->
    _ = [epgsql_transport:send(Transport,
                               epgsql_frontend:encode(epgsql_frontend:plain(terminate)))
         || not epgsql_writer:is_busy(), not epgsql_transport:is_pending(Transport)],
    {stop, normal, epgsql_machine:flush({error, closed}, Session)}.

command(ReplyTo, epgsql_cmd_connect, Options, default, Session) ->
    ok = epgsql_transport:prepare(Options),
    Timeout = maps:get(timeout, Options, ?CONNECT_MS),
    epgsql_machine:command(ReplyTo, epgsql_cmd_connect, Options, Timeout, Session);
%% A stream takes as long as its receiver does.
command(ReplyTo, epgsql_cmd_copy_to_stdout, Arguments, default, Session) ->
    epgsql_machine:command(ReplyTo, epgsql_cmd_copy_to_stdout, Arguments, infinity, Session);
command(ReplyTo, Command, Arguments, default, #session{connect_opts = Options} = Session) ->
    Timeout = maps:get(call_timeout, Options, infinity),
    epgsql_machine:command(ReplyTo, Command, Arguments, Timeout, Session);
command(ReplyTo, Command, Arguments, Timeout, Session) ->
    epgsql_machine:command(ReplyTo, Command, Arguments, Timeout, Session).

-spec handle_info(any(), pg_sock()) -> epgsql_machine:step().
handle_info({Tag, Socket, Bytes}, #session{transport = {_, Socket}} = Session)
  when Tag =:= tcp; Tag =:= ssl ->
    epgsql_machine:data(Bytes, Session);
handle_info({Tag, Socket}, #session{transport = {_, Socket}} = Session)
  when Tag =:= tcp_passive; Tag =:= ssl_passive ->
    passive(Session);
handle_info({Tag, Socket}, #session{transport = {_, Socket}} = Session)
  when Tag =:= tcp_closed; Tag =:= ssl_closed ->
    epgsql_machine:lost(sock_closed, Session);
handle_info({Tag, Socket, Reason}, #session{transport = {_, Socket}} = Session)
  when Tag =:= tcp_error; Tag =:= ssl_error ->
    epgsql_machine:lost({sock_error, Reason}, Session);
handle_info({'DOWN', Monitor, process, _, Reason}, #session{cancelling = Cancelling} = Session) ->
    case lists:member(Monitor, Cancelling) of
        true -> epgsql_machine:cancelled(Monitor, Session);
        false ->
            case epgsql_copy_in:written(Monitor, Reason, Session) of
                {true, Session1} -> {noreply, Session1};
                false -> stopped(epgsql_subprotocol:copy_left(Monitor, Session))
            end
    end;
handle_info({io_request, From, ReplyAs, Request}, Session) ->
    {noreply, epgsql_copy_in:io_request({From, ReplyAs}, Request, Session)};
handle_info({timeout, _, {written, Monitor}}, Session) ->
    case epgsql_copy_in:expired(Monitor, Session) of
        {true, Session1} -> {stop, {shutdown, timeout},
                             epgsql_machine:flush({error, closed}, Session1)};
        false -> {noreply, Session}
    end;
handle_info({timeout, _, {expire, Id}}, Session) ->
    expire(Id, Session);
handle_info({timeout, _, {grace, Id}}, Session) ->
    case epgsql_machine:expired(Id, Session) of
        true -> {stop, {shutdown, timeout}, epgsql_machine:flush({error, closed}, Session)};
        false -> {noreply, Session}
    end;
handle_info(_, Session) ->
    {noreply, Session}.

%% Who reads rows one by one, or a stream, says itself when there shall be more.
passive(#session{connect_opts = #{socket_active := _}, handler = on_replication,
                 subproto_state = #repl{receiver = Pid}} = Session) when is_pid(Pid) ->
    Pid ! {epgsql, self(), socket_passive},
    {noreply, Session};
passive(#session{connect_opts = #{socket_active := _},
                 current = #command{reply_to = {incremental, Pid, _}}} = Session) ->
    Pid ! {epgsql, self(), socket_passive},
    {noreply, Session};
passive(Session) ->
    resumed(epgsql_subprotocol:passive(Session)).

stopped({none, _, Session}) -> {noreply, Session};
stopped({cancel, Next, Session}) ->
    resumed({Next, ask_to_cancel(Session)}).

resumed({wait, Session}) -> {noreply, Session};
resumed({activate, Session}) ->
    case epgsql_session:activate(Session) of
        ok -> {noreply, Session};
        {error, Reason} -> epgsql_machine:lost({sock_error, Reason}, Session)
    end.

expire(Id, Session) ->
    case epgsql_machine:expire(Id, Session) of
        {cancel, #session{current = #command{module = epgsql_cmd_connect}} = Session1} ->
            {stop, {shutdown, timeout}, Session1};
        {cancel, Session1} ->
            _ = erlang:start_timer(?CANCEL_GRACE_MS, self(), {grace, Id}),
            {noreply, ask_to_cancel(Session1)};
        {step, Step} -> Step;
        {_, Session1} -> {noreply, Session1}
    end.

%% By a process of its own: it must open a connection, and this one has answers to read.
ask_to_cancel(#session{backend = {Pid, Key}, connect_opts = Options, cancelling = Cancelling}
              = Session) ->
    {_, Monitor} = spawn_monitor(fun() -> epgsql_transport:cancel(Options, Pid, Key) end),
    Session#session{cancelling = [Monitor | Cancelling]};
ask_to_cancel(Session) ->
    Session.

-spec terminate(any(), pg_sock()) -> ok.
terminate(_, #session{transport = undefined}) -> ok;
terminate(_, #session{transport = Transport} = Session) ->
    ok = epgsql_copy_in:closed(Session),
    epgsql_transport:close(Transport).

%% Rows are the application's, may be secret and may be many: they don't belong into a crash report.
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(#{reason := _, state := #session{} = Session} = Status) ->
    Status#{state => Session#session{rows = information_redacted, results = [], buffer = <<>>}};
format_status(Status) ->
    Status.

-ifdef(TEST).
state_to_map(Session) ->
    maps:from_list(lists:zip(record_info(fields, session), tl(tuple_to_list(Session)))).
-endif.
