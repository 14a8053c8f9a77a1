%% A shard: one order for every subject that hashes to it, and the fan-out.
%%
%% The shard gives an event its id and time, folds over the subject's followers and the subject
%% itself, looks each up in the directory, and sends every link one message for the event (more
%% beyond 8192 connections). A process that is a session gets `{halley, #{id, subject, at, data}}'
%% with the data decoded.
%%
%% Invariants: a subject belongs to one shard for as long as ?SHARDS stays what it is, so what a
%% follower gets about a subject comes in the order of the answers. Ids are unique: a shard's
%% start in microseconds, its number, and a count. Events that wait for a shard are counted before
%% they are sent to it, and never more than `shard_queue_events_max'.
%%
%% It checks nothing: `halley_router' did. It keeps nothing but its count, so a killed shard loses
%% no more than the events that waited for it, and their publishers are told.
-module(halley_shard).
-behaviour(gen_server).

-export([new/0, start_link/1, count/0, of_subject/1, publish/2, queued/0]).
-export([init/1, handle_call/3, handle_cast/2]).
-export_type([index/0, result/0]).

-define(SHARDS, 8).
-define(QUEUED, {?MODULE, queued}).
-define(CONNS_MAX, 8192).
-define(CONN_BITS, 48).

-type index() :: 1..?SHARDS.
-type result() :: #{id := halley_event:id(), sessions := non_neg_integer()}.
-record(state, {shard :: index(), epoch :: binary(), seq = 0 :: non_neg_integer()}).

%% Makes the counts of waiting events.
-spec new() -> ok.
new() ->
    persistent_term:put(?QUEUED, atomics:new(?SHARDS, [])).

-spec start_link(index()) -> gen_server:start_ret().
start_link(Shard) ->
    gen_server:start_link({local, name(Shard)}, ?MODULE, Shard, []).

-spec count() -> pos_integer().
count() ->
    ?SHARDS.

-spec of_subject(binary()) -> index().
of_subject(Subject) ->
    erlang:phash2(Subject, ?SHARDS) + 1.

%% Publishes drafts of subjects of this shard, in order; results are in the same order.
%% `unavailable': the shard died or was too slow, and some or all of the drafts may have been
%% published.
-spec publish(index(), [halley_event:draft()]) ->
    {ok, [result()]} | {error, overloaded | unavailable}.
publish(Shard, Drafts) ->
    Queued = persistent_term:get(?QUEUED),
    N = length(Drafts),
    case atomics:add_get(Queued, Shard, N) > halley_limits:get(shard_queue_events_max) of
        true ->
            ok = atomics:sub(Queued, Shard, N),
            {error, overloaded};
        false ->
            TimeoutMs = halley_limits:get(publish_ms_max),
            try {ok, gen_server:call(name(Shard), {publish, N, Drafts}, TimeoutMs)}
            catch exit:_ -> {error, unavailable}
            end
    end.

%% Events that wait for all shards together.
-spec queued() -> non_neg_integer().
queued() ->
    Queued = persistent_term:get(?QUEUED),
    lists:foldl(fun(Shard, Sum) -> Sum + max(0, atomics:get(Queued, Shard)) end,
                0, lists:seq(1, ?SHARDS)).

name(1) -> halley_shard_1;
name(2) -> halley_shard_2;
name(3) -> halley_shard_3;
name(4) -> halley_shard_4;
name(5) -> halley_shard_5;
name(6) -> halley_shard_6;
name(7) -> halley_shard_7;
name(8) -> halley_shard_8.

-spec init(index()) -> {ok, #state{}}.
init(Shard) ->
    ok = atomics:put(persistent_term:get(?QUEUED), Shard, 0),
    Start = integer_to_binary(erlang:system_time(microsecond), 36),
    Epoch = <<Start/binary, $-, (integer_to_binary(Shard))/binary, $->>,
    {ok, #state{shard = Shard, epoch = Epoch}}.

-spec handle_call({publish, pos_integer(), [halley_event:draft()]}, gen_server:from(), #state{}) ->
    {reply, [result()], #state{}}.
handle_call({publish, N, Drafts}, _, State) ->
    ok = atomics:sub(persistent_term:get(?QUEUED), State#state.shard, N),
    {Results, Next} = lists:mapfoldl(fun publish_one/2, State, Drafts),
    {reply, Results, Next}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

publish_one(Draft, State = #state{shard = Shard, epoch = Epoch, seq = Seq}) ->
    Event = #{id := Id, subject := Subject} =
        halley_event:event(Draft, Epoch, {Shard, Seq}, erlang:system_time(millisecond)),
    Sessions = send(Event, receivers(Subject)),
    {#{id => Id, sessions => Sessions}, State#state{seq = Seq + 1}}.

%% --- fan-out -----------------------------------------------------------------------------------

%% The sessions of the followers and of the subject itself, sorted: words of one slot stand
%% together and processes come last. A user that is met twice counts once.
receivers(Subject) ->
    case halley_ids:lookup(Subject) of
        undefined ->
            [];
        Number ->
            Chunks = halley_directory_words:chunks(),
            Add = fun(User, Acc) -> add(halley_directory:lookup(Chunks, User), Acc) end,
            case halley_follows:fold_followers(Add, Add(Number, []), Number) of
                [_, _ | _] = Found -> lists:usort(Found);
                Few -> Few
            end
    end.

add(0, Acc) -> Acc;
add(Word, Acc) when is_integer(Word) -> [Word | Acc];
add([], Acc) -> Acc;
add([Row | Rows], Acc) -> add(Rows, [Row | Acc]).

send(Event, Receivers) ->
    send(Event, Receivers, 0).

send(_, [], Sent) ->
    Sent;
send(Event, [Pid | _] = Pids, Sent) when is_pid(Pid) ->
    Message = {halley, (maps:with([id, subject, at], Event))#{data => halley_event:data(Event)}},
    lists:foreach(fun(P) -> P ! Message end, Pids),
    Sent + length(Pids);
send(Event, [Word | Rest], Sent) ->
    Slot = Word bsr ?CONN_BITS,
    {Words, Others} = take_slot(Rest, Slot, 1, [Word]),
    send(Event, Others, Sent + deliver(Slot, Event, pack(Words))).

take_slot([Word | Rest], Slot, N, Taken) when Word bsr ?CONN_BITS =:= Slot, N < ?CONNS_MAX ->
    take_slot(Rest, Slot, N + 1, [Word | Taken]);
take_slot(Rest, _, _, Taken) ->
    {Taken, Rest}.

pack([Word]) -> <<0:16, Word:?CONN_BITS>>;
pack(Words) -> << <<0:16, Word:?CONN_BITS>> || Word <- Words >>.

deliver(Slot, Event, Conns) ->
    case halley_links:deliver(Slot, Event, Conns) of
        gone -> 0;
        _ -> byte_size(Conns) div 8
    end.
