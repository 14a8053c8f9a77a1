%% Types, bounds and small questions about the state, which the parts of the core share.
%%
%% Pure.
-module(halley_cluster_state).

-export([new/1, bounds/0, emit/2, answers/2, clock/2, token/1, is_away/1, readiness/1,
         may_append/1]).
-export_type([core/0, mode/0, bounds/0, readiness/0, effect/0, settings/0, message/0]).

-include("halley_cluster_core.hrl").

-type core() :: #core{}.
%% `ordering': by lease, for all. `following': proposals go to that brain. `alone': this brain
%% appends for itself, as no orderer is reachable.
-type mode() :: ordering | {following, Brain :: binary()} | alone.
-type bounds() :: #{atom() => pos_integer()}.
-type readiness() :: ready
                   | {not_ready, joining | copying | log_away | behind
                               | {bad_row, After :: halley_cursor:seq(),
                                  halley_cluster_reader:reason()}}.
%% `boot': random, another one at each start. `head', `epoch', `graph': of what is durable here,
%% zeros for a new brain. `roles': besides that of ordering. `bounds': those that differ from
%% `bounds/0'.
-type settings() :: #{name := binary(), boot := <<_:64>>, head := halley_cursor:seq(),
                      epoch := non_neg_integer(), graph := halley_cursor:seq(),
                      roles => [halley_log_engine:role()], bounds => bounds()}.
-type message() ::
    {propose, Epoch :: non_neg_integer(), Base :: halley_cursor:seq(),
     [{halley_log_engine:token(), halley_cluster_records:proposal()}]}
  | {refused, [halley_log_engine:token()], not_ordering | stale | overloaded}
  | {row, halley_log_engine:row()}
  | {beat, halley_cluster_peers:beat()}.
%% `call': the shell calls the engine by the handle's process, and reports `{result, Ref, Result}'.
%% `close': the handle is closed, or not opened after all; what it has been called for is of no
%% interest any more. `claim': which of these ids does the history have, with everything that was
%% applied so far? Reported as `{claimed, Token, Ids}'. `apply': the row's records go to the shards
%% and to the graph, or to the history alone, if a snapshot had them. `wipe': a snapshot will
%% replace history and graph; behind `After' clients are owed the report of a gap. `load': the
%% snapshot is as after `At', and the history begins behind `Floor'.
-type effect() :: halley_cluster_handle:effect()
                | halley_cluster_reader:effect()
                | {send, Brain :: binary(), message()}
                | {claim, halley_log_engine:token(), [halley_event:id()]}
                | {answer, halley_cluster_proposals:from(), halley_cluster_proposals:answer()}
                | {wipe, too_old | {lost, After :: halley_cursor:seq()}}
                | {members, [halley_log_engine:brain()], halley_log_engine:at_ms()}
                | {role, halley_log_engine:role(), {held, Term :: pos_integer()} | lost}
                | {mode, mode()}
                | {readiness, readiness()}.

%% The bounds, by name; milliseconds, records, bytes or tokens.
-spec bounds() -> bounds().
bounds() ->
    #{own_records_max => 100000,              % of this brain, from request to answer
      own_bytes_max => 64 bsl 20,
      queue_records_max => 200000,            % of other brains, at the orderer
      queue_bytes_max => 128 bsl 20,
      group_records_max => 1000,
      group_bytes_max => 1 bsl 20,
      window_tokens_max => 65536,
      read_bytes_max => 4 bsl 20,
      read_every_ms => 250,
      beat_every_ms => 500,
      brains_every_ms => 1000,
      trim_every_ms => 10000,                 % while it orders
      retention_ms => 600000,                 % of the log's rows
      silent_ms_max => 2000,                  % of the orderer, before others append
      unplaced_ms_max => 2000,                % of a proposal at the orderer, likewise
      distrust_ms => 5000,                    % of an orderer that placed nothing
      resend_ms => 1000,
      refused_ms => 200,                      % until what an orderer refused is sent again
      answer_ms_max => 10000,                 % of a proposal
      away_ms_max => 1000,                    % of the log, until this brain isn't ready
      behind_ms_max => 60000}.                % of this brain, likewise

-spec new(settings()) -> core().
new(#{name := Name, boot := Boot, head := Head, epoch := Epoch, graph := Graph} = Settings) ->
    Bounds = maps:merge(bounds(), maps:get(bounds, Settings, #{})),
    #{own_records_max := Records, own_bytes_max := Bytes, window_tokens_max := Tokens,
      silent_ms_max := Silent} = Bounds,
    #{queue_records_max := QueueRecords, queue_bytes_max := QueueBytes,
      group_records_max := GroupRecords, group_bytes_max := GroupBytes} = Bounds,
    Roles = maps:get(roles, Settings, []),
    #core{me = Name, boot = Boot, bounds = Bounds, wanted = Roles,
          append = halley_cluster_handle:new(append), read = halley_cluster_handle:new(read),
          reader = halley_cluster_reader:new(Head, {Epoch, Graph}, Tokens),
          orderer = halley_cluster_orderer:new(#{queue_records => QueueRecords,
                                                 queue_bytes => QueueBytes,
                                                 group_records => GroupRecords,
                                                 group_bytes => GroupBytes}),
          proposals = halley_cluster_proposals:new(#{records => Records, bytes => Bytes}),
          peers = halley_cluster_peers:new(Silent),
          roles = halley_cluster_roles:new([order | Roles])}.

-spec emit([effect()], core()) -> core().
emit(Effects, #core{out = Out} = S) ->
    S#core{out = lists:reverse(Effects, Out)}.

%% The clock may jump; the core's time stands still when it goes back.
-spec clock(integer(), core()) -> core().
clock(At, #core{clock = none} = S) -> S#core{clock = At};
clock(At, #core{clock = Before, now = Now} = S) ->
    S#core{clock = At, now = Now + max(0, At - Before)}.

%% A new one. Those of one start are in order.
-spec token(core()) -> {halley_log_engine:token(), core()}.
token(#core{boot = Boot, tokens = N} = S) ->
    {<<Boot/binary, (N + 1):64>>, S#core{tokens = N + 1}}.

-spec is_away(core()) -> boolean().
is_away(#core{contact = none}) -> true;
is_away(#core{contact = Contact, now = Now, bounds = #{away_ms_max := Max}}) ->
    Now - Contact > Max.

-spec readiness(core()) -> readiness().
readiness(#core{reader = Reader, synced = IsSynced} = S) ->
    case {halley_cluster_reader:get(phase, Reader), halley_cluster_reader:get(stuck, Reader)} of
        {unopened, _} -> {not_ready, joining};
        {{copy, _}, _} -> {not_ready, copying};
        {_, Reason} when Reason =/= none ->
            {not_ready, {bad_row, halley_cluster_reader:get(head, Reader), Reason}};
        _ ->
            case {is_away(S), IsSynced, is_behind(S)} of
                {true, _, _} -> {not_ready, log_away};
                {_, false, _} -> {not_ready, joining};
                {_, _, true} -> {not_ready, behind};
                _ -> ready
            end
    end.

is_behind(#core{at_end = true}) -> false;
is_behind(#core{engine_at = At, reader = Reader, bounds = #{behind_ms_max := Max}}) ->
    At - halley_cluster_reader:get(at, Reader) > Max.

%% Whether the next row may be this brain's: it knows the log's end, as of the service's newest
%% stretch, and has understood all rows.
-spec may_append(core()) -> boolean().
may_append(#core{synced = IsSynced, asking = IsAsking, append = Handle, reader = Reader}) ->
    IsSynced andalso not IsAsking andalso halley_cluster_handle:is_idle(Handle)
        andalso halley_cluster_reader:is_current(Reader)
        andalso halley_cluster_reader:get(stuck, Reader) =:= none
        andalso halley_cluster_handle:epoch(Handle) =:= halley_cluster_reader:get(newest, Reader).

%% Sends these answers.
-spec answers([{halley_cluster_proposals:from(), halley_cluster_proposals:answer()}], core()) ->
    core().
answers(Answers, S) ->
    emit([{answer, From, Answer} || {From, Answer} <- Answers], S).
