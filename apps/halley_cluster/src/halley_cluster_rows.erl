%% A row of the log as the shards take it: each event with its place.
%%
%% The seqs of a row are its records' in their order, from `prev' on; an event's own is the last of
%% its seqs, as for an event that a shard draws (`halley_event'). Pure.
-module(halley_cluster_rows).

-export([placed/3, changes/3, own/2, shard/1, chosen/2]).
-export_type([by_shard/0]).

-type portion() :: {halley_log_engine:token(), [halley_cluster_records:record()]}.
-type by_shard() :: #{halley_shards:index() => [halley_order:placed()]}.

%% `IsOwn': whether a publisher of this brain waits for a proposal. Its events are tagged with their
%% seqs.
-spec placed(Prev :: halley_cursor:seq(), [portion()],
             fun((halley_log_engine:token()) -> boolean())) -> by_shard().
placed(Prev, Portions, IsOwn) ->
    {_, Reversed} = lists:foldl(fun({Token, Records}, Before) ->
        lists:foldl(fun(Record, Acc) -> place(Record, IsOwn(Token), Acc) end, Before, Records)
    end, {Prev, #{}}, Portions),
    maps:map(fun(_, Placed) -> lists:reverse(Placed) end, Reversed).

place({event, Draft} = Record, IsOwn, {Before, Shards}) ->
    Seq = Before + halley_cluster_records:seqs(Record),
    Tag = case IsOwn of true -> Seq; false -> none end,
    Shard = shard(Draft),
    {Seq, Shards#{Shard => [{Seq, Tag, Draft} | maps:get(Shard, Shards, [])]}};
place(Record, _, {Before, Shards}) ->
    {Before + halley_cluster_records:seqs(Record), Shards}.

%% The changes of follows, in the order of the log, and whether a publisher of this brain waits.
-spec changes(Prev :: halley_cursor:seq(), [portion()],
              fun((halley_log_engine:token()) -> boolean())) ->
    [{IsOwn :: boolean(), halley_follows_applied:change()}].
changes(Prev, Portions, IsOwn) ->
    {_, Reversed} = lists:foldl(fun({Token, Records}, Before) ->
        lists:foldl(fun(Record, {Seq, Changes}) ->
            Next = Seq + halley_cluster_records:seqs(Record),
            {Next, [{IsOwn(Token), Change} || Change <- change(Record, Next)] ++ Changes}
        end, Before, Records)
    end, {Prev, []}, Portions),
    lists:reverse(Reversed).

change({follow, User, Subject}, Seq) -> [{add, Seq, {User, Subject}}];
change({unfollow, User, Subject}, Seq) -> [{remove, Seq, {User, Subject}}];
change(_, _) -> [].

%% Of one proposal, in the order of its records: the seqs of events and of changes of follows, and
%% the ids that the log had.
-spec own(Before :: halley_cursor:seq(), [halley_cluster_records:record()]) ->
    [halley_cursor:seq() | {known, halley_event:id()}].
own(Before, Records) ->
    {Places, _} = lists:mapfoldl(fun(Record, Seq) ->
        Next = Seq + halley_cluster_records:seqs(Record),
        {own_place(Record, Next), Next}
    end, Before, Records),
    lists:append(Places).

own_place({event, _}, Seq) -> [Seq];
own_place({follow, _, _}, Seq) -> [Seq];
own_place({unfollow, _, _}, Seq) -> [Seq];
own_place({known, Id}, _) -> [{known, Id}];
own_place(_, _) -> [].

%% The ids that publishers chose, each with its event's seq.
-spec chosen(Before :: halley_cursor:seq(), [portion()]) ->
    #{halley_event:id() => halley_cursor:seq()}.
chosen(Before, Portions) ->
    Records = lists:append([Records || {_, Records} <- Portions]),
    {_, Ids} = lists:foldl(fun(Record, {Seq, Acc}) ->
        Next = Seq + halley_cluster_records:seqs(Record),
        {Next, case Record of
                   {event, Draft} ->
                       chosen(halley_cluster_records:chosen_id(Draft), Next, Acc);
                   _ -> Acc
               end}
    end, {Before, #{}}, Records),
    Ids.

chosen(generated, _, Ids) -> Ids;
chosen(Id, Seq, Ids) -> Ids#{Id => Seq}.

%% As `halley_router' chose it.
-spec shard(halley_shard:draft()) -> halley_shards:index().
shard({by, _, Draft}) -> shard(Draft);
shard({keep, _, Draft}) -> shard(Draft);
shard({private, Draft}) -> halley_shards:of_users(element(2, halley_event:users(Draft)));
shard({joint, Draft}) -> halley_shards:of_subjects(element(2, halley_event:subjects(Draft)));
shard(Draft) -> halley_shards:of_subject(element(2, halley_event:parts(Draft))).
