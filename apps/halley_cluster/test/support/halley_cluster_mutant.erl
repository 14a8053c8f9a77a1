%% A module with a fault planted in its source, in place of the real one while a function runs.
-module(halley_cluster_mutant).

-export([with/3]).

%% `Changes': pairs of a text that the source has once, and of what it becomes.
with(Module, Changes, Fun) ->
    {Module, Real, File} = code:get_object_code(Module),
    Source = proplists:get_value(source, Module:module_info(compile)),
    {ok, Text} = file:read_file(Source),
    Changed = lists:foldl(fun({From, To}, Each) ->
                              [Before, After] = binary:split(Each, list_to_binary(From), [global]),
                              iolist_to_binary([Before, To, After])
                          end, Text, Changes),
    Copy = filename:join(string:trim(os:cmd("mktemp -d")), filename:basename(Source)),
    ok = file:write_file(Copy, Changed),
    try
        {ok, Module, Mutant} = compile:file(Copy, [binary, {i, filename:dirname(Source)},
                                                   nowarn_unused_vars, nowarn_unused_function]),
        ok = load(Module, Copy, Mutant),
        Fun()
    after
        ok = load(Module, File, Real),
        ok = file:del_dir_r(filename:dirname(Copy))
    end.

load(Module, File, Binary) ->
    _ = code:purge(Module),
    {module, Module} = code:load_binary(Module, File, Binary),
    ok.
