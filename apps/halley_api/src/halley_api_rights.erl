%% What a user's token lets the user do: publish about, follow, see the presence of, and read the
%% history of which subjects, and publish to which users alone.
%%
%% The text is the claim `halley' of the token, which the edge has verified (link.md 12.6):
%% `{"publish":[…],"to":[…],"follow":[…],"presence":[…],"history":[…]}'. A list has patterns: an
%% id, or a prefix with `*' behind it; `*' alone is every subject. Each list that isn't there is
%% empty.
%%
%% Invariant: what isn't understood gives nothing. A text that is no object gives no right at all, a
%% member that is there twice or is no list gives none of its kind, a pattern that is no text is
%% none. So a mistake in a claim never opens more than it says.
%%
%% Pure.
-module(halley_api_rights).

-export([none/0, parse/1, allows/3, allows_any/2]).
-export_type([rights/0, action/0]).

-type action() :: publish | to | follow | presence | history.
-type pattern() :: {id, halley_id:id()} | {prefix, binary()}.
-opaque rights() :: #{action() => [pattern()]}.

-spec none() -> rights().
none() ->
    #{}.

-spec parse(binary()) -> rights().
parse(Text) ->
    case halley_api_json:object(Text) of
        {ok, Members} ->
            maps:from_list([{Action, patterns(atom_to_binary(Action), Members)}
                            || Action <- [publish, to, follow, presence, history]]);
        {error, _} ->
            none()
    end.

patterns(Name, Members) ->
    case [Value || {Member, Value} <- Members, Member =:= Name] of
        [List] when is_list(List) -> [pattern(Text) || Text <- List, is_binary(Text)];
        _ -> []
    end.

pattern(Text) ->
    Before = byte_size(Text) - 1,
    case Text of
        <<Prefix:Before/binary, $*>> -> {prefix, Prefix};
        Id -> {id, Id}
    end.

-spec allows(action(), Subject :: halley_id:id(), rights()) -> boolean().
allows(Action, Subject, Rights) ->
    lists:any(fun(Pattern) -> is_match(Pattern, Subject) end, maps:get(Action, Rights, [])).

%% Whether there is a subject at all for which this is allowed.
-spec allows_any(action(), rights()) -> boolean().
allows_any(Action, Rights) ->
    maps:get(Action, Rights, []) =/= [].

is_match({id, Id}, Subject) ->
    Id =:= Subject;
is_match({prefix, Prefix}, Subject) ->
    Bytes = byte_size(Prefix),
    case Subject of
        <<Prefix:Bytes/binary, _/binary>> -> true;
        _ -> false
    end.
