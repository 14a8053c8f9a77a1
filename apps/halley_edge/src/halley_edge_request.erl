%% A request as the handler sees it, made from what REQUEST carries (protocol/link.md 8), and an
%% answer as frames; the answer to an operation, too (20).
%%
%% Pure: bytes in, a map or frames out. It knows targets, queries and percent signs, not resources.
%% The edge has judged HTTP's syntax already; what it lets through of a target is judged here, with
%% a 400 for what isn't a path.
-module(halley_edge_request).

-export([parse/4, response/5, outcome/3, error_response/3, error_outcome/3]).
-export_type([parsed/0, answer/0]).

-include("halley_edge.hrl").

%% The handler's request without its body.
-type parsed() :: #{method := binary(), path := [binary()], query := [{binary(), binary()}],
                    headers := #{binary() => binary()}, listener := public | api}.
-type answer() :: halley_requests:response().

%% A body's share in one frame: small enough that heartbeats don't wait long behind it.
-define(BODY_BYTES, 65536).

%% Path segments and query come percent-decoded; `+' is a space in a query. A header that came
%% several times is one value with commas (RFC 9110 5.3).
-spec parse(public | api, Method :: binary(), Target :: binary(), halley_edge_codec:headers()) ->
    {ok, parsed()} | {error, answer()}.
parse(Listener, Method, Target, Headers) ->
    try
        {Path, Query} = split_target(Target),
        {ok, #{method => Method, path => segments(Path), query => parse_query(Query),
               headers => headers(Headers, #{}), listener => Listener}}
    catch
        throw:bad_target ->
            Message = <<"the request target is not a path with valid percent-encoding">>,
            {error, error_response(400, <<"bad_target">>, Message)}
    end.

split_target(<<$/, _/binary>> = Target) ->
    case binary:split(Target, <<"?">>) of
        [Path, Query] -> {Path, Query};
        [Path] -> {Path, <<>>}
    end;
split_target(<<"*">>) ->
    {<<"/">>, <<>>};
split_target(Target) ->
    %% The absolute form (RFC 9112 3.2.2): the authority is as good as Host, which nobody looks at.
    case Target of
        <<"http://", Rest/binary>> -> absolute(Rest);
        <<"https://", Rest/binary>> -> absolute(Rest);
        _ -> throw(bad_target)
    end.

absolute(Rest) ->
    case binary:match(Rest, [<<"/">>, <<"?">>]) of
        {At, 1} when At > 0 ->
            case binary:part(Rest, At, byte_size(Rest) - At) of
                <<$?, _/binary>> = Query -> split_target(<<$/, Query/binary>>);
                Path -> split_target(Path)
            end;
        nomatch when Rest =/= <<>> ->
            {<<"/">>, <<>>};
        _ ->
            throw(bad_target)
    end.

segments(<<"/">>) ->
    [];
segments(<<$/, Path/binary>>) ->
    [unescape(Segment) || Segment <- binary:split(Path, <<"/">>, [global])].

parse_query(<<>>) ->
    [];
parse_query(Query) ->
    [parameter(binary:split(Pair, <<"=">>))
     || Pair <- binary:split(Query, <<"&">>, [global]), Pair =/= <<>>].

parameter([Name, Value]) -> {form_unescape(Name), form_unescape(Value)};
parameter([Name]) -> {form_unescape(Name), <<>>}.

form_unescape(Text) ->
    case binary:match(Text, <<"+">>) of
        nomatch -> unescape(Text);
        _ -> unescape(binary:replace(Text, <<"+">>, <<" ">>, [global]))
    end.

unescape(Text) ->
    case binary:match(Text, <<"%">>) of
        nomatch -> Text;
        _ -> unescape(Text, <<>>)
    end.

unescape(<<$%, High, Low, Rest/binary>>, Done) ->
    unescape(Rest, <<Done/binary, (digit(High) * 16 + digit(Low))>>);
unescape(<<C, Rest/binary>>, Done) when C =/= $% ->
    unescape(Rest, <<Done/binary, C>>);
unescape(<<>>, Done) ->
    Done;
unescape(_, _) ->
    throw(bad_target).

digit(C) when C >= $0, C =< $9 -> C - $0;
digit(C) when C >= $a, C =< $f -> C - $a + 10;
digit(C) when C >= $A, C =< $F -> C - $A + 10;
digit(_) -> throw(bad_target).

headers([{Name, Value} | Rest], Map) ->
    case Map of
        #{Name := First} -> headers(Rest, Map#{Name := <<First/binary, ", ", Value/binary>>});
        #{} -> headers(Rest, Map#{Name => Value})
    end;
headers([], Map) ->
    Map.

%% RESPONSE and as many RESPONSE_BODY as the body needs, encoded. An answer that can't be encoded
%% crashes.
-spec response(halley_edge_codec:conn(), Status :: 100..599, [{binary(), iodata()}],
               Body :: iodata(), Flags :: 0 | 2) -> [binary(), ...].
response(Conn, Status, Headers, Body, Flags) when Status >= 100, Status =< 599 ->
    case iolist_size(Body) of
        Bytes when Bytes =< ?BODY_BYTES ->
            [frame({response, Conn, Status, Flags bor ?FLAG_END, Bytes, Headers, Body})];
        Bytes ->
            <<First:?BODY_BYTES/binary, Rest/binary>> = iolist_to_binary(Body),
            [frame({response, Conn, Status, Flags, Bytes, Headers, First}) | rest(Conn, Rest)]
    end.

rest(Conn, Rest) when byte_size(Rest) =< ?BODY_BYTES ->
    [frame({response_body, Conn, ?FLAG_END, Rest})];
rest(Conn, <<Part:?BODY_BYTES/binary, Rest/binary>>) ->
    [frame({response_body, Conn, 0, Part}) | rest(Conn, Rest)].

frame(Frame) ->
    iolist_to_binary(halley_edge_codec:encode(Frame)).

%% The error form of the API. Code and message are plain ASCII without quotes.
-spec error_response(400..599, Code :: binary(), Message :: binary()) -> answer().
error_response(Status, Code, Message) ->
    Retry = case Status of 503 -> [{<<"retry-after">>, <<"1">>}]; _ -> [] end,
    {Status, [{<<"content-type">>, <<"application/json">>} | Retry],
     [<<"{\"error\":{\"code\":\"">>, Code, <<"\",\"message\":\"">>, Message, <<"\"}}">>]}.

%% As many OPERATION_ANSWER as it needs, encoded.
-spec outcome(halley_edge_codec:conn(), Number :: non_neg_integer(), halley_requests:outcome()) ->
    [binary(), ...].
outcome(Conn, Number, {What, Json}) ->
    Flags = case What of ok -> 0; error -> ?FLAG_ERROR end,
    answers({Conn, Number, Flags}, iolist_to_binary(Json)).

answers(Whose, <<Part:?BODY_BYTES/binary, Rest/binary>>) when Rest =/= <<>> ->
    [answer(Whose, 0, Part) | answers(Whose, Rest)];
answers(Whose, Rest) ->
    [answer(Whose, ?FLAG_END, Rest)].

answer({Conn, Number, Flags}, End, Json) ->
    frame({operation_answer, Conn, Number, Flags bor End, Json}).

%% The same for an operation. Code and message are plain ASCII without quotes.
-spec error_outcome(Status :: 400..599, Code :: binary(), Message :: binary()) ->
    halley_requests:outcome().
error_outcome(Status, Code, Message) ->
    {error, [<<"{\"code\":\"">>, Code, <<"\",\"message\":\"">>, Message, $",
             [<<",\"retry_after_s\":1">> || Status =:= 503], $}]}.
