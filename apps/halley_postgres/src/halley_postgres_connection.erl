%% Connections to the configured server, for queries and for replication.
%%
%% Values come as texts: they are ids of users and subjects, and make ids of events. So each
%% connection has the settings that a time's text depends on, whatever the server or the role has.
%%
%% A connection that ends is said in one line by who used it. What the emulator reports of its
%% process besides, with all of its state, isn't logged.
-module(halley_postgres_connection).

-export([open/2, options/2, is_passing/1, explain/1, quiet/0, loud/0, filter/2]).

-include_lib("epgsql/include/epgsql.hrl").

-define(CONNECT_MS, 10000).
%% Of a query, not of a COPY or a stream.
-define(CALL_MS, 60000).
%% Reads of the socket before the stream's owner says that there may be more.
-define(READS, 32).

%% Linked to the caller.
-spec open(halley_config_postgres:server(), queries | replication) ->
    {ok, epgsql:connection()} | {error, term()}.
open(Server, Purpose) -> epgsql:connect(options(Server, Purpose)).

%% A password's file is read for each connection.
-spec options(halley_config_postgres:server(), queries | replication) -> epgsql:connect_opts_map().
options(#{host := Host, port := Port, database := Database, user := User} = Server, Purpose) ->
    maps:merge(#{host => Host, port => Port, database => Database, username => User,
                 password => fun() -> password(Server) end, ssl => ssl(Server),
                 ssl_opts => ssl_options(Server), timeout => ?CONNECT_MS,
                 application_name => "halley", codecs => [],
                 parameters => [{"TimeZone", "UTC"}, {"DateStyle", "ISO, MDY"}]},
               purpose(Purpose)).

purpose(queries) -> #{call_timeout => ?CALL_MS};
purpose(replication) -> #{replication => "database", socket_active => ?READS}.

password(#{password := none}) -> "";
password(#{password := {file, File}}) ->
    case file:read_file(File) of
        {ok, Text} -> string:trim(Text, trailing, "\r\n");
        {error, Reason} -> exit({password_file, File, Reason})
    end;
password(#{password := Password}) -> Password.

ssl(#{tls := true}) -> required;
ssl(#{tls := false}) -> false.

ssl_options(#{tls_ca := none}) -> [];
ssl_options(#{tls_ca := File}) -> [{cacertfile, File}].

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
-spec explain(term()) -> iodata().
explain({error, Reason}) -> explain(Reason);
explain({shutdown, Reason}) -> explain(Reason);
explain({query_failed, Reason}) -> explain(Reason);
explain({password_file, File, Reason}) ->
    ["postgres.password_file: ", File, " cannot be read: ", file:format_error(Reason)];
explain({not_ready, What}) -> What;
explain({not_written, Path, Reason}) ->
    [Path, " can't be written: ", file:format_error(Reason)];
explain({silent, Ms}) ->
    ["the server, or what is between, has been silent for ", integer_to_list(Ms div 1000), " s"];
explain(Reason) when is_tuple(Reason), element(1, Reason) =:= error, tuple_size(Reason) > 4,
                     is_binary(element(5, Reason)) ->
    %% epgsql's record `error'
    ["PostgreSQL says: ", element(5, Reason)];
explain(Reason) when Reason =:= sock_closed; Reason =:= closed -> "the connection was closed";
explain(Reason) -> io_lib:format("~0tP", [Reason, 12]).
