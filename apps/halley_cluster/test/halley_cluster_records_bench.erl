%% The time for writing and reading the body of a row, by the event: 100 events of 150 bytes of
%% data. To be run by hand:
%%
%%   erl -noshell -pa ... -run halley_cluster_records_bench main
-module(halley_cluster_records_bench).

-export([main/0]).

-define(ROUNDS, 60).
-define(TIMES, 50).
-define(EVENTS, 100).
-define(DATA_BYTES, 150).

main() ->
    Records = [record(N) || N <- lists:seq(1, ?EVENTS)],
    Proposal = halley_cluster_records:proposal(Records),
    Portions = [{<<0:128>>, maps:get(records, Proposal)}],
    Body = halley_cluster_records:body(1, Portions),
    io:format("a body of ~b events: ~b bytes~n", [?EVENTS, byte_size(Body)]),
    measure("records of a proposal", fun() -> halley_cluster_records:proposal(Records) end),
    measure("body of its bytes", fun() -> halley_cluster_records:body(1, Portions) end),
    measure("decode", fun() -> {ok, _, _} = halley_cluster_records:decode(Body) end),
    halt(0).

%% The same text for each event, as a subject has it.
record(N) ->
    Data = iolist_to_binary(["{\"n\":", integer_to_list(N), ",\"text\":\"",
                             lists:duplicate(?DATA_BYTES - 20, $x), "\"}"]),
    {event, halley_event:draft(generated, <<"room/", (integer_to_binary(N))/binary>>, Data)}.

measure(What, Fun) ->
    Us = lists:sort([round_of(Fun) || _ <- lists:seq(1, ?ROUNDS)]),
    io:format("~s: ~.3f us an event, median of ~b rounds (the least: ~.3f)~n",
              [What, lists:nth(?ROUNDS div 2, Us), ?ROUNDS, hd(Us)]).

round_of(Fun) ->
    {Us, ok} = timer:tc(fun() -> times(?TIMES, Fun) end),
    Us / (?TIMES * ?EVENTS).

times(0, _) ->
    ok;
times(N, Fun) ->
    _ = Fun(),
    times(N - 1, Fun).
