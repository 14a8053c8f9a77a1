%% Shared by the suites of the link. They wait for conditions, not for a while, and for as long as a
%% slow and busy machine may take.
-module(halley_edge_helper).

-include("halley_edge_wait.hrl").

-export([until/1, next/2, alive/1, settled/1, linked/3]).
-export([link_process/1, writer/1, slot/1, replays/1, counted/1, field/3]).

-define(POLL_MS, 20).

until(Condition) ->
    until(Condition, now_ms() + ?WAIT_MS).

until(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            now_ms() < Deadline orelse error({never_true, Condition}),
            timer:sleep(?POLL_MS),
            until(Condition, Deadline)
    end.

%% The next frame of its kind; others stay in the mailbox.
next(Edge, Tag) ->
    receive
        {Edge, Frame} when element(1, Frame) =:= Tag -> Frame
    after ?WAIT_MS ->
        error({frame_missing, Tag, process_info(self(), messages)})
    end.

%% All that was sent before has been dealt with, and the link stands.
alive(Edge) ->
    Nonce = erlang:unique_integer([positive]),
    ok = fake_edge:send(Edge, {ping, Nonce}),
    receive
        {Edge, {pong, Nonce}} -> ok
    after ?WAIT_MS ->
        error(link_is_gone)
    end.

%% What these links did to each other has been said by now, too.
settled(Edges) ->
    lists:foreach(fun alive/1, Edges ++ Edges).

%% Fake edges for the workers of one edge, with links that stand.
linked(Dir, Count, Hello) ->
    Edges = [fake_edge:start(halley_edge_dial:path(Dir, W), Hello#{workers := Count, worker := W})
             || W <- lists:seq(0, Count - 1)],
    ok = halley_edge_dialer:connect(Dir, Count, self()),
    [receive {link_up, W, _} -> ok after ?WAIT_MS -> error(not_up) end
     || W <- lists:seq(0, Count - 1)],
    Edges.

link_process(Worker) ->
    until(fun() -> is_map_key(Worker, halley_edge_dialer:links()) end),
    maps:get(Worker, halley_edge_dialer:links()).

writer(Worker) ->
    #{writer := Writer} = about(Worker),
    Writer.

slot(Worker) ->
    #{slot := Slot} = about(Worker),
    Slot.

%% The process of a worker's replays.
replays(Worker) ->
    State = sys:get_state(link_process(Worker), infinity),
    [Replays] = [Pid || {Pid, W} <- maps:to_list(element(field(halley_edge_link, state, by_replays),
                                                         State)),
                        W =:= Worker],
    Replays.

%% By its process: the registry may not know yet that the worker's last link has ended.
about(Worker) ->
    Process = link_process(Worker),
    [Link] = [L || #{info := #{link := P}} = L <- halley_links:list(), P =:= Process],
    Link.

%% The value of a metric, by its name and labels.
counted(Metric) ->
    Text = binary_to_list(iolist_to_binary(halley_metrics:render())),
    [_, Rest] = string:split(Text, "\n" ++ Metric ++ " "),
    {N, _} = string:to_integer(Rest),
    N.

%% The place of a record's field, as the module's own debug information has it.
field(Module, Record, Field) ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
    [Fields] = [Fields || {attribute, _, record, {Name, Fields}} <- Forms, Name =:= Record],
    [Place] = [Place || {Place, F} <- lists:enumerate(2, Fields), name(F) =:= Field],
    Place.

name({typed_record_field, Field, _}) -> name(Field);
name({record_field, _, {atom, _, Name}}) -> Name;
name({record_field, _, {atom, _, Name}, _}) -> Name.

now_ms() ->
    erlang:monotonic_time(millisecond).
