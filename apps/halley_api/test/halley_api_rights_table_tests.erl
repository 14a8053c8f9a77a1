%% The doors that a token's rights open, as one table: each door of users with each kind of claim.
%%
%% A row is a right, what it is needed about, a door and what the door answers who has it. A door is
%% a request of the public listener, by `handle/1', by `prepare/1' or by both, or the judgement over
%% what a session is subscribed to when it opens. A right of `none' is a door that needs none.
%%
%% Each row is tried with each claim of `claims/2'. A route without a row fails, and so does a right
%% without one.
-module(halley_api_rights_table_tests).

-include_lib("eunit/include/eunit.hrl").

-import(halley_api_fake, [with_headers/4, failed/3, says/2]).

-define(USER, <<"ann">>).
-define(ROOM, <<"room/7">>).
-define(JSON, <<"application/json">>).
-define(LINES, <<"application/x-ndjson">>).
%% http.md 18: how an operation says the presence of a subject.
-define(PRESENCE, 1).
%% link.md 19: before a piece of whom a session may see.
-define(VIEW, 4).

%% --- the table -----------------------------------------------------------------------------------

rows() ->
    Event = <<"{\"subject\":\"room/7\",\"data\":1}">>,
    Events = <<"{\"subjects\":[\"room/7\",\"room/7\"],\"data\":1}">>,
    Private = <<"{\"to\":[\"room/7\"],\"data\":1}">>,
    Line = <<"{\"subject\":\"room/7\"}\n">>,
    Followed = path([<<"follows">>, ?ROOM]),
    Past = path([<<"subjects">>, ?ROOM, <<"events">>]),
    Room = path([<<"subjects">>, ?ROOM, <<"presence">>]),
    Online = path([<<"presence">>, ?ROOM]),
    Subscribed = path([<<"subscriptions">>, ?ROOM]),
    Told = path([<<"subscriptions">>, <<?PRESENCE, ?ROOM/binary>>]),
    Everybody = path([<<"subscriptions">>, <<?PRESENCE, $*>>]),
    [{publish, ?ROOM, both, {post, path([<<"events">>]), {?JSON, Event}}, 200},
     {publish, ?ROOM, both, {post, path([<<"events">>]), {?JSON, Events}}, 200},
     {publish, ?ROOM, handle, {post, path([<<"events">>]), {?LINES, [Event, "\n"]}}, 200},
     {to, ?ROOM, both, {post, path([<<"events">>]), {?JSON, Private}}, 200},
     {to, ?ROOM, handle, {post, path([<<"events">>]), {?LINES, [Private, "\n"]}}, 200},
     {follow, ?ROOM, handle, {put, Followed, none}, 200},
     {follow, ?ROOM, handle, {delete, Followed, none}, 200},
     {follow, ?ROOM, handle, {post, path([<<"follows">>]), {?LINES, Line}}, 200},
     {follow, ?ROOM, handle, {delete, path([<<"follows">>]), {?LINES, Line}}, 200},
     {none, ?USER, handle, {get, path([<<"follows">>]), none}, 200},
     {subscribe, ?ROOM, prepare, {put, Subscribed, none}, wish},
     %% With `last=' it has a process, whose link says here that the session may have no more.
     {subscribe, ?ROOM, handle, {put, Subscribed, last}, 400},
     {none, ?ROOM, prepare, {delete, Subscribed, none}, wish},
     {subscribe, ?ROOM, opening, [?ROOM], ok},
     {presence, ?ROOM, prepare, {put, Told, none}, wish},
     {presence, ?ROOM, handle, {put, Told, last}, 400},
     {presence, ?ROOM, opening, [<<?PRESENCE, ?ROOM/binary>>], ok},
     {presence, <<"*">>, opening, [<<?PRESENCE, $*>>], ok},
     {presence, <<"*">>, prepare, {put, Everybody, none}, wish},
     {presence, <<"*">>, handle, {put, Everybody, last}, 400},
     %% A worker that keeps whom the session may see (link.md 19) needs no right to everybody.
     {presence, any, opening, [<<?VIEW, 0>>, <<?PRESENCE, $*>>], ok},
     {presence, any, prepare, {put, Everybody, view}, wish},
     {presence, ?ROOM, handle, {get, Online, none}, 200},
     {none, ?USER, handle, {get, path([<<"presence">>, ?USER]), none}, 200},
     {presence, ?ROOM, handle, {get, Room, none}, 200},
     {presence, ?USER, handle, {get, path([<<"subjects">>, ?USER, <<"presence">>]), none}, 200},
     {presence, any, handle, {get, path([<<"following">>, <<"online">>]), none}, 200},
     {history, ?ROOM, handle, {get, Past, none}, 200},
     {none, ?USER, handle, {get, path([<<"subjects">>, ?USER, <<"events">>]), none}, 200},
     {state, ?USER, prepare, {put, path([<<"state">>]), {?JSON, <<"{\"data\":1}">>}}, wish},
     %% By HTTP it belongs to no session.
     {state, ?USER, handle, {put, path([<<"state">>]), {?JSON, <<"{\"data\":1}">>}}, 409}].

path(Parts) -> [<<"v1">>, <<"me">> | Parts].

%% What a claim gives: `{Name, Text, Opens}'.
claims(Right, About) ->
    [{no_claim, <<>>, Right =:= none},
     {an_empty_one, <<"{}">>, Right =:= none},
     {all_others, claim([{R, [<<"*">>]} || R <- all(), R =/= Right]), Right =:= none},
     {everything, claim([{R, [<<"*">>]} || R <- all()]), true}
     | of_right(Right, About)].

of_right(none, _) ->
    [];
of_right(Right, About) ->
    Name = atom_to_binary(Right),
    Twice = <<"{\"", Name/binary, "\":[\"*\"],\"", Name/binary, "\":[\"*\"]}">>,
    Others = [{R, [<<"*">>]} || R <- all(), R =/= Right],
    [{no_pattern, claim([{Right, []} | Others]), false},
     {a_text, claim([{Right, <<"*">>} | Others]), false},
     {twice, Twice, false},
     {other_letters, claim([{string:uppercase(Name), [<<"*">>]}]), false}]
    ++ [{{pattern, Pattern}, claim([{Right, [<<"x">>, Pattern]}]), true}
        || Pattern <- matching(About)]
    ++ [{{near, Pattern}, claim([{Right, [Pattern]} | Others]), false} || Pattern <- near(About)].

matching(any) -> [<<"y">>];
matching(<<"*">>) -> [<<"*">>];
matching(Id) -> [Id, <<Id/binary, $*>>, <<(binary:part(Id, 0, 2))/binary, $*>>].

near(any) ->
    [];
near(<<"*">>) ->
    [<<"room/*">>, <<"a">>, <<>>, <<"**">>, <<"***">>];
near(Id) ->
    [<<Id/binary, "0">>, binary:part(Id, 0, byte_size(Id) - 1), <<Id/binary, "/*">>,
     <<$*, Id/binary>>, <<(binary:part(Id, 0, 1))/binary, $*,
                          (binary:part(Id, 2, byte_size(Id) - 2))/binary>>,
     <<" ", Id/binary>>, string:uppercase(Id), <<>>].

claim(Members) -> iolist_to_binary(jiffy:encode({[{R, P} || {R, P} <- Members]})).

%% Every right that there is.
all() -> maps:keys(halley_api_rights:parse(<<"{}">>)).

%% --- each row with each claim --------------------------------------------------------------------

table_test_() ->
    {setup, fun start/0, fun(_) -> stop() end,
     [{lists:flatten(io_lib:format("~p", [Row])), {timeout, 120, fun() -> row(Row) end}}
      || Row <- rows()]}.

start() ->
    ok = halley_api_fake:start(),
    ok = meck:new([halley_past, halley_presence_query], [non_strict, no_link]),
    meck:expect(halley_past, page, fun(_, _, _, _) ->
        {ok, #{events => [], gaps => [], kept => none, next => none, cursor => none}}
    end),
    Nobody = #{online => 0, users => [], next => done},
    meck:expect(halley_presence_query, room, fun(_, _, _) -> Nobody end),
    meck:expect(halley_presence_query, room_own, fun(_, _, _) -> Nobody end),
    meck:expect(halley_presence_query, following_online, fun(_, _, _) -> {[], done} end),
    meck:expect(halley_presence_query, following_online_own, fun(_, _, _, _) -> {[], done} end),
    meck:expect(halley_presence_query, states, fun(_) -> [] end),
    ok = halley_presence_dirty:turn_on("*").

stop() ->
    ok = halley_presence_dirty:turn_on(""),
    _ = process_flag(priority, normal),
    meck:unload([halley_past, halley_presence_query]),
    halley_api_fake:stop().

row({Right, About, By, Door, Allowed}) ->
    [begin
         Before = done(),
         Answer = ask(Way, Door, Text),
         case Opens of
             true ->
                 Expected = case Way of prepare -> wish; _ -> Allowed end,
                 ?assertEqual({Way, Name, Expected}, {Way, Name, told(Answer)});
             false ->
                 ?assertMatch({Way, Name, {refused, _}}, {Way, Name, told(Answer)}),
                 {refused, Message} = told(Answer),
                 ?assert(lists:any(fun(Named) -> says(Named, Message) end, named(Right))),
                 ?assertEqual({Name, Before}, {Name, done()})
         end
     end || {Name, Text, Opens} <- claims(Right, About), Way <- ways(By)].

%% The list of the claim that a refusal names. Who may publish nothing at all is told of that.
named(to) -> ["in \"to\"", "in \"publish\""];
named(Right) -> ["in \"" ++ atom_to_list(Right) ++ "\""].

ways(both) -> [handle, prepare];
ways(Way) -> [Way].

ask(opening, Subjects, Rights) -> halley_api:subscribable(Rights, Subjects);
ask(prepare, Door, Rights) -> halley_api:prepare(request(Door, Rights));
ask(handle, Door, Rights) -> halley_api:handle(request(Door, Rights)).

request({Method, Path, What}, Rights) ->
    Headers = #{<<"halley-user">> => ?USER, <<"halley-rights">> => Rights},
    Request = (with_headers(public, method(Method), "/", Headers))#{path := Path},
    case What of
        none -> Request;
        view -> Request#{headers := Headers#{<<"halley-view">> => <<"kept">>}};
        last -> Request#{query := [{<<"last">>, <<"1">>}],
                         subscribe => fun(_, _) -> {too_many_of_session, none}
                                     end};
        {Type, Body} -> Request#{headers := Headers#{<<"content-type">> => Type},
                                 body := {full, iolist_to_binary(Body)}}
    end.

method(Method) -> list_to_binary(string:uppercase(atom_to_list(Method))).

%% A refusal, of all that was asked or of one line, or else how it was allowed.
told(ok) -> ok;
told({error, {403, <<"right_missing">>, Message}}) -> {refused, iolist_to_binary(Message)};
told({answer, Answer}) -> told(Answer);
told({publish, _, _}) -> wish;
told({subscription, _, ?USER, _, _}) -> wish;
told({403, _, _} = Answer) -> {refused, failed(403, right_missing, Answer)};
told({200, _, Body}) -> of_lines(binary:split(iolist_to_binary(Body), <<"\n">>, [global, trim]));
told({Status, _, _}) -> Status.

of_lines([Line | _]) ->
    case jiffy:decode(Line, [return_maps]) of
        #{<<"error">> := Error} -> of_error(Error);
        #{<<"errors">> := [#{<<"error">> := Error}]} -> of_error(Error);
        #{<<"errors">> := [_ | _]} -> several_errors;
        #{} -> 200
    end.

of_error(#{<<"code">> := <<"right_missing">>, <<"message">> := Message}) -> {refused, Message};
of_error(#{<<"code">> := Code}) -> Code.

%% How often the brain was asked to do or to read anything.
done() ->
    Modules = [halley, halley_follows, halley_past, halley_presence_query],
    length([called || {_, {Module, Function, Args}, _} <-
                          lists:append([meck:history(M) || M <- Modules]),
                      {Module, Function} =/= {halley, publish_many} orelse Args =/= [[]],
                      not lists:member({Module, Function}, [{halley_follows, follow},
                                                            {halley_follows, unfollow}])
                          orelse Args =/= [[]]]).

%% --- nothing without a row -----------------------------------------------------------------------

doors_test() ->
    Routes = [{Method, Pattern} || {public, Pattern, _, _, Methods, _} <- halley_api:routes(),
                                   {Method, Need} <- Methods, Need =/= nothing],
    ?assert(length(Routes) >= 13),
    [?assertMatch({Route, [_ | _]}, {Route, rows_of(Route)}) || Route <- Routes].

rows_of({Method, Pattern}) ->
    [Row || {_, _, _, {M, Path, _}, _} = Row <- rows(), M =:= Method,
            length(Path) =:= length(Pattern),
            lists:all(fun({Part, P}) -> P =:= '_' orelse P =:= Part end, lists:zip(Path, Pattern))].

rights_test() ->
    ?assertEqual(lists:sort(all()), lists:usort([R || {R, _, _, _, _} <- rows()]) -- [none]).

%% A request that a link's process answers itself is judged there, so a row says so.
ways_test_() ->
    {setup, fun start/0, fun(_) -> stop() end,
     [?_assertEqual({Door, lists:any(fun is_prepared/1, [R || {_, _, _, D, _} = R <- rows(),
                                                              D =:= Door])},
                    {Door, halley_api:prepare(request(Door, <<>>)) =/= later})
      || {_, _, By, Door, _} <- rows(), By =/= opening]}.

is_prepared({_, _, By, _, _}) -> By =:= prepare orelse By =:= both.
