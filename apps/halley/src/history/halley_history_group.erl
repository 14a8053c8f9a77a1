%% Which items the history's log writes together: they are taken from the mailbox of the caller,
%% which is `halley_history_log'. That module's header says how long a group waits for more.
-module(halley_history_group).

-export([gather/2, waits/1, bytes/1, range/1]).
-export_type([item/0, change/0]).

-include("halley_history.hrl").

%% How long a group in a crowd waits for more.
-define(PATIENCE_MS, 3).
%% How long what nobody waits for stays in memory.
-define(LINGER_MS, 2).
-define(MARK_BYTES, 256).

-type item() :: {append, halley_shards:index(), [halley_history_disk:packed()],
                 Bytes :: pos_integer(), halley_history:reply()}
              | {mark, halley_shards:index(), halley_history:seq()}
              | {changed, change(), [{UserId :: binary(), SubjectId :: binary()}],
                 Bytes :: pos_integer(), reference()}.
%% A follow has the seq up to which it doesn't count.
-type change() :: unfollow | {follow, From :: halley_history:seq()}.

%% From the first to the last of these records, by seqs and times.
-spec range([halley_history_disk:packed(), ...]) -> halley_history:range().
range(Packed) ->
    Seqs = [Seq || #packed{seq = Seq} <- Packed],
    Times = [At || #packed{at = At} <- Packed],
    {lists:min(Seqs), lists:max(Seqs), lists:min(Times), lists:max(Times)}.

-spec gather(item(), Crowd :: non_neg_integer()) -> [item()].
gather(Item, Crowd) ->
    NowMs = erlang:monotonic_time(millisecond),
    {Items, Bytes} = linger(take([Item], bytes(Item)), NowMs + ?LINGER_MS),
    lists:reverse(case Crowd > 1 of
        true -> wait(Items, Bytes, Crowd, NowMs + ?PATIENCE_MS);
        false -> Items
    end).

linger({Items, Bytes}, UntilMs) ->
    case lists:any(fun waits/1, Items) of
        true -> {Items, Bytes};
        false -> linger(Items, Bytes, UntilMs)
    end.

%% Nobody waits for these items.
linger(Items, Bytes, UntilMs) ->
    LeftMs = max(0, UntilMs - erlang:monotonic_time(millisecond)),
    case Bytes < halley_limits:get(history_commit_bytes_max) of
        true ->
            receive
                {history, Item} ->
                    linger_with(Item, [Item | Items], Bytes + bytes(Item), UntilMs)
            after LeftMs ->
                {Items, Bytes}
            end;
        false ->
            {Items, Bytes}
    end.

linger_with(Item, Items, Bytes, UntilMs) ->
    case waits(Item) of
        true -> take(Items, Bytes);
        false -> linger(Items, Bytes, UntilMs)
    end.

take(Items, Bytes) ->
    case Bytes < halley_limits:get(history_commit_bytes_max) of
        true ->
            receive {history, Item} -> take([Item | Items], Bytes + bytes(Item))
            after 0 -> {Items, Bytes}
            end;
        false ->
            {Items, Bytes}
    end.

wait(Items, Bytes, Crowd, UntilMs) ->
    IsEnough = length(Items) >= Crowd
        orelse Bytes >= halley_limits:get(history_commit_bytes_max)
        orelse erlang:monotonic_time(millisecond) >= UntilMs,
    case IsEnough of
        true ->
            Items;
        false ->
            receive after 1 -> ok end,
            case take(Items, Bytes) of
                {Items, _} -> Items;
                {More, MoreBytes} -> wait(More, MoreBytes, Crowd, UntilMs)
            end
    end.

%% Against the bound of a group.
-spec bytes(item()) -> pos_integer().
bytes({append, _, _, Bytes, _}) -> Bytes;
bytes({changed, _, _, Bytes, _}) -> Bytes;
bytes({mark, _, _}) -> ?MARK_BYTES.

%% Whether somebody waits for it to be on disk.
-spec waits(item()) -> boolean().
waits({append, _, _, _, none}) -> false;
waits({mark, _, _}) -> false;
waits(_) -> true.
