%% Groups: subjects with so many followers that the workers hold them (link.md 11,
%% docs/internals/celebrities.md).
%%
%% This is the facade for processes that change follows or sessions, and the process that decides
%% which subjects are groups and has them filled.
%%   `changed/1' a user's sessions have changed; `followed/1' follows have changed: both leave marks
%%   where that concerns a group. They are called after the change and before it is answered.
%%
%% A subject is *waiting* until its filling begins: the shard knows nothing of it, and looks its
%% followers up as ever. Then the shard has the group, and a row in `halley_groups_table'.
%%
%% A group begins at `group_followers_min' followers and ends below `group_followers_low'; there are
%% `groups_max' at most. Shards that have looked up a crowd say so (`crowd/2'); a census finds
%% large subjects before their first event. One group is filled at a time, in portions, paced to
%% `group_fill_per_s_max' and to what waits for the links.
%%
%% If this process is killed, the next one fills all groups again; they stay exact meanwhile. If a
%% shard is restarted, its groups are filled again as well; until then it has none.
-module(halley_groups).
-behaviour(gen_server).

-export([new/0, start_link/0]).
-export([changed/1, ended/1, followed/1, crowd/2, shard_started/1]).
-export([members/2, list/0, decide/4, followers/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-type user_number() :: halley_id:user_number().
-type row() :: halley_groups_table:row().

%% A word for each shard: the members of its groups, for metrics.
-define(MEMBERS, {?MODULE, members}).
%% For a user that follows more than this, each group is checked instead.
-define(FOLLOWING_MAX, 512).
%% Followers in a portion: a shard passes them on in a fraction of a millisecond.
-define(PORTION, 1000).
-define(CENSUS_MS, 2000).
-define(FULL_MS, 50).

-record(fill, {subject :: user_number(), filling :: halley_groups_table:filling()}).
-record(state, {
    groups = #{} :: #{user_number() => halley_shards:index()},
    %% Those whose filling has yet to begin, the next one first.
    waiting = [] :: [user_number()],
    %% `full': for want of room.
    fill = none :: none | full | #fill{},
    changes = -1 :: integer()            % of follows, when the last census was taken
}).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    ok = halley_groups_table:new(),
    persistent_term:put(?MEMBERS, atomics:new(halley_shards:count(), [{signed, false}])),
    ok = halley_metrics:gauges([groups, group_members, group_marks], fun gauges/0),
    halley_groups_marks:new().

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% --- for processes that change follows or sessions--------------------------------------------

%% A session of the user has been opened or closed in the directory.
-spec changed(user_number()) -> ok.
changed(User) ->
    ok = halley_presence_dirty:changed(User),
    lists:foreach(fun(Row) -> mark(Row, User, fun pressed/0) end, groups_of(User)).

%% The same for a process that must not wait for a shard: the directory's owner, when a session that
%% is a process has ended.
-spec ended(user_number()) -> ok.
ended(User) ->
    ok = halley_presence_dirty:changed(User),
    lists:foreach(fun(Row) -> mark(Row, User, fun() -> no_wait end) end, groups_of(User)).

-spec groups_of(user_number()) -> [row()].
groups_of(User) ->
    case halley_groups_table:size() of
        0 -> [];
        _ -> groups_of(User, halley_follows_graph:take_following(User, -1, ?FOLLOWING_MAX))
    end.

groups_of(User, Following) when length(Following) < ?FOLLOWING_MAX ->
    lists:flatmap(fun halley_groups_table:lookup/1, [User | Following]);
groups_of(User, _) ->
    [Row || {Subject, _, _} = Row <- halley_groups_table:list(),
            halley_follows_graph:is_follower(User, Subject)].

%% These pairs <<Subject:32, User:32, ...>> were added or removed, in both directions.
-spec followed(halley_pages:packed()) -> ok.
followed(Pairs) ->
    ok = halley_presence_dirty:followed(Pairs),
    case halley_groups_table:size() of
        0 -> ok;
        _ -> followed(Pairs, -1, [])
    end.

followed(<<Subject:32, User:32, Rest/binary>>, Subject, Group) ->
    lists:foreach(fun(Row) -> mark(Row, User, fun pressed/0) end, Group),
    followed(Rest, Subject, Group);
followed(<<Subject:32, _:32, _/binary>> = Pairs, _, _) ->
    followed(Pairs, Subject, halley_groups_table:lookup(Subject));
followed(<<>>, _, _) ->
    ok.

mark({_, Shard, _} = Row, User, Wait) ->
    case halley_groups_table:mark(Row, User) of
        new -> halley_shard:settle(Shard, Wait());
        _ -> ok
    end.

%% Processes that leave marks faster than they are settled wait.
pressed() ->
    case halley_groups_marks:count() > halley_limits:get(group_marks_max) of
        true -> wait;
        false -> no_wait
    end.

%% --- for shards, the store and metrics -----------------------------------------------------------

%% A publish has looked up so many followers.
-spec crowd(Subject :: user_number(), Followers :: non_neg_integer()) -> ok.
crowd(Subject, Followers) ->
    case Followers >= halley_limits:get(group_followers_min) of
        true -> gen_server:cast(?MODULE, {crowd, Subject, Followers});
        false -> ok
    end.

%% A shard was started, and has no groups.
-spec shard_started(halley_shards:index()) -> ok.
shard_started(Shard) ->
    ok = members(Shard, 0),
    gen_server:cast(?MODULE, {shard_started, Shard}).

%% The members of all groups of a shard.
-spec members(halley_shards:index(), non_neg_integer()) -> ok.
members(Shard, Members) ->
    atomics:put(persistent_term:get(?MEMBERS), Shard, Members).

gauges() ->
    Members = persistent_term:get(?MEMBERS),
    #{groups => halley_groups_table:size(), group_marks => halley_groups_marks:count(),
      group_members => lists:sum([atomics:get(Members, Shard)
                                  || Shard <- lists:seq(1, halley_shards:count())])}.

%% The subjects that are groups or are to be, and how far each is filled.
-spec list() -> [{user_number(), filled | filling}].
list() ->
    gen_server:call(?MODULE, list, infinity).

%% What becomes of a subject with so many followers.
-spec decide(IsGroup :: boolean(), Followers :: non_neg_integer(), Groups :: non_neg_integer(),
             #{min := non_neg_integer(), low := non_neg_integer(), groups := non_neg_integer()}) ->
    start | stop | stay.
decide(false, Followers, Groups, #{min := Min, groups := Max})
  when Followers >= Min, Groups < Max -> start;
decide(true, Followers, _, #{min := Min, low := Low})
  when Followers < Low, Followers < Min -> stop;
decide(_, _, _, _) -> stay.

%% --- the owner -----------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    process_flag(priority, low),
    census_later(),
    Groups = maps:from_list([{Subject, Shard}
                             || {Subject, Shard, _} <- halley_groups_table:list()]),
    {ok, again(maps:keys(Groups), #state{groups = Groups})}.

-spec handle_call(list, gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(list, _, #state{groups = Groups, waiting = Waiting, fill = Fill} = State) ->
    Filling = case Fill of #fill{subject = Subject} -> [Subject | Waiting]; _ -> Waiting end,
    {reply, [{Subject, case lists:member(Subject, Filling) of
                           true -> filling;
                           false -> filled
                       end} || Subject <- maps:keys(Groups)], State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({crowd, Subject, Followers}, State) ->
    {noreply, weigh(Subject, Followers, State)};
handle_cast({shard_started, Shard}, #state{groups = Groups} = State) ->
    {noreply, again([Subject || {Subject, S} <- maps:to_list(Groups), S =:= Shard], State)};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({filled, Filling, all}, #state{fill = #fill{filling = Filling}} = State) ->
    {noreply, fill_next(State#state{fill = none})};
handle_info({filled, Filling, UpTo}, #state{fill = #fill{filling = Filling}} = State) ->
    portion_later(Filling, UpTo),
    {noreply, State};
handle_info({portion, Filling, UpTo}, #state{fill = #fill{filling = Filling} = Fill} = State) ->
    portion(UpTo, Fill, State),
    {noreply, State};
handle_info({lost, Subject, Filling}, #state{fill = #fill{filling = Filling}} = State) ->
    {noreply, again([Subject], State)};
handle_info(fill_next, #state{fill = full} = State) ->
    {noreply, fill_next(State#state{fill = none})};
handle_info(census, State) ->
    census_later(),
    {noreply, census(State)};
handle_info(_, State) ->
    {noreply, State}.

portion_later(Filling, UpTo) ->
    _ = erlang:send_after(pause_ms(), self(), {portion, Filling, UpTo}),
    ok.

%% While the links have no room a portion is empty: the shard forgets users that were marked since
%% the last one, since the next one is read later.
portion(UpTo, #fill{subject = Subject, filling = Filling}, #state{groups = Groups}) ->
    {Next, Found} = case links_have_room() of
        true -> followers(Subject, UpTo);
        false -> {UpTo, []}
    end,
    halley_shard:group(map_get(Subject, Groups), {fill, Subject, Filling, self(), Next, Found}).

%% Between two portions, so that they are `group_fill_per_s_max' followers a second.
-spec pause_ms() -> pos_integer().
pause_ms() ->
    max(1, ?PORTION * 1000 div max(1, halley_limits:get(group_fill_per_s_max))).

%% Whether no link has so much waiting that replays pause.
-spec links_have_room() -> boolean().
links_have_room() ->
    Max = halley_limits:get(replay_queue_bytes_max),
    lists:all(fun(#{queue_bytes := Bytes}) -> Bytes < Max end, halley_links:list()).

%% The next followers after this one, those who are online with what the directory says; and up to
%% which user that was.
-spec followers(Subject :: user_number(), After :: -1 | user_number()) ->
    {user_number() | all, [{user_number(), halley_groups_members:found()}]}.
followers(Subject, After) ->
    Users = halley_follows_graph:take_followers(Subject, After, ?PORTION),
    Chunks = halley_directory_atomics:chunks(),
    Found = [{User, Sessions} || User <- Users,
                                 Sessions <- [halley_directory:lookup(Chunks, User)],
                                 Sessions =/= 0],
    case length(Users) of
        ?PORTION -> {lists:last(Users), Found};
        _ -> {all, Found}
    end.

%% Begins groups anew, whatever became of them.
again(Subjects, #state{waiting = Waiting, fill = Fill} = State) ->
    IsAgain = is_record(Fill, fill) andalso lists:member(Fill#fill.subject, Subjects),
    Going = case IsAgain of true -> none; false -> Fill end,
    fill_next(State#state{waiting = (Waiting -- Subjects) ++ Subjects, fill = Going}).

fill_next(#state{fill = none, waiting = [Subject | Waiting], groups = Groups} = State) ->
    case has_room(Subject) of
        true ->
            Filling = erlang:unique_integer([positive, monotonic]),
            Shard = map_get(Subject, Groups),
            ok = halley_shard:group(Shard, {start, {Subject, Shard, Filling}, self()}),
            State#state{fill = #fill{subject = Subject, filling = Filling}, waiting = Waiting};
        false ->
            _ = erlang:send_after(?FULL_MS, self(), fill_next),
            State#state{fill = full}
    end;
fill_next(State) ->
    State.

%% Workers hold no more than `groups_max': they have been told of the end of a group whose row is
%% gone.
has_room(Subject) ->
    halley_groups_table:size() < halley_limits:get(groups_max)
        orelse halley_groups_table:lookup(Subject) =/= [].

%% --- which subjects ------------------------------------------------------------------------------

weigh(Subject, Followers, #state{groups = Groups} = State) ->
    Limits = #{min => halley_limits:get(group_followers_min),
               low => halley_limits:get(group_followers_low),
               groups => halley_limits:get(groups_max)},
    case decide(is_map_key(Subject, Groups), Followers, map_size(Groups), Limits) of
        start -> start(Subject, State);
        stop -> stop(Subject, State);
        stay -> State
    end.

start(Subject, #state{groups = Groups} = State) ->
    Shard = halley_shards:of_subject(halley_ids:name(Subject)),
    again([Subject], State#state{groups = Groups#{Subject => Shard}}).

stop(Subject, #state{groups = Groups, waiting = Waiting, fill = Fill} = State) ->
    {Shard, Others} = maps:take(Subject, Groups),
    ok = halley_shard:group(Shard, {stop, Subject}),
    Left = State#state{groups = Others, waiting = lists:delete(Subject, Waiting)},
    case Fill of
        #fill{subject = Subject} -> fill_next(Left#state{fill = none});
        _ -> Left
    end.

census_later() ->
    _ = erlang:send_after(?CENSUS_MS, self(), census),
    ok.

census(#state{changes = Before, groups = Groups} = State) ->
    case halley_follows:changes() of
        Before ->
            State;
        Now ->
            Subjects = lists:usort(maps:keys(Groups) ++ large()),
            lists:foldl(fun(Subject, S) ->
                weigh(Subject, halley_follows_graph:count_followers(Subject), S)
            end, State#state{changes = Now}, Subjects)
    end.

%% Subjects that may have `group_followers_min' followers, as far as that can be told from how many
%% pages they fill.
-spec large() -> [user_number()].
large() ->
    %% A page of nothing but followers of one subject holds this many.
    PerPage = halley_pages:page_bytes_max() div 4,
    case halley_limits:get(group_followers_min) div PerPage - 1 of
        Fences when Fences < 1 -> [];
        Fences -> halley_follows_graph:spread_followers(Fences)
    end.
