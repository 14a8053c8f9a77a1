%% The newest N of a subject with a count: pages and `last' show the same ones, whatever can't be
%% read or is hidden, and what a page reads doesn't depend on N.
-module(halley_past_count_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(ROOM, <<"room/1">>).
-define(MANY, <<"many/1">>).
-define(COUNT, 5).
-define(COUNT_MANY, 500).

counted_test_() ->
    Counts = [{{prefix, <<"room/">>}, {count, ?COUNT}},
              {{prefix, <<"many/">>}, {count, ?COUNT_MANY}}],
    [{timeout, 120, {Title, fun() ->
        ?H:silently(fun() -> ?H:with([{history_retention_of, Counts}], Fun) end)
    end}} || {Title, Fun} <- cases()].

cases() ->
    [{"a page reads what it gives, and one record at its end", fun reads/0},
     {"what can't be read is one of them", fun damaged/0},
     {"that there is more is said where it can't be read", fun damaged_beyond/0},
     {"what another subject hides is one of them", fun hidden/0},
     {"what is hidden beyond them is not said", fun hidden_beyond/0},
     {"what the subject had before it was forgotten is not", fun forgotten/0},
     {"only what is in the index is counted", fun written/0}].

%% --- helpers -------------------------------------------------------------------------------------

published(Count) -> ?H:publish_all([?ROOM || _ <- lists:seq(1, Count)]).

%% About a subject and others; its seq is the room's.
joint(Others) ->
    Shard = 3,
    Seq = halley_history:draw(Shard, length(Others) + 1),
    Joint = halley_event:joint(<<"j", (integer_to_binary(Seq))/binary>>, Others ++ [?ROOM],
                               <<"1">>),
    Event = halley_event:joint_event(Joint, <<>>, {Shard, Seq}, erlang:system_time(millisecond)),
    Ref = make_ref(),
    ok = halley_history:append(Shard, [Event#{sessions := 2}], [{{self(), Ref}, ok}]),
    receive {Ref, ok} -> Seq after 60000 -> error(no_answer) end.

%% Their seqs, newest first, and the reasons of the gaps.
paged(Subject, Limit) -> paged(Subject, none, Limit).

paged(Subject, Before, Limit) ->
    {ok, #{events := Events, gaps := Gaps, next := Next}} =
        halley_past:page(Subject, Before, none, Limit),
    Page = {[?H:seq(Cursor) || {Cursor, _} <- Events], [Reason || #{reason := Reason} <- Gaps]},
    case Next of
        none ->
            Page;
        _ ->
            {Seqs, Reasons} = Page,
            {Later, Others} = paged(Subject, Next, Limit),
            {Seqs ++ Later, Reasons ++ Others}
    end.

%% What a session begins with, newest first.
last(Subject, Count) ->
    ok = ?H:wait_written(),
    Newest = halley_replay_newest:new([Subject], Count, halley_history:written()),
    [Seq || {Seq, _} <- lists:reverse(worked(Newest, halley_history_reader:new()))].

worked(Newest, Reader) ->
    case halley_replay_newest:work(Newest, Reader) of
        {more, Later, Next} ->
            worked(Later, Next);
        {done, Candidates, Next} ->
            ok = halley_history_reader:close(Next),
            Candidates
    end.

newest(Seqs, Count) -> lists:sublist(lists:reverse(Seqs), Count).

%% --- cases ---------------------------------------------------------------------------------------

reads() ->
    Seqs = ?H:publish_all([?MANY || _ <- lists:seq(1, 3 * ?COUNT_MANY)]),
    [Last, Middle, End] = [?H:cursor(lists:nth(N, lists:reverse(Seqs)))
                           || N <- [1, ?COUNT_MANY div 2, ?COUNT_MANY]],
    ok = meck:new(halley_history_reader, [passthrough]),
    try
        [begin
             ok = meck:reset(halley_history_reader),
             {ok, #{events := [_]}} = halley_past:page(?MANY, Before, none, 1),
             Reads = [Name || {_, {_, Name, _}, _} <- meck:history(halley_history_reader),
                              Name =:= event orelse Name =:= read],
             ?assertEqual(Expected, length(Reads))
         end || {Before, Expected} <- [{none, 1}, {Last, 1}, {Middle, 1}, {End, 2}]]
    after
        meck:unload(halley_history_reader)
    end,
    ?assertEqual({newest(Seqs, ?COUNT_MANY), [too_old]}, paged(?MANY, 100)).

damaged() ->
    Seqs = published(2 * ?COUNT),
    [N1, N2, N3, N4, N5] = newest(Seqs, ?COUNT),
    [halley_test_brain:damage(Seq) || Seq <- [N2, N4]],
    [?assertEqual({[N1, N3, N5], [damaged, damaged, too_old]}, sorted(paged(?ROOM, Limit)))
     || Limit <- [1, 2, 3, 5, 100]],
    [?assertEqual([N1, N2, N3, N4, N5], last(?ROOM, Count)) || Count <- [?COUNT, 100]].

sorted({Seqs, Reasons}) -> {Seqs, lists:sort(Reasons)}.

damaged_beyond() ->
    Seqs = published(2 * ?COUNT),
    halley_test_brain:damage(lists:nth(?COUNT, Seqs)),
    {ok, #{events := Events, gaps := [#{from := 0, to := To, reason := too_old}], next := none}} =
        halley_past:page(?ROOM, none, none, 100),
    {_, Json} = lists:last(Events),
    ?assertEqual(map_get(<<"at">>, jiffy:decode(Json, [return_maps])), To).

hidden() ->
    Older = published(?COUNT),
    Ours = joint([<<"carl">>]),
    _ = joint([<<"ann">>, <<"bob">>]),
    [Newest] = published(1),
    ok = halley_history:forget(<<"bob">>),
    Shown = [Newest, Ours | newest(Older, ?COUNT - 3)],
    [?assertEqual({Shown, [too_old]}, paged(?ROOM, Limit)) || Limit <- [1, 2, 100]],
    ?assertEqual(Shown, last(?ROOM, 100)),
    %% Of fewer than the count it takes no place.
    ?assertEqual([Newest, Ours], last(?ROOM, 2)).

hidden_beyond() ->
    _ = joint([<<"bob">>]),
    _ = joint([<<"bob">>]),
    Seqs = published(?COUNT),
    ok = halley_history:forget(<<"bob">>),
    [?assertEqual({newest(Seqs, ?COUNT), []}, paged(?ROOM, Limit)) || Limit <- [1, ?COUNT, 100]].

forgotten() ->
    _ = published(2 * ?COUNT),
    ok = halley_history:forget(?ROOM),
    ?assertEqual({[], []}, paged(?ROOM, 2)),
    ?assertEqual([], last(?ROOM, 100)),
    Seqs = published(2),
    ?assertEqual({newest(Seqs, 2), []}, paged(?ROOM, 2)),
    ?assertEqual(newest(Seqs, 2), last(?ROOM, 100)).

%% A page of what was before doesn't wait for what is on its way.
written() ->
    [First | _] = published(?COUNT + 1),
    ?H:held(fun() ->
        Entry = #{seq := Drawn} = ?H:entry(?ROOM, <<"2">>),
        ok = halley_history:append(halley_shards:of_subject(?ROOM), [Entry], [none]),
        ok = meck:new(halley_past_chains, [passthrough]),
        try
            {ok, #{events := [_]}} = halley_past:page(?ROOM, ?H:cursor(First + 1), none, 1),
            Written = halley_history:written(),
            [Counted] = [UpTo || {_, {_, retained, [_, UpTo]}, _}
                                     <- meck:history(halley_past_chains)],
            ?assert(Drawn > halley_vector:largest(Written)),
            ?assertEqual(Counted, halley_vector:lowest(Counted, Written))
        after
            meck:unload(halley_past_chains)
        end
    end).
