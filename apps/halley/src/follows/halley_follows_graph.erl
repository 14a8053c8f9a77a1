%% The follows by user numbers, in both directions, for readers that ask on each event: reads go to
%% the tables without a lock (`halley_pages_table'), and no other part knows that there are tables.
%%
%% A read has no snapshot: it sees every follow that stood from its beginning to its end, and of
%% those that come or go meanwhile some.
%%
%% Not here: ids and pages of them (`halley_follows'), and changes (`halley_follows_owner').
-module(halley_follows_graph).

-export([fold_followers/3, followers_packed/1, following_packed/1]).
-export([take_followers/3, take_following/3, is_follower/2, is_following/2]).
-export([count_followers/1, count_following/1, spread_followers/1, size/0]).

-type user_number() :: halley_id:user_number().

%% Folds over the numbers of those who follow, ascending.
-spec fold_followers(fun((user_number(), Acc) -> Acc), Acc, Subject :: user_number()) -> Acc.
fold_followers(Fun, Acc, Subject) ->
    halley_pages_table:fold(Fun, Acc, halley_followers, Subject).

%% The same as binaries of <<Number:32, ...>>, ascending over all of them, none empty. The path of
%% every publish.
-spec followers_packed(Subject :: user_number()) -> [binary()].
followers_packed(Subject) ->
    halley_pages_table:slices(halley_followers, Subject).

%% Those whom a user follows, likewise.
-spec following_packed(user_number()) -> [binary()].
following_packed(User) ->
    halley_pages_table:slices(halley_following, User).

%% The numbers of those who follow behind `After', ascending, at most so many.
-spec take_followers(Subject :: user_number(), After :: integer(), Limit :: pos_integer()) ->
    [user_number()].
take_followers(Subject, After, Limit) ->
    halley_pages_table:take(halley_followers, Subject, After, Limit).

%% The numbers of those whom a user follows, likewise.
-spec take_following(user_number(), After :: integer(), Limit :: pos_integer()) -> [user_number()].
take_following(User, After, Limit) ->
    halley_pages_table:take(halley_following, User, After, Limit).

%% Whether a user follows a subject, itself included.
-spec is_follower(user_number(), Subject :: user_number()) -> boolean().
is_follower(User, User) -> true;
is_follower(User, Subject) ->
    halley_pages_table:take(halley_followers, Subject, User - 1, 1) =:= [User].

%% The same by what the user follows, where it doesn't follow itself. A change is there after it is
%% among the subject's followers.
-spec is_following(user_number(), Subject :: user_number()) -> boolean().
is_following(User, Subject) ->
    halley_pages_table:is_member(halley_following, User, Subject).

-spec count_followers(Subject :: user_number()) -> non_neg_integer().
count_followers(Subject) ->
    halley_pages_table:count(halley_followers, Subject).

-spec count_following(user_number()) -> non_neg_integer().
count_following(User) ->
    halley_pages_table:count(halley_following, User).

%% Subjects with so many pages of followers, found without a look into the pages.
-spec spread_followers(Pages :: pos_integer()) -> [user_number()].
spread_followers(Pages) ->
    halley_pages_table:spread(halley_followers, Pages).

%% How many follows the tables have.
-spec size() -> non_neg_integer().
size() ->
    halley_pages_table:size(halley_following).
