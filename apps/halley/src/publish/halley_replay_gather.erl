%% The gathering of a pass of a replay: which events one user may have missed, the oldest of them.
%%
%% It takes what the user follows, page by page, then what it has unfollowed since its cursor, and
%% reads the chain of each of these subjects from its old end, stretch by stretch. It keeps the
%% oldest seqs that it has found: when there are more than a window and a half, those beyond the
%% window go, and `bound' falls to where the window ends; no chain is read above the bound. So a
%% pass costs what it keeps and something for each follow, however much more was missed.
%%
%% Where less was published since the vector than the user follows, it goes the other way: it walks
%% over all events in between, by seq, and asks of each whether the user follows its subject. So a
%% user that follows much and missed little pays for what was published, not for the follows.
%% `costs/3' says which way is the shorter one; both find the same. An event whose subject can't be
%% read sends the pass back to the chains, where an index that is in memory says whether it concerns
%% the user.
%%
%% Private events for the user have a chain of the user in each shard. They are read before the
%% follows, if there are private events at all.
%%
%% So are the subjects that the session is subscribed to: for these no follow matters.
%%
%% Events about a subject and others have chains of the subject in each shard as well, which are
%% read where the index knows of such an event above the vector.
%%
%% A follow counts from when it was made: where the history knows of follows above the oldest
%% candidate, `halley_replay_since' leaves out what is not the user's.
%%
%% It works in slices: `work/2' does a millisecond or two of it and is called again, so that others
%% have their turns (`halley_edge_replays').
%%
%% Invariants: the follows, or which of the subjects in between are followed, are read before the
%% unfollows. An unfollow is in the history before it takes effect, so a subject that is missing
%% among the first is found among the second; and so is a follow, so the follows that are read have
%% their records. When it is done, everything up to `bound' that is the user's is among the
%% candidates, unless retention has taken it meanwhile: the caller checks the floor afterwards.
%%
%% Its memory is bounded: one and a half windows of candidates, at most 24,576, and ?UNFOLLOWED_MAX
%% subjects. That is under 16 MB if every id is as long as an id may be, and under one where few
%% subjects are followed.
%%
%% A change of follows that can't be read may have been an unfollow, of any subject: `is_lacking/1'
%% says that there was one.
%%
%% Not here: damaged ranges, and reading the events.
-module(halley_replay_gather).

-export([new/5, work/2, unfollowed/1, is_lacking/1, follows/1, is_current/2, above/2]).
-export_type([gather/0, user/0, candidate/0, unfollowed/0, follows/0]).

%% Candidates that a pass keeps: the more is followed, the more, so that what a follow costs is
%% spread over as many events.
-define(WINDOW_MIN, 4096).
-define(WINDOW_MAX, 16384).
%% Subjects that were unfollowed and are remembered from pass to pass.
-define(UNFOLLOWED_MAX, 8192).
-define(PAGE, 500).
-define(UNFOLLOW_LOOKS, 1000).

%% Work is counted in looks at the index, some 50 ns each.
-define(SLICE, 20000).
-define(FOLLOW_COST, 8).
-define(STRETCH_COST, 8).
-define(UNFOLLOW_COST, 64).
%% Of the walk: an event, whatever it is about; a block of the log; and how many in one go.
-define(EVENT_COST, 64).
-define(BLOCK_COST, 400).
-define(WALK, 128).

-type vector() :: halley_cursor:vector().
-type seq() :: halley_cursor:seq().
%% A visitor is nobody, who follows nothing.
-type user() :: halley_id:id() | nobody.
-type reader() :: halley_history_reader:reader().
%% What comes from the chain of a subject may be about another one.
-type candidate() :: {seq(), halley_history:about()}.
%% Subjects with the seq of their last unfollow, up to which their events are the user's; all
%% unfollows up to `known' are in it. It may have a subject that the user has followed again.
%% Up to `since' there are events that a follow may not count for.
-record(unfollowed, {subjects = #{} :: #{halley_id:id() => seq()}, known = 0 :: seq(),
                     since = 0 :: seq()}).
-opaque unfollowed() :: #unfollowed{}.
%% All that a user follows, packed in pages, which are those of the table while nothing changes.
-opaque follows() :: [binary()] | unknown.

-record(gather, {
    user :: user(),
    %% What the session is subscribed to, beside what its user follows.
    subscribed :: [halley_id:id()],
    vector :: vector(),
    up_to :: vector(),
    window :: pos_integer(),
    bound :: seq(),
    %% As they were before the first was read, if it takes long to look at them.
    follows :: follows(),
    %% Subjects whose chains are to be read: all of it, up to an unfollow, or what is left.
    todo :: [halley_id:id() | {halley_id:id(), Last :: seq()}
             | {halley_history:about(), halley_shards:index(), After :: seq(), UpTo :: seq()}],
    %% Where more comes from: follows beyond this number, or events above this seq; then unfollows
    %% from this one down.
    source :: {follows, After :: halley_id:user_number()} | {events, After :: seq()}
            | {unfollows, newest | seq()} | remembered | none
            | {since, halley_replay_since:filter()},
    unfollowed :: unfollowed(),
    joint = false :: boolean(),                       % whether there may be joint events
    newest = 0 :: seq(),                              % of the unfollows that were read
    lacking = false :: boolean(),                     % a change is damaged
    found = [] :: [candidate()],
    count = 0 :: non_neg_integer()}).
-opaque gather() :: #gather{}.

%% A pass from a vector to another. `Unfollowed': of the pass before, or none.
-spec new(user(), Subscribed :: [halley_id:id()], vector(), UpTo :: vector(),
          unfollowed() | none) -> gather().
new(User, Subscribed, Vector, UpTo, none) ->
    new(User, Subscribed, Vector, UpTo, #unfollowed{});
new(nobody, Subscribed, Vector, UpTo, Unfollowed) ->
    #gather{user = nobody, subscribed = Subscribed, vector = Vector, up_to = UpTo,
            bound = halley_vector:largest(UpTo), window = ?WINDOW_MIN, follows = unknown,
            joint = has_joint(Vector), todo = Subscribed, source = none,
            unfollowed = Unfollowed};
new(User, Subscribed, Vector, UpTo, Unfollowed) ->
    Follows = halley_follows:count_following(User),
    From = halley_vector:smallest(Vector),
    {OfFollows, OfEvents} = costs(Follows, From, halley_vector:largest(UpTo)),
    {Source, Cost} = case OfEvents < OfFollows of
        true -> {{events, From}, OfEvents};
        false -> {{follows, 0}, OfFollows}
    end,
    #gather{user = User, subscribed = Subscribed, vector = Vector, up_to = UpTo,
            bound = halley_vector:largest(UpTo),
            window = max(?WINDOW_MIN, min(?WINDOW_MAX, 2 * Follows)),
            follows = case Cost > ?SLICE of true -> all_follows(User); false -> unknown end,
            joint = has_joint(Vector), todo = own(User, Vector, UpTo) ++ Subscribed,
            source = Source, unfollowed = Unfollowed}.

has_joint(Vector) -> halley_history:has_joint(halley_vector:smallest(Vector)).

%% The user's own chains.
own(User, Vector, UpTo) ->
    case halley_history:has_private(halley_vector:smallest(Vector)) of
        true ->
            [User | [{{to, Shard, User}, Shard, element(Shard, Vector), element(Shard, UpTo)}
                     || Shard <- lists:seq(1, halley_shards:count())]];
        false ->
            [User]
    end.

%% What the two ways cost, in looks. A seq may have no event, and the log between two seqs may be
%% shorter than it is to its end: then the walk is cheaper than is said here.
-spec costs(Follows :: non_neg_integer(), After :: seq(), UpTo :: seq()) ->
    {OfFollows :: non_neg_integer(), OfEvents :: non_neg_integer()}.
costs(Follows, After, UpTo) ->
    OfFollows = (?FOLLOW_COST + ?STRETCH_COST) * Follows,
    case ?EVENT_COST * max(0, UpTo - After) of
        OfEvents when OfEvents >= OfFollows ->
            {OfFollows, OfEvents};
        OfEvents ->
            Blocks = halley_history:bytes(After, UpTo) div halley_history_cache:block_bytes(),
            {OfFollows, OfEvents + ?BLOCK_COST * Blocks}
    end.

%% For the next pass.
-spec unfollowed(gather()) -> unfollowed().
unfollowed(#gather{unfollowed = Unfollowed}) -> Unfollowed.

%% Whether events are missing among the candidates, as nobody knows what was unfollowed.
-spec is_lacking(gather()) -> boolean().
is_lacking(#gather{lacking = Lacking}) -> Lacking.

%% What the gathering is of, if it takes more than a slice, and is of follows alone.
-spec follows(gather()) -> {known, follows()} | unknown.
follows(#gather{follows = unknown}) -> unknown;
follows(#gather{subscribed = [_ | _]}) -> unknown;
follows(#gather{follows = Follows}) -> {known, Follows}.

%% Whether a user follows just that now. What has changed is met soon, and equal pages are compared
%% at the speed of memory.
-spec is_current(follows(), halley_id:id()) -> boolean().
is_current(Follows, User) -> Follows =:= all_follows(User).

all_follows(User) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> halley_follows_graph:following_packed(Number)
    end.

%% Those of the candidates, ascending, that are above a vector.
-spec above(vector(), [candidate()]) -> [candidate()].
above(Vector, Candidates) ->
    Smallest = halley_vector:smallest(Vector),
    Largest = halley_vector:largest(Vector),
    Later = lists:dropwhile(fun({Seq, _}) -> Seq =< Smallest end, Candidates),
    {Between, Above} = lists:splitwith(fun({Seq, _}) -> Seq =< Largest end, Later),
    [Candidate || {Seq, Subject} = Candidate <- Between,
                  Seq > element(shard(Subject), Vector)] ++ Above.

shard({_, Shard, _}) -> Shard;
shard(Subject) -> halley_shards:of_subject(Subject).

%% One slice. `done': the candidates up to the bound, ascending, none twice.
-spec work(gather(), reader()) ->
    {more, gather(), reader()} | {done, [candidate()], Bound :: seq(), gather(), reader()}.
work(Gather, Reader) -> work(Gather, Reader, ?SLICE).

work(Gather, Reader, Left) when Left =< 0 ->
    {more, Gather, Reader};
work(#gather{todo = [{Subject, Shard, After, UpTo} | Rest]} = Gather, Reader, Left) ->
    chain(Subject, Shard, After, UpTo, Gather#gather{todo = Rest}, Reader, Left);
work(#gather{todo = [{Subject, Last} | Rest], vector = Vector, up_to = UpTo} = Gather, Reader,
     Left) ->
    Shard = halley_shards:of_subject(Subject),
    chain(Subject, Shard, element(Shard, Vector), min(Last, element(Shard, UpTo)),
          Gather#gather{todo = joint(Subject, Last, Gather) ++ Rest}, Reader, Left);
work(#gather{todo = [Subject | Rest], vector = Vector, up_to = UpTo} = Gather, Reader, Left) ->
    Shard = halley_shards:of_subject(Subject),
    chain(Subject, Shard, element(Shard, Vector), element(Shard, UpTo),
          Gather#gather{todo = joint(Subject, infinity, Gather) ++ Rest}, Reader, Left);
work(#gather{source = {follows, After}, user = User} = Gather, Reader, Left) ->
    case follows(User, After) of
        [] ->
            work(Gather#gather{source = {unfollows, newest}}, Reader, Left);
        Numbers ->
            %% The number of a subject that was unfollowed just now may be freed by now.
            work(Gather#gather{todo = halley_ids_pages:ids(Numbers),
                               source = {follows, lists:last(Numbers)}},
                 Reader, Left - ?FOLLOW_COST * length(Numbers))
    end;
work(#gather{source = {events, After}} = Gather, Reader, Left) ->
    walk(After, Gather, Reader, Left);
work(#gather{source = {unfollows, From}} = Gather, Reader, Left) ->
    {Read, Seqs, Next} = unfollows(From, Gather, Reader),
    work(Read, Next, Left - ?UNFOLLOW_LOOKS - ?UNFOLLOW_COST * length(Seqs));
work(#gather{source = remembered, unfollowed = #unfollowed{subjects = Subjects}} = Gather, Reader,
     Left) ->
    work(Gather#gather{todo = maps:to_list(Subjects), source = none}, Reader, Left);
work(#gather{source = none, found = Found, user = User,
             unfollowed = #unfollowed{since = Since}} = Gather, Reader, Left) ->
    {Subscribed, Followed} = subscribed(Found, Gather),
    case lists:usort(Followed) of
        [{Lowest, _} | _] = Candidates when Lowest =< Since ->
            Filter = halley_replay_since:new(User, Candidates),
            work(Gather#gather{source = {since, Filter}, found = Subscribed}, Reader, Left);
        Candidates ->
            done(lists:umerge(lists:usort(Subscribed), Candidates), Gather, Reader)
    end;
work(#gather{source = {since, Filter}} = Gather, Reader, Left) ->
    case halley_replay_since:work(Filter, ?UNFOLLOW_LOOKS, Reader) of
        {more, Later, Reads, Next} ->
            work(Gather#gather{source = {since, Later}}, Next,
                 Left - ?UNFOLLOW_LOOKS - ?UNFOLLOW_COST * Reads);
        {done, Candidates, IsLacking, Next} ->
            Subscribed = lists:usort(Gather#gather.found),
            done(lists:umerge(Subscribed, Candidates),
                 Gather#gather{lacking = IsLacking orelse Gather#gather.lacking}, Next)
    end.

%% The chains of what is about a subject and others.
joint(_, _, #gather{joint = false}) ->
    [];
joint(Subject, Last, #gather{vector = Vector, up_to = UpTo}) ->
    case halley_history:joint(Subject) > halley_vector:smallest(Vector) of
        true -> [{{in, Shard, Subject}, Shard, element(Shard, Vector),
                  min(Last, element(Shard, UpTo))}
                 || Shard <- lists:seq(1, halley_shards:count())];
        false -> []
    end.

%% Candidates that no follow decides about.
subscribed(Found, #gather{subscribed = []}) ->
    {[], Found};
subscribed(Found, #gather{subscribed = Subjects}) ->
    Are = maps:from_keys(Subjects, []),
    lists:partition(fun({_, About}) -> is_map_key(halley_history:name(About), Are) end, Found).

done(Candidates, #gather{bound = Bound} = Gather, Reader) ->
    {done, Candidates, Bound, Gather#gather{found = [], todo = [], source = none}, Reader}.

%% The user's number is looked up for each page: it may be another's by the next one, if the user
%% unfollowed everything and left meanwhile.
follows(User, After) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> halley_follows_graph:take_following(Number, After, ?PAGE)
    end.

%% --- events in between ---------------------------------------------------------------------------

walk(After, #gather{user = User, up_to = UpTo, bound = Bound} = Gather, Reader, Left) ->
    case halley_history:seqs(After, min(Bound, halley_vector:largest(UpTo)), ?WALK) of
        {[], _} ->
            work(Gather#gather{source = {unfollows, newest}}, Reader, Left);
        {Seqs, To} ->
            Spent = ?EVENT_COST * length(Seqs),
            case walked(Seqs, halley_ids:lookup(User), Gather, Reader) of
                {damaged, Next} ->
                    work(by_follows(Gather), Next, Left - Spent);
                {Walked, Next} ->
                    work(Walked#gather{source = {events, To}}, Next, Left - Spent)
            end
    end.

%% The user's own events are of its chain, which was read before.
walked([], _, Gather, Reader) ->
    {Gather, Reader};
walked([Seq | _], _, #gather{bound = Bound} = Gather, Reader) when Seq > Bound ->
    {Gather, Reader};
walked([Seq | Seqs], Number, #gather{user = User, vector = Vector, up_to = UpTo} = Gather,
       Reader) ->
    case halley_history_reader:subject(Seq, Reader) of
        {ok, Shard, About, Next} when Seq > element(Shard, Vector), Seq =< element(Shard, UpTo) ->
            Subject = halley_history:name(About),
            IsTheirs = Subject =/= User
                andalso is_following(Number, halley_ids:lookup(Subject)),
            case IsTheirs of
                true -> walked(Seqs, Number, found([Seq], About, Gather), Next);
                false -> walked(Seqs, Number, Gather, Next)
            end;
        {ok, _, _, Next} ->
            walked(Seqs, Number, Gather, Next);
        {damaged, Next} ->
            {damaged, Next};
        {_, Next} ->
            walked(Seqs, Number, Gather, Next)
    end.

is_following(User, Subject) when is_integer(User), is_integer(Subject) ->
    halley_follows_graph:is_following(User, Subject);
is_following(_, _) ->
    false.

by_follows(#gather{user = User, subscribed = Subscribed, vector = Vector, up_to = UpTo} = Gather) ->
    Gather#gather{todo = own(User, Vector, UpTo) ++ Subscribed, source = {follows, 0},
                  bound = halley_vector:largest(UpTo), found = [], count = 0}.

%% --- chains --------------------------------------------------------------------------------------

chain(_, _, After, UpTo, #gather{bound = Bound} = Gather, Reader, Left)
  when After >= UpTo; After >= Bound ->
    work(Gather, Reader, Left - ?STRETCH_COST);
chain(Subject, Shard, After, UpTo, #gather{bound = Bound} = Gather, Reader, Left) ->
    case halley_history:stretch(Shard, Subject, After, min(UpTo, Bound)) of
        {[], UpTo, Looks} ->
            work(Gather, Reader, Left - ?STRETCH_COST - Looks);
        {Seqs, UpTo, Looks} ->
            work(found(Seqs, Subject, Gather), Reader, Left - ?STRETCH_COST - Looks);
        {Seqs, To, Looks} ->
            Todo = [{Subject, Shard, To, UpTo} | Gather#gather.todo],
            work(found(Seqs, Subject, Gather#gather{todo = Todo}), Reader,
                 Left - ?STRETCH_COST - Looks)
    end.

found(Seqs, Subject, #gather{found = Found, count = Count, window = Window} = Gather) ->
    {All, Sum} = lists:foldl(fun(Seq, {Acc, N}) -> {[{Seq, Subject} | Acc], N + 1} end,
                             {Found, Count}, Seqs),
    case Sum > Window + Window div 2 of
        true -> cut(lists:usort(All), Gather);
        false -> Gather#gather{found = All, count = Sum}
    end.

%% Several chains may have the same seq, so the cut is made between seqs.
cut(Sorted, #gather{window = Window, bound = Bound} = Gather) when length(Sorted) > Window ->
    {Seq, _} = lists:nth(Window + 1, Sorted),
    {Kept, Lower} = case lists:takewhile(fun({S, _}) -> S < Seq end, Sorted) of
        [] -> {lists:takewhile(fun({S, _}) -> S =:= Seq end, Sorted), Seq};
        Below -> {Below, Seq - 1}
    end,
    Gather#gather{found = lists:reverse(Kept), count = length(Kept), bound = min(Bound, Lower)};
cut(Sorted, Gather) ->
    Gather#gather{found = lists:reverse(Sorted), count = length(Sorted)}.

%% Those that no pass has read yet, newest first, so the first one of a subject is its last.
unfollows(From, #gather{user = User, vector = Vector, unfollowed = Unfollowed} = Gather, Reader) ->
    After = max(Unfollowed#unfollowed.known, halley_vector:smallest(Vector)),
    {Seqs, Next} = halley_history:changes(User, From, After, ?UNFOLLOW_LOOKS),
    {Read, Later} = lists:foldl(fun unfollow/2, {Gather, Reader}, Seqs),
    Newest = case {Gather#gather.newest, Seqs} of
        {0, [Seq | _]} -> Seq;
        {Known, _} -> Known
    end,
    {next_unfollows(Next, Read#gather{newest = Newest}), Seqs, Later}.

next_unfollows(done, #gather{unfollowed = Unfollowed, newest = Newest} = Gather) ->
    #unfollowed{subjects = Subjects, known = Known} = Unfollowed,
    Read = case map_size(Subjects) < ?UNFOLLOWED_MAX of
        true -> max(Known, Newest);
        false -> Known
    end,
    Gather#gather{source = remembered, unfollowed = Unfollowed#unfollowed{known = Read}};
next_unfollows(Seq, Gather) ->
    Gather#gather{source = {unfollows, Seq}}.

unfollow(Seq, {#gather{user = User} = Gather, Reader}) ->
    case halley_history_reader:read(Seq, Reader) of
        {ok, #{kind := unfollow, subject := User, id := Subject}, Next} ->
            {unfollowed(Subject, Seq, Gather), Next};
        {ok, #{kind := follow, subject := User, from := From}, Next} ->
            #gather{unfollowed = #unfollowed{since = Since} = Unfollowed} = Gather,
            {Gather#gather{unfollowed = Unfollowed#unfollowed{since = max(From, Since)}}, Next};
        {damaged, Next} ->
            {Gather#gather{lacking = true}, Next};
        {_, Next} ->
            %% Expired.
            {Gather, Next};
        {ok, _, Next} ->
            {Gather, Next}
    end.

unfollowed(Subject, Seq, #gather{unfollowed = Unfollowed, todo = Todo} = Gather) ->
    #unfollowed{subjects = Subjects} = Unfollowed,
    case Subjects of
        #{Subject := Last} when Last >= Seq ->
            Gather;
        #{} when is_map_key(Subject, Subjects); map_size(Subjects) < ?UNFOLLOWED_MAX ->
            Gather#gather{unfollowed = Unfollowed#unfollowed{
                subjects = Subjects#{Subject => Seq}}};
        #{} ->
            %% Too many to remember: it is read at once, and again in the next pass.
            Gather#gather{todo = [{Subject, Seq} | Todo]}
    end.
