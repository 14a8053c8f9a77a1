%% A stream: a process that hibernates between events, as the article's did, and keeps its socket,
%% its user and a cursor. A live message is a sign; the events are read from the log, each with its
%% cursor. A client that takes nothing for ?SEND_MS is closed, and comes back with its cursor.
-module(halley_mochiweb_stream).
-export([open/4, poll/4, awake/1]).

-define(SEND_MS, 30000).
%% Of a stream's socket nothing is read but its end, and each keeps a buffer of this size for that.
-define(READ_BYTES, 64).

-record(stream, {socket :: inet:socket(), form :: sse | ndjson | html, is_chunked :: boolean(),
                 user :: binary(), cursor :: binary()}).

-spec open(sse | ndjson | html, binary(), none | binary(), Request :: tuple()) -> no_return().
open(Form, User, Given, Request) ->
    Socket = mochiweb_request:get(socket, Request),
    Cursor = begun(Given),
    Stream = #stream{socket = Socket, form = Form, user = User, cursor = Cursor,
                     is_chunked = mochiweb_request:get(version, Request) >= {1, 1}},
    ok = inet:setopts(Socket, [{buffer, ?READ_BYTES}, {active, once}, {packet, raw},
                               {send_timeout, ?SEND_MS}, {send_timeout_close, true}]),
    Welcome = welcome(Form, Given, Cursor, mochiweb_request:get(raw_path, Request), User),
    ok = send([head(Stream), chunk(Welcome, Stream)], Stream),
    %% What mochiweb keeps there, such as the request's path, is of no use from now on.
    _ = erase(),
    ok = beat_later(),
    wait(take(false, Stream)).

begun(none) -> halley:cursor();
begun(Given) -> Given.

head(#stream{form = Form, is_chunked = IsChunked}) ->
    Length = case IsChunked of
        true -> "Transfer-Encoding: chunked\r\n\r\n";
        false -> "Connection: close\r\n\r\n"
    end,
    ["HTTP/1.1 200 OK\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n"
     "Content-Type: ", type(Form), "\r\n", Length].

type(sse) -> "text/event-stream";
type(ndjson) -> "application/x-ndjson";
type(html) -> "text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'; sandbox".

welcome(html, _, _, Url, User) ->
    [Escaped, Id] = [mochiweb_html:escape(Text) || Text <- [Url, User]],
    ["Welcome, Url: '", Escaped, "' Id: ", Id, $\n];
welcome(sse, none, C, _, _) -> [": welcome\nretry: 1000\nid: ", C, "\n\n"];
welcome(sse, _, _, _, _) -> ": welcome\nretry: 1000\n\n";
welcome(ndjson, none, C, _, _) -> beat(ndjson, C);
welcome(ndjson, _, _, _, _) -> $\n.

wait(Stream) -> proc_lib:hibernate(?MODULE, awake, [Stream]).

-spec awake(#stream{}) -> no_return().
awake(#stream{socket = Socket, is_chunked = IsChunked} = Stream) ->
    receive
        {halley, _} -> wait(take(false, Stream));
        beat -> ok = beat_later(), wait(take(true, Stream));
        {tcp, _, _} -> ok = inet:setopts(Socket, [{active, once}]), wait(Stream);
        {halley_closed, _} -> ok = send(["0\r\n\r\n" || IsChunked], Stream), ended(Stream);
        _ -> ended(Stream)
    end.

-spec ended(#stream{}) -> no_return().
ended(#stream{socket = Socket}) ->
    ok = gen_tcp:close(Socket),
    exit(normal).

beat_later() ->
    {ok, Ms} = application:get_env(halley_mochiweb, heartbeat_ms),
    _ = erlang:send_after(Ms, self(), beat),
    ok.

%% All that is there; signs that came meanwhile are answered by it.
take(Beats, #stream{user = User, cursor = Cursor, form = Form} = Stream) ->
    ok = flush(),
    case halley:read(User, Cursor, #{as => case Form of html -> data; _ -> json end}) of
        {ok, #{items := Items, cursor := Next, more := More}} ->
            Texts = [item(Form, Item) || Item <- Items] ++ [beat(Form, Next) || Beats, not More],
            Moved = Stream#stream{cursor = Next},
            ok = send([chunk(Text, Stream) || Text <- Texts], Moved),
            case More of true -> take(Beats, Moved); false -> Moved end;
        {error, unavailable} ->
            ended(Stream)
    end.

flush() -> receive {halley, _} -> flush() after 0 -> ok end.

item(sse, {event, #{cursor := C, json := Json}}) -> ["id: ", C, "\ndata: ", Json, "\n\n"];
item(ndjson, {event, #{cursor := C, json := <<${, Rest/binary>>}}) ->
    ["{\"cursor\":\"", C, "\",", Rest, $\n];
item(html, {event, #{data := Data}}) -> jiffy:encode(Data);
item(sse, {gap, #{cursor := C} = Gap}) -> ["event: gap\nid: ", C, "\ndata: {", gap(Gap), "}\n\n"];
item(ndjson, {gap, #{cursor := C} = Gap}) -> ["{\"cursor\":\"", C, "\",", gap(Gap), "}\n"];
item(html, {gap, _}) -> $\n.

gap(Gap) ->
    Times = maps:map(fun(_, Ms) -> case Ms of 0 -> null; _ -> Ms end end, Gap),
    ["\"gap\":", jiffy:encode(maps:with([from, to, reason], Times))].

beat(sse, Cursor) -> ["id: ", Cursor, "\n\n"];
beat(ndjson, Cursor) -> ["{\"cursor\":\"", Cursor, "\"}\n"];
beat(html, _) -> $\n.

chunk(Text, #stream{is_chunked = false}) -> Text;
chunk(Text, _) -> [integer_to_list(iolist_size([Text]), 16), "\r\n", Text, "\r\n"].

send(Data, #stream{socket = Socket} = Stream) ->
    case gen_tcp:send(Socket, Data) of ok -> ok; {error, _} -> ended(Stream) end.

%% Of a client that has left, `gone'; while the log stands still, `unavailable'. What a client sends
%% early is put back for mochiweb.
-spec poll(binary(), none | binary(), non_neg_integer(), Request :: tuple()) ->
    iodata() | gone | unavailable.
poll(User, Given, TimeoutMs, Request) ->
    Socket = mochiweb_request:get(socket, Request),
    ok = inet:setopts(Socket, [{active, once}, {packet, raw}]),
    Timer = erlang:start_timer(TimeoutMs, self(), poll),
    Answer = polled(User, halley:read(User, begun(Given), #{as => json}), Timer),
    _ = erlang:cancel_timer(Timer),
    _ = inet:setopts(Socket, [{active, false}]),
    receive {timeout, Timer, _} -> ok after 0 -> ok end,
    receive {tcp, _, Early} -> gen_tcp:unrecv(Socket, Early) after 0 -> ok end,
    ok = flush(),
    Answer.

polled(User, {ok, #{items := [], cursor := Next, more := false}} = Empty, Timer) ->
    receive
        {halley, _} -> polled(User, halley:read(User, Next, #{as => json}), Timer);
        {tcp_closed, _} -> gone;
        {timeout, Timer, _} -> answer(Empty);
        {halley_closed, _} -> answer(Empty)
    end;
polled(_, Result, _) ->
    answer(Result).

answer({error, unavailable}) ->
    unavailable;
answer({ok, #{items := Items, cursor := Next, more := More}}) ->
    ["{", [[gap(Gap), ","] || {gap, Gap} <- Items], "\"events\":[",
     lists:join(",", [Json || {event, #{json := Json}} <- Items]), "],\"cursor\":\"", Next, "\"",
     [",\"more\":true" || More], "}"].
