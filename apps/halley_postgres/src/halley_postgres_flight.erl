%% Events on their way into the brain: posted in their order without waiting for the disk, and done
%% in that order when the history has them.
%%
%% They are posted in groups. With each group its owner gives `marks', anything, which it gets back
%% by `landed/1' when each event of the group, and of all groups before it, is on disk or refused
%% for good. So what is kept as done never includes an event that could be lost.
%%
%% An event that the brain refuses for a while (it is overloaded, its disk is full, a shard has
%% died) is posted again. Nothing new is posted before that: this waits until all that is on its way
%% was answered, then posts the refused ones, in their order. So the order of a subject holds: once
%% the history couldn't write an event it refuses later ones on their way, until a probe, a second
%% later at the earliest (`halley_history_log'); and a shard that died takes with it what waited.
%%
%% Bounded: ?EVENTS_MAX events and ?BYTES_MAX bytes on their way, and one event more; and after
%% these at most ?KEPT_MAX groups, marks and events that were refused, whose contents have
%% ?BYTES_MAX bytes, and one group more. Beyond that `post/4' waits, and with it PostgreSQL.
-module(halley_postgres_flight).

-export([new/0, post/4, heard/3, land/2, landed/1]).
-export_type([flight/0, event/0, refused/0]).

%% `lsn' and `source' say where it was: a message's place, or the outbox's row. No other event has
%% that source, and when it comes again it has the same.
-type event() :: #{lsn := non_neg_integer(), source := binary(), content := binary(),
                   item := {ok, halley_postgres_message:item()} | {error, binary()}}.
%% With so much of its content as is kept.
-type refused() :: {#{lsn := non_neg_integer(), source := binary(), content := binary()},
                    Reason :: binary()}.
-type env() :: #{wait := fun(() -> term()), _ => _}.

-define(EVENTS_MAX, 4000).
-define(BYTES_MAX, 8388608).
-define(KEPT_MAX, 20000).
-define(BUSY_MS, 10).
-define(REFUSED_MS, 500).
%% `wait' is called when nothing was answered for so long.
-define(ALIVE_MS, 1000).

%% Which group, and which event of it.
-type key() :: {pos_integer(), pos_integer()}.
-record(group, {left :: non_neg_integer(), marks :: [term()], refused = [] :: [refused()]}).
-record(flight, {posts = halley_posts:new() :: halley_posts:posts(),
                 bytes = 0 :: non_neg_integer(),
                 %% Of the groups: themselves, their marks, and what was refused of them.
                 kept = 0 :: non_neg_integer(),
                 kept_bytes = 0 :: non_neg_integer(),
                 %% Those from `first' to before `next'.
                 groups = #{} :: #{pos_integer() => #group{}},
                 first = 1 :: pos_integer(),
                 next = 1 :: pos_integer(),
                 again = [] :: [{key(), event()}],
                 why = none :: term()}).
-opaque flight() :: #flight{}.

-spec new() -> flight().
new() -> #flight{}.

%% Those that are no event are refused; the others are posted. It waits while there is no room, and
%% behind this group until all have landed, if too much is kept.
-spec post([event()], Marks :: [term()], env(), flight()) -> flight().
post(Events, Marks, Env, #flight{next = N, groups = Groups} = Flight) ->
    Numbered = [{{N, I}, Event} || {I, Event} <- lists:enumerate(Events)],
    Group = #group{left = length(Events), marks = Marks},
    case posted(Numbered, Env, kept(1 + length(Marks), 0, Flight#flight{
                    next = N + 1, groups = Groups#{N => Group}})) of
        #flight{kept = Kept, kept_bytes = Bytes} = Posted
          when Kept >= ?KEPT_MAX; Bytes >= ?BYTES_MAX ->
            land(Env, Posted);
        Posted -> Posted
    end.

kept(More, Bytes, #flight{kept = Kept, kept_bytes = Before} = Flight) ->
    Flight#flight{kept = Kept + More, kept_bytes = Before + Bytes}.

posted([], _, Flight) ->
    sent(Flight);
posted([{Key, #{item := {error, Reason}} = Event} | Rest], Env, Flight) ->
    posted(Rest, Env, refused(Key, Event, Reason, Flight));
posted([{Key, #{item := {ok, Item}} = Event} | Rest] = All, Env, #flight{posts = Posts} = Flight) ->
    case is_full(Flight) orelse halley_posts:post(Item, {Key, Event}, Posts) of
        true ->
            posted(All, Env, again(Env, waited(Env, sent(Flight))));
        {ok, _, Posts1} ->
            posted(Rest, Env, moved(bytes(Event), Flight#flight{posts = Posts1}));
        {error, Reason} ->
            case is_passing(Reason) of
                true -> posted(All, Env, paused(Reason, Env, land(Env, sent(Flight))));
                false -> posted(Rest, Env, refused(Key, Event, explain(Reason), Flight))
            end
    end.

sent(#flight{posts = Posts} = Flight) -> Flight#flight{posts = halley_posts:send(Posts)}.

is_full(#flight{posts = Posts, bytes = Bytes}) ->
    halley_posts:count(Posts) >= ?EVENTS_MAX orelse Bytes >= ?BYTES_MAX.

bytes(#{content := Content}) -> byte_size(Content).

moved(Bytes, #flight{bytes = Before} = Flight) -> Flight#flight{bytes = Before + Bytes}.

%% What may be otherwise later.
is_passing(Reason) ->
    lists:member(Reason, [busy, overloaded, disk_full, data_dir_moved, history_failed,
                          unavailable]).

explain({bad_id, _}) -> <<"an id is empty, too long, or has control characters">>;
explain(bad_to) -> <<"to isn't a list of users, or too long a one">>;
explain(data_too_large) -> <<"its data is too large">>;
explain(Reason) -> iolist_to_binary(io_lib:format("~0tP", [Reason, 10])).

refused({N, _}, #{lsn := Lsn, source := Source, content := All}, Reason, Flight) ->
    Content = halley_postgres_message:shown(All),
    Refused = {#{lsn => Lsn, source => Source, content => Content}, Reason},
    done(N, fun(#group{refused = Before} = Group) -> Group#group{refused = [Refused | Before]} end,
         kept(1, byte_size(Content), Flight)).

done(N, With, #flight{groups = Groups} = Flight) ->
    #{N := #group{left = Left} = Group} = Groups,
    Flight#flight{groups = Groups#{N := With(Group#group{left = Left - 1})}}.

%% --- answers -------------------------------------------------------------------------------------

%% `none': the message is about something else.
-spec heard(Message :: term(), env(), flight()) -> none | flight().
heard(Message, Env, Flight) ->
    case answered(Message, Flight) of
        none -> none;
        Flight1 -> again(Env, Flight1)
    end.

again(_, #flight{again = []} = Flight) -> Flight;
again(Env, Flight) -> land(Env, Flight).

answered({posted, Answers}, #flight{posts = Posts} = Flight) ->
    results(halley_posts:answered(Answers, Posts), Flight);
answered({'DOWN', Monitor, process, _, _}, #flight{posts = Posts} = Flight) ->
    case halley_posts:down(Monitor, Posts) of
        none -> none;
        Results -> results(Results, Flight)
    end;
answered({timeout, Timer, posts}, #flight{posts = Posts} = Flight) ->
    results(halley_posts:late(Timer, Posts), Flight);
answered(_, _) ->
    none.

results({Results, Posts}, Flight) ->
    ok = halley_metrics:incr(postgres_events, length([ok || {_, {ok, _}} <- Results])),
    lists:foldl(fun result/2, Flight#flight{posts = Posts}, Results).

result({{{N, _} = Key, Event}, Result}, Flight0) ->
    #flight{again = Again} = Flight = moved(-bytes(Event), Flight0),
    case reason(Result) of
        none ->
            done(N, fun(Group) -> Group end, Flight);
        Reason ->
            case is_passing(Reason) of
                true -> Flight#flight{again = [{Key, Event} | Again], why = Reason};
                false -> refused(Key, Event, explain(Reason), Flight)
            end
    end.

reason({ok, _}) -> none;
reason({error, Reason}) -> Reason;
reason(busy) -> busy.

%% Until nothing is on its way.
-spec land(env(), flight()) -> flight().
land(Env, #flight{posts = Posts, again = Again, why = Why} = Flight) ->
    case halley_posts:count(Posts) of
        0 when Again =:= [] ->
            Flight;
        0 ->
            Paused = paused(Why, Env, Flight#flight{again = [], why = none}),
            land(Env, posted(lists:keysort(1, Again), Env, Paused));
        _ ->
            land(Env, waited(Env, Flight))
    end.

%% For an answer. What is refused is left for `land/2'.
waited(#{wait := Wait} = Env, Flight) ->
    receive
        {posted, _} = Message -> answered(Message, Flight);
        {timeout, _, posts} = Message -> answered(Message, Flight);
        {'DOWN', _, process, _, _} = Message ->
            case answered(Message, Flight) of
                none -> Flight;
                Flight1 -> Flight1
            end
    after ?ALIVE_MS ->
        _ = Wait(),
        waited(Env, Flight)
    end.

paused(Reason, #{wait := Wait}, Flight) ->
    _ = Wait(),
    timer:sleep(case Reason of
                    busy -> ?BUSY_MS;
                    overloaded -> ?BUSY_MS;
                    _ -> ?REFUSED_MS
                end),
    Flight.

%% --- done ----------------------------------------------------------------------------------------

%% The marks of groups that are done, with those before them, and what was refused of each.
-spec landed(flight()) -> {[{Marks :: [term()], [refused()]}], flight()}.
landed(#flight{first = N, groups = Groups} = Flight) ->
    case Groups of
        #{N := #group{left = 0, marks = Marks, refused = Refused}} ->
            Bytes = lists:sum([byte_size(Content) || {#{content := Content}, _} <- Refused]),
            {More, Left} = landed(kept(-1 - length(Marks) - length(Refused), -Bytes, Flight#flight{
                first = N + 1, groups = maps:remove(N, Groups)})),
            {[{Marks, lists:reverse(Refused)} | More], Left};
        #{} -> {[], Flight}
    end.
