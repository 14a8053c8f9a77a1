%% Groups: subjects with so many followers that the workers hold them (link.md 11,
%% docs/internals/celebrities.md).
%%
%% This is the facade for whoever changes the truth, and the process that decides which subjects
%% are groups and has them filled.
%%   `changed/1' a user's sessions have changed; `followed/1' follows have changed: both leave marks
%%   where that concerns a group. They are called behind the change and before it is answered.
%%
%% The table of groups is an ETS set {subject, shard}, written here alone and kept by the
%% supervisor. A subject is in the table before its filling begins, so who changes the truth
%% without seeing it there is found by the filling.
%%
%% A group begins at `group_followers_min' followers and ends below `group_followers_low'; there are
%% `groups_max' at most. Shards that have looked up a crowd say so (`crowd/2'); a census finds
%% large subjects before their first event. One group is filled at a time, in portions, paced to
%% `group_fill_per_s_max' and to what waits for the links.
%%
%% If this process is killed, the next one begins all groups again; so it does for a shard's groups
%% when the shard was restarted, and for all when follows were read anew (`refresh/0').
-module(halley_groups).
-behaviour(gen_server).

-export([new/0, start_link/0]).
-export([changed/1, followed/1, crowd/2, refresh/0, shard_started/1]).
-export([members/2, info/0, list/0, decide/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-type user_number() :: halley_id:user_number().

-define(TABLE, ?MODULE).
%% A word for each shard: the members of its groups, for metrics.
-define(MEMBERS, {?MODULE, members}).
%% Who follows more than this is asked for each group instead.
-define(FOLLOWING_MAX, 512).
-define(CENSUS_MS, 2000).
-define(FULL_MS, 50).

-record(fill, {subject :: user_number(), ref :: reference()}).
-record(state, {
    refs = #{} :: #{user_number() => reference()},
    %% Not filled yet, the next one first, without the one that is being filled.
    waiting = [] :: [user_number()],
    fill = none :: none | #fill{},
    follows = -1 :: integer()            % when the last census was taken
}).

%% Makes the tables. The caller, a supervisor, owns them.
-spec new() -> ok.
new() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    persistent_term:put(?MEMBERS, atomics:new(halley_shard:count(), [{signed, false}])),
    halley_groups_marks:new().

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% --- for whoever changes the truth ---------------------------------------------------------------

%% A session of the user has been opened or closed in the directory.
-spec changed(user_number()) -> ok.
changed(User) ->
    case any() of
        false -> ok;
        true -> lists:foreach(fun(Group) -> mark(Group, User) end, groups_of(User))
    end.

%% The store works without the rest of the brain as well, and then there is no table.
any() ->
    case ets:info(?TABLE, size) of
        undefined -> false;
        Groups -> Groups > 0
    end.

groups_of(User) ->
    Following = halley_pages_table:take(halley_following, User, -1, ?FOLLOWING_MAX),
    Own = ets:lookup(?TABLE, User),
    case length(Following) < ?FOLLOWING_MAX of
        true -> lists:foldl(fun(Subject, Groups) -> ets:lookup(?TABLE, Subject) ++ Groups end,
                            Own, Following);
        false -> [Group || {Subject, _} = Group <- ets:tab2list(?TABLE),
                           halley_follows:is_follower(User, Subject)]
    end.

%% These pairs <<Subject:32, User:32, ...>> were added or removed, in both directions.
-spec followed(halley_pages:packed()) -> ok.
followed(Pairs) ->
    case any() of
        false -> ok;
        true -> followed(Pairs, -1, [])
    end.

followed(<<Subject:32, User:32, Rest/binary>>, Subject, Group) ->
    lists:foreach(fun(Row) -> mark(Row, User) end, Group),
    followed(Rest, Subject, Group);
followed(<<Subject:32, _:32, _/binary>> = Pairs, _, _) ->
    followed(Pairs, Subject, ets:lookup(?TABLE, Subject));
followed(<<>>, _, _) ->
    ok.

mark({Subject, Shard}, User) ->
    case halley_groups_marks:leave(Subject, User) of
        new -> halley_shard:settle(Shard, pressed());
        there -> ok
    end.

%% Those who leave marks faster than they are settled wait.
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

%% The tables of the follows were filled anew: groups may have missed changes.
-spec refresh() -> ok.
refresh() ->
    gen_server:cast(?MODULE, refresh).

%% A shard was started, and has no groups.
-spec shard_started(halley_shard:index()) -> ok.
shard_started(Shard) ->
    ok = members(Shard, 0),
    gen_server:cast(?MODULE, {shard_started, Shard}).

%% The members of all groups of a shard.
-spec members(halley_shard:index(), non_neg_integer()) -> ok.
members(Shard, Members) ->
    atomics:put(persistent_term:get(?MEMBERS), Shard, Members).

-spec info() -> #{groups := non_neg_integer(), members := non_neg_integer(),
                  marks := non_neg_integer()}.
info() ->
    Members = persistent_term:get(?MEMBERS),
    #{groups => ets:info(?TABLE, size), marks => halley_groups_marks:count(),
      members => lists:sum([atomics:get(Members, Shard)
                            || Shard <- lists:seq(1, halley_shard:count())])}.

%% The subjects that are groups, and how far each is filled.
-spec list() -> [{user_number(), filled | filling}].
list() ->
    gen_server:call(?MODULE, list).

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
    {ok, again([Subject || {Subject, _} <- ets:tab2list(?TABLE)], #state{})}.

-spec handle_call(list, gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(list, _, #state{refs = Refs, waiting = Waiting, fill = Fill} = State) ->
    Filling = case Fill of none -> Waiting; #fill{subject = Subject} -> [Subject | Waiting] end,
    {reply, [{Subject, case lists:member(Subject, Filling) of
                           true -> filling;
                           false -> filled
                       end} || Subject <- maps:keys(Refs)], State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({crowd, Subject, Followers}, State) ->
    {noreply, weigh(Subject, Followers, State)};
handle_cast(refresh, #state{refs = Refs} = State) ->
    {noreply, again(maps:keys(Refs), State)};
handle_cast({shard_started, Shard}, State) ->
    {noreply, again([Subject || {Subject, S} <- ets:tab2list(?TABLE), S =:= Shard], State)};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({filled, Subject, Ref, all}, #state{fill = #fill{subject = Subject, ref = Ref}} = S) ->
    {noreply, fill_next(S#state{fill = none})};
handle_info({filled, Subject, Ref, UpTo}, #state{fill = #fill{subject = Subject, ref = Ref}} = S) ->
    portion_later(Ref, UpTo, halley_groups_fill:pause_ms()),
    {noreply, S};
handle_info({portion, Ref, UpTo}, #state{fill = #fill{ref = Ref} = Fill} = State) ->
    {noreply, portion(UpTo, Fill, State)};
handle_info({lost, Subject, Ref}, #state{fill = #fill{ref = Ref}} = State) ->
    {noreply, again([Subject], State)};
handle_info(census, State) ->
    census_later(),
    {noreply, census(State)};
handle_info(_, State) ->
    {noreply, State}.

portion(UpTo, #fill{subject = Subject, ref = Ref}, State) ->
    case halley_groups_fill:links_have_room() of
        true ->
            {Next, Found} = halley_groups_fill:portion(Subject, UpTo),
            ask(Subject, {fill, Subject, Ref, self(), Next, Found});
        false ->
            portion_later(Ref, UpTo, ?FULL_MS)
    end,
    State.

portion_later(Ref, UpTo, Ms) ->
    _ = erlang:send_after(Ms, self(), {portion, Ref, UpTo}),
    ok.

ask(Subject, Request) ->
    case ets:lookup(?TABLE, Subject) of
        [{_, Shard}] -> halley_shard:group(Shard, Request);
        [] -> ok
    end.

%% Begins groups anew, whatever became of them.
again(Subjects, #state{waiting = Waiting, fill = Fill, refs = Refs} = State) ->
    Stopped = case Fill of
                  #fill{subject = Subject} ->
                      case lists:member(Subject, Subjects) of true -> none; false -> Fill end;
                  none ->
                      none
              end,
    Known = maps:merge(Refs, maps:from_keys(Subjects, make_ref())),
    fill_next(State#state{waiting = (Waiting -- Subjects) ++ Subjects, fill = Stopped,
                          refs = Known}).

fill_next(#state{fill = none, waiting = [Subject | Waiting], refs = Refs} = State) ->
    Ref = make_ref(),
    ok = ask(Subject, {start, Subject, Ref, self()}),
    State#state{fill = #fill{subject = Subject, ref = Ref}, waiting = Waiting,
                refs = Refs#{Subject => Ref}};
fill_next(State) ->
    State.

%% --- which subjects ------------------------------------------------------------------------------

weigh(Subject, Followers, #state{refs = Refs} = State) ->
    Limits = #{min => halley_limits:get(group_followers_min),
               low => halley_limits:get(group_followers_low),
               groups => halley_limits:get(groups_max)},
    case decide(is_map_key(Subject, Refs), Followers, map_size(Refs), Limits) of
        start -> start(Subject, State);
        stop -> stop(Subject, State);
        stay -> State
    end.

start(Subject, State) ->
    Shard = halley_shard:of_subject(halley_ids:name(Subject)),
    true = ets:insert(?TABLE, {Subject, Shard}),
    again([Subject], State).

stop(Subject, #state{refs = Refs, waiting = Waiting, fill = Fill} = State) ->
    ok = ask(Subject, {stop, Subject}),
    true = ets:delete(?TABLE, Subject),
    Left = State#state{refs = maps:remove(Subject, Refs), waiting = lists:delete(Subject, Waiting)},
    case Fill of
        #fill{subject = Subject} -> fill_next(Left#state{fill = none});
        _ -> Left
    end.

census_later() ->
    _ = erlang:send_after(?CENSUS_MS, self(), census),
    ok.

census(#state{follows = Before, refs = Refs} = State) ->
    case halley_follows:count() of
        Before ->
            State;
        Now ->
            Subjects = lists:usort(maps:keys(Refs) ++ halley_groups_fill:large()),
            lists:foldl(fun(Subject, S) ->
                weigh(Subject, halley_pages_table:count(halley_followers, Subject), S)
            end, State#state{follows = Now}, Subjects)
    end.
