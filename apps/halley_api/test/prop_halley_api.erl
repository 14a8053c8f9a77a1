%% Properties: how a body is cut into chunks changes nothing, and no bytes crash a handler.
-module(prop_halley_api).
-include("support/halley_api_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-export([prop_cutting_changes_no_lines/0, prop_cutting_changes_no_import/0]).
-export([prop_any_bytes_are_answered/0, prop_data_is_kept/0]).

-define(BYTES_MAX, 12).

properties_test_() ->
    {setup, fun halley_api_fake:start/0, fun(_) -> halley_api_fake:stop() end,
     [property(Name, Tests) || {Name, Tests} <- [{prop_cutting_changes_no_lines, 500},
                                                 {prop_cutting_changes_no_import, 200},
                                                 {prop_any_bytes_are_answered, 2000},
                                                 {prop_data_is_kept, 500}]]}.

property(Name, Tests) ->
    Options = [{numtests, Tests}, quiet, {to_file, user}],
    Check = fun() -> ?assert(proper:quickcheck(?MODULE:Name(), Options)) end,
    {atom_to_list(Name), {timeout, 60, Check}}.

%% --- generators ----------------------------------------------------------------------------------

%% Bodies of what matters to lines and JSON, and some noise.
body() ->
    Part = oneof([<<"a b\n">>, <<"1 2\n">>, <<"x  y\r\n">>, <<"\n">>, <<"z">>, <<" ">>, <<"{">>,
                  <<"a b c\n">>, <<"\"">>, <<"{\"user\":1,\"subject\":\"s\"}\n">>,
                  <<"{\"subject\":\"s\",\"data\":1}\n">>,
                  <<"{\"ack\":\"memory\",\"subject\":\"s\",\"data\":1}\n">>, <<"{\"ack\":">>]),
    ?LET(Parts, list(frequency([{6, Part}, {1, binary()}])), iolist_to_binary(Parts)).

%% A body, and the same in chunks, empty ones among them.
body_and_chunks(Body) ->
    ?LET({Whole, Sizes}, {Body, list(range(0, 9))}, {Whole, cut(Whole, Sizes)}).

cut(<<>>, _) -> [];
cut(Body, []) -> [Body];
cut(Body, [Size | Sizes]) ->
    N = min(Size, byte_size(Body)),
    <<Chunk:N/binary, Rest/binary>> = Body,
    [Chunk | cut(Rest, Sizes)].

json() ->
    proper_types:sized(fun json/1).

json(0) ->
    Text = ?LET(Chars, string(), unicode:characters_to_binary([C || C <- Chars, is_character(C)])),
    oneof([integer(), float(), boolean(), null, Text]);
json(Size) ->
    Object = ?LET(Values, list(json(Size div 4)), {lists:map(fun(V) -> {<<"m">>, V} end, Values)}),
    oneof([json(0), list(json(Size div 4)), Object]).

is_character(C) ->
    C < 16#D800 orelse C > 16#DFFF.

path() ->
    Text = ?LET(Bytes, list(range(0, 255)), [B || B <- Bytes, B =/= $/]),
    oneof(["/v1/events", "/v1/events", "/v1/follows", "/v1/follows", "/demo"
           | [?LET(T, Text, Before ++ T ++ After)
              || {Before, After} <- [{"/v1/users/", ""}, {"/v1/users/", "/following"}, {"/", ""},
                                     {"/v1/subjects/", "/followers"}, {"/v1/users/", "/sessions"},
                                     {"/demo/", ""}, {"/v1/events/", "/trace"}]]]).

%% --- properties ----------------------------------------------------------------------------------

prop_cutting_changes_no_lines() ->
    ?FORALL({Body, Chunks}, body_and_chunks(body()), lines([Body]) =:= lines(Chunks)).

%% Lines over the bound are compared by that alone: how much of one is kept depends on the cuts.
lines(Chunks) ->
    Feed = fun(Chunk, {Blocks, Lines}) ->
                   {Block, Next} = halley_api_lines:feed(Chunk, Lines),
                   {[Block | Blocks], Next}
           end,
    {Blocks, End} = lists:foldl(Feed, {[], halley_api_lines:new(?BYTES_MAX)}, Chunks),
    Text = iolist_to_binary(lists:reverse([halley_api_lines:finish(End) | Blocks])),
    [if byte_size(Line) > ?BYTES_MAX -> too_long; true -> Line end
     || Line <- halley_api_lines:split(Text)].

prop_cutting_changes_no_import() ->
    Format = oneof([ndjson, edge_list, undeclared]),
    ?FORALL({Declared, {Body, Chunks}}, {Format, body_and_chunks(body())},
            import(Declared, {full, Body}) =:= import(Declared, halley_api_fake:stream(Chunks))).

import(Format, Body) ->
    Apply = fun(Pairs) ->
                    {ok, #{added => length(Pairs), hash => erlang:phash2(Pairs), errors => []}}
            end,
    {ok, Outcome} = halley_api_import:run(#{body => Body}, Format, Apply),
    Outcome.

prop_any_bytes_are_answered() ->
    Method = oneof([<<"GET">>, <<"POST">>, <<"DELETE">>, <<"OPTIONS">>, binary()]),
    Type = oneof([<<"application/json">>, <<"application/x-ndjson">>, <<"text/plain">>, binary()]),
    ?FORALL({Listener, Name, Path, Declared, {Body, Chunks}},
            {oneof([public, api, api, api]), Method, path(), Type,
             body_and_chunks(oneof([body(), binary()]))},
            lists:all(fun(Sent) -> is_answered(Listener, Name, Path, Sent, Declared) end,
                      [{full, Body}, halley_api_fake:stream(Chunks)])).

%% A crash is shown here: Debian's PropEr asks for its stack in a way that OTP no longer knows.
is_answered(Listener, Method, Path, Body, Type) ->
    try
        {Status, _, Answer} = halley_api_fake:call(Listener, Method, Path, Body, Type),
        is_integer(iolist_size(Answer)) andalso Status < 500
    catch
        Class:Reason:Stack ->
            io:format(user, "~ts ~tp~n~tp~n", [Method, Path, {Class, Reason, Stack}]),
            false
    end.

%% What a publisher sends as data is what is published, byte for byte.
prop_data_is_kept() ->
    ?FORALL({Data, Space}, {json(), list(oneof([$\s, $\n, $\t, $\r]))},
            begin
                Text = iolist_to_binary(jiffy:encode(Data)),
                Body = ["{\"subject\":\"s\",", Space, "\"data\":", Space, Text, Space, "}"],
                {ok, {<<"s">>, Kept, #{}}} = halley_api_event:parse(iolist_to_binary(Body)),
                Kept =:= Text
            end).
