%% The way in: checks what is published and hands it to the subject's shard.
%%
%% Everything that can be refused is refused here, in the publisher's own process and before any
%% part of the event was accepted: ids, data, a history that can't be written, and overload (every
%% link's queue near its bound, the log's or a shard's at its own). An accepted event gets its place
%% in the order in `halley_shard_server'.
%%
%% A batch keeps the order of its events within each subject. One bad event gets an error in its
%% place and spoils no other. All shards work on their portions of a batch at the same time.
%%
%% A private event belongs to one shard, by the users it is for: those for the same users come in
%% order. One for a single user belongs to the shard of that user's id.
%%
%% A joint event, about several subjects, belongs to the shard of the first that is named. About one
%% alone it is an event as any other.
%%
%% If another publisher is just publishing the chosen id of an event, the event is tried again until
%% the first answer is there, so that both publishers get the same. Which of them is the first isn't
%% defined, not even in a batch over several subjects.
-module(halley_router).

-export([publish/3, publish_many/1, publish_own/2]).
-export([accept/1, count/1]).
-export_type([opts/0, error/0, whom/0, item/0, result/0]).

%% `id': chosen by the publisher; one is generated without it. The same id within the retention
%%       gets the first answer again, and no second event.
%% `ack': when the answer comes. `disk' (the default): when the event is on disk, and so will be
%%       delivered whatever fails. `memory': when it is on its way to the sessions. A batch waits
%%       for the disk unless all its items say `memory'.
%% `by': the user that publishes it; the history keeps it where hooks ask for that, and with what
%%       the user keeps.
%% `keep': it is the subject's kept value from now on; with the data null there is none any more.
-type opts() :: #{id => halley_event:id(), ack => halley_shard:ack(), by => halley_id:id(),
                  keep => boolean()}.
-type error() :: {bad_id, term()}          % a subject or event id that is none
               | {bad_option, ack | keep}
               | too_many_kept             % kept values have as many bytes as they may
               | too_many_own_kept         % those that this user keeps have
               | bad_to                    % no list of 1 to `private_users_max' users
               | bad_subjects              % no list of 1 to `event_subjects_max' subjects
               | data_too_large            % more than `event_data_bytes_max' of JSON
               | {bad_data, term()}        % no JSON
               | overloaded                % nothing was accepted; try again later
               | disk_full                 % not durable, as nothing will be until there's room
               | data_dir_moved            % sent perhaps, not durable where it is looked for
               | history_failed            % the disk can't be written: sent perhaps, not durable
               | unavailable.              % the shard died or hangs: it may be published or not
%% What it is about, one subject or several; or for whom alone, in any order.
-type whom() :: Subject :: binary() | {subjects, [binary(), ...]} | {to, Users :: [binary(), ...]}.
-type item() :: {whom(), Data :: term() | {json, binary()}, opts()}.
-type result() :: {ok, halley_shard:result()} | {error, error()}.

%% How long an event with an id that is busy waits before it is asked for again.
-define(BUSY_MS, 3).

-spec publish(whom(), term() | {json, binary()}, opts()) -> result().
publish(Whom, Data, Opts) ->
    [Result] = publish_many([{Whom, Data, Opts}]),
    Result.

%% Results come in the order of the items.
-spec publish_many([item()]) -> [result()].
publish_many(Items) ->
    Whose = whose(Items),
    Results = case refusing(Whose) of
        false -> publish_drafts([draft_by(Item) || Item <- Items], Whose);
        Reason -> [{error, Reason} || _ <- Items]
    end,
    lists:foreach(fun count/1, Results),
    Results.

%% One request's are all of one publisher.
whose([{_, _, #{by := _}} | _]) -> users;
whose(_) -> servers.

%% About a subject of Halley's own (`halley_own'), which is no id: no item that somebody publishes
%% can name one, so this is the one way. `Json' is valid and on one line. Refusals aren't counted.
-spec publish_own(Subject :: binary(), Json :: binary()) -> result().
publish_own(Subject, Json) ->
    true = halley_own:is_own(Subject),
    case refusing(servers) of
        false ->
            [Result] = publish_drafts([draft(memory, generated, Subject, {ok, Json})], servers),
            Result;
        Reason ->
            {error, Reason}
    end.

%% For a publisher that doesn't wait (`halley_posts'): the event has a place in its shard's queue,
%% or was refused, and that is counted.
-spec accept(item()) ->
    {ok, halley_shards:index(), halley_shard:ack(), halley_shard:draft()} | {error, error()}.
accept(Item) ->
    Whose = whose([Item]),
    case accepted(refusing(Whose), Item, Whose) of
        {error, _} = Error ->
            ok = count(Error),
            Error;
        Accepted ->
            Accepted
    end.

accepted(false, Item, Whose) ->
    case draft_by(Item) of
        {error, _} = Error ->
            Error;
        {Shard, Ack, Draft} ->
            case halley_shard:reserve(Shard, Whose) of
                true -> {ok, Shard, Ack, Draft};
                false -> {error, overloaded}
            end
    end;
accepted(Reason, _, _) ->
    {error, Reason}.

refusing(Whose) ->
    case halley_history:refusing(Whose) of
        false -> halley_links_backpressure:overloaded(Whose) andalso overloaded;
        failed -> history_failed;
        Reason -> Reason
    end.

draft_by({Whom, Data, #{keep := Keep} = Opts}) ->
    draft_kept(Keep, {Whom, Data, maps:remove(keep, Opts)});
draft_by({_, _, #{by := User}} = Item) ->
    case halley_hooked:is_on(published) andalso draft(Item) of
        false -> draft(Item);
        {error, _} = Error -> Error;
        {Shard, Ack, Draft} -> {Shard, Ack, {by, User, Draft}}
    end;
draft_by(Item) ->
    draft(Item).

draft({{to, Users}, Data, Opts}) ->
    case several(Users, halley_limits:get(private_users_max), bad_to) of
        ok -> draft_private(lists:usort(Users), Data, Opts);
        {error, _} = Error -> Error
    end;
draft({{subjects, Subjects}, Data, Opts}) ->
    case several(Subjects, halley_limits:get(event_subjects_max), bad_subjects) of
        ok -> draft_subjects(lists:uniq(Subjects), Data, Opts);
        {error, _} = Error -> Error
    end;
draft({Subject, Data, Opts}) ->
    Id = maps:get(id, Opts, generated),
    Ack = maps:get(ack, Opts, disk),
    case {halley_id:check(Subject), Id =:= generated orelse halley_id:check(Id)} of
        {{error, _}, _} -> {error, {bad_id, Subject}};
        {ok, {error, _}} -> {error, {bad_id, Id}};
        {ok, _} when Ack =/= disk, Ack =/= memory -> {error, {bad_option, ack}};
        {ok, _} -> draft(Ack, Id, Subject, halley_event:encode_data(Data))
    end.

draft(Ack, Id, Subject, {ok, Json}) ->
    case byte_size(Json) =< halley_limits:get(event_data_bytes_max) of
        true -> {halley_shards:of_subject(Subject), Ack, halley_event:draft(Id, Subject, Json)};
        false -> {error, data_too_large}
    end;
draft(_, _, _, Error) ->
    Error.

%% A value is of one subject.
draft_kept(false, Item) ->
    draft_by(Item);
draft_kept(true, {Subject, Data, Opts}) when is_binary(Subject) ->
    case halley_event:encode_data(Data) of
        {ok, <<"null">>} -> kept(draft_by({Subject, {json, <<"null">>}, Opts}), clear);
        {ok, Json} -> keep({Subject, {json, Json}, Opts}, Json);
        Error -> Error
    end;
draft_kept(_, _) ->
    {error, {bad_option, keep}}.

%% Its record says which user keeps it, whether hooks ask or not.
keep({Subject, _, Opts} = Item, Json) ->
    By = maps:get(by, Opts, none),
    case draft(Item) of
        {error, _} = Error ->
            Error;
        {Shard, Ack, Draft} ->
            case halley_history:room_to_keep(Subject, byte_size(Json), By) of
                ok when By =:= none -> kept({Shard, Ack, Draft}, keep);
                ok -> kept({Shard, Ack, {by, By, Draft}}, keep);
                {error, _} = Error -> Error
            end
    end.

kept({Shard, Ack, Draft}, Keep) -> {Shard, Ack, {keep, Keep, Draft}};
kept(Error, _) -> Error.

draft_subjects([Subject], Data, Opts) -> draft({Subject, Data, Opts});
draft_subjects(Several, Data, Opts) -> draft_joint(Several, Data, Opts).

%% The data and the options are judged as those of any other event.
draft_private(Users, Data, Opts) ->
    case judged(Users, Data, Opts) of
        {ok, Id, Ack, Json} ->
            {halley_shards:of_users(Users), Ack,
             {private, halley_event:private(Id, Users, Json)}};
        Error ->
            Error
    end.

draft_joint(Subjects, Data, Opts) ->
    case judged(Subjects, Data, Opts) of
        {ok, Id, Ack, Json} ->
            {halley_shards:of_subjects(Subjects), Ack,
             {joint, halley_event:joint(Id, Subjects, Json)}};
        Error ->
            Error
    end.

judged([First | _], Data, Opts) ->
    case halley_event:encode_data(Data) of
        {ok, Json} ->
            case draft({First, {json, Json}, Opts}) of
                {error, _} = Error -> Error;
                {_, Ack, _} -> {ok, maps:get(id, Opts, generated), Ack, Json}
            end;
        Error ->
            Error
    end.

several(Names, Max, Bad) when is_list(Names) ->
    case catch length(Names) of
        N when is_integer(N), N > 0, N =< Max ->
            case [Name || Name <- Names, halley_id:check(Name) =/= ok] of
                [] -> ok;
                [BadId | _] -> {error, {bad_id, BadId}}
            end;
        _ ->
            {error, Bad}
    end;
several(_, _, Bad) ->
    {error, Bad}.

publish_drafts([{error, _} = Error], _) ->
    [Error];
publish_drafts([{Shard, Ack, Draft}], Whose) ->
    How = {Ack, Whose},
    case halley_shard:publish(Shard, How, [Draft]) of
        {ok, [busy]} -> [Result || {_, Result} <- again(How, #{Shard => [{1, Draft}]}, deadline())];
        {ok, [Result]} -> [{ok, Result}];
        {error, _} = Error -> [Error]
    end;
publish_drafts(Checked, Whose) ->
    Numbered = lists:zip(lists:seq(1, length(Checked)), Checked),
    Errors = [{N, Error} || {N, {error, _} = Error} <- Numbered],
    Good = [{N, Shard, Draft} || {N, {Shard, _, Draft}} <- Numbered],
    Ack = case lists:any(fun(Draft) -> element(2, Draft) =:= disk end, Checked) of
        true -> disk;
        false -> memory
    end,
    Shards = maps:groups_from_list(fun({_, Shard, _}) -> Shard end,
                                   fun({N, _, Draft}) -> {N, Draft} end, Good),
    [Result || {_, Result} <- lists:keysort(1, Errors ++ rounds({Ack, Whose}, Shards))].

%% In rounds of one portion for each shard, so that a shard serves others between them.
rounds(_, Shards) when map_size(Shards) =:= 0 ->
    [];
rounds(How, Shards) ->
    Max = halley_limits:get(publish_batch_max),
    Portions = [{Shard, lists:sublist(Drafts, Max)} || {Shard, Drafts} <- maps:to_list(Shards)],
    Rest = maps:filtermap(fun(_, Drafts) -> more(Drafts, Max) end, Shards),
    {Results, Busy} = round(How, Portions),
    Results ++ again(How, Busy, deadline()) ++ next_rounds(How, Rest).

more(Drafts, Max) ->
    length(Drafts) > Max andalso {true, lists:nthtail(Max, Drafts)}.

%% What a long batch has published already may be what nobody can keep up with.
next_rounds(_, Shards) when map_size(Shards) =:= 0 ->
    [];
next_rounds({_, Whose} = How, Shards) ->
    case refusing(Whose) of
        false -> rounds(How, Shards);
        Reason -> [{N, {error, Reason}} || Drafts <- maps:values(Shards), {N, _} <- Drafts]
    end.

round(How, Portions) ->
    Bare = [{Shard, How, [Draft || {_, Draft} <- Drafts]} || {Shard, Drafts} <- Portions],
    Sorted = [results(Portion, Answer)
              || {Portion, Answer} <- lists:zip(Portions, halley_shard:publish_all(Bare))],
    {Results, Busy} = lists:unzip(Sorted),
    {lists:append(Results), maps:from_list([B || {_, [_ | _]} = B <- Busy])}.

results({Shard, Drafts}, {ok, Results}) ->
    Pairs = lists:zip(Drafts, Results),
    {[{N, {ok, Result}} || {{N, _}, Result} <- Pairs, Result =/= busy],
     {Shard, [Draft || {Draft, busy} <- Pairs]}};
results({Shard, Drafts}, {error, _} = Error) ->
    {[{N, Error} || {N, _} <- Drafts], {Shard, []}}.

deadline() ->
    erlang:monotonic_time(millisecond) + halley_limits:get(publish_ms_max).

again(_, Busy, _) when map_size(Busy) =:= 0 ->
    [];
again(How, Busy, DeadlineMs) ->
    receive after ?BUSY_MS -> ok end,
    case erlang:monotonic_time(millisecond) < DeadlineMs of
        true ->
            {Results, StillBusy} = round(How, maps:to_list(Busy)),
            Results ++ again(How, StillBusy, DeadlineMs);
        false ->
            [{N, {error, unavailable}} || Drafts <- maps:values(Busy), {N, _} <- Drafts]
    end.

%% What is accepted was counted by its shard.
-spec count(result()) -> ok.
count({ok, _}) -> ok;
count({error, {bad_id, _}}) -> halley_metrics:incr(refused_bad_id);
count({error, bad_to}) -> halley_metrics:incr(refused_bad_option);
count({error, too_many_kept}) -> halley_metrics:incr(refused_kept);
count({error, too_many_own_kept}) -> halley_metrics:incr(refused_own_kept);
count({error, bad_subjects}) -> halley_metrics:incr(refused_bad_option);
count({error, {bad_option, _}}) -> halley_metrics:incr(refused_bad_option);
count({error, {bad_data, _}}) -> halley_metrics:incr(refused_bad_data);
count({error, data_too_large}) -> halley_metrics:incr(refused_data_too_large);
count({error, overloaded}) -> halley_metrics:incr(refused_overloaded);
count({error, disk_full}) -> halley_metrics:incr(refused_history);
count({error, history_failed}) -> halley_metrics:incr(refused_history);
count({error, data_dir_moved}) -> halley_metrics:incr(refused_history);
count({error, unavailable}) -> halley_metrics:incr(refused_unavailable).
