%% Presence of a subject with many users: their number, at a rate; and the users, once they are few
%% again.
-module(halley_presence_large_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_presence_SUITE, [open/4, close/3, here/1, key/1, told/1, nothing_told/1, state/2]).
-import(halley_test_brain, [number/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [large, large_and_small_again, small_again_beside_visitors, model].

init_per_testcase(Case, Config) -> halley_presence_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) -> halley_presence_SUITE:end_per_testcase(Case, Config).

%% More than `presence_users_max' are counted, at a rate.
large(Config) ->
    ok = halley_test_brain:limits(#{presence_users_max => 2, presence_counts_ms => 300}),
    Link = here(Config),
    ok = open(Link, 100, nobody, [key(<<"room/1">>)]),
    ?assertEqual({[100], state(<<"room/1">>, [])}, told(Link)),
    Users = [number(<<"u", ($0 + N)>>) || N <- lists:seq(1, 9)],
    BeganMs = now_ms(),
    [ok = open(Link, User, User, [<<"room/1">>]) || User <- Users],
    Changes = until_online(9, Link, []),
    TookMs = now_ms() - BeganMs,
    ?assertMatch([#{<<"state">> := <<"join">>}, #{<<"state">> := <<"join">>},
                  #{<<"online">> := 3, <<"users">> := null} | _], Changes),
    %% What comes behind these is one in 300 ms at most, however long all of it takes.
    ?assert(length(Changes) - 3 =< TookMs div 300 + 1),
    nothing_told(Link).

now_ms() -> erlang:monotonic_time(millisecond).

until_online(N, Link, Acc) ->
    case told(Link) of
        {[100], #{<<"online">> := N} = Last} -> lists:reverse(Acc, [Last]);
        {[100], Change} -> until_online(N, Link, [Change | Acc])
    end.

large_and_small_again(Config) ->
    ok = halley_test_brain:limits(#{presence_users_max => 5, presence_counts_ms => 200}),
    Link = here(Config),
    Users = [number(<<"u", ($0 + N)>>) || N <- lists:seq(1, 6)],
    [ok = open(Link, User, User, [<<"room/1">>]) || User <- Users],
    ok = open(Link, 100, nobody, [key(<<"room/1">>)]),
    Large = #{<<"subject">> => <<"room/1">>, <<"online">> => 6, <<"users">> => null},
    ?assertEqual({[100], Large}, told(Link)),
    {Stay, Go} = lists:split(2, Users),
    [ok = close(Link, User, User) || User <- Go],
    ok = until_named([halley_ids:name(U) || U <- Stay], none, Link),
    ok = close(Link, hd(Stay), hd(Stay)),
    ?assertMatch({[100], #{<<"state">> := <<"leave">>}}, told(Link)).

%% http.md 22.7: "until there are fewer users again, besides however many visitors, and a state has
%% `users`".
small_again_beside_visitors(Config) ->
    ok = halley_test_brain:limits(#{presence_users_max => 5, presence_counts_ms => 200}),
    Link = here(Config),
    [ok = open(Link, 200 + N, nobody, [<<"room/1">>]) || N <- lists:seq(1, 20)],
    Users = [number(<<"u", ($0 + N)>>) || N <- lists:seq(1, 6)],
    [ok = open(Link, User, User, [<<"room/1">>]) || User <- Users],
    ok = open(Link, 100, nobody, [key(<<"room/1">>)]),
    Large = #{<<"subject">> => <<"room/1">>, <<"online">> => 26, <<"users">> => null},
    ?assertEqual({[100], Large}, told(Link)),
    {Stay, Go} = lists:split(2, Users),
    [ok = close(Link, User, User) || User <- Go],
    ok = until_named([halley_ids:name(U) || U <- Stay], none, Link).

%% Users and visitors of a room come and go at random, so that it is large and small again; who asks
%% knows, once nothing moves, exactly who is there, or how many; and while there are few, by name.
model(Config) ->
    ok = halley_test_brain:limits(#{presence_users_max => 5, presence_counts_ms => 50}),
    Seed = erlang:unique_integer([positive]) rem 100000,
    ct:pal("seed ~b", [Seed]),
    _ = rand:seed(exsss, Seed),
    Link = here(Config),
    ok = open(Link, 100, nobody, [key(<<"room/1">>)]),
    {[100], First} = told(Link),
    lists:foldl(fun(Round, {There, Known}) ->
        Users = rand:uniform(10) - 1,
        Visitors = rand:uniform(30) - 1,
        Next = lists:foldl(fun(_, T) -> flap(Link, T) end, There, lists:seq(1, 10)),
        Wanted = wanted(Link, Users, Visitors, Next),
        Round rem 5 =:= 0 andalso halley_test_brain:kill_and_wait(halley_presence),
        {Wanted, until_known(Wanted, Known, {Seed, Round}, Link)}
    end, {[], known(First, nothing)}, lists:seq(1, 15)).

%% Somebody comes, or goes.
flap(Link, There) ->
    Who = {lists:nth(rand:uniform(2), [user, visitor]), rand:uniform(9)},
    case lists:member(Who, There) of
        true -> gone(Link, Who), There -- [Who];
        false -> come(Link, Who), [Who | There]
    end.

wanted(Link, Users, Visitors, There) ->
    Wanted = [{user, N} || N <- lists:seq(1, Users)]
        ++ [{visitor, N} || N <- lists:seq(1, Visitors)],
    [gone(Link, Who) || Who <- There -- Wanted],
    [come(Link, Who) || Who <- Wanted -- There],
    Wanted.

come(Link, {user, N}) -> User = number(name(N)), open(Link, User, User, [<<"room/1">>]);
come(Link, {visitor, N}) -> open(Link, 200 + N, nobody, [<<"room/1">>]).

gone(Link, {user, N}) -> User = number(name(N)), close(Link, User, User);
gone(Link, {visitor, N}) -> close(Link, 200 + N, nobody).

name(N) -> <<"u", ($0 + N)>>.

%% With more than four fifths of the bound users may still be counted alone.
until_known(Wanted, Known, At, Link) ->
    Names = lists:sort([name(N) || {user, N} <- Wanted]),
    case {length(Wanted), length(Names), Known} of
        {Online, _, {Online, Names}} -> Known;
        {Online, Users, {Online, null}} when Users > 4 -> Known;
        _ ->
            Next = try told(Link)
                   catch error:nothing_told -> error({At, Wanted, Known})
                   end,
            until_known(Wanted, known(element(2, Next), Known), At, Link)
    end.

%% What a client makes of what it is told.
known(#{<<"users">> := null, <<"online">> := Online}, _) -> {Online, null};
known(#{<<"users">> := Users, <<"online">> := Online}, _) -> {Online, lists:sort(Users)};
known(#{<<"state">> := <<"join">>, <<"user">> := User}, {Online, Users}) ->
    case lists:member(User, Users) of
        true -> {Online, Users};
        false -> {Online + 1, lists:sort([User | Users])}
    end;
known(#{<<"state">> := <<"leave">>, <<"user">> := User}, {Online, Users}) ->
    {Online - 1, Users -- [User]};
known(#{<<"online">> := Online}, {_, Users}) -> {Online, Users}.

%% Those who are there are named as soon as they are few enough, so some of them may go behind that.
until_named(Users, Users, _) -> ok;
until_named(Users, Known, Link) ->
    until_named(Users, case told(Link) of
        {[100], #{<<"users">> := Named}} when is_list(Named) -> Named;
        {[100], #{<<"state">> := <<"leave">>, <<"user">> := User}} -> Known -- [User];
        {[100], #{<<"users">> := null}} -> none
    end, Link).
