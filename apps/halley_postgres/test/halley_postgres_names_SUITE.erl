%% Whether PostgreSQL takes Halley's stream for a synchronous standby, by the forms that
%% synchronous_standby_names may have (PostgreSQL's documentation, "Primary Server"; syncrep_gram.y
%% and syncrep_scanner.l of its source). The judge is a PostgreSQL: each form is set, a client with
%% Halley's application_name confirms a position, and pg_stat_replication shows its role. Halley
%% must come to the same verdict from the setting alone, as its own row there is `async' whatever is
%% set (`halley_postgres_standby').
-module(halley_postgres_names_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_postgres_test, [server/1, sql/2, rows/2, settings/2, standby/2, eventually/2]).

%% A form, and what PostgreSQL 15 says of a client named `halley' that is the only one.
-define(FORMS, [
    {<<>>, async},
    {<<"halley">>, sync}, {<<"HALLEY">>, sync}, {<<"Halley">>, sync}, {<<"  halley\t">>, sync},
    {<<"\"halley\"">>, sync}, {<<"\"HaLLeY\"">>, sync},
    {<<"\" halley\"">>, async}, {<<"\"halley \"">>, async}, {<<"\"\"\"halley\"\"\"">>, async},
    {<<"\"hal\"\"ley\"">>, async}, {<<"\"\"">>, async},
    {<<"halley2">>, async}, {<<"halley$">>, async}, {<<"_halley">>, async}, {<<"halle">>, async},
    {<<"*">>, sync}, {<<"\"*\"">>, sync}, {<<"\"**\"">>, async}, {<<"\" *\"">>, async},
    {<<"standby1">>, async}, {<<"standby1, standby2">>, async}, {<<"a,halley,b">>, sync},
    {<<"a , \"HALLEY\" ,b">>, sync}, {<<"a,*">>, sync}, {<<"halley, halley">>, sync},
    {<<"*, *, halley">>, sync}, {<<"\"a, halley\"">>, async}, {<<"\"a\", \"b, *\"">>, async},
    {<<"12">>, async}, {<<"12, halley">>, sync}, {<<"1, 2, 3">>, async},
    {<<"\"first\", \"any\"">>, async}, {<<"firsts, halley">>, sync},
    {<<"1 (halley)">>, sync}, {<<"1(halley)">>, sync}, {<<"2 (a, b)">>, async},
    {<<" 7\t( a , Halley )  ">>, sync}, {<<"1 (2, 3, halley)">>, sync},
    {<<"FIRST 1 (halley)">>, sync}, {<<"first 2 (a, halley)">>, sync},
    {<<"FiRsT 1(\"halley\")">>, sync}, {<<"FIRST 1 (a, b)">>, async}, {<<"FIRST 3 (*)">>, sync},
    {<<"first 1 (\"any 1 (halley)\")">>, async}, {<<"FIRST 1 (\")\", halley)">>, sync},
    {<<"FIRST 1 (\"(halley)\")">>, async}, {<<"\"FIRST 1 (halley)\"">>, async},
    {<<"ANY 1 (halley)">>, quorum}, {<<"any 2 (a, b, *)">>, quorum}, {<<"ANY 1 (a)">>, async},
    {<<"aNy\t12 (  HALLEY  , halley)">>, quorum}, {<<"ANY 1 (1, \"*\")">>, quorum},
    {<<"h", 228, "lley">>, async}, {<<"\"", 228, "\", halley">>, sync},
    {<<195, 160, "halley">>, async}, {<<"\"", 195, 132, "\", \"", 255, "*\"">>, async}]).

%% What PostgreSQL refuses needs no verdict.
-define(REFUSED, [
    <<" ">>, <<",">>, <<"halley,">>, <<"a b">>, <<"first">>, <<"any, halley">>, <<"\"halley">>,
    <<"halley-2">>, <<"FIRST (halley)">>, <<"FIRST 1">>, <<"FIRST 1 halley">>, <<"1 ()">>,
    <<"(halley)">>, <<"FIRST1 (halley)">>, <<"ANY 0 (halley)">>, <<"ANY 1 (a) (halley)">>,
    <<"FIRST -1 (halley)">>, <<"FIRST 1 (first)">>, <<"\"a\"b">>, <<"'halley'">>]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [names_as_the_server_reads_them, names_that_the_server_refuses,
          warning_of_names_in_other_letters].

%% In a database of SQL_ASCII any bytes can be set, as in the server's files.
init_per_suite(Config0) ->
    Config = halley_postgres_test:init_per_suite(Config0),
    C = halley_postgres_test:connect(Config),
    ok = sql(C, "create database bytes encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' "
                "template template0"),
    ok = epgsql:close(C),
    Config.

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    [{c, connect(Config)} | Config].

end_per_testcase(_, Config) ->
    C = ?config(c, Config),
    set(<<>>, C, Config),
    epgsql:close(C).

connect(Config) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(server(Config), #{database => "bytes"})),
    ok = sql(C, "set synchronous_commit = local; set client_encoding = 'SQL_ASCII'"),
    C.

alter(Names, C) ->
    epgsql:squery(C, ["alter system set synchronous_standby_names = '",
                      binary:replace(Names, <<"'">>, <<"''">>, [global]), "'"]).

%% A session that begins later has it, and so has a stream's.
set(Names, C, Config) ->
    ?assertMatch({ok, _, _}, alter(Names, C)),
    ok = sql(C, "select pg_reload_conf()"),
    eventually([{Names}], fun() ->
        Later = connect(Config),
        Rows = rows(Later, "show synchronous_standby_names"),
        ok = epgsql:close(Later),
        Rows
    end).

names_as_the_server_reads_them(Config) ->
    C = ?config(c, Config),
    Seen = [begin
                set(Names, C, Config),
                {Names, role(Config), counts(Config)}
            end || {Names, _} <- ?FORMS],
    ct:pal("~p", [Seen]),
    ?assertEqual(?FORMS, [{Names, Role} || {Names, Role, _} <- Seen]),
    ?assertEqual([], [Each || {_, Role, Counts} = Each <- Seen, Counts =/= (Role =/= async)]).

%% What the server says of a client with Halley's name, once that streams.
role(Config) ->
    Client = standby(Config, halley_postgres_settings:application_name()),
    C = connect(Config),
    Of = "from pg_stat_replication where application_name = 'halley'",
    eventually([{<<"streaming">>, <<"t">>}], fun() ->
        rows(C, ["select state, flush_lsn is not null ", Of])
    end),
    [{Role}] = rows(C, ["select sync_state ", Of]),
    exit(Client, kill),
    eventually([], fun() -> rows(C, ["select pid ", Of]) end),
    ok = epgsql:close(C),
    binary_to_existing_atom(Role).

%% What Halley says, by a session as it has one.
counts(Config) ->
    #{server := Server} = settings(Config, #{}),
    {ok, C} = halley_postgres_connection:open(Server(), queries),
    Counts = halley_postgres_standby:counts(C),
    ok = epgsql:close(C),
    Counts.

names_that_the_server_refuses(Config) ->
    C = ?config(c, Config),
    ?assertEqual([], [Names || Names <- ?REFUSED, element(1, alter(Names, C)) =/= error]),
    [?assert(is_boolean(halley_postgres_standby:is_named(Names, "halley"))) || Names <- ?REFUSED].

%% Nor does the sentence with the names end what writes it.
warning_of_names_in_other_letters(Config) ->
    set(<<"\"", 228, "\", halley">>, ?config(c, Config), Config),
    C = halley_postgres_test:connect(Config),
    ?assertMatch([<<"synchronous_standby_names is '\"ä\", halley': "/utf8, _/binary>>],
                 [unicode:characters_to_binary(Each)
                  || Each <- halley_postgres_warnings:look(C, settings(Config, #{}))]),
    ok = epgsql:close(C).
