%% COPY TO STDOUT as a stream: its rows, its pace, and its ends.
-module(epgsql_copy_out_SUITE).

-include("epgsql_suite.hrl").

all() ->
    [text, binary, binary_of_no_rows, nulls, long_rows, a_slow_receiver_costs_no_memory,
     failing_fun_stops_it, receiver_that_dies, time_out_of_a_part,
     time_out_in_the_queue, error_on_the_way,
     what_is_no_copy, wrong_format, over_tls].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    {ok, C} = epgsql:connect(epgsql_test_server:options(?config(server, Config))),
    [{connection, C} | Config].

end_per_testcase(_, Config) ->
    C = ?config(connection, Config),
    %% Whatever happened, the connection is in order.
    ?assertMatch({ok, _, [{1}]}, epgsql:equery(C, "select 1")),
    epgsql:close(C).

all_rows(C, Sql, Format) ->
    epgsql:copy_to_stdout(C, Sql, Format, fun(Rows, Acc) -> Acc ++ Rows end, []).

text(Config) ->
    C = ?config(connection, Config),
    ?assertEqual({ok, 2, [<<"1\ta\n">>, <<"2\t\\N\n">>]},
                 all_rows(C, "copy (values (1, 'a'), (2, null)) to stdout", text)),
    ?assertEqual({ok, 1, [<<"1,\"a,b\"\n">>]},
                 all_rows(C, "copy (values (1, 'a,b')) to stdout (format csv)", text)).

binary(Config) ->
    C = ?config(connection, Config),
    {ok, Count, {Sum, Seen}} =
        epgsql:copy_to_stdout(C, "copy (select i, i::text from generate_series(1, 200000) i)"
                              " to stdout (format binary)", {binary, [int4, text]},
            fun(Rows, {Sum, Seen}) ->
                {lists:foldl(fun({I, Text}, Acc) ->
                     ?assertEqual(I, binary_to_integer(Text)),
                     Acc + I
                 end, Sum, Rows), Seen + length(Rows)}
            end, {0, 0}),
    ?assertEqual({200000, 200000, 200000 * 200001 div 2}, {Count, Seen, Sum}).

binary_of_no_rows(Config) ->
    ?assertEqual({ok, 0, []}, all_rows(?config(connection, Config),
        "copy (select 1 where false) to stdout (format binary)", {binary, [int4]})).

nulls(Config) ->
    ?assertEqual({ok, 1, [{null, [1, null]}]}, all_rows(?config(connection, Config),
        "copy (select null::int4, array[1, null]) to stdout (format binary)",
        {binary, [int4, {array, int4}]})).

%% A row of many reads.
long_rows(Config) ->
    {ok, 3, Rows} = all_rows(?config(connection, Config),
        "copy (select repeat('x', 5000000) from generate_series(1, 3)) to stdout (format binary)",
        {binary, [text]}),
    ?assertEqual([5000000, 5000000, 5000000], [byte_size(Text) || {Text} <- Rows]).

%% 200 MB through a receiver that takes its time; what waits on the way stays small.
a_slow_receiver_costs_no_memory(Config) ->
    C = ?config(connection, Config),
    Fun = fun(Rows, {Bytes, Most, Parts}) ->
        _ = [timer:sleep(5) || Parts rem 20 =:= 0],
        {binary, Held} = process_info(C, binary),
        {message_queue_len, Queued} = process_info(C, message_queue_len),
        ?assert(Queued < 20),
        {Bytes + iolist_size(Rows),
         max(Most, lists:sum([Size || {_, Size, _} <- lists:usort(Held)])), Parts + 1}
    end,
    {ok, _, {Bytes, Most, Parts}} = epgsql:copy_to_stdout(C,
        "copy (select repeat('x', 1000) from generate_series(1, 200000)) to stdout", text, Fun,
        {0, 0, 0}),
    ct:pal("~b bytes in ~b parts, at most ~b held by the connection", [Bytes, Parts, Most]),
    ?assertEqual(200000 * 1001, Bytes),
    ?assert(Most < 1000000).

%% In the list of columns, rows are made as they are sent.
endless() -> "copy (select generate_series(1, 1000000000), repeat('x', 100)) to stdout".

failing_fun_stops_it(Config) ->
    C = ?config(connection, Config),
    ?assertError(enough, epgsql:copy_to_stdout(C, endless(), fun(_, _) -> error(enough) end, 0)),
    ?assertEqual(found, catch epgsql:copy_to_stdout(C, endless(),
                                                    fun(_, _) -> throw(found) end, 0)),
    ?assertEqual([], flush()).

receiver_that_dies(Config) ->
    C = ?config(connection, Config),
    Self = self(),
    Pid = spawn(fun() ->
        epgsql:copy_to_stdout(C, endless(), fun(_, _) -> Self ! begun, timer:sleep(60000) end, 0)
    end),
    receive begun -> exit(Pid, kill) end,
    ?assertMatch({ok, _, [{2}]}, epgsql:equery(epgsql:with_timeout(C, ?WAIT_MS), "select 2")).

time_out_of_a_part(Config) ->
    C = ?config(connection, Config),
    ?assertEqual({error, timeout},
                 epgsql:copy_to_stdout(epgsql:with_timeout(C, 200),
                                       "copy (select pg_sleep(60)) to stdout",
                                       fun(_, Acc) -> Acc end, 0)),
    %% The server has been told: this doesn't wait for a minute.
    ?assertMatch({ok, _, [{2}]}, epgsql:equery(epgsql:with_timeout(C, ?WAIT_MS), "select 2")),
    ?assertEqual([], flush()).

%% Behind something else, so that it hasn't begun.
time_out_in_the_queue(Config) ->
    C = ?config(connection, Config),
    Ref = epgsqla:squery(C, "select pg_sleep(3)"),
    ?assertEqual({error, timeout},
                 epgsql:copy_to_stdout(epgsql:with_timeout(C, 100),
                                       "copy (select generate_series(1, 100000)) to stdout",
                                       fun(_, Acc) -> Acc end, 0)),
    receive {C, Ref, {ok, _, _}} -> ok after ?WAIT_MS -> error(not_answered) end,
    ?assertMatch({ok, _, [{2}]}, epgsql:equery(epgsql:with_timeout(C, ?WAIT_MS), "select 2")),
    ?assertEqual([], flush()).

error_on_the_way(Config) ->
    C = ?config(connection, Config),
    ?assertMatch({error, #error{codename = division_by_zero}},
                 epgsql:copy_to_stdout(C, "copy (select 1 / (100000 - i) from"
                                       " generate_series(1, 200000) i) to stdout",
                                       fun(_, Acc) -> Acc end, 0)),
    ?assertMatch({error, #error{codename = undefined_table}},
                 all_rows(C, "copy nowhere to stdout", text)).

what_is_no_copy(Config) ->
    ?assertEqual({error, not_a_copy}, all_rows(?config(connection, Config), "select 1", text)).

wrong_format(Config) ->
    C = ?config(connection, Config),
    ?assertEqual({error, {format_mismatch, {binary, [int4]}, text}},
                 all_rows(C, "copy (select 1) to stdout", {binary, [int4]})),
    ?assertEqual({error, {malformed, copy_row}},
                 all_rows(C, "copy (select 1, 2) to stdout (format binary)", {binary, [int4]})),
    ?assertEqual({error, {malformed, copy_row}},
                 all_rows(C, "copy (select 'text') to stdout (format binary)", {binary, [bool]})).

over_tls(Config) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(?config(server, Config),
        #{ssl => required, ssl_opts => [{verify, verify_none}]})),
    {ok, 100000, Count} = epgsql:copy_to_stdout(C,
        "copy (select i from generate_series(1, 100000) i) to stdout", text,
        fun(Rows, Acc) -> Acc + length(Rows) end, 0),
    ?assertEqual(100000, Count),
    epgsql:close(C).

flush() ->
    receive Message -> [Message | flush()]
    after 100 -> []
    end.
