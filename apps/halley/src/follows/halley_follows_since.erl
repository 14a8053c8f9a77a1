%% Follows are written to the history before they take effect.
%%
%% A follow counts from when it was made, also if its user comes back with an older cursor, or with
%% a made-up one: a replay has nothing from before the follow (`halley_replay_gather'). So the
%% history gets a record of each follow, which says up to which seq it doesn't count.
%%
%% A subject without events in the history needs no record, nor does one that is followed already.
%% So importing a graph costs a look at the index for each subject, and in an empty history nothing.
%%
%% Invariants: the seq is read before the follows are. A user that follows already gets no record.
%% For any other user nothing up to that seq counts, unless a record of an unfollow since says so.
%% The record of a follow that failed changes nothing. So a record withholds only events that were
%% published while the user did not follow.
%%
%% An event that is published while a follow is being written may count as before or after it.
%%
%% All of it runs in the process that follows, so the owner of the follows doesn't wait.
-module(halley_follows_since).

-export([record/1]).

%% Keys (user, subject), ascending. Returns when every replay that begins from now on finds the
%% records. With an error there are none, and the follows must not take effect.
-spec record([halley_pages:key()]) ->
    ok | {error, disk_full | history_failed | data_dir_moved}.
record(Keys) ->
    %% Before anything is looked up.
    From = halley_history:drawn(),
    case halley_history:is_empty() of
        true -> ok;
        false -> record(Keys, From)
    end.

record(Keys, From) ->
    Known = maps:from_keys([Key band 16#FFFFFFFF || Key <- Keys], true),
    Subjects = maps:filtermap(fun(Number, _) -> named(Number) end, Known),
    halley_history:followed([{User, map_get(Subject, Subjects)}
                             || map_size(Subjects) > 0, Key <- Keys,
                                Subject <- [Key band 16#FFFFFFFF],
                                is_map_key(Subject, Subjects), not is_following(Key),
                                User <- [halley_ids_pages:id(Key bsr 32)], User =/= <<>>], From).

%% A number that was given back meanwhile is nobody's: the owner of the follows refuses the change.
named(Number) ->
    case halley_ids_pages:id(Number) of
        <<>> -> false;
        Id -> halley_history:has_events(Id) andalso {true, Id}
    end.

is_following(Key) ->
    Subject = Key band 16#FFFFFFFF,
    halley_pages_table:take(halley_following, Key bsr 32, Subject - 1, 1) =:= [Subject].
