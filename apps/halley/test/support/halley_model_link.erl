%% A model of a link of one worker: its writer, the worker and its sessions in one process, which
%% does what
%% docs/internals/delivery.md says and nothing clever. Users have one session at a time.
%%
%% Events of sessions are written to an ETS table, in order: {N, User, Event | Gap}.
-module(halley_model_link).

-include("halley_wait.hrl").

-export([new_log/0, received/2, start/1, open/3, close/2, stall/2, lose/1, settled/1]).

-define(LIMITS, #{events_max => 5, bytes_max => 2000}).

-record(state, {log, way, slot, queue, vector, reader, former,
                groups = #{},       % User number => #{Conn => []}
                sessions = #{},     % Conn => {User, live | {held, Cursor, [Event]}}
                lasts = []}).       % {Conn, Heads, [Event]}

new_log() ->
    ets:new(received, [ordered_set, public]).

%% {Event | Gap} of a user, in order.
received(User, Log) ->
    [What || {_, U, What} <- ets:tab2list(Log), U =:= User].

%% `Saved': a log, or what lose/1 gave.
start({Vector, Sessions, Log}) ->
    spawn_link(fun() -> sync(Vector, Sessions, Log) end);
start(Log) ->
    start({halley_history:heads(), #{}, Log}).

%% Returns when the session is open: without a cursor, all that is published from now on is its.
open(Link, User, Cursor) -> call(Link, {open, User, Cursor}).

%% The cursor that the client has.
close(Link, User) -> call(Link, {close, User}).

%% It does nothing for a while.
stall(Link, Ms) -> Link ! {stall, Ms}, ok.

%% The link is lost, the worker is not.
lose(Link) ->
    unlink(Link),
    call(Link, lose).

%% Whether all sessions are live and the link has passed all that was published. It asks for marks.
settled(Link) -> call(Link, settled).

call(Link, Request) ->
    Ref = make_ref(),
    Link ! {call, self(), Ref, Request},
    receive {Ref, Answer} -> Answer after ?WAIT_MS -> error({hangs, Request}) end.

sync(Vector, Sessions, Log) ->
    {ok, Slot, Queue} = halley_test_brain:worker(self(), #{}),
    State = #state{log = Log, way = halley_links:way(Slot), slot = Slot, queue = Queue,
                   vector = Vector, sessions = Sessions, reader = halley_history_reader:new()},
    _ = [enter(User, Slot, Conn) || {Conn, {User, live}} <- maps:to_list(Sessions)],
    _ = [start_replay(Conn, User, Cursor, Slot)
         || {Conn, {User, {held, Cursor, _}}} <- maps:to_list(Sessions)],
    loop(catch_up(State)).

number(User) ->
    {ok, [Number]} = halley_ids:intern([User]),
    Number.

enter(User, Slot, Conn) ->
    Number = number(User),
    _ = halley_directory:open(Number, {link, Slot, Conn}, infinity),
    pause(),
    halley_groups:changed(Number).

loop(State) ->
    receive
        {call, From, Ref, lose} ->
            #state{vector = Vector, sessions = Sessions, log = Log} = State,
            From ! {Ref, {Vector, Sessions, Log}};
        {call, From, Ref, Request} ->
            {Answer, Next} = handle(Request, State),
            From ! {Ref, Answer},
            loop(Next);
        Message ->
            loop(handle_info(Message, State))
    end.

handle({open, User, none}, #state{slot = Slot, sessions = Sessions} = State) ->
    Conn = erlang:unique_integer([positive]),
    %% The worker knows the connection before the brain does.
    ok = enter(User, Slot, Conn),
    {ok, State#state{sessions = Sessions#{Conn => {User, live}}}};
handle({open, User, Cursor}, #state{slot = Slot, sessions = Sessions} = State) ->
    Conn = erlang:unique_integer([positive]),
    start_replay(Conn, User, Cursor, Slot),
    {ok, State#state{sessions = Sessions#{Conn => {User, {held, Cursor, []}}}}};
handle({close, User}, #state{slot = Slot, sessions = Sessions, lasts = Lasts} = State) ->
    [{Conn, Mode}] = [{Conn, Mode} || {Conn, {U, Mode}} <- maps:to_list(Sessions), U =:= User],
    ok = halley_directory:close(number(User), {link, Slot, Conn}),
    ok = halley_groups:changed(number(User)),
    Cursor = case Mode of
        live -> cursor(State);
        {held, Own, _} -> Own
    end,
    Groups = maps:map(fun(_, Members) -> maps:remove(Conn, Members) end, State#state.groups),
    {Cursor, State#state{sessions = maps:remove(Conn, Sessions), groups = Groups,
                         lasts = lists:keydelete(Conn, 1, Lasts)}};
handle(settled, #state{vector = Vector, sessions = Sessions, way = Way} = State) ->
    ok = halley_shard:mark(Way, lists:seq(1, halley_shards:count())),
    Live = [User || {User, live} <- maps:values(Sessions)],
    {length(Live) =:= map_size(Sessions) andalso not halley_links_backpressure:is_behind(Way)
         andalso halley_vector:is_reached(halley_history:heads(), Vector), State}.

cursor(#state{vector = Vector}) ->
    halley_cursor:encode(halley_history:store(), erlang:system_time(second), Vector).

handle_info({stall, Ms}, State) ->
    timer:sleep(Ms),
    State;
handle_info({deliver, Deliveries}, State) ->
    lists:foldl(fun live/2, State, Deliveries);
handle_info({members, What, Group, Words}, #state{queue = Queue, groups = Groups} = State) ->
    ok = counters:sub(Queue, 1, byte_size(Words)),
    Told = maps:from_keys(halley_test_brain:conns(Words), []),
    Members = maps:get(Group, Groups, #{}),
    Changed = case What of
        %% One that has closed is nobody any more.
        join -> maps:merge(Members, maps:with(maps:keys(State#state.sessions), Told));
        leave -> maps:without(maps:keys(Told), Members)
    end,
    State#state{groups = Groups#{Group => Changed}};
handle_info({end_group, Group}, #state{groups = Groups} = State) ->
    State#state{groups = maps:remove(Group, Groups)};
handle_info({mark, Shard, Seq}, State) ->
    passed(Shard, Seq, State);
handle_info(behind, #state{way = Way} = State) ->
    case halley_links_backpressure:is_behind(Way) of
        true -> catch_up(State);
        false -> State
    end;
handle_info({replay, Replayer, Conn, Given}, State) ->
    Replayer ! go_on,
    replayed(Conn, Given, State);
handle_info({last, Conn, Heads, Given}, #state{lasts = Lasts} = State) ->
    settle(State#state{lasts = [{Conn, Heads, Given} | Lasts]});
handle_info(ask, #state{lasts = Lasts, way = Way} = State) ->
    Lasts =:= [] orelse halley_shard:mark(Way, lists:seq(1, halley_shards:count())),
    State.

live({{Shard, Seq, _} = Delivery, To}, State) ->
    ok = counters:sub(State#state.queue, 1, halley_links_queue:cost(Delivery, To)),
    case Seq > element(Shard, State#state.vector) of
        true -> passed(Shard, Seq, deliver(Delivery, To, State));
        false -> State
    end.

passed(Shard, Seq, #state{vector = Vector} = State) ->
    case element(Shard, Vector) < Seq of
        true -> settle(State#state{vector = setelement(Shard, Vector, Seq)});
        false -> State
    end.

deliver(Delivery, To, State) ->
    Event = halley_test_brain:event(Delivery),
    lists:foldl(fun(Conn, S) -> live_event(Conn, Event, S) end, State, conns(To, State)).

conns({group, Group, [_], Words}, #state{groups = Groups} = State) ->
    maps:keys(maps:get(Group, Groups, #{})) ++ conns(Words, State);
conns(Words, _) ->
    halley_test_brain:conns(Words).

live_event(Conn, Event, #state{sessions = Sessions, log = Log} = State) ->
    case Sessions of
        #{Conn := {User, live}} ->
            give(User, Event, Log),
            State;
        #{Conn := {User, {held, Cursor, Held}}} ->
            State#state{sessions = Sessions#{Conn := {User, {held, Cursor, [Event | Held]}}}};
        #{} ->
            State
    end.

give(User, What, Log) ->
    true = ets:insert(Log, {erlang:unique_integer([monotonic]), User, What}).

replayed(Conn, Given, #state{sessions = Sessions, log = Log} = State) ->
    case Sessions of
        #{Conn := {User, {held, Cursor, Held}}} ->
            lists:foreach(fun(What) -> give(User, What, Log) end, Given),
            Last = lists:foldl(fun(#{cursor := C}, _) -> C end, Cursor, Given),
            State#state{sessions = Sessions#{Conn := {User, {held, Last, Held}}}};
        #{} ->
            State
    end.

%% LAST comes when the link's cursor has reached its heads (link.md 10.5).
settle(#state{lasts = []} = State) ->
    State;
settle(#state{lasts = Lasts, vector = Vector} = State) ->
    {Now, Later} = lists:partition(fun({_, Heads, _}) ->
                                       halley_vector:is_reached(Heads, Vector)
                                   end, Lasts),
    Later =:= [] orelse erlang:send_after(5, self(), ask),
    lists:foldl(fun last/2, State#state{lasts = Later}, Now).

last({Conn, Heads, Given}, State) ->
    #state{sessions = Sessions, log = Log} = Replayed = replayed(Conn, Given, State),
    case Sessions of
        #{Conn := {User, {held, _, Held}}} ->
            lists:foreach(fun(#{shard := Shard, seq := Seq} = Event) ->
                              Seq > element(Shard, Heads) andalso give(User, Event, Log)
                          end, lists:reverse(Held)),
            Replayed#state{sessions = Sessions#{Conn := {User, live}}};
        #{} ->
            Replayed
    end.

%% What comes live meanwhile waits in the mailbox, and is dropped by its seq.
catch_up(#state{way = Way, vector = From} = State) ->
    {Near, Nearer} = round(From, halley_history:written(),
                           State#state{former = halley_catchup_former:new()}),
    ok = halley_links_backpressure:resume(Way),
    pause(),
    Heads = halley_history:heads(),
    ok = halley_history:await(Heads, ?WAIT_MS),
    {Reached, Caught} = round(Near, Heads, Nearer),
    settle(Caught#state{vector = Reached}).

%% Where the order of two steps matters, something should happen between them.
pause() ->
    rand:uniform(3) =:= 1 andalso timer:sleep(rand:uniform(3)).

round(From, UpTo, #state{slot = Slot, reader = Reader, sessions = Sessions, log = Log} = State) ->
    {Events, Next, What, Gaps, Former, Later} =
        halley_catchup:next(#{Slot => []}, From, UpTo, ?LIMITS, State#state.former, Reader),
    _ = [give(User, Gap, Log) || Gap <- Gaps, {User, _} <- maps:values(Sessions)],
    Given = lists:foldl(fun({Delivery, Words}, S) -> deliver(Delivery, Words, S) end,
                        State#state{reader = Later, former = Former}, Events),
    case What of
        more -> round(Next, UpTo, Given);
        done -> {Next, Given}
    end.

%% --- replays -------------------------------------------------------------------------------------

start_replay(Conn, User, Cursor, Slot) ->
    Link = self(),
    spawn_link(fun() -> replay(Link, Conn, User, Cursor, Slot) end).

replay(Link, Conn, User, Cursor, Slot) ->
    {ok, Replay} = halley_replay:new(User, Cursor),
    Near = batches(Link, Conn, Replay),
    ok = enter(User, Slot, Conn),
    pause(),
    Heads = halley_history:heads(),
    ok = halley_history:await(Heads, ?WAIT_MS),
    Link ! {last, Conn, Heads, rest(Near, Heads)}.

batches(Link, Conn, Replay) ->
    case next(Replay, halley_history:written()) of
        {[], done, Next} ->
            Next;
        {Given, _, Next} ->
            Link ! {replay, self(), Conn, Given},
            receive go_on -> batches(Link, Conn, Next) end
    end.

rest(Replay, Heads) ->
    case next(Replay, Heads) of
        {Given, done, _} -> Given;
        {Given, _, Next} -> Given ++ rest(Next, Heads)
    end.

next(Replay, UpTo) ->
    Reader = halley_history_reader:new(),
    {Events, What, Next, Later} = halley_history_helper:replayed(Replay, UpTo, ?LIMITS, Reader),
    ok = halley_history_reader:close(Later),
    case What of
        {gap, Gap} -> {Events ++ [Gap], more, Next};
        _ -> {Events, What, Next}
    end.
