%% Valid ids; and an id of an earlier build, which accepted more of them, still loads.
-module(halley_id_tests).

-include_lib("eunit/include/eunit.hrl").

-define(C1, <<"a", 16#85/utf8, "b">>).

%% http-api.md: "1 to 255 bytes of UTF-8 without control characters". Unicode's category Cc.
control_characters_test_() ->
    Controls = lists:seq(0, 16#1f) ++ lists:seq(16#7f, 16#9f),
    [?_assertEqual({C, {error, control_character}}, {C, halley_id:check(Id)})
     || C <- Controls, Id <- [<<C/utf8>>, <<"a", C/utf8, "b">>, <<"ä"/utf8, C/utf8>>]].

others_test_() ->
    [?_assertEqual({C, ok}, {C, halley_id:check(<<"a", C/utf8>>)})
     || C <- [$\s, $~, 16#a0, 16#ad, 16#e9, 16#2028, 16#fffd, 16#1f600, 16#10ffff]]
    ++ [?_assertEqual({error, not_utf8}, halley_id:check(Id))
        || Id <- [<<16#c2>>, <<16#85>>, <<16#c1, 16#85>>, <<16#c2, 16#c0>>]].

%% Stored by a build that took it, it is there after a start, follows and all.
stored_test_() ->
    {timeout, 120, fun() ->
        Dir = string:trim(os:cmd("mktemp -d")),
        Before = halley_store_helper:open(Dir),
        ok = meck:new(halley_id, [passthrough, no_link]),
        meck:expect(halley_id, check, fun(_) -> ok end),
        {ok, #{added := 2}} = halley_follows:follow([{?C1, <<"s">>}, {<<"u">>, ?C1}]),
        meck:unload(halley_id),
        After = halley_store_helper:reopen(Before, Dir),
        try
            ?assertEqual({[?C1], done}, halley_follows:followers(<<"s">>, start, 10)),
            ?assertEqual({[?C1], done}, halley_follows:following(<<"u">>, start, 10)),
            ?assertMatch({ok, #{removed := 1}}, halley_follows:unfollow([{<<"u">>, ?C1}])),
            New = <<"x", 16#9b/utf8>>,
            ?assertMatch({ok, #{added := 0, errors := [_]}},
                         halley_follows:follow([{<<"u">>, New}]))
        after
            halley_store_helper:close(After),
            file:del_dir_r(Dir)
        end
    end}.
