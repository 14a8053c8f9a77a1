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

%% A seq that is drawn for it would be another event's.
placed_test_() ->
    {"where the log of several brains draws, it keeps its seq", {timeout, 120, fun() ->
        ?H:silently(fun() -> ?H:with([{order, elsewhere} | ?SMALL], fun placed/0) end)
    end}}.

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
     {"bounds", fun bounds/0},
     {"one user has a share", fun shares/0},
     {"users leave the servers theirs", fun room_of_servers/0},
     {"a burst", fun burst/0},
     {"a store whose records name nobody", fun old_store/0},
     {"the user that kept is forgotten", fun forgotten_publisher/0}].

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

placed() ->
    Seq = keep(<<"a">>, <<"1">>),
    Noise = noise_beyond(Seq + 40, []),
    ?assertEqual(lists:seq(Seq + 1, Seq + length(Noise)), lists:reverse(Noise)),
    ?assert(halley_history:floor() > Seq),
    ?assertMatch({ok, #{seq := Seq}}, halley_history:kept(<<"a">>)),
    ?H:restart(),
    ?assertMatch({ok, #{seq := Seq}}, halley_history:kept(<<"a">>)),
    keep(<<"a">>, <<"2">>),
    ?H:restart(),
    ?assertEqual(2, value(<<"a">>)),
    ?assertEqual([], maps:get(damaged, halley_history:info())).

noise_beyond(Floor, Seqs) ->
    case halley_history:floor() >= Floor of
        true -> Seqs;
        false ->
            {ok, Seq} = ?H:publish(<<"noise">>, filler()),
            noise_beyond(Floor, [Seq | Seqs])
    end.

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

%% By a server.
has_room(Subject, Bytes) -> halley_history:room_to_keep(Subject, Bytes, none) =:= ok.

bounds() ->
    %% An eighth of the history's bytes.
    ?assert(has_room(<<"a">>, 65000)),
    ?assertNot(has_room(<<"a">>, 65536 - 256)),
    keep(<<"a">>, filler()),
    keep(<<"b">>, filler()),
    ?assert(has_room(<<"c">>, 20000)),
    ?assertNot(has_room(<<"c">>, 40000)),
    ?assert(has_room(<<"b">>, 40000)),
    keep(<<"a">>, <<"null">>, clear),
    ?assert(has_room(<<"c">>, 40000)),
    ok = halley_limits:set(#{kept_bytes_max => 30000}),
    ?assertNot(has_room(<<"c">>, 10000)),
    ?H:restart(),
    ?assertNot(has_room(<<"c">>, 10000)),
    ?assert(has_room(<<"c">>, 9000)).

%% --- shares --------------------------------------------------------------------------------------

%% Keeps it for a user as the router does, until that is refused; gives how many were kept.
fill(User, Bytes) -> fill(User, Bytes, 0).

fill(User, Bytes, N) ->
    Subject = <<"of-", User/binary, $/, (integer_to_binary(N))/binary>>,
    case keep_by(User, Subject, Bytes) of
        ok -> fill(User, Bytes, N + 1);
        {error, Why} -> {N, Why}
    end.

keep_by(User, Subject, Bytes) ->
    case halley_history:room_to_keep(Subject, Bytes, User) of
        ok ->
            Data = <<$", (binary:copy(<<"x">>, Bytes - 2))/binary, $">>,
            {ok, _} = ?H:publish(Subject, Data, #{keep => keep, by => User}),
            ok;
        Error ->
            Error
    end.

%% Of 65,536 bytes a user has 6,553, users have 58,982, and the servers the rest.
shares() ->
    ok = halley_limits:set(#{user_share_percent_max => 10}),
    {Kept, too_many_own_kept} = fill(<<"mallory">>, 500),
    ?assert(Kept > 4 andalso Kept < 10),
    ?assertEqual(ok, keep_by(<<"bob">>, <<"of-bob">>, 500)),
    %% In place of one's own of the same size there is always room.
    ?assertEqual(ok, keep_by(<<"mallory">>, <<"of-mallory/0">>, 500)),
    ?assertMatch({_, too_many_own_kept}, fill(<<"mallory">>, 500)),
    %% A restart forgets neither, and what was written again names its user.
    fill_beyond(halley_history:drawn()),
    ?H:restart(),
    ?assertEqual({error, too_many_own_kept}, keep_by(<<"mallory">>, <<"other">>, 2000)),
    ?assertEqual(ok, keep_by(<<"bob">>, <<"of-bob/2">>, 500)),
    %% What another keeps in its place is that one's.
    [?assertEqual(ok, keep_by(<<"bob">>, <<"of-mallory/", (integer_to_binary(N))/binary>>, 500))
     || N <- lists:seq(0, 2)],
    ?assertEqual(ok, keep_by(<<"mallory">>, <<"other">>, 500)),
    ?assertMatch({_, too_many_own_kept}, fill(<<"bob">>, 500)),
    keep(<<"of-bob">>, <<"null">>, clear),
    keep(<<"of-bob/2">>, <<"null">>, clear),
    ?assertEqual(ok, keep_by(<<"bob">>, <<"third">>, 500)).

%% Many users together leave the servers theirs.
room_of_servers() ->
    ok = halley_limits:set(#{user_share_percent_max => 20}),
    Refusals = [fill(<<"user", (integer_to_binary(N))/binary>>, 500) || N <- lists:seq(1, 6)],
    ?assertMatch({_, too_many_kept}, lists:last(Refusals)),
    ?assert(has_room(<<"of-a-server">>, 5000)),
    keep(<<"of-a-server">>, <<"1">>),
    ?H:restart(),
    ?assertEqual({error, too_many_kept},
                 halley_history:room_to_keep(<<"one-more">>, 900, <<"user7">>)),
    ?assert(has_room(<<"of-a-server/2">>, 4000)).

%% What is on its way to the disk counts: a burst doesn't pass the share.
burst() ->
    ok = halley_limits:set(#{user_share_percent_max => 10}),
    Room = [halley_history:room_to_keep(<<"s", (integer_to_binary(N))/binary>>, 500, <<"mallory">>)
            || N <- lists:seq(1, 1000)],
    Passed = length([ok || ok <- Room]),
    ?assert(Passed > 4 andalso Passed < 10),
    ?assertEqual(ok, halley_history:room_to_keep(<<"of-bob">>, 500, <<"bob">>)),
    %% None of it came: it counts no more.
    ?H:until(fun() -> ets:info(halley_history_kept_holds, size) =:= 0 end),
    ?assertEqual(ok, halley_history:room_to_keep(<<"late">>, 500, <<"mallory">>)).

%% A store of a build from before, in whose records nobody is named.
old_store() ->
    ok = halley_limits:set(#{user_share_percent_max => 10}),
    [keep(<<"of-mallory/", (integer_to_binary(N))/binary>>, filler()) || N <- [1, 2]],
    ?H:restart(),
    ?assertEqual(ok, keep_by(<<"mallory">>, <<"of-mallory/3">>, 500)),
    ?assertEqual(ok, keep_by(<<"mallory">>, <<"of-mallory/1">>, 500)),
    ?assert(has_room(<<"of-a-server">>, 20000)).

%% What a user kept about others stays when the user is forgotten, and names it no more.
forgotten_publisher() ->
    ok = halley_limits:set(#{user_share_percent_max => 10}),
    {N, too_many_own_kept} = fill(<<"mallory">>, 500),
    ?assert(is_named(<<"mallory">>)),
    ok = halley_history:forget(<<"mallory">>),
    ?assertNot(is_named(<<"mallory">>)),
    ?H:restart(),
    ?assertNot(is_named(<<"mallory">>)),
    ?assertEqual(binary:copy(<<"x">>, 498), value(<<"of-mallory/0">>)),
    ?assertMatch({M, too_many_own_kept} when M >= N, fill(<<"mallory">>, 500)).

is_named(User) ->
    [] =/= [Subject || {Subject, _, _, Body, _} <- ets:tab2list(halley_history_kept),
                       {ok, #{by := By}} <- [halley_history_record:body(Body)], By =:= User].
