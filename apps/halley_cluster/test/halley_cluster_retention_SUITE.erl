%% The ring of segments in PostgreSQL: trims by several brains, and locks that are in their way.
-module(halley_cluster_retention_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_cluster_test, [open/1, append/5, token/0, all_rows/2, is_chain/1, admin/1, sql/2,
                              rows/2, filled/4, begins_with/1, used/1]).

-define(ENGINE, halley_cluster_postgres).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [trim_with_a_backup, trims_at_once, trim_in_order].

init_per_suite(Config) -> halley_cluster_test:start_postgres(Config).

end_per_suite(Config) -> halley_cluster_test:stop_postgres(Config).

init_per_testcase(_, Config) ->
    Config1 = halley_cluster_test:init_per_testcase(Config),
    [{c, admin(?config(server, Config))} | Config1].

end_per_testcase(_, Config) ->
    C = ?config(c, Config),
    _ = epgsql:squery(C, "rollback"),
    ok = epgsql:close(C),
    halley_cluster_test:end_per_testcase(Config).

%% pg_dump holds its locks for as long as it takes: no append waits for that, and no trim for long.
trim_with_a_backup(Config) ->
    C = ?config(c, Config),
    {{?ENGINE, Handle} = Engine, _} = open([{retention_ms, 300} | Config]),
    Last = filled(0, begins_with(<<"0,1,2">>), C, Engine),
    ok = sql(C, "begin"),
    _ = [ok = sql(C, ["lock table halley_cluster.log_", integer_to_list(K),
                      " in access share mode"]) || K <- lists:seq(0, 7)],
    {Us, Answer} = timer:tc(fun() -> ?ENGINE:trim(1 bsl 60, Handle) end),
    ?assertEqual({ok, 0}, Answer),
    ?assert(Us >= 100000),
    Last1 = filled(Last, begins_with(<<"0,1,2,3,4,5,6,7">>), C, Engine),
    Before = rows(C, "select count(*) from halley_cluster.log_7"),
    %% The ring is full: also a row that would end its segment stays in it.
    timer:sleep(100),
    Last2 = lists:foldl(fun(_, Prev) ->
        {ok, _} = append(Prev, Prev + 1, token(), <<"body">>, Engine),
        Prev + 1
    end, Last1, lists:seq(1, 10)),
    ?assertNotEqual(Before, rows(C, "select count(*) from halley_cluster.log_7")),
    ?assertEqual(Last2, length(all_rows(0, Engine))),
    ok = sql(C, "commit"),
    {ok, Floor} = ?ENGINE:trim(1 bsl 60, Handle),
    ?assertEqual(<<"7">>, used(C)),
    ?assert(Floor > Last),
    _ = filled(Last2, begins_with(<<"7,0">>), C, Engine),
    ?assert(is_chain(all_rows(Floor, Engine))).

%% Several brains trim while one appends.
trims_at_once(Config) ->
    C = ?config(c, Config),
    {Engine, _} = open([{retention_ms, 60} | Config]),
    Trimmers = [spawn_monitor(fun() ->
        {{?ENGINE, Handle}, _} = open(Config),
        trimming(Handle)
    end) || _ <- lists:seq(1, 3)],
    %% Once round the ring.
    Seventh = filled(0, fun(Used) -> lists:last(string:split(Used, ",", all)) =:= <<"7">> end, C,
                     Engine),
    Last = filled(Seventh, fun(Used) -> lists:last(string:split(Used, ",", all)) =:= <<"2">> end,
                  C, Engine),
    _ = [Pid ! stop || {Pid, _} <- Trimmers],
    _ = [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end
         || {Pid, Monitor} <- Trimmers],
    {{?ENGINE, _}, #{last := Last, floor := Floor}} = open(Config),
    ?assert(Floor > 0),
    Rows = all_rows(Floor, Engine),
    ?assert(is_chain(Rows)),
    ?assertEqual(Last - Floor, length(Rows)).

trimming(Handle) ->
    {ok, _} = ?ENGINE:trim(1 bsl 60, Handle),
    receive stop -> ok after 1 -> trimming(Handle) end.

%% A segment whose predecessor couldn't be emptied stays: else a writer of long ago would find its
%% place in it free.
trim_in_order(Config) ->
    C = ?config(c, Config),
    {{?ENGINE, Handle} = Engine, _} = open([{retention_ms, 300} | Config]),
    Last = filled(0, begins_with(<<"0,1,2">>), C, Engine),
    ok = sql(C, "begin; lock table halley_cluster.log_0 in access share mode"),
    {ok, 0} = ?ENGINE:trim(1 bsl 60, Handle),
    ?assertMatch(<<"0,1,2", _/binary>>, used(C)),
    [{End}] = rows(C, "select max(last) from halley_cluster.log_0"),
    ?assertEqual({conflict, Last},
                 append(binary_to_integer(End), 1000000, token(), <<>>, Engine)),
    ok = sql(C, "commit").
