%% Judges a story of `halley_cluster_sim': each effect of a core as it comes, and the end.
%%
%% - The log is one chain, and has each proposal at most once, and each chosen id.
%% - A brain applies the log's rows, in order and without holes, each once. Its head and its epoch
%%   grow, unless it reports that rows were lost.
%% - A proposal has one answer. One that was answered with `ok' is in the log, at the place that the
%%   answer named, unless a later epoch's `after' lies before it. With a synchronous standby there
%%   is no such epoch. One that was refused isn't in the log.
%% - When all is well, the brains have the whole log, one of them orders, the others follow, and
%%   proposals are accepted.
%% - Nothing is beyond its bound.
-module(halley_cluster_check).

-export([bounds/1, effect/3, within_bounds/2, is_done/1, waiting/1, final/1, violation/1,
         durable/1]).

-include("halley_cluster_sim.hrl").

%% After that long without faults no older proposal waits, and none is refused.
-define(RECOVERED_MS, 5900).

violation(Reason) -> throw({violation, Reason}).

check(true, _) -> ok;
check(false, Reason) -> violation(Reason).

%% Small ones, so that they are met.
bounds(Window) ->
    #{own_records_max => 40, own_bytes_max => 4000, queue_records_max => 60,
      queue_bytes_max => 5000, group_records_max => 8, group_bytes_max => 600,
      window_tokens_max => Window, trim_every_ms => 700}.

within_bounds(#{own := Own, queue := Queue, window := Tokens}, #world{window = Window}) ->
    #{records := Records, bytes := Bytes} = Own,
    #{records := Waiting, bytes := WaitingBytes} = Queue,
    check(Records =< 40 andalso Bytes =< 4000 andalso Waiting =< 60 andalso WaitingBytes =< 5000
              andalso Tokens =< Window, {beyond_bounds, Own, Queue, Tokens}).

%% --- effects -------------------------------------------------------------------------------------

effect({answer, K, Answer}, Name, #world{answered = Answered, asked = Asked, now = Now} = W) ->
    #{Name := #brain{epoch = Epoch}} = W#world.brains,
    check(is_map_key(K, Asked), {answer_to_nothing, K}),
    check(not is_map_key(K, Answered), {two_answers, K}),
    IsLate = Now > W#world.until + ?RECOVERED_MS,
    #{K := {_, _, Since, _}} = Asked,
    case Answer of
        {error, Error} when IsLate -> violation({refused_when_all_is_well, K, Error, Name});
        _ when IsLate, Since < W#world.until -> violation({late, K, Answer});
        _ -> ok
    end,
    count(answer_kind(Answer), W#world{answered = Answered#{K => {Now, Epoch, Answer}}});
effect({apply, Row, #{n := N}, Portions, How}, Name, W) ->
    #{prev := Prev, last := Last, token := Token, body := Body} = Row,
    #brain{head = Head, epoch = Epoch, graph = Graph, applied = Applied, ids = Ids} = Brain =
        maps:get(Name, W#world.brains),
    check(Prev =:= Head, {out_of_order, Name, Head, Row}),
    check(is_map_key({Prev, Token, Body}, halley_cluster_model:all(W#world.engine)),
          {invented, Name, Row}),
    check(N =:= Epoch, {wrong_epoch, Name, N, Epoch}),
    check((How =:= history) =:= (Last =< Graph), {wrong_part, Name, How}),
    check(Brain#brain.state =:= whole, {applied_while_copying, Name}),
    set(Name, point(Brain#brain{head = Last, applied = [Row | Applied],
                                ids = ids(Portions, Ids)}), W);
effect({epoch, #{n := N, 'after' := After}}, Name, W) ->
    #brain{epoch = Epoch, head = Head} = Brain = maps:get(Name, W#world.brains),
    check(N > Epoch, {epoch_shrinks, Name, Epoch, N}),
    check(After =< Head, {epoch_too_early, Name, After, Head}),
    set(Name, point(Brain#brain{epoch = N}), W);
effect({wipe, Reason}, Name, W) ->
    #brain{head = Head, state = State} = Brain = maps:get(Name, W#world.brains),
    Wiped = case State of
        {wiped, _, _} = Before when Reason =:= too_old -> Before;
        {wiped, _, Before} -> {wiped, Reason, Before};
        whole -> {wiped, Reason, Head}
    end,
    count(case Reason of too_old -> wipes_too_old; _ -> wipes_lost end,
          set(Name, Brain#brain{state = Wiped, head = 0, applied = [], ids = #{}, epoch = 0,
                                points = [{0, 0, 0, 0, [], #{}}]}, W));
effect({load, Floor, At}, Name, W) ->
    #brain{state = State} = Brain = maps:get(Name, W#world.brains),
    case State of
        {wiped, too_old, Before} -> check(Floor >= Before, {head_shrinks, Name, Before, Floor});
        {wiped, {lost, _}, _} -> ok;
        whole -> violation({load_without_wipe, Name})
    end,
    set(Name, Brain#brain{state = whole, head = Floor, start = Floor, graph = At}, W);
effect({mode, Mode}, Name, #world{brains = Brains} = W) ->
    #{Name := Brain} = Brains,
    Kind = case Mode of ordering -> orderers; _ -> modes end,
    count(Kind, set(Name, Brain#brain{mode = Mode}, W));
effect({readiness, Readiness}, Name, #world{brains = Brains} = W) ->
    #{Name := Brain} = Brains,
    set(Name, Brain#brain{readiness = Readiness}, W);
effect({role, hooks, _}, _, W) ->
    W.

answer_kind({ok, _}) -> accepted;
answer_kind({error, {Reason, _}}) -> Reason.

set(Name, Brain, #world{brains = Brains} = W) ->
    W#world{brains = Brains#{Name := Brain}}.

point(#brain{points = Points, head = Head, epoch = Epoch, graph = Graph, start = Start} = B) ->
    Point = {Head, Epoch, Graph, Start, B#brain.applied, B#brain.ids},
    B#brain{points = lists:sublist([Point | Points], 4)}.

%% As it is after a crash, by the newest of its points.
durable(#brain{points = [{Head, Epoch, Graph, Start, Applied, Ids} | _]} = Brain) ->
    Brain#brain{head = Head, epoch = Epoch, graph = Graph, start = Start, applied = Applied,
                ids = Ids, state = whole}.

ids(Portions, Ids) ->
    lists:foldl(fun(Id, All) -> All#{Id => true} end, Ids, chosen(Portions)).

chosen(Portions) ->
    [Id || {_, Records} <- Portions, {event, {Id, _, _, _}} <- Records, is_binary(Id)].

count(What, #world{counts = Counts} = W) ->
    W#world{counts = maps:update_with(What, fun(C) -> C + 1 end, 1, Counts)}.

%% --- the end -------------------------------------------------------------------------------------

is_done(#world{brains = Brains, engine = Engine} = W) ->
    Last = halley_cluster_model:last(Engine),
    Orderers = [Name || {Name, #brain{mode = ordering}} <- maps:to_list(Brains)],
    unanswered(W) =:= []
        andalso length(Orderers) =:= 1
        andalso lists:all(fun(#brain{name = Name, head = Head, readiness = Ready, mode = Mode}) ->
                              Expected = case Orderers of
                                  [Name] -> ordering;
                                  [Other] -> {following, Other}
                              end,
                              Head =:= Last andalso Ready =:= ready andalso Mode =:= Expected
                          end, maps:values(Brains)).

unanswered(#world{asked = Asked, answered = Answered, brains = Brains}) ->
    [K || {K, {Name, Boot, _, _}} <- maps:to_list(Asked), not is_map_key(K, Answered),
          (maps:get(Name, Brains))#brain.boot =:= Boot].

waiting(#world{brains = Brains, engine = Engine} = W) ->
    {{unanswered, unanswered(W)}, {last, halley_cluster_model:last(Engine)},
     [{Name, Mode, Head, Ready, Core =/= none andalso halley_cluster_core:info(Core)}
      || #brain{name = Name, mode = Mode, head = Head, readiness = Ready, core = Core}
             <- maps:values(Brains)]}.

final(#world{engine = Engine, brains = Brains} = W) ->
    Rows = halley_cluster_model:rows(Engine),
    one_chain(0, Rows),
    Decoded = [begin
                   {ok, _, Portions} = halley_cluster_records:decode(Body),
                   {Row, Portions}
               end || #{body := Body} = Row <- Rows],
    once(proposal, [Token || {_, Portions} <- Decoded, {Token, _} <- Portions]),
    Ids = [Id || {_, Portions} <- Decoded, Id <- chosen(Portions)],
    %% A brain that copies knows the ids of the retention alone.
    _ = is_map_key(trim, W#world.counts) orelse once(chosen_id, Ids),
    lists:foreach(fun(Brain) -> same(Brain, Rows) end, maps:values(Brains)),
    answers(places(Decoded), maps:from_keys(Ids, true), W),
    W.

one_chain(_, []) -> ok;
one_chain(Head, [#{prev := Head, last := Last} | Rest]) when Last > Head -> one_chain(Last, Rest);
one_chain(Head, [Row | _]) -> violation({no_chain, Head, Row}).

once(What, Names) ->
    check(length(lists:usort(Names)) =:= length(Names), {twice, What, Names -- lists:usort(Names)}).

same(#brain{name = Name, start = Start, applied = Applied}, Rows) ->
    Expected = [Row || #{prev := Prev} = Row <- Rows, Prev >= Start],
    check(lists:reverse(Applied) =:= Expected, {differs, Name}).

%% Where the log has each proposal of the story, by the number in its first record.
places(Decoded) ->
    maps:from_list([{Number, Place} || {#{prev := Prev} = Row, Portions} <- Decoded,
                                       {Number, Place} <- places(Prev, Row, Portions)]).

places(_, _, []) ->
    [];
places(Before, #{last := Last, at := At} = Row, [{_, Records} | Rest]) ->
    Next = Before + lists:sum([halley_cluster_records:seqs(Record) || Record <- Records]),
    [{number(hd(Records)), {Before, Last, At, Records}} | places(Next, Row, Rest)].

number({event, {private, {private, _, _, Data}}}) -> binary_to_integer(Data);
number({event, {_, _, _, Data}}) -> binary_to_integer(Data);
number({key, Number, _}) -> binary_to_integer(Number);
number(Record) -> Record.

answers(Places, Ids, #world{answered = Answered} = W) ->
    maps:foreach(fun(K, Answer) -> answered(K, Answer, Places, Ids, W) end, Answered).

%% Its first record can't be found by number.
answered(_, {_, _, {ok, #{records := [{known, Id} | _], before := Before}}}, _, Ids, W) ->
    check(is_map_key(Id, Ids) orelse is_lost(Before, 0, W), {known_of_nothing, Id});
answered(K, {_, Epoch, {ok, Place}}, Places, _, W) ->
    #{before := Before, last := Last, at := At, records := Records} = Place,
    case Places of
        #{K := {Before, Last, At, Records}} -> ok;
        _ -> check(is_lost(Last, Epoch, W), {lost, K, {Before, Last}, W#world.mode})
    end;
answered(K, {_, _, {error, {Reason, _}}}, Places, _, _) when Reason =/= log_unknown ->
    check(not is_map_key(K, Places), {refused_but_there, K});
answered(_, _, _, _, _) ->
    ok.

is_lost(Last, Epoch, #world{mode = async, engine = Engine}) ->
    lists:any(fun(#{n := N, 'after' := After}) -> N > Epoch andalso After < Last end,
              halley_cluster_model:epochs(Engine));
is_lost(_, _, _) ->
    false.
