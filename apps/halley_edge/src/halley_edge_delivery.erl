%% The frames of one message to a trunk: those of an event, of a group's members, of connections
%% that are to be closed. Pure.
%%
%% An event is one frame as a rule, without a cursor: its seq moves the worker's (link.md 10.9). An
%% event that takes several frames has a cursor in each, and only the last one is past the event: if
%% the link ends between them, the worker gets the event again, for all. To a group the event is
%% GROUP_DELIVER, after DELIVER to the other connections. On a trunk these are TRUNK_DELIVER and
%% TRUNK_GROUP_DELIVER (13.5), and frames for one slot alone are in TO_SLOT.
-module(halley_edge_delivery).

-export([frames/3, trunk_frames/3, to_slot/2, members/3, close_sessions/2]).
-export_type([frame/0]).

-include("halley_edge.hrl").

-define(CLOSE_CONNS_MAX, 8192).

%% With its size.
-type frame() :: {Bytes :: pos_integer(), iolist()}.

%% Of an event to one slot that is apart; the event is passed in the position that comes back.
-spec frames(halley_event:delivery(), halley_links_queue:to_slot(),
             halley_edge_position:position()) ->
    {[frame()], halley_edge_position:position()}.
frames({Shard, Seq, Wire}, {group, Group, <<>>}, Position) ->
    {[group(<<>>, Wire, Group)], halley_edge_position:passed(Shard, Seq, Position)};
frames({Shard, Seq, Wire}, {group, Group, Conns}, Position) ->
    {Before, After, Passed} = cursors(Shard, Seq, Position),
    {deliver(link, Before, Before, Wire, Conns, room(Wire)) ++ [group(After, Wire, Group)], Passed};
frames(Delivery, Conns, Position) ->
    to_conns(link, Delivery, Conns, Position).

%% The same to slots that follow the trunk; connections are words.
-spec trunk_frames(halley_event:delivery(), halley_links_queue:to(),
                   halley_edge_position:position()) ->
    {[frame()], halley_edge_position:position()}.
trunk_frames({Shard, Seq, Wire}, {group, Group, Slots, <<>>}, Position) ->
    {[group(<<>>, Wire, Group, Slots)], halley_edge_position:passed(Shard, Seq, Position)};
trunk_frames({Shard, Seq, Wire}, {group, Group, Slots, Words}, Position) ->
    {Before, After, Passed} = cursors(Shard, Seq, Position),
    {deliver(trunk, Before, Before, Wire, Words, room(Wire)) ++ [group(After, Wire, Group, Slots)],
     Passed};
trunk_frames(Delivery, Words, Position) ->
    to_conns(trunk, Delivery, Words, Position).

%% Frames of a link, for one slot of a trunk.
-spec to_slot(halley_links:slot(), [frame()]) -> [frame()].
to_slot(Slot, Frames) ->
    [{Bytes + ?TO_SLOT_BYTES, halley_edge_encoder:encode_to_slot(Slot, Frame)}
     || {Bytes, Frame} <- Frames].

to_conns(Kind, {Shard, Seq, Wire}, Conns, Position) ->
    case room(Wire) of
        Room when byte_size(Conns) =< Room ->
            {[deliver(Kind, <<>>, Wire, Conns)], halley_edge_position:passed(Shard, Seq, Position)};
        Room ->
            {Before, After, Passed} = cursors(Shard, Seq, Position),
            {deliver(Kind, Before, After, Wire, Conns, Room), Passed}
    end.

cursors(Shard, Seq, Position) ->
    {Before, Still} = halley_edge_position:cursor(Position),
    {After, Passed} = halley_edge_position:cursor(halley_edge_position:passed(Shard, Seq, Still)),
    {Before, After, Passed}.

deliver(Kind, _, After, Wire, Conns, Room) when byte_size(Conns) =< Room ->
    [deliver(Kind, After, Wire, Conns)];
deliver(Kind, Before, After, Wire, Conns, Room) ->
    <<Now:Room/binary, Later/binary>> = Conns,
    [deliver(Kind, Before, Wire, Now) | deliver(Kind, Before, After, Wire, Later, Room)].

deliver(Kind, Cursor, Wire, Conns) ->
    {halley_edge_encoder:deliver_bytes(Cursor, Wire, Conns), encode(Kind, Cursor, Wire, Conns)}.

encode(link, Cursor, Wire, Conns) ->
    halley_edge_encoder:encode_deliver(Cursor, Wire, Conns);
encode(trunk, Cursor, Wire, Words) ->
    halley_edge_encoder:encode_trunk_deliver(Cursor, Wire, Words).

group(Cursor, Wire, Group) ->
    {halley_edge_encoder:group_deliver_bytes(Cursor, Wire),
     halley_edge_encoder:encode_group_deliver(Cursor, Wire, Group)}.

group(Cursor, Wire, Group, Slots) ->
    Packed = << <<Slot:16>> || Slot <- Slots >>,
    {halley_edge_encoder:group_deliver_bytes(Cursor, Wire) + 2 + byte_size(Packed),
     halley_edge_encoder:encode_trunk_group_deliver(Cursor, Wire, Group, Packed)}.

%% For packed connection ids beside the event in one frame (2.1, 7.3).
room(Wire) ->
    Free = ?FRAME_BYTES_MAX + 4 - ?CURSOR_BYTES_MAX - ?TO_SLOT_BYTES
               - halley_edge_encoder:deliver_bytes(<<>>, Wire, <<>>),
    min(8 * ?DELIVER_CONNS_MAX, Free div 8 * 8).

%% GROUP_JOIN or GROUP_LEAVE of so many.
-spec members(join | leave, halley_id:user_number(), Conns :: binary()) -> [frame()].
members(What, Group, Conns) when byte_size(Conns) =< 8 * ?DELIVER_CONNS_MAX ->
    Frame = halley_edge_encoder:encode_members(What, Group, Conns),
    [{iolist_size(Frame), Frame}];
members(What, Group, <<Now:(8 * ?DELIVER_CONNS_MAX)/binary, Later/binary>>) ->
    members(What, Group, Now) ++ members(What, Group, Later).

%% CLOSE_SESSIONS, as many as these connections take; one at least.
-spec close_sessions(Reason :: binary(), [halley_directory:conn()]) -> [iodata(), ...].
close_sessions(Reason, Conns) ->
    {Now, Later} = lists:split(min(?CLOSE_CONNS_MAX, length(Conns)), Conns),
    First = halley_edge_codec:encode({close_sessions, Reason, Now}),
    case Later of
        [] -> [First];
        _ -> [First | close_sessions(Reason, Later)]
    end.
