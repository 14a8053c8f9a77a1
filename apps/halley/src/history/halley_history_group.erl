%% Which items the history's log writes together: they are taken from the mailbox of the caller,
%% which is `halley_history_log'. That module's header says how long a group waits for more.
-module(halley_history_group).

-export([gather/2, waiting/1, bytes/1, range/1]).
-export_type([item/0, change/0]).

-include("halley_history.hrl").

%% How long a group in a crowd waits for more.
-define(PATIENCE_MS, 3).
%% How long what nobody waits for stays in memory.
-define(LINGER_MS, 2).
-define(MARK_BYTES, 256).

-type item() :: {append, halley_shards:index(), [halley_history_disk:packed()],
                 Bytes :: pos_integer(), [halley_history:reply()]}
              | {mark, halley_shards:index(), halley_history:seq()}
              | {changed, change(), [{UserId :: binary(), SubjectId :: binary()}]
                                    | [halley_history:placed()],
                 Bytes :: pos_integer(), reference()}.
%% A follow has the seq up to which it doesn't count. Changes of a log that all brains share have
%% their places, and the time of these.
-type change() :: unfollow | {follow, From :: halley_history:seq()} | {placed, AtMs :: integer()}.
%% The latest item first; their bytes; how many wait for them.
-type group() :: {[item()], non_neg_integer(), non_neg_integer()}.

%% From the first to the last of these records, by seqs and times.
-spec range([halley_history_disk:packed(), ...]) -> halley_history:range().
range(Packed) ->
    Seqs = [Seq || #packed{seq = Seq} <- Packed] ++ [first(P) || P <- Packed],
    Times = [At || #packed{at = At} <- Packed],
    {lists:min(Seqs), lists:max(Seqs), lists:min(Times), lists:max(Times)}.

first(#packed{seq = Seq, subject = Several}) when is_list(Several) -> Seq - length(Several) + 1;
first(#packed{seq = Seq}) -> Seq.

%% Crowd: how many waited for the group before.
-spec gather(item(), Crowd :: non_neg_integer()) -> [item()].
gather(Item, Crowd) ->
    NowMs = erlang:monotonic_time(millisecond),
    Lingered = linger(take(add(Item, {[], 0, 0})), NowMs + ?LINGER_MS),
    {Items, _, _} = case Crowd > 1 of
        true -> wait(Lingered, Crowd, NowMs + ?PATIENCE_MS);
        false -> Lingered
    end,
    lists:reverse(Items).

add(Item, {Items, Bytes, Waiting}) ->
    {[Item | Items], Bytes + bytes(Item), Waiting + waiting(Item)}.

%% Until somebody waits.
-spec linger(group(), UntilMs :: integer()) -> group().
linger({_, Bytes, 0} = Group, UntilMs) ->
    LeftMs = max(0, UntilMs - erlang:monotonic_time(millisecond)),
    case Bytes < halley_limits:get(history_commit_bytes_max) of
        true ->
            receive {history, Item} -> linger(add(Item, Group), UntilMs)
            after LeftMs -> Group
            end;
        false ->
            Group
    end;
linger(Group, _) ->
    take(Group).

take({_, Bytes, _} = Group) ->
    case Bytes < halley_limits:get(history_commit_bytes_max) of
        true ->
            receive {history, Item} -> take(add(Item, Group))
            after 0 -> Group
            end;
        false ->
            Group
    end.

wait({_, Bytes, Waiting} = Group, Crowd, UntilMs) ->
    IsEnough = Waiting >= Crowd
        orelse Bytes >= halley_limits:get(history_commit_bytes_max)
        orelse erlang:monotonic_time(millisecond) >= UntilMs,
    case IsEnough of
        true ->
            Group;
        false ->
            receive after 1 -> ok end,
            case take(Group) of
                Group -> Group;
                More -> wait(More, Crowd, UntilMs)
            end
    end.

%% Against the bound of a group.
-spec bytes(item()) -> pos_integer().
bytes({append, _, _, Bytes, _}) -> Bytes;
bytes({changed, _, _, Bytes, _}) -> Bytes;
bytes({mark, _, _}) -> ?MARK_BYTES.

%% How many wait for it to be on disk.
-spec waiting(item()) -> non_neg_integer().
waiting({append, _, _, _, Replies}) -> lists:sum([waiting_for(Reply) || Reply <- Replies]);
waiting({changed, _, _, _, _}) -> 1;
waiting({mark, _, _}) -> 0.

waiting_for(none) -> 0;
waiting_for({posts, _, Answers}) -> length(Answers);
waiting_for({_, _}) -> 1.
