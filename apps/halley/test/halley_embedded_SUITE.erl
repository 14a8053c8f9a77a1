%% docs/guides/embedding.md: sessions that are processes read what they missed, and settings are a
%% map. test/system/embedded.test.mjs has the release.
-module(halley_embedded_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

all() -> [each_event_once_over_deaths, kinds_of_events, gap_stands_in_its_place,
          gaps_make_no_batch_longer, many_come_in_batches, all_wait_for_the_log, text_of_an_event,
          settings].

init_per_testcase(settings, Config) -> Config;
init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(settings, _) -> ok;
end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% "Log in first, then read: no event lies between the two." A reader dies after each few events,
%% and the next goes on with the cursor that it had.
each_event_once_over_deaths(_) ->
    ok = halley:follow(<<"ann">>, <<"news">>),
    Cursor = halley:cursor(),
    Publisher = halley_test_brain:spawn_actor(fun() ->
        [halley_test_brain:publish(<<"news">>, N) || N <- lists:seq(1, 60)]
    end),
    ?assertEqual(lists:seq(1, 60), lives(Cursor, 60, [])),
    _ = halley_test_brain:join(Publisher),
    ok.

lives(_, Due, Seen) when length(Seen) >= Due ->
    lists:reverse(Seen);
lives(Cursor, Due, Seen) ->
    Case = self(),
    Few = min(rand:uniform(9), Due - length(Seen)),
    _ = spawn(fun() ->
        ok = halley:login(<<"ann">>),
        Case ! {died, life(Cursor, Few, [])}
    end),
    receive {died, {Next, Events}} -> lives(Next, Due, Events ++ Seen) end.

life(Cursor, Left, Seen) when Left =< 0 ->
    {Cursor, Seen};
life(Cursor, Left, Seen) ->
    case halley:read(<<"ann">>, Cursor, #{events_max => Left}) of
        {ok, #{items := [], cursor := Next, more := false}} ->
            receive {halley, _} -> life(Next, Left, Seen) end;
        {ok, #{items := Items}} ->
            Events = [{C, Data} || {event, #{cursor := C, data := Data}} <- Items],
            {Last, _} = lists:last(Events),
            life(Last, Left - length(Events), lists:reverse([D || {_, D} <- Events]) ++ Seen)
    end.

kinds_of_events(_) ->
    ok = halley:follow(<<"bob">>, <<"a">>),
    Cursor = halley:cursor(),
    {ok, #{id := One}} = halley:publish(<<"a">>, #{n => 1}),
    {ok, #{id := Two}} = halley:publish({subjects, [<<"a">>, <<"b">>]}, 2),
    {ok, #{id := Three}} = halley:publish({to, [<<"bob">>]}, 3),
    {ok, _} = halley:publish(<<"b">>, <<"not his">>),
    {ok, #{items := Items, more := false}} = halley:read(<<"bob">>, Cursor),
    ?assertMatch([{event, #{id := One, subject := <<"a">>, at := _, data := #{<<"n">> := 1}}},
                  {event, #{id := Two, subjects := [<<"a">>, <<"b">>], data := 2}},
                  {event, #{id := Three, private := true, data := 3}}], Items).

gap_stands_in_its_place(_) ->
    {ok, #{items := [{gap, #{reason := malformed, cursor := Cursor}}], cursor := Cursor}} =
        halley:read(<<"eve">>, <<"nonsense">>),
    Before = halley:cursor(),
    _ = halley_test_brain:publish(<<"eve">>, gone),
    halley_test_brain:drop_up_to(#{seq => halley_history:drawn()}),
    _ = halley_test_brain:publish(<<"eve">>, 1),
    {ok, #{items := [{gap, #{reason := too_old}}, {event, #{data := 1}}]}} =
        halley:read(<<"eve">>, Before).

gaps_make_no_batch_longer(_) ->
    Cursor = halley:cursor(),
    [_, Second, Third | _] = halley_test_brain:publish_all([{<<"fay">>, N}
                                                            || N <- lists:seq(1, 6)]),
    _ = [begin {ok, Seq} = halley_history:find(Id), halley_test_brain:damage(Seq) end
         || Id <- [Second, Third]],
    ?assertEqual([1, 4, 5, 6], twos(Cursor)).

twos(Cursor) ->
    {ok, #{items := Items, cursor := Next, more := More}} =
        halley:read(<<"fay">>, Cursor, #{events_max => 2}),
    Events = [N || {event, #{data := N}} <- Items],
    ?assert(length(Events) =< 2),
    Events ++ case More of true -> twos(Next); false -> [] end.

%% An event makes all its sessions wait at once, also more than may wait of others. The log stands
%% still meanwhile.
all_wait_for_the_log(_) ->
    Cursor = halley:cursor(),
    Far = list_to_tuple([1 bsl 60 || _ <- lists:seq(1, halley_shards:count())]),
    _ = [ets:insert(halley_history_waiting, {make_ref(), Far, self()})
         || _ <- lists:seq(1, 10000)],
    ok = sys:suspend(halley_history_log),
    {ok, _} = halley:publish(<<"kim">>, 1, #{ack => memory}),
    Reader = halley_test_brain:spawn_actor(fun() -> halley:read(<<"kim">>, Cursor) end),
    halley_test_brain:wait(fun() -> ets:info(halley_history_waiting, size) =:= 10001 end),
    ok = sys:resume(halley_history_log),
    ?assertMatch({ok, #{items := [{event, #{data := 1}}]}}, halley_test_brain:join(Reader)).

many_come_in_batches(_) ->
    Cursor = halley:cursor(),
    _ = halley_test_brain:publish_all([{<<"dan">>, N} || N <- lists:seq(1, 250)]),
    ?assertEqual(lists:seq(1, 250), batches(Cursor)).

batches(Cursor) ->
    {ok, #{items := Items, cursor := Next, more := More}} = halley:read(<<"dan">>, Cursor),
    ?assert(length(Items) =< 100),
    [N || {event, #{data := N}} <- Items] ++ case More of true -> batches(Next); false -> [] end.

text_of_an_event(_) ->
    Cursor = halley:cursor(),
    Id = halley_test_brain:publish(<<"gil">>, #{text => <<"hé"/utf8>>}),
    {ok, #{items := [{event, #{id := Id, json := Json} = Event}]}} =
        halley:read(<<"gil">>, Cursor, #{as => json}),
    ?assertEqual([cursor, id, json], lists:sort(maps:keys(Event))),
    ?assertMatch(#{<<"id">> := Id, <<"subject">> := <<"gil">>,
                   <<"data">> := #{<<"text">> := <<"hé"/utf8>>}},
                 jiffy:decode(Json, [return_maps])).

settings(_) ->
    {ok, Env} = halley_config_embedded:load(#{'data.dir' => <<"x">>, 'history.retention' => "2h",
                                              'limits.follows_per_user_max' => 7}),
    ?assertEqual(filename:absname("x"), proplists:get_value(data_dir, Env)),
    ?assertEqual(7200000, proplists:get_value(history_retention_ms, Env)),
    ?assertMatch(#{follows_per_user_max := 7}, proplists:get_value(limits, Env)),
    %% Longer than a socket's path: there is no socket.
    {ok, _} = halley_config_embedded:load(#{'data.dir' => lists:duplicate(200, $x)}),
    [?assertMatch({error, _}, halley_config_embedded:load(Wrong))
     || Wrong <- [#{'api.listen' => "127.0.0.1:1"}, #{'limits.id_bytes_max' => 9},
                  #{"data.dir" => "x"}, #{'limits.no_such' => 1}, #{'history.retention' => "soon"},
                  #{'data.dir' => 7.5}, [{'data.dir', "x"}]]],
    ok.
