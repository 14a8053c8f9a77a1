%% `./halley repair': says what is damaged in the store of ids and follows, what can be saved, and
%% saves it (`halley_store_repair'), while no brain runs (`halley_command').
%%
%% The exit status is 0 if the store can be opened afterwards; for `--dry-run', if it could be after
%% a repair.
-module(halley_store_repair_command).

-export([main/0, text/2]).

-define(USAGE, "usage: ./halley repair [--dry-run]").
-define(FIRST, 20).

-spec main() -> no_return().
main() ->
    AreKnown = fun(Arguments) -> lists:member(Arguments, [[], ["--dry-run"]]) end,
    {_, IsTerminal, Arguments} = halley_command:start("repair", ?USAGE, AreKnown),
    run(Arguments =/= [], IsTerminal).

-spec run(IsDry :: boolean(), IsTerminal :: boolean()) -> no_return().
run(IsDry, IsTerminal) ->
    _ = name_node(),
    Repair = fun(P) -> halley_store_repair:run(#{dry_run => IsDry, progress => P}) end,
    case halley_command:with_progress(IsTerminal, Repair) of
        {ok, Found} ->
            io:put_chars([[Line, $\n] || Line <- text(Found, IsDry)]),
            halt(0);
        {error, Line} ->
            halley_command:failed(Line)
    end.

%% The store of a build before belongs to the node that made it.
name_node() ->
    {ok, Name} = application:get_env(halley, node_name),
    net_kernel:start(Name, #{name_domain => longnames, dist_listen => false, hidden => true}).

%% Lines for a person.
-spec text(halley_store_repair:result(), IsDry :: boolean()) -> [unicode:chardata()].
text(empty, _) ->
    ["There are no ids or follows yet: nothing to repair."];
text({whole, Counts, #{made_up := MadeUp, is_noted := IsNoted}}, IsDry) ->
    [["The store is whole: ", counts(Counts), "."]]
    ++ [["Damaged, but other files have what it held: ", File,
         ". The next checkpoint takes its place."] || File <- MadeUp]
    ++ ["follows.position was damaged, so a lost end of the journal would not show. " ++
        case IsDry of true -> "A repair writes it anew."; false -> "It was written anew." end
        || not IsNoted];
text({taken_over, whole}, _) ->
    ["The store of the build before is whole. The next start takes it over."];
text({taken_over, {Counts, Dropped}}, IsDry) ->
    ["The two directions of the store of the build before, or its ids, disagree. A follow that "
     "either direction has is kept."]
    ++ dropped(Dropped)
    ++ [saved(Counts, IsDry),
        case IsDry of
            true -> nothing_changed();
            false -> "It was taken over; the old files are in mnesia-taken-over."
        end];
text({repaired, Counts, Finding, Aside}, IsDry) ->
    #{files := Files, missing := Missing, unknown := Unknown, concerned := Concerned,
      dropped := Dropped, is_noted := IsNoted} = Finding,
    Lost = groups(Missing) ++ unreadable(Unknown, Concerned) ++ dropped(Dropped)
        ++ ["May be lost: the end of the journal. follows.position, which would tell, is missing "
            "or damaged." || not IsNoted],
    [refusal(Finding) | [["Damaged: ", Path, " ", Text, "."] || {Path, Text} <- Files]]
    ++ [saved(Counts, IsDry)]
    ++ case Lost of [] -> ["Nothing is lost."]; _ -> Lost end
    ++ [case IsDry of
            true -> nothing_changed();
            false -> ["A new store was written. The damaged files are kept in ", Aside,
                      "; remove them when you need them no more."]
        end].

%% What the start says, but for what to do.
refusal(#{refusal := Line}) ->
    [What | _] = binary:split(Line, <<"; `./halley repair`">>),
    ["A start is refused: ", What, "."].

nothing_changed() -> "Nothing was changed. `./halley repair` does it.".

saved(Counts, true) -> ["Can be saved: ", counts(Counts), "."];
saved(Counts, false) -> ["Saved: ", counts(Counts), "."].

counts(#{ids := Ids, follows := Follows}) -> io_lib:format("~b ids and ~b follows", [Ids, Follows]).

%% --- what is lost --------------------------------------------------------------------------------

groups([]) ->
    [];
groups(Missing) ->
    Count = lists:sum([To - From + 1 || {From, To} <- Missing]),
    [io_lib:format("Lost: ~b groups of changes (numbers ~ts). Follows that they added are missing, "
                   "and follows that they ended are back. Each had the requests of some "
                   "milliseconds.", [Count, ranges(Missing)])].

ranges(Ranges) ->
    Texts = [case Range of
                 {N, N} -> integer_to_list(N);
                 {From, To} -> io_lib:format("~b to ~b", [From, To])
             end || Range <- lists:sublist(Ranges, ?FIRST)],
    lists:join(", ", Texts ++ more(length(Ranges))).

more(Count) when Count > ?FIRST -> [io_lib:format("and ~b more", [Count - ?FIRST])];
more(_) -> [].

unreadable(_, none) ->
    [];
unreadable(#{ids := Ids}, {{Users, UserIds}, {Subjects, SubjectIds}}) ->
    ["Lost: ids that users or subjects had." || Ids =/= []]
    ++ [["May be lost: follows in a part of a checkpoint that nothing else has, of ",
         named("users", Users, UserIds), ", about ", named("subjects", Subjects, SubjectIds), "."]
        || Users > 0, Subjects > 0].

named(What, Count, []) -> io_lib:format("~b ~ts", [Count, What]);
named(What, Count, Ids) ->
    io_lib:format("~b ~ts (~ts)", [Count, What, lists:join(", ", Ids ++ more(Count))]).

dropped(#{count := 0}) ->
    [];
dropped(#{count := Count, users := {Users, UserIds}, subjects := {Subjects, SubjectIds}}) ->
    [["Lost: ", integer_to_list(Count), " follows with a user or a subject whose id can't be read. "
      "Known of them: ", named("users", Users, UserIds), ", ",
      named("subjects", Subjects, SubjectIds), "."]].
