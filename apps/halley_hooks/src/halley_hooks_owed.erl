%% Whether an event is owed to a user: no session of the user had it, so hooks tell of it.
%%
%% Pure, and decided by the event's own moment: by when the user's sessions came and went
%% (`halley_hooked_moves'), not by who is there when this runs, which may be hours later.
%%
%% A user that has a session when the event is published has it. One that has none is sent it all
%% the same by a session that comes within ?WINDOW_MS with a cursor from before the event. One that
%% comes without a cursor is never sent it, and one that catches up later doesn't undo that.
%%
%% While a worker may not have sent its sessions yet (a *doubt*), no absence counts: a session in a
%% sync was there all the time, and a user who comes back by its end is in time.
-module(halley_hooks_owed).

-export([is_owed/3, window_ms/0, doubted/2]).
-export_type([event/0, doubts/0, facts/0]).

-define(WINDOW_MS, 2000).
%% An event's time is taken before its sessions are looked up, a move's behind the move. Of what is
%% so near the event's answer says which was first.
-define(NEAR_MS, 20).
%% Workers that come and go while the endpoint is down make one doubt after the other.
-define(DOUBTS_MAX, 1000).

-type event() :: #{at := integer(), shard := halley_shards:index(), seq := halley_history:seq(),
                   sessions := non_neg_integer(), _ => _}.
-type doubts() :: [{FromMs :: integer(), ToMs :: integer()}].
%% `is_there': now. `is_told': as there, when this brain began, which was at `began_at'.
-type facts() :: #{is_there := boolean(), is_told := boolean(), began_at := integer(),
                   doubts := doubts()}.

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
is_owed(#{at := At} = Event, Moves, Facts) ->
    {Before, After} = lists:splitwith(fun({Ms, _}) -> Ms < At end, Moves),
    is_absent(Event, lists:reverse(Before), After, Facts)
        andalso not is_in_time(Event, After, Facts).

%% Whether nobody was there. Of what is too near to be told apart, and of what was before this brain
%% began, an answer of no sessions says that nobody was found.
is_absent(#{at := At, sessions := Found}, _, [{Ms, _} | _], _) when Ms - At =< ?NEAR_MS ->
    Found =:= 0;
is_absent(_, [{_, Last} | _], _, _) -> Last =:= left;
is_absent(_, [], [{_, left} | _], _) -> false;
is_absent(#{at := At, sessions := Found}, [], _, #{began_at := BeganAt, is_told := IsTold})
  when At < BeganAt ->
    not IsTold orelse Found =:= 0;
is_absent(_, [], [], #{is_there := IsThere}) -> not IsThere;
is_absent(_, [], _, _) -> true.

is_in_time(#{at := At, shard := Shard, seq := Seq}, After, #{doubts := Doubts}) ->
    Doubt = [{From, To} || {From, To} <- Doubts, At + ?WINDOW_MS >= From, At =< To],
    Until = lists:max([At + ?WINDOW_MS | [To || {_, To} <- Doubt]]),
    IsSaid = case [Move || {_, What} = Move <- After, What =/= left] of
        [{Ms, synced} | _] -> lists:any(fun({From, To}) -> Ms >= From andalso Ms =< To end, Doubt);
        _ -> false
    end,
    IsSaid orelse lists:any(fun({Ms, {caught, Vector}}) ->
                                    Ms =< Until andalso Seq > element(Shard, Vector);
                               (_) -> false
                            end, After).
