%% COPY TO STDOUT as a fold over its rows, in the process that asks for it.
%%
%% The connection hands over what one read of its socket held, and reads on only while the receiver
%% takes it; so a result of any size costs some hundred KB. If the fun fails, the COPY is cancelled,
%% and the connection is good for more.
-module(epgsql_copy_stream).

-export([fold/5]).

-type batch() :: [epgsql_copy_out:row()].

%% Of a connection with a time-out it is that for each part.
-spec fold(epgsql:connection(), epgsql:sql_query(), epgsql_cmd_copy_to_stdout:format(),
           fun((batch(), Acc) -> Acc), Acc) ->
          {ok, Count :: non_neg_integer(), Acc} | {error, any()}.
fold({epgsql_held, _, _} = Handle, Sql, Format, Fun, Acc) ->
    epgsql_held:fold(Handle, Sql, Format, Fun, Acc);
fold({epgsql_timeout, C, Timeout}, Sql, Format, Fun, Acc) ->
    fold(C, Sql, Format, Fun, Acc, Timeout);
fold(C, Sql, Format, Fun, Acc) ->
    fold(C, Sql, Format, Fun, Acc, infinity).

fold(C, Sql, Format, Fun, Acc, Timeout) ->
    Monitor = monitor(process, C),
    DataRef = make_ref(),
    Ref = epgsql_sock:async_command(C, cast, epgsql_cmd_copy_to_stdout,
                                    {Sql, Format, self(), DataRef}),
    Stream = {C, Monitor, Ref, DataRef, Timeout},
    Answer = try loop(Stream, Fun, Acc, none)
             catch
                 error:{malformed, _} = Reason -> stop(Stream), {error, Reason};
                 Class:Reason:Stack -> stop(Stream), erlang:raise(Class, Reason, Stack)
             after
                 demonitor(Monitor, [flush])
             end,
    Answer.

loop({C, Monitor, Ref, DataRef, Timeout} = Stream, Fun, Acc, State) ->
    receive
        {C, DataRef, {copy_begin, State1}} ->
            loop(Stream, Fun, Acc, State1);
        {C, DataRef, {copy_data, Messages}} ->
            {Rows, State1} = epgsql_copy_out:rows(Messages, State),
            Acc1 = case Rows of
                       [] -> Acc;
                       _ -> Fun(Rows, Acc)
                   end,
            ok = epgsql_sock:copy_taken(C, DataRef),
            loop(Stream, Fun, Acc1, State1);
        {C, Ref, {ok, Count}} -> {ok, Count, Acc};
        {C, Ref, {error, _} = Error} -> Error;
        {'DOWN', Monitor, process, C, _} -> {error, closed}
    after Timeout ->
        stop(Stream),
        {error, timeout}
    end.

%% Until the connection has answered, so that nothing of it comes later.
stop({C, Monitor, Ref, DataRef, _}) ->
    ok = epgsql_sock:copy_stop(C, DataRef),
    receive
        {C, Ref, _} -> ok;
        {'DOWN', Monitor, process, C, _} -> ok
    end,
    flush(C, DataRef).

flush(C, DataRef) ->
    receive {C, DataRef, _} -> flush(C, DataRef)
    after 0 -> ok
    end.
