%% The groups of one shard: what the shard does so that its workers know their members, and how an
%% event goes to a group (docs/internals/celebrities.md).
%%
%% Members that join and leave, a group's end and its events all go to the links from the shard's
%% process, so a worker reads them in this order. Before an event the subject's marks are settled:
%% the truth about each marked user is read and told. The caller has drawn the event's seq before.
%%
%% A group is filled up to some user number: marked users beyond are left to the filling, and an
%% event is sent to the followers beyond by look-up. A portion of the filling was read a moment ago:
%% users that were marked since the portion was requested (`touched') are read again here.
%%
%% A group that begins or ends here is put into `halley_groups_table', or taken out, in the same
%% turn: the table says for which groups marks are left.
%%
%% It decides nothing about which subjects are groups; `halley_groups' does, and is answered
%%   {filled, Filling, UpTo}       the group is filled up to there: another portion
%%   {lost, Subject, Filling}      this shard has no such group; it was restarted
-module(halley_groups_shard).

-export([new/1, handle/2, is_group/2, publish/3, settle_some/1, members/1]).
-export_type([groups/0, request/0]).

-type user_number() :: halley_id:user_number().
%% Groups are filled up to this user, at first up to none.
-type up_to() :: -1 | user_number() | all.
-type request() ::
    {start, halley_groups_table:row(), Owner :: pid()}
  | {fill, Subject :: user_number(), halley_groups_table:filling(), Owner :: pid(), up_to(),
     [{user_number(), halley_groups_members:found()}]}
  | {stop, Subject :: user_number()}.

%% Marks that are settled in one turn: about a millisecond.
-define(SETTLE_MAX, 256).

-record(group, {
    filling :: halley_groups_table:filling(),
    up_to = -1 :: up_to(),
    touched = #{} :: #{user_number() => []},
    members = halley_groups_members:new() :: halley_groups_members:members(),
    %% Links that were told of members.
    slots = #{} :: #{halley_links:slot() => []}
}).
-opaque groups() :: #{user_number() => #group{}}.

%% What a shard begins with. Groups of another one of this index, which died, have ended.
-spec new(halley_shards:index()) -> groups().
new(Shard) ->
    _ = [ok = stop(Subject) || {Subject, S, _} <- halley_groups_table:list(), S =:= Shard],
    #{}.

-spec handle(request(), groups()) -> groups().
handle({start, {Subject, _, Filling} = Row, Owner}, Groups) ->
    %% What another shard or another start had told is void.
    ok = stop(Subject),
    ok = halley_groups_table:open(Row),
    %% The subject's own sessions get its events, whether it is beyond or not.
    Own = settle(Subject, [Subject], #group{filling = Filling}),
    Owner ! {filled, Filling, -1},
    Groups#{Subject => Own};
handle({fill, Subject, Filling, Owner, UpTo, Found}, Groups) ->
    case Groups of
        #{Subject := #group{filling = Filling} = Group} ->
            Filled = fill(Subject, UpTo, Found, Group),
            Owner ! {filled, Filling, UpTo},
            Groups#{Subject := Filled};
        #{} ->
            Owner ! {lost, Subject, Filling},
            Groups
    end;
handle({stop, Subject}, Groups) ->
    ok = stop(Subject),
    maps:remove(Subject, Groups).

stop(Subject) ->
    ok = halley_links_queue:end_group(Subject),
    halley_groups_table:close(Subject).

%% Whether the subject is a group of this shard.
-spec is_group(Subject :: user_number() | undefined, groups()) -> boolean().
is_group(Subject, Groups) ->
    is_map_key(Subject, Groups).

%% Sends an event of a subject that is a group; gives the number of sessions it was sent to.
-spec publish(halley_event:event(), Subject :: user_number(), groups()) ->
    {Sessions :: non_neg_integer(), groups()}.
publish(Event, Subject, Groups) ->
    #{Subject := #group{filling = Filling} = Group} = Groups,
    Settled = settle(Subject, halley_groups_marks:take_all(Filling), Group),
    {Sessions, Sent} = send(Event, Subject, Settled),
    {Sessions, Groups#{Subject := Sent}}.

send(Event, Subject, #group{up_to = UpTo, members = Members, slots = Slots} = Group) ->
    Processes = halley_groups_members:with_processes(Members),
    Beyond = halley_fanout:beyond(Subject, UpTo, Processes),
    Others = halley_fanout:also(subscribed(Event, Members), Beyond),
    {Sent, Gone} = halley_fanout:send_group(Event, Subject, maps:keys(Slots), Others),
    InGroup = halley_groups_members:count(Members),
    ok = halley_metrics:incr(group_events),
    ok = halley_metrics:incr(group_deliveries, InGroup),
    {Sent + InGroup, Group#group{slots = maps:without(Gone, Slots)}}.

%% Sessions that are subscribed, except those that get the event as members.
subscribed(#{subject := Subject}, Members) ->
    [Word || Word <- halley_subscriptions_table:words(Subject),
             User <- [halley_subscriptions:user(Word)],
             not (is_integer(User) andalso halley_groups_members:is_member(User, Members))].

%% Settles some marks of each group; `more' if there may be others. Between events, so that few are
%% left when one comes.
-spec settle_some(groups()) -> {more | done, groups()}.
settle_some(Groups) ->
    maps:fold(fun(Subject, #group{filling = Filling} = Group, {More, Settled}) ->
        {Users, MoreHere} = halley_groups_marks:take(Filling, ?SETTLE_MAX),
        {case MoreHere of more -> more; done -> More end,
         Settled#{Subject := settle(Subject, Users, Group)}}
    end, {done, Groups}, Groups).

%% Of all groups together.
-spec members(groups()) -> non_neg_integer().
members(Groups) ->
    maps:fold(fun(_, #group{members = Members}, Sum) ->
        Sum + halley_groups_members:count(Members)
    end, 0, Groups).

fill(Subject, UpTo, Found, #group{up_to = From, touched = Touched} = Group) ->
    Filled = Group#group{up_to = UpTo, touched = #{}},
    Read = [{User, true, Sessions} || {User, Sessions} <- Found, not is_map_key(User, Touched)],
    Again = [User || User <- maps:keys(Touched), is_within(User, From, UpTo)],
    settle(Subject, Again, tell(Subject, Read, Filled)).

is_within(User, From, all) -> User > From;
is_within(User, From, UpTo) -> User > From andalso User =< UpTo.

%% The marks of these users have been taken; now the truth is read.
settle(_, [], Group) ->
    Group;
settle(Subject, Users, #group{up_to = UpTo} = Group) ->
    Chunks = halley_directory_atomics:chunks(),
    {Here, Beyond} = lists:partition(fun(User) ->
        User =:= Subject orelse is_within(User, -1, UpTo)
    end, Users),
    Truths = [{User, halley_follows_graph:is_follower(User, Subject),
               halley_directory:lookup(Chunks, User)} || User <- Here],
    tell(Subject, Truths, touch(Beyond, Group)).

touch([], Group) ->
    Group;
touch(Users, #group{touched = Touched} = Group) ->
    Group#group{touched = lists:foldl(fun(User, T) -> T#{User => []} end, Touched, Users)}.

tell(Subject, Truths, #group{members = Members, slots = Slots} = Group) ->
    {Joining, Leaving, Settled} = lists:foldl(fun one/2, {[], [], Members}, Truths),
    _ = [halley_links_queue:members(Slot, leave, Subject, Words)
         || {Slot, Words} <- halley_fanout:by_slot(Leaving)],
    Reached = [begin
                   ok = halley_links_queue:members(Slot, join, Subject, Words),
                   Slot
               end || {Slot, Words} <- halley_fanout:by_slot(Joining)],
    Group#group{members = Settled, slots = maps:merge(Slots, maps:from_keys(Reached, []))}.

one({User, Follows, Found}, {Joining, Leaving, Members}) ->
    case halley_groups_members:settle(User, Follows, Found, Members) of
        {join, Words, Settled} -> {Words ++ Joining, Leaving, Settled};
        {leave, Words, Settled} -> {Joining, Words ++ Leaving, Settled}
    end.
