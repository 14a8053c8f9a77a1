%% Collects the garbage of processes that have become idle.
%%
%% A process collects its garbage when its heap is full. So one that was busy and has little to do
%% now keeps its large heap, most of it garbage, for hours. The caller takes samples now and then: a
%% process that did next to nothing since the last sample has its garbage collected, once, until it
%% has been busy again.
%%
%% The caller keeps the samples, and gets a message {garbage_collect, _, _} for each collection. A
%% sample is the process's reductions; the process itself isn't asked.
-module(halley_edge_idle_gc).

-export([new/0, sample/2]).
-export_type([samples/0]).

%% Between two samples: a heartbeat and STATS take a tenth of it.
-define(QUIET_REDUCTIONS, 20000).

%% `asked': to collect its garbage. `resting': it has.
-type sample() :: {Reductions :: non_neg_integer(), busy | asked | resting}.
-opaque samples() :: #{pid() => sample()}.

-spec new() -> samples().
new() ->
    #{}.

%% Samples all of these processes; others are forgotten.
-spec sample([pid()], samples()) -> samples().
sample(Pids, Samples) ->
    maps:from_list([{Pid, Sample} || Pid <- Pids,
                                   {reductions, Now} <- [process_info(Pid, reductions)],
                                   Sample <- [next(Pid, Now, maps:get(Pid, Samples, {0, busy}))]]).

%% A collection takes reductions itself.
next(_, Now, {_, asked}) ->
    {Now, resting};
next(_, Now, {Before, _}) when Now - Before > ?QUIET_REDUCTIONS ->
    {Now, busy};
next(_, Now, {_, resting}) ->
    {Now, resting};
next(Pid, Now, {_, busy}) ->
    async = erlang:garbage_collect(Pid, [{async, rest}]),
    {Now, asked}.
