%% Which presence may be sent, and the keys by which sessions subscribe to it.
%%
%% A session asks for the presence of a subject by a subscription to the subject's key, which is no
%% id: so it is kept, sent again by the edge and forgotten as all subscriptions are (link.md 15).
%% The key of `*' stands for all users whom the session's user follows.
%%
%% `presence_subjects' of the configuration has the subjects; without any, presence is off.
-module(halley_presence_keys).

-export([turn_on/1, is_on/0, may/1]).
-export([key/1, subject/1]).
-export_type([key/0]).

%% The subject behind a byte that no id has.
-type key() :: <<_:16, _:_*8>>.

-define(PRESENCE, 1).
-define(PATTERNS, {?MODULE, patterns}).

%% By patterns with commas between: ids, and prefixes that end in `*'. Gives whether there is any.
-spec turn_on(string() | binary()) -> boolean().
turn_on(Text) ->
    Parts = binary:split(unicode:characters_to_binary(Text), <<",">>, [global]),
    case [halley_pattern:new(Trimmed)
          || Part <- Parts, Trimmed <- [string:trim(Part)], Trimmed =/= <<>>] of
        [] ->
            _ = persistent_term:erase(?PATTERNS),
            false;
        Patterns ->
            ok = persistent_term:put(?PATTERNS, Patterns),
            true
    end.

-spec is_on() -> boolean().
is_on() -> persistent_term:get(?PATTERNS, off) =/= off.

%% Whether presence of this subject may be sent. `*' is for all whom a user follows.
-spec may(binary()) -> boolean().
may(Subject) ->
    case persistent_term:get(?PATTERNS, off) of
        off -> false;
        _ when Subject =:= <<"*">> -> true;
        Patterns -> halley_pattern:is_any_match(Patterns, Subject)
    end.

-spec key(Subject :: binary()) -> key().
key(Subject) -> <<?PRESENCE, Subject/binary>>.

%% The subject whose key this is; `none': it is no key.
-spec subject(binary()) -> {presence, binary()} | none.
subject(<<?PRESENCE, Subject/binary>>) -> {presence, Subject};
subject(_) -> none.
