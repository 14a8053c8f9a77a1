%% The rights of a user's token: subjects to publish about, to follow, to subscribe to, to see the
%% presence of and to read the history of; users to publish to alone; and users as whom its sessions
%% may have a state.
%%
%% The text is the claim `halley' of the token, which the edge has verified (link.md 12.6):
%% `{"publish":[…],"to":[…],"follow":[…],"subscribe":[…],"presence":[…],"history":[…],
%% "state":[…]}'. A list has patterns: an id, or a prefix with `*' at its end; `*' alone is every
%% subject. Each list that isn't there is empty.
%%
%% Invariant: what isn't understood gives nothing. A text that is no object gives no right at all, a
%% member that is there twice or is no list gives none of its kind, a pattern that is no text is
%% none. So a mistake in a claim never opens more than it says.
%%
%% A judgement that refuses is counted, and says which list lacks what.
-module(halley_api_rights).

-export([parse/1, allows/3, judge/3, judge_any/2, judge_all/2, view/1]).
-export_type([rights/0, action/0]).

-type action() :: publish | to | follow | subscribe | presence | history | state.
-opaque rights() :: #{action() => [halley_pattern:pattern()]}.

-spec none() -> rights().
none() ->
    #{}.

-spec parse(binary()) -> rights().
parse(Text) ->
    case halley_api_json:object(Text) of
        {ok, Members} ->
            maps:from_list([{Action, patterns(atom_to_binary(Action), Members)}
                            || Action <- [publish, to, follow, subscribe, presence, history,
                                          state]]);
        {error, _} ->
            none()
    end.

patterns(Name, Members) ->
    case [Value || {Member, Value} <- Members, Member =:= Name] of
        [List] when is_list(List) ->
            [halley_pattern:new(Text) || Text <- List, is_binary(Text)];
        _ -> []
    end.

-spec allows(action(), Subject :: halley_id:id(), rights()) -> boolean().
allows(Action, Subject, Rights) ->
    halley_pattern:is_any_match(maps:get(Action, Rights, []), Subject).

%% Whether there is a subject at all for which this is allowed.
-spec allows_any(action(), rights()) -> boolean().
allows_any(Action, Rights) ->
    maps:get(Action, Rights, []) =/= [].

-spec judge(action(), Subject :: halley_id:id(), rights()) ->
    ok | {error, halley_api_error:error()}.
judge(Action, Subject, Rights) ->
    case allows(Action, Subject, Rights) of
        true -> ok;
        false -> missing(Action, [words(Action), $\s, Subject], "no pattern", " matches")
    end.

%% Whether there is anything at all for which this is allowed.
-spec judge_any(action(), rights()) -> ok | {error, halley_api_error:error()}.
judge_any(Action, Rights) ->
    Also = case Action of publish -> [to]; _ -> [] end,
    case lists:any(fun(A) -> allows_any(A, Rights) end, [Action | Also]) of
        true -> ok;
        false -> missing(Action, [words(Action), " anything"], "there is nothing", "")
    end.

%% Whether this is allowed for everything. Patterns that together match much are not asked: only `*'
%% alone says that whatever will be is meant.
-spec judge_all(action(), rights()) -> ok | {error, halley_api_error:error()}.
judge_all(Action, Rights) ->
    case lists:any(fun halley_pattern:is_everything/1, maps:get(Action, Rights, [])) of
        true -> ok;
        false -> missing(Action, [words(Action), " everybody"], "no \"*\"", "")
    end.

%% Whom one may see of those whom one follows.
-spec view(rights()) -> halley_presence_views:view().
view(Rights) ->
    Patterns = maps:get(presence, Rights, []),
    case lists:any(fun halley_pattern:is_everything/1, Patterns) of
        true -> everybody;
        false -> Patterns
    end.

missing(Action, What, Which, Matches) ->
    halley_metrics:incr(right_missing),
    {error, {403, <<"right_missing">>,
             ["the token gives no right to ", What, ": ", Which, " in \"", atom_to_binary(Action),
              "\" of its claim \"halley\"", Matches]}}.

words(publish) -> "publish about";
words(to) -> "publish to";
words(follow) -> "follow or unfollow";
words(subscribe) -> "subscribe to";
words(presence) -> "see the presence of";
words(history) -> "read what was published before about";
words(state) -> "have a state as".
