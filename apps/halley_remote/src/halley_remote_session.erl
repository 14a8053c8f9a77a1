%% A session of a process of this node at the remote Halley: a second process, its proxy. It logs
%% in, puts events into the process's mailbox, and after a break logs in again with the cursor of
%% the last event that it put there (docs/internals/remote.md).
%%
%% Bounds: Halley sends the next batches only after an acknowledgement that those before them were
%% handed over, two at most; and nothing is handed over while the mailbox has `mailbox_max'
%% messages. So a slow process costs two batches here, and nothing at Halley but its place.
%%
%% Order: one process hands over, in the order of the batches, and a batch of an earlier login is
%% dropped. Messages of a login that isn't this one's are answered by a logout, so nothing of a
%% login that was given up stays at Halley.
%%
%% If it breaks, halley_remote_watch tells the process, with the cursor that it wrote down there.
-module(halley_remote_session).
-behaviour(gen_server).

-export([start_link/1, open/3, close/1, began/1, cursor/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([args/0]).

-type args() :: #{user := binary(), owner := pid(), cursor := none | binary(),
                  mailbox_max := pos_integer()}.

-define(VERSION, 2).
-define(LOGIN_MS, 5000).
-define(MAILBOX_MAX, 100).
%% Between two looks at a mailbox that is full.
-define(LOOK_MS, 5).
%% Between two logins, doubled each time.
-define(AGAIN_MS, 50).
-define(AGAIN_MS_MAX, 2000).

-record(state, {
    user :: binary(),
    owner :: pid(),
    mailbox_max :: pos_integer(),
    began = none :: none | binary(),
    cursor :: none | binary(),
    id = none :: none | pos_integer(),                 % of the login
    link = none :: none | reference(),                 % a monitor of it
    batches = queue:new() :: queue:queue({[term()], Cursor :: binary()}),
    look = none :: none | reference(),
    again_ms = ?AGAIN_MS :: pos_integer()
}).

-spec start_link(args()) -> gen_server:start_ret().
start_link(Args) -> gen_server:start_link(?MODULE, Args, []).

%% The first login is the caller's to hear of; later ones are made until they succeed.
-spec open(User :: term(), Owner :: pid(), map()) -> {ok, pid()} | {error, term()}.
open(User, Owner, Options) when is_binary(User) ->
    Args = #{user => User, owner => Owner, cursor => maps:get(cursor, Options, none),
             mailbox_max => maps:get(mailbox_max, Options, ?MAILBOX_MAX)},
    case halley_remote_session_sup:start_session(Args) of
        {ok, Session} ->
            case gen_server:call(Session, open, infinity) of
                ok -> {ok, Session};
                {error, _} = Error -> Error
            end;
        {error, _} = Error -> Error
    end;
open(_, _, _) ->
    {error, bad_id}.

-spec close(pid()) -> ok.
close(Session) ->
    try gen_server:call(Session, close, infinity)
    catch exit:_ -> ok
    end.

-spec began(pid()) -> binary().
began(Session) -> gen_server:call(Session, began, infinity).

-spec cursor(pid()) -> binary().
cursor(Session) -> gen_server:call(Session, cursor, infinity).

-spec init(args()) -> {ok, #state{}}.
init(#{user := User, owner := Owner, cursor := Cursor, mailbox_max := Max}) ->
    _ = erlang:monitor(process, Owner),
    {ok, #state{user = User, owner = Owner, cursor = Cursor, mailbox_max = Max}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {stop, normal, term(), #state{}}.
handle_call(open, _, State) ->
    case login(State) of
        {ok, #state{owner = Owner, user = User, cursor = Cursor} = LoggedIn} ->
            ok = halley_remote_watch:add(Owner, User, Cursor),
            {reply, ok, LoggedIn#state{began = Cursor}};
        {error, Reason, _} ->
            {stop, normal, {error, Reason}, State}
    end;
handle_call(close, _, State) ->
    {stop, normal, ok, logged_out(State)};
handle_call(began, _, #state{began = Began} = State) ->
    {reply, Began, State};
handle_call(cursor, _, #state{cursor = Cursor} = State) ->
    {reply, Cursor, State};
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({halley_remote, Id, What}, #state{id = Id} = State) ->
    from_halley(What, State);
handle_info({halley_remote, Id, {batch, _, _}}, State) ->
    ok = halley_remote_node:send({logout, Id, self()}),
    {noreply, State};
handle_info({timeout, Look, look}, #state{look = Look} = State) ->
    {noreply, hand_over(State#state{look = none})};
handle_info({teleport_down, Link, _, _}, #state{link = Link} = State) ->
    %% The login has ended with it: there is nothing to log out from.
    {noreply, again(State#state{id = none, link = none})};
handle_info(again, #state{id = none} = State) ->
    case login(State) of
        {ok, LoggedIn} -> {noreply, LoggedIn};
        {error, _, Failed} -> {noreply, again(Failed)}
    end;
handle_info({'DOWN', _, process, Owner, _}, #state{owner = Owner} = State) ->
    {stop, normal, logged_out(State)};
handle_info(_, State) ->
    {noreply, State}.

%% An end as it should be isn't told.
-spec terminate(term(), #state{}) -> ok.
terminate(normal, _) -> halley_remote_watch:remove();
terminate(_, _) -> ok.

from_halley({batch, Items, Cursor}, #state{batches = Batches} = State) ->
    {noreply, hand_over(State#state{batches = queue:in({Items, Cursor}, Batches)})};
from_halley(broken, State) ->
    {noreply, again(State)};
from_halley(closed, #state{owner = Owner, user = User} = State) ->
    %% What is still to be handed over was published before.
    #state{batches = Batches} = State,
    _ = [hand(Item, State) || {Items, _} <- queue:to_list(Batches), Item <- Items],
    Owner ! {halley_closed, User},
    {stop, normal, State};
from_halley(_, State) ->
    {noreply, State}.

%% --- logins ------------------------------------------------------------------------------------

%% The link is watched before: one that ends in between ends this login, too.
login(#state{user = User, cursor = Cursor} = State) ->
    Node = halley_remote_node:get(),
    case teleport:connect(Node) of
        ok ->
            Link = teleport:monitor_peer(Node),
            case halley_remote_node:call({login, ?VERSION, User, Cursor, self()}, ?LOGIN_MS) of
                {ok, Id, From} ->
                    {ok, State#state{id = Id, link = Link, cursor = From, again_ms = ?AGAIN_MS}};
                {error, Reason} ->
                    ok = teleport:demonitor_peer(Link),
                    {error, Reason, State}
            end;
        {error, _} ->
            {error, unavailable, State}
    end.

%% What wasn't handed over comes again with the cursor.
again(#state{again_ms = Ms} = State) ->
    Out = logged_out(State),
    _ = erlang:send_after(Ms, self(), again),
    Out#state{batches = queue:new(), again_ms = min(2 * Ms, ?AGAIN_MS_MAX)}.

logged_out(#state{id = none} = State) ->
    State;
logged_out(#state{id = Id, link = Link} = State) ->
    ok = halley_remote_node:send({logout, Id, self()}),
    _ = [ok = teleport:demonitor_peer(Link) || Link =/= none],
    State#state{id = none, link = none}.

%% --- handing over ------------------------------------------------------------------------------

hand_over(#state{batches = Batches} = State) ->
    case queue:peek(Batches) of
        {value, {Items, Cursor}} -> hand_over(Items, Cursor, room(State), State);
        empty -> State
    end.

hand_over([], Cursor, _, #state{batches = Batches, id = Id} = State) ->
    ok = halley_remote_node:confirm(Id),
    ok = halley_remote_watch:cursor(Cursor),
    hand_over(State#state{batches = queue:drop(Batches), cursor = Cursor});
hand_over(Items, Cursor, 0, #state{batches = Batches, look = none} = State) ->
    Look = erlang:start_timer(?LOOK_MS, self(), look),
    State#state{batches = queue:in_r({Items, Cursor}, queue:drop(Batches)), look = Look};
hand_over(Items, Cursor, 0, #state{batches = Batches} = State) ->
    State#state{batches = queue:in_r({Items, Cursor}, queue:drop(Batches))};
hand_over([Item | Items], Cursor, Room, State) ->
    hand_over(Items, Cursor, Room - 1, State#state{cursor = hand(Item, State)}).

room(#state{owner = Owner, mailbox_max = Max}) ->
    case process_info(Owner, message_queue_len) of
        {_, Length} -> max(0, Max - Length);
        undefined -> 0
    end.

hand({event, #{cursor := Cursor} = Event}, #state{owner = Owner, user = User}) ->
    Owner ! {halley, Event#{user => User}},
    Cursor;
hand({gap, #{cursor := Cursor} = Gap}, #state{owner = Owner, user = User}) ->
    Owner ! {halley_gap, User, Gap},
    Cursor.
