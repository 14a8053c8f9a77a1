%% The faults of a story of `halley_cluster_sim'.
-module(halley_cluster_faults).

-export([fault/2, heal/2]).

-include("halley_cluster_sim.hrl").

%% One fault, by chance. `Actions': what the simulator does with links, brains and time.
fault(#world{now = Now, engine = Engine, brains = Brains} = W, #{count := Count} = Actions) ->
    Name = oneof(maps:keys(Brains)),
    Kind = oneof([failover, away, trim, crash, crash, crash, break, break, break, silence, silence,
                  pause, clock, failover, cut]),
    Done = case Kind of
        failover ->
            %% Behind a pooler handles may not notice.
            Failed = halley_cluster_model:fail_over(Engine),
            AwayMs = oneof([0, rand:uniform(800)]),
            W#world{engine = halley_cluster_model:away(Now + AwayMs, Failed)};
        away ->
            W#world{engine = halley_cluster_model:away(Now + rand:uniform(2500), Engine)};
        trim ->
            W#world{engine = halley_cluster_model:trim(Engine)};
        crash ->
            crash(orderer_or(Name, W), Actions, W);
        break ->
            break(Name, oneof(maps:keys(Brains)), Actions, W);
        silence ->
            Other = oneof(maps:keys(Brains)),
            Ms = rand:uniform(4000),
            (maps:get(later, Actions))(
                Ms, {apart, Name, Other},
                W#world{silent = (W#world.silent)#{{Name, Other} => true}});
        pause ->
            Until = min(Now + rand:uniform(5000), W#world.until),
            brain(Name, fun(B) -> B#brain{paused = max(B#brain.paused, Until)} end, W);
        clock ->
            Jump = oneof([-3600000, -5000, -200, 200, 3000, 12000]),
            brain(Name, fun(#brain{clock = Clock} = B) -> B#brain{clock = Clock + Jump} end, W);
        %% Planted alone.
        cut ->
            case W#world.options of
                #{cut := true} -> W#world{engine = halley_cluster_model:cut(Engine)};
                _ -> W
            end
    end,
    Count(Kind, Done).

%% Twice as often the one that orders.
orderer_or(Name, #world{brains = Brains}) ->
    case [N || {N, #brain{mode = ordering, is_up = true}} <- maps:to_list(Brains)] of
        [] -> Name;
        Ordering -> oneof([Name, oneof(Ordering)])
    end.

brain(Name, Fun, #world{brains = Brains} = W) ->
    #{Name := Brain} = Brains,
    W#world{brains = Brains#{Name := Fun(Brain)}}.

crash(Name, #{later := Later, unlink := Unlink}, #world{brains = Brains} = W) ->
    case Brains of
        #{Name := #brain{is_up = true}} ->
            Down = brain(Name, fun(B) -> B#brain{is_up = false, core = none} end, W),
            Apart = lists:foldl(fun(Other, Each) -> Unlink(Name, Other, Each) end, Down,
                                maps:keys(Brains) -- [Name]),
            Later(rand:uniform(3000), {boot, Name}, Apart);
        _ ->
            W
    end.

break(Name, Name, _, W) ->
    W;
break(A, B, #{later := Later, unlink := Unlink}, W) ->
    #world{links = #{{A, B} := Link}} = Apart = Unlink(A, B, W),
    Later(250 + rand:uniform(3000), {link_again, A, B, Link}, Apart).

%% All is well from now on.
heal(#world{engine = Engine, brains = Brains} = W, #{restart := Restart, link := Link}) ->
    Names = maps:keys(Brains),
    Honest = W#world{silent = #{}, engine = halley_cluster_model:honest(Engine)},
    Up = lists:foldl(Restart, Honest, Names),
    lists:foldl(fun({A, B}, Each) ->
                    case Each#world.links of
                        #{{A, B} := Number} when Number > 0 -> Each;
                        _ -> Link(A, B, Each)
                    end
                end, Up, [{A, B} || A <- Names, B <- Names, A < B]).

oneof(List) -> lists:nth(rand:uniform(length(List)), List).
