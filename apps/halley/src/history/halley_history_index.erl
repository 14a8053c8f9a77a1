%% The index of the history: 32 bytes for each seq, none of the events' data.
%%
%% Four words in `atomics', by seq, in chunks that come and go whole:
%%   1  the seq of the previous event in the subject's bucket (48 bits), a tag of the subject (16);
%%      of a change of follows, the same for the user
%%   2  the same for the event's id; of a change of follows, for the subject of it
%%   3  segment (32), offset in it (32): where the record is
%%   4  sessions of the first answer (32), of an event the subject's bucket in its shard (16), kind
%%      and flags (8), shard (8)
%% and four arrays of bucket heads: subjects, ids, users whose follows changed, subjects of these
%% changes. So a subject's events are a chain from the newest back. Buckets hold no names: the tag
%% lets one other name in 65,536 pass, and the record decides.
%%
%% *Milestones* let a reader enter a subject's chain in the middle: one event in 256, chosen by a
%% hash of its seq, stands as {Bucket, Seq} in an ordered table, under half a byte an event. So a
%% chain can be read from its old end, in stretches of some 256 entries (`stretch/4'), and newer
%% entries than the wanted ones are skipped.
%%
%% A private event has an entry for each of its users, all of one record, and one about several
%% subjects for each of these: word 1 is of a chain of the user's, or of the subject's, in the
%% event's shard, which lies among those of subjects. Only the last entry is in the chain of its id.
%%
%% Bucket and tag together are 31 bits of the subject's hash, and the shard three of another. So an
%% entry knows whether a text is its subject about as well as the record's checksum does. A reader
%% that only wants the subject reads no more of the record than its beginning (`is_about/2').
%%
%% Invariants: only the log's process writes, an entry before the head that leads to it. A bucket
%% of subjects belongs to one shard, and changes of follows have buckets of their own, so along
%% these chains seqs only fall and a walk may stop early. Events of several shards meet in a bucket
%% of ids, in the order of the log: that walk stops only at what is gone. A milestone is written
%% after the entry that it names; one that is missing makes a walk longer, never wrong.
-module(halley_history_index).

-include("halley_history.hrl").

-export([new/0, clear/0, written/3, event/6, several/7, change/5, forget_id/1]).
-export([stretch/4, back/5, has_events/2, changes/2, changes/4, changes_of/2, seqs/3, bytes/2,
         candidates/1, lookup/1, where/1, is_about/2]).
-export([drop_below/1, memory/0, damaged/0, set_damaged/1]).
-export_type([position/0]).

-type position() :: #{segment := non_neg_integer(), offset := non_neg_integer(),
                      sessions := non_neg_integer(),
                      kind := event | private | joint | follow | unfollow,
                      chosen := boolean(), shard := halley_shards:index()}.

%% 256 KB: a brain that was killed begins in a new chunk, and a partial one should be cheap.
-define(CHUNK_BITS, 13).
-define(CHUNK, (1 bsl ?CHUNK_BITS)).
-define(CHOSEN, 1).
-define(UNFOLLOW, 2).
-define(FOLLOW, 4).
-define(PRIVATE, 8).
-define(JOINT, 16).
%% Records whose places say how much of the log is between two seqs.
-define(SAMPLES, 32).
-define(MILESTONES, halley_history_milestones).
-define(MILESTONE_EVERY, 256).
%% Above every seq and every number of entries.
-define(ALL, (1 bsl 58)).

-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    ?MILESTONES = ets:new(?MILESTONES, [named_table, public, ordered_set,
                                        {read_concurrency, true}]),
    clear().

%% Forgets everything, as the log's process does before it reads the segments.
-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    true = ets:delete_all_objects(?MILESTONES),
    Heads = list_to_tuple([atomics:new(halley_history_buckets:count(Of), [{signed, false}])
                           || Of <- [subject, id, change, change]]),
    ok = halley_history_joint:clear(),
    persistent_term:put(?MODULE, Heads).

%% --- writing, by the log's process alone ---------------------------------------------------------

%% Records that were written from this offset on. Gives the seqs of those with a chosen id.
-spec written([#packed{}], Segment :: non_neg_integer(), Offset :: non_neg_integer()) ->
    [halley_history:seq()].
written([], _, _) ->
    [];
written([#packed{kind = event, seq = Seq, id = Id, subject = Subject, chosen = Chosen} = Packed
         | More], Segment, Offset) ->
    #packed{shard = Shard, sessions = Sessions, bytes = Bytes} = Packed,
    ok = event(Shard, {Seq, Id, Subject}, Chosen, Sessions, Segment, Offset),
    _ = Packed#packed.keep =:= none orelse kept(Packed, Segment),
    [Seq || Chosen] ++ written(More, Segment, Offset + Bytes);
%% Nothing leads to it: it is what is in memory.
written([#packed{kind = kept, bytes = Bytes} | More], Segment, Offset) ->
    written(More, Segment, Offset + Bytes);
written([#packed{kind = Kind, shard = Shard, seq = Last, id = Id, subject = Names,
                 chosen = Chosen, sessions = Sessions, bytes = Bytes} | More], Segment, Offset)
  when Kind =:= private; Kind =:= joint ->
    ok = several(Kind, Shard, {Last, Id, Names}, Chosen, Sessions, Segment, Offset),
    [Last || Chosen] ++ written(More, Segment, Offset + Bytes);
written([#packed{kind = Kind, shard = Shard, seq = Seq, subject = User, id = Subject,
                 bytes = Bytes} | More], Segment, Offset) ->
    ok = change(Kind, Shard, {Seq, User, Subject}, Segment, Offset),
    written(More, Segment, Offset + Bytes).

kept(#packed{seq = Seq, subject = Subject, keep = Keep, record = Record}, Segment) ->
    HeadBytes = halley_history_record:head_bytes(),
    <<_:HeadBytes/binary, Body/binary>> = iolist_to_binary(Record),
    {ok, #{body := Event}} = halley_history_record:body(Body),
    halley_history_kept:met(Segment, Seq, {Subject, Keep, Event}).

-spec event(halley_shards:index(), {Seq :: pos_integer(), Id :: binary(), Subject :: binary()},
            Chosen :: boolean(), Sessions :: non_neg_integer(), Segment :: non_neg_integer(),
            Offset :: non_neg_integer()) -> ok.
event(Shard, {Seq, Id, Subject}, Chosen, Sessions, Segment, Offset) ->
    {Subjects, Ids, _, _} = persistent_term:get(?MODULE),
    {SubjectBucket, SubjectTag} = halley_history_buckets:subject(Shard, Subject),
    {IdBucket, IdTag} = halley_history_buckets:id(Id),
    Flags = case Chosen of true -> ?CHOSEN; false -> 0 end,
    Chunk = make_chunk(Seq bsr ?CHUNK_BITS),
    Place = place(Seq),
    Within = halley_history_buckets:within(SubjectBucket),
    put_entry(Chunk, Place, Segment, Offset, Sessions, (Within bsl 8) bor Flags, Shard),
    link(Subjects, SubjectBucket, Chunk, Place, Seq, SubjectTag),
    _ = erlang:phash2(Seq, ?MILESTONE_EVERY) =:= 0
        andalso ets:insert(?MILESTONES, {{SubjectBucket, Seq}}),
    link(Ids, IdBucket, Chunk, Place + 1, Seq, IdTag).

%% A private or a joint event: of its users or subjects, in the order of their seqs, the last of
%% which is `Last'.
-spec several(private | joint, halley_shards:index(),
              {Last :: pos_integer(), Id :: binary(), Names :: [binary(), ...]},
              Chosen :: boolean(), Sessions :: non_neg_integer(), Segment :: non_neg_integer(),
              Offset :: non_neg_integer()) -> ok.
several(Kind, Shard, {Last, Id, Names}, Chosen, Sessions, Segment, Offset) ->
    {Subjects, Ids, _, _} = persistent_term:get(?MODULE),
    {IdBucket, IdTag} = halley_history_buckets:id(Id),
    Put = fun(Name, {Seq, Before}) ->
        {Bucket, Tag} = halley_history_buckets:subject(Shard, about(Kind, Shard, Name)),
        Flags = flag(Kind) bor case Chosen andalso Seq =:= Last of true -> ?CHOSEN; _ -> 0 end,
        {_, Chunk} = Here = same_chunk(Seq bsr ?CHUNK_BITS, Before),
        Place = place(Seq),
        Within = halley_history_buckets:within(Bucket),
        put_entry(Chunk, Place, Segment, Offset, Sessions, (Within bsl 8) bor Flags, Shard),
        link(Subjects, Bucket, Chunk, Place, Seq, Tag),
        _ = erlang:phash2(Seq, ?MILESTONE_EVERY) =:= 0
            andalso ets:insert(?MILESTONES, {{Bucket, Seq}}),
        _ = Seq =:= Last andalso link(Ids, IdBucket, Chunk, Place + 1, Seq, IdTag),
        {Seq + 1, Here}
    end,
    _ = lists:foldl(Put, {Last - length(Names) + 1, none}, Names),
    _ = Kind =:= joint andalso halley_history_joint:met(Names, Last),
    halley_history_atomics:put(Kind, max(Last, halley_history_atomics:get(Kind))).

about(private, Shard, User) -> {to, Shard, User};
about(joint, Shard, Subject) -> {in, Shard, Subject}.

flag(private) -> ?PRIVATE;
flag(joint) -> ?JOINT.

-spec change(follow | unfollow, halley_shards:index(),
             {Seq :: pos_integer(), User :: binary(), Subject :: binary()},
             Segment :: non_neg_integer(), Offset :: non_neg_integer()) -> ok.
change(Kind, Shard, {Seq, User, Subject}, Segment, Offset) ->
    {_, _, Users, Subjects} = persistent_term:get(?MODULE),
    {UserBucket, UserTag} = halley_history_buckets:change(User),
    {SubjectBucket, SubjectTag} = halley_history_buckets:change(Subject),
    Flags = case Kind of follow -> ?FOLLOW; unfollow -> ?UNFOLLOW end,
    Chunk = make_chunk(Seq bsr ?CHUNK_BITS),
    Place = place(Seq),
    put_entry(Chunk, Place, Segment, Offset, 0, Flags, Shard),
    link(Users, UserBucket, Chunk, Place, Seq, UserTag),
    link(Subjects, SubjectBucket, Chunk, Place + 1, Seq, SubjectTag),
    case Kind of
        follow when User =:= Subject ->
            ok = halley_history_forgotten:met(User, Subject, Seq),
            halley_history_kept:forget(User, Seq);
        follow -> ok;
        unfollow -> ok
    end.

put_entry(Chunk, Place, Segment, Offset, Sessions, Flags, Shard) ->
    ok = atomics:put(Chunk, Place + 2, (Segment bsl 32) bor Offset),
    ok = atomics:put(Chunk, Place + 3, (Sessions bsl 32) bor (Flags bsl 8) bor Shard).

link(Heads, Bucket, Chunk, Place, Seq, Tag) ->
    ok = atomics:put(Chunk, Place, (atomics:get(Heads, Bucket) bsl 16) bor Tag),
    ok = atomics:put(Heads, Bucket, Seq).

%% The seqs of one event are in one, mostly: it isn't looked up for each.
same_chunk(Number, {Number, _} = Before) -> Before;
same_chunk(Number, _) -> {Number, make_chunk(Number)}.

make_chunk(Number) ->
    case ets:lookup(?MODULE, Number) of
        [{_, Chunk}] -> Chunk;
        [] ->
            Chunk = atomics:new(4 * ?CHUNK, [{signed, false}]),
            true = ets:insert(?MODULE, {Number, Chunk}),
            Chunk
    end.

place(Seq) -> 4 * (Seq band (?CHUNK - 1)) + 1.

%% The event stays, but its id may be published again: it isn't certain to be on disk.
-spec forget_id(pos_integer()) -> ok.
forget_id(Seq) ->
    case chunk(Seq bsr ?CHUNK_BITS) of
        none -> ok;
        Chunk ->
            Place = place(Seq) + 3,
            Word = atomics:get(Chunk, Place),
            atomics:put(Chunk, Place, Word band bnot (?CHOSEN bsl 8))
    end.

%% Lets go of the chunks that have only seqs up to the floor.
-spec drop_below(Floor :: non_neg_integer()) -> ok.
drop_below(Floor) ->
    First = (Floor + 1) bsr ?CHUNK_BITS,
    Guard = [{is_integer, '$1'}, {'<', '$1', First}],
    _ = ets:select_delete(?MODULE, [{{'$1', '_'}, Guard, [true]}]),
    _ = ets:select_delete(?MILESTONES, [{{{'_', '$1'}}, [{'=<', '$1', Floor}], [true]}]),
    ok.

%% --- reading, by anyone --------------------------------------------------------------------------

%% The oldest stretch of what may be events of the subject: seqs, ascending, `After < Seq =< To'
%% with `To =< UpTo'; what is above `To' is the next stretch. `Looks': how many entries were looked
%% at, some 256, whatever the length of the chain.
-spec stretch(halley_shards:index(), halley_history_record:about(), After :: non_neg_integer(),
              UpTo :: non_neg_integer()) ->
    {[pos_integer()], To :: non_neg_integer(), Looks :: non_neg_integer()}.
stretch(Shard, Subject, After, UpTo) ->
    {Subjects, _, _, _} = persistent_term:get(?MODULE),
    {Bucket, Tag} = halley_history_buckets:subject(Shard, Subject),
    case atomics:get(Subjects, Bucket) of
        Head when Head =< After ->
            {[], UpTo, 0};
        Head ->
            Stop = max(After, halley_history_atomics:get(floor)),
            case ets:next(?MILESTONES, {Bucket, Stop}) of
                {Bucket, Milestone} when Milestone =< UpTo ->
                    down(Milestone, Tag, Stop, Milestone);
                {Bucket, Milestone} ->
                    down(Milestone, Tag, Stop, UpTo);
                _ ->
                    down(Head, Tag, Stop, UpTo)
            end
    end.

down(First, Tag, Stop, To) ->
    {Seqs, done, Left} = walk(First, Tag, 0, Stop, To, ?ALL),
    {Seqs, To, ?ALL - Left}.

%% The same from the new end: seqs, descending, `After < Seq =< UpTo', as far as `Looks' entries go;
%% the entry where to go on, which may be above `UpTo' still; and the looks that are left. Up to
%% `UpTo' all must be written: an entry is there before its link is.
-spec back(halley_shards:index(), halley_history_record:about(), UpTo :: non_neg_integer(),
           After :: non_neg_integer(), Looks :: pos_integer()) ->
    {[pos_integer()], Next :: pos_integer() | done, Left :: non_neg_integer()}.
back(Shard, Subject, UpTo, After, Looks) ->
    {Subjects, _, _, _} = persistent_term:get(?MODULE),
    {Bucket, Tag} = halley_history_buckets:subject(Shard, Subject),
    Stop = max(After, halley_history_atomics:get(floor)),
    First = case is_in_bucket(UpTo, Shard, Bucket) of
        true -> UpTo;
        false -> above(UpTo, Bucket, Subjects)
    end,
    {Seqs, Next, Left} = walk(First, Tag, 0, Stop, UpTo, Looks),
    {lists:reverse(Seqs), Next, Left}.

%% An entry of the chain with few others between it and this seq.
above(Seq, Bucket, Subjects) ->
    case ets:next(?MILESTONES, {Bucket, Seq}) of
        {Bucket, Milestone} -> Milestone;
        _ -> atomics:get(Subjects, Bucket)
    end.

is_in_bucket(Seq, Shard, Bucket) ->
    case chunk(Seq bsr ?CHUNK_BITS) of
        none ->
            false;
        Chunk ->
            What = atomics:get(Chunk, place(Seq) + 3),
            What band 16#FF =:= Shard andalso is_of_subject((What bsr 8) band 16#FF)
                andalso (What bsr 16) band 16#7FFF =:= halley_history_buckets:within(Bucket)
    end.

is_of_subject(Flags) -> kind(Flags) =:= event orelse kind(Flags) =:= joint.

%% Whether anything may concern the subject, as far as so many entries of its bucket say: beyond
%% them it may.
-spec has_events(binary(), Looks :: pos_integer()) -> boolean().
has_events(Subject, Looks) ->
    {Subjects, _, _, _} = persistent_term:get(?MODULE),
    {Bucket, Tag} = halley_history_buckets:subject(halley_shards:of_subject(Subject), Subject),
    Floor = halley_history_atomics:get(floor),
    halley_history_joint:newest(Subject) > Floor
        orelse has_tag(atomics:get(Subjects, Bucket), Tag, Floor, Looks).

has_tag(Seq, _, Floor, _) when Seq =< Floor ->
    false;
has_tag(_, _, _, 0) ->
    true;
has_tag(Seq, Tag, Floor, Looks) ->
    case chunk(Seq bsr ?CHUNK_BITS) of
        none ->
            false;
        Chunk ->
            Link = atomics:get(Chunk, place(Seq)),
            Link band 16#FFFF =:= Tag orelse has_tag(Link bsr 16, Tag, Floor, Looks - 1)
    end.

%% Seqs of what may be changes of the user's follows, newest first: `After < Seq'.
-spec changes(binary(), non_neg_integer()) -> [pos_integer()].
changes(User, After) ->
    {Seqs, done} = changes(User, newest, After, ?ALL),
    Seqs.

%% The same, as far as `Looks' entries go; and where to go on.
-spec changes(binary(), From :: newest | pos_integer(), After :: non_neg_integer(),
              Looks :: pos_integer()) -> {[pos_integer()], Next :: pos_integer() | done}.
changes(User, From, After, Looks) ->
    {_, _, Users, _} = persistent_term:get(?MODULE),
    {Bucket, Tag} = halley_history_buckets:change(User),
    First = case From of newest -> atomics:get(Users, Bucket); _ -> From end,
    Stop = max(After, halley_history_atomics:get(floor)),
    {Seqs, Next, _} = walk(First, Tag, 0, Stop, ?ALL, Looks),
    {lists:reverse(Seqs), Next}.

%% Seqs of what may be changes of follows of the subject by anyone, newest first: `After < Seq'.
-spec changes_of(binary(), non_neg_integer()) -> [pos_integer()].
changes_of(Subject, After) ->
    {_, _, _, Subjects} = persistent_term:get(?MODULE),
    {Bucket, Tag} = halley_history_buckets:change(Subject),
    Stop = max(After, halley_history_atomics:get(floor)),
    {Seqs, done, _} = walk(atomics:get(Subjects, Bucket), Tag, 1, Stop, ?ALL, ?ALL),
    lists:reverse(Seqs).

%% The oldest seqs that have a record, `After < Seq =< UpTo', at most `Max', and up to where that
%% is all there are.
-spec seqs(non_neg_integer(), non_neg_integer(), pos_integer()) ->
    {[pos_integer()], UpTo :: non_neg_integer()}.
seqs(After, UpTo, Max) ->
    First = max(After, halley_history_atomics:get(floor)) + 1,
    seqs_from(First, UpTo, Max, none, none, []).

seqs_from(Seq, UpTo, _, _, _, Found) when Seq > UpTo ->
    {lists:reverse(Found), UpTo};
seqs_from(_, _, 0, _, _, [Last | _] = Found) ->
    {lists:reverse(Found), Last};
seqs_from(Seq, UpTo, Max, Number, Chunk, Found) when Seq bsr ?CHUNK_BITS =:= Number ->
    case atomics:get(Chunk, place(Seq) + 2) of
        0 -> seqs_from(Seq + 1, UpTo, Max, Number, Chunk, Found);
        _ -> seqs_from(Seq + 1, UpTo, Max - 1, Number, Chunk, [Seq | Found])
    end;
seqs_from(Seq, UpTo, Max, _, _, Found) ->
    Number = Seq bsr ?CHUNK_BITS,
    case chunk(Number) of
        none -> seqs_from((Number + 1) bsl ?CHUNK_BITS, UpTo, Max, none, none, Found);
        Chunk -> seqs_from(Seq, UpTo, Max, Number, Chunk, Found)
    end.

%% About how many bytes the log has from the first of these records to its end. Shards append beside
%% each other, so the first seq needn't be the first in the log: it is the first of some.
-spec bytes(After :: non_neg_integer(), UpTo :: non_neg_integer()) -> non_neg_integer().
bytes(After, UpTo) ->
    Step = max(1, (UpTo - After) div ?SAMPLES),
    case [Where || Seq <- lists:seq(After + 1, UpTo, Step), {_, _} = Where <- [where(Seq)]] of
        [] ->
            0;
        Places ->
            {Segment, Offset} = lists:min(Places),
            Last = halley_history_atomics:get(segment),
            (Last - Segment) * halley_limits:get(history_segment_bytes)
                + halley_history_atomics:get(position) - Offset
    end.

%% Seqs of what may have the id, newest first.
-spec candidates(binary()) -> [pos_integer()].
candidates(Id) ->
    {_, Ids, _, _} = persistent_term:get(?MODULE),
    {Bucket, Tag} = halley_history_buckets:id(Id),
    Floor = halley_history_atomics:get(floor),
    {Seqs, done, _} = walk(atomics:get(Ids, Bucket), Tag, 1, Floor, ?ALL, ?ALL),
    lists:reverse(Seqs).

%% Along a chain from its newest entry to `Stop', or as far as `Looks' entries go: the seqs up to
%% `UpTo' that have the tag, ascending; where to go on; the looks that are left.
walk(First, Tag, Word, Stop, UpTo, Looks) ->
    walk(First, Tag, Word, Stop, UpTo, Looks, none, none, []).

%% A chunk that is gone had only what is gone.
walk(Seq, _, _, Stop, _, Looks, _, _, Seqs) when Seq =< Stop ->
    {Seqs, done, Looks};
walk(Seq, _, _, _, _, 0, _, _, Seqs) ->
    {Seqs, Seq, 0};
walk(Seq, Tag, Word, Stop, UpTo, Looks, Number, Chunk, Seqs) when Seq bsr ?CHUNK_BITS =:= Number ->
    Link = atomics:get(Chunk, place(Seq) + Word),
    case Link band 16#FFFF of
        Tag when Seq =< UpTo ->
            walk(Link bsr 16, Tag, Word, Stop, UpTo, Looks - 1, Number, Chunk, [Seq | Seqs]);
        _ ->
            walk(Link bsr 16, Tag, Word, Stop, UpTo, Looks - 1, Number, Chunk, Seqs)
    end;
walk(Seq, Tag, Word, Stop, UpTo, Looks, _, _, Seqs) ->
    Number = Seq bsr ?CHUNK_BITS,
    case chunk(Number) of
        none -> {Seqs, done, Looks};
        Chunk -> walk(Seq, Tag, Word, Stop, UpTo, Looks, Number, Chunk, Seqs)
    end.

%% Where the record of this seq is.
-spec lookup(non_neg_integer()) -> {ok, position()} | none.
lookup(Seq) ->
    case chunk(Seq bsr ?CHUNK_BITS) of
        none -> none;
        Chunk -> position(atomics:get(Chunk, place(Seq) + 2), atomics:get(Chunk, place(Seq) + 3))
    end.

%% The same without the rest.
-spec where(non_neg_integer()) ->
    {Segment :: non_neg_integer(), Offset :: non_neg_integer()} | none.
where(Seq) ->
    case chunk(Seq bsr ?CHUNK_BITS) of
        none ->
            none;
        Chunk ->
            case atomics:get(Chunk, place(Seq) + 2) of
                0 -> none;
                Where -> {Where bsr 32, Where band 16#FFFFFFFF}
            end
    end.

%% Whether this is the subject of the event with this seq, as far as hashes say.
-spec is_about(pos_integer(), binary()) -> boolean().
is_about(Seq, Subject) ->
    case chunk(Seq bsr ?CHUNK_BITS) of
        none ->
            false;
        Chunk ->
            Place = place(Seq),
            What = atomics:get(Chunk, Place + 3),
            Shard = What band 16#FF,
            {Bucket, Tag} = halley_history_buckets:subject(Shard, Subject),
            Tag =:= atomics:get(Chunk, Place) band 16#FFFF
                andalso halley_history_buckets:within(Bucket) =:= (What bsr 16) band 16#7FFF
                andalso halley_shards:of_subject(Subject) =:= Shard
    end.

position(0, _) ->
    none;
position(Where, What) ->
    Flags = (What bsr 8) band 16#FF,
    {ok, #{segment => Where bsr 32, offset => Where band 16#FFFFFFFF, sessions => What bsr 32,
           kind => kind(Flags),
           chosen => Flags band ?CHOSEN =/= 0, shard => What band 16#FF}}.

kind(Flags) when Flags band ?UNFOLLOW =/= 0 -> unfollow;
kind(Flags) when Flags band ?FOLLOW =/= 0 -> follow;
kind(Flags) when Flags band ?PRIVATE =/= 0 -> private;
kind(Flags) when Flags band ?JOINT =/= 0 -> joint;
kind(_) -> event.

chunk(Number) ->
    case ets:lookup(?MODULE, Number) of
        [{_, Chunk}] -> Chunk;
        [] -> none
    end.

%% --- the rest ------------------------------------------------------------------------------------

%% Bytes of the chunks, the heads and the milestones.
-spec memory() -> non_neg_integer().
memory() ->
    Milestones = ets:info(?MILESTONES, memory) * erlang:system_info(wordsize),
    Heads = tuple_to_list(persistent_term:get(?MODULE)),
    Chunks = [Chunk || {Number, Chunk} <- ets:tab2list(?MODULE), is_integer(Number)],
    Milestones + lists:sum([maps:get(memory, atomics:info(Ref)) || Ref <- Heads ++ Chunks]).

%% Ranges that are damaged or were lost; kept here because it is of the same life.
-spec damaged() -> [halley_history:range()].
damaged() ->
    case ets:lookup(?MODULE, damaged) of
        [{_, Ranges}] -> Ranges;
        [] -> []
    end.

-spec set_damaged([halley_history:range()]) -> ok.
set_damaged(Ranges) ->
    true = ets:insert(?MODULE, {damaged, Ranges}),
    ok.
