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
%% (`halley_shard'), for what one link has missed its writer (`halley_catchup').
-module(halley_fanout).

-export([receivers/1, receivers/2, with_users/3, conns/1, send/2]).
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
            Add = fun(User, Acc) -> add(halley_directory:lookup(Chunks, User), Acc) end,
            sorted(halley_follows:fold_followers(Add, Add(Number, []), Number))
    end.

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

%% With the sessions that further users have on this link.
-spec with_users([halley_id:id()], halley_links:slot(), receivers()) -> receivers().
with_users([], _, Receivers) ->
    Receivers;
with_users(Users, Slot, Receivers) ->
    Chunks = halley_directory_words:chunks(),
    Numbers = [N || User <- Users, N <- [halley_ids:lookup(User)], N =/= undefined],
    sorted(lists:foldl(fun(N, Acc) -> add_at(Slot, halley_directory:lookup(Chunks, N), Acc) end,
                       Receivers, Numbers)).

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
