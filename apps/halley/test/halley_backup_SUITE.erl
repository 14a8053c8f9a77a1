%% Backups of a store that changes meanwhile, made by an emulator of their own as `./halley backup'
%% makes them. The command and the history are in test/system/backup.test.mjs.
-module(halley_backup_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([while_checkpoints_are_made/1, a_damaged_store/1, a_full_disk/1]).

-import(halley_store_helper, [agree/0]).
-import(halley_damage_helper, [aged_store/1, damage/4, pairs/2]).

-define(BACKUPS, 6).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [while_checkpoints_are_made, a_damaged_store, a_full_disk].

init_per_suite(Config) -> halley_store_SUITE:init_per_suite(Config).
end_per_suite(Config) -> halley_store_SUITE:end_per_suite(Config).
init_per_testcase(Case, Config) -> halley_store_SUITE:init_per_testcase(Case, Config).
end_per_testcase(Case, Config) -> halley_store_SUITE:end_per_testcase(Case, Config).

%% What the emulator prints: `{ok, Result}' or `{error, Text}'.
backup(From, To) ->
    Eval = io_lib:format("R = halley_backup:run(~p, ~p, fun(_) -> ok end), "
                         "io:format(\"~~0tp.~~n\", [case R of {error, T} -> {error, "
                         "unicode:characters_to_list(T)}; _ -> R end]), halt().", [From, To]),
    Output = os:cmd("erl -noinput -start_epmd false -dist_listen false -kernel logger_level none"
                    " -pa " ++ filename:dirname(code:which(halley_store)) ++ " -eval '"
                    ++ lists:flatten(Eval) ++ "'"),
    {ok, Tokens, _} = erl_scan:string(Output),
    {ok, Result} = erl_parse:parse_term(Tokens),
    Result.

%% Each checkpoint deletes files that a backup may be about to read.
while_checkpoints_are_made(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "store"),
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow(pairs(1, 60000)),
    {ok, _} = halley_follows:unfollow(pairs(100, 50)),
    Self = self(),
    Writer = spawn_link(fun() -> write(Self, 100000, 0) end),
    Copies = [begin
        timer:sleep(100),
        Writer ! {acknowledged, self()},
        Last = receive {acknowledged, N} -> N end,
        Copy = Dir ++ "-copy-" ++ integer_to_list(I),
        {ok, #{follows := Count}} = backup(Dir, Copy),
        {Copy, Last, Count}
    end || I <- lists:seq(1, ?BACKUPS)],
    Writer ! stop,
    Checkpoints = receive {checkpoints, Made} -> Made end,
    ?assert(Checkpoints > 2 * ?BACKUPS),
    Asked = lists:sort(agree()),
    halley_store_helper:close(Sup),
    lists:foreach(fun({Copy, Last, Count}) ->
        Opened = halley_store_helper:open(Copy),
        Found = agree(),
        ?assertEqual(Count, length(Found)),
        %% All that was answered for, nothing that nobody asked for, and nothing between: a group
        %% that is there has all groups before it.
        Extra = [{U, S} || {U, S} <- Found, binary_to_integer(U) >= 100000],
        ?assert(length(Extra) >= Last - 100000),
        ?assertEqual(pairs(100000, length(Extra)),
                     lists:sort(fun({A, _}, {B, _}) ->
                                        binary_to_integer(A) =< binary_to_integer(B)
                                end, Extra)),
        ?assertEqual(length(Found) - length(Extra), 60000 - 50),
        ?assertEqual([], ordsets:subtract(lists:sort(Found), Asked)),
        {ok, #{added := 1}} = halley_follows:follow([{<<"new">>, <<"s1">>}]),
        halley_store_helper:close(Opened)
    end, Copies).

%% One follow at a time, and checkpoints without a pause.
write(Test, N, Checkpoints) ->
    {ok, _} = halley_follows:follow(pairs(N, 1)),
    ok = halley_follows_owner:checkpoint(),
    receive
        {acknowledged, Test} ->
            Test ! {acknowledged, N + 1},
            write(Test, N + 1, Checkpoints + 1);
        stop -> Test ! {checkpoints, Checkpoints + 1}
    after 0 -> write(Test, N + 1, Checkpoints + 1)
    end.

%% What others make up for is; what they can't is said, and nothing stays that could pass for a
%% backup.
a_damaged_store(Config) ->
    {Dir, _, Pairs, _} = aged_store(Config),
    [Older, Newest] = lists:sort(filelib:wildcard(filename:join([Dir, "follows", "checkpoint-*"]))),
    ok = damage(flip, 0.5, Newest, none),
    Copy = Dir ++ "-copy",
    {ok, #{follows := Count}} = backup(Dir, Copy),
    ?assertEqual(length(Pairs), Count),
    Sup = halley_store_helper:open(Copy),
    ?assertEqual(Pairs, lists:sort(agree())),
    halley_store_helper:close(Sup),
    ok = damage(flip, 0.5, Older, none),
    Other = Dir ++ "-other",
    {error, Text} = backup(Dir, Other),
    ?assertMatch({match, _}, re:run(Text, "checkpoint-[0-9a-f]+ .*`./halley repair`")),
    ?assertNot(filelib:is_file(Other)).

a_full_disk(Config) ->
    Small = halley_disk_helper:mount(proplists:get_value(dir, Config), "1m"),
    {Dir, _, _, _} = aged_store([{dir, proplists:get_value(priv_dir, Config)}]),
    halley_disk_helper:fill(Small, 50000),
    {error, Text} = backup(Dir, filename:join(Small, "copy")),
    ?assertMatch({match, _}, re:run(Text, "no space left on device")),
    ?assertEqual(["filler"], element(2, file:list_dir(Small))).
