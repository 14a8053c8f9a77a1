%% A query whose statement its connection keeps, in the shortest way: one write, one read, and no
%% session, which is large, unless the answer is anything but whole and good.
%%
%% The writer and the reader may be different processes (`epgsql_pool_lease'). If this can't go on,
%% `epgsql_held' does from here: nothing is sent twice.
-module(epgsql_known).

-include("epgsql_session.hrl").

-export([connection/1, request/2, small/1, ask/2, answer/2, go_on/4]).

-export_type([connection/0, request/0, asked/0, received/0]).

%% More is written by who reads meanwhile: `epgsql_session:send_data/3'.
-define(AT_ONCE, 32768).
%% A request that another process may write: so many values of so many bytes.
-define(SMALL_VALUES, 16).
-define(SMALL_BYTES, 1024).

-record(connection, {transport :: epgsql_transport:transport(),
                     statements :: epgsql_statements:cache(),
                     timeout :: timeout()}).
-record(asked, {transport :: epgsql_transport:transport(),
                timeout :: timeout(),
                state :: epgsql_cmd_query:state(),
                size :: pos_integer()}).

-opaque connection() :: #connection{} | none.
-type request() :: {Sql :: binary(), [epgsql:bind_param()]} | none.
-opaque asked() :: #asked{}.
-type received() :: {ok, binary()} | {error, any()}.

%% Of a session on which nothing is under way.
-spec connection(epgsql_session:session()) -> connection().
connection(#session{statements = none}) -> none;
connection(#session{transport = Transport, statements = Statements, connect_opts = Options}) ->
    #connection{transport = Transport, statements = Statements,
                timeout = maps:get(call_timeout, Options, infinity)}.

-spec request(epgsql:sql_query(), [epgsql:bind_param()]) -> request().
request(Sql, Parameters) when is_binary(Sql) -> {Sql, Parameters};
request(_, _) -> none.

%% The request, if another process may write it: its values must be quickly copied and encoded.
-spec small(request()) -> request().
small({Sql, Values} = Request) when byte_size(Sql) =< ?AT_ONCE ->
    case are_small(Values, ?SMALL_VALUES) of
        true -> Request;
        false -> none
    end;
small(_) -> none.

are_small([], _) -> true;
are_small([Value | Values], Left)
  when Left > 0, is_number(Value) orelse is_atom(Value)
       orelse is_binary(Value) andalso byte_size(Value) =< ?SMALL_BYTES ->
    are_small(Values, Left - 1);
are_small(_, _) -> false.

-spec ask(request(), connection()) -> {asked, asked()} | no.
ask({Sql, Parameters}, #connection{transport = Transport, statements = Statements,
                                   timeout = Timeout}) ->
    case epgsql_cmd_query:known(Sql, Parameters, Statements) of
        {ok, Data, State} ->
            case iolist_size(Data) of
                Size when Size =< ?AT_ONCE ->
                    %% A socket that can't be written to says so when it is read, too.
                    _ = epgsql_transport:send(Transport, Data),
                    {asked, #asked{transport = Transport, timeout = Timeout, state = State,
                                   size = Size}};
                _ -> no
            end;
        none -> no
    end;
ask(_, _) -> no.

-spec answer(asked(), default | timeout()) ->
          {ok, epgsql_cmd_query:response()} | {other, received(), epgsql_transport:deadline()}.
answer(#asked{timeout = Timeout} = Asked, default) -> answer(Asked, Timeout);
answer(#asked{transport = Transport, state = State}, Timeout) ->
    Deadline = epgsql_transport:deadline(Timeout),
    case epgsql_transport:recv(Transport, Timeout) of
        {ok, Bytes} = Received ->
            case epgsql_cmd_query:whole(Bytes, State) of
                {ok, _} = Answer -> Answer;
                no -> {other, Received, Deadline}
            end;
        {error, _} = Error -> {other, Error, Deadline}
    end.

%% What `answer/2' gave as `other', in the connection's session.
-spec go_on(asked(), received(), epgsql_transport:deadline(), epgsql_session:session()) ->
          {epgsql_cmd_query:response(), epgsql_session:session()}.
go_on(#asked{state = State, size = Size}, Received, Deadline, Session) ->
    epgsql_held:go_on(epgsql_cmd_query, State, Size, Received, Deadline, Session).
