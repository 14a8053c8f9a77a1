%% Selects which process orders the events of each shard: the shard itself, or, where several brains
%% share one log, a process of another application.
%%
%% That process takes drafts in the shard's place. It gets the shard's messages
%%   {publish, halley_shard:ack(), [halley_shard:draft()]}      as a call
%%   {posts, Publisher :: pid(), [halley_shard:post()]}
%% takes their number off the shard's queue (`halley_shard:taken/2'), has the drafts ordered, and
%% sends each group that was ordered, by whomever, to all shards (`committed/5'). The
%% shards answer it, and it answers the publishers in the shard's words. At its start it takes off
%% what is counted already (`halley_shard:waiting/1'): that came while there was no such process.
%%
%% The application's environment names these processes, as `order'; they are chosen once, before the
%% shards start. Until such a process runs, publishers get `unavailable', as for a shard that died.
-module(halley_order).

-export([new/1, process/1, whose/0, committed/5, adopt/2, wipe/2]).
-export_type([placed/0]).

%% Registered names, by shard; one name may stand for several.
-type names() :: tuple().
%% A draft and its place; `Seq' is the last one of a draft that has several. `none': its publisher
%% is on another brain.
-type placed() :: {Seq :: halley_cursor:seq(), Tag :: term() | none, halley_shard:draft()}.

%% The names of the shards themselves.
-spec new(names()) -> ok.
new(Own) ->
    Order = case application:get_env(halley, order, own) of
        own -> {own, Own, Own};
        Names when tuple_size(Names) =:= tuple_size(Own) -> {other, Names, Own}
    end,
    persistent_term:put(?MODULE, Order).

-spec process(halley_shards:index()) -> Name :: atom().
process(Shard) ->
    {_, Names, _} = persistent_term:get(?MODULE),
    element(Shard, Names).

-spec whose() -> own | other.
whose() ->
    element(1, persistent_term:get(?MODULE, {own})).

%% Sends a group that another process has ordered to one of the brain's shards. Each shard gets each
%% group, also without an event of its own, as its head moves to `Last'. The groups come in the
%% order of their seqs, all from one process. The shard sends the events to sessions, hands them to
%% the history without a wait for the disk, and then answers `Orderer' once for all that have a tag:
%% `{posted, [{Tag, halley_shard:posted()}]}'.
-spec committed(halley_shards:index(), Last :: halley_cursor:seq(), AtMs :: integer(),
                Orderer :: pid(), [placed()]) -> ok.
committed(Shard, Last, AtMs, Orderer, Placed) ->
    {_, _, Own} = persistent_term:get(?MODULE),
    element(Shard, Own) ! {committed, Last, AtMs, Orderer, Placed},
    ok.

%% The log goes on under another store id, behind `End', and all that it had up to there stays.
%% Events get ids of that store from the next group on. Cursors of the store before are good up to
%% `End'. Links sync again, so no edge makes a cursor of that store with what comes behind it.
%% Sessions stay.
%%
%% To be called by the process that sends the groups, when `End' is the end of the last one.
-spec adopt(halley_cursor:store(), End :: halley_cursor:seq()) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
adopt(Store, End) ->
    case halley_history:adopt(Store, End) of
        ok -> named(Store);
        {error, _} = Error -> Error
    end.

named(Store) ->
    {other, _, Own} = persistent_term:get(?MODULE),
    lists:foreach(fun(Name) -> Name ! {store, Store} end, tuple_to_list(Own)),
    halley_links:end_all().

%% Empties history and graph of a brain that has what the log has lost, or lacks what it dropped.
%% They go on empty as this store behind `Before'. Sessions stay, and their links sync again: a
%% client whose cursor isn't of what comes gets a gap.
%%
%% To be called by the process that sends the groups; it returns when that is done. After an error,
%% or a kill, a part may be: it is to be called again.
-spec wipe(halley_cursor:store(), Before :: halley_cursor:seq()) ->
    ok | {error, halley_follows:failure() | history_failed}.
wipe(Store, Before) ->
    ok = idle(),
    case halley_follows_applied:forget_all() of
        ok ->
            case halley_history:wipe(Store, Before) of
                ok -> named(Store);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% The shards have dealt with all groups that were sent, and the log with what came of them.
idle() ->
    {other, _, Own} = persistent_term:get(?MODULE),
    lists:foreach(fun(Name) -> ok = gen_server:call(Name, settle, infinity) end,
                  tuple_to_list(Own)),
    halley_history:await(halley_history:heads(), infinity).
