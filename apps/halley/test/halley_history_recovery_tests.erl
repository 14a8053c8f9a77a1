%% The start of a brain that was killed, or whose files were hurt: nothing undamaged is missed, and
%% missing events are reported.
-module(halley_history_recovery_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(HEADER_BYTES, 64).

recovery_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 120, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
      || {Title, Fun} <- cases()]}.

cases() ->
    [{"a seq is never used again", fun seq_never_again/0},
     {"a clean stop gives back what is reserved", fun clean_stop/0},
     {"a torn tail, at every place of the last record", fun torn_tail/0},
     {"a tail that was on disk is missed", fun truncated_tail/0},
     {"the newest segment is gone", fun newest_gone/0},
     {"a segment in the middle is gone", fun middle_gone/0},
     {"a segment in the middle is shorter", fun middle_truncated/0},
     {"a damaged record in the middle", fun damaged_record/0},
     {"damage behind the floor is forgotten", fun damage_expires/0},
     {"a damaged header", fun damaged_header/0},
     {"a file of junk", fun junk/0},
     {"the store's file is gone", fun store_file_gone/0},
     {"the store's newer slot is torn", fun store_slot_torn/0},
     {"everything is gone", fun all_gone/0},
     {"nothing was ever published", fun nothing_published/0},
     {"nothing is kept any more", fun nothing_kept/0},
     {"brains that are killed again and again", fun killed_again/0}].

%% A few segments: one for each brain.
publish_in(Segments, Each) ->
    lists:append([begin
                      Seqs = [element(2, ?H:publish(<<"s">>, <<"1">>)) || _ <- lists:seq(1, Each)],
                      ?H:restart(),
                      Seqs
                  end || _ <- lists:seq(1, Segments)]).

ok(Seqs) -> [{Seq, ok} || Seq <- Seqs].

damaged() -> maps:get(damaged, halley_history:info()).

told(Seq) -> lists:any(fun({From, To, _, _}) -> Seq >= From andalso Seq =< To end, damaged()).

store() -> filename:join(?H:directory(), "store").

truncate(Path, Bytes) ->
    {ok, All} = file:read_file(Path),
    ok = file:write_file(Path, binary_part(All, 0, Bytes)).

seq_never_again() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    Unwritten = halley_history:draw(1),
    ?H:restart(),
    {ok, Second} = ?H:publish(<<"s">>, <<"1">>),
    ?assert(First < Unwritten andalso Unwritten < Second),
    ?assert(lists:min(tuple_to_list(halley_history:heads())) > Unwritten),
    ?assertEqual([Second, First], ?H:chain(<<"s">>, 0, Second)),
    ?assertEqual([], damaged()).

clean_stop() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    Store = halley_history:store(),
    ?H:stop(),
    ?H:start(again),
    ?assertEqual(Store, halley_history:store()),
    ?assertEqual(First + 1, halley_history:draw(1)).

torn_tail() ->
    Seqs = [element(2, ?H:publish(<<"s">>, <<"1">>)) || _ <- lists:seq(1, 3)],
    Path = ?H:newest(),
    End = filelib:file_size(Path),
    Entry = #{seq := Torn} = ?H:entry(<<"s">>, <<"2">>),
    {Record, Bytes} = halley_history_record:event(halley_history:store(), 1, Entry),
    ?H:kill(),
    {ok, Whole} = file:read_file(Path),
    [begin
         ?H:kill(),
         [ok = file:delete(Other) || Other <- ?H:segments(), Other =/= Path],
         Tail = binary_part(iolist_to_binary(Record), 0, Cut),
         ok = file:write_file(Path, [Whole, Tail]),
         _ = file:delete(filename:join(?H:directory(), "synced")),
         _ = file:delete(filename:join(filename:dirname(?H:directory()), "history.position")),
         ?H:start(new),
         ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
         ?assertEqual([{Torn, expired}], ?H:readable([Torn])),
         ?assertEqual([], damaged()),
         ?assertEqual(End, filelib:file_size(Path))
     end || Cut <- lists:seq(1, Bytes - 1)].

%% "acknowledged events lost ... 0": those that were on disk and are not any more are told.
truncated_tail() ->
    Kept = [element(2, ?H:publish(<<"s">>, <<"1">>)) || _ <- lists:seq(1, 3)],
    Path = ?H:newest(),
    Bytes = filelib:file_size(Path),
    {ok, Lost} = ?H:publish(<<"s">>, <<"2">>),
    ?H:wait_noted(),
    ?H:kill(),
    truncate(Path, Bytes),
    ?H:start(new),
    ?assertEqual(ok(Kept), ?H:readable(Kept)),
    ?assert(told(Lost)),
    [Range] = damaged(),
    {ok, Later} = ?H:publish(<<"s">>, <<"3">>),
    ?H:restart(),
    ?H:restart(),
    ?assertEqual([Range], damaged()),
    ?assertNot(told(Later)),
    ?assertEqual(ok(Kept ++ [Later]), ?H:readable(Kept ++ [Later])).

newest_gone() ->
    Kept = publish_in(1, 2),
    {ok, Lost} = ?H:publish(<<"s">>, <<"1">>),
    Path = ?H:newest(),
    ?H:kill(),
    ok = file:delete(Path),
    ?H:start(new),
    ?assert(told(Lost)),
    ?assertEqual(ok(Kept), ?H:readable(Kept)).

middle_gone() ->
    Seqs = publish_in(3, 2),
    ?H:kill(),
    ok = file:delete(lists:nth(2, ?H:segments())),
    ?H:start(new),
    {[_, _] = Before, [Third, Fourth | Behind]} = lists:split(2, Seqs),
    ?assertMatch([{_, Fourth, _, _}], damaged()),
    ?assert(told(Third)),
    ?assertEqual(ok(Before ++ Behind), ?H:readable(Before ++ Behind)),
    ?assertEqual(lists:reverse(Before ++ Behind), ?H:chain(<<"s">>, 0, 1 bsl 47)).

middle_truncated() ->
    [A, B, C, D] = publish_in(2, 2),
    ?H:kill(),
    Path = hd(?H:segments()),
    truncate(Path, filelib:file_size(Path) - 1),
    ?H:start(new),
    ?assertMatch([{_, B, _, _}], damaged()),
    ?assertEqual(ok([A, C, D]), ?H:readable([A, C, D])).

damaged_record() ->
    [A, B, C, D] = publish_in(1, 4),
    ?H:kill(),
    Path = hd(?H:segments()),
    Each = (filelib:file_size(Path) - ?HEADER_BYTES) div 4,
    ?H:damage(Path, ?HEADER_BYTES + Each + Each div 2, fun(Byte) -> Byte bxor 16 end),
    ?H:start(new),
    ?assert(told(B)),
    ?assert(not told(A)),
    [{_, _, FromMs, ToMs}] = damaged(),
    {ok, #{at := AtA}, Reader} = halley_history_reader:read(A, halley_history_reader:new()),
    {ok, #{at := AtC}, _} = halley_history_reader:read(C, Reader),
    ?assertEqual({AtA, AtC}, {FromMs, ToMs}),
    ?assertEqual(ok([A, C, D]), ?H:readable([A, C, D])),
    ?assertEqual([D, C, A], ?H:chain(<<"s">>, 0, 1 bsl 47)).

damage_expires() ->
    Seqs = publish_in(1, 4),
    ?H:kill(),
    ?H:damage(hd(?H:segments()), ?HEADER_BYTES + 30, fun(Byte) -> Byte bxor 16 end),
    ?H:start(new),
    ?assertMatch([_], damaged()),
    application:set_env(halley, history_retention_ms, 100),
    ?H:until(fun() -> halley_history:floor() >= lists:max(Seqs) end),
    application:unset_env(halley, history_retention_ms),
    %% The floor rises before anything goes.
    ?H:until(fun() -> damaged() =:= [] end).

damaged_header() ->
    Seqs = publish_in(3, 2),
    ?H:kill(),
    ?H:damage(lists:nth(2, ?H:segments()), 20, fun(Byte) -> Byte bxor 1 end),
    ?H:start(new),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    ?assertMatch([_], damaged()).

junk() ->
    Seqs = publish_in(1, 2),
    ?H:kill(),
    Junk = crypto:strong_rand_bytes(5000),
    ok = file:write_file(filename:join(?H:directory(), "0000000000000007.log"), Junk),
    ok = file:write_file(filename:join(?H:directory(), "nonsense.log"), Junk),
    ?H:start(new),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    {ok, Next} = ?H:publish(<<"s">>, <<"1">>),
    ?H:restart(),
    ?assertEqual(ok(Seqs ++ [Next]), ?H:readable(Seqs ++ [Next])).

store_file_gone() ->
    Seqs = publish_in(2, 2),
    Store = halley_history:store(),
    ?H:kill(),
    ok = file:delete(store()),
    ?H:start(new),
    ?assertEqual(Store, halley_history:store()),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    {ok, Next} = ?H:publish(<<"s">>, <<"1">>),
    ?assert(Next > lists:max(Seqs) + 4194304).

store_slot_torn() ->
    Seqs = publish_in(3, 1),
    Store = halley_history:store(),
    Highest = lists:min(tuple_to_list(halley_history:heads())),
    ?H:kill(),
    %% Generations 1 to 4 were written in turn: the newest is in slot 0, at its beginning.
    ?H:damage(store(), 12, fun(Byte) -> Byte bxor 255 end),
    ?H:start(new),
    ?assertEqual(Store, halley_history:store()),
    ?assert(halley_history:draw(1) > Highest),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)).

all_gone() ->
    [Seq] = publish_in(1, 1),
    Store = halley_history:store(),
    ?H:kill(),
    ok = file:del_dir_r(?H:directory()),
    ?H:start(new),
    ?assert(Store =/= halley_history:store()),
    ?assertEqual([{Seq, expired}], ?H:readable([Seq])),
    ?assertEqual([], damaged()).

%% Who was connected to a brain that is killed before the first event misses nothing.
nothing_published() ->
    [begin
         ?H:restart(),
         ?assertEqual({0, []}, {halley_history:floor(), damaged()})
     end || _ <- lists:seq(1, 3)],
    Seqs = publish_in(1, 2),
    ?assertEqual({0, []}, {halley_history:floor(), damaged()}),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)).

%% Who had seen the last event before it expired misses nothing either.
nothing_kept() ->
    Seqs = publish_in(1, 2),
    application:set_env(halley, history_retention_ms, 100),
    ?H:until(fun() -> ?H:events() =:= 0 end),
    application:unset_env(halley, history_retention_ms),
    [begin
         ?H:restart(),
         ?assertEqual({lists:max(Seqs), []}, {halley_history:floor(), damaged()})
     end || _ <- lists:seq(1, 3)],
    {ok, Later} = ?H:publish(<<"s">>, <<"1">>),
    ?H:restart(),
    ?assertEqual({lists:max(Seqs), []}, {halley_history:floor(), damaged()}),
    ?assertEqual(ok([Later]), ?H:readable([Later])).

%% Segments without events don't pile up.
killed_again() ->
    Seqs = publish_in(1, 2),
    [?H:restart() || _ <- lists:seq(1, 10)],
    ?assertEqual(2, length(?H:segments())),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    ?assertEqual([], damaged()).

bits_flip_test_() ->
    {timeout, 120, ?_assert(proper:quickcheck(prop_halley_history:prop_flipped_bits(),
                                              [{numtests, 150}, quiet]))}.
