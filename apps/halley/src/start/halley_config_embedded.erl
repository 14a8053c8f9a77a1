%% The settings of a brain inside another application, without `halley.conf' and environment: a map
%% in the application environment, `{halley, [{settings, #{...}}]}'.
%%
%% Its keys are the configuration's, as atoms, its values their text or whole numbers:
%% #{'data.dir' => "chat-data", 'history.retention' => "24h", 'limits.follows_per_user_max' => 500}.
%% They are judged as those of `halley.conf' are, and a key that a brain without an edge can't use
%% is refused: it would have no effect.
-module(halley_config_embedded).

-export([load/1]).
-export_type([settings/0]).

-type settings() :: #{atom() => string() | binary() | integer()}.

-define(KEYS, ["data.dir", "history.retention", "history.retention_of", "history.bytes",
               "sessions.over_limit"]).
%% The data's place is no socket's here, so it may be longer than a socket's path.
-define(NO_SOCKETS, {"HALLEY_EDGE_SOCKET_DIR", "/"}).

%% The environment of `halley'; or what is wrong, a line for each mistake.
-spec load(settings()) -> {ok, [{atom(), term()}]} | {error, Lines :: string()}.
load(Settings) when is_map(Settings) ->
    case [wrong(Key, Value) || {Key, Value} <- maps:to_list(Settings), not is_good(Key, Value)] of
        [] ->
            Given = [{halley_config:variable(atom_to_list(Key)), text(Value)}
                     || {Key, Value} <- maps:to_list(Settings)],
            case halley_config:load(none, [?NO_SOCKETS | Given]) of
                {ok, #{env := Env}} -> {ok, proplists:get_value(halley, Env)};
                {error, Lines} -> {error, Lines}
            end;
        Wrong ->
            {error, lists:flatten(lists:join($\n, Wrong))}
    end;
load(_) ->
    {error, "halley: settings must be a map, such as #{'data.dir' => \"chat-data\"}"}.

is_good(Key, Value) -> is_atom(Key) andalso is_key(atom_to_list(Key)) andalso is_value(Value).

is_key("limits." ++ Name) ->
    lists:any(fun({Limit, _, _, Scope, _}) ->
        Scope =/= fixed andalso atom_to_list(Limit) =:= Name
    end, halley_limits:table());
is_key(Key) ->
    lists:member(Key, ?KEYS).

is_value(Value) -> is_integer(Value) orelse is_binary(Value) orelse io_lib:char_list(Value).

text(Value) when is_integer(Value) -> integer_to_list(Value);
text(Value) -> unicode:characters_to_list(Value).

wrong(Key, Value) ->
    case is_atom(Key) andalso is_key(atom_to_list(Key)) of
        true -> io_lib:format("~ts: must be a string or a whole number; it is ~0tp", [Key, Value]);
        false -> io_lib:format("~0tp: an embedded Halley has no such setting; it has '~ts' and "
                               "'limits.<name>'", [Key, lists:join("', '", ?KEYS)])
    end.
