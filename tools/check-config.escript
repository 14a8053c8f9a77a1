#!/usr/bin/env escript
%% Checks halley.conf and the environment as `./halley config' does, before anything is built: the
%% modules that this takes are compiled here, in memory, when they are first called.
-mode(compile).

-export([undefined_function/3, undefined_lambda/3]).

main([]) ->
    %% Where schemas and parts are found: by the names of applications' folders.
    Folder = string:trim(os:cmd("mktemp -d")),
    ok = lists:foreach(fun(App) -> add_path(App, Folder) end, filelib:wildcard("halley*", "apps")),
    process_flag(error_handler, ?MODULE),
    Checked = try halley_config:effective() after file:del_dir_r(Folder) end,
    case Checked of
        {ok, _} -> ok;
        {error, Lines} -> halley_command:failed(Lines)
    end.

add_path(App, Folder) ->
    Ebin = filename:join([Folder, App, "ebin"]),
    Source = filename:absname(filename:join("apps", App)),
    ok = filelib:ensure_dir(filename:join(Ebin, "x")),
    ok = file:make_symlink(filename:join(Source, "priv"), filename:join([Folder, App, "priv"])),
    ok = file:make_symlink(filename:join([Source, "src", App ++ ".app.src"]),
                           filename:join(Ebin, App ++ ".app")),
    true = code:add_patha(Ebin).

undefined_function(Module, Function, Arguments) ->
    case code:ensure_loaded(Module) of
        {module, Module} ->
            error_handler:undefined_function(Module, Function, Arguments);
        {error, _} ->
            ok = compile_source(Module, filelib:wildcard("apps/*/src/**/"
                                                         ++ atom_to_list(Module) ++ ".erl")),
            apply(Module, Function, Arguments)
    end.

undefined_lambda(Module, Fun, Arguments) ->
    error_handler:undefined_lambda(Module, Fun, Arguments).

compile_source(Module, [Source]) ->
    {ok, Module, Code} = compile:file(Source, [binary, {i, filename:dirname(Source)}]),
    {module, Module} = code:load_binary(Module, Source, Code),
    ok;
compile_source(Module, []) ->
    error({undef, Module}).
