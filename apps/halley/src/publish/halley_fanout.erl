%% Fan-out: who gets an event, and sending it to them.
%%
%% Receivers are the sessions of the subject's followers and of the subject itself, as
%% `halley_directory' words (and pids) in ascending order: words of one slot stand together and
%% processes come last. A user that is met twice counts once.
%%
%% A link gets one message for an event, whatever the number of its connections: so it gets all of
%% the event now or, if it is behind, all of it later. A process that is a session gets
%% `{halley, #{id, subject, at, data}}' with the data decoded.
%%
%% It reads and sends; order is the caller's: for live events the subject's shard
%% (`halley_shard_server'), for what one link has missed its writer (`halley_catchup').
-module(halley_fanout).

-export([receivers/1, receivers/2, of_user/2, merged/1, without/2, beyond/3, conns/1, by_slot/1]).
-export([send/2, send_group/4]).
-export_type([receivers/0]).

-opaque receivers() :: [halley_directory:word() | pid()].

-define(CONN_BITS, 48).

-spec receivers(halley_id:id()) -> receivers().
receivers(Subject) ->
    case halley_ids:lookup(Subject) of
        undefined ->
            [];
        Number ->
            Chunks = halley_directory_words:chunks(),
            Slices = halley_follows:followers_packed(Number),
            ok = halley_groups:crowd(Number, iolist_size(Slices) div 4),
            Own = add(halley_directory:lookup(Chunks, Number), []),
            sorted(lists:foldl(fun(Slice, Acc) -> add_all(Slice, Chunks, Acc) end, Own, Slices))
    end.

add_all(<<User:32, Rest/binary>>, Chunks, Acc) ->
    add_all(Rest, Chunks, add(halley_directory:lookup(Chunks, User), Acc));
add_all(<<>>, _, Acc) ->
    Acc.

sorted([_, _ | _] = Found) -> lists:usort(Found);
sorted(Few) -> Few.

add(0, Acc) -> Acc;
add(Word, Acc) when is_integer(Word) -> [Word | Acc];
add([], Acc) -> Acc;
add([Row | Rows], Acc) -> add(Rows, [Row | Acc]).

%% The receivers on one link.
-spec receivers(halley_id:id(), halley_links:slot()) -> receivers().
receivers(Subject, Slot) ->
    case halley_ids:lookup(Subject) of
        undefined ->
            [];
        Number ->
            Chunks = halley_directory_words:chunks(),
            Add = fun(User, Acc) -> add_at(Slot, halley_directory:lookup(Chunks, User), Acc) end,
            sorted(halley_follows:fold_followers(Add, Add(Number, []), Number))
    end.

%% The sessions that a user has on one link.
-spec of_user(halley_id:user_number(), halley_links:slot()) -> receivers().
of_user(User, Slot) ->
    add_at(Slot, halley_directory:lookup(halley_directory_words:chunks(), User), []).

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
    Chunks = halley_directory_words:chunks(),
    Processes = [Pid || User <- Members, Rows <- [halley_directory:lookup(Chunks, User)],
                        is_list(Rows), Pid <- Rows, is_pid(Pid)],
    sorted(beyond(UpTo, Subject, Chunks, Processes)).

beyond(all, _, _, Acc) ->
    Acc;
beyond(UpTo, Subject, Chunks, Acc) ->
    Add = fun(User, A) when User > UpTo -> add(halley_directory:lookup(Chunks, User), A);
             (_, A) -> A
          end,
    halley_follows:fold_followers(Add, Acc, Subject).

add_at(Slot, Word, Acc) when is_integer(Word), Word bsr ?CONN_BITS =:= Slot -> [Word | Acc];
add_at(_, Word, Acc) when is_integer(Word) -> Acc;
add_at(_, [], Acc) -> Acc;
add_at(Slot, [Pid | Rows], Acc) when is_pid(Pid) -> add_at(Slot, Rows, Acc);
add_at(Slot, [Word | Rows], Acc) -> add_at(Slot, Rows, add_at(Slot, Word, Acc)).

%% Receivers on one link as `halley_links:deliver/3' takes them.
-spec conns(receivers()) -> Conns :: binary().
conns(Words) ->
    pack(Words).

%% How many sessions it was sent to. A link that is behind counts: its sessions get the event from
%% the history.
-spec send(halley_event:event(), receivers()) -> non_neg_integer().
send(_, []) ->
    0;
send(Event, Receivers) ->
    send(Event, halley_event:delivery(Event), Receivers, 0).

send(_, _, [], Sent) ->
    Sent;
send(Event, _, [Pid | _] = Pids, Sent) when is_pid(Pid) ->
    Message = {halley, (maps:with([id, subject, at], Event))#{data => halley_event:data(Event)}},
    lists:foreach(fun(P) -> P ! Message end, Pids),
    Sent + length(Pids);
send(Event, Delivery, [Word | Rest], Sent) ->
    Slot = Word bsr ?CONN_BITS,
    {Words, Others} = take_slot(Rest, Slot, [Word]),
    send(Event, Delivery, Others, Sent + deliver(Slot, Delivery, pack(Words))).

%% Sends an event to a group, on these links, and to others beside it. Gives how many of the others
%% it was sent to, and which of the links have ended. A link gets one message, for both.
-spec send_group(halley_event:event(), Group :: halley_id:user_number(), [halley_links:slot()],
                 receivers()) -> {non_neg_integer(), [halley_links:slot()]}.
send_group(Event, Group, Slots, Receivers) ->
    Delivery = halley_event:delivery(Event),
    {Words, Pids} = lists:splitwith(fun is_integer/1, Receivers),
    Others = maps:from_list(by_slot(Words)),
    {Sent, Gone} = lists:foldl(fun(Slot, {N, Ended}) ->
        Conns = maps:get(Slot, Others, <<>>),
        case halley_links:deliver(Slot, Delivery, {group, Group, Conns}) of
            gone -> {N, [Slot | Ended]};
            _ -> {N + byte_size(Conns) div 8, Ended}
        end
    end, {0, []}, Slots),
    Rest = [deliver(Slot, Delivery, Conns)
            || {Slot, Conns} <- maps:to_list(maps:without(Slots, Others))],
    {Sent + lists:sum(Rest) + send(Event, Pids), Gone}.

%% The connections of each link.
-spec by_slot([halley_directory:word()]) -> [{halley_links:slot(), Conns :: binary()}].
by_slot(Words) ->
    slots(lists:sort(Words)).

slots([]) ->
    [];
slots([Word | Rest]) ->
    Slot = Word bsr ?CONN_BITS,
    {Words, Others} = take_slot(Rest, Slot, [Word]),
    [{Slot, pack(Words)} | slots(Others)].

take_slot([Word | Rest], Slot, Taken) when is_integer(Word), Word bsr ?CONN_BITS =:= Slot ->
    take_slot(Rest, Slot, [Word | Taken]);
take_slot(Rest, _, Taken) ->
    {Taken, Rest}.

pack([Word]) -> <<0:16, Word:?CONN_BITS>>;
pack(Words) -> << <<0:16, Word:?CONN_BITS>> || Word <- Words >>.

deliver(Slot, Delivery, Conns) ->
    case halley_links:deliver(Slot, Delivery, Conns) of
        gone -> 0;
        _ -> byte_size(Conns) div 8
    end.
