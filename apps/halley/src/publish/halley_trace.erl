%% Why has a user got an event, or not? What the brain knows of it.
%%
%% From the history: the event itself, and whether the user followed its subject (now, or when it
%% was published as far as the changes since then say), or any of its subjects; of a private event,
%% whether it was for the user.
%% From the subscriptions: which of the user's sessions are subscribed to the subject now. If the
%% user didn't follow, these alone are its sessions here.
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
                 subjects => [halley_id:id()],               % of a joint one, which has no subject
                 seq := halley_cursor:seq(), shard := halley_shards:index(),
                 %% When it was published.
                 sessions := non_neg_integer()},
      %% Or one of its sessions is subscribed to the subject now.
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
            {Changes, Last} = lists:mapfoldl(fun(Subject, R) ->
                {Change, Later} = change(Subject, Record, User, R),
                {{Subject, Change}, Later}
            end, Next, subjects(Record)),
            ok = halley_history_reader:close(Last),
            {ok, trace(Record, User, Changes, halley_ids:lookup(User))};
        {not_found, Next} ->
            ok = halley_history_reader:close(Next),
            {error, not_found}
    end.

find(EventId, Reader) ->
    case halley_history:find(EventId) of
        {ok, Seq} ->
            case halley_history_reader:read(Seq, Reader) of
                {ok, #{kind := event, id := EventId} = Record, Next} -> {ok, Record, Next};
                {ok, #{kind := Kind, id := EventId} = Record, Next}
                  when Kind =:= private; Kind =:= joint -> {ok, Record, Next};
                {ok, _, Next} -> {not_found, Next};
                {_, Next} -> {not_found, Next}
            end;
        none ->
            {not_found, Reader}
    end.

subjects(#{kind := private}) -> [];
subjects(#{kind := joint, subjects := Subjects}) -> Subjects;
subjects(#{subject := Subject}) -> [Subject].

trace(#{at := At, seq := Seq, shard := Shard} = Record, User, Changes, Number) ->
    All = [Session || N <- [Number], N =/= undefined, Session <- halley_directory:sessions(N)],
    {Followed, Sessions} =
        case {is_theirs(Record, User, Changes, Number), subscribed(Record, All)} of
            {false, [_ | _] = Subscribed} -> {true, Subscribed};
            {IsTheirs, _} -> {IsTheirs, All}
        end,
    #{event => event(Record),
      followed => Followed,
      unfollowed_at => lists:foldl(fun({_, {unfollowed, UnfollowedAt}}, _) -> UnfollowedAt;
                                      (_, Before) -> Before
                                   end, none, Changes),
      sessions => [#{session => Session, passed => passed(Session, Shard, Seq)}
                   || Session <- Sessions],
      ended => [Closing || N <- [Number], N =/= undefined,
                           #{at := ClosedAt} = Closing <- halley_closings:of_user(N),
                           ClosedAt >= At]}.

subscribed(Record, Sessions) ->
    [Session || {link, Slot, Conn} = Session <- Sessions,
                Subscribed <- [halley_subscriptions:subjects(Slot, Conn)],
                lists:any(fun(S) -> lists:member(S, Subscribed) end, subjects(Record))].

event(#{kind := private, seq := Last, first := First} = Record) ->
    (maps:with([id, at, seq, shard, sessions], Record))#{users => Last - First + 1};
event(Record) ->
    maps:with([id, subject, subjects, at, seq, shard, sessions], Record).

is_theirs(#{kind := private, users := Users}, User, _, _) ->
    lists:member(User, Users);
is_theirs(#{seq := Seq}, User, Changes, Number) ->
    lists:any(fun({Subject, Change}) ->
        User =:= Subject orelse followed(Change, Seq, Number, Subject)
    end, Changes).

%% The first change of this follow behind the event.
change(Subject, #{seq := Seq}, User, Reader) ->
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
    element(Shard, halley_history:heads()) >= Seq
        andalso not halley_links:is_behind(halley_links:way(Slot));
passed(_, _, _) ->
    true.
