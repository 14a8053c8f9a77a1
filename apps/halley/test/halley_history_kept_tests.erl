%% Kept values: the latest of each subject, longer than the retention, whatever happens to the disk
%% and the brain.
-module(halley_history_kept_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
%% Segments of 64 KB, eight of them.
-define(SMALL, [{history_bytes, 524288}]).

kept_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 120, {Title, fun() -> ?H:silently(fun() -> ?H:with(?SMALL, Fun) end) end}}
      || {Title, Fun} <- cases()]}.

cases() ->
    [{"the latest of each subject, and what ends it", fun latest/0},
     {"beyond the retention, again and again", fun beyond_retention/0},
     {"a brain that is killed at any time has it", fun killed/0},
     {"what was ended stays so", fun ended_stays/0},
     {"a full disk", fun full_disk/0},
     {"a sync that fails", fun failing_sync/0},
     {"a segment that is needed isn't deleted", fun needed/0},
     {"a record that is damaged on disk", fun damaged/0},
     {"a copy of the segments alone", fun backup/0},
     {"a user that is forgotten", fun forgotten/0},
     {"a build that doesn't know the record", fun unknown_kind/0},
     {"bounds", fun bounds/0}].

keep(Subject, Data) -> keep(Subject, Data, keep).

keep(Subject, Data, Keep) ->
    {ok, Seq} = ?H:publish(Subject, Data, #{keep => Keep}),
    Seq.

%% The data of a subject's kept value.
value(Subject) ->
    case halley_history:kept(Subject) of
        {ok, #{json := Json}} -> maps:get(<<"data">>, jiffy:decode(Json, [return_maps]));
        none -> none
    end.

%% Until retention has taken this seq.
fill_beyond(Seq) ->
    case halley_history:floor() >= Seq of
        true -> ok;
        false ->
            {ok, _} = ?H:publish(<<"noise">>, filler()),
            fill_beyond(Seq)
    end.

filler() -> <<$", (binary:copy(<<"x">>, 20000))/binary, $">>.

latest() ->
    ?assertEqual(none, value(<<"a">>)),
    Seq = keep(<<"a">>, <<"1">>),
    keep(<<"b">>, <<"{\"x\":[2]}">>),
    {ok, _} = ?H:publish(<<"a">>, <<"\"not kept\"">>),
    ?assertEqual({1, #{<<"x">> => [2]}}, {value(<<"a">>), value(<<"b">>)}),
    ?assertMatch({ok, #{seq := Seq}}, halley_history:kept(<<"a">>)),
    ?assertEqual([{Seq, ok}], ?H:readable([Seq])),
    keep(<<"a">>, <<"3">>),
    ?assertEqual(3, value(<<"a">>)),
    keep(<<"a">>, <<"null">>, clear),
    ?assertEqual({none, #{<<"x">> => [2]}}, {value(<<"a">>), value(<<"b">>)}),
    ?H:restart(),
    ?assertEqual({none, #{<<"x">> => [2]}}, {value(<<"a">>), value(<<"b">>)}).

beyond_retention() ->
    keep(<<"a">>, <<"1">>),
    [begin
         Seq = keep(<<"b">>, integer_to_binary(N)),
         fill_beyond(Seq),
         ?assertEqual({1, N}, {value(<<"a">>), value(<<"b">>)})
     end || N <- lists:seq(1, 4)],
    ?H:until(fun() -> ?H:events() < 40 end),
    ?assertEqual([], maps:get(damaged, halley_history:info())),
    %% No chain leads to what is written again.
    UpTo = element(halley_shards:of_subject(<<"a">>), halley_history:written()),
    ?assertEqual([], ?H:chain(<<"a">>, halley_history:floor(), UpTo)).

killed() ->
    Subjects = [<<"s", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 20)],
    [keep(Subject, <<"\"first\"">>) || Subject <- Subjects],
    [begin
         {ok, Last} = ?H:publish(<<"noise">>, filler()),
         _ = N rem 3 =:= 0 andalso keep(lists:nth(1 + N rem 20, Subjects), integer_to_binary(N)),
         timer:sleep(N rem 7),
         Before = [value(Subject) || Subject <- Subjects],
         ?H:restart(),
         ?assertEqual(Before, [value(Subject) || Subject <- Subjects]),
         ?assertEqual([], maps:get(damaged, halley_history:info())),
         ?assert(Last > 0)
     end || N <- lists:seq(1, 80)],
    ?assert(halley_history:floor() > 20).

ended_stays() ->
    keep(<<"a">>, <<"1">>),
    fill_beyond(halley_history:drawn()),
    keep(<<"a">>, <<"null">>, clear),
    ?H:restart(),
    ?assertEqual(none, value(<<"a">>)),
    fill_beyond(halley_history:drawn()),
    ?H:restart(),
    ?assertEqual(none, value(<<"a">>)).

full_disk() ->
    keep(<<"a">>, <<"1">>),
    Fails = fun(_, _, _) -> {error, enospc} end,
    ?H:mocked([halley_history_segment], fun() ->
        ok = meck:expect(halley_history_segment, write, Fails),
        ok = meck:expect(halley_history_segment, write_through, Fails),
        ?assertMatch({{error, disk_full}, _}, ?H:publish(<<"a">>, <<"2">>, #{keep => keep})),
        ?assertEqual(1, value(<<"a">>))
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    fill_beyond(halley_history:drawn()),
    ?assertEqual(1, value(<<"a">>)),
    ?H:restart(),
    ?assertEqual(1, value(<<"a">>)).

%% Nobody knows what of that segment is on disk: the values are written into the next one.
failing_sync() ->
    Large = binary:copy(<<"1">>, 70000),
    keep(<<"a">>, <<"1">>),
    ?H:mocked([halley_history_segment], fun() ->
        ok = meck:expect(halley_history_segment, sync, fun(_) -> {error, eio} end),
        ?assertMatch({{error, _}, _}, ?H:publish(<<"b">>, Large, #{keep => keep}))
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    ?H:until(fun() -> halley_history_kept:is_free(1) end),
    [First | _] = ?H:segments(),
    ok = file:delete(First),
    ?H:restart(),
    ?assertEqual(1, value(<<"a">>)).

%% While a value can't be written again its segment stays, whatever retention says.
needed() ->
    Seq = keep(<<"a">>, <<"1">>),
    Segment = halley_history_atomics:get(segment),
    ?assertNot(halley_history_kept:is_free(Segment)),
    ?assert(halley_history_kept:is_free(Segment - 1)),
    ?H:mocked([halley_history_kept], fun() ->
        ?H:held(fun() ->
            ok = meck:expect(halley_history_kept, older, fun(_, _) -> [] end)
        end),
        [{ok, _} = ?H:publish(<<"noise">>, filler()) || _ <- lists:seq(1, 60)],
        timer:sleep(600),
        ?assert(halley_history:floor() < Seq),
        ?assertEqual([{Seq, ok}], ?H:readable([Seq]))
    end),
    fill_beyond(Seq),
    ?assertEqual(1, value(<<"a">>)).

%% What is kept is in memory as well, and is written again whole.
damaged() ->
    keep(<<"a">>, <<"\"one\"">>),
    {ok, #{seq := Seq}} = halley_history:kept(<<"a">>),
    {ok, #{offset := Offset}} = halley_history_index:lookup(Seq),
    ?H:damage(?H:newest(), Offset + 20, fun(Byte) -> Byte bxor 1 end),
    fill_beyond(Seq),
    ?H:restart(),
    ?assertEqual(<<"one">>, value(<<"a">>)).

backup() ->
    keep(<<"a">>, <<"1">>),
    fill_beyond(halley_history:drawn()),
    keep(<<"b">>, <<"2">>),
    ?H:kill(),
    [ok = file:delete(filename:join(?H:directory(), Name)) || Name <- ["store", "synced"]],
    ?H:start(new),
    ?assertEqual({1, 2}, {value(<<"a">>), value(<<"b">>)}).

forgotten() ->
    keep(<<"ann">>, <<"1">>),
    keep(<<"bob">>, <<"2">>),
    ok = halley_history:forget(<<"ann">>),
    ?assertEqual({none, 2}, {value(<<"ann">>), value(<<"bob">>)}),
    ?H:restart(),
    ?assertEqual({none, 2}, {value(<<"ann">>), value(<<"bob">>)}),
    keep(<<"ann">>, <<"3">>),
    fill_beyond(halley_history:drawn()),
    ?H:restart(),
    ?assertEqual({3, 2}, {value(<<"ann">>), value(<<"bob">>)}),
    ?assertEqual(0, halley_history:forgotten(<<"ann">>)).

%% It reads the rest, and tells a gap for what it doesn't know.
unknown_kind() ->
    keep(<<"a">>, <<"1">>),
    fill_beyond(halley_history:drawn()),
    {ok, Last} = ?H:publish(<<"b">>, <<"2">>),
    ?H:kill(),
    Known = fun(<<8, _/binary>>) -> damaged; (Body) -> meck:passthrough([Body]) end,
    ok = meck:new(halley_history_record, [passthrough]),
    try
        ok = meck:expect(halley_history_record, body, Known),
        ?H:start(new),
        ?assertEqual([{Last, ok}], ?H:readable([Last])),
        ?assertEqual(none, value(<<"a">>)),
        ?H:kill()
    after
        meck:unload(halley_history_record)
    end,
    ?H:start(new),
    ?assertEqual(1, value(<<"a">>)).

bounds() ->
    %% An eighth of the history's bytes.
    ?assert(halley_history:has_room_to_keep(<<"a">>, 65000)),
    ?assertNot(halley_history:has_room_to_keep(<<"a">>, 65536)),
    keep(<<"a">>, filler()),
    keep(<<"b">>, filler()),
    ?assert(halley_history:has_room_to_keep(<<"c">>, 20000)),
    ?assertNot(halley_history:has_room_to_keep(<<"c">>, 40000)),
    ?assert(halley_history:has_room_to_keep(<<"b">>, 40000)),
    keep(<<"a">>, <<"null">>, clear),
    ?assert(halley_history:has_room_to_keep(<<"c">>, 40000)),
    ok = halley_limits:set(#{kept_bytes_max => 30000}),
    ?assertNot(halley_history:has_room_to_keep(<<"c">>, 10000)),
    ?H:restart(),
    ?assertNot(halley_history:has_room_to_keep(<<"c">>, 10000)),
    ?assert(halley_history:has_room_to_keep(<<"c">>, 9000)).
