%% An engine for the simulator: the log of a service that fails, and that lies where an engine may.
%%
%% It keeps one chain. As a table with the key `prev' does, it takes any row whose `prev' no row
%% has; so a core that appends past the end, or in the middle, breaks the chain, and the checker
%% sees it. A row is *kept* once a standby has it. An append is answered with `ok' only when its row
%% is kept; one that was cut off may be there without being kept.
%%
%% A failover begins a stretch: the chain is cut somewhere after what is kept (`sync'), or anywhere
%% (`async'). The first `open' of a stretch begins its epoch.
%%
%% Random numbers come from the process's generator, which the simulator seeds.
-module(halley_cluster_model).

-export([new/2, open/3, close/2, append/4, late/4, read/4, snapshot/2, take/3, brains/2, floor/2]).
-export([fail_over/1, away/2, trim/1, cut/1, honest/1, last/1, rows/1, all/1, epochs/1, stretch/2]).

-record(engine, {
    mode :: sync | async,
    lies = #{} :: #{atom() => number()},
    rows = [] :: [map()],                     % the newest first
    floor = 0,
    stretch = 1,
    epochs = [#{n => 1, store => 1, 'after' => 0}],
    epoch_of = 1,                             % the stretch of the newest epoch
    kept = 0,
    at = 1000,
    away_until = 0,
    handles = #{},
    leases = #{},
    all = #{},                                % token and prev of every row there ever was
    archive = [] :: [map()]                   % rows that were trimmed, the newest first
}).

%% `Lies': probabilities of `unknown_done', `unknown_late', `unknown_never', `away', `early_lease',
%% `late_lease', `both_held', `hole'; and planted faults: `doubled', `unkept'.
new(Mode, Lies) ->
    #engine{mode = Mode, lies = Lies}.

chance(Lie, #engine{lies = Lies}) ->
    rand:uniform() < maps:get(Lie, Lies, 0).

is_away(Now, #engine{away_until = Until} = E) ->
    Now < Until orelse chance(away, E).

open(Handle, Now, E) ->
    case is_away(Now, E) of
        true -> {{error, away}, E};
        false ->
            #engine{stretch = Stretch} = Opened = epoch(E),
            {{ok, handle, #{last => last(Opened), floor => Opened#engine.floor,
                            epochs => Opened#engine.epochs, at => Opened#engine.at}},
             Opened#engine{handles = (Opened#engine.handles)#{Handle => Stretch}}}
    end.

epoch(#engine{stretch = Stretch, epoch_of = Stretch} = E) ->
    E;
epoch(#engine{stretch = Stretch, epochs = [#{n := N} | _] = Epochs} = E) ->
    E#engine{epoch_of = Stretch,
             epochs = [#{n => N + 1, store => N + 1, 'after' => last(E)} | Epochs]}.

close(Handle, #engine{handles = Handles} = E) ->
    E#engine{handles = maps:remove(Handle, Handles)}.

%% `{late, Ms}' beside `unknown': try `late/4' then.
append(Handle, Now, {Prev, Token, Group}, #engine{handles = Handles, stretch = Stretch} = E) ->
    case Handles of
        #{Handle := Stretch} ->
            case is_away(Now, E) of
                true -> {oneof([{error, away}, unknown]), E};
                false -> outcome(Now, {Prev, Token, Group}, E)
            end;
        #{Handle := _} -> {oneof([new_stretch, unknown]), E};
        _ -> {{error, away}, E}
    end.

outcome(Now, {Prev, Token, Group} = Append, E) ->
    case {chance(unknown_done, E), chance(unknown_late, E), chance(unknown_never, E)} of
        {true, _, _} ->
            {_, Done} = insert(Now, Prev, Token, Group, oneof([kept, visible]), E),
            {unknown, Done};
        {_, true, _} ->
            {{late, rand:uniform(3000), {E#engine.stretch, Append}}, E};
        {_, _, true} ->
            {unknown, E};
        _ ->
            insert(Now, Prev, Token, Group, kept, E)
    end.

%% An append that the service carries out long after its connection has gone.
late(Now, Stretch, {Prev, Token, Group}, #engine{stretch = Stretch} = E) ->
    element(2, insert(Now, Prev, Token, Group, oneof([kept, visible]), E));
late(_, _, _, E) ->
    E.

insert(Now, Prev, Token, #{last := Last, body := Body}, Kept, #engine{rows = Rows} = E) ->
    case Prev < E#engine.floor orelse [R || #{prev := P} = R <- Rows, P =:= Prev] =/= [] of
        true ->
            {{conflict, last(E)}, E};
        false ->
            At = max(E#engine.at, Now),
            Row = #{prev => Prev, last => Last, at => At, token => Token, body => Body},
            Inserted = E#engine{rows = [Row | Rows], at = At, all = all(Row, E)},
            {{ok, At}, planted(Row, kept(Kept, Last, Inserted))}
    end.

all(#{token := Token, prev := Prev, body := Body}, #engine{all = All}) ->
    All#{{Prev, Token, Body} => true}.

kept(visible, _, E) -> E;
kept(kept, Last, #engine{kept = Kept} = E) -> E#engine{kept = max(Kept, Last)}.

%% Faults of an engine that the checker has to find.
planted(#{prev := Prev, last := Last} = Row, E) ->
    case chance(doubled, E) of
        true ->
            Again = Row#{prev => Last, last => Last + Last - Prev, token => <<Last:128>>},
            kept(kept, Last + Last - Prev,
                 E#engine{rows = [Again | E#engine.rows], all = all(Again, E)});
        false ->
            case chance(unkept, E) andalso E#engine.rows of
                [_ | Before] -> E#engine{rows = Before};
                false -> E
            end
    end.

read(Handle, Now, After, #engine{handles = Handles, stretch = Stretch, rows = Rows} = E) ->
    IsOld = maps:get(Handle, Handles, none) =/= Stretch,
    case is_away(Now, E) orelse not is_map_key(Handle, Handles)
             orelse (IsOld andalso oneof([true, false])) of
        true -> {error, away};
        false when After < E#engine.floor -> too_old;
        false ->
            Behind = lists:reverse([R || #{prev := Prev} = R <- Rows, Prev >= After]),
            case {Behind, last(E)} of
                {[], After} -> {ok, []};
                {[#{prev := After} | _], _} -> {ok, lists:sublist(Behind, rand:uniform(10))};
                {[_ | _], _} ->
                    case chance(hole, E) of
                        true -> {ok, Behind};
                        false -> ahead
                    end;
                _ -> ahead
            end
    end.

snapshot(Now, E) ->
    case is_away(Now, E) of
        true -> {error, away};
        false -> {ok, last(E)}
    end.

take({Role, Brain, Term, TtlMs}, Now, #engine{leases = Leases} = E) ->
    case is_away(Now, E) of
        true ->
            {{error, away}, E};
        false ->
            Lease = maps:get(Role, Leases, {none, 0, 0}),
            {Holder, HeldTerm, Until} = Lease,
            IsOver = Now >= Until orelse chance(early_lease, E),
            Held = fun(T) ->
                Extra = case chance(late_lease, E) of true -> 1500; false -> 0 end,
                {{held, T},
                 E#engine{leases = Leases#{Role => {Brain, T, Now + TtlMs + Extra}}}}
            end,
            if
                Holder =:= Brain, HeldTerm =:= Term -> Held(Term);
                IsOver -> Held(HeldTerm + 1);
                true ->
                    case chance(both_held, E) of
                        true -> {{held, HeldTerm}, E};
                        false -> {{other, Holder, HeldTerm}, E}
                    end
            end
    end.

brains(Now, #engine{at = At} = E) ->
    case is_away(Now, E) of
        true -> {error, away};
        false -> {ok, [], max(At, Now)}
    end.

%% What a brain's trim finds; rows go by `trim/1'.
floor(Now, #engine{floor = Floor} = E) ->
    case is_away(Now, E) of
        true -> {error, away};
        false -> {ok, Floor}
    end.

fail_over(#engine{mode = Mode, rows = Rows, floor = Floor, kept = Kept} = E) ->
    Least = case Mode of
        sync -> Kept;
        async -> oneof([Kept, Floor])
    end,
    Ends = [Floor | [Last || #{last := Last} <- Rows]],
    Cut = oneof([End || End <- [lists:max(Ends) | Ends], End >= Least]),
    E#engine{stretch = E#engine.stretch + 1, rows = [R || #{last := Last} = R <- Rows, Last =< Cut],
             kept = min(Kept, Cut)}.

away(Until, E) -> E#engine{away_until = Until}.

%% Removes the oldest rows, but the newest ones.
trim(#engine{rows = Rows, kept = Kept} = E) when length(Rows) > 12 ->
    {New, Old} = lists:split(4 + rand:uniform(6), Rows),
    case Old of
        [#{last := Floor} | _] when Floor =< Kept ->
            E#engine{rows = New, floor = Floor, archive = Old ++ E#engine.archive};
        _ -> E
    end;
trim(E) ->
    E.

%% A planted fault: a row in the middle is gone.
cut(#engine{rows = Rows} = E) when length(Rows) > 4 ->
    {New, [_ | Old]} = lists:split(2, Rows),
    E#engine{rows = New ++ Old};
cut(E) ->
    E.

last(#engine{rows = [], floor = Floor}) -> Floor;
last(#engine{rows = [#{last := Last} | _]}) -> Last.

%% Oldest first, those that were trimmed as well.
rows(#engine{rows = Rows, archive = Archive}) -> lists:reverse(Rows ++ Archive).

all(#engine{all = All}) -> All.

epochs(#engine{epochs = Epochs}) -> Epochs.

%% Faults end, planted ones too.
honest(E) -> E#engine{lies = #{}, away_until = 0}.

stretch(Handle, #engine{handles = Handles}) -> maps:get(Handle, Handles, none).

oneof(List) -> lists:nth(rand:uniform(length(List)), List).
