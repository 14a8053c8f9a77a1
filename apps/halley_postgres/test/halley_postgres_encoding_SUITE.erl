%% Databases of other encodings than UTF-8: follows, subjects, users and data with letters beyond
%% ASCII are the same there, or the difference is reported.
-module(halley_postgres_encoding_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [
    server/1, sql/2, settings/2, start_stream/2, streaming/0, stop_stream/0, login/1, next/0,
    follows/1, gauge/1, rows/2, dropped_slot/1, eventually/2]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [latin1, latin9, win1251, another_database, utf8, sql_ascii, several_bytes].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) ->
    stop_stream(),
    C = halley_postgres_test:connect(Config),
    dropped_slot(C),
    ok = sql(C, "drop database if exists odd with (force)"),
    ok = epgsql:close(C),
    halley_postgres_test:end_per_testcase(Config).

%% A database of that encoding.
made(Config, Encoding) ->
    ok = sql(?config(c, Config), ["create database odd encoding '", Encoding,
                                  "' locale 'C' template template0"]),
    there(Config).

there(Config) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(server(Config), #{database => "odd"})),
    C.

-define(MORE, #{database => "odd", store_backend => postgres,
                follows => "public.follows(a, b)"}).

begun(C, Config, User, Subject) ->
    utf8_sql(C, "create table follows (a text, b text, primary key (a, b))"),
    utf8_sql(C, ["insert into follows values ('", User, "', '", Subject, "')"]),
    Settings = settings(Config, ?MORE),
    {ok, Own} = halley_postgres_connection:open((map_get(server, Settings))(), queries),
    ?assertMatch({_, ok}, halley_postgres_command:setup(Own, Settings, 4)),
    start_stream(Config, ?MORE),
    streaming(),
    Warnings = [unicode:characters_to_binary(Each)
                || Each <- halley_postgres_warnings:look(Own, Settings)],
    ok = epgsql:close(Own),
    Warnings.

utf8_sql(C, Sql) -> ok = sql(C, unicode:characters_to_binary(Sql)).

%% Every way by which letters come from the database, and the API's way there.
all_come(C, User, Subject, Letters) ->
    [U, S, L] = [unicode:characters_to_binary(Each) || Each <- [User, Subject, Letters]],
    follows(#{U => [S]}),
    utf8_sql(C, ["insert into follows values ('", User, "', '2", Subject, "')"]),
    follows(#{U => [<<"2", S/binary>>, S]}),
    ?assertMatch({ok, #{added := 1}}, halley:follow([{U, <<"3", S/binary>>}])),
    utf8_sql(C, ["delete from follows where b = '2", Subject, "'"]),
    follows(#{U => [<<"3", S/binary>>, S]}),
    login(U),
    utf8_sql(C, ["insert into halley.outbox (subject, data, event_id) values ('", Subject,
                 "', '{\"", Letters, "\": \"", Letters, "\"}', 'row-", Letters, "')"]),
    ?assertMatch(#{subject := S, data := #{L := L}}, next()).

messages_come(C, User, Subject, Letters) ->
    [S, L] = [unicode:characters_to_binary(Each) || Each <- [Subject, Letters]],
    utf8_sql(C, ["select halley.publish('", Subject, "', '\"", Letters, "\"', 'id-", Letters,
                 "')"]),
    Id = <<"id-", L/binary>>,
    ?assertMatch(#{subject := S, data := L, id := Id}, next()),
    utf8_sql(C, ["select halley.publish_to(array['", User, "'], '\"", Letters, "\"')"]),
    ?assertMatch(#{private := true, data := L}, next()),
    utf8_sql(C, ["select pg_logical_emit_message(true, 'halley', '{\"subject\":\"", Subject,
                 "\",\"data\":\"", Letters, "\"}')"]),
    ?assertMatch(#{subject := S, data := L}, next()),
    eventually(0, fun() -> gauge("halley_postgres_rejected_total") end).

latin1(Config) -> single_bytes(Config, "LATIN1", "zo\x{e9}", "caf\x{e9}", "\x{e9}\x{ff}").

latin9(Config) -> single_bytes(Config, "LATIN9", "zo\x{e9}", "5 \x{20ac}", "\x{20ac}\x{153}").

%% It has a byte that means nothing.
win1251(Config) ->
    single_bytes(Config, "WIN1251", "\x{438}", "\x{43a}\x{438}\x{43d}\x{43e}",
                 "\x{42f}\x{451}\x{20ac}").

single_bytes(Config, Encoding, User, Subject, Letters) ->
    C = made(Config, Encoding),
    %% From before there was a table, and in no row of it.
    Strange = {<<"a">>, <<"\x{5bc6}"/utf8>>},
    {ok, #{added := 1}} = halley:follow([Strange]),
    ?assertEqual([], begun(C, Config, User, Subject)),
    all_come(C, User, Subject, Letters),
    messages_come(C, User, Subject, Letters),
    %% What the database can't have.
    ?assertMatch({ok, #{added := 0, errors := [{0, {not_of_table, _}}]}},
                 halley:follow([{<<"b">>, <<"\x{5bc6}"/utf8>>}])),
    ?assertMatch({ok, #{removed := 1}}, halley:unfollow([Strange])),
    ?assertEqual([], halley:following(<<"a">>)),
    ?assertEqual(0, gauge("halley_postgres_failures_total")).

%% What was the first one's is in no row of the second.
another_database(Config) ->
    C = made(Config, "LATIN1"),
    ?assertEqual([], begun(C, Config, "zo\x{e9}", "caf\x{e9}")),
    follows(#{<<"zo\x{e9}"/utf8>> => [<<"caf\x{e9}"/utf8>>]}),
    utf8_sql(C, "insert into follows select n, n + 1000 from generate_series(1, 100) n"),
    follows(#{<<"100">> => [<<"1100">>]}),
    stop_stream(),
    dropped_slot(C),
    ok = epgsql:close(C),
    ok = sql(?config(c, Config), "drop database odd with (force)"),
    Next = made(Config, "WIN1251"),
    ?assertEqual([], begun(Next, Config, "1", "2")),
    follows(#{<<"zo\x{e9}"/utf8>> => [], <<"100">> => [], <<"1">> => [<<"2">>]}).

utf8(Config) ->
    C = made(Config, "UTF8"),
    ?assertEqual([], begun(C, Config, "zo\x{e9}", "\x{5bc6}")),
    all_come(C, "zo\x{e9}", "\x{5bc6}", "\x{1f511}\x{e9}"),
    messages_come(C, "zo\x{e9}", "\x{5bc6}", "\x{1f511}\x{e9}").

%% UTF-8 comes as it is. What isn't is left out or rejected, and doesn't stop what comes behind it.
sql_ascii(Config) ->
    C = made(Config, "SQL_ASCII"),
    [Warning] = begun(C, Config, "zo\x{e9}", "\x{5bc6}"),
    ?assertMatch(<<"the encoding of the database is SQL_ASCII", _/binary>>, Warning),
    all_come(C, "zo\x{e9}", "\x{5bc6}", "\x{1f511}\x{e9}"),
    messages_come(C, "zo\x{e9}", "\x{5bc6}", "\x{1f511}\x{e9}"),
    Bytes = "convert_from('\\xe9', 'SQL_ASCII')",
    ok = sql(C, ["insert into follows values ('odd', ", Bytes, ")"]),
    ok = sql(C, ["insert into follows values ('odd', 'even')"]),
    follows(#{<<"odd">> => [<<"even">>]}),
    ok = sql(C, ["insert into halley.outbox (subject, data) values (", Bytes, ", '1')"]),
    ok = sql(C, ["select pg_logical_emit_message(true, 'halley', '{\"subject\":\"' || ", Bytes,
                 " || '\",\"data\":1}')"]),
    eventually(2, fun() -> gauge("halley_postgres_rejected_total") end),
    eventually([{<<"1">>}], fun() ->
        rows(C, "select count(*) from halley.rejected where reason like '%SQL_ASCII%'")
    end),
    ok = sql(C, "delete from follows where a = 'odd'"),
    follows(#{<<"odd">> => []}),
    ?assertEqual(0, gauge("halley_postgres_failures_total")),
    %% A copy has the same rows.
    ok = sql(C, ["insert into follows values ('odd', ", Bytes, "), ('odd', 'even')"]),
    follows(#{<<"odd">> => [<<"even">>]}),
    stop_stream(),
    dropped_slot(C),
    start_stream(Config, ?MORE),
    streaming(),
    follows(#{<<"odd">> => [<<"even">>]}).

%% Messages are bytes of the database's encoding, which nobody converts: said by `check', by the log
%% and with each of them.
several_bytes(Config) ->
    C = made(Config, "EUC_JP"),
    [Warning] = begun(C, Config, "\x{65e5}\x{672c}", "\x{6771}\x{4eac}"),
    ?assertMatch(<<"the encoding of the database is EUC_JP", _/binary>>, Warning),
    all_come(C, "\x{65e5}\x{672c}", "\x{6771}\x{4eac}", "\x{65e5}"),
    utf8_sql(C, "select halley.publish('\x{6771}\x{4eac}', '1')"),
    eventually([{<<"it has letters beyond ASCII, which Halley can't read in the database's "
                   "encoding EUC_JP">>}],
               fun() -> rows(C, "select reason from halley.rejected") end),
    utf8_sql(C, "insert into follows values ('\x{65e5}\x{672c}', 'plain')"),
    follows(#{<<"\x{65e5}\x{672c}"/utf8>> => [<<"3\x{6771}\x{4eac}"/utf8>>, <<"plain">>,
                                              <<"\x{6771}\x{4eac}"/utf8>>]}),
    ok = sql(C, "select halley.publish('plain', '2')"),
    ?assertMatch(#{data := 2}, next()).
