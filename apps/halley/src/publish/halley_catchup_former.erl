%% Which users followed a subject until when, and since when, as the history knows it. A catch-up
%% needs it: an event also goes to users that have unfollowed its subject since, and not to users
%% that follow it only since then.
%%
%% The first event about a subject has the records of changes of its follows read; a later one reads
%% only those that came since. So a catch-up reads each record once, whatever the number of events.
%%
%% Of a user it keeps the *stretches* in which it followed, from a follow to an unfollow, and since
%% when it follows now. Of more than ?STRETCHES_MAX the oldest two become one, with what is between
%% them: too much may be sent then, and nothing is missed.
%%
%% Invariant: what is kept of a subject has all its changes above the seq of its first event, up to
%% the newest change that was there. Events come in ascending seqs, so that is enough for the later
%% ones.
%%
%% Users are kept by their ids: a number may be given back and become another's while a slow link
%% catches up. At most ?USERS_MAX are kept, over all subjects. Beyond that everything is forgotten,
%% and a subject that has more by itself is read again by every batch with an event about it.
-module(halley_catchup_former).

-export([new/0, followed/5, followed_at/4]).
-export_type([former/0, followed/0]).

-define(USERS_MAX, 50000).
-define(STRETCHES_MAX, 4).

-type seq() :: halley_history:seq().
%% What is above `From', and not above `Unfollow', is theirs. `From' is 0 where the follow was
%% before all that is known.
-type stretch() :: {Unfollow :: seq(), From :: seq()}.
%% The newest stretch first; and up to which seq the follow behind them doesn't count.
-type users() :: #{halley_id:id() => {[stretch()], none | seq()}}.
%% `until' has the stretches with the last unfollow first; `since' the follows that count now, those
%% with the highest `From' first.
-type followed() :: #{until := [{Unfollow :: seq(), From :: seq(), halley_fanout:receivers()}],
                      since := [{From :: seq(), halley_fanout:receivers()}]}.
-record(former, {users = 0 :: non_neg_integer(),
                 subjects = #{} :: #{halley_id:id() => {Newest :: seq(), users()}}}).
-opaque former() :: #former{}.

-spec new() -> former().
new() -> #former{}.

%% The sessions there of those whose follows of the subject changed after this seq.
%% `IsLacking': a record was damaged that this call read for the first time, so somebody may be
%% missing.
-spec followed(halley_id:id(), seq(), halley_fanout:there(), former(),
               halley_history_reader:reader()) ->
    {followed(), IsLacking :: boolean(), former(), halley_history_reader:reader()}.
followed(Subject, Seq, There, #former{subjects = Subjects} = Former, Reader) ->
    {Known, Users} = maps:get(Subject, Subjects, {Seq, #{}}),
    case halley_history:changes_of(Subject, Known) of
        [] ->
            {sessions(Users, Seq, There), false, Former, Reader};
        [Newest | _] = Changes ->
            {All, IsLacking, Next} =
                lists:foldl(fun(Change, Acc) -> read(Change, Subject, Acc) end,
                            {Users, false, Reader}, lists:reverse(Changes)),
            {sessions(All, Seq, There), IsLacking,
             keep(Subject, {Newest, All}, map_size(Users), Former), Next}
    end.

%% Of those whose follows of the subject changed after this seq, as these records say, the newest
%% first: whether what has the seq is theirs.
-spec followed_at(halley_id:id(), seq(), Changes :: [seq()], halley_history_reader:reader()) ->
    {#{halley_id:id() => boolean()}, halley_history_reader:reader()}.
followed_at(Subject, Seq, Changes, Reader) ->
    {Users, _, Next} = lists:foldl(fun(Change, Acc) -> read(Change, Subject, Acc) end,
                                   {#{}, false, Reader}, lists:reverse(Changes)),
    {maps:map(fun(_, {Stretches, Followed}) ->
         lists:any(fun({Unfollow, From}) -> Unfollow > Seq andalso Seq > From end, Stretches)
             orelse is_integer(Followed) andalso Seq > Followed
     end, Users), Next}.

%% Oldest first.
read(Change, Subject, {Users, IsLacking, Reader}) ->
    case halley_history_reader:read(Change, Reader) of
        {ok, #{kind := unfollow, subject := User, id := Subject}, Next} ->
            %% The record is longer than the id.
            {Stretches, Followed} = maps:get(User, Users, {[], none}),
            From = case Followed of none -> 0; _ -> Followed end,
            {Users#{binary:copy(User) => {bounded([{Change, From} | Stretches]), none}}, IsLacking,
             Next};
        {ok, #{kind := follow, subject := User, id := Subject, from := From}, Next} ->
            {Stretches, _} = maps:get(User, Users, {[], none}),
            {Users#{binary:copy(User) => {Stretches, From}}, IsLacking, Next};
        {damaged, Next} ->
            {Users, true, Next};
        {_, Next} ->
            %% Expired.
            {Users, IsLacking, Next};
        {ok, _, Next} ->
            {Users, IsLacking, Next}
    end.

bounded(Stretches) when length(Stretches) =< ?STRETCHES_MAX ->
    Stretches;
bounded(Stretches) ->
    {Newer, [{Unfollow, _}, {_, From}]} = lists:split(?STRETCHES_MAX - 1, Stretches),
    Newer ++ [{Unfollow, From}].

keep(Subject, {_, Users} = Read, Before, #former{users = Sum, subjects = Subjects}) ->
    case Sum - Before + map_size(Users) of
        More when More =< ?USERS_MAX ->
            #former{users = More, subjects = Subjects#{Subject => Read}};
        _ when map_size(Users) =< ?USERS_MAX ->
            #former{users = map_size(Users), subjects = #{Subject => Read}};
        _ ->
            #former{}
    end.

sessions(Users, Seq, There) ->
    Here = [{Stretches, Followed, Receivers}
            || {User, {Stretches, Followed}} <- maps:to_list(Users),
               is_after(Seq, Stretches) orelse is_since(Seq, Followed),
               Receivers <- [of_user(User, There)], Receivers =/= []],
    #{until => descending([{Unfollow, From, Receivers} || {Stretches, _, Receivers} <- Here,
                                                          {Unfollow, From} <- Stretches,
                                                          Unfollow > Seq]),
      since => descending([{From, Receivers} || {_, From, Receivers} <- Here,
                                                is_since(Seq, From)])}.

is_after(Seq, [{Unfollow, _} | _]) -> Unfollow > Seq;
is_after(_, []) -> false.

is_since(_, none) -> false;
is_since(Seq, From) -> From >= Seq.

descending(Tuples) -> lists:reverse(lists:keysort(1, Tuples)).

%% A user without a number has no session; it may get both before the catch-up ends.
of_user(User, There) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> halley_fanout:of_user(Number, There)
    end.
