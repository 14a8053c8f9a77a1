%% Applications register their parts in their .app files.
-module(halley_part_tests).
-behaviour(halley_part).

-include_lib("eunit/include/eunit.hrl").

-export([settings/1, files/0, limits/0, counters/0, gauges/0, data/0, backup/1]).

settings(_) -> none.

files() -> ["probe.file"].

limits() -> [].

counters() -> [].

gauges() -> [].

data() -> [].

backup(_) -> none.

parts_are_found_in_the_code_path_test_() ->
    {setup,
     fun() ->
         Folder = string:trim(os:cmd("mktemp -d")),
         Before = halley_part:all(),
         Dirs = [app(Folder, "halley_probe", "{halley_part, halley_part_tests}"),
                 app(Folder, "halley_without", "{other, halley_part_tests}"),
                 app(Folder, "foreign", "{halley_part, halley_part_tests}")],
         ok = code:add_pathsa(Dirs),
         _ = persistent_term:erase(halley_part),
         {Folder, Before, Dirs}
     end,
     fun({Folder, _, Dirs}) ->
         _ = [code:del_path(Dir) || Dir <- Dirs],
         _ = persistent_term:erase(halley_part),
         file:del_dir_r(Folder)
     end,
     fun({_, Before, _}) ->
         [?_assertEqual(lists:usort([{halley_probe, halley_part_tests} | Before]),
                        halley_part:all()),
          %% Nothing was loaded for that.
          ?_assertNot(lists:keymember(halley_probe, 1, application:loaded_applications()))]
     end}.

app(Folder, Name, Env) ->
    Ebin = filename:join([Folder, Name, "ebin"]),
    File = filename:join(Ebin, Name ++ ".app"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, ["{application, ", Name, ", [{env, [", Env, "]}]}.\n"]),
    Ebin.

%% Missing files are named together, whichever parts read them later.
files_must_be_readable_test() ->
    {error, Lines} = halley_config_paths:check(#{"hooks.tls_ca" => "/nowhere/ca",
                                                 "remote.secret_file" => "/nowhere/secret",
                                                 "data.dir" => "/nowhere"}),
    ?assertEqual(["hooks.tls_ca = /nowhere/ca: cannot be read: no such file or directory",
                  "remote.secret_file = /nowhere/secret: cannot be read: no such file or "
                  "directory"],
                 lists:sort(string:split(Lines, "\n", all))).

%% A file that a part names is one of its keys.
files_are_keys_test() ->
    Keys = [Key || #{key := Key} <- halley_config:keys()],
    ?assertEqual([], lists:append([Part:files() || {_, Part} <- halley_part:all()]) -- Keys).
