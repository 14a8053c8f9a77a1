%% The core in stories of `halley_cluster_sim': some, in which nothing is violated; and with planted
%% faults, of the core and of the engine, which have to be found.
-module(halley_cluster_simulator_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SEEDS, 60).
%% A failover that loses an answered row is rare.
-define(SEEDS_OF_A_FAULT, 2000).

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
                                 too_olds, wipes_too_old, wipes_lost, restarts, anew,
                                 claims, failover],
                        maps:get(What, Counts, 0) < 3],
        ?assertEqual({[], Counts}, {Rare, Counts})
    end}.

%% --- planted faults ------------------------------------------------------------------------------

lies_test_() ->
    [{timeout, 300, {Name, fun() -> found(Expected, Options) end}}
     || {Name, Expected, Options} <- lies()].

%% With what the checker has to say of each.
lies() ->
    [{"a group that is doubled", [twice], #{lies => #{doubled => 0.02}}},
     {"rows that are cut out of the middle", [refused_when_all_is_well, no_chain], #{cut => true}},
     {"a row that isn't there after ok",
      [no_chain, lost, refused_when_all_is_well], #{lies => #{unkept => 0.02}}}].

mutants_test_() ->
    [{timeout, 300, {Name, fun() ->
                               halley_cluster_mutant:with(Module, Changes, fun() ->
                                   found(Expected, #{})
                               end)
                           end}}
     || {Name, Expected, Module, Changes} <- mutants()].

mutants() ->
    [{"an answer before the commit", [lost], halley_cluster_proposals,
      [{"update(Tokens, fun(Open) -> Open#open{exposed = true} end, P).",
        "lists:foldl(fun(Token, Each) ->"
        "    place(Token, #{before => 0, at => 0, records => [], last => 0}, Each)"
        "end, P, Tokens)."}]},
     {"an answer straight after a failover", [lost], halley_cluster_log,
      [{"certain(table, _, #core{reader = Reader} = S) ->",
        "certain(table, L, S) -> safe(L, S); certain(_, _, #core{reader = Reader} = S) ->"}]},
     {"rows out of order", [out_of_order], halley_cluster_reader,
      [{"_ when Prev > Head; Reader#reader.phase =/= reading -> later;",
        "_ when Reader#reader.phase =/= reading -> later;"},
       {"_ when Prev =:= Head -> decoded(", "_ when Prev >= Head -> decoded("}]},
     {"a proposal that is lost when its orderer dies",
      [refused_when_all_is_well, late], halley_cluster_talk,
      [{"send_due(halley_cluster_log:waiting(Changed)).",
        "Changed#core{proposals = Proposals}."},
       {"#{resend_ms := Ms}}) -> {Now, Ms}.", "#{resend_ms := Ms}}) -> {Now, 1000 * Ms}."}]},
     {"a proposal that is in the log twice", [twice], halley_cluster_window,
      [{"true -> present;", "true -> absent;"}]},
     {"a window that forgets", [twice], halley_cluster_window,
      [{"false when Base >= Floor -> absent;", "false when Base + Floor >= 0 -> absent;"}]},
     {"an unknown outcome that counts as done",
      [refused_when_all_is_well, late], halley_cluster_orderer,
      [{"O#orderer{group = Group#group{stage = ready, attempted = true}};",
        "_ = Group, O#orderer{group = none};"}]},
     {"a conflict that counts as done", [refused_when_all_is_well, late], halley_cluster_orderer,
      [{"O#orderer{group = Group#group{stage = blocked}};",
        "_ = Group, O#orderer{group = none};"}]},
     {"an answer for a row that the log has lost", [lost], halley_cluster_log,
      [{"halley_cluster_proposals:lost(After, Proposals)", "begin _ = After, Proposals end"}]},
     {"an answer before the whole row is safe", [lost], halley_cluster_log,
      [{"records => Records, last => Last}", "records => Records, last => Before + Seqs}"}]},
     {"a brain that keeps rows which the log has lost",
      [refused_when_all_is_well, no_chain], halley_cluster_reader,
      [{"After when After < Known -> lost(After, Reader);", ""}]},
     {"chosen ids without a look into the history", [twice], halley_cluster_orderer,
      [{"{claim, maps:keys(Ids), group(Prev, Token, Entries, claiming, Rest)};",
        "{ready, group(Prev, Token, Entries, ready, Rest)};"}]}].

%% By the first story that it spoils, and as what it is.
found(Expected, Options) ->
    {violation, Reason} = first(1, Options),
    ?assert(lists:member(element(1, Reason), Expected), Reason).

first(Seed, _) when Seed > ?SEEDS_OF_A_FAULT ->
    nothing_found;
first(Seed, Options) ->
    case halley_cluster_sim:run(Seed, Options) of
        {ok, _} -> first(Seed + 1, Options);
        Violation -> Violation
    end.
