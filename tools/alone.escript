#!/usr/bin/env escript
%% Whether `halley' can be in a release without the other applications of this tree, as
%% docs/guides/embedding.md promises: it calls nothing but itself, the applications that its .app
%% file names, and Mnesia, which such a release loads. Calls through the environment
%% (`halley_edge', `handler') are made by those applications alone.
%%
%%   escript tools/alone.escript _build/default/lib
-mode(compile).

main([Libraries]) ->
    {ok, _} = xref:start(alone),
    ok = xref:set_default(alone, [{warnings, false}, {verbose, false}]),
    {ok, halley} = xref:add_application(alone, filename:join(Libraries, "halley")),
    {ok, [{application, halley, Keys}]} =
        file:consult(filename:join([Libraries, "halley", "ebin", "halley.app"])),
    Known = [erts, mnesia | proplists:get_value(applications, Keys)],
    ok = xref:set_library_path(alone, [filename:join(code:lib_dir(App), "ebin") || App <- Known]),
    {ok, Undefined} = xref:analyze(alone, undefined_function_calls),
    [io:format("~p:~p/~p calls ~p:~p/~p, which no application in ~w has~n",
               [M, F, A, CalledM, CalledF, CalledA, Known])
     || {{M, F, A}, {CalledM, CalledF, CalledA}} <- Undefined],
    halt(case Undefined of [] -> 0; _ -> 1 end).
