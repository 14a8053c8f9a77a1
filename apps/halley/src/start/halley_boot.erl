%% Start-up: from nothing to the point where the supervisor can start, and one clear line if it
%% can't.
%%
%% The order: configuration, the keys that it names, then the node's name (Mnesia's schema names its
%% node), then the log.
%% Until all of that and the supervisor have started, the log is silent. So a failure is exactly one
%% line on stderr and exit status 1: no reports, no crash dump. Only findings in the data directory,
%% repaired or not, are logged at once: they would never be reported again.
%%
%% The node gets a name but listens on nothing and asks no epmd. Its cookie is made at each start,
%% and is nowhere but in memory.
-module(halley_boot).

-export([prepare/0, embed/1, ready/0, explain/1, fail/1]).

-include_lib("kernel/include/logger.hrl").

-define(SPEAK_EARLY, [halley_data_dir, halley_history_log, halley_history_recovery,
                      halley_server_keys, halley_store_recovery, halley_store_takeover]).

%% Puts the configuration in force and names the node.
-spec prepare() -> ok | {error, Line :: string()}.
prepare() ->
    ok = logger:set_primary_config(level, none),
    ok = halley_command:write_utf8(),
    %% Secrets leave the environment below.
    Environment = os:env(),
    case halley_config:load() of
        {ok, #{env := Env, notices := Notices, given := Given}} ->
            lists:foreach(fun({App, Values}) -> set_env(App, Values) end, Env),
            set_env(halley, [{notices, Notices}]),
            {ok, Limits} = application:get_env(halley, limits),
            set_env(halley, maps:to_list(Limits)),
            ok = halley_limits:set(Limits),
            ok = log_to_stdout(),
            ok = halley_launcher:tell(),
            ok = halley_reload:remember(Environment, Given()),
            {ok, Level} = application:get_env(halley, log_level),
            ok = logger:set_module_level(?SPEAK_EARLY, Level),
            %% What the edge inherits of the environment must not be that.
            _ = [os:unsetenv(halley_config:variable(Key)) || Key <- halley_config:secrets()],
            checked([fun check_keys/0, fun() -> halley_config_paths:check(Given()) end,
                     fun halley_revocations:check/0,
                     fun check_api/0, fun name_node/0]);
        {error, Line} ->
            {error, Line}
    end.

%% The same for a brain in another application's release: settings alone.
-spec embed(halley_config_embedded:settings()) -> ok | {error, Lines :: string()}.
embed(Settings) ->
    case halley_config_embedded:load(Settings) of
        {ok, Env} ->
            set_env(halley, Env),
            {limits, Limits} = lists:keyfind(limits, 1, Env),
            set_env(halley, maps:to_list(Limits)),
            halley_limits:set(Limits);
        {error, Lines} ->
            {error, Lines}
    end.

checked([Check | Checks]) ->
    case Check() of
        ok -> checked(Checks);
        {error, Line} -> {error, Line}
    end;
checked([]) ->
    ok.

check_keys() ->
    {ok, Source} = application:get_env(halley, token_keys),
    halley_token_keys:check_source(Source).

check_api() ->
    {ok, Listen} = application:get_env(halley_edge, api_listen),
    halley_server_keys:check_start(Listen).

%% Persistent: loading an application later must not undo it.
set_env(App, Values) ->
    application:set_env([{App, Values}], [{persistent, true}]).

%% A node that already has a name keeps it, as in a test or a shell.
name_node() ->
    {ok, Name} = application:get_env(halley, node_name),
    Options = #{name_domain => longnames, dist_listen => false, hidden => true},
    case is_alive() orelse net_kernel:start(Name, Options) of
        true -> ok;
        {ok, _} -> make_cookie();
        {error, Reason} ->
            {error, lists:flatten(io_lib:format("node.name: the node cannot be named ~ts: ~0tp",
                                                [Name, Reason]))}
    end.

%% Nobody can connect to this node, so nobody needs to know it. OTP would read one from HOME, or
%% leave one there.
make_cookie() ->
    true = erlang:set_cookie(binary_to_atom(binary:encode_hex(crypto:strong_rand_bytes(16)))),
    ok.

%% The tree stands: from now on the log speaks.
-spec ready() -> ok.
ready() ->
    ok = halley_code:load(),
    {ok, Level} = application:get_env(halley, log_level),
    ok = logger:set_primary_config(level, Level),
    ok = logger:unset_module_level(?SPEAK_EARLY),
    {ok, Notices} = application:get_env(halley, notices),
    lists:foreach(fun(Notice) -> ?LOG_NOTICE("~ts", [Notice]) end, Notices),
    {ok, DataDir} = application:get_env(halley, data_dir),
    %% A full disk has its own answers, and there may be another place (`halley_pidfile:ensure/1').
    _ = halley_pidfile:write(running),
    %% Not "ready": clients can come when the edge is, which may find its ports taken.
    ?LOG_NOTICE("brain ~ts has opened its data, in ~ts", [node(), DataDir]).

%% One line for each message. Progress reports tell of every process that starts: too much for a
%% log.
log_to_stdout() ->
    _ = logger:remove_handler(default),
    Template = [time, " ", level, " ", msg, "\n"],
    logger:add_handler(default, logger_std_h,
        #{config => #{type => standard_io},
          filters => [{progress, {fun logger_filters:progress/2, stop}},
                      {remote_gl, {fun logger_filters:remote_gl/2, stop}},
                      {data, {fun halley_log_data:filter/2, none}}],
          filter_default => log,
          formatter => {logger_formatter, #{single_line => true, template => Template,
                                            chars_limit => 4096, time_designator => $\s}}}).

%% The sentence in a failed supervisor's reason.
-spec explain(term()) -> string().
explain({shutdown, Reason}) -> explain(Reason);
explain({failed_to_start_child, _, Reason}) -> explain(Reason);
explain({error, Reason}) -> explain(Reason);
explain(Line) when is_binary(Line) -> unicode:characters_to_list(Line);
explain(Reason) -> lists:flatten(io_lib:format("the brain cannot start: ~0tP", [Reason, 30])).

%% Ends the node: a line on stderr for each mistake, exit status 1. For any part that cannot start.
-spec fail(Lines :: unicode:chardata()) -> no_return().
fail(Lines) ->
    ok = halley_pidfile:remove(),
    _ = logger:set_primary_config(level, none),
    io:put_chars(standard_error, halley_command:lines(Lines)),
    erlang:halt(1).
