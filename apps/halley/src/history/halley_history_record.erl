%% Codec of the history's records (docs/internals/history.md, "Files"). Bytes in, bytes out.
%%
%%   magic:32 length:32 crc:32 body                              length is that of the body
%%   body: kind:8 shard:8 flags:8 seq:64 at:64 sessions:32 data_offset:32 subject_offset:16
%%         subject_bytes:16 id:str8 subject:str8 json
%%         of an event that a client published 16 more as kind, and after the json by bytes:8
%%         and of a follow: kind:8 shard:8 flags:8 seq:64 at:64 from:64 id:str8 subject:str8
%%         and of a private event: as of an event up to its id, then count:16 length:32 (count
%%         str8, and zeros up to the length) json; and of a joint one the same, of its subjects
%%
%%   event     what was published
%%   private   what was published for its users alone: `seq' is the last one's, and those of the
%%             others come right before it, in the order in which they stand here
%%   joint     what was published about several subjects, likewise
%%   kept      a kept value that was written again: kind:8 0:16 seq:64 at:64, then the body of the
%%             event that it was
%%   follow    subject is the user, id the subject that it follows now; not up to the seq `from'
%%   unfollow  subject is the user, id the subject that it follows no more; no json
%%   `by' of the first three is the user that published it; it is written only for hooks, and of
%%             what a user keeps
%%   lost      events from seq `from' (at `from_at') to `seq' (at `at') could not be written
%%   place     every record before this one has at most this seq
%%
%% A private event's users, and a joint one's subjects, take ?USER_BYTES each at least, as much as
%% their entries in the index take in memory: so what bounds the log's bytes bounds that as well.
%%
%% The checksum covers length and body and starts from the store's id, so a record of another store
%% isn't valid. The magic begins with a byte that UTF-8 never has: whatever is published, no event's
%% text can pass for a record when damage makes `resync/2' search for the next one.
%%
%% Input is hostile in the sense of a failing disk: any bytes give an error, not a crash, and no
%% length is believed before it is compared with what is there and with ?BODY_BYTES_MAX.
-module(halley_history_record).

-export([event/3, private/3, kept/4, follow/5, unfollow/5, lost/2, place/3]).
-export([decode/2, body/1, about/3, subject/2, item/1, resync/2, head_bytes/0,
         bytes_max/0]).
-export_type([record/0, about/0]).

-type store() :: 0..16#FFFFFFFF.
-type record() ::
    %% Of a kept event also `keep', and `body', its own; and with `by' it without that, `plain'.
    #{kind := event | unfollow, shard := halley_shards:index(), seq := non_neg_integer(),
      at := integer(), id := binary(), subject := binary(), sessions := non_neg_integer(),
      chosen := boolean(), json := binary(), data_offset := non_neg_integer(),
      subject_offset := non_neg_integer(), subject_bytes := non_neg_integer(), by => binary(),
      keep => keep | clear, body => binary(), plain => binary()}
  | #{kind := kept, seq := non_neg_integer(), at := integer(), subject := binary(),
      body := binary()}
  | #{kind := private, shard := halley_shards:index(), seq := non_neg_integer(),
      first := non_neg_integer(), at := integer(), id := binary(), users := [binary(), ...],
      sessions := non_neg_integer(), chosen := boolean(), json := binary(),
      data_offset := non_neg_integer(), subject_offset := non_neg_integer(),
      subject_bytes := non_neg_integer(), by => binary()}
  | #{kind := joint, shard := halley_shards:index(), seq := non_neg_integer(),
      first := non_neg_integer(), at := integer(), id := binary(), subjects := [binary(), ...],
      sessions := non_neg_integer(), chosen := boolean(), json := binary(),
      data_offset := non_neg_integer(), subject_offset := non_neg_integer(),
      subject_bytes := non_neg_integer(), by => binary()}
  | #{kind := follow, shard := halley_shards:index(), seq := non_neg_integer(), at := integer(),
      from := non_neg_integer(), id := binary(), subject := binary()}
  | #{kind := lost, seq := non_neg_integer(), at := integer(), from := non_neg_integer(),
      from_at := integer()}
  | #{kind := place, seq := non_neg_integer(), at := integer()}.

%% What concerns a subject; or, in a shard, a user alone, or a subject among several.
-type about() :: Subject :: binary() | {to, halley_shards:index(), User :: binary()}
               | {in, halley_shards:index(), Subject :: binary()}.

-define(MAGIC, 16#FF48524C).
-define(HEAD_BYTES, 12).
%% Up to where a subject ends: head, numbers, and two ids of 255 bytes with their lengths.
-define(SUBJECT_BYTES_MAX, (?HEAD_BYTES + 31 + 2 * 256)).
%% Above any event: the largest frame of the link is far smaller.
-define(BODY_BYTES_MAX, 4194304).
-define(EVENT, 1).
-define(UNFOLLOW, 2).
-define(LOST, 3).
-define(PLACE, 4).
-define(FOLLOW, 5).
-define(PRIVATE, 6).
-define(JOINT, 7).
-define(USER_BYTES, 32).
%% With `by'.
-define(BY, 16).
-define(IS_EVENT(Kind), ((Kind) =:= ?EVENT orelse (Kind) =:= ?EVENT + ?BY)).
-define(IS_SEVERAL(Kind), ((Kind) =:= ?PRIVATE orelse (Kind) =:= ?PRIVATE + ?BY
                           orelse (Kind) =:= ?JOINT orelse (Kind) =:= ?JOINT + ?BY)).
-define(HAS_BY(Kind), ((Kind) =:= ?EVENT + ?BY orelse (Kind) =:= ?PRIVATE + ?BY
                       orelse (Kind) =:= ?JOINT + ?BY)).
-define(KEPT, 8).
-define(CHOSEN, 1).
-define(KEEP, 2).
-define(CLEAR, 4).

%% About one subject or several.
-spec event(store(), halley_shards:index(), halley_event:event() | halley_event:joint_event()) ->
    {iodata(), Bytes :: pos_integer()}.
event(Store, Shard, #{subjects := Subjects} = Event) ->
    of_several(?JOINT, Subjects, Store, Shard, Event);
event(Store, Shard, #{id := Id, subject := Subject, seq := Seq, at := At, wire := Wire,
                      sessions := Sessions, chosen := Chosen} = Event) ->
    Flags = case Chosen of true -> ?CHOSEN; false -> 0 end
        bor case Event of #{keep := keep} -> ?KEEP; #{keep := clear} -> ?CLEAR; _ -> 0 end,
    %% The offsets stand in the same order there.
    <<_:17/binary, Offsets:8/binary, 0, _:32, Json/binary>> = Wire,
    {Kind, Text} = by(?EVENT, Json, Event),
    Body = <<Kind, Shard, Flags, Seq:64, At:64, Sessions:32, Offsets/binary,
             (byte_size(Id)), Id/binary, (byte_size(Subject)), Subject/binary>>,
    pack(Store, Body, Text).

by(Kind, Json, #{by := By}) -> {Kind + ?BY, [Json, By, byte_size(By)]};
by(Kind, Json, _) -> {Kind, Json}.

-spec private(store(), halley_shards:index(), halley_event:private_event()) ->
    {iodata(), Bytes :: pos_integer()}.
private(Store, Shard, #{users := Users} = Event) ->
    of_several(?PRIVATE, Users, Store, Shard, Event).

of_several(Plain, Users, Store, Shard, #{id := Id, seq := Seq, at := At, wire := Wire,
                                         sessions := Sessions, chosen := Chosen} = Event) ->
    Flags = case Chosen of true -> ?CHOSEN; false -> 0 end,
    <<_:17/binary, Offsets:8/binary, 0, _:32, Json/binary>> = Wire,
    {Kind, Text} = by(Plain, Json, Event),
    Packed = << <<(byte_size(User)), User/binary>> || User <- Users >>,
    Count = length(Users),
    Padding = max(0, Count * ?USER_BYTES - byte_size(Packed)),
    Body = <<Kind, Shard, Flags, Seq:64, At:64, Sessions:32, Offsets/binary,
             (byte_size(Id)), Id/binary, Count:16, (byte_size(Packed) + Padding):32,
             Packed/binary, 0:(8 * Padding)>>,
    pack(Store, Body, Text).

%% A value that is written again: the body of its event.
-spec kept(store(), non_neg_integer(), integer(), Body :: binary()) -> {iodata(), pos_integer()}.
kept(Store, Seq, At, Body) ->
    pack(Store, <<?KEPT, 0, 0, Seq:64, At:64>>, Body).

-spec unfollow(store(), halley_shards:index(), non_neg_integer(), integer(),
               {binary(), binary()}) -> {iodata(), pos_integer()}.
unfollow(Store, Shard, Seq, At, {User, Subject}) ->
    Body = <<?UNFOLLOW, Shard, 0, Seq:64, At:64, 0:32, 0:32, 0:16, 0:16,
             (byte_size(Subject)), Subject/binary, (byte_size(User)), User/binary>>,
    pack(Store, Body, <<>>).

-spec follow(store(), halley_shards:index(), non_neg_integer(), integer(),
             {User :: binary(), Subject :: binary(), From :: non_neg_integer()}) ->
    {iodata(), pos_integer()}.
follow(Store, Shard, Seq, At, {User, Subject, From}) ->
    Body = <<?FOLLOW, Shard, 0, Seq:64, At:64, From:64,
             (byte_size(Subject)), Subject/binary, (byte_size(User)), User/binary>>,
    pack(Store, Body, <<>>).

lost(Store, {From, FromAt}, {To, ToAt}) ->
    pack(Store, <<?LOST, 0, 0, To:64, ToAt:64, From:64, FromAt:64>>, <<>>).

%% Of several ranges, each with the times around it.
-spec lost(store(), [halley_history:range()]) -> {iodata(), non_neg_integer()}.
lost(Store, Ranges) ->
    {Records, Bytes} = lists:unzip([lost(Store, {From, FromAt}, {To, ToAt})
                                    || {From, To, FromAt, ToAt} <- Ranges]),
    {Records, lists:sum(Bytes)}.

-spec place(store(), non_neg_integer(), integer()) -> {iodata(), pos_integer()}.
place(Store, Seq, At) ->
    pack(Store, <<?PLACE, 0, 0, Seq:64, At:64>>, <<>>).

pack(Store, Body, Json) ->
    Length = byte_size(Body) + iolist_size(Json),
    Crc = crc(Store, Length, [Body | Json]),
    {[<<?MAGIC:32, Length:32, Crc:32, Body/binary>>, Json], ?HEAD_BYTES + Length}.

crc(Store, Length, Body) ->
    erlang:crc32(Store, [<<Length:32>> | Body]).

%% The record at the beginning of the bytes: its body, checksum verified. `more': the bytes end
%% before the record does; so many would do for the next attempt.
-spec decode(store(), binary()) ->
    {ok, Body :: binary(), Bytes :: pos_integer()} | {more, pos_integer()} | damaged.
decode(Store, <<?MAGIC:32, Length:32, Crc:32, Rest/binary>>) when Length =< ?BODY_BYTES_MAX ->
    case Rest of
        <<Body:Length/binary, _/binary>> ->
            case crc(Store, Length, Body) of
                Crc -> {ok, Body, ?HEAD_BYTES + Length};
                _ -> damaged
            end;
        _ ->
            {more, ?HEAD_BYTES + Length}
    end;
decode(_, Bytes) when byte_size(Bytes) < ?HEAD_BYTES ->
    Head = <<?MAGIC:32>>,
    Common = min(4, byte_size(Bytes)),
    case binary:longest_common_prefix([Head, Bytes]) of
        Common -> {more, ?HEAD_BYTES};
        _ -> damaged
    end;
decode(_, _) ->
    damaged.

%% What a body says. Its binaries are parts of the body.
-spec body(binary()) -> {ok, record()} | damaged.
body(<<Kind, _/binary>> = Body) when ?HAS_BY(Kind) ->
    case without_by(Body) of
        {Plain, By} ->
            case body(Plain) of
                {ok, #{body := _} = Record} ->
                    {ok, Record#{by => By, body := Body, plain => Plain}};
                {ok, Record} -> {ok, Record#{by => By}};
                damaged -> damaged
            end;
        damaged ->
            damaged
    end;
body(<<?EVENT, Shard, Flags, Seq:64, At:64/signed, Sessions:32, DataOffset:32, SubjectOffset:16,
       SubjectBytes:16, IdBytes, Id:IdBytes/binary, Bytes, Subject:Bytes/binary, Json/binary>> =
     Body) ->
    Event = #{kind => event, shard => Shard, seq => Seq, at => At, id => Id, subject => Subject,
              sessions => Sessions, chosen => Flags band ?CHOSEN =/= 0, json => Json,
              data_offset => DataOffset, subject_offset => SubjectOffset,
              subject_bytes => SubjectBytes},
    {ok, kept(Flags band (?KEEP bor ?CLEAR), Event, Body)};
body(<<?KEPT, _, _, Seq:64, At:64/signed, Body/binary>>) ->
    case body(Body) of
        {ok, #{kind := event, subject := Subject}} ->
            {ok, #{kind => kept, seq => Seq, at => At, subject => Subject, body => Body}};
        _ ->
            damaged
    end;
body(<<?UNFOLLOW, Shard, _, Seq:64, At:64/signed, Sessions:32, DataOffset:32, SubjectOffset:16,
       SubjectBytes:16, IdBytes, Id:IdBytes/binary, Bytes, Subject:Bytes/binary, Json/binary>>) ->
    {ok, #{kind => unfollow, shard => Shard, seq => Seq, at => At, id => Id, subject => Subject,
           sessions => Sessions, chosen => false, json => Json,
           data_offset => DataOffset, subject_offset => SubjectOffset,
           subject_bytes => SubjectBytes}};
body(<<Kind, Shard, Flags, Seq:64, At:64/signed, Sessions:32, DataOffset:32,
       SubjectOffset:16, SubjectBytes:16, IdBytes, Id:IdBytes/binary, Count:16, Bytes:32,
       Packed:Bytes/binary, Json/binary>>)
  when Kind =:= ?PRIVATE orelse Kind =:= ?JOINT, Count > 0, Count =< Seq ->
    case users(Count, Packed, []) of
        damaged ->
            damaged;
        Names ->
            Several = case Kind of
                ?PRIVATE -> #{kind => private, users => Names};
                ?JOINT -> #{kind => joint, subjects => Names}
            end,
            {ok, Several#{shard => Shard, seq => Seq, first => Seq - Count + 1, at => At,
                          id => Id, sessions => Sessions, chosen => Flags band ?CHOSEN =/= 0,
                          json => Json, data_offset => DataOffset,
                          subject_offset => SubjectOffset, subject_bytes => SubjectBytes}}
    end;
body(<<?FOLLOW, Shard, _, Seq:64, At:64/signed, From:64, IdBytes, Id:IdBytes/binary, Bytes,
       Subject:Bytes/binary>>) ->
    {ok, #{kind => follow, shard => Shard, seq => Seq, at => At, from => From, id => Id,
           subject => Subject}};
body(<<?LOST, _, _, Seq:64, At:64/signed, From:64, FromAt:64/signed>>) ->
    {ok, #{kind => lost, seq => Seq, at => At, from => From, from_at => FromAt}};
body(<<?PLACE, _, _, Seq:64, At:64/signed>>) ->
    {ok, #{kind => place, seq => Seq, at => At}};
body(_) ->
    damaged.

%% The body as it would be without `by', which stands at its end.
without_by(<<Kind, Rest/binary>>) ->
    Bytes = case Rest of <<>> -> 0; _ -> binary:last(Rest) end,
    Before = byte_size(Rest) - 1 - Bytes,
    case Rest of
        <<Plain:Before/binary, By:Bytes/binary, _>> -> {<<(Kind - ?BY), Plain/binary>>, By};
        _ -> damaged
    end.

kept(0, Event, _) -> Event;
kept(?KEEP, Event, Body) -> Event#{keep => keep, body => Body};
kept(_, Event, Body) -> Event#{keep => clear, body => Body}.

users(0, _, Users) -> lists:reverse(Users);
users(Left, <<Bytes, User:Bytes/binary, Rest/binary>>, Users) ->
    users(Left - 1, Rest, [User | Users]);
users(_, _, _) -> damaged.

%% Whether this is the body of the event with this seq about this, and when it was published;
%% `other': it is about something else, or a change of follows. Nothing is copied.
-spec about(about(), Seq :: non_neg_integer(), Body :: binary()) ->
    {ok, AtMs :: integer()} | other | damaged.
about(Subject, Seq, <<Kind, _:16, Seq:64, At:64/signed, _:96, IdBytes, _:IdBytes/binary, Bytes,
                      Its:Bytes/binary, _/binary>>) when ?IS_EVENT(Kind) ->
    case Its of
        Subject -> {ok, At};
        _ -> other
    end;
about(About, Seq, <<Kind, _:16, Last:64, At:64/signed, _:96, IdBytes, _:IdBytes/binary,
                    Count:16, Bytes:32, Names:Bytes/binary, _/binary>>)
  when ?IS_SEVERAL(Kind), Seq =< Last, Seq > Last - Count ->
    case {About, Kind band (?BY - 1)} of
        {{to, _, User}, ?PRIVATE} -> for(nth(Count - (Last - Seq), Names), User, At);
        {{in, _, Subject}, ?JOINT} -> for(nth(Count - (Last - Seq), Names), Subject, At);
        _ -> other
    end;
about(_, Seq, <<Kind, _:16, Seq:64, _/binary>>) when Kind =:= ?UNFOLLOW; Kind =:= ?FOLLOW ->
    other;
about(_, _, _) ->
    damaged.

nth(1, <<Bytes, User:Bytes/binary, _/binary>>) -> User;
nth(N, <<Bytes, _:Bytes/binary, Rest/binary>>) -> nth(N - 1, Rest);
nth(_, _) -> damaged.

for(User, User, At) -> {ok, At};
for(damaged, _, _) -> damaged;
for(_, _, _) -> other.

%% The subject of the event with this seq, out of the beginning of its record. Nothing is verified:
%% no checksum is of a part. `more': so many bytes would do.
-spec subject(Seq :: non_neg_integer(), binary()) ->
    {ok, Subject :: binary()} | {more, pos_integer()} | damaged.
subject(Seq, <<?MAGIC:32, _:64, Kind, _:16, Seq:64, _:64, _:96, IdBytes, _:IdBytes/binary, Bytes,
               Subject:Bytes/binary, _/binary>>) when ?IS_EVENT(Kind) ->
    {ok, Subject};
subject(_, Bytes) when byte_size(Bytes) < ?SUBJECT_BYTES_MAX ->
    {more, ?SUBJECT_BYTES_MAX};
subject(_, _) ->
    damaged.

%% What a frame has of an event: its numbers, from the shard on, and its text, a part of the body.
-spec item(Body :: binary()) ->
    {Shard :: halley_shards:index(), Seq :: non_neg_integer(), At :: integer(),
     DataOffset :: non_neg_integer(), SubjectOffset :: non_neg_integer(),
     SubjectBytes :: non_neg_integer(), Json :: binary()}.
item(<<Kind, _/binary>> = Body) when ?HAS_BY(Kind) ->
    {Plain, _} = without_by(Body),
    item(Plain);
item(<<?EVENT, Shard, _, Seq:64, At:64/signed, _:32, DataOffset:32, SubjectOffset:16,
       SubjectBytes:16, IdBytes, _:IdBytes/binary, Bytes, _:Bytes/binary, Json/binary>>) ->
    {Shard, Seq, At, DataOffset, SubjectOffset, SubjectBytes, Json};
item(<<Kind, Shard, _, Seq:64, At:64/signed, _:32, DataOffset:32, SubjectOffset:16,
       SubjectBytes:16, IdBytes, _:IdBytes/binary, _:16, Bytes:32, _:Bytes/binary,
       Json/binary>>) when Kind =:= ?PRIVATE; Kind =:= ?JOINT ->
    {Shard, Seq, At, DataOffset, SubjectOffset, SubjectBytes, Json}.

%% The next position after `From' where a record may begin. `none': not before this position.
-spec resync(binary(), From :: non_neg_integer()) ->
    {ok, non_neg_integer()} | {none, non_neg_integer()}.
resync(Bytes, From) ->
    Size = byte_size(Bytes),
    case From < Size andalso binary:match(Bytes, <<?MAGIC:32>>, [{scope, {From, Size - From}}]) of
        {Position, _} -> {ok, Position};
        _ -> {none, max(From, Size - 3)}
    end.

-spec head_bytes() -> pos_integer().
head_bytes() -> ?HEAD_BYTES.

%% The longest record.
-spec bytes_max() -> pos_integer().
bytes_max() -> ?HEAD_BYTES + ?BODY_BYTES_MAX.
