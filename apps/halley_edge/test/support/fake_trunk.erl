%% The edge's side of a trunk for tests, with a fake_worker for each worker: it does with frames
%% what protocol/link.md 13 asks of an edge. It lives in the process of the test, as fake_worker
%% does.
%%
%% Checked all the way: frames of the trunk name slots that follow it alone, and the words of a slot
%% stand together.
-module(fake_trunk).

-export([hello/1, start/2, new/2, until/2, run/2, change/3, worker/2, all/1]).
-export([cut/1, gone/2, back/2, starve/1, feed/1, follows/2, slot/2, members/3, counts/1]).

-include_lib("stdlib/include/assert.hrl").
-include("halley_edge.hrl").
-include("halley_edge_wait.hrl").

hello(Workers) ->
    (fake_edge:hello())#{worker := ?TRUNK_WORKER, workers := Workers,
                         window := ?WINDOW_BYTES_MIN}.

start(Dir, Workers) ->
    fake_edge:start(halley_edge_dial:path(Dir), hello(Workers)).

new(Edge, Workers) ->
    #{edge => Edge, cursor => <<>>, slots => #{}, begun => #{}, follows => #{}, away => #{},
      members => #{}, counts => #{}, starving => false, owed => 0, linked => true,
      workers => maps:from_list([{W, fake_worker:new({trunk, Edge, W})}
                                 || W <- lists:seq(0, Workers - 1)])}.

worker(W, #{workers := Workers}) -> maps:get(W, Workers).

all(#{workers := Workers}) -> maps:to_list(Workers).

%% Does something as a worker: opens, closes.
change(W, Change, Trunk = #{workers := Workers}) ->
    Trunk#{workers := maps:update_with(W, Change, Workers)}.

follows(W, #{follows := Follows}) -> is_map_key(W, Follows).

slot(W, #{slots := Slots}) -> hd([Slot || {Slot, V} <- maps:to_list(Slots), V =:= W]).

members(W, Group, #{members := Members}) -> lists:sort(maps:get({W, Group}, Members, [])).

%% How many frames of each kind came.
counts(#{counts := Counts}) -> Counts.

%% The worker leaves its ring: what comes for its slot is for nobody.
gone(W, Trunk = #{slots := Slots, follows := Follows, away := Away}) ->
    ok = tell({worker_gone, W}, Trunk),
    Trunk#{slots := maps:filter(fun(_, V) -> V =/= W end, Slots), away := Away#{W => []},
           follows := maps:remove(W, Follows)}.

%% It syncs by itself, or with the others when a brain comes.
back(W, Trunk = #{away := Away, linked := Linked}) ->
    Here = Trunk#{away := maps:remove(W, Away)},
    case Linked of
        true -> sync(W, Here);
        false -> Here
    end.

%% From a cut to the next hello nobody hears it.
tell(Frame, #{edge := Edge, linked := true}) -> fake_edge:send(Edge, Frame);
tell(_, _) -> ok.

sync(W, Trunk = #{begun := Begun, members := Members}) ->
    Synced = change(W, fun(Worker) -> fake_worker:got({hello_brain, #{}}, Worker) end, Trunk),
    Synced#{begun := Begun#{W => maps:get(W, Begun, 0) + 1},
            members := maps:filter(fun({V, _}, _) -> V =/= W end, Members)}.

%% The trunk is cut; what was read of it counts.
cut(Trunk = #{edge := Edge}) ->
    Mark = make_ref(),
    ok = fake_edge:cut(Edge, Mark),
    Ended = to_the_cut(Mark, Trunk#{linked := false}),
    Ended#{cursor := <<>>, slots := #{}, begun := #{}, follows := #{}, starving := false,
           owed := 0, linked := false}.

to_the_cut(Mark, Trunk = #{edge := Edge}) ->
    receive
        {Edge, Mark} -> Trunk;
        {Edge, closed} -> to_the_cut(Mark, Trunk);
        {Edge, {hello_brain, _}} -> to_the_cut(Mark, Trunk);
        {Edge, Frame} -> to_the_cut(Mark, got(Frame, Trunk))
    after ?WAIT_MS -> error(not_cut)
    end.

starve(Trunk) -> Trunk#{starving := true}.
feed(Trunk = #{owed := Owed}) ->
    give(Owed, Trunk),
    Trunk#{starving := false, owed := 0}.

%% 4.3: at most half a window at once.
give(0, _) -> ok;
give(Owed, Trunk) ->
    Portion = min(Owed, ?WINDOW_BYTES_MIN div 2),
    ok = tell({credit, Portion}, Trunk),
    give(Owed - Portion, Trunk).

until(Condition, Trunk) ->
    until(Condition, Trunk, now_ms() + ?WAIT_MS).

until(Condition, Trunk, Deadline) ->
    case Condition(Trunk) of
        true ->
            Trunk;
        false ->
            now_ms() < Deadline orelse error({never_true, Trunk}),
            until(Condition, step(Trunk, 20), Deadline)
    end.

run(Ms, Trunk) ->
    run_to(now_ms() + Ms, Trunk).

run_to(Deadline, Trunk) ->
    case Deadline - now_ms() of
        Left when Left > 0 -> run_to(Deadline, step(Trunk, Left));
        _ -> Trunk
    end.

step(Trunk = #{edge := Edge}, Ms) ->
    receive
        {Edge, closed} -> Trunk;
        {Edge, Frame} -> paid(Frame, got(Frame, Trunk))
    after Ms -> Trunk
    end.

paid(Frame, Trunk) when element(1, Frame) =:= hello_brain; element(1, Frame) =:= pong;
                        element(1, Frame) =:= credit; element(1, Frame) =:= goodbye ->
    Trunk;
paid(_, Trunk = #{linked := false}) ->
    Trunk;
paid(Frame, Trunk = #{starving := Starving, owed := Owed}) ->
    Cost = iolist_size(halley_edge_codec:encode(Frame)),
    case Starving of
        true -> Trunk#{owed := Owed + Cost};
        false -> give(Cost, Trunk), Trunk
    end.

got(Frame, Trunk = #{counts := Counts}) ->
    Kind = element(1, Frame),
    frame(Frame, Trunk#{counts := Counts#{Kind => maps:get(Kind, Counts, 0) + 1}}).

%% Those that are away come back by themselves.
frame({hello_brain, _}, Trunk = #{workers := Workers, away := Away}) ->
    lists:foldl(fun sync/2, Trunk#{slots := #{}, follows := #{}, begun := #{}, members := #{},
                                   linked := true, owed := 0},
                maps:keys(Workers) -- maps:keys(Away));
frame({cursor, Cursor}, Trunk) ->
    moved(Cursor, Trunk);
frame({place, W, Slot}, Trunk = #{begun := Begun, slots := Slots, away := Away}) ->
    Left = maps:get(W, Begun) - 1,
    Placed = case Left =:= 0 andalso not is_map_key(W, Away) of
        true -> Slots#{Slot => W};
        false -> Slots
    end,
    Trunk#{begun := Begun#{W := Left}, slots := Placed};
frame({trunk_deliver, Bare, Words}, Trunk = #{cursor := Before}) ->
    Cursor = fake_worker:passed(Bare, Before),
    Parts = parts([{Slot, Conn} || <<Slot:16, Conn:48>> <= Words]),
    ?assertEqual(length(Parts), length(lists:usort([Slot || {Slot, _} <- Parts]))),
    moved(Cursor, lists:foldl(fun({Slot, Conns}, T) ->
        deliver(Slot, Bare#{cursor := Cursor}, Conns, T)
    end, Trunk, Parts));
frame({trunk_group_deliver, Group, Bare, Slots}, Trunk = #{cursor := Before}) ->
    Cursor = fake_worker:passed(Bare, Before),
    moved(Cursor, lists:foldl(fun(Slot, T = #{slots := Known}) ->
        deliver(Slot, Bare#{cursor := Cursor}, members(maps:get(Slot, Known, none), Group, T), T)
    end, Trunk, [Slot || <<Slot:16>> <= Slots]));
frame({to_slot, Slot, Frame}, Trunk = #{slots := Slots}) when is_map_key(Slot, Slots) ->
    of_slot(Frame, maps:get(Slot, Slots), Trunk);
frame(_, Trunk) ->
    Trunk.

parts([{Slot, Conn} | Rest]) ->
    {Same, Others} = lists:splitwith(fun({S, _}) -> S =:= Slot end, Rest),
    [{Slot, [Conn | [C || {_, C} <- Same]]} | parts(Others)];
parts([]) ->
    [].

deliver(Slot, Item, Conns, Trunk = #{slots := Slots, follows := Follows}) ->
    case Slots of
        #{Slot := W} ->
            ?assert(is_map_key(W, Follows)),
            Frame = {deliver, Item, << <<Conn:64>> || Conn <- Conns >>},
            change(W, fun(Worker) -> fake_worker:got(Frame, Worker) end, Trunk);
        #{} ->
            Trunk
    end.

%% 13.6: the trunk's cursor is that of all who follow it.
moved(Cursor, Trunk = #{follows := Follows}) ->
    lists:foldl(fun(W, T) -> change(W, fun(Worker) -> fake_worker:at(Cursor, Worker) end, T) end,
                Trunk#{cursor := Cursor}, maps:keys(Follows)).

of_slot({cursor, <<>>}, W, Trunk = #{follows := Follows, cursor := Cursor}) ->
    ?assertNot(is_map_key(W, Follows)),
    ?assertNotEqual(<<>>, Cursor),
    moved(Cursor, Trunk#{follows := Follows#{W => []}});
of_slot({group_join, Group, Conns}, W, Trunk = #{members := Members}) ->
    Before = maps:get({W, Group}, Members, []),
    Joined = lists:usort([Conn || <<Conn:64>> <= Conns] ++ Before),
    Trunk#{members := Members#{{W, Group} => Joined}};
of_slot({group_leave, Group, Conns}, W, Trunk = #{members := Members}) ->
    Before = maps:get({W, Group}, Members, []),
    Trunk#{members := Members#{{W, Group} => Before -- [Conn || <<Conn:64>> <= Conns]}};
of_slot({group_end, Group}, W, Trunk = #{members := Members}) ->
    Trunk#{members := maps:remove({W, Group}, Members)};
of_slot({group_deliver, Group, Item}, W, Trunk) ->
    Conns = << <<Conn:64>> || Conn <- members(W, Group, Trunk) >>,
    of_slot({deliver, Item, Conns}, W, Trunk);
of_slot(Frame, W, Trunk = #{follows := Follows}) ->
    _ = [?assertNot(is_map_key(W, Follows)) || element(1, Frame) =:= deliver],
    Got = change(W, fun(Worker) -> fake_worker:got(Frame, Worker) end, Trunk),
    case is_map_key(W, Follows) of
        true -> moved(fake_worker:cursor(worker(W, Got)), Got);
        false -> Got
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
