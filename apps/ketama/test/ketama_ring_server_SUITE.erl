%% A ring that follows a file: cases are named after what happens to the file or the process.
%%
%% The looks are sent by hand (`look/1'), so that each case says itself how many there are.
-module(ketama_ring_server_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_testcase/2, end_per_testcase/2, log/2]).
-export([the_articles_calls/1, the_articles_file/1, reads_ask_no_process/1, file_changed/1,
         file_replaced/1, looks_by_itself/1, half_written/1, changed_within_the_second/1,
         settled_is_not_read/1, file_broken/1, broken_in_another_way/1, not_for_the_mode/1,
         file_gone/1, file_a_pipe/1, bad_at_the_start/1, killed/1, shut_down/1,
         two_rings/1, readers_during_changes/1, bad_options/1, strange_messages/1]).

-define(A, <<"10.0.0.1:11211">>).
-define(B, <<"10.0.0.2:11211">>).
%% Longer than any case.
-define(NO_LOOK, 3600000).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [the_articles_calls, the_articles_file, reads_ask_no_process, file_changed, file_replaced,
     looks_by_itself, half_written, changed_within_the_second, settled_is_not_read, file_broken,
     broken_in_another_way, not_for_the_mode, file_gone, file_a_pipe, bad_at_the_start, killed,
     shut_down, two_rings, readers_during_changes, bad_options, strange_messages].

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    File = filename:join(?config(priv_dir, Config), "ketama.servers"),
    write(File, [?A]),
    ok = logger:add_handler(?MODULE, ?MODULE, #{test => self(), level => notice}),
    [{file, File} | Config].

end_per_testcase(_, Config) ->
    ok = logger:remove_handler(?MODULE),
    _ = [begin exit(Pid, shutdown), receive {'EXIT', Pid, _} -> ok after 1000 -> ok end end
         || Name <- [ketama, other], Pid <- [whereis(Name)], is_pid(Pid)],
    _ = file:del_dir_r(?config(file, Config)),
    ok.

write(File, Names) -> ok = file:write_file(File, [[Name, "\t100\n"] || Name <- Names]).

start(Config) ->
    {ok, Pid} = ketama:start_link(?config(file, Config), #{look_ms => ?NO_LOOK}),
    Pid.

look(Pid) ->
    Pid ! look,
    ketama:status(ketama).

owners() -> lists:usort([ketama:getserver(Key) || Key <- ketama_test_rings:keys(100)]).

log(#{level := Level, msg := {Format, Values}}, #{test := Test}) when is_list(Values) ->
    Test ! {log, Level, lists:flatten(io_lib:format(Format, Values))};
log(_, _) ->
    ok.

%% What this case's file was said of, and nothing else that logs.
logged(Config) ->
    File = ?config(file, Config),
    receive
        {log, Level, Text} ->
            case string:prefix(Text, File ++ ": ") of
                nomatch -> logged(Config);
                Rest -> [{Level, lists:flatten(Rest)} | logged(Config)]
            end
    after 0 -> []
    end.

the_articles_calls(Config) ->
    File = ?config(file, Config),
    {ok, Pid} = ketama:start_link(File),
    ?assertEqual(Pid, whereis(ketama)),
    ?assertEqual(?A, ketama:getserver("user:123")),
    ?assertEqual(?A, ketama:getserver(<<"user:123">>)),
    ?assertEqual({error, {already_started, Pid}},
                 ketama:start_link(File, "/usr/bin/ketama_erlang_driver")),
    ?assertEqual(#{file => File, servers => 1, points => 160, error => none},
                 ketama:status(ketama)).

the_articles_file(Config) ->
    case filelib:is_file("/web/site/GLOBAL/ketama.servers") of
        true -> ok;
        false -> ?assertEqual({error, {file, enoent}}, ketama:start_link())
    end,
    ok = application:set_env(ketama, servers_file, ?config(file, Config)),
    try
        ?assertMatch({ok, _}, ketama:start_link()),
        ?assertEqual(?A, ketama:getserver("k"))
    after
        application:unset_env(ketama, servers_file)
    end.

reads_ask_no_process(Config) ->
    Pid = start(Config),
    ok = sys:suspend(Pid),
    ?assertEqual(?A, ketama:getserver("k")),
    ok = sys:resume(Pid),
    %% Nor is the ring copied: it's the same term each time.
    ?assert(erts_debug:same(ketama:ring(ketama), ketama:ring(ketama))).

file_changed(Config) ->
    Pid = start(Config),
    write(?config(file, Config), [?A, ?B]),
    ?assertMatch(#{servers := 1}, look(Pid)),
    ?assertMatch(#{servers := 2, points := 320, error := none}, look(Pid)),
    ?assertEqual([?A, ?B], owners()),
    ?assertEqual([{notice, "the ring is new, of 2 servers"}], logged(Config)).

file_replaced(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    write(File ++ ".new", [?B]),
    ok = file:rename(File ++ ".new", File),
    _ = [look(Pid) || _ <- [1, 2]],
    ?assertEqual([?B], owners()).

looks_by_itself(Config) ->
    {ok, _} = ketama:start_link(?config(file, Config), #{look_ms => 5}),
    write(?config(file, Config), [?B]),
    ?assertEqual(ok, wait(fun() -> owners() =:= [?B] end, 3000)).

wait(_, 0) -> error(waited_too_long);
wait(Holds, Times) ->
    case Holds() of
        true -> ok;
        false -> timer:sleep(10), wait(Holds, Times - 1)
    end.

%% Between two looks the file has a weight that lost its last digit, then half of a name.
half_written(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    _ = [begin
             ok = file:write_file(File, Text),
             ?assertMatch(#{servers := 1, error := none}, look(Pid))
         end || Text <- [[?A, " 100\n", ?B, " 10"], [?A, " 100\n", ?B, " 100\n10.0."],
                         [?A, " 100\n", ?B, " 100\n"]]],
    ?assertEqual([], logged(Config)),
    ?assertMatch(#{servers := 2}, look(Pid)).

%% As long as it was, and by a clock of whole seconds at the same time.
changed_within_the_second(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    _ = [begin
             write(File, [Name]),
             _ = [look(Pid) || _ <- [1, 2]],
             ?assertEqual([Name], owners())
         end || Name <- [?B, ?A, ?B, ?A]].

settled_is_not_read(Config) ->
    Pid = start(Config),
    timer:sleep(3100),
    _ = look(Pid),
    {module, _} = code:ensure_loaded(ketama_servers_file),
    1 = erlang:trace_pattern({ketama_servers_file, read, 1}, true, []),
    1 = erlang:trace(Pid, true, [call]),
    _ = [look(Pid) || _ <- [1, 2, 3]],
    receive {trace, Pid, call, _} -> error(read_again) after 0 -> ok end,
    write(?config(file, Config), [?B]),
    _ = look(Pid),
    receive {trace, Pid, call, {_, read, _}} -> ok after 30000 -> error(not_read) end,
    _ = look(Pid),
    ?assertEqual([?B], owners()).

file_broken(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    ok = file:write_file(File, [?A, " 100\n", ?B, " two\n"]),
    _ = [look(Pid) || _ <- lists:seq(1, 5)],
    ?assertEqual([?A], owners()),
    ?assertMatch(#{servers := 1, error := {line, 2, bad_weight}}, ketama:status(ketama)),
    ?assertMatch([{error, "line 2: the weight " ++ _}], logged(Config)),
    %% Mended.
    write(File, [?A, ?B]),
    _ = [look(Pid) || _ <- [1, 2]],
    ?assertMatch(#{servers := 2, error := none}, ketama:status(ketama)),
    %% Broken, then as it was: one look is enough.
    ok = file:write_file(File, "#"),
    _ = [look(Pid) || _ <- [1, 2]],
    ?assertMatch(#{servers := 2, error := no_servers}, ketama:status(ketama)),
    write(File, [?A, ?B]),
    ?assertMatch(#{servers := 2, error := none}, look(Pid)).

broken_in_another_way(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    _ = [begin
             ok = file:write_file(File, Text),
             _ = [look(Pid) || _ <- [1, 2, 3]]
         end || Text <- ["", "a\n", "b\n", [?A, " 100\n", binary:copy(<<"x">>, 30), " 1\n"]]],
    ?assertEqual([?A], owners()),
    ?assertMatch([{error, "it has no servers; the previous ring stays"},
                  {error, "line 1: there is no weight; the previous ring stays"},
                  {error, "line 1: there is no weight; the previous ring stays"},
                  {error, "line 2: the name has more than 23 bytes; the previous ring stays"}],
                 logged(Config)).

not_for_the_mode(Config) ->
    File = ?config(file, Config),
    {ok, Pid} = ketama:start_link(File, #{mode => spy, look_ms => ?NO_LOOK}),
    ok = file:write_file(File, "10.0.0.1:port 1\n"),
    _ = [look(Pid) || _ <- [1, 2]],
    ?assertEqual([?A], owners()),
    ?assertMatch(#{error := {bad_server, {<<"10.0.0.1:port">>, 1}}}, ketama:status(ketama)).

file_gone(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    ok = file:delete(File),
    _ = [look(Pid) || _ <- [1, 2, 3]],
    ?assertEqual([?A], owners()),
    ?assertMatch(#{error := {file, enoent}}, ketama:status(ketama)),
    ?assertEqual([{error, "no such file or directory; the previous ring stays"}],
                 logged(Config)),
    write(File, [?B]),
    _ = [look(Pid) || _ <- [1, 2]],
    ?assertEqual([?B], owners()),
    ?assertMatch(#{error := none}, ketama:status(ketama)).

%% Opening it would wait for a writer.
file_a_pipe(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    ok = file:delete(File),
    "" = os:cmd("mkfifo " ++ File),
    ?assertMatch(#{servers := 1, error := not_regular}, look(Pid)),
    ?assertEqual([?A], owners()).

bad_at_the_start(Config) ->
    File = ?config(file, Config),
    ok = file:write_file(File, "#\n"),
    ?assertEqual({error, no_servers}, ketama:start_link(File)),
    ok = file:write_file(File, [?A, " 1"]),
    ?assertEqual({error, {line, 1, bad_weight}}, ketama:start_link(File)),
    ok = file:delete(File),
    ?assertEqual({error, {file, enoent}}, ketama:start_link(File)),
    ?assertExit({noproc, _}, ketama:getserver("k")).

killed(Config) ->
    Pid = start(Config),
    exit(Pid, kill),
    receive {'EXIT', Pid, killed} -> ok end,
    ?assertEqual(?A, ketama:getserver("k")),
    write(?config(file, Config), [?B]),
    _ = start(Config),
    ?assertEqual(?B, ketama:getserver("k")).

shut_down(Config) ->
    Pid = start(Config),
    exit(Pid, shutdown),
    receive {'EXIT', Pid, shutdown} -> ok end,
    ?assertExit({noproc, _}, ketama:getserver("k")),
    ?assertExit({noproc, _}, ketama:ring(ketama)).

two_rings(Config) ->
    _ = start(Config),
    Other = ?config(file, Config) ++ ".other",
    write(Other, [?B]),
    {ok, _} = ketama:start_link(Other, #{name => other, mode => libmemcached}),
    ?assertEqual(?A, ketama:getserver("k")),
    ?assertEqual(?B, ketama:owner("k", ketama:ring(other))).

readers_during_changes(Config) ->
    File = ?config(file, Config),
    Pid = start(Config),
    Readers = [spawn_monitor(fun() -> read_until_stopped(0) end) || _ <- [1, 2, 3]],
    _ = [begin
             write(File, [list_to_binary("10.0.0." ++ integer_to_list(I))
                          || I <- lists:seq(1, N rem 7 + 1)]),
             _ = [look(Pid) || _ <- [1, 2]]
         end || N <- lists:seq(1, 40)],
    [begin
         Reader ! stop,
         receive {'DOWN', Monitor, process, Reader, Why} -> ?assertMatch({read, _}, Why) end
     end || {Reader, Monitor} <- Readers].

read_until_stopped(N) ->
    receive stop -> exit({read, N})
    after 0 ->
        <<"10.0.0.", _/binary>> = ketama:getserver(integer_to_binary(N)),
        read_until_stopped(N + 1)
    end.

bad_options(Config) ->
    File = ?config(file, Config),
    [?assertEqual({error, {bad_option, Name}}, ketama:start_link(File, Options))
     || {Name, Options} <- [{name, #{name => "k"}}, {name, #{name => undefined}},
                            {look_ms, #{look_ms => 0}}, {look_ms, #{look_ms => soon}},
                            {mode, #{mode => none}}, {look, #{look => 1}}]].

strange_messages(Config) ->
    Pid = start(Config),
    Pid ! anything,
    gen_server:cast(Pid, anything),
    ?assertEqual({error, unknown_call}, gen_server:call(Pid, anything)),
    ?assertMatch(#{servers := 1}, look(Pid)).
