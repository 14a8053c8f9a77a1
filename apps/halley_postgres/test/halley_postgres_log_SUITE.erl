%% Frequent failures are logged once a second at most, with their number.
-module(halley_postgres_log_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(halley_postgres_test, [begin_with/2, emit/2, eventually/2, gauge/1]).

-compile([export_all, nowarn_export_all]).

-define(SLICES, 300).
-define(WAIT_MS, 30000).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [rejected_events, follows_that_are_refused_in_a_copy].

init_per_suite(Config) -> halley_postgres_test:init_per_suite(Config).

end_per_suite(Config) -> halley_postgres_test:end_per_suite(Config).

init_per_testcase(_, Config) -> halley_postgres_test:init_per_testcase(Config).

end_per_testcase(_, Config) ->
    ok = halley_limits:set(#{}),
    halley_postgres_test:end_per_testcase(Config).

%% The first line that a module logs while something goes on, and how many may come and came.
lines(Module, Body) ->
    ok = logger:set_module_level(Module, warning),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    SinceMs = erlang:monotonic_time(millisecond),
    try
        Body(),
        First = receive {logged, Line} -> Line after ?WAIT_MS -> none end,
        Count = fun Count(N) -> receive {logged, _} -> Count(N + 1) after 0 -> N end end,
        Came = Count(1),
        {First, Came, 1 + (erlang:monotonic_time(millisecond) - SinceMs) div 1000}
    after
        _ = logger:remove_handler(?MODULE),
        logger:unset_module_level(Module)
    end.

%% A handler of the logger.
log(#{msg := {Format, Arguments}}, #{config := Pid}) ->
    Pid ! {logged, unicode:characters_to_binary(io_lib:format(Format, Arguments))};
log(_, _) ->
    ok.

%% One after the other, so that they aren't rejected together.
rejected_events(Config) ->
    C = ?config(c, Config),
    begin_with(Config, #{}),
    {First, Came, Most} = lines(halley_postgres_publish, fun() ->
        [begin
             emit(C, <<"bad">>),
             eventually(N, fun() -> gauge("halley_postgres_rejected_total") end)
         end || N <- lists:seq(1, 60)]
    end),
    ?assertMatch({match, _}, re:run(First,
        "^postgres: [0-9]+ events were rejected; the latest at [0-9A-F]+/[0-9A-F]+ "
        "\\(message pg-[0-9]+-[0-9A-F]+/[0-9A-F]+\\): it is not JSON$")),
    ?assert(Came =< Most, {Came, Most}).

%% Each slice is put into the store by a process of its own.
follows_that_are_refused_in_a_copy(Config) ->
    ok = halley_limits:set(#{follows_per_user_max => 1}),
    File = halley_postgres_pairs:create(filename:join(?config(dir, Config), "pairs"), <<"t">>),
    Slice = fun(N) ->
        halley_postgres_follows:slice([{<<"1">>, integer_to_binary(2 * N + I)} || I <- [2, 3]])
    end,
    {First, Came, Most} = lines(halley_postgres_follows, fun() ->
        _ = halley_postgres_follows:all_copied(lists:foldl(
            fun(N, Env) -> halley_postgres_follows:copied(Slice(N), Env) end,
            #{table => <<"t">>, pairs => File, storing => [], wait => fun() -> ok end},
            lists:seq(1, ?SLICES)))
    end),
    ?assertMatch({match, _}, re:run(First, "^postgres: [0-9]+ follows were refused; of the latest "
                                           "{<<\"1\">>,<<\"[0-9]+\">>}: too_many_follows$")),
    ?assert(Came =< Most, {Came, Most}),
    ?assertEqual(2 * ?SLICES - 1, gauge("halley_postgres_follows_refused_total")).
