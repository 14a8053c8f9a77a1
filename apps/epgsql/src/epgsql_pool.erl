%% A pool of connections, by its name.
%%
%% A process that takes a connection uses its socket itself: no other is in the way of a query, or
%% of taking and giving back. If all are in use, callers wait in a queue that is bounded, first
%% come, first served, for `wait_ms' at most. The pool opens connections up to `size' when callers
%% wait, and closes unused ones, down to `min'.
%%
%% A connection that was left in a transaction, or with an answer that is still to come, is closed
%% and never given to another caller; so is the connection of a process that has died. Session state
%% that SQL sets (SET, temporary tables, LISTEN) stays with a connection.
-module(epgsql_pool).

-include("epgsql_pool.hrl").

-export([start_link/2, child_spec/2, stop/1, squery/2, squery/3, equery/2, equery/3, equery/4,
         with/2, with/3, transaction/2, transaction/3, checkout/1, checkin/2, metrics/1]).

-export_type([name/0, options/0, call_options/0, lease/0]).

-type name() :: atom().
%% `opened': has each new connection before anybody else, for what a session needs and can't have in
%% its first message. An error closes the connection, and is the reason why there is none.
-type options() :: #{connect := epgsql:connect_opts(),
                     opened => fun((epgsql:connection()) -> ok | {error, term()}),
                     size => pos_integer(), min => non_neg_integer(),
                     queue_max => non_neg_integer(), wait_ms => timeout(),
                     idle_ms => timeout(), check_ms => timeout(), look_ms => non_neg_integer(),
                     turn_ms => non_neg_integer()}.
%% `timeout': for each answer, as `epgsql:with_timeout/2'.
-type call_options() :: #{wait_ms => timeout(), timeout => timeout(), _ => _}.
-type error() :: {error, epgsql_pool_lease:refusal() | timeout}.
-opaque lease() :: {epgsql_pool_lease:pool(), epgsql_pool_lease:slot(),
                    epgsql_session:session()}.

-spec start_link(name(), options()) -> gen_server:start_ret().
start_link(Name, Options) -> epgsql_pool_server:start_link(Name, Options).

-spec child_spec(name(), options()) -> supervisor:child_spec().
child_spec(Name, Options) ->
    #{id => {?MODULE, Name}, start => {?MODULE, start_link, [Name, Options]}}.

-spec stop(name()) -> ok.
stop(Name) -> epgsql_pool_server:stop(Name).

%% --- queries ------------------------------------------------------------------------------------

-spec squery(name(), epgsql:sql_query()) -> epgsql_cmd_squery:response() | error().
squery(Name, Sql) -> squery(Name, Sql, #{}).

-spec squery(name(), epgsql:sql_query(), call_options()) -> epgsql_cmd_squery:response() | error().
squery(Name, Sql, Options) ->
    case take(Name, none, Options) of
        {ok, Pool, Slot} -> run(Slot, epgsql_cmd_squery, Sql, Options, Pool);
        {error, _} = Error -> Error
    end.

-spec equery(name(), epgsql:sql_query()) -> epgsql_cmd_query:response() | error().
equery(Name, Sql) -> equery(Name, Sql, [], #{}).

-spec equery(name(), epgsql:sql_query(), [epgsql:bind_param()]) ->
          epgsql_cmd_query:response() | error().
equery(Name, Sql, Parameters) -> equery(Name, Sql, Parameters, #{}).

-spec equery(name(), epgsql:sql_query(), [epgsql:bind_param()], call_options()) ->
          epgsql_cmd_query:response() | error().
equery(Name, Sql, Parameters, Options) ->
    Request = epgsql_known:request(Sql, Parameters),
    case take(Name, Request, Options) of
        {sent, Pool, Slot, Asked} -> answer(Slot, Asked, Options, Pool);
        {ok, Pool, Slot} ->
            try epgsql_known:ask(Request, epgsql_pool_lease:connection(Slot, Pool)) of
                {asked, Asked} -> answer(Slot, Asked, Options, Pool);
                no -> run(Slot, epgsql_cmd_query, {Sql, Parameters}, Options, Pool)
            catch
                error:badarg -> {error, no_pool}
            end;
        {error, _} = Error -> Error
    end.

answer(Slot, Asked, Options, Pool) ->
    case epgsql_known:answer(Asked, maps:get(timeout, Options, default)) of
        {ok, Answer} ->
            ok = epgsql_pool_lease:give_back(Slot, Pool),
            Answer;
        {other, Received, Deadline} ->
            with_session(Slot, Pool, fun(Session) ->
                epgsql_known:go_on(Asked, Received, Deadline, Session)
            end)
    end.

run(Slot, Command, Arguments, Options, Pool) ->
    with_session(Slot, Pool, fun(Session) ->
        epgsql_held:run(Command, Arguments, maps:get(timeout, Options, default), Session)
    end).

with_session(Slot, Pool, Fun) ->
    case session(Slot, Pool) of
        {ok, Before} ->
            try Fun(Before) of
                {Answer, After} ->
                    ok = epgsql_pool_lease:give_back(Slot, Before, After, Pool),
                    Answer
            catch
                Class:Reason:Stack ->
                    ok = epgsql_pool_lease:drop(Slot, Pool),
                    erlang:raise(Class, Reason, Stack)
            end;
        {error, _} = Error -> Error
    end.

%% Tables end with the pool.
session(Slot, Pool) ->
    try {ok, epgsql_pool_lease:session(Slot, Pool)}
    catch error:badarg -> {error, closed}
    end.

take(Name, Request, Options) ->
    case persistent_term:get(epgsql_pool_lease:key(Name), none) of
        none -> {error, no_pool};
        #pool{wait_ms = WaitMs} = Pool ->
            try epgsql_pool_lease:take(Request, Pool, maps:get(wait_ms, Options, WaitMs)) of
                {ok, Slot} -> {ok, Pool, Slot};
                {sent, Slot, Asked} -> {sent, Pool, Slot, Asked};
                {error, _} = Error -> Error
            catch
                error:badarg -> {error, no_pool}
            end
    end.

%% With its session, for what isn't a query of a known statement.
take(Name, Options) ->
    case take(Name, none, Options) of
        {ok, Pool, Slot} ->
            case session(Slot, Pool) of
                {ok, Session} -> {ok, {Pool, Slot, Session}};
                {error, _} = Error -> Error
            end;
        {error, _} = Error -> Error
    end.

%% --- connections --------------------------------------------------------------------------------

-spec with(name(), fun((epgsql:connection()) -> Result)) -> Result | error().
with(Name, Fun) -> with(Name, Fun, #{}).

%% The fun gets a connection for the calls of `epgsql', in this process and until it returns.
-spec with(name(), fun((epgsql:connection()) -> Result), call_options()) -> Result | error().
with(Name, Fun, Options) ->
    case take(Name, Options) of
        {ok, {Pool, Slot, Before}} ->
            Handle = epgsql_held:hold(Before),
            try
                case Options of
                    #{timeout := Timeout} -> Fun(epgsql:with_timeout(Handle, Timeout));
                    #{} -> Fun(Handle)
                end
            after
                ok = epgsql_pool_lease:give_back(Slot, Before, epgsql_held:let_go(Handle), Pool)
            end;
        {error, _} = Error -> Error
    end.

-spec transaction(name(), fun((epgsql:connection()) -> Result)) ->
          Result | {rollback, any()} | error().
transaction(Name, Fun) -> transaction(Name, Fun, #{}).

%% The options of `epgsql:with_transaction/3' besides.
-spec transaction(name(), fun((epgsql:connection()) -> Result), call_options()) ->
          Result | {rollback, any()} | error().
transaction(Name, Fun, Options) ->
    Its = maps:merge(#{reraise => false}, Options),
    with(Name, fun(C) -> epgsql:with_transaction(C, Fun, Its) end, Options).

%% For who can't use `with': must be given back by this process.
-spec checkout(name()) -> {ok, epgsql:connection(), lease()} | error().
checkout(Name) ->
    case take(Name, #{}) of
        {ok, {_, _, Session} = Lease} -> {ok, epgsql_held:hold(Session), Lease};
        {error, _} = Error -> Error
    end.

-spec checkin(epgsql:connection(), lease()) -> ok.
checkin(Handle, {Pool, Slot, Before}) ->
    epgsql_pool_lease:give_back(Slot, Before, epgsql_held:let_go(Handle), Pool).

%% Connections as they are now, and what has been counted since the pool began.
-spec metrics(name()) -> #{atom() => integer()} | error().
metrics(Name) ->
    case persistent_term:get(epgsql_pool_lease:key(Name), none) of
        none -> {error, no_pool};
        #pool{slots = Slots, size = Size} = Pool ->
            Idle = epgsql_pool_slots:count_idle(Slots),
            Opening = epgsql_pool_lease:count(?OPENING, Pool),
            Open = epgsql_pool_lease:count(?SIZE, Pool) - Opening,
            maps:from_list([{size, Size}, {idle, Idle}, {opening, Opening},
                            {in_use, max(0, Open - Idle)}
                            | [{Metric, epgsql_pool_lease:count(Number, Pool)}
                               || {Metric, Number} <- counted()]])
    end.

counted() ->
    [{waiting, ?WAITING}, {taken, ?TAKEN}, {waited, ?WAITED}, {refused, ?REFUSED},
     {timed_out, ?TIMED_OUT}, {opened, ?OPENED}, {closed, ?CLOSED}, {failed, ?FAILED}].
