%% The last rows that are remembered of users, at most so many, of which one user has its share
%% (`user_share_percent_max'): beyond it the user's own oldest row is dropped, and beyond the bound
%% the oldest of all. So a user whose sessions come and go without end pushes out its own rows, and
%% no others.
%%
%% Each row has a seq, `drawn'. A row that is dropped raises a *floor*: above a user's floor each of
%% its rows is there. The floor is common, and a user who lost rows to its share has a higher one of
%% its own, until the common one has passed it.
%%
%% Rows are written by many processes at once, without one in between. A row is in two tables: by
%% user and number, where it is found, and by its place among all, where the oldest is found. The
%% process that takes a row out of the first table has dropped it, and counts it. The rows of a user
%% are numbered without gaps but for moments, so the first and the last number say how many there
%% are.
%%
%% Bounds: `Max' rows, and a floor of its own for users with rows alone.
-module(halley_user_rows).

-export([new/1, record/3, raise/2, floor/1, floor/2, place/1]).
-export([of_user/2, users/1, matching/2, forget/2]).
-compile({no_auto_import, [floor/1]}).
-export_type([rows/0, place/0]).

-define(PLACE, 1).
-define(FLOOR, 2).
-define(SIZE, 3).
%% Below and above all numbers of a user's rows.
-define(FLOOR_KEY(User), {User, 0}).
-define(END_KEY(User), {User, 'end'}).

-type rows() :: atom().
-type place() :: pos_integer().
-type seq() :: halley_cursor:seq().
-type user() :: halley_id:user_number().

%% Makes the tables. The caller, a supervisor, owns them.
-spec new(rows()) -> ok.
new(Rows) ->
    Options = [ordered_set, public, {write_concurrency, true}],
    Rows = ets:new(Rows, [named_table | Options]),
    Order = ets:new(halley_user_rows_order, Options),
    persistent_term:put({?MODULE, Rows}, {atomics:new(3, []), Order}).

state(Rows) -> persistent_term:get({?MODULE, Rows}).

%% Remembers one, of `Max' at most.
-spec record(rows(), Max :: non_neg_integer(), {user(), Drawn :: seq(), What :: term()}) -> ok.
record(Rows, 0, {_, Drawn, _}) ->
    raise(Rows, Drawn);
record(Rows, Max, {User, Drawn, What}) ->
    {State, Order} = state(Rows),
    Place = atomics:add_get(State, ?PLACE, 1),
    Number = append(Rows, User, last(Rows, User) + 1, {Place, Drawn, What}),
    %% After the row: what is in this order has its row, unless that was dropped.
    true = ets:insert(Order, {Place, User, Number}),
    case is_beyond(share(Max), first(Rows, User), Number) andalso drop_own(Rows, Order, User) of
        true ->
            ok;
        false ->
            ok = atomics:add(State, ?SIZE, 1),
            drop_oldest(Rows, Max)
    end.

%% Of rows with these numbers one goes. Another process may have dropped them all by now.
is_beyond(_, none, _) -> false;
is_beyond(Share, First, Number) -> Number - First >= Share.

share(Max) -> max(1, Max * halley_limits:get(user_share_percent_max) div 100).

last(Rows, User) ->
    case ets:prev(Rows, ?END_KEY(User)) of
        {User, Number} -> Number;
        _ -> 0
    end.

first(Rows, User) ->
    case ets:next(Rows, ?FLOOR_KEY(User)) of
        {User, Number} -> Number;
        _ -> none
    end.

append(Rows, User, Number, {Place, Drawn, What} = Row) ->
    case ets:insert_new(Rows, {{User, Number}, Place, Drawn, What}) of
        true -> Number;
        false -> append(Rows, User, Number + 1, Row)
    end.

%% --- dropping ------------------------------------------------------------------------------------

drop_own(Rows, Order, User) ->
    case first(Rows, User) of
        none ->
            false;
        Number ->
            case ets:take(Rows, {User, Number}) of
                [{_, Place, Drawn, _}] ->
                    true = ets:delete(Order, Place),
                    raise_own(Rows, User, Drawn),
                    true;
                [] ->
                    drop_own(Rows, Order, User)
            end
    end.

drop_oldest(Rows, Max) ->
    {State, Order} = state(Rows),
    case atomics:get(State, ?SIZE) > Max andalso ets:first(Order) of
        false -> ok;
        '$end_of_table' -> ok;
        Place ->
            [ok = dropped(Rows, User, ets:take(Rows, {User, Number}))
             || {_, User, Number} <- ets:take(Order, Place)],
            drop_oldest(Rows, Max)
    end.

dropped(_, _, []) ->
    ok;
dropped(Rows, User, [{_, _, Drawn, _}]) ->
    {State, _} = state(Rows),
    ok = atomics:sub(State, ?SIZE, 1),
    ok = raise(Rows, Drawn),
    _ = [ok = lower_own(Rows, User, Own) || {_, Own} <- ets:lookup(Rows, ?FLOOR_KEY(User))],
    ok.

%% The common floor has passed the user's own, or has to, as the user has no rows any more.
lower_own(Rows, User, Own) ->
    _ = first(Rows, User) =:= none andalso raise(Rows, Own),
    case Own =< floor(Rows) of
        true ->
            true = ets:delete_object(Rows, {?FLOOR_KEY(User), Own}),
            ok;
        false ->
            ok
    end.

raise_own(Rows, User, Drawn) ->
    Key = ?FLOOR_KEY(User),
    case ets:insert_new(Rows, {Key, Drawn}) of
        true ->
            ok;
        false ->
            Higher = [{{Key, '$1'}, [{'<', '$1', Drawn}], [{{{const, Key}, Drawn}}]}],
            case {ets:select_replace(Rows, Higher), ets:lookup(Rows, Key)} of
                {0, []} -> raise_own(Rows, User, Drawn);
                _ -> ok
            end
    end.

%% Rows up to this seq may be missing, of any user.
-spec raise(rows(), seq()) -> ok.
raise(Rows, Seq) ->
    {State, _} = state(Rows),
    halley_floor:raise(State, ?FLOOR, Seq).

%% --- reading -------------------------------------------------------------------------------------

%% Above it no row of a user without one of its own is missing.
-spec floor(rows()) -> seq().
floor(Rows) ->
    {State, _} = state(Rows),
    atomics:get(State, ?FLOOR).

%% The user's, to be read after its rows.
-spec floor(rows(), user()) -> seq().
floor(Rows, User) ->
    %% In this order: a floor of its own goes once the common one has passed it.
    Own = [Seq || {_, Seq} <- ets:lookup(Rows, ?FLOOR_KEY(User))],
    lists:max([floor(Rows) | Own]).

%% Of the last row by now.
-spec place(rows()) -> non_neg_integer().
place(Rows) ->
    {State, _} = state(Rows),
    atomics:get(State, ?PLACE).

%% The latest first.
-spec of_user(rows(), user()) -> [{place(), Drawn :: seq(), What :: term()}].
of_user(Rows, User) ->
    Found = ets:select(Rows, [{{{User, '_'}, '$1', '$2', '$3'}, [], [{{'$1', '$2', '$3'}}]}]),
    lists:reverse(lists:sort(Found)).

%% Those with rows.
-spec users(rows()) -> [user()].
users(Rows) ->
    lists:usort(ets:select(Rows, [{{{'$1', '_'}, '_', '_', '_'}, [], ['$1']}])).

%% The rows of all whose `What' matches a pattern of ETS, the latest first.
-spec matching(rows(), ets:match_pattern()) -> [{place(), user(), Drawn :: seq(), What :: term()}].
matching(Rows, Pattern) ->
    Found = ets:match_object(Rows, {'_', '_', '_', Pattern}),
    lists:reverse(lists:sort([{Place, User, Drawn, What}
                              || {{User, _}, Place, Drawn, What} <- Found])).

%% Takes out all of these users; gives the seqs up to which rows of theirs are missing now.
-spec forget(rows(), [user()]) -> [Drawn :: seq()].
forget(Rows, Users) ->
    lists:append([forget_one(Rows, User) || User <- Users]).

forget_one(Rows, User) ->
    case ets:next(Rows, {User, -1}) of
        ?FLOOR_KEY(User) = Key ->
            [Own || {_, Own} <- ets:take(Rows, Key)] ++ forget_rows(Rows, User);
        {User, _} ->
            forget_rows(Rows, User);
        _ ->
            []
    end.

forget_rows(Rows, User) ->
    {State, Order} = state(Rows),
    Keys = ets:select(Rows, [{{{User, '$1'}, '_', '_', '_'}, [], [{{User, '$1'}}]}]),
    [begin
         true = ets:delete(Order, Place),
         ok = atomics:sub(State, ?SIZE, 1),
         Drawn
     end || Key <- Keys, {_, Place, Drawn, _} <- ets:take(Rows, Key)].
