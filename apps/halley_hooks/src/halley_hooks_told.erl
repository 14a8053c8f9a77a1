%% Which users have sessions, and which subjects have subscribers, as the endpoint knows it; and
%% since when those that it knows of have none.
%%
%% A table and an order by when to look again, both of the taker's process. Nothing here is durable:
%% the queue says the same (`halley_hooks_queue'), and a start makes this of it.
%%
%% One that has nothing any more is *leaving* for `closed_after_ms'. If it is back by then, nothing
%% was ever the matter. A session whose past is still being sent is one, though not in the directory
%% yet (`halley_directory_leaving'). While no worker is linked no session can be there, which shows
%% nothing about users: they leave only from when one is.
-module(halley_hooks_told).

-export([new/2, keys/1, count/1, changes/3, due/3, apply_changes/2, began/2]).
-export_type([told/0, effect/0]).

-type key() :: halley_hooks_entry:key().
-record(told, {rows :: ets:table(),       % {key(), stays | DueMs}
               due :: ets:table(),        % {{DueMs, key()}}
               after_ms :: pos_integer()}).
-opaque told() :: #told{}.
%% What becomes of the table once it is on disk.
-type effect() :: {stays | leaves | gone, key()}.

-spec new([key()], AfterMs :: pos_integer()) -> told().
new(Keys, AfterMs) ->
    Rows = ets:new(halley_hooks_told, [set]),
    true = ets:insert(Rows, [{Key, stays} || Key <- Keys]),
    #told{rows = Rows, due = ets:new(halley_hooks_due, [ordered_set]), after_ms = AfterMs}.

-spec keys(told()) -> [key()].
keys(#told{rows = Rows}) -> ets:select(Rows, [{{'$1', '_'}, [], ['$1']}]).

-spec count(told()) -> non_neg_integer().
count(#told{rows = Rows}) -> ets:info(Rows, size).

%% Of changes that came: what is to be told, and what it does to the table.
-spec changes([{key(), halley_hooked:change()}], AtMs :: integer(), told()) ->
    {[halley_hooks_entry:entry()], [effect()]}.
changes(Changes, AtMs, Told) ->
    {Entries, Effects} = lists:unzip([change(Change, AtMs, Told) || Change <- Changes]),
    {lists:append(Entries), lists:append(Effects)}.

%% Who came and isn't there left behind that.
change({{_, Id} = Key, Change}, AtMs, #told{rows = Rows}) ->
    IsThere = is_there(Key),
    Now = case IsThere of true -> stays; false -> leaves end,
    case ets:member(Rows, Key) of
        true -> {[], [{stays, Key} || Change =:= came] ++ [{leaves, Key} || not IsThere]};
        false when Change =:= came; IsThere -> {[{first(Key), AtMs, Id}], [{Now, Key}]};
        false -> {[], []}
    end.

first({user, _}) -> opened;
first({subject, _}) -> occupied.

last({user, _}) -> closed;
last({subject, _}) -> vacated.

is_there({user, User}) -> halley_sessions:of_user(User) =/= [];
is_there({subject, Subject}) -> halley_subscriptions_table:has_any(Subject).

%% Those that have had nothing for long enough: what is to be told, and the effects. Some that are
%% back, as a change tells soon, stay. Those of `Changed' have changes of their own.
-spec due(Max :: pos_integer(), Changed :: [key()], told()) ->
    {[halley_hooks_entry:entry()], [effect()]}.
due(Max, Changed, #told{due = Due} = Told) ->
    Keys = due_keys(ets:first(Due), now_ms(), Max, Told) -- Changed,
    Now = [{state(Key), Key} || Key <- Keys],
    AtMs = halley_clock:wall_ms(),
    {[{last(Key), AtMs, Id} || {gone, {_, Id} = Key} <- Now], Now}.

%% It may come in between two looks: who is in the directory was on its way before. One that comes
%% may end before it is there: it is looked at again.
state({user, User} = Key) ->
    IsComing = is_on_its_way(User),
    case is_there(Key) of
        true -> stays;
        false when IsComing -> leaves;
        false -> gone
    end;
state(Key) ->
    case is_there(Key) of true -> stays; false -> gone end.

due_keys({DueMs, Key}, NowMs, Left, #told{due = Due} = Told) when DueMs =< NowMs, Left > 0 ->
    [Key | due_keys(ets:next(Due, {DueMs, Key}), NowMs, Left - 1, Told)];
due_keys(_, _, _, _) ->
    [].

-spec apply_changes([effect()], told()) -> ok.
apply_changes(Effects, Told) ->
    lists:foreach(fun(Effect) -> effect(Effect, Told) end, Effects).

effect({gone, Key}, #told{rows = Rows} = Told) ->
    ok = not_due(Key, Told),
    true = ets:delete(Rows, Key),
    ok;
effect({stays, Key}, #told{rows = Rows} = Told) ->
    ok = not_due(Key, Told),
    true = ets:insert(Rows, {Key, stays}),
    ok;
effect({leaves, Key}, #told{rows = Rows, due = Due, after_ms = AfterMs} = Told) ->
    ok = not_due(Key, Told),
    DueMs = now_ms() + AfterMs,
    true = ets:insert(Due, {{DueMs, Key}}),
    true = ets:insert(Rows, {Key, DueMs}),
    ok.

not_due(Key, #told{rows = Rows, due = Due}) ->
    _ = [ets:delete(Due, {DueMs, Key}) || {_, DueMs} <- ets:lookup(Rows, Key), DueMs =/= stays],
    ok.

%% Workers are linked, as they weren't before, or all may have changed: who isn't there leaves from
%% now on, for `closed_after_ms'.
-spec began([key()], told()) -> ok.
began(Keys, Told) ->
    lists:foreach(fun(Key) ->
        effect({case is_there(Key) of true -> stays; false -> leaves end, Key}, Told)
    end, Keys).

%% Whether a user has a session that isn't in the directory yet.
is_on_its_way(User) ->
    case halley_ids:lookup(User) of
        undefined -> false;
        Number -> halley_directory_leaving:is_held(Number)
    end.

now_ms() -> erlang:monotonic_time(millisecond).
