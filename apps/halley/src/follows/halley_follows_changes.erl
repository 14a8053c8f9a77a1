%% Applies changes to the tables that are read: both directions, each pair once in each.
%%
%% For the owner of the follows while it runs, and for the recovery before that. Not durable: what
%% is applied here is in the journal already.
-module(halley_follows_changes).

-export([apply_keys/2, apply_again/1]).

-define(TABLES, [halley_following, halley_followers]).

%% Keys (user, subject) in any order, all added or all removed.
-spec apply_keys(halley_pages:operation(), [halley_pages:key()]) -> ok.
apply_keys(_, []) ->
    ok;
apply_keys(Operation, Keys) ->
    Following = lists:usort(Keys),
    Followers = lists:sort([halley_pages:swap(Key) || Key <- Following]),
    _ = halley_pages_table:change(Operation, halley_following, halley_pages:pack(Following)),
    _ = halley_pages_table:change(Operation, halley_followers, halley_pages:pack(Followers)),
    ok.

%% Applies a group to tables that readers use and that an owner who died may have left half
%% changed: each pair as its last change says, so that no reader sees it as it was before. Splits
%% that were begun are ended first. Gives the group's pairs <<Subject:32, User:32, ...>>.
-spec apply_again(halley_store_entries:entries()) -> halley_pages:packed().
apply_again(Entries) ->
    lists:foreach(fun(Table) -> ok = halley_pages_table:trim(Table) end, ?TABLES),
    Latest = halley_store_entries:fold(fun latest/2, #{}, Entries),
    Keys = fun(Operation) -> [Key || {Key, O} <- maps:to_list(Latest), O =:= Operation] end,
    ok = apply_keys(remove, Keys(remove)),
    ok = apply_keys(add, Keys(add)),
    halley_pages:pack(lists:sort(lists:map(fun halley_pages:swap/1, maps:keys(Latest)))).

latest({names, Names}, Latest) ->
    ok = halley_ids_pages:set_durable([Number || {Number, _} <- Names], true),
    Latest;
latest({freed, Numbers}, Latest) ->
    ok = halley_ids_pages:set_durable(Numbers, false),
    Latest;
latest({Operation, Pairs}, Latest) ->
    lists:foldl(fun(Key, L) -> L#{Key => Operation} end, Latest, [Key || <<Key:64>> <= Pairs]).
