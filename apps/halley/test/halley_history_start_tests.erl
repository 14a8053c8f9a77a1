%% A start where nothing can be written, and a folder that isn't where it was: what is there is
%% served, nothing is promised that can't be kept, and it goes on when it can.
-module(halley_history_start_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).

%% File systems of their own need the right to mount.
mounted_test_() ->
    halley_disk_helper:tests("2m",
        [{Title, fun(Dir) -> at(Dir, Fun) end}
         || {Title, Fun} <- [{"a start on a full disk", fun full/1},
                             {"a first start on a full disk", fun full_and_new/1},
                             {"a start on a full disk behind a cut tail", fun full_and_cut/1},
                             {"brains that are killed on a full disk", fun full_and_killed/1},
                             {"a start on a read-only file system", fun read_only/1}]]).

moved_test_() ->
    [{timeout, 120, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
     || {Title, Fun} <- [{"data.dir is moved, and put back", fun moved/0},
                         {"history/ is removed", fun removed/0},
                         {"history/ is replaced by a copy", fun replaced/0},
                         {"the segment is removed", fun segment_removed/0},
                         {"nobody publishes while it is gone", fun unnoticed/0},
                         {"a chosen id is known again when its file is back", fun chosen/0},
                         {"and free where that is gone", fun chosen_and_gone/0},
                         {"EROFS and EIO are refusals as well", fun other_errors/0},
                         {"no descriptor is left for a new segment", fun no_descriptor/0},
                         {"files are their owner's alone", fun modes/0}]].

at(Dir, Fun) ->
    ?H:silently(fun() -> ?H:with_in(Dir, [], fun() -> Fun(Dir) end) end).

publish(N) ->
    [begin
         {ok, Seq} = ?H:publish(<<"s">>, <<"1">>),
         Seq
     end || _ <- lists:seq(1, N)].

ok(Seqs) -> [{Seq, ok} || Seq <- Seqs].

fill(Dir) -> fill(filename:join(Dir, "filler"), 0).

fill(Path, N) ->
    case file:write_file([Path, integer_to_list(N)], <<0:(8 * 4096)>>) of
        ok -> fill(Path, N + 1);
        {error, enospc} -> ok
    end.

free(Dir) -> [ok = file:delete(Path) || Path <- filelib:wildcard(filename:join(Dir, "filler*"))].

is_free() -> ?H:until(fun() -> halley_history:refusing() =:= false end).

damaged() -> maps:get(damaged, halley_history:info()).

full(Dir) ->
    Seqs = publish(3),
    Drawn = halley_history:draw(1),
    ?H:kill(),
    fill(Dir),
    ?H:start(new),
    ?assertEqual(disk_full, halley_history:refusing()),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    ?assertEqual(lists:reverse(Seqs), ?H:chain(<<"s">>, 0, 1 bsl 47)),
    ?assertEqual({0, []}, {halley_history:floor(), damaged()}),
    %% No seq is reserved for it, so who comes back is told a gap in its stead.
    Head = lists:max(tuple_to_list(halley_history:heads())),
    {error, disk_full} = halley_history:unfollowed([{<<"u">>, <<"s">>}]),
    ?assertMatch([{Head, Head, _, _}], damaged()),
    timer:sleep(1500),
    ?assertEqual(disk_full, halley_history:refusing()),
    ?assertEqual(Head, lists:max(tuple_to_list(halley_history:heads()))),
    free(Dir),
    is_free(),
    [Next] = publish(1),
    ?assert(Next > Drawn),
    ?H:restart(),
    ?assertMatch([{Head, Head, _, _}], damaged()),
    ?assertEqual(ok(Seqs ++ [Next]), ?H:readable(Seqs ++ [Next])).

full_and_new(Dir) ->
    ?H:kill(),
    ok = file:del_dir_r(?H:directory()),
    fill(Dir),
    _ = file:make_dir(?H:directory()),
    _ = file:del_dir(?H:directory()),
    ?H:start(new),
    ?assertEqual(disk_full, halley_history:refusing()),
    free(Dir),
    is_free(),
    Seqs = publish(2),
    ?H:restart(),
    ?assertEqual({ok(Seqs), []}, {?H:readable(Seqs), damaged()}).

%% What was found missing is still known when the brain that found it could not write it down.
full_and_cut(Dir) ->
    [First, Second] = publish(2),
    ?H:wait_noted(),
    ?H:kill(),
    cut(?H:newest()),
    fill(Dir),
    [begin
         ?H:restart(),
         ?assertEqual(disk_full, halley_history:refusing()),
         ?assertEqual([{First, ok}, {Second, expired}], ?H:readable([First, Second])),
         ?assertMatch([{_, To, _, _}] when To >= Second, damaged())
     end || _ <- [1, 2]],
    free(Dir),
    is_free(),
    [{_, To, _, _}] = damaged(),
    ?H:restart(),
    ?H:restart(),
    ?assertMatch([{_, To, _, _}], damaged()),
    [Next] = publish(1),
    ?assert(Next > To).

cut(Path) ->
    {ok, Bytes} = file:read_file(Path),
    ok = file:write_file(Path, binary_part(Bytes, 0, byte_size(Bytes) - 1)).

full_and_killed(Dir) ->
    Seqs = publish(2),
    ?H:restart(),
    fill(Dir),
    Files = lists:sort(?H:segments()),
    [?H:restart() || _ <- lists:seq(1, 5)],
    %% Nothing is deleted that can't be written anew.
    ?assertEqual(Files, lists:sort(?H:segments())),
    free(Dir),
    is_free(),
    Later = publish(1),
    ?H:restart(),
    ?assertEqual({0, []}, {halley_history:floor(), damaged()}),
    ?assertEqual(ok(Seqs ++ Later), ?H:readable(Seqs ++ Later)).

read_only(Dir) ->
    Seqs = publish(3),
    ?H:kill(),
    %% The emulator closes the files of a process that was killed soon after it.
    ?H:until(fun() -> os:cmd("mount -o remount,ro " ++ Dir ++ " 2>&1") =:= "" end, 500),
    ?H:start(new),
    ?assertEqual(failed, halley_history:refusing()),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    {error, history_failed} = halley_history:unfollowed([{<<"u">>, <<"s">>}]),
    ?H:stop(),
    ?H:forget(),
    ?H:start(new),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)),
    ?assertEqual("", os:cmd("mount -o remount,rw " ++ Dir ++ " 2>&1")),
    is_free(),
    Later = publish(1),
    ?H:restart(),
    ?assertEqual(ok(Seqs ++ Later), ?H:readable(Seqs ++ Later)).

%% --- moved ---------------------------------------------------------------------------------------

data_dir() -> filename:dirname(?H:directory()).

moved() ->
    Seqs = publish(2),
    Elsewhere = data_dir() ++ ".elsewhere",
    ok = file:rename(data_dir(), Elsewhere),
    ?assertMatch({{error, data_dir_moved}, _}, ?H:publish(<<"s">>, <<"2">>)),
    ?assertEqual(data_dir_moved, halley_history:refusing()),
    %% Another one in its place isn't it.
    ok = file:make_dir(data_dir()),
    timer:sleep(1500),
    ?assertEqual({ok, []}, file:list_dir(data_dir())),
    ?assertEqual(data_dir_moved, halley_history:refusing()),
    ok = file:del_dir(data_dir()),
    ok = file:rename(Elsewhere, data_dir()),
    is_free(),
    Later = publish(1),
    ?H:restart(),
    ?assertEqual(ok(Seqs ++ Later), ?H:readable(Seqs ++ Later)),
    ?assertEqual([], damaged()).

removed() ->
    _ = publish(1),
    ok = file:del_dir_r(?H:directory()),
    ?assertMatch({{error, data_dir_moved}, _}, ?H:publish(<<"s">>, <<"2">>)),
    ?H:stop(),
    ?assertEqual({error, enoent}, file:list_dir(?H:directory())).

replaced() ->
    Seqs = publish(2),
    Copy = ?H:directory() ++ ".copy",
    "" = os:cmd("cp -a " ++ ?H:directory() ++ " " ++ Copy),
    ok = file:del_dir_r(?H:directory()),
    ok = file:rename(Copy, ?H:directory()),
    Before = file:list_dir(?H:directory()),
    ?assertMatch({{error, data_dir_moved}, _}, ?H:publish(<<"s">>, <<"2">>)),
    timer:sleep(1500),
    ?assertEqual(data_dir_moved, halley_history:refusing()),
    ?assertEqual(Before, file:list_dir(?H:directory())),
    ?H:restart(),
    ?assertEqual(false, halley_history:refusing()),
    ?assertEqual(ok(Seqs), ?H:readable(Seqs)).

%% The folder is there: it goes on with another segment, and says what was in that one.
segment_removed() ->
    [Lost] = publish(1),
    ok = file:delete(?H:newest()),
    ?assertMatch({{error, data_dir_moved}, _}, ?H:publish(<<"s">>, <<"2">>)),
    is_free(),
    [Next] = publish(1),
    ?H:restart(),
    %% It was the oldest one.
    ?assert(halley_history:floor() >= Lost),
    ?assertEqual(ok([Next]), ?H:readable([Next])).

unnoticed() ->
    Elsewhere = ?H:directory() ++ ".elsewhere",
    ok = file:rename(?H:directory(), Elsewhere),
    ?H:until(fun() -> halley_history:refusing() =:= data_dir_moved end, 300),
    ok = file:rename(Elsewhere, ?H:directory()),
    is_free().

chosen() ->
    _ = publish(1),
    Elsewhere = ?H:directory() ++ ".elsewhere",
    Chosen = #{id => <<"x">>, chosen => true},
    ok = file:rename(?H:directory(), Elsewhere),
    {Refused, Seq} = ?H:publish(<<"s">>, <<"2">>, Chosen),
    ?assertEqual({error, data_dir_moved}, Refused),
    ok = file:rename(Elsewhere, ?H:directory()),
    is_free(),
    Claimed = fun() -> halley_history:claim(halley_shards:of_subject(<<"s">>), <<"x">>) end,
    ?assertMatch({known, #{id := <<"x">>}}, Claimed()),
    ?H:restart(),
    ?assertMatch({known, #{id := <<"x">>}}, Claimed()),
    ?assertEqual(ok([Seq]), ?H:readable([Seq])).

%% The folder comes back, and the segment that the event was in doesn't.
chosen_and_gone() ->
    _ = publish(1),
    Elsewhere = ?H:directory() ++ ".elsewhere",
    ok = file:rename(?H:directory(), Elsewhere),
    {{error, data_dir_moved}, _} = ?H:publish(<<"s">>, <<"2">>, #{id => <<"x">>, chosen => true}),
    [ok = file:delete(Path) || Path <- filelib:wildcard(filename:join(Elsewhere, "*.log"))],
    ok = file:rename(Elsewhere, ?H:directory()),
    is_free(),
    ?assertEqual(fresh, halley_history:claim(halley_shards:of_subject(<<"s">>), <<"x">>)).

other_errors() ->
    Seqs = publish(2),
    [?H:mocked([halley_history_segment], fun() ->
         Fails = fun(_, _, _) -> {error, Error} end,
         [meck:expect(halley_history_segment, F, Fails) || F <- [write, write_through, create]],
         ?assertMatch({{error, history_failed}, _}, ?H:publish(<<"s">>, <<"2">>)),
         ?assertEqual(failed, halley_history:refusing()),
         ?assertEqual(ok(Seqs), ?H:readable(Seqs))
     end) || Error <- [erofs, eio]],
    is_free(),
    Later = publish(1),
    ?H:restart(),
    ?assertEqual(ok(Seqs ++ Later), ?H:readable(Seqs ++ Later)).

no_descriptor() ->
    Seqs = publish(2),
    ?H:mocked([halley_history_segment], fun() ->
        meck:expect(halley_history_segment, create, fun(_, _, _) -> {error, emfile} end),
        ?H:restart(),
        ?assertEqual(failed, halley_history:refusing()),
        ?assertEqual(ok(Seqs), ?H:readable(Seqs))
    end),
    is_free(),
    Later = publish(1),
    ?assertEqual(ok(Seqs ++ Later), ?H:readable(Seqs ++ Later)).

%% Whatever the umask of who runs this.
modes() ->
    _ = publish(1),
    Modes = os:cmd("find " ++ ?H:directory() ++ " -printf '%m %y\\n' | sort -u"),
    ?assertEqual("600 f\n700 d\n", Modes).
