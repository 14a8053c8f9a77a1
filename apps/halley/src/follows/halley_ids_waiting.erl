%% Freed numbers that must not be given to a new id yet, since files of the store may still name the
%% id that had them.
%%
%% A damaged store is repaired from any part of its files (`halley_store_rebuild'). If groups are
%% lost in between, a repair may miss that a number was freed and got another id. Then the new id's
%% follows would be credited to the old one. So a number waits until every file that is kept begins
%% after it was freed. Two checkpoints are kept, and the journal since the older one, so a number
%% waits until two more checkpoints have succeeded.
%%
%% Each batch knows the number of the journal file in which it, or an earlier batch later in the
%% queue, was freed. A file begins after that if its own number is higher.
%%
%% Pure: `halley_ids' keeps the numbers here, `halley_ids_sweep' asks for a checkpoint if too many
%% wait, or too long, or new ids need them.
-module(halley_ids_waiting).

-export([new/0, add/4, release/2, count/1, age_ms/2, is_pressing/1]).
-export_type([waiting/0]).

%% A checkpoint costs what the store has. So this part of all ids, or of an eighth of the follows,
%% may wait, and at least so many.
-define(COUNT_MIN, 4096).
-define(SHARE, 8).
%% Fewer wait for so long at most, or, where fewer than this part of all numbers can be given, so
%% long.
-define(WAIT_MS_MAX, 3600000).
-define(SHORT_SHARE, 16).
-define(SHORT_WAIT_MS_MAX, 10000).

-type user_number() :: halley_id:user_number().
-type file_number() :: non_neg_integer().
-record(waiting, {%% The newest first; file numbers and times never grow from one to the next.
                  batches = [] :: [{file_number(), SinceMs :: integer(), [user_number()]}],
                  count = 0 :: non_neg_integer()}).
-opaque waiting() :: #waiting{}.

-spec new() -> waiting().
new() -> #waiting{}.

%% These were freed; `File' is the journal file that was written to then, or a later one.
-spec add([user_number()], file_number(), NowMs :: integer(), waiting()) -> waiting().
add([], _, _, Waiting) ->
    Waiting;
add(Numbers, File, NowMs, #waiting{batches = Batches, count = Count} = Waiting) ->
    Waiting#waiting{count = Count + length(Numbers),
                    batches = case Batches of
                        [{Newest, SinceMs, Others} | Older] when Newest >= File ->
                            [{Newest, SinceMs, Numbers ++ Others} | Older];
                        _ ->
                            [{File, NowMs, Numbers} | Batches]
                    end}.

%% Takes those out that were freed before every file from this number on began.
-spec release(file_number(), waiting()) -> {[user_number()], waiting()}.
release(Oldest, #waiting{batches = Batches, count = Count}) ->
    {Stay, Go} = lists:splitwith(fun({File, _, _}) -> File >= Oldest end, Batches),
    Numbers = lists:append([Batch || {_, _, Batch} <- Go]),
    {Numbers, #waiting{batches = Stay, count = Count - length(Numbers)}}.

-spec count(waiting()) -> non_neg_integer().
count(#waiting{count = Count}) -> Count.

%% How long the oldest batch waits.
-spec age_ms(NowMs :: integer(), waiting()) -> non_neg_integer().
age_ms(_, #waiting{batches = []}) -> 0;
age_ms(NowMs, #waiting{batches = Batches}) ->
    {_, SinceMs, _} = lists:last(Batches),
    NowMs - SinceMs.

%% Whether a checkpoint should begin for those that wait. `available': numbers that could be
%% given to follows now; below 0 where users that connect have some of those that are theirs.
-spec is_pressing(#{count := non_neg_integer(), age_ms := non_neg_integer(),
                    available := integer(), ids := non_neg_integer(),
                    ids_max := pos_integer(), follows := non_neg_integer()}) -> boolean().
is_pressing(#{count := 0}) -> false;
is_pressing(#{count := Count, age_ms := AgeMs, available := Available, ids := Ids,
              ids_max := IdsMax, follows := Follows}) ->
    IsShort = Available < IdsMax div ?SHORT_SHARE,
    Count >= max(?COUNT_MIN, max(Ids, Follows div 8) div ?SHARE)
        orelse AgeMs >= case IsShort of
                            true -> ?SHORT_WAIT_MS_MAX;
                            false -> ?WAIT_MS_MAX
                        end.
