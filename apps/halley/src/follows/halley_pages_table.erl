%% One direction of the follows: an ETS ordered_set {Fence, Page} that one process writes and
%% anyone reads without locks.
%%
%% Invariants, at every moment and so for every reader:
%%   a page holds only pairs from its fence on;
%%   every pair of the set is in some page: a page that splits writes its right pieces first, the
%%   rightmost before the others, and shrinks last, so a reader in between may meet a pair twice,
%%   never miss one;
%%   pages are never merged here, for a reader between two pages would miss what moved left. A
%%   page that becomes empty is deleted. Sparse neighbours are merged when the store is opened.
%% Readers drop what they meet twice, since pairs are ascending.
%%
%% `halley_pages` defines a page. This is not durable: see `halley_follows_journal`.
-module(halley_pages_table).

-export([new/1, change/3, rows/3, load/2, trim/1]).
-export([fold/4, slices/2, count/2, take/4, is_member/3, page_end/2, spread/2]).
-export([first/1, pairs/1, size/1]).

-type table() :: atom().

%% A reader that lost its page to a deletion looks again, this often at most.
-define(LOOKS_MAX, 1000).
%% Neighbours that fill less than this together become one page when the store is opened.
-define(MERGE_BYTES, 2048).

%% The table outlives the process that writes it: the caller owns it.
-spec new(table()) -> ok.
new(Table) ->
    Table = ets:new(Table, [ordered_set, public, named_table, {read_concurrency, true}]),
    ok.

%% Adds or removes packed pairs; gives how many made a difference. For the one writer.
-spec change(halley_pages:operation(), table(), halley_pages:packed()) -> non_neg_integer().
change(Operation, Table, Pairs) -> change(Operation, Table, Pairs, 0).

change(_, _, <<>>, Changed) -> Changed;
change(Operation, Table, <<Key:64, _/binary>> = Pairs, Changed) ->
    Fence = fence(Table, Key),
    Next = next(Table, Fence),
    {New, N, Rest} = halley_pages:change(Operation, page(Table, Fence), Pairs, Next),
    N > 0 andalso put_page(Table, Fence, New, Next),
    change(Operation, Table, Rest, Changed + N).

put_page(Table, Fence, <<>>, _) ->
    true = ets:delete(Table, Fence);
put_page(Table, Fence, New, Next) ->
    lists:foreach(fun(Row) -> ets:insert(Table, Row) end, rows(Fence, New, Next)).

%% The rows that a changed page becomes, in the order in which they must be written.
-spec rows(halley_pages:key(), halley_pages:page(), halley_pages:key() | infinity) ->
    [{halley_pages:key(), halley_pages:page()}].
rows(Fence, New, Next) -> lists:reverse(halley_pages:split(New, Fence, Next)).

%% The first page's fence is 0, also when there is no page yet.
fence(Table, Key) ->
    case ets:prev(Table, Key + 1) of
        '$end_of_table' -> 0;
        Fence -> Fence
    end.

next(Table, Fence) ->
    case ets:next(Table, Fence) of
        '$end_of_table' -> infinity;
        Next -> Next
    end.

page(Table, Fence) ->
    case ets:lookup(Table, Fence) of
        [{_, Page}] -> Page;
        [] -> <<>>
    end.

%% Fills an empty table from rows {Fence, Page}, ascending by fence. A row may hold pairs beyond
%% the next fence, as a checkpoint that was cut short leaves them: they are dropped here, since
%% the row of that fence is the newer one.
-spec load(table(), [{halley_pages:key(), halley_pages:page()}]) -> ok.
load(Table, [{Fence, Page}, {Next, NextPage} = NextRow | Rows]) ->
    Kept = halley_pages:until(Next, Page),
    case byte_size(Kept) + byte_size(NextPage) =< ?MERGE_BYTES of
        true ->
            Pairs = halley_pages:pairs(halley_pages:until(first_fence(Rows), NextPage)),
            {Merged, _, <<>>} = halley_pages:change(add, Kept, Pairs, infinity),
            load(Table, [{Fence, Merged} | Rows]);
        false ->
            load_row(Table, {Fence, Kept}),
            load(Table, [NextRow | Rows])
    end;
load(Table, [Row]) -> load_row(Table, Row);
load(_, []) -> ok.

%% Ends the splits that a writer that died had begun: drops what a page has beyond the next fence,
%% where the newer one of the two is. For the next writer, before it changes anything.
-spec trim(table()) -> ok.
trim(Table) -> trim(Table, ets:first(Table)).

trim(_, '$end_of_table') -> ok;
trim(Table, Fence) ->
    Page = page(Table, Fence),
    case halley_pages:until(next(Table, Fence), Page) of
        Page -> ok;
        Kept -> put_page(Table, Fence, Kept, next(Table, Fence))
    end,
    trim(Table, ets:next(Table, Fence)).

first_fence([{Fence, _} | _]) -> Fence;
first_fence([]) -> infinity.

load_row(_, {_, <<>>}) -> ok;
load_row(Table, Row) ->
    true = ets:insert(Table, Row),
    ok.

%% Folds over the members of A, ascending.
-spec fold(fun((halley_id:user_number(), Acc) -> Acc), Acc, table(), halley_id:user_number()) ->
    Acc.
fold(Fun, Acc, Table, A) ->
    lists:foldl(fun(Slice, Acc1) -> fold_slice(Fun, Acc1, Slice) end, Acc, slices(Table, A)).

fold_slice(Fun, Acc, <<B:32, Rest/binary>>) -> fold_slice(Fun, Fun(B, Acc), Rest);
fold_slice(_, Acc, <<>>) -> Acc.

%% The members of A, packed, ascending over all slices, no slice empty.
-spec slices(table(), halley_id:user_number()) -> [binary()].
slices(Table, A) ->
    slices(Table, A, halley_pages:key(A, 0), -1, ?LOOKS_MAX).

%% Members up to Last are known already.
slices(Table, A, Key, Last, Looks) ->
    case look(Table, Key, Looks) of
        {Fence, Page} ->
            case halley_pages:members(A, Page) of
                {Members, complete} -> slice(Members, Last, []);
                {Members, open} -> more_slices(Table, A, Fence, Members, Last, Looks)
            end;
        none -> []
    end.

more_slices(Table, A, Fence, Members, Last, Looks) ->
    End = halley_pages:key(A + 1, 0),
    case ets:next(Table, Fence) of
        Next when is_integer(Next), Next < End ->
            NewLast = max(Last, last(Members, Last)),
            slice(Members, Last, slices(Table, A, Next, NewLast, Looks));
        _ -> slice(Members, Last, [])
    end.

%% The page that a key belongs to. The first page on the way may hold smaller A only, or the
%% table may begin after the key.
look(_, _, 0) -> error(store_busy);
look(Table, Key, Looks) ->
    Fence = case ets:prev(Table, Key + 1) of
                '$end_of_table' -> ets:first(Table);
                Prev -> Prev
            end,
    case Fence =/= '$end_of_table' andalso ets:lookup(Table, Fence) of
        false -> none;
        [Row] -> Row;
        [] -> look(Table, Key, Looks - 1)
    end.

slice(Members, Last, Slices) ->
    case after_last(Members, Last) of
        <<>> -> Slices;
        New -> [New | Slices]
    end.

after_last(<<B:32, Rest/binary>>, Last) when B =< Last -> after_last(Rest, Last);
after_last(Members, _) -> Members.

last(<<>>, Last) -> Last;
last(Members, _) ->
    <<_:(byte_size(Members) div 4 - 1)/binary-unit:32, B:32>> = Members,
    B.

-spec count(table(), halley_id:user_number()) -> non_neg_integer().
count(Table, A) ->
    iolist_size(slices(Table, A)) div 4.

%% At most Limit members of A that are greater than After, ascending.
-spec take(table(), halley_id:user_number(), After :: integer(), pos_integer()) ->
    [halley_id:user_number()].
take(Table, A, After, Limit) ->
    take(Table, A, halley_pages:key(A, After + 1), After, Limit, ?LOOKS_MAX).

take(Table, A, Key, After, Limit, Looks) ->
    case look(Table, Key, Looks) of
        {Fence, Page} ->
            {Members, State} = halley_pages:members(A, Page),
            {Taken, Left, Last} = take_members(Members, After, Limit, []),
            End = halley_pages:key(A + 1, 0),
            case State =:= open andalso Left > 0 andalso ets:next(Table, Fence) of
                Next when is_integer(Next), Next < End ->
                    Taken ++ take(Table, A, Next, Last, Left, Looks);
                _ -> Taken
            end;
        none -> []
    end.

take_members(<<B:32, Rest/binary>>, After, Limit, Taken) when B =< After ->
    take_members(Rest, After, Limit, Taken);
take_members(<<B:32, Rest/binary>>, _, Limit, Taken) when Limit > 0 ->
    take_members(Rest, B, Limit - 1, [B | Taken]);
take_members(_, After, Limit, Taken) ->
    {lists:reverse(Taken), Limit, After}.

%% Whether B is a member of A, at the cost of one page and a binary search.
-spec is_member(table(), halley_id:user_number(), halley_id:user_number()) -> boolean().
is_member(Table, A, B) -> is_member(Table, A, B, halley_pages:key(A, B), ?LOOKS_MAX).

%% A page that splits between the two looks of `look/3' has lost its right half: then the key has
%% another fence by now.
is_member(Table, A, B, Key, Looks) ->
    case look(Table, Key, Looks) of
        {Fence, Page} ->
            {Members, _} = halley_pages:members(A, Page),
            case halley_pages:is_member(B, Members) of
                true -> true;
                false ->
                    case fence(Table, Key) of
                        Later when Later > Fence ->
                            is_member(Table, A, B, Key, Looks - 1);
                        _ ->
                            false
                    end
            end;
        none ->
            false
    end.

%% Where the page ends that a key belongs to: all of its pairs are below this.
-spec page_end(table(), halley_pages:key()) -> halley_pages:key() | infinity.
page_end(Table, Key) -> next(Table, fence(Table, Key)).

%% Those A that at least so many fences belong to, found by walking over the fences alone. An A
%% without that many is never among them; one whose pages change meanwhile may be.
-spec spread(table(), Fences :: pos_integer()) -> [halley_id:user_number()].
spread(Table, Fences) ->
    spread(Table, Fences, ets:first(Table), -1, 0, []).

spread(Table, Min, Fence, A, N, Found) when is_integer(Fence), Fence bsr 32 =:= A ->
    spread(Table, Min, ets:next(Table, Fence), A, N + 1, Found);
spread(Table, Min, Fence, A, N, Found) ->
    Spread = case N >= Min of true -> [A | Found]; false -> Found end,
    case Fence of
        '$end_of_table' -> Spread;
        _ -> spread(Table, Min, ets:next(Table, Fence), Fence bsr 32, 1, Spread)
    end.

%% Everything, packed. For tests and checks, not for a large store.
-spec pairs(table()) -> halley_pages:packed().
pairs(Table) ->
    iolist_to_binary([halley_pages:pairs(Page) || {_, Page} <- ets:tab2list(Table)]).

%% The pairs of the first page, packed.
-spec first(table()) -> halley_pages:packed().
first(Table) ->
    case ets:first(Table) of
        '$end_of_table' -> <<>>;
        Fence -> halley_pages:pairs(page(Table, Fence))
    end.

%% How many pairs there are.
-spec size(table()) -> non_neg_integer().
size(Table) ->
    ets:foldl(fun({_, Page}, Sum) -> Sum + halley_pages:size(Page) end, 0, Table).
