%% The files that the configuration names and a start doesn't read, as they are read when they are
%% needed. One that isn't there would show hours later, in a log.
%%
%% Files of `auth.*' are checked by `halley_token_keys', those of listeners by `halley_config_tls',
%% and PostgreSQL's by the first login, which is at once.
-module(halley_config_paths).

-export([check/1]).

-define(KEYS, ["hooks.secret_file", "hooks.tls_ca", "remote.secret_file"]).

%% Whether each can be read.
-spec check(#{Key :: string() => Value :: string()}) -> ok | {error, Lines :: string()}.
check(Given) ->
    case [io_lib:format("~ts = ~ts: cannot be read: ~ts", [Key, File, file:format_error(Reason)])
          || Key <- ?KEYS, #{Key := Name} <- [Given], File <- [filename:absname(Name)],
             {error, Reason} <- [file:read_file(File)]] of
        [] -> ok;
        Lines -> {error, lists:flatten(lists:join($\n, Lines))}
    end.
