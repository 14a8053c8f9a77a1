%% Moving the pages changes where they are, and nothing else.
-module(halley_store_compaction_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([pages_stay_shared/1, disk_and_tables_agree/1, writers_win/1, holes_go_back/1]).
-export([holes_given_back/1]).

-define(TABLES, [{halley_id_pages, halley_id_page}, {halley_following, halley_following_page},
                 {halley_followers, halley_followers_page}]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [pages_stay_shared, disk_and_tables_agree, writers_win, holes_go_back].

init_per_testcase(holes_go_back, Config) ->
    Config;
init_per_testcase(Case, Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    [{dir, Dir}, {sup, halley_store_helper:open(Dir)} | Config].

end_per_testcase(holes_go_back, Config) ->
    Config;
end_per_testcase(_, Config) ->
    halley_store_helper:close(whereis(halley_store_sup)),
    Config.

%% Both tables refer to one copy, so the second costs a row, not a page.
pages_stay_shared(_) ->
    {ok, _} = halley_follows:follow(pairs(1, 30000)),
    ok = halley_follows_owner:checkpoint(),
    Before = contents(),
    ok = halley_store_compaction:run(),
    ?assertEqual(Before, contents()),
    Pages = lists:sum([byte_size(Page) || {_, Rows} <- Before, {_, Page} <- Rows,
                                          byte_size(Page) > 64]),
    settle(),
    ?assert(erlang:memory(binary) < 2 * Pages).

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
    Self = self(),
    Mover = spawn_link(fun() -> move_until_told(Self, 0) end),
    Changes = [{pairs(N, 2000), pairs(N + 1000, 500)} || N <- lists:seq(1, 20001, 2000)],
    Expected = lists:foldl(fun({Added, Removed}, Set) ->
        {ok, _} = halley_follows:follow(Added),
        {ok, _} = halley_follows:unfollow(Removed),
        ok = halley_follows_owner:checkpoint(),
        ordsets:subtract(ordsets:union(Set, lists:usort(Added)), lists:usort(Removed))
    end, [], Changes),
    Mover ! stop,
    receive {moved, Times} -> ?assert(Times > 1) end,
    ?assertEqual(Expected, lists:sort(halley_store_helper:agree())).

move_until_told(Owner, Times) ->
    ok = halley_store_compaction:run(),
    receive stop -> Owner ! {moved, Times + 1}
    after 0 -> move_until_told(Owner, Times + 1)
    end.

%% In an emulator of its own: what other suites left in this one fills the holes.
holes_go_back(Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "holes"),
    Options = #{connection => standard_io, args => ["-pa" | code:get_path()],
                wait_boot => 120000},
    {ok, Peer, _} = peer:start_link(Options),
    Bytes = peer:call(Peer, ?MODULE, holes_given_back, [Dir], 300000),
    ok = peer:stop(Peer),
    %% Half of the 48 MB of holes.
    ?assert(Bytes > 24 bsl 20).

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
    ok = halley_follows_owner:checkpoint(),
    unlink(Filler),
    exit(Filler, kill),
    settle(),
    Before = carriers(),
    ok = halley_store_compaction:run_if_wasteful(),
    settle(),
    Before - carriers().

fill(N, Holes) when N > 40 -> Holes;
fill(N, Holes) ->
    {ok, _} = halley_follows:follow(pairs(N * 10000, 20000)),
    Page = binary:copy(<<"x">>, 3000),
    fill(N + 1, [[binary:copy(Page) || _ <- lists:seq(1, 400)] | Holes]).

settle() ->
    _ = [garbage_collect(Pid) || Pid <- processes()],
    timer:sleep(100).

carriers() ->
    lists:sum([element(2, lists:keyfind(carriers_size, 1, Values))
               || {instance, _, Kinds} <- erlang:system_info({allocator_sizes, binary_alloc}),
                  {Kind, Values} <- Kinds, lists:member(Kind, [mbcs, sbcs, mbcs_pool])]).

contents() ->
    [{Table, ets:tab2list(Table)} || {Table, _} <- ?TABLES]
    ++ [{Saved, [{Key, Page} || {_, Key, Page} <- ets:tab2list(Saved)]} || {_, Saved} <- ?TABLES].

%% Users from First on follow subjects among ten times as many.
pairs(First, Count) ->
    [{integer_to_binary(First + N div 15), integer_to_binary(1 + erlang:phash2({First, N}, 30000))}
     || N <- lists:seq(1, Count)].
