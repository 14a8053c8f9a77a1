%% An operation of a WebSocket and the request of http.md 18.2 are answered alike, and do the same
%% (link.md 20.4): each combination below is tried in both forms, and the calls are compared, too.
-module(halley_api_operations_tests).

-include_lib("eunit/include/eunit.hrl").

-define(ALL, <<"{\"publish\":[\"*\"],\"to\":[\"*\"],\"follow\":[\"*\"],\"subscribe\":[\"*\"],"
               "\"presence\":[\"*\"],\"state\":[\"*\"]}">>).
-define(SOME, <<"{\"publish\":[\"room/*\"],\"to\":[\"bob\"],\"follow\":[\"room/*\"],"
                "\"subscribe\":[\"room/*\"],\"presence\":[\"room/*\"],\"state\":[\"bob\"]}">>).
%% What the fake brain records, and what a rate allows.
-define(RECORDED, [halley, halley_follows, halley_metrics, halley_user_rate]).

alike_test_() ->
    {setup, fun start/0, fun(_) -> stop() end,
     [{atom_to_list(Name), {timeout, 120, fun() -> lists:foreach(fun alike/1, Operations) end}}
      || {Name, Operations} <- [{subjects, of_subjects()}, {events, events()},
                                {publishers, publishers()}, {states, states()},
                                {newest, newest()}]]}.

start() ->
    ok = halley_api_fake:start(),
    ok = meck:new([halley_past, halley_user_rate], [non_strict, no_link]),
    meck:expect(halley_history, store, fun() -> 1 end),
    meck:expect(halley_history, kept, fun(_) -> {ok, #{json => <<"{\"kept\":1}">>}} end),
    meck:expect(halley_past, page, fun(_, _, _, _, _) ->
        {ok, #{events => [{<<"c">>, <<"{\"id\":\"1\"}">>}], kept => none, next => none,
               gaps => [#{from => 1, to => 2, reason => damaged}], cursor => none}}
    end),
    meck:expect(halley_user_rate, take, fun
        (<<"hasty">>, _, _) -> {wait, 1500};
        (_, _, _) -> ok
    end),
    meck:expect(halley, publish, fun
        (<<"room/overloaded">>, _, _) -> {error, overloaded};
        (<<"room/full">>, _, _) -> {error, disk_full};
        (_, _, Opts) -> {ok, #{id => maps:get(id, Opts, <<"made">>), sessions => 2}}
    end),
    Follow = fun([{User, User}]) -> {ok, #{errors => [{1, self}]}};
                ([{_, <<"room/new">>}]) -> {ok, #{errors => [{1, {too_many_new_ids, 2500}}]}};
                ([{_, <<"room/failed">>}]) -> {error, disk_full};
                (_) -> {ok, #{added => 1, already => 0, removed => 1, absent => 0, errors => []}}
             end,
    meck:expect(halley_follows, follow_own, fun(_, Pairs) -> Follow(Pairs) end),
    meck:expect(halley_follows, unfollow, Follow),
    ok = halley_presence_dirty:turn_on("room/*").

stop() ->
    ok = halley_presence_dirty:turn_on(""),
    meck:unload([halley_past, halley_user_rate]),
    halley_api_fake:stop().

%% --- what is asked -------------------------------------------------------------------------------

operation(What, More) ->
    maps:merge(#{what => What, user => <<"ann">>, rights => ?ALL, subject => <<>>, last => 0,
                 members => []}, More).

users() -> [<<"ann">>, <<"bob">>, <<"hasty">>, <<>>, <<255>>, <<"a\n">>].

rights() -> [?ALL, ?SOME, <<"{}">>, <<>>, <<"no object">>].

of_subjects() ->
    Subjects = [<<"room/7">>, <<"ann">>, <<"é/?#%2F+ "/utf8>>, <<>>, <<"a\n">>, <<255>>,
                binary:copy(<<"x">>, 255), <<"room/new">>, <<"room/failed">>, <<1, "room/7">>,
                <<1, "hall">>, <<1, "*">>, <<1>>, <<2>>, <<3, "status">>],
    [operation(What, #{user => User, rights => Rights, subject => Subject})
     || What <- [follow, unfollow, subscribe, unsubscribe], User <- users(), Rights <- rights(),
        Subject <- Subjects].

newest() ->
    [operation(subscribe, #{user => User, rights => Rights, subject => Subject, last => Last})
     || User <- [<<"ann">>, <<>>, <<255>>], Rights <- rights(),
        Subject <- [<<"room/7">>, <<"hall">>, <<"a\n">>, <<1, "room/7">>],
        Last <- [1, 20, 100, 101, 4294967295]].

members(Whom, Data, Extra) ->
    Whom ++ [{<<"data">>, Data} || Data =/= none] ++ Extra.

whoms() ->
    [[{Name, Text}] || {Name, Text} <- [{<<"subject">>, <<"\"room/7\"">>},
                                        {<<"subject">>, <<"\"room\\/\\u0037\"">>},
                                        {<<"subject">>, <<"7">>}, {<<"subject">>, <<"\"\"">>},
                                        {<<"subject">>, <<"\"\\ud800\"">>},
                                        {<<"subject">>, <<"\"room/overloaded\"">>},
                                        {<<"subject">>, <<"\"room/full\"">>},
                                        {<<"subjects">>, <<"[\"room/7\",\"room/8\"]">>},
                                        {<<"subjects">>, <<"[]">>}, {<<"subjects">>, <<"[1]">>},
                                        {<<"subjects">>, lots(17)}, {<<"to">>, <<"[\"bob\"]">>},
                                        {<<"to">>, <<"\"bob\"">>}, {<<"to">>, lots(1001)}]]
    ++ [[], [{<<"subject">>, <<"\"a\"">>}, {<<"to">>, <<"[\"bob\"]">>}],
        [{<<"subject">>, <<"\"a\"">>}, {<<"subject">>, <<"\"b\"">>}]].

lots(N) ->
    Ids = [[$", integer_to_list(I), $"] || I <- lists:seq(1, N)],
    iolist_to_binary([$[, lists:join($,, Ids), $]]).

texts() ->
    Deep = fun(N) -> <<(binary:copy(<<"[">>, N))/binary, (binary:copy(<<"]">>, N))/binary>> end,
    [<<"1">>, <<"null">>, <<"{\"n\": 1.10,\n\t\"s\":\"\\u00e9\"}">>, <<"\"\\ud800\"">>, <<"1e+">>,
     <<"1e400">>, <<"1e100">>, binary:copy(<<"1">>, 5000), Deep(256), Deep(257), <<"nul">>,
     <<"1,\"id\":\"x\"">>, <<"1}">>, <<>>, <<"\"", 255, "\"">>, none,
     <<"\"", (binary:copy(<<"x">>, 9000))/binary, "\"">>,
     <<"\"", (binary:copy(<<"x">>, 70000))/binary, "\"">>].

extras() ->
    [[{Name, Text}] || {Name, Text} <- [{<<"id">>, <<"\"once\"">>}, {<<"id">>, <<"7">>},
                                        {<<"id">>, <<"\"a\\n\"">>}, {<<"ack">>, <<"\"memory\"">>},
                                        {<<"ack">>, <<"\"no\"">>}, {<<"ack">>, <<"null">>},
                                        {<<"keep">>, <<"true">>}, {<<"keep">>, <<"1">>}]]
    ++ [[], [{<<"id">>, <<"\"once\"">>}, {<<"ack">>, <<"\"disk\"">>}, {<<"keep">>, <<"false">>}]].

events() ->
    [operation(publish, #{members => members(Whom, Data, Extra)})
     || Whom <- whoms(), Data <- texts(), Extra <- extras()].

publishers() ->
    [operation(publish, #{user => User, rights => Rights, members => members(Whom, <<"1">>, [])})
     || User <- users(), Rights <- rights(), Whom <- whoms()].

states() ->
    [operation(state, #{user => User, rights => Rights, members => members([], Data, [])})
     || User <- users(), Rights <- rights(), Data <- texts(),
        Data =:= none orelse byte_size(Data) < 8192].

%% --- in both forms -------------------------------------------------------------------------------

alike(Operation) ->
    {ByHttp, Did} = recorded(fun() -> asked(by_http(Operation)) end),
    {ByOperation, DidToo} = recorded(fun() -> asked(by_operation(Operation)) end),
    ?assertEqual({Operation, ByHttp}, {Operation, ByOperation}),
    ?assertEqual({Operation, Did}, {Operation, DidToo}).

recorded(Ask) ->
    lists:foreach(fun meck:reset/1, ?RECORDED),
    Answer = Ask(),
    {Answer, [{Module, [MFA || {_, MFA, _} <- meck:history(Module)]} || Module <- ?RECORDED]}.

%% By whichever process the link would choose.
asked({Prepare, Handle, Read}) ->
    case Prepare() of
        later -> Read(Handle());
        {answer, Answer} -> Read(Answer);
        {publish, {Whom, Data, Opts}, Told} ->
            {publish, {Whom, Data, Opts}, [Read(Told(halley:publish(Whom, Data, Opts)))]};
        {subscription, What, User, Said, Told} ->
            Results = case What of
                state -> [stated, too_many, no_session];
                _ -> [added, already, removed, absent, too_many_of_session, too_many, no_session]
            end,
            {subscription, {What, User, Said}, [Read(Told(Result)) || Result <- Results]}
    end.

%% What the link gives to a process.
of_link() ->
    #{subscribe => fun(_, <<"room/7">>) -> {added, {1, 2, 3, 4, 5, 6, 7, 8}};
                      (_, _) -> {too_many_of_session, none}
                   end}.

by_operation(#{members := Members} = Operation) ->
    Small = lists:sum([byte_size(Text) || {_, Text} <- Members]) < 8192,
    {fun() when Small -> halley_api:operate(Operation); () -> later end,
     fun() -> halley_api:operate_apart(maps:merge(Operation, of_link())) end,
     fun({ok, Json}) -> {ok, iolist_to_binary(Json)};
        ({error, Json}) -> {error, jiffy:decode(iolist_to_binary(Json), [return_maps])}
     end}.

by_http(#{user := User, rights := Rights} = Operation) ->
    {Method, Path, Query, Body} = request(Operation),
    View = [{<<"halley-view">>, <<"kept">>} || maps:get(subject, Operation) =:= <<1, $*>>],
    Request = #{method => Method, path => [<<"v1">>, <<"me">> | Path], query => Query,
                headers => maps:from_list([{<<"halley-user">>, User}, {<<"halley-rights">>, Rights},
                                           {<<"content-type">>, <<"application/json">>} | View]),
                listener => public, body => {full, iolist_to_binary(Body)}},
    Small = iolist_size(Body) < 8192,
    {fun() when Small -> halley_api:prepare(Request); () -> later end,
     fun() -> halley_api:handle(maps:merge(Request, of_link())) end,
     fun response/1}.

%% The table of 18.2.
request(#{what := publish, members := Members}) ->
    {<<"POST">>, [<<"events">>], [], object(Members)};
request(#{what := follow, subject := S}) -> {<<"PUT">>, [<<"follows">>, S], [], <<>>};
request(#{what := unfollow, subject := S}) -> {<<"DELETE">>, [<<"follows">>, S], [], <<>>};
request(#{what := subscribe, subject := S, last := Last}) ->
    {<<"PUT">>, [<<"subscriptions">>, S],
     [{<<"last">>, integer_to_binary(Last)} || Last > 0], <<>>};
request(#{what := unsubscribe, subject := S}) -> {<<"DELETE">>, [<<"subscriptions">>, S], [], <<>>};
request(#{what := state, members := Members}) -> {<<"PUT">>, [<<"state">>], [], object(Members)}.

object(Members) ->
    [${, lists:join($,, [[$", Name, "\":", Text] || {Name, Text} <- Members]), $}].

%% What 18.3 makes of a response.
response({200, _, Body}) ->
    {ok, string:trim(iolist_to_binary(Body), trailing)};
response({_, Headers, Body}) ->
    #{<<"error">> := Error} = jiffy:decode(iolist_to_binary(Body), [return_maps]),
    case lists:keyfind(<<"retry-after">>, 1, Headers) of
        {_, Seconds} -> {error, Error#{<<"retry_after_s">> => binary_to_integer(Seconds)}};
        false -> {error, Error}
    end.
