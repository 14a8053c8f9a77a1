%% Processes that wait until the written heads have reached a vector.
%%
%% Each has a row, and receives {history_written, Ref} once. It inserts the row and looks at the
%% heads after that; the log raises the heads and looks at the rows after that (`reached/0'). So one
%% of the two sees the other. Whoever takes the row decides: the log, which sends the message then,
%% or the process, which waits no more.
%%
%% The log gets no message for it: it may stand in a write for as long as a disk stands still, and
%% its mailbox would grow with each request for a page that has waited in vain.
%%
%% Bound: a process that waits without a time has one row. Of those with a time, which may be killed
%% meanwhile, there are ?FOR_A_TIME_MAX; rows of the dead go before one is refused. Sessions are
%% never refused: an event makes all that follow its subject wait at once. They have a row each, and
%% one wait in ?FOR_A_TIME_MAX takes rows of the dead away.
-module(halley_history_waiting).

-export([new/0, notify/1, await/2, await_as_session/2, reached/0]).

-define(FOR_A_TIME_MAX, 10000).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ok.

-spec notify(halley_history:vector()) -> written | {later, Ref :: reference()}.
notify(Vector) ->
    case is_written(Vector) of
        true -> written;
        false -> insert(Vector)
    end.

insert(Vector) ->
    Ref = make_ref(),
    true = ets:insert(?MODULE, {Ref, Vector, self()}),
    case is_written(Vector) andalso ets:take(?MODULE, Ref) of
        [_] -> written;
        %% The message is here, or comes.
        _ -> {later, Ref}
    end.

%% `timeout' comes at once while too many wait.
-spec await(halley_history:vector(), timeout()) -> ok | timeout.
await(Vector, TimeoutMs) ->
    case is_written(Vector) orelse TimeoutMs =:= infinity orelse has_room() of
        false -> timeout;
        true -> await_notice(notify(Vector), TimeoutMs)
    end.

-spec await_as_session(halley_history:vector(), timeout()) -> ok | timeout.
await_as_session(Vector, TimeoutMs) ->
    Notice = notify(Vector),
    _ = [forget_the_dead()
         || {later, Ref} <- [Notice], erlang:phash2(Ref, ?FOR_A_TIME_MAX) =:= 0],
    await_notice(Notice, TimeoutMs).

await_notice(written, _) ->
    ok;
await_notice({later, Ref}, TimeoutMs) ->
    receive {history_written, Ref} -> ok
    after TimeoutMs ->
        case ets:take(?MODULE, Ref) of
            [_] -> timeout;
            [] -> receive {history_written, Ref} -> ok end
        end
    end.

has_room() ->
    ets:info(?MODULE, size) < ?FOR_A_TIME_MAX orelse has_room_without_the_dead().

has_room_without_the_dead() ->
    ok = forget_the_dead(),
    ets:info(?MODULE, size) < ?FOR_A_TIME_MAX.

forget_the_dead() ->
    lists:foreach(fun({Ref, _, Pid}) -> is_process_alive(Pid) orelse ets:delete(?MODULE, Ref) end,
                  ets:tab2list(?MODULE)).

%% For the log, when the written heads may have moved.
-spec reached() -> ok.
reached() ->
    case ets:info(?MODULE, size) of
        0 -> ok;
        _ -> lists:foreach(fun tell/1, ets:tab2list(?MODULE))
    end.

tell({Ref, Vector, Pid}) ->
    _ = is_written(Vector) andalso ets:take(?MODULE, Ref) =/= []
        andalso (Pid ! {history_written, Ref}),
    ok.

is_written(Vector) -> halley_vector:is_reached(Vector, halley_history_atomics:written()).
