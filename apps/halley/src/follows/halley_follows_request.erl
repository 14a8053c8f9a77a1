%% A change of follows as its caller makes it: sorted, packed, judged as far as the tables say, and
%% sent to the owner if there is room.
%%
%% At most follows_queue_max pairs wait for the owner, reserved here before they are sent; beyond it
%% a call is refused as `overloaded`. A caller that dies after it reserved and before it sent leaves
%% its reservation; reservations are forgotten when the owner's mailbox is empty.
-module(halley_follows_request).

-export([new/0, refusing/0, failure/1, change/4, without/2, numbers_of/1]).
-export([released/1, released_all/0]).

-export_type([history/0]).

-include("halley_follows.hrl").

%% Whether the history gets records of the changes by this call, or its caller has seen to that:
%% then they were admitted elsewhere, and no bound is for them.
-type history() :: to_record | recorded.

%% Pairs that wait for the owner.
-define(QUEUED, 1).

%% Once, before the owner.
-spec new() -> ok.
new() -> persistent_term:put(?MODULE, atomics:new(1, [{signed, true}])).

%% Why no change is taken now; a refusal is counted.
-spec refusing() -> false | {error, halley_follows:failure()}.
refusing() ->
    case halley_store:refusing() of
        false ->
            false;
        Refusal ->
            ok = halley_metrics:incr(follows_store_refuses),
            {error, failure(Refusal)}
    end.

%% What a refusal of the store is to its caller.
-spec failure(halley_store:refusal()) -> halley_follows:failure().
failure(Refusal) when Refusal =:= disk_full; Refusal =:= data_dir_moved -> Refusal;
failure(Refusal) -> {store_failed, Refusal}.

%% Adds or removes follows given as keys (user, subject) in any order; gives how many changed, and
%% those that would have been too many for their users. The sorting is the caller's work, and so in
%% parallel with that of others.
%% `Epoch' is that from before the ids' numbers were looked up. `stale': a number was given back
%% since, and they have to be looked up again; nothing was changed.
-spec change(halley_pages:operation(), [halley_pages:key()], Epoch :: integer(), history()) ->
    {ok, non_neg_integer(), Refused :: [halley_pages:key()]}
    | {error, halley_follows:failure() | stale}.
change(Operation, Keys, Epoch, History) ->
    Following = lists:usort(Keys),
    Most = halley_follows_bound:most(Following),
    Packed = halley_pages:pack(Following),
    case refused(History, Operation, Packed, Most) of
        [] -> change(Operation, Following, Packed, Most, Epoch, History);
        Refused ->
            case change(Operation, lists:subtract(Following, Refused), Epoch, History) of
                {ok, N, More} -> {ok, N, Refused ++ More};
                {error, _} = Error -> Error
            end
    end.

change(_, [], _, _, _, _) -> {ok, 0, []};
change(Operation, Following, Packed, Most, Epoch, History) ->
    Followers = lists:sort([halley_pages:swap(Key) || Key <- Following]),
    Change = #change{from = caller, operation = Operation, pairs = length(Following), most = Most,
                     following = Packed, followers = halley_pages:pack(Followers),
                     is_bounded = History =:= to_record,
                     numbers = new_numbers(Operation, Following), epoch = Epoch},
    case reserve(Change#change.pairs) of
        true ->
            case recorded(History, Operation, Following) of
                ok ->
                    call(Change);
                {error, Reason} ->
                    ok = released(Change#change.pairs),
                    ok = halley_metrics:incr(follows_store_refuses),
                    {error, Reason}
            end;
        false ->
            {error, overloaded}
    end.

recorded(recorded, _, _) -> ok;
recorded(to_record, add, Following) -> written(halley_follows_since:record(Following));
recorded(to_record, remove, Following) -> written(halley_unfollows:record(Following)).

written({error, history_failed}) -> {error, {store_failed, history_failed}};
written(Recorded) -> Recorded.

refused(recorded, _, _, _) -> [];
refused(_, remove, _, _) -> [];
refused(_, add, Packed, Most) ->
    case halley_follows_bound:is_near(Packed, bound() - Most) of
        true -> halley_follows_bound:refused(Packed, bound());
        false -> []
    end.

bound() -> halley_limits:get(follows_per_user_max).

%% A call that is larger than the bound is taken when nothing else waits.
reserve(Pairs) ->
    Atomics = persistent_term:get(?MODULE),
    Queued = atomics:add_get(Atomics, ?QUEUED, Pairs),
    case Queued =< Pairs orelse Queued =< queue_max() of
        true -> true;
        false ->
            atomics:sub(Atomics, ?QUEUED, Pairs),
            false
    end.

queue_max() -> halley_limits:get(follows_queue_max).

%% A caller learns of the owner's death as of any failure: what became of the change is unknown.
call(Change) ->
    try gen_server:call(halley_follows_owner, Change, infinity)
    catch exit:{Reason, {gen_server, call, _}} -> {error, {store_failed, Reason}}
    end.

%% The numbers that this change is to make durable, perhaps more than once.
new_numbers(remove, _) -> [];
new_numbers(add, Keys) -> [N || N <- numbers(Keys), not halley_ids_pages:is_durable(N)].

%% Those of packed pairs, ascending.
-spec numbers_of(halley_pages:packed()) -> [halley_ids:user_number()].
numbers_of(Packed) -> lists:usort(numbers(keys(Packed))).

%% Those in keys that are sorted, in any order; a user once.
numbers(Keys) -> numbers(Keys, none, []).

numbers([Key | Keys], User, Numbers) when Key bsr 32 =:= User ->
    numbers(Keys, User, [Key band 16#ffffffff | Numbers]);
numbers([Key | Keys], _, Numbers) ->
    numbers(Keys, Key bsr 32, [Key bsr 32, Key band 16#ffffffff | Numbers]);
numbers([], _, Numbers) ->
    Numbers.

%% The change without pairs that are refused.
-spec without([halley_pages:key()], #change{}) -> #change{}.
without([], Change) -> Change;
without(Refused, #change{following = Following, followers = Followers} = Change) ->
    Left = keys(Following) -- Refused,
    Swapped = keys(Followers) -- [halley_pages:swap(Key) || Key <- Refused],
    Change#change{refused = Refused, following = halley_pages:pack(Left),
                  followers = halley_pages:pack(Swapped)}.

keys(Packed) -> [Key || <<Key:64>> <= Packed].

%% The owner has taken so many pairs.
-spec released(non_neg_integer()) -> ok.
released(Pairs) -> atomics:sub(persistent_term:get(?MODULE), ?QUEUED, Pairs).

%% Nothing waits for the owner.
-spec released_all() -> ok.
released_all() -> atomics:put(persistent_term:get(?MODULE), ?QUEUED, 0).
