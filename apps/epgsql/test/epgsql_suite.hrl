%% What suites share that ask a PostgreSQL: one server for all of a suite's cases.

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("epgsql.hrl").

-compile([export_all, nowarn_export_all]).

%% Of what has to come; a busy machine takes its time.
-define(WAIT_MS, 30000).

suite() -> [{timetrap, {minutes, 5}}].

init_per_suite(Config) -> [{server, epgsql_test_server:start()} | Config].

end_per_suite(Config) -> epgsql_test_server:stop(?config(server, Config)).

options(Config, More) -> epgsql_test_server:options(?config(server, Config), More).
