%% The calls of `epgsqla' and `epgsqli', which differ only in how they are answered: `?ANSWER' is
%% what `epgsql_sock:async_command/4' takes.

-include("epgsql.hrl").

-export([start_link/0, connect/1, connect/2, connect/3, connect/4, connect/5, close/1,
         get_parameter/2, set_notice_receiver/2, get_cmd_status/1, get_backend_pid/1, squery/2,
         equery/2, equery/3, prepared_query/3, parse/2, parse/3, parse/4, describe/2, describe/3,
         bind/3, bind/4, execute/2, execute/3, execute/4, execute_batch/2, execute_batch/3,
         close/2, close/3, sync/1, cancel/1]).

-type host() :: inet:ip_address() | inet:hostname() | binary().

%% --- connections --------------------------------------------------------------------------------

-spec start_link() -> {ok, pid()}.
start_link() -> epgsql_sock:start_link().

%% The answer is `{C, Ref, connected}' or `{C, Ref, {error, Reason}}'.
-spec connect(epgsql:connect_opts()) -> reference().
connect(Options) ->
    {ok, C} = epgsql_sock:start_link(),
    connect_process(C, epgsql:to_map(Options)).

-spec connect(host(), epgsql:connect_opts()) -> reference().
connect(Host, Options) -> connect(Host, os:getenv("USER", "postgres"), "", Options).

-spec connect(host(), iodata(), epgsql:connect_opts()) -> reference().
connect(Host, Username, Options) -> connect(Host, Username, "", Options).

-spec connect(host(), iodata(), iodata() | fun(() -> iodata()), epgsql:connect_opts()) ->
          reference().
connect(Host, Username, Password, Options) ->
    {ok, C} = epgsql_sock:start_link(),
    connect(C, Host, Username, Password, Options).

-spec connect(pid(), host(), iodata(), iodata() | fun(() -> iodata()), epgsql:connect_opts()) ->
          reference().
connect(C, Host, Username, Password, Options) ->
    Who = #{host => Host, username => Username, password => Password},
    connect_process(C, maps:merge(epgsql:to_map(Options), Who)).

connect_process(C, Options) ->
    command(C, epgsql_cmd_connect, epgsql_cmd_connect:opts_hide_password(Options)).

-spec close(pid()) -> ok.
close(C) -> epgsql_sock:close(C).

-spec get_parameter(pid(), iodata()) -> {ok, binary() | undefined}.
get_parameter(C, Name) -> epgsql_sock:get_parameter(C, Name).

-spec set_notice_receiver(pid(), pid() | atom()) -> {ok, pid() | atom()}.
set_notice_receiver(C, Receiver) -> epgsql_sock:set_notice_receiver(C, Receiver).

-spec get_cmd_status(pid()) -> {ok, undefined | epgsql_backend:complete()}.
get_cmd_status(C) -> epgsql_sock:get_cmd_status(C).

-spec get_backend_pid(pid()) -> integer().
get_backend_pid(C) -> epgsql_sock:get_backend_pid(C).

-spec cancel(pid()) -> ok.
cancel(C) -> epgsql_sock:cancel(C).

command(C, Command, Arguments) -> epgsql_sock:async_command(C, ?ANSWER, Command, Arguments).

%% --- queries ------------------------------------------------------------------------------------

-spec squery(pid(), epgsql:sql_query()) -> reference().
squery(C, Sql) -> command(C, epgsql_cmd_squery, Sql).

-spec equery(pid(), epgsql:statement() | epgsql:sql_query()) -> reference().
equery(C, Query) -> equery(C, Query, []).

%% Of a parsed statement, as in epgsql 4.8, or of a text, whose parameters need no types.
-spec equery(pid(), epgsql:statement(), [epgsql:typed_param()]) -> reference();
            (pid(), epgsql:sql_query(), [epgsql:bind_param()]) -> reference().
equery(C, #statement{} = Statement, Parameters) ->
    command(C, epgsql_cmd_equery, {Statement, Parameters});
equery(C, Sql, Parameters) ->
    command(C, epgsql_cmd_query, {Sql, Parameters}).

-spec prepared_query(pid(), epgsql:statement(), [epgsql:typed_param()]) -> reference().
prepared_query(C, Statement, Parameters) ->
    command(C, epgsql_cmd_prepared_query, {Statement, Parameters}).

-spec parse(pid(), epgsql:sql_query()) -> reference().
parse(C, Sql) -> parse(C, "", Sql, []).

-spec parse(pid(), epgsql:sql_query(), [epgsql:epgsql_type() | undefined]) -> reference().
parse(C, Sql, Types) -> parse(C, "", Sql, Types).

-spec parse(pid(), iodata(), epgsql:sql_query(), [epgsql:epgsql_type() | undefined]) ->
          reference().
parse(C, Name, Sql, Types) -> command(C, epgsql_cmd_parse, {Name, Sql, Types}).

-spec describe(pid(), epgsql:statement()) -> reference().
describe(C, #statement{name = Name}) -> describe(C, statement, Name).

-spec describe(pid(), statement | portal, iodata()) -> reference().
describe(C, statement, Name) -> command(C, epgsql_cmd_describe_statement, Name);
describe(C, portal, Name) -> command(C, epgsql_cmd_describe_portal, Name).

-spec bind(pid(), epgsql:statement(), [epgsql:bind_param()]) -> reference().
bind(C, Statement, Parameters) -> bind(C, Statement, "", Parameters).

-spec bind(pid(), epgsql:statement(), iodata(), [epgsql:bind_param()]) -> reference().
bind(C, Statement, Portal, Parameters) ->
    command(C, epgsql_cmd_bind, {Statement, Portal, Parameters}).

-spec execute(pid(), epgsql:statement()) -> reference().
execute(C, Statement) -> execute(C, Statement, "", 0).

-spec execute(pid(), epgsql:statement(), non_neg_integer()) -> reference().
execute(C, Statement, RowsMax) -> execute(C, Statement, "", RowsMax).

-spec execute(pid(), epgsql:statement(), iodata(), non_neg_integer()) -> reference().
execute(C, Statement, Portal, RowsMax) ->
    command(C, epgsql_cmd_execute, {Statement, Portal, RowsMax}).

-spec execute_batch(pid(), [{epgsql:statement(), [epgsql:bind_param()]}]) -> reference().
execute_batch(C, Batch) -> command(C, epgsql_cmd_batch, Batch).

-spec execute_batch(pid(), epgsql:statement(), [[epgsql:bind_param()]]) -> reference().
execute_batch(C, Statement, Batch) -> command(C, epgsql_cmd_batch, {Statement, Batch}).

-spec close(pid(), epgsql:statement()) -> reference().
close(C, #statement{name = Name}) -> close(C, statement, Name).

-spec close(pid(), statement | portal, iodata()) -> reference().
close(C, Object, Name) -> command(C, epgsql_cmd_close, {Object, Name}).

-spec sync(pid()) -> reference().
sync(C) -> command(C, epgsql_cmd_sync, []).
