%% The seqs of what was published about a subject, the newest first, as the index has them: its
%% chain in the subject's shard, and, where it stands among other subjects, a chain in each shard
%% (docs/internals/joint.md). They are merged as they are read, so a page reads no more than it
%% gives. Most subjects have the first chain alone.
%%
%% Pure but for reading the index. The record decides what a seq is.
-module(halley_past_chains).

-export([new/3, retained/2, next/2, behind/3, up_to/1, 'after'/1]).
-export_type([chains/0]).

-type seq() :: halley_cursor:seq().
-record(chain, {about :: halley_history:about(), shard :: halley_shards:index(),
                up_to :: seq(), 'after' :: seq(),
                %% Descending; and where to ask for more.
                seqs = [] :: [seq()], from :: seq() | done}).
-opaque chains() :: [#chain{}, ...].

%% Entries of the index in one go.
-define(LOOKS, 256).

%% What one vector has and the other lacks. All of it must be in the index.
-spec new(halley_id:id(), UpTo :: halley_cursor:vector(), After :: halley_cursor:vector()) ->
    chains().
new(Subject, UpTo, After) ->
    Own = halley_shards:of_subject(Subject),
    [chain(Subject, Own, UpTo, After)
     | [chain({in, Shard, Subject}, Shard, UpTo, After)
        || halley_history:joint(Subject) > halley_vector:smallest(After),
           Shard <- lists:seq(1, halley_shards:count())]].

%% All that is there up to a vector: not what retention took, and not from before the subject was
%% forgotten. All of it must be in the index.
-spec retained(halley_id:id(), UpTo :: halley_cursor:vector()) -> chains().
retained(Subject, UpTo) ->
    After = max(halley_history:floor(), halley_history:forgotten(Subject)),
    new(Subject, UpTo, list_to_tuple(lists:duplicate(halley_shards:count(), After))).

chain(About, Shard, UpTo, After) ->
    #chain{about = About, shard = Shard, up_to = element(Shard, UpTo),
           'after' = element(Shard, After), from = element(Shard, UpTo)}.

%% The next one down; `{tired, Seq}': so many entries of the index were looked at, and it goes on at
%% this seq at the latest.
-spec next(chains(), LooksLeft :: integer()) ->
    {{seq(), halley_history:about()} | {tired, seq()} | done, chains(), LooksLeft :: integer()}.
next(Chains, Looks) ->
    {Filled, Left} = lists:mapfoldl(fun fill/2, Looks, Chains),
    case lists:any(fun is_empty/1, Filled) of
        true ->
            {{tired, lists:max([place(Chain) || Chain <- Filled])}, Filled, Left};
        false ->
            case lists:max([{place(Chain), Chain#chain.about} || Chain <- Filled]) of
                {0, _} -> {done, Filled, Left};
                {Seq, About} -> {{Seq, About}, [without(About, Chain) || Chain <- Filled], Left}
            end
    end.

%% The way to what is wanted may begin above it.
fill(#chain{seqs = [Seq | Seqs], up_to = UpTo} = Chain, Looks) when Seq > UpTo ->
    fill(Chain#chain{seqs = Seqs}, Looks);
fill(#chain{seqs = [], from = From} = Chain, Looks) when From =/= done, Looks > 0 ->
    #chain{about = About, shard = Shard, 'after' = After} = Chain,
    {Seqs, Next, Left} = halley_history:back(Shard, About, From, After, ?LOOKS),
    fill(Chain#chain{seqs = Seqs, from = Next}, Looks - (?LOOKS - Left));
fill(Chain, Looks) ->
    {Chain, Looks}.

is_empty(#chain{seqs = Seqs, from = From}) -> Seqs =:= [] andalso From =/= done.

%% Where it goes on; 0 at its end.
place(#chain{seqs = [Seq | _]}) -> Seq;
place(#chain{from = done}) -> 0;
place(#chain{from = From, up_to = UpTo}) -> min(From, UpTo).

without(About, #chain{about = About, seqs = [_ | Seqs]} = Chain) -> Chain#chain{seqs = Seqs};
without(_, Chain) -> Chain.

%% The seq that comes after the next so many; 0: there is none, or it is further away than so many
%% entries of the index.
-spec behind(chains(), non_neg_integer(), LooksLeft :: integer()) -> seq() | 0.
behind(Chains, Count, Looks) ->
    case next(Chains, Looks) of
        {{Seq, _}, _, _} when is_integer(Seq), Count =:= 0 -> Seq;
        {{Seq, _}, Next, Left} when is_integer(Seq) -> behind(Next, Count - 1, Left);
        _ -> 0
    end.

%% From the highest of what they have to the lowest of what they lack.
-spec up_to(chains()) -> seq().
up_to(Chains) -> lists:max([UpTo || #chain{up_to = UpTo} <- Chains]).

-spec 'after'(chains()) -> seq().
'after'(Chains) -> lists:min([After || #chain{'after' = After} <- Chains]).
