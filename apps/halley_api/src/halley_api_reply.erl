%% Answers that went well, as JSON.
-module(halley_api_reply).

-export([json/1, json/2, page/3, limit/3]).

-include("halley_api_limits.hrl").

%% Of a limit, so that none is a long number.
-define(LIMIT_DIGITS_MAX, 9).

%% 200 with a term as jiffy understands it.
-spec json(jiffy:json_value()) -> halley_api:response().
json(Term) ->
    json(200, [jiffy:encode(Term), $\n]).

%% A JSON text that is already made.
-spec json(200..599, iodata()) -> halley_api:response().
json(Status, Text) ->
    {Status, [{<<"content-type">>, <<"application/json">>}], Text}.

%% One page of ids: `?after=' and `&limit=' of the query, judged, and the function that reads a
%% page.
-spec page(binary(), halley_api:request(), fun((After, Limit) -> Page)) ->
    halley_api:response()
    when Page :: {[halley_id:id()], Next} | {error, {unknown_id, halley_id:id()}},
         After :: halley_id:id() | start, Limit :: pos_integer(), Next :: halley_id:id() | done.
page(Member, #{query := Query}, Read) ->
    case {start(Query), limit(Query, ?PAGE_LIMIT_DEFAULT, ?PAGE_LIMIT_MAX)} of
        {{ok, After}, {ok, Limit}} -> page(Member, Read(After, Limit));
        {{error, Error}, _} -> halley_api_error:response(Error);
        {_, {error, Error}} -> halley_api_error:response(Error)
    end.

page(_, {error, Reason}) ->
    halley_api_error:response(halley_api_error:reason(Reason));
page(Member, {Ids, Next}) ->
    json({[{Member, Ids}, {<<"next">>, next(Next)}]}).

next(done) -> null;
next(Id) -> Id.

start(Query) ->
    case lists:keyfind(<<"after">>, 1, Query) of
        false -> {ok, start};
        {_, <<>>} -> {ok, start};
        {_, After} -> halley_api_id:check(After, <<"after">>)
    end.

%% How many a page may have, by the query.
-spec limit([{binary(), binary()}], Default :: pos_integer(), Max :: pos_integer()) ->
    {ok, pos_integer()} | {error, halley_api_error:error()}.
limit(Query, Default, Max) ->
    case lists:keyfind(<<"limit">>, 1, Query) of
        false -> {ok, Default};
        {_, <<>>} -> {ok, Default};
        {_, Text} -> limit_of(Text, Max)
    end.

limit_of(Text, Max) when byte_size(Text) =< ?LIMIT_DIGITS_MAX ->
    try binary_to_integer(Text) of
        Limit when Limit >= 1, Limit =< Max -> {ok, Limit};
        _ -> bad_limit(Max)
    catch
        error:badarg -> bad_limit(Max)
    end;
limit_of(_, Max) ->
    bad_limit(Max).

bad_limit(Max) ->
    {error, {400, <<"bad_limit">>, ["limit is a number from 1 to ", integer_to_list(Max)]}}.
