%% How many subjects a user may follow, `follows_per_user_max': which follows pass it.
%%
%% The owner of the follows checks it exactly, one change after the other. Callers check it before,
%% so that users at the bound cost the owner nothing.
%%
%% Counting must cost less than a follow. Pairs come sorted, and a page holds ?PAGE_MEMBERS_MAX
%% members of one user at most. A user whose whole range lies in one page has no more than that, and
%% of a page full of such users only the fences are read. Users are counted only if they have more
%% than two pages, or if the bound is small.
%%
%% Follows from before the bound was lowered stay; what is followed already is never refused, nor is
%% what was admitted elsewhere (`halley_follows_applied').
%%
%% Not here: how many ids there may be (halley_ids), and how many changes may wait.
-module(halley_follows_bound).

-export([most/1, is_near/2, is_news/1, refused/2, fitting/3]).
-export_type([unnumbered/0]).

%% What a page of 4,096 bytes holds behind its group's 6.
-define(PAGE_MEMBERS_MAX, 1022).
-define(TABLE, halley_following).

%% A pair, at its place in the caller's list, of whose ids at least one has no number.
-type unnumbered() :: {Index :: non_neg_integer(), numbered(), numbered()}.
-type numbered() :: {Id :: binary(), halley_id:user_number() | undefined}.

%% The most pairs that one user has among these keys, which are ascending.
-spec most([halley_pages:key()]) -> non_neg_integer().
most(Keys) -> most(Keys, none, 0, 0).

most([Key | Keys], User, N, Most) when Key bsr 32 =:= User -> most(Keys, User, N + 1, Most);
most([Key | Keys], _, N, Most) -> most(Keys, Key bsr 32, 1, max(N, Most));
most([], _, N, Most) -> max(N, Most).

%% Whether one of the users may follow more than `Room' subjects now. It may say so of users who
%% don't: then `refused/2' finds nothing.
-spec is_near(halley_pages:packed(), Room :: integer()) -> boolean().
is_near(<<>>, _) -> false;
is_near(_, Room) when Room < 0 -> true;
is_near(<<User:32, _:32, _/binary>> = Pairs, Room) when Room < 2 * ?PAGE_MEMBERS_MAX ->
    halley_pages_table:count(?TABLE, User) > Room orelse is_near(behind(User, Pairs), Room);
is_near(<<User:32, _:32, _/binary>> = Pairs, Room) ->
    End = halley_pages_table:page_end(?TABLE, halley_pages:key(User, 0)),
    case not_within(End, Pairs) of
        Pairs -> is_many(User, End, Room) orelse is_near(behind(User, Pairs), Room);
        Others -> is_near(Others, Room)
    end.

%% A user whose pairs go on behind its first page, but as a rule not behind the second one.
is_many(User, End, Room) ->
    halley_pages_table:page_end(?TABLE, End) < halley_pages:key(User + 1, 0)
        andalso halley_pages_table:count(?TABLE, User) > Room.

behind(User, <<User:32, _:32, Pairs/binary>>) -> behind(User, Pairs);
behind(_, Pairs) -> Pairs.

%% From the first user on whose range passes the page's end: found by halves, as pairs ascend.
not_within(infinity, _) -> <<>>;
not_within(End, Pairs) -> not_within(End bsr 32, Pairs, 0, byte_size(Pairs) div 8).

%% Users before `From' are below the one that the page ends in, those from `To' on are not.
not_within(_, Pairs, At, At) ->
    <<_:At/binary-unit:64, Rest/binary>> = Pairs,
    Rest;
not_within(Last, Pairs, From, To) ->
    Middle = (From + To) div 2,
    case Pairs of
        <<_:Middle/binary-unit:64, User:32, _/binary>> when User < Last ->
            not_within(Last, Pairs, Middle + 1, To);
        _ ->
            not_within(Last, Pairs, From, Middle)
    end.

%% The pairs, as keys, that would take their users past `Max', if they were added in their order.
-spec refused(halley_pages:packed(), Max :: pos_integer()) -> [halley_pages:key()].
refused(<<>>, _) ->
    [];
refused(<<User:32, _:32, _/binary>> = Pairs, Max) ->
    Rest = behind(User, Pairs),
    Bytes = byte_size(Pairs) - byte_size(Rest),
    <<Own:Bytes/binary, _/binary>> = Pairs,
    case halley_pages_table:count(?TABLE, User) of
        Count when Count + Bytes div 8 =< Max -> refused(Rest, Max);
        Count -> of_user(Own, max(0, Max - Count), User) ++ refused(Rest, Max)
    end.

of_user(<<Key:64, Own/binary>>, Room, User) ->
    case is_followed(User, Key band 16#ffffffff) of
        true -> of_user(Own, Room, User);
        false when Room > 0 -> of_user(Own, Room - 1, User);
        false -> [Key | of_user(Own, Room, User)]
    end;
of_user(<<>>, _, _) ->
    [].

is_followed(User, Subject) ->
    halley_pages_table:take(?TABLE, User, Subject - 1, 1) =:= [Subject].

%% Whether one of the pairs isn't followed yet.
-spec is_news(halley_pages:packed()) -> boolean().
is_news(<<User:32, Subject:32, Pairs/binary>>) ->
    not is_followed(User, Subject) orelse is_news(Pairs);
is_news(<<>>) -> false.

%% Those that may find room, next to follows of known ids that are asked for at once, and those that
%% find none: an id that the call is sure not to follow must get no number.
%% Nothing is reserved: calls of a user at the same time may each name as many new ids as it has
%% room for, and all of them get numbers, as do those of a call that is `overloaded' afterwards.
-spec fitting([unnumbered()], [halley_pages:key()], Max :: pos_integer()) ->
    {Fitting :: [unnumbered()], TooMany :: [unnumbered()]}.
fitting(Pairs, Keys, Max) ->
    Asked = tally([number(User) || {_, User, _} <- Pairs], #{}),
    More = tally([User || Key <- Keys, User <- [Key bsr 32], is_map_key(User, Asked)], Asked),
    Near = maps:filtermap(fun(User, N) ->
        case Max - followed(User) of
            Room when Room < N -> {true, Room};
            _ -> false
        end
    end, More),
    case map_size(Near) of
        0 -> {Pairs, []};
        _ -> fitting_in(rooms(Keys, Near), Pairs)
    end.

number({Id, undefined}) -> Id;
number({_, Number}) -> Number.

followed(User) when is_integer(User) -> halley_pages_table:count(?TABLE, User);
followed(_) -> 0.

tally(Users, Counts) ->
    lists:foldl(fun(User, C) -> maps:update_with(User, fun(N) -> N + 1 end, 1, C) end, Counts,
                Users).

%% Known ids come first.
rooms(Keys, Near) ->
    lists:foldl(fun(Key, Rooms) ->
        User = Key bsr 32,
        case Rooms of
            #{User := Room} ->
                case is_followed(User, Key band 16#ffffffff) of
                    true -> Rooms;
                    false -> Rooms#{User := Room - 1}
                end;
            #{} ->
                Rooms
        end
    end, Near, lists:usort(Keys)).

fitting_in(Rooms, Pairs) ->
    {Fitting, TooMany, _, _} = lists:foldl(fun fit/2, {[], [], Rooms, #{}}, Pairs),
    {lists:reverse(Fitting), lists:reverse(TooMany)}.

fit({_, User, {Subject, _}} = Pair, {Fitting, TooMany, Rooms, Taken}) ->
    Number = number(User),
    case Rooms of
        #{Number := _} when is_map_key({Number, Subject}, Taken) ->
            {[Pair | Fitting], TooMany, Rooms, Taken};
        #{Number := Room} when Room > 0 ->
            {[Pair | Fitting], TooMany, Rooms#{Number := Room - 1},
             Taken#{{Number, Subject} => []}};
        #{Number := _} ->
            {Fitting, [Pair | TooMany], Rooms, Taken};
        #{} ->
            {[Pair | Fitting], TooMany, Rooms, Taken}
    end.
