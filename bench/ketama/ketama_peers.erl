%% Holds apps/ketama against others: what peers.py says of pylibmc, memcached and libmemcached, and
%% the points of driver.c, whose arithmetic is C's.
%%
%% Everything is random, and the seed is printed. A difference is printed with its list and key, and
%% ends the run with `false'.
-module(ketama_peers).

-export([run/3]).

-define(PYTHON, "/usr/bin/python3").
-define(LISTS, 10000).
-define(KEYS, 10000).
-define(LISTS_OF_DRIVER, 500).
-define(SERVERS_OF_DRIVER, 1500).
-define(LINE_BYTES_MAX, 1048576).
-define(DIFFERENCES_SHOWN, 10).

-spec run(Here :: file:filename(), Scratch :: file:filename(), Driver :: file:filename()) ->
    boolean().
run(Here, Scratch, Driver) ->
    ketama_bench:head("What others answer, and ketama", "make ketama-peers"),
    Seed = list_to_integer(os:getenv("PEERS_SEED", integer_to_list(os:system_time(second)))),
    io:format("about: seed ~b (PEERS_SEED)~n", [Seed]),
    _ = rand:seed(exsss, Seed),
    Port = open_port({spawn_executable, ?PYTHON},
                     [{args, [filename:join(Here, "peers.py"), integer_to_list(Seed),
                              integer_to_list(?LISTS), integer_to_list(?KEYS)]},
                      {line, ?LINE_BYTES_MAX}, binary, exit_status]),
    Peers = lines(Port, #{}),
    All = Peers#{{<<"driver.c">>, <<"libketama">>, <<"-">>} => driver(Scratch, Driver)},
    io:format("~n| who answers | mode | hash of keys | lists | servers | answers | different |~n"
              "| --- | --- | --- | --- | --- | --- | --- |~n"),
    _ = [io:format("| ~ts | ~ts | ~ts | ~b | ~b to ~b | ~b | ~b |~n",
                   [Who, Mode, Hash, Lists, Fewest, Most, Answers, Different])
         || {{Who, Mode, Hash}, {Lists, Fewest, Most, Answers, Different}}
                <- lists:sort(maps:to_list(All))],
    Wrong = lists:sum([Different || {_, _, _, _, Different} <- maps:values(All)]),
    io:format("~n~b answers, ~b different~n",
              [lists:sum([Answers || {_, _, _, Answers, _} <- maps:values(All)]), Wrong]),
    Wrong =:= 0.

lines(Port, Counts) ->
    receive
        {Port, {data, {eol, <<"about ", Text/binary>>}}} ->
            io:format("about: ~ts~n", [Text]),
            lines(Port, Counts);
        {Port, {data, {eol, <<"case ", Text/binary>>}}} ->
            [Who, Mode, Hash, Servers, Answers] = binary:split(Text, <<" ">>, [global]),
            Result = compare(Mode, Hash, pairs(Servers), pairs(Answers)),
            lines(Port, counted({Who, Mode, Hash}, Result, Counts));
        {Port, {exit_status, 0}} ->
            Counts;
        {Port, {exit_status, Status}} ->
            error({peers_py, Status})
    end.

pairs(Text) ->
    [begin
         [Left, Right] = binary:split(Pair, <<"=">>),
         {Left, binary_to_integer(Right)}
     end || Pair <- binary:split(Text, <<";">>, [global])].

counted(What, {Servers, Answers, Different}, Counts) ->
    {Lists, Fewest, Most, Before, Wrong} = maps:get(What, Counts, {0, Servers, Servers, 0, 0}),
    Counts#{What => {Lists + 1, min(Fewest, Servers), max(Most, Servers), Before + Answers,
                     Wrong + Different}}.

compare(Mode, Hash, Servers, Answers) ->
    Ring = ketama:new(Servers, #{mode => mode(Mode), hash => hash(Hash)}),
    Names = list_to_tuple([Name || {Name, _} <- Servers]),
    Wrong = [{Key, Theirs, Ours} || {Hex, Index} <- Answers,
                                    Key <- [unhex(Hex)],
                                    Theirs <- [element(Index + 1, Names)],
                                    Ours <- [ketama:owner(Key, Ring)],
                                    Ours =/= Theirs],
    _ = [io:format("DIFFERENT ~ts ~ts: ~p~n  servers ~p~n", [Mode, Hash, One, Servers])
         || One <- lists:sublist(Wrong, ?DIFFERENCES_SHOWN)],
    {length(Servers), length(Answers), length(Wrong)}.

mode(<<"libmemcached">>) -> libmemcached;
mode(<<"libmemcached_unweighted">>) -> libmemcached_unweighted;
mode(<<"spy">>) -> spy.

hash(Name) ->
    hd([Hash || Hash <- [default, md5, crc, fnv1_64, fnv1a_64, fnv1_32, fnv1a_32],
                atom_to_binary(Hash) =:= Name]).

unhex(Hex) -> << <<(binary_to_integer(Digits, 16))>> || <<Digits:2/binary>> <= Hex >>.

%% All points of random lists; the answers counted are points.
driver(Scratch, Driver) ->
    lists:foldl(fun(_, {Lists, Fewest, Most, Points, Different}) ->
        {Count, Compared, Wrong} = points(Scratch, Driver),
        {Lists + 1, min(Fewest, Count), max(Most, Count), Points + Compared, Different + Wrong}
    end, {0, ?SERVERS_OF_DRIVER, 0, 0, 0}, lists:seq(1, ?LISTS_OF_DRIVER)).

points(Scratch, Driver) ->
    Count = rand:uniform(lists:nth(rand:uniform(8), [5, 30, 30, 100, 100, 100, 100,
                                                     ?SERVERS_OF_DRIVER])),
    Most = lists:nth(rand:uniform(4), [1, 10, 2000, 1 bsl 50]),
    Servers = ketama_bench:weights(ketama_bench:servers(Count), Most),
    File = filename:join(Scratch, "ketama.servers"),
    ok = ketama_bench:write(File, Servers),
    Theirs = os:cmd(Driver ++ " " ++ File ++ " points"),
    Points = ketama:points(ketama:new(Servers, #{mode => libketama})),
    Ours = [[integer_to_list(Point), $\s, binary_to_list(Name), $\n] || {Point, Name} <- Points],
    case lists:flatten(Ours) =:= Theirs of
        true -> {Count, length(Points), 0};
        false -> io:format("DIFFERENT points: ~p~n", [Servers]), {Count, length(Points), 1}
    end.
