%% POST and DELETE /v1/follows, before a store that records.
-module(halley_api_follows_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [call/5, as_user/5, header/2]).
-import(halley_api_fake, [json/1, failed/3, says/2, stream/1, committed/1]).

follows_test_() ->
    halley_api_fake:cases([fun both_formats/0, fun unfollows/0, fun errors_have_their_lines/0,
                           fun too_many_follows_have_their_lines/0,
                           fun listed_errors_are_bounded/0,
                           fun batches_are_bounded_and_whole/0,
                           fun own_new_ids_are_counted/0,
                           fun batches_of_one_user_take_turns/0,
                           fun an_overloaded_store_is_asked_again/0,
                           fun a_store_that_fails_ends_the_import/0, fun a_client_that_leaves/0]).

follow(Body) ->
    follow(Body, <<"text/plain">>).

follow(Chunks, Type) when is_list(Chunks) ->
    follow(stream(Chunks), Type);
follow(Body, Type) ->
    call(api, <<"POST">>, "/v1/follows", Body, Type).

both_formats() ->
    Expected = #{<<"added">> => 2, <<"already">> => 0, <<"errors">> => []},
    NdJson = <<"{\"user\":\"a\",\"subject\":\"b\"}\n{\"subject\":\"c\",\"user\":\"a\"}">>,
    [begin
         meck:reset(halley_follows),
         ?assertEqual(Expected, json(follow(Body, Type))),
         ?assertEqual([[{<<"a">>, <<"b">>}, {<<"a">>, <<"c">>}]], committed(follow))
     end || {Body, Type} <-
                [{NdJson, <<"application/x-ndjson">>}, {NdJson, <<"application/json">>},
                 {NdJson, <<"application/x-www-form-urlencoded">>},
                 {<<"\n ", NdJson/binary>>, <<>>},
                 {<<"a b\na c\n">>, <<"text/plain; charset=utf-8">>}, {<<"\na b\na c">>, <<>>}]],
    failed(415, unsupported_media_type, follow(<<"a b">>, <<"text/csv">>)),
    ?assertMatch(#{<<"added">> := 0}, json(follow(<<>>))).

unfollows() ->
    Answer = call(api, <<"DELETE">>, "/v1/follows", <<"a b\nx\n">>, <<"text/plain">>),
    ?assertMatch(#{<<"removed">> := 1, <<"absent">> := 0, <<"errors_total">> := 1}, json(Answer)),
    ?assertEqual([{2, bad_line}], errors(Answer)),
    ?assertEqual([[{<<"a">>, <<"b">>}]], committed(unfollow)).

errors(Answer) ->
    #{<<"errors">> := Errors} = json(Answer),
    [{Line, binary_to_atom(Code)}
     || #{<<"line">> := Line, <<"error">> := #{<<"code">> := Code}} <- Errors].

%% The store names a pair by its place among those it was given; the client knows lines.
errors_have_their_lines() ->
    meck:expect(halley_follows, follow, fun refuse_bad/1),
    Body = <<"a bad\n\na b\nx\n\na bad\na bad\na b\ny\na bad\n">>,
    Expected = [{1, bad_subject}, {4, bad_line}, {6, bad_subject}, {7, bad_subject}, {9, bad_line},
                {10, bad_subject}],
    [begin
         Answer = follow(Chunks),
         ?assertMatch(#{<<"added">> := 2, <<"errors_total">> := 6}, json(Answer)),
         ?assertEqual(Expected, errors(Answer))
     end || Chunks <- [[Body], [<<C>> || <<C>> <= Body]]].

%% Of one follow it is the answer's status, of many a line's error, as any other.
too_many_follows_have_their_lines() ->
    meck:expect(halley_follows, follow, fun([_, _]) ->
        {ok, #{added => 1, already => 0, errors => [{1, too_many_follows}]}}
    end),
    Answer = follow(<<"a b\na c\n">>),
    ?assertEqual([{2, too_many_follows}], errors(Answer)),
    ?assertMatch({409, _, _}, halley_api_error:reason(too_many_follows)).

refuse_bad(Pairs) ->
    Numbered = lists:zip(lists:seq(0, length(Pairs) - 1), Pairs),
    Bad = [{N, {bad_id, subject, control_character}} || {N, {_, <<"bad">>}} <- Numbered],
    {ok, #{added => length(Pairs) - length(Bad), already => 0, errors => Bad}}.

listed_errors_are_bounded() ->
    Answer = follow([binary:copy(<<"x\n">>, 70000), <<"a b">>]),
    ?assertMatch(#{<<"errors_total">> := 70000, <<"added">> := 1}, json(Answer)),
    ?assertEqual([{N, bad_line} || N <- lists:seq(1, 100)], errors(Answer)).

batches_are_bounded_and_whole() ->
    Users = [integer_to_binary(N) || N <- lists:seq(1, 200000)],
    Text = iolist_to_binary([[User, <<" s\n">>] || User <- Users]),
    Chunks = [binary_part(Text, At, min(60000, byte_size(Text) - At))
              || At <- lists:seq(0, byte_size(Text) - 1, 60000)],
    ?assertMatch(#{<<"added">> := 200000}, json(follow(Chunks))),
    Batches = committed(follow),
    ?assertEqual(lists:sort([{User, <<"s">>} || User <- Users]), lists:sort(lists:append(Batches))),
    ?assert(lists:all(fun(Batch) -> length(Batch) < 80000 end, Batches)).

%% http.md 16.10: "429 `too_many_new_ids`: as the answer, with `Retry-After`, to a single follow; in
%% its place where it is a line".
own_new_ids_are_counted() ->
    meck:expect(halley_follows, follow_own, fun(<<"u">>, Pairs) ->
        {ok, #{added => length(Pairs) - 1, already => 0,
               errors => [{length(Pairs) - 1, {too_many_new_ids, 2001}}]}}
    end),
    Ask = fun(Method, Path, Body) ->
        as_user({<<"u">>, <<"{\"follow\":[\"*\"]}">>}, Method, "/v1/me/follows" ++ Path, Body,
                <<"application/x-ndjson">>)
    end,
    One = Ask(<<"PUT">>, "/s", <<>>),
    ?assert(says("the next one is allowed in 3", failed(429, too_many_new_ids, One))),
    ?assertEqual(<<"3">>, header(<<"retry-after">>, One)),
    Many = Ask(<<"POST">>, "", <<"{\"subject\":\"a\"}\n\n{\"subject\":\"b\"}\n">>),
    ?assertMatch({200, _, _}, Many),
    ?assertEqual([{3, too_many_new_ids}], errors(Many)).

%% Or each would find room for its user's follows, and all of them together would take more ids than
%% the user has room for.
batches_of_one_user_take_turns() ->
    ?assertEqual(1, most_at_a_time(fun(_) -> <<"u">> end, 600)),
    ?assertEqual(2, most_at_a_time(fun integer_to_binary/1, 20000)).

%% How many batches commit beside each other, when each waits so long for another one.
most_at_a_time(User, WaitMs) ->
    Running = counters:new(2, []),
    meck:expect(halley_follows, follow, fun(Pairs) ->
        ok = counters:add(Running, 1, 1),
        ok = beside(Running, WaitMs),
        ok = counters:sub(Running, 1, 1),
        {ok, #{added => length(Pairs), already => 0, errors => []}}
    end),
    Chunks = [iolist_to_binary([[User(N), <<" s">>, integer_to_binary(N), $\n]
                                || N <- lists:seq(1 + 5000 * C, 5000 + 5000 * C)])
              || C <- lists:seq(0, 27)],
    ?assertMatch(#{<<"added">> := 140000}, json(follow(Chunks))),
    counters:get(Running, 2).

beside(Running, LeftMs) ->
    At = counters:get(Running, 1),
    ok = counters:put(Running, 2, max(At, counters:get(Running, 2))),
    case counters:get(Running, 2) > 1 orelse LeftMs =< 0 of
        true -> ok;
        false -> timer:sleep(20), beside(Running, LeftMs - 20)
    end.

an_overloaded_store_is_asked_again() ->
    meck:expect(halley_follows, follow,
                [{['_'], meck:seq([{error, overloaded},
                                   {ok, #{added => 1, already => 0, errors => []}}])}]),
    ?assertMatch(#{<<"added">> := 1}, json(follow(<<"a b\n">>))).

a_store_that_fails_ends_the_import() ->
    meck:expect(halley_follows, follow,
                fun([{<<"a">>, _} | _] = Pairs) ->
                        {ok, #{added => length(Pairs), already => 0, errors => []}};
                   (_) -> {error, {store_failed, enospc}}
                end),
    Answer = follow([binary:copy(<<"a b\n">>, 70000), binary:copy(<<"b c\n">>, 70000),
                     binary:copy(<<"a c\n">>, 200000)]),
    ?assert(says("lines 1 to 70000 are done", failed(503, store_failed, Answer))),
    ?assertMatch(#{<<"added">> := 70000}, json(Answer)),
    meck:expect(halley_follows, follow, fun(_) -> exit(killed) end),
    failed(500, internal, follow(<<"a b">>)).

a_client_that_leaves() ->
    failed(400, bad_body, follow([binary:copy(<<"a b\n">>, 70000), closed])),
    ?assertMatch([_], committed(follow)).
