%% Sessions that ended, with the reason: the last `closings_max' of them, of which one user has its
%% share (`halley_user_rows').
%%
%% Written by the links as their workers send CLOSE (protocol/link.md 2.8). Traces and the console
%% read them.
%%
%% It is in memory alone, like the numbers of users that follow nothing. So it isn't complete: rows
%% are dropped, a brain doesn't know of the one before it, and of a link that ended it isn't known
%% which of its sessions ended with it. Each of these raises a *floor*, that of the user or that of
%% all: of a user's sessions that ended after it, each has its row.
-module(halley_closings).

-export([new/0, record/2, of_user/1, users/0, latest/2, reasons/0, floor/1, lost/1]).
-export([forget/1, freed/1]).
-export_type([closing/0, reason/0]).

-type reason() :: closed | vanished | slow_consumer | close_sessions | edge_stops
                | broke_protocol | poll_answered | token_expired.
%% `at': milliseconds since 1970. `drawn': what is above it was published when the session was gone.
%% `none': it was a process.
-type closing() :: #{at := integer(), reason := reason(), worker := non_neg_integer() | none,
                     conn := halley_directory:conn() | none, drawn := halley_cursor:seq()}.

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() -> halley_user_rows:new(?MODULE).

-spec record(halley_id:user_number(), #{reason := reason(), worker := non_neg_integer() | none,
                                        conn := halley_directory:conn() | none,
                                        drawn := halley_cursor:seq(), _ => _}) -> ok.
record(User, #{reason := Reason, worker := Worker, conn := Conn, drawn := Drawn}) ->
    What = {halley_clock:wall_ms(), Reason, Worker, Conn},
    halley_user_rows:record(?MODULE, halley_limits:get(closings_max), {User, Drawn, What}).

%% Sessions that ended up to this seq may have no row, whosever they were.
-spec lost(halley_cursor:seq()) -> ok.
lost(Seq) -> halley_user_rows:raise(?MODULE, Seq).

%% The user's, or that of all for an id without a number. To be read after the rows.
-spec floor(halley_id:user_number() | undefined) -> halley_cursor:seq().
floor(undefined) -> halley_user_rows:floor(?MODULE);
floor(User) -> halley_user_rows:floor(?MODULE, User).

%% What is remembered of a user's sessions, the latest first.
-spec of_user(halley_id:user_number()) -> [closing()].
of_user(User) ->
    [closing(Drawn, What) || {_, Drawn, What} <- halley_user_rows:of_user(?MODULE, User)].

closing(Drawn, {At, Reason, Worker, Conn}) ->
    #{at => At, reason => Reason, worker => Worker, conn => Conn, drawn => Drawn}.

%% Of whose sessions anything is remembered.
-spec users() -> [halley_id:user_number()].
users() -> halley_user_rows:users(?MODULE).

-spec reasons() -> [reason()].
reasons() ->
    [closed, vanished, slow_consumer, close_sessions, edge_stops, broke_protocol, poll_answered,
     token_expired].

%% Whose sessions ended for this reason, the latest first, at most so many.
-spec latest(reason(), pos_integer()) -> [{halley_id:user_number(), closing()}].
latest(Reason, Max) ->
    Rows = halley_user_rows:matching(?MODULE, {'_', Reason, '_', '_'}),
    [{User, closing(Drawn, What)} || {_, User, Drawn, What} <- lists:sublist(Rows, Max)].

%% Users that were deleted: what was published before is hidden from them (`halley_history').
-spec forget([halley_id:user_number()]) -> ok.
forget(Users) ->
    _ = halley_user_rows:forget(?MODULE, Users),
    ok.

%% Numbers that are about to be given again: what their next users ask for is not what these left.
%% The same users may come again, and nobody knows then when they left.
-spec freed([halley_id:user_number()]) -> ok.
freed(Users) ->
    lists:foreach(fun lost/1, halley_user_rows:forget(?MODULE, Users)).
