%% Sessions that requested the presence of a subject and have not been sent its state yet.
%%
%% They are in the table of subscriptions already, and a change for all of those would come to them
%% before the state that it changes. So a change is for the others: the state that these sessions
%% get then includes it.
%%
%% Invariant: a session is here before it is found in the table, or by its row, and until it is sent
%% the state, or ends. Its request leaves a note after that (`halley_presence_dirty'), so no session
%% stays here for ever.
%%
%% A row {{Key, Word}} of an ordered ETS for each; mostly there is none, and a look is one step.
-module(halley_presence_pending).

-export([new/0, clear/0, add/2, remove/2, sent/2]).
-export([words/1, all/1, without/2]).

-type word() :: halley_directory:word().
-type key() :: halley_presence_keys:key().

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [ordered_set, public, named_table, {write_concurrency, true}]),
    ok.

-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    ok.

%% The session is about to have these subscriptions.
-spec add(word(), [binary()]) -> ok.
add(Word, Subjects) ->
    lists:foreach(fun(Key) -> true = ets:insert(?MODULE, {{Key, Word}}) end, keys(Subjects)).

%% It has them no longer.
-spec remove(word(), [binary()]) -> ok.
remove(Word, Subjects) ->
    lists:foreach(fun(Key) -> sent(Key, [Word]) end, keys(Subjects)).

keys(Subjects) ->
    [Subject || Subject <- Subjects, halley_presence_keys:subject(Subject) =/= none].

%% Those sessions are sent the state.
-spec sent(key(), [word()]) -> ok.
sent(Key, Words) ->
    lists:foreach(fun(Word) -> true = ets:delete(?MODULE, {Key, Word}) end, Words).

%% Those that get changes.
-spec words(key()) -> [word()].
words(Key) ->
    without(Key, halley_subscriptions_table:words(Key)).

%% All that have requested it: the caller sends them the state now.
-spec all(key()) -> [word()].
all(Key) ->
    Words = halley_subscriptions_table:words(Key),
    ok = sent(Key, Words),
    Words.

%% Those of them that know the state.
-spec without(key(), [word()]) -> [word()].
without(Key, Words) ->
    case Words =/= [] andalso ets:next(?MODULE, {Key, -1}) of
        {Key, _} -> [Word || Word <- Words, not ets:member(?MODULE, {Key, Word})];
        _ -> Words
    end.
