%% User numbers: a dense number for each id, from 1.
%%
%% An id is interned in memory when it logs in or is followed. It becomes durable when a follow
%% refers to it: the owner of the follows writes whose number it is with the follow. A number that
%% never became durable is forgotten with the brain, and so is what referred to it.
%%
%% Written here, read by anyone:
%%   halley_ids_pages  from a number to its id, and which are durable
%%   halley_ids_index  from an id's hash to its number; the page says whether it is that id
%% A page is written before its ids are in the index, so whoever finds a number finds its name.
%%
%% Callers are synchronous, so what waits here is bounded by what the callers are bounded by.
-module(halley_ids).
-behaviour(gen_server).

-export([start_link/0, new_tables/0]).
-export([lookup/1, intern/1, name/1, count/0]).
-export([init/1, handle_call/3, handle_cast/2]).

-export_type([id/0, user_number/0]).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().
-type state() :: #{next := user_number()}.

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% For the supervisor, which is to own them.
-spec new_tables() -> ok.
new_tables() ->
    ok = halley_ids_index:publish(halley_ids_index:new(0)),
    halley_ids_pages:new(ids_max()).

%% Numbers must stay below 2^27, see `halley_pages`.
ids_max() -> min(16#7ffffff, halley_limits:get(ids_max)).

-spec lookup(id()) -> user_number() | undefined.
lookup(Id) -> halley_ids_index:lookup(Id, fun holds/2).

holds(Number, Id) -> halley_ids_pages:id(Number) =:= Id.

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
    case halley_ids_pages:id(Number) of
        <<>> -> error({no_such_user_number, Number});
        Id -> binary:copy(Id)
    end.

-spec count() -> non_neg_integer().
count() -> halley_ids_index:count().

%% After a crash the pages are all there, and the index perhaps without the last ids: it is made
%% anew from the pages.
-spec init([]) -> {ok, state()}.
init([]) ->
    Last = halley_ids_pages:last(),
    Index = halley_ids_pages:fold(fun halley_ids_index:add/2, halley_ids_index:new(Last)),
    ok = halley_ids_index:publish(Index),
    {ok, #{next => Last + 1}}.

-spec handle_call({intern, [id()]}, gen_server:from(), state()) ->
    {reply, ok | {error, too_many_ids}, state()}.
handle_call({intern, Ids}, _From, #{next := Next} = State) ->
    New = new_ids(Ids, #{}, []),
    NewNext = Next + length(New),
    case NewNext - 1 =< ids_max() of
        true ->
            ok = append(New, Next),
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

append(Ids, Next) ->
    Numbers = lists:seq(Next, Next + length(Ids) - 1),
    ok = halley_ids_pages:set(lists:zip(Numbers, Ids)),
    halley_ids_index:insert(lists:zip(Ids, Numbers)).
