%% A brain that records what the handlers ask of it, and requests as the link makes them.
-module(halley_api_fake).

-include_lib("eunit/include/eunit.hrl").

-export([start/0, stop/0, cases/1]).
-export([get/1, get/2, call/4, call/5, call/6, as_user/5, with_headers/4, stream/1, prepared/1]).
-export([post/3]).
-export([header/2, json/1, failed/3, says/2, committed/1]).

-define(MODULES, [halley, halley_directory, halley_drain, halley_follows, halley_history,
                  halley_ids, halley_links, halley_metrics, halley_trace]).

%% Publishing gives ids in order and two sessions; every user follows a, b and c. No server key is
%% needed.
-spec start() -> ok.
start() ->
    ok = halley_server_keys:force(false, []),
    ok = halley_user_rate:new(),
    halley_revocations = ets:new(halley_revocations, [named_table, public]),
    [ok = meck:new(M, [non_strict, no_link]) || M <- ?MODULES],
    Published = fun(#{id := Id}) -> {ok, #{id => Id, sessions => 2}};
                   (#{}) -> {ok, #{id => <<"generated">>, sessions => 2}}
                end,
    meck:expect(halley, publish, fun(_, {json, _}, Opts) -> Published(Opts) end),
    meck:expect(halley, publish_many,
                fun(Items) -> [Published(Opts) || {_, {json, _}, Opts} <- Items] end),
    meck:expect(halley, presence, fun(User) -> #{user => User, sessions => 1} end),
    meck:expect(halley, close_sessions, fun(_) -> {ok, 3} end),
    meck:expect(halley, forget,
                fun(_) -> {ok, #{sessions => 0, following => 0, followers => 0}} end),
    meck:expect(halley_follows, follow,
                fun(Pairs) -> {ok, #{added => length(Pairs), already => 0, errors => []}} end),
    meck:expect(halley_follows, follow_own, fun(_, Pairs) -> halley_follows:follow(Pairs) end),
    meck:expect(halley_follows, unfollow,
                fun(Pairs) -> {ok, #{removed => length(Pairs), absent => 0, errors => []}} end),
    Page = fun(_, start, 2) -> {[<<"a">>, <<"b">>], <<"b">>};
              (_, <<"b">>, 2) -> {[<<"c">>], done};
              (_, _, _) -> {[<<"a">>, <<"b">>, <<"c">>], done}
           end,
    meck:expect(halley_follows, followers, Page),
    meck:expect(halley_follows, following, Page),
    meck:expect(halley_follows_own, page, Page),
    meck:expect(halley_follows, count_following, fun(_) -> 4 end),
    meck:expect(halley_follows, count_followers, fun(_) -> 5 end),
    meck:expect(halley_ids, lookup, fun(<<"nobody">>) -> undefined; (_) -> 7 end),
    meck:expect(halley_directory, sessions, fun(7) -> [] end),
    meck:expect(halley_links, list, fun() -> [#{}] end),
    meck:expect(halley_drain, is_draining, fun() -> false end),
    meck:expect(halley_history, refusing, fun() -> false end),
    meck:expect(halley_trace, trace, fun(_, _) -> {error, not_found} end),
    meck:expect(halley_metrics, incr, fun(_) -> ok end),
    meck:expect(halley_metrics, render, fun() -> <<"halley_up 1\n">> end).

-spec stop() -> ok.
stop() ->
    true = ets:delete(halley_revocations),
    meck:unload(?MODULES).

%% Tests that each have a brain of their own, named after their functions.
-spec cases([fun(() -> term())]) -> term().
cases(Cases) ->
    Named = fun(Case) ->
                    {name, Name} = erlang:fun_info(Case, name),
                    {atom_to_list(Name), {timeout, 120, Case}}
            end,
    {foreach, fun start/0, fun(_) -> stop() end, lists:map(Named, Cases)}.

%% --- requests ------------------------------------------------------------------------------------

%% Paths are written as text; parts may be any bytes.
-spec get(string()) -> halley_api:response().
get(Path) ->
    get(Path, []).

-spec get(string(), [{binary(), binary()}]) -> halley_api:response().
get(Path, Query) ->
    halley_api:handle((request(api, <<"GET">>, Path, {full, <<>>}))#{query := Query}).

%% A request that is whole, for `handle/1' or `prepare/1'.
-spec post(halley_api:listener(), string(), {Headers :: #{binary() => binary()}, binary()}) ->
    halley_api:request().
post(Listener, Path, {Headers, Body}) ->
    (request(Listener, <<"POST">>, Path, {full, Body}))#{headers => travel(Headers)}.

%% What the link makes of `prepare/1'.
-spec prepared(halley_api:request()) -> later | halley_api:response().
prepared(Request) ->
    case halley_api:prepare(Request) of
        {publish, {Subject, Data, Opts}, Told} -> Told(halley:publish(Subject, Data, Opts));
        {answer, Answer} -> Answer;
        later -> later
    end.

-spec call(halley_api:listener(), binary(), string(), binary() | halley_api:body()) ->
    halley_api:response().
call(Listener, Method, Path, Body) ->
    halley_api:handle(request(Listener, Method, Path, Body)).

-spec call(halley_api:listener(), binary(), string(), binary() | halley_api:body(), binary()) ->
    halley_api:response().
call(Listener, Method, Path, Body, Type) ->
    call(Listener, Method, Path, Body, <<"content-type">>, Type).

-spec call(halley_api:listener(), binary(), string(), binary() | halley_api:body(),
           binary(), binary()) -> halley_api:response().
call(Listener, Method, Path, Body, Header, Value) ->
    halley_api:handle((request(Listener, Method, Path, Body))#{
                          headers := travel(#{Header => Value})}).

%% As the edge hands over what a user asks, with the rights of the user's token.
-spec as_user({binary(), binary()}, binary(), string(), binary() | halley_api:body(), binary()) ->
    halley_api:response().
as_user({User, Rights}, Method, Path, Body, Type) ->
    Request = with_headers(public, Method, Path, #{<<"halley-user">> => User,
                                                   <<"halley-rights">> => Rights,
                                                   <<"content-type">> => Type}),
    halley_api:handle(Request#{body := case Body of
                                           _ when is_binary(Body) -> {full, Body};
                                           _ -> Body
                                       end}).

-spec with_headers(halley_api:listener(), binary(), string(), #{binary() => binary()}) ->
    halley_api:request().
with_headers(Listener, Method, Path, Headers) ->
    (request(Listener, Method, Path, <<>>))#{headers := travel(Headers)}.

%% The edge's own, and those of a client that it sends (link.md 8.2), from either listener.
travel(Headers) ->
    Read = halley_api:headers(public) ++ halley_api:headers(api),
    maps:filter(fun(<<"halley-", _/binary>>, _) -> true;
                   (Name, _) -> lists:member(Name, Read)
                end, Headers).

request(Listener, Method, Path, Body) when is_binary(Body) ->
    request(Listener, Method, Path, {full, Body});
request(Listener, Method, "/" ++ Path, Body) ->
    Parts = [list_to_binary(Part) || Part <- string:split(Path, "/", all)],
    #{listener => Listener, method => Method, query => [], headers => #{}, body => Body,
      path => case Parts of [<<>>] -> []; _ -> Parts end}.

%% A body that arrives in chunks. What is read belongs to the process that reads.
-spec stream([binary() | closed]) -> halley_api:body().
stream(Chunks) ->
    Ref = make_ref(),
    put(Ref, Chunks),
    {stream, fun() -> next(Ref, erlang:get(Ref)) end}.

next(Ref, [closed | _]) -> put(Ref, []), {error, closed};
next(Ref, [Chunk | Chunks]) -> put(Ref, Chunks), {ok, Chunk};
next(_, []) -> done.

%% --- answers -------------------------------------------------------------------------------------

-spec header(binary(), halley_api:response()) -> binary() | undefined.
header(Name, {_, Headers, _}) ->
    case lists:keyfind(Name, 1, Headers) of
        {_, Value} -> iolist_to_binary(Value);
        false -> undefined
    end.

-spec json(halley_api:response()) -> jiffy:json_value().
json({_, _, Body}) ->
    jiffy:decode(iolist_to_binary(Body), [return_maps]).

%% Every error has the one form; its message is given back.
-spec failed(pos_integer(), atom(), halley_api:response()) -> binary().
failed(Status, Code, Answer) ->
    ?assertMatch({Status, _, _}, Answer),
    ?assertEqual(<<"application/json">>, header(<<"content-type">>, Answer)),
    #{<<"error">> := #{<<"code">> := Given, <<"message">> := Message}} = json(Answer),
    ?assertEqual(atom_to_binary(Code), Given),
    ?assert(byte_size(Message) > 10),
    Message.

-spec says(string(), binary()) -> boolean().
says(Part, Message) ->
    string:find(Message, Part) =/= nomatch.

%% The batches that the store was given.
-spec committed(follow | unfollow) -> [[{binary(), binary()}]].
committed(Function) ->
    [Pairs || {_, {halley_follows, Called, [Pairs]}, _} <- meck:history(halley_follows),
              Called =:= Function].
