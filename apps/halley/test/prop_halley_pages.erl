%% Pages and tables of pages against ordsets of keys.
-module(prop_halley_pages).

-include("support/halley_store_proper.hrl").

-export([prop_change/0, prop_split/0, prop_table/0, prop_reader_during_split/0,
         prop_checkpoint_beside_changes/0]).

-define(TABLE, prop_halley_pages_table).

%% Few different A and B, so that pairs meet; now and then a celebrity.
pair_key() ->
    ?LET({A, B}, {frequency([{8, range(1, 60)}, {2, 7}]), range(1, 3000)},
         halley_pages:key(A, B)).

keys() -> frequency([{3, keys(20)}, {2, keys(400)}, {1, keys(2500)}]).

keys(N) -> ?LET(Keys, resize(N, list(pair_key())), lists:usort(Keys)).

changes() -> resize(12, list({oneof([add, add, remove]), keys()})).

keys_of(Pairs) -> [Key || <<Key:64>> <= Pairs].

model(add, Keys, Set) -> ordsets:union(Set, Keys);
model(remove, Keys, Set) -> ordsets:subtract(Set, Keys).

prop_change() ->
    ?FORALL({Old, {Operation, Keys}}, {keys(600), {oneof([add, remove]), keys()}},
            begin
                {Page, _, <<>>} = halley_pages:change(add, <<>>, halley_pages:pack(Old), infinity),
                {New, N, Rest} = halley_pages:change(Operation, Page, halley_pages:pack(Keys),
                                                     infinity),
                Expected = model(Operation, Keys, Old),
                Rest =:= <<>>
                    andalso keys_of(halley_pages:pairs(New)) =:= Expected
                    andalso N =:= abs(length(Expected) - length(Old))
                    andalso halley_pages:size(New) =:= length(Expected)
                    andalso sound(New)
            end).

%% No empty group, no A twice.
sound(Page) -> sound(Page, -1).

sound(<<A:32, N:16, _:N/binary-unit:32, Rest/binary>>, Last) ->
    N > 0 andalso A > Last andalso sound(Rest, A);
sound(<<>>, _) -> true.

prop_split() ->
    ?FORALL({Keys, Next}, {keys(2500), oneof([infinity, halley_pages:key(100, 0)])},
            begin
                {Page, _, <<>>} = halley_pages:change(add, <<>>, halley_pages:pack(Keys), infinity),
                Pieces = halley_pages:split(Page, 3, Next),
                Fences = [Fence || {Fence, _} <- Pieces],
                lists:append([keys_of(halley_pages:pairs(P)) || {_, P} <- Pieces]) =:= Keys
                    andalso lists:all(fun piece_is_sound/1, Pieces)
                    andalso Fences =:= lists:usort(Fences)
                    andalso (Keys =:= [] orelse hd(Fences) =:= 3)
            end).

piece_is_sound({Fence, Page}) ->
    <<First:64, _/binary>> = halley_pages:pairs(Page),
    byte_size(Page) =< halley_pages:page_bytes_max() andalso Fence =< First andalso sound(Page).

with_table(Fun) ->
    halley_pages_table:new(?TABLE),
    try Fun() after ets:delete(?TABLE) end.

prop_table() ->
    ?FORALL(Changes, changes(), with_table(fun() -> run(Changes, []) =/= false end)).

run(Changes, Set) -> lists:foldl(fun step/2, Set, Changes).

step(_, false) -> false;
step({Operation, Keys}, Set) ->
    N = halley_pages_table:change(Operation, ?TABLE, halley_pages:pack(Keys)),
    Expected = model(Operation, Keys, Set),
    Ok = keys_of(halley_pages_table:pairs(?TABLE)) =:= Expected
        andalso N =:= abs(length(Expected) - length(Set))
        andalso lists:all(fun piece_is_sound/1, ets:tab2list(?TABLE))
        andalso lists:all(fun(A) -> reads_agree(A, Expected) end, [1, 7, 30, 61]),
    Ok andalso Expected.

reads_agree(A, Set) ->
    Members = [Key band 16#ffffffff || Key <- Set, Key bsr 32 =:= A],
    After = 1000,
    Fold = halley_pages_table:fold(fun(B, Acc) -> [B | Acc] end, [], ?TABLE, A),
    IsMember = fun(B) -> halley_pages_table:is_member(?TABLE, A, B) end,
    lists:reverse(Fold) =:= Members
        andalso lists:filter(IsMember, lists:seq(0, 3001)) =:= Members
        andalso halley_pages_table:count(?TABLE, A) =:= length(Members)
        andalso halley_pages_table:take(?TABLE, A, After, 5)
                =:= lists:sublist([B || B <- Members, B > After], 5).

%% A checkpoint that reads the table while it changes, and then all changes since it began, gives
%% the set: see the header of `halley_store_checkpoint'.
prop_checkpoint_beside_changes() ->
    ?FORALL({Before, Since, Later, Rows}, {changes(), changes(), changes(), range(0, 5)},
            begin
                Read = with_table(fun() ->
                    _ = run(Before, []),
                    read(ets:first(?TABLE), Since, Rows)
                end),
                Opened = with_table(fun() ->
                    ok = halley_pages_table:load(?TABLE, Read),
                    lists:foreach(fun change/1, Since ++ Later),
                    halley_pages_table:pairs(?TABLE)
                end),
                Set = lists:foldl(fun({Op, Keys}, S) -> model(Op, Keys, S) end, [],
                                  Before ++ Since ++ Later),
                keys_of(Opened) =:= Set
            end).

%% One of the changes comes after so many rows.
read('$end_of_table', _, _) ->
    [];
read(Fence, Changes, Rows) ->
    {Here, Next} = lists:split(min(length(Changes), Rows rem 3), Changes),
    Found = ets:lookup(?TABLE, Fence),
    lists:foreach(fun change/1, Here),
    Found ++ read(ets:next(?TABLE, Fence), Next, Rows + 1).

change({Operation, Keys}) ->
    halley_pages_table:change(Operation, ?TABLE, halley_pages:pack(Keys)).

%% A reader that comes between any two writes of a split misses nobody who was there before.
prop_reader_during_split() ->
    ?FORALL({Before, Keys}, {changes(), keys()},
            with_table(fun() -> misses_nobody(run(Before, []), Keys) end)).

misses_nobody(_, []) -> true;
misses_nobody(Set, [Key | _] = Keys) ->
    Fence = case ets:prev(?TABLE, Key + 1) of '$end_of_table' -> 0; Prev -> Prev end,
    Next = case ets:next(?TABLE, Fence) of '$end_of_table' -> infinity; N -> N end,
    Page = case ets:lookup(?TABLE, Fence) of [{_, P}] -> P; [] -> <<>> end,
    {New, _, _} = halley_pages:change(add, Page, halley_pages:pack(Keys), Next),
    lists:all(fun(Row) ->
                      ets:insert(?TABLE, Row),
                      lists:all(fun(A) -> sees_all(A, Set) end, lists:seq(1, 60))
              end, halley_pages_table:rows(Fence, New, Next)).

sees_all(A, Set) ->
    Members = [B || Slice <- halley_pages_table:slices(?TABLE, A), <<B:32>> <= Slice],
    lists:usort(Members) =:= Members
        andalso [Key band 16#ffffffff || Key <- Set, Key bsr 32 =:= A] -- Members =:= [].
