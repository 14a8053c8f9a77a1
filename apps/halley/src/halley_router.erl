%% The way in: checks what is published and hands it to the subject's shard.
%%
%% Everything that can be refused is refused here, in the publisher's own process and before any
%% part of the event was accepted: ids, data, and overload (a link's queue near its bound, a
%% shard's queue at its). What passes gets its place in the order in `halley_shard'.
%%
%% A batch keeps the order of its events within each subject. One bad event gets an error in its
%% place and spoils no other.
-module(halley_router).

-export([publish/3, publish_many/1]).
-export_type([opts/0, error/0, item/0]).

%% `id': chosen by the publisher; one is generated without it.
-type opts() :: #{id => halley_event:id()}.
-type error() :: {bad_id, term()}          % a subject or event id that is none
               | data_too_large            % more than `event_data_bytes_max' of JSON
               | {bad_data, term()}        % no JSON
               | overloaded                % nothing was accepted; try again later
               | unavailable.              % the shard died or hangs: it may be published or not
-type item() :: {Subject :: binary(), Data :: term() | {json, binary()}, opts()}.
-type result() :: {ok, halley_shard:result()} | {error, error()}.

-spec publish(binary(), term() | {json, binary()}, opts()) -> result().
publish(Subject, Data, Opts) ->
    [Result] = publish_many([{Subject, Data, Opts}]),
    Result.

%% Results come in the order of the items.
-spec publish_many([item()]) -> [result()].
publish_many(Items) ->
    Results = case halley_links:overloaded() of
        true -> [{error, overloaded} || _ <- Items];
        false -> publish_drafts([draft(Item) || Item <- Items])
    end,
    count(Results),
    Results.

draft({Subject, Data, Opts}) ->
    Id = maps:get(id, Opts, generated),
    case {halley_id:check(Subject), Id =:= generated orelse halley_id:check(Id)} of
        {{error, _}, _} -> {error, {bad_id, Subject}};
        {ok, {error, _}} -> {error, {bad_id, Id}};
        {ok, _} -> draft(Id, Subject, halley_event:encode_data(Data))
    end.

draft(Id, Subject, {ok, Json}) ->
    case byte_size(Json) =< halley_limits:get(event_data_bytes_max) of
        true -> {halley_shard:of_subject(Subject), halley_event:draft(Id, Subject, Json)};
        false -> {error, data_too_large}
    end;
draft(_, _, Error) ->
    Error.

publish_drafts([{error, _} = Error]) ->
    [Error];
publish_drafts([{Shard, Draft}]) ->
    results(halley_shard:publish(Shard, [Draft]), [Draft]);
publish_drafts(Checked) ->
    Numbered = lists:zip(lists:seq(1, length(Checked)), Checked),
    Errors = [{N, Error} || {N, {error, _} = Error} <- Numbered],
    Shards = maps:groups_from_list(fun({_, {Shard, _}}) -> Shard end,
                                   fun({N, {_, Draft}}) -> {N, Draft} end,
                                   [Item || {_, {Shard, _}} = Item <- Numbered, Shard =/= error]),
    Published = lists:append([publish_shard(Shard) || Shard <- maps:to_list(Shards)]),
    [Result || {_, Result} <- lists:keysort(1, Errors ++ Published)].

%% In portions, so that a shard serves others between them.
publish_shard({Shard, Drafts}) ->
    publish_portions(Shard, Drafts, halley_limits:get(publish_batch_max)).

publish_portions(_, [], _) ->
    [];
publish_portions(Shard, Drafts, Max) ->
    {Portion, Rest} = lists:split(min(Max, length(Drafts)), Drafts),
    {Numbers, Bare} = lists:unzip(Portion),
    lists:zip(Numbers, results(halley_shard:publish(Shard, Bare), Bare))
        ++ publish_portions(Shard, Rest, Max).

results({ok, Results}, _) -> [{ok, Result} || Result <- Results];
results({error, _} = Error, Drafts) -> [Error || _ <- Drafts].

count(Results) ->
    lists:foreach(fun count_result/1, Results).

count_result({ok, #{sessions := Sessions}}) ->
    halley_metrics:incr(events_published),
    halley_metrics:incr(deliveries, Sessions);
count_result({error, {bad_id, _}}) -> halley_metrics:incr(refused_bad_id);
count_result({error, {bad_data, _}}) -> halley_metrics:incr(refused_bad_data);
count_result({error, data_too_large}) -> halley_metrics:incr(refused_data_too_large);
count_result({error, overloaded}) -> halley_metrics:incr(refused_overloaded);
count_result({error, unavailable}) -> halley_metrics:incr(refused_unavailable).
