#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none -kernel logger_level error
%% What a page of what was before costs, by how much there is: no HTTP, no edge, no fan-out.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/past.escript [events]
%%
%% Histories of 10,000 and of so many events (1,000,000), a hundred about each subject, in turn; and
%% then as many about one subject. Of each: the first page of 20, one from the midst, one from the
%% older quarter, 2,000 times, for as many subjects as there are; for the one subject all pages of
%% 1,000 as well. Then 64 publishers that wait for the
%% disk, alone and while 400 callers ask for pages as fast as they get them, by turns as a link's
%% requests do; five rounds of both in turn, and the medians.
-mode(compile).

-define(EVENTS_PER_SUBJECT, 100).
-define(SMALL, 10000).
-define(DATA_BYTES, 220).
-define(PAGES, 2000).
-define(PUBLISHERS, 64).
-define(CALLERS, 400).
-define(ROUNDS, 5).
-define(ROUND_MS, 2000).

main(Args) ->
    [Events] = [list_to_integer(Arg) || Arg <- Args ++ lists:nthtail(length(Args), ["1000000"])],
    ok = halley_metrics:new(),
    [apart(fun() -> scattered(N) end) || N <- [?SMALL, Events]],
    apart(fun() -> of_one(Events) end).

%% A history of its own.
apart(Measure) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    application:set_env(halley, data_dir, Dir),
    application:set_env(halley, history_bytes, 1 bsl 36),
    application:set_env(halley, history_retention_ms, 1 bsl 40),
    Tables = [halley_history_index, halley_history_milestones, halley_history_pending_ids,
              halley_history_cache],
    ok = halley_history:new(),
    {ok, Log} = halley_history_log:start_link(),
    try Measure()
    after
        gen_server:stop(Log),
        [true = ets:delete(Table) || Table <- Tables],
        os:cmd("rm -rf " ++ Dir)
    end.

title(Format, Args) -> io:format("~n" ++ Format ++ "~n", Args).

row(Name, Value, Unit) -> io:format("  ~-52ts ~10ts ~ts~n", [Name, text(Value), Unit]).

text(Value) when is_float(Value) -> io_lib:format("~.1f", [Value]);
text(Value) -> io_lib:format("~b", [Value]).

%% --- events --------------------------------------------------------------------------------------

entry(Subject) ->
    Shard = halley_shards:of_subject(Subject),
    Seq = halley_history:draw(Shard),
    Draft = halley_event:draft(generated, Subject, binary:copy(<<"7">>, ?DATA_BYTES)),
    {Shard, halley_event:event(Draft, <<"m1n2b3v4-">>, {Shard, Seq}, 1700000000000)}.

%% As shards do, 512 at a time; the last waits for the disk.
fill(_, 0) -> ok;
fill(Subject, Left) ->
    N = min(Left, 512),
    Entries = [entry(Subject(Left - I)) || I <- lists:seq(1, N)],
    Alias = make_ref(),
    ByShard = maps:groups_from_list(fun({Shard, _}) -> Shard end, fun({_, E}) -> E end, Entries),
    _ = [ok = halley_history:append(Shard, Es, [{{self(), Alias}, ok}])
         || {Shard, Es} <- maps:to_list(ByShard)],
    _ = [receive {Alias, ok} -> ok end || _ <- maps:to_list(ByShard)],
    fill(Subject, Left - N).

subject(N, Subjects) -> <<"subject ", (integer_to_binary(N rem Subjects))/binary>>.

%% --- pages ---------------------------------------------------------------------------------------

scattered(Events) ->
    Subjects = Events div ?EVENTS_PER_SUBJECT,
    ok = fill(fun(N) -> subject(N, Subjects) end, Events),
    title("~b events about ~b subjects, ~b bytes each on disk",
          [Events, Subjects, map_get(bytes, halley_history:info()) div Events]),
    pages(Events, fun(N) -> subject(N * 7919, Subjects) end).

of_one(Events) ->
    ok = fill(fun(_) -> <<"one">> end, Events),
    title("~b events about one subject", [Events]),
    pages(Events, fun(_) -> <<"one">> end),
    {Us, Read} = timer:tc(fun() -> all(<<"one">>, none, 0) end),
    Read = Events,
    row("all of them, in pages of 1,000: an event", Us / Events, "us"),
    publishers().

all(Subject, Before, Read) ->
    {ok, #{events := Events, next := Next}} = halley_past:page(Subject, Before, none, 1000),
    case Next of
        none -> Read + length(Events);
        _ -> all(Subject, Next, Read + length(Events))
    end.

pages(Events, Subject) ->
    At = fun(Seq) -> halley_cursor:encode(halley_history:store(), 0, erlang:make_tuple(8, Seq)) end,
    [begin
         _ = times(Subject, Before, ?PAGES div 10),
         garbage_collect(),
         Cpu = cpu_us(),
         Took = lists:sort(times(Subject, Before, ?PAGES)),
         row(Name ++ ", median", lists:nth(?PAGES div 2, Took), "us"),
         row("  99 of 100 are within", lists:nth(?PAGES * 99 div 100, Took), "us"),
         row("  processor time", (cpu_us() - Cpu) / ?PAGES, "us")
     end || {Name, Before} <- [{"the newest 20", none},
                               {"20 from the midst", At(Events div 2)},
                               {"20 from the older quarter", At(Events div 4)}]].

times(Subject, Before, Pages) ->
    [begin
         {Us, {ok, #{events := [_ | _] = Events}}} =
             timer:tc(halley_past, page, [Subject(N), Before, none, 20]),
         20 = length(Events),
         Us
     end || N <- lists:seq(1, Pages)].

cpu_us() -> 1000 * element(1, statistics(runtime)).

%% --- beside publishers ---------------------------------------------------------------------------

publishers() ->
    {ok, _} = halley_past_turns:start_link(),
    Rounds = [{publish(0), publish(?CALLERS)} || _ <- lists:seq(1, ?ROUNDS)],
    title("~b publishers that wait for the disk", [?PUBLISHERS]),
    Beside = io_lib:format("beside ~b callers of pages", [?CALLERS]),
    [begin
         row([Name, ": events/s"], median([Rate || {Rate, _, _} <- Results]), ""),
         row("  99 of 100 are answered within", median([P99 || {_, P99, _} <- Results]), "us"),
         row("  pages/s", median([Pages || {_, _, Pages} <- Results]), "")
     end || {Name, Results} <- [{"alone", [Alone || {Alone, _} <- Rounds]},
                                {Beside, [With || {_, With} <- Rounds]}]].

median(Values) -> lists:nth((?ROUNDS + 1) div 2, lists:sort(Values)).

publish(Callers) ->
    Self = self(),
    Until = erlang:monotonic_time(millisecond) + ?ROUND_MS,
    Calling = [spawn_link(fun() -> Self ! {self(), caller(N, Until, 0)} end)
               || N <- lists:seq(1, Callers)],
    Publishing = [spawn_link(fun() -> Self ! {self(), publisher(N, Until, [])} end)
                  || N <- lists:seq(1, ?PUBLISHERS)],
    Took = lists:sort(lists:append([receive {Pid, T} -> T end || Pid <- Publishing])),
    Pages = lists:sum([receive {Pid, P} -> P end || Pid <- Calling]),
    {length(Took) * 1000 div ?ROUND_MS, lists:nth(length(Took) * 99 div 100, Took),
     Pages * 1000 div ?ROUND_MS}.

publisher(N, Until, Took) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            {Us, ok} = timer:tc(fun() -> fill(fun(_) -> subject(N, ?SMALL) end, 1) end),
            publisher(N + ?PUBLISHERS, Until, [Us | Took]);
        false ->
            Took
    end.

%% A request's process each, as the handler's.
caller(N, Until, Pages) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            {_, Monitor} = spawn_monitor(fun() ->
                ok = halley_past_turns:take(link, N),
                _ = process_flag(priority, low),
                {ok, _} = halley_past:page(<<"one">>, none, none, 20)
            end),
            receive {'DOWN', Monitor, process, _, normal} -> ok end,
            caller(N, Until, Pages + 1);
        false ->
            Pages
    end.
