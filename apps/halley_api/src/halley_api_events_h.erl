%% POST /v1/events : publishes one event, or many.
%%
%% One, as application/json: `{"subject":S,"data":…,"id"?:…}' is answered by
%% `{"id":…,"sessions":N}'. With `"to":[U,…]' in place of the subject it is for these users alone,
%% with `"subjects":[S,…]' about all of these.
%%
%% Many, as application/x-ndjson, one on each line: one result per line in the same order, each what
%% the single form would have answered, so a bad line has its error in its place. Blank lines are
%% skipped and get no result. Events of one request are published in the order of the lines, group
%% by group as they arrive, so a client that breaks off has published what it sent. Results wait in
%% memory, therefore a request takes ?BATCH_EVENTS_MAX events; the first beyond it ends the request
%% with a 413, after the results of those before. So does, with its own status, the first line that
%% the publisher may not say now: later lines don't overtake it.
-module(halley_api_events_h).
-behaviour(halley_api).

-export([handle/3, prepare/3]).
-export([publish/2, prepare/2, one/2, published/1, is_one/1]).
-export_type([publisher/0, admit/0]).

-include("halley_api_limits.hrl").

%% Whether a line may be said now, by its bytes and as so many messages; an error comes with headers
%% for the answer.
-type admit() :: fun((Bytes :: non_neg_integer(), Messages :: pos_integer()) ->
                         ok | {error, halley_api_error:error(), [{binary(), iodata()}]}).
%% What a publisher may do: each line is admitted, then each event is judged, and may be changed,
%% before it is published; and what is told of it afterwards, as JSON.
-type publisher() ::
    {admit(),
     Judge :: fun((halley_api_event:event()) ->
                      {ok, halley_api_event:event()} | {error, halley_api_error:error()}),
     Told :: fun((#{id := binary(), sessions := non_neg_integer(), _ => _}) -> iodata())}.

-record(many, {
    publisher :: publisher(),
    lines :: halley_api_lines:lines(),
    count = 0 :: non_neg_integer(),
    %% Answers so far, the latest group first.
    results = [] :: iodata()
}).

-spec handle(post, [], halley_api:request()) -> halley_api:response().
handle(post, [], Request) ->
    publish(Request, server()).

-spec prepare(post, [], halley_api:request()) -> later | halley_api:prepared().
prepare(post, [], Request) ->
    case is_one(Request) of
        true -> halley_api_outcome:map(fun halley_api_outcome:response/1,
                                       prepare(Request, server()));
        false -> later
    end.

server() ->
    {fun(_, _) -> ok end, fun(Event) -> {ok, Event} end, fun result/1}.

%% The same for another publisher than a server.
-spec publish(halley_api:request(), publisher()) -> halley_api:response().
publish(Request, Publisher) ->
    case {is_one(Request), halley_api_body:media_type(Request)} of
        {true, _} ->
            halley_api_outcome:response(published(prepare(Request, Publisher)));
        {false, <<"application/x-ndjson">>} ->
            many(Request, Publisher);
        {false, _} ->
            Message = "events are application/json (one) or application/x-ndjson (one per line)",
            halley_api_error:response({415, <<"unsupported_media_type">>, Message})
    end.

%% Whether it is a request of the single form. `text/plain' is what `fetch' says of a string
%% unasked.
-spec is_one(halley_api:request()) -> boolean().
is_one(Request) ->
    lists:member(halley_api_body:media_type(Request),
                 [<<"application/json">>, undeclared, <<"text/plain">>]).

%% Twice the data's bound leaves room for white space between its tokens. Users stand in quotes and
%% between commas.
event_bytes_max() ->
    2 * halley_limits:get(event_data_bytes_max) + ?EVENT_ENVELOPE_BYTES_MAX
        + halley_limits:get(private_users_max) * (halley_limits:get(id_bytes_max) + 3).

%% --- one -----------------------------------------------------------------------------------------

%% What is prepared is done in this process, which may wait.
-spec published(halley_api_outcome:prepared()) -> halley_api_outcome:outcome().
published({publish, {Subject, Data, Opts}, Told}) -> Told(halley:publish(Subject, Data, Opts));
published({answer, Outcome}) -> Outcome.

%% One event of a request, for this publisher.
-spec prepare(halley_api:request(), publisher()) -> halley_api_outcome:prepared().
prepare(Request, Publisher) ->
    case halley_api_body:read(Request, event_bytes_max()) of
        {ok, Body} -> one(halley_api_event:parse(Body), byte_size(Body), Publisher);
        {error, too_large} -> {answer, {error, too_large(<<"body_too_large">>)}};
        {error, closed} -> {answer, {error, halley_api_error:closed()}}
    end.

%% The same for one that comes as its members, each with the text of its value (link.md 20).
-spec one([{Name :: binary(), Text :: binary()}], publisher()) -> halley_api_outcome:prepared().
one(Members, Publisher) ->
    Bytes = halley_api_json:bytes(Members),
    case Bytes =< event_bytes_max() of
        true -> one(halley_api_event:of_members(Members), Bytes, Publisher);
        false -> {answer, {error, too_large(<<"body_too_large">>)}}
    end.

one(Parsed, Bytes, {Admit, Judge, Told}) ->
    case Admit(Bytes, halley_api_event:messages(Parsed)) of
        ok -> prepared(judged(Parsed, Judge), Told);
        {error, _, _} = Refused -> {answer, Refused}
    end.

judged({ok, Event}, Judge) -> Judge(Event);
judged({error, _} = Error, _) -> Error.

prepared({ok, {Subject, Data, Opts}}, Told) ->
    {publish, {Subject, {json, Data}, Opts}, fun(Result) -> answer(Result, Told) end};
prepared({error, _} = Refused, _) ->
    {answer, Refused}.

answer({ok, Published}, Told) -> {ok, Told(Published)};
answer({error, Reason}, _) -> {error, halley_api_error:reason(Reason)}.

too_large(Code) ->
    Event = integer_to_list(event_bytes_max()),
    Data = integer_to_list(halley_limits:get(event_data_bytes_max)),
    {413, Code, ["an event has at most ", Event, " bytes, its data ", Data]}.

result(#{id := Id, sessions := Sessions}) ->
    [<<"{\"id\":\"">>, halley_event:escape(Id),
     <<"\",\"sessions\":">>, integer_to_binary(Sessions), $}].

%% --- many ----------------------------------------------------------------------------------------

many(Request, Publisher) ->
    Many = #many{publisher = Publisher, lines = halley_api_lines:new(event_bytes_max())},
    case halley_api_body:fold(fun chunk/2, Many, Request) of
        {done, #many{lines = Lines} = Read} ->
            case block(halley_api_lines:finish(Lines), Read) of
                {ok, #many{results = Results}} -> results(200, Results);
                {stop, Stopped} -> stopped(Stopped)
            end;
        {stop, Stopped} -> stopped(Stopped);
        {closed, _} -> halley_api_error:response(halley_api_error:closed())
    end.

results(Status, Results) ->
    {Status, [{<<"content-type">>, <<"application/x-ndjson">>}], lists:reverse(Results)}.

%% Nothing is said of the lines behind the error.
stopped({{Status, _, _} = Error, More, Results}) ->
    {_, Headers, Lines} = results(Status, [error_line(Error) | Results]),
    {Status, Headers ++ More, Lines}.

chunk(Chunk, #many{lines = Lines} = Many) ->
    {Block, Next} = halley_api_lines:feed(Chunk, Lines),
    block(Block, Many#many{lines = Next}).

block(Block, Many) ->
    Max = event_bytes_max(),
    Texts = [text(Line, Max) || Line <- halley_api_lines:split(Block)],
    groups([Text || Text <- Texts, Text =/= <<>>], Many).

text(Line, Max) when byte_size(Line) =< Max -> halley_api_lines:trim(Line);
text(_, _) -> too_long.

groups([], Many) ->
    {ok, Many};
groups(_, #many{count = ?BATCH_EVENTS_MAX, results = Results}) ->
    Message = ["a request takes ", integer_to_list(?BATCH_EVENTS_MAX),
               " events; this one and those after it were not published, send them in another"],
    {stop, {{413, <<"too_many_events">>, Message}, [], Results}};
groups(Texts, #many{publisher = Publisher, count = Count, results = Results} = Many) ->
    Size = lists:min([length(Texts), ?BATCH_GROUP_EVENTS_MAX, ?BATCH_EVENTS_MAX - Count]),
    {Group, Rest} = lists:split(Size, Texts),
    Parsed = [{Text, parse(Text)} || Text <- Group],
    {Admitted, Refusal} = admitted(Parsed, element(1, Publisher), []),
    Done = [publish_group(Admitted, Publisher) | Results],
    case Refusal of
        none -> groups(Rest, Many#many{count = Count + Size, results = Done});
        {Error, Headers} -> {stop, {Error, Headers, Done}}
    end.

admitted([{Text, Parsed} | Texts], Admit, Admitted) ->
    case Admit(bytes(Text), halley_api_event:messages(Parsed)) of
        ok -> admitted(Texts, Admit, [Parsed | Admitted]);
        {error, Error, Headers} -> {lists:reverse(Admitted), {Error, Headers}}
    end;
admitted([], _, Admitted) ->
    {lists:reverse(Admitted), none}.

bytes(too_long) -> event_bytes_max();
bytes(Text) -> byte_size(Text).

%% The results of a group as text, so that no decoded event outlives it.
publish_group([], _) ->
    <<>>;
publish_group(Parsed, {_, Judge, Told}) ->
    Judged = [judged(One, Judge) || One <- Parsed],
    Items = [{Whom, {json, Data}, Opts} || {ok, {Whom, Data, Opts}} <- Judged],
    Published = halley:publish_many(Items),
    iolist_to_binary(merge(Judged, Published, Told)).

parse(too_long) -> {error, too_large(<<"line_too_long">>)};
parse(Text) -> halley_api_event:parse(Text).

merge([{ok, _} | Parsed], [{ok, Published} | Results], Told) ->
    [Told(Published), $\n | merge(Parsed, Results, Told)];
merge([{ok, _} | Parsed], [{error, Reason} | Results], Told) ->
    [error_line(halley_api_error:reason(Reason)) | merge(Parsed, Results, Told)];
merge([{error, Error} | Parsed], Results, Told) ->
    [error_line(Error) | merge(Parsed, Results, Told)];
merge([], [], _) ->
    [].

error_line(Error) ->
    [halley_api_error:json(Error), $\n].
