%% Connections against a real PostgreSQL: who the client is, TLS, several hosts, time-outs, and what
%% becomes of requests when something goes wrong. epgsql 4.8's own suites ask the rest of the API
%% (`make epgsql-suites').
-module(epgsql_connection_SUITE).

-include("epgsql_suite.hrl").

all() ->
    [passwords, passwords_with_odd_letters, scram_password_in_unicode, wrong_password,
     refused_login_as_the_server_says_it, names_beyond_ascii, tls_verifies_the_server,
     tls_required_and_not_had, scram_is_bound_to_the_channel, client_certificate, unix_socket, ipv6,
     first_host_that_answers, host_by_session_attributes, call_times_out_and_is_cancelled,
     connection_default_for_time_outs, queued_call_times_out, silent_server_times_out,
     pipelined_error_skips_to_the_sync, pipelined_error_without_sync, large_batch_does_not_stall,
     parameters_of_the_session, copy_in_a_simple_query_is_refused,
     failed_copy_leaves_a_usable_connection, copy_from_stdin_waits_for_the_server,
     deferred_constraint_fails_the_commit, server_crash, malformed_bytes,
     nul_in_a_query_is_refused, command_of_an_application].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

options(Config) -> options(Config, #{}).

connect(Config) -> connect(Config, #{}).

connect(Config, More) ->
    {ok, C} = epgsql:connect(options(Config, More)),
    C.

value(C, Sql) ->
    {ok, _, [{Value}]} = epgsql:equery(C, Sql),
    Value.

passwords(Config) ->
    [begin
         C = connect(Config, #{username => Role, password => Password}),
         ?assertEqual(list_to_binary(Role), value(C, "select current_user::text")),
         ok = epgsql:close(C)
     end || Role <- ["clear", "digest", "scram"],
            Password <- ["secret", <<"secret">>, fun() -> "secret" end]].

%% The server prepares a password by itself when it is set. Text in two directions and what Unicode
%% 3.2 didn't know stay as they are; so do bytes that are no text.
passwords_with_odd_letters(Config) ->
    C = connect(Config),
    Texts = ["p@ss:w/rd?#[]%25", " two  words ", "quote\"$", "\x{e9}", "e\x{301}",
             "\x{2168}\x{a0}\x{ad}\x{e9}", "\x{43f}\x{430}", "\x{1f511}e\x{301}",
             "\x{5e9}\x{5dc}1 e\x{301}", "\x{5e9}\x{fb4f}", "\x{5e9}1\x{fb4f}"],
    [begin
         Encryption = case Role of "digest" -> "md5"; _ -> "scram-sha-256" end,
         Password = unicode:characters_to_binary(Text),
         [] = [Error || {error, Error} <- epgsql:squery(C,
                   ["set password_encryption = '", Encryption, "'; alter role ", Role,
                    " password '", Password, "'"])],
         [begin
              Answer = epgsql:connect(options(Config, #{username => Role, password => Given})),
              ?assertMatch({Role, Text, {ok, _}}, {Role, Text, Answer}),
              ok = epgsql:close(element(2, Answer))
          end
          || Given <- [Password, fun() -> Password end]
                      ++ [Form || lists:any(fun(Each) -> Each > 255 end, Text),
                                  Form <- [Text, fun() -> Text end]]]
     end || Text <- Texts ++ ["secret"], Role <- ["clear", "digest", "scram"]].

refused_login_as_the_server_says_it(Config) ->
    Ask = fun(More) -> epgsql:connect(options(Config, More#{login_errors => whole})) end,
    ?assertMatch({error, #error{codename = invalid_password,
                                message = <<"password authentication failed", _/binary>>}},
                 Ask(#{username => "scram", password => "guess"})),
    ?assertMatch({error, #error{codename = invalid_authorization_specification,
                                message = <<"pg_hba.conf rejects connection", _/binary>>}},
                 Ask(#{username => "nobody"})).

names_beyond_ascii(Config) ->
    [Role, Database] = ["b\x{f8}\x{5bc6}", "\x{43f}\x{430} \x{e9}"],
    C = connect(Config),
    ok = done(C, ["create role \"", Role, "\" login superuser"]),
    ok = done(C, ["create database \"", Database, "\""]),
    There = connect(Config, #{username => Role, database => Database, application_name => Role}),
    ?assertEqual([unicode:characters_to_binary(Each) || Each <- [Role, Database]],
                 [value(There, Sql) || Sql <- ["select current_user::text",
                                               "select current_database()::text"]]),
    ok = epgsql:close(There),
    ok = done(C, ["drop database \"", Database, "\" with (force)"]),
    ok = done(C, ["drop role \"", Role, "\""]).

done(C, Sql) ->
    [] = [Error || {error, Error} <- lists:flatten([epgsql:squery(
                       C, unicode:characters_to_binary(Sql))])],
    ok.

%% RFC 4013: Roman nine is IX, a no-break space is a space.
scram_password_in_unicode(Config) ->
    [?assert(is_pid(connect(Config, #{username => "scram_unicode",
                                      password => unicode:characters_to_binary(Password)})))
     || Password <- ["\x{2168}\x{a0}\x{e9}", "IX e\x{301}"]].

wrong_password(Config) ->
    [?assertEqual({error, invalid_password},
                  epgsql:connect(options(Config, #{username => Role, password => "guess"})))
     || Role <- ["clear", "digest", "scram"]],
    ?assertEqual({error, password_missing},
                 epgsql:connect(options(Config, #{username => "scram"}))),
    ?assertEqual({error, invalid_authorization_specification},
                 epgsql:connect(options(Config, #{username => "nobody"}))).

parameters_of_the_session(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "alter role current_user set timezone = 'Asia/Tokyo'"),
    try
        Given = connect(Config, #{parameters => [{"TimeZone", "UTC"},
                                                 {"DateStyle", <<"German">>}]}),
        ?assertEqual(<<"02.01.2026 03:04:05 UTC">>,
                     value(Given, "select '2026-01-02T03:04:05Z'::timestamptz::text")),
        ?assertEqual({ok, <<"UTC">>}, epgsql:get_parameter(Given, "TimeZone"))
    after
        epgsql:squery(C, "alter role current_user reset timezone")
    end.

tls(Config, More) ->
    Authority = filename:join(epgsql_test_server:temporary(?config(server, Config)), "ca.crt"),
    Options = #{ssl => required, host => "localhost", ssl_opts => [{cacertfile, Authority}]},
    maps:merge(Options, More).

%% Nothing but `ssl => required' must be said for a server to be checked.
tls_verifies_the_server(Config) ->
    C = connect(Config, tls(Config, #{})),
    ?assertEqual(true, value(C, "select ssl from pg_stat_ssl where pid = pg_backend_pid()")),
    ?assertMatch({error, {ssl_negotiation_failed, {tls_alert, {unknown_ca, _}}}},
                 epgsql:connect(options(Config, #{ssl => required, host => "localhost"}))),
    ?assertMatch({error, {ssl_negotiation_failed, {tls_alert, {handshake_failure, _}}}},
                 epgsql:connect(options(Config, tls(Config, #{host => "127.0.0.1"})))),
    ?assert(is_pid(connect(Config, #{ssl => required, host => "127.0.0.1",
                                     ssl_opts => [{verify, verify_none}]}))).

%% A server without TLS: `true' goes on in the clear, as epgsql 4.8 does, `required' doesn't.
tls_required_and_not_had(_) ->
    Port = epgsql_test_listener:start(fun(Socket) ->
        {ok, _} = gen_tcp:recv(Socket, 8),
        ok = gen_tcp:send(Socket, "N")
    end),
    Options = #{host => "127.0.0.1", port => Port, username => "ann"},
    ?assertEqual({error, ssl_not_available}, epgsql:connect(Options#{ssl => required})).

%% RFC 5929: over TLS the server offers SCRAM-SHA-256-PLUS, and it is what is taken.
scram_is_bound_to_the_channel(Config) ->
    C = connect(Config, tls(Config, #{username => "plus", password => "secret"})),
    ?assertEqual(<<"plus">>, value(C, "select current_user::text")),
    ?assertMatch({ok, <<"SCRAM-SHA-256-PLUS">>, {tls_server_end_point, _}},
                 epgsql_scram:mechanism([<<"SCRAM-SHA-256-PLUS">>, <<"SCRAM-SHA-256">>],
                                        {tls_server_end_point, <<"hash">>})).

client_certificate(Config) ->
    Folder = epgsql_test_server:temporary(?config(server, Config)),
    File = fun(Name) -> filename:join(Folder, Name) end,
    C = connect(Config, #{username => "by_cert", ssl => required, host => "localhost",
                          ssl_opts => [{cacertfile, File("ca.crt")},
                                       {certfile, File("by_cert.crt")},
                                       {keyfile, File("by_cert.key")}]}),
    ?assertEqual(<<"by_cert">>, value(C, "select current_user::text")).

unix_socket(Config) ->
    Folder = epgsql_test_server:temporary(?config(server, Config)),
    C = connect(Config, #{host => Folder}),
    ?assertEqual(null, value(C, "select inet_client_addr()")).

ipv6(Config) ->
    C = connect(Config, #{host => {0, 0, 0, 0, 0, 0, 0, 1}}),
    ?assertEqual({0, 0, 0, 0, 0, 0, 0, 1}, element(1, value(C, "select inet_client_addr()::cidr"))).

first_host_that_answers(Config) ->
    #{port := Port} = options(Config),
    Closed = epgsql_test_server:options(?config(server, Config)),
    C = connect(Config, #{hosts => [{"127.0.0.1", 1}, {"127.0.0.1", Port}]}),
    ?assertEqual(1, value(C, "select 1")),
    ?assertEqual({error, econnrefused},
                 epgsql:connect(Closed#{hosts => [{"127.0.0.1", 1}, {"127.0.0.1", 2}]})).

host_by_session_attributes(Config) ->
    [?assert(is_pid(connect(Config, #{target_session_attrs => Target})))
     || Target <- [any, primary, 'read-write', 'prefer-standby']],
    [?assertEqual({error, {no_such_host, Target}},
                  epgsql:connect(options(Config, #{target_session_attrs => Target})))
     || Target <- [standby, 'read-only']].

%% The caller is answered in time, the server stops, the connection is good for more.
call_times_out_and_is_cancelled(Config) ->
    C = connect(Config),
    {Us, Answer} = timer:tc(fun() ->
        epgsql:squery(epgsql:with_timeout(C, 200), "select pg_sleep(60)")
    end),
    ?assertEqual({error, timeout}, Answer),
    ?assert(Us < 1000 * ?WAIT_MS),
    ?assertEqual(1, value(C, "select 1")),
    {ok, _, [{Sleepers}]} = epgsql:squery(C, "select count(*) from pg_stat_activity"
        " where state = 'active' and query like '%pg_sleep(60)%' and pid <> pg_backend_pid()"),
    ?assertEqual(<<"0">>, Sleepers),
    ok = epgsql:close(C).

connection_default_for_time_outs(Config) ->
    C = connect(Config, #{call_timeout => 200}),
    ?assertEqual({error, timeout}, epgsql:equery(C, "select pg_sleep($1)", [60])),
    Ref = epgsqla:squery(C, "select pg_sleep(60)"),
    ?assertEqual({error, timeout}, receive {C, Ref, Result} -> Result after ?WAIT_MS -> none end),
    Incremental = epgsqli:squery(C, "select pg_sleep(60)"),
    ?assertEqual({error, timeout},
                 receive {C, Incremental, {error, _} = Part} -> Part after ?WAIT_MS -> none end),
    ?assertEqual(1, value(C, "select 1")).

queued_call_times_out(Config) ->
    C = connect(Config),
    Ref = epgsqla:squery(C, "select pg_sleep(3)"),
    ?assertEqual({error, timeout}, epgsql:squery(epgsql:with_timeout(C, 100), "select 1")),
    ?assertMatch({ok, _, [{<<>>}]}, receive {C, Ref, Result} -> Result after ?WAIT_MS -> none end),
    ?assertEqual(2, value(C, "select 2")).

%% A server that accepts and says nothing.
silent_server_times_out(_) ->
    Port = epgsql_test_listener:start(fun(_) -> timer:sleep(2 * ?WAIT_MS) end),
    {Us, Answer} = timer:tc(fun() ->
        epgsql:connect(#{host => "127.0.0.1", port => Port, username => "ann", timeout => 300})
    end),
    ?assertEqual({error, timeout}, Answer),
    ?assert(Us < 1000 * ?WAIT_MS).

%% After an error the server ignores all up to the next Sync. The query that carries it isn't run
%% either; the one behind it is.
pipelined_error_skips_to_the_sync(Config) ->
    C = connect(Config),
    {ok, Statement} = epgsql:parse(C, "one", "select 1", []),
    Refs = [epgsqla:parse(C, "select no_such_column"), epgsqla:bind(C, Statement, []),
            epgsqla:prepared_query(C, Statement, []), epgsqla:prepared_query(C, Statement, []),
            epgsqla:squery(C, "select 3")],
    Answers = [receive {C, Ref, Answer} -> Answer after ?WAIT_MS -> none end || Ref <- Refs],
    ?assertMatch([{error, #error{codename = undefined_column}}, {error, sync_required},
                  {error, sync_required}, {ok, _, [{1}]}, {ok, _, [{<<"3">>}]}], Answers),
    ?assertEqual(1, value(C, "select 1")).

pipelined_error_without_sync(Config) ->
    C = connect(Config),
    Refs = [epgsqla:parse(C, "select no_such_column"), epgsqla:parse(C, "select 1")],
    Answers = [receive {C, Ref, Answer} -> Answer after ?WAIT_MS -> none end || Ref <- Refs],
    ?assertMatch([{error, #error{}}, {error, sync_required}], Answers),
    ?assertEqual({error, sync_required}, epgsql:squery(C, "select 1")),
    ok = epgsql:sync(C),
    ?assertEqual(1, value(C, "select 1")).

%% Both sides' buffers are full long before it is sent.
large_batch_does_not_stall(Config) ->
    C = connect(Config),
    Text = binary:copy(<<"x">>, 2000),
    {_, Results} = epgsql:execute_batch(epgsql:with_timeout(C, 60000), "select $1::text",
                                        lists:duplicate(20000, [Text])),
    ?assertEqual(20000, length([ok || {ok, [{Same}]} <- Results, Same =:= Text])).

copy_in_a_simple_query_is_refused(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "create temp table t (a int)"),
    ?assertMatch({error, #error{codename = query_canceled}},
                 epgsql:squery(C, "copy t from stdin")),
    ?assertMatch([{error, use_copy_to_stdout} | _], epgsql:squery(C, "copy t to stdout")),
    ?assertEqual(1, value(C, "select 1")).

failed_copy_leaves_a_usable_connection(Config) ->
    C = connect(Config),
    ?assertMatch({error, #error{codename = undefined_table}},
                 epgsql:copy_from_stdin(C, "copy nowhere from stdin")),
    ?assertEqual({error, not_a_copy}, epgsql:copy_from_stdin(C, "select 1")),
    ?assertEqual({error, not_in_copy_mode}, epgsql:copy_done(C)),
    {ok, [], []} = epgsql:squery(C, "create temp table t (a int)"),
    {ok, [text]} = epgsql:copy_from_stdin(C, "copy t from stdin"),
    ?assertEqual({error, {busy, on_copy_from_stdin}}, epgsql:squery(C, "select 1")),
    ok = io:put_chars(C, "1\n2\n"),
    ?assertEqual({ok, 2}, epgsql:copy_done(C)).

%% A server that stands still at its first row takes what the sockets' buffers hold, and no more.
copy_from_stdin_waits_for_the_server(Config) ->
    Holder = connect(Config),
    _ = epgsql:squery(Holder, "create table waiting (a text); create function waits() returns "
                              "trigger language plpgsql as 'begin perform "
                              "pg_advisory_xact_lock_shared(7); return new; end'; "
                              "create trigger waits before insert on waiting for each row "
                              "execute function waits()"),
    Row = binary:copy(<<"x">>, 1000),
    Lines = binary:copy(<<Row/binary, "\n">>, 1000),
    [begin
         true = value(Holder, "select pg_advisory_lock(7) is not null"),
         C = connect(Config),
         _ = epgsql:copy_from_stdin(C, ["copy waiting from stdin", Sql], Format),
         Sent = counters:new(1, []),
         Writer = spawn_link(fun() ->
             [begin ok = Write(C), ok = counters:add(Sent, 1, 1) end || _ <- lists:seq(1, 100)],
             exit({written, epgsql:copy_done(C)})
         end),
         Before = erlang:memory(binary),
         Stands = stands(Sent, -1),
         ?assert(Stands < 50),
         ?assert(erlang:memory(binary) - Before < 20000000),
         true = value(Holder, "select pg_advisory_unlock(7)"),
         ?assertEqual({ok, 100000},
                      receive {'EXIT', Writer, {written, Done}} -> Done after ?WAIT_MS -> late end),
         ok = epgsql:close(C)
     end || {Sql, Format, Write} <-
                [{"", text, fun(C) -> io:put_chars(C, Lines) end},
                 {" (format binary)", {binary, [text]},
                  fun(C) -> epgsql:copy_send_rows(C, lists:duplicate(1000, {Row}), infinity) end}]],
    ?assertEqual(200000, value(Holder, "select count(*) from waiting")).

%% Until nothing has been sent for a while.
stands(Sent, Before) ->
    timer:sleep(1000),
    case counters:get(Sent, 1) of
        Before -> Before;
        Now -> stands(Sent, Now)
    end.

deferred_constraint_fails_the_commit(Config) ->
    C = connect(Config),
    {ok, [], []} = epgsql:squery(C, "create temp table t (a int unique deferrable"
                                    " initially deferred)"),
    ?assertMatch({error, #error{codename = unique_violation}},
                 epgsql:equery(C, "insert into t values (1), (1)")),
    ?assertEqual(1, value(C, "select 1")).

%% Who waits is told, whoever comes later too.
server_crash(_) ->
    Server = epgsql_test_server:start(),
    {ok, C} = epgsql:connect(epgsql_test_server:options(Server)),
    Ref = epgsqla:squery(C, "select pg_sleep(60)"),
    timer:sleep(200),
    ok = epgsql_test_server:crash(Server),
    ?assertMatch({error, _}, receive {C, Ref, Answer} -> Answer after ?WAIT_MS -> none end),
    receive {'EXIT', C, _} -> ok after ?WAIT_MS -> error(still_there) end,
    Again = epgsql_test_server:restart(Server),
    {ok, C2} = epgsql:connect(epgsql_test_server:options(Again)),
    ?assertEqual(1, value(C2, "select 1")),
    ok = epgsql:close(C2),
    epgsql_test_server:stop(Again).

%% Whatever comes instead of an answer, the caller gets an error that says what, and the connection
%% ends.
malformed_bytes(_) ->
    Good = <<$R, 8:32, 0:32, $Z, 5:32, "I">>,
    [begin
         Port = epgsql_test_listener:start(fun(Socket) ->
             {ok, <<Size:32>>} = gen_tcp:recv(Socket, 4),
             {ok, _} = gen_tcp:recv(Socket, Size - 4),
             ok = gen_tcp:send(Socket, Good),
             {ok, _} = gen_tcp:recv(Socket, 5),
             ok = gen_tcp:send(Socket, Bytes),
             timer:sleep(1000)
         end),
         {ok, C} = epgsql:connect(#{host => "127.0.0.1", port => Port, username => "ann",
                                    codecs => []}),
         ?assertEqual({Bytes, {error, Reason}}, {Bytes, epgsql:squery(C, "select 1")}),
         receive {'EXIT', C, Reason} -> ok after ?WAIT_MS -> error(still_there) end
     end || {Bytes, Reason} <- [
         {<<$D, 0:32>>, {malformed, message_length}},
         {<<$D, 16#7fffffff:32>>, {malformed, message_length}},
         {<<$D, 6:32, 0:16>>, {malformed, data_row}},
         {<<$T, 6:32, 9:16>>, {malformed, row_description}},
         {<<$T, 6:32, 0:16, $D, 10:32, 1:16, 9:32>>, {malformed, data_row}},
         {<<$C, 5:32, "x">>, {malformed, command_complete}},
         {<<$Z, 5:32, "x">>, {malformed, ready_for_query}},
         {<<$E, 6:32, "SX">>, {malformed, error_fields}},
         {<<$S, 4:32>>, {malformed, parameter_status}},
         {<<"HTTP/1.1 400 Bad Request\r\n\r\n">>, {malformed, message_length}},
         {<<$1, 4:32>>, {unexpected_message, $1, epgsql_cmd_squery}}]].

nul_in_a_query_is_refused(Config) ->
    C = connect(Config),
    ?assertExit({{{nul_in_string, query}, _}, _}, epgsql:squery(C, <<"select 1", 0, "; drop">>)).

%% What an application brings: one round trip for three statements.
command_of_an_application(Config) ->
    C = connect(Config),
    ?assertEqual([<<"1">>, <<"2">>, <<"3">>],
                 epgsql_sock:sync_command(C, epgsql_test_command, ["1", "2", "3"])).
