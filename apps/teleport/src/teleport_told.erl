%% Recent log lines about an address, so that a peer that is set up wrong and tries for ever is one
%% line, and then one now and then with how often it was. Pure.
%%
%% At most ?TOLD_MAX addresses are known; of others, nothing is held back.
-module(teleport_told).

-export([new/0, told/4]).
-export_type([told/0]).

-define(TOLD_MAX, 1000).
-define(AGAIN_MS, 600000).

-opaque told() :: #{Whose :: term() => {Why :: term(), Since :: integer(), pos_integer()}}.

-spec new() -> told().
new() -> #{}.

%% Whether to log it, and how often it was since the last line about it.
-spec told(Whose :: term(), Why :: term(), NowMs :: integer(), told()) ->
    {log, More :: non_neg_integer(), told()} | {quiet, told()}.
told(Whose, Why, NowMs, Told) ->
    case Told of
        #{Whose := {Why, Since, Count}} when NowMs - Since < ?AGAIN_MS ->
            {quiet, Told#{Whose := {Why, Since, Count + 1}}};
        #{Whose := {Why, _, Count}} ->
            {log, Count - 1, Told#{Whose := {Why, NowMs, 1}}};
        #{Whose := _} ->
            {log, 0, Told#{Whose := {Why, NowMs, 1}}};
        #{} when map_size(Told) < ?TOLD_MAX ->
            {log, 0, Told#{Whose => {Why, NowMs, 1}}};
        #{} ->
            Kept = maps:filter(fun(_, {_, Since, _}) -> NowMs - Since < ?AGAIN_MS end, Told),
            case map_size(Kept) < ?TOLD_MAX of
                true -> {log, 0, Kept#{Whose => {Why, NowMs, 1}}};
                false -> {log, 0, Kept}
            end
    end.
