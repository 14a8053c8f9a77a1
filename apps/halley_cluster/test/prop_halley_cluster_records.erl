%% Bodies of rows: what is encoded comes back, and bytes that were changed, or are random, don't
%% pass.
-module(prop_halley_cluster_records).

-export([prop_round_trip/0, prop_flipped_byte_is_refused/0, prop_noise_is_refused/0,
         prop_hostile_records_return/0, prop_cut_body_is_refused/0]).

-include("support/halley_cluster_proper.hrl").

-import(proper_types, [binary/0, binary/1, list/1, non_empty/1, oneof/1, range/2]).

id() ->
    oneof([<<"user">>, <<"straße"/utf8>>, <<"\""/utf8>>,
           ?LET(Chars, proper_types:vector(3, range($a, $z)), list_to_binary(Chars)),
           binary:copy(<<"x">>, 255)]).

chosen() -> oneof([generated, id()]).

data() -> ?LET(Number, range(0, 1 bsl 60), integer_to_binary(Number)).

names() -> ?LET(Ids, non_empty(list(id())), lists:usort(Ids)).

about() ->
    ?LET({Id, Subject, Data}, {chosen(), oneof([id(), <<3, "status">>]), data()},
         halley_event:draft(Id, Subject, Data)).

by() -> ?LET({User, Draft}, {id(), about()}, {by, User, Draft}).

draft() ->
    oneof([about(), by(),
           ?LET({Keep, Draft}, {oneof([keep, clear]), oneof([about(), by()])}, {keep, Keep, Draft}),
           ?LET({Id, Users, Data}, {chosen(), names(), data()},
                {private, halley_event:private(Id, Users, Data)}),
           ?LET({By, Id, Subjects, Data}, {id(), chosen(), names(), data()},
                {by, By, {joint, halley_event:joint(Id, lists:reverse(Subjects), Data)}})]).

%% Ids that are chosen twice become `known', so each record is a proposal of its own.
record() ->
    oneof([{event, draft()}, {event, draft()}, {follow, id(), id()}, {unfollow, id(), id()},
           {forget, id()}, {key, id(), oneof([removed, binary()])}, {known, id()}, nothing]).

portions() -> list({binary(16), record()}).

body(Epoch, Portions) ->
    halley_cluster_records:body(Epoch, [{Token, bytes([Record])} || {Token, Record} <- Portions]).

bytes(Records) ->
    maps:get(records, halley_cluster_records:proposal(Records)).

prop_round_trip() ->
    ?FORALL({Epoch, Portions}, {range(0, 16#FFFFFFFF), portions()},
            halley_cluster_records:decode(body(Epoch, Portions))
                =:= {ok, Epoch, [{Token, [Record]} || {Token, Record} <- Portions]}).

prop_flipped_byte_is_refused() ->
    ?FORALL({Portions, At, By}, {portions(), range(0, 1 bsl 30), range(1, 255)},
            begin
                Body = body(1, Portions),
                Place = At rem byte_size(Body),
                <<Before:Place/binary, Byte, After/binary>> = Body,
                {error, crc} =:= halley_cluster_records:decode(
                                     <<Before/binary, (Byte bxor By), After/binary>>)
            end).

prop_cut_body_is_refused() ->
    ?FORALL({Portions, Less}, {portions(), range(1, 1 bsl 30)},
            begin
                Body = body(1, Portions),
                Size = byte_size(Body) - 1 - Less rem byte_size(Body),
                {error, _} = halley_cluster_records:decode(binary_part(Body, 0, max(0, Size))),
                true
            end).

prop_noise_is_refused() ->
    ?FORALL(Noise, binary(),
            case halley_cluster_records:decode(Noise) of
                {error, crc} -> byte_size(Noise) >= 9;
                {error, malformed} -> byte_size(Noise) < 9
            end).

%% Whoever can make the CRC gets no further: what isn't a record is an error, and what is one comes
%% back as the bytes that it was.
prop_hostile_records_return() ->
    ?FORALL({Kind, Record, Noise, At}, {range(0, 12), record(), binary(), range(0, 1 bsl 30)},
            begin
                Bytes = bytes([Record]),
                Place = At rem (byte_size(Bytes) + 1),
                Hostile = [<<Kind, Noise/binary>>,
                           <<(binary_part(Bytes, 0, Place))/binary, Noise/binary>>,
                           <<(binary_part(Bytes, 0, Place))/binary, 16#FF, Noise/binary,
                             (binary_part(Bytes, Place, byte_size(Bytes) - Place))/binary>>],
                lists:all(fun judged/1, Hostile)
            end).

judged(Bytes) ->
    Content = <<1, 7:32, 0:128, (byte_size(Bytes)):32, Bytes/binary>>,
    case halley_cluster_records:decode(<<Content/binary, (erlang:crc32(Content)):32>>) of
        {ok, 7, [{<<0:128>>, Records}]} ->
            lists:append([binary_to_list(bytes([Record])) || Record <- Records])
                =:= binary_to_list(Bytes);
        {error, malformed} ->
            true
    end.
