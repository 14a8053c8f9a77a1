%% A brain that records what the handlers ask of it, and requests as the link makes them.
-module(halley_api_fake).

-export([start/0, stop/0, request/4, stream/1, header/2, json/1]).

-define(MODULES, [halley, halley_follows, halley_links, halley_metrics]).

%% Publishing gives ids in order and two sessions; every user follows a, b and c.
-spec start() -> ok.
start() ->
    [ok = meck:new(M, [non_strict, no_link]) || M <- ?MODULES],
    Published = fun(#{id := Id}) -> {ok, #{id => Id, sessions => 2}};
                   (#{}) -> {ok, #{id => <<"generated">>, sessions => 2}}
                end,
    meck:expect(halley, publish, fun(_, {json, _}, Opts) -> Published(Opts) end),
    meck:expect(halley, publish_many, fun(Items) -> [Published(Opts) || {_, {json, _}, Opts} <- Items] end),
    meck:expect(halley, presence, fun(User) -> #{user => User, sessions => 1} end),
    meck:expect(halley, close_sessions, fun(_) -> {ok, 3} end),
    meck:expect(halley_follows, follow, fun(Pairs) -> {ok, #{added => length(Pairs), already => 0, errors => []}} end),
    meck:expect(halley_follows, unfollow, fun(Pairs) -> {ok, #{removed => length(Pairs), absent => 0, errors => []}} end),
    Page = fun(_, start, 2) -> {[<<"a">>, <<"b">>], <<"b">>};
              (_, <<"b">>, 2) -> {[<<"c">>], done};
              (_, _, _) -> {[<<"a">>, <<"b">>, <<"c">>], done}
           end,
    meck:expect(halley_follows, followers, Page),
    meck:expect(halley_follows, following, Page),
    meck:expect(halley_follows, count_following, fun(_) -> 4 end),
    meck:expect(halley_follows, count_followers, fun(_) -> 5 end),
    meck:expect(halley_links, list, fun() -> [#{}] end),
    meck:expect(halley_metrics, render, fun() -> <<"halley_up 1\n">> end),
    ok.

-spec stop() -> ok.
stop() ->
    meck:unload(?MODULES).

-spec request(halley_api:listener(), binary(), [binary()], halley_api:body()) -> halley_api:request().
request(Listener, Method, Path, Body) ->
    #{listener => Listener, method => Method, path => Path, query => [], headers => #{}, body => Body}.

%% A body that arrives in chunks. What is read belongs to the process that reads.
-spec stream([binary() | closed]) -> halley_api:body().
stream(Chunks) ->
    Ref = make_ref(),
    put(Ref, Chunks),
    {stream, fun() -> next(Ref, get(Ref)) end}.

next(Ref, [closed | _]) -> put(Ref, []), {error, closed};
next(Ref, [Chunk | Chunks]) -> put(Ref, Chunks), {ok, Chunk};
next(_, []) -> done.

-spec header(binary(), halley_api:response()) -> binary() | undefined.
header(Name, {_, Headers, _}) ->
    case lists:keyfind(Name, 1, Headers) of
        {_, Value} -> iolist_to_binary(Value);
        false -> undefined
    end.

-spec json(halley_api:response()) -> jiffy:json_value().
json({_, _, Body}) ->
    jiffy:decode(iolist_to_binary(Body), [return_maps]).
