%% RFC 8259 to the letter, at each place that takes an event's data over HTTP: the cases of
%% protocol/json.json. WebSockets' are in edge/halley-edge/src/sessions/ws/operation_tests.rs.
-module(halley_api_json_vectors_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [call/4, call/5, failed/3]).

vectors_test_() ->
    halley_api_fake:cases([fun one/0, fun many/0, fun by_users/0, fun deep/0]).

cases() ->
    Here = filename:dirname(proplists:get_value(source, ?MODULE:module_info(compile))),
    Path = filename:join([Here, "..", "..", "..", "protocol", "json.json"]),
    {ok, Text} = file:read_file(Path),
    #{<<"cases">> := Cases} = jiffy:decode(Text, [return_maps]),
    ?assert(length(Cases) > 250),
    [{Name, << <<C>> || <<C/utf8>> <= Data >>, maps:get(<<"taken">>, Case, IsJson)}
     || #{<<"name">> := Name, <<"text">> := Data, <<"json">> := IsJson} = Case <- Cases].

event(Data) -> <<"{\"subject\":\"s\",\"data\":", Data/binary, ",\"ack\":\"memory\"}">>.

published(Function) ->
    [Args || {_, {halley, Called, Args}, _} <- meck:history(halley), Called =:= Function].

one() ->
    [one(Name, Data, IsTaken, fun(Body) -> call(api, <<"POST">>, "/v1/events", Body) end)
     || {Name, Data, IsTaken} <- cases()].

by_users() ->
    Rights = <<"{\"publish\":[\"*\"]}">>,
    Publish = fun(Body) ->
        halley_api_fake:as_user({<<"u">>, Rights}, <<"POST">>, "/v1/me/events", Body,
                                <<"application/json">>)
    end,
    [one(Name, Data, IsTaken, Publish) || {Name, Data, IsTaken} <- cases()].

%% What is published is what was written, line breaks and tabs aside, and the blanks around it.
one(Name, Data, IsTaken, Publish) ->
    meck:reset(halley),
    Answer = Publish(event(Data)),
    case IsTaken of
        true ->
            ?assertMatch({Name, {200, _, _}}, {Name, Answer}),
            [[_, {json, Text}, _]] = published(publish),
            ?assertEqual(string:trim(binary:replace(Data, [<<"\t">>, <<"\r">>, <<"\n">>], <<>>,
                                                    [global])), Text);
        false ->
            ?assertMatch({Name, {400, _, _}}, {Name, Answer}),
            failed(400, bad_json, Answer),
            ?assertEqual({Name, []}, {Name, published(publish)})
    end.

many() ->
    Cases = [Case || {_, Data, _} = Case <- cases(), binary:match(Data, <<"\n">>) =:= nomatch],
    Body = [[event(Data), $\n] || {_, Data, _} <- Cases],
    {200, _, Results} = call(api, <<"POST">>, "/v1/events", iolist_to_binary(Body),
                             <<"application/x-ndjson">>),
    Lines = binary:split(iolist_to_binary(Results), <<"\n">>, [global, trim]),
    [?assertEqual({Name, IsTaken}, {Name, binary:match(Line, <<"error">>) =:= nomatch})
     || {{Name, _, IsTaken}, Line} <- lists:zip(Cases, Lines)],
    ?assertEqual(length([1 || {_, _, true} <- Cases]),
                 length(lists:append(lists:append(published(publish_many))))).

%% limits.event_data_depth_max.
deep() ->
    Deep = fun(N) -> <<(binary:copy(<<"[">>, N))/binary, (binary:copy(<<"]">>, N))/binary>> end,
    Publish = fun(N) -> call(api, <<"POST">>, "/v1/events", event(Deep(N))) end,
    ?assertMatch({200, _, _}, Publish(256)),
    [failed(400, data_too_deep, Publish(N)) || N <- [257, 32000]],
    {200, _, Results} = call(api, <<"POST">>, "/v1/events",
                             <<(event(Deep(257)))/binary, "\n", (event(Deep(1)))/binary>>,
                             <<"application/x-ndjson">>),
    ?assertMatch([{_, _}], binary:matches(iolist_to_binary(Results), <<"data_too_deep">>)).
