%% The core in single situations, which stories of the simulator meet seldom. Its engine here
%% answers each call at once.
-module(halley_cluster_core_tests).

-include_lib("eunit/include/eunit.hrl").

-define(OPENED, #{last => 0, floor => 0, epochs => [#{n => 1, store => 7, 'after' => 0}], at => 0}).

%% A brain that comes back doesn't know whether its newest rows are safe, and others may wait for
%% it.
restarted_orderer_makes_its_rows_safe_test() ->
    {S, Effects} = start(#{head => 10, epoch => 1}, #{open => ?OPENED#{last := 10}}),
    ?assertMatch([{append, 10, _, #{last := 11}}],
                 [Request || {call, _, {append, _, _, _} = Request} <- Effects]),
    ?assertMatch(#{mode := ordering, head := 11, safe := 11}, halley_cluster_core:info(S)).

%% A new one has nothing to make safe.
new_orderer_appends_nothing_test() ->
    {S, Effects} = start(#{}, #{}),
    ?assertEqual([], [Request || {call, _, {append, _, _, _} = Request} <- Effects]),
    ?assertMatch(#{mode := ordering, readiness := ready}, halley_cluster_core:info(S)).

%% The head moved by a row that was sent, while the engine judged an older one.
late_verdict_says_nothing_of_the_head_test_() ->
    [fun() ->
         {S, _} = start(#{}, #{take => {other, <<"b">>, 1}}),
         {Reading, [{call, Ref, {read, 0, _}}]} = handle(300, tick, S),
         {Moved, _} = handle(301, {message, <<"b">>, {row, row(0, 1)}}, linked(Reading)),
         {After, Effects} = handle(302, {result, Ref, Verdict}, Moved),
         ?assertMatch([{call, _, {read, 1, _}}], Effects),
         ?assertMatch(#{head := 1, readiness := ready}, halley_cluster_core:info(After))
     end || Verdict <- [too_old, ahead]].

%% A row that this version doesn't understand stops the brain there, until it does.
row_of_a_newer_version_test() ->
    Content = <<2, 1:32>>,
    Newer = (row(0, 1))#{body := <<Content/binary, (erlang:crc32(Content)):32>>},
    Other = #{take => {other, <<"b">>, 1}},
    {S, _} = start(#{}, Other),
    {Stuck, _} = settle(handle(300, tick, S), 300, Other#{rows => [Newer]}),
    ?assertMatch(#{readiness := {not_ready, {bad_row, 0, {newer, 2}}}},
                 halley_cluster_core:info(Stuck)),
    ?assertMatch({_, []}, handle(310, {claimed, <<0:128>>, []}, Stuck)),
    {Understood, _} = settle(handle(600, tick, Stuck), 600, Other#{rows => [row(0, 1)]}),
    ?assertMatch(#{readiness := ready, head := 1}, halley_cluster_core:info(Understood)).

%% A row of an older epoch at the head is of a service that is no more, or the log is wrong. A copy
%% would get the same row again, so nothing is wiped.
row_of_an_older_epoch_test() ->
    Opened = ?OPENED#{epochs := [#{n => N, store => N, 'after' => 0} || N <- [2, 1]]},
    Other = #{open => Opened, take => {other, <<"b">>, 1}},
    {S, _} = start(#{}, Other),
    {Stuck, Effects} = settle(handle(300, tick, S), 300, Other#{rows => [row(0, 1)]}),
    ?assertMatch([{close, read}], [Effect || {close, _} = Effect <- Effects]),
    ?assertMatch(#{readiness := {not_ready, {bad_row, 0, wrong_epoch}}},
                 halley_cluster_core:info(Stuck)),
    {_, Later} = settle(handle(600, tick, Stuck), 600, Other#{rows => [row(0, 1)]}),
    ?assertEqual([], [Effect || {wipe, _} = Effect <- Effects ++ Later]).

%% One second without the log, and publishers are refused.
log_away_test() ->
    {S, _} = start(#{}, #{}),
    {Silent, _} = handle(900, tick, S),
    ?assertMatch(#{readiness := ready}, halley_cluster_core:info(Silent)),
    {Away, Effects} = handle(1100, tick, Silent),
    ?assert(lists:member({readiness, {not_ready, log_away}}, Effects)),
    ?assertMatch({_, [{answer, caller, {error, {log_away, 1000}}} | _]},
                 handle(1101, {propose, caller, proposal()}, Away)),
    ?assertMatch(#{mode := alone}, halley_cluster_core:info(Away)).

%% A brain that lacks more than a minute isn't ready, though it reads.
behind_test() ->
    Other = #{take => {other, <<"b">>, 1}},
    {S, _} = start(#{}, Other),
    {Asked, Effects} = settle(handle(1000, tick, S), 1000,
                              Other#{brains => {ok, [], 120000}, rows => waits}),
    [Read] = [Ref || {call, Ref, {read, 0, _}} <- Effects],
    {Behind, _} = handle(1001, {result, Read, {ok, [row(0, 1)]}}, Asked),
    ?assertMatch(#{readiness := {not_ready, behind}}, halley_cluster_core:info(Behind)).

%% The brain that orders removes old rows, by the engine's clock; the others leave that to it.
old_rows_are_trimmed_test_() ->
    [fun() ->
         Answers = #{take => Take, brains => {ok, [], 60000}},
         {S, Begun} = start(#{bounds => #{retention_ms => 5000, trim_every_ms => 2000}}, Answers),
         {Later, Some} = settle(handle(1900, tick, S), 1900, Answers),
         {_, More} = settle(handle(2100, tick, Later), 2100, Answers),
         ?assertEqual(Expected, [[Older || {call, _, {trim, Older}} <- Effects]
                                 || Effects <- [Begun, Some, More]])
     end || {Take, Expected} <- [{{held, 1}, [[55000], [], [55000]]},
                                 {{other, <<"b">>, 1}, [[], [], []]}]].

%% The holder of a role stops by its own clock, counted from before it asked.
role_ends_by_itself_test() ->
    {S, Effects} = start(#{roles => [hooks]}, #{}),
    ?assert(lists:member({role, hooks, {held, 1}}, Effects)),
    {Held, Before} = handle(5990, tick, S),
    ?assertNot(lists:member({role, hooks, lost}, Before)),
    {_, After} = handle(6000, tick, Held),
    ?assert(lists:member({role, hooks, lost}, After)).

%% As much waits as may: the next one is refused, and nothing was done.
overloaded_test() ->
    {S, _} = start(#{bounds => #{own_records_max => 1}}, #{}),
    {Waiting, [{call, _, {append, 0, _, _}}]} = handle(1, {propose, first, proposal()}, S),
    ?assertMatch({_, [{answer, second, {error, {overloaded, 1000}}}]},
                 handle(2, {propose, second, proposal()}, Waiting)).

%% --- a core and an engine ------------------------------------------------------------------------

settings(Settings) ->
    maps:merge(#{name => <<"a">>, boot => <<1:64>>, head => 0, epoch => 0, graph => 0}, Settings).

%% All that it does until it waits, with the engine's answers; those that differ are given.
start(Settings, Answers) ->
    settle(handle(0, tick, halley_cluster_core:new(settings(Settings))), 0, Answers).

handle(Now, Event, S) ->
    halley_cluster_core:handle({Now, Event}, S).

settle({S, Effects}, Now, Answers) ->
    lists:foldl(fun({call, Ref, Request}, {Each, All}) ->
                        case answer(Request, Answers) of
                            waits -> {Each, All};
                            Result ->
                                {Next, More} = settle(handle(Now, {result, Ref, Result}, Each),
                                                      Now, Answers),
                                {Next, All ++ More}
                        end;
                   (_, Sum) ->
                        Sum
                end, {S, Effects}, Effects).

answer(open, Answers) -> {ok, handle, maps:get(open, Answers, ?OPENED)};
answer({append, _, _, _}, _) -> {ok, 1};
answer({take, _, _, _, _}, Answers) -> maps:get(take, Answers, {held, 1});
answer({trim, _}, _) -> {ok, 0};
answer({brains, _}, Answers) -> maps:get(brains, Answers, {ok, [], 0});
answer({read, After, _}, Answers) ->
    case maps:get(rows, Answers, []) of
        waits -> waits;
        Rows -> {ok, [Row || #{prev := Prev} = Row <- Rows, Prev >= After]}
    end.

linked(S) ->
    element(1, handle(300, {link, <<"b">>, up}, S)).

row(Prev, Last) ->
    #{records := Records} = proposal(),
    #{prev => Prev, last => Last, at => 1, token => <<9:128>>,
      body => halley_cluster_records:body(1, [{<<8:128>>, Records}])}.

proposal() ->
    halley_cluster_records:proposal([{event, halley_event:draft(generated, <<"s">>, <<"1">>)}]).
