%% As much of the brain's core as a link needs, without its store: ids in memory, directory,
%% registry of links, metrics.
-module(halley_edge_test_brain).

-export([start/0, start/1, stop/1, handle/1]).

start() ->
    start(#{}).

%% Limits: those that differ from the defaults.
start(Limits) ->
    Starter = self(),
    Owner = spawn(fun() ->
        ok = halley_limits:set(Limits),
        halley_id_page = ets:new(halley_id_page, [named_table, public, ordered_set]),
        ok = halley_ids:new_tables(),
        ok = halley_metrics:new(),
        ok = halley_directory:new(),
        ok = halley_links:new(),
        {ok, _} = halley_ids:start_link(),
        {ok, _} = halley_directory:start_link(),
        {ok, _} = halley_links:start_link(),
        {ok, _} = halley_edge_link_sup:start_link(),
        {ok, _} = halley_edge_dialer:start_link(),
        Starter ! {self(), ready},
        receive stop -> ok end
    end),
    receive {Owner, ready} -> ok after 5000 -> error(no_test_brain) end,
    application:set_env(halley_edge, handler, ?MODULE),
    Owner.

stop(Owner) ->
    Names = [halley_edge_dialer, halley_edge_link_sup, halley_links, halley_directory, halley_ids],
    Monitors = [monitor(process, P) || P <- [Owner | lists:map(fun whereis/1, Names)], is_pid(P)],
    exit(Owner, shutdown),
    [receive {'DOWN', Monitor, _, _, _} -> ok after 5000 -> error(brain_does_not_stop) end
     || Monitor <- Monitors],
    ok.

%% The handler of the suites: the path says what it does.
handle(#{path := [<<"echo">>], body := {full, Body}} = Request) ->
    #{method := Method, query := Query, headers := Headers} = Request,
    Said = maps:get(<<"x-say">>, Headers, <<>>),
    {200, [{<<"content-type">>, <<"text/plain">>}],
     [Method, $\s, Body, $\s, Said, [[$\s, N, $=, V] || {N, V} <- Query]]};
handle(#{path := [<<"crash">>]}) ->
    error(on_purpose);
handle(#{path := [<<"nonsense">>]}) ->
    not_an_answer;
handle(#{path := [<<"heap">>]}) ->
    {200, [], integer_to_list(length(lists:seq(1, 100_000_000)))};
handle(#{path := [<<"big">>, Bytes]}) ->
    {200, [], binary:copy(<<"x">>, binary_to_integer(Bytes))};
handle(#{path := [<<"hang">>]}) ->
    register(hanging_handler, self()),
    receive never -> ok end;
handle(#{path := [<<"count">>], body := {stream, Read}}) ->
    {200, [], integer_to_list(count(Read, 0))};
handle(#{path := [<<"unread">>], body := {stream, _}}) ->
    register(hanging_handler, self()),
    receive never -> ok end.

count(Read, Bytes) ->
    case Read() of
        {ok, Chunk} -> count(Read, Bytes + byte_size(Chunk));
        done -> Bytes
    end.
