%% How a host may be named, and whether that is what its certificate says.
-module(epgsql_names_SUITE).

-include("epgsql_suite.hrl").

all() ->
    [addresses_as_text, name_with_only_ipv6, unknown_name, certificate_with_an_address,
     certificate_with_a_name].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, Config) ->
    epgsql_test_server:server_certificate(?config(server, Config), good).

client_address(Options) ->
    case epgsql:connect(Options) of
        {ok, C} ->
            {ok, _, [{Address}]} = epgsql:equery(C, "select host(inet_client_addr())"),
            ok = epgsql:close(C),
            Address;
        {error, _} = Error -> Error
    end.

addresses_as_text(Config) ->
    [?assertEqual({Host, Address}, {Host, client_address(options(Config, #{host => Host}))})
     || {Host, Address} <- [{"::1", <<"::1">>}, {<<"::1">>, <<"::1">>},
                            {"0:0:0:0:0:0:0:1", <<"::1">>},
                            {<<"127.0.0.1">>, <<"127.0.0.1">>}]],
    ?assertEqual(<<"::1">>, client_address(options(Config, #{hosts => ["::1"]}))).

name_with_only_ipv6(Config) ->
    Before = inet_db:res_option(lookup),
    ok = inet_db:set_lookup([file]),
    ok = inet_db:add_host({0, 0, 0, 0, 0, 0, 0, 1}, ["six.example"]),
    try
        [?assertEqual(<<"::1">>, client_address(options(Config, #{host => Host})))
         || Host <- ["six.example", <<"six.example">>]]
    after
        ok = inet_db:del_host({0, 0, 0, 0, 0, 0, 0, 1}),
        ok = inet_db:set_lookup(Before)
    end.

unknown_name(Config) ->
    Before = inet_db:res_option(lookup),
    ok = inet_db:set_lookup([file]),
    try ?assertEqual({error, nxdomain}, client_address(options(Config, #{host => "no.example"})))
    after ok = inet_db:set_lookup(Before)
    end.

%% `matches' or `differs' by how each host is named.
asked_for(Hosts, Config) ->
    Authority = filename:join(epgsql_test_server:temporary(?config(server, Config)), "ca.crt"),
    [{Host, case client_address(options(Config, #{host => Host, ssl => required,
                                                  ssl_opts => [{cacertfile, Authority}]})) of
                {error, {ssl_negotiation_failed, {tls_alert, {handshake_failure, Text}}}} ->
                    {match, _} = re:run(Text, "hostname_check_failed"),
                    differs;
                Address when is_binary(Address) -> matches
            end} || Host <- Hosts].

certificate_with_an_address(Config) ->
    ok = epgsql_test_server:server_certificate(?config(server, Config),
                                               {names, "IP:127.0.0.1,IP:::1"}),
    Addresses = ["127.0.0.1", <<"127.0.0.1">>, {127, 0, 0, 1}, "::1", <<"::1">>,
                 {0, 0, 0, 0, 0, 0, 0, 1}],
    ?assertEqual([{Host, matches} || Host <- Addresses], asked_for(Addresses, Config)),
    ?assertEqual([{"localhost", differs}, {<<"localhost">>, differs}],
                 asked_for(["localhost", <<"localhost">>], Config)),
    ok = epgsql_test_server:server_certificate(?config(server, Config), {names, "IP:127.0.0.2"}),
    ?assertEqual([{Host, differs} || Host <- Addresses], asked_for(Addresses, Config)).

certificate_with_a_name(Config) ->
    ok = epgsql_test_server:server_certificate(?config(server, Config), {names, "DNS:localhost"}),
    ?assertEqual([{"localhost", matches}, {<<"localhost">>, matches}],
                 asked_for(["localhost", <<"localhost">>], Config)),
    Others = ["127.0.0.1", <<"127.0.0.1">>, {127, 0, 0, 1}],
    ?assertEqual([{Host, differs} || Host <- Others], asked_for(Others, Config)).
