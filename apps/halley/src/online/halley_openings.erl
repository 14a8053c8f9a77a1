%% From where sessions that opened lately have what is published: the last `openings_max' openings
%% and changes of subscriptions, for traces.
%%
%% A ring in ETS, as `halley_closings' is, written by the processes that open sessions.
%% `halley_began' defines the rows; here they are kept, bounded and forgotten.
%%
%% A row that was overwritten raises the *floor*: a session without a row has been there since then
%% at the latest. A link that syncs says sessions that are older than itself. They have no rows, so
%% a link notes when its sync began and ended: a session of its without a row was there by the end.
%%
%% It is in memory alone, and grows by nothing that a session has while it lives.
-module(halley_openings).

-export([new/0, record/2, of_user/1, floor/0, began_at/1, note/2, noted/1, forget/1]).
-export_type([row/0, what/0, note/0]).

-define(STATE, {?MODULE, state}).
-define(PLACE, 1).
-define(FLOOR, 2).

-type seq() :: halley_cursor:seq().
%% `live': without a cursor; all up to the vector had been sent before it was there, or nothing is
%% known to be (`none'). `cursor', `newest': it was held, and is sent what is behind the vector.
-type what() :: {live, none | halley_cursor:vector()}
              | {cursor | newest, halley_cursor:vector()}
              | unreadable
              | {subscribed | unsubscribed, halley_id:id()}.
%% `drawn': what is above it was published when that had happened.
-type row() :: #{place := pos_integer(), session := halley_directory:session(), what := what(),
                 drawn := seq()}.
%% Of a slot: its sync runs, or ended at a seq; and up to where its last catch-up went.
-type note() :: {sync, halley_directory:slot()} | {catchup, halley_directory:slot()}.

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    persistent_term:put(?STATE, atomics:new(2, [])).

%% Sessions, or visitors' of whom nobody asks, that opened or changed by now.
-spec record(Drawn :: seq(), [{halley_id:user_number(), halley_directory:session(), what()}]) -> ok.
record(Drawn, Opened) ->
    Max = halley_limits:get(openings_max),
    lists:foreach(fun(One) -> record(Max, Drawn, One) end, Opened).

record(0, Drawn, _) ->
    raise(Drawn);
record(Max, Drawn, {User, Session, What}) ->
    Place = atomics:add_get(persistent_term:get(?STATE), ?PLACE, 1),
    Key = Place rem Max,
    _ = [ok = raise(Lost) || {_, _, _, _, _, Lost} <- ets:lookup(?MODULE, Key)],
    true = ets:insert(?MODULE, {Key, Place, User, Session, What, Drawn}),
    ok.

%% Sessions that opened before this seq may have no row.
-spec began_at(seq()) -> ok.
began_at(Seq) -> raise(Seq).

raise(Seq) -> halley_floor:raise(persistent_term:get(?STATE), ?FLOOR, Seq).

-spec floor() -> seq().
floor() -> atomics:get(persistent_term:get(?STATE), ?FLOOR).

%% What is remembered of a user's sessions, the latest first.
-spec of_user(halley_id:user_number()) -> [row()].
of_user(User) ->
    Rows = ets:match(?MODULE, {'_', '$1', User, '$2', '$3', '$4'}),
    [#{place => Place, session => Session, what => What, drawn => Drawn}
     || [Place, Session, What, Drawn] <- lists:reverse(lists:sort(Rows))].

%% With the place of the last row by now: those of a slot up to there are of the link before.
-spec note(note(), running | seq()) -> ok.
note(Note, What) ->
    Place = atomics:get(persistent_term:get(?STATE), ?PLACE),
    case ets:update_element(?MODULE, Note, {2, What}) of
        true when What =/= running -> ok;
        _ -> true = ets:insert(?MODULE, {Note, What, Place}), ok
    end.

-spec noted(note()) -> {running | seq(), AfterPlace :: non_neg_integer()} | none.
noted(Note) ->
    case ets:lookup(?MODULE, Note) of
        [{_, What, Place}] -> {What, Place};
        [] -> none
    end.

%% Numbers that are about to be given again, or whose users were deleted.
-spec forget([halley_id:user_number()]) -> ok.
forget(Users) ->
    Is = maps:from_keys(Users, true),
    Keys = ets:foldl(fun({Key, _, User, _, _, _}, Acc) when is_map_key(User, Is) -> [Key | Acc];
                        (_, Acc) -> Acc
                     end, [], ?MODULE),
    lists:foreach(fun(Key) -> true = ets:delete(?MODULE, Key) end, Keys).
