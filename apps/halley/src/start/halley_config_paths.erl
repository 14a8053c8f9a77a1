%% Checks, at a start, the files of the configuration that Halley reads only when it needs them. A
%% missing file would show hours later, in a log.
%%
%% `halley_token_keys' checks the files of `auth.*', and `halley_config_tls' those of the listeners.
%% Parts name theirs (`halley_part').
-module(halley_config_paths).

-export([check/1]).

%% Whether each can be read.
-spec check(#{Key :: string() => Value :: string()}) -> ok | {error, Lines :: string()}.
check(Given) ->
    case [io_lib:format("~ts = ~ts: cannot be read: ~ts", [Key, File, file:format_error(Reason)])
          || {_, Part} <- halley_part:all(), Key <- Part:files(), #{Key := Name} <- [Given],
             File <- [filename:absname(Name)], {error, Reason} <- [file:read_file(File)]] of
        [] -> ok;
        Lines -> {error, lists:flatten(lists:join($\n, Lines))}
    end.
