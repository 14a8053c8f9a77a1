%% A history of its own for a test case: the log's process without the rest of the brain.
-module(halley_history_helper).

-export([with/2, with_in/3, start/1, stop/0, kill/0, forget/0, restart/0, directory/0]).
-export([held/1, mocked/2]).
-export([entry/2, entry/3, publish/2, publish/3, publish_all/1, wait_written/0, wait_noted/0]).
-export([replayed/4, chain/3, seq/1, cursor/1]).
-export([segments/0, newest/0, readable/1, events/0, damage/3, until/1, until/2, silently/1]).

%% Runs a fun over a new history in a directory that is removed afterwards.
with(Env, Fun) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    try with_in(Dir, Env, Fun) after file:del_dir_r(Dir) end.

with_in(Dir, Env, Fun) ->
    Limits = maps:from_list([{Key, Value} || {limit, Key, Value} <- Env]),
    ok = halley_limits:set(Limits),
    [application:set_env(halley, Key, Value) || {Key, Value} <- Env],
    application:set_env(halley, data_dir, Dir),
    ok = halley_metrics:new(),
    try
        start(new),
        Fun()
    after
        stop(),
        forget(),
        ets:delete(halley_metrics_edge),
        [application:unset_env(halley, Key) || {Key, _} <- Env],
        application:unset_env(halley, data_dir),
        ok = halley_limits:set(#{})
    end.

start(new) ->
    ok = halley_history:new(),
    start(again);
start(again) ->
    {ok, Pid} = halley_history_log:start_link(),
    unlink(Pid),
    Pid.

stop() ->
    case whereis(halley_history_log) of
        undefined -> ok;
        Pid -> gen_server:stop(Pid)
    end.

%% As the kernel would: nothing is closed, nothing is given back. The note of a sync comes after the
%% answer, so the log is asked for something first: what was answered has been noted then.
kill() ->
    case whereis(halley_history_log) of
        undefined -> ok;
        Pid ->
            Ref = monitor(process, Pid),
            _ = sys:get_state(Pid, infinity),
            exit(Pid, kill),
            receive {'DOWN', Ref, process, Pid, _} -> ok end
    end,
    forget().

forget() ->
    [ets:delete(Table) || Table <- [halley_history_index, halley_history_milestones,
                                    halley_history_pending_ids, halley_history_waiting,
                                    halley_history_cache,
                                    halley_history_forgotten, halley_history_kept,
                                    halley_history_kept_by_segment,
                                    halley_history_kept_shares, halley_history_kept_holds],
                          ets:info(Table) =/= undefined],
    ok.

restart() ->
    kill(),
    start(new).

directory() -> halley_history_home:directory().

%% Waits until the tick has noted all that was published: what is cut off afterwards is missed.
wait_noted() ->
    End = filelib:file_size(newest()),
    until(fun() ->
        {ok, <<"HALLEYSY", _:64, Position:64, _/binary>>} =
            file:read_file(filename:join(directory(), "synced")),
        Position >= End
    end).

%% Runs a fun while the log takes nothing from its mailbox.
held(Fun) ->
    case whereis(halley_history_log) of
        undefined ->
            Fun();
        Log ->
            ok = sys:suspend(Log, infinity),
            try Fun() after ok = sys:resume(Log, infinity) end
    end.

%% Runs a fun with modules of the log that can be mocked. The log is held while they come and go: in
%% the midst of a call it would lose the module that it runs, and end.
mocked(Modules, Fun) ->
    held(fun() -> [ok = meck:new(Module, [passthrough]) || Module <- Modules] end),
    try Fun() after held(fun() -> meck:unload(Modules) end) end.

entry(Subject, Data) ->
    entry(Subject, Data, #{}).

entry(Subject, Data, More) ->
    Seq = halley_history:draw(halley_shards:of_subject(Subject)),
    Id = maps:get(id, More, <<"e", (integer_to_binary(Seq))/binary>>),
    At = maps:get(at, More, erlang:system_time(millisecond)),
    Place = {halley_shards:of_subject(Subject), Seq},
    Event = halley_event:event(halley_event:draft(Id, Subject, Data), <<>>, Place, At),
    maps:merge(Event#{sessions := 2}, More).

%% Publishes one event and waits for the disk.
publish(Subject, Data) ->
    publish(Subject, Data, #{}).

publish(Subject, Data, More) ->
    Entry = #{seq := Seq} = entry(Subject, Data, More),
    {append([Entry], Subject), Seq}.

publish_all([]) -> [];
publish_all(Subjects) ->
    Entries = [{Subject, entry(Subject, <<"1">>)} || Subject <- Subjects],
    [ok = halley_history:append(halley_shards:of_subject(Subject), [Entry], [none])
     || {Subject, Entry} <- Entries],
    ok = append([], hd(Subjects)),
    [Seq || {_, #{seq := Seq}} <- Entries].

append(Entries, Subject) ->
    Ref = make_ref(),
    ok = halley_history:append(halley_shards:of_subject(Subject), Entries,
                               [{{self(), Ref}, ok}]),
    receive {Ref, Answer} -> Answer after 60000 -> exit(no_answer) end.

%% As the shards do.
wait_written() ->
    [halley_history:mark(Shard) || Shard <- lists:seq(1, halley_shards:count())],
    ok = halley_history:await(halley_history:heads(), 60000).

%% A batch of a replay as a list: events with their cursors.
replayed(Replay, UpTo, Limits, Reader) ->
    Take = fun(Body, Cursor, Events) ->
        {ok, Event} = halley_history_record:body(Body),
        [Event#{cursor => Cursor} | Events]
    end,
    {Events, What, Next, Later} = halley_replay:next(Replay, UpTo, Limits, Take, [], Reader),
    {lists:reverse(Events), What, Next, Later}.

%% All that may concern a subject, newest first, stretch by stretch.
chain(Subject, After, UpTo) -> chain(Subject, After, UpTo, []).

chain(_, UpTo, UpTo, Found) -> Found;
chain(Subject, After, UpTo, Found) ->
    {Seqs, To, _} = halley_history:stretch(halley_shards:of_subject(Subject), Subject, After, UpTo),
    chain(Subject, To, UpTo, lists:reverse(Seqs, Found)).

%% The largest seq of a cursor.
seq(Cursor) ->
    {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
    halley_vector:largest(Vector).

%% A cursor that stands at a seq in every shard.
cursor(Seq) ->
    halley_cursor:encode(halley_history:store(), 1000,
                         erlang:make_tuple(halley_shards:count(), Seq)).

segments() ->
    {ok, Numbers} = halley_history_segment:list(directory()),
    [halley_history_segment:path(directory(), Number) || Number <- Numbers].

newest() -> lists:last(segments()).

%% What reading these seqs gives: {Seq, ok | expired | damaged}.
readable(Seqs) ->
    {Results, Reader} = lists:mapfoldl(
        fun(Seq, Reader) ->
            case halley_history_reader:read(Seq, Reader) of
                {ok, #{seq := Seq}, Next} -> {{Seq, ok}, Next};
                {Failure, Next} -> {{Seq, Failure}, Next}
            end
        end, halley_history_reader:new(), Seqs),
    ok = halley_history_reader:close(Reader),
    Results.

events() -> maps:get(events, halley_history:info()).

%% Changes the bytes of a file at a position by a fun.
damage(Path, Position, Fun) ->
    {ok, Bytes} = file:read_file(Path),
    <<Before:Position/binary, Byte, After/binary>> = Bytes,
    ok = file:write_file(Path, [Before, Fun(Byte), After]).

until(Condition) -> until(Condition, 6000).

until(Condition, Tries) ->
    case Condition() of
        true -> ok;
        false when Tries > 0 ->
            timer:sleep(10),
            until(Condition, Tries - 1)
    end.

%% What is damaged on purpose needn't be in the test's log.
silently(Fun) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    try Fun() after logger:set_primary_config(level, Level) end.
