#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none -kernel logger_level error
%% What server keys cost: the check of a key by itself, and an event through the API's handler, in a
%% brain without an edge, with a key and without.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/keys.escript [events]
%%
%% The two ways take turns, eleven each, and of each figure the median counts: other things run on
%% the machine as well. Events are answered before they are on disk ("ack":"memory").
-mode(compile).

-define(ROUNDS, 11).

main(Args) ->
    Events = case Args of [Text] -> list_to_integer(Text); [] -> 20000 end,
    Dir = string:trim(os:cmd("mktemp -d")),
    application:set_env(halley, data_dir, Dir),
    process_flag(trap_exit, true),
    %% Every check is counted and none refused.
    ok = halley_limits:set(#{requests_per_s_per_key_max => 16#FFFFFFFF}),
    {ok, Brain} = halley_sup:start_link(),
    try run(Events) after
        exit(Brain, shutdown),
        receive {'EXIT', Brain, _} -> ok end,
        os:cmd("rm -rf " ++ Dir)
    end.

run(Events) ->
    {Text, Key} = halley_server_key:new(<<"bench">>, [publish], 0),
    Others = [element(2, halley_server_key:new(<<"other">>, [read], 0)) || _ <- lists:seq(1, 100)],
    Header = <<"Bearer ", Text/binary>>,
    Keyed = fun() -> ok = halley_server_keys:force(true, [Key | Others]) end,
    Open = fun() -> ok = halley_server_keys:force(false, []) end,
    Keyed(),
    Checks = [per_call(100000, fun() -> {ok, [publish]} = halley_server_keys:check(Header) end)
              || _ <- lists:seq(1, ?ROUNDS)],
    Hashes = [per_call(100000, fun() -> crypto:hash(sha256, Text) end)
              || _ <- lists:seq(1, ?ROUNDS)],
    Meter = halley_rate:new(),
    Counts = [per_call(100000, fun() -> ok = halley_rate:take(Meter, 16#FFFFFFFF) end)
              || _ <- lists:seq(1, ?ROUNDS)],
    Request = #{listener => api, method => <<"POST">>, path => [<<"v1">>, <<"events">>],
                query => [], body => {full, <<"{\"subject\":\"ann\",\"data\":{\"text\":\"hello\"},"
                                              "\"ack\":\"memory\"}">>}},
    Publish = fun(Headers) ->
        {200, _, _} = halley_api:handle(Request#{headers => Headers})
    end,
    Rounds = [begin
                  Open(),
                  Without = per_call(Events, fun() -> Publish(#{}) end),
                  Keyed(),
                  With = per_call(Events, fun() -> Publish(#{<<"authorization">> => Header}) end),
                  {Without, With}
              end || _ <- lists:seq(1, ?ROUNDS)],
    {Without, With} = lists:unzip(Rounds),
    row("check of a key, 101 keys", Checks),
    row("of that SHA-256", Hashes),
    row("of that the count of its requests", Counts),
    row("an event through the handler, no key needed", Without),
    row("an event through the handler, with a key", With).

row(Name, Values) ->
    Sorted = lists:sort(Values),
    io:format("~-46ts ~8.2f us   (~.2f to ~.2f)~n",
              [Name, lists:nth(?ROUNDS div 2 + 1, Sorted), hd(Sorted), lists:last(Sorted)]).

%% In a process of its own, as a request has one; microseconds for one call.
per_call(Times, Fun) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        {Us, ok} = timer:tc(fun() -> repeat(Times, Fun) end),
        exit({us, Us / Times})
    end),
    receive {'DOWN', Monitor, process, Pid, {us, Us}} -> Us end.

repeat(0, _) -> ok;
repeat(Times, Fun) -> Fun(), repeat(Times - 1, Fun).
