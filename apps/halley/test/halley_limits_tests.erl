%% The table of limits, and what is made from it.
-module(halley_limits_tests).

-include_lib("eunit/include/eunit.hrl").

%% Names of the settings in protocol/link.md 5 that are limits.
-define(SETTINGS, [stream_open_ms_max, request_line_bytes_max, header_bytes_max, headers_max,
                   request_ms_max, tls_handshake_ms_max,
                   response_ms_max, request_window_bytes, requests_in_flight_max,
                   user_share_percent_max, servers_share_percent,
                   outbox_bytes_max, outbox_ms_max, outboxes_bytes_max, hold_bytes_max, poll_ms_max,
                   admission_wait_ms_max, brain_away_ms_max, opens_in_flight_max,
                   message_bytes_max, link_queue_bytes_max,
                   first_byte_ms_max, connections_per_address_max, pending_connections_percent_max,
                   requests_per_address_per_s_max, requests_per_user_per_s_max,
                   requests_burst_ms, pace_bytes_per_s_min, pace_grace_ms,
                   memory_free_streams_percent_min, memory_free_connections_percent_min,
                   proxy_header_bytes_max, proxy_header_ms_max]).

rows_are_whole_test_() ->
    [{atom_to_list(Name),
      [?_assert(is_integer(Default) andalso Default > 0),
       ?_assert(lists:member(Unit, [bytes, ms, count, percent])),
       ?_assert(lists:member(Scope, [config, edge, fixed])),
       ?_assert(length(Help) > 10),
       ?_assertEqual(Unit, unit(atom_to_list(Name))),
       ?_assertEqual(Default, halley_limits:get(Name))]}
     || {Name, Default, Unit, Scope, Help} <- halley_limits:table()].

unit(Name) ->
    Words = string:lexemes(Name, "_"),
    Units = [{"bytes", bytes}, {"ms", ms}, {"percent", percent}],
    case [Unit || {Word, Unit} <- Units, lists:member(Word, Words)] of
        [] -> count;
        [Unit] -> Unit
    end.

names_are_unique_test() ->
    Names = [element(1, Row) || Row <- halley_limits:table()],
    ?assertEqual(lists:usort(Names), lists:sort(Names)).

handshake_carries_every_limit_of_the_edge_test() ->
    Sent = [Name || {Name, _} <- halley_limits:for_edge()],
    ?assertEqual([], [atom_to_binary(Name) || Name <- ?SETTINGS] -- Sent),
    ?assert(lists:all(fun({Name, Value}) -> is_binary(Name) andalso is_binary(Value) end,
                      halley_limits:for_edge())).

configured_value_is_in_force_and_sent_test() ->
    ok = halley_limits:set(#{headers_max => 7}),
    try
        ?assertEqual(7, halley_limits:get(headers_max)),
        ?assertEqual({<<"headers_max">>, <<"7">>},
                     lists:keyfind(<<"headers_max">>, 1, halley_limits:for_edge())),
        ?assertEqual(255, halley_limits:get(id_bytes_max))
    after
        ok = halley_limits:set(#{})
    end.

%% protocol/link.md 5: an edge of a build before hears the limit by the name that it knows.
former_names_are_sent_too_test() ->
    ok = halley_limits:set(#{pending_connections_percent_max => 70}),
    try
        Sent = halley_limits:for_edge(),
        ?assertEqual([<<"70">>, <<"70">>],
                     [proplists:get_value(Name, Sent)
                      || Name <- [<<"pending_connections_percent_max">>,
                                  <<"newcomers_percent_max">>]])
    after
        ok = halley_limits:set(#{})
    end.

%% protocol/link.md 3.3: a number that is no use to the edge, 0, would end the handshake.
numbers_for_the_edge_are_above_zero_test_() ->
    {timeout, 60, fun numbers_for_the_edge_are_above_zero/0}.

numbers_for_the_edge_are_above_zero() ->
    Choices = [<<"auth_mode">>, <<"cors_origins">>, <<"slow_consumer">>, <<"presence">>,
               <<"presence_views">>, <<"operation_frames">>, <<"websocket_compression">>,
               <<"limits_exempt">>, <<"proxy_trusted">>, <<"public_proxy_protocol">>,
               <<"api_proxy_protocol">>, <<"proxy_forwarded_for">>],
    {ok, #{env := Env}} = halley_config:load(none, []),
    Settings = proplists:get_value(edge_settings, proplists:get_value(halley, Env)),
    Numbers = [Value || {Name, Value} <- Settings ++ halley_limits:for_edge(),
                        not lists:member(Name, Choices)],
    ?assert(lists:all(fun(Value) -> binary_to_integer(Value) > 0 end, Numbers)),
    Zero = [{halley_config:variable("limits." ++ atom_to_list(Name)), "0"}
            || {Name, _, _, edge, _} <- halley_limits:table()],
    [?assertMatch({error, "limits." ++ _}, halley_config:load(none, [Variable]))
     || Variable <- Zero].

handshake_carries_the_choices_of_the_configuration_test() ->
    {ok, #{env := Env}} = halley_config:load(none, [{"HALLEY_STREAM_RETRY", "3s"}]),
    {halley, Brain} = lists:keyfind(halley, 1, Env),
    Settings = proplists:get_value(edge_settings, Brain),
    ?assertEqual([{<<"admission_per_s_max">>, <<"10000">>},
                  {<<"api_proxy_protocol">>, <<"off">>}, {<<"auth_mode">>, <<"none">>},
                  {<<"cors_origins">>, <<>>},
                  {<<"limits_exempt">>, <<"127.0.0.0/8,::1">>},
                  {<<"operation_frames">>, <<"on">>}, {<<"presence">>, <<"off">>},
                  {<<"presence_views">>, <<"on">>},
                  {<<"proxy_forwarded_for">>, <<"off">>}, {<<"proxy_trusted">>, <<>>},
                  {<<"public_proxy_protocol">>, <<"off">>},
                  {<<"slow_consumer">>, <<"disconnect">>},
                  {<<"stream_heartbeat_ms">>, <<"45000">>}, {<<"stream_retry_ms">>, <<"3000">>},
                  {<<"websocket_compression">>, <<"on">>}],
                 lists:sort(Settings)).
