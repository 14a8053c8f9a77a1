%% Hooks and the disk of their queue: nothing is lost while it refuses, and a hook that is damaged
%% or gone is a gap.
-module(halley_hooks_disk_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_hooks_SUITE, [endpoint/1, start_hooks/1, stop_hooks/0, says/3, hooks/1, of_type/2,
                             event_ids/1, eventually/2, once/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [full_disk_loses_nothing, damage_is_a_gap, folder_that_is_gone_is_a_gap, expired_is_a_gap].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(Case, Config) -> halley_hooks_SUITE:init_per_testcase(Case, Config).
end_per_testcase(Case, Config) -> halley_hooks_SUITE:end_per_testcase(Case, Config).

full_disk_loses_nothing(Config) ->
    start_hooks(Config),
    One = says(<<"ann">>, <<"room">>, 1),
    eventually([One], fun() -> event_ids(of_type(<<"published">>, Config)) end),
    {Two, Three} = without_room(fun() ->
        Ids = {says(<<"ann">>, <<"room">>, 2), says(<<"ann">>, <<"room">>, 3)},
        timer:sleep(1500),
        Ids
    end),
    eventually([One, Two, Three], fun() -> once(event_ids(of_type(<<"published">>, Config))) end).

%% As on a disk that takes nothing more: the folder is a file meanwhile.
without_room(Do) ->
    Folder = halley_hooks_queue:folder(),
    ok = file:rename(Folder, Folder ++ ".away"),
    ok = file:write_file(Folder, <<>>),
    Result = Do(),
    ok = file:delete(Folder),
    ok = file:rename(Folder ++ ".away", Folder),
    Result.

damage_is_a_gap(Config) ->
    halley_test_brain:limits(#{hooks_retry_ms_max => 100}),
    start_hooks(Config),
    halley_hooks_endpoint:does(fun(_, _) -> 500 end, endpoint(Config)),
    Ids = [says(<<"ann">>, <<"room">>, N) || N <- lists:seq(1, 8)],
    eventually(8, fun() -> length(published_in_the_queue()) end),
    stop_hooks(),
    {Path, Place} = lists:nth(4, published_in_the_queue()),
    ok = flip(Path, Place + 15),
    halley_hooks_endpoint:does(fun(_, _) -> 200 end, endpoint(Config)),
    start_hooks(Config),
    eventually(Ids -- [lists:nth(4, Ids)],
               fun() -> event_ids(of_type(<<"published">>, Config)) end),
    ?assertMatch([#{<<"reason">> := <<"damaged">>}], of_type(<<"gap">>, Config)).

%% The places of the entries of published events (halley_hooks_entry), in their order.
published_in_the_queue() ->
    Paths = lists:map(fun halley_hooks_queue:path/1, halley_hooks_queue:numbers()),
    [{Path, Place} || Path <- Paths, {ok, Bytes} <- [file:read_file(Path)],
                      {Place, _} <- binary:matches(Bytes, <<16#FF484B51:32, 9:32>>)].

flip(Path, Offset) ->
    {ok, File} = file:open(Path, [read, write, raw, binary]),
    {ok, <<Byte>>} = file:pread(File, Offset, 1),
    ok = file:pwrite(File, Offset, <<(Byte bxor 1)>>),
    file:close(File).

folder_that_is_gone_is_a_gap(Config) ->
    start_hooks(Config),
    One = says(<<"ann">>, <<"room">>, 1),
    eventually([One], fun() -> event_ids(of_type(<<"published">>, Config)) end),
    stop_hooks(),
    ok = file:del_dir_r(halley_hooks_queue:folder()),
    start_hooks(Config),
    Two = says(<<"ann">>, <<"room">>, 2),
    eventually([One, Two], fun() -> event_ids(of_type(<<"published">>, Config)) end),
    ?assertMatch([#{<<"reason">> := <<"damaged">>}], of_type(<<"gap">>, Config)).

expired_is_a_gap(Config) ->
    halley_test_brain:limits(#{hooks_retry_ms_max => 100}),
    start_hooks(Config),
    halley_hooks_endpoint:does(fun(_, _) -> 500 end, endpoint(Config)),
    Gone = says(<<"ann">>, <<"room">>, 1),
    eventually(true, fun() -> halley_hooks_endpoint:requests(endpoint(Config)) =/= [] end),
    stop_hooks(),
    {ok, Seq} = halley_history:find(Gone),
    Kept = says(<<"ann">>, <<"room">>, 2),
    halley_test_brain:drop_up_to(#{seq => Seq}),
    halley_hooks_endpoint:does(fun(_, _) -> 200 end, endpoint(Config)),
    start_hooks(Config),
    Late = says(<<"ann">>, <<"room">>, 3),
    %% The second one was published while nobody asked who publishes.
    eventually([Late], fun() -> event_ids(of_type(<<"published">>, Config)) end),
    ?assertNotEqual(Kept, Late),
    ?assertMatch([<<"too_old">>], lists:usort([R || #{<<"reason">> := R} <- hooks(Config)])).
