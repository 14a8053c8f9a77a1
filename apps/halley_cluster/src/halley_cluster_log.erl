%% The core's side towards the engine: what calls return, and which rows are applied.
%%
%% The one place where a row is applied is `row/3', wherever the row comes from. There the fate of
%% this brain's group and of its proposals is decided.
%%
%% Pure.
-module(halley_cluster_log).

-export([result/3, row/3, reread/1, open/1, reader_calls/1, waiting/1, append/1, safe/2]).

-include("halley_cluster_core.hrl").

-import(halley_cluster_state, [emit/2, answers/2]).

-type core() :: halley_cluster_state:core().

%% --- rows ----------------------------------------------------------------------------------------

%% `table': it was read. `certain': the engine has answered its append.
-spec row(halley_log_engine:row(), table | certain, core()) ->
    core() | later | new_epoch | foreign | {bad, halley_cluster_reader:reason()}.
row(#{last := Last} = Row, Source, #core{reader = Reader} = S) ->
    case halley_cluster_reader:row(Row, Reader) of
        {{applied, Applied}, Next, Effects} ->
            certain(Source, Last, placed(Applied, emit(Effects, S#core{reader = Next})));
        old ->
            certain(Source, Last, S);
        Other ->
            Other
    end.

certain(certain, Last, S) -> safe(Last, S);
certain(table, _, #core{reader = Reader} = S) ->
    safe(halley_cluster_reader:get(safe, Reader), S).

%% There is news of an epoch that this brain doesn't know.
-spec reread(core()) -> core().
reread(#core{read = Handle} = S) ->
    case halley_cluster_handle:epoch(Handle) of
        0 -> S;
        _ -> closed(read, retry, S)
    end.

%% What is appended up to here stays.
-spec safe(halley_cursor:seq(), core()) -> core().
safe(Seq, #core{reader = Reader, proposals = Proposals} = S) ->
    Safer = halley_cluster_reader:safe(Seq, Reader),
    {Left, Answers} = halley_cluster_proposals:safe(halley_cluster_reader:get(safe, Safer),
                                                    Proposals),
    answers(Answers, S#core{reader = Safer, proposals = Left}).

placed(#{row := #{prev := Prev, last := Last, at := At} = Row, portions := Portions}, S) ->
    Tokens = [Token || {Token, _} <- Portions],
    #core{proposals = Proposals, orderer = Orderer} = S,
    {_, Placed} = lists:foldl(
        fun({Token, Records}, {Before, All}) ->
            Seqs = lists:sum([halley_cluster_records:seqs(Record) || Record <- Records]),
            Place = #{before => Before, at => At, records => Records, last => Last},
            {Before + Seqs, halley_cluster_proposals:place(Token, Place, All)}
        end, {Prev, Proposals}, Portions),
    S#core{proposals = Placed, orderer = halley_cluster_orderer:row(Row, Tokens, Orderer)}.

%% --- calls ---------------------------------------------------------------------------------------

%% Opens what is closed, and anew what was opened before the newest epoch.
-spec open(core()) -> core().
open(S) ->
    lists:foldl(fun(Name, Each) -> open(Name, fresh(Name, Each)) end, S, [read, append]).

fresh(Name, #core{reader = Reader} = S) ->
    case halley_cluster_handle:epoch(handle(Name, S)) of
        0 -> S;
        Epoch ->
            case halley_cluster_reader:get(newest, Reader) of
                Newest when Newest > Epoch -> closed(Name, reopen, S);
                _ -> S
            end
    end.

open(Name, #core{now = Now} = S) ->
    {Handle, Effects} = halley_cluster_handle:open(Now, open, handle(Name, S)),
    emit(Effects, handle(Name, Handle, S)).

handle(append, #core{append = Handle}) -> Handle;
handle(read, #core{read = Handle}) -> Handle.

handle(append, Handle, S) -> S#core{append = Handle};
handle(read, Handle, S) -> S#core{read = Handle}.

%% Whatever it was called for has no answer any more.
closed(Name, How, #core{now = Now, orderer = Orderer, roles = Roles} = S) ->
    {Handle, Effects} = case How of
        reopen -> halley_cluster_handle:reopen(handle(Name, S));
        retry -> halley_cluster_handle:retry(Now, handle(Name, S))
    end,
    Closed = emit(Effects, handle(Name, Handle, S)),
    case Name of
        append -> Closed#core{orderer = halley_cluster_orderer:interrupted(Orderer)};
        read -> Closed#core{roles = halley_cluster_roles:failed(Now, Roles)}
    end.

-spec result(halley_cluster_handle:ref(), term(), core()) -> core().
result({Name, _} = Ref, Result, S) ->
    case halley_cluster_handle:result(Ref, handle(Name, S)) of
        {ok, Context, Handle} -> returned(Name, Context, Result, handle(Name, Handle, S));
        other -> S
    end.

returned(Name, open, {ok, _, Opened}, S) ->
    opened(Name, Opened, S);
returned(append, #{row := Row, epoch := Epoch}, {ok, At}, S) ->
    appended(Row#{at => At}, Epoch, S);
returned(append, _, {conflict, _}, #core{orderer = Orderer, now = Now, roles = Roles} = S) ->
    %% Another brain appends: this one may order no more.
    S#core{orderer = halley_cluster_orderer:conflict(Orderer), read_now = true,
           asking = S#core.mode =:= ordering, roles = halley_cluster_roles:ask(order, Now, Roles)};
returned(append, _, Result, S) when Result =:= unknown; Result =:= new_stretch ->
    %% With `new_stretch' nothing was done; the new epoch decides about the group.
    closed(append, reopen, attempted(Result, S));
returned(append, _, {error, _}, #core{orderer = Orderer} = S) ->
    closed(append, retry, S#core{orderer = halley_cluster_orderer:refused(Orderer)});
returned(Name, _, {error, _}, S) ->
    closed(Name, retry, S);
returned(read, {read, After}, Result, #core{reader = Reader} = S) ->
    case halley_cluster_reader:get(head, Reader) of
        Head when Head > After, not is_tuple(Result) ->
            %% It says nothing of the head, which has moved since.
            contact(S#core{read_now = true});
        _ ->
            read(Result, S)
    end;
returned(read, copy, {ok, At}, S) ->
    loaded(At, contact(S));
returned(read, {take, Role, AskedAt}, Answer, S) ->
    taken(Role, Answer, AskedAt, contact(S));
returned(read, brains, {ok, Brains, At}, S) ->
    members(Brains, contact(S#core{engine_at = At}));
returned(read, trim, {ok, _}, S) ->
    contact(S).

attempted(unknown, #core{orderer = Orderer} = S) ->
    S#core{orderer = halley_cluster_orderer:interrupted(Orderer)};
attempted(new_stretch, #core{orderer = Orderer} = S) ->
    S#core{orderer = halley_cluster_orderer:refused(Orderer)}.

contact(#core{now = Now} = S) ->
    S#core{contact = Now}.

opened(Name, #{epochs := [#{n := Newest} | _]} = Opened, #core{reader = Reader} = S) ->
    case halley_cluster_reader:opened(Opened, Reader) of
        stale ->
            closed(Name, retry, S);
        {Verdict, Next, Effects} ->
            Handle = halley_cluster_handle:opened(Newest, handle(Name, S)),
            Known = contact(emit(Effects, handle(Name, Handle, S#core{reader = Next}))),
            epochs(Verdict, Known)
    end.

epochs(ok, S) ->
    S;
epochs({lost, After}, #core{orderer = Orderer, proposals = Proposals} = S) ->
    %% Whatever the group's fate was, its place is gone, or will be read again.
    closed(append, reopen,
           S#core{orderer = halley_cluster_orderer:forget_group(Orderer), synced = false,
                  at_end = false, proposals = halley_cluster_proposals:lost(After, Proposals)}).

appended(#{last := Last} = Row, Epoch, #core{reader = Reader, peers = Peers} = S) ->
    case halley_cluster_reader:get(newest, Reader) of
        Epoch ->
            Sent = emit([{send, Brain, {row, Row}} || Brain <- halley_cluster_peers:linked(Peers)],
                        S),
            case row(Row, certain, Sent) of
                #core{} = Applied -> Applied;
                %% This brain copies, and will read it.
                _ -> safe(Last, Sent)
            end;
        _ ->
            closed(append, reopen, S)
    end.

taken(Role, Answer, AskedAt, #core{roles = Roles} = S) ->
    Answered = S#core{roles = halley_cluster_roles:answered(Role, Answer, AskedAt, Roles)},
    case Role of
        order -> Answered#core{asking = false};
        _ -> Answered
    end.

members(Brains, #core{members = Brains} = S) -> S;
members(Brains, #core{engine_at = At} = S) ->
    emit([{members, Brains, At}], S#core{members = Brains}).

%% --- reading -------------------------------------------------------------------------------------

%% The read handle's next call, if it is idle.
-spec reader_calls(core()) -> core().
reader_calls(#core{read = Handle, reader = Reader} = S) ->
    case halley_cluster_handle:is_idle(Handle) of
        true -> reader_call(halley_cluster_reader:get(phase, Reader), S);
        false -> S
    end.

reader_call({copy, Reason}, #core{reader = Reader} = S) ->
    true = halley_cluster_handle:epoch(S#core.read) =:= halley_cluster_reader:get(newest, Reader),
    call_reader(snapshot, copy, emit([{wipe, Reason}], S));
reader_call(reading, #core{now = Now, roles = Roles} = S) ->
    case halley_cluster_roles:due(Now, roles(S), Roles) of
        {Role, Term, TtlMs} ->
            Asked = S#core{roles = halley_cluster_roles:asked(Role, Now, Roles)},
            call_reader({take, Role, S#core.me, Term, TtlMs}, {take, Role, Now}, Asked);
        none ->
            read_call(S)
    end;
reader_call(unopened, S) ->
    S.

%% A brain that doesn't know the log's end orders nothing.
roles(#core{synced = false}) -> [];
roles(#core{mode = {following, _}, wanted = Wanted}) -> Wanted;
roles(#core{wanted = Wanted}) -> [order | Wanted].

read_call(#core{now = Now, reader = Reader, bounds = Bounds} = S) ->
    #{read_bytes_max := Bytes, read_every_ms := EveryMs, brains_every_ms := BrainsMs,
      trim_every_ms := TrimMs, retention_ms := RetentionMs} = Bounds,
    Head = halley_cluster_reader:get(head, Reader),
    if
        S#core.brains_due =< Now ->
            call_reader({brains, Head}, brains, S#core{brains_due = Now + BrainsMs});
        S#core.mode =:= ordering, S#core.engine_at > 0, S#core.trim_due =< Now ->
            call_reader({trim, S#core.engine_at - RetentionMs}, trim,
                        S#core{trim_due = Now + TrimMs});
        S#core.read_now; S#core.read_due =< Now ->
            call_reader({read, Head, Bytes}, {read, Head},
                        S#core{read_now = false, read_due = Now + EveryMs});
        true ->
            S
    end.

call_reader(Request, Context, #core{read = Handle} = S) ->
    {Called, Effects} = halley_cluster_handle:call(Request, Context, Handle),
    emit(Effects, S#core{read = Called}).

read({ok, []}, #core{orderer = Orderer} = S) ->
    contact(S#core{synced = true, at_end = true,
                   orderer = halley_cluster_orderer:unblock(Orderer)});
read({ok, Rows}, #core{orderer = Orderer} = S) ->
    rows(Rows, contact(S#core{at_end = false, read_now = true,
                              orderer = halley_cluster_orderer:unblock(Orderer)}));
read(too_old, #core{reader = Reader, orderer = Orderer} = S) ->
    Known = S#core{reader = halley_cluster_reader:too_old(Reader), synced = false, at_end = false,
                   orderer = halley_cluster_orderer:forget_group(Orderer)},
    %% The floor that is known may be an old one.
    closed(read, reopen, closed(append, reopen, contact(Known)));
read(ahead, S) ->
    suspect(contact(S));
read({error, _}, S) ->
    closed(read, retry, S).

rows([Row | Rest], #core{reader = Reader} = S) ->
    case row(Row, table, S) of
        #core{} = Applied -> rows(Rest, Applied);
        new_epoch -> closed(read, reopen, S);
        {bad, Reason} -> bad(Reason, S#core{reader = halley_cluster_reader:stuck(Reason, Reader),
                                            read_now = false});
        %% A hole: the log doesn't have the head.
        _ -> suspect(S)
    end;
rows([], S) ->
    S.

%% The handle may still be connected to a service that is no more.
bad(wrong_epoch, S) -> closed(read, retry, S);
bad(_, S) -> S.

suspect(#core{reader = Reader} = S) ->
    closed(read, retry, S#core{reader = halley_cluster_reader:suspect(Reader), read_now = true}).

loaded(At, #core{reader = Reader} = S) ->
    Head = halley_cluster_reader:get(head, Reader),
    Seen = case halley_cluster_reader:get(phase, Reader) of
        {copy, too_old} -> Head;
        {copy, {lost, After}} -> min(Head, After)
    end,
    {Loaded, Effects} = halley_cluster_reader:loaded(At, Reader),
    Floor = halley_cluster_reader:get(head, Loaded),
    waiting(unseen(Floor > Seen, emit(Effects, S#core{reader = Loaded, read_now = true}))).

unseen(false, S) ->
    S;
unseen(true, #core{proposals = Proposals} = S) ->
    {Left, Answers} = halley_cluster_proposals:unseen(Proposals),
    answers(Answers, S#core{proposals = Left}).

%% Nothing waits here but what this brain itself wants in the log. The others are informed, and have
%% theirs still.
-spec waiting(core()) -> core().
waiting(#core{mode = Mode, proposals = Proposals, orderer = Orderer} = S) ->
    Own = case Mode of
        {following, _} -> [];
        _ -> halley_cluster_proposals:unplaced(Proposals)
    end,
    {Dropped, Left} = halley_cluster_orderer:restart(Own, Orderer),
    emit([{send, Brain, {refused, Tokens, not_ordering}} || {Brain, Tokens} <- Dropped],
         S#core{orderer = Left}).

%% --- appending -----------------------------------------------------------------------------------

%% Begins an append, if there is something to append and nothing is in the way.
-spec append(core()) -> core().
append(#core{orderer = Orderer, reader = Reader} = S) ->
    case halley_cluster_state:may_append(S) andalso halley_cluster_orderer:stage(Orderer) of
        {none, none} -> form(S);
        {ready, Prev} ->
            case halley_cluster_reader:get(head, Reader) of
                Prev -> call(S);
                _ -> S
            end;
        _ -> S
    end.

form(#core{reader = Reader, orderer = Orderer} = S) ->
    Prev = halley_cluster_reader:get(head, Reader),
    {Token, Drawn} = halley_cluster_state:token(S),
    case halley_cluster_orderer:form(Prev, Token, filler(S), Orderer) of
        {none, Left} -> S#core{orderer = Left};
        {ready, Formed} -> call(Drawn#core{orderer = Formed});
        {claim, Ids, Formed} -> emit([{claim, Token, Ids}], Drawn#core{orderer = Formed})
    end.

%% Rows with proposals were found that no answer makes certain: the answer to another row does.
filler(#core{mode = Mode, reader = Reader, proposals = Proposals}) ->
    #{unsafe := Unsafe} = halley_cluster_proposals:info(Proposals),
    IsInDoubt = halley_cluster_reader:get(doubt, Reader) > halley_cluster_reader:get(safe, Reader),
    case IsInDoubt andalso (Mode =:= ordering orelse (Mode =:= alone andalso Unsafe > 0)) of
        true -> filler;
        false -> no_filler
    end.

call(#core{append = Handle, reader = Reader, orderer = Orderer, proposals = Proposals} = S) ->
    Epoch = halley_cluster_reader:get(newest, Reader),
    {Request, Own, Calling} = halley_cluster_orderer:request(
        Epoch, halley_cluster_reader:get(store, Reader), Orderer),
    {append, Prev, Token, #{last := Last, body := Body}} = Request,
    Row = #{prev => Prev, last => Last, token => Token, body => Body},
    {Called, Effects} = halley_cluster_handle:call(Request, #{row => Row, epoch => Epoch}, Handle),
    emit(Effects, S#core{append = Called, orderer = Calling,
                         proposals = halley_cluster_proposals:exposed(Own, Proposals)}).
