%% Who followed a subject until when, as the history knows it: for a catch-up, which gives an event
%% to those as well who have unfollowed its subject since.
%%
%% The records of a subject's unfollows are read when it is met for the first time; whoever meets it
%% again reads those that came since. Of a user only its last unfollow counts, however often it
%% followed and unfollowed. So a catch-up reads each record once, whatever the number of events.
%%
%% Invariant: what is kept of a subject has all its unfollows above the seq at which it was met
%% first, up to the newest one that was there. Events come in ascending seqs, so that is enough for
%% those that follow.
%%
%% Users are kept by their ids: a number may be given back and become another's while a link that is
%% slow catches up. At most ?USERS_MAX are kept, over all subjects. Beyond that everything is
%% forgotten, and a subject with more by itself is read again by every batch that meets it.
-module(halley_catchup_former).

-export([new/0, followed/5]).
-export_type([former/0]).

-define(USERS_MAX, 50000).

-type seq() :: halley_history:seq().
-type users() :: #{halley_id:id() => Unfollow :: seq()}.
-record(former, {users = 0 :: non_neg_integer(),
                 subjects = #{} :: #{halley_id:id() => {Newest :: seq(), users()}}}).
-opaque former() :: #former{}.

-spec new() -> former().
new() -> #former{}.

%% The sessions on a link of those who unfollowed the subject after this seq, each user's with the
%% seq of its last unfollow; the last one first. `IsLacking': a record was damaged that this call
%% read for the first time, so somebody may be missing.
-spec followed(halley_id:id(), seq(), halley_links:slot(), former(),
               halley_history_reader:reader()) ->
    {[{Unfollow :: seq(), halley_fanout:receivers()}], IsLacking :: boolean(), former(),
     halley_history_reader:reader()}.
followed(Subject, Seq, Slot, #former{subjects = Subjects} = Former, Reader) ->
    {Known, Users} = maps:get(Subject, Subjects, {Seq, #{}}),
    case halley_history:unfollows_of(Subject, Known) of
        [] ->
            {sessions(Users, Seq, Slot), false, Former, Reader};
        [Newest | _] = Unfollows ->
            {All, IsLacking, Next} =
                lists:foldl(fun(Unfollow, Acc) -> read(Unfollow, Subject, Acc) end,
                            {Users, false, Reader}, lists:reverse(Unfollows)),
            {sessions(All, Seq, Slot), IsLacking,
             keep(Subject, {Newest, All}, map_size(Users), Former), Next}
    end.

%% Oldest first, so the last one of a user stays.
read(Unfollow, Subject, {Users, IsLacking, Reader}) ->
    case halley_history_reader:read(Unfollow, Reader) of
        {ok, #{kind := unfollow, subject := User, id := Subject}, Next} ->
            %% The record is longer than the id.
            {Users#{binary:copy(User) => Unfollow}, IsLacking, Next};
        {damaged, Next} ->
            {Users, true, Next};
        {_, Next} ->
            %% Expired.
            {Users, IsLacking, Next};
        {ok, _, Next} ->
            {Users, IsLacking, Next}
    end.

keep(Subject, {_, Users} = Read, Before, #former{users = Sum, subjects = Subjects}) ->
    case Sum - Before + map_size(Users) of
        More when More =< ?USERS_MAX ->
            #former{users = More, subjects = Subjects#{Subject => Read}};
        _ when map_size(Users) =< ?USERS_MAX ->
            #former{users = map_size(Users), subjects = #{Subject => Read}};
        _ ->
            #former{}
    end.

sessions(Users, Seq, Slot) ->
    lists:reverse(lists:keysort(1, [{Unfollow, Receivers}
                                    || {User, Unfollow} <- maps:to_list(Users), Unfollow > Seq,
                                       Receivers <- [of_user(User, Slot)], Receivers =/= []])).

%% A user without a number has no session; it may get both before the catch-up ends.
of_user(User, Slot) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> halley_fanout:of_user(Number, Slot)
    end.
