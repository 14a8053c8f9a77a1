%% Queries: the users that are present in a subject, and among those whom a user follows
%% (docs/internals/presence.md).
%%
%% Present in a subject is whom an event about it would reach now: its followers that are online,
%% the subject itself if it is a user that is online, and who has a session that is subscribed to
%% it. Users are named, in the order of their numbers, and count once; visitors count by their
%% sessions.
%%
%% A subject with more than `presence_listed_max' followers, or subscribed sessions, is *large*: its
%% users are counted, not named, by `halley_presence_counter'.
%%
%% It only reads, in the caller's process, from the same tables as a publish. It may see changes of
%% that moment or not. `halley_presence' sends changes.
-module(halley_presence_query).

-export([following_online/3, following_online_own/4, room/3, room_own/3]).
-export([users/1, states/1, counted/1, is_large/1]).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().
%% `users' is `large' where they aren't named.
-type room() :: #{online := non_neg_integer(), users := [id()] | large, next := id() | done}.

%% Follows that are looked at for one page.
-define(LOOKED_AT_MAX, 10000).
%% Follows that are taken at a time.
-define(TAKEN, 1000).

%% Those whom a user follows that are online, in pages. A page ends when `Limit' were found, or when
%% so many were looked at: it may have fewer, or none, before the last.
-spec following_online(id(), After :: id() | start, Limit :: pos_integer()) ->
    {[id()], Next :: id() | done} | {error, {unknown_id, id()}}.
following_online(User, After, Limit) ->
    case {halley_ids:lookup(User), number(After)} of
        {_, undefined} -> {error, {unknown_id, After}};
        {undefined, _} -> {[], done};
        {Number, From} -> following(Number, From, Limit, fun(_) -> true end)
    end.

%% The same for the user itself, of those whom it may see. Nobody else counts, so neither a page's
%% end nor `After', which is an id that the user follows, tells anything about others.
-spec following_online_own(id(), After :: id() | start, Limit :: pos_integer(),
                           May :: fun((id()) -> boolean())) ->
    {[id()], Next :: id() | done}.
following_online_own(User, After, Limit, May) ->
    case halley_ids:lookup(User) of
        undefined ->
            {[], done};
        Number ->
            From = halley_follows_own:number(Number, After),
            following(Number, From, Limit, fun(Followed) -> May(halley_ids:name(Followed)) end)
    end.

number(start) -> 0;
number(Id) -> halley_ids:lookup(Id).

following(Number, From, Limit, May) ->
    look(Number, From, {Limit, ?LOOKED_AT_MAX, May}, []).

look(Number, From, {Limit, Left, May}, Found) ->
    Taken = halley_follows_graph:take_following(Number, From, min(?TAKEN, Left)),
    Visible = lists:filter(May, Taken),
    {Online, Room} = among(Visible, Limit, halley_directory_atomics:chunks(), []),
    case {Room, Taken} of
        {0, _} ->
            [Last | _] = Online,
            more(Number, Last, Online ++ Found);
        {_, []} ->
            {names(Found, Online), done};
        _ when length(Taken) =:= Left ->
            more(Number, lists:last(Taken), Online ++ Found);
        _ ->
            look(Number, lists:last(Taken), {Room, Left - length(Taken), May}, Online ++ Found)
    end.

%% Whether anything is left behind the last one.
more(Number, Last, Found) ->
    case halley_follows_graph:take_following(Number, Last, 1) of
        [] -> {names(Found, []), done};
        [_] -> {names(Found, []), halley_ids:name(Last)}
    end.

among(_, 0, _, Online) ->
    {Online, 0};
among([User | Users], Room, Chunks, Online) ->
    case halley_directory:lookup(Chunks, User) of
        0 -> among(Users, Room, Chunks, Online);
        _ -> among(Users, Room - 1, Chunks, [User | Online])
    end;
among([], Room, _, Online) ->
    {Online, Room}.

names(Found, Online) ->
    lists:map(fun halley_ids:name/1, lists:reverse(Online ++ Found)).

%% Who is in a room: how many, and a page of the users.
-spec room(id(), After :: id() | start, Limit :: pos_integer()) ->
    room() | {error, {unknown_id, id()}}.
room(Subject, After, Limit) ->
    case {is_large(Subject), number(After)} of
        {_, undefined} ->
            {error, {unknown_id, After}};
        {true, _} ->
            #{online => counted(Subject), users => large, next => done};
        {false, From} ->
            {Users, Visitors} = users(Subject),
            page([User || User <- Users, User > From], Limit,
                 #{online => length(Users) + Visitors})
    end.

%% The same for a user. `After' is one who is in the room; anybody else begins at the beginning,
%% wherever he is.
-spec room_own(id(), After :: id() | start, Limit :: pos_integer()) -> room().
room_own(Subject, After, Limit) ->
    case is_large(Subject) of
        true ->
            #{online => counted(Subject), users => large, next => done};
        false ->
            {Users, Visitors} = users(Subject),
            Number = number(After),
            From = case lists:member(Number, Users) of true -> Number; false -> 0 end,
            page([User || User <- Users, User > From], Limit,
                 #{online => length(Users) + Visitors})
    end.

page(Users, Limit, Room) when length(Users) > Limit ->
    Page = lists:sublist(Users, Limit),
    Room#{users => names([], lists:reverse(Page)), next => halley_ids:name(lists:last(Page))};
page(Users, _, Room) ->
    Room#{users => names([], lists:reverse(Users)), next => done}.

%% Whether its users are counted alone.
-spec is_large(id()) -> boolean().
is_large(Subject) ->
    Max = halley_limits:get(presence_listed_max),
    halley_follows:count_followers(Subject) > Max
        orelse halley_subscriptions_table:count(Subject) > Max.

%% What those say of themselves that do, as JSON (`halley_session_states').
-spec states([id()]) -> [{id(), Text :: binary()}].
states(Users) ->
    case halley_session_states:is_any() of
        true ->
            [{User, Text} || User <- Users, Number <- [halley_ids:lookup(User)],
                             Number =/= undefined,
                             {ok, Text} <- [halley_session_states:of_user(Number)]];
        false ->
            []
    end.

%% The users that are there, ascending, and the visitors' sessions.
-spec users(id()) -> {[user_number()], Visitors :: non_neg_integer()}.
users(Subject) ->
    Chunks = halley_directory_atomics:chunks(),
    Following = case halley_ids:lookup(Subject) of
        undefined -> [];
        Number -> lists:umerge(online([Number], Chunks), followers(Number, Chunks))
    end,
    Whose = [halley_subscriptions:user(W) || W <- halley_subscriptions_table:words(Subject)],
    {Users, Others} = lists:partition(fun is_integer/1, Whose),
    {lists:umerge(Following, lists:usort(Users)), length([nobody || nobody <- Others])}.

followers(Number, Chunks) ->
    lists:reverse(halley_follows_graph:fold_followers(fun(User, Online) ->
        case halley_directory:lookup(Chunks, User) of
            0 -> Online;
            _ -> [User | Online]
        end
    end, [], Number)).

online(Users, Chunks) ->
    [User || User <- Users, halley_directory:lookup(Chunks, User) =/= 0].

%% How many there are, or were a moment ago.
-spec counted(id()) -> non_neg_integer().
counted(Subject) ->
    halley_presence_counter:count(Subject, fun count/1).

count(Subject) ->
    {Users, Visitors} = users(Subject),
    length(Users) + Visitors.
