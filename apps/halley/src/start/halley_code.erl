%% Loads code before it is needed.
%%
%% The release loads a module when it is called for the first time. If no descriptor is left then,
%% the call fails, and with it what was about to use the last of them, such as a replay. So what the
%% brain may call is loaded at its start. Applications that not everybody has configured load
%% theirs when they start. All that the release holds (`-mode embedded') would cost 30 MB
%% of memory instead of 3, most of it for what only reads the configuration.
-module(halley_code).

-export([load/0, load/1]).

-define(APPLICATIONS, [kernel, crypto, jiffy, halley, halley_edge, halley_api]).
%% What these call of stdlib, and what that calls in turn to do it or to say that it failed.
-define(MODULES, [base64, binary, calendar, erl_posix_msg, erl_scan, ets, filelib, filename,
                  gb_sets, gb_trees, gen, gen_event, gen_server, gen_statem, io, io_lib,
                  io_lib_format, io_lib_pretty, lists, maps, orddict, ordsets, proc_lib, proplists,
                  queue, rand, re, sets, string, supervisor, sys, timer, unicode, unicode_util,
                  uri_string]).

-spec load() -> ok.
load() ->
    lists:foreach(fun code:ensure_loaded/1, ?MODULES),
    load(?APPLICATIONS).

%% The modules of these. An application that isn't there, as in a test of a part, is passed over.
-spec load([Application :: atom()]) -> ok.
load(Applications) ->
    %% One after the other: all at once are in memory twice. What can't be loaded fails when it is
    %% called, as ever.
    lists:foreach(fun code:ensure_loaded/1, lists:append([modules(A) || A <- Applications])).

modules(Application) ->
    _ = application:load(Application),
    case application:get_key(Application, modules) of
        {ok, Modules} -> Modules;
        undefined -> []
    end.
