%% The behaviour of applications that add rows to the brain's tables. The brain doesn't know these
%% applications: they register their parts, and the brain finds these.
%%
%% An application has a part if its .app file names a module with this behaviour in `env', as
%% `{halley_part, halley_hooks_part}', and the application's name begins with `halley_'. The keys of
%% its configuration are in its own folder, in priv/<application>.schema.
%%
%% Parts are found in the code path, not among the applications that are loaded or run: the
%% configuration is read before any application starts, and commands of `./halley' read it and
%% start none. So an application that is in the release has its keys, limits and metrics, whether
%% it is in use or not. The brain looks once, and keeps the list for as long as its node lives.
-module(halley_part).

-export([all/0]).
-export_type([copy/0]).

%% Copies into the folder of the backup, and returns how many bytes. It reports its progress in
%% words. A failure is thrown as by `halley_backup_files'.
-type copy() :: fun((To :: file:filename(), Progress :: fun((unicode:chardata()) -> ok)) ->
                        non_neg_integer()).

%% The meaning of the application's keys together: `Values' are named as in its schema, and
%% `store_backend' is that of the brain. What it returns is in the application's environment as
%% `settings' when that starts. The error is one line. It reads no file.
-callback settings(Values :: #{atom() => term()}) -> none | {ok, map()} | {error, iodata()}.

%% Keys that name files which must be readable at a start, as they are read later.
-callback files() -> [Key :: string()].

%% Rows of `halley_limits:table/0', which make the keys `limits.<name>'.
-callback limits() -> [halley_limits:row()].

-callback counters() -> [halley_metrics:counter()].

%% The application registers their values (`halley_metrics:gauges/2').
-callback gauges() -> [halley_metrics:gauge()].

%% Names of the application's files and folders in `data.dir'.
-callback data() -> [file:filename()].

%% Begins the backup of the application's files in `data.dir', before the follows are read; the fun
%% is called after them. It runs in a command, while the brain goes on or not.
-callback backup(DataDir :: file:filename()) -> none | copy().

%% By the names of the applications.
-spec all() -> [{App :: atom(), module()}].
all() ->
    case persistent_term:get(?MODULE, unknown) of
        unknown ->
            Found = lists:usort(lists:flatmap(fun in_folder/1, code:get_path())),
            ok = persistent_term:put(?MODULE, Found),
            Found;
        Found ->
            Found
    end.

in_folder(Ebin) ->
    [{App, Module} || File <- filelib:wildcard(filename:join(Ebin, "halley_*.app")),
                      {application, App, Keys} <- [description(File)],
                      {halley_part, Module} <- proplists:get_value(env, Keys, [])].

%% Without one of them keys would be unknown, and a backup would lack files.
description(File) ->
    case file:consult(File) of
        {ok, [Description]} -> Description;
        Other -> error({not_an_application, File, Other})
    end.
