%% From where sessions that opened lately have what is published: the last `openings_max' openings
%% and changes of subscriptions, for traces. Of these one user has its share (`halley_user_rows').
%%
%% Written by the processes that open sessions. `halley_began' defines the rows; here they are kept,
%% bounded and forgotten.
%%
%% A row that was dropped raises a *floor*, that of the user or that of all: a session of the user
%% without a row has been there since then at the latest. A link that syncs says sessions that are
%% older than itself. They have no rows, so a link notes when its sync began and ended: a session of
%% its without a row was there by the end.
%%
%% It is in memory alone, and grows by nothing that a session has while it lives.
-module(halley_openings).

-export([new/0, record/2, of_user/1, floor/1, began_at/1, note/2, noted/1, forget/1]).
-export_type([row/0, what/0, note/0]).

-define(NOTES, halley_openings_notes).

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

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    ?NOTES = ets:new(?NOTES, [named_table, public]),
    halley_user_rows:new(?MODULE).

%% Sessions, or visitors' of whom nobody asks, that opened or changed by now.
-spec record(Drawn :: seq(), [{halley_id:user_number(), halley_directory:session(), what()}]) -> ok.
record(Drawn, Opened) ->
    Max = halley_limits:get(openings_max),
    lists:foreach(fun({User, Session, What}) ->
                          halley_user_rows:record(?MODULE, Max, {User, Drawn, {Session, What}})
                  end, Opened).

%% Sessions that opened before this seq may have no row.
-spec began_at(seq()) -> ok.
began_at(Seq) -> halley_user_rows:raise(?MODULE, Seq).

%% The user's, or that of all for an id without a number. To be read after the rows.
-spec floor(halley_id:user_number() | undefined) -> seq().
floor(undefined) -> halley_user_rows:floor(?MODULE);
floor(User) -> halley_user_rows:floor(?MODULE, User).

%% What is remembered of a user's sessions, the latest first.
-spec of_user(halley_id:user_number()) -> [row()].
of_user(User) ->
    [#{place => Place, session => Session, what => What, drawn => Drawn}
     || {Place, Drawn, {Session, What}} <- halley_user_rows:of_user(?MODULE, User)].

%% With the place of the last row by now: those of a slot up to there are of the link before.
-spec note(note(), running | seq()) -> ok.
note(Note, What) ->
    Place = halley_user_rows:place(?MODULE),
    case ets:update_element(?NOTES, Note, {2, What}) of
        true when What =/= running -> ok;
        _ -> true = ets:insert(?NOTES, {Note, What, Place}), ok
    end.

-spec noted(note()) -> {running | seq(), AfterPlace :: non_neg_integer()} | none.
noted(Note) ->
    case ets:lookup(?NOTES, Note) of
        [{_, What, Place}] -> {What, Place};
        [] -> none
    end.

%% Numbers that are about to be given again, or whose users were deleted.
-spec forget([halley_id:user_number()]) -> ok.
forget(Users) ->
    _ = halley_user_rows:forget(?MODULE, Users),
    ok.
