%% The outcome of a user's own request or operation: JSON, or an error.
%%
%% Some requests of HTTP are also operations of WebSockets (`protocol/http.md' 18). For both a
%% handler calls one function, which gives an outcome; this module makes it the response or the
%% operation's answer. So both have the same rights, limits, counters and errors by construction.
%%
%% Pure.
-module(halley_api_outcome).

-export([response/1, answer/1, map/2]).
-export_type([outcome/0, prepared/0, prepared/1]).

%% An error may come with headers of its response.
-type outcome() :: {ok, Json :: iodata()} | {error, halley_api_error:error()}
                 | {error, halley_api_error:error(), [{binary(), iodata()}]}.
%% One, or what the link does before there is one.
-type prepared() :: prepared(outcome()).
-type prepared(Answer) :: {answer, Answer} | halley_requests:wish(Answer).

-spec response(outcome()) -> halley_api:response().
response({ok, Json}) -> halley_api_reply:json(200, [Json, $\n]);
response({error, Error}) -> halley_api_error:response(Error);
response({error, Error, Headers}) -> halley_api_error:response(Error, Headers).

%% That of an operation: `Retry-After' is a member of its error.
-spec answer(outcome()) -> halley_requests:outcome().
answer({ok, Json}) -> {ok, Json};
answer({error, Error}) -> {error, halley_api_error:member(Error, [])};
answer({error, Error, Headers}) -> {error, halley_api_error:member(Error, Headers)}.

%% With each answer that there may be as the function makes it.
-spec map(fun((A) -> B), later | prepared(A)) -> later | prepared(B).
map(_, later) -> later;
map(Fun, {answer, Answer}) -> {answer, Fun(Answer)};
map(Fun, {publish, Item, Told}) -> {publish, Item, after_it(Fun, Told)};
map(Fun, {subscription, What, User, Said, Told}) ->
    {subscription, What, User, Said, after_it(Fun, Told)}.

after_it(Fun, Told) -> fun(Result) -> Fun(Told(Result)) end.
