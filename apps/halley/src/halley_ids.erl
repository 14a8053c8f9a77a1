%% User numbers: a dense number for each id, from 1, and never another for the same id.
%%
%% An id is interned in memory when it logs in or is followed. It becomes durable when a follow
%% refers to it: the owner of the follows writes the id's page in the same transaction. A number
%% that never became durable is forgotten with the brain, and so is what referred to it.
%%
%% Written here, read by anyone:
%%   halley_id_pages   an ETS table that `halley_store_sup` owns, {Number div 64, Page}: the ids in
%%                     order, <<Length:8, Id/binary, ...>>; length 0 is a number without an id
%%   halley_ids_index  from an id's hash to its number; the page says whether it is that id
%% A page is written before its ids are in the index, so whoever finds a number finds its name. How
%% many places of a page are durable is one word per page in `atomics`; places fill in order.
%%
%% Callers are synchronous, so what waits here is bounded by what the callers are bounded by.
-module(halley_ids).
-behaviour(gen_server).

-export([start_link/0, new_tables/0]).
-export([lookup/1, intern/1, name/1, count/0]).
-export([not_durable/1, rows/1, set_durable/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-export_type([id/0, user_number/0, page_number/0]).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().
-type page_number() :: non_neg_integer().
-type state() :: #{next := user_number()}.

-define(PAGES, halley_id_pages).
-define(PLACES, 64).
%% The words of the atomics: the first page with a place that isn't durable, then each page's.
-define(FIRST_OPEN, 1).
-define(PLACE_OF(PageNumber), (PageNumber + 2)).

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% For the supervisor, which is to own them.
-spec new_tables() -> ok.
new_tables() ->
    ?PAGES = ets:new(?PAGES, [set, public, named_table, {read_concurrency, true}]),
    ok = halley_ids_index:publish(halley_ids_index:new(0)),
    %% A store may hold more ids than a limit that was lowered since.
    OnDisk = case ets:last(halley_id_page) of
                 '$end_of_table' -> 0;
                 Last -> Last
             end,
    Words = ?PLACE_OF(max(OnDisk, ids_max() div ?PLACES)),
    persistent_term:put({?MODULE, durable}, atomics:new(Words, [{signed, false}])).

%% Numbers must stay below 2^27, see `halley_pages`.
ids_max() -> min(16#7ffffff, halley_limits:get(ids_max)).

-spec lookup(id()) -> user_number() | undefined.
lookup(Id) -> halley_ids_index:lookup(Id, fun holds/2).

holds(Number, Id) -> id_at(Number rem ?PLACES, page(Number div ?PLACES)) =:= Id.

%% Numbers for ids, in their order; those that have none get one, all or none.
-spec intern([binary()]) ->
    {ok, [user_number()]} | {error, too_many_ids | {bad_id, term()}}.
intern(Ids) ->
    Missing = [Id || Id <- Ids, lookup(Id) =:= undefined],
    case [Id || Id <- Missing, halley_id:check(Id) =/= ok] of
        [Bad | _] -> {error, {bad_id, Bad}};
        [] when Missing =:= [] -> {ok, [lookup(Id) || Id <- Ids]};
        [] ->
            case gen_server:call(?MODULE, {intern, Missing}, infinity) of
                ok -> {ok, [lookup(Id) || Id <- Ids]};
                {error, _} = Error -> Error
            end
    end.

%% The id of a number that was given out by this brain or is durable.
-spec name(user_number()) -> id().
name(Number) ->
    case id_at(Number rem ?PLACES, page(Number div ?PLACES)) of
        <<>> -> error({no_such_user_number, Number});
        Id -> binary:copy(Id)
    end.

id_at(0, <<N, Id:N/binary, _/binary>>) -> Id;
id_at(Place, <<N, _:N/binary, Rest/binary>>) -> id_at(Place - 1, Rest);
id_at(_, <<>>) -> <<>>.

page(PageNumber) ->
    case ets:lookup(?PAGES, PageNumber) of
        [{_, Page}] -> Page;
        [] -> <<>>
    end.

-spec count() -> non_neg_integer().
count() -> halley_ids_index:count().

%% The pages of those numbers that wouldn't survive the brain yet.
-spec not_durable([user_number()]) -> [page_number()].
not_durable(Numbers) ->
    Durable = durable_places(),
    First = ?PLACES * atomics:get(Durable, ?FIRST_OPEN),
    lists:usort([N div ?PLACES || N <- Numbers, N >= First,
                                  atomics:get(Durable, ?PLACE_OF(N div ?PLACES)) =< N rem ?PLACES]).

%% The rows that make the ids of these pages durable.
-spec rows([page_number()]) -> [halley_store:row()].
rows(PageNumbers) -> [{halley_id_page, P, page(P)} || P <- PageNumbers].

%% To be called once the rows are on disk, by the owner of the follows.
-spec set_durable([halley_store:row()]) -> ok.
set_durable(Rows) ->
    Durable = durable_places(),
    lists:foreach(fun({halley_id_page, P, Page}) ->
                          atomics:put(Durable, ?PLACE_OF(P), places(Page, 0))
                  end, Rows),
    advance(Durable, atomics:get(Durable, ?FIRST_OPEN), maps:get(size, atomics:info(Durable))).

%% Most numbers are below the first page that isn't durable as a whole: one comparison for them.
advance(Durable, P, Size) when ?PLACE_OF(P) =< Size ->
    case atomics:get(Durable, ?PLACE_OF(P)) of
        ?PLACES -> advance(Durable, P + 1, Size);
        _ -> atomics:put(Durable, ?FIRST_OPEN, P)
    end;
advance(Durable, P, _) ->
    atomics:put(Durable, ?FIRST_OPEN, P).

durable_places() -> persistent_term:get({?MODULE, durable}).

places(<<N, _:N/binary, Rest/binary>>, Places) -> places(Rest, Places + 1);
places(<<>>, Places) -> Places.

%% After a crash the pages are all there, and the index perhaps without the last ids: it is made
%% anew from the pages, those in memory if there are any, otherwise those on disk.
-spec init([]) -> {ok, state()}.
init([]) ->
    ets:info(?PAGES, size) =:= 0 andalso load_pages(),
    ets:info(?PAGES, size) =:= 0 andalso ets:insert(?PAGES, {0, <<0>>}),
    Empty = halley_ids_index:new(?PLACES * ets:info(?PAGES, size)),
    {Index, Last} = ets:foldl(fun({P, Page}, {Index, Last}) ->
                                      {halley_ids_index:add(ids(P * ?PLACES, Page), Index),
                                       max(P, Last)}
                              end, {Empty, 0}, ?PAGES),
    ok = halley_ids_index:publish(Index),
    {ok, #{next => Last * ?PLACES + places(page(Last), 0)}}.

load_pages() ->
    Rows = ets:tab2list(halley_id_page),
    true = ets:insert(?PAGES, [{P, Page} || {_, P, Page} <- Rows]),
    set_durable(Rows).

ids(Number, <<0, Rest/binary>>) -> ids(Number + 1, Rest);
ids(Number, <<N, Id:N/binary, Rest/binary>>) -> [{Id, Number} | ids(Number + 1, Rest)];
ids(_, <<>>) -> [].

-spec handle_call({intern, [id()]}, gen_server:from(), state()) ->
    {reply, ok | {error, too_many_ids}, state()}.
handle_call({intern, Ids}, _From, #{next := Next} = State) ->
    New = new_ids(Ids, #{}, []),
    NewNext = Next + length(New),
    case NewNext - 1 =< ids_max() of
        true ->
            append(New, Next),
            {reply, ok, State#{next := NewNext}};
        false ->
            {reply, {error, too_many_ids}, State}
    end.

-spec handle_cast(term(), state()) -> {noreply, state()}.
handle_cast(_, State) -> {noreply, State}.

new_ids([Id | Ids], Seen, New) ->
    case is_map_key(Id, Seen) orelse lookup(Id) =/= undefined of
        true -> new_ids(Ids, Seen, New);
        false -> new_ids(Ids, Seen#{Id => []}, [Id | New])
    end;
new_ids([], _, New) -> lists:reverse(New).

append([], _) -> ok;
append(Ids, Next) ->
    P = Next div ?PLACES,
    {Here, There} = split_at(?PLACES - Next rem ?PLACES, Ids),
    Page = iolist_to_binary([page(P), [[byte_size(Id), Id] || Id <- Here]]),
    true = ets:insert(?PAGES, {P, Page}),
    ok = halley_ids_index:insert(lists:zip(Here, lists:seq(Next, Next + length(Here) - 1))),
    append(There, Next + length(Here)).

split_at(N, [Id | Ids]) when N > 0 ->
    {Here, There} = split_at(N - 1, Ids),
    {[Id | Here], There};
split_at(_, Ids) ->
    {[], Ids}.
