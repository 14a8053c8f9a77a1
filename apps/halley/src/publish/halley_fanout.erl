%% Fan-out: finds the receivers of an event, and sends it to them.
%%
%% Receivers are the sessions of the subject's followers and of the subject itself, as
%% `halley_directory' words (and pids) in ascending order: words of one slot stand together and
%% processes come last. A user that comes up twice counts once.
%%
%% A link gets all of an event, whatever the number of its connections, in one message: so it gets
%% it now or, if it is behind, later. Events are gathered (`outbox()') until the caller flushes
%% them: then each link gets one message for all. A process that is a session gets
%% `{halley, #{id, subject, at, data}}' at once, with the data decoded; of a private event, which
%% has no subject, `#{id, private => true, at, data}'.
%%
%% It reads and sends; order is the caller's: for live events the subject's shard
%% (`halley_shard_server'), for what one link has missed its writer (`halley_catchup').
-module(halley_fanout).

-export([receivers/1, receivers/2, of_users/1, of_user/2, merged/1, without/2, beyond/3, conns/1,
         by_slot/1]).
-export([outbox/0, add/3, flush/1, send_group/4]).
-export_type([receivers/0, outbox/0]).

-opaque receivers() :: [halley_directory:word() | pid()].
%% For each link that has been found what it is to be sent, the latest event first.
-opaque outbox() :: #{halley_links:slot() => gone | {halley_links:link(), [delivery()]}}.
-type delivery() :: {halley_event:delivery(), halley_links:to()}.

-define(CONN_BITS, 48).

%% Of a subject that has never been followed by anyone, and isn't a user, nobody knows a number.
-spec receivers(Subject :: halley_id:user_number() | undefined) -> receivers().
receivers(undefined) ->
    [];
receivers(Subject) ->
    Chunks = halley_directory_atomics:chunks(),
    Slices = halley_follows:followers_packed(Subject),
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

%% The receivers on one link.
-spec receivers(halley_id:id(), halley_links:slot()) -> receivers().
receivers(Subject, Slot) ->
    case halley_ids:lookup(Subject) of
        undefined ->
            [];
        Number ->
            Chunks = halley_directory_atomics:chunks(),
            Add = fun(User, Acc) -> add_at(Slot, halley_directory:lookup(Chunks, User), Acc) end,
            sorted(halley_follows:fold_followers(Add, Add(Number, []), Number))
    end.

%% The sessions that a user has on one link.
-spec of_user(halley_id:user_number(), halley_links:slot()) -> receivers().
of_user(User, Slot) ->
    add_at(Slot, halley_directory:lookup(halley_directory_atomics:chunks(), User), []).

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
    halley_follows:fold_followers(Add, Acc, Subject).

add_at(Slot, Word, Acc) when is_integer(Word), Word bsr ?CONN_BITS =:= Slot -> [Word | Acc];
add_at(_, Word, Acc) when is_integer(Word) -> Acc;
add_at(_, [], Acc) -> Acc;
add_at(Slot, [Pid | Rows], Acc) when is_pid(Pid) -> add_at(Slot, Rows, Acc);
add_at(Slot, [Word | Rows], Acc) -> add_at(Slot, Rows, add_at(Slot, Word, Acc)).

%% Receivers on one link as `halley_links:deliver/2' takes them.
-spec conns(receivers()) -> Conns :: binary().
conns(Words) ->
    pack(Words).

-spec outbox() -> outbox().
outbox() ->
    #{}.

%% How many sessions it goes to. A link that is behind counts: its sessions get the event from the
%% history.
-spec add(halley_event:event() | halley_event:private_event(), receivers(), outbox()) ->
    {non_neg_integer(), outbox()}.
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
    {Words, Others} = take_slot(Rest, Slot, [Word]),
    case link(Slot, Outbox) of
        gone ->
            add(Event, Delivery, Others, Sent, Outbox#{Slot => gone});
        {Link, Deliveries} ->
            Gathered = {Link, [{Delivery, pack(Words)} | Deliveries]},
            add(Event, Delivery, Others, Sent + length(Words), Outbox#{Slot => Gathered})
    end.

link(Slot, Outbox) ->
    case Outbox of
        #{Slot := Found} ->
            Found;
        #{} ->
            case halley_links:find(Slot) of
                {ok, Link} -> {Link, []};
                gone -> gone
            end
    end.

to_processes(_, []) ->
    0;
to_processes(Event, Pids) ->
    Message = {halley, (told(Event))#{data => halley_event:data(Event)}},
    lists:foreach(fun(Pid) -> Pid ! Message end, Pids),
    length(Pids).

told(#{subject := _} = Event) -> maps:with([id, subject, at], Event);
told(Event) -> (maps:with([id, at], Event))#{private => true}.

%% Sends what was gathered.
-spec flush(outbox()) -> ok.
flush(Outbox) ->
    maps:foreach(fun(_, gone) -> ok;
                    (_, {Link, Deliveries}) ->
                        _ = halley_links:deliver(Link, lists:reverse(Deliveries))
                 end, Outbox).

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
        case deliver(Slot, Delivery, {group, Group, Conns}) of
            gone -> {N, [Slot | Ended]};
            _ -> {N + byte_size(Conns) div 8, Ended}
        end
    end, {0, []}, Slots),
    Rest = [byte_size(Conns) div 8
            || {Slot, Conns} <- maps:to_list(maps:without(Slots, Others)),
               deliver(Slot, Delivery, Conns) =/= gone],
    {Sent + lists:sum(Rest) + to_processes(Event, Pids), Gone}.

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

deliver(Slot, Delivery, To) ->
    case halley_links:find(Slot) of
        {ok, Link} -> halley_links:deliver(Link, [{Delivery, To}]);
        gone -> gone
    end.
