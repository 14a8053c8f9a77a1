%% Rows of `halley.outbox', taken by queries.
%%
%% With `postgres.publish = outbox' this is all there is: no slot, no stream. One consumer at a time
%% (an advisory lock of the session) takes the rows that are there in the order of their ids, except
%% locked ones, publishes them, and deletes them in the same transaction. NOTIFY wakes it up; as
%% that may be lost it looks once a second besides. A kill between the history and the commit brings
%% rows again: their events have the same ids.
%%
%% Its order: a row that was committed before another one was inserted comes first, as it has the
%% lower id and is seen whenever the other one is. Of transactions that overlap, those that are seen
%% first come first, and among those seen at once the ids decide. A row that another session has
%% locked is passed over.
%%
%% With a stream `left/2' takes what was there before the slot, which the stream never brings.
-module(halley_postgres_outbox).

-export([run/2, last/1, left/2]).

-import(halley_postgres_connection, [rows/3]).

-include_lib("kernel/include/logger.hrl").

-define(ROWS, 200).
-define(POLL_MS, 1000).
%% Texts that are longer than any id needn't come whole.
-define(ID_CHARS, 300).
%% What a session of ours that nobody uses any more may keep its lock for.
-define(IDLE_S, 30).

-type env() :: #{c := epgsql:connection(), wait := fun(() -> term()), _ => _}.

%% --- without a stream ----------------------------------------------------------------------------

-spec run(halley_postgres_config:settings(), Takes :: fun(() -> term())) -> no_return().
run(#{server := Server} = Settings, Takes) ->
    [C, Second] = [opened(halley_postgres_connection:open(Server(), queries)) || _ <- [1, 2]],
    #{user := User} = Server(),
    ok = ready(halley_postgres_catalog:look(C, unicode:characters_to_binary(User), Settings)),
    done(epgsql:squery(C, ["SET idle_session_timeout = '", integer_to_list(?IDLE_S), "s'"])),
    ok = alone(C, erlang:monotonic_time(millisecond)),
    {ok, _} = epgsql:set_notice_receiver(C, self()),
    done(epgsql:squery(C, "LISTEN halley_outbox")),
    ok = halley_postgres_gauges:set(streaming, 1),
    Takes(),
    %% Rejected rows are kept by a connection that isn't in this transaction.
    loop(C, #{c => Second, wait => fun() -> ok end, prefix => prefix(C)},
         halley_postgres_flight:new()).

opened({ok, C}) -> C;
opened({error, Reason}) -> exit({error, Reason}).

ready(#{findings := [], notes := Notes}) ->
    _ = [?LOG_WARNING("postgres: ~ts; `./halley postgres check' says what mends it", [What])
         || #{what := What} <- Notes],
    ok;
ready(#{findings := [#{what := What} | _]}) ->
    exit({not_ready, [What, "; `./halley postgres check' says what mends it"]}).

done({error, Error}) -> exit({query_failed, Error});
done(_) -> ok.

%% One that was killed a moment ago leaves its lock when the server has seen that it is gone.
alone(C, SinceMs) ->
    case rows(C, "SELECT pg_try_advisory_lock((1214344300::int8 << 32) "
                 "| 'halley.outbox'::regclass::oid::int8)", []) of
        [{true}] -> ok;
        [{false}] ->
            halley_postgres_said:once_a_second(waits_for_the_other, 1, fun(_) ->
                erlang:monotonic_time(millisecond) - SinceMs > 5 * ?POLL_MS andalso
                    ?LOG_NOTICE("postgres: another Halley takes halley.outbox; this one waits")
            end),
            timer:sleep(?POLL_MS),
            alone(C, SinceMs)
    end.

loop(C, Env, Flight) ->
    case batch(C, Env, Flight) of
        {more, Flight1} -> loop(C, Env, Flight1);
        {none, Flight1} ->
            receive {epgsql, C, {notification, _, _, _}} -> ok
            after ?POLL_MS -> ok
            end,
            loop(C, Env, woken(C, Env, Flight1))
    end.

%% Those that have come meanwhile are for the same look.
woken(C, Env, Flight) ->
    receive
        {epgsql, C, _} -> woken(C, Env, Flight);
        Message ->
            case halley_postgres_flight:heard(Message, Env, Flight) of
                none -> woken(C, Env, Flight);
                Flight1 -> woken(C, Env, Flight1)
            end
    after 0 -> Flight
    end.

%% A look alone locks nothing.
batch(C, Env, Flight) ->
    case rows(C, "SELECT 1 FROM halley.outbox LIMIT 1", []) of
        [] -> {none, Flight};
        [_] ->
            done(epgsql:squery(C, "BEGIN")),
            Rows = rows(C, [columns(), " ORDER BY o.id LIMIT $3 FOR UPDATE SKIP LOCKED"],
                        sizes() ++ [?ROWS]),
            Flight1 = published(Rows, lsn(C), Env, Flight),
            _ = rows(C, "WITH gone AS (DELETE FROM halley.outbox WHERE id = ANY($1::int8[]) "
                        "RETURNING id) SELECT count(*) FROM gone",
                     [[binary_to_integer(Id) || {Id, _, _, _, _, _} <- Rows]]),
            done(epgsql:squery(C, "COMMIT")),
            {case length(Rows) of ?ROWS -> more; _ -> none end, Flight1}
    end.

lsn(C) ->
    [{Lsn}] = rows(C, "SELECT pg_current_wal_insert_lsn()::text", []),
    epgsql_replication:lsn(Lsn).

%% --- rows ----------------------------------------------------------------------------------------

%% Data that would be refused for its size comes in part.
columns() ->
    "SELECT o.id::text, left(subject, $1), octet_length(data::text) > $2, "
    "left(data::text, CASE WHEN octet_length(data::text) > $2 THEN $1 * 50 ELSE $2 END), "
    "left(event_id, $1), created_at::text FROM halley.outbox AS o".

sizes() -> [?ID_CHARS, halley_limits:get(event_data_bytes_max)].

published(Rows, Lsn, #{prefix := Prefix} = Env, Flight) ->
    halley_postgres_publish:events([event(Row, Lsn, Prefix) || Row <- Rows], Env, Flight).

event({Id, Subject, IsLarge, Data, EventId, At}, Lsn, Prefix) ->
    Row = #{<<"id">> => Id, <<"subject">> => Subject, <<"data">> => Data,
            <<"event_id">> => EventId, <<"created_at">> => At},
    #{lsn => Lsn, source => halley_postgres_message:row_source(Row), content => Data,
      item => case IsLarge of
                  true -> {error, <<"its data is too large">>};
                  false -> halley_postgres_message:of_row(Row, Prefix)
              end}.

%% That of the stream, so that a row has the same id whoever takes it.
prefix(C) ->
    [{System}] = rows(C, "SELECT system_identifier::text FROM pg_control_system()", []),
    halley_postgres_message:row_prefix(System).

%% --- beside a stream -----------------------------------------------------------------------------

%% The last row that is there, in the snapshot of the caller's transaction; 0 without a row or a
%% table.
-spec last(epgsql:connection()) -> non_neg_integer().
last(C) ->
    case rows(C, "SELECT to_regclass('halley.outbox') IS NOT NULL "
                 "AND has_schema_privilege('halley', 'usage') "
                 "AND has_table_privilege('halley.outbox', 'select')", []) of
        [{true}] ->
            [{Last}] = rows(C, "SELECT coalesce(max(id), 0)::int8 FROM halley.outbox", []),
            Last;
        [_] -> 0
    end.

%% Publishes and deletes the rows up to that one.
-spec left(Last :: non_neg_integer(), env()) -> ok.
left(0, _) -> ok;
left(Last, #{c := C} = Env) ->
    left(0, Last, Env#{prefix => prefix(C)}, halley_postgres_flight:new()).

left(From, Last, #{c := C} = Env, Flight) ->
    Rows = rows(C, [columns(), " WHERE o.id > $3::int8 AND o.id <= $4::int8 ORDER BY o.id "
                    "LIMIT $5"], sizes() ++ [From, Last, ?ROWS]),
    Flight1 = published(Rows, lsn(C), Env, Flight),
    Ids = [Id || {Id, _, _, _, _, _} <- Rows],
    ok = halley_postgres_publish:clean([{Id, seen} || Id <- Ids], Env),
    case length(Rows) of
        ?ROWS -> left(binary_to_integer(lists:last(Ids)), Last, Env, Flight1);
        _ -> ok
    end.
