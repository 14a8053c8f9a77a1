%% http.md 28.1: an id stands in the path or in the query, and nothing depends on which.
-module(halley_api_place_tests).
-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [failed/3, says/2]).

place_test_() ->
    {setup, fun() ->
         meck:new(halley_presence_query, [non_strict, no_link]),
         meck:expect(halley_presence_query, states, fun(_) -> [] end),
         meck:expect(halley_presence_query, room_own,
                     fun(Room, _, _) -> #{online => 1, users => [Room], next => done} end),
         meck:new(halley_past, [non_strict, no_link]),
         meck:expect(halley_past, page,
                     fun(Subject, _, _, _) ->
                         {ok, #{events => [], gaps => [], kept => Subject, next => none,
                                cursor => none}}
                     end)
     end,
     fun(_) ->
         process_flag(priority, normal),
         meck:unload([halley_presence_query, halley_past])
     end,
     halley_api_fake:cases([fun both_forms/0, fun id_twice/0, fun id_missing/0,
                            fun of_servers/0])}.

-define(ID, <<"room/7">>).
-define(RIGHTS, <<"{\"follow\":[\"*\"],\"subscribe\":[\"*\"],\"presence\":[\"*\"],"
                  "\"history\":[\"*\"]}">>).

%% Every resource of users that has an id in its path: a new one is in this table by itself.
resources() ->
    [{Pattern, Methods} || {public, [<<"v1">>, <<"me">> | _] = Pattern, _, _, Methods, _}
                               <- halley_api:routes(), lists:member('_', Pattern)].

request(Method, Path, Query, Rights) ->
    #{listener => public, method => Method, path => Path, query => Query, body => {full, <<>>},
      headers => #{<<"halley-user">> => <<"ann">>, <<"halley-rights">> => Rights}}.

with(Id, Pattern) -> [case Part of '_' -> Id; _ -> Part end || Part <- Pattern].
without(Pattern) -> lists:delete('_', Pattern).

%% Of a wish its answers to whatever comes of it can't be compared.
answer(Request) ->
    {plain(halley_api:prepare(Request)), plain(halley_api:handle(Request))}.

plain({subscription, How, User, Subject, _}) -> {How, User, Subject};
plain({answer, Answer}) -> plain(Answer);
plain({Status, Headers, Body}) -> {Status, Headers, iolist_to_binary(Body)};
plain(later) -> later.

both_forms() ->
    ?assertEqual(5, length(resources())),
    [?assertEqual({Id, Method, answer(request(Method, with(Id, Pattern), More, Rights))},
                  {Id, Method, answer(request(Method, without(Pattern),
                                              [{<<"subject">>, Id} | More], Rights))})
     || {Pattern, _} <- resources(), Id <- [?ID, <<"plain">>, <<>>, <<"a\n">>, <<255>>],
        Rights <- [?RIGHTS, <<"{}">>],
        Method <- [<<"GET">>, <<"HEAD">>, <<"PUT">>, <<"DELETE">>, <<"POST">>, <<"OPTIONS">>],
        More <- [[], [{<<"limit">>, <<"x">>}], [{<<"limit">>, <<"1">>}, {<<"limit">>, <<"1">>}]]],
    %% What is compared are answers of the resource: a subscription needs a session.
    [?assertMatch({_, {Status, _, _}},
                  answer(request(name(Method), without(Pattern), [{<<"subject">>, ?ID}], ?RIGHTS)))
     || {Pattern, Methods} <- resources(), {Method, _} <- Methods,
        Status <- [case lists:member(<<"subscriptions">>, Pattern) of true -> 409; _ -> 200 end]].

name(Method) -> string:uppercase(atom_to_binary(Method)).

%% 4.2: two readers must not choose two.
id_twice() ->
    Ask = fun(Path, Query) -> halley_api:handle(request(<<"GET">>, Path, Query, ?RIGHTS)) end,
    Subject = {<<"subject">>, ?ID},
    [begin
         failed(400, duplicate_parameter, Ask(without(Pattern), [Subject, Subject])),
         Message = failed(400, duplicate_parameter, Ask(with(<<"a">>, Pattern), [Subject])),
         ?assert(says("in the path and in the query", Message)),
         Prepared = halley_api:prepare(request(<<"PUT">>, with(<<"a">>, Pattern), [Subject],
                                               ?RIGHTS)),
         ?assertMatch({answer, {400, _, _}}, Prepared)
     end || {Pattern, _} <- resources()].

%% A parameter that nobody knows is ignored where the path has its id, as ever (4.4).
id_missing() ->
    Ask = fun(Path) -> halley_api:handle(request(<<"PUT">>, Path, [], ?RIGHTS)) end,
    [begin
         Message = failed(404, not_found, Ask(without(Pattern))),
         ?assert(says("?subject=<id>", Message), Message)
     end || {Pattern, _} <- resources(), without(Pattern) =/= [<<"v1">>, <<"me">>, <<"follows">>]],
    Almost = halley_api:handle(request(<<"PUT">>, [<<"v1">>, <<"me">>, <<"follows">>],
                                       [{<<"subjct">>, ?ID}], ?RIGHTS)),
    ?assert(says("did you mean subject?", failed(400, unknown_parameter, Almost))).

%% Other resources have their ids in their paths alone.
of_servers() ->
    Request = (request(<<"GET">>, [<<"v1">>, <<"subjects">>, <<"followers">>],
                       [{<<"subject">>, ?ID}], <<>>))#{listener := api},
    failed(404, not_found, halley_api:handle(Request)).
