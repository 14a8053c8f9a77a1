%% The times at which users came and went outlive a kill of the brain: `undelivered' names the same
%% users for the events before it as without the kill (docs/guides/hooks.md, "What undelivered
%% means").
-module(halley_hooks_moves_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([killed_brain_knows_who_was_there/1, killed_again_before_all_is_said/1,
         who_was_told_of_as_there_may_be_gone/1, what_was_not_written_is_told/1,
         lost_moves_stay_lost/1, damaged_moves_are_a_gap/1, judged_files_are_deleted/1,
         full_disk_takes_them_later/1, killed_taker_doubts_nothing/1]).

-import(halley_hooks_SUITE, [start_hooks/2, stop_hooks/0, restarted/1, linked/0, link_in_sync/1,
                             settled/1, says/3, hooks/1, of_type/2, eventually/2]).

-define(MAGIC, 16#FF484B51).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [killed_brain_knows_who_was_there, killed_again_before_all_is_said,
     who_was_told_of_as_there_may_be_gone, what_was_not_written_is_told, lost_moves_stay_lost,
     damaged_moves_are_a_gap, judged_files_are_deleted, full_disk_takes_them_later,
     killed_taker_doubts_nothing].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(Case, Config) -> halley_hooks_SUITE:init_per_testcase(Case, Config).
end_per_testcase(Case, Config) -> halley_hooks_SUITE:end_per_testcase(Case, Config).

%% --- helpers -----------------------------------------------------------------------------------

start(Config) -> start_hooks(Config, #{users => "user/*", events => "undelivered",
                                       after_ms => 60000}).

to(Users) -> says(<<"x">>, {to, Users}, 1).

%% A session of a worker. Its number is that of the user. The sweep may take the number meanwhile,
%% as nothing refers to it yet: the client gets 503 then, and comes again.
come(User, Slot) ->
    Number = halley_test_brain:number(User),
    case halley_directory:open(Number, {link, Slot, Number}, infinity) of
        ok -> ok;
        leaving -> come(User, Slot)
    end.

go(User, Slot) ->
    Number = halley_test_brain:number(User),
    halley_directory:close(Number, {link, Slot, Number}).

%% One that comes with its cursor.
come(User, Cursor, Slot) ->
    ok = come(User, Slot),
    halley_began:fed(User, Cursor).

cursor() -> halley_cursor:encode(halley_history:store(), 1, halley_history:heads()).

%% All that happened until now is on disk.
on_disk() ->
    WallMs = halley_clock:wall_ms(),
    eventually(true, fun() ->
        case file:read_file(halley_hooks_moves_files:mark()) of
            {ok, <<_:32, _:64, WrittenMs:64, _/binary>>} -> WrittenMs > WallMs;
            _ -> false
        end
    end).

%% The endpoint takes nothing, and what waits for it is more than may.
full(Config) ->
    ok = halley_hooks_endpoint:does(fun(_, _) -> 500 end, ?config(endpoint, Config)),
    bound(1),
    _ = to([<<"user/full">>]),
    eventually(true, fun() -> halley_hooks_endpoint:requests(?config(endpoint, Config)) =/= [] end).

bound(Bytes) ->
    halley_test_brain:limits(#{hooks_retry_ms_max => 200, hooks_queue_bytes_max => Bytes}).

free(Config) ->
    bound(1 bsl 30),
    halley_hooks_endpoint:does(fun(_, _) -> 200 end, ?config(endpoint, Config)).

%% The brain is killed, another one starts, and a worker says these sessions.
killed(Users, Config) ->
    stop_hooks(),
    Next = restarted(Config),
    start(Next),
    {_, Slot, _} = link_in_sync([]),
    halley_hooked_moves:in_sync(fun() -> [ok = come(User, Slot) || User <- Users] end),
    {Slot, Next}.

said(Slot) -> halley_links_synced:synced(Slot).

owed(Config) ->
    lists:sort([{Id, Users} || #{<<"event">> := #{<<"id">> := Id}, <<"users">> := Users}
                                   <- of_type(<<"undelivered">>, Config),
                               Users =/= [<<"user/full">>]]).

%% Waits until all before it is told as well.
last(Config) ->
    Id = to([<<"user/last">>]),
    eventually(true, fun() -> lists:keymember(Id, 1, owed(Config)) end),
    lists:keydelete(Id, 1, owed(Config)).

reasons(Config) -> [Reason || #{<<"reason">> := Reason} <- of_type(<<"gap">>, Config)].

%% --- kills -------------------------------------------------------------------------------------

%% `halley_hooks_undelivered_SUITE:queue_at_its_bound/1', over a kill.
killed_brain_knows_who_was_there(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    [ok = come(User, Slot) || User <- [<<"user/stands">>, <<"user/gone">>, <<"user/left">>]],
    settled(Config),
    full(Config),
    Back = to([<<"user/back">>]),
    ok = come(<<"user/back">>, Slot),
    _ = to([<<"user/stands">>, <<"user/gone">>]),
    ok = come(<<"user/there">>, Slot),
    _ = to([<<"user/there">>]),
    ok = go(<<"user/there">>, Slot),
    ok = go(<<"user/left">>, Slot),
    timer:sleep(50),
    Left = to([<<"user/left">>, <<"user/stands">>]),
    There = to([<<"user/there">>]),
    timer:sleep(50),
    ok = come(<<"user/there">>, Slot),
    _ = to([<<"user/there">>]),
    Before = cursor(),
    _ = to([<<"user/caught">>]),
    ok = come(<<"user/caught">>, Before, Slot),
    Late = to([<<"user/late">>]),
    Dead = to([<<"user/dead">>]),
    ok = on_disk(),
    {Next, After} = killed([<<"user/stands">>, <<"user/there">>, <<"user/dead">>], Config),
    ok = come(<<"user/back">>, Next),
    ok = said(Next),
    ok = free(After),
    Owed = [{Back, [<<"user/back">>]}, {Left, [<<"user/left">>]}, {There, [<<"user/there">>]},
            {Late, [<<"user/late">>]}, {Dead, [<<"user/dead">>]}],
    ?assertEqual(lists:sort(Owed), last(After)),
    ?assertEqual([], of_type(<<"gap">>, After)).

%% Nothing is forgotten by a start that doesn't get as far as to know who is there.
killed_again_before_all_is_said(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    ok = come(<<"user/stands">>, Slot),
    settled(Config),
    full(Config),
    _ = to([<<"user/stands">>, <<"user/caught">>]),
    Before = to([<<"user/back">>]),
    ok = come(<<"user/back">>, Slot),
    ok = on_disk(),
    {_, Second} = killed([<<"user/back">>], Config),
    Between = to([<<"user/dead">>]),
    ok = on_disk(),
    {_, Third} = killed([], Second),
    ok = on_disk(),
    {Last, Fourth} = killed([<<"user/stands">>, <<"user/dead">>], Third),
    ok = come(<<"user/caught">>, halley_cursor:encode(halley_history:store(), 1,
                                                     {0, 0, 0, 0, 0, 0, 0, 0}), Last),
    ok = said(Last),
    ok = free(Fourth),
    ?assertEqual(lists:sort([{Before, [<<"user/back">>]}, {Between, [<<"user/dead">>]}]),
                 last(Fourth)),
    ?assertEqual([], of_type(<<"gap">>, Fourth)).

%% It left long before, and isn't told of as closed yet: what it was told as says nothing.
who_was_told_of_as_there_may_be_gone(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    [ok = come(User, Slot) || User <- [<<"user/left">>, <<"user/stands">>]],
    settled(Config),
    ok = go(<<"user/left">>, Slot),
    First = to([<<"user/left">>]),
    eventually([{First, [<<"user/left">>]}], fun() -> owed(Config) end),
    %% By then nobody asks any more when it left.
    eventually([], fun() -> ets:tab2list(halley_hooked_moves) end),
    full(Config),
    Id = to([<<"user/left">>, <<"user/stands">>]),
    ok = on_disk(),
    {Next, After} = killed([<<"user/stands">>], Config),
    ok = said(Next),
    ok = free(After),
    ?assertEqual(lists:sort([{First, [<<"user/left">>]}, {Id, [<<"user/left">>]}]), last(After)).

%% What happened in the moment before the kill: whoever may have been away is told, unless a worker
%% says its session again.
what_was_not_written_is_told(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    [ok = come(User, Slot) || User <- [<<"user/stands">>, <<"user/gone">>, <<"user/alone">>]],
    settled(Config),
    ok = on_disk(),
    ok = sys:suspend(halley_hooks_taker),
    Id = to([<<"user/stands">>, <<"user/gone">>, <<"user/new">>]),
    _ = to([<<"user/alone">>]),
    ok = come(<<"user/new">>, Slot),
    {Next, After} = killed([<<"user/stands">>, <<"user/new">>], Config),
    ok = said(Next),
    ?assertEqual([{Id, [<<"user/gone">>, <<"user/new">>]}], last(After)).

%% --- the disk ----------------------------------------------------------------------------------

lost_moves_stay_lost(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    settled(Config),
    full(Config),
    Limits = #{hooks_retry_ms_max => 200, hooks_queue_bytes_max => 1, hooks_moves_max => 4},
    halley_test_brain:limits(Limits),
    [begin ok = come(<<"user/a">>, Slot), ok = go(<<"user/a">>, Slot) end
     || _ <- lists:seq(1, 10)],
    _ = to([<<"user/b">>]),
    ok = on_disk(),
    stop_hooks(),
    After = restarted(Config),
    start(After),
    {_, Next, _} = link_in_sync([]),
    ok = said(Next),
    ok = free(After),
    eventually([<<"too_old">>], fun() -> reasons(After) end),
    ?assertEqual([], last(After)),
    %% It is told once.
    ok = on_disk(),
    {Again, Last} = killed([], After),
    ok = said(Again),
    _ = last(Last),
    ?assertEqual([<<"too_old">>], reasons(Last)).

%% Where nothing tells of users, those that were told of as there were there.
damaged_moves_are_a_gap(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    [ok = come(User, Slot) || User <- [<<"user/stands">>, <<"user/gone">>]],
    settled(Config),
    full(Config),
    Id = to([<<"user/away">>, <<"user/stands">>, <<"user/gone">>]),
    ok = on_disk(),
    ok = come(<<"user/b">>, Slot),
    ok = on_disk(),
    stop_hooks(),
    lists:foreach(fun(Number) ->
        {ok, Bytes} = file:read_file(halley_hooks_moves_files:path(Number)),
        ok = file:write_file(halley_hooks_moves_files:path(Number), damaged(Bytes))
    end, halley_hooks_moves_files:numbers()),
    {Next, After} = killed([<<"user/stands">>], Config),
    ok = said(Next),
    ok = free(After),
    Owed = last(After),
    ?assertMatch([{Id, [<<"user/away">> | _]}], Owed),
    ?assertEqual([<<"damaged">>], reasons(After)).

%% A bit of each record's body.
damaged(<<?MAGIC:32, Length:32, Crc:32, Byte, Rest/binary>>) ->
    <<Body:(Length - 1)/binary, More/binary>> = Rest,
    <<?MAGIC:32, Length:32, Crc:32, (Byte bxor 64), Body/binary, (damaged(More))/binary>>;
damaged(<<>>) ->
    <<>>.

%% There is one that says who is there, whatever happens and however often it is killed.
judged_files_are_deleted(Config) ->
    start(Config),
    After = lists:foldl(fun(_, Each) ->
        {_, Slot, _} = linked(),
        settled(Each),
        ok = come(<<"user/a">>, Slot),
        ok = go(<<"user/a">>, Slot),
        _ = last(Each),
        eventually(1, fun() -> length(halley_hooks_moves_files:numbers()) end),
        stop_hooks(),
        Next = restarted(Each),
        start(Next),
        Next
    end, Config, lists:seq(1, 3)),
    ?assertEqual([], of_type(<<"gap">>, After)).

%% What happens on a disk that takes nothing is written when it does again.
full_disk_takes_them_later(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    ok = come(<<"user/gone">>, Slot),
    settled(Config),
    {Had, Missed} = halley_hooks_disk_SUITE:without_room(fun() ->
        timer:sleep(1500),
        First = to([<<"user/gone">>]),
        ok = go(<<"user/gone">>, Slot),
        timer:sleep(50),
        Second = to([<<"user/gone">>]),
        timer:sleep(50),
        ok = come(<<"user/gone">>, Slot),
        {First, Second}
    end),
    ok = on_disk(),
    {Next, After} = killed([], Config),
    ok = said(Next),
    Owed = last(After),
    ?assertEqual([{Missed, [<<"user/gone">>]}], Owed),
    ?assertNot(lists:keymember(Had, 1, Owed)).

%% It is another process, but the same brain.
killed_taker_doubts_nothing(Config) ->
    start(Config),
    {_, Slot, _} = linked(),
    ok = come(<<"user/gone">>, Slot),
    settled(Config),
    _ = to([<<"user/gone">>]),
    ok = go(<<"user/gone">>, Slot),
    timer:sleep(50),
    Before = cursor(),
    Id = to([<<"user/gone">>]),
    halley_test_brain:kill_and_wait(halley_hooks_taker),
    eventually([{Id, [<<"user/gone">>]}], fun() -> owed(Config) end),
    ok = come(<<"user/gone">>, Before, Slot),
    ?assertEqual([{Id, [<<"user/gone">>]}], last(Config)),
    ?assertEqual([], of_type(<<"gap">>, Config)).
