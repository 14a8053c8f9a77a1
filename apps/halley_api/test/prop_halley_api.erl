%% Properties: how a body is cut into chunks changes nothing, and no bytes crash a handler.
-module(prop_halley_api).
-include("halley_api_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-export([prop_cutting_changes_no_lines/0, prop_cutting_changes_no_import/0]).
-export([prop_any_bytes_are_answered/0, prop_data_is_kept/0]).

-define(BYTES_MAX, 12).

properties_test_() ->
    {setup, fun halley_api_fake:start/0, fun(_) -> halley_api_fake:stop() end, properties()}.

properties() ->
    [{atom_to_list(Name), {timeout, 60, ?_assert(proper:quickcheck(?MODULE:Name(), [{numtests, N}, quiet, {to_file, user}]))}}
     || {Name, N} <- [{prop_cutting_changes_no_lines, 500}, {prop_cutting_changes_no_import, 200},
                      {prop_any_bytes_are_answered, 500}, {prop_data_is_kept, 500}]].

%% --- generators ----------------------------------------------------------------------------------

%% Bodies of what matters to lines and JSON, and some noise.
body() ->
    ?LET(Parts, list(frequency([{6, oneof([<<"a b\n">>, <<"1 2\n">>, <<"x  y\r\n">>, <<"\n">>, <<"z">>, <<" ">>,
                                           <<"{\"user\":1,\"subject\":\"s\"}\n">>, <<"a b c\n">>,
                                           <<"{\"subject\":\"s\",\"data\":1}\n">>, <<"{">>, <<"\"">>])},
                                {1, binary()}])),
         iolist_to_binary(Parts)).

%% The same body in chunks, empty ones among them.
chunks(Body) ->
    ?LET(Sizes, list(range(0, 9)), cut(Body, Sizes)).

cut(<<>>, _) -> [];
cut(Body, []) -> [Body];
cut(Body, [Size | Sizes]) ->
    N = min(Size, byte_size(Body)),
    <<Chunk:N/binary, Rest/binary>> = Body,
    [Chunk | cut(Rest, Sizes)].

json() ->
    proper_types:sized(fun json/1).

json(0) ->
    oneof([integer(), float(), boolean(), null, ?LET(S, string(), unicode:characters_to_binary(valid(S)))]);
json(Size) ->
    oneof([json(0), list(json(Size div 4)),
           ?LET(Values, list(json(Size div 4)),
                {[{integer_to_binary(N), V} || {N, V} <- lists:zip(lists:seq(1, length(Values)), Values)]})]).

valid(String) ->
    [C || C <- String, C < 16#D800 orelse C > 16#DFFF].

%% --- properties ----------------------------------------------------------------------------------

prop_cutting_changes_no_lines() ->
    ?FORALL({Body, Chunks}, ?LET(B, body(), {B, chunks(B)}),
            lines([Body]) =:= lines(Chunks)).

%% Lines over the bound are compared by that alone: how much of one is kept depends on the cuts.
lines(Chunks) ->
    Feed = fun(Chunk, {Blocks, Lines}) ->
                   {Block, Next} = halley_api_lines:feed(Chunk, Lines),
                   {[Block | Blocks], Next}
           end,
    {Blocks, End} = lists:foldl(Feed, {[], halley_api_lines:new(?BYTES_MAX)}, Chunks),
    Text = iolist_to_binary(lists:reverse([halley_api_lines:finish(End) | Blocks])),
    [if byte_size(Line) > ?BYTES_MAX -> too_long; true -> Line end || Line <- halley_api_lines:split(Text)].

prop_cutting_changes_no_import() ->
    ?FORALL({Format, {Body, Chunks}}, {oneof([ndjson, edge_list, undeclared]), ?LET(B, body(), {B, chunks(B)})},
            begin
                Whole = import(Format, {full, Body}),
                ?WHENFAIL(io:format("~p~n~p~n", [Whole, import(Format, halley_api_fake:stream(Chunks))]),
                          import(Format, halley_api_fake:stream(Chunks)) =:= Whole)
            end).

import(Format, Body) ->
    Apply = fun(Pairs) -> {ok, #{added => length(Pairs), sum => erlang:phash2(Pairs), errors => []}} end,
    {ok, Outcome} = halley_api_import:run(#{body => Body}, Format, Apply),
    Outcome.

prop_any_bytes_are_answered() ->
    ?FORALL({Method, Listener, Path, Type, {Body, Chunks}},
            {oneof([<<"GET">>, <<"POST">>, <<"DELETE">>, <<"OPTIONS">>, binary()]),
             oneof([public, api, api, api]), path(),
             oneof([<<"application/json">>, <<"application/x-ndjson">>, <<"text/plain">>, binary()]),
             ?LET(B, oneof([body(), binary()]), {B, chunks(B)})},
            lists:all(fun(Sent) -> is_answered(Listener, Method, Path, Type, Sent) end,
                      [{full, Body}, halley_api_fake:stream(Chunks)])).

is_answered(Listener, Method, Path, Type, Body) ->
    Request = halley_api_fake:request(Listener, Method, Path, Body),
    {Status, _, Answer} = halley_api:handle(Request#{headers := #{<<"content-type">> => Type}}),
    is_integer(iolist_size(Answer)) andalso Status < 500.

path() ->
    oneof([[<<"v1">>, <<"events">>], [<<"v1">>, <<"events">>], [<<"v1">>, <<"follows">>], [<<"v1">>, <<"users">>, binary()],
           [<<"v1">>, <<"users">>, binary(), <<"following">>], [<<"v1">>, <<"subjects">>, binary(), <<"followers">>],
           [<<"v1">>, <<"users">>, binary(), <<"sessions">>], [<<"demo">>, binary()], list(binary())]).

%% What a publisher sends as data is what is published, byte for byte.
prop_data_is_kept() ->
    ?FORALL({Data, Spaces}, {json(), list(oneof([$\s, $\n, $\t, $\r]))},
            begin
                Text = iolist_to_binary(jiffy:encode(Data)),
                Body = iolist_to_binary(["{\"subject\":\"s\",", Spaces, "\"data\":", Spaces, Text, Spaces, "}"]),
                {ok, {<<"s">>, Kept, #{}}} = halley_api_event:parse(Body),
                Kept =:= Text
            end).
