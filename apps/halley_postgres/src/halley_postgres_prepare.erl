%% From connections to where the stream begins: the slot, and a copy of each table that has none.
%%
%% The slot is made once and kept: what it has of events must not be lost, so a table that has to be
%% copied anew gets a snapshot from a temporary slot, and the stream's changes that are older than
%% the snapshot are left out for that table. A copy anew ends by a comparison with what the table
%% had put there before; the rest is unfollowed, and nothing that came by the API.
%%
%% In a backup the follows are a moment older than the ends of the files of pairs
%% (`halley_postgres_backup'). Where the slot goes on from the backup's state, the part after the
%% state's sizes is cut off, and comes again. Where the tables are copied anew, pairs that end in
%% that part may still be followed: then only its beginnings count.
%%
%% A slot that is gone, that can't go on, or that went further than this Halley, has lost changes:
%% then all tables are copied anew, and it is logged that events may be missing.
-module(halley_postgres_prepare).

-export([run/1]).
-export_type([ready/0]).

-include_lib("kernel/include/logger.hrl").

-type ready() :: #{state := halley_postgres_state:state(),
                   sources := halley_postgres_follows:sources(),
                   origin := halley_postgres_message:origin()}.
-define(CALL_MS, 60000).
%% A new slot waits for the transactions of now, and a filter may have few rows to give. Who is
%% silent for longer may have been left by the server, or by somebody on the way.
-define(SILENT_MS, 600000).

%% `tables': those that can be followed.
-spec run(#{settings := halley_postgres_config:settings(), c := epgsql:connection(),
            r := epgsql:connection(), tables := [halley_postgres_catalog:table()],
            is_stuck := boolean(), tell := fun((has_slot) -> term()), _ => _}) ->
    ready().
run(#{settings := #{slot := Slot}, c := C, r := R, tables := Tables, tell := Tell} = Env) ->
    Calls = epgsql:with_timeout(R, ?CALL_MS),
    #{system := System, position := Written, timeline := Timeline} =
        identified(epgsql_replication:identify_system(Calls)),
    History = identified(epgsql_replication:timeline_history(Calls, Timeline)),
    Saved = saved(System, Slot),
    {Known, Lsn, Snapshot} = slot(Saved, at(C, Slot), Written, Env),
    Copied = halley_postgres_applied:take(Known, Lsn),
    State = #{system => System, slot => Slot, lsn => Lsn, tables => Copied,
              outbox => outbox(Saved, Snapshot, Env)},
    %% What was copied before is copied anew, if this ends early.
    ok = halley_postgres_state:write(State),
    ok = halley_postgres_applied:forget(),
    _ = Tell(has_slot),
    ok = halley_postgres_owned:clean(halley_postgres_state:folder()),
    {Sources, ToCopy} = sources(Tables, Copied),
    Env1 = Env#{sources => Sources, known => known(Saved),
                is_copied => halley_postgres_state:is_copied()},
    Ready = taken(copies(ToCopy, Snapshot, State, Env1), Env1),
    Ready#{origin => {System, Timeline, History}}.

%% Behind the copies, as a follow may have been made with the row. What comes by the stream as well
%% has the same id.
taken(#{state := #{outbox := Last} = State} = Ready, Env) when is_integer(Last), Last > 0 ->
    ok = halley_postgres_outbox:left(Last, Env),
    Taken = State#{outbox := 0},
    ok = halley_postgres_state:write(Taken),
    Ready#{state := Taken};
taken(Ready, _) ->
    Ready.

%% A slot that was made just now brings what its snapshot doesn't show. One that was made and not
%% noted brings some of what is there now.
outbox(_, _, #{settings := #{publish := false}}) -> unknown;
outbox(_, Snapshot, #{c := C}) when Snapshot =/= none ->
    in_snapshot(Snapshot, C, fun() -> halley_postgres_outbox:last(C) end);
outbox(#{outbox := Last}, _, _) when is_integer(Last) -> Last;
outbox(_, _, #{c := C}) -> halley_postgres_outbox:last(C).

identified({ok, Known}) -> Known;
identified({error, Error}) -> exit({query_failed, Error}).

known(none) -> #{};
known(#{tables := Tables}) ->
    maps:from_list([{File, Bytes} || #{file := File, bytes := Bytes} <- maps:values(Tables)]).

saved(System, Slot) ->
    case halley_postgres_state:read() of
        {ok, #{system := System, slot := Slot} = State} -> State;
        {ok, _} ->
            ?LOG_WARNING("postgres: this is another server or slot than before: tables are copied "
                         "anew"),
            none;
        none -> none;
        damaged ->
            ?LOG_ERROR("postgres: the file `state' in data.dir's folder postgres is damaged: "
                       "tables are copied anew"),
            none
    end.

at(C, Slot) ->
    case epgsql:equery(C, "SELECT coalesce(confirmed_flush_lsn, '0/0')::text, "
                          "coalesce(wal_status, 'lost'), plugin::text, database::text, "
                          "current_database()::text "
                          "FROM pg_replication_slots WHERE slot_name = $1", [Slot]) of
        {ok, _, []} -> none;
        {ok, _, [{_, _, <<"pgoutput">>, Database, Other}]} when Database =/= Other ->
            exit({not_ready, ["the slot ", Slot, " is for another database: set postgres.slot"]});
        {ok, _, [{Lsn, Status, <<"pgoutput">>, _, _}]} ->
            {epgsql_replication:lsn(Lsn), Status};
        {ok, _, [_]} ->
            exit({not_ready, ["the slot ", Slot, " isn't one of pgoutput: set postgres.slot"]});
        {error, Error} -> exit({query_failed, Error})
    end.

%% The tables whose copies are good, where the stream begins, and a snapshot that ends there.
slot(Saved, none, _, Env) ->
    lost(Saved, "the slot is gone"),
    {Lsn, Snapshot} = created(Env),
    {#{}, Lsn, Snapshot};
slot(Saved, {_, <<"lost">>}, _, Env) ->
    anew(Saved, "the slot was invalidated, as it held back too much WAL", Env);
slot(Saved, _, _, #{is_stuck := true} = Env) ->
    anew(Saved, "the publication was dropped, and the slot can't go on behind that", Env);
slot(none, {Confirmed, _}, _, _) ->
    {#{}, Confirmed, none};
slot(#{lsn := Lsn, tables := Copied}, {Confirmed, _}, Written, _)
  when Lsn >= Confirmed, Lsn =< Written ->
    {Copied, Lsn, none};
slot(Saved, {Confirmed, _}, _, _) ->
    lost(Saved, "the slot and data.dir don't fit: one of them was put back from an older copy"),
    {#{}, Confirmed, none}.

anew(Saved, Why, #{settings := #{slot := Slot}, r := R} = Env) ->
    lost(Saved, Why),
    ok = dropped(R, Slot),
    slot(none, none, 0, Env).

lost(none, _) -> ok;
lost(_, Why) ->
    ok = halley_metrics:incr(postgres_losses),
    ?LOG_ERROR("postgres: ~ts: tables are copied anew, and events of that time may be missing",
               [Why]).

dropped(R, Slot) ->
    case epgsql_replication:drop_slot(epgsql:with_timeout(R, ?CALL_MS), Slot, #{waits => true}) of
        ok -> ok;
        {error, Error} -> exit({query_failed, Error})
    end.

created(#{settings := #{slot := Slot}, r := R}) ->
    snapshot(R, Slot, #{snapshot => export}).

snapshot(R, Slot, Options) ->
    case epgsql_replication:create_slot(epgsql:with_timeout(R, ?SILENT_MS), Slot, Options) of
        {ok, #{position := Lsn, snapshot := Snapshot}} -> {Lsn, Snapshot};
        {error, Error} -> exit({query_failed, Error})
    end.

%% --- tables ------------------------------------------------------------------------------------

%% Tables whose files have what the state says, and those to copy.
sources(Tables, Copied) ->
    lists:foldl(fun(#{spec := #{text := Text}} = Table, {Sources, ToCopy}) ->
        case Copied of
            #{Text := Before} ->
                case source(Table, Before) of
                    {ok, Source} -> {Sources#{Text => Source}, ToCopy};
                    none -> {Sources, [Table | ToCopy]}
                end;
            #{} -> {Sources, [Table | ToCopy]}
        end
    end, {#{}, []}, Tables).

source(#{spec := #{text := Text}, shape := Shape} = Table,
       #{shape := Before, file := File, bytes := Bytes, base := Base, from := From}) ->
    Path = filename:join(halley_postgres_state:folder(), File),
    case halley_postgres_shape:differences(Before, Shape) of
        [] ->
            case halley_postgres_pairs:open(Path, Bytes) of
                {ok, Pairs} ->
                    {ok, copied(Table#{pairs => Pairs, path => Path, base => Base, from => From},
                                Before)};
                {error, Reason} ->
                    ?LOG_ERROR("postgres: ~ts is damaged (~0tp): ~ts is copied anew",
                               [Path, Reason, Text]),
                    none
            end;
        Why ->
            ok = halley_postgres_said:altered(Text, Why),
            none
    end.

%% `Shape' is that of the copy, and that in the table the one of now.
copied(#{shape := Now} = Table, Shape) ->
    Table#{shape := Shape, is_unique => halley_postgres_shape:is_unique(Shape, Now)}.

copies([], _, State, Env) ->
    finished([], State, Env);
copies(Tables, none, State, #{r := R} = Env) ->
    Slot = ["halley_copy_", integer_to_list(erlang:unique_integer([positive])), "_",
            os:getpid()],
    {Lsn, Snapshot} = snapshot(R, Slot, #{snapshot => export, is_temporary => true}),
    Copies = copy(Tables, Lsn, Snapshot, Env),
    ok = dropped(R, Slot),
    finished(Copies, State, Env);
copies(Tables, Snapshot, #{lsn := Lsn} = State, Env) ->
    finished(copy(Tables, Lsn, Snapshot, Env), State, Env).

%% A table is copied as it stands, and its rows as the snapshot shows them: none of a table that was
%% rewritten since. So it must have been the same from before the snapshot until it was copied.
copy(Tables, Lsn, Snapshot, #{c := C} = Env) ->
    {Then, Copies} = in_snapshot(Snapshot, C, fun() ->
        {shapes(Tables, Env), [copy_table(Table, Lsn, Env) || Table <- Tables]}
    end),
    Now = shapes(Tables, Env),
    [case {Then, Now} of
         {#{Text := Shape}, #{Text := Behind}} ->
             case halley_postgres_shape:differences(Before, Shape)
                  ++ halley_postgres_shape:differences(Shape, Behind) of
                 [] -> copied(Copy#{shape := Behind}, Shape);
                 Why -> exit({altered, Text, Why})
             end;
         _ -> exit({altered, Text, ["it was dropped"]})
     end || #{spec := #{text := Text}, shape := Before} = Copy <- Copies].

shapes(Tables, #{c := C, settings := #{publication := Publication}}) ->
    halley_postgres_shape:read(C, Publication, [Spec || #{spec := Spec} <- Tables]).

in_snapshot(Snapshot, C, Fun) ->
    ok = done(epgsql:squery(C, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")),
    ok = done(epgsql:squery(C, ["SET TRANSACTION SNAPSHOT ",
                                halley_postgres_sql:literal(Snapshot)])),
    Result = Fun(),
    ok = done(epgsql:squery(C, "COMMIT")),
    Result.

done({error, Error}) -> exit({query_failed, Error});
done(_) -> ok.

copy_table(#{spec := #{text := Text} = Spec} = Table, Lsn, #{c := C, wait := Wait}) ->
    ?LOG_NOTICE("postgres: copies ~ts", [Text]),
    Path = halley_postgres_state:new_pairs_file(),
    Before = #{pairs => halley_postgres_pairs:create(Path, Text), table => Text, wait => Wait,
               storing => []},
    case halley_postgres_copy:fold(C, halley_postgres_sql:copy(Spec), ?SILENT_MS,
                                   fun halley_postgres_follows:slice/1,
                                   fun halley_postgres_follows:copied/2, Before) of
        {ok, Count, Copied} ->
            #{pairs := Pairs} = halley_postgres_follows:all_copied(Copied),
            ok = halley_postgres_pairs:sync(Pairs),
            ok = halley_metrics:incr(postgres_copies),
            ?LOG_NOTICE("postgres: has copied ~b rows of ~ts", [Count, Text]),
            true = erlang:garbage_collect(),
            Table#{pairs => Pairs, path => Path, base => halley_postgres_pairs:bytes(Pairs),
                   from => Lsn};
        {error, Error} -> exit({query_failed, Error})
    end.

%% Everything is copied: what isn't in the copies any more goes, and then the files that said so.
%% A table that can't be followed now keeps its files, and its follows.
finished(Copies, State, #{sources := Before} = Env) ->
    New = maps:from_list([{Text, Source} || #{spec := #{text := Text}} = Source <- Copies]),
    Sources = maps:merge(Before, New),
    Paths = [Path || #{path := Path} <- maps:values(Sources)],
    Old = maps:filtermap(fun(Text, Files) -> is_over(Text, Files -- Paths, Sources, Env) end,
                         halley_postgres_pairs:tables(halley_postgres_state:folder())),
    Env1 = Env#{sources := Sources, xids => []},
    maps:foreach(fun(Text, Paths1) ->
        Files = [{Each, part(Each, Env)} || Each <- Paths1],
        case New of
            #{Text := #{path := Path, types := Types}} ->
                halley_postgres_follows:disown(Files, [Path], before(Types), Env1);
            #{} when is_map_key(Text, Sources) -> ok;
            #{} -> halley_postgres_follows:disown(Files, [], {<<"unknown">>, <<"unknown">>}, Env1)
        end
    end, Old),
    State1 = State#{tables := halley_postgres_state:entries(Sources)},
    ok = halley_postgres_state:write(State1),
    _ = [ok = file:delete(File) || Files <- maps:values(Old), File <- Files],
    ok = halley_postgres_state:uncopied(),
    #{state => State1, sources => Sources}.

%% The files' texts may be from before the table was altered. Where it can't be seen of a text
%% whether it is a value's, values are compared as texts.
before({User, Subject} = Types) ->
    case halley_postgres_sql:is_seen(User) andalso halley_postgres_sql:is_seen(Subject) of
        true -> Types;
        false -> {<<"unknown">>, <<"unknown">>}
    end.

%% Behind what the state knew a block may be cut: it was never synced.
part(Path, #{known := Known, is_copied := IsCopied}) ->
    Bytes = maps:get(filename:basename(Path), Known, 0),
    maps:merge(#{known => Bytes}, maps:from_list([{adds_from, Bytes} || IsCopied])).

is_over(_, [], _, _) -> false;
is_over(Text, Files, Sources, #{settings := #{follows := Configured}}) ->
    IsConfigured = lists:any(fun(#{text := Each}) -> Each =:= Text end, Configured),
    (is_map_key(Text, Sources) orelse not IsConfigured) andalso {true, Files}.
