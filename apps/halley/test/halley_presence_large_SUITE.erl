%% What is told of the presence of a subject with many users: how many they are, at a rate; and who
%% is there, once they are few again.
-module(halley_presence_large_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_presence_SUITE, [open/4, close/3, here/1, key/1, told/1, nothing_told/1, state/2]).
-import(halley_test_brain, [number/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [large, large_and_small_again].

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

%% Those who are there are named as soon as they are few enough, so some of them may go behind that.
until_named(Users, Users, _) -> ok;
until_named(Users, Known, Link) ->
    until_named(Users, case told(Link) of
        {[100], #{<<"users">> := Named}} when is_list(Named) -> Named;
        {[100], #{<<"state">> := <<"leave">>, <<"user">> := User}} -> Known -- [User];
        {[100], #{<<"users">> := null}} -> none
    end, Link).
