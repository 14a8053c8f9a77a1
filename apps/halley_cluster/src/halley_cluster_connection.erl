%% A connection to the one server that takes writes. The process that opens it uses its socket
%% itself; it dies with that process, and never by a link.
%%
%% All hosts are tried at once, so that a host that is switched off costs no time. A host that is in
%% recovery, or whose transactions can't write, is passed over: the log is read from the primary
%% alone, as a standby may be late.
%%
%% No request is ever cancelled. A commit that waits for a standby answers a cancel with success,
%% and the row is then on one disk. When a request's time is over, the connection is closed; the
%% server finishes what it was doing.
-module(halley_cluster_connection).

-include_lib("epgsql/include/epgsql.hrl").

-export([open/2, close/1, run/4, copy/4, simple/3, has_warned/0, away/1]).

-export_type([session/0, failure/0]).

-type session() :: epgsql_session:session().
-type failure() :: epgsql:query_error() | term().
%% Why there is no connection, or why the server did nothing.
-type away() :: halley_log_engine:away().

%% Of each host, and for what it says of itself then; `timeout' of the options, if it has one.
-define(CONNECT_MS, 2000).
%% More than the engine has.
-define(STATEMENTS, 30).

%% `Options' are those of `epgsql:connect/1', with `host' or `hosts'. `Kept': whether the session
%% may keep statements, as a pooler doesn't allow it. `{refused, _}' has a sentence for the
%% operator.
-spec open(epgsql:connect_opts_map(), Kept :: boolean()) -> {ok, session()} | {error, away()}.
open(Given, Kept) ->
    Options = Given#{statement_cache => case Kept of
        true -> ?STATEMENTS;
        false -> 0
    end},
    Owner = self(),
    Ref = make_ref(),
    Tries = [spawn_monitor(fun() -> try_host(Host, Port, Options, Owner, Ref) end)
             || {Host, Port} <- hosts(Options)],
    first(Tries, Ref, []).

hosts(#{hosts := Hosts} = Options) ->
    [case Host of
         {_, _} -> Host;
         _ -> {Host, port(Options)}
     end || Host <- Hosts];
hosts(#{host := Host} = Options) -> [{Host, port(Options)}].

port(Options) -> maps:get(port, Options, 5432).

try_host(Host, Port, Options, Owner, Ref) ->
    Own = maps:merge(#{timeout => ?CONNECT_MS, application_name => "halley", login_errors => whole},
                     maps:without([hosts, target_session_attrs], Options)),
    Result = case epgsql_held:open(Own#{host => Host, port => Port, codecs => [],
                                        async => Owner}) of
        {ok, Session} -> probed(maps:get(timeout, Own), Session);
        {error, Reason} -> {error, unreached(Reason)}
    end,
    case Result of
        {ok, Good} ->
            ok = epgsql_held:give_away(Good, Owner),
            Owner ! {Ref, self(), Result};
        {error, _} -> Owner ! {Ref, self(), Result}
    end.

first([], _, Reasons) ->
    {error, hd([Reason || Kind <- [read_only, refused, full, away],
                          Reason <- Reasons, kind(Reason) =:= Kind] ++ [away])};
first(Tries, Ref, Reasons) ->
    receive
        {Ref, Pid, {ok, Session}} ->
            ok = leave(lists:keydelete(Pid, 1, Tries), Ref),
            ok = ended(lists:keyfind(Pid, 1, Tries)),
            {ok, Session};
        {Ref, Pid, {error, Reason}} ->
            ok = ended(lists:keyfind(Pid, 1, Tries)),
            first(lists:keydelete(Pid, 1, Tries), Ref, [Reason | Reasons]);
        {'DOWN', Monitor, process, Pid, Reason} when Reason =/= normal ->
            true = lists:member({Pid, Monitor}, Tries),
            first(lists:keydelete(Pid, 1, Tries), Ref, [away | Reasons])
    end.

kind({Kind, _}) -> Kind;
kind(Kind) -> Kind.

ended({_, Monitor}) ->
    true = demonitor(Monitor, [flush]),
    ok.

%% Some may have a connection by now.
leave(Tries, Ref) ->
    lists:foreach(fun({Pid, Monitor}) ->
        true = exit(Pid, kill),
        receive {'DOWN', Monitor, process, Pid, _} -> ok end,
        receive
            {Ref, Pid, {ok, Session}} -> close(Session);
            {Ref, Pid, {error, _}} -> ok
        after 0 -> ok
        end
    end, Tries).

probed(TimeoutMs, Session) ->
    case run("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool, "
             "current_setting('transaction_isolation')", [], TimeoutMs, Session) of
        {{ok, [{false, <<"read committed">>}]}, Probed} -> {ok, Probed};
        {{ok, [{true, _}]}, Probed} -> refused(read_only, Probed);
        {{ok, [{_, Isolation}]}, Probed} ->
            refused({refused, ["the role's transactions are ", Isolation, ", and the log needs "
                               "them as PostgreSQL has them by default: ALTER ROLE CURRENT_USER "
                               "RESET default_transaction_isolation, and the same for the "
                               "database"]}, Probed);
        {{error, Reason}, Probed} -> refused(away(Reason), Probed)
    end.

refused(Reason, Session) ->
    ok = close(Session),
    {error, Reason}.

-spec close(session()) -> ok.
close(Session) -> epgsql_held:discard(Session).

%% One statement, one round trip. After `{error, Reason}' where `Reason' isn't an `#error{}' the
%% session is good for `close/1' alone.
-spec run(iodata(), [{epgsql:epgsql_type(), term()}], timeout(), session()) ->
    {{ok, [tuple()]} | {error, failure()}, session()}.
run(Sql, Typed, TimeoutMs, Session) ->
    case epgsql_session:get_attr(statements, Session) of
        none -> epgsql_held:run(halley_cluster_once, {Sql, Typed}, TimeoutMs, Session);
        _ ->
            {Answer, After} = epgsql_held:run(epgsql_cmd_query,
                                              {Sql, [Value || {_, Value} <- Typed]}, TimeoutMs,
                                              Session),
            {case Answer of
                 {ok, _, _, Rows} -> {ok, Rows};
                 {ok, _, Rows} -> {ok, Rows};
                 {ok, _} -> {ok, []};
                 {error, _} -> Answer
             end, After}
    end.

%% Statements without values and without an interest in rows.
-spec simple(iodata(), timeout(), session()) -> {ok | {error, failure()}, session()}.
simple(Sql, TimeoutMs, Session) ->
    {Answer, After} = epgsql_held:run(epgsql_cmd_squery, Sql, TimeoutMs, Session),
    Answers = case is_list(Answer) of
        true -> Answer;
        false -> [Answer]
    end,
    {hd([Error || {error, _} = Error <- Answers] ++ [ok]), After}.

%% The rows of a query, some at a time. The time is for each part of them.
-spec copy({iodata(), [epgsql:epgsql_type()]}, timeout(), fun(([tuple()]) -> ok), session()) ->
    {ok | {error, failure()}, session()}.
copy({Sql, Types}, TimeoutMs, Fun, Session) ->
    Handle = epgsql_held:hold(Session),
    try epgsql_held:fold(epgsql:with_timeout(Handle, TimeoutMs),
                         ["COPY (", Sql, ") TO STDOUT (FORMAT binary)"], {binary, Types},
                         fun(Rows, ok) -> Fun(Rows) end, ok) of
        {ok, _, ok} -> {ok, epgsql_held:let_go(Handle)};
        {error, _} = Error -> {Error, epgsql_held:let_go(Handle)}
    catch
        Class:Reason:Stack ->
            ok = close(epgsql_held:let_go(Handle)),
            erlang:raise(Class, Reason, Stack)
    end.

%% Whether a warning has come since the last look. A commit whose wait for a standby was cancelled
%% warns, in the words of the server's language.
-spec has_warned() -> boolean().
has_warned() -> has_warned(false).

has_warned(Before) ->
    Self = self(),
    receive
        {epgsql, Self, {notice, #error{severity = Severity}}} ->
            has_warned(Before orelse not lists:member(Severity, [notice, info, log, debug]))
    after 0 -> Before
    end.

%% What an error of the server, or of the way to it, means for a caller, if nothing was done.
-spec away(failure()) -> away().
away(#error{code = <<"53100">>}) -> full;
away(#error{code = <<"25006">>}) -> read_only;
%% Of pg_current_wal_lsn(): recovery is in progress.
away(#error{code = <<"55000">>}) -> read_only;
away(#error{code = <<Class:2/binary, _/binary>>, message = Message}) ->
    case lists:member(Class, [<<"08">>, <<"40">>, <<"53">>, <<"55">>, <<"57">>, <<"58">>]) of
        true -> away;
        false -> {refused, ["PostgreSQL refuses it: ", Message]}
    end;
away(_) -> away.

unreached(#error{} = Error) -> away(Error);
unreached(Reason) when Reason =:= password_missing; Reason =:= invalid_password;
                       Reason =:= invalid_authorization_specification ->
    {refused, ["PostgreSQL refuses the login: ", atom_to_list(Reason)]};
unreached({unsupported_auth_method, Method}) ->
    {refused, io_lib:format("PostgreSQL wants a login by ~0tp, which isn't known here", [Method])};
unreached({sasl_server_final, _}) ->
    {refused, "the server doesn't know the password that it asks for"};
unreached(_) -> away.
