%% The behaviour of commands: what is sent for one request, and what its answers amount to.
%% Applications bring their own through `epgsql_sock:sync_command/3' and `async_command/4'.
%%
%% `execute/2' runs when the request arrives, also while answers to earlier ones are awaited
%% (pipelining), and again after `requeue'. `handle_message/4' gets each answer of the server;
%% ErrorResponse comes as `#error{}'. It must not send: it returns `requeue' for that.
-module(epgsql_command).

-export([init/2, execute/3, handle_message/5]).

-export_type([command/0, state/0, execute_return/0, handle_message_return/0]).

-type command() :: module().
-type state() :: any().
-type execute_return() ::
        {ok, epgsql_sock:pg_sock(), state()}
      | {send, epgsql_wire:packet_type(), iodata(), epgsql_sock:pg_sock(), state()}
      | {send_multi, [{epgsql_wire:packet_type(), iodata()}], epgsql_sock:pg_sock(), state()}
        %% Answered without the server.
      | {finish, Result :: any(), Notification :: any(), epgsql_sock:pg_sock()}
        %% Ends the connection.
      | {stop, Reason :: any(), Response :: any(), epgsql_sock:pg_sock()}.
-type handle_message_return() ::
        {noaction, epgsql_sock:pg_sock()}
      | {noaction, epgsql_sock:pg_sock(), state()}
        %% One row more; `epgsql_sock:get_rows/1' has those since the last result.
      | {add_row, tuple(), epgsql_sock:pg_sock(), state()}
        %% One result more; `epgsql_sock:get_results/1'. `epgsqli' sends the notification.
      | {add_result, Result :: any(), Notification :: any(), epgsql_sock:pg_sock(), state()}
        %% The request is answered.
      | {finish, Result :: any(), Notification :: any(), epgsql_sock:pg_sock()}
        %% `execute/2' again, behind what has been sent meanwhile.
      | {requeue, epgsql_sock:pg_sock(), state()}
        %% The request is answered by an error, and the server ignores all until Sync.
      | {sync_required, Response :: any()}
      | {stop, Reason :: any(), Response :: any(), epgsql_sock:pg_sock()}
        %% Not a message that belongs here: ends the connection.
      | unknown.

-callback init(Arguments :: any()) -> state().
-callback execute(epgsql_sock:pg_sock(), state()) -> execute_return().
-callback handle_message(Type :: byte(), Payload :: binary() | epgsql:query_error(),
                         epgsql_sock:pg_sock(), state()) -> handle_message_return().

%% How the rows that come now are read, where all that `handle_message/4' does with a DataRow is to
%% add it: many are read at once then.
-callback row_decoder(state()) -> epgsql_wire:row_decoder() | undefined.
-optional_callbacks([row_decoder/1]).

-spec init(command(), any()) -> state().
init(Command, Arguments) -> Command:init(Arguments).

-spec execute(command(), epgsql_sock:pg_sock(), state()) -> execute_return().
execute(Command, Session, State) -> Command:execute(Session, State).

-spec handle_message(command(), byte(), binary() | epgsql:query_error(), epgsql_sock:pg_sock(),
                     state()) -> handle_message_return().
handle_message(Command, Type, Payload, Session, State) ->
    Command:handle_message(Type, Payload, Session, State).
