%% A worker for tests: the sessions of a fake edge, which does with frames what protocol/link.md 6
%% and 10 ask of a worker, and remembers for each connection which events its client saw.
%%
%% It lives in the process of the test, which is the fake edge's owner: frames wait in the mailbox
%% until run/2 or until/2 takes them. Every LAST is checked: the link's cursor is not below it.
-module(fake_worker).

-export([new/1, open/3, open/4, open/5, close/3, cut/1, cut/2, until/2, run/2, connected/1]).
-export([seen/2, state/2, cursor/1, cursor/2, gaps/2, replays/2, stall/2, starve/1, feed/1]).
%% For fake_trunk.
-export([got/2, at/2, passed/2]).

-include_lib("stdlib/include/assert.hrl").
-include("halley_edge_wait.hrl").

%% The fake edge must be connected to by a brain; its HELLO_BRAIN may have come already.
new(Edge) ->
    #{edge => Edge, cursor => <<>>, sessions => #{}, gaps => [], cut => false, says => own,
      starving => false, owed => 0}.

open(Conn, User, Worker) ->
    open(Conn, User, <<>>, Worker).

open(Conn, User, Cursor, Worker) ->
    open(Conn, 1, User, Cursor, Worker).

open(Conn, Transport, User, Cursor, Worker = #{edge := Edge, sessions := Sessions}) ->
    State = case Cursor of <<>> -> live; _ -> held end,
    ok = fake_edge:send(Edge, {open, [{Conn, Transport, User, Cursor}]}),
    Worker#{sessions := Sessions#{Conn => #{user => User, transport => Transport, state => State,
                                            cursor => Cursor, number => none, held => [],
                                            seen => [], gaps => [], replays => 0,
                                            stalled => false}}}.

close(Conn, Reason, Worker = #{edge := Edge, sessions := Sessions}) ->
    #{number := Number} = maps:get(Conn, Sessions),
    ok = fake_edge:send(Edge, {close, [{Conn, Number, Reason}]}),
    Worker#{sessions := maps:remove(Conn, Sessions)}.

%% The link is cut. What was read of it counts, but nothing is said any more until a brain says
%% hello on the next one: what answers an earlier hello would come before that of the next one.
cut(Worker = #{edge := Edge}) ->
    Mark = make_ref(),
    ok = fake_edge:cut(Edge, Mark),
    to_the_cut(Mark, Worker#{cut := true}).

to_the_cut(Mark, Worker = #{edge := Edge}) ->
    receive
        {Edge, Mark} -> Worker;
        {Edge, closed} -> to_the_cut(Mark, Worker);
        {Edge, {hello_brain, _}} -> to_the_cut(Mark, Worker);
        {Edge, Frame} -> to_the_cut(Mark, got(Frame, Worker))
    after ?WAIT_MS ->
        error(not_cut)
    end.

%% The same, and the worker comes back with another cursor than its own.
cut(Cursor, Worker) ->
    (cut(Worker))#{says := Cursor}.

%% Takes frames until the condition holds.
until(Condition, Worker) ->
    until(Condition, Worker, now_ms() + ?WAIT_MS).

until(Condition, Worker, Deadline) ->
    case Condition(Worker) of
        true ->
            Worker;
        false ->
            now_ms() < Deadline orelse error({never_true, Worker}),
            until(Condition, step(Worker, 20), Deadline)
    end.

%% Takes the frames of so many milliseconds.
run(Ms, Worker) ->
    run_to(now_ms() + Ms, Worker).

run_to(Deadline, Worker) ->
    case Deadline - now_ms() of
        Left when Left > 0 -> run_to(Deadline, step(Worker, Left));
        _ -> Worker
    end.

step(Worker = #{edge := Edge}, Ms) ->
    receive
        {Edge, closed} -> Worker;
        {Edge, Frame} -> paid(Frame, got(Frame, Worker))
    after Ms -> Worker
    end.

connected(#{sessions := Sessions}) ->
    lists:all(fun(#{number := Number}) -> Number =/= none end, maps:values(Sessions)).

%% The events that a client saw, in order.
seen(Conn, #{sessions := Sessions}) ->
    lists:reverse(maps:get(seen, maps:get(Conn, Sessions))).

state(Conn, #{sessions := Sessions}) -> maps:get(state, maps:get(Conn, Sessions)).
%% It stands there.
at(Cursor, Worker) -> Worker#{cursor := Cursor}.

replays(Conn, #{sessions := Sessions}) -> maps:get(replays, maps:get(Conn, Sessions)).
cursor(#{cursor := Cursor}) -> Cursor.
%% What the client would come back with.
cursor(Conn, #{sessions := Sessions}) -> maps:get(cursor, maps:get(Conn, Sessions)).
gaps(Conn, #{sessions := Sessions}) -> lists:reverse(maps:get(gaps, maps:get(Conn, Sessions))).

%% The client reads nothing more: no REPLAYED.
stall(Conn, Worker) -> change(Conn, fun(Session) -> Session#{stalled := true} end, Worker).

%% No credit is given back, and then all of it.
starve(Worker) -> Worker#{starving := true}.
feed(Worker = #{edge := Edge, owed := Owed}) ->
    Owed =:= 0 orelse fake_edge:send(Edge, {credit, Owed}),
    Worker#{starving := false, owed := 0}.

%%% Frames

paid(Frame, Worker) when element(1, Frame) =:= hello_brain; element(1, Frame) =:= pong;
                         element(1, Frame) =:= credit; element(1, Frame) =:= goodbye ->
    Worker;
paid(_, Worker = #{cut := true}) ->
    Worker;
paid(Frame, Worker = #{edge := Edge, starving := Starving, owed := Owed}) ->
    Cost = iolist_size(halley_edge_codec:encode(Frame)),
    case Starving of
        true -> Worker#{owed := Owed + Cost};
        false -> fake_edge:send(Edge, {credit, Cost}), Worker
    end.

%% A new brain: everything is told anew.
got({hello_brain, _}, Worker = #{edge := Edge, says := Says, sessions := Sessions}) ->
    Cursor = case Says of own -> cursor(Worker); _ -> Says end,
    ok = fake_edge:send(Edge, {sync_begin, map_size(Sessions), Cursor}),
    [ok = fake_edge:send(Edge, {open, [{Conn, Transport, User, case State of
                                           held -> Own;
                                           live -> <<>>
                                       end}]})
     || {Conn, #{transport := Transport, user := User, state := State, cursor := Own}}
            <- maps:to_list(Sessions)],
    ok = fake_edge:send(Edge, sync_end),
    Worker#{cut := false, says := own, owed := 0};
got({opened, Cursor, Opened}, Before) ->
    Worker = Before#{cursor := case Cursor of <<>> -> cursor(Before); _ -> Cursor end},
    lists:foldl(fun({Conn, Number}, W) ->
        change(Conn, fun(Session = #{cursor := Own}) ->
            Session#{number := Number, cursor := case Own of <<>> -> Cursor; _ -> Own end}
        end, W)
    end, Worker, Opened);
got({deliver, Bare, Conns}, Worker) ->
    Cursor = passed(Bare, cursor(Worker)),
    Item = Bare#{cursor := Cursor},
    lists:foldl(fun(Conn, W) ->
        change(Conn, fun
            (Session = #{state := held, held := Held}) -> Session#{held := [Item | Held]};
            (Session = #{seen := Seen}) -> Session#{seen := [Item | Seen], cursor := Cursor}
        end, W)
    end, Worker#{cursor := Cursor}, [Conn || <<Conn:64>> <= Conns]);
got({replay, Conn, Flags, Cursor, Heads, Items}, Worker) ->
    Replayed = change(Conn, fun(Session = #{seen := Seen, replays := Replays}) ->
        Session#{seen := lists:reverse(Items, Seen), cursor := Cursor, replays := Replays + 1}
    end, Worker),
    case Flags of
        8 -> last(Conn, Cursor, Heads, Replayed);
        0 -> replayed(Conn, Replayed)
    end;
got({cursor, Cursor}, Worker) ->
    Worker#{cursor := Cursor};
got({gap, Reason, From, To, Cursor, []}, Worker = #{sessions := Sessions, gaps := Gaps}) ->
    ?assertNotEqual(<<>>, Cursor),
    lists:foldl(fun(Conn, W) -> gap(Conn, {Reason, From, To}, W) end,
                Worker#{gaps := [Reason | Gaps]}, maps:keys(Sessions));
got({gap, Reason, From, To, Cursor, Conns}, Worker) ->
    ?assertNotEqual(<<>>, Cursor),
    lists:foldl(fun(Conn, W) -> gap(Conn, {Reason, From, To}, W) end, Worker, Conns);
got(_, Worker) ->
    Worker.

gap(Conn, Gap, Worker) ->
    change(Conn, fun(Session = #{gaps := Gaps}) -> Session#{gaps := [Gap | Gaps]} end, Worker).

%% 10.9: an event without a cursor moves the link's.
passed(#{cursor := <<>>, shard := Shard, seq := Seq, at := At}, Cursor) ->
    {ok, #{store := Store, at := Seconds, vector := Vector}} = halley_cursor:decode(Cursor),
    Moved = setelement(Shard, Vector, max(Seq, element(Shard, Vector))),
    halley_cursor:encode(Store, max(Seconds, At div 1000), Moved);
passed(#{cursor := Cursor}, _) ->
    Cursor.

%% 10.5: what was held and isn't above the shard's head is dropped, the rest is written.
last(Conn, Cursor, Heads, Worker) ->
    {ok, #{vector := Vector}} = halley_cursor:decode(Cursor),
    ?assert(lists:all(fun({Is, Head}) -> Is >= Head end,
                      lists:zip(tuple_to_list(Vector), Heads))),
    change(Conn, fun(Session = #{held := Held, seen := Seen}) ->
        Rest = [Item || Item = #{shard := Shard, seq := Seq} <- Held,
                        Seq > lists:nth(Shard, Heads)],
        Session#{state := live, held := [], seen := Rest ++ Seen}
    end, Worker#{cursor := Cursor}).

replayed(Conn, Worker = #{edge := Edge, cut := Cut, sessions := Sessions}) ->
    case Sessions of
        #{Conn := #{stalled := false, transport := Transport}} when Transport =/= 5, not Cut ->
            ok = fake_edge:send(Edge, {replayed, Conn});
        #{} ->
            ok
    end,
    Worker.

change(Conn, Change, Worker = #{sessions := Sessions}) ->
    case Sessions of
        #{Conn := Session} -> Worker#{sessions := Sessions#{Conn := Change(Session)}};
        #{} -> Worker
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
