%% A brain for the suites of the link: the whole of halley, in a directory of its own, and the
%% link's processes without the runner.
-module(halley_edge_test_brain).

-export([start/0, start/1, stop/1, limits/1]).
-export([handle/1, prepare/1, operate/1, operate_apart/1]).

%% On a busy machine.
-define(PUBLISH_MS_MAX, 60000).
%% A machine that stands still for seconds ends no link, unless a case is about that.
-define(LINK_MS_MAX, 60000).

start() ->
    start(#{}).

%% Limits: those that differ from the defaults.
start(Limits) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    ok = application:set_env(halley_edge, handler, ?MODULE),
    ok = limits(Limits),
    Starts = [fun halley_sup:start_link/0, fun halley_edge_link_sup:start_link/0,
              fun halley_edge_dialer:start_link/0],
    {ok, Keeper, _} = halley_test_keeper:start(Dir, Starts),
    Keeper.

%% Puts them in force, also for a brain that runs.
limits(Limits) ->
    halley_limits:set(maps:merge(#{publish_ms_max => ?PUBLISH_MS_MAX, silence_ms => ?LINK_MS_MAX,
                                   handshake_ms_max => ?LINK_MS_MAX}, Limits)).

stop(Keeper) ->
    halley_test_keeper:stop(Keeper).

%% What a small request publishes is its body, and the answer says what came of it.
prepare(#{path := [<<"publish">>, Subject], query := Query, body := {full, Body}}) ->
    Opts = maps:from_list([{id, Id} || {<<"id">>, Id} <- Query]),
    {publish, {Subject, {json, Body}, Opts}, fun told/1};
prepare(#{path := [<<"now">>]}) ->
    {answer, {200, [], <<"at once">>}};
prepare(#{path := [<<"crash">>, <<"now">>]}) ->
    error(on_purpose);
prepare(#{path := [<<"crash">>, <<"then">>], body := {full, Body}}) ->
    {publish, {<<"s">>, {json, Body}, #{}}, fun(_) -> error(on_purpose) end};
prepare(_) ->
    later.

told({ok, #{id := Id}}) -> {200, [], Id};
told({error, Reason}) -> {503, [], io_lib:format("~0p", [Reason])}.

%% The handler of the suites: the path says what it does.
handle(#{path := [<<"echo">>], body := {full, Body}} = Request) ->
    #{method := Method, query := Query, headers := Headers} = Request,
    Said = maps:get(<<"x-say">>, Headers, <<>>),
    {200, [{<<"content-type">>, <<"text/plain">>}],
     [Method, $\s, Body, $\s, Said, [[$\s, N, $=, V] || {N, V} <- Query]]};
handle(#{path := [<<"link">>], link := Link, has_room := HasRoom}) ->
    {200, [], [pid_to_list(Link), $\s, atom_to_list(HasRoom())]};
handle(#{path := [<<"crash">>]}) ->
    error(on_purpose);
handle(#{path := [<<"ask">>, <<"nobody">>]}) ->
    {200, [], gen_server:call(halley_edge_test_nobody, anything)};
handle(#{path := [<<"ask">>, <<"no-table">>]}) ->
    {200, [], ets:lookup(halley_edge_test_nobody, anything)};
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

%% Of operations likewise: the subject says what is done.
operate(#{what := publish, members := [{<<"subject">>, Subject}, {<<"data">>, Data}]}) ->
    {publish, {Subject, {json, Data}, #{}}, fun({ok, #{id := Id}}) -> {ok, Id} end};
operate(#{what := state, members := [{<<"data">>, Text}]}) ->
    {answer, {ok, Text}};
operate(#{what := unfollow}) ->
    error(on_purpose);
operate(#{what := subscribe, user := User, subject := Subject, last := 0}) ->
    {subscription, add, User, Subject, fun(Result) -> {ok, atom_to_binary(Result)} end};
operate(_) ->
    later.

operate_apart(#{subject := <<"echo">>, user := User, rights := Rights, last := Last} = Operation) ->
    true = is_map_key(link, Operation),
    {ok, [User, $\s, Rights, $\s, integer_to_binary(Last)]};
operate_apart(#{subject := <<"refuse">>}) ->
    {error, <<"{\"code\":\"no\"}">>};
operate_apart(#{subject := <<"nonsense">>}) ->
    not_an_answer;
operate_apart(#{subject := <<"big">>}) ->
    {ok, binary:copy(<<"x">>, 140000)};
operate_apart(#{subject := Subject}) ->
    handle(#{path => binary:split(Subject, <<"/">>)}).

count(Read, Bytes) ->
    case Read() of
        {ok, Chunk} -> count(Read, Bytes + byte_size(Chunk));
        done -> Bytes
    end.
