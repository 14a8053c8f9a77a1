%% The configuration: one file and the environment, checked as a whole before anything starts.
%%
%% A key comes from the environment, else from the file, else from its default. `public.listen' is
%% HALLEY_PUBLIC_LISTEN. The file is $HALLEY_CONF, or halley.conf in the working directory if
%% there is one. Keys are those of priv/halley.schema, those of the parts (`halley_part'), each in
%% priv/<application>.schema of its application, and one `limits.<name>' for each configurable row
%% of `halley_limits'. A mapping with `hidden' has a secret, whose value is never shown.
%%
%% A mistake is one sentence that names the key (or the variable, or the line) and the remedy, a
%% line for each mistake: names and values first, and, where these are right, combinations that
%% don't go together. Nothing is put in force here: `halley_boot' does.
%%
%% The result, by application:
%%   halley       node_name, data_dir (absolute), auth_mode, token_keys (a source, whose secret
%%                cannot be printed), api_on_loopback, store_backend, log_level,
%%                history_retention_ms, history_bytes, drain_ms, sessions_over_limit,
%%                limits (a map), edge_settings (texts for the link's handshake)
%%   halley_edge  public_listen, api_listen ("IP:port"), workers, socket_dir (absolute),
%%                socket_dir_is_set (not so by default),
%%                tls_files (what halley_config_tls makes of *.tls.*), sandbox,
%%                connections_max (only if it was set)
%%   halley_api   auth_mode
%%   each part    settings (what `halley_part:settings/1' makes of its keys), or `none'
-module(halley_config).

-export([load/0, load/2, file/0, value/3, data_dir/2, effective/0, keys/0, secrets/0, variable/1,
         cores/0]).
-export_type([config/0, given/0]).

-type key() :: string().
-type config() :: #{env := [{App :: atom(), [{atom(), term()}]}],
                    notices := [string()],              % for the log: accepted, but of note
                    %% Has secrets, which nobody prints by a fun.
                    given := fun(() -> given())}.
%% What was set, as it was written.
-type given() :: #{key() => Value :: string()}.

%% A Unix socket's path has 108 bytes with its end; "/trunk.sock.kept" is the longest that follows
%% the directory.
-define(SOCKET_DIR_BYTES_MAX, 90).

%% From the node's environment and working directory.
-spec load() -> {ok, config()} | {error, Line :: string()}.
load() ->
    case [Variable || <<"HALLEY_", _/binary>> = Entry <- raw_environment(), not is_utf8(Entry),
                      Variable <- binary:split(Entry, <<"=">>)] of
        [] -> load(file(), os:env());
        [Variable | _] -> {error, lists:flatten(io_lib:format("~s: is not UTF-8 text", [Variable]))}
    end.

%% The node takes what isn't UTF-8 for Latin-1.
raw_environment() ->
    case file:read_file("/proc/self/environ") of
        {ok, Environment} -> binary:split(Environment, <<0>>, [global]);
        {error, _} -> []
    end.

%% The file that the node's environment or working directory has.
-spec file() -> none | file:filename().
file() ->
    case {os:getenv("HALLEY_CONF", ""), filelib:is_file("halley.conf")} of
        {"", true} -> "halley.conf";
        {"", false} -> none;
        {File, _} -> File
    end.

-spec load(none | file:filename(), [{Variable :: string(), Value :: string()}]) ->
    {ok, config()} | {error, Lines :: string()}.
load(File, Environment) ->
    %% It would log what is returned here in better words.
    ok = logger:set_module_level([cuttlefish_conf, cuttlefish_error, cuttlefish_generator], none),
    try
        Schema = schema(),
        Keys = [key(Mapping) || Mapping <- element(2, Schema)],
        {FromFile, SetTwice} = read(File),
        Given = known(FromFile, Environment, Keys),
        Names = {[Key || {Key, _} <- FromFile], [Key || Key <- SetTwice, lists:member(Key, Keys)]},
        [_, Apps] = all([fun() -> check_names(Names, File, Environment, Keys) end,
                         fun() -> generate(Schema, maps:to_list(Given)) end]),
        {ok, (finish(Apps))#{given => fun() -> Given end}}
    catch
        throw:{bad, Lines} -> {error, lists:flatten(Lines)}
    end.

%% One value of the result.
-spec value(App :: atom(), atom(), config()) -> term().
value(App, Key, #{env := Env}) ->
    proplists:get_value(Key, proplists:get_value(App, Env)).

%% Where the data is, absolute, whatever else is wrong with the configuration: for what can't wait
%% until it is right. The error is about `data.dir', or about a file that can't be read.
-spec data_dir(none | file:filename(), [{Variable :: string(), Value :: string()}]) ->
    {ok, file:filename()} | {error, Line :: string()}.
data_dir(File, Environment) ->
    [{Variable, Default}] = [{V, D} || #{key := "data.dir", variable := V, default := D} <- keys()],
    try
        Dir = case lists:keyfind(Variable, 1, Environment) of
            {_, Set} ->
                Set;
            false ->
                {FromFile, SetTwice} = read(File),
                _ = set_once("data.dir", SetTwice, File),
                proplists:get_value("data.dir", FromFile, Default)
        end,
        Dir =/= "" orelse bad("data.dir: must not be empty", []),
        {ok, filename:absname(Dir)}
    catch
        throw:{bad, Line} -> {error, lists:flatten(Line)}
    end.

%% The environment before the file.
known(FromFile, Environment, Keys) ->
    Variables = maps:from_list([{variable(Key), Key} || Key <- Keys]),
    FromEnvironment = [{maps:get(Variable, Variables), Value}
                       || {Variable, Value} <- Environment, is_map_key(Variable, Variables)],
    maps:with(Keys, maps:from_list(FromFile ++ FromEnvironment)).

check_names({InFile, SetTwice}, File, Environment, Keys) ->
    Variables = [variable(Key) || Key <- Keys],
    all([fun() -> set_once(Key, SetTwice, File) end || Key <- lists:usort(InFile)]
        ++ [fun() -> known_key(Key, Keys, File) end || Key <- InFile]
        ++ [fun() -> known_variable(Variable, Variables) end
            || {"HALLEY_" ++ _ = Variable, Value} <- Environment, Variable =/= "HALLEY_CONF",
               not is_of_kubernetes(Variable, Value)]).

%% Kubernetes gives each container variables that are named after the services beside it, one
%% called `halley' or `halley-api' among them. A key's own variable is known before it is looked at.
is_of_kubernetes("HALLEY_" ++ Name, Value) ->
    case re:run(Name, "(?:^|_)(?:SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)"
                      "|(PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?))$",
                [{capture, all_but_first, list}]) of
        nomatch -> false;
        {match, ["PORT"]} -> re:run(Value, "^(?:tcp|udp|sctp)://", [{capture, none}]) =:= match;
        _ -> true
    end.

%% Every key as it is in force, in the order of the schema, for a person to read. `none' is a key
%% without a default that is not set.
-spec effective() -> {ok, [{key(), Value :: term(), default | set}]} | {error, Line :: string()}.
effective() ->
    case load() of
        {ok, Config} ->
            case check_files(Config) of
                ok ->
                    #{given := Given} = Config,
                    Secrets = secrets(),
                    {ok, [effective(Key, Default, Given(), Secrets)
                          || #{key := Key, default := Default} <- keys()]};
                {error, Line} ->
                    {error, Line}
            end;
        {error, Line} ->
            {error, Line}
    end.

%% Those that a start would need.
check_files(Config) ->
    #{given := Given} = Config,
    Checks = [halley_token_keys:check_source(value(halley, token_keys, Config)),
              halley_config_tls:check_files(value(halley_edge, tls_files, Config)),
              halley_config_paths:check(Given())],
    case [Lines || {error, Lines} <- Checks] of
        [] -> ok;
        Wrong -> {error, lists:flatten(lists:join($\n, Wrong))}
    end.

effective(Key, Default, Given, Secrets) ->
    case Given of
        #{Key := Value} -> {Key, shown(Key, Value, Secrets), set};
        #{} -> {Key, Default, default}
    end.

shown(Key, Value, Secrets) ->
    case lists:member(Key, Secrets) of
        true -> "(a secret)";
        false -> Value
    end.

%% What can be set, in the order of the schema, for the reference page.
-spec keys() -> [#{key := key(), variable := string(), default := none | term(),
                   doc := [string()]}].
keys() ->
    {_, Mappings, _} = schema(),
    [#{key => key(M), variable => variable(key(M)), doc => cuttlefish_mapping:doc(M),
       default => case cuttlefish_mapping:has_default(M) of
                      true -> cuttlefish_mapping:default(M);
                      false -> none
                  end} || M <- Mappings].

%% Those keys whose values are told to nobody.
-spec secrets() -> [key()].
secrets() ->
    {_, Mappings, _} = schema(),
    [key(Mapping) || Mapping <- Mappings, cuttlefish_mapping:hidden(Mapping)].

%% The environment variable that sets a key.
-spec variable(key()) -> string().
variable(Key) ->
    "HALLEY_" ++ string:uppercase(lists:flatten(string:replace(Key, ".", "_", all))).

-spec bad(io:format(), [term()]) -> no_return().
bad(Format, Args) ->
    throw({bad, io_lib:format(Format, Args)}).

%% The values of all; what is wrong with any is told together.
all(Checks) ->
    Results = [attempt(Check) || Check <- Checks],
    ok = none_of([Line || {bad, Line} <- Results]),
    [Value || {ok, Value} <- Results].

%% Tells what is wrong, if anything is.
none_of([]) -> ok;
none_of(Lines) -> together(Lines).

-spec together([io_lib:chars()]) -> no_return().
together(Lines) ->
    throw({bad, lists:join($\n, lists:uniq([lists:flatten(Line) || Line <- Lines]))}).

attempt(Check) ->
    try {ok, Check()} catch throw:{bad, Line} -> {bad, Line} end.

%% --- schema ------------------------------------------------------------------------------------

schema() ->
    Apps = [halley | [App || {App, _} <- halley_part:all()]],
    {Translations, Mappings, Validators} = cuttlefish_schema:files(
        [filename:join(code:priv_dir(App), atom_to_list(App) ++ ".schema") || App <- Apps]),
    {Translations, Mappings ++ limit_mappings(), Validators}.

limit_mappings() ->
    [cuttlefish_mapping:parse(
       {mapping, limit_key(Name), "halley." ++ limit_key(Name),
        [{default, Default}, {datatype, integer}, {validators, ["count"]},
         {doc, [Help ++ " (" ++ atom_to_list(Unit) ++ ")"]}]})
     || {Name, Default, Unit, Scope, Help} <- halley_limits:table(), Scope =/= fixed].

limit_key(Name) ->
    "limits." ++ atom_to_list(Name).

key(Mapping) ->
    dotted(cuttlefish_mapping:variable(Mapping)).

dotted(Variable) ->
    lists:flatten(lists:join(".", Variable)).

%% --- what was given ----------------------------------------------------------------------------

read(none) ->
    {[], []};
read(File) ->
    case halley_config_file:read(File) of
        {ok, Pairs, SetTwice} -> {Pairs, SetTwice};
        {error, Lines} -> together(Lines)
    end.

set_once(Key, SetTwice, File) ->
    lists:member(Key, SetTwice) andalso
        bad("~ts: ~ts is set more than once; keep one of its lines", [File, Key]).

is_utf8(Text) ->
    is_list(unicode:characters_to_list(Text)).

known_key(Key, Keys, File) ->
    lists:member(Key, Keys) orelse
        bad("~ts: there is no key ~ts; ~ts", [File, Key, nearest(Key, Keys)]).

known_variable(Variable, Variables) ->
    lists:member(Variable, Variables) orelse
        bad("~ts: no key has this variable; ~ts", [Variable, nearest(Variable, Variables)]).

%% What a renamed key, or its variable, is called now, and why one is gone; else the most similar
%% name, if one is.
nearest(Name, Names) ->
    Keys = [{limit_key(Former), limit_key(Now)} || {Former, Now} <- halley_limits:former_names()],
    Variables = [{variable(Former), variable(Now)} || {Former, Now} <- Keys],
    Gone = lists:member(Name, ["edge.trunk", variable("edge.trunk")]),
    case lists:keyfind(Name, 1, Keys ++ Variables) of
        {_, New} ->
            did_you_mean(New);
        false when Gone ->
            "every edge has a trunk, so there is nothing to choose: take it out";
        false ->
            case lists:min([{cuttlefish_util:levenshtein(Name, N), N} || N <- Names]) of
                {Distance, Nearest} when 2 * Distance =< length(Name) -> did_you_mean(Nearest);
                _ -> "`./halley config` lists what there is"
            end
    end.

did_you_mean(Name) -> ["did you mean ", Name, "?"].

%% --- values ------------------------------------------------------------------------------------

generate({_, Mappings, _} = Schema, Given) ->
    Converted = [{Pair, attempt(fun() -> convertible(Pair, Mappings) end)} || Pair <- Given],
    Result = attempt(fun() -> values(Schema, [Pair || {Pair, {ok, _}} <- Converted]) end),
    ok = none_of([Line || {_, {bad, Line}} <- Converted] ++ [Line || {bad, Line} <- [Result]]),
    {ok, Apps} = Result,
    Apps.

values(Schema, Given) ->
    Conf = [{string:split(Key, ".", all), Value} || {Key, Value} <- Given],
    case cuttlefish_generator:map(Schema, Conf) of
        {error, _, {errorlist, Errors}} ->
            together([bad_value(Reason, Given) || {error, Reason} <- Errors]);
        Env ->
            maps:from_list([{App, maps:from_list(Values)} || {App, Values} <- Env])
    end.

bad_value({validation, {Key, What}}, Given) ->
    Value = shown(Key, proplists:get_value(Key, Given), secrets()),
    io_lib:format("~ts: ~ts; it is \"~ts\"", [Key, What, Value]);
bad_value(Reason, _) ->
    io_lib:format("halley.conf: ~ts", [cuttlefish_error:xlate(Reason)]).

%% Cuttlefish would say it too, but not what would be right.
convertible({Key, Value}, Mappings) ->
    [Mapping] = [M || M <- Mappings, key(M) =:= Key],
    [Type] = cuttlefish_mapping:datatype(Mapping),
    is_quoted(Value) andalso bad("~ts: has quotes around its value; leave them out", [Key]),
    case cuttlefish_datatypes:from_string(Value, Type) of
        {error, _} -> bad("~ts: must be ~ts; it is \"~ts\"", [Key, kind(Type, Key), Value]);
        _ -> ok
    end.

%% They would be part of it: of a file's name, or of a secret.
is_quoted([Quote | [_ | _] = Rest]) when Quote =:= $"; Quote =:= $' -> lists:last(Rest) =:= Quote;
is_quoted(_) -> false.

kind(integer, "limits." ++ Name) ->
    case [Unit || {N, _, Unit, _, _} <- halley_limits:table(), atom_to_list(N) =:= Name] of
        [ms] -> "a whole number of milliseconds, without a unit";
        [bytes] -> "a whole number of bytes, without a unit";
        _ -> "a whole number"
    end;
kind(Type, _) -> kind(Type).

kind(integer) -> "a whole number";
kind(bytesize) -> "a number of bytes such as 500MB or 4GB";
kind({duration, _}) -> "a duration such as 500ms, 25s or 10m";
kind({enum, Words}) -> ["one of ", lists:join(", ", [io_lib:format("~ts", [W]) || W <- Words])].

finish(#{halley := Brain, halley_edge := Edge} = Apps) ->
    #{auth_mode := AuthMode, data_dir := DataDir} = Brain,
    #{public_listen := Public, api_listen := Api} = Edge,
    AbsoluteDir = filename:absname(DataDir),
    [Limits, SocketDir, {RetentionMs, RetentionOf}, Parts | _] =
        all([fun() -> limits(maps:get(limits, Brain)) end,
             fun() -> socket_dir(maps:get(socket_dir, Edge, none), AbsoluteDir) end,
             fun() -> retention(Brain) end,
             fun() -> parts(Apps) end,
             fun() -> protected(AuthMode, Public) end,
             fun() -> explained(halley_config_auth:check(Brain)) end,
             fun() -> explained(halley_config_tls:check(Edge)) end,
             fun() -> explained(halley_config_addresses:check(Brain)) end,
             fun() -> own_port(Public, Api) end]),
    Workers = maps:get(workers, Edge, cores()),
    #{env => [{halley, [{node_name, list_to_atom(maps:get(node_name, Brain))},
                        {data_dir, AbsoluteDir}, {auth_mode, AuthMode},
                        {token_keys, halley_config_auth:token_keys(Brain)},
                        {api_on_loopback, halley_config_check:is_loopback(Api)},
                        {store_backend, maps:get(store_backend, Brain)},
                        {log_level, maps:get(log_level, Brain)},
                        {history_retention_ms, RetentionMs},
                        {history_plain_retention_ms, maps:get(history_retention_ms, Brain)},
                        {history_retention_of, RetentionOf},
                        %% Cuttlefish reads 4.5GB as a float.
                        {history_bytes, trunc(maps:get(history_bytes, Brain))},
                        {drain_ms, maps:get(drain_ms, Brain)},
                        {sessions_over_limit, maps:get(sessions_over_limit, Brain)},
                        {presence_subjects, maps:get(presence_subjects, Brain)},
                        {presence_leave_ms, maps:get(presence_leave_ms, Brain)},
                        {limits, Limits}, {edge_settings, edge_settings(Brain)}]},
              {halley_edge, [{public_listen, Public}, {api_listen, Api}, {workers, Workers},
                             {socket_dir, SocketDir},
                             {socket_dir_is_set, is_map_key(socket_dir, Edge)},
                             {sandbox, maps:get(sandbox, Edge)},
                             {tls_files, halley_config_tls:files(Edge)}
                             | maps:to_list(maps:with([connections_max, user], Edge))]},
              {halley_api, [{auth_mode, AuthMode}]} | Parts],
      notices => notices(Edge) ++ kept_longer(Brain, RetentionMs)
                 ++ halley_config_limits:notices(Limits)}.

own_port(Address, Address) ->
    bad("api.listen: is ~ts, as public.listen is; give it a port of its own", [Address]);
own_port(_, _) ->
    ok.

retention(#{history_retention_of := Text, history_retention_ms := Ms}) ->
    case halley_history_shown:parse(Text) of
        {ok, Rules} -> halley_history_shown:within(Rules, Ms);
        {error, Why} -> bad("history.retention_of: ~ts", [Why])
    end.

%% Processors that this node may use. Not the number of schedulers, which is smaller: the edge's
%% workers share them with the brain.
-spec cores() -> pos_integer().
cores() ->
    case erlang:system_info(logical_processors_available) of
        unknown -> erlang:system_info(schedulers_online);
        Cores -> Cores
    end.

protected(none, Public) ->
    halley_config_check:is_loopback(Public) orelse
        bad("public.listen: ~ts can be reached from other machines, and with auth.mode = none "
            "anyone could be any user; set auth.mode = jwt and auth.keys, or listen on a loopback "
            "address such as 127.0.0.1:8080", [Public]);
protected(jwt, _) ->
    ok.

parts(#{halley := #{store_backend := Backend}} = Apps) ->
    all([fun() -> part(App, Module, (maps:get(App, Apps, #{}))#{store_backend => Backend}) end
         || {App, Module} <- halley_part:all()]).

part(App, Module, Values) ->
    case Module:settings(Values) of
        {ok, Settings} -> {App, [{settings, Settings}]};
        none -> {App, [{settings, none}]};
        {error, Line} -> bad("~ts", [Line])
    end.

explained(ok) -> ok;
explained({error, Line}) -> bad("~ts", [Line]).

limits(Given) ->
    Limits = maps:from_list(Given),
    ok = none_of(halley_config_limits:wrong(Limits)),
    Limits.

socket_dir(none, DataDir) ->
    fitting(filename:join(DataDir, "edge"), "set edge.socket_dir to a shorter one");
socket_dir(Dir, _) ->
    fitting(filename:absname(Dir), "choose a shorter one").

fitting(Dir, Advice) ->
    Bytes = byte_size(unicode:characters_to_binary(Dir)),
    Bytes =< ?SOCKET_DIR_BYTES_MAX orelse
        bad("edge.socket_dir: ~ts is too long for a Unix socket's path (~b bytes, at most ~b); ~ts",
            [Dir, Bytes, ?SOCKET_DIR_BYTES_MAX, Advice]),
    Dir.

presence(#{presence_subjects := ""}) -> <<"off">>;
presence(_) -> <<"on">>.

edge_settings(Brain) ->
    #{stream_heartbeat_ms := Heartbeat, stream_retry_ms := Retry, auth_mode := AuthMode,
      cors_origins := Origins, slow_consumer := SlowConsumer, websocket_compression := Compression,
      admission_per_s_max := Admission} = Brain,
    [{<<"stream_heartbeat_ms">>, integer_to_binary(Heartbeat)},
     {<<"stream_retry_ms">>, integer_to_binary(Retry)},
     {<<"auth_mode">>, atom_to_binary(AuthMode)} | halley_config_auth:edge_settings(Brain)] ++
    [{<<"slow_consumer">>, atom_to_binary(SlowConsumer)},
     {<<"websocket_compression">>, atom_to_binary(Compression)},
     {<<"admission_per_s_max">>, integer_to_binary(Admission)},
     {<<"presence">>, presence(Brain)}, {<<"presence_views">>, <<"on">>},
     {<<"operation_frames">>, <<"on">>},
     {<<"cors_origins">>, unicode:characters_to_binary(Origins)}
     | halley_config_addresses:edge_settings(Brain)].

notices(#{api_listen := Api} = Edge) ->
    ["api.listen: " ++ Api ++ " can be reached from other machines, and what passes there, keys "
            "and events, is not encrypted; set api.tls.certificate"
     || not halley_config_check:is_loopback(Api), not is_map_key(api_tls_certificate, Edge)].

kept_longer(#{history_retention_ms := Ms}, Ms) ->
    [];
kept_longer(#{history_retention_ms := Ms}, KeptMs) ->
    [lists:flatten(io_lib:format(
        "history.retention_of: all events stay on disk for its longest age, ~b s, and take 32 "
        "bytes of memory each, also those that nobody can fetch after ~b s (history.retention); "
        "history.bytes bounds it", [KeptMs div 1000, Ms div 1000]))].
