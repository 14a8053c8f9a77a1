%% Why has a user got an event, or not? The brain's knowledge of it.
%%
%% From the history: the event itself, and whether the user followed its subject (now, or when it
%% was published as far as the changes since then say), or any of its subjects; of a private event,
%% whether it was for the user. From the subscriptions: which of the user's sessions are subscribed
%% to the subject now. If the user didn't follow, these alone are its sessions here. From the
%% directory and the links: the user's sessions and whether the event has passed to their links.
%% From `halley_began': where they began. From `halley_closings': sessions that ended since, and
%% whether these are all. Only its worker knows how much waits in a connection's outbox: the caller
%% requests it (INSPECT), joins both, and words the verdict.
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
      %% Or one of its sessions is subscribed to the subject now: `meant' says which.
      %% `follows_just_then': the follow was being made when the event was published.
      followed := boolean(),
      meant := followed | follows_just_then | subscribed | no,
      %% When the user unfollowed the subject, if that was after the event.
      unfollowed_at := integer() | none,
      %% `passed': it isn't above what has been sent to the session's link.
      sessions := [#{session := halley_directory:session(), passed := boolean(),
                     began := halley_began:began()}],
      %% Of the sessions, those that aren't here yet, as their past is being sent.
      held := non_neg_integer(),
      %% Since the event, the latest first.
      ended := [halley_closings:closing()],
      %% A session was subscribed to it until after the event.
      unsubscribed := boolean(),
      %% No other session of the user can have been there since the event.
      is_complete := boolean(),
      %% After the event: what was before is hidden from the user.
      deleted := boolean()}.

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
            {ok, trace(Record, User, Changes, number(User))};
        {not_found, Next} ->
            ok = halley_history_reader:close(Next),
            {error, not_found}
    end.

%% The id of a user that left and follows nothing is soon not found any more, though its number is
%% its own until it is freed: what is remembered of its sessions stands there.
number(User) ->
    case halley_ids:lookup(User) of
        undefined ->
            case [N || N <- halley_closings:users(), halley_ids:name(N) =:= User] of
                [Number | _] -> Number;
                [] -> undefined
            end;
        Number ->
            Number
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

trace(#{seq := Seq, shard := Shard} = Record, User, Changes, Number) ->
    Seqs = #{shard => Shard, first => maps:get(first, Record, Seq), last => Seq},
    %% In this order: a session that goes from one to the next meanwhile is met again.
    Held = lists:sum([Count || N <- [Number], N =/= undefined,
                               {_, Count} <- halley_directory_leaving:held(N)]),
    All = [Session || N <- [Number], N =/= undefined, Session <- halley_directory:sessions(N)],
    Rows = lists:append([halley_openings:of_user(N) || N <- [Number], N =/= undefined]),
    Floor = halley_openings:floor(Number),
    Ended = lists:append([halley_closings:of_user(N) || N <- [Number], N =/= undefined]),
    {Meant, Sessions} =
        case {is_theirs(Record, User, Changes, Number), subscribed(Record, All)} of
            {no, [_ | _] = Subscribed} -> {subscribed, Subscribed};
            {IsTheirs, _} -> {IsTheirs, All}
        end,
    #{event => event(Record),
      followed => Meant =/= no,
      meant => Meant,
      unfollowed_at => lists:foldl(fun({_, {unfollowed, UnfollowedAt}}, _) -> UnfollowedAt;
                                      (_, Before) -> Before
                                   end, none, Changes),
      held => Held,
      sessions => [#{session => Session, passed => passed(Session, Shard, Seq),
                     began => began(Session, {Meant, Seqs}, Record, {Rows, Floor})}
                   || Session <- Sessions],
      ended => [Closing || #{drawn := Drawn} = Closing <- Ended, Drawn >= map_get(first, Seqs)],
      unsubscribed => halley_began:has_unsubscribed(Seqs, subjects(Record), Rows),
      is_complete => is_complete(Seqs, max(Floor, halley_closings:floor(Number))),
      deleted => halley_history:forgotten(User) >= Seq}.

began(Session, {Meant, Seqs}, Record, {Rows, Floor}) ->
    Ground = case Meant of
        subscribed -> subjects(Record);
        _ -> theirs
    end,
    sure(halley_began:of_session(Session, {Seqs, Ground}, Rows, Floor), Record).

%% What a replay may have left out, as it was too old for its subject by then; and what found no
%% session though one was there: by a catch-up, or not at all.
sure(cursor_before, #{at := At} = Record) ->
    Subjects = case subjects(Record) of [] -> [private]; Several -> Several end,
    IsOld = lists:all(fun(S) -> halley_history_shown:oldest(S) > At end, Subjects),
    case IsOld of
        true -> unknown;
        false -> cursor_before
    end;
sure(before, #{sessions := 0}) ->
    unknown;
sure(Began, _) ->
    Began.

%% Whether all sessions that ended since, and all changes of subscriptions, have their rows, and
%% all that live are known.
is_complete(#{first := First}, Floor) ->
    First > Floor andalso halley_links_synced:since() =/= never.

subscribed(Record, Sessions) ->
    [Session || {link, Slot, Conn} = Session <- Sessions,
                Subscribed <- [halley_subscriptions:subjects(Slot, Conn)],
                lists:any(fun(S) -> lists:member(S, Subscribed) end, subjects(Record))].

event(#{kind := private, seq := Last, first := First} = Record) ->
    (maps:with([id, at, seq, shard, sessions], Record))#{users => Last - First + 1};
event(Record) ->
    maps:with([id, subject, subjects, at, seq, shard, sessions], Record).

is_theirs(#{kind := private, users := Users}, User, _, _) ->
    case lists:member(User, Users) of
        true -> followed;
        false -> no
    end;
is_theirs(#{seq := Seq}, User, Changes, Number) ->
    %% As by the one that says most.
    lists:foldl(fun(_, followed) -> followed;
                   ({Subject, _}, _) when Subject =:= User -> followed;
                   ({Subject, Change}, Before) ->
                       case followed(Change, Seq, Number, Subject) of
                           no -> Before;
                           Followed -> Followed
                       end
                end, no, Changes).

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

%% The record of a follow is written before it takes effect, and names where it was asked for.
followed({unfollowed, _}, _, _, _) -> followed;
followed({followed, From}, Seq, _, _) when Seq =< From -> no;
followed(Change, _, Number, Subject) ->
    case {follows(Number, Subject), Change} of
        {true, none} -> followed;
        {true, _} -> follows_just_then;
        {false, _} -> no
    end.

follows(undefined, _) ->
    false;
follows(Number, Subject) ->
    case halley_ids:lookup(Subject) of
        undefined -> false;
        S -> halley_follows_graph:is_following(Number, S)
    end.

%% What the shard has sent has passed, unless the link was left to the history.
passed({link, Slot, _}, Shard, Seq) ->
    element(Shard, halley_history:heads()) >= Seq
        andalso not halley_links_backpressure:is_behind(halley_links:way(Slot));
passed(_, _, _) ->
    true.
