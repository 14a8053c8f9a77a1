%% Follows as NDJSON, `{"user":U,"subject":S}' on each line, and what both line formats have in
%% common.
%%
%% A block of whole lines becomes the pairs that are good, in order; how many lines there were; and
%% the lines that gave no pair, by their place in the block from 0, with the reason. So the line of
%% "the fifth pair failed" can be found. A bad line spoils no other.
%%
%% Pure; blocks come from `halley_api_lines'.
-module(halley_api_follow_lines).

-export([parse/1, parse_own/3, pair/2, line_too_long/0]).
-export_type([parsed/0, skipped/0, pair/0]).

-include("halley_api_limits.hrl").

-type skipped() :: [{Line :: non_neg_integer(), blank | halley_api_error:error()}].
-type pair() :: {User :: halley_id:id(), Subject :: halley_id:id()}.
-type parsed() :: {[pair()], Lines :: non_neg_integer(), skipped()}.

-spec parse(Block :: binary()) -> parsed().
parse(Block) ->
    lines(halley_api_lines:split(Block), fun line/1).

%% The same for follows of one user, `{"subject":S}' on each line; `Judge' says which subjects.
-spec parse_own(Block :: binary(), User :: halley_id:id(),
                Judge :: fun((halley_id:id()) -> ok | {error, halley_api_error:error()})) ->
    parsed().
parse_own(Block, User, Judge) ->
    lines(halley_api_lines:split(Block), fun(Line) -> own_line(Line, User, Judge) end).

lines(Lines, Read) ->
    lines(Lines, Read, 0, [], []).

lines([Line | Rest], Read, N, Pairs, Skipped) ->
    case Read(Line) of
        {ok, Pair} -> lines(Rest, Read, N + 1, [Pair | Pairs], Skipped);
        Why -> lines(Rest, Read, N + 1, Pairs, [{N, Why} | Skipped])
    end;
lines([], _, Lines, Pairs, Skipped) ->
    {lists:reverse(Pairs), Lines, lists:reverse(Skipped)}.

own_line(Line, _, _) when byte_size(Line) > ?FOLLOW_LINE_BYTES_MAX ->
    line_too_long();
own_line(Line, User, Judge) ->
    case halley_api_json:object(Line) of
        {ok, [{<<"subject">>, Subject}]} -> own(User, text(Subject), Judge);
        {ok, _} -> {400, <<"bad_follow">>, "a follow of one's own is exactly {\"subject\":S}"};
        {error, What} -> blank_or(Line, What)
    end.

own(User, Subject, Judge) ->
    case halley_api_id:check(Subject, <<"subject">>) of
        {ok, Id} ->
            case Judge(Id) of
                ok -> {ok, {User, Id}};
                {error, Error} -> Error
            end;
        {error, Error} ->
            Error
    end.

line(Line) when byte_size(Line) > ?FOLLOW_LINE_BYTES_MAX ->
    line_too_long();
line(Line) ->
    case halley_api_json:object(Line) of
        {ok, [{<<"user">>, User}, {<<"subject">>, Subject}]} -> from_json(User, Subject);
        {ok, [{<<"subject">>, Subject}, {<<"user">>, User}]} -> from_json(User, Subject);
        {ok, _} -> {400, <<"bad_follow">>, "a follow is exactly {\"user\":U,\"subject\":S}"};
        {error, What} -> blank_or(Line, What)
    end.

blank_or(Line, What) ->
    case halley_api_lines:trim(Line) of
        <<>> -> blank;
        _ -> halley_api_error:bad_json(What)
    end.

from_json(User, Subject) ->
    pair(text(User), text(Subject)).

%% `123' in a table that follows come from is the user `"123"', as it is in a path.
text(Id) when is_integer(Id) -> integer_to_binary(Id);
text(Id) -> Id.

%% A pair of what should be ids.
-spec pair(term(), term()) -> {ok, pair()} | halley_api_error:error().
pair(User, Subject) ->
    case {halley_api_id:check(User, <<"user">>), halley_api_id:check(Subject, <<"subject">>)} of
        {{ok, _}, {ok, _}} -> {ok, {User, Subject}};
        {{error, Error}, _} -> Error;
        {_, {error, Error}} -> Error
    end.

-spec line_too_long() -> halley_api_error:error().
line_too_long() ->
    {413, <<"line_too_long">>,
     ["the line is longer than ", integer_to_list(?FOLLOW_LINE_BYTES_MAX), " bytes"]}.
