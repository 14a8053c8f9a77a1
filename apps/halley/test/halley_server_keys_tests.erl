%% Server keys: their form, `./halley key', and their effect in a running brain.
-module(halley_server_keys_tests).

-include_lib("eunit/include/eunit.hrl").
-include_lib("kernel/include/file.hrl").

-define(NOW_S, 1700000000).

%% --- one key -----------------------------------------------------------------------------------

a_key_opens_what_it_was_made_for_test() ->
    {Text, Key} = halley_server_key:new(<<"web">>, [publish], ?NOW_S),
    {Other, _} = halley_server_key:new(<<"web">>, [publish], ?NOW_S),
    ?assertMatch({match, _}, re:run(Text, "^hk_[0-9a-f]{16}_[0-9a-f]{64}$")),
    ?assertEqual({ok, maps:get(id, Key)}, halley_server_key:id(Text)),
    ?assert(halley_server_key:opens(Text, Key)),
    ?assertNot(halley_server_key:opens(Other, Key)),
    [?assertNot(halley_server_key:opens(changed(Text, At), Key))
     || At <- lists:seq(0, byte_size(Text) - 1)],
    ?assertEqual(error, halley_server_key:id(<<Text/binary, "0">>)).

changed(Text, At) ->
    <<Before:At/binary, C, After/binary>> = Text,
    <<Before/binary, (C bxor 1), After/binary>>.

%% What is stored gives the key back without its secret, and the secret can't be had from it.
a_line_holds_no_secret_test() ->
    {Text, Key} = halley_server_key:new(<<"web-1">>, [publish, read], ?NOW_S),
    Line = iolist_to_binary(halley_server_key:line(Key)),
    ?assertEqual({ok, Key}, halley_server_key:from_line(Line)),
    <<"hk_", _:16/binary, "_", Secret/binary>> = Text,
    ?assertEqual(nomatch, binary:match(Line, Secret)).

lines_that_are_no_keys_test_() ->
    {_, Key} = halley_server_key:new(<<"web">>, [read], ?NOW_S),
    Line = iolist_to_binary(halley_server_key:line(Key)),
    [?_assertEqual(error, halley_server_key:from_line(Bad))
     || Bad <- [<<>>, <<"{}">>, <<"null">>, binary_part(Line, 0, 50),
                binary:replace(Line, <<"\"read\"">>, <<"\"root\"">>),
                binary:replace(Line, <<"\"read\"">>, <<>>),
                binary:replace(Line, <<"\"web\"">>, <<"\"a b\"">>),
                binary:replace(Line, <<"\"web\"">>, <<"7">>),
                binary:replace(Line, <<"1700000000">>, <<"\"\"">>)]].

%% A key with a changed bit opens nothing, or has other rights: no damage goes unseen. An empty file
%% is told apart: the API is closed then.
every_damage_is_seen({Dir, _}) ->
    _ = create(Dir, <<"a">>, <<"read">>),
    _ = create(Dir, <<"b">>, <<"publish,admin">>),
    {ok, File} = file:read_file(halley_server_keys_file:path(Dir)),
    ?assertMatch({ok, {[_, _], closed}}, halley_server_keys_file:parse(File)),
    ?assertEqual({ok, {[], empty}}, halley_server_keys_file:parse(<<>>)),
    Size = byte_size(File),
    Flipped = [begin
                   <<Before:At/binary, Byte, After/binary>> = File,
                   <<Before/binary, (Byte bxor (1 bsl Bit)), After/binary>>
               end || At <- lists:seq(0, Size - 1), Bit <- lists:seq(0, 7)],
    Cut = [binary:part(File, 0, Left) || Left <- lists:seq(1, Size - 1)],
    ?assertEqual([], [Bytes || Bytes <- Flipped ++ Cut ++ [<<File/binary, "\n">>],
                               element(1, halley_server_keys_file:parse(Bytes)) =/= error]).

%% What a build before has written gives keys or a sentence that names the line; never more keys
%% than it had, and a key that it gives has scopes that there are.
damaged_files_test_() ->
    Line = fun(Name, Scopes) ->
        {_, Key} = halley_server_key:new(Name, Scopes, 7),
        halley_server_key:line(Key)
    end,
    Lines = [Line(Name, Scopes)
             || {Name, Scopes} <- [{<<"a">>, [publish]}, {<<"b-1">>, [read, admin]},
                                   {<<"c">>, [follow]}]],
    File = iolist_to_binary(Lines),
    Property = proper:forall(
        proper_types:list({proper_types:range(0, byte_size(File) - 1), proper_types:byte()}),
        fun(Changes) ->
            Damaged = lists:foldl(fun({At, Byte}, Bytes) ->
                <<Before:At/binary, _, After/binary>> = Bytes,
                <<Before/binary, Byte, After/binary>>
            end, File, Changes),
            case halley_server_keys_file:parse(Damaged) of
                {ok, {Keys, _}} ->
                    length(Keys) =< 3 andalso
                        lists:all(fun(#{scopes := Scopes}) ->
                            Scopes =/= [] andalso Scopes -- halley_server_key:scopes() =:= []
                        end, Keys);
                {error, Reason} ->
                    is_binary(unicode:characters_to_binary(Reason))
            end
        end),
    {timeout, 60, ?_assert(proper:quickcheck(Property, [{numtests, 1000}, quiet]))}.

scopes_test_() ->
    [?_assertEqual({ok, [publish, admin]}, halley_server_key:scopes(<<"admin,publish">>)),
     ?_assertMatch({error, _}, halley_server_key:scopes(<<>>)),
     ?_assertMatch({error, _}, halley_server_key:scopes(<<"publish,">>)),
     ?_assertMatch({error, _}, halley_server_key:scopes(<<"publish, read">>)),
     ?_assertMatch({error, _}, halley_server_key:scopes(<<"root">>))].

%% --- a running brain ---------------------------------------------------------------------------

brain_test_() ->
    Cases = [fun open_without_keys/1, fun a_new_key_works_at_once/1, fun revoked_is_refused/1,
             fun never_open_beyond_loopback/1, fun a_broken_file_changes_nothing/1,
             fun a_file_that_goes_changes_nothing/1, fun an_empty_file_changes_nothing/1,
             fun a_file_that_is_gone_at_the_start/1, fun keys_of_a_build_before/1,
             fun open_when_told/1, fun a_file_of_somebody_else/1, fun durable_names/1,
             fun every_damage_is_seen/1,
             fun headers/1, fun no_secret_in_the_state/1, fun as_often_as_it_may/1],
    {foreach, fun start/0, fun stop/1,
     [fun(Brain) -> {atom_to_list(name(Case)), {timeout, 120, fun() -> Case(Brain) end}} end
      || Case <- Cases]}.

name(Case) ->
    element(2, erlang:fun_info(Case, name)).

start() ->
    Dir = string:trim(os:cmd("mktemp -d")),
    application:set_env(halley, data_dir, Dir),
    application:set_env(halley, api_on_loopback, true),
    ok = meck:new(halley_metrics, [no_link]),
    meck:expect(halley_metrics, incr, fun(_) -> ok end),
    ok = logger:set_module_level(halley_server_keys, none),
    ok = halley_server_keys:new(),
    {ok, Pid} = halley_server_keys:start_link(),
    {Dir, Pid}.

stop({Dir, Pid}) ->
    ok = gen_server:stop(Pid),
    meck:unload(halley_metrics),
    ok = logger:unset_module_level(halley_server_keys),
    [application:unset_env(halley, Key) || Key <- [data_dir, api_on_loopback]],
    ok = file:del_dir_r(Dir).

create(Dir, Name, Scopes) ->
    {ok, Out, _} = run(Dir, [<<"create">>, Name, <<"--scope">>, Scopes]),
    string:trim(iolist_to_binary(Out)).

run(Dir, Arguments) ->
    halley_key_command:run(Arguments, Dir, ?NOW_S).

check(Text) ->
    halley_server_keys:check(<<"Bearer ", Text/binary>>).

until(Expected, Fun) ->
    until(Expected, Fun, 1200).

until(Expected, Fun, Tries) ->
    case Fun() of
        Expected -> ok;
        _ when Tries > 0 -> timer:sleep(50), until(Expected, Fun, Tries - 1);
        Other -> ?assertEqual(Expected, Other)
    end.

open_without_keys({Dir, _}) ->
    ?assertEqual(open, halley_server_keys:check(undefined)),
    ?assertMatch({ok, "there is no server key\n", _}, run(Dir, [<<"list">>])).

%% The first key is what makes keys needed, so that takes effect when the file is looked at; a
%% second one is looked for when it is shown.
a_new_key_works_at_once({Dir, _}) ->
    First = create(Dir, <<"web">>, <<"publish,read">>),
    until({ok, [publish, read]}, fun() -> check(First) end),
    ?assertEqual(missing, halley_server_keys:check(undefined)),
    Second = create(Dir, <<"import">>, <<"follow">>),
    ?assertEqual({ok, [follow]}, check(Second)),
    {ok, Table, _} = run(Dir, [<<"list">>]),
    [_, Web, Import] = string:lexemes(unicode:characters_to_list(Table), "\n"),
    ?assertMatch({match, _}, re:run(Web, "^web +[0-9a-f]{16}  publish,read +2023-11-14T22:13:20Z")),
    ?assertMatch({match, _}, re:run(Import, "^import +[0-9a-f]{16}  follow ")),
    {error, Line} = run(Dir, [<<"create">>, <<"web">>, <<"--scope">>, <<"read">>]),
    ?assert(string:find(Line, "already") =/= nomatch),
    {ok, #file_info{mode = Mode}} = file:read_file_info(halley_server_keys_file:path(Dir)),
    ?assertEqual(8#600, Mode band 8#777).

revoked_is_refused({Dir, _}) ->
    [First, Second] = [create(Dir, Name, <<"read">>) || Name <- [<<"a">>, <<"b">>]],
    until({ok, [read]}, fun() -> check(First) end),
    {ok, _, []} = run(Dir, [<<"revoke">>, <<"a">>]),
    until(unknown, fun() -> check(First) end),
    ?assertEqual({ok, [read]}, check(Second)),
    ?assertMatch({error, _}, run(Dir, [<<"revoke">>, <<"a">>])),
    {ok, _, Warning} = run(Dir, [<<"revoke">>, <<"b">>]),
    ?assert(string:find(Warning, "last key") =/= nomatch),
    until(unknown, fun() -> check(Second) end),
    ?assertEqual(missing, halley_server_keys:check(undefined)),
    ok = halley_server_keys:new(),
    ?assertEqual(missing, halley_server_keys:check(undefined)).

never_open_beyond_loopback({Dir, _}) ->
    application:set_env(halley, api_on_loopback, false),
    ok = halley_server_keys:new(),
    ?assertEqual(missing, halley_server_keys:check(undefined)),
    {error, Line} = halley_server_keys:check_start("0.0.0.0:8081"),
    [?assert(string:find(Line, Part) =/= nomatch)
     || Part <- ["api.listen: 0.0.0.0:8081", "./halley key create"]],
    ?assertEqual(ok, halley_server_keys:check_start("127.0.0.1:8081")),
    Key = create(Dir, <<"a">>, <<"read">>),
    ?assertEqual(ok, halley_server_keys:check_start("0.0.0.0:8081")),
    ?assertEqual({ok, [read]}, check(Key)),
    {ok, _, _} = run(Dir, [<<"revoke">>, <<"a">>]),
    until(unknown, fun() -> check(Key) end).

a_broken_file_changes_nothing({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    %% At once: a file that is written in place is empty at first.
    Path = halley_server_keys_file:path(Dir),
    ok = file:write_file(Path ++ ".new", "nonsense\n"),
    ok = file:rename(Path ++ ".new", Path),
    Errors = fun() -> meck:num_calls(halley_metrics, incr, [server_keys_errors]) end,
    until(1, Errors),
    timer:sleep(600),
    ?assertEqual(1, Errors()),
    ?assertEqual({ok, [read]}, check(Key)),
    {error, Line} = halley_server_keys:check_start("127.0.0.1:1"),
    ?assert(string:find(Line, "server-keys: line 1 is no server key") =/= nomatch),
    ?assertMatch({error, _}, run(Dir, [<<"create">>, <<"b">>, <<"--scope">>, <<"read">>])).

%% Nobody opens the API by removing a file.
a_file_that_goes_changes_nothing({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    ok = file:delete(halley_server_keys_file:path(Dir)),
    until(1, fun() -> meck:num_calls(halley_metrics, incr, [server_keys_errors]) end),
    ?assertEqual({ok, [read]}, check(Key)),
    ?assertEqual(missing, halley_server_keys:check(undefined)).

%% Issue 12, M4: "no keys after keys is closed, unless told".
an_empty_file_changes_nothing({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    Path = halley_server_keys_file:path(Dir),
    ok = file:write_file(Path, <<>>),
    until(1, fun() -> meck:num_calls(halley_metrics, incr, [server_keys_errors]) end),
    ?assertEqual({ok, [read]}, check(Key)),
    ?assertEqual(missing, halley_server_keys:check(undefined)),
    ok = halley_server_keys:new(),
    ?assertEqual(missing, halley_server_keys:check(undefined)),
    Next = create(Dir, <<"b">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Next) end).

a_file_that_is_gone_at_the_start({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    ok = file:delete(halley_server_keys_file:path(Dir)),
    ok = halley_server_keys:new(),
    ?assertEqual(unknown, check(Key)),
    ?assertEqual(missing, halley_server_keys:check(undefined)),
    {ok, List, _} = run(Dir, [<<"list">>]),
    ?assert(string:find(List, "refuses everybody") =/= nomatch).

keys_of_a_build_before({Dir, _}) ->
    _ = create(Dir, <<"a">>, <<"read">>),
    ok = file:delete(filename:join(Dir, "server-keys.made")),
    ok = halley_server_keys:new(),
    ok = file:delete(halley_server_keys_file:path(Dir)),
    ok = halley_server_keys:new(),
    ?assertEqual(missing, halley_server_keys:check(undefined)).

open_when_told({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    ?assertMatch({error, "there are server keys" ++ _}, run(Dir, [<<"open">>])),
    {ok, _, _} = run(Dir, [<<"revoke">>, <<"a">>]),
    until(unknown, fun() -> check(Key) end),
    ?assertMatch({ok, "opened\n", _}, run(Dir, [<<"open">>])),
    until(open, fun() -> halley_server_keys:check(undefined) end),
    ok = halley_server_keys:new(),
    ?assertEqual(open, halley_server_keys:check(undefined)),
    ?assertEqual({ok, "there is no server key\n", []}, run(Dir, [<<"list">>])),
    Next = create(Dir, <<"b">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Next) end),
    ?assertEqual(missing, halley_server_keys:check(undefined)).

%% Issue 12, L1. Only root can give a file away.
a_file_of_somebody_else({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    {ok, Before} = file:read_file(halley_server_keys_file:path(Dir)),
    Elsewhere = string:trim(os:cmd("mktemp -d")),
    Planted = create(Elsewhere, <<"mine">>, <<"admin">>),
    {ok, Bytes} = file:read_file(halley_server_keys_file:path(Elsewhere)),
    ok = file:del_dir_r(Elsewhere),
    Path = halley_server_keys_file:path(Dir),
    [begin
         ok = file:write_file(Path ++ ".planted", Bytes),
         ok = file:change_mode(Path ++ ".planted", Mode),
         Changed = file:change_owner(Path ++ ".planted", Uid),
         ok = file:rename(Path ++ ".planted", Path),
         Changed =:= ok andalso begin
             until(N, fun() -> meck:num_calls(halley_metrics, incr, [server_keys_errors]) end),
             ?assertEqual(unknown, check(Planted)),
             ?assertEqual({ok, [read]}, check(Key)),
             {error, Line} = halley_server_keys:check_start("127.0.0.1:1"),
             ?assertMatch({match, _}, re:run(Line, Says)),
             ?assertMatch({error, _}, run(Dir, [<<"list">>]))
         end,
         ok = file:write_file(Path, Before),
         ok = file:change_mode(Path, 8#600),
         _ = file:change_owner(Path, own_uid()),
         ok = gen_server:call(halley_server_keys, look, infinity)
     end || {N, Uid, Mode, Says} <- [{1, 65534, 8#644, "server-keys belongs to user 65534"},
                                     {2, own_uid(), 8#646, "others can write to .*server-keys"}]].

own_uid() -> list_to_integer(string:trim(os:cmd("id -u"))).

%% A key that was shown is in a file whose name is on disk, and so is one that was revoked.
durable_names({Dir, _}) ->
    Path = halley_server_keys_file:path(Dir),
    Replaced = [{open, Path ++ ".new"}, change_mode, write, sync, close],
    Named = [{rename, Path}, {open, Dir}, sync, close],
    %% That there were keys is on disk before the first one is.
    Remembered = [{open, Path ++ ".made"}, close, change_mode, {open, Dir}, sync, close],
    ?assertEqual(Replaced ++ Remembered ++ Named,
                 halley_file_steps:of_fun(fun() -> create(Dir, <<"a">>, <<"read">>) end)),
    ?assertEqual(Replaced ++ Named, halley_file_steps:of_fun(fun() ->
        {ok, _, _} = run(Dir, [<<"revoke">>, <<"a">>])
    end)),
    ?assertEqual({ok, {[], closed}}, halley_server_keys_file:read(Dir)).

full_disk_test_() -> halley_disk_helper:tests("64k", [{"a full disk", fun full_disk/1}]).

full_disk(Dir) ->
    _ = create(Dir, <<"a">>, <<"read">>),
    Before = file:read_file(halley_server_keys_file:path(Dir)),
    Filler = filename:join(Dir, "filler"),
    {error, enospc} = file:write_file(Filler, <<0:(8 * 65536)>>),
    Names = file:list_dir(Dir),
    {error, Line} = run(Dir, [<<"create">>, <<"b">>, <<"--scope">>, <<"read">>]),
    ?assertMatch({match, _}, re:run(Line, "server-keys: nothing was changed: no space left")),
    {error, _} = run(Dir, [<<"revoke">>, <<"a">>]),
    ?assertEqual(Before, file:read_file(halley_server_keys_file:path(Dir))),
    ?assertEqual(Names, file:list_dir(Dir)),
    ok = file:delete(Filler),
    _ = create(Dir, <<"b">>, <<"read">>).

headers({Dir, _}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    ?assertEqual({ok, [read]}, halley_server_keys:check(<<"bearer ", Key/binary>>)),
    [?assertEqual(missing, halley_server_keys:check(Header))
     || Header <- [undefined, <<>>, <<"Bearer">>, <<"Bearer ">>, <<"Basic ", Key/binary>>, Key,
                   <<"Bearer x">>, <<"Bearer ", Key/binary, " ">>, <<"Bearer hk_">>]],
    ?assertEqual(unknown, check(changed(Key, 4))),
    ?assertEqual(unknown, check(changed(Key, byte_size(Key) - 1))).

no_secret_in_the_state({Dir, Pid}) ->
    Key = create(Dir, <<"a">>, <<"read">>),
    until({ok, [read]}, fun() -> check(Key) end),
    <<"hk_", _:16/binary, "_", Secret/binary>> = Key,
    State = unicode:characters_to_binary(io_lib:format("~p", [sys:get_status(Pid, infinity)])),
    ?assertEqual(nomatch, binary:match(State, Secret)).

%% Each key for itself, and only who has the whole key; a file that changes gives nobody more.
as_often_as_it_may({Dir, _}) ->
    Keys = [Key, Other] = [create(Dir, Name, <<"read">>) || Name <- [<<"a">>, <<"b">>]],
    [until({ok, [read]}, fun() -> check(K) end) || K <- Keys],
    Clock = atomics:new(1, [{signed, true}]),
    PassS = fun(S) -> atomics:add(Clock, 1, S * 1_000_000_000) end,
    atomics:put(Clock, 1, erlang:monotonic_time(nanosecond)),
    meck:new(halley_rate, [passthrough, no_link]),
    meck:expect(halley_rate, take, fun(Meter, PerS) ->
        halley_rate:take(Meter, PerS, atomics:get(Clock, 1))
    end),
    try
        halley_limits:set(#{requests_per_s_per_key_max => 3}),
        PassS(60),
        [?assertEqual(unknown, check(changed(Key, byte_size(Key) - 1))) || _ <- lists:seq(1, 10)],
        [?assertEqual({ok, [read]}, check(Key)) || _ <- lists:seq(1, 3)],
        ?assertEqual({too_often, 1}, check(Key)),
        ?assertEqual({ok, [read]}, check(Other)),
        _ = create(Dir, <<"c">>, <<"read">>),
        ok = gen_server:call(halley_server_keys, look, infinity),
        ?assertEqual({too_often, 1}, check(Key)),
        PassS(1),
        ?assertEqual({ok, [read]}, check(Key))
    after
        meck:unload(halley_rate),
        halley_limits:set(#{})
    end.
