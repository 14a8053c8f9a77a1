%% The time from which on all sessions are known: when all workers of each edge had sent all of
%% their sessions on the links that they have now.
%%
%% A new link sends its sessions in its sync, for seconds if they are many. Before its end no
%% missing user may be treated as gone.
-module(halley_links_synced).

-export([new/0, synced/1, since/0]).

%% A row {Slot, {Writer, AtMs}}: the slot becomes another link's, with another writer.

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    ok.

%% SYNC_END came.
-spec synced(halley_links:slot()) -> ok.
synced(Slot) ->
    NowMs = erlang:monotonic_time(millisecond),
    true = ets:insert(?MODULE, [{Slot, {Writer, NowMs}}
                                || #{slot := S, writer := Writer} <- halley_links:list(),
                                   S =:= Slot]),
    ok.

%% `never': not yet, or nobody is linked.
-spec since() -> AtMs :: integer() | never.
since() ->
    Workers = [{Edge, N, said(Slot, Writer)}
               || #{slot := Slot, writer := Writer,
                    info := #{pid := Edge, workers := N}} <- halley_links:list()],
    Edges = maps:groups_from_list(fun({Edge, _, _}) -> Edge end, Workers),
    IsWhole = fun([{_, N, _} | _] = Its) -> length(Its) =:= N end,
    Since = [At || {_, _, At} <- Workers],
    case Workers =/= [] andalso lists:all(IsWhole, maps:values(Edges))
             andalso not lists:member(never, Since) of
        true -> lists:max(Since);
        false -> never
    end.

said(Slot, Writer) ->
    case ets:lookup(?MODULE, Slot) of
        [{_, {Writer, At}}] -> At;
        _ -> never
    end.
