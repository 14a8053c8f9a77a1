%% PostgreSQL: calls that wait for the whole answer. `epgsqla' sends it as a message, `epgsqli' row
%% by row; one connection takes all three, in any order.
%%
%% The API is that of epgsql 4.8. A connection is a process, linked to who opens it. Calls wait as
%% long as the connection's `call_timeout' (for ever, if not given) or `with_timeout/2' says, and
%% then answer `{error, timeout}'.
-module(epgsql).

-include("epgsql.hrl").

-export([connect/1, connect/2, connect/3, connect/4, connect/5, close/1, get_parameter/2,
         set_notice_receiver/2, get_cmd_status/1, get_backend_pid/1, with_timeout/2]).
-export([squery/2, equery/2, equery/3, equery/4, prepared_query/3, parse/2, parse/3, parse/4,
         describe/2, describe/3, bind/3, bind/4, execute/2, execute/3, execute/4, execute_batch/2,
         execute_batch/3, close/2, close/3, sync/1, cancel/1, sync_on_error/2, pipeline/2]).
-export([update_type_cache/1, update_type_cache/2, with_transaction/2, with_transaction/3,
         copy_from_stdin/2, copy_from_stdin/3, copy_send_rows/3, copy_done/1, copy_to_stdout/4,
         copy_to_stdout/5,
         start_replication/5, start_replication/6, start_replication/7, standby_status_update/3,
         to_map/1, activate/1]).

-export_type([connection/0, connect_option/0, connect_opts/0, connect_opts_map/0, connect_error/0,
              query_error/0, sql_query/0, column/0, statement/0, type_name/0, epgsql_type/0,
              bind_param/0, typed_param/0, reply/1, squery_row/0, equery_row/0,
              transaction_option/0, transaction_opts/0, socket_active/0, lsn/0]).

-type connection() :: pid() | {epgsql_timeout, pid(), timeout()} | epgsql_held:handle().
-type host() :: inet:ip_address() | inet:hostname() | binary().
-type socket_active() :: true | -32768..32767.
-type connect_option() ::
        {host, host()} | {hosts, [host() | {host(), inet:port_number()}]}
      | {target_session_attrs, any | 'read-write' | 'read-only' | primary | standby
                             | 'prefer-standby'}
      | {username, iodata()} | {password, iodata() | fun(() -> iodata())}
      | {database, iodata()} | {port, inet:port_number()}
      | {ssl, boolean() | required | require} | {ssl_opts, [ssl:tls_client_option()]}
      | {tcp_opts, [gen_tcp:option()]} | {timeout, timeout()} | {call_timeout, timeout()}
      | {async, pid() | atom()} | {codecs, [{epgsql_codec:codec_mod(), any()}]}
      | {nulls, [any(), ...]} | {replication, iodata()} | {application_name, iodata()}
      | {parameters, [{iodata(), iodata()}]} | {login_errors, names | whole}
      | {socket_active, socket_active()} | {statement_cache, non_neg_integer()}
      | {parked_max, non_neg_integer()}.
-type connect_opts_map() :: #{atom() => any()}.
-type connect_opts() :: connect_opts_map() | [connect_option()].
-type connect_error() :: epgsql_cmd_connect:connect_error().
-type query_error() :: #error{}.
-type sql_query() :: iodata() | string().
-type column() :: #column{}.
-type statement() :: #statement{}.
-type type_name() :: atom().
-type epgsql_type() :: type_name() | {array, type_name()} | {unknown_oid, non_neg_integer()}.
-type bind_param() :: any().
-type typed_param() :: {epgsql_type(), bind_param()}.
-type squery_row() :: tuple().
-type equery_row() :: tuple().
-type reply(Row) :: {ok, [column()], [Row]} | {ok, Count :: non_neg_integer()}
                  | {ok, Count :: non_neg_integer(), [column()], [Row]} | {error, query_error()}.
-type transaction_option() :: {reraise, boolean()} | {ensure_committed, boolean()}
                            | {begin_opts, iodata()}.
-type transaction_opts() :: [transaction_option()]
                          | #{reraise => boolean(), ensure_committed => boolean(),
                              begin_opts => iodata()}.
-type lsn() :: integer().

%% What gets a replication stream, if it is a module: it answers how far is safe, and how far done.
-callback handle_x_log_data(Start :: lsn(), End :: lsn(), binary(), State :: any()) ->
    {ok, Flushed :: lsn(), Applied :: lsn(), State :: any()}.

%% --- connections --------------------------------------------------------------------------------

-spec connect(connect_opts()) -> {ok, pid()} | {error, connect_error()}.
connect(Options) ->
    {ok, C} = epgsql_sock:start_link(),
    connect_process(C, to_map(Options)).

-spec connect(host(), connect_opts()) -> {ok, pid()} | {error, connect_error()}.
connect(Host, Options) -> connect(Host, os:getenv("USER", "postgres"), "", Options).

-spec connect(host(), iodata(), connect_opts()) -> {ok, pid()} | {error, connect_error()}.
connect(Host, Username, Options) -> connect(Host, Username, "", Options).

-spec connect(host(), iodata(), iodata() | fun(() -> iodata()), connect_opts()) ->
          {ok, pid()} | {error, connect_error()}.
connect(Host, Username, Password, Options) ->
    {ok, C} = epgsql_sock:start_link(),
    connect(C, Host, Username, Password, Options).

-spec connect(pid(), host(), iodata(), iodata() | fun(() -> iodata()), connect_opts()) ->
          {ok, pid()} | {error, connect_error()}.
connect(C, Host, Username, Password, Options) ->
    Who = #{host => Host, username => Username, password => Password},
    connect_process(C, maps:merge(to_map(Options), Who)).

connect_process(C, Options) ->
    case epgsql_sock:sync_command(C, epgsql_cmd_connect,
                                  epgsql_cmd_connect:opts_hide_password(Options)) of
        connected -> {ok, C};
        {error, _} = Error -> Error
    end.

-spec close(connection()) -> ok.
close({epgsql_held, _, _} = Handle) -> epgsql_held:call(Handle, close);
close({epgsql_timeout, C, _}) -> close(C);
close(C) -> epgsql_sock:close(C).

%% The same connection, for calls that wait at most so long. What is being done then is cancelled.
-spec with_timeout(connection(), timeout()) -> connection().
with_timeout({epgsql_held, Ref, _}, Timeout) -> {epgsql_held, Ref, Timeout};
with_timeout({epgsql_timeout, C, _}, Timeout) -> with_timeout(C, Timeout);
with_timeout(C, Timeout) -> {epgsql_timeout, C, Timeout}.

-spec get_parameter(connection(), iodata()) -> {ok, binary() | undefined}.
get_parameter(C, Name) -> epgsql_sock:get_parameter(C, Name).

-spec set_notice_receiver(connection(), pid() | atom()) -> {ok, Before :: pid() | atom()}.
set_notice_receiver(C, Receiver) -> epgsql_sock:set_notice_receiver(C, Receiver).

-spec get_cmd_status(connection()) -> {ok, undefined | epgsql_backend:complete()}.
get_cmd_status(C) -> epgsql_sock:get_cmd_status(C).

-spec get_backend_pid(connection()) -> integer().
get_backend_pid(C) -> epgsql_sock:get_backend_pid(C).

-spec activate(connection()) -> ok | {error, any()}.
activate(C) -> epgsql_sock:activate(C).

-spec cancel(connection()) -> ok.
cancel(C) -> epgsql_sock:cancel(C).

-spec update_type_cache(connection()) -> epgsql_cmd_update_type_cache:response().
update_type_cache(C) ->
    update_type_cache(C, [{epgsql_codec_hstore, []}, {epgsql_codec_postgis, []}]).

-spec update_type_cache(connection(), [{epgsql_codec:codec_mod(), any()}]) ->
          epgsql_cmd_update_type_cache:response() | {error, empty}.
update_type_cache(_, []) -> {error, empty};
update_type_cache(C, Codecs) -> command(C, epgsql_cmd_update_type_cache, Codecs).

-spec to_map([{any(), any()}] | map()) -> map().
to_map(Map) when is_map(Map) -> Map;
to_map(List) when is_list(List) -> maps:from_list(List).

command(C, Command, Arguments) -> epgsql_sock:sync_command(C, Command, Arguments).

%% --- queries ------------------------------------------------------------------------------------

-spec squery(connection(), sql_query()) -> epgsql_cmd_squery:response() | epgsql_sock:error().
squery(C, Sql) -> command(C, epgsql_cmd_squery, Sql).

-spec equery(connection(), sql_query()) -> epgsql_cmd_query:response() | epgsql_sock:error().
equery(C, Sql) -> equery(C, Sql, []).

%% The statement is kept for the next time if the connection's `statement_cache' says so.
-spec equery(connection(), sql_query(), [bind_param()]) ->
          epgsql_cmd_query:response() | epgsql_sock:error().
equery(C, Sql, Parameters) -> command(C, epgsql_cmd_query, {Sql, Parameters}).

-spec equery(connection(), iodata(), sql_query(), [bind_param()]) ->
          epgsql_cmd_equery:response() | epgsql_sock:error().
equery(C, Name, Sql, Parameters) ->
    case parse(C, Name, Sql, []) of
        {ok, #statement{types = Types} = Statement} ->
            command(C, epgsql_cmd_equery, {Statement, lists:zip(Types, Parameters)});
        {error, _} = Error -> Error
    end.

-spec prepared_query(connection(), iodata() | statement(), [bind_param()]) ->
          epgsql_cmd_prepared_query:response() | epgsql_sock:error().
prepared_query(C, #statement{types = Types} = Statement, Parameters) ->
    command(C, epgsql_cmd_prepared_query, {Statement, lists:zip(Types, Parameters)});
prepared_query(C, Name, Parameters) ->
    case describe(C, statement, Name) of
        {ok, #statement{} = Statement} -> prepared_query(C, Statement, Parameters);
        {error, _} = Error -> Error
    end.

%% All queries are sent before the first is answered; the answers are in their order. Each is a
%% transaction of its own, unless they are in one: an error in one is no other's, as it isn't in
%% queries that are waited for one by one.
-spec pipeline(connection(), [sql_query() | {sql_query() | statement(), [bind_param()]}]) ->
          [epgsql_cmd_query:response() | epgsql_sock:error()].
pipeline(C, Queries) ->
    epgsql_pipeline:run(C, [in_pipeline(Query) || Query <- Queries]).

in_pipeline({#statement{types = Types} = Statement, Parameters}) ->
    {epgsql_cmd_prepared_query, {Statement, lists:zip(Types, Parameters)}};
in_pipeline({Sql, Parameters}) ->
    {epgsql_cmd_query, {Sql, Parameters}};
in_pipeline(Sql) ->
    {epgsql_cmd_query, {Sql, []}}.

-spec parse(connection(), sql_query()) -> epgsql_cmd_parse:response() | epgsql_sock:error().
parse(C, Sql) -> parse(C, Sql, []).

-spec parse(connection(), sql_query(), [epgsql_type() | undefined]) ->
          epgsql_cmd_parse:response() | epgsql_sock:error().
parse(C, Sql, Types) -> parse(C, "", Sql, Types).

%% `Types' of the parameters; those that are missing or `undefined' the server finds out.
-spec parse(connection(), iodata(), sql_query(), [epgsql_type() | undefined]) ->
          epgsql_cmd_parse:response() | epgsql_sock:error().
parse(C, Name, Sql, Types) ->
    sync_on_error(C, command(C, epgsql_cmd_parse, {Name, Sql, Types})).

-spec describe(connection(), statement()) ->
          epgsql_cmd_describe_statement:response() | epgsql_sock:error().
describe(C, #statement{name = Name}) -> describe(C, statement, Name).

-spec describe(connection(), statement | portal, iodata()) ->
          epgsql_cmd_describe_statement:response() | epgsql_cmd_describe_portal:response()
        | epgsql_sock:error().
describe(C, statement, Name) ->
    sync_on_error(C, command(C, epgsql_cmd_describe_statement, Name));
describe(C, portal, Name) ->
    sync_on_error(C, command(C, epgsql_cmd_describe_portal, Name)).

-spec bind(connection(), statement(), [bind_param()]) ->
          epgsql_cmd_bind:response() | epgsql_sock:error().
bind(C, Statement, Parameters) -> bind(C, Statement, "", Parameters).

-spec bind(connection(), statement(), iodata(), [bind_param()]) ->
          epgsql_cmd_bind:response() | epgsql_sock:error().
bind(C, Statement, Portal, Parameters) ->
    sync_on_error(C, command(C, epgsql_cmd_bind, {Statement, Portal, Parameters})).

-spec execute(connection(), statement()) -> epgsql_cmd_execute:response() | epgsql_sock:error().
execute(C, Statement) -> execute(C, Statement, "", 0).

-spec execute(connection(), statement(), non_neg_integer()) ->
          epgsql_cmd_execute:response() | epgsql_sock:error().
execute(C, Statement, RowsMax) -> execute(C, Statement, "", RowsMax).

-spec execute(connection(), statement(), iodata(), non_neg_integer()) ->
          epgsql_cmd_execute:response() | epgsql_sock:error().
execute(C, Statement, Portal, RowsMax) ->
    command(C, epgsql_cmd_execute, {Statement, Portal, RowsMax}).

-spec execute_batch(connection(), [{statement(), [bind_param()]}]) ->
          epgsql_cmd_batch:response() | epgsql_sock:error().
execute_batch(C, Batch) -> command(C, epgsql_cmd_batch, Batch).

-spec execute_batch(connection(), statement() | sql_query(), [[bind_param()]]) ->
          {[column()], epgsql_cmd_batch:response() | epgsql_sock:error()} | {error, any()}.
execute_batch(C, #statement{columns = Columns} = Statement, Batch) ->
    {Columns, command(C, epgsql_cmd_batch, {Statement, Batch})};
execute_batch(C, Sql, Batch) ->
    case parse(C, Sql) of
        {ok, Statement} -> execute_batch(C, Statement, Batch);
        {error, _} = Error -> Error
    end.

-spec close(connection(), statement()) -> epgsql_cmd_close:response() | epgsql_sock:error().
close(C, #statement{name = Name}) -> close(C, statement, Name).

-spec close(connection(), statement | portal, iodata()) ->
          epgsql_cmd_close:response() | epgsql_sock:error().
close(C, Object, Name) -> command(C, epgsql_cmd_close, {Object, Name}).

-spec sync(connection()) -> epgsql_cmd_sync:response() | epgsql_sock:error().
sync(C) -> command(C, epgsql_cmd_sync, []).

%% After a time-out or an end of the connection nothing is left to be synced.
-spec sync_on_error(connection(), Answer) -> Answer.
sync_on_error(C, {error, Reason} = Error) when is_record(Reason, error);
                                               Reason =:= sync_required; Reason =:= timeout ->
    _ = sync(C),
    Error;
sync_on_error(_, Answer) ->
    Answer.

%% --- transactions -------------------------------------------------------------------------------

-spec with_transaction(connection(), fun((connection()) -> Result)) -> Result | {rollback, any()}.
with_transaction(C, Fun) -> with_transaction(C, Fun, #{reraise => false}).

%% What the fun gives is given if COMMIT has been answered; if the fun fails, all is rolled back.
%% `begin_opts' is part of the statement as it is.
-spec with_transaction(connection(), fun((connection()) -> Result), transaction_opts()) ->
          Result | {rollback, any()}.
with_transaction(C, Fun, Options) ->
    #{reraise := Reraise, ensure_committed := Ensure, begin_opts := Begin} =
        maps:merge(#{reraise => true, ensure_committed => false, begin_opts => ""},
                   to_map(Options)),
    try
        {ok, [], []} = squery(C, ["BEGIN " | Begin]),
        Result = Fun(C),
        {ok, [], []} = squery(C, "COMMIT"),
        ok = committed(Ensure, C),
        Result
    catch
        Class:Reason:Stack ->
            _ = catch squery(C, "ROLLBACK"),
            case Reraise of
                true -> erlang:raise(Class, Reason, Stack);
                false -> {rollback, Reason}
            end
    end.

%% COMMIT of a failed transaction is answered, too, by ROLLBACK.
committed(false, _) -> ok;
committed(true, C) ->
    case get_cmd_status(C) of
        {ok, commit} -> ok;
        {ok, Status} -> error({ensure_committed_failed, Status})
    end.

%% --- COPY FROM STDIN ----------------------------------------------------------------------------

-spec copy_from_stdin(connection(), sql_query()) ->
          epgsql_cmd_copy_from_stdin:response() | epgsql_sock:error().
copy_from_stdin(C, Sql) -> copy_from_stdin(C, Sql, text).

%% From `{ok, _}' on the connection takes data: `text' as an I/O device (`io:put_chars/2',
%% `file:write/2'), `binary' by `copy_send_rows/3'. If the data is bad, `{epgsql, C, {error, _}}' is
%% sent to who has called this, and `copy_done/1' must not be called. A write that the server
%% doesn't take in time (`call_timeout', the last argument of `copy_send_rows/3') ends the
%% connection.
-spec copy_from_stdin(connection(), sql_query(), text | {binary, [epgsql_type()]}) ->
          epgsql_cmd_copy_from_stdin:response() | epgsql_sock:error().
copy_from_stdin(C, Sql, Format) -> command(C, epgsql_cmd_copy_from_stdin, {Sql, self(), Format}).

-spec copy_send_rows(connection(), [tuple() | [bind_param()]], timeout()) ->
          ok | {error, not_in_copy_mode | not_binary_format | timeout | closed | query_error()}.
copy_send_rows(C, Rows, Timeout) -> epgsql_sock:copy_send_rows(C, Rows, Timeout).

-spec copy_done(connection()) ->
          epgsql_cmd_copy_done:response() | epgsql_sock:error() | {error, not_in_copy_mode}.
copy_done(C) -> command(C, epgsql_cmd_copy_done, []).

%% --- COPY TO STDOUT -----------------------------------------------------------------------------

-spec copy_to_stdout(connection(), sql_query(), fun(([binary()], Acc) -> Acc), Acc) ->
          {ok, Count :: non_neg_integer(), Acc} | {error, any()}.
copy_to_stdout(C, Sql, Fun, Acc) -> copy_to_stdout(C, Sql, text, Fun, Acc).

%% Calls the fun with some rows at a time, as they come: lines of text and CSV, tuples of
%% `{binary, Types}'. The server waits for the fun; `with_timeout/2' is for each part.
-spec copy_to_stdout(connection(), sql_query(), epgsql_cmd_copy_to_stdout:format(),
                     fun(([binary() | tuple()], Acc) -> Acc), Acc) ->
          {ok, Count :: non_neg_integer(), Acc} | {error, any()}.
copy_to_stdout(C, Sql, Format, Fun, Acc) -> epgsql_copy_stream:fold(C, Sql, Format, Fun, Acc).

%% --- replication --------------------------------------------------------------------------------

-spec start_replication(connection(), iodata(), module() | pid(), any(), string()) ->
          epgsql_cmd_start_replication:response() | epgsql_sock:error().
start_replication(C, Slot, Receiver, State, Position) ->
    start_replication(C, Slot, Receiver, State, Position, [], []).

-spec start_replication(connection(), iodata(), module() | pid(), any(), string(), iodata()) ->
          epgsql_cmd_start_replication:response() | epgsql_sock:error().
start_replication(C, Slot, Receiver, State, Position, PluginOptions) ->
    start_replication(C, Slot, Receiver, State, Position, PluginOptions, []).

%% `Receiver' is a module with `handle_x_log_data/4' or a process, which gets
%% `{epgsql, C, {x_log_data, Start, End, Data}}' and, with `keepalives', `{epgsql, C, {keepalive,
%% End, MustReply}}'. `Position' is `"0/0"' for where the slot is.
-spec start_replication(connection(), iodata(), module() | pid(), any(), string(), iodata(),
                        [{align_lsn | keepalives | kind | timeline, any()}]
                        | epgsql_cmd_start_replication:options()) ->
          epgsql_cmd_start_replication:response() | epgsql_sock:error().
start_replication(C, Slot, Receiver, State, Position, PluginOptions, Options) ->
    command(C, epgsql_cmd_start_replication,
            {Slot, Receiver, State, Position, PluginOptions, to_map(Options)}).

-spec standby_status_update(connection(), lsn(), lsn()) -> ok | {error, not_in_replication_mode}.
standby_status_update(C, Flushed, Applied) ->
    epgsql_sock:standby_status_update(C, Flushed, Applied).
