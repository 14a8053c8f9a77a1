%% The log of a cluster in PostgreSQL: the first engine. Its tables are `halley_cluster_tables', and
%% `halley_cluster_functions' says why the chain stays one.
%%
%% A handle is a connection to the primary. Each call is one statement that calls one function, so a
%% call is one round trip and one transaction, and a pooler may give each call another connection of
%% the server.
%%
%% An append whose answer doesn't come is never cancelled: the connection is closed, and the outcome
%% is `unknown'. So is an append that was answered together with a warning. The server warns when
%% its wait for a standby was cancelled, and then says that it has committed.
%%
%% Calls use the caller's mailbox: they wait for nothing there, but look through it for warnings. A
%% process with a long mailbox should let another one call.
-module(halley_cluster_postgres).
-behaviour(halley_log_engine).

-include_lib("epgsql/include/epgsql.hrl").

-export([open/1, close/1, append/4, read/3, snapshot/2, trim/2, take/5, give/4, brains/2,
         position/2, save_position/3]).

-export_type([settings/0]).

%% `connect': options of `epgsql:connect/1' with `host' or `hosts'; all hosts are tried at once.
%% `keeps_statements' (false): they are prepared once in a session, which saves the server the
%% parsing of each call, and isn't possible through a pooler.
%% `retention_ms': how long rows are to stay (600,000), as in the history's configuration; the brain
%% that orders trims by the same. `append_ms': after which an append's outcome is unknown (5,000).
%% `call_ms': of the other calls, and of each part of a snapshot (10,000).
-type settings() :: #{connect := epgsql:connect_opts_map(), keeps_statements => boolean(),
                      retention_ms => pos_integer(),
                      append_ms => pos_integer(), call_ms => pos_integer()}.

%% What a handle has between two calls, in the dictionary of its process.
-record(state, {session :: halley_cluster_connection:session() | none,
                settings :: settings(),
                epoch :: pos_integer(),
                %% Where the last row that was appended is, and the last that was read.
                tail :: non_neg_integer(), reading :: non_neg_integer(),
                %% By the engine's clock: when `tail' was begun, and the last append.
                started :: integer(), now :: integer()}).

-define(RETENTION_MS, 600000).
-define(APPEND_MS, 5000).
-define(CALL_MS, 10000).
%% Full segments that cover the retention. The ring has two more: one is written, one is emptied.
-define(FULL, (halley_cluster_functions:segments() - 2)).
%% From a row that was to end its segment to the next such row, if the segment hasn't ended.
-define(KEEP_MS, 1000).
-define(STORE_MAX, 16#FFFFFFFF).

-define(APPENDED, 1).
-define(CONFLICT, 2).
-define(TOO_OLD, 2).
-define(AHEAD, 3).

-type handle() :: {?MODULE, reference()}.

%% --- opening ------------------------------------------------------------------------------------

-spec open(settings()) ->
    {ok, handle(), halley_log_engine:opened()} | {error, halley_log_engine:away() | no_tables}.
open(#{connect := Connect} = Settings) ->
    Kept = maps:get(keeps_statements, Settings, false),
    case halley_cluster_connection:open(Connect, Kept) of
        {ok, Session} -> versioned(Settings, Session);
        {error, _} = Error -> Error
    end.

versioned(Settings, Session) ->
    Known = halley_cluster_tables:version(),
    case run("SELECT halley_cluster.version()", [], call_ms(Settings), Session) of
        {{ok, [{Known}]}, After} -> opened(Settings, After);
        {{ok, [{Other}]}, After} ->
            failed({refused, io_lib:format(
                "the tables in the schema halley_cluster have version ~b, and this Halley knows "
                "~b: run all brains with one version, then its setup", [Other, Known])}, After);
        {{error, #error{code = Code}}, After}
          when Code =:= <<"3F000">>; Code =:= <<"42883">>; Code =:= <<"42P01">> ->
            failed(no_tables, After);
        {{error, Reason}, After} ->
            failed(halley_cluster_connection:away(Reason), After)
    end.

opened(Settings, Session) ->
    case begun(null, Settings, Session) of
        {{ok, [{N, Last, Floor, Segment, Started, Now, Ns, Stores, Afters}]}, After} ->
            Ref = make_ref(),
            put({?MODULE, Ref}, #state{session = After, settings = Settings, epoch = N,
                                       tail = Segment, reading = Segment, started = Started,
                                       now = Now}),
            Epochs = [#{n => Each, store => Store, 'after' => Good}
                      || {Each, Store, Good} <- lists:zip3(Ns, Stores, Afters)],
            {ok, {?MODULE, Ref}, #{last => Last, floor => Floor, epochs => Epochs, at => Now}};
        {{error, Reason}, After} ->
            failed(halley_cluster_connection:away(Reason), After)
    end.

failed(Reason, Session) ->
    ok = halley_cluster_connection:close(Session),
    {error, Reason}.

%% Begins an epoch if the stretch is another one than the newest epoch's, or if that is `Again'.
begun(Again, Settings, Session) ->
    <<Random:32>> = crypto:strong_rand_bytes(4),
    run("SELECT * FROM halley_cluster.open($1, $2)",
        [{int8, max(1, Random band ?STORE_MAX)}, {int4, Again}], call_ms(Settings), Session).

-spec close(handle()) -> ok.
close({?MODULE, Ref}) ->
    case erase({?MODULE, Ref}) of
        #state{session = Session} when Session =/= none ->
            halley_cluster_connection:close(Session);
        _ -> ok
    end.

%% --- the log ------------------------------------------------------------------------------------

-spec append(halley_log_engine:seq(), halley_log_engine:token(), halley_log_engine:group(),
             handle()) ->
    {ok, halley_log_engine:at_ms()} | {conflict, halley_log_engine:seq()} | unknown | new_stretch
  | {error, halley_log_engine:away()}.
append(Prev, Token, #{last := Last, body := Body, changes := Changes}, {?MODULE, Ref}) ->
    case get({?MODULE, Ref}) of
        #state{session = none} -> {error, away};
        #state{session = Session, settings = Settings} = State ->
            _ = halley_cluster_connection:has_warned(),
            {Answer, After} = run(
                "SELECT halley_cluster.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                [{int4, State#state.epoch}, {int2, State#state.tail}, {int8, Prev}, {int8, Last},
                 {bytea, Token}, {bool, is_due(State)}, {bytea, Body} | changes(Changes)],
                maps:get(append_ms, Settings, ?APPEND_MS), Session),
            kept(Ref, After, appended(halley_cluster_connection:has_warned(), Answer,
                                      State#state{session = After}))
    end.

appended(true, _, _) -> {unknown, lost};
appended(false, {ok, [{[?APPENDED, At, _, Segment]}]}, State) ->
    {{ok, At}, tail(Segment, At, State)};
appended(false, {ok, [{[?CONFLICT, _, Last, _]}]}, State) -> {{conflict, Last}, State};
appended(false, {ok, [_]}, _) -> {new_stretch, lost};
%% The server has undone all. Of a connection's failure a pooler tells by an error as well, and a
%% session that the server ends may have committed before.
appended(false, {error, #error{severity = error, code = <<Class:2/binary, _/binary>>} = Error},
         State) when Class =/= <<"08">> ->
    {{error, halley_cluster_connection:away(Error)}, State};
appended(false, {error, _}, _) -> {unknown, lost}.

%% Is the segment to end with this row?
is_due(#state{started = Started, now = Now} = State) -> Now - Started >= segment_ms(State).

segment_ms(#state{settings = Settings}) ->
    maps:get(retention_ms, Settings, ?RETENTION_MS) div ?FULL.

tail(Segment, At, #state{tail = Segment} = State) ->
    case is_due(State) of
        %% It has ended, or the next one is in use: a row that comes next mustn't end that.
        true ->
            Each = segment_ms(State),
            State#state{now = At, started = At - Each + min(?KEEP_MS, Each)};
        false -> State#state{now = At}
    end;
tail(Segment, At, State) ->
    State#state{tail = Segment, started = At, now = At}.

%% As arrays: kinds, and what each has.
changes(Changes) ->
    {Kinds, As, Bs, Ns} = lists:foldr(fun(Change, {Ks, A, B, N}) ->
        {Kind, Its, Other, Number} = change(Change),
        {[Kind | Ks], [Its | A], [Other | B], [Number | N]}
    end, {[], [], [], []}, Changes),
    [{{array, int2}, Kinds}, {{array, bytea}, As}, {{array, bytea}, Bs}, {{array, int8}, Ns}].

change({follow, User, Subject}) -> {1, User, Subject, 0};
change({unfollow, User, Subject}) -> {2, User, Subject, 0};
change({forget, Id}) -> {3, Id, <<>>, 0};
change({keep, Subject, Seq, Event}) -> {4, Subject, Event, Seq};
change({clear, Subject}) -> {5, Subject, <<>>, 0};
change({key, Id, removed}) -> {7, Id, <<>>, 0};
change({key, Id, Record}) -> {6, Id, Record, 0}.

-spec read(halley_log_engine:seq(), pos_integer(), handle()) ->
    {ok, [halley_log_engine:row()]} | too_old | ahead | {error, halley_log_engine:away()}.
read(After, MaxBytes, {?MODULE, Ref}) ->
    query(Ref, "SELECT * FROM halley_cluster.read($1, $2, $3, $4)",
          fun(#state{epoch = Epoch, reading = Segment}) ->
              [{int4, Epoch}, {int2, Segment}, {int8, After}, {int8, MaxBytes}]
          end, fun were_read/2).

were_read([{?TOO_OLD, _, _, _, _, _, _}], State) -> {too_old, State};
were_read([{?AHEAD, _, _, _, _, _, _}], State) -> ahead(State);
were_read([{1, _, _, _, _, _, _} | _] = Rows, State) ->
    {_, Segment, _, _, _, _, _} = lists:last(Rows),
    {{ok, [#{prev => Prev, last => Last, at => At, token => Token, body => Body}
           || {_, _, Prev, Last, At, Token, Body} <- Rows]}, State#state{reading = Segment}};
were_read([], State) -> {{ok, []}, State};
%% Another brain has begun an epoch: it is known to whoever opens.
were_read([_], _) -> {{error, away}, lost}.

%% A row that a brain has was committed, so the chain has lost its end: a disk's old copy, or a dump
%% of the data alone. Of several brains that see it one begins the epoch.
ahead(#state{session = Session, settings = Settings, epoch = Epoch} = State) ->
    case begun(Epoch, Settings, Session) of
        {{ok, [_]}, After} -> {ahead, State#state{session = After}};
        {{error, Reason}, After} ->
            failure(Reason, State#state{session = After})
    end.

%% Segments end by an append's wish, so there may be several to empty. Each is a transaction.
-spec trim(halley_log_engine:at_ms(), handle()) ->
    {ok, halley_log_engine:seq()} | {error, halley_log_engine:away()}.
trim(OlderThan, {?MODULE, Ref} = Engine) ->
    Oldest = query(Ref, "SELECT * FROM halley_cluster.oldest($1)",
                   fun(_) -> [{int8, OlderThan}] end, fun([Row], State) -> {Row, State} end),
    case Oldest of
        {error, _} -> Oldest;
        {null, Floor} -> {ok, Floor};
        {Segment, Floor} ->
            case query(Ref, "SELECT halley_cluster.trim($1, $2)",
                       fun(_) -> [{int2, Segment}, {int8, OlderThan}] end,
                       fun([{IsDone}], State) -> {IsDone, State} end) of
                true -> trim(OlderThan, Engine);
                false -> {ok, Floor};
                {error, _} = Error -> Error
            end
    end.

%% --- snapshots ----------------------------------------------------------------------------------

%% A snapshot doesn't show a table's rows from before a TRUNCATE. So the log's tables are locked
%% before it is made: none of them is emptied as long as it is read.
-spec snapshot(fun((halley_log_engine:snapshot_rows()) -> ok), handle()) ->
    {ok, halley_log_engine:seq()} | {error, halley_log_engine:away()}.
snapshot(Fun, {?MODULE, Ref}) ->
    case get({?MODULE, Ref}) of
        #state{session = none} -> {error, away};
        #state{session = Session} = State ->
            %% If the fun fails, the session is gone.
            _ = put({?MODULE, Ref}, State#state{session = none}),
            {Result, After} = copied(Fun, State, Session),
            kept(Ref, After, case Result of
                {ok, _} -> {Result, State#state{session = After}};
                {error, Reason} ->
                    {{error, halley_cluster_connection:away(Reason)}, lost}
            end)
    end.

copied(Fun, #state{settings = Settings, epoch = Epoch}, Session) ->
    Ms = call_ms(Settings),
    Logs = lists:join(", ", ["halley_cluster." ++ Name
                             || #{name := "log_" ++ _ = Name} <- halley_cluster_tables:tables()]),
    Begin = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE ", Logs,
             " IN ACCESS SHARE MODE"],
    steps([
        fun(S) -> halley_cluster_connection:simple(Begin, Ms, S) end,
        fun(S) ->
            case run("SELECT halley_cluster.is_current($1), halley_cluster.last()",
                     [{int4, Epoch}], Ms, S) of
                {{ok, [{true, At}]}, S1} -> {{ok, At}, S1};
                {{ok, _}, S1} -> {{error, other_epoch}, S1};
                Failed -> Failed
            end
        end,
        fun(S) -> halley_cluster_connection:copy(
            {"SELECT user_id, subject FROM halley_cluster.follows", [bytea, bytea]}, Ms,
            fun(Rows) -> Fun({follows, Rows}) end, S) end,
        fun(S) -> halley_cluster_connection:copy(
            {"SELECT subject, seq, at, event FROM halley_cluster.kept",
             [bytea, int8, int8, bytea]}, Ms,
            fun(Rows) -> Fun({kept, Rows}) end, S) end,
        fun(S) -> halley_cluster_connection:copy(
            {"SELECT id, record FROM halley_cluster.keys", [bytea, bytea]}, Ms,
            fun(Rows) -> Fun({keys, Rows}) end, S) end,
        fun(S) -> halley_cluster_connection:simple("COMMIT", Ms, S) end
    ], none, Session).

steps([], At, Session) -> {{ok, At}, Session};
steps([Step | Steps], At, Session) ->
    case Step(Session) of
        {ok, After} -> steps(Steps, At, After);
        {{ok, Its}, After} -> steps(Steps, Its, After);
        {{error, _} = Error, After} -> {Error, After}
    end.

%% --- roles, members, places ----------------------------------------------------------------------

-spec take(halley_log_engine:role(), binary(), non_neg_integer(), pos_integer(), handle()) ->
    {held, pos_integer()} | {other, binary(), pos_integer()}
  | {error, halley_log_engine:away()}.
take(Role, Brain, Term, TtlMs, {?MODULE, Ref}) ->
    query(Ref, "SELECT * FROM halley_cluster.take($1, $2, $3, $4)", fun(_) ->
        [{text, atom_to_binary(Role)}, {text, Brain}, {int8, Term}, {int8, TtlMs}]
    end, fun
        ([{true, _, Its}], State) -> {{held, Its}, State};
        ([{false, Other, Its}], State) -> {{other, Other, Its}, State}
    end).

-spec give(halley_log_engine:role(), binary(), pos_integer(), handle()) ->
    ok | {error, halley_log_engine:away()}.
give(Role, Brain, Term, {?MODULE, Ref}) ->
    query(Ref, "SELECT FROM halley_cluster.give($1, $2, $3)", fun(_) ->
        [{text, atom_to_binary(Role)}, {text, Brain}, {int8, Term}]
    end, fun(_, State) -> {ok, State} end).

-spec brains(halley_log_engine:brain(), handle()) ->
    {ok, [halley_log_engine:brain()], halley_log_engine:at_ms()}
  | {error, halley_log_engine:away()}.
brains(#{name := Name, address := Address, version := Version, head := Head}, {?MODULE, Ref}) ->
    query(Ref, "SELECT * FROM halley_cluster.meet($1, $2, $3, $4)", fun(_) ->
        [{text, Name}, {text, Address}, {int4, Version}, {int8, Head}]
    end, fun([{_, _, _, _, _, Now} | _] = Rows, State) ->
        {{ok, [#{name => Its, address => At, version => V, head => H, seen => Seen}
               || {Its, At, V, H, Seen, _} <- Rows], Now}, State}
    end).

-spec position(binary(), handle()) ->
    {ok, binary() | none} | {error, halley_log_engine:away()}.
position(Consumer, {?MODULE, Ref}) ->
    query(Ref, "SELECT position FROM halley_cluster.positions WHERE consumer = $1",
          fun(_) -> [{text, Consumer}] end, fun
              ([{Position}], State) -> {{ok, Position}, State};
              ([], State) -> {{ok, none}, State}
          end).

-spec save_position(binary(), binary(), handle()) -> ok | {error, halley_log_engine:away()}.
save_position(Consumer, Position, {?MODULE, Ref}) ->
    query(Ref, "INSERT INTO halley_cluster.positions (consumer, position) VALUES ($1, $2) "
               "ON CONFLICT (consumer) DO UPDATE SET position = excluded.position",
          fun(_) -> [{text, Consumer}, {bytea, Position}] end, fun(_, State) -> {ok, State} end).

%% --- calls --------------------------------------------------------------------------------------

%% A call that may be repeated. `Read' makes an answer of the rows, and the state after it.
query(Ref, Sql, Parameters, Read) ->
    case get({?MODULE, Ref}) of
        #state{session = none} -> {error, away};
        #state{session = Session, settings = Settings} = State ->
            {Answer, After} = run(Sql, Parameters(State), call_ms(Settings), Session),
            State1 = State#state{session = After},
            Outcome = case Answer of
                {ok, Rows} -> Read(Rows, State1);
                {error, Reason} -> failure(Reason, State1)
            end,
            _ = halley_cluster_connection:has_warned(),
            kept(Ref, After, Outcome)
    end.

%% A session that has an error of the server is good for more, one without an answer isn't.
failure(#error{severity = error} = Error, State) ->
    {{error, halley_cluster_connection:away(Error)}, State};
failure(Reason, _) -> {{error, halley_cluster_connection:away(Reason)}, lost}.

kept(Ref, Session, {Answer, lost}) ->
    ok = halley_cluster_connection:close(Session),
    State = get({?MODULE, Ref}),
    _ = put({?MODULE, Ref}, State#state{session = none}),
    Answer;
kept(Ref, _, {Answer, State}) ->
    _ = put({?MODULE, Ref}, State),
    Answer.

run(Sql, Typed, Ms, Session) -> halley_cluster_connection:run(Sql, Typed, Ms, Session).

call_ms(Settings) -> maps:get(call_ms, Settings, ?CALL_MS).
