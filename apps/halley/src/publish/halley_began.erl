%% From where a session has what is published: noted when it opens, and told to a trace.
%%
%% An event finds the sessions that are in the directory when its shard looks them up, which is
%% after its seq and before the log has written it. So a session that opened without a cursor has
%% what is above the counter as of just after, lacks events that were written just before, and for
%% those between it isn't known. One that came with a cursor is sent all after that.
%%
%% A link that syncs or was behind is sent events out of the history, to the sessions that it has by
%% then (`halley_edge_catchup'): a session that opened meanwhile may get some from before. So what
%% the last catch-up of its link may have brought isn't lacked for certain.
%%
%% The rows are in `halley_openings', which is bounded.
-module(halley_began).

-export([written/1, opened/2, login/2, held/2, fed/2, subscription/4]).
-export([syncs/1, synced/1, catches_up/1]).
-export([of_session/4, has_unsubscribed/3]).
-export_type([began/0, seqs/0]).

%% `before': it was there when the event was published. `cursor_before': it came with a cursor from
%% before the event, so it is sent it. `cursor_after': its client brought a cursor that has the
%% event. `after': it began later, without a cursor. `newest': later, with the newest events.
%% `subscribed': it was there, and was subscribed later. `unknown': nobody remembers.
-type began() :: before | cursor_before | cursor_after | 'after' | newest | subscribed | unknown.
-type seqs() :: #{shard := halley_shards:index(), first := halley_history:seq(),
                  last := halley_history:seq(), _ => _}.

%% What sessions that open now on this slot lack for certain.
-spec written(halley_links:slot()) -> none | halley_history:vector().
written(Slot) ->
    case halley_links_backpressure:is_behind(halley_links:way(Slot)) of
        true -> none;
        false -> halley_history:written()
    end.

%% They are in the directory now, and members of their groups.
-spec opened(Lacks :: none | halley_history:vector(),
             [{halley_id:user_number(), halley_directory:session()}]) -> ok.
opened(_, []) -> ok;
opened(Lacks, Sessions) ->
    halley_openings:record(halley_history:drawn(),
                           [{User, Session, {live, Lacks}} || {User, Session} <- Sessions]).

%% A process becomes a session of a user by this, unless it is one.
-spec login({halley_id:user_number(), pid()}, fun(() -> ok | full | gone)) -> ok | full | gone.
login({User, Pid} = Session, Open) ->
    WasThere = lists:member(Pid, halley_directory:sessions(User)),
    Lacks = halley_history:written(),
    case Open() of
        ok when not WasThere -> opened(Lacks, [Session]);
        Result -> Result
    end.

%% Sessions that are held, with the cursors from which they are replayed.
-spec held(halley_links:slot(),
           [{halley_id:user_number(), halley_directory:conn(), halley_cursor:token()}]) -> ok.
held(_, []) -> ok;
held(Slot, Held) ->
    Opened = [{User, {link, Slot, Conn}, cursor(Cursor)} || {User, Conn, Cursor} <- Held],
    _ = [ok = moved(User, What) || halley_hooked:is_on(moves), {User, _, What} <- Opened],
    halley_openings:record(halley_history:drawn(), Opened).

moved(User, {cursor, Vector}) -> halley_hooked_moves:caught(User, Vector);
moved(User, _) -> halley_hooked_moves:came(User).

%% A process that is a session of the user is given what is behind the cursor as well.
-spec fed(halley_id:id(), none | halley_cursor:token()) -> ok.
fed(User, Cursor) ->
    _ = [ok = moved(Number, cursor(Cursor))
         || Cursor =/= none, halley_hooked:is_on(moves), Number <- [halley_ids:lookup(User)],
            Number =/= undefined],
    ok.

cursor(Token) ->
    case halley_replay_wish:read(Token) of
        none -> cursor(cursor, Token);
        {ok, _, Began} when is_binary(Began) -> cursor(newest, Began);
        _ -> unreadable
    end.

cursor(As, Token) ->
    Store = halley_history:store(),
    case halley_history:cursor(Token) of
        {ok, #{store := Store, vector := Vector}} -> {As, Vector};
        _ -> unreadable
    end.

%% The subscriptions of a session have changed by now.
-spec subscription(subscribed | unsubscribed, halley_id:user_number() | nobody,
                   halley_directory:session(), halley_id:id()) -> ok.
subscription(_, nobody, _, _) -> ok;
subscription(What, User, Session, Subject) ->
    halley_openings:record(halley_history:drawn(), [{User, Session, {What, Subject}}]).

%% A worker begins to say its sessions, and has said them.
-spec syncs(halley_links:slot()) -> ok.
syncs(Slot) -> halley_openings:note({sync, Slot}, running).

-spec synced(halley_links:slot()) -> ok.
synced(Slot) -> halley_openings:note({sync, Slot}, halley_history:drawn()).

%% To be called when the link isn't behind any more: the catch-up goes up to here at most.
-spec catches_up(halley_fanout:there()) -> ok.
catches_up(Slots) ->
    lists:foreach(fun(Slot) ->
        halley_openings:note({catchup, Slot}, halley_history:drawn())
    end, maps:keys(Slots)).

%% What a session has of an event. `Subjects': by which it has it if it is subscribed to one of them
%% alone; `theirs' if the event is its user's anyway. The rows and the floor are its user's.
-spec of_session(halley_directory:session(), {seqs(), theirs | [halley_id:id()]},
                 [halley_openings:row()], Floor :: halley_cursor:seq()) -> began().
of_session(Session, {Seqs, Ground}, All, Floor) ->
    After = after_place(Session),
    Rows = [Row || #{session := S, place := Place} = Row <- All, S =:= Session, Place > After],
    case opening(Seqs, Session, Rows, Floor) of
        Began when Began =:= before; Began =:= cursor_before ->
            case is_ground(Ground, Seqs, Rows) of
                true -> Began;
                false -> subscribed
            end;
        Began ->
            Began
    end.

after_place({link, Slot, _}) ->
    case halley_openings:noted({sync, Slot}) of
        {_, Place} -> Place;
        none -> 0
    end;
after_place(_) ->
    0.

opening(Seqs, Session, Rows, Floor) ->
    case [{What, Drawn} || #{what := What, drawn := Drawn} <- Rows, is_opening(What)] of
        [{What, Drawn} | _] -> opened(What, Drawn, Session, Seqs);
        [] -> older(Session, Seqs, Floor)
    end.

is_opening({subscribed, _}) -> false;
is_opening({unsubscribed, _}) -> false;
is_opening(_) -> true.

opened({live, _}, Drawn, _, #{first := First}) when First > Drawn ->
    before;
opened({live, Lacks}, _, Session, #{shard := Shard, first := First, last := Last}) ->
    IsWritten = Lacks =/= none andalso Last =< element(Shard, Lacks),
    case IsWritten andalso First > catchup(Session) of
        true -> 'after';
        false -> unknown
    end;
opened({As, Vector}, _, _, #{shard := Shard, first := First, last := Last}) ->
    Has = element(Shard, Vector),
    if
        First > Has -> cursor_before;
        Last > Has -> unknown;
        As =:= newest -> newest;
        true -> cursor_after
    end;
opened(unreadable, _, _, _) ->
    unknown.

%% Such a one opened before all of its user's that have rows, or before its link.
older(Session, #{first := First}, Floor) ->
    case First > Floor andalso synced_before(First, Session) of
        true -> before;
        false -> unknown
    end.

synced_before(Seq, {link, Slot, _}) ->
    case halley_openings:noted({sync, Slot}) of
        {Synced, _} when is_integer(Synced) -> Seq > Synced;
        _ -> false
    end;
synced_before(_, _) ->
    true.

catchup({link, Slot, _}) ->
    case halley_openings:noted({catchup, Slot}) of
        {Seq, _} when is_integer(Seq) -> Seq;
        none -> 0
    end;
catchup(_) ->
    0.

%% Whether it was subscribed when the event was published, of the subjects that it has by now.
is_ground(theirs, _, _) -> true;
is_ground(Subjects, #{first := First}, Rows) ->
    Later = [Subject || #{what := {subscribed, Subject}, drawn := Drawn} <- Rows, First =< Drawn],
    Subjects -- Later =/= [].

%% Whether a session of the user may have been subscribed to one of these subjects when the event
%% was published, and isn't any more.
-spec has_unsubscribed(seqs(), [halley_id:id()], [halley_openings:row()]) -> boolean().
has_unsubscribed(#{first := First}, Subjects, Rows) ->
    lists:any(fun(#{what := {unsubscribed, Subject}, drawn := Drawn}) ->
                      First =< Drawn andalso lists:member(Subject, Subjects);
                 (_) ->
                      false
              end, Rows).
