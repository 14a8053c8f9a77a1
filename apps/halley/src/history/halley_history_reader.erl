%% Reads records of the history back, by seq.
%%
%% A reader belongs to one process: it holds descriptors of a few segments, and the block that it
%% used last. Other blocks are shared (`halley_history_cache'). `read/2' gives a copy of the record,
%% so that an event that waits somewhere doesn't keep a whole block in memory. `event/3' gives a
%% part of the block, for callers that put it into a frame at once.
%%
%% Every read verifies checksum, kind and seq. A record that isn't what the index says is `damaged',
%% and counted; one that retention took, before or while it was read, is `expired'. Events of a
%% forgotten user (`halley_history_forgotten') are read as events that concern no user.
%%
%% If the machine or the node has no descriptor left, a read waits for one: that is no damage.
-module(halley_history_reader).

-export([new/0, read/2, event/3, subject/2, close/1, vheap_words/0]).
-export_type([reader/0, record/0]).

%% `hidden': of a user that was forgotten.
-type record() :: halley_history_record:record() | #{kind := hidden, id := binary()}.
-record(reader, {files = [] :: [{halley_history_segment:number_(),
                                 halley_history_segment:descriptor()}],
                 block = {none, 0, <<>>} ::
                     {halley_history_segment:number_() | none, non_neg_integer(), binary()}}).
-opaque reader() :: #reader{}.

%% Open at the same time, the one used last first.
-define(FILES_MAX, 4).

%% How long a read waits before it asks for a descriptor again.
-define(NO_DESCRIPTOR_MS, 100).

%% Each look at a block counts with all its 64 KB as garbage to be, though the cache owns it.
-define(VHEAP_WORDS, 4194304).

%% The `min_bin_vheap_size' of a process that reads much: with the emulator's own number every fifth
%% read is a collection. Blocks that the cache has let go may stay as long as it takes to look at
%% so many, 32 MB.
-spec vheap_words() -> pos_integer().
vheap_words() -> ?VHEAP_WORDS.

-spec new() -> reader().
new() -> #reader{}.

%% Ends the reader: a deleted segment takes its place on disk for as long as a descriptor is open.
-spec close(reader()) -> ok.
close(#reader{files = Files}) ->
    lists:foreach(fun({_, File}) -> halley_history_segment:close(File) end, Files).

-spec read(halley_history:seq(), reader()) ->
    {ok, record(), reader()} | {expired | damaged, reader()}.
read(Seq, Reader) ->
    case Seq > halley_history_atomics:get(floor) andalso halley_history_index:lookup(Seq) of
        {ok, #{segment := Segment, offset := Offset, kind := Kind}} ->
            try verify(record(Segment, Offset, Reader), Kind, Seq)
            catch throw:{failed, Failed} -> missing(Seq, Failed)
            end;
        _ ->
            {expired, Reader}
    end.

verify({Body, Reader}, Kind, Seq) ->
    case halley_history_record:body(binary:copy(Body)) of
        {ok, #{kind := Kind, seq := Seq} = Record} -> {ok, shown(Seq, Record), Reader};
        {ok, #{kind := Kind, first := First, seq := Last} = Record}
          when Seq >= First, Seq =< Last -> {ok, shown(Last, Record), Reader};
        _ -> throw({failed, Reader})
    end.

%% Of a private event the other users' parts stay. An event's id is still taken.
shown(Seq, #{kind := private, users := Users} = Record) ->
    case [hidden(Seq, User) || User <- Users] of
        Users ->
            Record;
        Shown ->
            case lists:all(fun(User) -> User =:= <<>> end, Shown) of
                true -> hidden(Record);
                false -> Record#{users := Shown}
            end
    end;
shown(Seq, #{kind := joint, subjects := Subjects} = Record) ->
    case is_any_gone(Seq, Subjects) of
        true -> hidden(Record);
        false -> Record
    end;
shown(Seq, #{kind := event, subject := Subject} = Record) ->
    case halley_history_forgotten:is_gone(Seq, Subject) of
        true -> hidden(Record);
        false -> Record
    end;
shown(Seq, #{subject := User, id := Subject} = Change) ->
    case halley_history_forgotten:is_gone(Seq, User)
        orelse halley_history_forgotten:is_gone(Seq, Subject) of
        true -> hidden(Change);
        false -> Change
    end.

%% Its text names all of its subjects.
is_any_gone(Seq, Subjects) ->
    lists:any(fun(Subject) -> halley_history_forgotten:is_gone(Seq, Subject) end, Subjects).

hidden(#{id := Id}) -> #{kind => hidden, id => Id}.

%% Nobody has the empty id.
hidden(Seq, User) ->
    case halley_history_forgotten:is_gone(Seq, User) of
        true -> <<>>;
        false -> User
    end.

%% The body of this event if it is about this subject, or for this user alone; `other' if it isn't,
%% or is no event; `{old, AtMs}' if it is too old for its subject.
-spec event(halley_history:seq(), halley_history:about(), reader()) ->
    {ok, AtMs :: integer(), Body :: binary(), reader()}
    | {other | expired | damaged | {old, AtMs :: integer()}, reader()}.
event(Seq, Subject, Reader) ->
    case Seq > halley_history_atomics:get(floor) andalso halley_history_index:where(Seq) of
        {Segment, Offset} ->
            event(halley_history_forgotten:is_gone(Seq, Subject), {Seq, Segment, Offset}, Subject,
                  Reader);
        _ ->
            {expired, Reader}
    end.

event(true, _, _, Reader) ->
    {other, Reader};
event(false, {Seq, Segment, Offset}, Subject, Reader) ->
    try record(Segment, Offset, Reader) of
        {Body, Next} ->
            case halley_history_record:about(Subject, Seq, Body) of
                {ok, AtMs} -> young(is_young(Seq, Subject, AtMs), Seq, Subject, AtMs, Body, Next);
                other -> {other, Next};
                damaged -> missing(Seq, Next)
            end
    catch throw:{failed, Failed} -> missing(Seq, Failed)
    end.

is_young(Seq, Subject, AtMs) ->
    case oldest(Subject) of
        0 -> true;
        OldestMs -> OldestMs =< halley_history_steps:as_of_now(Seq, AtMs)
    end.

oldest({to, _, _}) -> halley_history_shown:oldest(private);
oldest({in, _, Subject}) -> halley_history_shown:oldest(Subject);
oldest(Subject) -> halley_history_shown:oldest(Subject).

young(true, Seq, Subject, AtMs, Body, Reader) -> about(Seq, Subject, AtMs, Body, Reader);
young(false, _, _, AtMs, _, Reader) -> {{old, AtMs}, Reader}.

about(Seq, {in, _, _}, AtMs, Body, Reader) ->
    {ok, #{subjects := Subjects}} = halley_history_record:body(Body),
    case is_any_gone(Seq, Subjects) of
        true -> {other, Reader};
        false -> {ok, AtMs, Body, Reader}
    end;
about(_, _, AtMs, Body, Reader) ->
    {ok, AtMs, Body, Reader}.

%% What an event is about, by one seq of it, without reading the rest of it; `other': it is a change
%% of follows, or for users alone. Not the
%% record's checksum says that the bytes are what was written but the index, whose hash of the
%% subject is as long.
-spec subject(halley_history:seq(), reader()) ->
    {ok, halley_shards:index(), halley_history:about(), reader()}
    | {other | expired | damaged, reader()}.
subject(Seq, Reader) ->
    case Seq > halley_history_atomics:get(floor) andalso halley_history_index:lookup(Seq) of
        {ok, #{kind := joint}} ->
            case read(Seq, Reader) of
                {ok, #{kind := joint, shard := Shard, first := First, subjects := Subjects},
                 Next} ->
                    {ok, Shard, {in, Shard, lists:nth(Seq - First + 1, Subjects)}, Next};
                {ok, _, Next} -> {other, Next};
                Unread -> Unread
            end;
        {ok, #{kind := Kind}} when Kind =/= event ->
            {other, Reader};
        {ok, #{segment := Segment, offset := Offset, shard := Shard}} ->
            try beginning(Seq, Segment, Offset, halley_history_record:head_bytes(), Reader) of
                {Subject, Next} ->
                    case halley_history_index:is_about(Seq, Subject) of
                        true -> of_subject(Seq, Shard, Subject, Next);
                        false -> missing(Seq, Next)
                    end
            catch throw:{failed, Failed} -> missing(Seq, Failed)
            end;
        _ ->
            {expired, Reader}
    end.

of_subject(Seq, Shard, Subject, Reader) ->
    case halley_history_forgotten:is_gone(Seq, Subject) of
        true -> {other, Reader};
        false -> {ok, Shard, Subject, Reader}
    end.

beginning(Seq, Segment, Offset, Wanted, Reader) ->
    {Bytes, Next} = bytes(Segment, Offset, Wanted, Reader),
    case halley_history_record:subject(Seq, Bytes) of
        {ok, Subject} -> {Subject, Next};
        {more, More} when More > Wanted -> beginning(Seq, Segment, Offset, More, Next);
        _ -> throw({failed, Next})
    end.

missing(Seq, Reader) ->
    case halley_history_atomics:get(floor) of
        Floor when Floor >= Seq ->
            {expired, Reader};
        _ ->
            ok = halley_metrics:incr(history_damaged),
            {damaged, Reader}
    end.

%% The body of the record at this place.
record(Segment, Offset, Reader) ->
    HeadBytes = halley_history_record:head_bytes(),
    {Bytes, Reader1} = bytes(Segment, Offset, HeadBytes, Reader),
    case decode(Bytes) of
        {more, Wanted} ->
            {More, Reader2} = bytes(Segment, Offset, Wanted, Reader1),
            decoded(decode(More), Reader2);
        Decoded ->
            decoded(Decoded, Reader1)
    end.

decode(Bytes) ->
    halley_history_record:decode(halley_history_atomics:get(segments_store), Bytes).

decoded({ok, Body, _}, Reader) -> {Body, Reader};
decoded(_, Reader) -> throw({failed, Reader}).

%% The bytes from here to the end of the block, or `Needed' bytes if that isn't enough; fewer only
%% at the end of what is written.
bytes(Segment, Offset, Needed, Reader) ->
    BlockBytes = halley_history_cache:block_bytes(),
    Number = Offset div BlockBytes,
    Skip = Offset rem BlockBytes,
    {Block, Reader1} = block(Segment, Number, min(BlockBytes, Skip + Needed), Reader),
    case Block of
        <<_:Skip/binary, Bytes/binary>> when byte_size(Bytes) >= Needed;
                                             byte_size(Block) < BlockBytes ->
            {Bytes, Reader1};
        <<_:Skip/binary, Bytes/binary>> ->
            {More, Reader2} = bytes(Segment, (Number + 1) * BlockBytes,
                                    Needed - byte_size(Bytes), Reader1),
            {<<Bytes/binary, More/binary>>, Reader2};
        _ ->
            throw({failed, Reader1})
    end.

block(Segment, Number, Needed, Reader = #reader{block = {Segment, Number, Block}})
  when byte_size(Block) >= Needed ->
    {Block, Reader};
block(Segment, Number, Needed, Reader) ->
    Read = fun(Position, Bytes) -> read_file(Segment, Position, Bytes, Reader) end,
    case halley_history_cache:block(Segment, Number, Needed, Read) of
        {ok, Block} -> {Block, Reader#reader{block = {Segment, Number, Block}}};
        {opened, Reader1} -> block(Segment, Number, Needed, Reader1);
        {error, _} -> throw({failed, Reader})
    end.

%% A segment that isn't open yet is opened first, and then asked for again.
read_file(Segment, Position, Bytes, Reader = #reader{files = Files}) ->
    case lists:keyfind(Segment, 1, Files) of
        {_, File} ->
            case halley_history_segment:read(File, Position, Bytes) of
                {ok, _} = Ok -> Ok;
                eof -> {error, eof};
                Error -> Error
            end;
        false ->
            case halley_history_segment:open(halley_history_home:directory(), Segment) of
                {ok, File} ->
                    {opened, Reader#reader{files = keep([{Segment, File} | Files])}};
                {error, Reason} when Reason =:= emfile; Reason =:= enfile ->
                    read_file(Segment, Position, Bytes, without_descriptor(Reader));
                Error ->
                    Error
            end
    end.

%% Gives up what this reader holds open. If that was nothing, waits for others to do so.
without_descriptor(Reader = #reader{files = []}) ->
    ok = halley_metrics:incr(history_waits),
    receive after ?NO_DESCRIPTOR_MS -> Reader end;
without_descriptor(Reader) ->
    ok = close(Reader),
    Reader#reader{files = []}.

%% Closes what is too many, and what retention has deleted.
keep(Files) ->
    Oldest = halley_history_atomics:get(oldest_segment),
    {Retained, Deleted} = lists:partition(fun({Segment, _}) -> Segment >= Oldest end, Files),
    {Kept, TooMany} = lists:split(min(?FILES_MAX, length(Retained)), Retained),
    lists:foreach(fun({_, File}) -> halley_history_segment:close(File) end, TooMany ++ Deleted),
    Kept.
