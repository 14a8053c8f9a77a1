%% A shard: one order for every subject that hashes to it.
%%
%% For each event, in this order:
%%   1. draw its seq from the history, which moves the shard's head;
%%   2. look up who is online and send it to them (`halley_fanout');
%%   3. hand it to the history's log, together with the publishers that wait for an answer.
%% So if a session is opened and the heads are read after that, events above them find the session,
%% and the others are, or soon will be, in the log (docs/internals/delivery.md). The fan-out doesn't
%% wait for the disk; a publisher that asked for `disk' does, and the log answers.
%%
%% What waits in the mailbox, ?TURN_EVENTS of it, is published in one *turn*: each link gets one
%% message for the turn's events, and so does the log (docs/internals/publish.md). Within a turn a
%% shard does nothing else, except that it tells links of a group's members: before that, and before
%% an event goes to a group, it sends what it has gathered. So everything stays in order.
%%
%% Four times a second, if anything was published anywhere, a shard says how far it is: its head
%% moves to the counter and every link gets a mark. A link that requests one gets it alone, at once.
%% Events and marks are sent to links from here alone, so they stay in order; and so do the messages
%% about members of its groups (`halley_groups_shard').
%%
%% Invariants: a subject belongs to one shard, always the same (`halley_shards'), so what a follower
%% gets about a subject comes in the order of the answers. The senders keep the bound on events that
%% wait (`halley_shard'). A publisher that dies before it sends leaves its events counted: the shard
%% subtracts them when the count was never below them over ?LEFT_LOOKS looks at an empty mailbox.
%%
%% A private event has a seq for each of its users, and goes to their sessions alone. Where the log
%% has yet to reserve more seqs its publisher gets `busy', and tries again.
%%
%% A joint event has a seq for each of its subjects, and goes to whom any of them reaches, once. The
%% followers of a group among them are looked up as those of any other subject.
%%
%% Where `halley_order' names another process, that one draws the order, of the events of several
%% brains. It sends the shard what it has ordered (`halley_order:committed/5'): a shard then draws
%% nothing and claims no id, and its head moves to the end of each group, whether that has events of
%% the shard or not, and the log learns of it at once: a process that waits until all up to a group
%% is indexed waits for no timer. Its marks say how far it is, and never move its head: a head that
%% moves to the counter would pass events that are still on their way to this shard.
%%
%% It checks nothing: `halley_router' did. Its state can be made anew, so a killed shard loses only
%% the events that waited for it, and their publishers get an error. Its messages may be overtaken
%% by those of the next shard, so that one begins by leaving all links to the history.
-module(halley_shard_server).
-behaviour(gen_server).

-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(MARK_MS, 250).
%% Ten seconds of marks: longer than a publisher is on its way from counting to sending. If one ever
%% takes longer, the count falls below zero when its events have come, and is set right again.
-define(LEFT_LOOKS, 40).
%% Of a turn, and of what is gathered for links in it; a caller's batch may go beyond the first.
-define(TURN_EVENTS, 64).
%% Words. Room for a batch of events and its receivers: fewer collections that find nothing.
-define(HEAP, [{min_heap_size, 16384}, {min_bin_vheap_size, 131072}]).

-record(state, {shard :: halley_shards:index(), id_prefix :: halley_event:id_prefix(),
                marked = 0 :: halley_cursor:seq(),
                groups :: halley_groups_shard:groups(),
                %% Looks at an empty mailbox, and the lowest count of them.
                looks = 0 :: non_neg_integer(), lowest = infinity :: integer() | infinity,
                top = halley_top:none() :: halley_top:counted(),
                order :: own | other}).

-type job() :: {call, gen_server:from(), halley_shard:ack(), [halley_shard:draft()]}
             | {posts, Publisher :: pid(), [halley_shard:post()]}.

%% Lists are in reverse.
-record(turn, {outbox = halley_fanout:outbox() :: halley_fanout:outbox(),
               gathered = 0 :: non_neg_integer(),
               entries = [] :: [halley_history:entry()],
               %% The place of the next event, where it was drawn by another process.
               given = none :: none | {halley_cursor:seq(), AtMs :: integer()},
               %% Answers that the log gives with the entries, that it gives without, and of now.
               replies = [] :: [halley_history:reply()],
               repeated = [] :: [halley_history:reply()],
               now = [] :: [halley_history:reply()]}).

-spec start_link(halley_shards:index()) -> gen_server:start_ret().
start_link(Shard) ->
    gen_server:start_link({local, halley_shard:name(Shard)}, ?MODULE, Shard, [{spawn_opt, ?HEAP}]).

-spec init(halley_shards:index()) -> {ok, #state{}}.
init(Shard) ->
    ok = halley_shard:started(Shard),
    ok = halley_links_queue:leave_to_history(),
    ok = halley_history:shard_started(Shard),
    Groups = halley_groups_shard:new(Shard),
    ok = halley_groups:shard_started(Shard),
    mark_later(),
    {ok, #state{shard = Shard, id_prefix = halley_event:id_prefix(halley_history:store()),
                groups = Groups, order = halley_order:whose()}}.

-spec handle_call({publish, halley_shard:ack(), [halley_shard:draft()]} | settle, gen_server:from(),
                  #state{}) -> {noreply, #state{}} | {reply, ok, #state{}}.
handle_call({publish, Ack, Drafts}, From, State) ->
    {noreply, turn({call, From, Ack, Drafts}, State)};
handle_call(settle, _, State) ->
    {reply, ok, settle_some(State)}.

-spec handle_cast({mark, halley_links:slot()} | settle | {group, halley_groups_shard:request()},
                  #state{}) -> {noreply, #state{}}.
handle_cast(settle, State = #state{shard = Shard}) ->
    ok = halley_shard:settling(Shard),
    {noreply, settle_some(State)};
handle_cast({group, Request}, State = #state{groups = Groups}) ->
    {noreply, grouped(halley_groups_shard:handle(Request, Groups), State)};
handle_cast({mark, Slot}, State = #state{shard = Shard}) ->
    ok = halley_shard:marking(Shard, Slot),
    ok = halley_links_queue:mark(Slot, Shard, mark_history(State)),
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({posts, Publisher, Posts}, State) ->
    {noreply, turn({posts, Publisher, Posts}, State)};
handle_info({committed, Last, AtMs, Orderer, Placed}, State) ->
    {noreply, committed(Last, AtMs, Orderer, Placed, State)};
handle_info({store, Store}, State) ->
    {noreply, State#state{id_prefix = halley_event:id_prefix(Store)}};
handle_info(mark, State = #state{shard = Shard, marked = Marked, top = Top}) ->
    mark_later(),
    Shown = halley_top:show(Shard, Top),
    Looked = take_off_what_was_left(State#state{top = Shown}),
    case lists:max(tuple_to_list(halley_history:heads())) of
        Marked -> {noreply, Looked};
        _ -> {noreply, mark(Looked)}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% Where another process orders, events wait there: this mailbox doesn't show whether any are left.
take_off_what_was_left(State = #state{shard = Shard, looks = Looks, lowest = Lowest}) ->
    case {process_info(self(), message_queue_len), halley_shard:waiting(Shard)} of
        {{message_queue_len, 0}, Count} when Count < 0 ->
            ok = halley_shard:taken(Shard, Count),
            State#state{looks = 0, lowest = infinity};
        {_, _} when State#state.order =:= other ->
            State;
        {{message_queue_len, 0}, Count} when Looks < ?LEFT_LOOKS ->
            State#state{looks = Looks + 1, lowest = min(Count, Lowest)};
        {{message_queue_len, 0}, Count} ->
            ok = halley_shard:taken(Shard, min(Count, Lowest)),
            State#state{looks = 0, lowest = infinity};
        _ ->
            State
    end.

mark_later() ->
    _ = erlang:send_after(?MARK_MS, self(), mark),
    ok.

mark(State = #state{shard = Shard}) ->
    Seq = mark_history(State),
    ok = halley_links_queue:mark(Shard, Seq),
    State#state{marked = Seq}.

mark_history(#state{shard = Shard, order = own}) -> halley_history:mark(Shard);
mark_history(#state{shard = Shard, order = other}) -> halley_history:mark_reached(Shard).

%% What is left is for later: behind the publishes that wait.
settle_some(State = #state{shard = Shard, groups = Groups}) ->
    {More, Settled} = halley_groups_shard:settle_some(Groups),
    _ = More =:= more andalso halley_shard:settle(Shard, no_wait),
    grouped(Settled, State).

grouped(Groups, State = #state{shard = Shard}) ->
    ok = halley_groups:members(Shard, halley_groups_shard:members(Groups)),
    State#state{groups = Groups}.

%% --- a turn --------------------------------------------------------------------------------------

-spec turn(job(), #state{}) -> #state{}.
turn(First, State = #state{shard = Shard}) ->
    Jobs = [First | waiting(?TURN_EVENTS - events(First))],
    ok = halley_shard:taken(Shard, lists:sum([events(Job) || Job <- Jobs])),
    {Turn, Next = #state{top = Top}} = lists:foldl(fun job/2, {#turn{}, State}, Jobs),
    ok = ended(Turn, Shard),
    Next#state{top = halley_top:note(Turn#turn.entries, Top)}.

waiting(Room) when Room > 0 ->
    receive
        {posts, Publisher, Posts} -> also({posts, Publisher, Posts}, Room);
        {'$gen_call', From, {publish, Ack, Drafts}} -> also({call, From, Ack, Drafts}, Room)
    after 0 ->
        []
    end;
waiting(_) ->
    [].

%% The events of one group, each at the place that it was given. The head moves to the end of the
%% group before the first look at who is online, as it does with an event that is drawn.
committed(Last, AtMs, Orderer, Placed, State = #state{shard = Shard}) ->
    ok = halley_history:reached(Shard, Last),
    {Answers, {Turn, Next = #state{top = Top}}} = lists:mapfoldl(fun({Seq, Tag, Draft}, {T, S}) ->
        {{_, Result}, After} = publish(memory, Draft, {T#turn{given = {Seq, AtMs}}, S}),
        {{Tag, {ok, Result}}, After}
    end, {#turn{}, State}, Placed),
    Known = [Answer || {Tag, _} = Answer <- Answers, Tag =/= none],
    ok = ended(Turn#turn{replies = [none], now = [{posts, Orderer, Known} || Known =/= []]}, Shard),
    _ = is_at(Last, Turn#turn.entries) orelse halley_history:mark_reached(Shard),
    Next#state{top = halley_top:note(Turn#turn.entries, Top)}.

%% The log raises the shard's written head to the last entry by itself.
is_at(Last, [#{seq := Last} | _]) -> true;
is_at(_, _) -> false.

also(Job, Room) -> [Job | waiting(Room - events(Job))].

events({posts, _, Posts}) -> length(Posts);
events({call, _, _, Drafts}) -> length(Drafts).

job({call, From, Ack, Drafts}, Before) ->
    {Published, {Turn, State}} = lists:mapfoldl(fun(Draft, Acc) -> publish(Ack, Draft, Acc) end,
                                                Before, Drafts),
    {Kinds, Results} = lists:unzip(Published),
    {answer(Ack, hardest(Kinds), {From, {ok, Results}}, Turn), State};
job({posts, Publisher, Posts}, Before) ->
    {Posted, {Turn, State}} = lists:mapfoldl(fun post/2, Before, Posts),
    Answered = lists:foldl(fun({Ack, Kind}, T) ->
        Answers = [Answer || {A, K, Answer} <- Posted, A =:= Ack, K =:= Kind],
        answer(Ack, Kind, {posts, Publisher, Answers}, T)
    end, Turn, lists:usort([{Ack, Kind} || {Ack, Kind, _} <- Posted])),
    {Answered, State}.

post({Tag, Ack, Draft}, Before) ->
    {{Kind, Result}, After} = publish(Ack, Draft, Before),
    {{Ack, Kind, {Tag, {ok, Result}}}, After}.

%% The one that the answer of them all has to wait for.
hardest(Kinds) ->
    case {lists:member(fresh, Kinds), lists:member(known, Kinds)} of
        {true, _} -> fresh;
        {false, true} -> known;
        {false, false} -> busy
    end.

%% A first answer that is given again may not be on disk yet; then it waits like any other, with
%% nothing to write.
answer(disk, fresh, Reply, #turn{replies = Replies} = Turn) ->
    Turn#turn{replies = [Reply | Replies]};
answer(disk, known, Reply, #turn{repeated = Repeated} = Turn) ->
    Turn#turn{repeated = [Reply | Repeated]};
answer(memory, fresh, Reply, #turn{replies = Replies, now = Now} = Turn) ->
    Turn#turn{replies = [none | Replies], now = [Reply | Now]};
answer(_, _, Reply, #turn{now = Now} = Turn) ->
    Turn#turn{now = [Reply | Now]}.

%% The log has to know which events of a turn were answered before it had them.
publish(disk, Draft, Before) ->
    publish(Draft, Before);
publish(memory, Draft, Before) ->
    case publish(Draft, Before) of
        {{fresh, _} = Result, {#turn{entries = [Entry | Earlier]} = Turn, State}} ->
            {Result, {Turn#turn{entries = [Entry#{ack => memory} | Earlier]}, State}};
        Other ->
            Other
    end.

publish({by, User, Draft}, Before) ->
    case publish(Draft, Before) of
        {{fresh, _} = Result, {#turn{entries = [Entry | Earlier]} = Turn, State}} ->
            {Result, {Turn#turn{entries = [Entry#{by => User} | Earlier]}, State}};
        Other ->
            Other
    end;
publish({private, Private}, Before) ->
    publish_several(halley_event:users(Private), fun(Prefix, Place, At) ->
        halley_event:private_event(Private, Prefix, Place, At)
    end, events_private, Before);
publish({joint, Joint}, Before) ->
    publish_several(halley_event:subjects(Joint), fun(Prefix, Place, At) ->
        halley_event:joint_event(Joint, Prefix, Place, At)
    end, events_joint, Before);
publish({keep, Keep, Draft}, Before) ->
    case publish(Draft, Before) of
        {{fresh, _} = Published, {#turn{entries = [Entry | Entries]} = Sent, State}} ->
            Kept = Sent#turn{entries = [Entry#{keep => Keep} | Entries]},
            {Published, {Kept, State}};
        Other ->
            Other
    end;
publish(Draft, {Turn, State}) ->
    case claim(halley_event:chosen_id(Draft), Turn, State) of
        {known, First} ->
            halley_metrics:incr(events_repeated),
            {{known, First}, {Turn, State}};
        busy ->
            {{busy, busy}, {Turn, State}};
        Fresh ->
            {#{id := Id, sessions := Sessions} = Entry, Sent, Next} =
                publish_one(Draft, Fresh, Turn, State),
            Kept = Sent#turn{entries = [Entry | Sent#turn.entries]},
            {{fresh, #{id => Id, sessions => Sessions}}, {Kept, Next}}
    end.

%% Where there is no room for its seqs, its publisher asks again.
publish_several({ChosenId, Names}, Make, Counter, {Turn, State} = Before) ->
    case has_room(Turn) andalso claim(ChosenId, Turn, State) of
        false ->
            {{busy, busy}, Before};
        {known, First} ->
            halley_metrics:incr(events_repeated),
            {{known, First}, Before};
        busy ->
            {{busy, busy}, Before};
        Fresh ->
            {Place, AtMs} = place_of_several(length(Names), Turn, State),
            #{id := Id} = Event = Make(State#state.id_prefix, Place, AtMs),
            {Sessions, Sent} = fan_out_several(Event, Turn),
            Entry = Event#{sessions := Sessions, chosen := Fresh =:= fresh},
            halley_metrics:incr(Counter),
            {{fresh, #{id => Id, sessions => Sessions}},
             {Sent#turn{entries = [Entry | Sent#turn.entries]}, State}}
    end.

%% An id in a group is new: its orderer has dropped the others.
claim(generated, _, _) -> generated;
claim(Id, #turn{given = none}, #state{shard = Shard}) -> halley_history:claim(Shard, Id);
claim(_, _, _) -> fresh.

has_room(#turn{given = none}) -> halley_history:has_room();
has_room(_) -> true.

place(#turn{given = none}, #state{shard = Shard}) ->
    {{Shard, halley_history:draw(Shard)}, halley_clock:wall_ms()};
place(#turn{given = {Seq, AtMs}}, #state{shard = Shard}) ->
    {{Shard, Seq}, AtMs}.

%% The last of so many places in a row.
place_of_several(N, #turn{given = none}, #state{shard = Shard}) ->
    {{Shard, halley_history:draw(Shard, N)}, halley_clock:wall_ms()};
place_of_several(_, Turn, State) ->
    place(Turn, State).

publish_one(Draft, Fresh, Turn, State = #state{id_prefix = Prefix}) ->
    {Place, AtMs} = place(Turn, State),
    Event = halley_event:event(Draft, Prefix, Place, AtMs),
    {Sessions, Sent, Next} = fan_out(Event, Turn, State),
    {Event#{sessions := Sessions, chosen := Fresh =:= fresh}, Sent, Next}.

fan_out(#{subject := Subject} = Event, Turn, State = #state{groups = Groups}) ->
    Number = halley_ids:lookup(Subject),
    case halley_groups_shard:is_group(Number, Groups) of
        true ->
            Flushed = flush(Turn),
            {Sessions, Sent} = halley_groups_shard:publish(Event, Number, Groups),
            {Sessions, Flushed, State#state{groups = Sent}};
        false ->
            #turn{outbox = Outbox, gathered = Gathered} = Turn,
            Receivers = reached(Subject, Number),
            {Sessions, Added} = halley_fanout:add(Event, Receivers, Outbox),
            {Sessions, room(Turn#turn{outbox = Added, gathered = Gathered + 1}), State}
    end.

reached(Subject) -> reached(Subject, halley_ids:lookup(Subject)).

reached(Subject, Number) ->
    halley_fanout:also(halley_subscriptions_table:words(Subject), halley_fanout:receivers(Number)).

fan_out_several(Event, #turn{outbox = Outbox, gathered = Gathered} = Turn) ->
    Receivers = case Event of
        #{users := Users} -> halley_fanout:of_users(Users);
        #{subjects := Subjects} -> halley_fanout:merged([reached(S) || S <- Subjects])
    end,
    {Sessions, Added} = halley_fanout:add(Event, Receivers, Outbox),
    {Sessions, room(Turn#turn{outbox = Added, gathered = Gathered + 1})}.

room(#turn{gathered = Gathered} = Turn) when Gathered < ?TURN_EVENTS -> Turn;
room(Turn) -> flush(Turn).

flush(#turn{outbox = Outbox} = Turn) ->
    ok = halley_fanout:flush(Outbox),
    Turn#turn{outbox = halley_fanout:outbox(), gathered = 0}.

ended(Turn, Shard) ->
    #turn{entries = Entries, replies = Replies, repeated = Repeated, now = Now} = flush(Turn),
    ok = count(Entries),
    _ = [ok = halley_history:append(Shard, lists:reverse(Entries), Replies) || Entries =/= []],
    _ = [ok = halley_history:append(Shard, [], Repeated) || Repeated =/= []],
    lists:foreach(fun({posts, Publisher, Answers}) -> Publisher ! {posted, Answers};
                     ({From, Answer}) -> gen_server:reply(From, Answer)
                  end, Now).

count(Entries) ->
    case [Sessions || #{sessions := Sessions} = Entry <- Entries, not is_own(Entry)] of
        [] ->
            ok;
        Counts ->
            halley_metrics:incr(events_published, length(Counts)),
            halley_metrics:incr(deliveries, lists:sum(Counts))
    end.

is_own(#{subject := Subject}) -> halley_own:is_own(Subject);
is_own(_) -> false.
