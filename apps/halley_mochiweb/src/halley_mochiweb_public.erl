%% Requests of clients: streams, which don't return, and polls (protocol/http.md 7, 10, 11).
-module(halley_mochiweb_public).
-export([handle/1]).

%% Other names of a place to go on from (http.md 10.1), in lower case, without - and _.
-define(NO_CURSORS, [<<"since">>, <<"sinceid">>, <<"after">>, <<"offset">>, <<"resume">>,
                     <<"lastid">>, <<"lastcursor">>, <<"eventid">>, <<"cursor">>]).
%% Sessions that are processes have none of these.
-define(NOT_HERE, [<<"subjects">>, <<"presence">>, <<"last">>, <<"token">>]).

-spec handle(Request :: tuple()) -> term().
handle(Request) ->
    {Path, Query} = halley_mochiweb_api:target(Request),
    try route(mochiweb_request:get(method, Request), Path, Query, Request)
    catch throw:{Status, Code, Message} ->
        Body = jiffy:encode(#{error => #{code => Code, message => Message}}),
        Later = [{"Retry-After", "1"} || Status =:= 429 orelse Status =:= 503],
        Headers = [{"Content-Type", "application/json"} | Later],
        mochiweb_request:respond({Status, Headers, Body}, Request)
    end.

route('GET', [<<"test">>, User], _, Request) ->
    ok = login(User),
    halley_mochiweb_stream:open(html, User, none, Request);
route('GET', [<<"v1">>, <<"stream">>], Query, Request) ->
    {User, InQuery} = who(Query),
    ok = login(User),
    Form = case mochiweb_request:get_header_value("accept", Request) of
        "application/x-ndjson" ++ _ -> ndjson;
        _ -> sse
    end,
    Cursor = case mochiweb_request:get_header_value("last-event-id", Request) of
        [_ | _] = Seen -> list_to_binary(Seen);
        _ -> InQuery
    end,
    halley_mochiweb_stream:open(Form, User, Cursor, Request);
route('GET', [<<"v1">>, <<"poll">>], Query, Request) ->
    {User, Cursor} = who(Query),
    TimeoutMs = timeout_ms(proplists:get_value(<<"timeout">>, Query, <<"25">>)),
    ok = login(User),
    Answer = halley_mochiweb_stream:poll(User, Cursor, TimeoutMs, Request),
    ok = halley:logout(self()),
    Headers = [{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}],
    case Answer of
        gone -> gone;
        unavailable -> throw({503, unavailable, <<"the disk stands still; poll again later">>});
        _ -> mochiweb_request:respond({200, Headers, Answer}, Request)
    end;
route(_, [<<"v1">>, Name], _, _) when Name =:= <<"stream">>; Name =:= <<"poll">> ->
    throw({405, method_not_allowed, <<"there is GET alone">>});
route(_, _, _, _) ->
    throw({404, not_found, <<"there are /v1/stream, /v1/poll and /test/USER">>}).

login(User) ->
    case halley:login(User) of
        ok -> ok;
        {error, too_many_sessions} -> throw({429, too_many_sessions, <<"close a session first">>});
        {error, too_many_ids} -> throw({507, too_many_ids, <<"no room for an id (ids_max)">>});
        {error, _} -> throw({400, bad_user, <<"a user is 1 to 255 bytes of UTF-8; not this">>})
    end.

who(Query) ->
    Named = [{name(Name), Value} || {Name, Value} <- Query],
    Names = [Name || {Name, _} <- Named],
    lists:member(unknown_cursor, Names) andalso
        throw({400, unknown_cursor, <<"one of these parameters is no cursor; use cursor=">>}),
    Names -- lists:usort(Names) =:= [] orelse
        throw({400, duplicate_parameter, <<"a parameter is there twice; give it once">>}),
    _ = [throw({400, not_here, <<"this server has no ", Name/binary, "; follow in its place">>})
         || Name <- Names, lists:member(Name, ?NOT_HERE)],
    [User | _] = [Value || {<<"user">>, Value} <- Named]
        ++ [throw({400, user_missing, <<"say who you are by ?user=">>})
            || not lists:member(<<"user">>, Names)],
    Cursors = [Cursor || Name <- [<<"lasteventid">>, <<"cursor">>], {N, Cursor} <- Named,
                         N =:= Name, Cursor =/= <<>>],
    {User, hd(Cursors ++ [none])}.

name(<<"cursor">>) ->
    <<"cursor">>;
name(Name) ->
    Plain = << <<C>> || <<C>> <= string:lowercase(Name), C =/= $-, C =/= $_ >>,
    case lists:member(Plain, ?NO_CURSORS) of
        true -> unknown_cursor;
        false when Plain =:= <<"lasteventid">> -> Plain;
        false -> Name
    end.

timeout_ms(Text) ->
    case re:run(Text, "^([0-9]+)(?:\\.([0-9]+))?$", [dollar_endonly, {capture, [1, 2], list}]) of
        {match, [Whole, Fraction]} ->
            Ms = list_to_integer(Whole ++ lists:sublist(Fraction ++ "000", 3)),
            min(halley_limits:get(poll_ms_max), Ms);
        nomatch ->
            throw({400, bad_timeout, <<"timeout is a number of seconds, such as 2.5">>})
    end.
