%% The slots of a trunk that don't follow it (protocol/link.md 13.6): each was synced at a position
%% of its own, and keeps it until a catch-up has brought it as far as the trunk. Part of the state
%% of halley_edge_trunk_writer, and pure: it gives the frames that are to be written.
%%
%% A slot is
%%   syncing   until its SYNC_END; it skips what comes;
%%   due       it skips what comes, and wants a catch-up;
%%   catching  a catch-up runs: it skips, and then holds what comes (halley_edge_position);
%%   live      it gets what comes, in frames of its own.
%%
%% The vector of a slot is moved by every event and mark that its writer is sent, also by those for
%% other slots: an event that a shard doesn't send to a slot of a trunk concerns no session on it.
-module(halley_edge_apart).

-export([add/3, synced/2, event/3, marked/3, of_group/3]).
-export([due/1, hold/2, portion/4, release/3, fall_behind/1, is_flowing/1, join/2]).
-export([await/5, reached/1, lagging/1]).
-export_type([apart/0, written/0]).

-record(slot, {phase = syncing :: syncing | due | catching | live,
               position :: halley_edge_position:position()}).
%% The writer makes it, asks it for slots and removes them as of any map.
-type apart() :: #{halley_links:slot() => #slot{}}.
%% Frames in order, and by how much the count of what waits changes before they are written.
-type written() :: {integer(), [halley_edge_delivery:frame()]}.
-type slots() :: #{halley_links:slot() => []}.

%% A sync has begun for this slot, at a position, of which it gives the cursor.
-spec add(halley_links:slot(), halley_edge_position:position(), apart()) -> {binary(), apart()}.
add(Slot, Position, Apart) ->
    {Cursor, Told} = halley_edge_position:cursor(Position),
    {Cursor, Apart#{Slot => #slot{position = halley_edge_position:enter(skipping, Told)}}}.

%% The slot's SYNC_END came.
-spec synced(halley_links:slot(), apart()) -> apart().
synced(Slot, Apart) ->
    case Apart of
        #{Slot := #slot{phase = syncing} = Syncing} -> Apart#{Slot := Syncing#slot{phase = due}};
        #{} -> Apart
    end.

%%% What comes

%% An event that isn't counted any more. Gives back what of it is for slots that follow the trunk.
-spec event(halley_event:delivery(), halley_links_queue:to(), apart()) ->
    {none | halley_links_queue:to(), written(), apart()}.
event(Delivery, To, Apart) ->
    {Following, Tos} = split(To, Apart),
    {Written, Next} = each(fun(Slot, Position) ->
        event(Slot, Delivery, maps:get(Slot, Tos, none), Position)
    end, maps:keys(Apart), Apart),
    {Following, Written, Next}.

%% What is for slots that follow the trunk, and for each of these.
split({group, Group, Slots, Words}, Apart) ->
    {Others, Conns} = split(Words, Apart),
    {Mine, Trunks} = lists:partition(fun(Slot) -> is_map_key(Slot, Apart) end, Slots),
    ToGroup = fun(Slot, To) -> To#{Slot => {group, Group, maps:get(Slot, To, <<>>)}} end,
    Following = case {Trunks, Others} of
        {[], _} -> Others;
        {_, none} -> {group, Group, Trunks, <<>>};
        {_, _} -> {group, Group, Trunks, Others}
    end,
    {Following, lists:foldl(ToGroup, Conns, Mine)};
split(Words, Apart) ->
    split(Words, Apart, <<>>, #{}).

split(<<Slot:16, Conn:48, Rest/binary>>, Apart, Others, Conns) when is_map_key(Slot, Apart) ->
    Before = maps:get(Slot, Conns, <<>>),
    split(Rest, Apart, Others, Conns#{Slot => <<Before/binary, Conn:64>>});
split(<<Word:8/binary, Rest/binary>>, Apart, Others, Conns) ->
    split(Rest, Apart, <<Others/binary, Word/binary>>, Conns);
split(<<>>, _, <<>>, Conns) ->
    {none, Conns};
split(<<>>, _, Others, Conns) ->
    {Others, Conns}.

event(_, {Shard, Seq, _}, none, Position) ->
    {_, Next} = halley_edge_position:marked(Shard, Seq, Position),
    {0, [], Next};
event(Slot, Delivery, To, Position) ->
    case halley_edge_position:mode(Position) of
        live ->
            live(Slot, Delivery, To, 0, Position);
        holding ->
            {halley_links_queue:cost(Delivery, To), [],
             halley_edge_position:keep({Delivery, To}, Position)};
        skipping ->
            {0, [], Position}
    end.

live(Slot, Delivery, To, Counted, Position) ->
    {Frames, Passed} = halley_edge_delivery:frames(Delivery, To, Position),
    to_slot(Slot, Frames, Counted, Passed).

to_slot(Slot, Frames, Counted, Position) ->
    InSlot = halley_edge_delivery:to_slot(Slot, Frames),
    {bytes(InSlot) - Counted, InSlot, Position}.

bytes(Frames) ->
    lists:sum([Bytes || {Bytes, _} <- Frames]).

%% What each slot makes of it, together.
each(Do, Slots, Apart) ->
    {Delta, Written, Next} = lists:foldl(fun(Slot, {Sum, Before, A}) ->
        #{Slot := #slot{position = Position} = One} = A,
        {Change, Frames, Moved} = Do(Slot, Position),
        {Sum + Change, [Frames | Before], A#{Slot := One#slot{position = Moved}}}
    end, {0, [], Apart}, Slots),
    {{Delta, lists:append(lists:reverse(Written))}, Next}.

-spec marked(halley_shards:index(), halley_history:seq(), apart()) -> apart().
marked(Shard, Seq, Apart) ->
    maps:map(fun(_, #slot{position = Position} = One) ->
        {_, Next} = halley_edge_position:marked(Shard, Seq, Position),
        One#slot{position = Next}
    end, Apart).

%% A group's members on one slot or, of all slots, its end: as to a link. Counted as its bytes here.
-spec of_group(all | halley_links:slot(), Message :: tuple(), apart()) -> {written(), apart()}.
of_group(Whose, Message, Apart) ->
    Slots = case Whose of all -> maps:keys(Apart); Slot -> [Slot] end,
    each(fun(Slot, Position) ->
        case halley_edge_position:mode(Position) of
            holding ->
                {group_cost(Message), [], halley_edge_position:keep(Message, Position)};
            _ ->
                to_slot(Slot, group_frames(Message), 0, Position)
        end
    end, Slots, Apart).

group_cost({members, _, _, Conns}) -> byte_size(Conns);
group_cost({end_group, _}) -> 0.

group_frames({members, What, Group, Conns}) ->
    halley_edge_delivery:members(What, Group, Conns);
group_frames({end_group, Group}) ->
    Frame = halley_edge_codec:encode({group_end, Group}),
    [{iolist_size(Frame), Frame}].

%%% Catch-ups

%% Slots that want a catch-up and stand at one place: with that, for a catch-up that begins there.
-spec due(apart()) ->
    none | {slots(), halley_history:vector(), Second :: non_neg_integer(), apart()}.
due(Apart) ->
    case [{halley_edge_position:stands_at(Position), Slot}
          || {Slot, #slot{phase = due, position = Position}} <- maps:to_list(Apart)] of
        [] ->
            none;
        [{{Vector, Second} = Place, _} | _] = Due ->
            Slots = maps:from_keys([Slot || {P, Slot} <- Due, P =:= Place], []),
            Begun = change(Slots, fun(One) -> One#slot{phase = catching} end, Apart),
            {Slots, Vector, Second, Begun}
    end.

%% Whichever of them are still there.
change(Slots, Change, Apart) ->
    maps:map(fun(Slot, One) when is_map_key(Slot, Slots) -> Change(One);
                (_, One) -> One
             end, Apart).

there(Slots, Apart) ->
    [Slot || Slot <- maps:keys(Slots), is_map_key(Slot, Apart)].

%% What comes for them is held from now on.
-spec hold(slots(), apart()) -> apart().
hold(Slots, Apart) ->
    change(Slots, fun(#slot{position = Position} = One) ->
        One#slot{position = halley_edge_position:enter(holding, Position)}
    end, Apart).

%% A part of a catch-up: these events, then they stand there.
-spec portion([{halley_event:delivery(), Words :: binary()}], Next :: halley_history:vector(),
              slots(), apart()) -> {written(), apart()}.
portion(Events, Next, Slots, Apart) ->
    Here = maps:with(maps:keys(Slots), Apart),
    Parts = [{Delivery, element(2, split(Words, Here))} || {Delivery, Words} <- Events],
    each(fun(Slot, Position) ->
        Mine = [{Delivery, To} || {Delivery, #{Slot := To}} <- Parts],
        {Delta, Frames, Moved} = in_turn(fun({Delivery, To}, P) ->
            live(Slot, Delivery, To, 0, P)
        end, Mine, Position),
        {Delta, Frames, halley_edge_position:move_to(Next, Moved)}
    end, there(Slots, Apart), Apart).

in_turn(Do, Items, Position) ->
    {Delta, Written, Last} = lists:foldl(fun(Item, {Sum, Before, P}) ->
        {Change, Frames, Next} = Do(Item, P),
        {Sum + Change, [Frames | Before], Next}
    end, {0, [], Position}, Items),
    {Delta, lists:append(lists:reverse(Written)), Last}.

%% Their catch-up has reached its heads: what was held is written, but for what it had.
-spec release(Heads :: halley_history:vector(), slots(), apart()) -> {written(), apart()}.
release(Heads, Slots, Apart) ->
    {Written, Released} = each(fun(Slot, Position) ->
        {Held, Marks, Live} = halley_edge_position:release(Heads, Position),
        {Delta, Frames, Sent} = in_turn(fun(Kept, P) -> kept(Slot, Kept, Heads, P) end, Held, Live),
        {Delta, Frames, lists:foldl(fun({Shard, Seq}, P) ->
            element(2, halley_edge_position:marked(Shard, Seq, P))
        end, Sent, Marks)}
    end, there(Slots, Apart), Apart),
    {Written, change(Slots, fun(One) -> One#slot{phase = live} end, Released)}.

kept(_, {{Shard, Seq, _} = Delivery, To}, Heads, Position) when Seq =< element(Shard, Heads) ->
    {-halley_links_queue:cost(Delivery, To), [], Position};
kept(Slot, {{_, _, _} = Delivery, To}, _, Position) ->
    live(Slot, Delivery, To, halley_links_queue:cost(Delivery, To), Position);
kept(Slot, OfGroup, _, Position) ->
    to_slot(Slot, group_frames(OfGroup), group_cost(OfGroup), Position).

%% The trunk is behind: whoever is live wants a catch-up.
-spec fall_behind(apart()) -> apart().
fall_behind(Apart) ->
    maps:map(fun(_, #slot{phase = live, position = Position} = One) ->
                     Skipping = halley_edge_position:enter(skipping, Position),
                     One#slot{phase = due, position = Skipping};
                (_, One) -> One
             end, Apart).

%% Whether any slot relies on all that comes.
-spec is_flowing(apart()) -> boolean().
is_flowing(Apart) ->
    lists:any(fun(#slot{position = Position}) ->
        halley_edge_position:mode(Position) =/= skipping
    end, maps:values(Apart)).

%% Those that are live follow the trunk from now on, which is live as well.
-spec join(Trunk :: halley_edge_position:position(), apart()) ->
    {[halley_links:slot()], Trunk :: halley_edge_position:position(), apart()}.
join(Trunk, Apart) ->
    Live = maps:filter(fun(_, #slot{phase = Phase}) -> Phase =:= live end, Apart),
    Joined = maps:fold(fun(_, #slot{position = Position}, T) ->
        halley_edge_position:joined(Position, T)
    end, Trunk, Live),
    {maps:keys(Live), Joined, maps:without(maps:keys(Live), Apart)}.

%%% What waits for a vector

-spec await(halley_links:slot(), last | opening, Heads :: halley_history:vector(),
            Waiter :: term(), apart()) -> apart().
await(Slot, What, Heads, Waiter, Apart) ->
    #{Slot := #slot{position = Position} = One} = Apart,
    Apart#{Slot := One#slot{position = halley_edge_position:await(What, Heads, Waiter, Position)}}.

%% What need wait no longer, with the slot's cursor.
-spec reached(apart()) ->
    {[{Heads :: halley_history:vector(), Waiter :: term(), Cursor :: binary()}], apart()}.
reached(Apart) ->
    maps:fold(fun(Slot, #slot{position = Position} = One, {Before, A}) ->
        case halley_edge_position:awaits(Position) of
            true ->
                {Reached, Left} = halley_edge_position:reached(Position),
                {Cursor, Next} = halley_edge_position:cursor(Left),
                {Before ++ [{Heads, Waiter, Cursor} || {Heads, Waiter} <- Reached],
                 A#{Slot := One#slot{position = Next}}};
            false ->
                {Before, A}
        end
    end, {[], Apart}, Apart).

%% The shards whose marks may bring closer what waits for a slot.
-spec lagging(apart()) -> [halley_shards:index()].
lagging(Apart) when map_size(Apart) =:= 0 ->
    [];
lagging(Apart) ->
    lists:usort([Shard || #slot{position = Position} <- maps:values(Apart),
                          Shard <- halley_edge_position:lagging(Position)]).
