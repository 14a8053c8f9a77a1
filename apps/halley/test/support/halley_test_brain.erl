%% A brain for the cases of a suite, and edges of one worker played by processes that register as
%% their writers.
-module(halley_test_brain).

-export([start/1, stop/1, limits/1, quiet/1, loud/1]).
-export([publish/2, publish_all/1, follow_all/2, drop_up_to/1, damage/1]).
-export([number/1, shard/1, link_with/1, link_with/2, worker/2, forward/1, conns/1]).
-export([message/1, delivered/1, event/0, event/1, no_event/0]).
-export([spawn_actor/1, join/1, await_publish/1, kill_and_wait/1, wait/1]).

-include("halley_wait.hrl").

start(Config) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    ok = limits(#{}),
    case halley_test_keeper:start(Dir, [fun halley_sup:start_link/0]) of
        {ok, Keeper, [Brain]} -> [{dir, Dir}, {keeper, Keeper}, {brain, Brain} | Config];
        {error, Reason} -> {fail, Reason}
    end.

stop(Config) ->
    halley_test_keeper:stop(proplists:get_value(keeper, Config)).

%% The defaults but for these, and a publisher waits for its shard as long as a case does.
limits(Values) ->
    halley_limits:set(maps:merge(#{publish_ms_max => ?WAIT_MS}, Values)).

%% For a suite whose cases kill: the supervisors' reports of it would drown everything else.
quiet(Config) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    [{log_level, Level} | Config].

loud(Config) ->
    logger:set_primary_config(level, proplists:get_value(log_level, Config)).

%% The event's id.
publish(Subject, Data) ->
    {ok, #{id := Id}} = halley:publish(Subject, Data),
    Id.

publish_all(Items) ->
    [Id || {ok, #{id := Id}} <- halley:publish_many([{S, Data, #{}} || {S, Data} <- Items])].

follow_all(User, Subjects) ->
    {ok, _} = halley:follow([{User, Subject} || Subject <- Subjects]),
    ok.

%% As if retention had taken this event and what is before it.
drop_up_to(#{seq := Seq}) ->
    ok = halley_history_atomics:put(floor_at, 7000),
    halley_history_atomics:put(floor, Seq).

%% Flips a bit of the record on disk.
damage(Seq) ->
    {ok, #{segment := Segment, offset := Offset}} = halley_history_index:lookup(Seq),
    {ok, File} = file:open(halley_history_segment:path(halley_history_home:directory(), Segment),
                           [read, write, raw, binary]),
    {ok, <<Byte>>} = file:pread(File, Offset + 20, 1),
    ok = file:pwrite(File, Offset + 20, <<(Byte bxor 1)>>),
    ok = file:close(File),
    true = ets:delete_all_objects(halley_history_cache),
    true = ets:insert(halley_history_cache, {next, 0}),
    ok.

number(User) ->
    {ok, [Number]} = halley_ids:intern([User]),
    Number.

shard(N) ->
    list_to_existing_atom("halley_shard_" ++ integer_to_list(N)).

%% An edge of one worker with these sessions, whose writer forwards what it gets to the case, with
%% connections for words: its worker's slot and the queue.
link_with(Sessions) -> link_with(Sessions, #{}).

link_with(Sessions, Info) ->
    Case = self(),
    Writer = spawn(fun() -> forward(fun(Message) -> Case ! {self(), of_one(Message)} end) end),
    {ok, Slot, Queue} = worker(Writer, Info),
    [_ = halley_directory:open(User, {link, Slot, Conn}, infinity) || {User, Conn} <- Sessions],
    {Writer, Slot, Queue}.

%% A trunk of this writer, with one worker.
worker(Writer, Info) ->
    case halley_links:register_trunk(Writer) of
        {ok, Way, Queue} ->
            {ok, Slot} = halley_links:register_worker(Way, Info),
            {ok, Slot, Queue};
        {error, Reason} ->
            {error, Reason}
    end.

%% Events one by one.
forward(Send) ->
    receive
        {deliver, Deliveries} ->
            [Send({deliver, Delivery, To}) || {Delivery, To} <- Deliveries];
        Message ->
            Send(Message)
    end,
    forward(Send).

%% Of one worker: connections for words, and of a group no slots.
of_one({deliver, Delivery, {group, Group, [_], Words}}) ->
    {deliver, Delivery, {group, Group, own(Words)}};
of_one({deliver, Delivery, Words}) -> {deliver, Delivery, own(Words)};
of_one({members, What, Group, Words}) -> {members, What, Group, own(Words)};
of_one({close_sessions, Reason, Words}) -> {close_sessions, Reason, [conn(W) || W <- Words]};
of_one({presence, Texts}) -> {presence, [{Json, [conn(W) || W <- To]} || {Json, To} <- Texts]};
of_one(Message) -> Message.

own(Words) -> << <<(conn(Word)):64>> || <<Word:64>> <= Words >>.

conn(Word) -> Word band ((1 bsl 48) - 1).

%% Of words as a writer gets them.
conns(Words) -> [Conn || <<Conn:64>> <= own(Words)].

message({Writer, _, _}) ->
    receive {Writer, {deliver, Delivery, Conns}} -> {Delivery, Conns}
    after ?WAIT_MS -> error(nothing_delivered)
    end.

%% A delivery as a map.
event({Shard, Seq, Wire}) ->
    <<Shard, Seq:64, At:64, DataOffset:32, _:32, 0, Bytes:32, Json:Bytes/binary>> = Wire,
    #{<<"id">> := Id, <<"at">> := At} = Text = jiffy:decode(Json, [return_maps]),
    About = case Text of
        #{<<"private">> := true} -> #{private => true};
        #{<<"subjects">> := Subjects} -> #{subjects => Subjects};
        #{<<"subject">> := Subject} -> #{subject => Subject}
    end,
    About#{id => Id, shard => Shard, seq => Seq, at => At, json => Json,
      data_offset => DataOffset}.

delivered(Link) ->
    {_, Conns} = message(Link),
    [Conn || <<Conn:64>> <= Conns].

event() ->
    receive {halley, Event} -> Event after ?WAIT_MS -> error(no_event) end.

no_event() ->
    receive {halley, Event} -> error({unexpected, Event}) after 50 -> ok end.

%% A process whose result `join/1' gives.
spawn_actor(Fun) ->
    spawn_monitor(fun() -> exit({result, Fun()}) end).

join({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> error(Reason)
    after ?WAIT_MS ->
        error(hangs)
    end.

%% A publish is in the mailbox of a shard that is suspended; so may be what its timer sends.
await_publish(Shard) ->
    wait(fun() ->
        {messages, Messages} = process_info(whereis(Shard), messages),
        lists:any(fun({'$gen_call', _, {publish, _, _}}) -> true; (_) -> false end, Messages)
    end).

kill_and_wait(Name) ->
    Pid = whereis(Name),
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end,
    wait(fun() -> is_pid(whereis(Name)) end).

wait(Condition) ->
    wait(Condition, ?WAIT_MS div 5).

wait(_, 0) ->
    error(not_in_time);
wait(Condition, N) ->
    Condition() orelse begin timer:sleep(5), wait(Condition, N - 1) end,
    ok.
