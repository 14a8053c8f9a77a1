%% The HTTP side: the article's `mochiconntest_web`, one mochiweb process per connection.
%%
%%     GET  /test/USER        chunked text/html without an end: a welcome, then a line per message
%%     POST /publish/SUBJECT  the body to everyone who follows SUBJECT: `{"sessions":N}`
%%     POST /follows          lines of USER SUBJECT: `{"added":N}`
%%
%% The process of a stream hibernates between messages, which is what brought the article from
%% 45 KB to 8 KB per connection. As there, nothing is read from a stream's socket, so that a client
%% has left shows at the next message to it.
-module(comet_web).

-export([start_link/1, loop/1, feed/1]).

%% The article's; mochiweb's default is 2048.
-define(CONNECTIONS_MAX, 1_000_000).
-define(BACKLOG, 1024).
-define(HTML, "text/html; charset=utf-8").

-spec start_link(inet:port_number()) -> {ok, pid()} | {error, term()}.
start_link(Port) ->
    mochiweb_http:start_link([
        {name, ?MODULE},
        {ip, {127, 0, 0, 1}},
        {port, Port},
        {max, ?CONNECTIONS_MAX},
        {backlog, ?BACKLOG},
        {nodelay, true},
        {loop, {?MODULE, loop}}
    ]).

-spec loop(Request :: tuple()) -> term().
loop(Request) ->
    Path = string:lexemes(mochiweb_request:get(path, Request), "/"),
    handle(mochiweb_request:get(method, Request), Path, Request).

handle('GET', ["test", User | _], Request) ->
    Response = mochiweb_request:ok({?HTML, [], chunked}, Request),
    ok = comet_router:login(id(User), self()),
    mochiweb_response:write_chunk([<<"welcome ">>, User, $\n], Response),
    sleep(Response);
handle('POST', ["publish", Subject], Request) ->
    {ok, Sessions} = comet_router:send(id(Subject), mochiweb_request:recv_body(Request)),
    answer(200, ["{\"sessions\":", integer_to_list(Sessions), $}], Request);
handle('POST', ["follows"], Request) ->
    Lines = string:lexemes(binary_to_list(mochiweb_request:recv_body(Request)), "\r\n"),
    Words = [string:lexemes(Line, " ") || Line <- Lines],
    case [{id(User), id(Subject)} || [User, Subject] <- Words] of
        Pairs when length(Pairs) =:= length(Words) ->
            ok = comet_subsmanager:add_subscriptions(Pairs),
            answer(200, ["{\"added\":", integer_to_list(length(Pairs)), $}], Request);
        _ ->
            answer(400, "lines of USER SUBJECT are expected\n", Request)
    end;
handle(_, _, Request) ->
    answer(404, "GET /test/USER, POST /publish/SUBJECT, POST /follows\n", Request).

answer(Status, Body, Request) ->
    mochiweb_request:respond({Status, [{"Content-Type", "application/json"}], Body}, Request).

%% @doc Where the process of a stream goes on when a message comes.
-spec feed(Response :: tuple()) -> no_return().
feed(Response) ->
    receive
        {router_msg, Message} -> mochiweb_response:write_chunk([Message, $\n], Response)
    end,
    sleep(Response).

%% COMET_AWAKE in the environment: as it was before the article's second part.
sleep(Response) ->
    case os:getenv("COMET_AWAKE") of
        false -> proc_lib:hibernate(?MODULE, feed, [Response]);
        _ -> feed(Response)
    end.

id(Word) ->
    case string:to_integer(Word) of
        {Number, ""} when is_integer(Number), Number >= 0 -> Number;
        _ -> list_to_binary(Word)
    end.
