%% Whether users were reported as online, to sessions with the presence of all whom their users
%% follow (`presence=*', http.md 22.6).
%%
%% A bit for each user number, made from the directory with the first such session: 2 MB by the
%% defaults. A change is sent to such sessions of the followers. A user with more followers than
%% `presence_listed_max' is a celebrity, and isn't reported. A session gets only users whom it may
%% see (`halley_presence_views').
%%
%% It belongs to `halley_presence', which says when a user that is away has left.
-module(halley_presence_following).

-export([new/0, still/2, look/2, leave/2, join/2, left/1, update/3, state/3, idle/2]).
-export_type([following/0, said/0]).

-define(KEY, <<1, $*>>).
-define(BITS, 6).

-record(following, {
    online :: atomics:atomics_ref(),
    is_idle = false :: boolean()
}).
-opaque following() :: #following{}.
-type user_number() :: halley_id:user_number().
%% The states of users as listeners know them.
-type said() :: fun(([user_number()]) -> halley_presence_throttle:said()).
%% A text, and the sessions that get it.
-type text() :: {[halley_directory:word()], Json :: binary()}.

-spec new() -> following().
new() ->
    Online = atomics:new((halley_limits:get(ids_max) bsr ?BITS) + 2, [{signed, false}]),
    Chunks = halley_directory_atomics:chunks(),
    ok = halley_directory_atomics:foreach(fun(User, _) ->
        halley_directory:lookup(Chunks, User) =:= 0 orelse put(User, true, Online),
        ok
    end),
    #following{online = Online}.

%% It isn't online, and hasn't left yet.
-spec still(user_number(), following()) -> ok.
still(User, #following{online = Online}) -> put(User, true, Online).

get(User, Online) ->
    Word = atomics:get(Online, (User bsr ?BITS) + 1),
    (Word bsr (User band (1 bsl ?BITS - 1))) band 1 =:= 1.

put(User, Is, Online) ->
    At = (User bsr ?BITS) + 1,
    Bit = 1 bsl (User band (1 bsl ?BITS - 1)),
    Word = atomics:get(Online, At),
    atomics:put(Online, At, case Is of true -> Word bor Bit; false -> Word band bnot Bit end).

%% The truth compared with the last report: `same', or the user is `away', or it has `joined' and
%% counts as reported from now on.
-spec look(user_number(), following()) -> same | away | joined.
look(User, #following{online = Online}) ->
    case {halley_directory:lookup(halley_directory_atomics:chunks(), User), get(User, Online)} of
        {0, true} ->
            away;
        {0, false} ->
            same;
        {_, true} ->
            same;
        {_, false} ->
            put(User, true, Online),
            joined
    end.

%% It was away for long enough.
-spec leave(user_number(), following()) -> left | same.
leave(User, #following{online = Online}) ->
    case get(User, Online) of
        true ->
            put(User, false, Online),
            left;
        false ->
            same
    end.

%% The text for listening followers as the user joins, and when it has left.
-spec join(user_number(), said()) -> text().
join(User, Said) ->
    to_followers(User, fun(Name) ->
        Text = case Said([User]) of [{_, T}] -> {ok, T}; [] -> none end,
        halley_presence_json:change(<<"*">>, {Name, Text}, join)
    end).

-spec left(user_number()) -> text().
left(User) ->
    to_followers(User, fun(Name) ->
        halley_presence_json:change(<<"*">>, {Name, none}, leave)
    end).

%% The same for the state that the user's session says of itself.
-spec update(user_number(), halley_presence_throttle:text(), following()) -> text().
update(User, Said, #following{online = Online}) ->
    case get(User, Online) of
        true ->
            to_followers(User, fun(Name) ->
                halley_presence_json:update(<<"*">>, Name, Said)
            end);
        false ->
            {[], <<>>}
    end.

%% Mostly no follower listens, and no name is looked up.
to_followers(User, Text) ->
    case words(User) of
        [] ->
            {[], <<>>};
        Asked ->
            case name(User) of
                none -> {[], <<>>};
                Name -> to(seeing(Name, Asked), Text, Name)
            end
    end.

to([], _, _) -> {[], <<>>};
to(Words, Text, Name) -> {Words, Text(Name)}.

seeing(Name, Asked) ->
    Words = [Word || {Word, View} <- Asked, halley_presence_views:allows(View, Name)],
    halley_presence_pending:without(?KEY, Words).

%% Of users that may be reported. A number that was given back has no followers.
name(User) ->
    try halley_ids:name(User) of
        Name ->
            case halley_presence_keys:may(Name) of
                true -> Name;
                false -> none
            end
    catch
        error:{no_such_user_number, _} -> none
    end.

words(User) ->
    Packed = halley_follows_graph:followers_packed(User),
    case iolist_size(Packed) > 4 * halley_limits:get(presence_listed_max) of
        true ->
            [];
        false ->
            Chunks = halley_directory_atomics:chunks(),
            lists:foldl(fun(Followers, Words) -> asked(Followers, Chunks, Words) end, [], Packed)
    end.

asked(<<Follower:32, Others/binary>>, Chunks, Words) ->
    asked(Others, Chunks, asked(halley_directory:lookup(Chunks, Follower), Words));
asked(<<>>, _, Words) ->
    Words.

asked(0, Words) ->
    Words;
asked(Word, Words) when is_integer(Word) ->
    case halley_presence_views:of_session(Word) of
        none -> Words;
        View -> [{Word, View} | Words]
    end;
asked(Several, Words) ->
    lists:foldl(fun(Word, Acc) when is_integer(Word) -> asked(Word, Acc);
                   (_, Acc) -> Acc
                end, Words, Several).

%% The state for a session: those of the users that its user follows that were reported as online,
%% or their number if they are more than `presence_users_max'.
-spec state(halley_directory:word(), said(), following()) -> [text()].
state(Word, Said, Following) -> state(Word, halley_subscriptions:user(Word), Said, Following).

state(Word, User, Said, #following{online = Online}) when is_integer(User) ->
    View = halley_presence_views:of_session(Word),
    Max = halley_limits:get(presence_listed_max),
    Users = [{Number, Name} || Number <- halley_follows_graph:take_following(User, 0, Max),
                               get(Number, Online), Name <- [name(Number)], Name =/= none,
                               View =/= none, halley_presence_views:allows(View, Name)],
    Many = length(Users),
    Texts = case Many > halley_limits:get(presence_users_max) of
        true -> [halley_presence_json:large(<<"*">>, Many)];
        false -> named(Users, Said)
    end,
    [{[Word], Text} || Text <- Texts];
state(_, _, _, _) ->
    [].

named(Users, Said) ->
    {Numbers, Names} = lists:unzip(Users),
    halley_presence_json:state(<<"*">>, 0, Names, [{proplists:get_value(Number, Users), Text}
                                                   || {Number, Text} <- Said(Numbers)]).

%% Called now and then: it is `gone' when no session has listened for a while.
-spec idle(IsAsked :: boolean(), following()) -> {stays, following()} | gone.
idle(true, Following) -> {stays, Following#following{is_idle = false}};
idle(false, #following{is_idle = true}) -> gone;
idle(false, Following) -> {stays, Following#following{is_idle = true}}.
