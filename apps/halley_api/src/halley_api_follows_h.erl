%% POST and DELETE /v1/follows : follows and unfollows in bulk, streamed.
%%
%% The body is NDJSON, `{"user":U,"subject":S}' on each line, or text/plain, `U S' on each line; if
%% no type is declared, a body that begins with a brace is NDJSON. It may be of any size:
%% `halley_api_import' keeps a few batches in memory. The answer counts what was done and lists the
%% first lines that failed:
%%   {"added":N,"already":N,"errors":[{"line":L,"error":{…}}…],"errors_total":N}
%% and for DELETE `removed' and `absent' instead. `errors_total' is there if anything failed.
%% Numbers of lines begin with 1.
-module(halley_api_follows_h).
-behaviour(halley_api).

-export([handle/3, run/4]).

-spec handle(post | delete, [], halley_api:request()) -> halley_api:response().
handle(Method, [], Request) ->
    case format(halley_api_body:media_type(Request)) of
        unsupported ->
            Message = "follows are application/x-ndjson or text/plain",
            halley_api_error:response({415, <<"unsupported_media_type">>, Message});
        Format ->
            run(Method, Request, Format, apply_fun(Method))
    end.

%% The same for a body of another format, and with another function that is given its pairs.
-spec run(post | delete, halley_api:request(), halley_api_import:format(),
          halley_api_import:apply()) -> halley_api:response().
run(Method, Request, Format, Apply) ->
    answer(Method, halley_api_import:run(Request, Format, Apply)).

format(<<"application/x-ndjson">>) -> ndjson;
format(<<"application/json">>) -> ndjson;
format(<<"text/plain">>) -> edge_list;
format(undeclared) -> undeclared;
format(_) -> unsupported.

apply_fun(post) -> fun halley_follows:follow/1;
apply_fun(delete) -> fun halley_follows:unfollow/1.

answer(Method, {ok, Outcome}) ->
    halley_api_reply:json(200, ["{", counts(Method, Outcome), "}\n"]);
answer(Method, {stopped, {Status, Code, Message}, #{lines := Lines} = Outcome}) ->
    Where = [Message, "; lines 1 to ", integer_to_list(Lines), " are done, send the others again"],
    {_, Headers, Json} = halley_api_error:response({Status, Code, Where}),
    {Status, Headers, ["{", counts(Method, Outcome), ",", members(Json)]};
answer(_, closed) ->
    halley_api_error:response(halley_api_error:closed()).

counts(Method, #{counts := Counts, errors := Errors, errors_total := Total}) ->
    {Done, NotDone} = case Method of post -> {added, already}; delete -> {removed, absent} end,
    [count(Done, Counts), ",", count(NotDone, Counts),
     ",\"errors\":[", lists:join($,, [listed(Error) || Error <- Errors]), "]", total(Total)].

total(0) -> [];
total(Total) -> [",\"errors_total\":", integer_to_binary(Total)].

count(Name, Counts) ->
    [$", atom_to_binary(Name), "\":", integer_to_binary(maps:get(Name, Counts, 0))].

listed({Line, Error}) ->
    ["{\"line\":", integer_to_binary(Line), ",", members(halley_api_error:json(Error))].

%% An object's text without its brace, to stand after other members.
members(Json) ->
    <<${, Members/binary>> = iolist_to_binary(Json),
    Members.
