%% For how long which subjects' events are shown: `history.retention_of', a list of patterns with an
%% age or a count each, such as `room/* 7d, room/* 100, live/* 30s'.
%%
%% The log is in segments, and a segment goes as a whole: so what is too old for its subject is
%% still there, and readers leave it out and tell a gap, as for what is gone. So segments go by the
%% longest age that there is, and `history.retention' is then the age of all other subjects, and of
%% private events, which have none (docs/internals/history.md).
%%
%% A count bounds the events of the past that are shown (`halley_past', `halley_replay_newest'). A
%% client with a cursor is sent all that is young enough: only a reader that begins with the newest
%% knows where an event stands among those of its subject.
%%
%% An id goes before a prefix, and the longest prefix before others, ages and counts each by
%% themselves. Where there are no patterns a reader pays for one look at a word.
-module(halley_history_shown).

-export([parse/1, within/2, new/0, oldest/1, latest/0, count/1, kept_ms/0]).
-export([retention_ms/0]).
-export_type([rule/0]).

-type rule() :: {halley_pattern:pattern(), {age, Ms :: pos_integer()} | {count, pos_integer()}}.

-define(MS_MIN, 1000).
%% As of `history.retention': the history's memory is bounded by its bytes, not by this.
-define(MS_MAX, 30 * 86400000).
%% The pattern `*', behind all others.
-define(ALL, {prefix, <<>>}).
%% A page goes over so many entries of the index to find where its subject's count ends.
-define(COUNT_MAX, 1000).
%% Ages, counts, and the age of private events where it is another one than that of segments.
-define(NONE, {[], [], none}).

%% What a text says; or a sentence about what is wrong with it.
-spec parse(string()) -> {ok, [rule()]} | {error, iolist()}.
parse(Text) ->
    Parts = [string:trim(Part) || Part <- string:split(Text, ",", all)],
    parse([Part || Part <- Parts, Part =/= ""], []).

parse([], Rules) ->
    Keys = [{Pattern, Kind} || {Pattern, {Kind, _}} <- Rules],
    case length(lists:usort(Keys)) =:= length(Keys) of
        true -> {ok, lists:sort(fun before/2, Rules)};
        false -> {error, "a pattern is there twice"}
    end;
parse([Part | Parts], Rules) ->
    case string:split(Part, " ", trailing) of
        [Pattern, Value] ->
            Name = unicode:characters_to_binary(string:trim(Pattern)),
            case {pattern(Name), value(Value)} of
                {{_, _} = Known, {_, _} = Limit} ->
                    parse(Parts, [{Known, Limit} | Rules]);
                {none, _} ->
                    {error, [Part, ": that is no subject, and no prefix with * behind it"]};
                _ ->
                    {error, io_lib:format("~ts: an age must be 1s to 30d, such as 90s or 2h, "
                                          "and a count 1 to ~b", [Part, ?COUNT_MAX])}
            end;
        _ ->
            {error, [Part, ": a pattern and an age or a count are expected, such as room/* 1h"]}
    end.

pattern(Name) ->
    case halley_id:check(Name) of
        ok -> halley_pattern:new(Name);
        _ -> none
    end.

value(Text) ->
    case re:run(Text, "^([0-9]{1,9})(ms|s|m|h|d|)$", [{capture, all_but_first, list}]) of
        {match, [Digits, ""]} -> count_of(list_to_integer(Digits));
        {match, [Digits, Unit]} -> age_of(list_to_integer(Digits) * unit(Unit));
        nomatch -> none
    end.

count_of(Count) when Count >= 1, Count =< ?COUNT_MAX -> {count, Count};
count_of(_) -> none.

age_of(Ms) when Ms >= ?MS_MIN, Ms =< ?MS_MAX -> {age, Ms};
age_of(_) -> none.

unit("ms") -> 1;
unit("s") -> 1000;
unit("m") -> 60000;
unit("h") -> 3600000;
unit("d") -> 86400000.

before({{id, _}, _}, {{prefix, _}, _}) -> true;
before({{prefix, _}, _}, {{id, _}, _}) -> false;
before({{_, A}, _}, {{_, B}, _}) -> byte_size(A) >= byte_size(B).

%% By which age segments go, and what is shown of them, where `history.retention' is this long.
-spec within([rule()], Ms :: pos_integer()) -> {Ms :: pos_integer(), [rule()]}.
within(Rules, RetentionMs) ->
    Ages = [{Pattern, Ms} || {Pattern, {age, Ms}} <- Rules],
    LongestMs = lists:max([RetentionMs | [Ms || {_, Ms} <- Ages]]),
    case LongestMs =:= RetentionMs orelse lists:keymember(?ALL, 1, Ages) of
        true -> {LongestMs, Rules};
        false -> {LongestMs, Rules ++ [{?ALL, {age, RetentionMs}}]}
    end.

%% As the configuration has it.
-spec new() -> ok.
new() ->
    Rules = application:get_env(halley, history_retention_of, []),
    Private = case {retention_ms(), kept_ms()} of
        {Ms, KeptMs} when is_integer(Ms), Ms < KeptMs -> Ms;
        _ -> none
    end,
    persistent_term:put(?MODULE, {[{Pattern, Ms} || {Pattern, {age, Ms}} <- Rules],
                                  [{Pattern, Count} || {Pattern, {count, Count}} <- Rules],
                                  Private}).

%% `history.retention', and how long all events stay on disk because of the longest age.
-spec retention_ms() -> pos_integer() | null.
retention_ms() -> application:get_env(halley, history_plain_retention_ms, kept_ms()).

-spec kept_ms() -> pos_integer() | null.
kept_ms() -> application:get_env(halley, history_retention_ms, null).

%% What was published about a subject, or for some users alone, before this time isn't shown; 0: all
%% that there is.
-spec oldest(Subject :: binary() | private) -> Ms :: non_neg_integer().
oldest(Subject) ->
    case persistent_term:get(?MODULE, ?NONE) of
        {[], _, _} -> 0;
        {_, _, Private} when Subject =:= private -> since(Private);
        {Ages, _, _} -> since(first(Ages, Subject))
    end.

since(none) -> 0;
since(Ms) -> halley_clock:wall_ms() - Ms.

%% So many of a subject's events are shown of the past, the newest ones.
-spec count(Subject :: binary()) -> pos_integer() | all.
count(Subject) ->
    {_, Counts, _} = persistent_term:get(?MODULE, ?NONE),
    case first(Counts, Subject) of
        none -> all;
        Count -> Count
    end.

first([{Pattern, Value} | Others], Subject) ->
    case halley_pattern:is_match(Pattern, Subject) of
        true -> Value;
        false -> first(Others, Subject)
    end;
first([], _) ->
    none.

%% What was published since is too old for no subject.
-spec latest() -> Ms :: non_neg_integer().
latest() ->
    case persistent_term:get(?MODULE, ?NONE) of
        {[], _, _} -> 0;
        {Ages, _, _} -> since(lists:min([Ms || {_, Ms} <- Ages]))
    end.
