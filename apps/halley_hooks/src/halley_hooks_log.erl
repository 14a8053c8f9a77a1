%% Reads the history for hooks, in portions: the events to send, between two vectors.
%%
%% Two read it, each from a vector of its own: one for what clients published, at once; one for what
%% found no session of a user, two seconds later, so that links that were just cut or a brain that
%% just started have said who is there. An event is judged by when its users had sessions
%% (`halley_hooks_owed'), not by who has one when it is read.
%%
%% Events that the history can't give any more become a gap. It holds no file: the caller lends it a
%% reader.
-module(halley_hooks_log).

-export([next/5]).
-export_type([known/0]).

-type vector() :: halley_cursor:vector().
-type reader() :: halley_history_reader:reader().
-type purpose() :: published | undelivered.

-define(SEQS, 512).
%% In one hook.
-define(USERS, 1000).

%% When it wasn't known who is there, and when not all was known; by the wall's clock as it is now.
-type known() :: #{doubts := halley_hooks_owed:doubts(), unsure := halley_hooks_owed:doubts()}.

-record(look, {purpose :: purpose(), from :: vector(), up_to :: vector(),
               before_ms :: integer() | any,
               settings :: halley_hooks_config:settings(), known :: known(),
               gap = none :: none | halley_hooks_entry:entry()}).

%% Entries for the queue, in order, and where to go on.
-spec next(purpose(), {From :: vector(), UpTo :: vector()}, halley_hooks_config:settings(),
           known(), reader()) ->
    {[halley_hooks_entry:entry()], vector(), more | done, reader()}.
next(Purpose, {From0, UpTo}, Settings, Known, Reader) ->
    {From, Gaps} = above_floor(From0, UpTo),
    case halley_vector:behind(From, UpTo) of
        reached ->
            {Gaps, From, done, Reader};
        After ->
            {Seqs, To} = halley_history:seqs(After, halley_vector:largest(UpTo), ?SEQS),
            NowMs = halley_clock:wall_ms(),
            Look = #look{purpose = Purpose, from = From, up_to = UpTo, settings = Settings,
                         known = Known, before_ms = case Purpose of
                                                      published -> any;
                                                      undelivered -> NowMs
                                                          - halley_hooks_owed:window_ms()
                                                  end},
            {Entries, Last, Next} = read(Seqs, To, Look, Reader, Gaps),
            Now = halley_vector:advance(Last, From, UpTo),
            {lists:reverse(Entries), Now, more(Last, To, Now, UpTo), Next}
    end.

%% One that stopped at an event that is too young has no more for now.
more(Last, To, Now, UpTo) ->
    case Last =:= To andalso not halley_vector:is_reached(UpTo, Now) of
        true -> more;
        false -> done
    end.

above_floor(From, UpTo) ->
    Floor = halley_history:floor(),
    case halley_vector:behind(From, UpTo) of
        After when is_integer(After), After < Floor ->
            {halley_vector:at_least(Floor, From), [too_old()]};
        _ ->
            {From, []}
    end.

too_old() ->
    #{floor_at := FloorMs} = halley_history:info(),
    {gap, too_old, 0, FloorMs}.

%% Entries are in reverse. A seq of a private or a joint event stands for all of that event.
read([], To, _, Reader, Entries) ->
    {Entries, To, Reader};
read([Seq | Seqs] = All, To, Look, Reader, Entries) ->
    case halley_history_reader:read(Seq, Reader) of
        {ok, #{at := At} = Record, Next} ->
            case is_old_enough(Seq, At, Look) of
                true -> met(Record, All, To, Look, Next, Entries);
                false -> {Entries, Seq - 1, Next}
            end;
        {ok, Record, Next} ->
            met(Record, All, To, Look, Next, Entries);
        {damaged, Next} ->
            read(Seqs, To, Look, Next, [damaged(Entries) | without(damaged, Entries)]);
        {expired, Next} ->
            read([S || S <- Seqs, S > halley_history:floor()], To, Look, Next,
                 [too_old() | without(too_old, Entries)])
    end.

met(#{kind := Kind, shard := Shard, seq := Last} = Record, [Seq | Seqs], To,
    #look{from = From, up_to = UpTo} = Look, Reader, Entries)
  when Kind =:= event orelse Kind =:= private orelse Kind =:= joint,
       Last > element(Shard, From), Seq =< element(Shard, UpTo) ->
    Rest = lists:dropwhile(fun(S) -> S =< Last end, Seqs),
    {Told, Next} = entries(Record, Look, Reader),
    read(Rest, max(To, Last), Look, Next, Told ++ Entries);
met(_, [_ | Seqs], To, Look, Reader, Entries) ->
    read(Seqs, To, Look, Reader, Entries).

%% Also where the clock was set back since it was published.
is_old_enough(_, _, #look{before_ms = any}) -> true;
is_old_enough(Seq, At, #look{before_ms = BeforeMs}) ->
    halley_history_steps:as_of_now(Seq, At) =< BeforeMs.

%% One gap for those that stand together.
without(Reason, [{gap, Reason, _, _} | Entries]) -> Entries;
without(_, Entries) -> Entries.

damaged([{gap, damaged, From, _} | _]) -> {gap, damaged, From, halley_clock:wall_ms()};
damaged(_) -> {gap, damaged, 0, halley_clock:wall_ms()}.

entries(#{by := By, seq := Seq} = Record, #look{purpose = published} = Look, Reader) ->
    #look{settings = #{users := Users} = Settings} = Look,
    case halley_hooks_config:matches(By, Users) andalso is_told(Record, Settings) of
        true -> {[{published, Seq}], Reader};
        false -> {[], Reader}
    end;
entries(_, #look{purpose = published}, Reader) ->
    {[], Reader};
entries(#{seq := Seq, at := At} = Record, #look{settings = Settings} = Look, Reader) ->
    case is_told(Record, Settings) of
        false ->
            {[], Reader};
        true ->
            Event = Record#{at := halley_history_steps:as_of_now(Seq, At)},
            {More, Users, Next} = absent(Event, Look, Reader),
            {[{undelivered, Seq, More, Part} || Part <- parts(Users)], Next}
    end.

parts([]) -> [];
parts(Users) ->
    {Part, Rest} = lists:split(min(?USERS, length(Users)), Users),
    [Part | parts(Rest)].

is_told(#{subject := Subject}, #{subjects := Subjects}) ->
    halley_hooks_config:matches(Subject, Subjects);
is_told(#{subjects := Several}, #{subjects := Subjects}) ->
    lists:any(fun(Subject) -> halley_hooks_config:matches(Subject, Subjects) end, Several);
is_told(_, _) ->
    true.

%% Of a private event its users; of any other its subjects and who followed them. One that was
%% forgotten has no id any more.
absent(#{users := Users} = Of, Look, Reader) ->
    Event = Of#{is_alone => length(Users) =:= 1},
    {false, [User || User <- Users, User =/= <<>>, is_owed(User, Event, Look)], Reader};
absent(#{subjects := Subjects} = Event, Look, Reader) ->
    {More, Users, Next} = lists:foldl(fun(Subject, {AnyMore, All, R}) ->
        {More, Users, After} = absent_of(Subject, Event, Look, R),
        {AnyMore orelse More, Users ++ All, After}
    end, {false, [], Reader}, [Subject || Subject <- Subjects, Subject =/= <<>>]),
    {More, lists:usort(Users), Next};
absent(#{subject := Subject} = Event, Look, Reader) ->
    absent_of(Subject, Event, Look, Reader).

absent_of(Subject, #{seq := Seq} = Event, Look, Reader) ->
    Own = [Subject || is_owed(Subject, Event, Look)],
    case followers(Subject, Seq, Reader) of
        too_many ->
            {true, Own, Reader};
        {Followers, Next} ->
            {false, Own ++ [User || User <- Followers, User =/= Subject,
                                    is_owed(User, Event, Look)], Next}
    end.

%% Who followed it when it had this seq: who does now, but for what changed since.
followers(Subject, Seq, Reader) ->
    Most = halley_limits:get(hooks_followers_max),
    case halley_follows:count_followers(Subject) > Most orelse changes(Subject, Seq, Most) of
        Changes when is_list(Changes) ->
            {Changed, Next} = halley_catchup_former:followed_at(Subject, Seq, Changes, Reader),
            Users = [User || User <- followers(Subject), not is_map_key(User, Changed)]
                ++ [User || {User, true} <- maps:to_list(Changed),
                            Seq > halley_history:forgotten(User)],
            {lists:usort(Users), Next};
        _ ->
            too_many
    end.

changes(Subject, Seq, Most) ->
    case halley_history:changes_of(Subject, Seq) of
        Changes when length(Changes) > Most -> too_many;
        Changes -> Changes
    end.

followers(Subject) ->
    case halley_ids:lookup(Subject) of
        undefined -> [];
        Number ->
            [halley_ids:name(N)
             || N <- halley_follows_graph:fold_followers(fun(N, Acc) -> [N | Acc] end, [], Number)]
    end.

is_owed(User, Event, #look{settings = #{users := Users}, known = Known}) ->
    halley_hooks_config:matches(User, Users) andalso begin
        %% Before its moves are read: what moves meanwhile is among them.
        IsThere = is_there(halley_ids:lookup(User)),
        halley_hooks_owed:is_owed(Event, halley_hooked_moves:of_user(User),
                                  Known#{is_there => IsThere})
    end.

%% In this order: a session that is held until it is open is one all the time.
is_there(undefined) -> false;
is_there(Number) ->
    halley_directory_leaving:is_held(Number) orelse halley_directory:sessions(Number) =/= [].
