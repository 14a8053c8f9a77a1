%% The price of subscriptions for the brain: memory for each session, and a publish to subscribed
%% sessions compared with one to followers, in turns.
%%
%%   rebar3 as test compile
%%   ERL_LIBS=_build/test/lib erl -noshell -pa _build/test/lib/halley/test \
%%       -eval 'halley_subscriptions_bench:run(), halt().'
%%
%% SESSIONS=1000000 PER_SESSION=3 in the environment has so many.
%%
%% It starts the brain over a store in a temporary directory. First memory: sessions with
%% subscriptions each, of users and of visitors, on 56 links, at subjects that 30 of them share and
%% at ones of their own; and the time of a session. Then it plays two links and publishes events to
%% 16 followers and to 16 subscribed sessions, by single events and by batches, in turns; and events
%% without receivers, before the first subscription and after it.
-module(halley_subscriptions_bench).

-export([run/0]).

-define(LINKS, 56).
-define(SHARED, 30).
-define(PORTION, 1000).
-define(SUBJECTS, 2000).
-define(RECEIVERS, 16).
-define(TURNS, 15).
-define(EVENTS, 4000).
-define(BATCH, 256).

-spec run() -> ok.
run() ->
    halley_bench_brain:with(fun() ->
        ok = halley_limits:set(#{subscriptions_max => 1 bsl 30, publish_ms_max => 60000}),
        ok = to_nobody("before the first subscription"),
        ok = publishes(),
        ok = to_nobody("with subscriptions to other subjects"),
        lists:foreach(fun memory/1, [{shared, user}, {shared, nobody}, {own, user}])
    end).

%% --- publishing ----------------------------------------------------------------------------------

data() -> {json, <<"{\"text\":\"an ordinary message of an ordinary length\"}">>}.

subject(Kind, N) -> <<Kind/binary, (integer_to_binary(N rem ?SUBJECTS))/binary>>.

publishes() ->
    ok = populate(),
    Single = fun(Kind) -> one_by_one(Kind, ?EVENTS) end,
    Batches = fun(Kind) -> in_batches(Kind, ?EVENTS) end,
    lists:foreach(fun({Name, How}) ->
        _ = [How(Kind) || Kind <- [<<"f">>, <<"s">>]],
        Pairs = [{cpu(fun() -> How(<<"f">>) end), cpu(fun() -> How(<<"s">>) end)}
                 || _ <- lists:seq(1, ?TURNS)],
        Followed = median([F || {F, _} <- Pairs]) / ?EVENTS,
        Subscribed = median([S || {_, S} <- Pairs]) / ?EVENTS,
        io:format("~s: ~.2f us of the brain for an event to ~b followers, ~.2f to as many "
                  "subscribed sessions; median of the ratios of events/s, ~b turns: ~.3f~n",
                  [Name, Followed, ?RECEIVERS, Subscribed, ?TURNS,
                   median([F / S || {F, S} <- Pairs])])
    end, [{"single events", Single}, {"batches of 256", Batches}]).

one_by_one(Kind, Events) ->
    lists:foreach(fun(N) ->
        {ok, #{sessions := ?RECEIVERS}} = halley:publish(subject(Kind, N), data(),
                                                         #{ack => memory})
    end, lists:seq(1, Events)).

in_batches(Kind, Events) ->
    Items = [{subject(Kind, N), data(), #{ack => memory}} || N <- lists:seq(1, ?BATCH)],
    lists:foreach(fun(_) -> _ = halley:publish_many(Items) end, lists:seq(1, Events div ?BATCH)).

populate() ->
    Links = {link_double(), link_double()},
    Receivers = lists:seq(0, ?SUBJECTS * ?RECEIVERS - 1),
    Names = [<<"user ", (integer_to_binary(N))/binary>> || N <- Receivers],
    {ok, _} = halley:follow(lists:zip(Names, [subject(<<"f">>, N) || N <- Receivers])),
    {ok, Numbers} = halley_ids:intern(Names),
    lists:foreach(fun({N, Number}) ->
        Slot = element(1 + N rem 2, Links),
        ok = halley_directory:open(Number, {link, Slot, N}, infinity),
        [] = halley_subscriptions:open(Slot, [{N, Number, live, [subject(<<"s">>, N)]}])
    end, lists:zip(Receivers, Numbers)).

%% A writer that hands everything on at once.
link_double() ->
    Writer = spawn_link(fun() -> receive {queue, Queue} -> drain(Queue) end end),
    {ok, Slot, Queue} = halley_test_brain:worker(Writer, #{}),
    Writer ! {queue, Queue},
    Slot.

drain(Queue) ->
    receive
        {deliver, Deliveries} ->
            Bytes = lists:sum([halley_links_queue:cost(Delivery, To)
                               || {Delivery, To} <- Deliveries]),
            counters:sub(Queue, 1, Bytes),
            drain(Queue);
        _ ->
            drain(Queue)
    end.

to_nobody(When) ->
    Publish = fun() ->
        lists:foreach(fun(N) ->
            {ok, #{sessions := 0}} = halley:publish(subject(<<"n">>, N), data(), #{ack => memory})
        end, lists:seq(1, ?EVENTS))
    end,
    Publish(),
    Us = median([cpu(Publish) || _ <- lists:seq(1, ?TURNS)]) / ?EVENTS,
    io:format("an event to nobody, ~s: ~.2f us~n", [When, Us]).

%% Microseconds of the processor, of all of the brain.
cpu(Fun) ->
    {Before, _} = statistics(runtime),
    Begun = erlang:monotonic_time(microsecond),
    Fun(),
    Took = erlang:monotonic_time(microsecond) - Begun,
    {After, _} = statistics(runtime),
    case After - Before of
        Ms when Ms < 50 -> Took;
        Ms -> Ms * 1000
    end.

median(Values) -> lists:nth((length(Values) + 1) div 2, lists:sort(Values)).

%% --- memory --------------------------------------------------------------------------------------

memory({Sharing, User}) ->
    Sessions = number("SESSIONS", "100000"),
    PerSession = number("PER_SESSION", "3"),
    Before = collected(),
    Rows = [ets:info(Table, memory) || Table <- [halley_subscriptions, halley_subscriptions_table]],
    {Us, ok} = timer:tc(fun() -> all(fun open/5, Sessions, PerSession, Sharing, User) end),
    Bytes = collected() - Before,
    Now = [ets:info(Table, memory) || Table <- [halley_subscriptions, halley_subscriptions_table]],
    [Session, Page] = [8 * (N - B) / Sessions || {N, B} <- lists:zip(Now, Rows)],
    {CloseUs, ok} = timer:tc(fun() -> all(fun close/5, Sessions, PerSession, Sharing, User) end),
    io:format("~b sessions (~s), ~b subscriptions each, ~s: ~.1f bytes a session, all of it (rows "
              "~.1f, pages ~.1f and their binaries); ~.2f us to open, ~.2f us to close one~n",
              [Sessions, case User of nobody -> "visitors"; _ -> "users" end, PerSession,
               case Sharing of
                   shared -> io_lib:format("~b sessions at a subject", [?SHARED]);
                   own -> "each subject one session's alone"
               end, Bytes / Sessions, Session, Page, Us / Sessions, CloseUs / Sessions]).

all(What, Sessions, PerSession, Sharing, User) ->
    Subjects = max(1, PerSession * Sessions div ?SHARED),
    lists:foreach(fun(From) ->
        Portion = lists:seq(From, min(From + ?PORTION, Sessions) - 1),
        Slot = 100 + (From div ?PORTION) rem ?LINKS,
        What(Slot, Portion, {PerSession, Subjects}, Sharing, User)
    end, lists:seq(0, Sessions - 1, ?PORTION)).

open(Slot, Conns, {PerSession, Subjects}, Sharing, User) ->
    [] = halley_subscriptions:open(Slot,
        [{Conn, case User of nobody -> nobody; user -> Conn end, live,
          [name(Sharing, Conn * PerSession + N, Subjects) || N <- lists:seq(1, PerSession)]}
         || Conn <- Conns]).

close(Slot, Conns, _, _, _) ->
    ok = halley_subscriptions:close(Slot, Conns).

name(shared, N, Subjects) ->
    <<"room/", (integer_to_binary(erlang:phash2(N, Subjects)))/binary>>;
name(own, N, _) ->
    <<"room/", (integer_to_binary(N))/binary>>.

number(Name, Default) ->
    list_to_integer(os:getenv(Name, Default)).

collected() ->
    _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
    erlang:memory(total).
