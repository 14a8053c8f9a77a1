%% Recent log lines about an address or a node, so that a peer that is set up wrong and tries for
%% ever is one line for each reason, and then one now and then with how often it was. Pure.
%%
%% At most ?TOLD_MAX lines are known; of others, nothing is held back.
-module(teleport_told).

-export([new/1, told/4, size/1]).
-export_type([told/0]).

-define(TOLD_MAX, 1000).

-opaque told() :: {AgainMs :: pos_integer(),
                   #{{Whose :: term(), Why :: term()} => {Since :: integer(), pos_integer()}}}.

%% `AgainMs': for which an equal line is held back.
-spec new(AgainMs :: pos_integer()) -> told().
new(AgainMs) -> {AgainMs, #{}}.

%% Whether to log it, and how often it was since the last line about it.
-spec told(Whose :: term(), Why :: term(), NowMs :: integer(), told()) ->
    {log, More :: non_neg_integer(), told()} | {quiet, told()}.
told(Whose, Why, NowMs, {AgainMs, Lines}) ->
    Line = {Whose, Why},
    case Lines of
        #{Line := {Since, Count}} when NowMs - Since < AgainMs ->
            {quiet, {AgainMs, Lines#{Line := {Since, Count + 1}}}};
        #{Line := {_, Count}} ->
            {log, Count - 1, {AgainMs, Lines#{Line := {NowMs, 1}}}};
        #{} when map_size(Lines) < ?TOLD_MAX ->
            {log, 0, {AgainMs, Lines#{Line => {NowMs, 1}}}};
        #{} ->
            Kept = maps:filter(fun(_, {Since, _}) -> NowMs - Since < AgainMs end, Lines),
            case map_size(Kept) < ?TOLD_MAX of
                true -> {log, 0, {AgainMs, Kept#{Line => {NowMs, 1}}}};
                false -> {log, 0, {AgainMs, Kept}}
            end
    end.

%% How many lines are known.
-spec size(told()) -> non_neg_integer().
size({_, Lines}) -> map_size(Lines).
