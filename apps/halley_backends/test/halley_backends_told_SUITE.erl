%% Messages of the two sides about sessions that end, and their receivers: no process is left
%% without a message.
-module(halley_backends_told_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_testcase/2, end_per_testcase/2]).
-export([began/1, proxy_killed/1, late_proxy/1, message_of_another_proxy/1, closed_while_full/1,
         broken_while_full/1, metrics_without_transport/1, guide/1]).

-import(halley_backends_nodes, [call/4, wait/1]).
-import(halley_backends_case, [node_of/2, restart_brain/1, brain/4, back_end/3, process/3,
                               logged_in/2, publish/3, numbers/2, all_come/3, sessions/2,
                               until_done/1]).

-define(USER, <<"ann">>).
-define(SUBJECT, <<"news">>).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [began, proxy_killed, late_proxy, message_of_another_proxy, closed_while_full,
     broken_while_full, metrics_without_transport, guide].

init_per_testcase(Case, Config) ->
    Transport = transport(Case),
    halley_backends_case:start((limits(Case))#{transport => Transport}, #{transport => Transport},
                               fun(_) -> #{} end, Config).

limits(Case) when Case =:= closed_while_full; Case =:= broken_while_full ->
    #{remote_queue_bytes_max => 65536};
limits(_) -> #{}.

%% The link outlives that the back end stands still.
transport(Case) when Case =:= closed_while_full; Case =:= broken_while_full ->
    #{ping_ms => 50, silent_ms_max => 60000, connect_ms_max => 1000};
transport(_) -> #{ping_ms => 50, silent_ms_max => 1000, connect_ms_max => 1000}.

end_per_testcase(_, Config) -> halley_backends_case:stop(Config).

%% Where a session began isn't behind what is in its process's mailbox.
began(Config) ->
    First = logged_in(#{}, Config),
    Session = process(logged_in, [First], Config),
    Began = back_end(began, [Session], Config),
    ok = publish(1, 10, Config),
    ok = all_come(First, 10, Config),
    ok = wait(fun() -> back_end(cursor, [Session], Config) =/= Began end),
    ?assertEqual(Began, back_end(began, [Session], Config)),
    Second = logged_in(#{cursor => Began, takes => false}, Config),
    ok = wait(fun() ->
        {_, Waiting} = call(node_of(back_end, Config), erlang, process_info,
                            [Second, message_queue_len]),
        Waiting >= 10
    end),
    ?assertEqual(Began, back_end(began, [process(logged_in, [Second], Config)], Config)),
    ok = process(take, [Second], Config),
    ok = all_come(Second, 10, Config).

%% Who logged in is told, also if who tells it was killed itself, or the application is stopped.
proxy_killed(Config) ->
    Reader = logged_in(#{}, Config),
    ok = publish(1, 10, Config),
    ok = all_come(Reader, 10, Config),
    {halley, #{cursor := Last}} = lists:last(process(got, [Reader], Config)),
    _ = broken(fun() -> kill_proxy(Reader, Config) end, Reader, Config),
    ok = wait(fun() -> sessions(?USER, Config) =:= 0 end),
    ok = publish(11, 15, Config),
    {ok, Second} = process(reader, [?USER, #{cursor => Last}], Config),
    ok = wait(fun() -> length(numbers(Second, Config)) >= 5 end),
    ?assertEqual(lists:seq(11, 15), numbers(Second, Config)),
    true = call(node_of(back_end, Config), erlang, exit, [Second, kill]),
    %% None came: the message's cursor is that of the login.
    {ok, Third} = process(reader, [?USER, #{}], Config),
    BackEnd = node_of(back_end, Config),
    Watch = call(BackEnd, erlang, whereis, [halley_remote_watch]),
    true = call(BackEnd, erlang, exit, [Watch, kill]),
    Cursor = broken(fun() -> kill_proxy(Third, Config) end, Third, Config),
    ok = publish(16, 20, Config),
    {ok, Fourth} = process(reader, [?USER, #{cursor => Cursor}], Config),
    ok = wait(fun() -> length(numbers(Fourth, Config)) >= 5 end),
    ?assertEqual(lists:seq(16, 20), numbers(Fourth, Config)),
    _ = broken(fun() -> ok = call(BackEnd, application, stop, [halley_remote]) end, Fourth, Config).

kill_proxy(Reader, Config) ->
    Proxy = process(logged_in, [Reader], Config),
    true = call(node_of(back_end, Config), erlang, exit, [Proxy, kill]).

broken(Break, Reader, Config) ->
    _ = Break(),
    Told = fun() -> [C || {halley_broken, ?USER, C} <- process(got, [Reader], Config)] end,
    ok = wait(fun() -> Told() =/= [] end),
    [Cursor] = Told(),
    Cursor.

%% It stands still while the brain starts again and another one logs in; its login of before isn't
%% that one's.
late_proxy(Config) ->
    Late = logged_in(#{}, Config),
    Proxy = process(logged_in, [Late], Config),
    BackEnd = node_of(back_end, Config),
    ok = call(BackEnd, sys, suspend, [Proxy]),
    ok = halley_backends_nodes:kill(node_of(brain, Config)),
    ok = restart_brain(Config),
    ok = until_done(fun() -> back_end(follow, [<<"bob">>, ?SUBJECT], Config) end),
    {ok, Other} = until_done(fun() -> process(reader, [<<"bob">>, #{}], Config) end),
    ok = call(BackEnd, sys, resume, [Proxy]),
    ok = wait(fun() -> sessions(?USER, Config) =:= 1 end),
    ok = publish(1, 20, Config),
    ok = all_come(Late, 20, Config),
    ok = all_come(Other, 20, Config).

%% A session is that of its proxy alone.
message_of_another_proxy(Config) ->
    Reader = logged_in(#{}, Config),
    Proxy = process(logged_in, [Reader], Config),
    Other = call(node_of(back_end, Config), erlang, whereis, [init]),
    [{Id, {Session, Proxy}}] = brain_sessions(Config),
    _ = [{_, true} = {brain(erlang, send, [halley_backends, Message], Config),
                      lists:keymember(Id, 1, brain_sessions(Config))}
         || Message <- [{logout, Id, Other}, {acknowledge, Id, Other}, {logout, Id + 1, Proxy}]],
    _ = brain(sys, get_state, [Session], Config),
    ?assertEqual(1, sessions(?USER, Config)),
    _ = brain(erlang, send, [halley_backends, {logout, Id, Proxy}], Config),
    ok = wait(fun() -> sessions(?USER, Config) =:= 0 end).

brain_sessions(Config) ->
    maps:to_list(element(3, brain(sys, get_state, [halley_backends], Config))).

closed_while_full(Config) ->
    Reader = logged_in(#{}, Config),
    ok = while_full(fun() -> {ok, 1} = brain(halley, close_sessions, [?USER], Config) end, Config),
    ok = wait(fun() -> process(got, [Reader], Config) =:= [{halley_closed, ?USER}] end),
    ok = wait(fun() -> brain_sessions(Config) =:= [] end).

broken_while_full(Config) ->
    Reader = logged_in(#{}, Config),
    ok = while_full(fun() ->
        [{_, {Session, _}}] = brain_sessions(Config),
        true = brain(erlang, exit, [Session, kill], Config),
        ok = wait(fun() -> sessions(?USER, Config) =:= 0 end)
    end, Config),
    ok = publish(1, 20, Config),
    ok = all_come(Reader, 20, Config),
    ?assertMatch([_], brain_sessions(Config)).

%% The back end stands still, and there is no room for anything that is sent to it.
while_full(Do, Config) ->
    BackEnd = {_, Name} = node_of(back_end, Config),
    {ok, _} = back_end(presence, [?USER], Config),
    _ = halley_backends_nodes:freeze(BackEnd),
    ok = brain(halley_backends_nodes, fill, [Name], Config),
    _ = Do(),
    %% Longer than between two tries.
    timer:sleep(100),
    _ = halley_backends_nodes:thaw(BackEnd),
    ok.


%% While it starts anew.
metrics_without_transport(Config) ->
    _ = logged_in(#{}, Config),
    {_, Node} = node_of(back_end, Config),
    ok = brain(sys, suspend, [halley_backends], Config),
    ok = brain(application, stop, [teleport], Config),
    Up = iolist_to_binary(["halley_remote_up{node=\"", atom_to_binary(Node), "\"}"]),
    ?assertMatch(#{Up := 0, <<"halley_remote_sessions">> := _, <<"halley_follows">> := 1},
                 brain(halley_metrics, values, [], Config)),
    ok = brain(sys, resume, [halley_backends], Config),
    ok = wait(fun() -> sessions(?USER, Config) =:= 1 end).

%% docs/guides/back-ends.md: its module, as it stands there.
guide(Config) ->
    Source = proplists:get_value(source, ?MODULE:module_info(compile)),
    Root = filename:join([filename:dirname(Source), "..", "..", ".."]),
    {ok, Text} = file:read_file(filename:join([Root, "docs", "guides", "back-ends.md"])),
    {match, [Code]} = re:run(Text, "^```erlang\n(-module\\(desk\\).*?)^```$",
                             [multiline, dotall, {capture, all_but_first, binary}]),
    File = filename:join(?config(dir, Config), "desk.erl"),
    ok = file:write_file(File, Code),
    {ok, desk, Desk} = compile:file(File, [binary, return_errors, warnings_as_errors]),
    BackEnd = node_of(back_end, Config),
    {module, desk} = call(BackEnd, code, load_binary, [desk, File, Desk]),
    Clerk = call(BackEnd, erlang, spawn, [desk, open, [#{}]]),
    {ok, Customer} = process(reader, [?USER, #{}], Config),
    ok = wait(fun() -> sessions(<<"desk">>, Config) =:= 1 end),
    ok = answered(<<"first">>, Customer, Config),
    [Proxy] = [Pid || {_, {_, Pid}} <- brain_sessions(Config), Pid =/= proxy(Customer, Config)],
    true = call(BackEnd, erlang, exit, [Proxy, kill]),
    ok = answered(<<"second">>, Customer, Config),
    {ok, 1} = brain(halley, close_sessions, [<<"desk">>], Config),
    ok = wait(fun() -> not call(BackEnd, erlang, is_process_alive, [Clerk]) end).

proxy(Reader, Config) -> process(logged_in, [Reader], Config).

%% Once, to the customer.
answered(Id, Customer, Config) ->
    {ok, _} = brain(halley, publish, [<<"orders">>, #{customer => ?USER}, #{id => Id}], Config),
    Answers = fun() ->
        [true || {halley, #{private := true, data := #{<<"order">> := Order}}}
                     <- process(got, [Customer], Config), Order =:= Id]
    end,
    ok = wait(fun() -> Answers() =/= [] end),
    ?assertEqual([true], Answers()),
    ok.
