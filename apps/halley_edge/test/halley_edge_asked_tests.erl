%% Sessions that need another server's judgement: which open now, which later, which don't; and the
%% queue is bounded and ends.
-module(halley_edge_asked_tests).

-include_lib("eunit/include/eunit.hrl").

asked_test_() ->
    {foreach, fun setup/0, fun(_) -> halley_hooked:judge(none), meck:unload() end,
     [fun nobody_asks/0, fun each_by_its_judgement/0, fun sync_opens_at_once/0, fun opens_twice/0,
      fun too_many_wait/0, fun late_ones_are_refused/0]}.

setup() ->
    ok = meck:new(halley_edge_sessions, []),
    ok = meck:expect(halley_edge_sessions, aside, fun(_, Sessions) -> {none, 100, Sessions} end).

session(Conn, User) -> {Conn, 1, User, <<>>}.

sift(Sync, Opening, Asked) -> halley_edge_asked:sift(0, Sync, Opening, sessions, Asked).

nobody_asks() ->
    Opening = [session(1, <<"ann">>)],
    ?assertMatch({Opening, [], sessions, _}, sift(done, Opening, halley_edge_asked:new())).

each_by_its_judgement() ->
    No = {refuse, 403, 0, <<"connect_refused">>, <<"no">>},
    halley_hooked:judge(fun(<<"ann">>, _) -> allow;
                           (<<"eve">>, _) -> No;
                           (<<"bob">>, {Pid, {0, 3}}) when Pid =:= self() -> asked
                        end),
    Ann = session(1, <<"ann">>),
    Eve = session(2, <<"eve">>),
    Bob = session(3, <<"bob">>),
    Visitor = session(4, <<>>),
    {[Ann, Visitor], [{Eve, No}], sessions, Asked} =
        sift(done, [Ann, Eve, Bob, Visitor], halley_edge_asked:new()),
    ?assertEqual(none, halley_edge_asked:judged(1, Asked)),
    {Bob, none, Left} = halley_edge_asked:judged(3, Asked),
    ?assertEqual(none, halley_edge_asked:judged(3, Left)),
    ?assertEqual(halley_edge_asked:new(), Left).

sync_opens_at_once() ->
    Case = self(),
    halley_hooked:judge(fun(User, {_, Tag}) -> Case ! {User, Tag}, asked end),
    Opening = [session(1, <<"ann">>), session(2, <<>>), session(3, <<"ann">>)],
    Asked = halley_edge_asked:new(),
    ?assertEqual({Opening, [], sessions, Asked}, sift(running, Opening, Asked)),
    receive {_, {later, _}} -> error(asked_before) after 0 -> ok end,
    ok = halley_edge_asked:behind(running, Opening),
    receive {<<"ann">>, {later, <<"ann">>}} -> ok after 0 -> error(not_asked) end,
    ok = halley_edge_asked:behind(done, Opening),
    receive {_, {later, _}} -> error(asked_again) after 0 -> ok end.

opens_twice() ->
    halley_hooked:judge(fun(_, _) -> asked end),
    {[], [], _, Asked} = sift(done, [session(1, <<"ann">>)], halley_edge_asked:new()),
    ?assertEqual(twice, sift(done, [session(1, <<"bob">>)], Asked)).

too_many_wait() ->
    halley_hooked:judge(fun(_, _) -> asked end),
    Many = [session(N, <<"ann">>) || N <- lists:seq(1, 10000)],
    {[], Refused, _, _} = sift(done, Many, halley_edge_asked:new()),
    ?assertEqual(10000 - 8192, length(Refused)),
    ok = meck:expect(halley_edge_sessions, aside, fun(_, S) -> {none, 1048576, S} end),
    {[], AlsoRefused, _, _} = sift(done, Many, halley_edge_asked:new()),
    ?assertEqual(10000 - 16, length(AlsoRefused)).

late_ones_are_refused() ->
    halley_hooked:judge(fun(_, _) -> asked end),
    Session = session(1, <<"ann">>),
    {[], [], _, Asked} = sift(done, [Session], halley_edge_asked:new()),
    ?assertEqual({[], Asked}, halley_edge_asked:late(Asked)),
    %% The record has the moment last in what it keeps of a session.
    {asked, Sessions, Bytes} = Asked,
    Old = {asked, maps:map(fun(_, S) -> setelement(4, S, element(4, S) - 10001) end, Sessions),
           Bytes},
    ?assertMatch({[{Session, {refuse, 503, _, _, _}}], _}, halley_edge_asked:late(Old)),
    {_, Left} = halley_edge_asked:late(Old),
    ?assertEqual(halley_edge_asked:new(), Left).
