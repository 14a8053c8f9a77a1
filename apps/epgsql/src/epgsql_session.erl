%% A connection's state, as commands and codecs see it. `epgsql_machine' moves it; processes hold
%% it: `epgsql_sock', and who has checked a connection out of a pool.
%%
%% Commands use this module; applications know it as `epgsql_sock', under the names of epgsql 4.8.
-module(epgsql_session).

-include("epgsql_session.hrl").

%% Reads that a socket may hand over before it waits to be asked: a mailbox stays bounded.
-define(ACTIVE, 16).
%% While rows of a COPY go to somebody who may be slow.
-define(ACTIVE_COPY, 1).
%% As much as a socket takes without waiting, whatever the server does.
-define(AT_ONCE, 32768).

-export([new/0, activate/1, set_attr/3, get_attr/2, get_codec/1, get_rows/1, get_results/1,
         get_subproto_state/1, get_parameter/2, notify/2, notify_async/2, set_packet_handler/2,
         send/2, send/3, send_data/3]).

-export_type([session/0, reply_to/0, handler/0, attribute/0]).

%% Not opaque: `epgsql_machine' and the processes that hold it are made of it.
-type session() :: #session{}.
%% How the answer goes to who asked: whole to a caller or by a message, row by row, into the session
%% for who holds it; `discard' when nobody waits any more.
-type reply_to() :: {call, gen_server:from()} | {cast, pid(), reference()}
                  | {incremental, pid(), reference()} | {direct, reference()} | discard.
-type handler() :: on_message | on_replication | on_copy_from_stdin | on_copy_to_stdout.
-type attribute() :: transport | backend | async | txstatus | codec | sync_required
                   | subproto_state | connect_opts | statements | is_held_up.

-spec new() -> session().
new() -> #session{}.

-spec set_attr(attribute(), any(), session()) -> session().
%% Another server's turn.
set_attr(transport, undefined, Session) ->
    Session#session{transport = undefined, backend = undefined, buffer = <<>>, parameters = #{},
                    statements = none};
set_attr(transport, Transport, Session) -> Session#session{transport = Transport};
set_attr(backend, {_, _} = Backend, Session) -> Session#session{backend = Backend};
set_attr(async, Async, Session) -> Session#session{async = Async};
set_attr(txstatus, Status, Session) -> Session#session{txstatus = Status};
set_attr(codec, Codec, #session{statements = Statements} = Session) ->
    %% What is kept of statements is made of codecs.
    _ = [epgsql_statements:clear(Statements) || Statements =/= none],
    Session#session{codec = Codec};
set_attr(sync_required, Required, Session) -> Session#session{sync_required = Required};
set_attr(subproto_state, State, Session) -> Session#session{subproto_state = State};
set_attr(statements, Statements, Session) -> Session#session{statements = Statements};
set_attr(is_held_up, IsHeldUp, Session) -> Session#session{is_held_up = IsHeldUp};
set_attr(connect_opts, Options, Session) -> Session#session{connect_opts = Options}.

-spec get_attr(attribute(), session()) -> any().
get_attr(transport, #session{transport = Transport}) -> Transport;
get_attr(backend, #session{backend = Backend}) -> Backend;
get_attr(async, #session{async = Async}) -> Async;
get_attr(txstatus, #session{txstatus = Status}) -> Status;
get_attr(codec, #session{codec = Codec}) -> Codec;
get_attr(sync_required, #session{sync_required = Required}) -> Required;
get_attr(subproto_state, #session{subproto_state = State}) -> State;
get_attr(statements, #session{statements = Statements}) -> Statements;
get_attr(is_held_up, #session{is_held_up = IsHeldUp}) -> IsHeldUp;
get_attr(connect_opts, #session{connect_opts = Options}) -> Options.

-spec get_codec(session()) -> epgsql_binary:codec().
get_codec(#session{codec = Codec}) -> Codec.

%% Of the result that is under way.
-spec get_rows(session()) -> [tuple()].
get_rows(#session{rows = Rows}) -> lists:reverse(Rows).

%% Of the command that is under way.
-spec get_results(session()) -> [any()].
get_results(#session{results = Results}) -> lists:reverse(Results).

-spec get_subproto_state(session()) -> any().
get_subproto_state(#session{subproto_state = State}) -> State.

%% What ParameterStatus has said last.
-spec get_parameter(binary(), session()) -> binary() | undefined.
get_parameter(Name, #session{parameters = Parameters}) -> maps:get(Name, Parameters, undefined).

-spec set_packet_handler(handler(), session()) -> session().
set_packet_handler(Handler, Session) -> Session#session{handler = Handler}.

%% To who gets its answer row by row.
-spec notify(session(), any()) -> session().
notify(#session{current = #command{reply_to = {incremental, Pid, Ref}}} = Session, Notice) ->
    Pid ! {self(), Ref, Notice},
    Session;
notify(Session, _) ->
    Session.

%% To who asked for notices and notifications. A name that nobody has is no error.
-spec notify_async(session(), any()) -> ok.
notify_async(#session{async = undefined}, _) -> ok;
notify_async(#session{async = Receiver}, Message) ->
    try Receiver ! {epgsql, self(), Message} of
        _ -> ok
    catch
        error:badarg -> ok
    end.

-spec activate(session()) -> ok | {error, any()}.
activate(#session{is_held = true}) -> ok;
activate(#session{transport = Transport, handler = on_copy_to_stdout}) ->
    epgsql_transport:activate(Transport, ?ACTIVE_COPY);
activate(#session{transport = Transport, connect_opts = Options}) ->
    epgsql_transport:activate(Transport, maps:get(socket_active, Options, ?ACTIVE)).

%% Without a type: the first messages of a connection.
-spec send(session(), iodata()) -> ok | {error, any()}.
send(#session{transport = Transport}, Payload) ->
    in_order(Transport, epgsql_wire:encode_command(Payload)).

-spec send(session(), epgsql_wire:packet_type(), iodata()) -> ok | {error, any()}.
send(#session{transport = Transport}, Type, Payload) ->
    in_order(Transport, epgsql_frontend:encode({Type, Payload})).

%% Messages as they are written. The server answers before it has read all of what is large: who
%% waited for room to write would have to read meanwhile, or both would wait for each other.
-spec send_data(session(), iodata(), Size :: non_neg_integer()) -> ok | {error, any()}.
send_data(#session{transport = Transport}, Data, Size) when Size =< ?AT_ONCE ->
    in_order(Transport, Data);
%% Nothing else is written before this is answered: `epgsql_machine' parks it.
send_data(#session{is_held = true, transport = Transport}, Data, _) ->
    _ = spawn(fun() -> epgsql_transport:send(Transport, Data) end),
    ok;
send_data(#session{transport = Transport}, Data, _) ->
    epgsql_writer:send(Transport, Data).

in_order(Transport, Data) ->
    case epgsql_writer:is_busy() of
        false -> epgsql_transport:send(Transport, Data);
        true -> epgsql_writer:send(Transport, Data)
    end.
