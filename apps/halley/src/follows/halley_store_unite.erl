%% Makes tables that damage left apart agree again, for `halley_store_repair': each pair in both
%% directions, each number in them with one id, each id with one number.
%%
%% A number may have belonged to another id before. So everything that refers to a number is dropped
%% when it gets another id: no id ever has another one's follows.
%%
%% It works on the tables that `halley_store_recovery' fills, in an emulator without a brain.
-module(halley_store_unite).

-export([directions/0, drop_unnamed/0, drop_doubles/1, forget_numbers/1]).
-export([unreferred/0, named_in/1]).
-export([take_unknown/1, put_taken/1]).
-export_type([taken/0, dropped/0]).

-define(CHUNK, 500000).
-define(SHOWN_MAX, 20).

-type number_() :: halley_id:user_number().
%% What an older checkpoint and its journal say about keys that a newer one can't tell, with the
%% ids of all that is in it.
-type taken() :: #{pairs := [halley_pages:packed()], names := #{number_() => halley_id:id()},
                   pages := [{halley_ids_pages:page_number(), [{number_(), halley_id:id()}]}]}.
-type dropped() :: #{count := non_neg_integer(), users := {non_neg_integer(), [halley_id:id()]},
                     subjects := {non_neg_integer(), [halley_id:id()]}}.

%% Adds to each direction what only the other one has.
-spec directions() -> ok.
directions() ->
    ok = add_swapped(halley_following, halley_followers),
    add_swapped(halley_followers, halley_following).

add_swapped(From, To) ->
    Add = fun(Keys, ok) ->
        Swapped = halley_pages:pack(lists:usort([halley_pages:swap(Key) || Key <- Keys])),
        _ = halley_pages_table:change(add, To, Swapped),
        ok
    end,
    fold_chunks(Add, ok, From).

%% Gives all keys of a direction, so many at a time.
fold_chunks(Fun, Acc, Table) -> fold_chunks(Fun, Acc, Table, ets:first(Table), [], 0).

fold_chunks(Fun, Acc, _, '$end_of_table', Pages, _) ->
    Fun(keys(Pages), Acc);
fold_chunks(Fun, Acc, Table, Fence, Pages, N) when N >= ?CHUNK ->
    fold_chunks(Fun, Fun(keys(Pages), Acc), Table, Fence, [], 0);
fold_chunks(Fun, Acc, Table, Fence, Pages, N) ->
    Page = ets:lookup_element(Table, Fence, 2),
    fold_chunks(Fun, Acc, Table, ets:next(Table, Fence), [Page | Pages],
                N + halley_pages:size(Page)).

keys(Pages) -> [Key || Page <- lists:reverse(Pages), <<Key:64>> <= halley_pages:pairs(Page)].

%% --- numbers and ids -----------------------------------------------------------------------------

%% Drops the pairs with a number that is nobody's; the directions must agree. Ids on the side that
%% is known, as many as are shown.
-spec drop_unnamed() -> dropped().
drop_unnamed() ->
    {Count, Users, Subjects} = fold_chunks(fun unnamed/2, {0, #{}, #{}}, halley_following),
    #{count => Count, users => shown(maps:keys(Users)), subjects => shown(maps:keys(Subjects))}.

unnamed(Keys, Acc) ->
    Nobodys = [Key || Key <- Keys, not (is_named(Key bsr 32)
                                        andalso is_named(Key band 16#ffffffff))],
    ok = halley_follows_changes:apply_keys(remove, Nobodys),
    lists:foldl(fun(Key, {Count, Users, Subjects}) ->
        {Count + 1, noted(Key bsr 32, Users), noted(Key band 16#ffffffff, Subjects)}
    end, Acc, Nobodys).

is_named(Number) -> halley_ids_pages:is_durable(Number).

noted(Number, Numbers) ->
    case is_named(Number) of
        true -> Numbers#{Number => []};
        false -> Numbers
    end.

shown(Numbers) ->
    {length(Numbers), [binary:copy(halley_ids_pages:id(N))
                       || N <- lists:sublist(lists:sort(Numbers), ?SHOWN_MAX)]}.

%% Makes these numbers nobody's, and drops what refers to them. Gives how many pairs these were.
-spec forget_numbers([number_()]) -> non_neg_integer().
forget_numbers(Numbers) ->
    Keys = lists:append([keys_with(Number) || Number <- Numbers]),
    ok = halley_follows_changes:apply_keys(remove, Keys),
    ok = halley_ids_pages:clear(lists:usort(Numbers)),
    ok = halley_ids_pages:set_durable(Numbers, false),
    length(lists:usort(Keys)).

%% Numbers that have an id and are in no pair.
-spec unreferred() -> [number_()].
unreferred() ->
    halley_ids_pages:fold(fun(Ids, _, Acc) ->
        [Number || {_, Number} <- Ids, keys_with(Number) =:= []] ++ Acc
    end, []).

keys_with(Number) ->
    [halley_pages:key(Number, S) || S <- members(halley_following, Number)]
        ++ [halley_pages:key(U, Number) || U <- members(halley_followers, Number)].

members(Table, Number) ->
    halley_pages_table:fold(fun(Member, Members) -> [Member | Members] end, [], Table, Number).

%% An id that has two numbers had the older one before: that number was given back in a group that
%% is lost. `Named' says which numbers the journal named, and when. Gives how many pairs that drops.
-spec drop_doubles(Named :: #{number_() => Order :: pos_integer()}) -> non_neg_integer().
drop_doubles(Named) ->
    Seen = ets:new(seen, [set, private]),
    Older = halley_ids_pages:fold(fun(Ids, _, Acc) ->
        lists:foldl(fun({Id, Number}, A) -> double(ets:lookup(Seen, Id), Id, Number, Seen, Named, A)
                    end, Acc, Ids)
    end, []),
    true = ets:delete(Seen),
    forget_numbers(Older).

double([], Id, Number, Seen, _, Older) ->
    true = ets:insert(Seen, {Id, Number}),
    Older;
double([{_, Other}], Id, Number, Seen, Named, Older) ->
    Order = fun(N) -> {maps:get(N, Named, 0), N} end,
    [Old, New] = lists:sort(fun(A, B) -> Order(A) =< Order(B) end, [Number, Other]),
    true = ets:insert(Seen, {Id, New}),
    [Old | Older].

%% Whose keys are in these ranges: how many ids, and some of them.
-spec named_in([halley_store_salvage:range()]) -> {non_neg_integer(), [halley_id:id()]}.
named_in(Ranges) ->
    halley_ids_pages:fold(fun(Ids, _, Acc) ->
        lists:foldl(fun({Id, Number}, {Count, Shown}) ->
            case is_touched(Number, Ranges) of
                true when Count < ?SHOWN_MAX -> {Count + 1, Shown ++ [binary:copy(Id)]};
                true -> {Count + 1, Shown};
                false -> {Count, Shown}
            end
        end, Acc, Ids)
    end, {0, []}).

is_touched(Number, Ranges) ->
    lists:any(fun({From, To}) -> From bsr 32 =< Number andalso halley_pages:key(Number, 0) < To end,
              Ranges).

%% --- from one checkpoint to the next -------------------------------------------------------------

%% Takes from the tables what may be of use where the next checkpoint is unknown: pairs that neither
%% of its directions tells, and pages of ids.
-spec take_unknown(#{halley_store_salvage:kind() => [halley_store_salvage:range()]}) -> taken().
take_unknown(#{ids := Ids, halley_following := Following, halley_followers := Followers}) ->
    {Pairs, Numbers} = fold_chunks(fun(Keys, {Pairs, Numbers}) ->
        Kept = [Key || Key <- Keys, is_in(Key, Following),
                       is_in(halley_pages:swap(Key), Followers)],
        {[halley_pages:pack(Kept) | Pairs],
         lists:foldl(fun(Key, N) -> N#{Key bsr 32 => [], Key band 16#ffffffff => []} end,
                     Numbers, Kept)}
    end, {[], #{}}, halley_following),
    Pages = halley_ids_pages:fold(fun([{_, Number} | _] = Names, _, Acc) ->
                                          P = Number div 64,
                                          case is_in(P, Ids) of
                                              true -> [{P, [{N, Id} || {Id, N} <- Names]} | Acc];
                                              false -> Acc
                                          end;
                                     ([], _, Acc) -> Acc
                                  end, []),
    #{pairs => Pairs, pages => Pages,
      names => maps:map(fun(Number, _) -> halley_ids_pages:id(Number) end, Numbers)}.

is_in(Key, Ranges) -> lists:any(fun({From, To}) -> Key >= From andalso Key < To end, Ranges).

%% Adds it to the tables of the next checkpoint; ids first, since a number that is somebody else's
%% there has no use for its pairs.
-spec put_taken(taken()) -> ok.
put_taken(#{pairs := Pairs, names := Names, pages := Pages}) ->
    lists:foreach(fun({_, PageNames}) ->
        ok = halley_ids_pages:set(PageNames),
        ok = halley_ids_pages:set_durable([N || {N, _} <- PageNames], true)
    end, Pages),
    IsSame = fun(Number) -> halley_ids_pages:id(Number) =:= maps:get(Number, Names) end,
    lists:foreach(fun(Packed) ->
        Keys = [Key || <<Key:64>> <= Packed, IsSame(Key bsr 32), IsSame(Key band 16#ffffffff)],
        halley_follows_changes:apply_keys(add, Keys)
    end, Pairs).
