%% Connections to the configured server, for queries and for replication.
%%
%% Each session has the settings that Halley needs, whatever the role, the database or the server
%% has (`halley_postgres_settings').
%%
%% The user of a connection logs its end in one line. The emulator's own report of its process, with
%% all of its state, isn't logged.
-module(halley_postgres_connection).

-export([open/2, options/2, settle/2, rows/3, is_passing/1, explain/1, quiet/0, loud/0, filter/2]).

-include_lib("epgsql/include/epgsql.hrl").

-define(CONNECT_MS, 10000).
%% Of a query, not of a COPY or a stream.
-define(CALL_MS, 60000).
%% Reads of the socket before the stream's owner says that there may be more.
-define(READS, 32).

%% Linked to the caller. `queries': also of changes in halley.outbox and halley.rejected; their
%% commits wait for no standby, as Halley's own stream may be what PostgreSQL takes for one.
-spec open(halley_postgres_config:server(), queries | replication) ->
    {ok, epgsql:connection()} | {error, term()}.
open(Server, Purpose) ->
    case readable(Server) of
        ok ->
            case epgsql:connect(options(Server, Purpose)) of
                {ok, C} -> settled(C, Purpose);
                {error, Reason} -> {error, {no_connection, Reason, Server}}
            end;
        {error, Reason} -> {error, {no_connection, Reason, Server}}
    end.

settled(C, Purpose) ->
    case settle(C, Purpose) of
        ok -> {ok, C};
        {error, _} = Error ->
            ok = epgsql:close(C),
            Error
    end.

%% Gives a new session its settings.
-spec settle(epgsql:connection(), halley_postgres_settings:purpose()) ->
    ok | {error, {query_failed, term()}}.
settle(C, Purpose) ->
    {ok, Version} = epgsql:get_parameter(C, "server_version"),
    Settings = halley_postgres_settings:all(Purpose, halley_postgres_settings:version(Version),
                                            halley_postgres_encoding:client(C)),
    case [Error || {error, Error} <- lists:flatten([epgsql:squery(C, Settings)])] of
        [] -> ok;
        [Error | _] -> {error, {query_failed, Error}}
    end.

%% A password's file is read for each connection.
-spec options(halley_postgres_config:server(), queries | replication | writes) ->
    epgsql:connect_opts_map().
options(#{host := Host, port := Port, database := Database, user := User} = Server, Purpose) ->
    lists:foldl(fun maps:merge/2,
                #{host => host(Host), port => Port, ssl => ssl(Server),
                  database => unicode:characters_to_binary(Database),
                  username => unicode:characters_to_binary(User),
                  ssl_opts => ssl_options(Server), timeout => ?CONNECT_MS, login_errors => whole,
                  application_name => halley_postgres_settings:application_name(), codecs => [],
                  parameters => halley_postgres_settings:first(Purpose)},
                [password(Server), purpose(Purpose)]).

%% A folder's name may have any letters.
host([$/ | _] = Folder) -> unicode:characters_to_binary(Folder);
host(Host) -> Host.

purpose(replication) -> #{replication => "database", socket_active => ?READS};
purpose(_) -> #{call_timeout => ?CALL_MS}.

password(#{password := none}) -> #{};
password(#{password := {file, File}}) ->
    #{password => fun() ->
        case read(File) of
            {ok, Password} -> Password;
            {error, Reason} -> exit({password_file, File, Reason})
        end
    end};
password(#{password := Password}) -> #{password => Password}.

%% Its bytes are the server's matter, whether they are UTF-8 or not.
read(File) ->
    case file:read_file(File) of
        {ok, Bytes} -> {ok, re:replace(Bytes, "[\r\n]+\\z", "", [{return, binary}])};
        {error, _} = Error -> Error
    end.

readable(#{password := Password, tls := Tls, tls_ca := Ca, certificate := Certificate}) ->
    Tries = [{password_file, File, read(File)} || {file, File} <- [Password]]
        ++ [{Key, File, file:read_file(File)}
            || Tls, {Key, File} <- [{"postgres.tls_ca", Ca} || Ca =/= none]
                                   ++ own(Certificate)],
    case [{Key, File, Reason} || {Key, File, {error, Reason}} <- Tries] of
        [] -> ok;
        [{password_file, File, Reason} | _] -> {error, {password_file, File, Reason}};
        [{Key, File, Reason} | _] -> {error, {file, Key, File, Reason}}
    end.

own(none) -> [];
own({Certificate, Key}) ->
    [{"postgres.tls_certificate", Certificate}, {"postgres.tls_key", Key}].

ssl(#{tls := true}) -> required;
ssl(#{tls := false}) -> false.

ssl_options(#{tls_ca := Ca, certificate := Own}) ->
    [{cacertfile, Ca} || Ca =/= none]
        ++ [Option || {Certificate, Key} <- [Own],
                      Option <- [{certfile, Certificate}, {keyfile, Key}]].

%% What a query answers. Who asks ends with an error that `explain/1' knows.
-spec rows(epgsql:connection(), Sql :: iodata(), Parameters :: [epgsql:bind_param()]) -> [tuple()].
rows(C, Sql, Parameters) ->
    case epgsql:equery(C, Sql, Parameters) of
        {ok, _, Rows} -> Rows;
        {error, Error} -> exit({query_failed, Error})
    end.

%% Whether the same query may be answered otherwise by another connection, or later. The classes are
%% those of PostgreSQL's documentation, Appendix A: of the connection, of transactions that can't be
%% put into an order, of resources, of locks, of somebody who intervenes, of the system.
-spec is_passing(term()) -> boolean().
is_passing(#error{severity = error, code = <<Class:2/binary, _/binary>>}) ->
    lists:member(Class, [<<"08">>, <<"40">>, <<"53">>, <<"55">>, <<"57">>, <<"58">>]);
is_passing(_) -> true.

%% Keeps the reports of connections' ends out of the log.
-spec quiet() -> ok.
quiet() ->
    _ = logger:add_primary_filter(?MODULE, {fun ?MODULE:filter/2, none}),
    ok.

-spec loud() -> ok.
loud() ->
    _ = logger:remove_primary_filter(?MODULE),
    ok.

-spec filter(logger:log_event(), term()) -> stop | ignore.
filter(#{msg := {report, #{label := {gen_server, terminate}, state := State}}}, _)
  when element(1, State) =:= session ->
    stop;
filter(#{msg := {report, #{label := {proc_lib, crash}, report := [Info | _]}}}, _) ->
    case lists:keyfind(initial_call, 1, Info) of
        {_, {epgsql_sock, init, _}} -> stop;
        _ -> ignore
    end;
filter(_, _) ->
    ignore.

%% What went wrong, for a person.
-spec explain(term()) -> unicode:chardata().
explain({error, Reason}) -> explain(Reason);
explain({shutdown, Reason}) -> explain(Reason);
explain({query_failed, Reason}) -> explain(Reason);
explain({no_connection, Reason, Server}) -> halley_postgres_login:explain(Reason, Server);
explain({password_file, File, Reason}) ->
    halley_postgres_login:missing_file("postgres.password_file", File, Reason);
explain({not_ready, What}) -> What;
explain({altered, Table, Why}) ->
    [Table, " was altered while it was copied: ", lists:join(", ", Why)];
explain({not_written, Path, Reason}) ->
    [Path, " can't be written: ", file:format_error(Reason)];
explain({silent, Ms}) ->
    ["the server, or what is between, has been silent for ", integer_to_list(Ms div 1000), " s"];
explain(Reason) when is_tuple(Reason), element(1, Reason) =:= error, tuple_size(Reason) > 4,
                     is_binary(element(5, Reason)) ->
    %% epgsql's record `error'
    ["PostgreSQL says: ", halley_postgres_login:quoted(element(5, Reason))];
explain(Reason) when Reason =:= sock_closed; Reason =:= closed -> "the connection was closed";
explain(Reason) -> io_lib:format("~0tP", [Reason, 12]).
