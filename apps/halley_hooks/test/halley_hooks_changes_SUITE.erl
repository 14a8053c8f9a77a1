%% Users who come and go are reported once, also where the queue's writer is killed between two
%% steps.
-module(halley_hooks_changes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([killed_before_it_is_written/1, killed_in_a_new_segment/1]).

-import(halley_hooks_SUITE, [start_hooks/2, settled/1, hooks/1, eventually/2]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [killed_before_it_is_written, killed_in_a_new_segment].

init_per_suite(Config) -> halley_test_brain:quiet(Config).
end_per_suite(Config) -> halley_test_brain:loud(Config).

init_per_testcase(Case, Config) ->
    ok = meck:new(halley_hooks_queue, [passthrough, no_link]),
    halley_hooks_SUITE:init_per_testcase(Case, Config).

end_per_testcase(Case, Config) ->
    _ = halley_hooks_SUITE:end_per_testcase(Case, Config),
    meck:unload(halley_hooks_queue).

told(Config) -> [{T, U} || #{<<"type">> := T, <<"user">> := U} <- hooks(Config)].

%% What it had taken of the brain's changes isn't lost with it.
killed_before_it_is_written(Config) ->
    start_hooks(Config, #{events => "opened,closed"}),
    settled(Config),
    Kills = counters:new(1, []),
    ok = meck:expect(halley_hooks_queue, append, fun(Entries, Queue) ->
        case [Id || {opened, _, Id} <- Entries] =/= [] andalso counters:get(Kills, 1) < 3 of
            true ->
                ok = counters:add(Kills, 1, 1),
                exit(killed);
            false ->
                meck:passthrough([Entries, Queue])
        end
    end),
    ok = halley:login(<<"ann">>),
    eventually([{<<"opened">>, <<"ann">>}], fun() -> told(Config) end),
    ?assertEqual(3, counters:get(Kills, 1)),
    settled(Config),
    ok = halley:logout(self()),
    eventually([{<<"opened">>, <<"ann">>}, {<<"closed">>, <<"ann">>}], fun() -> told(Config) end).

%% A segment begins with who was told of as there, those of the last round too.
killed_in_a_new_segment(Config) ->
    ok = meck:expect(halley_hooks_queue, append, fun(Entries, Queue) ->
        case meck:passthrough([Entries, Queue]) of
            {ok, Place, go_on, Next} -> {ok, Place, reopen, Next};
            Other -> Other
        end
    end),
    start_hooks(Config, #{events => "opened,closed"}),
    settled(Config),
    ok = halley:login(<<"ann">>),
    eventually([{<<"opened">>, <<"ann">>}], fun() -> told(Config) end),
    exit(whereis(halley_hooks_taker), kill),
    settled(Config),
    ok = halley:logout(self()),
    eventually([{<<"opened">>, <<"ann">>}, {<<"closed">>, <<"ann">>}], fun() -> told(Config) end),
    exit(whereis(halley_hooks_taker), kill),
    settled(Config),
    ?assertEqual([{<<"opened">>, <<"ann">>}, {<<"closed">>, <<"ann">>}], told(Config)).
