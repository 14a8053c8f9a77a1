%% How subjects are spread over shards: how many there are, and which one a subject belongs to.
%%
%% Invariant: cursors (`halley_cursor') and the history's records hold shards by this number and
%% this spreading, so neither may change while old ones are to be read.
%%
%% Pure. The process that orders the events of a shard is `halley_shard_server'.
-module(halley_shards).

-export([count/0, of_subject/1, of_users/1, of_subjects/1]).
-export_type([index/0]).

-define(SHARDS, 8).

-type index() :: 1..?SHARDS.

-spec count() -> pos_integer().
count() ->
    ?SHARDS.

-spec of_subject(halley_id:id()) -> index().
of_subject(Subject) ->
    erlang:phash2(Subject, ?SHARDS) + 1.

%% Of private events for these users, who are in order: for one user that of a subject of its name.
-spec of_users([halley_id:id(), ...]) -> index().
of_users([User]) -> of_subject(User);
of_users(Users) -> erlang:phash2(Users, ?SHARDS) + 1.

%% Of an event about several subjects: that of the first, in whose order it stands.
-spec of_subjects([halley_id:id(), ...]) -> index().
of_subjects([First | _]) -> of_subject(First).
