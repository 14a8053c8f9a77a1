%% An edge that breaks the protocol: any frames of any workers in any order, and noise. A trunk ends
%% by a clause or goes on, its link's process never crashes, and nothing of it stays
%% (protocol/link.md 3.1, 13).
-module(halley_edge_hostile_trunk_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_edge_wait.hrl").
-include("support/halley_edge_proper.hrl").
-compile([export_all, nowarn_export_all]).

-import(halley_edge_helper, [until/1]).

-define(WORKERS, 3).
-define(TRUNKS, 150).
-define(FRAMES_MAX, 30).
-define(SUBJECT, <<"news">>).

suite() ->
    [{timetrap, {minutes, 10}}].

all() ->
    [frames_in_any_order, a_trunk_that_becomes_noise, killed_with_joins_in_flight,
     a_sync_behind_the_writers_end].

%% Groups of two followers, so that opens make workers members.
init_per_testcase(_, Config) ->
    Brain = halley_edge_test_brain:start(#{group_followers_min => 2, group_followers_low => 1,
                                           redial_ms_max => 50}),
    Dir = string:trim(os:cmd("mktemp -d")),
    {ok, #{errors := []}} = halley:follow([{user(N), ?SUBJECT} || N <- lists:seq(0, 9)]),
    [{brain, Brain}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    ok = halley_edge_dialer:disconnect(),
    ok = halley_edge_test_brain:stop(proplists:get_value(brain, Config)),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

frames_in_any_order(Config) ->
    each_trunk(fun(Random) ->
        {Count, Next} = rand:uniform_s(?FRAMES_MAX, Random),
        of_seed(proper_types:vector(Count, proper_types:frequency([{9, in_order()}, {1, frame()}])),
                Next)
    end, fun(Frames, Edge) -> say(bytes(begun() ++ Frames), Edge) end, [heard | Config]).

%% It begins as it should, and at some byte it is something else.
a_trunk_that_becomes_noise(Config) ->
    each_trunk(fun(Random) ->
        of_seed({proper_types:vector(?FRAMES_MAX, in_order()), non_neg_integer(), binary()}, Random)
    end, fun({Frames, At, Noise}, Edge) ->
        Whole = bytes(Frames),
        Cut = At * 7919 rem byte_size(Whole),
        say([bytes(begun()), binary:part(Whole, 0, Cut), Noise], Edge)
    end, [heard | Config]).

%% The edge dies while the brain judges opens and tells workers of members.
killed_with_joins_in_flight(Config) ->
    each_trunk(fun(Random) ->
        {Ms, Next} = rand:uniform_s(8, Random),
        {Ms - 1, Next}
    end, fun(Ms, Edge) ->
        say(bytes(begun() ++ lists:append([opens(W) || W <- lists:seq(0, ?WORKERS - 1)])), Edge),
        timer:sleep(Ms)
    end, Config).

%% The writer found the socket closed first: its slot is gone, and a worker's sync is still to be
%% read.
a_sync_behind_the_writers_end(Config) ->
    Dir = proplists:get_value(dir, Config),
    Edge = start(Dir),
    ok = halley_edge_dialer:connect(Dir, self()),
    Link = link_up(),
    Monitor = monitor(process, Link),
    ok = sys:suspend(Link),
    say(bytes(sync(0)), Edge),
    until(fun() ->
        {messages, Waiting} = process_info(Link, messages),
        [] =/= [sync || {tcp, _, _} <- Waiting]
    end),
    exit(writer(), kill),
    until(fun() -> ets:tab2list(halley_links) =:= [] end),
    ok = sys:resume(Link),
    Another = start(Dir),
    fake_edge:stop(Edge),
    ended_well(Link, Monitor),
    in_its_right_mind(Another).

%% That of the trunk's own slot, the only one while no worker has synced.
writer() ->
    [Slot] = ets:tab2list(halley_links),
    [Writer] = [Pid || Pid <- tuple_to_list(Slot), is_pid(Pid)],
    Writer.

%%% A trunk after the other

each_trunk(Draw, Do, Config) ->
    Dir = proplists:get_value(dir, Config),
    Seed = rand:uniform(1 bsl 30),
    ct:log("seed ~b", [Seed]),
    Publisher = spawn_link(fun publish_on/0),
    First = start(Dir),
    ok = halley_edge_dialer:connect(Dir, self()),
    {Last, _} = lists:foldl(fun(N, {Edge, Random}) ->
        Link = link_up(),
        {Drawn, Next} = Draw(Random),
        Monitor = monitor(process, Link),
        try
            Do(Drawn, Edge),
            _ = proplists:get_bool(heard, Config) andalso heard(Link),
            Another = start(Dir),
            fake_edge:stop(Edge),
            ended_well(Link, Monitor),
            {Another, Next}
        catch
            error:Reason:Stack -> error({N, Seed, Drawn, Reason, Stack})
        end
    end, {First, rand:seed_s(exsss, Seed)}, lists:seq(1, ?TRUNKS)),
    unlink(Publisher),
    exit(Publisher, kill),
    in_its_right_mind(Last).

start(Dir) ->
    fake_edge:start(halley_edge_dial:path(Dir), fake_trunk:hello(?WORKERS)).

say(Bytes, Edge) -> fake_edge:send_raw(Edge, Bytes).

link_up() ->
    receive {link_up, #{worker := 65535}} -> ok after ?WAIT_MS -> error(not_up) end,
    {ok, Link} = halley_edge_dialer:link(),
    Link.

%% By a clause, or with the connection.
ended_well(Link, Monitor) ->
    receive
        {'DOWN', Monitor, process, Link, Reason} ->
            ?assertMatch({_, true}, {Reason, is_right(Reason)})
    after ?WAIT_MS -> error(goes_on)
    end,
    until(fun() -> halley_directory:online() =:= #{users => 0, sessions => 0} end).

is_right({shutdown, closed}) -> true;
is_right({shutdown, {broken, {Clause, What}}}) -> is_binary(Clause) andalso is_binary(What);
is_right({shutdown, {goodbye, Code}}) -> is_integer(Code);
is_right({shutdown, {tcp, _}}) -> true;
is_right(noproc) -> true;
is_right(_) -> false.

%% It had time to read what was sent, if it lives.
heard(Link) ->
    try sys:get_state(Link), ok catch exit:_ -> ok end.

publish_on() ->
    {ok, _} = halley:publish(?SUBJECT, 1, #{ack => memory}),
    timer:sleep(1),
    publish_on().

%% The next trunk does what it should, and gets what it should.
in_its_right_mind(Edge) ->
    _ = link_up(),
    say(bytes(sync(0) ++ opens(0)), Edge),
    until(fun() -> maps:get(sessions, halley_directory:online()) =:= 3 end),
    until(fun() -> length(halley_links:list()) =:= 1 end),
    _ = fake_edge:flush(Edge),
    {ok, #{sessions := 3}} = halley:publish(?SUBJECT, 2),
    _ = fake_edge:expect(Edge, fun is_event/1).

is_event({trunk_group_deliver, _, _, _}) -> true;
is_event({to_slot, _, {group_deliver, _, _}}) -> true;
is_event({trunk_deliver, _, _}) -> true;
is_event({to_slot, _, {deliver, _, _}}) -> true;
is_event(_) -> false.

%%% What it sends

user(N) -> <<"user", (integer_to_binary(N))/binary>>.

bytes(Frames) -> iolist_to_binary([halley_edge_codec:encode(Frame) || Frame <- Frames]).

%% What a worker says counts once it has a place.
begun() -> lists:append([sync(W) || W <- lists:seq(0, ?WORKERS - 1)]).

sync(W) -> [{from_worker, W, {sync_begin, 0, <<>>}}, {from_worker, W, sync_end}].

opens(W) -> [{from_worker, W, {open, [{Conn, 1, user(3 * W + Conn), <<>>} || Conn <- [0, 1, 2]]}}].

%% The same drawn values for the same seed.
of_seed(Type, Random) ->
    {Seed, Next} = rand:uniform_s(1 bsl 30, Random),
    {ok, Drawn} = proper_gen:pick(Type, 20, {Seed, 2, 3}),
    {Drawn, Next}.

worker() -> range(0, ?WORKERS - 1).
conn() -> range(0, 5).
cursor() -> oneof([<<>>, <<"-">>, <<"last-5">>, <<"AQAAAAcAAABkAAAAAAAKAAAA">>]).

%% What a worker says that has a place, but for the order.
in_order() ->
    ?LET({W, Frame}, {worker(), of_worker()}, {from_worker, W, Frame}).

of_worker() ->
    oneof([{sync_begin, range(0, 3), cursor()}, {sync_begin, 0, <<>>}, sync_end,
           {open, list({conn(), range(1, 5), ?LET(N, range(0, 9), user(N)), cursor()})},
           {close, list({conn(), range(0, 12), range(1, 8)})}, {replayed, conn()},
           {subscriptions, conn(), <<>>, list(oneof([?SUBJECT, <<"topic">>]))},
           {request, conn(), oneof([public, api]), oneof([0, 1, 4, 5]), <<"POST">>,
            oneof([<<"/publish/news">>, <<"/now">>, <<"/crash/now">>, <<"/echo">>]),
            list({<<"halley-user">>, user(1)}), oneof([<<>>, <<"1">>, <<"no JSON">>])},
           {request_body, conn(), range(0, 1), binary()}, {request_gone, conn()}, operation(),
           {stats, list(non_neg_integer())},
           {inspected, range(0, 3), conn(),
            #{state => 0, transport => 0, outbox_bytes => 0, outbox_pieces => 0, outbox_ms => 0,
              held => 0, dropped => 0, conflated => 0}}]).

operation() ->
    ?LET({What, User, Last, Subject, Members},
         {oneof([publish, follow, unfollow, subscribe, unsubscribe, state]),
          oneof([user(1), <<>>]), range(0, 1),
          oneof([?SUBJECT, <<"echo">>, <<"crash">>, <<"hang">>, <<"nonsense">>, <<2>>, <<>>]),
          oneof([[], [{<<"data">>, binary()}],
                 [{<<"subject">>, ?SUBJECT}, {<<"data">>, oneof([<<"1">>, binary()])}]])},
         {operation, conn(), range(0, 3),
          #{what => What, user => User, rights => <<"{}">>, subject => Subject, last => Last,
            members => Members}}).

%% What nobody should say, or not so.
frame() ->
    oneof([{worker_gone, range(0, ?WORKERS)},
           ?LET(Frame, of_worker(), {from_worker, oneof([?WORKERS, 65535]), Frame}),
           of_worker(), {credit, range(1, 16#ffffffff)}, {ping, 7}, {pong, 7},
           {place, worker(), range(1, 5)}, {goodbye, range(1, 8), <<"so long">>},
           {hello_edge, fake_trunk:hello(?WORKERS)}, {cursor, <<>>}]).
