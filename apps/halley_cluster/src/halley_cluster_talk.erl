%% The core's side towards other brains: proposals to the orderer, rows from it, and beats.
%%
%% Messages may be lost, late or doubled, and the log decides: a proposal is sent until it is
%% placed, and a row is applied only where it fits.
%%
%% Pure.
-module(halley_cluster_talk).

-export([message/3, propose/3, scan/1, beats/1, role/1]).

-include("halley_cluster_core.hrl").

-import(halley_cluster_state, [emit/2, answers/2]).

-type core() :: halley_cluster_state:core().

%% --- what comes ----------------------------------------------------------------------------------

-spec message(Brain :: binary(), halley_cluster_state:message(), core()) -> core().
message(Brain, {beat, #{epoch := Epoch, safe := Safe} = Beat}, #core{now = Now} = S) ->
    #core{peers = Peers, reader = Reader} = S,
    Heard = S#core{peers = halley_cluster_peers:beat(Brain, Beat, Now, Peers)},
    case halley_cluster_reader:get(newest, Reader) of
        Epoch -> halley_cluster_log:safe(Safe, Heard);
        Newest when Newest < Epoch -> halley_cluster_log:reread(Heard);
        _ -> Heard
    end;
message(Brain, Message, #core{now = Now, peers = Peers} = S) ->
    heard(Brain, Message, S#core{peers = halley_cluster_peers:heard(Brain, Now, Peers)}).

heard(_, {row, Row}, S) ->
    case halley_cluster_log:row(Row, certain, S) of
        #core{} = Taken -> Taken;
        later -> S#core{read_now = true};
        new_epoch -> halley_cluster_log:reread(S);
        %% The table tells what is true.
        {bad, _} -> S#core{read_now = true};
        foreign -> S
    end;
heard(Brain, {propose, Epoch, Base, Items}, S) ->
    proposed(Brain, {Epoch, Base}, Items, S);
heard(Brain, {refused, Tokens, Why}, #core{now = Now, peers = Peers} = S) ->
    #core{proposals = Proposals, bounds = #{refused_ms := Ms}} = S,
    Later = S#core{proposals = halley_cluster_proposals:again(Tokens, Now + Ms, Proposals)},
    case Why of
        not_ordering -> Later#core{peers = halley_cluster_peers:no_orderer(Brain, Peers)};
        _ -> Later
    end.

proposed(Brain, _, Items, #core{mode = Mode} = S) when Mode =/= ordering ->
    refuse(Brain, Items, not_ordering, S);
proposed(Brain, {Epoch, Base}, Items, #core{reader = Reader} = S) ->
    case halley_cluster_reader:get(newest, Reader) of
        Epoch -> lists:foldl(fun(Item, Each) -> admit(Brain, Base, Item, Each) end, S, Items);
        _ -> refuse(Brain, Items, stale, S)
    end.

admit(Brain, Base, {Token, Proposal} = Item, #core{reader = Reader, orderer = Orderer} = S) ->
    Window = halley_cluster_reader:get(window, Reader),
    case halley_cluster_window:find(Token, Base, Window) of
        present ->
            S;
        stale ->
            refuse(Brain, [Item], stale, S);
        absent ->
            case halley_cluster_orderer:admit(Token, Brain, Proposal, Orderer) of
                {ok, Admitted} -> S#core{orderer = Admitted};
                overloaded -> refuse(Brain, [Item], overloaded, S)
            end
    end.

refuse(Brain, Items, Why, S) ->
    emit([{send, Brain, {refused, [Token || {Token, _} <- Items], Why}}], S).

%% --- this brain's own proposals ------------------------------------------------------------------

-spec propose(halley_cluster_proposals:from(), halley_cluster_records:proposal(), core()) -> core().
propose(From, Proposal, #core{now = Now, proposals = Proposals} = S) ->
    {Token, Drawn} = halley_cluster_state:token(S),
    case can_answer(S)
             andalso halley_cluster_proposals:add(Token, From, Proposal, Now, Proposals) of
        false -> answers([{From, {error, {log_away, 1000}}}], S);
        {error, _} = Overloaded -> answers([{From, Overloaded}], S);
        {ok, Added} -> hand_on(Token, Proposal, Drawn#core{proposals = Added})
    end.

can_answer(#core{synced = IsSynced} = S) ->
    IsSynced andalso not halley_cluster_state:is_away(S).

hand_on(Token, Proposal, #core{mode = {following, Brain}, proposals = Proposals} = S) ->
    Sent = halley_cluster_proposals:sent([Token], resend(S), Proposals),
    send(Brain, [{Token, Proposal}], S#core{proposals = Sent});
hand_on(Token, Proposal, #core{orderer = Orderer} = S) ->
    {ok, Admitted} = halley_cluster_orderer:admit(Token, own, Proposal, Orderer),
    S#core{orderer = Admitted}.

%% Sends again what is due, and gives up what is too old.
-spec scan(core()) -> core().
scan(#core{now = Now, scan_due = Due} = S) when Now < Due ->
    S;
scan(#core{now = Now, proposals = Proposals, orderer = Orderer, bounds = Bounds} = S) ->
    #{answer_ms_max := AnswerMs} = Bounds,
    {Left, Answers, Tokens} = halley_cluster_proposals:expire(Now, AnswerMs, Proposals),
    Answered = answers(Answers, S#core{proposals = Left, scan_due = Now + 100,
                                       orderer = halley_cluster_orderer:remove(Tokens, Orderer)}),
    send_due(distrust(Answered)).

%% An orderer that places nothing isn't waited for.
distrust(#core{mode = {following, Brain}, now = Now, peers = Peers, bounds = Bounds} = S) ->
    #{unplaced_ms_max := Max, distrust_ms := Ms} = Bounds,
    case halley_cluster_proposals:oldest_sent(S#core.proposals) of
        Sent when is_integer(Sent), Now - Sent >= Max ->
            role(S#core{peers = halley_cluster_peers:distrust(Brain, Now + Ms, Peers)});
        _ ->
            S
    end;
distrust(S) ->
    S.

send_due(#core{mode = {following, Brain}, proposals = Proposals} = S) ->
    case halley_cluster_proposals:due(resend(S), Proposals) of
        {[], _} -> S;
        {Items, Sent} -> send(Brain, Items, S#core{proposals = Sent})
    end;
send_due(S) ->
    S.

resend(#core{now = Now, bounds = #{resend_ms := Ms}}) -> {Now, Ms}.

send(Brain, Items, #core{reader = Reader} = S) ->
    emit([{send, Brain, {propose, halley_cluster_reader:get(newest, Reader),
                         halley_cluster_reader:get(head, Reader), Items}}], S).

%% --- who orders ----------------------------------------------------------------------------------

%% Decides this brain's part anew, and hands proposals over if it has changed.
-spec role(core()) -> core().
role(#core{now = Now, peers = Peers, mode = Before} = S) ->
    Yielded = yield(halley_cluster_peers:term(Now, Peers), S),
    case mode(Yielded) of
        Before -> Yielded;
        Mode -> changed(Mode, Yielded)
    end.

%% A brain that hears of a later term has lost the role, whatever it believes of its lease.
yield(Term, #core{now = Now, roles = Roles} = S) ->
    case halley_cluster_roles:held(order, Now, Roles) of
        Mine when is_integer(Mine), Mine < Term ->
            S#core{roles = halley_cluster_roles:drop(order, Roles)};
        _ ->
            S
    end.

mode(#core{synced = false}) ->
    alone;
mode(#core{now = Now, roles = Roles, peers = Peers} = S) ->
    case {halley_cluster_roles:held(order, Now, Roles), halley_cluster_peers:orderer(Now, Peers)} of
        {none, none} -> alone;
        {none, Brain} -> {following, Brain};
        {_, _} ->
            case halley_cluster_state:is_away(S) of
                true -> alone;
                false -> ordering
            end
    end.

changed(Mode, #core{proposals = Proposals} = S) ->
    Changed = emit([{mode, Mode}],
                   S#core{mode = Mode, asking = false, beat_due = 0,
                          proposals = halley_cluster_proposals:fresh(Proposals)}),
    send_due(halley_cluster_log:waiting(Changed)).

%% --- beats ---------------------------------------------------------------------------------------

-spec beats(core()) -> core().
beats(#core{now = Now, beat_due = Due} = S) when Now < Due ->
    S;
beats(#core{now = Now, peers = Peers, reader = Reader, bounds = #{beat_every_ms := EveryMs}} = S) ->
    Beat = #{epoch => halley_cluster_reader:get(newest, Reader),
             safe => halley_cluster_reader:get(safe, Reader), order => term(S)},
    emit([{send, Brain, {beat, Beat#{hears => halley_cluster_peers:hears(Brain, Now, Peers)}}}
          || Brain <- halley_cluster_peers:linked(Peers)], S#core{beat_due = Now + EveryMs}).

term(#core{mode = ordering, now = Now, roles = Roles}) ->
    halley_cluster_roles:held(order, Now, Roles);
term(_) ->
    none.
