%% The durable subscriptions: which user follows which subject.
%%
%% A write resolves ids to numbers and sorts in the caller's process, then waits for the one
%% owner (`halley_follows_owner`), which commits what waits in groups. A reply means that the
%% change is on disk and that every reader sees it. Calls by different processes take effect one
%% after the other, in the order in which they reach the owner; the counts in the replies are
%% exact.
%%
%% A read goes straight to ETS: two tables of packed pairs, one per direction (see
%% `halley_pages_table`). It takes no lock and no snapshot: it sees every follow that stood from
%% its beginning to its end, and of those that come or go meanwhile some. Reads by numbers are in
%% `halley_follows_graph'.
%%
%% With `store.backend = postgres' a requested change goes to PostgreSQL first
%% (`halley_follows_backend'), and comes back by `stored/2'.
%%
%% Every user follows itself, always. That follow is not stored, not counted and not listed here:
%% following oneself is answered `already`, unfollowing oneself is the error `self`.
-module(halley_follows).

-export([follow/1, follow_own/2, unfollow/1, stored/2, recorded/2, admitted/2]).
-export([followers/3, following/3, count_followers/1, count_following/1, count/0, changes/0]).

-export_type([error/0, failure/0, principal/0, asked/0, changed/0]).

-type id() :: halley_id:id().
%% `too_many_follows': the user follows `follows_per_user_max' subjects. `too_many_ids': there is no
%% room for new ids that follows name. `too_many_new_ids': the user has named as many as it may, and
%% may name the next one after so long.
-type error() :: {bad_id, user | subject, halley_id:reason()} | too_many_ids | self
               | too_many_follows | {too_many_new_ids, WaitMs :: non_neg_integer()}
               | halley_follows_backend:error().
%% `overloaded`: more waits at the owner than follows_queue_max pairs; nothing was changed by the
%% slice of the call that met it. `disk_full', `data_dir_moved': the same.
%% `store_failed': the slice may stand or not.
-type failure() :: overloaded | disk_full | data_dir_moved | {store_failed, term()}
                 | halley_follows_backend:failure().
-type followed() ::
    {ok, #{added := non_neg_integer(), already := non_neg_integer(),
           errors := [{non_neg_integer(), error()}]}}
    | {error, failure()}.
-type unfollowed() ::
    {ok, #{removed := non_neg_integer(), absent := non_neg_integer(),
           errors := [{non_neg_integer(), error()}]}}
    | {error, failure()}.
-type principal() :: anybody | {user, id()}.
-type asked() :: {add, principal()} | remove.
%% How many pairs changed, how many were so already, and errors by the pair's place.
-type changed() :: {ok, Changed :: non_neg_integer(), Same :: non_neg_integer(),
                    Errors :: [{non_neg_integer(), error()}]}
                 | {error, failure()}.
-type direction() :: halley_followers | halley_following.

%% A long list is committed in slices of this many pairs.
-define(SLICE_PAIRS, 100000).

%% Makes each user follow its subject. Errors carry the pair's place in the list, from 0; the
%% other pairs take effect. A list of more than 100,000 pairs is committed slice by slice: if a
%% slice fails, those before it stand.
-spec follow([{binary(), binary()}]) -> followed().
follow(Pairs) -> follow(anybody, Pairs).

%% The same for pairs of one user that asks for itself: of ids that don't exist yet it may name
%% `new_ids_per_user_max' in `new_ids_per_user_ms'.
-spec follow_own(User :: id(), [{binary(), binary()}]) -> followed().
follow_own(User, Pairs) -> follow({user, User}, Pairs).

follow(Asker, Pairs) -> followed(asked({add, Asker}, Pairs)).

followed({ok, Added, Already, Errors}) ->
    {ok, #{added => Added, already => Already, errors => Errors}};
followed({error, _} = Error) -> Error.

%% The opposite; `absent` counts what wasn't followed.
-spec unfollow([{binary(), binary()}]) -> unfollowed().
unfollow(Pairs) -> unfollowed(asked(remove, Pairs)).

unfollowed({ok, Removed, Absent, Errors}) ->
    {ok, #{removed => Removed, absent => Absent, errors => Errors}};
unfollowed({error, _} = Error) -> Error.

asked(Operation, Pairs) ->
    case halley_follows_backend:get() of
        store -> change(Operation, Pairs, to_record);
        Backend -> Backend(Operation, Pairs)
    end.

%% What a backend has decided: this store does it.
-spec stored(add | remove, [{binary(), binary()}]) -> followed() | unfollowed().
stored(add, Pairs) -> followed(change({add, anybody}, Pairs, to_record));
stored(remove, Pairs) -> unfollowed(change(remove, Pairs, to_record)).

%% The same for changes that the history has already, or needs no record of. They were admitted
%% where they were requested, so `follows_per_user_max' refuses none. For `halley_follows_applied'.
-spec recorded(add | remove, [{binary(), binary()}]) -> changed().
recorded(add, Pairs) -> change({add, admitted}, Pairs, recorded);
recorded(remove, Pairs) -> change(remove, Pairs, recorded).

%% What a backend asks before it changes follows: the pairs that the store would take, each with its
%% place, and the errors of the others. A follow of an id by itself is in neither. New ids of
%% follows have numbers from now on, and lose them again if no follow comes. 100,000 pairs at most.
-spec admitted({add, principal()} | remove, [{binary(), binary()}]) ->
    {ok, [{non_neg_integer(), {id(), id()}}], Errors :: [{non_neg_integer(), error()}]}
    | {error, failure()}.
admitted({add, Asker}, Pairs) ->
    case halley_follows_request:refusing() of
        false ->
            {Known, Unknown, Self, End, []} = resolve(Pairs, 0),
            {Keys, Errors} = settle({add, Asker}, Unknown, Self, Known),
            Refused = halley_follows_bound:refused(halley_pages:pack(lists:usort(Keys)),
                                                   halley_limits:get(follows_per_user_max)),
            All = lists:merge(Errors, too_many(Refused, Pairs, 0, End, maps:from_list(Errors))),
            IsBad = maps:from_list(All),
            {ok, [{I, Pair} || {I, {User, Subject} = Pair} <- lists:enumerate(0, Pairs),
                               User =/= Subject, not is_map_key(I, IsBad)], All};
        {error, _} = Error -> Error
    end;
admitted(remove, Pairs) ->
    case halley_follows_request:refusing() of
        false ->
            Judged = [{I, Pair, judged(Pair)} || {I, Pair} <- lists:enumerate(0, Pairs)],
            {ok, [{I, Pair} || {I, Pair, ok} <- Judged],
             [{I, Reason} || {I, _, Reason} <- Judged, Reason =/= ok]};
        {error, _} = Error -> Error
    end.

judged({User, Subject}) ->
    case {halley_id:check(User), halley_id:check(Subject)} of
        {ok, ok} when User =:= Subject -> self;
        {ok, ok} -> ok;
        {{error, Reason}, _} -> {bad_id, user, Reason};
        {ok, {error, Reason}} -> {bad_id, subject, Reason}
    end.

%% A store that refuses is asked before ids get numbers.
change(Operation, Pairs, History) ->
    case halley_follows_request:refusing() of
        false -> change(Operation, Pairs, History, 0, 0, 0, []);
        {error, _} = Error -> Error
    end.

change(_, [], _, _, Changed, Same, Errors) ->
    {ok, Changed, Same, lists:append(lists:reverse(Errors))};
change(Operation, Pairs, History, Index, Changed, Same, Errors) ->
    Epoch = halley_follows_owner:epoch(),
    {Known, Unknown, Self, SliceEnd, Rest} = resolve(Pairs, Index),
    {Keys, SliceErrors} = settle(Operation, Unknown, Self, Known),
    case halley_follows_request:change(kind(Operation), Keys, Epoch, History) of
        {ok, N, Refused} ->
            AllErrors = lists:merge(SliceErrors, too_many(Refused, Pairs, Index, SliceEnd,
                                                          maps:from_list(SliceErrors))),
            Unchanged = SliceEnd - Index - N - length(AllErrors),
            change(Operation, Rest, History, SliceEnd, Changed + N, Same + Unchanged,
                   [AllErrors | Errors]);
        {error, stale} ->
            change(Operation, Pairs, History, Index, Changed, Same, Errors);
        {error, _} = Error -> Error
    end.

kind({add, _}) -> add;
kind(remove) -> remove.

%% The places of pairs that were refused, looked up once more: it is rare. A pair that has its error
%% already, because an id had no number then, may have one now: it counts once.
too_many([], _, _, _, _) ->
    [];
too_many(Refused, Pairs, Index, End, Errors) ->
    IsRefused = maps:from_keys(Refused, true),
    Numbered = lists:enumerate(Index, lists:sublist(Pairs, End - Index)),
    counted(too_many_follows,
            [{I, too_many_follows}
             || {I, {User, Subject}} <- Numbered, not is_map_key(I, Errors),
                is_map_key(known_key(User, Subject), IsRefused)]).

counted(_, []) ->
    [];
counted(Metric, Refused) ->
    ok = halley_metrics:incr(Metric, length(Refused)),
    Refused.

known_key(User, Subject) ->
    case {halley_ids:lookup(User), halley_ids:lookup(Subject)} of
        {U, S} when is_integer(U), is_integer(S) -> halley_pages:key(U, S);
        _ -> none
    end.

%% Keys {user, subject} of the pairs whose ids have numbers, the pairs that need more thought, and
%% the pairs of an id with itself.
resolve(Pairs, Index) ->
    resolve(Pairs, Index, Index + ?SLICE_PAIRS, <<>>, undefined, [], [], []).

resolve([{User, User} | Pairs], Index, End, Last, LastNumber, Known, Unknown, Self)
  when Index < End ->
    resolve(Pairs, Index + 1, End, Last, LastNumber, Known, Unknown, [{Index, User} | Self]);
resolve([{User, Subject} | Pairs], Index, End, Last, LastNumber, Known, Unknown, Self)
  when Index < End ->
    %% Imports come sorted by user more often than not.
    U = case User of
            Last -> LastNumber;
            _ -> halley_ids:lookup(User)
        end,
    case halley_ids:lookup(Subject) of
        S when is_integer(U), is_integer(S) ->
            resolve(Pairs, Index + 1, End, User, U, [halley_pages:key(U, S) | Known],
                    Unknown, Self);
        S ->
            resolve(Pairs, Index + 1, End, User, U, Known,
                    [{Index, {User, U}, {Subject, S}} | Unknown], Self)
    end;
resolve(Rest, Index, _, _, _, Known, Unknown, Self) ->
    {Known, lists:reverse(Unknown), lists:reverse(Self), Index, Rest}.

%% Gives the keys to change and the errors by index; whatever is neither changes nothing.
settle(Operation, Unknown, Self, Known) ->
    {Valid, Errors} = check(Unknown, [], []),
    {Keys, IdErrors} = settle_unknown(Operation, Valid, Known),
    {Keys, lists:keysort(1, settle_self(Operation, Self) ++ IdErrors ++ Errors)}.

check([{Index, User, Subject} = Pair | Pairs], Valid, Errors) ->
    case {check_id(User), check_id(Subject)} of
        {ok, ok} -> check(Pairs, [Pair | Valid], Errors);
        {{error, Reason}, _} -> check(Pairs, Valid, [{Index, {bad_id, user, Reason}} | Errors]);
        {ok, {error, Reason}} -> check(Pairs, Valid, [{Index, {bad_id, subject, Reason}} | Errors])
    end;
check([], Valid, Errors) ->
    {lists:reverse(Valid), Errors}.

check_id({Id, undefined}) -> halley_id:check(Id);
check_id({_, _}) -> ok.

settle_self(Operation, Self) ->
    lists:append([case halley_id:check(Id) of
                      ok when Operation =/= remove -> [];
                      ok -> [{Index, self}];
                      {error, Reason} -> [{Index, {bad_id, user, Reason}}]
                  end || {Index, Id} <- Self]).

settle_unknown(_, [], Keys) -> {Keys, []};
settle_unknown(remove, _, Keys) -> {Keys, []};
settle_unknown({add, Asker}, Valid, Keys) ->
    {Fitting, TooMany} = fitting(Asker, Valid, Keys),
    Errors = counted(too_many_follows, [{Index, too_many_follows} || {Index, _, _} <- TooMany]),
    NewIds = new_ids(Fitting, none),
    case halley_ids:intern(NewIds, purpose(Asker)) of
        {ok, Numbers} ->
            %% Not looked up again: nothing refers to them yet, so they may be leaving by now. The
            %% owner keeps them.
            New = maps:from_list(lists:zip(NewIds, Numbers)),
            {Refused, Numbered} = lists:partition(fun({_, User, Subject}) ->
                User =:= refused orelse Subject =:= refused
            end, [{Index, number(User, New), number(Subject, New)}
                  || {Index, User, Subject} <- Fitting]),
            {[halley_pages:key(User, Subject) || {_, User, Subject} <- Numbered] ++ Keys,
             too_many_new(Refused, Asker) ++ Errors};
        {error, too_many_ids} ->
            {Keys, counted(too_many_ids, [{Index, too_many_ids} || {Index, _, _} <- Fitting])
                   ++ Errors}
    end.

fitting(admitted, Valid, _) -> {Valid, []};
fitting(_, Valid, Keys) ->
    halley_follows_bound:fitting(Valid, Keys, halley_limits:get(follows_per_user_max)).

purpose({user, User}) -> {follow, fun(New) -> halley_user_rate:take_ids(User, New) end};
purpose(_) -> follow.

too_many_new([], _) ->
    [];
too_many_new(Refused, {user, User}) ->
    Reason = {too_many_new_ids, halley_user_rate:ids_wait_ms(User)},
    counted(too_many_new_ids, [{Index, Reason} || {Index, _, _} <- Refused]).

%% In the order of appearance; a user that follows many at once is named once.
new_ids([{_, {User, undefined}, Subject} | Pairs], Last) when User =/= Last ->
    [User | new_ids([{0, {User, known}, Subject} | Pairs], User)];
new_ids([{_, _, {Subject, undefined}} | Pairs], Last) -> [Subject | new_ids(Pairs, Last)];
new_ids([_ | Pairs], Last) -> new_ids(Pairs, Last);
new_ids([], _) -> [].

number({Id, undefined}, New) -> map_get(Id, New);
number({_, Number}, _) -> Number.

%% A page of a subject's followers, and after which to go on. The order is that of user numbers,
%% which is that of the first appearance, and never changes.
-spec followers(id(), After :: id() | start, Limit :: pos_integer()) ->
    {[id()], Next :: id() | done} | {error, {unknown_id, id()}}.
followers(Subject, After, Limit) -> list(halley_followers, Subject, After, Limit).

%% A page of what a user follows, as followers/3.
-spec following(id(), After :: id() | start, Limit :: pos_integer()) ->
    {[id()], Next :: id() | done} | {error, {unknown_id, id()}}.
following(User, After, Limit) -> list(halley_following, User, After, Limit).

-spec list(direction(), id(), id() | start, pos_integer()) ->
    {[id()], id() | done} | {error, {unknown_id, id()}}.
list(Table, Id, After, Limit) when Limit > 0 ->
    case {halley_ids:lookup(Id), After =/= start andalso halley_ids:lookup(After)} of
        {_, undefined} -> {error, {unknown_id, After}};
        {undefined, _} -> {[], done};
        {Number, false} -> page(halley_pages_table:take(Table, Number, 0, Limit + 1), Limit);
        {Number, From} -> page(halley_pages_table:take(Table, Number, From, Limit + 1), Limit)
    end.

page(Numbers, Limit) when length(Numbers) > Limit ->
    Ids = lists:map(fun halley_ids:name/1, lists:sublist(Numbers, Limit)),
    {Ids, lists:last(Ids)};
page(Numbers, _) ->
    {lists:map(fun halley_ids:name/1, Numbers), done}.

-spec count_followers(id()) -> non_neg_integer().
count_followers(Subject) -> count(halley_followers, Subject).

-spec count_following(id()) -> non_neg_integer().
count_following(User) -> count(halley_following, User).

count(Table, Id) ->
    case halley_ids:lookup(Id) of
        undefined -> 0;
        Number -> halley_pages_table:count(Table, Number)
    end.

%% All follows there are.
-spec count() -> non_neg_integer().
count() -> halley_follows_owner:count().

%% A number that grows whenever follows change, though their count may not.
-spec changes() -> non_neg_integer().
changes() -> halley_follows_owner:changes().
