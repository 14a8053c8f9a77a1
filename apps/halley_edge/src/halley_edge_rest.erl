%% Processes that have become quiet give back what they needed when they were busy.
%%
%% A process collects its garbage when its heap is full, so one that was busy and has little to do
%% now keeps a heap of then, most of it garbage, for hours. Whoever has a clock looks at its
%% processes now and then: one that did next to nothing since the last look has its garbage
%% collected, once, until it has been busy again.
%%
%% The looks belong to the caller, who gets a message {garbage_collect, _, _} for each collection. A
%% process isn't asked what it does: its reductions say it.
-module(halley_edge_rest).

-export([new/0, look/2]).
-export_type([looks/0]).

%% Between two looks: a heartbeat and STATS take a tenth of it.
-define(QUIET_REDUCTIONS, 20000).

%% `asked': to collect its garbage. `resting': it has.
-type look() :: {Reductions :: non_neg_integer(), busy | asked | resting}.
-opaque looks() :: #{pid() => look()}.

-spec new() -> looks().
new() ->
    #{}.

%% Looks at all of these processes; others are forgotten.
-spec look([pid()], looks()) -> looks().
look(Pids, Looks) ->
    maps:from_list([{Pid, Look} || Pid <- Pids,
                                   {reductions, Now} <- [process_info(Pid, reductions)],
                                   Look <- [next(Pid, Now, maps:get(Pid, Looks, {0, busy}))]]).

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
