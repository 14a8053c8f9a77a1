%% `./halley postgres check' and `setup': what PostgreSQL lacks, and the SQL that mends it.
%%
%% `check' changes nothing. `setup' runs the SQL, as the configured role or, since that seldom may,
%% as the role of a URL that it is given. It runs in an emulator of its own; the exit status is 0 if
%% nothing is missing any more.
-module(halley_postgres_command).

-export([main/0, check/2, setup/3]).

%% Where its mistakes are.
-define(URL, "the URL of setup").
-define(USAGE, "usage: ./halley postgres check | postgres setup [postgres://admin@host/database]").
%% What is made may show what else is missing.
-define(ROUNDS, 4).

-spec main() -> no_return().
main() ->
    {ok, _} = application:ensure_all_started(ssl),
    process_flag(trap_exit, true),
    ok = logger:set_primary_config(level, none),
    Arguments = init:get_plain_arguments(),
    are_known(Arguments) orelse
        halley_command:failed(halley_command:misused("postgres", Arguments, ?USAGE)),
    case halley_config:load() of
        {ok, Config} ->
            case halley_config:value(halley_postgres, settings, Config) of
                none -> halley_command:failed("there is no PostgreSQL in the configuration: set "
                                              "postgres.url, and postgres.follows or "
                                              "postgres.publish");
                Settings -> run_or_say(Arguments, Settings)
            end;
        {error, Line} -> halley_command:failed(Line)
    end.

are_known(["check"]) -> true;
are_known(["setup"]) -> true;
are_known(["setup", Url]) -> not lists:prefix("-", Url);
are_known(_) -> false.

%% A query that fails, as the server ended meanwhile, is one line, too.
-spec run_or_say([string()], halley_postgres_config:settings()) -> no_return().
run_or_say(Arguments, Settings) ->
    try run(Arguments, Settings)
    catch
        exit:Reason -> halley_command:failed(halley_postgres_connection:explain(Reason));
        error:Reason -> halley_command:failed(io_lib:format("failed: ~0tP", [Reason, 12]))
    end.

-spec run([string()], halley_postgres_config:settings()) -> no_return().
run(["check"], #{server := Server} = Settings) ->
    C = open(Server()),
    ok = halley_postgres_warnings:print(C, Settings),
    ended(said(check(C, Settings)) andalso streams(C, Settings));
run(["setup"], #{server := Server} = Settings) ->
    ended(setup_said(open(Server()), Settings));
run(["setup", Url], #{server := Server} = Settings) ->
    case halley_postgres_config:settings(#{url => Url, publish => on}) of
        {ok, #{server := Admin}} ->
            #{tls_ca := Ca} = Server(),
            ended(setup_said(open((Admin())#{tls_ca := Ca, said := ?URL}), Settings));
        {error, Line} -> halley_command:failed(string:replace(Line, "postgres.url", ?URL))
    end.

-spec ended(boolean()) -> no_return().
ended(true) -> halt(0);
ended(false) -> halt(1).

open(Server) ->
    case halley_postgres_connection:open(Server, queries) of
        {ok, C} -> C;
        {error, Reason} -> not_reached(Reason)
    end.

-spec not_reached(term()) -> no_return().
not_reached(Reason) ->
    halley_command:failed(halley_postgres_connection:explain(Reason)).

%% The role may, but pg_hba.conf may not let it. A stream that runs has shown that it does, and may
%% have the last WAL sender.
streams(_, #{publish := outbox}) ->
    has_all();
streams(C, #{server := Server} = Settings) ->
    case halley_postgres_slots:is_streaming(C, Settings)
        orelse halley_postgres_connection:open(Server(), replication) of
        true -> has_all();
        {ok, R} ->
            {ok, _} = epgsql_replication:identify_system(R),
            has_all();
        {error, Reason} -> not_reached(Reason)
    end.

has_all() ->
    io:put_chars("PostgreSQL has all that is needed\n"),
    true.

-spec check(epgsql:connection(), halley_postgres_config:settings()) ->
    [halley_postgres_finding:finding()].
check(C, #{server := Server} = Settings) ->
    #{user := User} = Server(),
    #{findings := Findings, unpublished := Unpublished, tables := Tables, notes := Notes} =
        halley_postgres_catalog:look(C, unicode:characters_to_binary(User), Settings),
    %% A table is published when nothing of it is missing any more.
    (Findings -- Unpublished) ++ room(C, Settings)
        ++ lists:append([Each ++ Writes || #{findings := Each, writes := Writes} <- Tables])
        ++ Unpublished ++ Notes.

room(_, #{publish := outbox}) -> [];
room(C, Settings) -> halley_postgres_slots:look(C, Settings).

said([]) -> true;
said(Findings) ->
    lists:foreach(fun(#{what := What, sql := Sql, how := How}) ->
        io:format("missing: ~ts~n", [What]),
        _ = [io:format("    ~ts;~n", [Sql]) || How =/= hand],
        _ = [io:put_chars("    and start PostgreSQL again\n") || How =:= restart]
    end, Findings),
    false.

setup_said(C, Settings) ->
    {Done, Result} = setup(C, Settings, ?ROUNDS),
    lists:foreach(fun(Sql) -> io:format("done: ~ts~n", [Sql]) end, Done),
    case Result of
        ok -> has_all();
        {left, Findings} -> said(Findings);
        {error, Sql, Error} ->
            io:format("not done: ~ts~n    ~ts~n",
                      [Sql, halley_postgres_connection:explain(Error)]),
            false
    end.

%% Runs what mends it, until nothing is left that SQL can mend.
-spec setup(epgsql:connection(), halley_postgres_config:settings(), Rounds :: non_neg_integer()) ->
    {Done :: [iodata()], ok | {left, [halley_postgres_finding:finding()]}
                       | {error, Sql :: iodata(), term()}}.
setup(C, Settings, Rounds) ->
    Findings = check(C, Settings),
    MayRestart = Rounds =:= ?ROUNDS,
    case [Sql || #{sql := Sql, how := How} <- Findings,
                 How =:= run orelse How =:= restart andalso MayRestart] of
        _ when Findings =:= [] -> {[], ok};
        [] -> {[], {left, Findings}};
        _ when Rounds =:= 0 -> {[], {left, Findings}};
        Sqls ->
            case applied(Sqls, C) of
                ok ->
                    {Done, Result} = setup(C, Settings, Rounds - 1),
                    {Sqls ++ Done, Result};
                {error, Sql, Error} -> {[], {error, Sql, Error}}
            end
    end.

applied([], _) -> ok;
applied([Sql | Sqls], C) ->
    Results = case epgsql:squery(C, Sql) of
        Several when is_list(Several) -> Several;
        One -> [One]
    end,
    case [Error || {error, Error} <- Results] of
        [] -> applied(Sqls, C);
        [Error | _] -> {error, Sql, Error}
    end.
