%% The rules of a page, and random changes against ordsets.
-module(halley_pages_tests).

-include_lib("eunit/include/eunit.hrl").

pack(Pairs) -> halley_pages:pack([halley_pages:key(A, B) || {A, B} <- Pairs]).

page(Pairs) ->
    {Page, _, <<>>} = halley_pages:change(add, <<>>, pack(Pairs), infinity),
    Page.

layout_test() ->
    ?assertEqual(<<1:32, 2:16, 5:32, 7:32, 3:32, 1:16, 1:32>>, page([{1, 5}, {1, 7}, {3, 1}])).

counts_only_what_changed_test() ->
    Page = page([{1, 5}, {1, 7}]),
    ?assertMatch({_, 1, <<>>}, halley_pages:change(add, Page, pack([{1, 5}, {1, 6}]), infinity)),
    ?assertMatch({Page, 0, <<>>}, halley_pages:change(add, Page, pack([{1, 5}]), infinity)),
    ?assertMatch({Page, 0, <<>>}, halley_pages:change(remove, Page, pack([{2, 5}]), infinity)),
    ?assertMatch({<<>>, 2, <<>>},
                 halley_pages:change(remove, Page, pack([{1, 5}, {1, 7}]), infinity)).

stops_at_the_next_fence_test() ->
    Rest = pack([{2, 1}, {9, 9}]),
    ?assertMatch({_, 1, Rest},
                 halley_pages:change(add, <<>>, pack([{1, 5}, {2, 1}, {9, 9}]),
                                     halley_pages:key(2, 1))).

members_test() ->
    Page = page([{1, 5}, {1, 7}, {3, 1}]),
    ?assertEqual({<<5:32, 7:32>>, complete}, halley_pages:members(1, Page)),
    ?assertEqual({<<>>, complete}, halley_pages:members(2, Page)),
    ?assertEqual({<<1:32>>, open}, halley_pages:members(3, Page)),
    ?assertEqual({<<>>, open}, halley_pages:members(4, Page)).

until_test() ->
    Page = page([{1, 5}, {1, 7}, {3, 1}]),
    ?assertEqual(page([{1, 5}]), halley_pages:until(halley_pages:key(1, 6), Page)),
    ?assertEqual(<<>>, halley_pages:until(halley_pages:key(1, 5), Page)),
    ?assertEqual(Page, halley_pages:until(halley_pages:key(3, 2), Page)).

%% Numbers grow, so the last page is filled to the brim before the next begins.
appended_pages_are_full_test() ->
    Pairs = [{A, B} || A <- lists:seq(1, 300), B <- lists:seq(1, 12)],
    Pieces = halley_pages:split(page(Pairs), 0, infinity),
    {Full, [_]} = lists:split(length(Pieces) - 1, Pieces),
    [?assert(byte_size(Page) > halley_pages:page_bytes_max() - 60) || {_, Page} <- Full].

random_changes_test_() -> holds(prop_halley_pages:prop_change(), 300).

random_splits_test_() -> holds(prop_halley_pages:prop_split(), 200).

random_tables_test_() -> holds(prop_halley_pages:prop_table(), 150).

random_readers_during_split_test_() ->
    holds(prop_halley_pages:prop_reader_during_split(), 150).

random_checkpoints_beside_changes_test_() ->
    holds(prop_halley_pages:prop_checkpoint_beside_changes(), 100).

holds(Property, Tests) ->
    {timeout, 60, fun() ->
                          Result = proper:quickcheck(Property, [quiet, {numtests, Tests}]),
                          ?assertEqual({true, undefined}, {Result, proper:counterexample()})
                  end}.
