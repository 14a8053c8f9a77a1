%% A brain that sends hooks to an endpoint: which, in which order, and that nothing is lost when the
%% endpoint, the processes or the brain fail. halley_hooks_disk_SUITE has the disk.
-module(halley_hooks_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("support/halley_hooks_wait.hrl").

-compile([export_all, nowarn_export_all]).

%% Until an edge that is linked counts as settled, which takes 3 s from when that is seen.
-define(SETTLED_MS, 6000).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [nothing_runs_without_a_url, published_by_a_client, signature_is_as_the_guide_says,
     not_told_for_servers, patterns, sessions_first_and_last, short_absence_is_not_told, subjects,
     failing_endpoint_loses_nothing, forgotten_meanwhile, hostile_answers,
     too_large_is_sent_in_halves, killed_processes_lose_nothing, killed_brain_loses_nothing,
     brain_that_is_away_tells_nothing_false, another_secret_for_a_while, check_says_what_is_wrong].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    [{endpoint, halley_hooks_endpoint:start()} | halley_test_brain:start(Config)].

end_per_testcase(_, Config) ->
    stop_hooks(),
    halley_hooks_endpoint:stop(endpoint(Config)),
    _ = [end_brain(Brain) || Brain <- [whereis(halley_sup)], is_pid(Brain)],
    halley_test_brain:stop(Config).

%% --- helpers -----------------------------------------------------------------------------------

endpoint(Config) -> ?config(endpoint, Config).

settings(Config, More) ->
    Keys = maps:merge(#{url => "http://127.0.0.1:" ++ integer_to_list(
                                   halley_hooks_endpoint:port(endpoint(Config))) ++ "/hooks?a=b",
                        events => "published,undelivered",
                        closed_after_ms => 5000,
                        secret_file => halley_hooks_endpoint:secret_file(?config(dir, Config))},
                      More),
    {ok, Settings} = halley_hooks_config:settings(Keys),
    Settings.

start_hooks(Config) -> start_hooks(Config, #{}).

start_hooks(Config, More) ->
    Case = self(),
    Settings = settings(Config, More),
    spawn(fun() ->
        process_flag(trap_exit, true),
        {ok, Sup} = halley_hooks_sup:start_link(Settings#{closed_after_ms :=
                                                              maps:get(after_ms, More, 300)}),
        register(test_hooks, self()),
        Case ! started,
        receive stop -> ok end,
        exit(Sup, shutdown),
        receive {'EXIT', Sup, _} -> ok end
    end),
    receive started -> ok after ?WAIT_MS -> error(no_hooks) end.

stop_hooks() ->
    case whereis(test_hooks) of
        undefined -> ok;
        Pid ->
            Monitor = monitor(process, Pid),
            Pid ! stop,
            receive {'DOWN', Monitor, process, Pid, _} -> ok end,
            halley_hooked:off()
    end.

%% As a client of this user publishes.
says(User, Whom, Data) ->
    {ok, #{id := Id}} = halley_router:publish(Whom, Data, #{by => User}),
    Id.

%% Each once, as its id says.
hooks(Config) ->
    lists:foldr(fun(#{<<"id">> := Id} = Hook, Rest) ->
        [Hook | [Other || #{<<"id">> := I} = Other <- Rest, I =/= Id]]
    end, [], halley_hooks_endpoint:hooks(endpoint(Config))).

of_type(Type, Config) -> [Hook || #{<<"type">> := T} = Hook <- hooks(Config), T =:= Type].

event_ids(Hooks) -> [Id || #{<<"event">> := #{<<"id">> := Id}} <- Hooks].

eventually(Expected, Fun) -> eventually(Expected, Fun, ?WAIT_MS div 20).

eventually(Expected, Fun, 0) -> ?assertEqual(Expected, Fun());
eventually(Expected, Fun, Left) ->
    case Fun() of
        Expected -> ok;
        _ ->
            timer:sleep(20),
            eventually(Expected, Fun, Left - 1)
    end.

%% A first appearance of each, in order: what comes again comes behind.
once(List) -> lists:reverse(lists:foldl(fun(E, Acc) ->
    case lists:member(E, Acc) of true -> Acc; false -> [E | Acc] end
end, [], List)).

linked() -> linked([]).

%% The one worker of an edge, that has said all of its sessions.
linked(Sessions) ->
    {_, Slot, _} = Link = link_in_sync(Sessions),
    ok = halley_links_synced:synced(Slot),
    Link.

%% An edge of its own: no process has such a number.
link_in_sync(Sessions) ->
    Edge = 16#1000000 + erlang:unique_integer([positive]),
    halley_test_brain:link_with(Sessions, #{pid => Edge, workers => 1}).

settled(Config) ->
    _ = linked(),
    timer:sleep(?SETTLED_MS),
    Config.

%% --- what is told ------------------------------------------------------------------------------

nothing_runs_without_a_url(_) ->
    {ok, Sup} = halley_hooks_sup:start_link(none),
    ?assertEqual([], supervisor:which_children(Sup)),
    ?assertNot(halley_hooked:is_on(published)),
    unlink(Sup),
    exit(Sup, kill).

published_by_a_client(Config) ->
    start_hooks(Config),
    Id = says(<<"ann">>, <<"room/7">>, #{text => <<"hi">>}),
    Private = says(<<"ann">>, {to, [<<"bob">>, <<"eve">>]}, 7),
    Joint = says(<<"ann">>, {subjects, [<<"room/7">>, <<"room/8">>]}, 8),
    eventually([Id, Private, Joint], fun() -> event_ids(of_type(<<"published">>, Config)) end),
    [First, Second, Third] = of_type(<<"published">>, Config),
    ?assertMatch(#{<<"event">> := #{<<"subjects">> := [<<"room/7">>, <<"room/8">>],
                                    <<"data">> := 8}}, Third),
    ?assertMatch(#{<<"user">> := <<"ann">>, <<"id">> := _,
                   <<"event">> := #{<<"subject">> := <<"room/7">>, <<"at">> := _,
                                    <<"data">> := #{<<"text">> := <<"hi">>}}}, First),
    ?assertNot(is_map_key(<<"to">>, First)),
    ?assertMatch(#{<<"to">> := [<<"bob">>, <<"eve">>],
                   <<"event">> := #{<<"private">> := true, <<"data">> := 7}}, Second).

%% docs/guides/hooks.md, "Is it from Halley?"
signature_is_as_the_guide_says(Config) ->
    start_hooks(Config),
    says(<<"ann">>, <<"room">>, 1),
    eventually(1, fun() -> length(hooks(Config)) end),
    [{#{<<"halley-signature">> := Header} = Headers, Body, 204}] =
        halley_hooks_endpoint:requests(endpoint(Config)),
    <<"t=", Time:10/binary, ",v1=", Hex:64/binary>> = Header,
    ?assertEqual(<<"application/json">>, maps:get(<<"content-type">>, Headers)),
    ?assert(abs(binary_to_integer(Time) - erlang:system_time(second)) < 60),
    Dir = ?config(dir, Config),
    ok = file:write_file(filename:join(Dir, "signed"), ["v1:", Time, ":", Body]),
    Said = os:cmd("openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef -hex "
                  ++ filename:join(Dir, "signed")),
    ?assertNotEqual(nomatch, string:find(Said, binary_to_list(Hex))).

not_told_for_servers(Config) ->
    start_hooks(Config),
    {ok, _} = halley:publish(<<"room">>, 1),
    Id = says(<<"ann">>, <<"room">>, 2),
    eventually([Id], fun() -> event_ids(of_type(<<"published">>, Config)) end).

patterns(Config) ->
    start_hooks(Config, #{users => "ann,team/*", subjects => "room/*"}),
    says(<<"bob">>, <<"room/1">>, 1),
    says(<<"ann">>, <<"hall">>, 2),
    One = says(<<"ann">>, <<"room/1">>, 3),
    Two = says(<<"team/a">>, {to, [<<"bob">>]}, 4),
    eventually([One, Two], fun() -> lists:sort(event_ids(of_type(<<"published">>, Config))) end).

sessions_first_and_last(Config) ->
    start_hooks(Config, #{events => "opened,closed,published"}),
    settled(Config),
    ok = halley:login(<<"ann">>),
    Id = says(<<"ann">>, <<"room">>, 1),
    eventually(2, fun() -> length(hooks(Config)) end),
    ok = halley:logout(self()),
    eventually([{<<"opened">>, <<"ann">>}, {<<"published">>, <<"ann">>}, {<<"closed">>, <<"ann">>}],
               fun() -> [{T, U} || #{<<"type">> := T, <<"user">> := U} <- hooks(Config)] end),
    ?assertEqual([Id], event_ids(hooks(Config))),
    ?assertEqual(3, length(lists:usort([I || #{<<"id">> := I} <- hooks(Config)]))).

short_absence_is_not_told(Config) ->
    start_hooks(Config, #{events => "opened,closed", after_ms => 1500}),
    settled(Config),
    [begin
         ok = halley:login(<<"ann">>),
         timer:sleep(200),
         ok = halley:logout(self()),
         timer:sleep(200)
     end || _ <- lists:seq(1, 5)],
    ok = halley:login(<<"ann">>),
    timer:sleep(2500),
    ?assertMatch([#{<<"type">> := <<"opened">>}], hooks(Config)).

subjects(Config) ->
    start_hooks(Config, #{events => "occupied,vacated", subjects => "room/*"}),
    {Writer, Slot, _} = linked(),
    timer:sleep(?SETTLED_MS),
    [] = halley_subscriptions:open(Slot, [{1, nobody, live, [<<"room/1">>, <<"hall">>]},
                                          {2, nobody, live, [<<"room/1">>, <<"room/2">>]}]),
    Told = fun() -> lists:sort([{T, S} || #{<<"type">> := T, <<"subject">> := S} <- hooks(Config)])
           end,
    Occupied = [{<<"occupied">>, <<"room/1">>}, {<<"occupied">>, <<"room/2">>}],
    eventually(Occupied, Told),
    ok = halley_subscriptions:close(Slot, [2]),
    eventually(Occupied ++ [{<<"vacated">>, <<"room/2">>}], Told),
    %% The process of the subscriptions forgets everything, and says so.
    _ = [exit(whereis(halley_subscriptions), kill) || is_pid(Writer)],
    eventually(Occupied ++ [{<<"vacated">>, <<"room/1">>}, {<<"vacated">>, <<"room/2">>}], Told).

%% --- what fails --------------------------------------------------------------------------------

failing_endpoint_loses_nothing(Config) ->
    halley_test_brain:limits(#{hooks_retry_ms_max => 400, hooks_request_ms_max => 300}),
    start_hooks(Config),
    Does = fun(_, _) -> lists:nth(rand:uniform(6), [500, 404, 302, close, hang, 200]) end,
    halley_hooks_endpoint:does(Does, endpoint(Config)),
    Ids = [says(<<"ann">>, <<"room">>, N) || N <- lists:seq(1, 300)],
    timer:sleep(2000),
    halley_hooks_endpoint:does(fun(_, _) -> 200 end, endpoint(Config)),
    eventually(Ids, fun() -> once(event_ids(of_type(<<"published">>, Config))) end).

%% What a request had isn't sent again when the user that it was about was deleted since.
forgotten_meanwhile(Config) ->
    start_hooks(Config),
    halley_hooks_endpoint:does(fun(_, _) -> 500 end, endpoint(Config)),
    says(<<"ann">>, <<"bob">>, 1),
    Other = says(<<"ann">>, <<"room">>, 2),
    Asked = fun() -> length(halley_hooks_endpoint:requests(endpoint(Config))) end,
    eventually(true, fun() -> Asked() > 1 end),
    {ok, _} = halley:forget(<<"bob">>),
    %% One may have been on its way.
    Before = Asked(),
    eventually(true, fun() -> Asked() > Before + 1 end),
    halley_hooks_endpoint:does(fun(_, _) -> 204 end, endpoint(Config)),
    eventually([Other], fun() -> event_ids(of_type(<<"published">>, Config)) end),
    eventually(0, fun() -> waiting() end).

hostile_answers(Config) ->
    halley_test_brain:limits(#{hooks_retry_ms_max => 100, hooks_request_ms_max => 500}),
    start_hooks(Config),
    Long = binary:copy(<<"x">>, 100000),
    Answers = [<<"hello">>, <<"HTTP/1.1 200 ", Long/binary, "\r\n\r\n">>,
               [<<"HTTP/1.1 200 OK\r\n">>, lists:duplicate(200, <<"a: b\r\n">>), <<"\r\n">>],
               <<"HTTP/1.1 200 OK\r\na: ", Long/binary, "\r\n\r\n">>],
    lists:foreach(fun(Answer) ->
        Before = length(halley_hooks_endpoint:requests(endpoint(Config))),
        halley_hooks_endpoint:does(fun(_, _) -> {raw, Answer} end, endpoint(Config)),
        says(<<"ann">>, <<"room">>, 1),
        eventually(true, fun() ->
            length(halley_hooks_endpoint:requests(endpoint(Config))) > Before + 1
        end)
    end, Answers),
    %% A body without an end: its status counts, and it isn't read.
    halley_hooks_endpoint:does(fun(_, _) ->
        {raw, [<<"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n">>, Long]}
    end, endpoint(Config)),
    eventually(0, fun() -> waiting() end),
    {memory, Bytes} = process_info(whereis(halley_hooks_sender), memory),
    ?assert(Bytes < 10000000).

waiting() ->
    {_, Text} = {ok, iolist_to_binary(halley_metrics:render())},
    case re:run(Text, <<"halley_hooks_waiting_bytes (\\d+)">>, [{capture, all_but_first, list}]) of
        {match, [N]} -> list_to_integer(N);
        nomatch -> none
    end.

too_large_is_sent_in_halves(Config) ->
    start_hooks(Config),
    halley_hooks_endpoint:does(fun(_, Body) ->
        #{<<"hooks">> := Hooks} = jiffy:decode(Body, [return_maps]),
        case length(Hooks) > 10 of true -> 413; false -> 200 end
    end, endpoint(Config)),
    Ids = [says(<<"ann">>, <<"room">>, N) || N <- lists:seq(1, 200)],
    eventually(Ids, fun() -> once(event_ids(of_type(<<"published">>, Config))) end),
    Hooks = of_type(<<"published">>, Config),
    ?assertEqual(length(once([I || #{<<"id">> := I} <- Hooks])), 200).

killed_processes_lose_nothing(Config) ->
    halley_test_brain:limits(#{hooks_batch_max => 7}),
    start_hooks(Config),
    Ids = lists:append([begin
        Some = [says(<<"ann">>, <<"room">>, N) || N <- lists:seq(1, 50)],
        exit(whereis(lists:nth(1 + N1 rem 2, [halley_hooks_taker, halley_hooks_sender])), kill),
        timer:sleep(100 + N1 * 20),
        Some
    end || N1 <- lists:seq(1, 6)]),
    eventually(Ids, fun() -> once(event_ids(of_type(<<"published">>, Config))) end).

%% Without any end in order: everything of the brain and of the hooks is killed.
killed_brain_loses_nothing(Config) ->
    halley_test_brain:limits(#{hooks_batch_max => 7}),
    start_hooks(Config),
    {Ids, Last} = lists:foldl(fun(_, {Ids, Brain}) ->
        Some = [says(<<"ann">>, <<"room">>, N) || N <- lists:seq(1, 50)],
        {Ids ++ Some, killed(Brain)}
    end, {[], Config}, lists:seq(1, 5)),
    eventually(Ids, fun() -> once(event_ids(of_type(<<"published">>, Last))) end).

killed(Config) ->
    exit(whereis(halley_hooks_taker), kill),
    stop_hooks(),
    Next = restarted(Config),
    start_hooks(Next),
    Next.

%% Another brain over the same folder.
restarted(Config) ->
    end_brain(?config(brain, Config)),
    ok = halley_store:close(),
    Case = self(),
    spawn(fun() ->
        process_flag(trap_exit, true),
        {ok, Brain} = halley_sup:start_link(),
        Case ! {brain, Brain},
        receive {'EXIT', Brain, _} -> ok end
    end),
    receive {brain, Brain} -> lists:keystore(brain, 1, Config, {brain, Brain})
    after ?WAIT_MS -> error(no_brain)
    end.

end_brain(Brain) ->
    exit(Brain, kill),
    eventually([], fun() ->
        [Name || Name <- [halley_sup, halley_history_log, halley_follows_owner, halley_shard_sup],
                 whereis(Name) =/= undefined]
    end).

%% Who was there is neither closed nor opened again by a brain that starts: it comes back.
brain_that_is_away_tells_nothing_false(Config) ->
    start_hooks(Config, #{events => "opened,closed", after_ms => 1000}),
    _ = linked([{halley_test_brain:number(<<"ann">>), 1},
                {halley_test_brain:number(<<"bob">>), 2}]),
    eventually(2, fun() -> length(hooks(Config)) end),
    stop_hooks(),
    Next = restarted(Config),
    start_hooks(Next, #{events => "opened,closed", after_ms => 1000}),
    timer:sleep(1500),
    ?assertEqual(2, length(hooks(Next))),
    _ = linked([{halley_test_brain:number(<<"ann">>), 1}]),
    eventually([{<<"closed">>, <<"bob">>}, {<<"opened">>, <<"ann">>}, {<<"opened">>, <<"bob">>}],
               fun() -> lists:sort([{T, U} || #{<<"type">> := T, <<"user">> := U} <- hooks(Next)])
               end).

another_secret_for_a_while(Config) ->
    start_hooks(Config),
    ok = file:write_file(filename:join(?config(dir, Config), "secret"),
                         [binary:copy(<<"n">>, 40), "\n", "0123456789abcdef0123456789abcdef\n"]),
    says(<<"ann">>, <<"room">>, 1),
    eventually(1, fun() -> length(hooks(Config)) end),
    [{#{<<"halley-signature">> := Header}, Body, _}] =
        halley_hooks_endpoint:requests(endpoint(Config)),
    [<<"t=", Time/binary>>, <<"v1=", New/binary>>, <<"v1=", Old/binary>>] =
        binary:split(Header, <<",">>, [global]),
    Mac = fun(Secret) -> string:lowercase(binary:encode_hex(
        crypto:mac(hmac, sha256, Secret, ["v1:", Time, ":", Body])))
    end,
    ?assertEqual({Mac(binary:copy(<<"n">>, 40)), Mac(<<"0123456789abcdef0123456789abcdef">>)},
                 {New, Old}).

check_says_what_is_wrong(Config) ->
    Settings = settings(Config, #{}),
    Says = fun(Words, Does) ->
        ok = halley_hooks_endpoint:does(Does, endpoint(Config)),
        {wrong, What} = halley_hooks_command:check(Settings),
        ?assertNotEqual({Words, nomatch}, {Words, string:find(iolist_to_binary(What), Words)})
    end,
    Says("doesn't check signatures", fun(_, _) -> 200 end),
    Says("redirects aren't followed", fun(_, _) -> 302 end),
    Says("with the secret of", fun(_, _) -> 401 end),
    Says("must answer 2xx", fun(_, _) -> 500 end),
    Says("isn't HTTP", fun(_, _) -> {raw, <<"hello\r\n\r\n">>} end),
    ok = halley_hooks_endpoint:does(fun(#{<<"halley-signature">> := Header}, Body) ->
        <<"t=", Time:10/binary, ",v1=", Hex/binary>> = Header,
        case string:lowercase(binary:encode_hex(crypto:mac(
                 hmac, sha256, <<"0123456789abcdef0123456789abcdef">>, ["v1:", Time, ":", Body])))
        of
            Hex -> 204;
            _ -> 401
        end
    end, endpoint(Config)),
    ?assertEqual(ok, halley_hooks_command:check(Settings)),
    ok = file:delete(filename:join(?config(dir, Config), "secret")),
    {wrong, What} = halley_hooks_command:check(Settings),
    ?assertNotEqual(nomatch, string:find(iolist_to_binary(What), "hooks.secret_file")).
