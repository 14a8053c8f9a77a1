%% The stream's process: connects, has everything prepared, then takes changes in their order until
%% something fails. It ends then, and `halley_postgres_runner' begins anew.
%%
%% It takes what has come as one batch, in the stream's order. Follows are committed in groups, and
%% the server waits meanwhile. Events are posted (`halley_postgres_flight'), and the stream goes on
%% while the history writes them; a change of follows waits until they are on disk. Every 200 ms
%% `halley_postgres_saver' puts on disk what is done, up to the first event that isn't: files of
%% pairs, then the position, and only then the server hears of it. So after a kill some changes come
%% again: events have ids, and a follow's last change decides.
%%
%% A file of pairs that has got much longer than its pairs is written anew by another process
%% meanwhile; the stream goes on in the new one, with what was appended since.
%%
%% A server that is there sends something every 15 s at least. If it is silent for twice as long, or
%% something on the way lets nothing through, the connection is left and made anew.
%%
%% A table that can't be understood any more is left out. So is one that has another shape than at
%% its copy (`halley_postgres_shape'), and so are all when the publication is gone or leaves out
%% changes. The stream has little of this: shapes are read every 3 s, and half a second after one of
%% the tables is described again; missing things, then and every 30 s. When one that is left out is
%% right, the stream begins anew and copies it.
-module(halley_postgres_worker).

-export([run/3]).

-include_lib("kernel/include/logger.hrl").

-define(SAVE_MS, 200).
%% Positions of nothing but other tables' changes.
-define(SAVE_IDLE_MS, 5000).
-define(LOOK_MS, 30000).
-define(GLANCE_MS, 3000).
-define(LOOK_SOON_MS, 500).
-define(CALL_MS, 60000).
-define(BATCH_MAX, 4000).
%% A file of pairs is written anew when it has twice its base and so many bytes.
-define(COMPACT_BYTES, 67108864).
%% A server waits for 60 s by default before it takes its client for dead.
-define(ALIVE_MS, 5000).
%% What the server waits for us, and we for it; it asks when half of it is over.
-define(SILENT_MS, 30000).
-define(LISTEN_MS, 5000).

%% `IsStuck': the slot can't go on, and has to be made anew. `Tell': `has_slot' when there is one
%% that can, `streams' when changes come.
-spec run(halley_postgres_config:settings(), IsStuck :: boolean(),
          Tell :: fun((has_slot | streams) -> term())) -> no_return().
run(#{server := Server, publication := Publication, slot := Slot, publish := Publish} = Settings,
    IsStuck, Tell) ->
    process_flag(message_queue_data, off_heap),
    C = open(Server(), queries),
    R = open(Server(), replication),
    Calls = epgsql:with_timeout(R, ?CALL_MS),
    Tables = tables(C, Settings),
    ok = halley_postgres_warnings:log(C, Settings),
    Env = #{settings => Settings, c => C, r => R, tables => Tables, sources => #{},
            is_stuck => IsStuck, tell => Tell, wait => fun() -> ok end},
    #{state := State, sources := Sources, origin := Origin} = halley_postgres_prepare:run(Env),
    #{lsn := Lsn} = State,
    {ok, _, _} = epgsql:squery(Calls, ["SET wal_sender_timeout = ", integer_to_list(?SILENT_MS)]),
    ok = started(epgsql:start_replication(
        Calls, halley_postgres_sql:ident(Slot), self(), none,
        binary_to_list(epgsql_replication:lsn_text(Lsn)),
        ["proto_version '1', messages 'true', publication_names ",
         halley_postgres_sql:literal(halley_postgres_sql:ident(Publication))],
        #{keepalives => true})),
    ok = halley_postgres_standby:confirm(R, Lsn),
    ok = halley_postgres_gauges:set(streaming, 1),
    ok = halley_postgres_gauges:set(confirmed, Lsn),
    ok = writable(Settings, Sources, Tables),
    Tell(streams),
    _ = erlang:send_after(?LOOK_MS, self(), look),
    _ = erlang:send_after(?LISTEN_MS, self(), listen),
    ok = glance_later(),
    NowMs = erlang:monotonic_time(millisecond),
    loop(#{heard_ms => NowMs, r => R, state => State, settings => Settings, done => Lsn,
           saved_ms => NowMs, saver => halley_postgres_saver:start_link(), is_saving => false,
           is_compacting => false, is_looking => false, left => [],
           shapes => unknown,
           applied => halley_postgres_applied:open(), applied_lsn => Lsn, is_applied => true,
           flight => halley_postgres_flight:new(),
           env => Env#{sources := Sources, wait := alive(R, Lsn), xids => [],
                      is_standby => halley_postgres_standby:counts(C)},
           changes => halley_postgres_changes:new(Sources, Publish, Origin,
                                                  halley_postgres_encoding:new(C))}).

open(Server, Purpose) ->
    case halley_postgres_connection:open(Server, Purpose) of
        {ok, C} -> C;
        {error, Reason} -> exit({error, Reason})
    end.

started(ok) -> ok;
started({error, Error}) -> exit({query_failed, Error}).

%% Those that can be followed; of the others it is said why not.
tables(C, #{server := Server} = Settings) ->
    #{user := User} = Server(),
    #{findings := Findings, tables := Tables, notes := Notes} =
        halley_postgres_catalog:look(C, unicode:characters_to_binary(User), Settings),
    case Findings of
        [] -> ok;
        [#{what := What} | _] ->
            exit({not_ready, [What, "; `./halley postgres check' says what mends it"]})
    end,
    _ = [?LOG_WARNING("postgres: ~ts; `./halley postgres check' says what mends it", [What])
         || #{what := What} <- Notes],
    {Good, Bad} = lists:partition(fun(#{findings := Each}) -> Each =:= [] end, Tables),
    _ = [stopped(Text, What)
         || #{spec := #{text := Text}, findings := [#{what := What} | _]} <- Bad],
    ok = halley_postgres_gauges:set(stopped, length(Bad)),
    Good.

stopped(Text, What) ->
    ?LOG_ERROR("postgres: ~ts isn't followed: ~ts. Its follows stay as they are; `./halley "
               "postgres check' says what mends it", [Text, What]).

%% From now on what the API is asked for may be written, if that table is one that is followed.
writable(#{writes := #{text := Text} = Table}, Sources, Tables) ->
    case [Each || #{spec := #{text := Each}, writes := [_ | _]} <- Tables, Each =:= Text] of
        [] when is_map_key(Text, Sources) ->
            #{Text := #{types := Types}} = Sources,
            halley_postgres_waiting:ready(
                #{table => Table, types => Types, worker => self(),
                  others => maps:values(maps:without([Text], Sources))});
        _ ->
            ?LOG_ERROR("postgres: changes of follows that are asked for here are refused: ~ts "
                       "can't be written; `./halley postgres check' says what mends it", [Text]),
            halley_postgres_waiting:unready()
    end;
writable(_, _, _) ->
    ok.

%% For while the store or the history refuses.
alive(R, Lsn) ->
    fun() ->
        NowMs = erlang:monotonic_time(millisecond),
        case get(alive_ms) of
            LastMs when is_integer(LastMs), NowMs - LastMs < ?ALIVE_MS -> ok;
            _ ->
                _ = put(alive_ms, NowMs),
                halley_postgres_standby:confirm(R, Lsn)
        end
    end.

loop(#{r := R} = Stream) ->
    receive
        {epgsql, R, Message} -> loop(batch([Message], 1, Stream));
        {saved, _, State} -> loop(compacting(confirmed(State, Stream)));
        {compacted, Text, To, Bytes} -> loop(compacted(Text, To, Bytes, Stream));
        {settle, Reference, Table, Pairs, Types} ->
            loop(settled(Reference, Table, Pairs, Types, Stream));
        look ->
            _ = erlang:send_after(?LOOK_MS, self(), look),
            loop(looked(Stream));
        {clean, Rows} ->
            #{env := Env} = Stream,
            ok = halley_postgres_publish:clean(Rows, Env),
            loop(Stream);
        look_soon -> loop(looked(Stream#{is_looking := false}));
        glance ->
            ok = glance_later(),
            loop(glanced(Stream));
        listen -> loop(listened(Stream));
        Message -> loop(heard(Message, Stream))
    after wait_ms(Stream) ->
        loop(saved(Stream))
    end.

%% What has come while this had other work was no silence.
listened(#{r := R, heard_ms := HeardMs} = Stream) ->
    _ = erlang:send_after(?LISTEN_MS, self(), listen),
    case erlang:monotonic_time(millisecond) - HeardMs of
        Ms when Ms < ?SILENT_MS -> waited_for(Stream);
        Ms ->
            receive {epgsql, R, Message} -> batch([Message], 1, Stream)
            after 0 -> exit({error, {silent, Ms}})
            end
    end.

%% Is Halley a synchronous standby, since somebody has changed who is?
waited_for(#{settings := Settings, env := #{c := C, is_standby := Before} = Env} = Stream) ->
    IsStandby = halley_postgres_standby:counts(C),
    ok = case IsStandby of
        true when not Before -> halley_postgres_warnings:log(C, Settings);
        _ -> ok
    end,
    Stream#{env := Env#{is_standby := IsStandby}}.

%% A table that was stopped meanwhile settles nothing.
settled(Reference, Table, Pairs, Types, #{env := #{sources := Sources}} = Stream0)
  when is_map_key(Table, Sources) ->
    #{env := Env} = Stream = landed(Stream0),
    {Gone, Env1} = halley_postgres_follows:settle(Table, Pairs, Types, Env),
    Reference ! {Reference, Gone},
    Stream#{env := Env1};
settled(_, _, _, _, Stream) ->
    Stream.

wait_ms(#{is_saving := true}) -> infinity;
wait_ms(#{done := Lsn, state := #{lsn := Lsn}}) -> infinity;
wait_ms(Stream) -> max(0, due_ms(Stream) - erlang:monotonic_time(millisecond)).

%% While somebody's commit waits for it, at once.
due_ms(#{saved_ms := SavedMs, env := #{is_standby := true}}) -> SavedMs;
due_ms(#{saved_ms := SavedMs} = Stream) ->
    SavedMs + case maps:get(is_idle, Stream, false) of true -> ?SAVE_IDLE_MS; false -> ?SAVE_MS end.

%% What has come.
batch(Messages, N, #{r := R} = Stream) when N < ?BATCH_MAX ->
    receive
        {epgsql, R, Message} -> batch([Message | Messages], N + 1, Stream)
    after 0 ->
        taken(lists:reverse(Messages), Stream)
    end;
batch(Messages, _, Stream) ->
    taken(lists:reverse(Messages), Stream).

taken(Messages, #{r := R, changes := Changes, done := Done} = Stream) ->
    {Steps, {Changes1, Asked}} = lists:mapfoldl(fun step/2, {Changes, false}, Messages),
    {Renewed, Steps1} = lists:partition(fun(Step) -> element(1, Step) =:= renewed end,
                                        lists:append(Steps)),
    Stream1 = applied(did(Steps1, renewed(Renewed, Stream#{changes := Changes1}))),
    _ = [ok = epgsql:activate(R) || socket_passive <- Messages],
    saved_if_due(Asked, Done, Stream1#{heard_ms := erlang:monotonic_time(millisecond)}).

%% It may have lost an index since, so its pairs aren't taken for unique before the next look.
renewed([], Stream) -> Stream;
renewed(Renewed, #{is_looking := IsLooking, env := #{sources := Sources} = Env} = Stream) ->
    _ = [erlang:send_after(?LOOK_SOON_MS, self(), look_soon) || not IsLooking],
    Tables = [Table || {renewed, Table} <- Renewed],
    Stream#{is_looking := true,
            env := Env#{sources := unique(maps:from_keys(Tables, false), Sources)}}.

unique(Are, Sources) ->
    maps:map(fun(Table, #{is_unique := Is} = Source) ->
        Source#{is_unique := maps:get(Table, Are, Is)}
    end, Sources).

%% What is about events on their way.
heard(Message, #{flight := Flight, env := Env, done := Done} = Stream) ->
    case halley_postgres_flight:heard(Message, Env, Flight) of
        none -> Stream;
        Flight1 -> saved_if_due(false, Done, applied(done(Stream#{flight := Flight1})))
    end.

step({x_log_data, _, Written, Data}, {Changes, Asked}) ->
    ok = halley_postgres_gauges:set_max(written, Written),
    {Steps, Changes1} = halley_postgres_changes:take(Data, Changes),
    {Steps, {Changes1, Asked}};
step({keepalive, Written, Asks}, {Changes, Asked}) ->
    ok = halley_postgres_gauges:set_max(written, Written),
    {[{idle, Written}], {Changes, Asked orelse Asks}};
step(_, Acc) ->
    {[], Acc}.

%% In the stream's order, changes of follows that stand together at once, and so events. An event
%% before a change is for those who followed then, so it must have been handed out.
did([], Stream) -> Stream;
did([{change, _, _} | _] = Steps, Stream0) ->
    {These, Rest} = together([change, position, idle, seen], Steps),
    #{env := Env} = Stream = landed(Stream0),
    Xids = lists:usort([Xid || {change, _, Xid} <- These]),
    Env1 = halley_postgres_follows:changes([Change || {change, Change, _} <- These], Xids, Env),
    ok = seen(These),
    did(Rest, applied(reached(These, Stream#{env := Env1, is_applied := false})));
did([{stop, Table, Reason} | Rest], Stream) ->
    did(Rest, stop(Table, {stopped, Reason}, landed(Stream)));
did(Steps, #{env := Env, flight := Flight} = Stream) ->
    {These, Rest} = together([event, row, position, idle, seen], Steps),
    Events = [Event || {event, Event} <- flat(These)],
    Posted = halley_postgres_flight:post(Events, marks(These), Env, Flight),
    did(Rest, done(Stream#{flight := Posted})).

%% The end of a transaction may come by itself, behind its changes.
applied(#{is_applied := false, applied := File, applied_lsn := Before, done := Lsn,
          env := #{sources := Sources}} = Stream) when Lsn > Before ->
    ok = halley_postgres_applied:write(File, Lsn, Sources),
    Stream#{is_applied := true, applied_lsn := Lsn};
applied(Stream) ->
    Stream.

flat(Steps) ->
    [case Step of {row, _, Event} -> {event, Event}; _ -> Step end || Step <- Steps].

%% What is to do when the events are on disk.
marks(Steps) ->
    [case Step of {row, Row, _} -> {row, Row}; _ -> Step end
     || Step <- Steps, element(1, Step) =/= event].

%% Until all events that were posted are on disk.
landed(#{env := Env, flight := Flight} = Stream) ->
    done(Stream#{flight := halley_postgres_flight:land(Env, Flight)}).

done(#{env := Env, flight := Flight} = Stream) ->
    case halley_postgres_flight:landed(Flight) of
        {[], _} -> Stream;
        {Groups, Left} ->
            {Marks, Refused} = lists:unzip(Groups),
            Steps = lists:append(Marks),
            ok = halley_postgres_publish:reject(lists:append(Refused), Env),
            ok = halley_postgres_publish:clean([Row || {row, Row} <- Steps], Env),
            ok = seen(Steps),
            reached(Steps, Stream#{flight := Left})
    end.

seen(Steps) ->
    lists:foreach(fun halley_postgres_waiting:seen/1, [Content || {seen, Content} <- Steps]).

%% What stands together. A server that waits for us says so behind nearly each transaction, which
%% must not make a group of each.
together(Kinds, Steps) ->
    lists:splitwith(fun(Step) -> lists:member(element(1, Step), Kinds) end, Steps).

%% Of a server that waits, nothing is before its position that concerns this stream and hasn't come:
%% a transaction of which only a part has come ends behind it.
reached(Steps, #{done := Done, state := #{lsn := Saved}} = Stream) ->
    Lsns = [Lsn || {Kind, Lsn} <- Steps, Kind =:= position orelse Kind =:= idle],
    IsIdle = lists:all(fun(Step) -> element(1, Step) =:= idle end, Steps),
    Stream#{done := lists:max([Done | Lsns]),
            is_idle => IsIdle andalso (Done =:= Saved orelse maps:get(is_idle, Stream, false))}.

%% A server that asks waits for an answer: it may want to stop.
saved_if_due(_, Done, #{done := Done} = Stream) -> Stream;
saved_if_due(true, _, Stream) -> saved(Stream);
saved_if_due(false, _, Stream) ->
    case due_ms(Stream) =< erlang:monotonic_time(millisecond) of
        true -> saved(Stream);
        false -> Stream
    end.

%% Begins a save, if there is something to save and none goes on.
saved(#{is_saving := true} = Stream) -> Stream;
saved(#{done := Lsn, state := #{lsn := Lsn}} = Stream) -> Stream;
saved(#{done := Lsn, state := State, saver := Saver, env := #{sources := Sources}} = Stream) ->
    #{tables := Before} = State,
    Entries = halley_postgres_state:entries(Sources),
    Paths = [Path || {Text, #{path := Path}} <- maps:to_list(Sources),
                     maps:get(Text, Before, none) =/= maps:get(Text, Entries)],
    ok = halley_postgres_saver:save(Saver, Paths, State#{lsn := Lsn, tables := Entries}),
    Stream#{is_saving := true, saved_ms := erlang:monotonic_time(millisecond)}.

confirmed(#{lsn := Lsn, tables := Tables} = State, #{r := R, env := Env, left := Left} = Stream) ->
    Named = [File || #{file := File} <- maps:values(Tables)],
    {Needed, Over} = lists:partition(fun({_, New}) -> not lists:member(New, Named) end, Left),
    _ = [file:delete(Path) || {Path, _} <- Over],
    ok = halley_postgres_standby:confirm(R, Lsn),
    ok = halley_postgres_gauges:set(confirmed, Lsn),
    Stream#{state := State, is_saving := false, left := Needed, env := Env#{wait := alive(R, Lsn)}}.

compacting(#{is_compacting := true} = Stream) -> Stream;
compacting(#{env := #{sources := Sources}} = Stream) ->
    More = application:get_env(halley_postgres, compact_bytes, ?COMPACT_BYTES),
    case [{Text, Path, Bytes} || {Text, #{pairs := Pairs, path := Path, base := Base}}
                                     <- maps:to_list(Sources),
                                 Bytes <- [halley_postgres_pairs:bytes(Pairs)],
                                 Bytes > 2 * Base + More] of
        [] -> Stream;
        [{Text, Path, Bytes} | _] ->
            Worker = self(),
            To = halley_postgres_state:new_pairs_file(),
            _ = spawn_link(fun() ->
                ok = halley_postgres_owned:compact({Path, Bytes}, To, Text),
                Worker ! {compacted, Text, To, Bytes}
            end),
            Stream#{is_compacting := true}
    end.

%% The old file goes when the state names the new one.
compacted(Text, To, Bytes, #{env := #{sources := Sources} = Env, left := Left} = Stream) ->
    case Sources of
        #{Text := #{pairs := Pairs, path := Path} = Source} ->
            Base = filelib:file_size(To),
            {ok, New} = halley_postgres_pairs:open(To, Base),
            Source1 = Source#{pairs := halley_postgres_pairs:continue(Pairs, {New, Bytes}),
                              path := To, base := Base},
            Stream#{is_compacting := false, left := [{Path, filename:basename(To)} | Left],
                    env := Env#{sources := Sources#{Text := Source1}}};
        #{} ->
            ok = file:delete(To),
            Stream#{is_compacting := false}
    end.

%% Behind this nobody writes the state.
unsaving(#{is_saving := false} = Stream) -> Stream;
unsaving(Stream) ->
    receive {saved, _, State} -> confirmed(State, Stream) end.

stop(Table, Why, Stream0) ->
    #{env := #{sources := Sources} = Env, state := State, changes := Changes} = Stream
        = unsaving(Stream0),
    case Sources of
        #{Table := #{pairs := Pairs}} ->
            ok = halley_postgres_pairs:sync(Pairs),
            ok = halley_postgres_pairs:close(Pairs),
            ok = case Why of
                     {stopped, Reason} -> stopped(Table, Reason);
                     {altered, Reasons} -> halley_postgres_said:altered(Table, Reasons)
                 end,
            Left = maps:remove(Table, Sources),
            #{settings := Settings} = Stream,
            #{tables := Tables0} = Env,
            ok = writable(Settings, Left, Tables0),
            #{tables := Tables} = State,
            State1 = State#{tables := maps:remove(Table, Tables)},
            %% At once: whatever comes next, it is copied anew.
            ok = halley_postgres_state:write(State1),
            count_stopped(Stream#{env := Env#{sources := Left}, state := State1,
                                  changes := halley_postgres_changes:without(Table, Changes)});
        #{} -> Stream
    end.

count_stopped(#{settings := #{follows := Tables}, env := #{sources := Sources}} = Stream) ->
    ok = halley_postgres_gauges:set(stopped, length(Tables) - map_size(Sources)),
    Stream.

glance_later() ->
    Ms = application:get_env(halley_postgres, glance_ms, ?GLANCE_MS),
    _ = erlang:send_after(Ms, self(), glance),
    ok.

%% Nothing else is asked while all tables are what they were.
glanced(#{settings := #{follows := Tables, publication := Publication}, env := #{c := C},
          shapes := Before} = Stream) ->
    case halley_postgres_shape:read(C, Publication, Tables) of
        Before -> Stream;
        Shapes -> looked(Stream#{shapes := Shapes})
    end.

%% Is each table that is followed still what it was, and is one right again that is left out?
looked(#{settings := #{follows := []}} = Stream) -> Stream;
looked(#{settings := Settings, env := #{c := C, sources := Sources}} = Stream) ->
    ok = halley_postgres_waiting:sweep(),
    #{over := Over, unique := Unique, right := Right} =
        halley_postgres_look:tables(C, Settings, Sources),
    Stream1 = lists:foldl(fun({Table, Why}, Acc) -> stop(Table, Why, landed(Acc)) end, Stream,
                          Over),
    case Right of
        [Text | _] ->
            _ = unsaving(Stream1),
            exit({again, ["begins anew, to copy ", Text]});
        [] ->
            #{env := #{sources := Left} = Env} = Stream1,
            Stream1#{env := Env#{sources := unique(Unique, Left)}}
    end.
