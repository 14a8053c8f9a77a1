%% Erlang back ends on other nodes: what their halley_remote calls here, over teleport. The only
%% process of this node that they can reach (teleport's `receivers'). docs/internals/remote.md is
%% the protocol.
%%
%%   {request, Request}                       a call; halley_backends_requests answers
%%   {login, ?VERSION, User, Cursor, Proxy}   a call: {ok, Id, Cursor} or {error, Reason}
%%   {acknowledge, Id, Proxy}, {logout, Id, Proxy}   messages, of a session
%%
%% Ids begin at a random number, and a message about a session must name its proxy: a back end's
%% message about a login at a brain that is gone has no effect here.
%%
%% A session that broke is reported as `broken', and keeps its place among the sessions until there
%% is room for that message, or until its proxy's link ends.
%%
%% A back end that knows the secret may do all of this, as Erlang code in this node may. Requests
%% run in processes of their own, `remote_requests_max' at a time; a session has one process
%% (halley_backends_session), and there are `remote_sessions_max'. Anything beyond is refused and
%% counted. A request that breaks is answered and logged, and breaks nothing else.
%%
%% It starts teleport, with nothing but what is configured, and starts anew if that ends.
-module(halley_backends).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

-define(VERSION, 2).
-define(SECRET_BYTES_MIN, 16).
-define(CURSOR_BYTES_MAX, 255).
-define(ID_BYTES, 6).
%% Between two tries to say `broken'.
-define(BUSY_MS, 20).

-record(state, {
    next :: pos_integer(),
    sessions = #{} :: #{pos_integer() => {pid() | broken, Proxy :: pid()}},
    %% Monitors of sessions and of those that do requests.
    monitors = #{} :: #{reference() => {session, pos_integer()} | {request, gen_server:from()}},
    requests = 0 :: non_neg_integer(),
    transport :: reference()
}).

-spec start_link(halley_backends_config:settings()) -> gen_server:start_ret().
start_link(Settings) -> gen_server:start_link({local, ?MODULE}, ?MODULE, Settings, []).

-spec init(halley_backends_config:settings()) -> {ok, #state{}} | {stop, {shutdown, binary()}}.
init(#{secret_file := File, ip := Ip, port := Port, backends := Backends}) ->
    %% What is read makes no atoms: those of the protocol are in these modules.
    ok = halley_code:load([?MODULE, teleport]),
    case read_secret(File) of
        {ok, Secret} ->
            case start_transport(#{secret => Secret, ip => Ip, port => Port}) of
                ok ->
                    ok = halley_metrics:gauges(
                        [remote_sessions, remote_up, remote_connections, remote_queue,
                         remote_waiting, remote_round_trip, remote_sent, remote_received,
                         remote_messages_refused, remote_connections_refused, remote_busy],
                        fun() -> gauges(Backends) end),
                    ?LOG_NOTICE("back ends attach at ~s:~b", [inet:ntoa(Ip), Port]),
                    Next = binary:decode_unsigned(crypto:strong_rand_bytes(?ID_BYTES)) + 1,
                    {ok, #state{next = Next,
                                transport = erlang:monitor(process, teleport_sup)}};
                {error, Reason} ->
                    {stop, {shutdown, unicode:characters_to_binary(explain(Reason, Ip, Port))}}
            end;
        {error, Line} ->
            {stop, {shutdown, unicode:characters_to_binary(Line)}}
    end.

read_secret(File) ->
    case file:read_file(File) of
        {ok, Text} ->
            case string:trim(Text, trailing, "\r\n") of
                Secret when byte_size(Secret) >= ?SECRET_BYTES_MIN -> {ok, Secret};
                _ -> {error, io_lib:format("remote.secret_file: ~ts has less than ~b bytes; "
                                           "write a longer secret into it, such as that of "
                                           "`openssl rand -hex 32`", [File, ?SECRET_BYTES_MIN])}
            end;
        {error, Reason} ->
            {error, io_lib:format("remote.secret_file: ~ts cannot be read: ~ts",
                                  [File, file:format_error(Reason)])}
    end.

%% Nobody may be asked where they listen, and nobody but this process can be reached.
start_transport(Options) ->
    _ = application:stop(teleport),
    _ = application:load(teleport),
    All = Options#{receivers => [?MODULE], discovery => false, peers => #{},
                   queue_bytes_max => halley_limits:get(remote_queue_bytes_max),
                   message_bytes_max => halley_limits:get(remote_message_bytes_max)},
    _ = [application:set_env(teleport, Key, Value) || {Key, Value} <- maps:to_list(All)],
    teleport:start().

explain({teleport, Reason}, Ip, Port) ->
    explain(Reason, Ip, Port);
explain({{shutdown, Reason}, _}, Ip, Port) ->
    explain(Reason, Ip, Port);
explain({failed_to_start_child, _, Reason}, Ip, Port) ->
    explain(Reason, Ip, Port);
explain({listen, Reason}, Ip, Port) ->
    io_lib:format("remote.listen: cannot listen on ~s:~b: ~ts",
                  [inet:ntoa(Ip), Port, inet:format_error(Reason)]);
explain({bad_option, message_bytes_max}, _, _) ->
    "limits.remote_message_bytes_max: must be from 65536 to 2147483648";
explain({bad_option, queue_bytes_max}, _, _) ->
    "limits.remote_queue_bytes_max: must be 65536 at least";
explain(Reason, _, _) ->
    io_lib:format("remote.listen: the transport cannot start: ~0tP", [Reason, 20]).

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}}.
handle_call({login, ?VERSION, User, Cursor, Proxy}, From, #state{sessions = Sessions} = State)
  when is_binary(User), is_pid(Proxy), node(Proxy) =/= node(),
       (Cursor =:= none orelse is_binary(Cursor) andalso byte_size(Cursor) =< ?CURSOR_BYTES_MAX) ->
    case map_size(Sessions) < halley_limits:get(remote_sessions_max) of
        true ->
            {noreply, login(User, Cursor, Proxy, From, State)};
        false ->
            ok = halley_metrics:incr(remote_logins_refused),
            {reply, {error, too_many_remote_sessions}, State}
    end;
handle_call({login, Version, _, _, _}, _, State) when Version =/= ?VERSION ->
    {reply, {error, bad_version}, State};
handle_call({request, Request}, From, #state{requests = Requests, monitors = Monitors} = State) ->
    case Requests < halley_limits:get(remote_requests_max) of
        true ->
            {_, MRef} = spawn_monitor(fun() ->
                gen_server:reply(From, halley_backends_requests:run(Request))
            end),
            ok = halley_metrics:incr(remote_requests),
            {noreply, State#state{requests = Requests + 1,
                                  monitors = Monitors#{MRef => {request, From}}}};
        false ->
            ok = halley_metrics:incr(remote_requests_refused),
            {reply, {error, overloaded}, State}
    end;
handle_call(_, _, State) ->
    ok = halley_metrics:incr(remote_requests_refused),
    {reply, {error, bad_request}, State}.

login(User, Cursor, Proxy, From, #state{next = Id, sessions = Sessions,
                                        monitors = Monitors} = State) ->
    {ok, Session} = halley_backends_session_sup:start_session(
        #{id => Id, user => User, cursor => Cursor, proxy => Proxy, from => From}),
    MRef = erlang:monitor(process, Session),
    State#state{next = Id + 1, sessions = Sessions#{Id => {Session, Proxy}},
                monitors = Monitors#{MRef => {session, Id}}}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({acknowledge, Id, Proxy}, #state{sessions = Sessions} = State) ->
    case Sessions of
        #{Id := {Session, Proxy}} when is_pid(Session) ->
            ok = halley_backends_session:acknowledge(Session);
        #{} ->
            ok
    end,
    {noreply, State};
handle_info({logout, Id, Proxy}, #state{sessions = Sessions} = State) ->
    case Sessions of
        #{Id := {broken, Proxy}} ->
            {noreply, State#state{sessions = maps:remove(Id, Sessions)}};
        #{Id := {Session, Proxy}} ->
            ok = halley_backends_session:logout(Session),
            {noreply, State};
        #{} ->
            {noreply, State}
    end;
handle_info({tell_broken, Id}, State) ->
    {noreply, tell_broken(Id, State)};
handle_info({'DOWN', MRef, process, _, Reason}, #state{transport = MRef} = State) ->
    {stop, {transport, Reason}, State};
handle_info({'DOWN', MRef, process, _, Reason}, #state{monitors = Monitors} = State) ->
    case maps:take(MRef, Monitors) of
        {What, Rest} -> {noreply, ended(What, Reason, State#state{monitors = Rest})};
        error -> {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% A session that broke is told, and logged in again from there.
ended({session, Id}, normal, #state{sessions = Sessions} = State) ->
    State#state{sessions = maps:remove(Id, Sessions)};
ended({session, Id}, _, #state{sessions = Sessions} = State) ->
    #{Id := {_, Proxy}} = Sessions,
    tell_broken(Id, State#state{sessions = Sessions#{Id := {broken, Proxy}}});
ended({request, From}, Reason, #state{requests = Requests} = State) ->
    _ = [begin
             ok = halley_metrics:incr(remote_requests_refused),
             gen_server:reply(From, {error, bad_request})
         end || Reason =/= normal],
    State#state{requests = Requests - 1}.

tell_broken(Id, #state{sessions = Sessions} = State) ->
    case Sessions of
        #{Id := {broken, Proxy}} ->
            Message = {halley_remote, Id, broken},
            case is_linked(node(Proxy))
                 andalso teleport:send(Proxy, Message, #{full => busy}) of
                {error, busy} ->
                    _ = erlang:send_after(?BUSY_MS, self(), {tell_broken, Id}),
                    State;
                _ ->
                    State#state{sessions = maps:remove(Id, Sessions)}
            end;
        #{} ->
            State
    end.

%% While teleport starts anew there is no link. To send without one would dial.
is_linked(Node) ->
    try lists:member(Node, teleport:peers())
    catch error:badarg -> false
    end.

%% --- metrics -----------------------------------------------------------------------------------

gauges(Backends) ->
    Statuses = statuses(Backends),
    Each = fun(Key) ->
        [{Label, number(maps:get(Key, Status))}
         || {Label, Status} <- Statuses, is_map_key(Key, Status)]
    end,
    #{remote_sessions => sessions(), remote_connections_refused => teleport:connections_refused(),
      remote_up => Each(state), remote_queue => Each(queue_bytes),
      remote_round_trip => [Sample || {_, Us} = Sample <- Each(round_trip_us), Us > 0],
      remote_sent => Each(sent), remote_received => Each(received),
      remote_connections => Each(connections), remote_waiting => Each(waiting),
      remote_messages_refused => Each(refused), remote_busy => Each(busy)}.

%% While teleport starts anew all that is known is that there is no link.
statuses(Backends) ->
    try [{label(Node), teleport:status(Node)} || Node <- lists:usort(Backends ++ teleport:peers())]
    catch error:badarg -> [{label(Node), #{state => down}} || Node <- lists:usort(Backends)]
    end.

label(Node) -> ["node=\"", atom_to_binary(Node), $"].

%% None while all of it starts anew.
sessions() ->
    try proplists:get_value(active, supervisor:count_children(halley_backends_session_sup))
    catch exit:_ -> 0
    end.

number(up) -> 1;
number(down) -> 0;
number(undefined) -> 0;
number(N) -> N.
