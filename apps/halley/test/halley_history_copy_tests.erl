%% An older copy of the history, or of one of its files, put back while the brain was stopped; and a
%% folder that comes from a backup. A client that may miss something gets a gap, and no seq is drawn
%% twice.
-module(halley_history_copy_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
%% The note outside is at most a tick older than what was answered.
-define(NOTED_MS, 600).

copy_test_() ->
    [{timeout, 60, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
     || {Title, Fun} <- cases()].

cases() ->
    [{"nothing is put back: nothing is told", fun nothing_put_back/0},
     {"the folder, of the same brain, killed", fun() -> folder(fun ?H:kill/0) end},
     {"the folder, of the same brain, stopped", fun() -> folder(fun ?H:stop/0) end},
     {"the folder, of a brain before", fun folder_of_before/0},
     {"the folder, and the brain is killed before it writes", fun folder_and_killed/0},
     {"store", fun store/0},
     {"the newest segment", fun newest_segment/0},
     {"both slots of store are gone", fun slots_gone/0},
     {"a backup", fun backup/0},
     {"a backup beside the position", fun backup_in_place/0},
     {"the folder of another store", fun other_store/0},
     {"the position is damaged, or gone", fun position_gone/0}].

publish(N) ->
    [begin
         {ok, Seq} = ?H:publish(<<"s">>, <<"1">>),
         Seq
     end || _ <- lists:seq(1, N)].

damaged() -> maps:get(damaged, halley_history:info()).

store_file() -> filename:join(?H:directory(), "store").
copy_dir() -> ?H:directory() ++ ".copy".

copy() ->
    {ok, _} = file:list_dir(?H:directory()),
    _ = file:del_dir_r(copy_dir()),
    "" = os:cmd("cp -a " ++ ?H:directory() ++ " " ++ copy_dir()),
    ok.

put_back() ->
    ok = file:del_dir_r(?H:directory()),
    ok = file:rename(copy_dir(), ?H:directory()).

noted() -> timer:sleep(?NOTED_MS).

cursor() -> halley_cursor:encode(halley_history:store(), 0, halley_history:heads()).

%% A cursor of somebody who had seen all up to this event and nothing behind it.
cursor(Seq) ->
    Vector = list_to_tuple([Seq || _ <- lists:seq(1, halley_shards:count())]),
    halley_cursor:encode(halley_history:store(), 0, Vector).

%% What a user who comes back with this cursor hears first, or behind the events there are.
answer(Cursor) ->
    case halley_replay:new(<<"s">>, Cursor) of
        {gap, #{reason := Reason}, _} -> {gap, Reason};
        {ok, Replay} -> batches(Replay)
    end.

batches(Replay) ->
    Limits = #{events_max => 100, bytes_max => 100000},
    Reader = halley_history_reader:new(),
    {_, What, Next, Used} = ?H:replayed(Replay, halley_history:written(), Limits, Reader),
    ok = halley_history_reader:close(Used),
    case What of
        {gap, #{reason := Reason}} -> {gap, Reason};
        done -> nothing_missed;
        more -> batches(Next)
    end.

replayed(Cursor) ->
    with_follows(fun() -> answer(Cursor) end).

%% The store of follows isn't there: the user follows itself alone.
with_follows(Fun) ->
    ok = meck:new([halley_follows, halley_ids], [no_link]),
    ok = meck:expect(halley_follows, count_following, fun(_) -> 0 end),
    ok = meck:expect(halley_ids, lookup, fun(_) -> undefined end),
    try Fun() after meck:unload([halley_follows, halley_ids]) end.

%% All that was drawn before is below, nothing is told of what comes.
assert_told(Seqs, Cursors) ->
    [?assertMatch({gap, _}, replayed(Cursor)) || Cursor <- Cursors],
    {ok, Next} = ?H:publish(<<"s">>, <<"1">>),
    ?assert(Next > lists:max(Seqs)),
    ?assertEqual(nothing_missed, replayed(cursor())),
    %% It is told as long as it may be missed.
    ?H:restart(),
    ?H:restart(),
    [?assertMatch({gap, _}, replayed(Cursor)) || Cursor <- Cursors],
    ?assertEqual([{Next, ok}], ?H:readable([Next])),
    ?assertEqual(nothing_missed, replayed(cursor(Next))).

nothing_put_back() ->
    Seqs = publish(3),
    noted(),
    [begin
         End(),
         ?H:start(new),
         ?assertEqual({[], 0}, {damaged(), halley_history:floor()}),
         ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs))
     end || End <- [fun ?H:kill/0, fun ended/0, fun ?H:kill/0, fun ended/0]].

ended() ->
    ?H:stop(),
    ?H:forget().

folder(End) ->
    Old = publish(2),
    copy(),
    New = publish(3),
    Cursors = [cursor(Seq) || Seq <- New],
    noted(),
    End(),
    ?H:forget(),
    put_back(),
    ?H:start(new),
    ?assertEqual([{Seq, ok} || Seq <- Old], ?H:readable(Old)),
    assert_told(New, Cursors).

folder_of_before() ->
    _ = publish(2),
    ended(),
    copy(),
    ?H:start(new),
    New = [First, Second, Last] = publish(3),
    noted(),
    Cursors = [cursor(Seq) || Seq <- [First, Second]],
    HasAll = cursor(Last),
    ended(),
    put_back(),
    ?H:start(new),
    ?assertEqual(nothing_missed, replayed(HasAll)),
    assert_told(New, Cursors).

folder_and_killed() ->
    _ = publish(2),
    copy(),
    New = publish(3),
    Cursors = [cursor(Seq) || Seq <- New],
    noted(),
    ?H:kill(),
    put_back(),
    ?H:start(new),
    ?H:restart(),
    assert_told(New, Cursors).

%% All events are there, and so nothing is missed.
store() ->
    _ = publish(1),
    {ok, Older} = file:read_file(store_file()),
    ended(),
    ?H:start(new),
    Seqs = publish(2),
    ?H:restart(),
    Drawn = halley_history:draw(1),
    noted(),
    ?H:kill(),
    ok = file:write_file(store_file(), Older),
    ?H:start(new),
    ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)),
    {ok, Next} = ?H:publish(<<"s">>, <<"1">>),
    ?assert(Next > Drawn).

newest_segment() ->
    _ = publish(2),
    Path = ?H:newest(),
    {ok, Older} = file:read_file(Path),
    New = publish(2),
    Cursors = [cursor(Seq) || Seq <- New],
    noted(),
    ?H:kill(),
    ok = file:write_file(Path, Older),
    ok = file:delete(filename:join(?H:directory(), "synced")),
    ?H:start(new),
    assert_told(New, Cursors).

%% How far seqs had come isn't known any more, nor whether these are the last segments.
slots_gone() ->
    Seqs = publish(2),
    noted(),
    Cursors = [cursor(lists:max(Seqs) + More) || More <- [0, 1, 1000]],
    ?H:kill(),
    ok = file:write_file(store_file(), <<0:(8 * 8192)>>),
    ?H:start(new),
    ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)),
    assert_told([S + 4194304 || S <- Seqs], Cursors).

%% A copy of the segments, without `store' and `synced', in a data directory of its own.
backup() ->
    Old = publish(2),
    copy(),
    New = publish(3),
    Cursors = [cursor(Seq) || Seq <- Old ++ New],
    ?H:kill(),
    put_back(),
    [ok = file:delete(filename:join(?H:directory(), Name)) || Name <- ["store", "synced"]],
    ok = file:delete(filename:join(filename:dirname(?H:directory()), "history.position")),
    ?H:start(new),
    ?assertEqual([{Seq, ok} || Seq <- Old], ?H:readable(Old)),
    assert_told(New, Cursors).

backup_in_place() ->
    Old = publish(2),
    copy(),
    New = publish(3),
    Cursors = [cursor(Seq) || Seq <- Old ++ New],
    noted(),
    ended(),
    put_back(),
    [ok = file:delete(filename:join(?H:directory(), Name)) || Name <- ["store", "synced"]],
    ?H:start(new),
    ?assertEqual([{Seq, ok} || Seq <- Old], ?H:readable(Old)),
    assert_told(New, Cursors).

%% It was swapped for a new one for a while; whether it was newer then, nobody knows.
other_store() ->
    Seqs = publish(2),
    Cursors = [cursor(Seq) || Seq <- Seqs],
    ended(),
    ok = file:rename(?H:directory(), copy_dir()),
    ?H:start(new),
    _ = publish(1),
    ended(),
    put_back(),
    ?H:start(new),
    ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs)),
    assert_told(Seqs, Cursors).

%% It alone shows nothing.
position_gone() ->
    Seqs = publish(2),
    Path = filename:join(filename:dirname(?H:directory()), "history.position"),
    [begin
         noted(),
         ?H:kill(),
         ok = Hurt(Path),
         ?H:start(new),
         ?assertEqual([], damaged()),
         ?assertEqual([{Seq, ok} || Seq <- Seqs], ?H:readable(Seqs))
     end || Hurt <- [fun file:delete/1, fun(P) -> file:write_file(P, <<"junk">>) end]].
