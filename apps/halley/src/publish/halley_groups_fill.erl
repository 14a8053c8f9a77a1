%% Reading for groups: portions of a subject's followers with their sessions, and which subjects are
%% large. Everything here is read from tables, in the caller's process; nothing is kept.
-module(halley_groups_fill).

-export([portion/2, pause_ms/0, links_have_room/0, large/0]).

-type user_number() :: halley_id:user_number().

%% Followers in a portion: a shard passes them on in a fraction of a millisecond.
-define(PORTION, 1000).

%% The next followers after this one, those who are online with what the directory says; and up to
%% which user that was.
-spec portion(Subject :: user_number(), After :: -1 | user_number()) ->
    {user_number() | all, [{user_number(), halley_groups_members:found()}]}.
portion(Subject, After) ->
    Users = halley_pages_table:take(halley_followers, Subject, After, ?PORTION),
    Chunks = halley_directory_atomics:chunks(),
    Found = [{User, Sessions} || User <- Users,
                                 Sessions <- [halley_directory:lookup(Chunks, User)],
                                 Sessions =/= 0],
    case length(Users) of
        ?PORTION -> {lists:last(Users), Found};
        _ -> {all, Found}
    end.

%% Between two portions, so that they are `group_fill_per_s_max' followers a second.
-spec pause_ms() -> pos_integer().
pause_ms() ->
    max(1, ?PORTION * 1000 div max(1, halley_limits:get(group_fill_per_s_max))).

%% Whether no link has so much waiting that replays pause.
-spec links_have_room() -> boolean().
links_have_room() ->
    Max = halley_limits:get(replay_queue_bytes_max),
    lists:all(fun(#{queue_bytes := Bytes}) -> Bytes < Max end, halley_links:list()).

%% Subjects that may have `group_followers_min' followers, as far as that can be told from how many
%% pages they fill.
-spec large() -> [user_number()].
large() ->
    %% A page of nothing but followers of one subject holds this many.
    PerPage = halley_pages:page_bytes_max() div 4,
    case halley_limits:get(group_followers_min) div PerPage - 1 of
        Fences when Fences < 1 -> [];
        Fences -> halley_pages_table:spread(halley_followers, Fences)
    end.
