%% A back end on another node, and failures between it and the brain; the cases are named after
%% these. The promise: each event once, in order, or a gap.
-module(halley_backends_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_testcase/2, end_per_testcase/2]).
-export([calls/1, bad_requests/1, events_in_order/1, private_events/1,
         events_about_several_subjects/1, slow_process/1,
         connection_cut/1, cut_at_any_byte/1,
         brain_stands_still/1, brain_killed/1, back_end_killed/1,
         session_killed/1, server_killed/1, process_ends/1, closed/1, gap_is_told/1,
         many_long_replays/1,
         cursor_moves_on/1, too_many_sessions/1, too_many_requests/1, other_secret/1,
         nothing_else_is_reached/1, metrics/1]).

-import(halley_backends_nodes, [call/4, wait/1]).
-import(halley_backends_case, [node_of/2, restart_brain/1, brain/4, back_end/3, process/3,
                               logged_in/2, publish/3, numbers/2, all_come/3, sessions/2,
                               until_done/1]).

-define(USER, <<"ann">>).
-define(SUBJECT, <<"news">>).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [calls, bad_requests, events_in_order, private_events,
     events_about_several_subjects, slow_process, connection_cut,
     cut_at_any_byte, brain_stands_still, brain_killed, back_end_killed, session_killed,
     server_killed, process_ends, closed, gap_is_told,
     many_long_replays, cursor_moves_on, too_many_sessions, too_many_requests, other_secret,
     nothing_else_is_reached, metrics].

-define(CUTS, 80).
%% Short silences, so that a link to who stands still ends within the case.
-define(TRANSPORT, #{ping_ms => 50, silent_ms_max => 1000, connect_ms_max => 1000}).

init_per_testcase(Case, Config) ->
    Proxies = ets:new(proxies, []),
    Started = halley_backends_case:start(
        (limits(Case))#{transport => ?TRANSPORT}, options(Case),
        fun(Port) -> through(Case, Port, Proxies) end, Config),
    [{proxy, Proxy} || {_, Proxy} <- ets:tab2list(Proxies)] ++ Started.

through(cut_at_any_byte, Port, Proxies) ->
    Seed = rand:uniform(1 bsl 30),
    ct:pal("seed ~b", [Seed]),
    {Proxy, Through} = halley_backends_proxy:start(Port, ?CUTS, Seed),
    true = ets:insert(Proxies, {proxy, Proxy}),
    #{through => Through};
through(_, _, _) ->
    #{}.

limits(too_many_sessions) -> #{remote_sessions_max => 2};
limits(too_many_requests) -> #{remote_requests_max => 1};
limits(_) -> #{}.

options(other_secret) -> #{transport => ?TRANSPORT, secret => <<"another secret of many bytes">>};
options(_) -> #{transport => ?TRANSPORT}.

end_per_testcase(_, Config) ->
    ok = halley_backends_case:stop(Config),
    _ = [halley_backends_proxy:stop(Proxy) || {proxy, Proxy} <- Config],
    ok.

%% --- cases -------------------------------------------------------------------------------------

calls(Config) ->
    {ok, #{added := 2}} = back_end(follow, [[{?USER, <<"a">>}, {?USER, <<"b">>}]], Config),
    ?assertEqual(brain(halley, following, [?USER], Config),
                 element(2, back_end(following, [?USER], Config))),
    ?assertMatch({ok, [?USER]}, back_end(followers, [<<"a">>], Config)),
    ok = back_end(unfollow, [?USER, <<"a">>], Config),
    ?assertEqual({ok, []}, back_end(followers, [<<"a">>], Config)),
    {ok, #{id := <<"x-1">>, sessions := 0}} = First =
        back_end(publish, [<<"b">>, #{<<"text">> => <<"hi">>}, #{id => <<"x-1">>}], Config),
    ?assertEqual(First, back_end(publish, [<<"b">>, again, #{id => <<"x-1">>}], Config)),
    ?assertMatch([{ok, _}, {error, bad_option}, {error, {bad_id, _}}, {ok, _}],
                 back_end(publish_many, [[{<<"b">>, 1, #{}}, {<<"b">>, 2, #{user => 2}},
                                          {<<>>, 3, #{}}, {{to, [?USER]}, 4, #{}}]], Config)),
    {ok, _} = back_end(publish, [<<"score">>, [1, 0], #{keep => true}], Config),
    ?assertMatch({ok, _}, brain(halley_history, kept, [<<"score">>], Config)),
    {ok, _} = back_end(publish, [<<"score">>, null, #{keep => true}], Config),
    ?assertEqual(none, brain(halley_history, kept, [<<"score">>], Config)),
    ?assertMatch({error, {bad_option, _}},
                 back_end(publish, [{to, [?USER]}, 1, #{keep => true}], Config)),
    {ok, #{sessions := 0}} = back_end(presence, [?USER], Config),
    {ok, #{following := 1}} = back_end(forget, [?USER], Config),
    #{state := up} = back_end(status, [], Config).

%% What can't be read is answered, and the next request as well.
bad_requests(Config) ->
    Pid = call(node_of(back_end, Config), erlang, whereis, [init]),
    Ask = fun(Request) ->
        call(node_of(back_end, Config), halley_remote_node, call, [Request, 5000])
    end,
    _ = [?assertEqual({error, bad_request}, Ask(Request))
         || Request <- [nonsense, {request, nonsense}, {request, {publish, [1]}},
                        {request, {publish, lists:duplicate(1001, {?USER, 1, #{}})}},
                        {request, {follow, [{?USER} | improper]}}, {request, {presence, 1}},
                        {login, 2, ?USER, 17, Pid}]],
    ?assertEqual({error, bad_version}, Ask({login, 1, ?USER, none, Pid})),
    ?assertMatch({error, {bad_data, _}}, back_end(publish, [?USER, {json, <<"x\ny">>}], Config)),
    ?assertMatch({error, {bad_data, _}}, back_end(publish, [?USER, {from, to}], Config)),
    ?assertEqual({error, bad_id}, back_end(login, [17], Config)),
    ?assertMatch({error, {bad_id, _}}, back_end(login, [<<>>], Config)),
    {ok, _} = back_end(publish, [?USER, #{nobody_else_knows => [this_atom, true]}], Config).

events_in_order(Config) ->
    Reader = logged_in(#{}, Config),
    ?assertEqual(1, sessions(?USER, Config)),
    ok = publish(1, 300, Config),
    ok = all_come(Reader, 300, Config),
    {_, First} = hd(process(got, [Reader], Config)),
    ?assertMatch(#{user := ?USER, subject := ?SUBJECT, id := _, at := _, cursor := _}, First),
    %% A trace doesn't take what is here for what has come there.
    [Session] = brain(halley_sessions, of_user, [?USER], Config),
    ?assertMatch([#{transport := remote, state := live}],
                 brain(halley_api_sessions, seen, [[Session]], Config)).

private_events(Config) ->
    {ok, Reader} = process(reader, [?USER, #{}], Config),
    {ok, #{sessions := 1}} = back_end(publish, [{to, [?USER, <<"bob">>]}, 1], Config),
    {ok, _} = back_end(publish, [{to, [<<"bob">>]}, 2], Config),
    {ok, _} = back_end(publish, [?USER, 3], Config),
    ok = wait(fun() -> length(numbers(Reader, Config)) =:= 2 end),
    [{halley, Private}, {halley, #{data := 3}}] = process(got, [Reader], Config),
    ?assertMatch(#{private := true, data := 1}, Private),
    ?assertNot(is_map_key(subject, Private)).

events_about_several_subjects(Config) ->
    Reader = logged_in(#{}, Config),
    {ok, #{sessions := 1}} = back_end(publish, [{subjects, [<<"b">>, ?SUBJECT]}, 1], Config),
    ok = wait(fun() -> length(numbers(Reader, Config)) =:= 1 end),
    [{halley, Joint}] = process(got, [Reader], Config),
    ?assertMatch(#{subjects := [<<"b">>, ?SUBJECT], data := 1}, Joint).

%% Its mailbox stays within the bound, and nothing waits at the brain but its place.
slow_process(Config) ->
    Reader = logged_in(#{mailbox_max => 20, takes => false}, Config),
    ok = publish(1, 1500, Config),
    Waiting = fun() ->
        {_, Count} = call(node_of(back_end, Config), erlang, process_info,
                          [Reader, message_queue_len]),
        Count
    end,
    ok = wait(fun() -> Waiting() >= 20 end),
    timer:sleep(300),
    ?assertEqual(20, Waiting()),
    #{queue_bytes := 0} = back_end(status, [], Config),
    ok = process(take, [Reader], Config),
    ok = all_come(Reader, 1500, Config).

%% Again and again, while events are published.
connection_cut(Config) ->
    Reader = logged_in(#{}, Config),
    Brain = node_of(brain, Config),
    {_, BrainNode} = Brain,
    Publisher = spawn_monitor(fun() -> ok = publish(1, 2000, Config) end),
    _ = [begin
             timer:sleep(60),
             ok = call(node_of(back_end, Config), teleport, disconnect, [BrainNode])
         end || _ <- lists:seq(1, 20)],
    {Pid, Ref} = Publisher,
    receive {'DOWN', Ref, process, Pid, Why} -> ?assertEqual(normal, Why) end,
    ok = all_come(Reader, 2000, Config),
    ok = wait(fun() -> sessions(?USER, Config) =:= 1 end).

%% A proxy cuts connections at any byte, in the handshake as well. The back end publishes, each
%% event until it's acknowledged and under its id, and gets what it published: each once, in order.
cut_at_any_byte(Config) ->
    ok = until_done(fun() -> back_end(follow, [?USER, ?SUBJECT], Config) end),
    {ok, Reader} = until_done(fun() -> process(reader, [?USER, #{}], Config) end),
    Count = publish_through_cuts(1, Config),
    ok = all_come(Reader, Count, Config),
    ?assertEqual([], [Gap || {halley_gap, _, _} = Gap <- process(got, [Reader], Config)]),
    ok = wait(fun() -> sessions(?USER, Config) =:= 1 end).

publish_through_cuts(N, Config) ->
    Id = integer_to_binary(N),
    {ok, _} = until_done(fun() -> back_end(publish, [?SUBJECT, N, #{id => Id}], Config) end),
    case halley_backends_proxy:cuts(?config(proxy, Config)) of
        Cuts when Cuts >= ?CUTS, N >= 500 -> N;
        _ -> publish_through_cuts(N + 1, Config)
    end.

%% Longer than the silence that ends a link.
brain_stands_still(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 50, Config),
    ok = all_come(Reader, 50, Config),
    _ = halley_backends_nodes:freeze(node_of(brain, Config)),
    ok = wait(fun() -> maps:get(state, back_end(status, [], Config)) =:= down end),
    ?assertEqual({error, unavailable}, back_end(publish, [?SUBJECT, lost], Config)),
    _ = halley_backends_nodes:thaw(node_of(brain, Config)),
    ok = publish(51, 100, Config),
    ok = all_come(Reader, 100, Config),
    ok = wait(fun() -> sessions(?USER, Config) =:= 1 end).

%% What was acknowledged comes, and nothing twice.
brain_killed(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 50, Config),
    ok = halley_backends_nodes:kill(node_of(brain, Config)),
    ?assertEqual({error, unavailable}, back_end(publish, [?SUBJECT, lost], Config)),
    ok = restart_brain(Config),
    ok = publish(51, 100, Config),
    ok = all_come(Reader, 100, Config),
    ?assertEqual([], [Gap || {halley_gap, _, _} = Gap <- process(got, [Reader], Config)]).

%% Its sessions end with it; another one goes on with the last cursor.
back_end_killed(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 50, Config),
    ok = all_come(Reader, 50, Config),
    {halley, #{cursor := Cursor}} = lists:last(process(got, [Reader], Config)),
    ok = halley_backends_nodes:kill(node_of(back_end, Config)),
    ok = wait(fun() -> sessions(?USER, Config) =:= 0 end),
    ok = publish(51, 80, Config),
    Again = halley_backends_nodes:start_back_end(?config(port, Config), options(none)),
    true = ets:insert(?config(nodes, Config), {back_end, Again}),
    {ok, Second} = process(reader, [?USER, #{cursor => Cursor}], Config),
    ok = publish(81, 100, Config),
    ok = wait(fun() -> length(numbers(Second, Config)) >= 50 end),
    ?assertEqual(lists:seq(51, 100), numbers(Second, Config)).

session_killed(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 50, Config),
    [{_, Session, _, _}] = brain(supervisor, which_children, [halley_backends_session_sup], Config),
    true = brain(erlang, exit, [Session, kill], Config),
    ok = publish(51, 100, Config),
    ok = all_come(Reader, 100, Config).

%% All of it starts anew.
server_killed(Config) ->
    Reader = logged_in(#{}, Config),
    _ = [begin
             ok = publish(From, From + 49, Config),
             true = brain(erlang, exit, [brain(erlang, whereis, [Name], Config), kill], Config),
             ok = wait(fun() -> is_pid(brain(erlang, whereis, [Name], Config)) end)
         end || {Name, From} <- [{halley_backends, 1}, {halley_backends_feed, 51},
                                 {teleport_sup, 101}]],
    ok = publish(151, 200, Config),
    ok = all_come(Reader, 200, Config).

process_ends(Config) ->
    Reader = logged_in(#{}, Config),
    true = call(node_of(back_end, Config), erlang, exit, [Reader, kill]),
    ok = wait(fun() -> sessions(?USER, Config) =:= 0 end),
    Other = logged_in(#{}, Config),
    ok = back_end(logout, [process(logged_in, [Other], Config)], Config),
    ok = wait(fun() -> sessions(?USER, Config) =:= 0 end),
    ?assertEqual([], brain(supervisor, which_children, [halley_backends_session_sup], Config)).

closed(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 10, Config),
    ok = all_come(Reader, 10, Config),
    {ok, 1} = back_end(close_sessions, [?USER], Config),
    ok = wait(fun() -> lists:last(process(got, [Reader], Config)) =:= {halley_closed, ?USER} end),
    ?assertEqual(0, sessions(?USER, Config)).

%% Of a cursor that this Halley didn't make, and of one that retention has overtaken.
gap_is_told(Config) ->
    Reader = logged_in(#{cursor => <<"nonsense">>}, Config),
    ok = publish(1, 10, Config),
    ok = wait(fun() -> length(numbers(Reader, Config)) >= 10 end),
    [{halley_gap, ?USER, #{reason := malformed, cursor := _}} | Events] =
        process(got, [Reader], Config),
    ?assertEqual(lists:seq(1, 10), [N || {halley, #{data := N}} <- Events]),
    {halley, #{cursor := Cursor}} = hd(Events),
    ok = brain(halley_history_atomics, put, [floor_at, 7000], Config),
    Seq = lists:max(tuple_to_list(brain(halley_history, heads, [], Config))),
    ok = brain(halley_history_atomics, put, [floor, Seq - 3], Config),
    Late = logged_in(#{cursor => Cursor}, Config),
    ok = wait(fun() -> length(process(got, [Late], Config)) >= 2 end),
    ?assertMatch([{halley_gap, ?USER, #{reason := too_old}} | _], process(got, [Late], Config)),
    ok = wait(fun() -> lists:last([none | numbers(Late, Config)]) =:= 10 end).

%% Of a user that follows much, whose past takes several turns to gather. All of them get on, the
%% gap that they begin with is told, and no more places are large than there may be.
many_long_replays(Config) ->
    ok = publish(1, 10, Config),
    Cursor = brain(halley_cursor, encode,
                   [brain(halley_history, store, [], Config), erlang:system_time(second),
                    brain(halley_history, heads, [], Config)], Config),
    Subjects = [integer_to_binary(N) || N <- lists:seq(1, 6000)],
    {ok, _} = brain(halley_follows, follow, [[{?USER, S} || S <- Subjects]], Config),
    _ = [brain(halley, publish_many, [[{<<"other">>, N, #{}} || N <- lists:seq(1, 1000)]], Config)
         || _ <- lists:seq(1, 3)],
    Last = [{S, S, #{}} || S <- lists:nthtail(5990, Subjects)],
    [{ok, _} | _] = brain(halley, publish_many, [Last], Config),
    ok = brain(halley_history_atomics, put, [floor, 1000], Config),
    {Got, Most} = brain(halley_backends_nodes, feeds, [?USER, Cursor, 70], Config),
    ?assertEqual(70, length(Got)),
    _ = [?assertMatch({[{gap, #{reason := too_old}} | _], 10},
                      {Items, length([S || {event, #{subject := S}} <- Items])}) || Items <- Got],
    ?assertEqual(64, Most).

%% When nothing comes for this user, too.
cursor_moves_on(Config) ->
    Reader = logged_in(#{}, Config),
    Session = process(logged_in, [Reader], Config),
    Before = back_end(cursor, [Session], Config),
    _ = [{ok, _} = brain(halley, publish, [<<"other">>, N], Config) || N <- lists:seq(1, 10)],
    [{_, Here, _, _}] = brain(supervisor, which_children, [halley_backends_session_sup], Config),
    _ = brain(erlang, send, [Here, tell_cursor], Config),
    ok = wait(fun() -> back_end(cursor, [Session], Config) =/= Before end),
    ?assertEqual([], process(got, [Reader], Config)).

too_many_sessions(Config) ->
    _ = [{ok, _} = process(reader, [User, #{}], Config) || User <- [<<"a">>, <<"b">>]],
    ?assertEqual({error, too_many_remote_sessions}, process(reader, [?USER, #{}], Config)),
    ?assertMatch(#{<<"halley_remote_logins_refused_total">> := 1,
                   <<"halley_remote_sessions">> := 2},
                 brain(halley_metrics, values, [], Config)).

too_many_requests(Config) ->
    %% One that takes its time, as the owner of the follows doesn't answer.
    Holder = brain(erlang, spawn, [halley_backends_nodes, hold, [halley_follows_owner]], Config),
    BackEnd = node_of(back_end, Config),
    {_, Ref} = spawn_monitor(fun() -> exit(call(BackEnd, halley_remote, follow, [?USER, <<"a">>]))
                             end),
    ok = wait(fun() ->
        #{<<"halley_remote_requests_total">> := N} = brain(halley_metrics, values, [], Config),
        N =:= 1
    end),
    ?assertEqual({error, overloaded}, back_end(presence, [?USER], Config)),
    true = brain(erlang, exit, [Holder, kill], Config),
    receive {'DOWN', Ref, process, _, Result} -> ?assertEqual(ok, Result) end,
    {ok, _} = back_end(presence, [?USER], Config).

other_secret(Config) ->
    ?assertEqual({error, unavailable}, back_end(publish, [?USER, 1], Config)),
    ?assertEqual({error, unavailable}, back_end(login, [?USER], Config)).

nothing_else_is_reached(Config) ->
    {_, Node} = node_of(brain, Config),
    Call = fun(Dest, Request) ->
        catch call(node_of(back_end, Config), teleport, call, [Dest, Request])
    end,
    {ok, _} = back_end(presence, [?USER], Config),
    _ = [?assertMatch({'EXIT', {{refused, no_receiver}, _}}, Call({Name, Node}, Request))
         || {Name, Request} <- [{rex, {call, init, stop, [], user}}, {halley_follows_owner, stop},
                                {kernel_sup, which_children}]],
    {ok, _} = back_end(presence, [?USER], Config).

metrics(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 10, Config),
    ok = all_come(Reader, 10, Config),
    {_, Node} = node_of(back_end, Config),
    Values = brain(halley_metrics, values, [], Config),
    Of = fun(Name) -> maps:get(iolist_to_binary([Name, "{node=\"", atom_to_binary(Node), "\"}"]),
                               Values)
         end,
    ?assertEqual(1, Of("halley_remote_up")),
    ?assertEqual(0, Of("halley_remote_queue_bytes")),
    ?assert(Of("halley_remote_connections") >= 1),
    ?assertEqual(0, Of("halley_remote_senders_waiting")),
    ?assertEqual(0, Of("halley_remote_busy_total")),
    ?assert(Of("halley_remote_round_trip_microseconds") > 0),
    ?assert(Of("halley_remote_messages_sent_total") > 0),
    ?assert(Of("halley_remote_messages_received_total") > 0),
    ?assertEqual(0, Of("halley_remote_messages_refused_total")),
    ?assertMatch(#{<<"halley_remote_events_total">> := 10, <<"halley_remote_sessions">> := 1},
                 Values).
