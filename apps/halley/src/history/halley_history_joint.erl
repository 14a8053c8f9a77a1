%% Where events about several subjects may be: for a hash of subjects, up to which seq there is one
%% in any shard. Such events are in chains of their own, a subject's in each shard
%% (`halley_history_index'), and no reader should look at eight of them in vain.
%%
%% Invariant: a word is written, by the log's process, after the entries that it tells of. It only
%% rises; what is below the floor says nothing.
-module(halley_history_joint).

-export([clear/0, met/2, newest/1]).

-define(BITS, 14).

%% Forgets everything, for a log that starts.
-spec clear() -> ok.
clear() ->
    ok = halley_history_atomics:put(joint, 0),
    persistent_term:put(?MODULE, atomics:new(1 bsl ?BITS, [{signed, false}])).

%% An event about these subjects is indexed, and this is its last seq.
-spec met([binary()], pos_integer()) -> ok.
met(Subjects, Last) ->
    Newest = persistent_term:get(?MODULE),
    lists:foreach(fun(Subject) ->
        Cell = cell(Subject),
        atomics:put(Newest, Cell, max(Last, atomics:get(Newest, Cell)))
    end, Subjects).

%% 0: there is none about this subject.
-spec newest(binary()) -> non_neg_integer().
newest(Subject) ->
    atomics:get(persistent_term:get(?MODULE), cell(Subject)).

cell(Subject) ->
    erlang:phash2([joint | Subject], 1 bsl ?BITS) + 1.
