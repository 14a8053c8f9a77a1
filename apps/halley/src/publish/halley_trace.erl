%% Why has a user got an event, or not? What the brain knows of it.
%%
%% From the history: the event itself, and whether the user followed its subject (now, or when it
%% was published as far as the changes since then say); of a private event, whether it was for the
%% user.
%% From the directory and the links: the user's sessions and whether the event has passed to their
%% links. From `halley_closings': sessions that ended since. What waits in a connection's outbox
%% only its worker knows: the caller asks it (INSPECT), joins both, and words the verdict.
-module(halley_trace).

-export([trace/2]).
-export_type([trace/0]).

-type trace() ::
    #{event := #{id := halley_id:id(), at := integer(),
                 %% A private event has none, but so many users.
                 subject => halley_id:id(), users => pos_integer(),
                 seq := halley_cursor:seq(), shard := halley_shards:index(),
                 %% When it was published.
                 sessions := non_neg_integer()},
      followed := boolean(),
      %% When the user unfollowed the subject, if that was after the event.
      unfollowed_at := integer() | none,
      %% `passed': it isn't above what has been sent to the session's link.
      sessions := [#{session := halley_directory:session(), passed := boolean()}],
      %% Since the event, the latest first.
      ended := [halley_closings:closing()]}.

-spec trace(halley_event:id(), User :: halley_id:id()) -> {ok, trace()} | {error, not_found}.
trace(EventId, User) ->
    Reader = halley_history_reader:new(),
    case find(EventId, Reader) of
        {ok, Record, Next} ->
            {Change, Last} = change(Record, User, Next),
            ok = halley_history_reader:close(Last),
            {ok, trace(Record, User, Change, halley_ids:lookup(User))};
        {not_found, Next} ->
            ok = halley_history_reader:close(Next),
            {error, not_found}
    end.

find(EventId, Reader) ->
    case halley_history:find(EventId) of
        {ok, Seq} ->
            case halley_history_reader:read(Seq, Reader) of
                {ok, #{kind := event, id := EventId} = Record, Next} -> {ok, Record, Next};
                {ok, #{kind := private, id := EventId} = Record, Next} -> {ok, Record, Next};
                {ok, _, Next} -> {not_found, Next};
                {_, Next} -> {not_found, Next}
            end;
        none ->
            {not_found, Reader}
    end.

trace(#{at := At, seq := Seq, shard := Shard} = Record, User, Change, Number) ->
    #{event => event(Record),
      followed => is_theirs(Record, User, Change, Number),
      unfollowed_at => case Change of {unfollowed, UnfollowedAt} -> UnfollowedAt; _ -> none end,
      sessions => [#{session => Session, passed => passed(Session, Shard, Seq)}
                   || N <- [Number], N =/= undefined, Session <- halley_directory:sessions(N)],
      ended => [Closing || N <- [Number], N =/= undefined,
                           #{at := ClosedAt} = Closing <- halley_closings:of_user(N),
                           ClosedAt >= At]}.

event(#{kind := private, seq := Last, first := First} = Record) ->
    (maps:with([id, at, seq, shard, sessions], Record))#{users => Last - First + 1};
event(Record) ->
    maps:with([id, subject, at, seq, shard, sessions], Record).

is_theirs(#{kind := private, users := Users}, User, _, _) ->
    lists:member(User, Users);
is_theirs(#{subject := Subject, seq := Seq}, User, Change, Number) ->
    User =:= Subject orelse followed(Change, Seq, Number, Subject).

%% The first change behind the event.
change(#{kind := private}, _, Reader) ->
    {none, Reader};
change(#{subject := Subject, seq := Seq}, User, Reader) ->
    lists:foldl(fun(Change, {Later, R}) ->
                    case halley_history_reader:read(Change, R) of
                        {ok, #{kind := unfollow, subject := User, id := Subject, at := At},
                         Next} -> {{unfollowed, At}, Next};
                        {ok, #{kind := follow, subject := User, id := Subject, from := From},
                         Next} -> {{followed, From}, Next};
                        {ok, _, Next} -> {Later, Next};
                        {_, Next} -> {Later, Next}
                    end
                end, {none, Reader}, halley_history:changes(User, Seq)).

followed({unfollowed, _}, _, _, _) -> true;
followed({followed, From}, Seq, _, _) when Seq =< From -> false;
followed(_, _, Number, Subject) -> follows(Number, Subject).

follows(undefined, _) ->
    false;
follows(Number, Subject) ->
    case halley_ids:lookup(Subject) of
        undefined -> false;
        S -> halley_pages_table:take(halley_following, Number, S - 1, 1) =:= [S]
    end.

%% What the shard has sent has passed, unless the link was left to the history.
passed({link, Slot, _}, Shard, Seq) ->
    element(Shard, halley_history:heads()) >= Seq andalso not halley_links:is_behind(Slot);
passed(_, _, _) ->
    true.
