%% Properties of bodies: an answer doesn't depend on how its body was cut into chunks, and the price
%% of a body grows with its bytes. Bodies are those of events and follows, good ones, damaged ones
%% and noise; `make fuzz' runs the same for as long as wanted.
-module(prop_halley_api_bodies).
-include("support/halley_api_proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-export([prop_an_answer_knows_no_chunks/0, prop_cost_grows_with_the_bytes/0]).
-export([start/1, stop/1]).

-define(DATA_BYTES_MAX, 64).
%% The longest line of follows, and the longest event with so much data.
-define(BOUNDS, [4096, 2 * ?DATA_BYTES_MAX + 8192]).
%% Of one body and of one four times as long; the larger one is within the bound of one event.
-define(SMALL_BYTES, 30000).
-define(TIMES, 4).
%% What grows with the square costs 16 times as much. Below the least, what is counted is no loop.
-define(DEARER_MAX, 7).
-define(COST_MIN, 20000).
-define(COSTLY, [{{<<"POST">>, Path}, Type}
                 || {Path, Type} <- [{"/v1/events", <<"application/x-ndjson">>},
                                     {"/v1/events", <<"application/json">>},
                                     {"/v1/follows", <<"application/x-ndjson">>},
                                     {"/v1/follows", <<"text/plain">>}]]).

properties_test_() ->
    [property(Name, Tests) || {Name, Tests} <- [{prop_an_answer_knows_no_chunks, 1000},
                                                {prop_cost_grows_with_the_bytes, 20}]].

property(Name, Tests) ->
    Options = [{numtests, Tests}, quiet, {to_file, user}],
    Check = fun(_) ->
        {atom_to_list(Name), {timeout, 120, fun() ->
            ?assert(proper:quickcheck(?MODULE:Name(), Options))
        end}}
    end,
    {setup, fun() -> start(Name) end, fun stop/1, Check}.

%% A store and a publisher that put what they get into the answer: sums, since batches may end
%% elsewhere when a body comes in other chunks.
-spec start(Property :: atom()) -> ok.
start(Property) ->
    ok = halley_api_fake:start(),
    ok = halley_limits:set(limits(Property)),
    Stored = fun(Pairs) -> lists:sum([erlang:phash2(Pair) || Pair <- Pairs]) end,
    meck:expect(halley_follows, follow, fun(Pairs) ->
        {ok, #{added => Stored(Pairs), already => length(Pairs), errors => []}}
    end),
    meck:expect(halley_follows, unfollow, fun(Pairs) ->
        {ok, #{removed => Stored(Pairs), absent => length(Pairs), errors => []}}
    end),
    meck:expect(halley, publish, fun(Subject, Data, Opts) -> published({Subject, Data, Opts}) end),
    meck:expect(halley, publish_many, fun(Items) -> lists:map(fun published/1, Items) end),
    ok.

-spec stop(ok) -> ok.
stop(ok) ->
    ok = halley_limits:set(#{}),
    halley_api_fake:stop().

%% Events are short where their bound is to be met often.
limits(prop_an_answer_knows_no_chunks) -> #{event_data_bytes_max => ?DATA_BYTES_MAX};
limits(prop_cost_grows_with_the_bytes) -> #{}.

published(Item) ->
    {ok, #{id => integer_to_binary(erlang:phash2(Item, 1 bsl 32)), sessions => 2}}.

%% --- generators ----------------------------------------------------------------------------------

body() ->
    Parts = ?LET(Parts, list(frequency([{16, line()}, {8, piece()}, {2, binary()}, {1, long()}])),
                 iolist_to_binary(Parts)),
    frequency([{3, Parts}, {3, damaged(Parts)}, {1, damaged(line())}, {1, line()}]).

line() ->
    oneof([<<"{\"subject\":\"s\",\"data\":1}\n">>,
           <<"{\"data\":[{}],\"subject\":7,\"id\":\"i\"}\r\n">>,
           <<"{\"subject\":\"\\u00e4\",\"data\":\"\\ud83d\\ude00\",\"ack\":\"memory\"}\n">>,
           <<"{\"user\":1,\"subject\":\"s\"}\n">>, <<"{\"subject\":\"t\",\"user\":\"a b\"}\r\n">>,
           <<"ann bob\n">>, <<"1\t2\r\n">>, <<" 7  8 \n">>, <<"\n">>, <<" \t\r\n">>]).

piece() ->
    oneof([<<"{">>, <<"}">>, <<"[">>, <<"\"">>, <<"\\">>, <<"\\u00">>, <<"\\ud800">>, <<"1e999">>,
           <<"-">>, <<",">>, <<":">>, <<"null">>, <<"\"data\":">>, <<"\"subject\":">>, <<0>>,
           <<"\r">>, <<"\n">>, <<" ">>, <<195, 164>>, <<195>>, <<255>>, <<"ann">>]).

%% Around the bounds of a line: of follows, and of an event with its data.
long() ->
    ?LET({Byte, Bound, More}, {oneof("x1 {[\"\\"), oneof(?BOUNDS), range(-2, 2)},
         binary:copy(<<Byte>>, Bound + More)).

%% A few bytes are others, gone, or there twice.
damaged(Body) ->
    ?LET({Text, Changes}, {Body, list({oneof([put, insert, delete]), range(0, 1 bsl 20),
                                       range(0, 255)})},
         lists:foldl(fun damage/2, Text, lists:sublist(Changes, 4))).

damage(_, <<>>) ->
    <<>>;
damage({How, Place, Byte}, Text) ->
    At = Place rem byte_size(Text),
    <<Before:At/binary, There, After/binary>> = Text,
    case How of
        put -> <<Before/binary, Byte, After/binary>>;
        insert -> <<Before/binary, Byte, There, After/binary>>;
        delete -> <<Before/binary, After/binary>>
    end.

%% Sizes of chunks, empty ones among them, that are used again and again.
sizes() ->
    oneof([[1], [2], [7, 1], [4096], [1 bsl 20], list(range(0, 60)), list(range(0, 9000))]).

endpoint() ->
    {oneof([{<<"POST">>, "/v1/events"}, {<<"POST">>, "/v1/follows"},
            {<<"DELETE">>, "/v1/follows"}]),
     oneof([<<"application/json">>, <<"application/x-ndjson">>, <<"application/x-ndjson">>,
            <<"text/plain">>, <<>>])}.

cut(Body, Sizes) ->
    case lists:sum(Sizes) of
        0 -> [Body];
        _ -> cut(Body, Sizes, Sizes)
    end.

cut(<<>>, _, _) -> [];
cut(Body, [], All) -> cut(Body, All, All);
cut(Body, [Size | Sizes], All) ->
    N = min(Size, byte_size(Body)),
    <<Chunk:N/binary, Rest/binary>> = Body,
    [Chunk | cut(Rest, Sizes, All)].

%% --- properties ----------------------------------------------------------------------------------

prop_an_answer_knows_no_chunks() ->
    ?FORALL({{{Method, Path}, Type}, Body, Sizes}, {endpoint(), body(), sizes()},
            begin
                forget(),
                Ask = fun(Sent) -> answer(Method, Path, Type, Sent) end,
                Whole = {Status, Headers, _} = Ask({full, Body}),
                is_answer(Status, Headers)
                    andalso Whole =:= Ask(halley_api_fake:stream(cut(Body, Sizes)))
                    andalso Whole =:= Ask(halley_api_fake:stream(cut(Body, [1])))
            end).

%% With an error the answer stays what it is: its status, and a type.
is_answer(Status, Headers) ->
    Status >= 200 andalso Status < 500 andalso lists:keymember(<<"content-type">>, 1, Headers).

answer(Method, Path, Type, Body) ->
    {Status, Headers, Text} = halley_api_fake:call(api, Method, Path, Body, Type),
    {Status, lists:sort([{Name, iolist_to_binary(Value)} || {Name, Value} <- Headers]),
     iolist_to_binary(Text)}.

%% What the doubles remember of the calls would grow for ever.
forget() ->
    lists:foreach(fun meck:reset/1, [halley, halley_follows, halley_history, halley_metrics]).

%% One line, or part of one, again and again.
prop_cost_grows_with_the_bytes() ->
    ?FORALL({{{Method, Path}, Type}, Unit, Sizes},
            {oneof(?COSTLY), frequency([{3, piece()}, {2, line()}, {1, damaged(line())}]),
             oneof([[1], [1], [2], [7, 1], sizes()])},
            begin
                forget(),
                Cost = fun(Bytes) ->
                    Body = binary:copy(Unit, Bytes div max(1, byte_size(Unit))),
                    Chunks = cut(Body, Sizes),
                    cost(fun() -> answer(Method, Path, Type, halley_api_fake:stream(Chunks)) end)
                end,
                Cost(?TIMES * ?SMALL_BYTES) =< ?DEARER_MAX * (Cost(?SMALL_BYTES) + ?COST_MIN)
            end).

%% In reductions, which count bytes that are copied as well and which a busy machine doesn't change.
%% In a process of its own, so that what one leaves on the heap is not the next one's.
cost(Fun) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        {reductions, Before} = process_info(self(), reductions),
        _ = Fun(),
        {reductions, After} = process_info(self(), reductions),
        exit({cost, After - Before})
    end),
    receive {'DOWN', Monitor, process, Pid, {cost, Cost}} -> Cost end.
