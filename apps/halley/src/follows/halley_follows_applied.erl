%% Changes of follows that were decided elsewhere, and have their places in the log of several
%% brains (docs/internals/cluster.md, "The seams"): this brain applies them.
%%
%% It does what `halley_follows_since' and `halley_unfollows' do for a change of this brain: the
%% history gets a record of each change first, if the subject has events and the change changes
%% something. Here the record has the place of the change, so replays, catch-ups and traces of all
%% brains divide the events in the same way: a follow counts from its place on, an unfollow ends
%% there.
%%
%% The caller applies a row's changes before it sends the row's events to the shards, and all rows
%% in the order of the log. So an event that was published after the answer to a follow finds it. An
%% event of the same row may count as before or after.
%%
%% A call that failed may have applied a part. Called again with the same it does the rest: what is
%% in the history already is not written again.
-module(halley_follows_applied).

-export([change/3, forget/1, forget_all/0]).
-export_type([change/0, failure/0]).

-type id() :: halley_id:id().
-type change() :: {add | remove, halley_cursor:seq(), {User :: id(), Subject :: id()}}.
%% `refused': this brain has no room for what the others have.
-type failure() :: halley_follows:failure() | history_failed
                 | {refused, halley_follows:error()}.

%% How long to wait for the log to have indexed what is before the changes. Beyond it every subject
%% counts as one with events.
-define(AWAIT_MS, 1000).

%% Changes in the order of the log. `Before': the last seq of the row before theirs, up to which the
%% shards got everything. Returns when they are on disk and every reader sees them, with what each
%% was: `same' changed nothing.
-spec change(Before :: halley_cursor:seq(), AtMs :: integer(), [change()]) ->
    {ok, [changed | same]} | {error, failure()}.
change(_, _, []) ->
    {ok, []};
change(Before, AtMs, Changes) ->
    case halley_follows_request:refusing() of
        false ->
            {Results, Follows} = lists:mapfoldl(fun judge/2, #{}, Changes),
            Changing = [Change || {Change, changed} <- lists:zip(Changes, Results)],
            case halley_history:placed(records(Changing, Before), AtMs) of
                ok -> applied(Follows, Results);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% `Follows': whether the pairs that were met follow by now, with how it was before all changes.
judge({Operation, _, {User, User}}, Follows) when Operation =:= add; Operation =:= remove ->
    {same, Follows};
judge({Operation, _, Pair}, Follows) ->
    {Was, Is} = case Follows of
        #{Pair := Known} -> Known;
        #{} -> Now = follows(Pair), {Now, Now}
    end,
    Becomes = Operation =:= add,
    {case Is of Becomes -> same; _ -> changed end, Follows#{Pair => {Was, Becomes}}}.

follows({User, Subject}) ->
    case {halley_ids:lookup(User), halley_ids:lookup(Subject)} of
        {U, S} when is_integer(U), is_integer(S) -> halley_follows_graph:is_follower(U, S);
        _ -> false
    end.

records([], _) ->
    [];
records(Changes, Before) ->
    All = list_to_tuple([Before || _ <- lists:seq(1, halley_shards:count())]),
    HasEvents = case halley_history:await(All, ?AWAIT_MS) of
        ok -> fun halley_history:has_events/1;
        timeout -> fun(_) -> true end
    end,
    [{kind(Operation), Seq, Pair} || {Operation, Seq, {_, Subject} = Pair} <- Changes,
                                     HasEvents(Subject)].

kind(add) -> follow;
kind(remove) -> unfollow.

applied(Follows, Results) ->
    Changed = fun(Becomes) -> [Pair || {Pair, {Was, Is}} <- maps:to_list(Follows), Is =:= Becomes,
                                       Was =/= Is]
              end,
    case halley_follows:recorded(add, Changed(true)) of
        {ok, _, _, []} ->
            case halley_follows:recorded(remove, Changed(false)) of
                {ok, _, _, []} -> {ok, Results};
                Failed -> failed(Failed)
            end;
        Failed ->
            failed(Failed)
    end.

failed({ok, _, _, [{_, Reason} | _]}) -> {error, {refused, Reason}};
failed({error, _} = Error) -> Error.

%% Ends follows of a user that is forgotten, without a record of each: the record that forgets the
%% user hides all that such records would concern.
-spec forget([{User :: id(), Subject :: id()}]) ->
    {ok, #{removed := non_neg_integer(), errors := [{non_neg_integer(), halley_follows:error()}]}}
    | {error, halley_follows:failure()}.
forget(Pairs) ->
    case halley_follows:recorded(remove, Pairs) of
        {ok, Removed, _, Errors} -> {ok, #{removed => Removed, errors => Errors}};
        {error, _} = Error -> Error
    end.

%% Ends all follows, without a record, as the history is to be emptied as well.
-spec forget_all() -> ok | {error, halley_follows:failure()}.
forget_all() ->
    Epoch = halley_follows_owner:epoch(),
    case halley_pages_table:first(halley_following) of
        <<>> ->
            ok;
        Pairs ->
            Keys = [Key || <<Key:64>> <= Pairs],
            case halley_follows_request:change(remove, Keys, Epoch, recorded) of
                {ok, _, []} -> forget_all();
                {error, stale} -> forget_all();
                {error, _} = Error -> Error
            end
    end.
