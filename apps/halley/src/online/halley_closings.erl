%% Sessions that ended, with the reason: the last `closings_max' of them.
%%
%% A ring in ETS, written by the links as their workers send CLOSE (protocol/link.md 2.8), without a
%% process in between: a writer draws a place and overwrites what stood there. Looking one user up
%% reads the whole ring, some milliseconds; only traces and the console do it.
%%
%% It is in memory alone, like the numbers of users that follow nothing. So it isn't complete: rows
%% are overwritten, a brain doesn't know of the one before it, and of a link that ended it isn't
%% known which of its sessions ended with it. Each of these raises the *floor*: of sessions that
%% ended after it, each has its row.
-module(halley_closings).

-export([new/0, record/2, of_user/1, users/0, latest/2, reasons/0, floor/0, lost/1]).
-export([forget/1, freed/1]).
-export_type([closing/0, reason/0]).

-define(STATE, {?MODULE, state}).
-define(PLACE, 1).
-define(FLOOR, 2).

-type reason() :: closed | vanished | slow_consumer | close_sessions | edge_stops
                | broke_protocol | poll_answered | token_expired.
%% `at': milliseconds since 1970. `drawn': what is above it was published when the session was gone.
%% `none': it was a process.
-type closing() :: #{at := integer(), reason := reason(), worker := non_neg_integer() | none,
                     conn := halley_directory:conn() | none, drawn := halley_cursor:seq()}.

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    persistent_term:put(?STATE, atomics:new(2, [])).

-spec record(halley_id:user_number(), #{reason := reason(), worker := non_neg_integer() | none,
                                        conn := halley_directory:conn() | none,
                                        drawn := halley_cursor:seq(), _ => _}) -> ok.
record(User, #{reason := Reason, worker := Worker, conn := Conn, drawn := Drawn}) ->
    case halley_limits:get(closings_max) of
        0 ->
            lost(Drawn);
        Max ->
            Place = atomics:add_get(persistent_term:get(?STATE), ?PLACE, 1),
            At = halley_clock:wall_ms(),
            Key = Place rem Max,
            _ = [ok = lost(Lost) || {_, _, _, _, _, _, _, Lost} <- ets:lookup(?MODULE, Key)],
            true = ets:insert(?MODULE, {Key, User, Place, At, Reason, Worker, Conn, Drawn}),
            ok
    end.

%% Sessions that ended up to this seq may have no row.
-spec lost(halley_cursor:seq()) -> ok.
lost(Seq) -> halley_floor:raise(persistent_term:get(?STATE), ?FLOOR, Seq).

-spec floor() -> halley_cursor:seq().
floor() -> atomics:get(persistent_term:get(?STATE), ?FLOOR).

%% What is remembered of a user's sessions, the latest first.
-spec of_user(halley_id:user_number()) -> [closing()].
of_user(User) ->
    Rows = ets:match(?MODULE, {'_', User, '$1', '$2', '$3', '$4', '$5', '$6'}),
    [#{at => At, reason => Reason, worker => Worker, conn => Conn, drawn => Drawn}
     || [_, At, Reason, Worker, Conn, Drawn] <- lists:reverse(lists:sort(Rows))].

%% Of whose sessions anything is remembered.
-spec users() -> [halley_id:user_number()].
users() ->
    Users = ets:select(?MODULE, [{{'_', '$1', '_', '_', '_', '_', '_', '_'}, [], ['$1']}]),
    lists:usort(Users).

-spec reasons() -> [reason()].
reasons() ->
    [closed, vanished, slow_consumer, close_sessions, edge_stops, broke_protocol, poll_answered,
     token_expired].

%% Whose sessions ended for this reason, the latest first, at most so many.
-spec latest(reason(), pos_integer()) -> [{halley_id:user_number(), closing()}].
latest(Reason, Max) ->
    Rows = ets:match(?MODULE, {'_', '$2', '$1', '$3', Reason, '$4', '$5', '$6'}),
    [{User, #{at => At, reason => Reason, worker => Worker, conn => Conn, drawn => Drawn}}
     || [_, User, At, Worker, Conn, Drawn] <- lists:sublist(lists:reverse(lists:sort(Rows)), Max)].

%% Users that were deleted: what was published before is hidden from them (`halley_history').
-spec forget([halley_id:user_number()]) -> ok.
forget(Users) ->
    _ = taken(Users),
    ok.

%% Numbers that are about to be given again: what their next users ask for is not what these left.
%% The same users may come again, and nobody knows then when they left.
-spec freed([halley_id:user_number()]) -> ok.
freed(Users) ->
    lists:foreach(fun lost/1, taken(Users)).

%% Up to where their sessions had ended.
taken(Users) ->
    Is = maps:from_keys(Users, true),
    Found = ets:foldl(fun({Key, User, _, _, _, _, _, Drawn}, Acc) when is_map_key(User, Is) ->
                              [{Key, Drawn} | Acc];
                         (_, Acc) ->
                              Acc
                      end, [], ?MODULE),
    [begin true = ets:delete(?MODULE, Key), Drawn end || {Key, Drawn} <- Found].
