%% The subscriptions of sessions: which subjects a session gets events about as long as it lives,
%% without a follow (docs/internals/subscriptions.md).
%%
%% Two tables, in memory alone. This one has a row for each session with subscriptions: {Word, User,
%% State, Subjects}. `User' is the number of the session's user, or `nobody' for a visitor, who has
%% no number and leaves nothing. `State' is `held' while the session's replay goes on: its subjects
%% count for the replay only. Then it is `live', and `halley_subscriptions_table' has it under each
%% of its subjects: that is what a publish asks.
%%
%% Protocol: the process of a link sends the changes of its own sessions and waits for the answer.
%% So events after its OPENED find a session, and events after an answered change find its subject.
%% A link's rows are deleted when its process ends, or when another one has its slot: the next link
%% sends them anew. State is replaced, never repaired; so if this process dies, the one after it
%% forgets everything, and ends all links that had sent rows.
%%
%% A session's public state stands among its subjects, in pieces (`halley_session_states'). They
%% count among all subscriptions, not among those of the session.
%%
%% So does the view of a session with `presence=*' (`halley_presence_views').
%%
%% Reads go to the tables, writes through this process.
%%
%% Not here: who may subscribe to what (`halley_api_rights'), and what a session missed
%% (`halley_replay').
-module(halley_subscriptions).
-behaviour(gen_server).

-export([new/0, start_link/0]).
-export([open/2, enter/2, close/2, add/3, remove/3, state/3, ended/1]).
-export([subjects/2, user/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([user/0, state/0]).

-type conn() :: halley_directory:conn().
-type slot() :: halley_links:slot().
-type user() :: halley_id:user_number() | nobody.
-type state() :: held | live.
-type opening() :: {conn(), user(), state(), [halley_id:id()]}.

-define(CONN_BITS, 48).
-define(COUNT, {?MODULE, count}).
%% No id, and no piece of a state.
-define(STATE_NAME, <<2>>).
%% The key of all whom a user follows (`halley_presence_keys').
-define(EVERYBODY, <<1, $*>>).
%% Sessions of a link that ended which are forgotten in one go.
-define(PURGE, 500).

-record(state, {
    %% Links that have told of something.
    links = #{} :: #{slot() => {pid(), reference()}},
    %% Slots whose links have ended.
    purging = [] :: [slot()]
}).

-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [ordered_set, public, named_table, {read_concurrency, true}]),
    persistent_term:put(?COUNT, counters:new(1, [write_concurrency])),
    ok = halley_metrics:gauges([subscriptions, subscribed_sessions], fun gauges/0),
    ok = halley_presence_pending:new(),
    halley_subscriptions_table:new().

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% --- what the process of a link says of its sessions ---------------------------------------------

%% Those for which there is no room.
-spec open(slot(), [opening()]) -> [conn()].
open(_, []) -> [];
open(Slot, Opening) -> gen_server:call(?MODULE, {open, Slot, Opening}, infinity).

%% Sessions that were held and are live now.
-spec enter(slot(), [conn()]) -> ok.
enter(Slot, Conns) -> told(enter, Slot, Conns).

%% Sessions that have ended.
-spec close(slot(), [conn()]) -> ok.
close(Slot, Conns) -> told(close, Slot, Conns).

told(What, Slot, Conns) ->
    case [Conn || Conn <- Conns, ets:member(?MODULE, word(Slot, Conn))] of
        [] -> ok;
        Ours -> gen_server:call(?MODULE, {What, Slot, Ours}, infinity)
    end.

%% One subject more. Of a session without subscriptions until now, its user and state count. And the
%% heads of then: what is above them finds the session. With whom it may see from now on, it is
%% all whom its user follows.
-spec add(slot(), {conn(), user(), state()}, halley_id:id() | {halley_presence_keys:key(),
                                                               halley_presence_views:view()}) ->
    {added | already | too_many_of_session | too_many, halley_history:vector()}.
add(Slot, Session, Subject) ->
    gen_server:call(?MODULE, {add, Slot, Session, Subject}, infinity).

%% A worker has lost its slot, and its link lives on.
-spec ended(slot()) -> ok.
ended(Slot) ->
    gen_server:call(?MODULE, {ended, Slot}, infinity).

-spec remove(slot(), conn(), halley_id:id()) -> removed | absent.
remove(Slot, Conn, Subject) ->
    gen_server:call(?MODULE, {remove, Slot, Conn, Subject}, infinity).

%% The session's state from now on; without pieces it has none.
-spec state(slot(), {conn(), halley_id:user_number(), state()}, [halley_session_states:piece()]) ->
    stated | too_many.
state(Slot, Session, Pieces) ->
    gen_server:call(?MODULE, {state, Slot, Session, Pieces}, infinity).

%% --- what is read --------------------------------------------------------------------------------

%% What a session is subscribed to.
-spec subjects(slot(), conn()) -> [halley_id:id()].
subjects(Slot, Conn) ->
    case ets:lookup(?MODULE, word(Slot, Conn)) of
        [{_, _, _, Packed}] ->
            {_, _, Subjects} = parts(Packed),
            Subjects;
        [] ->
            []
    end.

%% Whose session it is; `unknown' if it has no subscriptions and isn't a visitor's.
-spec user(halley_directory:word() | {slot(), conn()}) -> user() | unknown.
user({Slot, Conn}) -> user(word(Slot, Conn));
user(Word) ->
    case ets:lookup(?MODULE, Word) of
        [{_, User, _, _}] -> User;
        [] -> unknown
    end.

%% --- the process ---------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    ok = end_links(ets:first(?MODULE)),
    true = ets:delete_all_objects(?MODULE),
    ok = halley_subscriptions_table:clear(),
    ok = halley_presence_pending:clear(),
    ok = halley_session_states:clear(),
    ok = halley_status_streams:clear(),
    Count = persistent_term:get(?COUNT),
    ok = counters:put(Count, 1, 0),
    {ok, #state{}}.

gauges() ->
    #{subscriptions => counters:get(persistent_term:get(?COUNT), 1),
      subscribed_sessions => ets:info(?MODULE, size)}.

%% What they had told is lost.
end_links('$end_of_table') ->
    ok;
end_links(Word) ->
    Slot = Word bsr ?CONN_BITS,
    case halley_links:info(Slot) of
        #{link := Link} -> exit(Link, kill);
        _ -> ok
    end,
    end_links(ets:next(?MODULE, word(Slot + 1, 0) - 1)).

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({open, Slot, Opening}, {Link, _}, State) ->
    Next = of_link(Slot, Link, State),
    {reply, [Conn || {Conn, User, As, Subjects} <- Opening,
                     open_one(word(Slot, Conn), User, As, Subjects) =:= too_many], Next};
handle_call({enter, Slot, Conns}, {Link, _}, State) ->
    Next = of_link(Slot, Link, State),
    ok = lists:foreach(fun(Conn) -> enter_one(word(Slot, Conn)) end, Conns),
    {reply, ok, Next};
handle_call({close, Slot, Conns}, {Link, _}, State) ->
    Next = of_link(Slot, Link, State),
    ok = lists:foreach(fun(Conn) -> close_one(word(Slot, Conn)) end, Conns),
    {reply, ok, Next};
handle_call({ended, Slot}, _, #state{links = Links} = State) ->
    case maps:take(Slot, Links) of
        {{_, Monitor}, Others} ->
            demonitor(Monitor, [flush]),
            {reply, ok, purging(Slot, State#state{links = Others})};
        error ->
            {reply, ok, State}
    end;
handle_call({add, Slot, {Conn, User, As}, What}, {Link, _}, State) ->
    Next = of_link(Slot, Link, State),
    {Subject, View} = case What of {_, _} -> What; _ -> {What, everybody} end,
    Added = add_one(word(Slot, Conn), User, As, {Subject, View}),
    Added =:= added
        andalso halley_began:subscription(subscribed, User, {link, Slot, Conn}, Subject),
    {reply, {Added, halley_history:heads()}, Next};
handle_call({state, Slot, {Conn, User, As}, Pieces}, {Link, _}, State) ->
    Next = of_link(Slot, Link, State),
    {reply, state_one(word(Slot, Conn), User, As, Pieces), Next};
%% From `halley_subscriptions_end'.
handle_call({drop, User, Sessions, Subjects}, _, State) ->
    {reply, [{Slot, Conn, Ended} || {Slot, Conn} <- Sessions,
                                    (Ended = drop_of(word(Slot, Conn), User, Subjects)) =/= []],
     State};
handle_call({view, User, {Slot, Conn}, View}, _, State) ->
    _ = user({Slot, Conn}) =:= User andalso sees(word(Slot, Conn), View),
    {reply, ok, State};
%% From `halley_subscriptions_states'.
handle_call({forget_state, User, Words}, _, State) ->
    ok = lists:foreach(fun(Word) -> forget_state(Word, User) end, Words),
    {reply, ok, State};
handle_call({remove, Slot, Conn, Subject}, {Link, _}, State) ->
    Next = of_link(Slot, Link, State),
    User = user({Slot, Conn}),
    Removed = remove_one(word(Slot, Conn), Subject),
    Removed =:= removed
        andalso halley_began:subscription(unsubscribed, User, {link, Slot, Conn}, Subject),
    {reply, Removed, Next}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'DOWN', Monitor, process, Link, _}, #state{links = Links} = State) ->
    case [Slot || {Slot, Known} <- maps:to_list(Links), Known =:= {Link, Monitor}] of
        [Slot] ->
            {noreply, purging(Slot, State#state{links = maps:remove(Slot, Links)})};
        [] ->
            {noreply, State}
    end;
handle_info(purge, #state{purging = [Slot | Others]} = State) ->
    self() ! purge,
    case purge(Slot, ?PURGE) of
        done -> {noreply, State#state{purging = Others}};
        more -> {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

purging(Slot, #state{purging = Purging} = State) ->
    self() ! purge,
    State#state{purging = [Slot | Purging]}.

%% A slot has one link at a time, and what the one before it said is forgotten.
of_link(Slot, Link, #state{links = Links, purging = Purging} = State) ->
    case Links of
        #{Slot := {Link, _}} ->
            State;
        #{} ->
            _ = [erlang:demonitor(Monitor, [flush]) || #{Slot := {_, Monitor}} <- [Links]],
            done = purge(Slot, infinity),
            State#state{links = Links#{Slot => {Link, monitor(process, Link)}},
                        purging = lists:delete(Slot, Purging)}
    end.

purge(_, 0) ->
    more;
purge(Slot, Left) ->
    case ets:next(?MODULE, word(Slot, 0) - 1) of
        Word when is_integer(Word), Word bsr ?CONN_BITS =:= Slot ->
            ok = close_one(Word),
            purge(Slot, case Left of infinity -> infinity; _ -> Left - 1 end);
        _ ->
            done
    end.

%% --- one session ---------------------------------------------------------------------------------

open_one(Word, User, State, Subjects) ->
    ok = close_one(Word),
    case has_room(length(Subjects)) of
        true ->
            case halley_status_streams:opened(Word, Subjects) of
                true -> opened_one(Word, User, State, Subjects);
                false -> too_many
            end;
        false ->
            refused()
    end.

opened_one(Word, User, State, Subjects) ->
    ok = counted(length(Subjects)),
    ok = halley_presence_pending:add(Word, Subjects),
    put_row(Word, User, State, Subjects),
    State =:= held orelse in_pages(Word, User, Subjects),
    ok.

enter_one(Word) ->
    case ets:lookup(?MODULE, Word) of
        [{_, User, held, Packed}] ->
            true = ets:insert(?MODULE, {Word, User, live, Packed}),
            in_pages(Word, User, unpack(Packed));
        _ ->
            ok
    end.

close_one(Word) ->
    case ets:take(?MODULE, Word) of
        [{_, User, State, Packed}] ->
            Subjects = unpack(Packed),
            ok = counted(-length(Subjects)),
            ok = halley_presence_pending:remove(Word, Subjects),
            State =:= held orelse out_of_pages(Word, User, Subjects),
            halley_status_streams:closed(Word, Subjects);
        [] ->
            ok
    end.

add_one(Word, User, State, {Subject, View}) ->
    {Whose, As, {Pieces, Before, Subjects}} = row(Word, User, State),
    Max = halley_limits:get(subscriptions_per_session_max),
    More = case Subject of ?EVERYBODY -> halley_presence_views:pieces(View); _ -> [] end,
    case {lists:member(Subject, Subjects), has_room(1 + length(More))} of
        {true, _} ->
            _ = Subject =:= ?EVERYBODY andalso sees(Word, View),
            %% Who asks for a presence again is told its state again (http.md 22.5).
            As =:= held orelse halley_presence_dirty:subscribed(Word, Whose, {again, [Subject]}),
            already;
        {false, _} when length(Subjects) >= Max ->
            halley_metrics:incr(subscriptions_refused),
            too_many_of_session;
        {false, false} ->
            refused();
        {false, true} ->
            ok = counted(1 + length(More)),
            ok = halley_presence_pending:add(Word, [Subject]),
            put_row(Word, Whose, As, Pieces ++ Before ++ More ++ Subjects ++ [Subject]),
            As =:= held orelse in_pages(Word, Whose, [Subject]),
            added
    end.

%% Whom a session may see from now on that is told of all whom its user follows. If these are others
%% than before, it is told the state of them.
sees(Word, View) ->
    {User, As, {Pieces, Before, Subjects}} = row(Word, nobody, held),
    case halley_presence_views:pieces(View) of
        Before ->
            ok;
        After ->
            ok = counted(length(After) - length(Before)),
            put_row(Word, User, As, Pieces ++ After ++ Subjects),
            As =:= held
                orelse halley_presence_dirty:subscribed(Word, User, {again, [?EVERYBODY]})
    end.

row(Word, User, State) ->
    case ets:lookup(?MODULE, Word) of
        [{_, Known, Is, Packed}] -> {Known, Is, parts(Packed)};
        [] -> {User, State, {[], [], []}}
    end.

%% The pieces of its state, those of its view, and its subjects.
parts(Packed) ->
    {Pieces, Others} = halley_session_states:split(unpack(Packed)),
    {View, Subjects} = halley_presence_views:split(Others),
    {Pieces, View, Subjects}.

state_one(Word, User, State, Pieces) ->
    {Whose, As, {Before, View, Subjects}} = row(Word, User, State),
    More = length(Pieces) - length(Before),
    case More =< 0 orelse has_room(More) of
        true ->
            ok = counted(More),
            without(Pieces ++ View ++ Subjects, Word, Whose, As),
            As =:= held orelse stated(Whose, Word, Pieces),
            stated;
        false ->
            refused()
    end.

%% The row may be another user's by now.
forget_state(Word, User) ->
    case row(Word, nobody, live) of
        {User, As, {[_ | _] = Pieces, View, Subjects}} ->
            ok = counted(-length(Pieces)),
            without(View ++ Subjects, Word, User, As);
        _ ->
            ok
    end.

stated(User, Word, []) -> halley_session_states:delete(User, Word);
stated(User, Word, Pieces) -> halley_session_states:put(User, Word, Pieces).

%% A visitor keeps its row: it is all that there is of it.
remove_one(Word, Subject) ->
    case ets:lookup(?MODULE, Word) of
        [{_, User, State, Packed}] ->
            Subjects = unpack(Packed),
            case lists:member(Subject, Subjects) of
                true ->
                    Left = left(Subject, lists:delete(Subject, Subjects)),
                    ok = counted(length(Left) - length(Subjects)),
                    ok = halley_presence_pending:remove(Word, [Subject]),
                    without(Left, Word, User, State),
                    State =:= held orelse out_of_pages(Word, User, [Subject]),
                    removed;
                false ->
                    absent
            end;
        [] ->
            absent
    end.

left(?EVERYBODY, Subjects) -> element(2, halley_presence_views:split(Subjects));
left(_, Subjects) -> Subjects.

%% The row may be another user's by now.
drop_of(Word, User, Subjects) ->
    case user(Word) of
        User -> [Subject || Subject <- Subjects, drop_one(Subject, Word, User) =:= removed];
        _ -> []
    end.

drop_one(?STATE_NAME, Word, User) ->
    case row(Word, User, live) of
        {_, _, {[], _, _}} -> absent;
        {_, As, _} ->
            _ = forget_state(Word, User),
            As =:= held orelse stated(User, Word, []),
            removed
    end;
drop_one(Subject, Word, User) ->
    Removed = remove_one(Word, Subject),
    Session = {link, Word bsr ?CONN_BITS, Word band ((1 bsl ?CONN_BITS) - 1)},
    Removed =:= removed
        andalso halley_began:subscription(unsubscribed, User, Session, Subject),
    Removed.

without([], Word, User, _) when is_integer(User) ->
    true = ets:delete(?MODULE, Word);
without(Subjects, Word, User, State) ->
    put_row(Word, User, State, Subjects).

put_row(Word, User, State, Subjects) ->
    true = ets:insert(?MODULE, {Word, User, State, pack(Subjects)}).

in_pages(Word, User, All) ->
    {Pieces, Others} = halley_session_states:split(All),
    {_, Subjects} = halley_presence_views:split(Others),
    ok = halley_session_states:put(User, Word, Pieces),
    lists:foreach(fun(S) -> ok = halley_subscriptions_table:add(S, Word) end, Subjects),
    halley_presence_dirty:subscribed(Word, User, {added, Subjects}).

out_of_pages(Word, User, All) ->
    {Pieces, Others} = halley_session_states:split(All),
    {_, Subjects} = halley_presence_views:split(Others),
    Pieces =:= [] orelse halley_session_states:delete(User, Word),
    lists:foreach(fun(S) -> ok = halley_subscriptions_table:remove(S, Word) end, Subjects),
    halley_presence_dirty:subscribed(Word, User, {removed, Subjects}).

has_room(N) ->
    counters:get(persistent_term:get(?COUNT), 1) + N =< halley_limits:get(subscriptions_max).

counted(N) ->
    counters:add(persistent_term:get(?COUNT), 1, N).

refused() ->
    halley_metrics:incr(subscriptions_refused),
    too_many.

word(Slot, Conn) -> Slot bsl ?CONN_BITS bor Conn.

%% One small binary is cheaper than a list of them.
%% Not by a comprehension: its binary stays outside of the table, and the row would point to it.
pack(Subjects) ->
    iolist_to_binary([[byte_size(Subject), Subject] || Subject <- Subjects]).

unpack(Packed) ->
    [Subject || <<Bytes, Subject:Bytes/binary>> <= Packed].
