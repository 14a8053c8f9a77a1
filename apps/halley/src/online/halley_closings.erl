%% Sessions that ended, with the reason: the last `closings_max' of them.
%%
%% A ring in ETS, written by the links as their workers send CLOSE (protocol/link.md 2.8), without a
%% process in between: a writer draws a place and overwrites what stood there. Looking one user up
%% reads the whole ring, some milliseconds; only traces and the console do it.
%%
%% It is in memory alone, like the numbers of users that follow nothing.
-module(halley_closings).

-export([new/0, record/2, of_user/1, latest/2, reasons/0, forget/1]).
-export_type([closing/0, reason/0]).

-define(DRAWN, {?MODULE, drawn}).

-type reason() :: closed | vanished | slow_consumer | close_sessions | edge_stops
                | broke_protocol | poll_answered | token_expired.
%% `at': milliseconds since 1970.
-type closing() :: #{at := integer(), reason := reason(), worker := non_neg_integer(),
                     conn := halley_directory:conn()}.

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    persistent_term:put(?DRAWN, atomics:new(1, [])).

-spec record(halley_id:user_number(), #{reason := reason(), worker := non_neg_integer(),
                                        conn := halley_directory:conn(), _ => _}) -> ok.
record(User, #{reason := Reason, worker := Worker, conn := Conn}) ->
    case halley_limits:get(closings_max) of
        0 ->
            ok;
        Max ->
            Drawn = atomics:add_get(persistent_term:get(?DRAWN), 1, 1),
            At = erlang:system_time(millisecond),
            true = ets:insert(?MODULE, {Drawn rem Max, User, Drawn, At, Reason, Worker, Conn}),
            ok
    end.

%% What is remembered of a user's sessions, the latest first.
-spec of_user(halley_id:user_number()) -> [closing()].
of_user(User) ->
    Rows = ets:match(?MODULE, {'_', User, '$1', '$2', '$3', '$4', '$5'}),
    [#{at => At, reason => Reason, worker => Worker, conn => Conn}
     || [_, At, Reason, Worker, Conn] <- lists:reverse(lists:sort(Rows))].

-spec reasons() -> [reason()].
reasons() ->
    [closed, vanished, slow_consumer, close_sessions, edge_stops, broke_protocol, poll_answered,
     token_expired].

%% Whose sessions ended for this reason, the latest first, at most so many.
-spec latest(reason(), pos_integer()) -> [{halley_id:user_number(), closing()}].
latest(Reason, Max) ->
    Rows = ets:match(?MODULE, {'_', '$2', '$1', '$3', Reason, '$4', '$5'}),
    [{User, #{at => At, reason => Reason, worker => Worker, conn => Conn}}
     || [_, User, At, Worker, Conn] <- lists:sublist(lists:reverse(lists:sort(Rows)), Max)].

%% Numbers that are about to be given again: what their next users ask for is not what these left.
-spec forget([halley_id:user_number()]) -> ok.
forget(Users) ->
    Is = maps:from_keys(Users, true),
    Places = ets:foldl(fun({Place, User, _, _, _, _, _}, Acc) when is_map_key(User, Is) ->
                               [Place | Acc];
                          (_, Acc) ->
                               Acc
                       end, [], ?MODULE),
    lists:foreach(fun(Place) -> true = ets:delete(?MODULE, Place) end, Places).
