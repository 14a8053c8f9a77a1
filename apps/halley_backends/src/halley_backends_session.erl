%% A session of a back end's process, here: a process that is logged in for it. It gets every event
%% of its user as a sign that there is something, and has the events themselves from
%% halley_backends_feed, in batches.
%%
%% Bounds: ?BATCHES_MAX batches are on their way that the back end hasn't confirmed; then it asks
%% for no more. If teleport's queue to the back end is full, the batch waits here, and nothing else
%% does: signs are dropped as they come.
%%
%% It ends with the back end's process or with the link to its node, and logs out by that. The back
%% end logs in again with the cursor of what it got; nothing is sent twice, as nothing is sent again
%% without that.
-module(halley_backends_session).
-behaviour(gen_server).

-export([start_link/1, acknowledge/1, logout/1]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([args/0]).

%% `proxy': who speaks for the process, on its node. `from': who waits for the answer.
-type args() :: #{id := pos_integer(), user := term(), cursor := term(), proxy := pid(),
                  from := gen_server:from()}.

-define(BATCHES_MAX, 2).
-define(BUSY_MS, 20).
%% A session that gets nothing is told how far it is, so that its cursor doesn't fall out of the
%% retention.
-define(CURSOR_MS, 60000).

-record(state, {
    id :: pos_integer(),
    user :: halley_id:id(),
    proxy :: pid(),
    %% idle: the feed owes nothing. asked: it does. held: a message waits for room in teleport,
    %% behind `closed' nothing comes any more.
    phase = idle :: idle | asked | {held, Message :: term()},
    %% Something was published, or there is more, since it asked.
    is_due = false :: boolean(),
    on_way = 0 :: non_neg_integer(),
    tells = false :: boolean(),            % its cursor, whatever else there is
    cursor :: halley_cursor:token()        % the back end knows this one
}).

-spec start_link(args()) -> gen_server:start_ret().
start_link(Args) -> gen_server:start_link(?MODULE, Args, []).

%% The back end has taken a batch.
-spec acknowledge(pid()) -> ok.
acknowledge(Session) -> gen_server:cast(Session, acknowledge).

-spec logout(pid()) -> ok.
logout(Session) -> gen_server:cast(Session, logout).

-spec init(args()) -> {ok, args(), {continue, login}}.
init(Args) -> {ok, Args, {continue, login}}.

-spec handle_continue(login, args()) -> {noreply, #state{}} | {stop, normal, args()}.
handle_continue(login, #{id := Id, user := User, cursor := Given, proxy := Proxy,
                         from := From} = Args) ->
    %% Its own mailbox is not where the events are to go.
    ok = halley_sessions:hands_on(),
    case halley:login(User, self()) of
        ok ->
            ok = halley_began:fed(User, Given),
            Cursor = halley_backends_feed:add(User, Given),
            %% Behind the login: if the back end is gone, that is seen now.
            _ = teleport:monitor(Proxy),
            ok = gen_server:reply(From, {ok, Id, Cursor}),
            _ = erlang:send_after(?CURSOR_MS, self(), tell_cursor),
            State = #state{id = Id, user = User, proxy = Proxy, cursor = Cursor},
            {noreply, ask(State)};
        {error, Reason} ->
            ok = halley_metrics:incr(remote_logins_refused),
            ok = gen_server:reply(From, {error, halley_backends_requests:reason(Reason)}),
            {stop, normal, Args}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _, State) -> {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_cast(acknowledge, #state{on_way = OnWay} = State) ->
    {noreply, go_on(State#state{on_way = max(0, OnWay - 1)})};
handle_cast(logout, State) ->
    {stop, normal, State};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({halley, _}, State) ->
    {noreply, go_on(State#state{is_due = true})};
handle_info({fed, _, _, _}, #state{phase = {held, closed}} = State) ->
    {noreply, State};
handle_info({fed, Items, Cursor, What}, State) ->
    Due = State#state{phase = idle, is_due = State#state.is_due orelse What =:= more},
    #state{tells = Tells, cursor = Before} = Due,
    case Items =/= [] orelse Tells andalso Cursor =/= Before of
        true -> send({batch, Items, Cursor}, Due#state{cursor = Cursor, tells = false});
        false -> {noreply, go_on(Due)}
    end;
handle_info(retry, #state{phase = {held, Message}} = State) ->
    send(Message, State#state{phase = idle});
handle_info(tell_cursor, #state{} = State) ->
    _ = erlang:send_after(?CURSOR_MS, self(), tell_cursor),
    {noreply, go_on(State#state{is_due = true, tells = true})};
handle_info({halley_closed, _}, State) ->
    send(closed, State);
%% If the link is gone, so is this login; if it couldn't be watched, the back end is told.
handle_info({'DOWN', _, process, _, noconnection}, State) ->
    {stop, {shutdown, noconnection}, State};
handle_info({'DOWN', _, process, _, _}, State) ->
    {stop, normal, State};
handle_info(_, State) ->
    {noreply, State}.

%% Asks the feed if there is something, and room for it.
go_on(#state{phase = idle, is_due = true, on_way = OnWay} = State) when OnWay < ?BATCHES_MAX ->
    ask(State);
go_on(State) ->
    State.

ask(State) ->
    ok = halley_backends_feed:want(halley_history:heads()),
    State#state{phase = asked, is_due = false}.

send(Message, State) ->
    case {tell(Message, State), Message} of
        {ok, {batch, Items, _}} ->
            Events = length([Event || {event, Event} <- Items]),
            ok = halley_metrics:incr(remote_events, Events),
            {noreply, go_on(State#state{on_way = State#state.on_way + 1})};
        {ok, closed} ->
            {stop, normal, State};
        {{error, busy}, _} ->
            _ = erlang:send_after(?BUSY_MS, self(), retry),
            {noreply, State#state{phase = {held, Message}}};
        {{error, Reason}, _} ->
            {stop, {shutdown, Reason}, State}
    end.

tell(What, #state{id = Id, proxy = Proxy}) ->
    teleport:send(Proxy, {halley_remote, Id, What}, #{full => busy}).
