%% The functions of the schema `halley_cluster', as SQL. Pure.
%%
%% They hold all that the engine does in the database, so that each call is one round trip and one
%% transaction, and nothing stays in a session. They run with the caller's rights.
%%
%% The chain stays one, whatever several brains do at once:
%%
%% - A row's place follows from the row before it: it goes into that row's segment, or where that
%%   row's `next' points. `append' reads the row before, which also gives it the time that `at' must
%%   not be below. The key (lane, prev) of that segment admits one row.
%% - A segment ends with a row that has `next', and only if the next segment is empty.
%% - `trim' empties the oldest segment alone, under an exclusive lock, if it has ended and the next
%%   has a row. So the newest row is never removed. A call that has read the row before holds a lock
%%   on its segment until its own transaction ends: its segment isn't emptied meanwhile, and neither
%%   is a later one.
%%
%% `stretch' changes where rows may have been lost: the timeline (a failover, a restore to a point
%% in time), the table's identity (a dump was restored), the server's start (an old copy of its
%% disk).
%%
%% plpgsql keeps the plans of static statements, so `append' has a branch for each segment. Plans
%% may be made while a table is empty: without `enable_seqscan' they use the key all the same, and
%% without `jit' the cost that this adds compiles nothing.
-module(halley_cluster_functions).

-export([all/0, segments/0]).

%% `create': the statement. `body' as `pg_proc.prosrc' has it.
-type sql_function() :: #{name := string(), body := iodata(), create := iodata()}.

-export_type([sql_function/0]).

-define(SEGMENTS, 8).
%% How long `trim' waits for a lock; whoever wants the segment meanwhile waits as well.
-define(LOCK_MS, "100").
%% How long the other functions that write wait for one. A commit may wait for a standby that stands
%% still, for hours, and nothing cancels that. Its caller gives up. Calls for the same row or place
%% mustn't wait for it as well: each would keep one of the server's connections.
-define(WRITE_LOCK_MS, "1000").
%% Of those that `open' returns.
-define(EPOCHS, "100").

-spec segments() -> pos_integer().
segments() -> ?SEGMENTS.

%% In the order in which they can be made.
-spec all() -> [sql_function()].
all() ->
    [segments_of_log(), last(), stretch(), is_current(), change(), append(), read(), oldest(),
     trim(), open(), take(), give(), meet()].

function(Name, Arguments, Result, Language, Settings, Body) ->
    #{name => Name, body => Body,
      create => ["CREATE FUNCTION halley_cluster.", Name, "(", Arguments, ") ", Result,
                 " LANGUAGE ", Language, Settings, " AS $$", Body, "$$"]}.

%% For what is called from outside: in an operator's path there may be other functions of a name.
path() -> " SET search_path = pg_catalog".

%% For what writes (above).
waits_briefly() -> " SET lock_timeout = '" ++ ?WRITE_LOCK_MS ++ "ms'".

%% For statements that must use an index.
by_index() ->
    path() ++ " SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off "
              "SET jit = off SET plan_cache_mode = force_generic_plan".

each_segment(Separator, Fun) ->
    lists:join(Separator, [Fun(integer_to_list(K)) || K <- lists:seq(0, ?SEGMENTS - 1)]).

%% IF ... ELSIF ... for the segment in this variable.
branches(Variable, Fun) ->
    ["  IF ", each_segment("  ELSIF ", fun(K) ->
        [Variable, " = ", K, " THEN\n    ", Fun(K), ";\n"]
    end), "  END IF;\n"].

%% Those that have rows.
segments_of_log() ->
    function("segments", "",
             "RETURNS TABLE (segment int2, first int8, first_at int8, last int8, at int8, "
             "next int2)", "sql STABLE", "", ["\n",
        each_segment("UNION ALL\n", fun(K) ->
            ["SELECT ", K, "::int2, f.prev, f.at, l.last, l.at, l.next\n"
             "FROM (SELECT r.prev, r.at FROM halley_cluster.log_", K, " r WHERE r.lane = 0 "
             "ORDER BY r.prev LIMIT 1) f,\n"
             "(SELECT r.last, r.at, r.next FROM halley_cluster.log_", K, " r WHERE r.lane = 0 "
             "ORDER BY r.prev DESC LIMIT 1) l\n"]
        end)]).

%% Where the chain ends, or would go on if it has no rows. In plpgsql, which keeps its plan: a
%% function in SQL that isn't part of its caller's plan is planned at each call.
last() ->
    function("last", "", "RETURNS int8", "plpgsql STABLE", "", "
BEGIN
  RETURN coalesce((SELECT max(g.last) FROM halley_cluster.segments() g),
                  (SELECT max(e.after) FROM halley_cluster.epochs e), 0);
END
").

stretch() ->
    function("stretch", "", "RETURNS text", "sql STABLE", "", ["\nSELECT ", stretch_now(), "\n"]).

stretch_now() ->
    "left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' ||\n"
    "  'halley_cluster.epochs'::regclass::oid || '/' ||\n"
    "  to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')".

is_current() ->
    function("is_current", "p_epoch int4", "RETURNS boolean", "plpgsql", "", ["
DECLARE
  v_n int4;
  v_stretch text;
BEGIN
  SELECT e.n, e.stretch INTO v_n, v_stretch FROM halley_cluster.epochs e ORDER BY e.n DESC LIMIT 1;
  RETURN v_n = p_epoch AND v_stretch = ", stretch_now(), ";
END
"]).

%% An acknowledged row is on disk, and on the standbys that PostgreSQL waits for, whatever the role
%% has set; and a wait that is cancelled warns.
durable() -> "
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('client_min_messages') IN ('error', 'fatal', 'panic') THEN
    PERFORM set_config('client_min_messages', 'warning', true);
  END IF;
".

%% What is written anew each second, or may be done again, waits for no disk and no standby.
not_durable() -> "  PERFORM set_config('synchronous_commit', 'off', true);
".

now_ms() -> "floor(extract(epoch FROM clock_timestamp()) * 1000)::int8".

%% Kinds: 1 follow, 2 unfollow, 3 forget, 4 keep, 5 clear, 6 key, 7 no key any more. A run of
%% follows or unfollows is one statement. `p_at': the row's time.
change() ->
    function("change", "p_kinds int2[], p_a bytea[], p_b bytea[], p_n int8[], p_at int8",
             "RETURNS void", "plpgsql", " SET enable_hashjoin = off SET enable_mergejoin = off", "
DECLARE
  v_count int := cardinality(p_kinds);
  v_kind int2;
  i int := 1;
  j int;
BEGIN
  WHILE i <= v_count LOOP
    v_kind := p_kinds[i];
    j := i;
    WHILE v_kind <= 2 AND j < v_count AND p_kinds[j + 1] = v_kind LOOP
      j := j + 1;
    END LOOP;
    IF v_kind = 1 THEN
      INSERT INTO halley_cluster.follows (user_id, subject)
      SELECT t.u, t.s FROM unnest(p_a[i:j], p_b[i:j]) AS t(u, s) ON CONFLICT DO NOTHING;
    ELSIF v_kind = 2 THEN
      DELETE FROM halley_cluster.follows f USING unnest(p_a[i:j], p_b[i:j]) AS t(u, s)
      WHERE f.subject = t.s AND f.user_id = t.u;
    ELSIF v_kind = 3 THEN
      DELETE FROM halley_cluster.follows f WHERE f.subject = p_a[i];
      DELETE FROM halley_cluster.follows f WHERE f.user_id = p_a[i];
    ELSIF v_kind = 4 THEN
      INSERT INTO halley_cluster.kept (subject, seq, at, event)
      VALUES (p_a[i], p_n[i], p_at, p_b[i])
      ON CONFLICT (subject) DO UPDATE SET seq = excluded.seq, at = excluded.at,
        event = excluded.event;
    ELSIF v_kind = 5 THEN
      DELETE FROM halley_cluster.kept k WHERE k.subject = p_a[i];
    ELSIF v_kind = 6 THEN
      INSERT INTO halley_cluster.keys (id, record) VALUES (p_a[i], p_b[i])
      ON CONFLICT (id) DO UPDATE SET record = excluded.record;
    ELSIF v_kind = 7 THEN
      DELETE FROM halley_cluster.keys k WHERE k.id = p_a[i];
    ELSE
      RAISE 'a change of kind % is not known here', v_kind;
    END IF;
    i := j + 1;
  END LOOP;
END
").

%% Outcome, `at', last seq and segment. Outcomes: 1 appended, 2 another row is there, 3 another
%% stretch or epoch. An array, as a function that is a row source takes longer to plan. `p_segment':
%% where the row before is likely to be. `p_ends': this row ends its segment, if the next one is
%% empty.
append() ->
    function("append",
             "p_epoch int4, p_segment int2, p_prev int8, p_last int8, p_token bytea, "
             "p_ends boolean, p_body bytea, p_kinds int2[], p_a bytea[], p_b bytea[], p_n int8[]",
             "RETURNS int8[]", "plpgsql", by_index() ++ waits_briefly(), ["
DECLARE
  o_at int8;
  o_last int8;
  o_segment int2 := p_segment;
  v_last int8;
  v_at int8;
  v_next int2;
  v_end int2;
  v_is_used boolean;
BEGIN", durable(), row_before(), place(), row_itself()]).

%% Into v_last, v_at and v_next; o_segment is where it is.
row_before() ->
    [branches("p_segment", fun(K) ->
            ["SELECT l.last, l.at, l.next INTO v_last, v_at, v_next FROM halley_cluster.log_", K,
             " l\n    WHERE l.lane = 0 AND l.prev < p_prev ORDER BY l.prev DESC LIMIT 1"]
        end), "
  IF v_last IS DISTINCT FROM p_prev THEN
    SELECT g.segment INTO o_segment FROM halley_cluster.segments() g
    WHERE g.first < p_prev AND g.last >= p_prev;
    IF FOUND THEN
      EXECUTE format('SELECT l.last, l.at, l.next FROM halley_cluster.log_%s l '
        'WHERE l.lane = 0 AND l.prev < $1 ORDER BY l.prev DESC LIMIT 1', o_segment)
      INTO v_last, v_at, v_next USING p_prev;
    END IF;
  END IF;
"].

%% o_segment becomes the row's own.
place() -> ["
  IF NOT halley_cluster.is_current(p_epoch) THEN
    RETURN ARRAY[3, NULL, NULL, NULL];
  END IF;
  IF v_last IS DISTINCT FROM p_prev THEN
    o_last := halley_cluster.last();
    IF o_last <> p_prev OR EXISTS (SELECT FROM halley_cluster.segments()) THEN
      RETURN ARRAY[2, NULL, o_last, NULL];
    END IF;
    o_segment := 0;
    v_next := NULL;
    v_at := 0;
  END IF;
  o_segment := coalesce(v_next, o_segment);
  o_at := greatest(v_at, ", now_ms(), ");
  IF p_ends THEN
    v_end := (o_segment + 1) % ", integer_to_list(?SEGMENTS), ";
    EXECUTE format('SELECT EXISTS (SELECT FROM halley_cluster.log_%s)', v_end) INTO v_is_used;
    IF v_is_used THEN
      v_end := NULL;
    END IF;
  END IF;
"].

row_itself() ->
    [branches("o_segment", fun(K) ->
            ["INSERT INTO halley_cluster.log_", K, " (prev, last, at, token, next, body)\n"
             "    VALUES (p_prev, p_last, o_at, p_token, v_end, p_body) ON CONFLICT DO NOTHING"]
        end), "  IF NOT FOUND THEN
    RETURN ARRAY[2, NULL, halley_cluster.last(), NULL];
  END IF;
  IF cardinality(p_kinds) > 0 THEN
    PERFORM halley_cluster.change(p_kinds, p_a, p_b, p_n, o_at);
  END IF;
  RETURN ARRAY[1, o_at, p_last, o_segment];
END
"].

%% Rows, or one row with an outcome: 2 the log begins later, 3 the chain doesn't have that seq,
%% 4 another stretch or epoch. A seq inside of a row is one of another chain, and for its reader the
%% log begins later.
read() ->
    function("read", "p_epoch int4, p_segment int2, p_after int8, p_bytes int8",
             "RETURNS TABLE (o_outcome int2, o_segment int2, o_prev int8, o_last int8, o_at int8, "
             "o_token bytea, o_body bytea)", "plpgsql", by_index(), ["
DECLARE
  v_bytes int8 := 0;
  v_after int8 := p_after;
  v_is_found boolean := false;
  v_next int2;
  v_end int8;
  r record;
BEGIN
  o_outcome := 1;
  o_segment := p_segment;
  IF NOT halley_cluster.is_current(p_epoch) THEN
    o_outcome := 4;
    RETURN NEXT;
    RETURN;
  END IF;
  LOOP
    v_next := NULL;
    FOR r IN EXECUTE format('SELECT l.prev, l.last, l.at, l.token, l.next, l.body '
        'FROM halley_cluster.log_%s l WHERE l.lane = 0 AND l.prev >= $1 ORDER BY l.prev',
        o_segment) USING v_after
    LOOP
      EXIT WHEN r.prev <> v_after;
      o_prev := r.prev;
      o_last := r.last;
      o_at := r.at;
      o_token := r.token;
      o_body := r.body;
      RETURN NEXT;
      v_is_found := true;
      v_after := r.last;
      v_next := r.next;
      v_bytes := v_bytes + octet_length(r.body);
      IF v_bytes >= p_bytes THEN
        RETURN;
      END IF;
    END LOOP;
", go_on(), "    o_segment := v_next;
  END LOOP;
END
"]).

%% Where no row has named the next segment: the end of the chain, or the place of the first row.
go_on() -> "    IF v_next IS NULL THEN
      EXIT WHEN v_is_found;
      -- Is there a row after that seq, and where? One statement: rows come meanwhile.
      SELECT max(g.segment) FILTER (WHERE g.first <= v_after AND v_after < g.last),
             coalesce(max(g.last), halley_cluster.last())
      INTO v_next, v_end FROM halley_cluster.segments() g;
      IF v_next IS NULL THEN
        EXIT WHEN v_after = v_end;
        o_outcome := CASE WHEN v_after < v_end THEN 2 ELSE 3 END;
        RETURN NEXT;
        RETURN;
      END IF;
      IF v_next = o_segment THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM halley_cluster.log_%s l '
          'WHERE l.lane = 0 AND l.prev = $1)', v_next) INTO v_is_found USING v_after;
        IF NOT v_is_found THEN
          o_outcome := 2;
          RETURN NEXT;
          RETURN;
        END IF;
      END IF;
    END IF;
".

%% The segment that `trim' may empty, if there is one: the oldest, if it has ended, is old, and the
%% next has rows.
oldest() ->
    function("oldest", "p_older int8, OUT o_segment int2, OUT o_floor int8", "RETURNS record",
             "plpgsql", by_index(), "
BEGIN
  SELECT g.segment INTO o_segment FROM halley_cluster.segments() g
  WHERE g.at < p_older AND g.first = (SELECT min(f.first) FROM halley_cluster.segments() f)
    AND g.next IN (SELECT f.segment FROM halley_cluster.segments() f);
  SELECT coalesce(min(g.first), halley_cluster.last()) INTO o_floor
  FROM halley_cluster.segments() g;
END
").

%% The lock first: whoever has looked at a table holds a lock on it that is in the way of another
%% one's, until its transaction ends. A crash of the server may bring back what was emptied, and a
%% wait for a standby would keep the lock.
trim() ->
    function("trim", "p_segment int2, p_older int8", "RETURNS boolean", "plpgsql", by_index(), ["
DECLARE
  v_segment int2;
BEGIN
  PERFORM set_config('lock_timeout', '", ?LOCK_MS, "ms', true);
", not_durable(), "
  EXECUTE format('LOCK TABLE halley_cluster.log_%s IN ACCESS EXCLUSIVE MODE', p_segment);
  SELECT o.o_segment INTO v_segment FROM halley_cluster.oldest(p_older) o;
  IF v_segment IS DISTINCT FROM p_segment THEN
    RETURN false;
  END IF;
  EXECUTE format('TRUNCATE halley_cluster.log_%s', p_segment);
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
"]).

%% `p_again': begins another epoch in the same stretch, if the newest is still that one. An append
%% that has found its epoch to be the newest may be on its way then, and `after' mustn't be below
%% its row. So this waits for it, and the next append for this. With a new stretch there is no such
%% append: the server has been started since. `p_store': the store id of an epoch that it begins.
open() ->
    function("open",
             "p_store int8, p_again int4, OUT o_n int4, OUT o_last int8, OUT o_floor int8, "
             "OUT o_segment int2, OUT o_started int8, OUT o_now int8, OUT o_ns int4[], "
             "OUT o_stores int8[], OUT o_afters int8[]", "RETURNS record", "plpgsql",
             by_index() ++ waits_briefly(), ["
DECLARE
  v_stretch text;
  v_now text := halley_cluster.stretch();
  v_left int := 10;
BEGIN", durable(), "
  IF p_again IS NOT NULL THEN
    LOCK TABLE halley_cluster.epochs IN ACCESS EXCLUSIVE MODE;
  END IF;
  LOOP
    SELECT e.n, e.stretch INTO o_n, v_stretch FROM halley_cluster.epochs e ORDER BY e.n DESC
    LIMIT 1;
    EXIT WHEN v_stretch = v_now AND (p_again IS NULL OR o_n <> p_again);
    v_left := v_left - 1;
    IF v_left = 0 THEN
      RAISE 'no epoch could be begun with the store id %', p_store;
    END IF;
    INSERT INTO halley_cluster.epochs (n, store, after, stretch)
    VALUES (coalesce(o_n, 0) + 1, p_store, halley_cluster.last(), v_now) ON CONFLICT DO NOTHING;
  END LOOP;
  o_now := ", now_ms(), ";
  o_last := halley_cluster.last();
  SELECT g.segment, g.first_at INTO o_segment, o_started FROM halley_cluster.segments() g
  ORDER BY g.last DESC LIMIT 1;
  o_segment := coalesce(o_segment, 0);
  o_started := coalesce(o_started, o_now);
  SELECT coalesce(min(g.first), o_last) INTO o_floor FROM halley_cluster.segments() g;
  SELECT array_agg(e.n ORDER BY e.n DESC), array_agg(e.store ORDER BY e.n DESC),
         array_agg(e.after ORDER BY e.n DESC)
  INTO o_ns, o_stores, o_afters
  FROM (SELECT x.* FROM halley_cluster.epochs x ORDER BY x.n DESC LIMIT ", ?EPOCHS, ") e;
END
"]).

%% The row stays for ever, as its term must.
take() ->
    function("take", "p_role text, p_brain text, p_term int8, p_ttl int8",
             "RETURNS TABLE (o_is_held boolean, o_brain text, o_term int8)", "plpgsql",
             path() ++ waits_briefly(), ["
BEGIN", durable(), "
  INSERT INTO halley_cluster.roles AS r (role, brain, term, until)
  VALUES (p_role, p_brain, 1, clock_timestamp() + p_ttl * interval '1 ms')
  ON CONFLICT (role) DO UPDATE SET brain = excluded.brain,
    term = CASE WHEN r.brain = p_brain AND r.term = p_term THEN r.term ELSE r.term + 1 END,
    until = clock_timestamp() + p_ttl * interval '1 ms'
  WHERE r.until <= clock_timestamp() OR (r.brain = p_brain AND r.term = p_term)
  RETURNING r.brain, r.term INTO o_brain, o_term;
  o_is_held := FOUND;
  IF NOT o_is_held THEN
    SELECT r.brain, r.term INTO o_brain, o_term FROM halley_cluster.roles r WHERE r.role = p_role;
  END IF;
  RETURN NEXT;
END
"]).

%% The next holder has another term, whichever brain it is.
give() ->
    function("give", "p_role text, p_brain text, p_term int8", "RETURNS void", "plpgsql",
             path() ++ waits_briefly(), ["
BEGIN", durable(), "
  UPDATE halley_cluster.roles r SET until = '-infinity', brain = ''
  WHERE r.role = p_role AND r.brain = p_brain AND r.term = p_term;
END
"]).

%% Rows of brains that were away for a day go.
meet() ->
    function("meet", "p_name text, p_address text, p_version int4, p_head int8",
             "RETURNS TABLE (o_name text, o_address text, o_version int4, o_head int8, "
             "o_seen int8, o_now int8)", "plpgsql", path() ++ waits_briefly(), ["
DECLARE
  v_now int8 := ", now_ms(), ";
BEGIN
", not_durable(), "  INSERT INTO halley_cluster.brains AS b (name, address, version, head, seen)
  VALUES (p_name, p_address, p_version, p_head, v_now)
  ON CONFLICT (name) DO UPDATE SET address = excluded.address, version = excluded.version,
    head = excluded.head, seen = excluded.seen;
  DELETE FROM halley_cluster.brains b WHERE b.seen < v_now - 86400000;
  RETURN QUERY SELECT b.name, b.address, b.version, b.head, b.seen, v_now
  FROM halley_cluster.brains b;
END
"]).
