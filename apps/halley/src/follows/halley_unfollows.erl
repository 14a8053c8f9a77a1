%% Unfollows are written to the history before they take effect.
%%
%% Events of a subject that were published before a user unfollowed it are still that user's, even
%% if it comes back for them later (`halley_replay', `halley_catchup'). So the history gets a record
%% of each unfollow, and gets it first: if a subject is missing among the follows, the record is
%% there, and a brain that is killed in between leaves a record too many, never one too few. An
%% event that is published while an unfollow is being written may count as before or after it.
%%
%% A subject without events in the history needs no record, nor does a follow that doesn't exist;
%% so emptying a large graph writes little here.
%%
%% All of it runs in the process that unfollows, so the owner of the follows doesn't wait.
-module(halley_unfollows).

-export([record/1]).

%% How long to wait for the log to have indexed what was published before. Beyond it every subject
%% counts as one with events.
-define(AWAIT_MS, 1000).

%% Keys (user, subject), ascending. Returns when the records are on disk. With an error they aren't,
%% and the unfollows must not take effect: who comes back would miss in silence what was published
%% before.
-spec record([halley_pages:key()]) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
record(Keys) ->
    HasEvents = case halley_history:await(halley_history:heads(), ?AWAIT_MS) of
        ok -> fun halley_history:has_events/1;
        timeout -> fun(_) -> true end
    end,
    Known = maps:from_keys([Key band 16#FFFFFFFF || Key <- Keys], true),
    Subjects = maps:filtermap(fun(Number, _) -> named(Number, HasEvents) end, Known),
    halley_history:unfollowed([{halley_ids:name(Key bsr 32), map_get(Subject, Subjects)}
                               || map_size(Subjects) > 0, Key <- Keys,
                                  Subject <- [Key band 16#FFFFFFFF],
                                  is_map_key(Subject, Subjects), is_following(Key)]).

named(Number, HasEvents) ->
    Name = halley_ids:name(Number),
    HasEvents(Name) andalso {true, Name}.

is_following(Key) ->
    Subject = Key band 16#FFFFFFFF,
    halley_pages_table:take(halley_following, Key bsr 32, Subject - 1, 1) =:= [Subject].
