%% Events that another process has ordered, as those of a cluster are (`halley_order'): the shards
%% show, keep and answer them at the places that they were given, and their heads pass nothing that
%% is on its way.
-module(halley_order_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_missed_helper, [cursor/0, missed/2, ids/1]).
-import(halley_test_brain, [event/0, link_with/1, message/1, number/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [publishers_get_their_answers, shown_in_the_order_of_the_log, of_another_brain,
     private_and_joint_events, kept_value, chosen_id_is_found, all_heads_move,
     a_mark_passes_nothing, replayed, log_is_awaited, no_orderer, orderer_that_comes_late,
     orderer_that_dies, events_wait_elsewhere, shards_order_without_one].

init_per_testcase(shards_order_without_one, Config) ->
    halley_test_brain:start(Config);
init_per_testcase(_, Config) ->
    Names = [name(Shard) || Shard <- shards()],
    ok = application:set_env(halley, order, list_to_tuple(Names)),
    halley_test_brain:start(halley_test_brain:quiet(Config)).

end_per_testcase(_, Config) ->
    ok = application:unset_env(halley, order),
    _ = [exit(Pid, kill) || Shard <- shards(), Pid <- [whereis(name(Shard))], is_pid(Pid)],
    halley_test_brain:stop(Config),
    halley_test_brain:loud(Config).

%%% An orderer

shards() -> lists:seq(1, halley_shards:count()).

name(Shard) -> list_to_atom("halley_order_suite_" ++ integer_to_list(Shard)).

%% One process for each shard takes its drafts, and passes them on to the one that orders all. That
%% draws places of its own, with holes as another brain's events would leave them.
orderer() ->
    Case = self(),
    Orderer = spawn(fun() -> order(halley_history:drawn(), #{}) end),
    _ = [spawn_taker(Case, Shard, Orderer) || Shard <- shards()],
    Orderer.

spawn_taker(Case, Shard, Orderer) ->
    Taker = spawn(fun() ->
        true = register(name(Shard), self()),
        ok = halley_shard:taken(Shard, halley_shard:waiting(Shard)),
        Case ! {self(), ready},
        take(Shard, Orderer)
    end),
    receive {Taker, ready} -> Taker after ?WAIT_MS -> error(not_ready) end.

take(Shard, Orderer) ->
    receive
        {'$gen_call', From, {publish, _, Drafts}} ->
            ok = halley_shard:taken(Shard, length(Drafts)),
            Orderer ! {call, Shard, From, Drafts};
        {posts, Publisher, Posts} ->
            ok = halley_shard:taken(Shard, length(Posts)),
            Orderer ! {posts, Shard, Publisher, Posts}
    end,
    take(Shard, Orderer).

order(Last, Waiting) ->
    receive
        {call, Shard, From, Drafts} ->
            Tags = [{From, N} || N <- lists:seq(1, length(Drafts))],
            order(group(Last, Shard, lists:zip(Tags, Drafts)), Waiting#{From => {Tags, #{}}});
        {posts, Shard, Publisher, Posts} ->
            order(group(Last, Shard, [{{post, Publisher, Tag}, Draft} || {Tag, _, Draft} <- Posts]),
                  Waiting);
        {other_brain, Shard, Draft} ->
            order(group(Last, Shard, [{none, Draft}]), Waiting);
        {posted, Answers} ->
            order(Last, lists:foldl(fun answered/2, Waiting, Answers))
    end.

group(Last, Shard, Tagged) ->
    {Placed, End} = lists:mapfoldl(fun({Tag, Draft}, Before) ->
        Seq = Before + 1000 + places(Draft),
        {{Seq, Tag, Draft}, Seq}
    end, Last, Tagged),
    _ = [ok = halley_order:committed(S, End + 5, 1_700_000_000_000 + End, self(),
                                     case S of Shard -> Placed; _ -> [] end)
         || S <- shards()],
    End + 5.

places({by, _, Draft}) -> places(Draft);
places({keep, _, Draft}) -> places(Draft);
places({private, Private}) -> length(element(2, halley_event:users(Private)));
places({joint, Joint}) -> length(element(2, halley_event:subjects(Joint)));
places(_) -> 1.

answered({{post, Publisher, Tag}, Answer}, Waiting) ->
    Publisher ! {posted, [{Tag, Answer}]},
    Waiting;
answered({{From, N}, {ok, Result}}, Waiting) ->
    #{From := {Tags, Results}} = Waiting,
    case Results#{N => Result} of
        All when map_size(All) =:= length(Tags) ->
            gen_server:reply(From, {ok, [maps:get(I, All) || {_, I} <- Tags]}),
            maps:remove(From, Waiting);
        Some ->
            Waiting#{From := {Tags, Some}}
    end.

%% By a brain that this one doesn't know.
by_another(Orderer, Subject, Json) ->
    Draft = halley_event:draft(generated, Subject, Json),
    Orderer ! {other_brain, halley_shards:of_subject(Subject), Draft},
    ok.

%%% Cases

publishers_get_their_answers(_) ->
    _ = orderer(),
    ok = halley:login(<<"ann">>),
    {ok, #{id := Id, sessions := 1}} = halley:publish(<<"ann">>, 1),
    ?assertMatch(#{id := Id, at := At} when At > 1_700_000_000_000, event()),
    Answers = halley:publish_many([{integer_to_binary(N), N, #{}} || N <- lists:seq(1, 100)]),
    ?assertEqual(100, length(lists:usort([I || {ok, #{id := I}} <- Answers]))),
    {ok, _, Posts} = halley_posts:post({<<"ann">>, {json, <<"2">>}, #{}}, mine,
                                       halley_posts:new()),
    Sent = halley_posts:send(Posts),
    receive
        {posted, Answered} ->
            ?assertMatch({[{mine, {ok, #{sessions := 1}}}], _},
                         halley_posts:answered(Answered, Sent))
    after ?WAIT_MS -> error(no_answer)
    end,
    ?assertMatch(#{data := 2}, event()),
    ?assertEqual(0, halley_shard:queued()).

shown_in_the_order_of_the_log(_) ->
    Orderer = orderer(),
    Link = link_with([{number(<<"ann">>), 7}]),
    _ = [by_another(Orderer, <<"ann">>, integer_to_binary(N)) || N <- lists:seq(1, 300)],
    Events = [begin {Event, <<7:64>>} = message_of_event(Link), Event end
              || _ <- lists:seq(1, 300)],
    Seqs = [Seq || {_, Seq, _} <- Events],
    ?assertEqual(lists:sort(Seqs), Seqs),
    ?assertEqual([integer_to_binary(N) || N <- lists:seq(1, 300)],
                 [data(halley_test_brain:event(Event)) || Event <- Events]).

data(#{json := Json, data_offset := Offset}) ->
    binary_part(Json, Offset, byte_size(Json) - Offset - 1).

message_of_event({Writer, _, _} = Link) ->
    receive
        {Writer, {mark, _, _}} -> message_of_event(Link);
        {Writer, {deliver, Delivery, Conns}} -> {Delivery, Conns}
    after ?WAIT_MS -> error(nothing_delivered)
    end.

of_another_brain(_) ->
    Orderer = orderer(),
    ok = halley:login(<<"ann">>),
    by_another(Orderer, <<"ann">>, <<"{\"n\":1}">>),
    #{id := Id, subject := <<"ann">>, data := #{<<"n">> := 1}} = event(),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ?assertMatch({ok, _}, halley_history:find(Id)).

private_and_joint_events(_) ->
    _ = orderer(),
    ok = halley:login(<<"bob">>),
    {ok, #{id := Private, sessions := 1}} =
        halley:publish({to, [<<"ann">>, <<"bob">>, <<"eve">>]}, 1),
    ?assertMatch(#{id := Private, private := true}, event()),
    {ok, #{id := Joint, sessions := 1}} =
        halley:publish({subjects, [<<"room">>, <<"bob">>]}, 2),
    ?assertMatch(#{id := Joint, subjects := [<<"room">>, <<"bob">>]}, event()).

kept_value(_) ->
    _ = orderer(),
    {ok, _} = halley:publish(<<"room">>, #{a => 1}, #{keep => true}),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ?assertMatch({ok, _}, halley_history:kept(<<"room">>)),
    {ok, _} = halley:publish(<<"room">>, null, #{keep => true}),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ?assertEqual(none, halley_history:kept(<<"room">>)).

chosen_id_is_found(_) ->
    _ = orderer(),
    {ok, #{id := <<"mine">>}} = halley:publish(<<"room">>, 1, #{id => <<"mine">>}),
    ok = halley_history:await(halley_history:heads(), ?WAIT_MS),
    ?assertMatch({ok, _}, halley_history:find(<<"mine">>)).

%% Also those of shards that had no event of the group.
all_heads_move(_) ->
    Orderer = orderer(),
    Before = halley_history:drawn(),
    by_another(Orderer, <<"room">>, <<"1">>),
    wait(fun() -> lists:min(tuple_to_list(halley_history:heads())) > Before + 1000 end),
    ?assertEqual([halley_history:drawn()],
                 lists:usort(tuple_to_list(halley_history:heads()))).

%% Another shard has moved the counter already; this one has its events in its mailbox. Neither its
%% timer nor a link that asks for a mark may have it pass them.
a_mark_passes_nothing(_) ->
    Orderer = orderer(),
    {_, Slot, _} = Link = link_with([{number(<<"ann">>), 7}]),
    Shard = halley_shards:of_subject(<<"ann">>),
    Before = element(Shard, halley_history:heads()),
    ok = sys:suspend(halley_test_brain:shard(Shard), infinity),
    ok = halley_shard:mark(halley_links:way(Slot), [Shard]),
    timer:sleep(600),
    by_another(Orderer, <<"ann">>, <<"1">>),
    wait(fun() -> halley_history:drawn() > Before end),
    ok = sys:resume(halley_test_brain:shard(Shard), infinity),
    {Marks, Seq} = until_event(Link, Shard, []),
    ?assertNotEqual([], Marks),
    ?assertEqual([], [Mark || Mark <- Marks, Mark >= Seq]).

until_event({Writer, _, _} = Link, Shard, Marks) ->
    receive
        {Writer, {mark, Shard, Seq}} -> until_event(Link, Shard, [Seq | Marks]);
        {Writer, {mark, _, _}} -> until_event(Link, Shard, Marks);
        {Writer, {deliver, {Shard, Seq, _}, _}} -> {Marks, Seq}
    after ?WAIT_MS -> error(nothing_delivered)
    end.

replayed(_) ->
    Orderer = orderer(),
    {ok, _} = halley:follow([{<<"ann">>, <<"room">>}]),
    Cursor = cursor(),
    {ok, #{id := Own}} = halley:publish(<<"room">>, 1),
    by_another(Orderer, <<"room">>, <<"2">>),
    wait(fun() -> length(ids(missed(<<"ann">>, Cursor))) =:= 2 end),
    ?assertMatch([Own, _], ids(missed(<<"ann">>, Cursor))).

%% The heads of shards without events are written, too.
log_is_awaited(_) ->
    Orderer = orderer(),
    by_another(Orderer, <<"room">>, <<"1">>),
    wait(fun() -> lists:min(tuple_to_list(halley_history:heads())) > 1000 end),
    ?assertEqual(ok, halley_history:await(halley_history:heads(), ?WAIT_MS)).

no_orderer(_) ->
    ?assertEqual({error, unavailable}, halley:publish(<<"room">>, 1)),
    {ok, _, Posts} = halley_posts:post({<<"room">>, {json, <<"2">>}, #{}}, mine,
                                       halley_posts:new()),
    Sent = halley_posts:send(Posts),
    receive
        {'DOWN', Monitor, process, _, _} ->
            ?assertMatch({[{mine, {error, unavailable}}], _}, halley_posts:down(Monitor, Sent))
    after ?WAIT_MS -> error(no_answer)
    end.

%% What publishers sent while there was none waits for nobody.
orderer_that_comes_late(_) ->
    ok = halley_test_brain:limits(#{shard_queue_events_max => 10}),
    Refused = [halley:publish(<<"room">>, N) || N <- lists:seq(1, 30)],
    ?assertEqual([{error, overloaded}, {error, unavailable}], lists:usort(Refused)),
    _ = orderer(),
    ?assertEqual(0, halley_shard:queued()),
    ?assertMatch({ok, _}, halley:publish(<<"room">>, 1)).

%% What it had taken may be ordered or not.
orderer_that_dies(_) ->
    Orderer = orderer(),
    true = erlang:suspend_process(Orderer),
    {ok, _, Posts} = halley_posts:post({<<"room">>, {json, <<"2">>}, #{}}, mine,
                                       halley_posts:new()),
    Sent = halley_posts:send(Posts),
    wait(fun() -> element(2, process_info(Orderer, message_queue_len)) > 0 end),
    exit(whereis(name(halley_shards:of_subject(<<"room">>))), kill),
    receive
        {'DOWN', Monitor, process, _, _} ->
            ?assertMatch({[{mine, {error, unavailable}}], _}, halley_posts:down(Monitor, Sent))
    after ?WAIT_MS -> error(no_answer)
    end,
    ?assertEqual(0, halley_shard:queued()).

%% The shard's own mailbox is empty meanwhile, however often it looks.
events_wait_elsewhere(_) ->
    _ = orderer(),
    Shard = halley_shards:of_subject(<<"room">>),
    true = erlang:suspend_process(whereis(name(Shard))),
    {ok, _, Posts} = halley_posts:post({<<"room">>, {json, <<"2">>}, #{}}, mine,
                                       halley_posts:new()),
    Sent = halley_posts:send(Posts),
    Pid = whereis(halley_shard:name(Shard)),
    _ = [begin
             Pid ! mark,
             wait(fun() -> has_looked(process_info(Pid, [status, message_queue_len])) end)
         end || _ <- lists:seq(1, 100)],
    ?assertEqual(1, halley_shard:waiting(Shard)),
    true = erlang:resume_process(whereis(name(Shard))),
    receive
        {posted, Answered} ->
            ?assertMatch({[{mine, {ok, _}}], _}, halley_posts:answered(Answered, Sent))
    after ?WAIT_MS -> error(no_answer)
    end,
    ?assertEqual(0, halley_shard:waiting(Shard)).

%% A message that asks it would be in the mailbox.
has_looked(Info) -> Info =:= [{status, waiting}, {message_queue_len, 0}].

shards_order_without_one(_) ->
    ?assertEqual(own, halley_order:whose()),
    ?assertEqual([halley_shard:name(Shard) || Shard <- shards()],
                 [halley_order:process(Shard) || Shard <- shards()]),
    ?assertMatch({ok, _}, halley:publish(<<"room">>, 1)).
