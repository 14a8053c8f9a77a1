%% This brain as a member of a cluster: the process around the pure core (`halley_cluster_core').
%%
%% It takes the drafts of all shards (`halley_order') and changes of follows
%% (`halley_cluster_follows'), gathers those that wait into one proposal, and has the core place it
%% in the log. Of a row that the core applies the graph gets the changes first, then the shards the
%% events, and answer with each event's result. Once the core says that a proposal is safe, its
%% callers get the results.
%%
%% It executes the core's effects and reports what comes of them, and decides nothing itself. Calls
%% of the engine are made by processes of their own (`halley_cluster_caller'), links to the other
%% brains by `halley_cluster_links'.
%%
%% Invariants: a publisher gets one answer, as the core answers each proposal once. Rows go to the
%% shards in the order of the log, from here alone.
%%
%% It begins with an empty history, at the place that `halley_cluster_joining' has found. When the
%% log goes on under another store id, the history adopts that, and sessions stay.
%%
%% It ends, and with it the brain's membership, where to go on would be wrong: a shard has died with
%% rows that it alone had; the log has lost rows that this brain has, or no longer has its next one;
%% the history can't adopt a store; there is no room for follows that other brains have. The brain
%% that is started then needs empty data.
%%
%% Not here: users that are forgotten, and keys, which aren't records yet. A brain that joins gets
%% only those follows and kept values that are in the rows that it reads
%% (docs/internals/cluster.md).
-module(halley_cluster_brain).
-behaviour(gen_server).

-export([start_link/1, names/0, change/1, info/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([settings/0]).

%% `name': of this brain's node, and by which the others know it. `address': where they reach it.
-type settings() :: #{name := binary(), address := binary(),
                      engine := {module(), halley_log_engine:settings()},
                      joining := halley_cluster_joining:place()}.

-define(TICK_MS, 25).
%% Drafts of a proposal; one publisher's batch may go beyond it.
-define(GATHERED, 256).
%% Of this release, in the table of brains.
-define(VERSION, 1).
%% Where the configuration has none.
-define(RETENTION_MS, 600000).
%% So much sooner than its publisher gives up an event has its answer, which says more.
-define(BEFORE_PUBLISHER_MS, 500).

-type job() :: {call, gen_server:from(), [halley_shard:draft()]}
             | {posts, Publisher :: pid(), [halley_shard:post()]}
             | {change, gen_server:from(), [change()]}.
-type change() :: {follow | unfollow, User :: halley_id:id(), Subject :: halley_id:id()}.
-type place() :: halley_cursor:seq() | {known, halley_event:id()}.

-record(state, {
    settings :: settings(),
    boot :: <<_:64>>,
    core :: halley_cluster_state:core(),
    callers = #{} :: #{halley_cluster_handle:name() => pid()},
    next = 1 :: pos_integer(),
    %% Proposals whose fate the core hasn't told yet.
    open = #{} :: #{pos_integer() => [job()]},
    %% Those that are safe and wait for results of shards.
    waiting = #{} :: #{pos_integer() => {[job()], [place()], Missing :: non_neg_integer()}},
    wanted = #{} :: #{halley_cursor:seq() => pos_integer()},
    results = #{} :: #{halley_cursor:seq() => halley_shard:posted() | changed | same},
    %% Chosen ids of rows that the history may not have indexed yet.
    recent = #{} :: #{halley_event:id() => halley_cursor:seq()}
}).

-spec start_link(settings()) -> gen_server:start_ret().
start_link(Settings) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Settings,
                          [{spawn_opt, [{message_queue_data, off_heap}]}]).

%% What `halley_order' is to have in the environment of `halley'.
-spec names() -> tuple().
names() ->
    list_to_tuple([?MODULE || _ <- lists:seq(1, halley_shards:count())]).

%% Places these changes in the log, and returns when this brain has applied them. `overloaded':
%% nothing was done. `unavailable': it isn't known.
-spec change([change()]) -> {ok, [changed | same]} | {error, overloaded | unavailable}.
change([]) ->
    {ok, []};
change(Changes) ->
    try gen_server:call(?MODULE, {change, Changes}, halley_limits:get(publish_ms_max))
    catch exit:_ -> {error, unavailable}
    end.

%% For metrics and tests (`halley_cluster_core:info/1').
-spec info() -> #{atom() => term()}.
info() ->
    gen_server:call(?MODULE, info).

-spec init(settings()) -> {ok, #state{}}.
init(#{name := Name, joining := Place} = Settings) ->
    #{store := Store, head := Head, epoch := Epoch} = Place,
    case {halley_history:is_empty(), halley_history:store(), halley_history:floor()} of
        {true, Store, Head} -> ok;
        Other -> exit({data_not_empty, Place, Other})
    end,
    Boot = crypto:strong_rand_bytes(8),
    RetentionMs = application:get_env(halley, history_retention_ms, ?RETENTION_MS),
    Core = halley_cluster_core:new(#{name => Name, boot => Boot, head => Head, epoch => Epoch,
                                     graph => 0, bounds => bounds(RetentionMs)}),
    _ = [ok = halley_shard:taken(Shard, halley_shard:waiting(Shard)) || Shard <- shards()],
    _ = [monitor(process, halley_shard:name(Shard)) || Shard <- shards()],
    %% Their heads are where the history begins, before there is a row.
    ok = committed(Head, halley_clock:wall_ms(), #{}),
    self() ! tick,
    {ok, #state{settings = Settings, boot = Boot, core = Core}}.

bounds(RetentionMs) ->
    AnswerMs = halley_limits:get(publish_ms_max) - ?BEFORE_PUBLISHER_MS,
    #{retention_ms => RetentionMs, answer_ms_max => max(1, AnswerMs)}.

-spec handle_call(info | {publish, halley_shard:ack(), [halley_shard:draft()]}
                  | {change, [change()]}, gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(info, _, State = #state{core = Core}) ->
    {reply, halley_cluster_core:info(Core), State};
handle_call({publish, _, Drafts}, From, State) ->
    {noreply, propose([{call, From, Drafts} | gather(?GATHERED - length(Drafts))], State)};
handle_call({change, Changes}, From, State) ->
    {noreply, propose([{change, From, Changes} | gather(?GATHERED - length(Changes))], State)}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({posts, Publisher, Posts}, State) ->
    Job = {posts, Publisher, Posts},
    {noreply, propose([Job | gather(?GATHERED - length(Posts))], State)};
handle_info({posted, Results}, State) ->
    {noreply, lists:foldl(fun result/2, State, Results)};
handle_info({result, Ref, Result}, State) ->
    {noreply, event({result, Ref, Result}, State)};
handle_info({cluster, Brain, Message}, State) ->
    {noreply, event({message, Brain, Message}, State)};
handle_info({link, Brain, Up}, State) ->
    {noreply, event({link, Brain, Up}, State)};
handle_info({claimed, Token, Ids}, State) ->
    {noreply, event({claimed, Token, Ids}, State)};
handle_info(tick, State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    {noreply, event(tick, unowed(forget_indexed(State)))};
handle_info({'DOWN', _, process, {Shard, _}, _}, State) ->
    {stop, {shard_died, Shard}, State};
handle_info(_, State) ->
    {noreply, State}.

%% --- publishers ----------------------------------------------------------------------------------

gather(Room) when Room > 0 ->
    receive
        {posts, Publisher, Posts} ->
            [{posts, Publisher, Posts} | gather(Room - length(Posts))];
        {'$gen_call', From, {publish, _, Drafts}} ->
            [{call, From, Drafts} | gather(Room - length(Drafts))];
        {'$gen_call', From, {change, Changes}} ->
            [{change, From, Changes} | gather(Room - length(Changes))]
    after 0 ->
        []
    end;
gather(_) ->
    [].

propose(Jobs, State = #state{next = Ref, open = Open}) ->
    lists:foreach(fun taken/1, Jobs),
    Proposal = halley_cluster_records:proposal(lists:append([records(Job) || Job <- Jobs])),
    event({propose, Ref, Proposal}, State#state{next = Ref + 1, open = Open#{Ref => Jobs}}).

%% A publisher's drafts are all of one shard.
taken({change, _, _}) ->
    ok;
taken(Job) ->
    [{event, Draft} | _] = Records = records(Job),
    halley_shard:taken(halley_cluster_rows:shard(Draft), length(Records)).

records({call, _, Drafts}) -> [{event, Draft} || Draft <- Drafts];
records({posts, _, Posts}) -> [{event, Draft} || {_, _, Draft} <- Posts];
records({change, _, Changes}) -> Changes.

result({Seq, Result}, State = #state{results = Results, wanted = Wanted}) ->
    Kept = State#state{results = Results#{Seq => Result}},
    case maps:take(Seq, Wanted) of
        {Ref, Left} -> one_less(Ref, Kept#state{wanted = Left});
        error -> Kept
    end.

one_less(Ref, State = #state{waiting = Waiting}) ->
    #{Ref := {Jobs, Places, Missing}} = Waiting,
    case Missing of
        1 -> reply(Jobs, Places, State#state{waiting = maps:remove(Ref, Waiting)});
        _ -> State#state{waiting = Waiting#{Ref := {Jobs, Places, Missing - 1}}}
    end.

answer(Ref, {ok, #{before := Before, records := Records}}, State = #state{open = Open}) ->
    {Jobs, Left} = maps:take(Ref, Open),
    Places = halley_cluster_rows:own(Before, Records),
    #state{results = Results, wanted = Wanted, waiting = Waiting} = State,
    case [Seq || Seq <- Places, is_integer(Seq), not is_map_key(Seq, Results)] of
        [] ->
            reply(Jobs, Places, State#state{open = Left});
        Missing ->
            State#state{open = Left, waiting = Waiting#{Ref => {Jobs, Places, length(Missing)}},
                        wanted = maps:merge(Wanted, maps:from_keys(Missing, Ref))}
    end;
answer(Ref, {error, {Why, _}}, State = #state{open = Open}) ->
    {Jobs, Left} = maps:take(Ref, Open),
    Error = case Why of log_unknown -> unavailable; _ -> overloaded end,
    lists:foreach(fun(Job) -> refuse(Job, {error, Error}) end, Jobs),
    State#state{open = Left}.

refuse({call, From, _}, Error) ->
    gen_server:reply(From, Error);
refuse({change, From, _}, Error) ->
    gen_server:reply(From, Error);
refuse({posts, Publisher, Posts}, Error) ->
    Publisher ! {posted, [{Tag, Error} || {Tag, _, _} <- Posts]},
    ok.

reply(Jobs, Places, State = #state{results = Results}) ->
    All = [found(Place, Results) || Place <- Places],
    [] = lists:foldl(fun give/2, All, Jobs),
    State#state{results = maps:without([Seq || Seq <- Places, is_integer(Seq)], Results)}.

%% A proposal whose time was over may be in the log all the same: no publisher waits for its
%% results. The core has answered all proposals up to what is safe. So of the results up to there,
%% those stay that an answered proposal still waits for.
unowed(State = #state{results = Results}) when map_size(Results) =:= 0 ->
    State;
unowed(State = #state{core = Core, results = Results, waiting = Waiting}) ->
    #{safe := Safe} = halley_cluster_core:info(Core),
    Owed = maps:from_keys(lists:append([Places || {_, Places, _} <- maps:values(Waiting)]), owed),
    State#state{results = maps:filter(fun(Seq, _) -> Seq > Safe orelse is_map_key(Seq, Owed) end,
                                      Results)}.

found({known, Id}, _) -> {ok, #{id => Id, sessions => 0}};
found(Seq, Results) -> map_get(Seq, Results).

give({call, From, Drafts}, Results) ->
    {Mine, Rest} = lists:split(length(Drafts), Results),
    gen_server:reply(From, {ok, [Result || {ok, Result} <- Mine]}),
    Rest;
give({change, From, Changes}, Results) ->
    {Mine, Rest} = lists:split(length(Changes), Results),
    gen_server:reply(From, {ok, Mine}),
    Rest;
give({posts, Publisher, Posts}, Results) ->
    {Mine, Rest} = lists:split(length(Posts), Results),
    Publisher ! {posted, [{Tag, Result} || {{Tag, _, _}, Result} <- lists:zip(Posts, Mine)]},
    Rest.

%% --- the core ------------------------------------------------------------------------------------

event(Event, State = #state{core = Core}) ->
    {Next, Effects} = halley_cluster_core:handle({erlang:monotonic_time(millisecond), Event}, Core),
    lists:foldl(fun effect/2, State#state{core = Next}, Effects).

effect({call, {Name, _} = Ref, Request}, State) ->
    {Caller, Called} = caller(Name, State),
    ok = halley_cluster_caller:call(Caller, Ref, with_brain(Request, Called)),
    Called;
effect({close, Name}, State = #state{callers = Callers}) ->
    {Caller, Left} = maps:take(Name, Callers),
    ok = halley_cluster_caller:close(Caller),
    State#state{callers = Left};
effect({apply, #{prev := Prev, last := Last, at := At}, _, Portions, _}, State) ->
    #state{boot = Boot} = State,
    IsOwn = fun(<<Own:8/binary, _/binary>>) -> Own =:= Boot end,
    Changed = changed(Prev, At, halley_cluster_rows:changes(Prev, Portions, IsOwn), State),
    ok = committed(Last, At, halley_cluster_rows:placed(Prev, Portions, IsOwn)),
    Changed#state{recent = maps:merge(State#state.recent,
                                      halley_cluster_rows:chosen(Prev, Portions))};
effect({answer, Ref, Answer}, State) ->
    answer(Ref, Answer, State);
effect({send, Brain, Message}, State = #state{settings = #{name := Name}}) ->
    ok = halley_cluster_links:send(Brain, {cluster, Name, Message}),
    State;
effect({claim, Token, Ids}, State = #state{recent = Recent}) ->
    self() ! {claimed, Token, [Id || Id <- Ids, is_map_key(Id, Recent)
                                         orelse halley_history:find(Id) =/= none]},
    State;
effect({members, Brains, _}, State) ->
    ok = halley_cluster_links:members(Brains),
    State;
effect({epoch, #{store := Store, 'after' := After}}, State) ->
    case halley_order:adopt(Store, After) of
        ok -> State;
        {error, Reason} -> exit({store_not_adopted, Reason})
    end;
effect({wipe, Why}, _) ->
    exit({copy_needed, Why});
effect(Effect, State) when element(1, Effect) =:= load; element(1, Effect) =:= role;
                           element(1, Effect) =:= mode; element(1, Effect) =:= readiness ->
    State.

%% Before the row's events: those that were published after the answer find the follow.
changed(_, _, [], State) ->
    State;
changed(Prev, At, Changes, State) ->
    case halley_follows_applied:change(Prev, At, [Change || {_, Change} <- Changes]) of
        {ok, Results} ->
            Own = [{Seq, Result} || {{true, {_, Seq, _}}, Result} <- lists:zip(Changes, Results)],
            lists:foldl(fun result/2, State, Own);
        {error, Reason} ->
            exit({follows_not_applied, Reason})
    end.

committed(Last, At, ByShard) ->
    lists:foreach(fun(Shard) ->
        ok = halley_order:committed(Shard, Last, At, self(), maps:get(Shard, ByShard, []))
    end, shards()).

shards() -> lists:seq(1, halley_shards:count()).

caller(Name, State = #state{callers = Callers, settings = #{engine := Engine}}) ->
    case Callers of
        #{Name := Caller} ->
            {Caller, State};
        #{} ->
            Caller = halley_cluster_caller:start_link(Engine),
            {Caller, State#state{callers = Callers#{Name => Caller}}}
    end.

with_brain({brains, Head}, #state{settings = #{name := Name, address := Address}}) ->
    {brains, #{name => Name, address => Address, version => ?VERSION, head => Head,
               seen => halley_clock:wall_ms()}};
with_brain(Request, _) ->
    Request.

%% What the history has indexed it finds itself.
forget_indexed(State = #state{recent = Recent}) when map_size(Recent) =:= 0 ->
    State;
forget_indexed(State = #state{recent = Recent}) ->
    Indexed = lists:min(tuple_to_list(halley_history:written())),
    State#state{recent = maps:filter(fun(_, Seq) -> Seq > Indexed end, Recent)}.
