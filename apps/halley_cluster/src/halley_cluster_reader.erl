%% How far this brain has applied the log, and what of it is certain.
%%
%% Rows come from the table, from the orderer, and from this brain's own appends. A row is applied
%% only if its `prev' is the head, and if it was appended in the epoch in which the head lies. So
%% the chain is applied in order and without holes, wherever its rows come from.
%%
%% *Safe* is the last seq of the newest row whose append the engine has answered with `ok', to any
%% brain. A row that is only read may be one whose append was cut off, so that no standby has it. As
%% the engine's log is one stream, a later `ok' covers it. Proposals are answered up to `safe'.
%%
%% The head's epoch is the newest whose `after' isn't beyond the head. If an epoch that is new here
%% has an `after' below the head, this brain has rows that the log has lost: it must copy.
%%
%% Pure.
-module(halley_cluster_reader).

-export([new/3, opened/2, row/2, safe/2, suspect/1, too_old/1, loaded/2, stuck/2]).
-export([get/2, is_current/1]).
-export_type([reader/0, applied/0, reason/0, effect/0]).

-record(reader, {
    window_max :: pos_integer(),
    head :: halley_cursor:seq(),
    at = 0 :: halley_log_engine:at_ms(),      % of the newest row that was applied
    graph :: halley_cursor:seq(),             % rows up to here are in the snapshot
    epoch :: non_neg_integer(),               % of the head, as it was announced
    epochs = [] :: [halley_log_engine:epoch()],
    floor = 0 :: halley_cursor:seq(),
    window :: halley_cluster_window:window(),
    safe = 0 :: halley_cursor:seq(),
    doubt :: halley_cursor:seq(),             % the newest row that may have proposals
    phase = unopened :: phase(),
    suspect = false :: boolean(),             % the log seems to lack the head
    stuck = none :: none | reason()
}).
-opaque reader() :: #reader{}.
-type phase() :: unopened | reading | {copy, too_old | {lost, After :: halley_cursor:seq()}}.
%% Why a row wasn't applied.
-type reason() :: halley_cluster_records:error() | wrong_seqs | wrong_epoch.
-type applied() :: #{row := halley_log_engine:row(),
                     portions := [{halley_log_engine:token(),
                                   [halley_cluster_records:record()]}]}.
-type effect() :: {epoch, halley_log_engine:epoch()}
                | {apply, halley_log_engine:row(), halley_log_engine:epoch(),
                   [{halley_log_engine:token(), [halley_cluster_records:record()]}],
                   all | history}
                | {load, Floor :: halley_cursor:seq(), At :: halley_cursor:seq()}.

%% `Durable': the head, its epoch, and up to which row the graph is in advance of the history; zeros
%% for a new brain.
-spec new(Head :: halley_cursor:seq(),
          {Epoch :: non_neg_integer(), Graph :: halley_cursor:seq()}, WindowMax :: pos_integer()) ->
    reader().
new(Head, {Epoch, Graph}, WindowMax) ->
    %% Nothing of what is durable here is known to be safe in the log.
    #reader{window_max = WindowMax, head = Head, epoch = Epoch, graph = Graph, doubt = Head,
            window = halley_cluster_window:new(WindowMax, Head)}.

%% What a handle found when it was opened. `stale': it is connected to a service that doesn't know
%% the newest epoch. `lost': the log has lost rows that this brain has.
-spec opened(halley_log_engine:opened(), reader()) ->
    {ok | {lost, After :: halley_cursor:seq()}, reader(), [effect()]} | stale.
opened(#{epochs := [#{n := Newest} | _] = Epochs, floor := Floor}, Reader) ->
    Checked = checked(Reader),
    case Newest < Checked of
        true ->
            stale;
        false ->
            New = [After || #{n := N, 'after' := After} <- Epochs, N > Checked],
            Safe = lists:min([Reader#reader.safe | New]),
            found(New, Reader#reader{epochs = Epochs, floor = Floor, safe = Safe})
    end.

checked(#reader{epochs = [], epoch = Epoch}) -> Epoch;
checked(#reader{epochs = [#{n := N} | _]}) -> N.

%% A snapshot may hold rows that the log has lost although the head, which is behind it, isn't lost.
found(New, #reader{head = Head, graph = Graph, suspect = Suspect} = Reader) ->
    Known = max(Head, Graph),
    case lists:min([Known | New]) of
        After when After < Known -> lost(After, Reader);
        %% Which rows are lost isn't known.
        _ when Suspect -> lost(0, Reader);
        _ -> in_order(Reader)
    end.

lost(After, #reader{phase = Phase} = Reader) ->
    %% An epoch that comes while a copy is due must not hide the first reason.
    Least = case Phase of
        {copy, {lost, Before}} -> min(Before, After);
        _ -> After
    end,
    {{lost, After}, Reader#reader{phase = {copy, {lost, Least}}, suspect = false,
                                  safe = min(Reader#reader.safe, After)}, []}.

in_order(#reader{phase = {copy, _}} = Reader) ->
    {ok, Reader, []};
in_order(#reader{head = Head, epochs = Epochs} = Reader) ->
    case epoch_at(Head, Epochs) of
        none -> {ok, Reader#reader{phase = {copy, too_old}}, []};
        _ -> announce(ok, Reader#reader{phase = reading}, [])
    end.

announce(Verdict, #reader{head = Head, epoch = Epoch, epochs = Epochs} = Reader, Effects) ->
    case epoch_at(Head, Epochs) of
        #{n := Epoch} -> {Verdict, Reader, Effects};
        #{n := N} = Next -> {Verdict, Reader#reader{epoch = N}, Effects ++ [{epoch, Next}]}
    end.

epoch_at(Head, [#{'after' := After} = Epoch | _]) when After =< Head -> Epoch;
epoch_at(Head, [_ | Older]) -> epoch_at(Head, Older);
epoch_at(_, []) -> none.

%% A row, from wherever. `old': it is applied already. `later': rows before it are missing.
%% `new_epoch': it was appended in an epoch that this brain doesn't know yet. `foreign': it is of
%% another chain. `{bad, _}': it isn't understood.
-spec row(halley_log_engine:row(), reader()) ->
    {{applied, applied()}, reader(), [effect()]}
  | old | later | new_epoch | foreign | {bad, reason()}.
row(#{prev := Prev, last := Last, body := Body} = Row, #reader{head = Head} = Reader) ->
    Checked = checked(Reader),
    case halley_cluster_records:epoch(Body) of
        N when is_integer(N), N > Checked -> new_epoch;
        _ when Prev > Head; Reader#reader.phase =/= reading -> later;
        _ when Prev =:= Head -> decoded(Row, epoch_at(Head, Reader#reader.epochs), Reader);
        _ when Last > Head -> foreign;
        N -> compared(N, epoch_at(Prev, Reader#reader.epochs))
    end.

compared(N, #{n := N}) -> old;
compared(_, _) -> foreign.

decoded(#{body := Body} = Row, #{n := N} = Epoch, Reader) ->
    case halley_cluster_records:decode(Body) of
        {ok, N, Portions} -> next(Row, Epoch, Portions, Reader);
        {ok, _, _} -> {bad, wrong_epoch};
        {error, Reason} -> {bad, Reason}
    end.

next(#{prev := Prev, last := Last, at := At} = Row, Epoch, Portions, Reader) ->
    Records = lists:append([Records || {_, Records} <- Portions]),
    case lists:sum([halley_cluster_records:seqs(Record) || Record <- Records]) of
        Seqs when Prev + Seqs =:= Last ->
            #reader{graph = Graph, window = Window} = Reader,
            How = case Last =< Graph of
                true -> history;
                false -> all
            end,
            Tokens = tokens(Row, Portions),
            Applied = Reader#reader{
                head = Last, at = At, stuck = none, doubt = doubt(Tokens, Last, Reader),
                window = halley_cluster_window:add(Last, Tokens, Window)},
            announce({applied, #{row => Row, portions => Portions}}, Applied,
                     [{apply, Row, Epoch, Portions, How}]);
        _ ->
            {bad, wrong_seqs}
    end.

%% What fills an empty row has the row's token and is no proposal.
tokens(#{token := RowToken}, Portions) ->
    [Token || {Token, _} <- Portions, Token =/= RowToken].

doubt([], _, #reader{doubt = Doubt}) -> Doubt;
doubt(_, Last, _) -> Last.

%% The engine has answered the append of the row that ends here, in the newest epoch.
-spec safe(halley_cursor:seq(), reader()) -> reader().
safe(Seq, #reader{safe = Safe} = Reader) ->
    Reader#reader{safe = max(Seq, Safe)}.

%% The log seems to lack the head. The handle is to be opened anew, which tells why.
-spec suspect(reader()) -> reader().
suspect(Reader) ->
    Reader#reader{suspect = true}.

%% The log begins behind the head.
-spec too_old(reader()) -> reader().
too_old(#reader{phase = reading} = Reader) ->
    Reader#reader{phase = {copy, too_old}};
too_old(Reader) ->
    Reader.

%% A snapshot was copied. The rows of the whole retention come next; those up to `At' are for the
%% history alone.
-spec loaded(At :: halley_cursor:seq(), reader()) -> {reader(), [effect()]}.
loaded(At, #reader{floor = Floor, window_max = Max} = Reader) ->
    Loaded = Reader#reader{head = Floor, at = 0, graph = At, phase = reading, doubt = Floor,
                           epoch = 0, suspect = false, stuck = none,
                           window = halley_cluster_window:new(Max, Floor)},
    {_, Announced, Effects} = in_order(Loaded),
    {Announced, [{load, Floor, At} | Effects]}.

%% A row that isn't understood is in the way.
-spec stuck(none | reason(), reader()) -> reader().
stuck(Reason, Reader) ->
    Reader#reader{stuck = Reason}.

%% `at': the time of the newest row. `doubt': the last seq of the newest row that may have
%% proposals. `newest': the number of the newest epoch that the head was compared with. `store':
%% that of the head's epoch, which must be known.
-spec get(head | safe | doubt, reader()) -> halley_cursor:seq();
         (at, reader()) -> halley_log_engine:at_ms();
         (newest, reader()) -> non_neg_integer();
         (store, reader()) -> halley_cursor:store();
         (window, reader()) -> halley_cluster_window:window();
         (phase, reader()) -> phase();
         (stuck, reader()) -> none | reason().
get(head, #reader{head = Head}) -> Head;
get(safe, #reader{safe = Safe}) -> Safe;
get(doubt, #reader{doubt = Doubt}) -> Doubt;
get(at, #reader{at = At}) -> At;
get(newest, Reader) -> checked(Reader);
get(store, #reader{head = Head, epochs = Epochs}) -> maps:get(store, epoch_at(Head, Epochs));
get(window, #reader{window = Window}) -> Window;
get(phase, #reader{phase = Phase}) -> Phase;
get(stuck, #reader{stuck = Stuck}) -> Stuck.

%% Whether the head lies in the newest epoch, so that the next row belongs to it.
-spec is_current(reader()) -> boolean().
is_current(#reader{phase = reading, epoch = Epoch} = Reader) -> Epoch =:= checked(Reader);
is_current(_) -> false.
