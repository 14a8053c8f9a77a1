%% Changes of follows in the history: they have chains of their own.
-module(halley_history_changes_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).

changes_test_() ->
    [{timeout, 180, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
     || {Title, Fun} <- [{"an unfollow is in its user's chain", fun unfollow/0},
                         {"and so is a follow", fun follow/0}]].

unfollow() ->
    {ok, Before} = ?H:publish(<<"s">>, <<"1">>),
    ok = halley_history:unfollowed([{<<"u">>, <<"s">>}, {<<"u">>, <<"t">>}]),
    {ok, Behind} = ?H:publish(<<"s">>, <<"2">>),
    [Second, First] = halley_history:changes(<<"u">>, 0),
    ?assertEqual([], ?H:chain(<<"u">>, 0, Behind)),
    ?assert(Before < First andalso First < Second andalso Second < Behind),
    ?assertEqual([Second, First], halley_history:changes(<<"u">>, Before)),
    {ok, Record, _} = halley_history_reader:read(First, halley_history_reader:new()),
    ?assertMatch(#{kind := unfollow, subject := <<"u">>, id := <<"s">>}, Record),
    ?H:restart(),
    ?assertEqual([Second, First], halley_history:changes(<<"u">>, 0)),
    ?assertEqual([], halley_history:changes(<<"u">>, Second)).

%% Beside unfollows in one chain, and read back by the next brain.
follow() ->
    {ok, Before} = ?H:publish(<<"s">>, <<"1">>),
    ok = halley_history:followed([{<<"u">>, <<"s">>}], halley_history:drawn()),
    ok = halley_history:unfollowed([{<<"u">>, <<"s">>}]),
    [Second, First] = halley_history:changes(<<"u">>, 0),
    ?assertEqual([Second, First], halley_history:changes_of(<<"s">>, Before)),
    Read = fun(Seq) ->
        {ok, Record, Reader} = halley_history_reader:read(Seq, halley_history_reader:new()),
        ?assertMatch({other, _}, halley_history_reader:event(Seq, <<"u">>, Reader)),
        Record
    end,
    Kinds = fun() -> {Read(First), maps:get(kind, Read(Second))} end,
    Told = {#{kind := follow, subject := <<"u">>, id := <<"s">>, from := Before}, unfollow} =
        Kinds(),
    ?H:restart(),
    ?assertEqual([Second, First], halley_history:changes(<<"u">>, 0)),
    ?assertEqual(Told, Kinds()).
