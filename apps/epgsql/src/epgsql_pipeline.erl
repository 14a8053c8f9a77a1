%% Several requests of one caller that are sent before the first is answered.
%%
%% The time-out of the connection is each request's own, from when it is sent.
-module(epgsql_pipeline).

-export([run/2]).

-spec run(epgsql:connection(), [{epgsql_command:command(), Arguments :: any()}]) ->
          [any()] | {error, any()}.
run({epgsql_held, _, _} = Handle, Requests) ->
    epgsql_held:commands(Handle, Requests);
run(C, Requests) ->
    Pid = process(C),
    Monitor = monitor(process, Pid),
    Refs = [epgsql_sock:async_command(C, cast, Command, Arguments)
            || {Command, Arguments} <- Requests],
    Answers = [answer(Pid, Ref, Monitor) || Ref <- Refs],
    true = demonitor(Monitor, [flush]),
    Answers.

process({epgsql_timeout, Pid, _}) -> Pid;
process(Pid) -> Pid.

answer(Pid, Ref, Monitor) ->
    receive
        {Pid, Ref, Answer} -> Answer;
        {'DOWN', Monitor, process, Pid, _} = Down ->
            %% For those behind it, too.
            self() ! Down,
            {error, closed}
    end.
