%% The calls while the application isn't running: as with a node that can't be reached.
-module(teleport_stopped_tests).

-include_lib("eunit/include/eunit.hrl").

-define(NODE, 'peer@127.0.0.1').

stopped_test_() ->
    [?_assertEqual([], teleport:peers()),
     ?_assertMatch(#{state := down, connections := 0, sent := 0, queue_bytes_max := 67108864},
                   teleport:status(?NODE)),
     ?_assertEqual({error, nodedown}, teleport:send({name, ?NODE}, hello)),
     ?_assertEqual({error, nodedown}, teleport:connect(?NODE)),
     ?_assertExit({{nodedown, ?NODE}, _}, teleport:call({name, ?NODE}, hello)),
     fun() ->
         Ref = teleport:monitor({name, ?NODE}),
         ?assertEqual(ok, receive {'DOWN', Ref, process, {name, ?NODE}, noconnection} -> ok
                          after 0 -> silent
                          end),
         ?assertEqual(ok, teleport:demonitor(Ref))
     end].
