%% Which subjects are groups at their shards: rows {subject, shard, filling}.
%%
%% Each time that a group is begun it is another *filling*, a number that is never used again. Marks
%% belong to a filling, so those of a group that has ended mean nothing to the one that comes after.
%%
%% Only the subject's shard writes its rows: a row is there exactly while the shard has the group.
%%   `open/1'    before anything of the group is read: what changed before is found by the reading,
%%               and what changes from now on leaves a mark;
%%   `close/1'   in the turn in which the group ends, after the links got its end: an earlier event
%%               has gone to the group with its marks settled, a later one is looked up.
%% So each mark has a shard that settles it, and none is left for a group without a shard.
%%
%% A late mark is taken back: a process that leaves one looks at the row again afterwards, and
%% closing removes the marks after the row. Either the process saw that the row is gone, or closing
%% saw the mark.
%%
%% The table belongs to the supervisor. It knows neither members nor follows.
-module(halley_groups_table).

-export([new/0, open/1, close/1, lookup/1, list/0, size/0, mark/2]).
-export_type([row/0, filling/0]).
-compile({no_auto_import, [size/1]}).

-type user_number() :: halley_id:user_number().
-type filling() :: integer().
-type row() :: {Subject :: user_number(), halley_shards:index(), filling()}.

-define(TABLE, ?MODULE).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    ok.

%% The group begins.
-spec open(row()) -> ok.
open(Row) ->
    true = ets:insert(?TABLE, Row),
    ok.

%% The group has ended, if it was one.
-spec close(Subject :: user_number()) -> ok.
close(Subject) ->
    lists:foreach(fun({_, _, Filling}) -> halley_groups_marks:take_all(Filling) end,
                  ets:take(?TABLE, Subject)).

-spec lookup(user_number()) -> [row()].
lookup(Subject) ->
    ets:lookup(?TABLE, Subject).

-spec list() -> [row()].
list() ->
    ets:tab2list(?TABLE).

%% The store works without the rest of the brain as well, and then there is no table.
-spec size() -> non_neg_integer().
size() ->
    case ets:info(?TABLE, size) of
        undefined -> 0;
        Groups -> Groups
    end.

%% Leaves a mark. `new': the shard has to be told. `there': it has been. `ended': there is nothing
%% to be told any more.
-spec mark(row(), user_number()) -> new | there | ended.
mark({Subject, _, Filling} = Row, User) ->
    case halley_groups_marks:leave(Filling, User) of
        new ->
            case lookup(Subject) of
                [Row] ->
                    new;
                _ ->
                    ok = halley_groups_marks:take_back(Filling, User),
                    ended
            end;
        there ->
            there
    end.
