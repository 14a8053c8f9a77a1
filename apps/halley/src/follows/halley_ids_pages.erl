%% From a user number to its id: pages of 64 ids, and which of them are durable.
%%
%%   halley_id_pages   an ETS table that `halley_store_sup' owns, {Number div 64, Page}: the ids in
%%                     order, <<Length:8, Id/binary, ...>>; length 0 is a number without an id
%%   durable           a bit per number in `atomics', 32 a word: a follow refers to it, and the
%%                     journal says whose it is
%%
%% Pages are written by `halley_ids' alone, bits by the owner of the follows alone, and both by the
%% recovery before these run. Anyone reads. Not here: from an id to its number
%% (`halley_ids_index').
-module(halley_ids_pages).

-export([new/1, forget/0, id/1, ids/1, set/1, clear/1, last/0, fold/2]).
-export([is_durable/1, set_durable/2, put_durable_page/2, durable_page/1, page_numbers/0]).
-export_type([page_number/0]).

-define(PAGES, halley_id_pages).
-define(PLACES, 64).
-define(BITS, 32).

-type user_number() :: halley_id:user_number().
-type id() :: halley_id:id().
-type page_number() :: non_neg_integer().
-type page() :: binary().

%% The caller, a supervisor, owns the table. There are bits for numbers up to `Last'.
-spec new(Last :: user_number()) -> ok.
new(Last) ->
    ?PAGES = ets:new(?PAGES, [set, public, named_table, {read_concurrency, true}]),
    true = ets:insert(?PAGES, {0, <<0>>}),
    %% Whole pages.
    Size = (Last div ?PLACES + 1) * (?PLACES div ?BITS),
    persistent_term:put(?MODULE, {atomics:new(Size, [{signed, false}]), Size}).

%% As if new. For a recovery that begins again.
-spec forget() -> ok.
forget() ->
    {_, Size} = words(),
    true = ets:delete_all_objects(?PAGES),
    true = ets:insert(?PAGES, {0, <<0>>}),
    persistent_term:put(?MODULE, {atomics:new(Size, [{signed, false}]), Size}).

%% <<>> if the number is nobody's.
-spec id(user_number()) -> id() | <<>>.
id(Number) -> id_at(Number rem ?PLACES, page(Number div ?PLACES)).

id_at(0, <<N, Id:N/binary, _/binary>>) -> Id;
id_at(Place, <<N, _:N/binary, Rest/binary>>) -> id_at(Place - 1, Rest);
id_at(_, <<>>) -> <<>>.

%% Copies of the ids of these numbers, ascending; nobody's are left out. A page is gone over once,
%% whatever is asked of it.
-spec ids([user_number()]) -> [id()].
ids([Number | _] = Numbers) ->
    P = Number div ?PLACES,
    ids(Numbers, P * ?PLACES, (P + 1) * ?PLACES, page(P));
ids([]) ->
    [].

ids([Number | _] = Numbers, _, End, _) when Number >= End -> ids(Numbers);
ids([At | Numbers], At, End, <<0, Rest/binary>>) -> ids(Numbers, At + 1, End, Rest);
ids([At | Numbers], At, End, <<N, Id:N/binary, Rest/binary>>) ->
    [binary:copy(Id) | ids(Numbers, At + 1, End, Rest)];
ids([_ | _] = Numbers, At, End, <<N, _:N/binary, Rest/binary>>) -> ids(Numbers, At + 1, End, Rest);
ids([_ | Numbers], At, End, <<>>) -> ids(Numbers, At, End, <<>>);
ids([], _, _, _) -> [].

page(PageNumber) ->
    case ets:lookup(?PAGES, PageNumber) of
        [{_, Page}] -> Page;
        [] -> <<>>
    end.

%% Makes these numbers those of these ids; ascending by number.
-spec set([{user_number(), id()}]) -> ok.
set([{Number, _} | _] = Names) ->
    P = Number div ?PLACES,
    {Here, There} = lists:splitwith(fun({N, _}) -> N div ?PLACES =:= P end, Names),
    true = ets:insert(?PAGES, {P, with(Here, P * ?PLACES, page(P), [])}),
    set(There);
set([]) ->
    ok.

%% From `At' on the page isn't in `Out' yet.
with([{Number, Id} | Names], At, Page, Out) ->
    {Before, Rest} = split(Number - At, Page),
    Behind = case Rest of
                 <<N, _:N/binary, Others/binary>> -> Others;
                 <<>> -> <<>>
             end,
    with(Names, Number + 1, Behind, [Out, Before, byte_size(Id), Id]);
with([], _, Page, Out) ->
    iolist_to_binary([Out, Page]).

%% So many places from the beginning of a page, those that it hasn't got as well.
split(Places, Page) -> split(Places, Page, 0).

split(0, Page, At) ->
    <<Before:At/binary, Rest/binary>> = Page,
    {Before, Rest};
split(Places, Page, At) ->
    case Page of
        <<_:At/binary, N, _:N/binary, _/binary>> -> split(Places - 1, Page, At + 1 + N);
        <<_:At/binary>> -> {[Page, binary:copy(<<0>>, Places)], <<>>}
    end.

%% Makes these numbers nobody's; ascending.
-spec clear([user_number()]) -> ok.
clear(Numbers) -> set([{Number, <<>>} || Number <- Numbers]).

%% A page of a checkpoint: all of its ids are durable.
-spec put_durable_page(page_number(), page()) -> ok.
put_durable_page(PageNumber, Page) ->
    true = ets:insert(?PAGES, {PageNumber, Page}),
    Index = PageNumber * (?PLACES div ?BITS) + 1,
    Words = roomy(Index + 1, words()),
    {Low, High} = named(Page, 1, 0),
    ok = atomics:put(Words, Index, Low),
    atomics:put(Words, Index + 1, High).

%% A bit for each place that has an id, in two words of ?BITS.
named(<<0, Rest/binary>>, Bit, Word) when Bit < 1 bsl ?BITS -> named(Rest, Bit bsl 1, Word);
named(<<N, _:N/binary, Rest/binary>>, Bit, Word) when Bit < 1 bsl ?BITS ->
    named(Rest, Bit bsl 1, Word bor Bit);
named(<<>>, _, Word) -> {Word, 0};
named(Page, _, Word) -> {Word, named_high(Page, 1, 0)}.

named_high(<<0, Rest/binary>>, Bit, Word) -> named_high(Rest, Bit bsl 1, Word);
named_high(<<N, _:N/binary, Rest/binary>>, Bit, Word) ->
    named_high(Rest, Bit bsl 1, Word bor Bit);
named_high(<<>>, _, Word) -> Word.

%% The highest number that has a place.
-spec last() -> user_number().
last() ->
    P = lists:max(page_numbers()),
    P * ?PLACES + places(page(P), 0) - 1.

places(<<N, _:N/binary, Rest/binary>>, Places) -> places(Rest, Places + 1);
places(<<>>, Places) -> Places.

%% Folds over the pages: the ids there are, ascending, and the numbers before the last of them that
%% are nobody's.
-spec fold(fun(([{id(), user_number()}], Holes :: [user_number()], Acc) -> Acc), Acc) -> Acc.
fold(Fun, Acc) ->
    Numbers = lists:sort(page_numbers()),
    {_, Folded} = lists:foldl(fun(P, {Missing, Acc1}) ->
        Page = page(P),
        First = P * ?PLACES,
        Holes = lists:seq(Missing, First - 1) ++ holes(First, Page),
        {First + places(Page, 0), Fun(ids(First, Page), Holes, Acc1)}
    end, {0, Acc}, Numbers),
    Folded.

ids(Number, <<0, Rest/binary>>) -> ids(Number + 1, Rest);
ids(Number, <<N, Id:N/binary, Rest/binary>>) -> [{Id, Number} | ids(Number + 1, Rest)];
ids(_, <<>>) -> [].

holes(Number, <<0, Rest/binary>>) -> [Number | holes(Number + 1, Rest)];
holes(Number, <<N, _:N/binary, Rest/binary>>) -> holes(Number + 1, Rest);
holes(_, <<>>) -> [].

-spec page_numbers() -> [page_number()].
page_numbers() -> ets:select(?PAGES, [{{'$1', '_'}, [], ['$1']}]).

%% A page with the durable ids alone, and places for numbers that files name all the same, so that
%% `last/0' is never below these; `none' if it has neither.
-spec durable_page(page_number()) -> {ok, page()} | none.
durable_page(PageNumber) ->
    First = PageNumber * ?PLACES,
    Names = durable(First, page(PageNumber)),
    case halley_ids_written:last(First, First + ?PLACES - 1) of
        none when Names =:= [] -> none;
        none -> {ok, with(Names, First, <<>>, [])};
        Last -> {ok, with_places(Last - First + 1, with(Names, First, <<>>, []))}
    end.

with_places(Wanted, Page) ->
    <<Page/binary, 0:(8 * max(0, Wanted - places(Page, 0)))>>.

durable(First, Page) -> [{N, Id} || {Id, N} <- ids(First, Page), is_durable(N)].

%% --- durable -------------------------------------------------------------------------------------

-spec is_durable(user_number()) -> boolean().
is_durable(Number) ->
    {Words, Size} = words(),
    Index = Number div ?BITS + 1,
    Index =< Size andalso (atomics:get(Words, Index) bsr (Number rem ?BITS)) band 1 =:= 1.

-spec set_durable([user_number()], boolean()) -> ok.
set_durable([], _) ->
    ok;
set_durable(Numbers, Is) ->
    Words = roomy(lists:max(Numbers) div ?BITS + 1, words()),
    lists:foreach(fun(Number) ->
        Index = Number div ?BITS + 1,
        Bit = 1 bsl (Number rem ?BITS),
        Word = atomics:get(Words, Index),
        atomics:put(Words, Index, case Is of
                                      true -> Word bor Bit;
                                      false -> Word band bnot Bit
                                  end)
    end, Numbers).

%% A store may hold more ids than a limit that was lowered since. Only the recovery meets them.
roomy(Index, {Words, Size}) when Index =< Size -> Words;
roomy(Index, {Words, Size}) ->
    Larger = atomics:new(2 * Index, [{signed, false}]),
    lists:foreach(fun(I) -> atomics:put(Larger, I, atomics:get(Words, I)) end, lists:seq(1, Size)),
    persistent_term:put(?MODULE, {Larger, 2 * Index}),
    Larger.

words() -> persistent_term:get(?MODULE).
