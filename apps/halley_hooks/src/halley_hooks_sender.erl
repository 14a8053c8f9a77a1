%% Sends what is in the queue to the endpoint, in order, one request at a time: so what concerns one
%% user comes in order, and at least once.
%%
%% A request has up to `hooks_batch_max' hooks. Any answer but 2xx, and none in time, is a failure:
%% the same hooks are sent again, after a pause that doubles up to `hooks_retry_ms_max' and of which
%% up to a half is left out at random. To 413 it answers with half as many.
%%
%% The queue names events by their seqs; their texts come from the history when they are first sent.
%% Events that the history no longer has by then become a gap. If a user was forgotten since, they
%% are read anew before they are sent again: events about that user are left out.
-module(halley_hooks_sender).

-export([start_link/1]).
-export([init/2]).

-include_lib("kernel/include/logger.hrl").

-define(LOOK_MS, 20).
-define(RETRY_MS_MIN, 200).

-record(sender, {settings :: halley_hooks_config:settings(),
                 queue :: halley_hooks_read:reader(),
                 history = halley_history_reader:new() :: halley_history_reader:reader(),
                 connection = none :: halley_hooks_http:connection(),
                 %% That were read, and weren't sent yet.
                 entries = [] :: [halley_hooks_read:read()],
                 wait_ms = ?RETRY_MS_MIN :: pos_integer(),
                 batch_max = infinity :: pos_integer() | infinity,
                 %% Who was forgotten last when the hooks were made.
                 forgotten = 0 :: halley_history:seq(),
                 %% The log says that they aren't taken.
                 is_said = false :: boolean()}).

-spec start_link(halley_hooks_config:settings()) -> {ok, pid()} | {error, term()}.
start_link(Settings) ->
    proc_lib:start_link(?MODULE, init, [self(), Settings]).

-spec init(pid(), halley_hooks_config:settings()) -> no_return().
init(Parent, Settings) ->
    true = register(?MODULE, self()),
    _ = process_flag(fullsweep_after, 20),
    ok = proc_lib:init_ack(Parent, {ok, self()}),
    loop(#sender{settings = Settings,
                 queue = halley_hooks_read:new(halley_hooks_progress:get(acked))}).

loop(Sender0) ->
    Forgotten = halley_history_forgotten:newest(),
    {Hooks, Taken, Sender} = gathered(Sender0#sender{forgotten = Forgotten}),
    case {Hooks, Taken} of
        {[], []} ->
            ok = halley_hooks_progress:set(acked, halley_hooks_read:place(Sender#sender.queue)),
            ok = halley_hooks_progress:count(up_to_date, 0),
            receive after ?LOOK_MS -> loop(Sender) end;
        {[], _} ->
            loop(done(Taken, Sender));
        _ ->
            loop(send(Hooks, Taken, Sender))
    end.

done(Taken, Sender) ->
    {_, _, _, End} = lists:last(Taken),
    ok = halley_hooks_progress:set(acked, End),
    Sender.

%% --- what is sent ------------------------------------------------------------------------------

%% Hooks as texts, and the entries that they are of.
gathered(#sender{batch_max = BatchMax} = Sender) ->
    Count = min(BatchMax, halley_limits:get(hooks_batch_max)),
    gathered(Sender, Count, halley_limits:get(hooks_batch_bytes_max), [], []).

gathered(#sender{entries = []} = Sender, Count, Bytes, Hooks, Taken) when Count > 0, Bytes > 0 ->
    #sender{queue = Queue} = Sender,
    case halley_hooks_read:next(halley_hooks_progress:get(written), Queue) of
        {[], Next} -> {lists:reverse(Hooks), lists:reverse(Taken), Sender#sender{queue = Next}};
        {Entries, Next} ->
            gathered(Sender#sender{entries = Entries, queue = Next}, Count, Bytes, Hooks, Taken)
    end;
gathered(#sender{entries = [First | Rest]} = Sender, Count, Bytes, Hooks, Taken)
  when Count > 0, Bytes > 0 ->
    {Text, Next} = hook(First, Sender#sender{entries = Rest}),
    case Text of
        none -> gathered(Next, Count, Bytes, Hooks, [First | Taken]);
        _ ->
            Size = iolist_size(Text),
            case Hooks =/= [] andalso Size > Bytes of
                true -> {lists:reverse(Hooks), lists:reverse(Taken), Sender};
                false -> gathered(Next, Count - 1, Bytes - Size, [Text | Hooks], [First | Taken])
            end
    end;
gathered(Sender, _, _, Hooks, Taken) ->
    {lists:reverse(Hooks), lists:reverse(Taken), Sender}.

hook({Entry, {Name, Offset}, Store, _}, #sender{settings = #{events := Events}} = Sender) ->
    Kind = case Entry of damaged -> gap; _ -> element(1, Entry) end,
    case Kind =:= gap orelse lists:member(Kind, Events) of
        true ->
            Id = <<(integer_to_binary(Name, 36))/binary, $-,
                   (integer_to_binary(Offset, 36))/binary>>,
            {What, Next} = what(Entry, Store, Sender),
            {case What of
                 none -> none;
                 _ -> iolist_to_binary(halley_hooks_body:hook(Id, What))
             end, Next};
        false ->
            {none, Sender}
    end.

what({published, Seq}, Store, Sender) ->
    event(Seq, Store, fun(#{by := _} = Record) -> {published, Record};
                         (_) -> none
                      end, Sender);
what({undelivered, Seq, More, Users}, Store, Sender) ->
    event(Seq, Store, fun(Record) -> {undelivered, Record, More, Users} end, Sender);
what(damaged, _, Sender) -> {damaged_gap(), Sender};
what({gap, _, _, _} = Gap, _, Sender) -> {gap(Gap), Sender};
what(Change, _, Sender) -> {Change, Sender}.

damaged_gap() -> gap({gap, damaged, 0, halley_clock:wall_ms()}).

gap(Gap) ->
    ok = halley_metrics:incr(hooks_gaps),
    Gap.

%% A seq means something in its store alone.
event(Seq, Store, Make, #sender{history = History} = Sender) ->
    case Store =:= halley_history:store() andalso halley_history_reader:read(Seq, History) of
        {ok, #{json := _} = Record, Next} -> {Make(Record), Sender#sender{history = Next}};
        {ok, _, Next} -> {none, Sender#sender{history = Next}};
        {expired, Next} ->
            #{floor_at := FloorMs} = halley_history:info(),
            {gap({gap, too_old, 0, FloorMs}), Sender#sender{history = Next}};
        {damaged, Next} -> {damaged_gap(), Sender#sender{history = Next}};
        false -> {damaged_gap(), Sender}
    end.

%% --- sending -----------------------------------------------------------------------------------

send(Hooks, Taken, #sender{settings = #{target := TargetOf}, connection = Connection} = Sender) ->
    #{secret_file := File} = Target = TargetOf(),
    Body = iolist_to_binary(halley_hooks_body:text(Hooks)),
    Result = case halley_hooks_body:read_secrets(File) of
        {ok, Secrets} ->
            ok = halley_metrics:incr(hooks_requests),
            halley_hooks_http:post(Target, halley_hooks_body:headers(Secrets, Body), Body,
                                   halley_limits:get(hooks_request_ms_max), Connection);
        {error, Line} -> {error, {secret, Line}}
    end,
    case Result of
        {ok, Status, Next} when Status >= 200, Status < 300 ->
            ok = halley_metrics:incr(hooks_sent, length(Hooks)),
            done(Taken, taken(Sender#sender{connection = Next}));
        {ok, 413, Next} when length(Hooks) > 1 ->
            ok = halley_metrics:incr(hooks_failures),
            put_back(Taken, Sender#sender{connection = Next, batch_max = length(Hooks) div 2});
        {ok, Status, Next} ->
            failed({status, Status}, Hooks, Taken, Sender#sender{connection = Next});
        {error, Reason} -> failed(Reason, Hooks, Taken, Sender#sender{connection = none})
    end.

put_back(Taken, #sender{entries = Entries} = Sender) ->
    Sender#sender{entries = Taken ++ Entries}.

taken(#sender{is_said = IsSaid, batch_max = Max} = Sender) ->
    _ = [?LOG_NOTICE("hooks: hooks.url takes hooks again") || IsSaid],
    Sender#sender{is_said = false, wait_ms = ?RETRY_MS_MIN,
                  batch_max = case Max of infinity -> infinity; _ -> Max * 2 end}.

failed(Reason, Hooks, Taken, Sender) ->
    #sender{wait_ms = WaitMs, is_said = WasSaid, forgotten = Forgotten} = Sender,
    ok = halley_metrics:incr(hooks_failures),
    IsSaid = halley_hooks_said:seldom(failed, fun() ->
        ?LOG_WARNING("hooks: hooks.url doesn't take hooks: ~ts; they wait, and are sent again",
                     [explain(Reason)])
    end),
    PauseMs = WaitMs - rand:uniform(WaitMs div 2),
    receive after PauseMs -> ok end,
    Max = halley_limits:get(hooks_retry_ms_max),
    Next = Sender#sender{is_said = WasSaid orelse IsSaid, wait_ms = max(2, min(WaitMs * 2, Max))},
    case halley_history_forgotten:newest() of
        Forgotten -> send(Hooks, Taken, Next);
        _ -> put_back(Taken, Next)
    end.

explain({status, Status}) -> ["it answers ", integer_to_list(Status)];
explain({secret, Line}) -> Line;
explain(Reason) -> halley_hooks_http:explain(Reason).
