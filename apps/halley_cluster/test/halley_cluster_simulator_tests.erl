%% The core in stories of `halley_cluster_sim': some, in which nothing is violated; and with planted
%% faults, of the core and of the engine, which have to be found.
-module(halley_cluster_simulator_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SEEDS, 60).

stories_test_() ->
    {timeout, 300, fun() ->
                       [?assertMatch({Seed, {ok, _}}, {Seed, halley_cluster_sim:run(Seed)})
                        || Seed <- lists:seq(1, ?SEEDS)]
                   end}.

%% The same seed is the same story.
repeated_test_() ->
    {timeout, 60, fun() ->
                      ?assertEqual(halley_cluster_sim:run(7), halley_cluster_sim:run(7))
                  end}.

%% Each kind of thing that the stories are about happens in them.
coverage_test_() ->
    {timeout, 300, fun() ->
        Counts = lists:foldl(fun(Seed, Sum) ->
                                 {ok, Counts} = halley_cluster_sim:run(Seed),
                                 maps:merge_with(fun(_, A, B) -> A + B end, Sum, Counts)
                             end, #{}, lists:seq(1001, 1000 + ?SEEDS)),
        Rare = [What || What <- [accepted, log_unknown, log_away, overloaded, conflicts, unknowns,
                                 too_olds, wipes_too_old, wipes_lost, restarts, claims,
                                 failover],
                        maps:get(What, Counts, 0) < 3],
        ?assertEqual({[], Counts}, {Rare, Counts})
    end}.

%% --- planted faults ------------------------------------------------------------------------------

lies_test_() ->
    [{timeout, 300, {Name, fun() -> found(Options) end}}
     || {Name, Options} <- [{"a group that is doubled", #{lies => #{doubled => 0.02}}},
                            {"rows that are cut out of the middle", #{cut => true}},
                            {"a row that isn't there after ok", #{lies => #{unkept => 0.02}}}]].

mutants_test_() ->
    [{timeout, 300, {Name, fun() ->
                               halley_cluster_mutant:with(Module, Changes, fun() -> found(#{}) end)
                           end}}
     || {Name, Module, Changes} <- mutants()].

mutants() ->
    [{"an answer before the commit", halley_cluster_proposals,
      [{"update(Tokens, fun(Open) -> Open#open{exposed = true} end, P).",
        "lists:foldl(fun(Token, Each) ->"
        "    place(Token, #{before => 0, at => 0, records => [], last => 0}, Each)"
        "end, P, Tokens)."}]},
     {"an answer straight after a failover", halley_cluster_log,
      [{"certain(table, _, #core{reader = Reader} = S) ->",
        "certain(table, L, S) -> safe(L, S); certain(_, _, #core{reader = Reader} = S) ->"}]},
     {"rows out of order", halley_cluster_reader,
      [{"_ when Prev > Head; Reader#reader.phase =/= reading -> later;",
        "_ when Reader#reader.phase =/= reading -> later;"},
       {"_ when Prev =:= Head -> decoded(", "_ when Prev >= Head -> decoded("}]},
     {"a proposal that is lost when its orderer dies", halley_cluster_talk,
      [{"send_due(halley_cluster_log:waiting(Changed)).",
        "Changed#core{proposals = Proposals}."},
       {"#{resend_ms := Ms}}) -> {Now, Ms}.", "#{resend_ms := Ms}}) -> {Now, 1000 * Ms}."}]},
     {"a proposal that is in the log twice", halley_cluster_window,
      [{"true -> present;", "true -> absent;"}]},
     {"a window that forgets", halley_cluster_window,
      [{"false when Base >= Floor -> absent;", "false when Base + Floor >= 0 -> absent;"}]},
     {"an unknown outcome that counts as done", halley_cluster_orderer,
      [{"O#orderer{group = Group#group{stage = ready, attempted = true}};",
        "_ = Group, O#orderer{group = none};"}]},
     {"a conflict that counts as done", halley_cluster_orderer,
      [{"O#orderer{group = Group#group{stage = blocked}};",
        "_ = Group, O#orderer{group = none};"}]},
     {"an answer for a row that the log has lost", halley_cluster_log,
      [{"halley_cluster_proposals:lost(After, Proposals)", "begin _ = After, Proposals end"}]},
     {"an answer before the whole row is safe", halley_cluster_log,
      [{"records => Records, last => Last}", "records => Records, last => Before + Seqs}"}]},
     {"a brain that keeps rows which the log has lost", halley_cluster_reader,
      [{"After when After < Known -> lost(After, Reader);", ""}]},
     {"chosen ids without a look into the history", halley_cluster_orderer,
      [{"{claim, maps:keys(Ids), group(Prev, Token, Entries, claiming, Rest)};",
        "{ready, group(Prev, Token, Entries, ready, Rest)};"}]}].

found(Options) ->
    ?assertMatch({violation, _}, first(1, Options)).

first(Seed, _) when Seed > 400 ->
    nothing_found;
first(Seed, Options) ->
    try halley_cluster_sim:run(Seed, Options) of
        {ok, _} -> first(Seed + 1, Options);
        Violation -> Violation
    catch
        %% The core's own assertions find some.
        error:Reason -> {violation, Reason}
    end.
