%% Options: what is good, and which is named if one isn't.
-module(teleport_options_tests).

-include_lib("eunit/include/eunit.hrl").

good_test() ->
    {ok, Options} = teleport_options:check(#{secret => "s", lanes => 2}),
    ?assertMatch(#{secret := <<"s">>, lanes := 2, queue_bytes_max := 67108864, tls := false},
                 Options).

bad_test_() ->
    [?_assertEqual({error, {bad_option, Key}},
                   teleport_options:check(maps:merge(#{secret => "s"}, #{Key => Value})))
     || {Key, Value} <- [{secret, <<>>}, {secret, none}, {ip, "127.0.0.1"}, {port, 65536},
                         {address, ""}, {lanes, 0}, {queue_bytes_max, 1}, {large_bytes, 1 bsl 20},
                         {message_bytes_max, 0}, {ping_ms, 0}, {silent_ms_max, soon},
                         {connect_ms_max, -1}, {tls, true}, {peers, []}, {peers, #{a => 1}}]].
