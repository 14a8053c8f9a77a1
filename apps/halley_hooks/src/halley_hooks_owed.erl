%% Whether an event is owed to a user: no session of the user had it, so hooks tell of it.
%%
%% Pure, and decided by the event's own moment: by when the user's sessions came and went
%% (`halley_hooked_moves'), not by who is there when this runs, which may be hours later.
%%
%% A user that has a session when the event is published has it. One that has none is sent it all
%% the same by a session that comes within ?WINDOW_MS with a cursor from before the event. One that
%% comes without a cursor is never sent it, and one that catches up later doesn't undo that.
%%
%% While a worker may not have sent its sessions yet (a *doubt*), no absence counts: if the user was
%% there when the doubt began, a session in a sync was there all the time; and a user who comes back
%% with its cursor by the end of the doubt is in time.
%%
%% Not all moves of the moment before a kill of the brain are known (`unsure'). An event of that
%% moment is owed unless the user is known to have had it: one hook too many beats one that is lost.
-module(halley_hooks_owed).

-export([is_owed/3, window_ms/0, doubted/2]).
-export_type([event/0, doubts/0, facts/0]).

-define(WINDOW_MS, 2000).
%% Far longer than it takes to note a move.
-define(NOTED_MS, 1000).
%% Workers that come and go while the endpoint is down make one doubt after the other.
-define(DOUBTS_MAX, 1000).

%% `is_alone': it is for this user and nobody else, so its sessions were the user's.
-type event() :: #{at := integer(), shard := halley_shards:index(), seq := halley_history:seq(),
                   sessions := non_neg_integer(), is_alone => boolean(), _ => _}.
-type doubts() :: [{FromMs :: integer(), ToMs :: integer()}].
-type facts() :: #{is_there := Now :: boolean(), doubts := doubts(), unsure := doubts()}.

%% How long after an event it can be judged at the earliest.
-spec window_ms() -> pos_integer().
window_ms() -> ?WINDOW_MS.

%% One doubt more, the latest first. Beyond ?DOUBTS_MAX the two oldest become one, with the time
%% between them: fewer users are reported then, and none falsely.
-spec doubted({FromMs :: integer(), ToMs :: integer()}, doubts()) -> doubts().
doubted(Doubt, Doubts) when length(Doubts) < ?DOUBTS_MAX ->
    [Doubt | Doubts];
doubted(Doubt, Doubts) ->
    {Later, [{_, ToMs}, {FromMs, _}]} = lists:split(length(Doubts) - 2, Doubts),
    [Doubt | Later] ++ [{FromMs, ToMs}].

-spec is_owed(event(), [halley_hooked_moves:move()], facts()) -> boolean().
is_owed(#{at := At} = Event, Moves, #{unsure := Unsure} = Facts) ->
    IsUnsure = lists:any(fun({From, To}) -> From < At andalso At =< To end, Unsure),
    is_absent(IsUnsure, Event, Moves, Facts) andalso not is_in_time(Event, Moves, Facts).

%% Whether nobody was there. An answer of some sessions says that this user was found, if there is
%% no other.
is_absent(true, #{sessions := Found} = Event, _, _) ->
    Found =:= 0 orelse not maps:get(is_alone, Event, false);
is_absent(false, #{sessions := Found} = Event, Moves, Facts) ->
    {Before, After} = around(Event, Moves),
    case was_there(Before, After, Facts) of
        true -> Found =:= 0 andalso had_left(Event, Before, After);
        false -> Found =:= 0 orelse not maps:get(is_alone, Event, false)
    end.

%% A move is noted behind what it tells of. So where nobody was found, a user that left just behind
%% the event had left before; but one whose session wasn't open yet.
had_left(#{at := At}, Before, [{Ms, left, _} | _]) when Ms - At =< ?NOTED_MS ->
    Since = lists:takewhile(fun({_, What, _}) -> What =/= left end, lists:reverse(Before)),
    not lists:any(fun({_, {caught, _}, _}) -> true; (_) -> false end, Since);
had_left(_, _, _) ->
    false.

%% An event that was drawn behind a move looked for sessions behind it.
around(#{seq := Seq}, Moves) ->
    lists:splitwith(fun({_, _, Drawn}) -> Drawn < Seq end, Moves).

%% A user without a move has been, all the time, as it is now.
was_there([_ | _] = Before, _, _) -> element(2, lists:last(Before)) =/= left;
was_there([], [{_, First, _} | _], _) -> First =:= left;
was_there([], [], #{is_there := IsThere}) -> IsThere.

is_in_time(#{at := At, shard := Shard, seq := Seq} = Event, Moves, #{doubts := Doubts} = Facts) ->
    {_, After} = around(Event, Moves),
    Doubt = [{From, To} || {From, To} <- Doubts, At + ?WINDOW_MS >= From, At =< To],
    Until = lists:max([At + ?WINDOW_MS | [To || {_, To} <- Doubt]]),
    IsSaid = case [Move || {_, What, _} = Move <- After, What =/= left] of
        [{Ms, synced, _} | _] ->
            lists:any(fun({From, To}) ->
                          Ms >= From andalso Ms =< To andalso was_there_at(From, Moves, Facts)
                      end, Doubt);
        _ -> false
    end,
    IsSaid orelse lists:any(fun({Ms, {caught, Vector}, _}) ->
                                    Ms =< Until andalso Seq > element(Shard, Vector);
                               (_) -> false
                            end, After).

was_there_at(AtMs, Moves, Facts) ->
    {Before, After} = lists:splitwith(fun({Ms, _, _}) -> Ms < AtMs end, Moves),
    was_there(Before, After, Facts).
