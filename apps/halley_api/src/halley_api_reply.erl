%% Answers that went well, as JSON.
-module(halley_api_reply).

-export([json/1, json/2, page/2, page/3, limit/3, number/3]).

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
page(Member, Request, Read) ->
    page(Request, fun(After, Limit) ->
        case Read(After, Limit) of
            {error, _} = Error -> Error;
            {Ids, Next} -> {[{Member, Ids}], Next}
        end
    end).

%% The same with members of the function's choice.
%% A page's third element is what the object has behind `next': members as JSON, each behind a
%% comma.
-spec page(halley_api:request(), fun((After, Limit) -> Page)) -> halley_api:response()
    when Page :: {[{binary(), jiffy:json_value()}], Next}
               | {[{binary(), jiffy:json_value()}], Next, Behind :: iodata()}
               | {error, {unknown_id, halley_id:id()}},
         After :: halley_id:id() | start, Limit :: pos_integer(), Next :: halley_id:id() | done.
page(#{query := Query}, Read) ->
    case {start(Query), limit(Query, ?PAGE_LIMIT_DEFAULT, ?PAGE_LIMIT_MAX)} of
        {{ok, After}, {ok, Limit}} -> paged(Read(After, Limit));
        {{error, Error}, _} -> halley_api_error:response(Error);
        {_, {error, Error}} -> halley_api_error:response(Error)
    end.

paged({error, Reason}) ->
    halley_api_error:response(halley_api_error:reason(Reason));
paged({Members, Next}) ->
    json({Members ++ [{<<"next">>, next(Next)}]});
paged({Members, Next, Behind}) ->
    Object = iolist_to_binary(jiffy:encode({Members ++ [{<<"next">>, next(Next)}]})),
    json(200, [binary_part(Object, 0, byte_size(Object) - 1), Behind, "}\n"]).

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
        {_, Text} -> number(<<"limit">>, Text, Max)
    end.

%% A number from 1 on, of a parameter.
-spec number(Name :: binary(), Text :: binary(), Max :: pos_integer()) ->
    {ok, pos_integer()} | {error, halley_api_error:error()}.
number(Name, Text, Max) when byte_size(Text) =< ?LIMIT_DIGITS_MAX ->
    try binary_to_integer(Text) of
        Number when Number >= 1, Number =< Max -> {ok, Number};
        _ -> bad_number(Name, Max)
    catch
        error:badarg -> bad_number(Name, Max)
    end;
number(Name, _, Max) ->
    bad_number(Name, Max).

bad_number(Name, Max) ->
    {error, {400, <<"bad_", Name/binary>>,
             [Name, " is a number from 1 to ", integer_to_list(Max)]}}.
