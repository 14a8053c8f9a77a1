%% Several hosts: which one is taken, when some of them are silent, gone, or of another kind than
%% requested. Each case runs with a connection that has a process and with one without, which pools
%% have.
-module(epgsql_failover_SUITE).

-include("epgsql_suite.hrl").

%% What two connections would take that nobody had given less: 5 s each.
-define(UNASKED_US, 10000000).

all() ->
    [black_hole_first, accepts_and_says_nothing, accepts_and_closes, closes_in_the_middle,
     silent_hosts_share_the_time, all_are_silent, nothing_of_a_host_is_the_next_ones,
     starting_or_full, wrong_password_ends_it, standby_and_primary, standby_preferred,
     addresses_of_a_name_share_the_time, cancel_goes_to_the_address, name_is_looked_up_in_time].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

%% Within 6 s, if nothing else is said: a slow machine may need some for the host that is good.
options(Config) -> options(Config, #{timeout => 6000}).

hosts(Ports) -> [{"127.0.0.1", Port} || Port <- Ports].

open(Options) -> [process(Options), held(Options)].

process(Options) ->
    case epgsql:connect(Options) of
        {ok, C} ->
            {ok, _, [Row]} = epgsql:equery(C, "select inet_server_port(), pg_is_in_recovery()"),
            ok = epgsql:close(C),
            Row;
        {error, _} = Error -> Error
    end.

held(Options) ->
    case epgsql_held:open(Options) of
        {ok, Session} ->
            Handle = epgsql_held:hold(Session),
            {ok, _, [Row]} = epgsql:equery(Handle,
                                           "select inet_server_port(), pg_is_in_recovery()"),
            ok = epgsql_held:discard(epgsql_held:let_go(Handle)),
            Row;
        {error, _} = Error -> Error
    end.

goes_on_from(Bad, Config) ->
    #{port := Good} = Options = options(Config),
    ?assertEqual([{Good, false}, {Good, false}], open(Options#{hosts => hosts([Bad, Good])})).

black_hole_first(Config) -> goes_on_from(epgsql_test_listener:black_hole(), Config).

silent() -> epgsql_test_listener:start(fun(_) -> timer:sleep(infinity) end).

accepts_and_says_nothing(Config) -> goes_on_from(silent(), Config).

accepts_and_closes(Config) ->
    goes_on_from(epgsql_test_listener:start(fun gen_tcp:close/1), Config).

%% It is gone before it has said all.
closes_in_the_middle(Config) ->
    goes_on_from(saying(<<$R, 8:32, 0:32, $S, 9:32, "a", 0, "b">>), Config).

%% Says it to a client's startup and closes.
saying(Bytes) ->
    epgsql_test_listener:start(fun(Socket) ->
        {ok, <<Size:32>>} = gen_tcp:recv(Socket, 4),
        {ok, _} = gen_tcp:recv(Socket, Size - 4),
        ok = gen_tcp:send(Socket, Bytes),
        gen_tcp:close(Socket)
    end).

%% None takes the time of those behind it.
silent_hosts_share_the_time(Config) ->
    #{port := Good} = Options = options(Config),
    Bad = [epgsql_test_listener:black_hole(), silent(), epgsql_test_listener:black_hole()],
    ?assertEqual([{Good, false}, {Good, false}],
                 open(Options#{hosts => hosts(Bad ++ [Good]), timeout => 8000})).

all_are_silent(_) ->
    Hosts = hosts([epgsql_test_listener:black_hole(), silent()]),
    {Us, Answers} = timer:tc(fun() ->
        open(#{hosts => Hosts, username => "ann", timeout => 500})
    end),
    ?assertEqual([{error, timeout}, {error, timeout}], Answers),
    ?assert(Us < ?UNASKED_US).

%% What it says of itself is true, and what comes with it isn't the next host's.
nothing_of_a_host_is_the_next_ones(Config) ->
    #{port := Good} = Options = options(Config),
    Standby = saying([<<$R, 8:32, 0:32>>, parameter("in_hot_standby", "on"),
                      parameter("odd", "on"), <<$Z, 5:32, "I", $S, 99:32>>]),
    {ok, C} = epgsql:connect(Options#{hosts => hosts([Standby, Good]),
                                      target_session_attrs => primary}),
    ?assertEqual([{ok, undefined}, {ok, <<"off">>}],
                 [epgsql:get_parameter(C, Name) || Name <- ["odd", "in_hot_standby"]]),
    ok = epgsql:close(C).

parameter(Name, Value) ->
    Payload = iolist_to_binary([Name, 0, Value, 0]),
    [$S, <<(byte_size(Payload) + 4):32>>, Payload].

failure(Code) ->
    Payload = iolist_to_binary(["SFATAL", 0, "C", Code, 0, "Mno", 0, 0]),
    [$E, <<(byte_size(Payload) + 4):32>>, Payload].

starting_or_full(Config) ->
    [goes_on_from(saying(failure(Code)), Config) || Code <- ["57P03", "53300"]].

%% The next host isn't asked: what it is told would be as wrong there.
wrong_password_ends_it(Config) ->
    #{port := Good} = Options = options(Config),
    [?assertEqual([{error, Reason}, {error, Reason}],
                  open(Options#{hosts => hosts([saying(failure(Code)), Good])}))
     || {Code, Reason} <- [{"28P01", invalid_password},
                           {"28000", invalid_authorization_specification}]],
    ?assertMatch([{error, #error{codename = invalid_catalog_name}}, _],
                 open(Options#{hosts => hosts([saying(failure("3D000")), Good])})).

standby_and_primary(Config) ->
    #{port := Primary} = Options = options(Config),
    Server = epgsql_test_server:standby(?config(server, Config)),
    try
        #{port := Standby} = epgsql_test_server:options(Server),
        [?assertEqual({Target, Ports, [Is, Is]},
                      {Target, Ports, open(Options#{hosts => hosts(Ports),
                                                    target_session_attrs => Target})})
         || {Target, Is} <- [{standby, {Standby, true}}, {'read-only', {Standby, true}},
                             {'prefer-standby', {Standby, true}}, {primary, {Primary, false}},
                             {'read-write', {Primary, false}}],
            Ports <- [[Primary, Standby], [Standby, Primary], [silent(), Primary, Standby]]],
        [?assertEqual([{error, {no_such_host, Target}}, {error, {no_such_host, Target}}],
                      open(Options#{hosts => hosts([Standby]), target_session_attrs => Target}))
         || Target <- [primary, 'read-write']]
    after
        epgsql_test_server:stop(Server)
    end.

%% A host that can't be reached isn't asked again: it waits 2 s for each connection, not 5.
standby_preferred(Config) ->
    #{port := Primary} = Options = options(Config),
    Hole = epgsql_test_listener:black_hole(),
    {Us, Opened} = timer:tc(fun() ->
        open(Options#{hosts => hosts([Hole, Primary]), target_session_attrs => 'prefer-standby',
                      timeout => 8000})
    end),
    ?assertEqual([{Primary, false}, {Primary, false}], Opened),
    ?assert(Us < 7000000).

%% A name with these addresses, in this order.
named(Name, Addresses, Fun) ->
    Before = inet_db:res_option(lookup),
    ok = inet_db:set_lookup([file]),
    _ = [ok = inet_db:add_host(Address, [Name]) || Address <- Addresses],
    try
        ?assertEqual({ok, Addresses}, inet:getaddrs(Name, inet)),
        Fun()
    after
        _ = [ok = inet_db:del_host(Address) || Address <- Addresses],
        ok = inet_db:set_lookup(Before)
    end.

%% One that is switched off, one that accepts and says nothing, one where nobody listens.
addresses_of_a_name_share_the_time(Config) ->
    #{port := Good} = Options = options(Config),
    Bad = [{127, 0, 0, N} || N <- [2, 3, 4]],
    [Hole, Silent, _] = Bad,
    Good = epgsql_test_listener:black_hole({Hole, Good}),
    Good = epgsql_test_listener:start(fun(_) -> timer:sleep(infinity) end, {Silent, Good}),
    named("several.example", Bad ++ [{127, 0, 0, 1}], fun() ->
        [?assertEqual({Host, [{Good, false}, {Good, false}]},
                      {Host, open(maps:merge(Options#{timeout => 6000}, Host))})
         || Host <- [#{host => "several.example"}, #{host => <<"several.example">>},
                     #{hosts => ["several.example"]},
                     #{hosts => [{"several.example", 1}, "several.example"]},
                     #{hosts => ["several.example"], target_session_attrs => 'prefer-standby'}]]
    end),
    named("all.example", Bad, fun() ->
        {Us, Answers} = timer:tc(fun() ->
            open(Options#{host => "all.example", timeout => 3000})
        end),
        ?assertEqual([{error, econnrefused}, {error, econnrefused}], Answers),
        ?assert(Us < ?UNASKED_US)
    end).

%% The request to end a statement is for the server that runs it.
cancel_goes_to_the_address(Config) ->
    #{port := Good} = Options = options(Config),
    Good = epgsql_test_listener:black_hole({{127, 0, 0, 2}, Good}),
    named("several.example", [{127, 0, 0, 2}, {127, 0, 0, 1}], fun() ->
        {ok, C} = epgsql:connect(Options#{host => "several.example"}),
        {Us, Answer} = timer:tc(fun() ->
            {error, timeout} = epgsql:squery(epgsql:with_timeout(C, 100), "select pg_sleep(30)"),
            epgsql:squery(C, "select 1")
        end),
        ?assertMatch({ok, _, [{<<"1">>}]}, Answer),
        ?assert(Us < 5000000),
        ok = epgsql:close(C)
    end).

%% Who answers for names may be silent, too.
name_is_looked_up_in_time(_) ->
    Before = [{Option, inet_db:res_option(Option)} || Option <- [resolv_conf, lookup, nameservers]],
    {ok, Socket} = gen_udp:open(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Socket),
    ok = inet_db:set_resolv_conf(""),
    ok = inet_db:set_lookup([dns]),
    ok = inet_db:res_option(nameservers, [{{127, 0, 0, 1}, Port}]),
    try
        {Us, Answer} = timer:tc(fun() ->
            open(#{host => "silent.example", username => "ann", timeout => 300})
        end),
        ?assertEqual([{error, timeout}, {error, timeout}], Answer),
        ?assert(Us < ?UNASKED_US)
    after
        _ = [ok = inet_db:res_option(Option, Value) || {Option, Value} <- Before],
        gen_udp:close(Socket)
    end.
