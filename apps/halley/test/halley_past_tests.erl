%% Past events, page by page, over a history of its own: order, ends, bounds, gaps.
-module(halley_past_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(ROOM, <<"room/7">>).

past_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 180, {Title, fun() -> ?H:silently(fun() -> ?H:with(Env, Fun) end) end}}
      || {Title, Env, Fun} <- cases()]}.

cases() ->
    [{"pages to the end, against a model", [], fun pages/0},
     {"a subject without events", [], fun nothing/0},
     {"pages to the end while others publish", [], fun meanwhile/0},
     {"a cursor parts what a page has from what a stream brings", [], fun cursors_part/0},
     {"after a cursor", [], fun after_a_cursor/0},
     {"a page ends at its bytes", [{limit, past_bytes_max, 2000}], fun bytes/0},
     {"an old place of a long chain is found at once", [], fun in_the_midst/0},
     {"a stranger with much in the same bucket", [], fun stranger/0},
     {"what retention took is said", [], fun too_old/0},
     {"retention between two pages", [], fun too_old_between/0},
     {"a record that can't be read is said", [], fun damaged/0},
     {"a damaged segment isn't read for ever", [], fun much_damaged/0},
     {"a range that was lost is said where it is", [], fun lost/0},
     {"what was drawn before is waited for", [], fun awaited/0},
     {"what isn't written in time is not left out", [], fun behind/0},
     {"bad cursors", [], fun bad_cursors/0}].

%% --- helpers -------------------------------------------------------------------------------------

%% Numbers of events, in the order of publishing, each about one of the subjects.
publish(Subjects) ->
    lists:zip(Subjects, ?H:publish_all(Subjects)).

page(Subject, Before, After, Limit) ->
    {ok, Page} = halley_past:page(Subject, Before, After, Limit),
    Page.

seqs(#{events := Events}) -> [seq(Cursor) || {Cursor, _} <- Events].

seq(Cursor) ->
    {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
    halley_vector:largest(Vector).

cursor(Seq) -> cursor(1000, Seq).

cursor(Seconds, Seq) ->
    halley_cursor:encode(halley_history:store(), Seconds, erlang:make_tuple(8, Seq)).

%% All pages from one on.
pages(Subject, Before, After, Limit) ->
    case page(Subject, Before, After, Limit) of
        #{next := none} = Last -> [Last];
        #{next := Next} = Page -> [Page | pages(Subject, Next, After, Limit)]
    end.

%% --- cases ---------------------------------------------------------------------------------------

pages() ->
    Subjects = [lists:nth(N rem 3 + 1, [?ROOM, <<"ann">>, <<"b\"c">>]) || N <- lists:seq(1, 700)],
    Published = publish(Subjects),
    [begin
         Model = lists:reverse([Seq || {S, Seq} <- Published, S =:= Subject]),
         All = pages(Subject, none, none, Limit),
         ?assertEqual(Model, lists:append([seqs(Page) || Page <- All])),
         ?assert(lists:all(fun(Page) -> length(seqs(Page)) =< Limit end, All)),
         ?assertEqual((length(Model) + Limit - 1) div Limit, length(All)),
         ?assertEqual([], [Gap || #{gaps := Gaps} <- All, Gap <- Gaps]),
         ?assertMatch([#{cursor := <<_, _/binary>>} | _], All),
         ?assertEqual([], [C || #{cursor := C} <- tl(All), C =/= none])
     end || Subject <- [?ROOM, <<"ann">>, <<"b\"c">>], Limit <- [1, 20, 233, 1000]],
    %% Each event as it was published.
    #{events := [{_, Json} | _]} = page(<<"b\"c">>, none, none, 1),
    ?assertMatch(#{<<"subject">> := <<"b\"c">>, <<"data">> := 1, <<"id">> := _, <<"at">> := _},
                 jiffy:decode(Json, [return_maps])).

nothing() ->
    ?assertMatch(#{events := [], gaps := [], next := none, cursor := <<_, _/binary>>},
                 page(?ROOM, none, none, 20)),
    [_ | _] = publish([<<"ann">> || _ <- lists:seq(1, 100)]),
    ?assertMatch(#{events := [], gaps := [], next := none}, page(?ROOM, none, none, 20)).

%% What comes while somebody pages back is newer than all of the pages.
meanwhile() ->
    Before = [Seq || {_, Seq} <- publish([?ROOM || _ <- lists:seq(1, 200)])],
    Read = fun Read(From) ->
        Page = page(?ROOM, From, none, 7),
        _ = publish([?ROOM, <<"ann">>, ?ROOM]),
        case Page of
            #{next := none} -> seqs(Page);
            #{next := Next} -> seqs(Page) ++ Read(Next)
        end
    end,
    ?assertEqual(lists:reverse(Before), Read(none)).

%% With a page's cursor, an event's and a stream's: the page up to it and what is above it are all.
cursors_part() ->
    Published = publish([lists:nth(N rem 2 + 1, [?ROOM, <<"ann">>]) || N <- lists:seq(1, 100)]),
    All = [Seq || {?ROOM, Seq} <- Published],
    #{cursor := Now, events := [{Own, _} | _]} = page(?ROOM, none, none, 20),
    Later = [Seq || {_, Seq} <- publish([?ROOM, ?ROOM])],
    Heads = halley_cursor:encode(halley_history:store(), 1000, halley_history:heads()),
    [begin
         Page = lists:append([seqs(P) || P <- pages(?ROOM, Cursor, none, 1000)]),
         Stream = lists:append([seqs(P) || P <- pages(?ROOM, none, Cursor, 1000)]),
         ?assertEqual(lists:reverse(All ++ Later), Stream ++ Page),
         ?assertEqual(Expected, length(Stream))
     end || {Cursor, Expected} <- [{Now, 2}, {Own, 2}, {Heads, 0},
                                   {cursor(lists:nth(10, All)), 42}, {cursor(0), 52}]].

after_a_cursor() ->
    All = [Seq || {_, Seq} <- publish([?ROOM || _ <- lists:seq(1, 100)])],
    [begin
         Low = lists:nth(From, All),
         High = lists:nth(To, All),
         Wanted = lists:reverse(lists:sublist(All, From + 1, To - From)),
         Read = pages(?ROOM, cursor(High), cursor(Low), 9),
         ?assertEqual(Wanted, lists:append([seqs(Page) || Page <- Read])),
         ?assertEqual([], lists:append([Gaps || #{gaps := Gaps} <- Read]))
     end || {From, To} <- [{1, 100}, {30, 60}, {50, 51}, {70, 70}]],
    ?assertMatch(#{events := [], next := none},
                 page(?ROOM, cursor(hd(All)), cursor(lists:last(All)), 20)).

bytes() ->
    Data = <<$", (binary:copy(<<"x">>, 900))/binary, $">>,
    All = [element(2, ?H:publish(?ROOM, Data)) || _ <- lists:seq(1, 10)],
    {ok, Large} = ?H:publish(?ROOM, <<$", (binary:copy(<<"x">>, 9000))/binary, $">>),
    Read = pages(?ROOM, none, none, 1000),
    ?assertEqual([[Large] | in_twos(lists:reverse(All))], [S || S <- lists:map(fun seqs/1, Read),
                                                                 S =/= []]).

in_twos([A, B | Rest]) -> [[A, B] | in_twos(Rest)];
in_twos([]) -> [].

in_the_midst() ->
    Seqs = ?H:publish_all([?ROOM || _ <- lists:seq(1, 20000)]),
    Shard = halley_shards:of_subject(?ROOM),
    Looks = [begin
                 At = lists:nth(N, Seqs),
                 {[At], _, Left} = halley_history:back(Shard, ?ROOM, At, At - 1, 20000),
                 20000 - Left
             end || N <- lists:seq(500, 19500, 1000)],
    ?assertEqual([1], lists:usort(Looks)),
    %% A seq of another subject is no entry of the chain.
    [Other] = ?H:publish_all([<<"ann">>]),
    _ = ?H:publish_all([?ROOM || _ <- lists:seq(1, 20000)]),
    {[First | _], _, Left} = halley_history:back(Shard, ?ROOM, Other, Other - 1000, 40000),
    ?assertEqual(lists:last(Seqs), First),
    ?assert(40000 - Left < 1000 + 16 * 256),
    ?assertEqual([lists:last(Seqs)], seqs(page(?ROOM, cursor(Other), none, 1))).

%% Two subjects whose events are in one chain: who asks for the quiet one gets short pages, and all.
stranger() ->
    Quiet = twin(?ROOM, 1),
    Low = [Seq || {_, Seq} <- publish([Quiet, Quiet, Quiet])],
    _ = publish([?ROOM || _ <- lists:seq(1, 70000)]),
    [High] = ?H:publish_all([Quiet]),
    [First, Second | _] = Read = pages(Quiet, none, none, 20),
    ?assertEqual([High], seqs(First)),
    ?assertEqual(lists:reverse(Low), seqs(Second)),
    ?assertEqual([], lists:append([seqs(Page) || Page <- tl(tl(Read))])).

twin(Subject, N) ->
    Candidate = <<"twin ", (integer_to_binary(N))/binary>>,
    case bucket(Candidate) =:= bucket(Subject) of
        true -> Candidate;
        false -> twin(Subject, N + 1)
    end.

bucket(Subject) ->
    {halley_shards:of_subject(Subject), erlang:phash2([subject | Subject], 1 bsl 32) bsr 17}.

%% As if retention had taken all up to a seq.
drop(Seq) ->
    ok = halley_history_atomics:put(floor_at, 7000),
    ok = halley_history_atomics:put(floor, Seq).

too_old() ->
    Seqs = [Seq || {_, Seq} <- publish([?ROOM || _ <- lists:seq(1, 50)])],
    drop(lists:nth(20, Seqs)),
    Gap = #{from => 0, to => 7000, reason => too_old},
    [First, Second] = pages(?ROOM, none, none, 20),
    ?assertMatch(#{gaps := []}, First),
    ?assertMatch(#{gaps := [Gap]}, Second),
    ?assertEqual(lists:reverse(lists:nthtail(20, Seqs)), seqs(First) ++ seqs(Second)),
    %% Who has the older ones lacks none.
    ?assertMatch(#{gaps := [], next := none}, page(?ROOM, none, cursor(lists:nth(20, Seqs)), 30)),
    %% Who doesn't have them knows since when.
    Since = cursor(5, lists:nth(19, Seqs)),
    ?assertMatch(#{gaps := [#{from := 3000, to := 7000}]}, page(?ROOM, none, Since, 30)).

too_old_between() ->
    Seqs = [Seq || {_, Seq} <- publish([?ROOM || _ <- lists:seq(1, 50)])],
    #{next := Next} = page(?ROOM, none, none, 20),
    drop(lists:nth(40, Seqs)),
    ?assertMatch(#{events := [], next := none, gaps := [#{to := 7000, reason := too_old}]},
                 page(?ROOM, Next, none, 20)).

damaged() ->
    Seqs = [begin timer:sleep(2), element(2, ?H:publish(?ROOM, <<"1">>)) end
            || _ <- lists:seq(1, 10)],
    [halley_test_brain:damage(lists:nth(N, Seqs)) || N <- [4, 5]],
    #{events := Events, gaps := [Gap]} = page(?ROOM, none, none, 20),
    ?assertEqual([lists:nth(N, Seqs) || N <- [10, 9, 8, 7, 6, 3, 2, 1]],
                 [seq(Cursor) || {Cursor, _} <- Events]),
    At = fun(N) ->
        {_, Json} = lists:nth(N, Events),
        map_get(<<"at">>, jiffy:decode(Json, [return_maps]))
    end,
    ?assertEqual(#{from => At(6), to => At(5), reason => damaged}, Gap).

much_damaged() ->
    Seqs = [Seq || {_, Seq} <- publish([?ROOM || _ <- lists:seq(1, 50)])],
    [halley_test_brain:damage(Seq) || Seq <- Seqs],
    [#{gaps := [_], events := []} | _] = Read = pages(?ROOM, none, none, 20),
    ?assertEqual(3, length(Read)).

%% A range is said on each page that goes over a part of it, and on no other.
lost() ->
    Seqs = [Seq || {_, Seq} <- publish([?ROOM || _ <- lists:seq(1, 60)])],
    {From, To} = {lists:nth(25, Seqs), lists:nth(26, Seqs)},
    ok = halley_history_index:set_damaged([{From, To, 2000, 3000}]),
    Said = [Gaps || #{gaps := Gaps} <- pages(?ROOM, none, none, 20)],
    ?assertEqual([[], [#{from => 2000, to => 3000, reason => damaged}], []], Said).

awaited() ->
    _ = publish([?ROOM]),
    Test = self(),
    Seq = ?H:held(fun() ->
        Entry = #{seq := Drawn} = ?H:entry(?ROOM, <<"2">>),
        ok = halley_history:append(halley_shards:of_subject(?ROOM), [Entry], [none]),
        spawn_link(fun() -> Test ! {page, page(?ROOM, none, none, 1)} end),
        receive {page, _} = Early -> error(Early) after 50 -> Drawn end
    end),
    receive {page, Page} -> ?assertEqual([Seq], seqs(Page)) end.

behind() ->
    _ = publish([?ROOM]),
    ?H:held(fun() ->
        #{seq := _} = ?H:entry(?ROOM, <<"2">>),
        ?assertEqual({error, behind}, halley_past:page(?ROOM, none, none, 1)),
        %% What lies before is there all the same.
        ?assertMatch({ok, #{events := [_]}}, halley_past:page(?ROOM, cursor(1), none, 1))
    end).

bad_cursors() ->
    [{_, Seq}] = publish([?ROOM]),
    Other = halley_cursor:encode((halley_history:store() + 1) rem (1 bsl 32), 1,
                                 erlang:make_tuple(8, 1)),
    [begin
         ?assertEqual({error, {bad_cursor, before, Why}},
                      halley_past:page(?ROOM, Cursor, none, 1)),
         ?assertEqual({error, {bad_cursor, 'after', Why}},
                      halley_past:page(?ROOM, none, Cursor, 1))
     end || {Cursor, Why} <- [{<<"nonsense">>, malformed}, {cursor(Seq + 1), malformed},
                              {Other, other_store}]].
