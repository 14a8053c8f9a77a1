%% The engine in a PostgreSQL that commits when a standby has what it commits: the primary dies and
%% the standby takes over, and the standby stands still.
-module(halley_cluster_standby_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(halley_cluster_test, [open/1, append/5, append/6, token/0, all_rows/2, is_chain/1, admin/1,
                              sql/2, rows/2, eventually/2]).

-define(ENGINE, halley_cluster_postgres).
-define(WRITERS, 3).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [promotion, standby_stopped, no_connections_stay, rows_without_a_standby].

init_per_testcase(_, Config) ->
    Pair = halley_cluster_test:start_pair(Config),
    halley_cluster_test:init_per_testcase(Pair).

end_per_testcase(_, Config) ->
    stopped("CONT", integer_to_list(epgsql_test_server:os_pid(?config(standby, Config)))),
    halley_cluster_test:stop_postgres(Config).

%% Both hosts, as brains have them.
both(Config) ->
    {?ENGINE, #{connect := Connect} = Settings} = halley_cluster_test:engine(Config),
    Hosts = [{"127.0.0.1", port(?config(Which, Config))} || Which <- [server, standby]],
    Settings#{connect := (maps:remove(host, Connect))#{hosts => Hosts}}.

port(Server) -> maps:get(port, epgsql_test_server:options(Server)).

%% Several brains append until the primary is gone. They go on at the standby, and look for the
%% group whose fate they don't know. Each acknowledged group is there once.
promotion(Config) ->
    Settings = both(Config),
    Case = self(),
    Pids = [spawn_link(fun() -> writer(Case, Settings) end) || _ <- lists:seq(1, ?WRITERS)],
    timer:sleep(500),
    ok = epgsql_test_server:crash(?config(server, Config)),
    S = admin(?config(standby, Config)),
    [{<<"t">>}] = rows(S, "select pg_promote()"),
    timer:sleep(500),
    _ = [Pid ! stop || Pid <- Pids],
    Acknowledged = lists:append([receive {Pid, Tokens} -> Tokens end || Pid <- Pids]),
    {ok, Handle, #{last := Last, epochs := [#{n := 2, 'after' := After}, #{n := 1}]}} =
        ?ENGINE:open(Settings),
    Rows = all_rows(0, {?ENGINE, Handle}),
    ?assert(is_chain(Rows)),
    ?assertEqual(Last, maps:get(last, lists:last(Rows))),
    Tokens = [Token || #{token := Token} <- Rows],
    ?assertEqual(length(Tokens), length(lists:usort(Tokens))),
    ?assertEqual([], Acknowledged -- Tokens),
    ?assertEqual([], Tokens -- Acknowledged),
    ?assert(lists:any(fun(#{prev := Prev}) -> Prev =:= After end, Rows)),
    ?assert(After > 0),
    ct:pal("~b groups, ~b of them before the promotion",
           [length(Tokens), length([1 || #{last := Each} <- Rows, Each =< After])]),
    epgsql:close(S).

writer(Case, Settings) ->
    {ok, Handle, #{last := Last}} = ?ENGINE:open(Settings),
    Case ! {self(), writing(Last, Handle, Settings, [])}.

writing(Prev, Handle, Settings, Tokens) ->
    receive stop -> Tokens
    after 0 ->
        Token = token(),
        {Last, Handle1} = written(Prev, Token, Handle, Settings),
        writing(Last, Handle1, Settings, [Token | Tokens])
    end.

written(Prev, Token, Handle, Settings) ->
    case append(Prev, Prev + 1, Token, <<"body">>, {?ENGINE, Handle}) of
        {ok, _} -> {Prev + 1, Handle};
        {conflict, Last} -> written(Last, Token, Handle, Settings);
        {error, away} -> again(Prev, Token, Handle, Settings);
        _ -> again(Prev, Token, Handle, Settings)
    end.

%% The group has that place, or none yet.
again(Prev, Token, Handle, Settings) ->
    ok = ?ENGINE:close(Handle),
    case ?ENGINE:open(Settings) of
        {ok, Handle1, #{last := Last}} ->
            case ?ENGINE:read(Prev, 1, Handle1) of
                {ok, [#{token := Token, last := Its}]} -> {Its, Handle1};
                _ -> written(Last, Token, Handle1, Settings)
            end;
        {error, _} ->
            timer:sleep(20),
            again(Prev, Token, Handle, Settings)
    end.

%% Nothing is acknowledged, nothing is cancelled, and all of it is there afterwards.
standby_stopped(Config) ->
    C = admin(?config(server, Config)),
    {?ENGINE, Settings} = halley_cluster_test:engine(Config),
    {Before, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<>>, Before),
    {ok, Handle, _} = ?ENGINE:open(Settings#{append_ms => 300}),
    OsPid = integer_to_list(epgsql_test_server:os_pid(?config(standby, Config))),
    %% The process that receives, too.
    stopped("STOP", OsPid),
    Token = token(),
    ?assertEqual(unknown, append(1, 2, Token, <<>>, {?ENGINE, Handle})),
    ok = ?ENGINE:close(Handle),
    waits_for_standby(C, 1),
    %% Its place is taken, by a row that isn't to be seen yet.
    {Other, #{last := 1}} = open(Config),
    ?assertEqual({error, away}, append(1, 2, token(), <<>>, Other)),
    stopped("CONT", OsPid),
    {Engine, _} = open(Config),
    eventually(true, fun() -> length(all_rows(0, Engine)) =:= 2 end),
    ?assertMatch([_, #{token := Token}], all_rows(0, Engine)),
    {ok, _} = append(2, 3, token(), <<>>, Engine),
    epgsql:close(C).

waits_for_standby(C, Count) ->
    eventually([{integer_to_binary(Count)}], fun() ->
        rows(C, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'")
    end).

%% Whoever gives up leaves a session that waits for the standby. Those that come after it for the
%% same row don't wait behind it, so the server has connections left.
no_connections_stay(Config) ->
    C = admin(?config(server, Config)),
    {?ENGINE, Settings} = halley_cluster_test:engine(Config),
    {Before, _} = open(Config),
    {ok, _} = append(0, 1, token(), <<>>, Before),
    ok = close(Before),
    OsPid = integer_to_list(epgsql_test_server:os_pid(?config(standby, Config))),
    stopped("STOP", OsPid),
    abandoned(fun(H) -> append(1, 2, token(), <<>>, {?ENGINE, H}) end, Settings, C, 1),
    abandoned(fun(H) -> ?ENGINE:take(order, <<"a">>, 0, 1000, H) end, Settings, C, 2),
    [begin
         ?assertEqual({error, away},
                      once(fun(H) -> append(1, 2, token(), <<>>, {?ENGINE, H}) end, Settings)),
         ?assertEqual({error, away},
                      once(fun(H) -> ?ENGINE:take(order, <<"b">>, 0, 1000, H) end, Settings)),
         %% A brain's row waits for no standby.
         Brain = #{name => <<"a">>, address => <<"x">>, version => 1, head => N, seen => 0},
         ?assertMatch({ok, [_], _}, once(fun(H) -> ?ENGINE:brains(Brain, H) end, Settings))
     end || N <- lists:seq(1, 3)],
    eventually([{<<"2">>}], fun() ->
        rows(C, "select count(*) from pg_stat_activity where usename = 'plain'")
    end),
    stopped("CONT", OsPid),
    waits_for_standby(C, 0),
    ok = epgsql:close(C).

%% The caller dies while its call is one of so many that wait.
abandoned(Call, Settings, C, Count) ->
    Pid = spawn(fun() -> once(Call, Settings) end),
    waits_for_standby(C, Count),
    true = exit(Pid, kill).

%% As a brain that opens anew after each failure.
once(Call, Settings) ->
    {ok, Handle, _} = ?ENGINE:open(Settings),
    Answer = Call(Handle),
    ok = ?ENGINE:close(Handle),
    Answer.

close({?ENGINE, Handle}) -> ?ENGINE:close(Handle).

stopped(Signal, OsPid) ->
    Children = string:tokens(os:cmd("pgrep -P " ++ OsPid), "\n"),
    _ = [os:cmd(["kill -", Signal, " ", Pid]) || Pid <- [OsPid | Children]],
    ok.

%% A wait that is cancelled leaves a row that no standby has. After the promotion it is gone: its
%% writer, which has `unknown', finds its place free.
rows_without_a_standby(Config) ->
    C = admin(?config(server, Config)),
    Settings = both(Config),
    {ok, Handle, _} = ?ENGINE:open(Settings),
    {ok, _} = append(0, 1, token(), <<>>, {?ENGINE, Handle}),
    ok = epgsql_test_server:crash(?config(standby, Config)),
    Case = self(),
    Token = token(),
    _ = spawn_link(fun() ->
        {ok, Its, _} = ?ENGINE:open(Settings#{append_ms => 20000, connect := maps:merge(
            maps:get(connect, Settings),
            #{hosts => [{"127.0.0.1", port(?config(server, Config))}]})}),
        Case ! {answer, append(1, 2, Token, <<>>, {?ENGINE, Its})}
    end),
    eventually([{<<"1">>}], fun() ->
        rows(C, "select count(pg_cancel_backend(pid)) from pg_stat_activity "
                "where wait_event = 'SyncRep'")
    end),
    ?assertEqual(unknown, receive {answer, Answer} -> Answer end),
    {?ENGINE, Alone} = halley_cluster_test:engine(Config),
    {ok, Reader, #{last := 2}} = ?ENGINE:open(Alone),
    ok = ?ENGINE:close(Reader),
    ok = epgsql:close(C),
    ok = epgsql_test_server:crash(?config(server, Config)),
    Standby = epgsql_test_server:restart(?config(standby, Config)),
    S = admin(Standby),
    [{<<"t">>}] = rows(S, "select pg_promote()"),
    ok = epgsql:close(S),
    {ok, Again, #{epochs := [#{n := 2}, _]}} = ?ENGINE:open(Settings),
    ?assertMatch({ok, _}, append(1, 2, Token, <<>>, {?ENGINE, Again})),
    epgsql_test_server:stop(Standby).
