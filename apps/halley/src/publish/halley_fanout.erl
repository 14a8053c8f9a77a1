%% Fan-out: finds the receivers of an event, and sends it to them.
%%
%% Receivers are the sessions of the subject's followers and of the subject itself, as
%% `halley_directory' words (and pids) in ascending order: words of one slot stand together and
%% processes come last. A user that comes up twice counts once.
%%
%% An edge gets all of an event, whatever the number of its connections and workers, in one message:
%% so it gets it now or, if it is behind, later. The words go as they are. Events are gathered
%% (`outbox()') until the caller flushes them: then each writer gets one message for all. A process
%% that is a session gets
%% `{halley, #{id, subject, at, data}}' at once, with the data decoded; of a private event, which
%% has no subject, `#{id, private => true, at, data}'; of a joint one `#{id, subjects, at, data}'.
%%
%% It reads and sends; order is the caller's: for live events the subject's shard
%% (`halley_shard_server'), for what slots have missed their writer (`halley_catchup').
-module(halley_fanout).

-export([receivers/1, receivers/2, of_users/1, of_user/2, also/2, merged/1, without/2, beyond/3,
         packed/1, by_slot/1]).
-export([outbox/0, add/3, flush/1, send_group/4]).
-export_type([receivers/0, outbox/0, there/0]).

-opaque receivers() :: [halley_directory:word() | pid()].
%% For each way what it is to be sent, the latest event first; and for each slot that has been met
%% its way.
-opaque outbox() :: #{halley_links:slot() => gone | {halley_links:link(), [delivery()]}
                                           | {on, Way :: halley_links:slot()}}.
-type delivery() :: {halley_event:delivery(), halley_links_queue:to()}.
%% Slots of one trunk.
-type there() :: #{halley_links:slot() => []}.

-define(CONN_BITS, 48).

%% Of a subject that has never been followed by anyone, and isn't a user, nobody knows a number.
-spec receivers(Subject :: halley_id:user_number() | undefined) -> receivers().
receivers(undefined) ->
    [];
receivers(Subject) ->
    Chunks = halley_directory_atomics:chunks(),
    Slices = halley_follows_graph:followers_packed(Subject),
    ok = halley_groups:crowd(Subject, iolist_size(Slices) div 4),
    Own = found(halley_directory:lookup(Chunks, Subject), []),
    sorted(lists:foldl(fun(Slice, Acc) -> add_all(Slice, Chunks, Acc) end, Own, Slices)).

%% Of users alone: not of who follows them.
-spec of_users([halley_id:id()]) -> receivers().
of_users(Users) ->
    Chunks = halley_directory_atomics:chunks(),
    sorted(lists:foldl(fun(User, Acc) ->
        case halley_ids:lookup(User) of
            undefined -> Acc;
            Number -> found(halley_directory:lookup(Chunks, Number), Acc)
        end
    end, [], Users)).

add_all(<<User:32, Rest/binary>>, Chunks, Acc) ->
    add_all(Rest, Chunks, found(halley_directory:lookup(Chunks, User), Acc));
add_all(<<>>, _, Acc) ->
    Acc.

sorted([_, _ | _] = Found) -> lists:usort(Found);
sorted(Few) -> Few.

found(0, Acc) -> Acc;
found(Word, Acc) when is_integer(Word) -> [Word | Acc];
found([], Acc) -> Acc;
found([Row | Rows], Acc) -> found(Rows, [Row | Acc]).

%% The receivers there.
-spec receivers(halley_id:id(), there()) -> receivers().
receivers(Subject, There) ->
    case halley_ids:lookup(Subject) of
        undefined ->
            [];
        Number ->
            Chunks = halley_directory_atomics:chunks(),
            Add = fun(User, Acc) -> add_at(There, halley_directory:lookup(Chunks, User), Acc) end,
            sorted(halley_follows_graph:fold_followers(Add, Add(Number, []), Number))
    end.

%% The sessions that a user has there.
-spec of_user(halley_id:user_number(), there()) -> receivers().
of_user(User, There) ->
    add_at(There, halley_directory:lookup(halley_directory_atomics:chunks(), User), []).

%% Receivers, and sessions in ascending order beside them.
-spec also([halley_directory:word()], receivers()) -> receivers().
also([], Receivers) -> Receivers;
also(Words, Receivers) -> lists:umerge(Words, Receivers).

-spec merged([receivers()]) -> receivers().
merged(Receivers) ->
    lists:usort(lists:append(Receivers)).

%% The receivers that aren't among any of these.
-spec without([receivers()], receivers()) -> receivers().
without([], Receivers) -> Receivers;
without(Others, Receivers) -> ordsets:subtract(Receivers, merged(Others)).

%% Of a group: the followers beyond the user that it is filled up to, and the processes among the
%% sessions of these members.
-spec beyond(Subject :: halley_id:user_number(), UpTo :: integer() | all,
             [halley_id:user_number()]) -> receivers().
beyond(Subject, UpTo, Members) ->
    Chunks = halley_directory_atomics:chunks(),
    Processes = [Pid || User <- Members, Rows <- [halley_directory:lookup(Chunks, User)],
                        is_list(Rows), Pid <- Rows, is_pid(Pid)],
    sorted(beyond(UpTo, Subject, Chunks, Processes)).

beyond(all, _, _, Acc) ->
    Acc;
beyond(UpTo, Subject, Chunks, Acc) ->
    Add = fun(User, A) when User > UpTo -> found(halley_directory:lookup(Chunks, User), A);
             (_, A) -> A
          end,
    halley_follows_graph:fold_followers(Add, Acc, Subject).

add_at(Slots, Word, Acc) when is_integer(Word), is_map_key(Word bsr ?CONN_BITS, Slots) ->
    [Word | Acc];
add_at(_, Word, Acc) when is_integer(Word) -> Acc;
add_at(_, [], Acc) -> Acc;
add_at(There, [Pid | Rows], Acc) when is_pid(Pid) -> add_at(There, Rows, Acc);
add_at(There, [Word | Rows], Acc) -> add_at(There, Rows, add_at(There, Word, Acc)).

%% Receivers without processes, as `halley_links_queue:deliver/2' takes them.
-spec packed(receivers()) -> Words :: binary().
packed([Word]) -> <<Word:64>>;
packed(Words) -> << <<Word:64>> || Word <- Words >>.

-spec outbox() -> outbox().
outbox() ->
    #{}.

%% How many sessions it goes to. A link that is behind counts: its sessions get the event from the
%% history.
-spec add(halley_event:event() | halley_event:private_event() | halley_event:joint_event(),
          receivers(), outbox()) -> {non_neg_integer(), outbox()}.
add(_, [], Outbox) ->
    {0, Outbox};
add(Event, Receivers, Outbox) ->
    add(Event, halley_event:delivery(Event), Receivers, 0, Outbox).

add(_, _, [], Sent, Outbox) ->
    {Sent, Outbox};
add(Event, _, [Pid | _] = Pids, Sent, Outbox) when is_pid(Pid) ->
    {Sent + to_processes(Event, Pids), Outbox};
add(Event, Delivery, [Word | Rest], Sent, Outbox) ->
    Slot = Word bsr ?CONN_BITS,
    case found_way(Slot, Outbox) of
        {on, Way, Met} ->
            {Words, Others} = take_way(Rest, Slot, {on, Way}, [Word], Met),
            Added = add_words(Way, Delivery, Words, Met),
            add(Event, Delivery, Others, Sent + length(Words), Added);
        gone ->
            {_, Others} = take_slot(Rest, Slot, []),
            add(Event, Delivery, Others, Sent, Outbox#{Slot => gone})
    end.

%% A worker's way, in an outbox that knows both.
found_way(Slot, Outbox) ->
    case Outbox of
        #{Slot := {on, Way}} -> {on, Way, Outbox};
        #{Slot := gone} -> gone;
        #{} -> find_way(Slot, Outbox)
    end.

find_way(Slot, Outbox) ->
    case halley_links:find(Slot) of
        {ok, Link} ->
            Way = halley_links:way(Link),
            {on, Way, maps:merge(#{Slot => {on, Way}, Way => {Link, []}}, Outbox)};
        gone ->
            gone
    end.

%% In ascending order: those of one slot stand together.
take_way([Word | Rest], Slot, On, Taken, Outbox)
  when is_integer(Word), Word bsr ?CONN_BITS =:= Slot ->
    take_way(Rest, Slot, On, [Word | Taken], Outbox);
take_way([Word | Rest] = Words, _, On, Taken, Outbox) when is_integer(Word) ->
    Slot = Word bsr ?CONN_BITS,
    case Outbox of
        #{Slot := On} -> take_way(Rest, Slot, On, [Word | Taken], Outbox);
        #{} -> {lists:reverse(Taken), Words}
    end;
take_way(Rest, _, _, Taken, _) ->
    {lists:reverse(Taken), Rest}.

%% An event is in one message, also if slots of others lie between those of the trunk.
add_words(Way, Delivery, Words, Outbox) ->
    Packed = packed(Words),
    #{Way := {Link, Deliveries}} = Outbox,
    Gathered = case Deliveries of
        [{Delivery, Before} | Earlier] -> [{Delivery, <<Before/binary, Packed/binary>>} | Earlier];
        _ -> [{Delivery, Packed} | Deliveries]
    end,
    Outbox#{Way := {Link, Gathered}}.

to_processes(Event, Pids) ->
    Message = {halley, (told(Event))#{data => halley_event:data(Event)}},
    lists:foreach(fun(Pid) -> Pid ! Message end, Pids),
    length(Pids).

told(#{subject := _} = Event) -> maps:with([id, subject, at], Event);
told(#{subjects := _} = Event) -> maps:with([id, subjects, at], Event);
told(Event) -> (maps:with([id, at], Event))#{private => true}.

%% Sends what was gathered.
-spec flush(outbox()) -> ok.
flush(Outbox) ->
    maps:foreach(fun(_, {Link, [_ | _] = Deliveries}) ->
                         _ = halley_links_queue:deliver(Link, lists:reverse(Deliveries));
                    (_, _) -> ok
                 end, Outbox).

%% Sends an event to a group, at these slots, and to others as well. Gives how many of the others it
%% was sent to, and which of the slots have ended. A writer gets one message, for both.
-spec send_group(halley_event:event(), Group :: halley_id:user_number(), [halley_links:slot()],
                 receivers()) -> {non_neg_integer(), [halley_links:slot()]}.
send_group(Event, Group, Slots, Receivers) ->
    Delivery = halley_event:delivery(Event),
    {Sent, Others} = add(Event, Delivery, Receivers, 0, outbox()),
    {Gone, Outbox} = lists:foldr(fun(Slot, {Ended, Box}) ->
        case found_way(Slot, Box) of
            {on, Way, Met} ->
                #{Way := {Link, Gathered}} = Met,
                {Ended, Met#{Way := {Link, [{Delivery, to_members(Slot, Group, Gathered)}]}}};
            gone ->
                {[Slot | Ended], Box}
        end
    end, {[], Others}, lists:sort(Slots)),
    ok = flush(Outbox),
    {Sent, Gone}.

to_members(Slot, Group, []) -> {group, Group, [Slot], <<>>};
to_members(Slot, Group, [{_, {group, Group, Slots, Words}}]) ->
    {group, Group, [Slot | Slots], Words};
to_members(Slot, Group, [{_, Words}]) -> {group, Group, [Slot], Words}.

%% The words of each slot.
-spec by_slot([halley_directory:word()]) -> [{halley_links:slot(), Words :: binary()}].
by_slot(Words) ->
    slots(lists:sort(Words)).

slots([]) ->
    [];
slots([Word | Rest]) ->
    Slot = Word bsr ?CONN_BITS,
    {Words, Others} = take_slot(Rest, Slot, [Word]),
    [{Slot, packed(Words)} | slots(Others)].

take_slot([Word | Rest], Slot, Taken) when is_integer(Word), Word bsr ?CONN_BITS =:= Slot ->
    take_slot(Rest, Slot, [Word | Taken]);
take_slot(Rest, _, Taken) ->
    {Taken, Rest}.
