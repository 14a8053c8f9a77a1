%% A connection that carries data instead of answers: COPY FROM STDIN, COPY TO STDOUT, and streaming
%% replication, which leaves only with the connection. The data of a COPY FROM STDIN is
%% `epgsql_copy_in''s.
%%
%% Rows of a COPY TO STDOUT are handed over by reads, and the socket is read while few of them
%% wait to be taken: the receiver's pace is the server's.
%%
%% PostgreSQL's documentation, "COPY Operations" and "Streaming Replication Protocol".
-module(epgsql_subprotocol).

-include("epgsql_session.hrl").
-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

%% So many reads may wait to be taken.
-define(WAITING_MAX, 4).

-export([handle/3, idle/1, passive/1, copy_taken/2, copy_stop/2, copy_left/2,
         standby_status_update/3]).

%% A message that isn't one of those that come at any time. `leave': the mode is over.
-spec handle(byte(), binary(), #session{}) -> epgsql_machine:step() | {leave, #session{}}.
handle(?ERROR, Payload, #session{handler = on_copy_from_stdin, subproto_state = Copy} = Session) ->
    Error = epgsql_backend:error(Payload),
    {noreply, Session#session{subproto_state = Copy#copy{last_error = Error}}};
handle(?READY_FOR_QUERY, Payload,
       #session{handler = on_copy_from_stdin,
                subproto_state = #copy{initiator = Pid, last_error = Error}} = Session) ->
    %% Only now can the connection be used again, so only now it is told.
    Pid ! {epgsql, self(), {error, Error}},
    {noreply, Session#session{handler = on_message, subproto_state = undefined,
                              txstatus = epgsql_backend:ready(Payload)}};
handle(?COPY_DATA, Payload, #session{handler = on_copy_to_stdout,
                                     subproto_state = #copy_out{batch = Batch} = Out} = Session) ->
    {noreply, Session#session{subproto_state = Out#copy_out{batch = [Payload | Batch]}}};
handle(?COPY_DONE, _, #session{handler = on_copy_to_stdout} = Session) ->
    {noreply, copy_ended(Session)};
handle(?ERROR, _, #session{handler = on_copy_to_stdout} = Session) ->
    {leave, copy_ended(Session)};
handle(?COPY_DATA, Payload, #session{handler = on_replication} = Session) ->
    {noreply, replicated(epgsql_backend:copy_data(Payload), Session)};
handle(?ERROR, Payload, #session{handler = on_replication} = Session) ->
    {stop, {error, epgsql_backend:error(Payload)}, Session};
handle(Type, _, #session{handler = on_replication} = Session) when Type =:= ?COPY_DONE;
                                                                    Type =:= ?COMMAND_COMPLETE ->
    {noreply, Session};
handle(Type, _, #session{handler = Handler} = Session) ->
    {stop, {unexpected_message, Type, Handler}, Session}.

%% --- COPY TO STDOUT -----------------------------------------------------------------------------

hand_over(#session{subproto_state = #copy_out{batch = []}} = Session) -> Session;
hand_over(#session{subproto_state = #copy_out{receiver = none} = Out} = Session) ->
    Session#session{subproto_state = Out#copy_out{batch = []}};
hand_over(#session{replies = Replies,
                   subproto_state = #copy_out{receiver = direct, ref = Ref, batch = Batch} = Out}
          = Session) ->
    Session#session{replies = [{Ref, {copy_data, lists:reverse(Batch)}} | Replies],
                    subproto_state = Out#copy_out{batch = []}};
hand_over(#session{subproto_state = #copy_out{receiver = Pid, ref = Ref, batch = Batch,
                                              waiting = Waiting} = Out} = Session) ->
    Pid ! {self(), Ref, {copy_data, lists:reverse(Batch)}},
    Session#session{subproto_state = Out#copy_out{batch = [], waiting = Waiting + 1}}.

copy_ended(Session) ->
    #session{subproto_state = #copy_out{monitor = Monitor}} = Ended = hand_over(Session),
    _ = [demonitor(Each, [flush]) || Each <- Monitor],
    Ended#session{handler = on_message, subproto_state = undefined}.

%% The socket has handed over what it may. Shall it go on?
-spec passive(#session{}) -> {activate | wait, #session{}}.
passive(#session{handler = on_copy_to_stdout,
                 subproto_state = #copy_out{waiting = Waiting} = Out} = Session)
  when Waiting >= ?WAITING_MAX ->
    {wait, Session#session{subproto_state = Out#copy_out{is_paused = true}}};
passive(Session) ->
    {activate, Session}.

-spec copy_taken(reference(), #session{}) -> {activate | wait, #session{}}.
copy_taken(Ref, #session{subproto_state = #copy_out{ref = Ref, waiting = Waiting} = Out}
           = Session) ->
    resume(Session#session{subproto_state = Out#copy_out{waiting = max(0, Waiting - 1)}});
copy_taken(_, Session) ->
    {wait, Session}.

%% Nobody wants the rest: what still comes is thrown away. `cancel': the server shall be asked to
%% stop.
-spec copy_stop(reference(), #session{}) -> {cancel | none, activate | wait, #session{}}.
copy_stop(Ref, #session{subproto_state = #copy_out{ref = Ref} = Out} = Session) ->
    {Next, Session1} = resume(Session#session{
        subproto_state = Out#copy_out{receiver = none, batch = [], waiting = 0}}),
    {cancel, Next, Session1};
%% Its first row isn't there yet: the server sends nothing before.
copy_stop(Ref, #session{current = #command{module = epgsql_cmd_copy_to_stdout,
                                           state = {Sql, Format, _, Ref}} = Command} = Session) ->
    {cancel, wait, Session#session{current = Command#command{state = {Sql, Format, none, Ref}}}};
copy_stop(Ref, #session{queue = Queue, parked = Parked} = Session) ->
    Stopped = fun(#command{module = epgsql_cmd_copy_to_stdout,
                           state = {Sql, Format, _, Its}} = Command) when Its =:= Ref ->
                      [Command#command{state = {Sql, Format, none, Ref}}];
                 (Command) -> [Command]
              end,
    {none, wait, Session#session{queue = queue:filter(Stopped, Queue),
                                 parked = queue:filter(Stopped, Parked)}}.

%% The receiver is gone, by its monitor.
-spec copy_left(reference(), #session{}) -> {cancel | none, activate | wait, #session{}}.
copy_left(Monitor, #session{subproto_state = #copy_out{monitor = [Monitor], ref = Ref}}
          = Session) ->
    copy_stop(Ref, Session);
copy_left(_, Session) ->
    {none, wait, Session}.

resume(#session{subproto_state = #copy_out{is_paused = true, waiting = Waiting} = Out} = Session)
  when Waiting < ?WAITING_MAX ->
    {activate, Session#session{subproto_state = Out#copy_out{is_paused = false}}};
resume(Session) ->
    {wait, Session}.

%% --- replication --------------------------------------------------------------------------------

replicated({x_log_data, Start, End, _, Data}, #session{subproto_state = Repl} = Session) ->
    Session#session{subproto_state = deliver(Start, End, Data, Repl)};
replicated({keepalive, End, _, MustReply}, #session{subproto_state = Repl} = Session) ->
    Received = Repl#repl{received = End},
    ok = tell_keepalive(End, MustReply, Repl),
    case {MustReply, Received} of
        {false, _} -> Session#session{subproto_state = Received#repl{must_report = true}};
        %% Nothing that concerns the client lies before: so the server may stop.
        {true, #repl{align_lsn = true}} ->
            report(Session#session{subproto_state = Received#repl{flushed = End, applied = End}});
        {true, _} -> report(Session#session{subproto_state = Received})
    end.

%% What lies before its position and wasn't sent doesn't concern the receiver.
tell_keepalive(End, MustReply, #repl{keepalives = true, receiver = Pid}) when is_pid(Pid) ->
    Pid ! {epgsql, self(), {keepalive, End, MustReply}},
    ok;
tell_keepalive(_, _, _) ->
    ok.

deliver(Start, End, Data, #repl{receiver = {Module, State}} = Repl) ->
    {ok, Flushed, Applied, State1} = Module:handle_x_log_data(Start, End, Data, State),
    Repl#repl{received = End, flushed = Flushed, applied = Applied, must_report = true,
              receiver = {Module, State1}};
deliver(Start, End, Data, #repl{receiver = Pid} = Repl) ->
    Pid ! {epgsql, self(), {x_log_data, Start, End, Data}},
    Repl#repl{received = End, must_report = true}.

report(#session{subproto_state = #repl{received = Received, flushed = Flushed, applied = Applied}
                = Repl} = Session) ->
    _ = epgsql_session:send(Session, ?COPY_DATA, epgsql_wire:encode_standby_status_update(
        Received, Flushed, Applied)),
    Session#session{subproto_state = Repl#repl{must_report = false}}.

%% All that has arrived is handled.
-spec idle(#session{}) -> #session{}.
idle(#session{handler = on_replication, subproto_state = #repl{must_report = true}} = Session) ->
    report(Session);
idle(#session{handler = on_copy_to_stdout} = Session) ->
    hand_over(Session);
idle(Session) ->
    Session.

-spec standby_status_update(integer(), integer(), #session{}) ->
          {ok, #session{}} | {error, not_in_replication_mode}.
standby_status_update(Flushed, Applied,
                      #session{handler = on_replication, subproto_state = Repl} = Session) ->
    {ok, report(Session#session{subproto_state = Repl#repl{flushed = Flushed,
                                                           applied = Applied}})};
standby_status_update(_, _, _) ->
    {error, not_in_replication_mode}.
