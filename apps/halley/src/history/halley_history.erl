%% The history: what was published within the retention, on disk, and the numbers that order it.
%%
%% This is the facade; docs/internals/history.md has the inside. Reads are atomics, ETS and the
%% log's files; the only writer is `halley_history_log'.
%%
%% A shard publishes so: `draw/1' (its head moves), look up who is online, send, `append/3'. What
%% was drawn must be appended, or passed by a later `mark/1', or else `await/2' waits for it.
%%
%% A change of follows is a record as well: subject is the user, id is the subject that it follows
%% from now on, or not any longer. It is written before it takes effect, and its seq is drawn after
%% all events that were published before its request (`halley_unfollows', `halley_follows_since').
%% It belongs to no shard's order, so heads don't bound it: it has chains of its own, and
%% `changes/2' gives all above a seq.
%%
%% Not here: cursors, what a replay does, which sessions get a gap.
-module(halley_history).

-export([new/0, draw/1, draw/2, has_room/0, mark/1, reached/2, mark_reached/1]).
-export([heads/0, written/0, floor/0, store/0, cursor/1, adopt/2, wipe/2]).
-export([notify/1, await/2, await_as_session/2]).
-export([refusing/0, refusing/1, append/3, claim/2, shard_started/1]).
-export([unfollowed/1, followed/2, placed/2]).
-export([drawn/0, forget/1, forgotten/1, kept/1, room_to_keep/3]).
-export([is_empty/0, has_private/1, has_joint/1, joint/1, name/1]).
-export([find/1, stretch/4, back/5, has_events/1, changes/2, changes/4, changes_of/2, seqs/3,
         bytes/2, info/0, damaged/0]).
-export_type([seq/0, vector/0, about/0, entry/0, reply/0, answer/0, info/0, range/0, placed/0]).

-type seq() :: halley_history_atomics:seq().
-type vector() :: halley_history_atomics:vector().
%% A subject; or, in a shard, what is for a user alone, `{to, Shard, User}', or what is about a
%% subject among others, `{in, Shard, Subject}'.
-type about() :: halley_history_record:about().
%% `chosen': its publisher has claimed the id as well.
-type entry() :: halley_event:event() | halley_event:private_event() | halley_event:joint_event().
%% Callers that get an answer once the entries, and all before them, are on disk. On a failure the
%% answer is `{error, disk_full}', `{error, history_failed}' or `{error, data_dir_moved}'. `none':
%% for some of the entries nobody waits, those with `ack'; for any of them, if there is no other.
-type reply() :: none
               | {gen_server:from(), Answer :: term()}
               | {posts, Publisher :: pid(), [answer()]}.
%% Of a post, by its publisher's tag; they come as `{posted, [answer()]}', a group's together.
-type answer() :: {Tag :: integer(), term()}.
%% Seqs of which some can't be read back, and the times of the events around them.
-type range() :: {FromSeq :: seq(), ToSeq :: seq(), FromMs :: integer(), ToMs :: integer()}.
%% A change of follows with its place in the order of several brains.
-type placed() :: {follow | unfollow, seq(), {UserId :: binary(), SubjectId :: binary()}}.
-type info() :: #{store := non_neg_integer(), floor := seq(),
                  floor_at := integer(),           % of the last event that is gone; 0: none is
                  oldest_at := integer() | none,   % of the oldest event that is retained
                  events := non_neg_integer(), bytes := non_neg_integer(),
                  queue_bytes := non_neg_integer(), damaged := [range()]}.

%% Entries of the index that tell whether a subject has events: a bucket may be long.
-define(HAS_EVENTS_LOOKS, 1000).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    ok = halley_history_atomics:new(0),
    ok = halley_history_index:new(),
    ok = halley_history_forgotten:new(),
    ok = halley_history_kept:new(),
    ok = halley_history_shown:new(),
    ok = halley_history_pending_ids:new(),
    ok = halley_history_waiting:new(),
    ok = halley_metrics:gauges([history, history_disk, history_age, history_queue, forgotten],
                               fun gauges/0),
    halley_history_cache:new().

%% The next seq; the shard's head moves to it. Only the shard itself may call it, and before it
%% looks up who is online.
-spec draw(halley_shards:index()) -> seq().
draw(Shard) -> halley_history_atomics:draw(Shard, 1).

%% The same for so many seqs in a row, of which it gives the last: a private event has one for each
%% of its users. To be asked for only where there `has_room/0': otherwise the log renews what may be
%% drawn soon, and the shard must wait.
-spec draw(halley_shards:index(), N :: pos_integer()) -> seq().
draw(Shard, N) -> halley_history_atomics:draw(Shard, N).

-spec has_room() -> boolean().
has_room() -> halley_history_atomics:has_room().

%% Moves the shard's head to what all shards have drawn, and tells the log, so that a quiet
%% shard's part of the vectors doesn't grow old. Only the shard itself may call it.
-spec mark(halley_shards:index()) -> seq().
mark(Shard) ->
    case halley_history_atomics:mark(Shard) of
        {moved, Seq} ->
            ok = halley_history_log:mark(Shard, Seq),
            Seq;
        {same, Seq} ->
            Seq
    end.

%% In place of `draw/1' and `mark/1' for a shard whose events another process orders: the head moves
%% to a seq that was drawn there, and up to which the shard has got everything. Only the shard
%% itself may call it, and before it looks up who is online.
-spec reached(halley_shards:index(), seq()) -> ok.
reached(Shard, Seq) -> halley_history_atomics:reached(Shard, Seq).

%% Sends the log the head of such a shard, and returns it; the head stays where it is.
-spec mark_reached(halley_shards:index()) -> seq().
mark_reached(Shard) ->
    Seq = element(Shard, heads()),
    ok = halley_history_log:mark(Shard, Seq),
    Seq.

%% What each shard has drawn.
-spec heads() -> vector().
heads() -> halley_history_atomics:heads().

%% What of it the log has written and indexed.
-spec written() -> vector().
written() -> halley_history_atomics:written().

%% The highest seq that retention has dropped.
-spec floor() -> seq().
floor() -> halley_history_atomics:get(floor).

%% Names this store: its seqs mean nothing in another.
-spec store() -> 0..16#FFFFFFFF.
store() -> halley_history_atomics:get(store).

%% A cursor, as `halley_cursor:decode/1' gives it; one of a store that this one goes on from is as
%% one of this store, up to where that one ended (`halley_history_epochs').
-spec cursor(halley_cursor:token()) ->
    {ok, #{store := halley_cursor:store(), at := non_neg_integer(), vector := vector()}} | error.
cursor(Token) -> halley_history_epochs:cursor(Token).

%% The same events go on under another store id behind `End', as a log of several brains has it.
%% Nothing above `End' may be here. For `halley_order:adopt/2'.
-spec adopt(halley_cursor:store(), End :: seq()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
adopt(Store, End) -> halley_history_log:adopt(Store, End).

%% Forgets all events and records, and goes on empty, as this store behind this seq. What is older
%% in a cursor of it is a gap. For `halley_order:wipe/2'.
-spec wipe(halley_cursor:store(), Before :: seq()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
wipe(Store, Before) -> halley_history_log:wipe(Store, Before).

%% Whether the written heads have reached a vector. If not, the calling process receives
%% {history_written, Ref} once they have. They will: the heads of what can't be written rise, too.
%% A process asks again only when it has got that.
-spec notify(vector()) -> written | {later, Ref :: reference()}.
notify(Vector) -> halley_history_waiting:notify(Vector).

%% Waits until the written heads have reached a vector.
-spec await(vector(), timeout()) -> ok | timeout.
await(Vector, TimeoutMs) -> halley_history_waiting:await(Vector, TimeoutMs).

%% The same for a process that is a session: `timeout' never comes sooner because many wait.
-spec await_as_session(vector(), timeout()) -> ok | timeout.
await_as_session(Vector, TimeoutMs) ->
    halley_history_waiting:await_as_session(Vector, TimeoutMs).

%% Why nothing may be published now, by these. Asked before any part of an event is accepted.
-spec refusing() -> overloaded | halley_history_atomics:refusing().
refusing() -> refusing(servers).

-spec refusing(halley_limits:whose()) -> overloaded | halley_history_atomics:refusing().
refusing(Whose) ->
    case halley_history_atomics:get_refusing() of
        false ->
            Waiting = halley_history_atomics:get(queue_bytes),
            Waiting > halley_limits:part(Whose, history_queue_bytes_max) andalso overloaded;
        Reason ->
            Reason
    end.

%% Hands entries to the log, in the order of their seqs; the log answers the callers that wait.
%% Without entries it does so when all that was written so far is on disk.
-spec append(halley_shards:index(), [entry()], [reply(), ...]) -> ok.
append(Shard, Entries, Replies) -> halley_history_log:append(Shard, Entries, Replies).

%% Before an event with a chosen id is published: `fresh', and the id is the shard's until the
%% event is indexed or could not be written; `busy', it is another's; or the first answer, which is
%% on disk once an `append/3' without entries is answered.
-spec claim(halley_shards:index(), binary()) ->
    fresh | busy | {known, #{id := binary(), sessions := non_neg_integer()}}.
claim(Shard, Id) -> halley_history_pending_ids:claim(Shard, Id).

%% For a shard that starts, before it does anything else: the claims of the one before it end, and
%% what that one drew and never appended is waited for no more.
-spec shard_started(halley_shards:index()) -> ok.
shard_started(Shard) -> halley_history_log:shard_started(Shard).

%% To be called before the unfollows take effect; returns when they are on disk. With an error they
%% are not, and must not take effect.
-spec unfollowed([{UserId :: binary(), SubjectId :: binary()}]) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
unfollowed(Pairs) -> halley_history_log:changed(unfollow, Pairs).

%% To be called before the follows take effect, which nobody had when `From' had been drawn: of
%% what was published up to there, nothing is these users'.
%% Returns when it is on disk. With an error
%% the follows must not take effect.
-spec followed([{UserId :: binary(), SubjectId :: binary()}], From :: seq()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
followed(Pairs, From) -> halley_history_log:changed({follow, From}, Pairs).

%% In place of both, where the order is another process's: what is written then draws no seq, and
%% what the history has already isn't written again. The changes are in the order of their places,
%% above those of any change before. A follow doesn't count for what is below its place. A user that
%% follows itself from a place on is forgotten up to there.
%%
%% Returns when they are on disk. With an error a part of them may be, and the caller tries again
%% before it goes on in the log.
-spec placed([placed()], AtMs :: integer()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
placed(Changes, AtMs) -> halley_history_log:changed({placed, AtMs}, Changes).

%% What was published about a user, or to it alone, is shown to nobody from now on; returns when
%% that is on disk. The log itself has it until retention takes it. To be called after the user's
%% follows have ended both ways. Two records say so: bits that flip in one must not show it again.
-spec forget(User :: binary()) -> ok | {error, disk_full | history_failed | data_dir_moved}.
forget(User) -> followed([{User, User}, {User, User}], drawn()).

%% Up to which seq a user was forgotten, within the retention; 0 if it wasn't.
-spec forgotten(User :: binary()) -> seq().
forgotten(User) -> halley_history_forgotten:seq(User).

%% A subject's kept value; and whether a user, or a server (`none'), may keep one of so many bytes.
-spec kept(binary()) -> {ok, halley_history_kept:kept()} | none.
kept(SubjectId) -> halley_history_kept:find(SubjectId).

-spec room_to_keep(binary(), Bytes :: non_neg_integer(), By :: binary() | none) ->
    ok | {error, too_many_kept | too_many_own_kept}.
room_to_keep(SubjectId, Bytes, By) -> halley_history_kept:room(SubjectId, Bytes, By).

%% The highest seq that any event or follow has.
-spec drawn() -> seq().
drawn() -> halley_history_atomics:get(counter).

%% The event with this id, within the retention.
-spec find(binary()) -> {ok, seq()} | none.
find(Id) -> halley_history_pending_ids:find(Id).

%% The oldest seqs of what may concern a subject of this shard, or be for a user alone, ascending:
%% `After < Seq =< To', and
%% `To =< UpTo' is where to go on. Some 256 entries of the index are looked at (`Looks'), however
%% many there are above `To'. A subject's entries are chosen by a hash: the record decides.
-spec stretch(halley_shards:index(), SubjectId, After :: seq(), UpTo :: seq()) ->
    {[seq()], To :: seq(), Looks :: non_neg_integer()} when SubjectId :: about().
stretch(Shard, SubjectId, After, UpTo) ->
    halley_history_index:stretch(Shard, SubjectId, After, UpTo).

%% The newest seqs of what may concern a subject of this shard, descending: `After < Seq =< UpTo',
%% as far as `Looks' entries of the index go; from where to ask for more, which may be above `UpTo'
%% still; and the looks that are left. All up to `UpTo' must be written (`await/2'). The record
%% decides, as above.
-spec back(halley_shards:index(), SubjectId, UpTo :: seq(), After :: seq(),
           Looks :: pos_integer()) ->
    {[seq()], Next :: seq() | done, Left :: non_neg_integer()} when SubjectId :: about().
back(Shard, SubjectId, UpTo, After, Looks) ->
    halley_history_index:back(Shard, SubjectId, UpTo, After, Looks).

%% Whether the history may have any event about a subject.
-spec has_events(binary()) -> boolean().
has_events(SubjectId) -> halley_history_index:has_events(SubjectId, ?HAS_EVENTS_LOOKS).

%% Whether there may be private events above a seq, for whomever.
-spec has_private(After :: seq()) -> boolean().
has_private(After) -> halley_history_atomics:get(private) > After.

%% Whether there may be joint events above a seq, about whatever; and up to which seq about a
%% subject. They are in chains of their own, one for each shard.
-spec has_joint(After :: seq()) -> boolean().
has_joint(After) -> halley_history_atomics:get(joint) > After.

-spec joint(binary()) -> seq().
joint(SubjectId) -> halley_history_joint:newest(SubjectId).

%% The subject or user that something concerns.
-spec name(about()) -> binary().
name({_, _, Name}) -> Name;
name(Subject) -> Subject.

%% Whether it has anything at all.
-spec is_empty() -> boolean().
is_empty() -> halley_history_atomics:get(events) =:= 0.

%% The seqs of what may be changes of a user's follows, `After < Seq', newest first. With the
%% smallest part of the user's cursor as `After' it has all of them since then.
-spec changes(binary(), After :: seq()) -> [seq()].
changes(UserId, After) -> halley_history_index:changes(UserId, After).

%% The same, as far as `Looks' entries of the index go; and from where to ask for more.
-spec changes(UserId, From :: newest | seq(), After :: seq(), Looks :: pos_integer()) ->
    {[seq()], Next :: seq() | done} when UserId :: binary().
changes(UserId, From, After, Looks) ->
    halley_history_index:changes(UserId, From, After, Looks).

%% Those of a subject, by anyone: all above a seq, newest first.
-spec changes_of(binary(), After :: seq()) -> [seq()].
changes_of(SubjectId, After) -> halley_history_index:changes_of(SubjectId, After).

%% The oldest seqs, at most `Max', that have a record: `After < Seq =< UpTo'; and up to where
%% these are all.
-spec seqs(After :: seq(), UpTo :: seq(), Max :: pos_integer()) -> {[seq()], seq()}.
seqs(After, UpTo, Max) -> halley_history_index:seqs(After, UpTo, Max).

%% About how many bytes the log has from the first record above `After' to its end, if there is one
%% up to `UpTo'.
-spec bytes(After :: seq(), UpTo :: seq()) -> non_neg_integer().
bytes(After, UpTo) -> halley_history_index:bytes(After, UpTo).

-spec info() -> info().
info() ->
    Events = halley_history_atomics:get(events),
    #{store => store(), floor => floor(),
      floor_at => halley_history_atomics:get(floor_at),
      oldest_at => case Events of 0 -> none; _ -> halley_history_atomics:get(oldest_at) end,
      events => Events,
      bytes => halley_history_atomics:get(bytes),
      queue_bytes => max(0, halley_history_atomics:get(queue_bytes)),
      damaged => damaged()}.

%% Ranges of which some can't be read back.
-spec damaged() -> [range()].
damaged() -> halley_history_copied:without(halley_history_index:damaged()).

gauges() ->
    #{events := Events, bytes := Bytes, queue_bytes := QueueBytes, oldest_at := OldestAt} = info(),
    #{history => Events, history_disk => Bytes, history_queue => QueueBytes,
      history_age => age_s(OldestAt), forgotten => halley_history_forgotten:count()}.

age_s(none) -> 0;
age_s(At) -> max(0, halley_clock:wall_ms() - At) div 1000.
