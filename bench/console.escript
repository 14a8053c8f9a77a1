#!/usr/bin/env escript
%% -*- erlang -*-
%%! +sbwt none +sbwtdcpu none +sbwtdio none -kernel logger_level error
%% What counting the busiest subjects costs the shards while a console is open: microseconds of an
%% event without and with one, and of showing what was counted, which each of the eight does once a
%% second. One JSON object on stdout.
%%
%%   rebar3 compile
%%   ERL_LIBS=_build/default/lib escript bench/console.escript EVENTS_PER_S SUBJECTS FOLLOWERS
%%
%% A shard counts a window of ten seconds: its share of the events at that rate, of subjects by
%% chance, in small turns. Eleven times each; the median counts.
-mode(compile).

-define(ROUNDS, 11).
-define(SHARDS, 8).
-define(WINDOW_S, 10).
%% Events that a shard takes at a time.
-define(TURN, 2).

main([PerS, Subjects, Followers]) ->
    [N, Of, Sessions] = [list_to_integer(Text) || Text <- [PerS, Subjects, Followers]],
    ok = halley_top:new(),
    Turns = turns(N * ?WINDOW_S div ?SHARDS, max(1, Of div ?SHARDS), Sessions),
    {Without, _} = rounds(Turns),
    _ = halley_top:read(),
    {With, Shown} = rounds(Turns),
    io:format("{\"without_us\":~.4f,\"with_us\":~.4f,\"show_us\":~.1f}~n",
              [Without, With, Shown]).

turns(Left, _, _) when Left =< 0 ->
    [];
turns(Left, Of, Sessions) ->
    [[#{subject => <<"group-", (integer_to_binary(rand:uniform(Of)))/binary>>,
        id => <<"id-", (integer_to_binary(Left - One))/binary>>, sessions => Sessions}
      || One <- lists:seq(1, ?TURN)] | turns(Left - ?TURN, Of, Sessions)].

rounds(Turns) ->
    {Noted, Shown} = lists:unzip([once(Turns) || _ <- lists:seq(1, ?ROUNDS)]),
    {median(Noted), median(Shown)}.

once(Turns) ->
    true = erlang:garbage_collect(),
    {Us, Counted} = timer:tc(fun() ->
        lists:foldl(fun halley_top:note/2, halley_top:none(), Turns)
    end),
    {ShowUs, _} = timer:tc(fun() -> halley_top:show(0, Counted) end),
    {Us / (length(Turns) * ?TURN), float(ShowUs)}.

median(Numbers) -> lists:nth((length(Numbers) + 1) div 2, lists:sort(Numbers)).
