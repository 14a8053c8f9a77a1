%% Pages: sorted sets of pairs {A, B} of user numbers, packed. Pure.
%%
%% A page is a binary of groups <<A:32, Count:16, B:32, ...>>, ascending by A and within a group
%% by B; no group is empty and no A has two groups in one page. A page as stored has at most
%% `page_bytes_max()` bytes. A set too large for one page is many: each has a *fence*, the
%% smallest key it may hold (`key(A, B)`, an integer), and ends where the next fence begins.
%% Pages are the leaves of a B+ tree; `halley_pages_table` keeps them and their fences.
%%
%% Changes come as *packed pairs*: <<A:32, B:32, ...>>, ascending and without duplicates. The part
%% that a change doesn't touch is copied as one slice, so a change costs its own part and a copy.
%%
%% User numbers are below 2^27, so that a key is a small integer of the VM.
-module(halley_pages).

-export([key/2, swap/1, pack/1, page_bytes_max/0]).
-export([change/4, split/3, until/2]).
-export([members/2, is_member/2, size/1, pairs/1, last_key/1, is_page/2]).

-export_type([key/0, page/0, packed/0, operation/0]).

-define(PAGE_BYTES_MAX, 4096).
%% A page that must split leaves pieces of about this fill, as room for what comes next.
-define(SPLIT_BYTES, 3072).
%% A group up to this size moves to the next page rather than being cut in two.
-define(CUT_BYTES, 1024).
%% Pairs that one change may take: a group's count must fit 16 bits until the page is split.
-define(CHANGE_PAIRS_MAX, 4096).

-type key() :: non_neg_integer().
-type page() :: binary().
-type packed() :: binary().
-type operation() :: add | remove.

-spec key(halley_id:user_number(), halley_id:user_number()) -> key().
key(A, B) -> A bsl 32 bor B.

%% The key of the pair the other way round.
-spec swap(key()) -> key().
swap(Key) -> key(Key band 16#ffffffff, Key bsr 32).

%% Packs keys that are ascending and without duplicates.
-spec pack([key()]) -> packed().
pack(Keys) -> << <<Key:64>> || Key <- Keys >>.

-spec page_bytes_max() -> pos_integer().
page_bytes_max() -> ?PAGE_BYTES_MAX.

%% Applies the leading pairs that are below `Limit` (the next page's fence, or infinity) and
%% gives the page after it, how many pairs made a difference, and the pairs that are left.
%% The page may be larger than a page may be: see split/3.
-spec change(operation(), page(), packed(), key() | infinity) ->
    {page(), non_neg_integer(), packed()}.
change(Operation, Page, Pairs, Limit) ->
    change(Operation, Page, Page, 0, 0, Pairs, Limit, ?CHANGE_PAIRS_MAX, [], 0).

%% Tail is Page from At on; Page from Kept to At is unchanged and not yet in Out.
change(Operation, Page, Tail, At, Kept, Pairs, Limit, Budget, Out, Changed) ->
    case take_group(Pairs, Limit, Budget) of
        {A, Bs, Taken, Rest} ->
            {Start, Members, TailAfter} = seek(A, Tail, At),
            After = Start + group_bytes(Members),
            case change_members(Operation, Members, Bs) of
                {_, 0} ->
                    change(Operation, Page, TailAfter, After, Kept, Rest, Limit,
                           Budget - Taken, Out, Changed);
                {New, N} ->
                    Out1 = [Out, binary:part(Page, Kept, Start - Kept), group(A, New)],
                    change(Operation, Page, TailAfter, After, After, Rest, Limit,
                           Budget - Taken, Out1, Changed + N)
            end;
        none when Changed =:= 0 ->
            {Page, 0, Pairs};
        none ->
            Last = binary:part(Page, Kept, byte_size(Page) - Kept),
            {iolist_to_binary([Out, Last]), Changed, Pairs}
    end.

%% The leading pairs of one A, as far as limit and budget allow.
take_group(<<A:32, B:32, Rest/binary>>, Limit, Budget)
  when Budget > 0, A bsl 32 bor B < Limit ->
    take_group(Rest, A, Limit, Budget - 1, [B], 1);
take_group(_, _, _) ->
    none.

take_group(<<A:32, B:32, Rest/binary>>, A, Limit, Budget, Bs, N)
  when Budget > 0, A bsl 32 bor B < Limit ->
    take_group(Rest, A, Limit, Budget - 1, [B | Bs], N + 1);
take_group(Rest, A, _, _, Bs, N) ->
    {A, lists:reverse(Bs), N, Rest}.

%% Where A's group starts or would start, its members (none if it isn't there), what follows it.
seek(A, <<X:32, N:16, _:N/binary-unit:32, Rest/binary>>, At) when X < A ->
    seek(A, Rest, At + 6 + 4 * N);
seek(A, <<A:32, N:16, Members:N/binary-unit:32, Rest/binary>>, At) ->
    {At, Members, Rest};
seek(_, Tail, At) ->
    {At, <<>>, Tail}.

group_bytes(<<>>) -> 0;
group_bytes(Members) -> 6 + byte_size(Members).

group(A, Members) ->
    case iolist_size(Members) of
        0 -> [];
        Bytes -> [<<A:32, (Bytes div 4):16>>, Members]
    end.

change_members(add, Members, Bs) -> add_members(Members, 0, Bs, [], 0);
change_members(remove, Members, Bs) -> remove_members(Members, 0, Bs, [], 0).

%% Members from Kept (an index) on are not yet in Out.
add_members(Members, Kept, [B | Bs], Out, N) ->
    case position(Members, B, Kept) of
        {found, _} -> add_members(Members, Kept, Bs, Out, N);
        {absent, At} ->
            add_members(Members, At, Bs, [Out, slice(Members, Kept, At), <<B:32>>], N + 1)
    end;
add_members(Members, Kept, [], Out, N) ->
    {[Out, slice(Members, Kept, byte_size(Members) div 4)], N}.

remove_members(Members, Kept, [B | Bs], Out, N) ->
    case position(Members, B, Kept) of
        {found, At} ->
            remove_members(Members, At + 1, Bs, [Out, slice(Members, Kept, At)], N + 1);
        {absent, _} -> remove_members(Members, Kept, Bs, Out, N)
    end;
remove_members(Members, Kept, [], Out, N) ->
    {[Out, slice(Members, Kept, byte_size(Members) div 4)], N}.

slice(Members, From, To) -> binary:part(Members, 4 * From, 4 * (To - From)).

%% Most new members are the youngest users of all, so the end is tried before the search.
position(Members, B, From) ->
    case byte_size(Members) div 4 of
        From -> {absent, From};
        Count ->
            <<_:(Count - 1)/binary-unit:32, Last:32>> = Members,
            if
                B > Last -> {absent, Count};
                B =:= Last -> {found, Count - 1};
                true -> search(Members, B, From, Count - 1)
            end
    end.

%% From =< the position of B =< To.
search(_, _, At, At) -> {absent, At};
search(Members, B, From, To) ->
    Middle = (From + To) div 2,
    <<_:Middle/binary-unit:32, X:32, _/binary>> = Members,
    if
        X =:= B -> {found, Middle};
        X < B -> search(Members, B, Middle + 1, To);
        true -> search(Members, B, From, Middle)
    end.

%% Cuts what change/4 gave into pages with their fences, ascending. The first keeps the fence it
%% had. At the end of the table (no next fence) pages are filled to the brim: numbers grow, so
%% what comes next comes after them. Elsewhere the pieces are even and leave room.
-spec split(page(), key(), key() | infinity) -> [{key(), page()}].
split(<<>>, _, _) -> [];
split(Page, Fence, _) when byte_size(Page) =< ?PAGE_BYTES_MAX -> [{Fence, Page}];
split(Page, Fence, infinity) -> split(Page, Fence, ?PAGE_BYTES_MAX, 0, []);
split(Page, Fence, _) ->
    Size = byte_size(Page),
    Pieces = (Size + ?SPLIT_BYTES - 1) div ?SPLIT_BYTES,
    split(Page, Fence, Size div Pieces + 1, 0, []).

%% Piece is filled until it has Goal bytes; it never has more than a page may have.
split(<<A:32, N:16, Members:N/binary-unit:32, Rest/binary>>, Fence, Goal, Bytes, Piece) ->
    GroupBytes = 6 + 4 * N,
    Room = (?PAGE_BYTES_MAX - Bytes - 6) div 4,
    Wanted = max(1, (Goal - Bytes - 6 + 3) div 4),
    if
        Bytes >= Goal -> cut(A, Members, Rest, Fence, Goal, Piece);
        N =< Room, (GroupBytes =< ?CUT_BYTES orelse N =< Wanted) ->
            split(Rest, Fence, Goal, Bytes + GroupBytes, [Piece, <<A:32, N:16>>, Members]);
        GroupBytes =< ?CUT_BYTES; Room < 1 ->
            cut(A, Members, Rest, Fence, Goal, Piece);
        true ->
            Fit = min(Room, Wanted),
            <<Here:Fit/binary-unit:32, There/binary>> = Members,
            cut(A, There, Rest, Fence, Goal, [Piece, <<A:32, Fit:16>>, Here])
    end;
split(<<>>, Fence, _, _, Piece) ->
    [{Fence, iolist_to_binary(Piece)}].

cut(A, <<B:32, _/binary>> = Members, Rest, Fence, Goal, Piece) ->
    N = byte_size(Members) div 4,
    Left = iolist_to_binary([<<A:32, N:16>>, Members, Rest]),
    [{Fence, iolist_to_binary(Piece)} | split(Left, key(A, B), Goal, 0, [])].

%% The part of a page that is below a key.
-spec until(key(), page()) -> page().
until(Key, Page) ->
    case last_key(Page) of
        Last when is_integer(Last), Last >= Key ->
            {Below, _, _} = change(add, <<>>, below(Key, pairs(Page)), infinity),
            Below;
        _ -> Page
    end.

below(Key, Pairs) -> << <<P:64>> || <<P:64>> <= Pairs, P < Key >>.

%% The packed members of A in this page, and whether more of them may follow in the next.
-spec members(halley_id:user_number(), page()) -> {binary(), complete | open}.
members(A, <<X:32, N:16, _:N/binary-unit:32, Rest/binary>>) when X < A -> members(A, Rest);
members(A, <<A:32, N:16, Members:N/binary-unit:32, Rest/binary>>) ->
    case Rest of
        <<>> -> {Members, open};
        _ -> {Members, complete}
    end;
members(_, <<>>) -> {<<>>, open};
members(_, _) -> {<<>>, complete}.

%% Whether a number is among packed members, by binary search.
-spec is_member(halley_id:user_number(), Members :: binary()) -> boolean().
is_member(_, <<>>) -> false;
is_member(B, Members) -> element(1, position(Members, B, 0)) =:= found.

%% How many pairs there are in a page.
-spec size(page()) -> non_neg_integer().
size(Page) -> size(Page, 0).

size(<<_:32, N:16, _:N/binary-unit:32, Rest/binary>>, Sum) -> size(Rest, Sum + N);
size(<<>>, Sum) -> Sum.

%% All pairs of a page, packed.
-spec pairs(page()) -> packed().
pairs(Page) -> iolist_to_binary(pairs_list(Page)).

pairs_list(<<A:32, N:16, Members:N/binary-unit:32, Rest/binary>>) ->
    [<< <<A:32, B:32>> || <<B:32>> <= Members >> | pairs_list(Rest)];
pairs_list(<<>>) -> [].

-spec last_key(page()) -> key() | empty.
last_key(<<A:32, N:16, Members:N/binary-unit:32>>) ->
    <<_:(N - 1)/binary-unit:32, B:32>> = Members,
    key(A, B);
last_key(<<_:32, N:16, _:N/binary-unit:32, Rest/binary>>) -> last_key(Rest);
last_key(<<>>) -> empty.

%% Whether this is a page with this fence: for what comes without a checksum.
-spec is_page(term(), term()) -> boolean().
is_page(Page, Fence) when is_binary(Page), is_integer(Fence), Fence >= 0 ->
    try [Key || <<Key:64>> <= pairs(Page)] of
        Keys -> Keys =:= lists:usort(Keys) andalso hd(Keys ++ [Fence]) >= Fence
    catch
        error:_ -> false
    end;
is_page(_, _) ->
    false.
