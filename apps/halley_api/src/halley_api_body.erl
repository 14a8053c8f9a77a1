%% A request's body, whole or in chunks, and its media type.
%%
%% Reading a chunk from a streamed body is what grants the edge credit for the next (link.md 8.3),
%% so a handler that stops reading stops the client.
-module(halley_api_body).

-export([read/2, fold/3, media_type/1]).

%% Of 2^64 - 1. To make a number of more takes time.
-define(LENGTH_DIGITS_MAX, 20).

%% The whole body, if it has no more than `BytesMax' bytes. One whose announced length is more isn't
%% read at all (link.md 8.8).
-spec read(halley_api:request(), pos_integer()) -> {ok, binary()} | {error, too_large | closed}.
read(#{body := {full, Body}}, BytesMax) when byte_size(Body) =< BytesMax ->
    {ok, Body};
read(#{body := {full, _}}, _) ->
    {error, too_large};
read(#{headers := #{<<"halley-length">> := Length}}, _)
  when byte_size(Length) > ?LENGTH_DIGITS_MAX ->
    {error, too_large};
read(#{headers := #{<<"halley-length">> := Length}} = Request, BytesMax) ->
    case binary_to_integer(Length) of
        Bytes when Bytes > BytesMax -> {error, too_large};
        _ -> gather(Request, BytesMax)
    end;
read(Request, BytesMax) ->
    gather(Request, BytesMax).

gather(Request, BytesMax) ->
    Gather = fun(Chunk, {Size, _}) when Size + byte_size(Chunk) > BytesMax -> {stop, too_large};
                (Chunk, {Size, Chunks}) -> {ok, {Size + byte_size(Chunk), [Chunk | Chunks]}}
             end,
    case fold(Gather, {0, []}, Request) of
        {done, {_, Chunks}} -> {ok, iolist_to_binary(lists:reverse(Chunks))};
        {stop, too_large} -> {error, too_large};
        {closed, _} -> {error, closed}
    end.

%% Folds over a body's chunks as they arrive. `stop': the function wants no more; `closed': the
%% client left before the end.
-spec fold(fun((binary(), Acc) -> {ok, Acc} | {stop, Stop}), Acc, halley_api:request()) ->
    {done, Acc} | {stop, Stop} | {closed, Acc}.
fold(Fun, Acc, #{body := {full, Body}}) ->
    case Fun(Body, Acc) of
        {ok, End} -> {done, End};
        {stop, _} = Stop -> Stop
    end;
fold(Fun, Acc, #{body := {stream, Read}}) ->
    fold_stream(Fun, Acc, Read).

fold_stream(Fun, Acc, Read) ->
    case Read() of
        {ok, Chunk} ->
            case Fun(Chunk, Acc) of
                {ok, Next} -> fold_stream(Fun, Next, Read);
                {stop, _} = Stop -> Stop
            end;
        done -> {done, Acc};
        {error, closed} -> {closed, Acc}
    end.

%% The media type without parameters, lower case. `undeclared' stands for no type at all and for the
%% one that `curl -d' sends unasked.
-spec media_type(halley_api:request()) -> binary() | undeclared.
media_type(#{headers := #{<<"content-type">> := <<"application/json">> = Type}}) ->
    Type;
media_type(#{headers := #{<<"content-type">> := Value}}) ->
    [Type | _] = binary:split(Value, <<";">>),
    case << <<(lower(C))>> || <<C>> <= halley_api_lines:trim(Type) >> of
        <<>> -> undeclared;
        <<"application/x-www-form-urlencoded">> -> undeclared;
        Known -> Known
    end;
media_type(_) ->
    undeclared.

%% A header may be any bytes, so nothing is taken for text that isn't ASCII.
lower(C) when C >= $A, C =< $Z -> C + ($a - $A);
lower(C) -> C.
