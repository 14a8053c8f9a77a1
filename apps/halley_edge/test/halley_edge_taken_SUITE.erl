%% An edge that was taken over can't do anything by frames out of shape or order, nor to sessions
%% that aren't its own: what docs/internals/auth.md says of it comes from here and from
%% halley_edge_taken_flow_SUITE. `taken_edge' has the honest link.
-module(halley_edge_taken_SUITE).

-include_lib("stdlib/include/assert.hrl").
-compile([export_all, nowarn_export_all]).

-import(taken_edge, [attacked/2, synced/1, cut/1, goodbye/1, queued/0, broken/1,
                     user/1]).
-import(halley_edge_helper, [until/1, alive/1, next/2, link_process/0, field/3]).

-define(VICTIM, <<"anna">>).
%% The honest worker's connection.
-define(CONN, 1).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [malformed_frames, frames_of_the_brain, wrong_order, a_sync_that_never_ends,
     forged_connections, sessions_opened_twice, subscriptions_without_end, visitors_of_all_kinds,
     foreign_sessions, what_is_remembered_of_others, users_without_end, sessions_without_end,
     one_users_sessions, ids_of_all_kinds].

init_per_testcase(Case, Config) ->
    taken_edge:start(Config, limits(Case), handler(Case)).

end_per_testcase(_, Config) ->
    taken_edge:stop(Config).

limits(users_without_end) -> #{ids_max => 5000};
limits(one_users_sessions) -> #{sessions_per_user_max => 20};
limits(_) -> #{}.

handler(_) -> halley_edge_test_brain.

%%% 2 Frames

%% Every vector of a bad frame, and each good frame of an edge cut short, drawn out, and with noise
%% in it, each on a link of its own.
malformed_frames(Config) ->
    attacked(Config, fun(Edge) ->
        Bad = [Bytes || {_, _, Bytes} <- halley_edge_vectors:bad(), byte_size(Bytes) >= 5],
        Cut = lists:append([damaged(Bytes) || {_, Type, Frame, Bytes} <- halley_edge_vectors:good(),
                                              Type >= 16#41,
                                              halley_edge_codec:is_from_edge(Frame)]),
        Broken = [Bytes || Bytes <- lists:sublist(Bad, 12) ++ lists:sublist(Cut, 12),
                           element(1, halley_edge_codec:deframe(Bytes)) =:= error],
        ?assert(length(Broken) > 15),
        [begin
             fake_edge:send_raw(Edge, Bytes),
             goodbye(Edge),
             synced(Edge)
         end || Bytes <- Broken],
        ?assertEqual(length(Broken), broken("bad_frame") + broken("handshake"))
    end).

damaged(<<Length:32, Type, Payload/binary>>) ->
    Less = max(0, Length - 2),
    [<<(Less + 1):32, Type, (binary:part(Payload, 0, Less))/binary>>,
     <<(Length + 3):32, Type, Payload/binary, "abc">>].

%% 2.3: RESPONSE, GROUP frames, SHUTDOWN and all the others that are the brain's.
frames_of_the_brain(Config) ->
    attacked(Config, fun(Edge) ->
        Ours = [Bytes || {_, Type, Frame, Bytes} <- halley_edge_vectors:good(), Type > 16#04,
                         not halley_edge_codec:is_from_edge(Frame)],
        ByType = maps:values(maps:from_list([{Type, B} || <<_:32, Type, _/binary>> = B <- Ours])),
        ?assert(length(ByType) > 15),
        [begin
             fake_edge:send_raw(Edge, Bytes),
             ?assertMatch({goodbye, 1, <<"2.3", _/binary>>}, goodbye(Edge)),
             synced(Edge)
         end || Bytes <- ByType]
    end).

%%% 3 and 6 Order

wrong_order(Config) ->
    attacked(Config, fun(Edge) ->
        Open = {open, [{7, 1, ?VICTIM, <<>>}]},
        Orders = [{3, <<"3.1">>, [{hello_edge, fake_edge:hello()}]},
                  {1, <<"6.1">>, [{sync_begin, 0, <<>>}]},
                  {1, <<"6.1">>, [sync_end]},
                  {1, <<"6.3">>, [Open, Open]}],
        [begin
             [fake_edge:send(Edge, Frame) || Frame <- Frames],
             ?assertMatch({goodbye, Code, <<Clause:3/binary, _/binary>>}, goodbye(Edge)),
             synced(Edge)
         end || {Code, Clause, Frames} <- Orders],
        %% Before the sync, when the worker has no slot, and in it.
        [begin
             cut(Edge),
             [fake_edge:send(Edge, Frame) || Frame <- Frames],
             ?assertMatch({goodbye, 1, <<Clause:Bytes/binary, _/binary>>}, goodbye(Edge)),
             synced(Edge)
         end || {Clause, Frames} <- [{<<"13.4">>, [Open]}, {<<"13.4">>, [{close, [{1, 0, 1}]}]},
                                     {<<"13.4">>, [sync_end]},
                                     {<<"6.1">>, [{sync_begin, 1, <<>>}, {sync_begin, 1, <<>>}]}],
                Bytes <- [byte_size(Clause)]],
        %% Before the hello (3.1), and none at all is refused by the link's suite.
        until(fun() -> length(halley_sessions:of_user(?VICTIM)) =:= 1 end)
    end).

%% What it announced reserves nothing, and nothing waits for it: its events are left to the history,
%% for the catch-up behind SYNC_END (10.6), should that ever come.
a_sync_that_never_ends(Config) ->
    attacked(Config, fun(Edge) ->
        cut(Edge),
        fake_edge:send(Edge, {sync_begin, 16#FFFFFFFF, <<>>}),
        [fake_edge:send(Edge, {open, [{100 * N + I, 1, user(100 * N + I), <<>>}
                                      || I <- lists:seq(1, 100)]})
         || N <- lists:seq(1, 50)],
        until(fun() -> halley_sessions:of_user(user(5100)) =/= [] end),
        [?assertMatch({ok, #{sessions := 1}}, halley:publish(user(N), 1))
         || N <- lists:seq(101, 200)],
        alive(Edge),
        ?assertEqual(none, receive {Edge, {deliver, _, _}} -> sent after 0 -> none end),
        until(fun() -> queued() < 10000 end),
        fake_edge:send(Edge, sync_end),
        Delivered = [begin
                         {deliver, _, <<Conn:64>>} = next(Edge, deliver),
                         Conn
                     end || _ <- lists:seq(101, 200)],
        ?assertEqual(lists:seq(101, 200), lists:sort(Delivered))
    end).

%%% 2.4 and 6 Sessions

%% Ids of connections that nobody opened, of the other link, and too large.
forged_connections(Config) ->
    attacked(Config, fun(Edge) ->
        Number = halley_ids:lookup(?VICTIM),
        [fake_edge:send(Edge, Frame)
         || Conn <- [?CONN, 2, (1 bsl 48) - 1],
            Frame <- [{close, [{Conn, Number, 1}]}, {replayed, Conn}, {request_gone, Conn},
                      {request_body, Conn, 1, <<"x">>},
                      {inspected, 1, Conn, inspected()}]],
        alive(Edge),
        fake_edge:send_raw(Edge, <<9:32, 16#47, 1:1, 0:15, 1:48>>),
        ?assertMatch({goodbye, 1, <<"2.4", _/binary>>}, goodbye(Edge))
    end).

%% 6.3 "each is sent once"
sessions_opened_twice(Config) ->
    attacked(Config, fun(Edge) ->
        %% One connection for many users: its own affair, and over with the link.
        [fake_edge:send(Edge, {open, [{7, 1, user(N), <<>>}]}) || N <- lists:seq(1, 200)],
        until(fun() -> length(halley_sessions:of_user(user(200))) =:= 1 end),
        fake_edge:send(Edge, {open, [{7, 1, user(3), <<>>}]}),
        ?assertMatch({goodbye, 1, <<"6.3", _/binary>>}, goodbye(Edge)),
        until(fun() -> [] =:= lists:append([halley_sessions:of_user(user(N))
                                            || N <- lists:seq(1, 200)])
              end),
        %% In one frame, and one that comes back while it is here, or on its way.
        Back = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                    halley_history:heads()),
        [begin
             synced(Edge),
             [fake_edge:send(Edge, {open, Opening}) || Opening <- Frames],
             ?assertMatch({goodbye, 1, <<"6.3", _/binary>>}, goodbye(Edge))
         end || Frames <- [[[{8, 1, user(1), <<>>}, {8, 1, user(1), <<>>}]],
                           [[{8, 1, user(1), <<>>}, {8, 1, user(2), <<>>}]],
                           [[{8, 1, user(1), <<>>}, {8, 1, <<255>>, <<>>}]],
                           [[{8, 1, user(1), Back}, {8, 1, user(1), Back}]],
                           [[{8, 1, user(1), <<>>}, {8, 1, user(1), Back}]],
                           [[{8, 1, user(1), <<>>}], [{8, 1, user(1), Back}]],
                           [[{8, 1, user(1), Back}], [{8, 1, user(1), Back}]]]],
        until(fun() -> halley_sessions:of_user(user(1)) =:= [] end)
    end).

%% 14.1: "at most 16,384 wait for their OPEN, of 16,777,216 bytes", and each session's once. What a
%% worker says was granted is bounded as what is asked for (http.md 21.5).
subscriptions_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        %% 191,250 bytes: 88 of them are more than may wait, and nothing is said behind the next.
        Large = [binary:copy(<<N>>, 255) || N <- lists:seq($0, $z), _ <- lists:seq(1, 10)],
        [begin
             [fake_edge:send(Edge, Frame) || Frame <- Frames],
             ?assertMatch({goodbye, 1, <<"14.1", _/binary>>}, goodbye(Edge)),
             synced(Edge)
         end || Frames <- [[{subscriptions, N, <<>>, []} || N <- lists:seq(1, 16385)],
                           [{subscriptions, N, <<>>, Large} || N <- lists:seq(1, 89)],
                           [{subscriptions, 1, <<>>, [<<"a">>]}, {subscriptions, 1, <<>>, []}]]],
        Many = [integer_to_binary(N) || N <- lists:seq(1, 101)],
        fake_edge:send(Edge, {subscriptions, 1, <<>>, Many}),
        fake_edge:send(Edge, {open, [{1, 1, user(1), <<>>}]}),
        ?assertMatch({refused, 1, 400, 0, <<"too_many_subscriptions">>, _}, next(Edge, refused)),
        fake_edge:send(Edge, {subscriptions, 2, <<>>, halley_session_states:pieces(1, <<"no">>)}),
        fake_edge:send(Edge, {open, [{2, 3, <<"ann">>, <<>>}]}),
        ?assertMatch({refused, 2, 400, 0, <<"bad_state">>, _}, next(Edge, refused)),
        fake_edge:send(Edge, {subscriptions, 3, <<>>, [<<4, 0, 5, "a">>, <<1, $*>>]}),
        fake_edge:send(Edge, {open, [{3, 1, <<"ann">>, <<>>}]}),
        ?assertMatch({refused, 3, 400, 0, <<"bad_presence">>, _}, next(Edge, refused)),
        ?assertEqual(0, ets:info(halley_subscriptions, size))
    end).

%% 14.2, and 6.8 for those without a user: only what is there ends, and with the link all of it.
visitors_of_all_kinds(Config) ->
    attacked(Config, fun(Edge) ->
        Rows = fun() -> ets:info(halley_subscriptions, size) end,
        [begin
             fake_edge:send(Edge, {subscriptions, N, <<>>, [<<"a">>]}),
             fake_edge:send(Edge, {open, [{N, 1, <<>>, <<>>}]})
         end || N <- lists:seq(1, 100)],
        until(fun() -> Rows() =:= 100 end),
        fake_edge:send(Edge, {open, [{500, 1, <<>>, <<>>}]}),
        ?assertMatch({refused, 500, 400, 0, <<"bad_user">>, _}, next(Edge, refused)),
        [fake_edge:send(Edge, {close, [{Conn, Number, 1}]})
         || {Conn, Number} <- [{1, 16#FFFFFFFF}, {1, 16#FFFFFFFF}, {2, 7}, {500, 16#FFFFFFFF}]],
        until(fun() -> Rows() =:= 99 end),
        {ok, #{sessions := 99}} = halley:publish(<<"a">>, 1),
        fake_edge:send(Edge, {subscriptions, 3, <<>>, []}),
        fake_edge:send(Edge, {open, [{3, 1, <<>>, <<>>}]}),
        ?assertMatch({goodbye, 1, <<"6.3", _/binary>>}, goodbye(Edge)),
        until(fun() -> Rows() =:= 0 end)
    end).

%% 6.8 "a CLOSE for a session of another link changes nothing"
foreign_sessions(Config) ->
    attacked(Config, fun(Edge) ->
        Number = halley_ids:lookup(?VICTIM),
        Before = halley_sessions:of_user(?VICTIM),
        fake_edge:send(Edge, {close, [{?CONN, N, R} || N <- [Number, 0, 16#FFFFFFFF],
                                                       R <- lists:seq(1, 8)]}),
        [fake_edge:send(Edge, {close, [{Conn, Number, 1} || Conn <- lists:seq(1, 5000)]})
         || _ <- lists:seq(1, 50)],
        alive(Edge),
        ?assertEqual(Before, halley_sessions:of_user(?VICTIM))
    end).

%% Nor does it change what is known of why others' sessions ended.
what_is_remembered_of_others(Config) ->
    attacked(Config, fun(Edge) ->
        Number = halley_ids:lookup(?VICTIM),
        fake_edge:send(Edge, {open, [{7, 1, user(7), <<>>}]}),
        until(fun() -> halley_sessions:of_user(user(7)) =/= [] end),
        fake_edge:send(Edge, {close, [{?CONN, Number, 3}, {7, halley_ids:lookup(user(7)), 1}]}),
        alive(Edge),
        ?assertEqual([], halley_sessions:of_user(user(7))),
        ?assertEqual([], halley_closings:of_user(Number)),
        ?assertMatch([#{reason := closed}], halley_closings:of_user(halley_ids:lookup(user(7))))
    end).

%% The honest link's users are known already; new ones find no number, and are told so.
users_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        [fake_edge:send(Edge, {open, [{1000 * N + I, 1, user(1000 * N + I), <<>>}
                                      || I <- lists:seq(1, 1000)]})
         || N <- lists:seq(1, 20)],
        {refused, _, 503, _, <<"too_many_users">>, _} = next(Edge, refused),
        ?assert(halley_ids:count() =< 5000)
    end).

%% 2.4: as many as a worker's table has slots. Not all 2^24 are opened here.
sessions_without_end(Config) ->
    attacked(Config, fun(Edge) ->
        has_open((1 bsl 24) - 1000),
        fake_edge:send(Edge, {open, [{N, 1, user(N), <<>>} || N <- lists:seq(1, 999)]}),
        until(fun() -> halley_sessions:of_user(user(999)) =/= [] end),
        fake_edge:send(Edge, {close, [{N, 16#FFFFFFFF, 1} || N <- lists:seq(1, 999)]}),
        fake_edge:send(Edge, {open, [{N, 1, user(N), <<>>} || N <- lists:seq(2001, 2002)]}),
        ?assertMatch({goodbye, 1, <<"2.4", _/binary>>}, goodbye(Edge))
    end).

%% As if the taken link had so many sessions.
has_open(N) ->
    Of = field(halley_edge_link, state, workers),
    Sessions = field(halley_edge_worker, worker, sessions),
    Open = field(halley_edge_sessions, sessions, open),
    _ = sys:replace_state(link_process(), fun(State) ->
        #{0 := Worker} = Workers = element(Of, State),
        Has = setelement(Sessions, Worker, setelement(Open, element(Sessions, Worker), N)),
        setelement(Of, State, Workers#{0 := Has})
    end, infinity),
    ok.

one_users_sessions(Config) ->
    attacked(Config, fun(Edge) ->
        [fake_edge:send(Edge, {open, [{1000 * N + I, 1, <<"one">>, <<>>}
                                      || I <- lists:seq(1, 1000)]})
         || N <- lists:seq(1, 10)],
        alive(Edge),
        ?assert(length(halley_sessions:of_user(<<"one">>)) =< 20 + 64)
    end).

ids_of_all_kinds(Config) ->
    attacked(Config, fun(Edge) ->
        Bad = [<<>>, <<0>>, <<255>>, <<"a", 0, "b">>, <<"line\n">>, <<16#7f>>, <<237, 160, 128>>,
               binary:copy(<<255>>, 255)],
        fake_edge:send(Edge, {open, [{N, 1, User, <<>>} || {N, User} <- lists:enumerate(Bad)]}),
        [?assertMatch({refused, _, 400, 0, <<"bad_user">>, _}, next(Edge, refused)) || _ <- Bad],
        Good = [binary:copy(<<"x">>, 255), <<"../../etc">>, <<"__proto__">>, <<"ok' or 1=1">>],
        fake_edge:send(Edge, {open, [{N, 1, User, <<>>}
                                     || {N, User} <- lists:enumerate(100, Good)]}),
        until(fun() -> lists:all(fun(User) -> halley_sessions:of_user(User) =/= [] end, Good) end)
    end).

inspected() ->
    #{state => 3, transport => 1, outbox_bytes => 1, outbox_pieces => 1, outbox_ms => 1,
      held => 0, dropped => 0, conflated => 0}.
