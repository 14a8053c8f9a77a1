%% The body of a row of the log: the epoch in which it was appended, and the records of some
%% proposals.
%%
%%   body     = version:8, epoch:32, proposal..., crc:32      the CRC-32 of all before it
%%   proposal = token:16 bytes, length:32, record...
%%   record   = kind:8, fields; the tables below have both
%%
%% The version is the lowest one that can read the body. A brain that doesn't know it gets
%% `{error, {newer, V}}', stops there, and continues when it is upgraded. Every version has the
%% version first and the CRC last, so damage isn't mistaken for a newer version.
%%
%% Whoever proposes encodes its records once; the orderer only puts their bytes together. Decoding
%% copies nothing: ids and data are parts of the body. A caller that keeps one of them copies it.
%%
%% Invariants: `decode/1' takes any bytes and returns. Its records are such as `proposal/1' takes:
%% ids of 1 to 255 bytes of UTF-8, users of a private event in order and none twice. Whether an
%% event's data is JSON was judged before it was encoded, and isn't judged again.
%%
%% Pure.
-module(halley_cluster_records).

-export([proposal/1, without/2, filler/0, body/2, decode/1, records/1, epoch/1]).
-export([seqs/1, changes/3, kept/1, chosen_id/1]).
-export_type([record/0, proposal/0, portion/0, error/0]).

%% `known': its place among the records of its proposal is that of an event whose chosen id the log
%% had before. `nothing' is the content of a row that has no event: a row has at least one seq.
-type record() :: {event, halley_shard:draft()}
                | {follow | unfollow, User :: halley_id:id(), Subject :: halley_id:id()}
                | {forget, halley_id:id()}
                | {key, Id :: halley_id:id(), Record :: binary() | removed}
                | {known, halley_event:id()}
                | nothing.
%% `seqs': how many it covers. `ids': those that publishers chose, none twice. `changing': whether
%% it has a record that changes the engine's own tables.
-type proposal() :: #{seqs := non_neg_integer(), count := non_neg_integer(),
                      ids := [halley_event:id()], changing := boolean(), records := binary()}.
-type portion() :: {halley_log_engine:token(), Records :: binary()}.
-type error() :: crc | malformed | {newer, Version :: pos_integer()}.

-define(VERSION, 1).
-define(HEADER_BYTES, 5).
-define(CRC_BYTES, 4).
%% event: flags, [id], [by], subject, data. private and joint: flags, [id], [by], count:16, names,
%% data. follow and unfollow: user, subject. forget, known and key_removed: id. key: id, record.
%% An id is length:8 and bytes; a subject length:16, as Halley's own are longer; data length:32.
-define(EVENT, 1).
-define(PRIVATE, 2).
-define(JOINT, 3).
-define(FOLLOW, 4).
-define(UNFOLLOW, 5).
-define(FORGET, 6).
-define(KEY, 7).
-define(KEY_REMOVED, 8).
-define(KNOWN, 9).
-define(NOTHING, 10).
%% Flags of events.
-define(CHOSEN, 1).
-define(BY, 2).
-define(KEEP, 4).
-define(CLEAR, 8).

%% --- writing -------------------------------------------------------------------------------------

%% Encodes what one publisher, or many whose events were packed, want in the log, in order.
-spec proposal([record()]) -> proposal().
proposal(Records) ->
    {Once, Ids} = once(Records, #{}, []),
    #{seqs => lists:sum([seqs(Record) || Record <- Once]), count => length(Once), ids => Ids,
      changing => lists:any(fun is_changing/1, Once),
      records => iolist_to_binary([encode(Record) || Record <- Once])}.

%% An id that is chosen twice in one proposal is that of the first.
once([{event, Draft} = Record | Rest], Seen, Once) ->
    case chosen_id(Draft) of
        generated -> once(Rest, Seen, [Record | Once]);
        Id when is_map_key(Id, Seen) -> once(Rest, Seen, [{known, Id} | Once]);
        Id -> once(Rest, Seen#{Id => true}, [Record | Once])
    end;
once([Record | Rest], Seen, Once) ->
    once(Rest, Seen, [Record | Once]);
once([], Seen, Once) ->
    {lists:reverse(Once), maps:keys(Seen)}.

%% The id that its publisher chose.
-spec chosen_id(halley_shard:draft()) -> halley_event:id() | generated.
chosen_id({keep, _, Draft}) -> chosen_id(Draft);
chosen_id({by, _, Draft}) -> chosen_id(Draft);
chosen_id({private, Draft}) -> element(1, halley_event:users(Draft));
chosen_id({joint, Draft}) -> element(1, halley_event:subjects(Draft));
chosen_id(Draft) -> halley_event:chosen_id(Draft).

is_changing({event, {keep, _, _}}) -> true;
is_changing({event, _}) -> false;
is_changing({known, _}) -> false;
is_changing(nothing) -> false;
is_changing(_) -> true.

%% The same proposal without the events that have these ids, which the log has already.
-spec without([halley_event:id()], proposal()) -> proposal().
without([], Proposal) ->
    Proposal;
without(Ids, #{records := Bytes}) ->
    {ok, Records} = records(Bytes),
    Known = maps:from_keys(Ids, true),
    proposal([known(Record, Known) || Record <- Records]).

known({event, Draft} = Record, Known) ->
    case chosen_id(Draft) of
        Id when is_map_key(Id, Known) -> {known, Id};
        _ -> Record
    end;
known(Record, _) ->
    Record.

%% What fills a row without events.
-spec filler() -> binary().
filler() -> <<?NOTHING>>.

-spec body(Epoch :: non_neg_integer(), [portion()]) -> binary().
body(Epoch, Portions) ->
    Content = [<<?VERSION, Epoch:32>>
               | [[<<Token:16/binary, (byte_size(Records)):32>>, Records]
                  || {Token, Records} <- Portions]],
    iolist_to_binary([Content, <<(erlang:crc32(Content)):32>>]).

encode({event, Draft}) -> encode_event(Draft, 0, []);
encode({follow, User, Subject}) -> [?FOLLOW, id(User), id(Subject)];
encode({unfollow, User, Subject}) -> [?UNFOLLOW, id(User), id(Subject)];
encode({forget, Id}) -> [?FORGET, id(Id)];
encode({key, Id, removed}) -> [?KEY_REMOVED, id(Id)];
encode({key, Id, Record}) -> [?KEY, id(Id), <<(byte_size(Record)):32>>, Record];
encode({known, Id}) -> [?KNOWN, id(Id)];
encode(nothing) -> filler().

encode_event({keep, keep, Draft}, Flags, By) -> encode_event(Draft, Flags bor ?KEEP, By);
encode_event({keep, clear, Draft}, Flags, By) -> encode_event(Draft, Flags bor ?CLEAR, By);
encode_event({by, User, Draft}, Flags, _) -> encode_event(Draft, Flags bor ?BY, id(User));
encode_event({private, Draft}, Flags, By) -> encode_named(?PRIVATE, Draft, Flags, By);
encode_event({joint, Draft}, Flags, By) -> encode_named(?JOINT, Draft, Flags, By);
encode_event(Draft, Flags, By) ->
    {Id, Subject, Data} = halley_event:parts(Draft),
    [?EVENT, flags(Id, Flags), chosen_bytes(Id), By, <<(byte_size(Subject)):16>>, Subject,
     <<(byte_size(Data)):32>>, Data].

encode_named(Kind, Draft, Flags, By) ->
    {Id, Names, Data} = halley_event:parts(Draft),
    [Kind, flags(Id, Flags), chosen_bytes(Id), By, <<(length(Names)):16>>,
     [id(Name) || Name <- Names], <<(byte_size(Data)):32>>, Data].

flags(generated, Flags) -> Flags;
flags(_, Flags) -> Flags bor ?CHOSEN.

chosen_bytes(generated) -> [];
chosen_bytes(Id) -> id(Id).

id(Id) when byte_size(Id) > 0, byte_size(Id) < 256 -> [byte_size(Id), Id].

%% --- reading -------------------------------------------------------------------------------------

%% The proposals of a row, in order, each with its records.
-spec decode(Body :: binary()) ->
    {ok, Epoch :: non_neg_integer(), [{halley_log_engine:token(), [record()]}]}
  | {error, error()}.
decode(Body) ->
    Size = byte_size(Body) - ?CRC_BYTES,
    case Body of
        <<Content:Size/binary, Crc:32>> when Size >= ?HEADER_BYTES ->
            case erlang:crc32(Content) of
                Crc -> content(Content);
                _ -> {error, crc}
            end;
        _ ->
            {error, malformed}
    end.

content(<<?VERSION, Epoch:32, Portions/binary>>) -> portions(Portions, Epoch, []);
content(<<Version, _/binary>>) when Version > ?VERSION -> {error, {newer, Version}};
content(_) -> {error, malformed}.

portions(<<Token:16/binary, Length:32, Bytes:Length/binary, Rest/binary>>, Epoch, Portions) ->
    case records(Bytes) of
        {ok, Records} -> portions(Rest, Epoch, [{Token, Records} | Portions]);
        Error -> Error
    end;
portions(<<>>, Epoch, Portions) ->
    {ok, Epoch, lists:reverse(Portions)};
portions(_, _, _) ->
    {error, malformed}.

%% The epoch that a row names, by its header alone: `decode/1' judges the rest.
-spec epoch(Body :: binary()) -> non_neg_integer() | unknown.
epoch(<<?VERSION, Epoch:32, _/binary>>) -> Epoch;
epoch(_) -> unknown.

%% The records of one proposal.
-spec records(binary()) -> {ok, [record()]} | {error, malformed}.
records(Bytes) -> records(Bytes, []).

records(<<>>, Records) ->
    {ok, lists:reverse(Records)};
records(Bytes, Records) ->
    case record(Bytes) of
        {Record, Rest} -> records(Rest, [Record | Records]);
        malformed -> {error, malformed}
    end.

record(<<?EVENT, Flags, Rest/binary>>) when Flags < 16 ->
    event(about, Flags, optional(Flags band ?CHOSEN, Rest));
record(<<?PRIVATE, Flags, Rest/binary>>) when Flags < 4 ->
    event(private, Flags, optional(Flags band ?CHOSEN, Rest));
record(<<?JOINT, Flags, Rest/binary>>) when Flags < 4 ->
    event(joint, Flags, optional(Flags band ?CHOSEN, Rest));
record(<<?FOLLOW, A, User:A/binary, B, Subject:B/binary, Rest/binary>>) ->
    checked({follow, User, Subject}, [User, Subject], Rest);
record(<<?UNFOLLOW, A, User:A/binary, B, Subject:B/binary, Rest/binary>>) ->
    checked({unfollow, User, Subject}, [User, Subject], Rest);
record(<<?FORGET, A, Id:A/binary, Rest/binary>>) ->
    checked({forget, Id}, [Id], Rest);
record(<<?KEY, A, Id:A/binary, B:32, Record:B/binary, Rest/binary>>) ->
    checked({key, Id, Record}, [Id], Rest);
record(<<?KEY_REMOVED, A, Id:A/binary, Rest/binary>>) ->
    checked({key, Id, removed}, [Id], Rest);
record(<<?KNOWN, A, Id:A/binary, Rest/binary>>) ->
    checked({known, Id}, [Id], Rest);
record(<<?NOTHING, Rest/binary>>) ->
    {nothing, Rest};
record(_) ->
    malformed.

checked(Record, Ids, Rest) ->
    case lists:all(fun is_text/1, Ids) of
        true -> {Record, Rest};
        false -> malformed
    end.

optional(0, Bytes) -> {generated, Bytes};
optional(_, <<A, Id:A/binary, Rest/binary>>) -> is_text(Id) andalso {Id, Rest};
optional(_, _) -> false.

event(_, _, false) ->
    malformed;
event(Kind, Flags, {Id, Bytes}) ->
    case optional(Flags band ?BY, Bytes) of
        {By, Rest} -> marked(Flags, By, draft(Kind, Id, Rest));
        false -> malformed
    end.

draft(about, Id, <<A:16, Subject:A/binary, B:32, Data:B/binary, Rest/binary>>) ->
    is_text(Subject) andalso {halley_event:draft(Id, Subject, Data), Rest};
draft(about, _, _) ->
    false;
draft(Kind, Id, <<Count:16, Bytes/binary>>) ->
    case names(Count, Bytes, []) of
        {Names, <<B:32, Data:B/binary, Rest/binary>>} -> named(Kind, Id, Names, Data, Rest);
        _ -> false
    end;
draft(_, _, _) ->
    false.

named(private, Id, Users, Data, Rest) ->
    lists:usort(Users) =:= Users andalso {{private, halley_event:private(Id, Users, Data)}, Rest};
named(joint, Id, Subjects, Data, Rest) ->
    length(lists:usort(Subjects)) =:= length(Subjects)
        andalso {{joint, halley_event:joint(Id, Subjects, Data)}, Rest}.

names(0, Bytes, [_ | _] = Names) -> {lists:reverse(Names), Bytes};
names(N, <<A, Name:A/binary, Rest/binary>>, Names) when N > 0 ->
    is_text(Name) andalso names(N - 1, Rest, [Name | Names]);
names(_, _, _) -> false.

marked(_, _, false) -> malformed;
marked(Flags, By, {Draft, Rest}) when Flags band (?KEEP bor ?CLEAR) =:= 0 ->
    {{event, by(By, Draft)}, Rest};
marked(Flags, By, {Draft, Rest}) when Flags band ?CLEAR =:= 0 ->
    {{event, {keep, keep, by(By, Draft)}}, Rest};
marked(Flags, By, {Draft, Rest}) when Flags band ?KEEP =:= 0 ->
    {{event, {keep, clear, by(By, Draft)}}, Rest};
marked(_, _, _) ->
    malformed.

by(generated, Draft) -> Draft;
by(User, Draft) -> {by, User, Draft}.

is_text(<<>>) -> false;
is_text(Text) -> is_utf8(Text).

is_utf8(<<C, Rest/binary>>) when C < 128 -> is_utf8(Rest);
is_utf8(<<_/utf8, Rest/binary>>) -> is_utf8(Rest);
is_utf8(Rest) -> Rest =:= <<>>.

%% --- what records mean ---------------------------------------------------------------------------

%% How many seqs a record covers: one for each user of a private event, and for each subject of a
%% joint one. The record's own seq, which its event has, is the last of them. A change of follows
%% has one, as the history has a place for it among the events.
-spec seqs(record()) -> non_neg_integer().
seqs({event, {private, Draft}}) -> length(element(2, halley_event:users(Draft)));
seqs({event, {joint, Draft}}) -> length(element(2, halley_event:subjects(Draft)));
seqs({event, {by, _, Draft}}) -> seqs({event, Draft});
seqs({event, _}) -> 1;
seqs({follow, _, _}) -> 1;
seqs({unfollow, _, _}) -> 1;
seqs({forget, _}) -> 1;
seqs(nothing) -> 1;
seqs(_) -> 0.

%% What the engine's own tables get with a row. `Before': the last seq before these records. A kept
%% value is there as `kept/1' reads it.
-spec changes(halley_cursor:store(), Before :: halley_cursor:seq(), Records :: binary()) ->
    [halley_log_engine:change()].
changes(Store, Before, Bytes) ->
    {ok, Records} = records(Bytes),
    {Changes, _} = lists:foldl(fun(Record, {Changes, Seq}) ->
                                   Next = Seq + seqs(Record),
                                   {changed(Record, Store, Next, Changes), Next}
                               end, {[], Before}, Records),
    lists:reverse(Changes).

changed({event, {keep, keep, _}} = Record, Store, Seq, Changes) ->
    [{keep, subject(Record), Seq, iolist_to_binary([<<Store:32>>, encode(Record)])} | Changes];
changed({event, {keep, clear, _}} = Record, _, _, Changes) ->
    [{clear, subject(Record)} | Changes];
changed({event, _}, _, _, Changes) -> Changes;
changed({known, _}, _, _, Changes) -> Changes;
changed(nothing, _, _, Changes) -> Changes;
changed(Change, _, _, Changes) -> [Change | Changes].

subject({event, {keep, _, {by, _, Draft}}}) -> subject({event, {keep, keep, Draft}});
subject({event, {keep, _, Draft}}) -> element(2, halley_event:parts(Draft)).

%% A kept value's record, and the store for whose prefix an id was generated. Its seq and its time
%% are in the engine's table, as the time of a row isn't known before it is appended.
-spec kept(binary()) -> {ok, halley_cursor:store(), record()} | {error, malformed}.
kept(<<Store:32, Bytes/binary>>) ->
    case records(Bytes) of
        {ok, [{event, {keep, keep, _}} = Record]} -> {ok, Store, Record};
        _ -> {error, malformed}
    end;
kept(_) ->
    {error, malformed}.
