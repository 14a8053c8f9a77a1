%% Micro-benchmark of replays: users who each missed a hundred events come back.
%%
%%   erl -noshell -pa _build/test/lib/*/ebin _build/test/lib/halley/test \
%%       -eval 'halley_replay_bench:run(), halt().'
%%
%% It starts the brain over a store in a temporary directory, lets users follow fifteen subjects
%% each, publishes, and replays them one after the other in one process, as one link would. It
%% prints the microseconds of processor time per replayed event, with a cache that has nothing and
%% with one that has all, and the same for a link that catches up.
%%
%% `follows()' in its place: a user that follows 100,000 subjects, by how much was missed and how
%% much was published besides, in events and in their bytes: processor time with the log's blocks in
%% memory, and the longest call, for which the link's other sessions wait.
-module(halley_replay_bench).

-export([run/0, follows/0]).

-define(USERS, 3000).
-define(FOLLOWS, 15).
-define(SUBJECTS, 2000).
-define(EVENTS, 13334).
-define(MANY, 100000).
-define(LIMITS, #{events_max => 256, bytes_max => 131072}).

-spec run() -> ok.
run() ->
    halley_bench_brain:with(fun measure/0).

measure() ->
    Users = [<<"user ", (integer_to_binary(U))/binary>> || U <- lists:seq(1, ?USERS)],
    Pairs = [{User, subject(I * ?FOLLOWS + F)}
             || {I, User} <- lists:zip(lists:seq(1, ?USERS), Users), F <- lists:seq(1, ?FOLLOWS)],
    {ok, _} = halley:follow(Pairs),
    {ok, _} = halley_ids:intern(Users),
    Slot = link(),
    lists:foreach(fun(User) ->
                      Number = halley_ids:lookup(User),
                      _ = halley_directory:open(Number, {link, Slot, Number}, infinity)
                  end, Users),
    From = halley_history:heads(),
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second), From),
    Data = {json, <<"{\"text\":\"an ordinary message of an ordinary length\"}">>},
    _ = halley:publish_many([{subject(N * 7919), Data, #{}} || N <- lists:seq(1, ?EVENTS)]),
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, 5000),
    [begin
         {Us, N} = processor_us(fun() -> apart(fun() -> replay(Users, Cursor, UpTo) end) end),
         io:format("replay, ~s: ~b events, ~.2f us per event~n", [Cache, N, Us / N])
     end || Cache <- ["cold cache", "warm cache", "warm cache"]],
    {CatchUs, C} = processor_us(fun() -> catch_up(Slot, From, UpTo) end),
    io:format("catch-up: ~b events to ~b sessions, ~.2f us per event~n",
              [?EVENTS, C, CatchUs / ?EVENTS]).

-spec follows() -> ok.
follows() ->
    ok = application:set_env(halley, history_bytes, 1 bsl 32),
    halley_bench_brain:with(fun() ->
        Subjects = list_to_tuple([<<"subject ", (integer_to_binary(N))/binary>>
                                  || N <- lists:seq(1, ?MANY)]),
        {ok, _} = halley:follow([{<<"ann">>, Subject} || Subject <- tuple_to_list(Subjects)]),
        lists:foreach(fun({Missed, Strangers, Bytes}) ->
            follows(Subjects, Missed, Strangers, Bytes)
        end, [{1, 0, 10}, {10, 90, 10}, {10, 990, 10}, {1000, 0, 10}, {10, 4990, 10},
              {10, 9990, 10}, {10, 14990, 10}, {10, 19990, 10}, {10, 39990, 10}, {10, 990, 60000},
              {10, 3990, 60000}, {200000, 0, 10}])
    end).

%% Events about subjects that are followed and about others, mixed.
follows(Subjects, Missed, Strangers, Bytes) ->
    Cursor = halley_cursor:encode(halley_history:store(), erlang:system_time(second),
                                  halley_history:heads()),
    Data = {json, <<"\"", (binary:copy(<<"x">>, Bytes))/binary, "\"">>},
    Abouts = [element(rand:uniform(?MANY), Subjects) || _ <- lists:seq(1, Missed)]
        ++ [<<"other ", (integer_to_binary(N))/binary>> || N <- lists:seq(1, Strangers)],
    publish([Subject || {_, Subject} <- lists:sort([{rand:uniform(), S} || S <- Abouts])], Data),
    {ok, _} = halley:publish(<<"stranger">>, 1),
    UpTo = halley_history:heads(),
    ok = halley_history:await(UpTo, 60000),
    Replay = fun() ->
        {ok, Replay} = halley_replay:new(<<"ann">>, Cursor),
        calls(Replay, UpTo, {0, 0, 0}, halley_history_reader:new())
    end,
    _ = apart(Replay),
    Times = 20,
    {Us, Calls} = processor_us(fun() -> [apart(Replay) || _ <- lists:seq(1, Times)] end),
    {N, Count, _} = hd(Calls),
    io:format("~b follows, ~b missed of ~b events of ~b bytes: ~.2f ms, ~b calls, the longest ~.1f "
              "ms~n", [?MANY, N, Missed + Strangers, Bytes, Us / Times / 1000, Count,
                       lists:max([Longest || {_, _, Longest} <- Calls]) / 1000]).

publish([], _) ->
    ok;
publish(Subjects, Data) ->
    {Some, Rest} = lists:split(min(200, length(Subjects)), Subjects),
    _ = halley:publish_many([{Subject, Data, #{ack => memory}} || Subject <- Some]),
    ok = halley_history:await(halley_history:heads(), 60000),
    publish(Rest, Data).

calls(Replay, UpTo, {Sum, Calls, Longest}, Reader) ->
    Count = fun(_, _, N) -> N + 1 end,
    {Us, {N, What, Later, Next}} =
        timer:tc(halley_replay, next, [Replay, UpTo, ?LIMITS, Count, Sum, Reader]),
    Counted = {N, Calls + 1, max(Longest, Us)},
    case What of
        done ->
            ok = halley_history_reader:close(Next),
            Counted;
        _ ->
            calls(Later, UpTo, Counted, Next)
    end.

processor_us(Fun) ->
    {Before, _} = erlang:statistics(runtime),
    Result = Fun(),
    {After, _} = erlang:statistics(runtime),
    {(After - Before) * 1000, Result}.

%% In a process like that of a link's replays.
apart(Fun) ->
    {Pid, Ref} = spawn_opt(fun() -> exit({result, Fun()}) end,
                           [monitor, {min_bin_vheap_size, halley_history_reader:vheap_words()}]),
    receive {'DOWN', Ref, process, Pid, {result, Result}} -> Result end.

subject(N) -> integer_to_binary(N rem ?SUBJECTS).

link() ->
    Writer = spawn_link(fun drain/0),
    {ok, Slot, _} = halley_test_brain:worker(Writer, #{}),
    Slot.

drain() ->
    receive _ -> drain() end.

replay(Users, Cursor, UpTo) ->
    {N, Reader} = lists:foldl(fun(User, {Sum, Reader}) ->
                                  {ok, Replay} = halley_replay:new(User, Cursor),
                                  batches(Replay, UpTo, Sum, Reader)
                              end, {0, halley_history_reader:new()}, Users),
    ok = halley_history_reader:close(Reader),
    N.

batches(Replay, UpTo, Sum, Reader) ->
    Count = fun(_, _, N) -> N + 1 end,
    case halley_replay:next(Replay, UpTo, ?LIMITS, Count, Sum, Reader) of
        {N, done, _, Next} -> {N, Next};
        {N, _, Later, Next} -> batches(Later, UpTo, N, Next)
    end.

catch_up(Slot, From, UpTo) ->
    catch_up(Slot, From, UpTo, 0, halley_catchup_former:new(), halley_history_reader:new()).

catch_up(Slot, From, UpTo, Sum, Former, Reader) ->
    Limits = #{events_max => 512, bytes_max => 1048576},
    {Events, Next, What, [], Read, Later} =
        halley_catchup:next(#{Slot => []}, From, UpTo, Limits, Former, Reader),
    Sent = Sum + lists:sum([byte_size(Conns) div 8 || {_, Conns} <- Events]),
    case What of
        done -> Sent;
        more -> catch_up(Slot, Next, UpTo, Sent, Read, Later)
    end.
