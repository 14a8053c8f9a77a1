%% What suites share that ask a PostgreSQL by a pool: a pool for each case.

-include("epgsql_suite.hrl").

-define(POOL, epgsql_test_pool).

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) ->
    _ = [epgsql_pool:stop(?POOL) || whereis(?POOL) =/= undefined],
    ok.

start(Config) -> start(Config, #{}).

start(Config, More) -> start(Config, More, #{}).

start(Config, More, Connect) ->
    {ok, _} = epgsql_pool:start_link(?POOL, maps:merge(#{connect => options(Config, Connect),
                                                         size => 4}, More)),
    ok.

value(Sql) -> value(Sql, []).

value(Sql, Parameters) ->
    {ok, _, [{Value}]} = epgsql_pool:equery(?POOL, Sql, Parameters),
    Value.

metric(Name) -> maps:get(Name, epgsql_pool:metrics(?POOL)).

backend() -> value("select pg_backend_pid()").

until(Fun) -> until(Fun, 600).

until(Fun, Left) ->
    case Fun() of
        true -> ok;
        false when Left > 0 -> timer:sleep(50), until(Fun, Left - 1)
    end.

%% Processes that run the fun at once, and their answers.
parallel(Count, Fun) ->
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), Fun(N)} end) || N <- lists:seq(1, Count)],
    [receive {Pid, Answer} -> Answer;
             {'EXIT', Pid, Reason} when Reason =/= normal -> error(Reason)
     end || Pid <- Pids].
