%% Missed events, for tests: all that a replay or a catch-up gives, up to the written heads.
-module(halley_missed_helper).

-export([written/0, cursor/0, missed/2, missed/3, given/2, given/4, ids/1, caught_up/3]).

-include("halley_wait.hrl").

%% The heads, once all up to them is written.
written() ->
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, ?WAIT_MS),
    UpTo.

%% A cursor of now.
cursor() ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second), written()).

%% What a user missed since a cursor: {Id, Cursor} of each event, and the reasons of gaps.
missed(User, Cursor) -> missed(User, Cursor, #{events_max => 256, bytes_max => 131072}).

missed(User, Cursor, Limits) ->
    case halley_replay:new(User, Cursor) of
        {ok, Replay} -> given(Replay, Limits);
        {gap, #{reason := Reason}, Replay} -> [Reason | given(Replay, Limits)]
    end.

%% The same of a replay, in batches within the limits.
given(Replay, Limits) -> given(Replay, written(), Limits, halley_history_reader:new()).

%% Up to a vector, by a reader that it closes.
given(Replay, UpTo, Limits, Reader) ->
    {Events, What, Next, NextReader} =
        halley_history_helper:replayed(Replay, UpTo, Limits, Reader),
    Given = [{Id, Cursor} || #{id := Id, cursor := Cursor} <- Events],
    case What of
        done ->
            ok = halley_history_reader:close(NextReader),
            Given;
        {gap, #{reason := Reason}} -> Given ++ [Reason | given(Next, UpTo, Limits, NextReader)];
        _ -> Given ++ given(Next, UpTo, Limits, NextReader)
    end.

%% Ids alone, and the reasons of gaps.
ids(Given) -> [case One of {Id, _} -> Id; Gap -> Gap end || One <- Given].

%% What a link missed since a vector: {Id, Conns} of each event, batch by batch, and gaps.
caught_up(Slot, From, EventsMax) ->
    caught_up(Slot, From, written(), EventsMax, halley_catchup_former:new()).

caught_up(Slot, From, UpTo, EventsMax, Former) ->
    Reader = halley_history_reader:new(),
    {Items, Next, What, Gaps, Later, Read} =
        halley_catchup:next(#{Slot => []}, From, UpTo,
                            #{events_max => EventsMax, bytes_max => 1 bsl 20}, Former, Reader),
    ok = halley_history_reader:close(Read),
    Given = [{maps:get(id, halley_test_brain:event(Delivery)),
              lists:sort(halley_test_brain:conns(Words))}
             || {Delivery, Words} <- Items] ++ Gaps,
    case What of
        done -> Given;
        more -> Given ++ caught_up(Slot, Next, UpTo, EventsMax, Later)
    end.
