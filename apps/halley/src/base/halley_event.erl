%% An event: what is published about one subject.
%%
%% Its JSON text is made once, here, and is what every client sees, on every link and transport:
%%   {"id":…,"subject":…,"at":…,"data":…}
%% one line, data last, so that a transport that wants only the data cuts it out (link.md 7.1). It
%% is made as links carry it, after its numbers, so that a link's writer copies bytes and encodes
%% nothing. `draft/3' does what can be done before the subject's shard gives the event its seq;
%% `event/4' finishes it there.
%%
%% A generated id is `<store>-<seq>', both in base 36: short, and unique for ever, since a store
%% never uses a seq again.
%%
%% A *private* event is for the users that it names, and about no subject:
%%   {"id":…,"private":true,"at":…,"data":…}
%% Its text names none of them. Each of its users has a seq of its own in it, in the order of their
%% ids, and the event's own is the last of them (docs/internals/private.md).
%%
%% A *joint* event is about several subjects, in the order in which its publisher named them:
%%   {"id":…,"subjects":[…],"at":…,"data":…}
%% Each of them has a seq of its own in it, in this order; the event's own is the last of them
%% (docs/internals/joint.md).
%%
%% Pure: no processes, no clock. Ids are judged by `halley_id' before they come here.
-module(halley_event).

-export([draft/3, chosen_id/1, id_prefix/1, event/4, delivery/1, encode_data/1, data/1, escape/1]).
-export([private/3, private_event/4, users/1]).
-export([joint/3, joint_event/4, subjects/1]).
-export([parts/1]).
-export_type([event/0, delivery/0, wire/0, draft/0, private/0, private_event/0, joint/0,
              joint_event/0, recorded/0, id/0, id_prefix/0]).

-type id() :: binary().
-type event() :: #{id := id(), subject := binary(),
                   shard := halley_shards:index(),
                   seq := halley_cursor:seq(),
                   at := integer(),                % milliseconds since the epoch
                   wire := wire(),
                   sessions := non_neg_integer(),  % for the history: the first answer,
                   chosen := boolean(),            % whether the publisher chose the id,
                   ack => memory,                  % if nobody waits for the disk,
                   by => halley_id:id(),           % which user it is, for hooks and shares; whether
                   keep => keep | clear}.          % the subject's kept value is set or cleared
-type private_event() ::
    #{id := id(), users := [halley_id:id(), ...], shard := halley_shards:index(),
      seq := halley_cursor:seq(), at := integer(), wire := wire(), sessions := non_neg_integer(),
      chosen := boolean(), ack => memory, by => halley_id:id()}.
-type joint_event() ::
    #{id := id(), subjects := [halley_id:id(), ...], shard := halley_shards:index(),
      seq := halley_cursor:seq(), at := integer(), wire := wire(), sessions := non_neg_integer(),
      chosen := boolean(), ack => memory, by => halley_id:id()}.
%% An event as the history gives it back: its text, and the offsets of its parts in that.
-type recorded() :: #{shard := halley_shards:index(), seq := halley_cursor:seq(),
                      at := integer(), json := binary(), data_offset := non_neg_integer(),
                      subject_offset := non_neg_integer(), subject_bytes := non_neg_integer(),
                      atom() => term()}.
%% The item of link.md 2.2, its cursor empty: 30 bytes of numbers, then the JSON text.
-type wire() :: binary().
%% What a link needs of an event.
-type delivery() :: {halley_shards:index(), halley_cursor:seq(), wire()}.
-opaque draft() :: {Id :: id() | generated, Subject :: binary(), SubjectJson :: binary(),
                   Data :: binary()}.
-opaque private() :: {private, Id :: id() | generated, [halley_id:id(), ...], Data :: binary()}.
-opaque joint() :: {joint, Id :: id() | generated, [halley_id:id(), ...], Data :: binary()}.
%% What the ids that are generated for a store's events begin with.
-type id_prefix() :: binary().

%% Of `{"id":"', `","subject":"', `","at":' and `,"data":'.
-define(ID_OFFSET, 7).
-define(TO_SUBJECT_BYTES, 13).
-define(TO_AT_BYTES, 7).
-define(TO_DATA_BYTES, 8).
%% Of `","private":true,"at":'.
-define(TO_PRIVATE_AT_BYTES, 22).
%% Of `","subjects":["' and `"],"at":'.
-define(TO_SUBJECTS_BYTES, 15).
-define(TO_JOINT_AT_BYTES, 8).

%% An event that waits for its place. `Data' is valid JSON on one line.
-spec draft(id() | generated, binary(), binary()) -> draft().
draft(Id, Subject, Data) ->
    {Id, Subject, escape(Subject), Data}.

-spec chosen_id(draft()) -> id() | generated.
chosen_id({Id, _, _, _}) -> Id.

%% What `draft/3', `private/3' or `joint/3' made it of, for a codec.
-spec parts(draft()) -> {id() | generated, Subject :: binary(), Data :: binary()};
           (private() | joint()) ->
    {id() | generated, UsersOrSubjects :: [halley_id:id(), ...], Data :: binary()}.
parts({Kind, Id, Names, Data}) when Kind =:= private; Kind =:= joint -> {Id, Names, Data};
parts({Id, Subject, _, Data}) -> {Id, Subject, Data}.

%% A private one, for users that are in order, none twice.
-spec private(id() | generated, [halley_id:id(), ...], binary()) -> private().
private(Id, Users, Data) ->
    {private, Id, Users, Data}.

-spec users(private()) -> {id() | generated, [halley_id:id(), ...]}.
users({private, Id, Users, _}) ->
    {Id, Users}.

-spec id_prefix(halley_cursor:store()) -> id_prefix().
id_prefix(Store) ->
    <<(integer_to_binary(Store, 36))/binary, $->>.

%% The event, at its place in the order of its shard.
-spec event(draft(), id_prefix(), {halley_shards:index(), halley_cursor:seq()}, At :: integer()) ->
    event().
event({generated, Subject, SubjectJson, Data}, Prefix, {_, Seq} = Place, At) ->
    Id = <<Prefix/binary, (integer_to_binary(Seq, 36))/binary>>,
    build(Id, Id, Subject, SubjectJson, Data, Place, At);
event({Id, Subject, SubjectJson, Data}, _, Place, At) ->
    build(Id, escape(Id), Subject, SubjectJson, Data, Place, At).

build(Id, IdJson, Subject, SubjectJson, Data, {Shard, Seq}, At) ->
    AtJson = integer_to_binary(At),
    SubjectOffset = ?ID_OFFSET + byte_size(IdJson) + ?TO_SUBJECT_BYTES,
    SubjectBytes = byte_size(SubjectJson),
    DataOffset = SubjectOffset + SubjectBytes + ?TO_AT_BYTES + byte_size(AtJson) + ?TO_DATA_BYTES,
    Wire = <<Shard, Seq:64, At:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16, 0,
             (DataOffset + byte_size(Data) + 1):32,
             "{\"id\":\"", IdJson/binary, "\",\"subject\":\"", SubjectJson/binary,
             "\",\"at\":", AtJson/binary, ",\"data\":", Data/binary, $}>>,
    #{id => Id, subject => Subject, shard => Shard, seq => Seq, at => At, wire => Wire,
      sessions => 0, chosen => false}.

%% What stands for a subject is the id with the quote before it: no other event has that, so none
%% is taken for newer news about the same.
-spec private_event(private(), id_prefix(), {halley_shards:index(), Last :: halley_cursor:seq()},
                    At :: integer()) -> private_event().
private_event({private, Chosen, Users, Data}, Prefix, {Shard, Seq}, At) ->
    Id = id(Chosen, Prefix, Seq),
    IdJson = escape(Id),
    AtJson = integer_to_binary(At),
    DataOffset = ?ID_OFFSET + byte_size(IdJson) + ?TO_PRIVATE_AT_BYTES + byte_size(AtJson)
        + ?TO_DATA_BYTES,
    Wire = <<Shard, Seq:64, At:64, DataOffset:32, (?ID_OFFSET - 1):16, (byte_size(IdJson) + 1):16,
             0, (DataOffset + byte_size(Data) + 1):32,
             "{\"id\":\"", IdJson/binary, "\",\"private\":true,\"at\":", AtJson/binary,
             ",\"data\":", Data/binary, $}>>,
    #{id => Id, users => Users, shard => Shard, seq => Seq, at => At, wire => Wire,
      sessions => 0, chosen => false}.

id(generated, Prefix, Seq) -> <<Prefix/binary, (integer_to_binary(Seq, 36))/binary>>;
id(Chosen, _, _) -> Chosen.

%% One about several subjects, none twice.
-spec joint(id() | generated, [halley_id:id(), ...], binary()) -> joint().
joint(Id, Subjects, Data) ->
    {joint, Id, Subjects, Data}.

-spec subjects(joint()) -> {id() | generated, [halley_id:id(), ...]}.
subjects({joint, Id, Subjects, _}) ->
    {Id, Subjects}.

%% What stands for a subject is the list between its outer quotes: no single subject has a quote in
%% it that isn't escaped, so only an event about the same ones is newer news.
-spec joint_event(joint(), id_prefix(), {halley_shards:index(), Last :: halley_cursor:seq()},
                  At :: integer()) -> joint_event().
joint_event({joint, Chosen, Subjects, Data}, Prefix, {Shard, Seq}, At) ->
    Id = id(Chosen, Prefix, Seq),
    IdJson = escape(Id),
    AtJson = integer_to_binary(At),
    Names = iolist_to_binary(lists:join(<<"\",\"">>, [escape(Subject) || Subject <- Subjects])),
    NamesOffset = ?ID_OFFSET + byte_size(IdJson) + ?TO_SUBJECTS_BYTES,
    DataOffset = NamesOffset + byte_size(Names) + ?TO_JOINT_AT_BYTES + byte_size(AtJson)
        + ?TO_DATA_BYTES,
    Wire = <<Shard, Seq:64, At:64, DataOffset:32, NamesOffset:16, (byte_size(Names)):16, 0,
             (DataOffset + byte_size(Data) + 1):32,
             "{\"id\":\"", IdJson/binary, "\",\"subjects\":[\"", Names/binary, "\"],\"at\":",
             AtJson/binary, ",\"data\":", Data/binary, $}>>,
    #{id => Id, subjects => Subjects, shard => Shard, seq => Seq, at => At, wire => Wire,
      sessions => 0, chosen => false}.

-spec delivery(event() | private_event() | joint_event() | recorded()) -> delivery().
delivery(#{shard := Shard, seq := Seq, wire := Wire}) ->
    {Shard, Seq, Wire};
delivery(#{shard := Shard, seq := Seq, at := At, json := Json, data_offset := DataOffset,
           subject_offset := SubjectOffset, subject_bytes := SubjectBytes}) ->
    {Shard, Seq, <<Shard, Seq:64, At:64, DataOffset:32, SubjectOffset:16, SubjectBytes:16, 0,
                   (byte_size(Json)):32, Json/binary>>}.

%% The JSON text of a term as jiffy understands it, or of `{json, Text}', which is taken as it is.
-spec encode_data(term() | {json, binary()}) -> {ok, binary()} | {error, {bad_data, term()}}.
encode_data({json, Text}) when is_binary(Text) ->
    {ok, Text};
encode_data(Term) ->
    try {ok, iolist_to_binary(jiffy:encode(Term))}
    catch _:Reason -> {error, {bad_data, Reason}}
    end.

%% The data as a term: objects are maps.
-spec data(event() | private_event() | joint_event() | recorded()) -> jiffy:json_value().
data(#{wire := <<_:17/binary, Offset:32, _:9/binary, Json/binary>>}) ->
    data(Json, Offset);
data(#{json := Json, data_offset := Offset}) ->
    data(Json, Offset).

data(Json, Offset) ->
    jiffy:decode(binary_part(Json, Offset, byte_size(Json) - Offset - 1), [return_maps]).

%% What stands between the quotes of a JSON string. Most ids are plain ASCII and stay as they are.
-spec escape(binary()) -> binary().
escape(Text) ->
    case is_plain(Text) of
        true ->
            Text;
        false ->
            Quoted = iolist_to_binary(jiffy:encode(Text)),
            binary_part(Quoted, 1, byte_size(Quoted) - 2)
    end.

is_plain(<<C, Rest/binary>>) when C >= $\s, C < 16#7F, C =/= $", C =/= $\\ -> is_plain(Rest);
is_plain(Rest) -> Rest =:= <<>>.
