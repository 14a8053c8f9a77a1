%% A session's own state (http.md 23).
-module(halley_api_state_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [json/1, failed/3]).

state_test_() ->
    halley_api_fake:cases([fun what_is_kept/0, fun what_is_refused/0, fun answers/0,
                           fun a_visitor/0, fun by_a_stream/0]).

request(Body, Headers) ->
    #{method => <<"PUT">>, path => [<<"v1">>, <<"me">>, <<"state">>], query => [],
      headers => Headers, listener => public, body => {full, iolist_to_binary(Body)}}.

as(User, Rights) -> #{<<"halley-user">> => User, <<"halley-rights">> => Rights}.

said(Data) ->
    halley_api:prepare(request(["{\"data\":", Data, $}], as(<<"ann">>, <<"{\"state\":[\"*\"]}">>))).

%% 23.1: as it was written, on one line.
what_is_kept() ->
    [?assertMatch({subscription, state, <<"ann">>, Kept, _}, said(Data))
     || {Data, Kept} <- [{<<"{\"a\": 1.10}">>, <<"{\"a\": 1.10}">>},
                         {<<" [\n1,\t2]">>, <<"[1,2]">>},
                         {<<"null">>, <<>>},
                         {binary:copy(<<"1">>, 1024), binary:copy(<<"1">>, 1024)}]].

what_is_refused() ->
    [begin
         {answer, Answer} = said(Data),
         failed(Status, Code, Answer)
     end || {Data, Status, Code} <- [{binary:copy(<<"1">>, 1025), 413, state_too_large},
                                     {<<"1e+">>, 400, bad_json},
                                     {<<"1,\"more\":2">>, 400, bad_json},
                                     {<<"1,\"data\":2">>, 400, bad_json},
                                     {<<>>, 400, bad_json},
                                     {[lists:duplicate(257, $[), lists:duplicate(257, $])],
                                      400, data_too_deep}]].

answers() ->
    {subscription, state, _, _, Told} = said(<<"1">>),
    ?assertEqual(#{}, json(Told(stated))),
    failed(503, too_many_subscriptions, Told(too_many)),
    failed(409, no_session, Told(no_session)).

%% A visitor isn't anybody.
a_visitor() ->
    Request = request(<<"{\"data\":1}">>, as(<<>>, <<"{\"state\":[\"*\"]}">>)),
    {answer, Answer} = halley_api:prepare(Request),
    failed(401, user_missing, Answer).

%% What is too long for a message of a WebSocket comes by HTTP, where it is no less too long.
by_a_stream() ->
    Max = halley_limits:get(message_bytes_max),
    [begin
         Request = request(<<>>, as(<<"ann">>, <<"{\"state\":[\"*\"]}">>)),
         self() ! {chunk, [<<"{\"data\":\"">>, binary:copy(<<"x">>, Bytes), <<"\"}">>]},
         failed(Status, Code, halley_api:handle(Request#{body := {stream, fun chunk/0}})),
         receive {chunk, _} -> ok after 0 -> ok end
     end || {Bytes, Status, Code} <- [{10, 409, no_session}, {Max div 2, 413, state_too_large},
                                      {Max, 413, state_too_large}]].

chunk() ->
    receive
        {chunk, []} -> done;
        {chunk, [Chunk | Rest]} ->
            self() ! {chunk, Rest},
            {ok, Chunk}
    after 0 -> done
    end.
