%% Changes of follows that are requested at this brain: they become records of the log, and the
%% brain answers when it has applied them. `halley_follows_backend' calls this.
%%
%% Bounds on follows and new ids are looked at here before a record is made. So two brains at once
%% may go beyond a bound by what each has let in; all of them apply the same records.
%%
%% Not here: users that are forgotten, whose record has no seq of the log yet
%% (docs/internals/cluster.md).
-module(halley_cluster_follows).

-export([change/2]).

%% Of a proposal.
-define(SLICE, 1000).

-type pair() :: {User :: halley_id:id(), Subject :: halley_id:id()}.

%% Slice by slice: if one fails, those before it stand. `overloaded': nothing of the slice was done.
%% `{store_failed, log_unknown}': the log may have it, now or later.
-spec change(halley_follows:asked(), [pair()]) -> halley_follows:changed().
change(Operation, Pairs) ->
    case change(Operation, Pairs, 0, 0, []) of
        {ok, Changed, Errors} -> {ok, Changed, length(Pairs) - Changed - length(Errors), Errors};
        {error, _} = Error -> Error
    end.

change(_, [], _, Changed, Errors) ->
    {ok, Changed, lists:append(lists:reverse(Errors))};
change(Operation, Pairs, Index, Changed, Errors) ->
    {Slice, Rest} = lists:split(min(?SLICE, length(Pairs)), Pairs),
    case slice(Operation, Slice) of
        {ok, More, Failed} ->
            Placed = [{Index + I, Reason} || {I, Reason} <- Failed],
            change(Operation, Rest, Index + ?SLICE, Changed + More, [Placed | Errors]);
        {error, _} = Error -> Error
    end.

slice(Operation, Pairs) ->
    case halley_follows:admitted(Operation, Pairs) of
        {ok, Numbered, Errors} ->
            case halley_cluster_brain:change([record(Operation, Pair) || {_, Pair} <- Numbered]) of
                {ok, Results} -> {ok, length([changed || changed <- Results]), Errors};
                {error, overloaded} -> {error, overloaded};
                {error, unavailable} -> {error, {store_failed, log_unknown}}
            end;
        {error, _} = Error -> Error
    end.

record({add, _}, {User, Subject}) -> {follow, User, Subject};
record(remove, {User, Subject}) -> {unfollow, User, Subject}.
