%% User numbers: a dense number for each id, from 1.
%%
%% An id is interned in memory when it logs in or is followed. It becomes durable when a follow
%% refers to it: the owner of the follows writes its id and number with the follow. A number that
%% never became durable is forgotten with the brain, and so is what referred to it.
%%
%% Written here, read by anyone:
%%   halley_ids_pages  from a number to its id, and which are durable
%%   halley_ids_index  from an id's hash to its number; the page says whether it is that id
%% A page is written before its ids are in the index, so a number that is found has its name.
%%
%% A number that nothing refers to is given back (`halley_ids_sweep' finds it), in two steps:
%%   leave/1  The owner of the follows calls it: the number is in no follow, and no session is open
%%            or can be opened (`halley_directory_leaving'). The id is no longer found. The number
%%            keeps its name, for processes that have looked it up before.
%%   free/1   `id_quarantine_ms' later, if no caller wanted it meanwhile: the number is unused, and
%%            the next new id may get it. If it was durable, the journal says so first. A number
%%            that files of the store may name isn't given before these are gone
%%            (`halley_ids_waiting'); most visitors' numbers never are named.
%% In between a process that asks for the id, or still has the number, keeps it (`intern/1' for the
%% id, `keep/1'). So an id never has two numbers, and a number never two ids at a time.
%%
%% Room is kept for users that connect: ids that follows name get no number of the last
%% `ids_for_sessions_percent' of `ids_max'. So follows can't lock out users that open sessions. And
%% follows that users make for themselves end `servers_share_percent' before those of servers.
%%
%% Callers are synchronous, so the bounds on callers bound what waits here.
-module(halley_ids).
-behaviour(gen_server).

-export([start_link/0, new_tables/0]).
-export([lookup/1, intern/1, intern/2, name/1, count/0]).
-export([leave/1, keep/1, due/1, free/1, leaving/0, owner_started/0]).
-export([oldest_file/1, waiting/0, is_pressing/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-include_lib("kernel/include/logger.hrl").

-export_type([id/0, user_number/0, purpose/0]).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().
%% What an id is to be for: a session, or a follow. With a function of how many ids are new, only as
%% many get numbers as it gives; it is called in the one process that numbers ids.
-type purpose() :: session | follow | {follow, fun((New :: pos_integer()) -> non_neg_integer())}.
-record(state, {next :: user_number(),
                %% Below `next', ascending but for those that came back last.
                free :: [user_number()],
                free_count :: non_neg_integer(),
                leaving = #{} :: #{id() => {user_number(), SinceMs :: integer()}},
                %% Of those that are leaving, the oldest first. Kept ones are in it still, and may
                %% have left again since: an entry counts with the time of its leaving.
                order = queue:new() :: queue:queue({SinceMs :: integer(), id(), user_number()}),
                waiting = halley_ids_waiting:new() :: halley_ids_waiting:waiting(),
                is_warned = false :: boolean()}).

%% Percent of `ids_max' from which on the log warns.
-define(WARN_PERCENT, 80).
-define(COUNTS, {?MODULE, counts}).
-define(LEAVING, 1).
-define(WAITING, 2).

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% For the supervisor, which is to own them.
-spec new_tables() -> ok.
new_tables() ->
    ok = halley_ids_index:publish(halley_ids_index:new(0)),
    persistent_term:put(?COUNTS, counters:new(2, [])),
    ok = halley_ids_written:new(ids_max()),
    ok = halley_metrics:gauges([ids, ids_leaving, ids_waiting], fun gauges/0),
    halley_ids_pages:new(ids_max()).

%% Numbers must stay below 2^27, see `halley_pages`.
ids_max() -> min(16#7ffffff, halley_limits:get(ids_max)).

-spec lookup(id()) -> user_number() | undefined.
lookup(Id) -> halley_ids_index:lookup(Id, fun holds/2).

holds(Number, Id) -> halley_ids_pages:id(Number) =:= Id.

%% Numbers for ids, in their order; those that have none get one, all or none.
-spec intern([binary()]) ->
    {ok, [user_number()]} | {error, too_many_ids | {bad_id, term()}}.
intern(Ids) -> intern(Ids, session).

%% The same for a purpose. `refused': one of those beyond what the purpose's function gave.
-spec intern([binary()], purpose()) ->
    {ok, [user_number() | refused]} | {error, too_many_ids | {bad_id, term()}}.
intern(Ids, Purpose) ->
    Found = [{Id, lookup(Id)} || Id <- Ids],
    Missing = [Id || {Id, undefined} <- Found],
    case [Id || Id <- Missing, halley_id:check(Id) =/= ok] of
        [Bad | _] -> {error, {bad_id, Bad}};
        [] when Missing =:= [] -> {ok, [Number || {_, Number} <- Found]};
        [] ->
            case gen_server:call(?MODULE, {intern, Missing, Purpose}, infinity) of
                {ok, New} ->
                    {ok, [case Number of undefined -> maps:get(Id, New, refused); _ -> Number end
                          || {Id, Number} <- Found]};
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

%% --- giving back ---------------------------------------------------------------------------------

%% These numbers leave: `halley_directory_leaving:leave/1' was true for each.
-spec leave([user_number()]) -> ok.
leave([]) -> ok;
leave(Numbers) -> gen_server:call(?MODULE, {leave, Numbers}, infinity).

%% The owner of the follows has been started again. The one before may have died while it let
%% numbers leave: those that haven't left stay, or no session of theirs could be opened any more.
-spec owner_started() -> ok.
owner_started() -> gen_server:call(?MODULE, owner_started, infinity).

%% Somebody has a use for these numbers: none of them leaves. `gone': one of them is nobody's.
-spec keep([user_number()]) -> ok | gone.
keep(Numbers) -> gen_server:call(?MODULE, {keep, Numbers}, infinity).

%% Those that have been leaving for so long, at most so many.
-spec due(Max :: pos_integer()) -> [user_number()].
due(Max) -> gen_server:call(?MODULE, {due, Max}, infinity).

%% These numbers are nobody's, if they are leaving still. The journal knows.
-spec free([user_number()]) -> ok.
free([]) -> ok;
free(Numbers) -> gen_server:call(?MODULE, {free, Numbers}, infinity).

%% How many are leaving.
-spec leaving() -> non_neg_integer().
leaving() -> counters:get(persistent_term:get(?COUNTS), ?LEAVING).

%% A checkpoint succeeded: of the store's files that are left, this is the lowest number.
-spec oldest_file(non_neg_integer()) -> ok.
oldest_file(Number) -> gen_server:cast(?MODULE, {oldest_file, Number}).

%% How many freed numbers can't be given yet.
-spec waiting() -> non_neg_integer().
waiting() -> counters:get(persistent_term:get(?COUNTS), ?WAITING).

%% Whether a checkpoint should be made for these.
-spec is_pressing(Follows :: non_neg_integer()) -> boolean().
is_pressing(Follows) ->
    waiting() > 0 andalso gen_server:call(?MODULE, {is_pressing, Follows}, infinity).

gauges() -> #{ids => count(), ids_leaving => leaving(), ids_waiting => waiting()}.

%% --- the owner -----------------------------------------------------------------------------------

%% After a crash the pages are all there, and the index perhaps without the last ids: it is made
%% anew from the pages. Nothing leaves any more.
-spec init([]) -> {ok, #state{}}.
init([]) ->
    Last = halley_ids_pages:last(),
    {Index, Free} = halley_ids_pages:fold(fun(Ids, Holes, {Index, Free}) ->
        {halley_ids_index:add(Ids, Index), Holes ++ Free}
    end, {halley_ids_index:new(Last), []}),
    ok = halley_ids_index:publish(Index),
    ok = halley_directory_leaving:each(fun halley_directory_leaving:stay/1),
    {Written, Holes} = lists:partition(fun halley_ids_written:is/1, lists:sort(Free -- [0])),
    Waiting = wait(Written, halley_ids_waiting:new()),
    {ok, told(#state{next = Last + 1, free = Holes, free_count = length(Holes),
                     waiting = Waiting})}.

-spec handle_call({intern, [id()], purpose()} | {leave | keep | free, [user_number()]}
                  | owner_started | {due, pos_integer()}
                  | {is_pressing, Follows :: non_neg_integer()},
                  gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({intern, Ids, Purpose}, _, State) ->
    {Unknown, Kept} = kept(Ids, State),
    New = new_ids(Unknown, #{}, []),
    case length(New) =< available(Purpose, Kept) of
        true ->
            Given = given(admitted(New, Purpose), Kept),
            Numbers = maps:from_list([{Id, Number} || Id <- Ids, Number <- [lookup(Id)],
                                                      Number =/= undefined]),
            {reply, {ok, Numbers}, warned(told(Given))};
        false ->
            {reply, {error, too_many_ids}, told(Kept)}
    end;
handle_call({leave, Numbers}, _, #state{leaving = Leaving, order = Order} = State) ->
    NowMs = erlang:monotonic_time(millisecond),
    %% Of a process that was started again since they were asked all have stayed.
    Named = [{binary:copy(Id), N} || N <- Numbers, halley_directory_leaving:is_leaving(N),
                                     Id <- [halley_ids_pages:id(N)], Id =/= <<>>,
                                     not is_map_key(Id, Leaving)],
    ok = halley_ids_index:remove(Named),
    Since = maps:from_list([{Id, {N, NowMs}} || {Id, N} <- Named]),
    Next = State#state{leaving = maps:merge(Leaving, Since),
                       order = lists:foldl(fun({Id, N}, Q) -> queue:in({NowMs, Id, N}, Q) end,
                                           Order, Named)},
    {reply, ok, told(Next)};
handle_call(owner_started, _, #state{leaving = Leaving} = State) ->
    ok = halley_directory_leaving:each(fun(Number) ->
        case maps:get(halley_ids_pages:id(Number), Leaving, none) of
            {Number, _} -> ok;
            _ -> halley_directory_leaving:stay(Number)
        end
    end),
    {reply, ok, State};
handle_call({keep, Numbers}, _, State) ->
    Ids = [{halley_ids_pages:id(N), N} || N <- Numbers],
    case [N || {<<>>, N} <- Ids] of
        [] ->
            {_, Kept} = kept([Id || {Id, _} <- Ids], State),
            {reply, ok, told(Kept)};
        _ ->
            {reply, gone, State}
    end;
handle_call({due, Max}, _, State) ->
    BeforeMs = erlang:monotonic_time(millisecond) - halley_limits:get(id_quarantine_ms),
    {Due, Left} = due(Max, BeforeMs, State),
    {reply, Due, Left};
handle_call({free, Numbers}, _, State) ->
    {Freed, Next} = lists:foldl(fun free_one/2, {[], State}, Numbers),
    {Written, Unwritten} = lists:partition(fun halley_ids_written:is/1, Freed),
    Given = given_back(Unwritten, Next),
    {reply, ok, told(Given#state{waiting = wait(Written, Given#state.waiting)})};
handle_call({is_pressing, Follows}, _, #state{waiting = Waiting} = State) ->
    AgeMs = halley_ids_waiting:age_ms(erlang:monotonic_time(millisecond), Waiting),
    {reply, halley_ids_waiting:is_pressing(
              #{count => halley_ids_waiting:count(Waiting), age_ms => AgeMs,
                available => available(follow, State), ids => count(), ids_max => ids_max(),
                follows => Follows}), State}.

-spec handle_cast({oldest_file, non_neg_integer()}, #state{}) -> {noreply, #state{}}.
handle_cast({oldest_file, Number}, #state{waiting = Waiting} = State) ->
    {Released, Left} = halley_ids_waiting:release(Number, Waiting),
    ok = halley_ids_written:clear(Released),
    {noreply, told(given_back(lists:sort(Released), State#state{waiting = Left}))}.

available(Purpose, #state{next = Next, free_count = Count}) ->
    Count + ids_max(Purpose) - Next + 1.

%% The journal that is written to now, or one after it, has what was said last about these.
wait(Numbers, Waiting) ->
    halley_ids_waiting:add(Numbers, halley_store:journal(), erlang:monotonic_time(millisecond),
                           Waiting).

given_back(Numbers, #state{free = Free, free_count = Count} = State) ->
    State#state{free = Numbers ++ Free, free_count = Count + length(Numbers)}.

%% Ids that were leaving and don't any more, and the others.
kept(Ids, #state{leaving = Leaving} = State) when map_size(Leaving) =:= 0 ->
    {Ids, State};
kept(Ids, #state{leaving = Leaving} = State) ->
    {Staying, Unknown} = lists:partition(fun(Id) -> is_map_key(Id, Leaving) end, Ids),
    Named = [{Id, Number} || {Id, {Number, _}} <- maps:to_list(maps:with(Staying, Leaving))],
    ok = halley_ids_index:insert(Named),
    lists:foreach(fun({_, Number}) -> ok = halley_directory_leaving:stay(Number) end, Named),
    {Unknown, State#state{leaving = maps:without(Staying, Leaving)}}.

%% They are handed out again later, until they are freed or kept: the caller may have failed.
due(Max, BeforeMs, State) ->
    {Due, #state{order = Order, leaving = Leaving} = Left} = due(Max, BeforeMs, State, []),
    NowMs = erlang:monotonic_time(millisecond),
    Again = lists:foldr(fun({Id, Number}, Q) -> queue:in({NowMs, Id, Number}, Q) end, Order, Due),
    Since = maps:from_list([{Id, {Number, NowMs}} || {Id, Number} <- Due]),
    {[Number || {_, Number} <- Due],
     Left#state{order = Again, leaving = maps:merge(Leaving, Since)}}.

due(0, _, State, Due) ->
    {Due, State};
due(Max, BeforeMs, #state{order = Order, leaving = Leaving} = State, Due) ->
    case queue:peek(Order) of
        {value, {SinceMs, Id, Number}} when SinceMs =< BeforeMs ->
            Rest = State#state{order = queue:drop(Order)},
            case Leaving of
                #{Id := {Number, SinceMs}} -> due(Max - 1, BeforeMs, Rest, [{Id, Number} | Due]);
                #{} -> due(Max, BeforeMs, Rest, Due)
            end;
        _ ->
            {Due, State}
    end.

free_one(Number, {Freed, #state{leaving = Leaving} = State}) ->
    Id = halley_ids_pages:id(Number),
    case Leaving of
        #{Id := {Number, _}} ->
            ok = halley_ids_pages:clear([Number]),
            ok = halley_directory_leaving:stay(Number),
            {[Number | Freed], State#state{leaving = maps:remove(Id, Leaving)}};
        #{} ->
            {Freed, State}
    end.

ids_max(session) ->
    ids_max();
ids_max(follow) ->
    ids_max() - for_sessions();
ids_max({follow, _}) ->
    max(0, halley_limits:of_users(ids_max()) - for_sessions()).

for_sessions() -> ids_max() * min(100, halley_limits:get(ids_for_sessions_percent)) div 100.

admitted([_ | _] = New, {follow, Admit}) -> lists:sublist(New, Admit(length(New)));
admitted(New, _) -> New.

new_ids([Id | Ids], Seen, New) ->
    case is_map_key(Id, Seen) orelse lookup(Id) =/= undefined of
        true -> new_ids(Ids, Seen, New);
        false -> new_ids(Ids, Seen#{Id => []}, [Id | New])
    end;
new_ids([], _, New) -> lists:reverse(New).

given([], State) ->
    State;
given(Ids, #state{next = Next, free = Free, free_count = Count} = State) ->
    Wanted = length(Ids),
    {Again, Left} = lists:split(min(Wanted, Count), Free),
    Fresh = Wanted - length(Again),
    Numbers = lists:sort(Again) ++ lists:seq(Next, Next + Fresh - 1),
    Named = lists:zip(Ids, Numbers),
    ok = halley_ids_pages:set([{Number, Id} || {Id, Number} <- Named]),
    ok = halley_ids_index:insert(Named),
    State#state{next = Next + Fresh, free = Left, free_count = Count - length(Again)}.

told(#state{leaving = Leaving, waiting = Waiting} = State) ->
    Counts = persistent_term:get(?COUNTS),
    ok = counters:put(Counts, ?LEAVING, map_size(Leaving)),
    ok = counters:put(Counts, ?WAITING, halley_ids_waiting:count(Waiting)),
    State.

warned(#state{is_warned = IsWarned} = State) ->
    case 100 * count() >= ?WARN_PERCENT * ids_max() of
        true when not IsWarned ->
            ?LOG_WARNING("~b of ids_max = ~b ids are in use; follows that name new ids are refused "
                         "from ~b on, new users beyond ids_max",
                         [count(), ids_max(), ids_max(follow)]),
            State#state{is_warned = true};
        IsMany ->
            State#state{is_warned = IsMany}
    end.
