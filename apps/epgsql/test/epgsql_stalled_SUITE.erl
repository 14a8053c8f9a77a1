%% A server that stands still while much is written to it. Whatever waits for it is answered when
%% its time is over, and nothing else waits: neither other calls nor whoever closes.
-module(epgsql_stalled_SUITE).

-include("epgsql_suite.hrl").

%% Of closing after a time-out: 5 s for the server to answer that it has stopped, and then some.
-define(CLOSED_MS, 12000).
-define(LARGE, 50000000).
%% Of what is written meanwhile. Other calls come back before that, also on a machine that stands
%% still for seconds: what was written isn't answered yet.
-define(LARGE_MS, 6000).

all() ->
    [{group, plain}, {group, tls}, {group, held}].

groups() ->
    [{plain, [], cases()}, {tls, [], cases()},
     {held, [], [large_request_of_a_pool, closing_without_a_process,
                 closing_while_it_is_encrypted]}].

cases() ->
    [large_request, closing, put_chars, copy_rows, server_that_goes_on,
     failed_copy_answers_who_writes].

init_per_group(tls, Config) ->
    [{options, #{ssl => required, ssl_opts => [{verify, verify_none}]}} | Config];
init_per_group(_, Config) ->
    [{options, #{}} | Config].

end_per_group(_, _) -> ok.

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

%% Kills what has been stopped, so that the server can end.
end_per_testcase(_, _) ->
    _ = [os:cmd("kill -CONT " ++ OsPid) || {{stopped, OsPid}, _} <- get()],
    ok.

connect(Config) -> connect(Config, #{}).

connect(Config, More) ->
    {ok, C} = epgsql:connect(options(Config, maps:merge(?config(options, Config), More))),
    C.

stop(C) ->
    OsPid = integer_to_list(epgsql:get_backend_pid(C)),
    put({stopped, OsPid}, true),
    [] = os:cmd("kill -STOP " ++ OsPid),
    OsPid.

large() -> ["select length('", binary:copy(<<"x">>, ?LARGE), "')"].

within(Ms, Fun) ->
    {Us, Answer} = timer:tc(Fun),
    ?assert(Us < 1000 * Ms),
    Answer.

ends(C, Reason) ->
    ?assertEqual(Reason, receive {'EXIT', C, Why} -> Why after ?CLOSED_MS -> still_there end).

large_request(Config) ->
    C = connect(Config),
    _ = stop(C),
    Large = epgsqla:squery(epgsql:with_timeout(C, ?LARGE_MS), large()),
    ?assertMatch({ok, <<"UTF8">>}, epgsql:get_parameter(C, "client_encoding")),
    ?assertEqual({error, timeout}, epgsql:squery(epgsql:with_timeout(C, 200), "select 1")),
    ?assertEqual(waits, receive {C, Large, Early} -> Early after 0 -> waits end),
    Waits = epgsqla:squery(C, "select 2"),
    ?assertEqual({error, timeout}, receive {C, Large, Answer} -> Answer after ?WAIT_MS -> late end),
    ends(C, {shutdown, timeout}),
    ?assertEqual({error, closed}, receive {C, Waits, Other} -> Other after 0 -> none end).

%% Who waits is told.
closing(Config) ->
    C = connect(Config),
    _ = stop(C),
    Large = epgsqla:squery(C, large()),
    timer:sleep(500),
    ok = epgsql:close(C),
    within(?LARGE_MS, fun() -> ends(C, normal) end),
    ?assertEqual({error, closed}, receive {C, Large, Answer} -> Answer after 0 -> none end).

copying(Config, Format, More) ->
    C = connect(Config, More),
    {ok, [], []} = epgsql:squery(C, "create temp table t (a text)"),
    {Sql, Columns} = case Format of
                         text -> {"copy t from stdin", [text]};
                         _ -> {"copy t from stdin (format binary)", [binary]}
                     end,
    {ok, Columns} = epgsql:copy_from_stdin(C, Sql, Format),
    C.

until_it_fails(Write) ->
    case Write() of
        ok -> until_it_fails(Write);
        Error -> Error
    end.

%% The one that the socket doesn't take ends in its time, and the connection with it.
put_chars(Config) ->
    C = copying(Config, text, #{call_timeout => 1000}),
    _ = stop(C),
    Lines = binary:copy(<<"0123456\n">>, 12500),
    ?assertEqual({error, timeout}, within(15000, fun() ->
        until_it_fails(fun() -> file:write(C, Lines) end)
    end)),
    within(?LARGE_MS, fun() -> ends(C, {shutdown, timeout}) end).

%% Its caller isn't ended by it, and other calls are answered meanwhile.
copy_rows(Config) ->
    C = copying(Config, {binary, [text]}, #{}),
    _ = stop(C),
    Rows = lists:duplicate(100, {binary:copy(<<"x">>, 1000)}),
    Self = self(),
    Writer = spawn_link(fun() ->
        Self ! {written, until_it_fails(fun() -> epgsql:copy_send_rows(C, Rows, ?LARGE_MS) end)}
    end),
    timer:sleep(1000),
    {ok, _} = epgsql:get_parameter(C, "TimeZone"),
    ?assertEqual(waits, receive {written, Early} -> Early after 0 -> waits end),
    ?assertEqual({error, timeout}, receive {written, Answer} -> Answer after ?WAIT_MS -> late end),
    ?assertEqual(normal, receive {'EXIT', Writer, Why} -> Why after ?WAIT_MS -> still_there end),
    within(?LARGE_MS, fun() -> ends(C, {shutdown, timeout}) end).

%% Nothing is lost of what was written meanwhile, and all is in its order.
server_that_goes_on(Config) ->
    C = copying(Config, text, #{}),
    OsPid = stop(C),
    Self = self(),
    _ = spawn_link(fun() ->
        _ = [ok = io:put_chars(C, [integer_to_list(N), binary:copy(<<"x">>, 20000), $\n])
             || N <- lists:seq(1, 2000)],
        Self ! written
    end),
    timer:sleep(500),
    _ = os:cmd("kill -CONT " ++ OsPid),
    receive written -> ok after ?WAIT_MS -> error(late) end,
    ?assertEqual({ok, 2000}, epgsql:copy_done(C)),
    ?assertMatch({ok, _, [{true}]}, epgsql:equery(C,
        "select array_agg(rtrim(a, 'x')::int order by ctid)"
        " = array(select generate_series(1, 2000)) from t")),
    ok = epgsql:close(C).

%% An error of the server ends the COPY: who writes is told, and the connection is good for more.
failed_copy_answers_who_writes(Config) ->
    C = copying(Config, text, #{}),
    Lines = binary:copy(<<"a\tb\n">>, 25000),
    ?assertMatch({error, _}, within(?WAIT_MS, fun() ->
        until_it_fails(fun() -> file:write(C, Lines) end)
    end)),
    receive {epgsql, C, {error, #error{codename = bad_copy_file_format}}} -> ok end,
    ?assertMatch({ok, _, [{1}]}, epgsql:equery(C, "select 1")),
    ok = epgsql:close(C).

%% The pool goes on with another connection.
large_request_of_a_pool(Config) ->
    {ok, Pool} = epgsql_pool:start_link(?MODULE, #{size => 1, connect => options(Config, #{})}),
    ?assertEqual({error, timeout}, within(?LARGE_MS, fun() ->
        epgsql_pool:with(?MODULE, fun(C) ->
            _ = stop(C),
            epgsql:squery(C, large())
        end, #{timeout => 1000})
    end)),
    ?assertMatch({ok, _, [{1}]}, within(?CLOSED_MS, fun() ->
        epgsql_pool:equery(?MODULE, "select 1", [], #{wait_ms => ?CLOSED_MS})
    end)),
    within(?LARGE_MS, fun() -> epgsql_pool:stop(Pool) end).

closing_without_a_process(Config) ->
    [begin
         {ok, Session} = epgsql_held:open(options(Config, More)),
         Handle = epgsql_held:hold(Session),
         _ = stop(Handle),
         ?assertEqual({error, timeout},
                      epgsql:squery(epgsql:with_timeout(Handle, 500), large())),
         within(?LARGE_MS, fun() -> epgsql_held:discard(epgsql_held:let_go(Handle)) end)
     end || More <- [#{}, #{ssl => required, ssl_opts => [{verify, verify_none}]}]].

%% TLS has its data still, so nothing waits for the kernel; and its last word waits behind them.
closing_while_it_is_encrypted(Config) ->
    Before = senders(),
    {ok, Session} = epgsql_held:open(options(Config, #{ssl => required,
                                                       ssl_opts => [{verify, verify_none}]})),
    [Sender] = senders() -- Before,
    true = erlang:suspend_process(Sender),
    ok = within(?LARGE_MS, fun() -> epgsql_held:discard(Session) end),
    true = erlang:resume_process(Sender).

senders() ->
    [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= {tls_sender, init, 1}].
