%% The calls of a peer that are open here: for each link a table in ETS, since the reader begins a
%% call and the lane's writer ends it, and neither waits for the other. A call ends once: who takes
%% its row answers it.
-module(teleport_calls).

-export([new/0, begun/5, ended/2, cancelled/2, count/1]).
-export_type([calls/0]).

-type calls() :: ets:table().

%% In the calling process, which owns the table.
-spec new() -> calls().
new() -> ets:new(?MODULE, [public, {write_concurrency, true}]).

%% The owner has a monitor of the process that is called, and gets `{demonitor, MRef}' when the call
%% has ended. Said before the process gets the request. Without the link it's nobody's call.
-spec begun(calls(), MRef :: reference(), Alias :: reference(), Process :: pid(),
            Owner :: pid()) -> ok.
begun(Calls, MRef, Alias, Process, Owner) ->
    try
        true = ets:insert(Calls, [{MRef, Alias, Process, Owner}, {Alias, MRef}]),
        ok
    catch
        error:badarg -> ok
    end.

%% Gives whose call it was and who was called. Without the link, which may end at any line here,
%% there are none.
-spec ended(calls(), MRef :: reference()) -> {Alias :: reference(), Process :: pid()} | none.
ended(Calls, MRef) ->
    try
        [{_, Alias, Process, Owner}] = ets:take(Calls, MRef),
        true = ets:delete_object(Calls, {Alias, MRef}),
        Owner ! {demonitor, MRef},
        {Alias, Process}
    catch
        error:{badmatch, _} -> none;
        error:badarg -> none
    end.

%% The caller no longer waits: a reply would be for nobody.
-spec cancelled(calls(), Alias :: reference()) -> ok.
cancelled(Calls, Alias) ->
    case ets:lookup(Calls, Alias) of
        [{_, MRef}] -> _ = ended(Calls, MRef), ok;
        _ -> ok
    end.

-spec count(calls()) -> non_neg_integer().
count(Calls) -> ets:info(Calls, size) div 2.
