%% Reasons to keep a user number: a follow, in either direction, or a group of its subject.
%%
%% Sessions keep one as well; the directory knows those (`halley_directory_leaving').
-module(halley_ids_use).

-export([is_followed/1]).

%% Whether the number is in a follow, or a group that has not yet ended.
-spec is_followed(halley_ids:user_number()) -> boolean().
is_followed(Number) ->
    halley_pages_table:take(halley_following, Number, -1, 1) =/= []
        orelse halley_pages_table:take(halley_followers, Number, -1, 1) =/= []
        orelse halley_groups_table:lookup(Number) =/= [].
