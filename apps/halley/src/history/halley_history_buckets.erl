%% The hash buckets of the history's index (`halley_history_index'), and the tag that tells names of
%% one bucket apart: one other name in 65,536 passes.
%%
%% Bucket and tag together are 31 bits of the name's hash, and of a subject the shard has three of
%% another. A bucket of subjects belongs to one shard.
%%
%% Pure.
-module(halley_history_buckets).

-export([count/1, subject/2, within/1, id/1, change/1]).
-export_type([bucket/0, tag/0]).

-type bucket() :: pos_integer().
-type tag() :: 0..16#FFFF.

%% Of subjects per shard; 2^18 for all.
-define(SUBJECT_BITS, 15).
-define(ID_BITS, 18).
-define(CHANGE_BITS, 14).
-define(HASH, (1 bsl 32)).

-spec count(subject | id | change) -> pos_integer().
count(subject) -> halley_shards:count() bsl ?SUBJECT_BITS;
count(id) -> 1 bsl ?ID_BITS;
count(change) -> 1 bsl ?CHANGE_BITS.

%% Not the hash that chose the shard, or the tag would say nothing new within it.
-spec subject(halley_shards:index(), halley_history_record:about()) -> {bucket(), tag()}.
subject(Shard, {to, Shard, User}) -> of_shard(Shard, erlang:phash2([to | User], ?HASH));
subject(Shard, {in, Shard, Subject}) -> of_shard(Shard, erlang:phash2([in | Subject], ?HASH));
subject(Shard, Subject) -> of_shard(Shard, erlang:phash2([subject | Subject], ?HASH)).

of_shard(Shard, Hash) ->
    Within = Hash bsr (32 - ?SUBJECT_BITS),
    {((Shard - 1) bsl ?SUBJECT_BITS) + Within + 1, Hash band 16#FFFF}.

%% A subject's bucket among those of its shard, in 15 bits.
-spec within(bucket()) -> non_neg_integer().
within(Bucket) -> (Bucket - 1) band ((1 bsl ?SUBJECT_BITS) - 1).

-spec id(binary()) -> {bucket(), tag()}.
id(Id) ->
    Hash = erlang:phash2([id | Id], ?HASH),
    {(Hash bsr (32 - ?ID_BITS)) + 1, Hash band 16#FFFF}.

%% Of a user, or a subject, in changes of follows.
-spec change(binary()) -> {bucket(), tag()}.
change(Id) ->
    Hash = erlang:phash2([follows | Id], ?HASH),
    {(Hash bsr (32 - ?CHANGE_BITS)) + 1, Hash band 16#FFFF}.
