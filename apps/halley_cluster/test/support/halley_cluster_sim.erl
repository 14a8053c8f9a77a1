%% Plays several cores against `halley_cluster_model', with a network that delays, loses, doubles
%% and breaks, brains that crash, stand still and have clocks that jump. All by one seed, in virtual
%% time.
%%
%% A story has two parts. In the first, faults happen at random. Then all is well, and whatever
%% waits has to be answered; new proposals have to be accepted. `halley_cluster_check' judges each
%% step, and the end.
-module(halley_cluster_sim).

-export([run/1, run/2]).

-include("halley_cluster_sim.hrl").

-import(halley_cluster_check, [violation/1]).

-define(FAULTS_MS, 3500).
-define(CALM_MS, 7000).
-define(END_MS, 14000).

%% `ok' with what has happened, or what was violated.
-spec run(integer()) -> {ok, map()} | {violation, term()}.
run(Seed) ->
    run(Seed, #{}).

%% `Options': `mode', `brains', `lies' and `cut' in place of the seed's; `show' prints the story.
run(Seed, Options) ->
    _ = rand:seed(exsss, Seed),
    try
        {ok, (loop(start(Options)))#world.counts}
    catch
        throw:{violation, Reason} -> {violation, Reason}
    end.

start(Options) ->
    Count = maps:get(brains, Options, rand:uniform(5)),
    Names = [<<$a, ($0 + N)>> || N <- lists:seq(1, Count)],
    Mode = maps:get(mode, Options, oneof([sync, sync, async])),
    Engine = halley_cluster_model:new(Mode, maps:merge(lies(), maps:get(lies, Options, #{}))),
    World = #world{mode = Mode, engine = Engine, until = ?FAULTS_MS, options = Options,
                   loss = oneof([0, 0, 0.02, 0.2]), slow = oneof([0, 0, 0.02, 0.1]),
                   busy = oneof([5, 20, 60]), faults = oneof([60, 200, 600]),
                   window = oneof([3, 20, 1000])},
    Started = lists:foldl(fun boot/2, World, Names),
    Linked = lists:foldl(fun({A, B}, W) -> link(A, B, W) end, Started,
                         [{A, B} || A <- Names, B <- Names, A < B]),
    later(1, propose, later(rand:uniform(300), fault, later(?FAULTS_MS, calm, Linked))).

%% Each seed has some kinds of lies.
lies() ->
    maps:from_list([{Lie, oneof([0, 0, Some])}
                    || {Lie, Some} <- [{unknown_done, 0.1}, {unknown_late, 0.1},
                                       {unknown_never, 0.1}, {away, 0.05}, {early_lease, 0.2},
                                       {late_lease, 0.5}, {both_held, 0.3}, {hole, 1}]]).

boot(Name, #world{boots = Boots, brains = Brains, window = Window} = W) ->
    Before = maps:get(Name, Brains, #brain{name = Name}),
    #brain{head = Head, epoch = Epoch, graph = Graph} = Before,
    Core = halley_cluster_core:new(
        #{name => Name, boot => <<(Boots + 1):64>>, head => Head, epoch => Epoch, graph => Graph,
          roles => [hooks],
          bounds => halley_cluster_check:bounds(Window)}),
    Brain = Before#brain{core = Core, boot = Boots + 1, is_up = true, readiness = none,
                         mode = alone, opens = #{}, paused = 0, inbox = []},
    later(rand:uniform(20), {tick, Name, Boots + 1},
          W#world{boots = Boots + 1, brains = Brains#{Name => Brain}}).

%% --- time ----------------------------------------------------------------------------------------

later(Ms, What, #world{now = Now, n = N, queue = Queue} = W) ->
    W#world{n = N + 1, queue = gb_sets:add_element({Now + Ms, N, What}, Queue)}.

loop(#world{queue = Queue, until = Until} = W) ->
    {{At, _, What}, Rest} = gb_sets:take_smallest(Queue),
    Next = happen(What, W#world{now = At, queue = Rest}),
    case At > Until + ?CALM_MS andalso halley_cluster_check:is_done(Next) of
        true -> halley_cluster_check:final(Next);
        false when At > Until + ?END_MS ->
            violation({not_done, halley_cluster_check:waiting(Next)});
        false -> loop(Next)
    end.

happen({tick, Name, Boot}, W) ->
    tick(Name, Boot, W);
happen({wake, Name, Boot}, W) ->
    wake(Name, Boot, W);
happen({feed, Name, Boot, Event}, W) ->
    feed(Name, Boot, Event, W);
happen({engine, Name, Boot, Ref, Request, Opens}, W) ->
    engine(Name, Boot, Ref, Request, Opens, W);
happen({late, Stretch, Append}, #world{engine = Engine, now = Now} = W) ->
    W#world{engine = halley_cluster_model:late(Now, Stretch, Append, Engine)};
happen({message, From, To, Message, Link}, #world{links = Links} = W) ->
    case {Links, maps:get(To, W#world.brains)} of
        {#{{From, To} := Link}, #brain{is_up = true, boot = Boot}} ->
            feed(To, Boot, {message, From, Message}, W);
        _ ->
            count(messages_lost, W)
    end;
happen({link, A, B, Link, Up}, #world{links = Links} = W) ->
    case {Links, maps:get(A, W#world.brains)} of
        {#{{A, B} := Link}, #brain{is_up = true, boot = Boot}} -> feed(A, Boot, {link, B, Up}, W);
        _ -> W
    end;
happen({link_again, A, B, Link}, #world{links = Links, brains = Brains} = W) ->
    case {Links, maps:get(A, Brains), maps:get(B, Brains)} of
        {#{{A, B} := Link}, #brain{is_up = true}, #brain{is_up = true}} -> link(A, B, W);
        _ -> W
    end;
happen({boot, Name}, W) ->
    restart(Name, W);
happen(propose, #world{now = Now, until = Until} = W) when Now >= Until ->
    W;
happen(propose, #world{busy = Busy} = W) ->
    later(rand:uniform(2 * Busy), propose, propose(any(W), W));
happen(fault, #world{now = Now, until = Until} = W) when Now >= Until ->
    W;
happen(fault, #world{faults = Every} = W) ->
    later(rand:uniform(2 * Every), fault, halley_cluster_faults:fault(W, actions()));
happen(calm, W) ->
    Healed = halley_cluster_faults:heal(W, actions()),
    lists:foldl(fun(Name, Each) ->
                    later(?CALM_MS - 1000 + rand:uniform(500), {last, Name}, Each)
                end, Healed, maps:keys(W#world.brains));
happen({last, Name}, W) ->
    propose(Name, W);
happen({apart, A, B}, #world{silent = Silent} = W) ->
    W#world{silent = maps:remove({A, B}, Silent)}.

tick(Name, Boot, W) ->
    case brain(Name, Boot, W) of
        #brain{paused = Paused} when Paused > W#world.now ->
            later(Paused - W#world.now, {tick, Name, Boot}, W);
        #brain{core = Core} ->
            ok = halley_cluster_check:within_bounds(halley_cluster_core:info(Core), W),
            feed(Name, Boot, tick, later(40 + rand:uniform(40), {tick, Name, Boot}, W));
        gone ->
            W
    end.

wake(Name, Boot, #world{now = Now, brains = Brains} = W) ->
    case brain(Name, Boot, W) of
        gone ->
            W;
        #brain{paused = Paused} when Paused > Now ->
            later(Paused - Now, {wake, Name, Boot}, W);
        #brain{inbox = Inbox} = Brain ->
            lists:foldl(fun(Event, Each) -> feed(Name, Boot, Event, Each) end,
                        W#world{brains = Brains#{Name := Brain#brain{inbox = []}}},
                        lists:reverse(Inbox))
    end.

actions() ->
    #{later => fun later/3, link => fun link/3, unlink => fun unlink/3, restart => fun restart/2,
      count => fun count/2}.

any(#world{brains = Brains}) ->
    oneof(maps:keys(Brains)).

brain(Name, Boot, #world{brains = Brains}) ->
    case Brains of
        #{Name := #brain{is_up = true, boot = Boot} = Brain} -> Brain;
        _ -> gone
    end.

%% --- brains --------------------------------------------------------------------------------------

feed(Name, Boot, Event, #world{now = Now, brains = Brains} = W) ->
    case brain(Name, Boot, W) of
        gone ->
            W;
        #brain{inbox = [_ | _] = Inbox} = Brain when Event =/= tick ->
            W#world{brains = Brains#{Name := Brain#brain{inbox = [Event | Inbox]}}};
        #brain{paused = Paused} = Brain when Paused > Now, Event =/= tick ->
            later(Paused - Now, {wake, Name, Boot},
                  W#world{brains = Brains#{Name := Brain#brain{inbox = [Event]}}});
        #brain{core = Core, clock = Clock} = Brain ->
            {Next, Effects} = halley_cluster_core:handle({Now + Clock, Event}, Core),
            ok = show(Name, Event, Effects, W),
            lists:foldl(fun(Effect, Each) -> effect(Effect, Name, Boot, Each) end,
                        W#world{brains = Brains#{Name := Brain#brain{core = Next}}}, Effects)
    end.

show(Name, Event, Effects, #world{now = Now, options = #{show := true}}) when Effects =/= [];
                                                                              Event =/= tick ->
    io:format("~6b ~s ~0P~n          -> ~0P~n", [Now, Name, Event, 30, Effects, 40]);
show(_, _, _, _) ->
    ok.

effect({call, {Handle, N} = Ref, Request}, Name, Boot, #world{engine = Engine} = W) ->
    Opened = case Request of
        open -> update(Name, fun(#brain{opens = Opens} = B) -> B#brain{opens = Opens#{Handle => N}}
                             end, W);
        _ -> W
    end,
    #{Name := #brain{opens = #{Handle := Opens}}} = Opened#world.brains,
    Stretch = halley_cluster_model:stretch({Name, Boot, Handle, Opens}, Engine),
    later(delay(W), {engine, Name, Boot, Ref, Request, {Opens, Stretch}}, Opened);
effect({close, Handle}, Name, Boot, #world{engine = Engine, brains = Brains} = W) ->
    #{Name := #brain{opens = #{Handle := Opens}}} = Brains,
    W#world{engine = halley_cluster_model:close({Name, Boot, Handle, Opens}, Engine)};
effect({send, To, Message}, Name, _, W) ->
    send(Name, To, Message, W);
effect({claim, Token, Ids}, Name, Boot, #world{brains = Brains} = W) ->
    #{Name := #brain{ids = Known}} = Brains,
    Claimed = {claimed, Token, [Id || Id <- Ids, is_map_key(Id, Known)]},
    later(rand:uniform(3), {feed, Name, Boot, Claimed}, count(claims, W));
effect({members, _, _}, _, _, W) ->
    W;
effect(Effect, Name, _, W) ->
    halley_cluster_check:effect(Effect, Name, W).

update(Name, Fun, #world{brains = Brains} = W) ->
    #{Name := Brain} = Brains,
    W#world{brains = Brains#{Name := Fun(Brain)}}.

%% Comes back with what was durable, of which some of the newest rows may be missing, or anew.
restart(Name, W) ->
    #{Name := #brain{is_up = IsUp}} = W#world.brains,
    case IsUp of
        true -> W;
        false ->
            Back = case rand:uniform(3) of
                1 -> anew(Name, W);
                _ -> durable(Name, W)
            end,
            Booted = boot(Name, Back),
            Others = [Other || {Other, #brain{is_up = true}} <- maps:to_list(Booted#world.brains),
                               Other =/= Name],
            lists:foldl(fun(Other, Each) -> link(Name, Other, Each) end, count(restarts, Booted),
                        Others)
    end.

durable(Name, W) ->
    update(Name, fun(#brain{points = Points} = B) ->
                     Older = lists:nthtail(rand:uniform(min(3, length(Points))) - 1, Points),
                     halley_cluster_check:durable(B#brain{points = Older})
                 end, W).

%% With empty data, where `halley_cluster_joining' would have it begin.
anew(Name, #world{engine = Engine, now = Now} = W) ->
    case halley_cluster_model:open({Name, joining}, Now, Engine) of
        {{ok, _, #{floor := Floor, epochs := Epochs}}, Opened} ->
            [N | _] = [N || #{n := N, 'after' := After} <- Epochs, After =< Floor],
            Closed = W#world{engine = halley_cluster_model:close({Name, joining}, Opened)},
            count(anew, update(Name, fun(B) ->
                halley_cluster_check:durable(B#brain{points = [{Floor, N, 0, Floor, [], #{}}]})
            end, Closed));
        {{error, _}, _} ->
            durable(Name, W)
    end.

propose(Name, #world{asked = Asked, now = Now, brains = Brains} = W) ->
    #{Name := #brain{is_up = IsUp, boot = Boot}} = Brains,
    K = map_size(Asked) + 1,
    case IsUp of
        true ->
            Proposal = halley_cluster_records:proposal(records(K)),
            feed(Name, Boot, {propose, K, Proposal},
                 W#world{asked = Asked#{K => {Name, Boot, Now, maps:get(ids, Proposal)}}});
        false ->
            W
    end.

%% One to three records, with the proposal's number in one of them.
records(K) ->
    Data = integer_to_binary(K),
    First = case rand:uniform(6) of
        1 -> {event, halley_event:draft(<<"id", ($0 + rand:uniform(9))>>, <<"s">>, Data)};
        2 -> {event, {private, halley_event:private(generated, [<<"u">>, <<"v">>], Data)}};
        3 -> {key, Data, <<"record">>};
        _ -> {event, halley_event:draft(generated, <<"s">>, Data)}
    end,
    case rand:uniform(3) of
        1 -> [First, {follow, <<"u">>, <<"s">>},
              {event, {keep, keep, halley_event:draft(generated, <<"t">>, <<"0">>)}}];
        _ -> [First]
    end.

%% --- the engine ----------------------------------------------------------------------------------

engine(Name, Boot, {Handle, _} = Ref, Request, {Opens, Stretch}, W) ->
    #world{engine = Engine, now = Now} = W,
    Id = {Name, Boot, Handle, Opens},
    IsThere = case brain(Name, Boot, W) of
        #brain{opens = #{Handle := Opens}} -> halley_cluster_model:stretch(Id, Engine) =/= none;
        _ -> false
    end,
    Answer = fun(Answered) -> answer(Name, Boot, Ref, Answered, W) end,
    case Request of
        open -> Answer(halley_cluster_model:open(Id, Now, Engine));
        %% Its handle was closed, or its brain has died, while it was on its way.
        {append, Prev, Token, Group} when not IsThere ->
            case rand:uniform(2) of
                1 -> later(rand:uniform(500), {late, Stretch, {Prev, Token, Group}}, W);
                2 -> W
            end;
        _ when not IsThere -> Answer({{error, away}, Engine});
        {append, Prev, Token, Group} ->
            case halley_cluster_model:append(Id, Now, {Prev, Token, Group}, Engine) of
                {{late, Ms, {Begun, Append}}, After} ->
                    answer(Name, Boot, Ref, {unknown, After}, later(Ms, {late, Begun, Append}, W));
                Answered ->
                    Answer(Answered)
            end;
        {read, After, _} -> Answer({halley_cluster_model:read(Id, Now, After, Engine), Engine});
        snapshot -> Answer({halley_cluster_model:snapshot(Now, Engine), Engine});
        {take, Role, Brain, Term, TtlMs} ->
            Answer(halley_cluster_model:take({Role, Brain, Term, TtlMs}, Now, Engine));
        {brains, _} -> Answer({halley_cluster_model:brains(Now, Engine), Engine});
        {trim, _} -> Answer({halley_cluster_model:floor(Now, Engine), Engine})
    end.

answer(Name, Boot, Ref, {Result, Engine}, W) ->
    later(delay(W), {feed, Name, Boot, {result, Ref, Result}},
          count(kind(Result), W#world{engine = Engine})).

kind({conflict, _}) -> conflicts;
kind(unknown) -> unknowns;
kind(ahead) -> aheads;
kind(too_old) -> too_olds;
kind(_) -> results.

%% --- the network ---------------------------------------------------------------------------------

delay(#world{slow = Slow, now = Now, until = Until}) ->
    case Now < Until andalso rand:uniform() < Slow of
        true -> rand:uniform(400);
        false -> rand:uniform(4)
    end.

send(From, To, Message, #world{links = Links, silent = Silent} = W) ->
    Loss = case W#world.now < W#world.until of
        true -> W#world.loss;
        false -> 0
    end,
    case Links of
        #{{From, To} := Link} when Link > 0, not is_map_key({From, To}, Silent) ->
            case {rand:uniform() < Loss, rand:uniform() < Loss} of
                {true, _} -> count(messages_lost, W);
                {_, true} -> later(delay(W), {message, From, To, Message, Link},
                                   later(delay(W), {message, From, To, Message, Link}, W));
                _ -> later(delay(W), {message, From, To, Message, Link}, W)
            end;
        _ -> W
    end.

%% A connection that is there has a positive number.
link(A, B, #world{links = Links, n = N} = W) ->
    Joined = W#world{n = N + 1, links = Links#{{A, B} => N + 1, {B, A} => N + 1}},
    later(delay(W), {link, A, B, N + 1, up}, later(delay(W), {link, B, A, N + 1, up}, Joined)).

unlink(A, B, #world{links = Links, n = N} = W) ->
    Apart = W#world{n = N + 1, links = Links#{{A, B} => -N - 1, {B, A} => -N - 1}},
    later(rand:uniform(200), {link, A, B, -N - 1, down},
          later(rand:uniform(200), {link, B, A, -N - 1, down}, Apart)).

count(What, #world{counts = Counts} = W) ->
    W#world{counts = maps:update_with(What, fun(C) -> C + 1 end, 1, Counts)}.

oneof(List) -> lists:nth(rand:uniform(length(List)), List).
