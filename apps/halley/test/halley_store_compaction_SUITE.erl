%% Moving the pages changes where they are, and nothing else.
-module(halley_store_compaction_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([pages_keep_their_size/1, disk_and_tables_agree/1, writers_win/1, holes_go_back/1]).
-export([holes_given_back/1]).

%% 40 times 400 of 3000 bytes.
-define(HOLES_BYTES, (48 * 1000 * 1000)).

-define(TABLES, [halley_id_pages, halley_following, halley_followers]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [pages_keep_their_size, disk_and_tables_agree, writers_win, holes_go_back].

init_per_testcase(holes_go_back, Config) ->
    Config;
init_per_testcase(Case, Config) ->
    halley_store_helper:begin_case(Case, Config).

end_per_testcase(holes_go_back, Config) ->
    Config;
end_per_testcase(_, Config) ->
    halley_store_helper:close(whereis(halley_store_sup)),
    Config.

%% A page is held once, and nothing refers to a larger binary for it.
pages_keep_their_size(_) ->
    {ok, _} = halley_follows:follow(pairs(1, 30000)),
    ok = halley_follows_owner:checkpoint(),
    Before = contents(),
    ok = halley_store_compaction:run(),
    ?assertEqual(Before, contents()),
    [?assertEqual(byte_size(Page), binary:referenced_byte_size(Page))
     || {_, Rows} <- contents(), {_, Page} <- Rows].

disk_and_tables_agree(Config) ->
    Pairs = pairs(1, 20000),
    {ok, _} = halley_follows:follow(Pairs),
    ok = halley_follows_owner:checkpoint(),
    ok = halley_store_compaction:run(),
    {ok, _} = halley_follows:unfollow(lists:sublist(Pairs, 5000)),
    ok = halley_follows_owner:checkpoint(),
    ok = halley_store_compaction:run(),
    Left = lists:usort(lists:nthtail(5000, Pairs)),
    ?assertEqual(Left, lists:sort(halley_store_helper:agree())),
    halley_store_helper:reopen(proplists:get_value(sup, Config), proplists:get_value(dir, Config)),
    ?assertEqual(Left, lists:sort(halley_store_helper:agree())).

%% What is followed, unfollowed and checkpointed while pages move is as if they hadn't moved.
writers_win(_) ->
    Moves = atomics:new(1, []),
    {Mover, Monitor} = spawn_opt(fun() -> move_until_told(Moves) end, [link, monitor]),
    Changes = [{pairs(N, 2000), pairs(N + 1000, 500)} || N <- lists:seq(1, 20001, 2000)],
    Expected = lists:foldl(fun({Added, Removed}, Set) ->
        await_move(Moves),
        {ok, _} = halley_follows:follow(Added),
        {ok, _} = halley_follows:unfollow(Removed),
        ok = halley_follows_owner:checkpoint(),
        ordsets:subtract(ordsets:union(Set, lists:usort(Added)), lists:usort(Removed))
    end, [], Changes),
    Mover ! stop,
    receive {'DOWN', Monitor, process, Mover, Reason} -> ?assertEqual(normal, Reason) end,
    ?assertEqual(Expected, lists:sort(halley_store_helper:agree())).

move_until_told(Moves) ->
    ok = halley_store_compaction:run(),
    ok = atomics:add(Moves, 1, 1),
    receive stop -> ok
    after 0 -> move_until_told(Moves)
    end.

%% The next one is on its way then.
await_move(Moves) ->
    Before = atomics:get(Moves, 1),
    halley_store_helper:await(fun() -> atomics:get(Moves, 1) > Before end).

%% In an emulator of its own: what other suites left in this one fills the holes. It has one
%% scheduler, for each of them has memory of its own: so holes are where the pages are.
holes_go_back(Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "holes"),
    Options = #{connection => standard_io, args => ["+S", "1", "-pa" | code:get_path()],
                wait_boot => 120000},
    {ok, Peer, _} = peer:start_link(Options),
    Bytes = peer:call(Peer, ?MODULE, holes_given_back, [Dir], 300000),
    ok = peer:stop(Peer),
    ?assert(Bytes > ?HOLES_BYTES div 2).

%% Holes beside every page, as an import leaves them: how much of what was taken is given back.
holes_given_back(Dir) ->
    _ = halley_store_helper:open(Dir),
    Self = self(),
    Filler = spawn_link(fun() ->
        Holes = fill(1, []),
        Self ! filled,
        receive go -> {Self, Holes} end
    end),
    receive filled -> ok end,
    ok = checkpoint_moves_nothing(),
    unlink(Filler),
    exit(Filler, kill),
    until_settled(fun() -> carriers() - erlang:memory(binary) > ?HOLES_BYTES * 3 div 4 end),
    Before = carriers(),
    ok = halley_store_compaction:run_if_wasteful(),
    until_settled(fun() -> Before - carriers() > ?HOLES_BYTES div 2 end),
    Before - carriers().

fill(N, Holes) when N > 40 -> Holes;
fill(N, Holes) ->
    {ok, _} = halley_follows:follow(pairs(N * 10000, 20000)),
    Page = binary:copy(<<"x">>, 3000),
    fill(N + 1, [[binary:copy(Page) || _ <- lists:seq(1, 400)] | Holes]).

%% Or it would find enough holes already, or just not, and move the pages away from the others.
checkpoint_moves_nothing() ->
    ok = meck:new(halley_store_compaction, [passthrough, no_link]),
    ok = meck:expect(halley_store_compaction, run_if_wasteful, 0, ok),
    ok = halley_follows_owner:checkpoint(),
    meck:unload(halley_store_compaction).

%% What nobody refers to is given back in the emulator's own time. The caller judges what is.
until_settled(Condition) -> until_settled(Condition, 300).

until_settled(Condition, Tries) ->
    _ = [garbage_collect(Pid) || Pid <- processes()],
    case Condition() orelse Tries =:= 0 of
        true -> ok;
        false -> timer:sleep(100), until_settled(Condition, Tries - 1)
    end.

carriers() ->
    lists:sum([element(2, lists:keyfind(carriers_size, 1, Values))
               || {instance, _, Kinds} <- erlang:system_info({allocator_sizes, binary_alloc}),
                  {Kind, Values} <- Kinds, lists:member(Kind, [mbcs, sbcs, mbcs_pool])]).

contents() -> [{Table, lists:sort(ets:tab2list(Table))} || Table <- ?TABLES].

%% Users from First on follow subjects among ten times as many.
pairs(First, Count) ->
    [{integer_to_binary(First + N div 15), integer_to_binary(1 + erlang:phash2({First, N}, 30000))}
     || N <- lists:seq(1, Count)].
