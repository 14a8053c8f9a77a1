%% Events that one process publishes without waiting for each: the process posts them, goes on, and
%% gets their answers as messages, many in one.
%%
%% A posted event (`post/3') is checked as `halley_router' checks it, gathered, and sent to the
%% shards by `send/1', one message each. Messages that come for it:
%%   {posted, Answers}                  from a shard or the log: `answered/2'
%%   {'DOWN', Monitor, process, _, _}   a shard, or what orders its events, has died: `down/2'
%%   {timeout, Timer, posts}            a publisher waits for too long: `late/2'
%% Each gives what the process itself keeps with a post (`Mine'), and the result.
%%
%% Invariants: each post gets one result, unless it is forgotten; it counts until its answer came,
%% its shard died, or `publish_ms_max' is over, also if it is forgotten. There is one timer for all.
%%
%% Held in the state of the process; every function takes it and gives it back.
-module(halley_posts).

-export([new/0, post/3, send/1, answered/2, down/2, late/2, forget/2, count/1]).
-export_type([posts/0, tag/0, result/0]).

-type tag() :: pos_integer().
-type mine() :: term().
%% `busy': someone else is publishing the id; `halley_router:publish/3' waits for that answer.
-type result() :: halley_router:result() | busy.

-record(posts, {
    next = 1 :: tag(),
    %% Not sent yet, the latest first.
    gathered = #{} :: #{halley_shards:index() => [halley_shard:post()]},
    shards = #{} :: #{halley_shards:index() => {pid() | undefined, Monitor :: reference()}},
    waiting = #{} :: #{tag() => {halley_shards:index(), DueMs :: integer(), mine() | forgotten}},
    timer = none :: none | reference()
}).
-opaque posts() :: #posts{}.

-spec new() -> posts().
new() ->
    #posts{}.

%% How many wait for their answers.
-spec count(posts()) -> non_neg_integer().
count(#posts{waiting = Waiting}) ->
    map_size(Waiting).

%% An error means that nothing was accepted.
-spec post(halley_router:item(), mine(), posts()) ->
    {ok, tag(), posts()} | {error, halley_router:error()}.
post(Item, Mine, #posts{next = Tag, gathered = Gathered, waiting = Waiting} = Posts) ->
    case halley_router:accept(Item) of
        {ok, Shard, Ack, Draft} ->
            Before = maps:get(Shard, Gathered, []),
            Due = now_ms() + halley_limits:get(publish_ms_max),
            {ok, Tag, Posts#posts{next = Tag + 1,
                                  gathered = Gathered#{Shard => [{Tag, Ack, Draft} | Before]},
                                  waiting = Waiting#{Tag => {Shard, Due, Mine}}}};
        {error, _} = Error ->
            Error
    end.

%% To be called before the process waits for anything.
-spec send(posts()) -> posts().
send(#posts{gathered = Gathered} = Posts) when map_size(Gathered) =:= 0 ->
    Posts;
send(#posts{gathered = Gathered} = Posts) ->
    maps:fold(fun send/3, timed(Posts#posts{gathered = #{}}), Gathered).

%% By pid: what one that died is sent goes to none in its place, and is found when it is down.
send(Shard, Reversed, #posts{shards = Shards} = Posts) ->
    case Shards of
        #{Shard := {undefined, _}} ->
            Posts;
        #{Shard := {Pid, _}} ->
            ok = halley_shard:post(Pid, lists:reverse(Reversed)),
            Posts;
        #{} ->
            Name = halley_order:process(Shard),
            Pid = whereis(Name),
            Monitor = monitor(process, case Pid of undefined -> Name; _ -> Pid end),
            send(Shard, Reversed, Posts#posts{shards = Shards#{Shard => {Pid, Monitor}}})
    end.

timed(#posts{timer = none} = Posts) ->
    Posts#posts{timer = erlang:start_timer(halley_limits:get(publish_ms_max), self(), posts)};
timed(Posts) ->
    Posts.

-spec answered([{tag(), halley_shard:posted()}], posts()) -> {[{mine(), result()}], posts()}.
answered(Answers, Posts) ->
    lists:foldr(fun({Tag, Answer}, {Results, P}) ->
        {More, Left} = ended(Tag, Answer, P),
        {More ++ Results, Left}
    end, {[], Posts}, Answers).

ended(Tag, Answer, #posts{waiting = Waiting} = Posts) ->
    case maps:take(Tag, Waiting) of
        {{_, _, Mine}, Left} -> {result(Mine, Answer), Posts#posts{waiting = Left}};
        error -> {[], Posts}
    end.

result(forgotten, _) -> [];
result(Mine, {ok, busy}) -> [{Mine, busy}];
result(Mine, Result) ->
    ok = halley_router:count(Result),
    [{Mine, Result}].

%% `none': it isn't one of these monitors. What the shard had handed to the log is unknown here.
-spec down(Monitor :: reference(), posts()) -> none | {[{mine(), result()}], posts()}.
down(Monitor, #posts{shards = Shards, waiting = Waiting} = Posts) ->
    case [Shard || {Shard, {_, M}} <- maps:to_list(Shards), M =:= Monitor] of
        [Shard] ->
            Tags = [Tag || {Tag, {S, _, _}} <- lists:sort(maps:to_list(Waiting)), S =:= Shard],
            unavailable(Tags, Posts#posts{shards = maps:remove(Shard, Shards)});
        [] ->
            none
    end.

%% Those who have waited for `publish_ms_max'.
-spec late(Timer :: reference(), posts()) -> {[{mine(), result()}], posts()}.
late(Timer, #posts{timer = Timer, waiting = Waiting} = Posts) ->
    Now = now_ms(),
    Late = [Tag || {Tag, {_, Due, _}} <- lists:sort(maps:to_list(Waiting)), Due =< Now],
    {Results, Left} = unavailable(Late, Posts#posts{timer = none}),
    {Results, again(Now, Left)};
late(_, Posts) ->
    {[], Posts}.

again(_, #posts{waiting = Waiting} = Posts) when map_size(Waiting) =:= 0 ->
    Posts;
again(Now, #posts{waiting = Waiting} = Posts) ->
    Next = lists:min([Due || {_, Due, _} <- maps:values(Waiting)]),
    Posts#posts{timer = erlang:start_timer(Next - Now, self(), posts)}.

unavailable(Tags, Posts) ->
    answered([{Tag, {error, unavailable}} || Tag <- Tags], Posts).

%% Nobody wants the result any more.
-spec forget(tag(), posts()) -> posts().
forget(Tag, #posts{waiting = Waiting} = Posts) ->
    case Waiting of
        #{Tag := {Shard, Due, _}} ->
            Posts#posts{waiting = Waiting#{Tag := {Shard, Due, forgotten}}};
        #{} ->
            Posts
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
