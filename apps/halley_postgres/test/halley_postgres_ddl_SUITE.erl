%% The graph is the table, whatever DDL is run on the table, its types, its partitions or its
%% publication: a table of cases, each while Halley streams and while it is away.
%%
%% A case is {Name, Table, Ddl, Then} (`halley_postgres_ddl_cases'). After `Ddl' and after `Then'
%% the follows of the brain are exactly the rows of `f', and a session that is open all the time
%% gets what its user follows now, and nothing else.
-module(halley_postgres_ddl_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [
    sql/2, rows/2, settings/2, set_up/2, start_stream/2, stop_stream/0, streaming/0, worker/0,
    eventually/2, gauge/1]).

-compile([export_all, nowarn_export_all]).

-define(FOLLOWS, #{follows => "f(a, b)"}).
-define(API, {<<"1">>, <<"api">>}).

suite() -> [{timetrap, {minutes, 15}}].

all() ->
    [types, types_while_away, columns, columns_while_away, names, names_while_away,
     publications, publications_while_away, partitions, partitions_while_away,
     partitions_that_go, partitions_that_go_while_away, rewrites_that_change_nothing,
     altered_during_the_copy, copied_by_an_earlier_version, said_at_once].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) ->
    ok = application:set_env(halley_postgres, glance_ms, 100),
    Config.

end_per_testcase(_, _) ->
    application:unset_env(halley_postgres, glance_ms).

%% --- running them --------------------------------------------------------------------------------

types(Config) -> all_of(types, streams, Config).
types_while_away(Config) -> all_of(types, away, Config).
columns(Config) -> all_of(columns, streams, Config).
columns_while_away(Config) -> all_of(columns, away, Config).
names(Config) -> all_of(names, streams, Config).
names_while_away(Config) -> all_of(names, away, Config).
publications(Config) -> all_of(publications, streams, Config).
publications_while_away(Config) -> all_of(publications, away, Config).
partitions(Config) -> all_of(partitions, streams, Config).
partitions_while_away(Config) -> all_of(partitions, away, Config).
partitions_that_go(Config) -> all_of(partitions_that_go, streams, Config).
partitions_that_go_while_away(Config) -> all_of(partitions_that_go, away, Config).

%% All of them, so that the log has each that fails.
all_of(Which, Halley, Config) ->
    Failed = [Name || {Name, _, _, _} = Case <- halley_postgres_ddl_cases:cases(Which),
                      not is_kept(Case, Halley, Config)],
    ?assertEqual([], Failed).

is_kept({Name, _, _, _} = Case, Halley, Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    try
        kept(Case, Halley, Config),
        true
    catch
        Class:Reason:Stack ->
            ct:pal("~ts, Halley ~p:~n~p ~tp~n~tp", [Name, Halley, Class, Reason, Stack]),
            false
    after
        stop_stream(),
        halley_postgres_test:end_per_testcase(Config)
    end.

kept({_, Table, Ddl, Then}, Halley, Config) ->
    C = ?config(c, Config),
    followed(Table, Config),
    Before = pairs(C),
    case Halley of
        streams -> statements(C, Ddl);
        away ->
            stop_stream(),
            statements(C, Ddl),
            start_stream(Config, ?FOLLOWS)
    end,
    agree(C),
    gets_its_own(Before, C),
    Between = pairs(C),
    statements(C, Then),
    agree(C),
    gets_its_own(Before ++ Between, C).

%% The session of user 1 is there from now on.
followed(Table, Config) ->
    C = ?config(c, Config),
    statements(C, [halley_postgres_ddl_cases:made(Table)]),
    {ok, _} = halley:follow([?API]),
    ok = halley:login(<<"1">>),
    set_up(Config, ?FOLLOWS),
    start_stream(Config, ?FOLLOWS),
    streaming(),
    agree(C).

%% Each by itself, as some may not be in a transaction with others.
statements(C, Texts) ->
    lists:foreach(fun(Text) ->
        [ok = sql(C, Each) || Each <- string:split(Text, "; ", all)]
    end, Texts).

pairs(C) -> lists:usort(rows(C, "select a::text, b::text from f")).

agree(C) ->
    eventually(lists:usort([?API | pairs(C)]), fun graph/0).

graph() ->
    Ids = halley_ids_pages:fold(fun(Named, _, Acc) -> [Id || {Id, _} <- Named] ++ Acc end, []),
    lists:usort([{User, Subject} || User <- Ids, Subject <- halley:following(User)]).

gets_its_own(Before, C) ->
    Now = [S || {<<"1">>, S} <- [?API | pairs(C)]],
    Not = lists:usort([S || {_, S} <- Before, S =/= <<"1">>]) -- Now,
    [{ok, _} = halley:publish(S, S) || S <- Not ++ Now],
    ?assertEqual(lists:sort(Now), lists:sort([maps:get(data, halley_postgres_test:next())
                                              || _ <- Now])),
    halley_postgres_test:nothing_more().

%% --- by themselves -------------------------------------------------------------------------------

%% What is rewritten as it was needn't be copied again, where the stream tells of each TRUNCATE.
rewrites_that_change_nothing(Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    C = ?config(c, Config),
    try
        followed(plain, Config),
        statements(C, ["vacuum full f; cluster f using f_pkey; alter table f add d int default 1; "
                       "reindex table concurrently f; alter table f set (fillfactor = 50); "
                       "analyze f; create index on f (note); grant select on f to poor"]),
        worker() ! look,
        ok = sql(C, "insert into f values (1, 9)"),
        agree(C),
        stop_stream(),
        ok = sql(C, "vacuum full f"),
        start_stream(Config, ?FOLLOWS),
        ok = sql(C, "delete from f where b = 9"),
        agree(C),
        ?assertEqual({1, 0}, {gauge("halley_postgres_copies_total"),
                              gauge("halley_postgres_tables_altered_total")})
    after
        stop_stream(),
        halley_postgres_test:end_per_testcase(Config)
    end.

%% To a snapshot from before it a table that is rewritten is empty.
altered_during_the_copy(Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    C = ?config(c, Config),
    try
        statements(C, [halley_postgres_ddl_cases:made(plain),
                       "create table g (a int, b int, primary key (a, b)); "
                       "insert into g select n, n + 1 from generate_series(1, 9) n"]),
        Both = #{follows => "g(a, b); f(a, b)"},
        set_up(Config, Both),
        %% The copies of both have one snapshot, and that of `g' waits.
        Other = halley_postgres_test:connect(Config),
        ok = sql(Other, "begin; lock table g, f in access exclusive mode"),
        start_stream(Config, Both),
        eventually(1, fun() ->
            length(rows(C, "select 1 from pg_stat_activity where application_name = 'halley' "
                           "and wait_event_type = 'Lock'"))
        end),
        ok = sql(Other, "alter table f alter b type text using 'u' || b; commit"),
        ok = epgsql:close(Other),
        streaming(),
        Pairs = rows(C, "select a::text, b::text from f union select a::text, b::text from g"),
        eventually(lists:usort(Pairs), fun graph/0)
    after
        stop_stream(),
        halley_postgres_test:end_per_testcase(Config)
    end.

%% Its state doesn't say what was copied.
copied_by_an_earlier_version(Config0) ->
    Config = halley_postgres_test:init_per_testcase(Config0),
    C = ?config(c, Config),
    try
        followed(plain, Config),
        stop_stream(),
        State = filename:join([?config(dir, Config), "postgres", "state"]),
        {ok, Text} = file:read_file(State),
        [Json, _, <<>>] = binary:split(Text, <<"\n">>, [global]),
        #{<<"tables">> := Tables} = Map = jiffy:decode(Json, [return_maps]),
        Before = iolist_to_binary(jiffy:encode(Map#{<<"tables">> := maps:map(fun(_, Table) ->
            maps:put(<<"oids">>, [1, 2], maps:without([<<"shape">>], Table))
        end, Tables)})),
        Crc = integer_to_binary(erlang:crc32(Before), 16),
        ok = file:write_file(State, [Before, $\n, Crc, $\n]),
        ok = sql(C, "alter table f alter b type text using 'u' || b"),
        start_stream(Config, ?FOLLOWS),
        agree(C),
        ?assertEqual({2, 1}, {gauge("halley_postgres_copies_total"),
                              gauge("halley_postgres_tables_altered_total")})
    after
        stop_stream(),
        halley_postgres_test:end_per_testcase(Config)
    end.

%% With the time between looks that it has by default: some seconds, and nothing of the table need
%% come by the stream.
said_at_once(Config0) ->
    application:unset_env(halley_postgres, glance_ms),
    Config = halley_postgres_test:init_per_testcase(Config0),
    C = ?config(c, Config),
    try
        followed(plain, Config),
        ok = sql(C, "alter table f alter b type text using 'u' || b"),
        eventually(1, fun() -> gauge("halley_postgres_tables_altered_total") end),
        agree(C)
    after
        stop_stream(),
        halley_postgres_test:end_per_testcase(Config)
    end.
