%% The core of a brain in a cluster: all its decisions about the shared log
%% (docs/internals/cluster.md).
%%
%% It is a function of what has happened: `handle({Now, Event}, State) -> {State, [Effect]}'. Time,
%% messages, results of calls and answers of the shards come in as events; what is to be done comes
%% out as data, in order. Its tokens are the shell's random `boot' and a counter. So a seeded
%% simulator can play several cores against an engine that lies.
%%
%% Each event changes some part of the state. Afterwards the core looks at all of it and begins
%% whatever is due: it opens handles, asks for roles, reads, appends, sends. Nothing is begun in
%% answer to an event alone, so no lost event can stop it for longer than the next tick.
%%
%% - `halley_cluster_reader': how far the log is applied here, epochs, and what of it is safe;
%% - `halley_cluster_orderer': what waits to be appended, and the group whose fate is open;
%% - `halley_cluster_proposals': what this brain's own callers wait for;
%% - `halley_cluster_peers', `halley_cluster_roles': who orders;
%% - `halley_cluster_handle': the two handles of the engine;
%% - `halley_cluster_log', `halley_cluster_talk': the engine's side, and that of the other brains.
%%
%% Invariants, whatever fails: rows are applied in the order of one chain, without holes; a proposal
%% is at most once in the log and has one answer; an answer `ok' means that the row was applied
%% here, and that the engine has answered its append or a later one.
%%
%% Pure.
-module(halley_cluster_core).

-export([new/1, handle/2, info/1]).
-export_type([event/0]).

-include("halley_cluster_core.hrl").

%% `tick': comes at least each 50 ms. `propose': a caller's records, which `answer' answers. `link':
%% a connection to another brain; one that was lost and is there again comes as `down' and `up'.
-type event() :: tick
               | {propose, halley_cluster_proposals:from(), halley_cluster_records:proposal()}
               | {link, Brain :: binary(), up | down}
               | {message, Brain :: binary(), halley_cluster_state:message()}
               | {result, halley_cluster_handle:ref(), Result :: term()}
               | {claimed, halley_log_engine:token(), [halley_event:id()]}.

-spec new(halley_cluster_state:settings()) -> halley_cluster_state:core().
new(Settings) ->
    halley_cluster_state:new(Settings).

%% `Now': milliseconds by a clock that may jump.
-spec handle({Now :: integer(), event()}, halley_cluster_state:core()) ->
    {halley_cluster_state:core(), [halley_cluster_state:effect()]}.
handle({Now, Event}, S) ->
    Happened = event(Event, halley_cluster_state:clock(Now, S)),
    #core{out = Out} = Done = begin_due(Happened),
    {Done#core{out = []}, lists:reverse(Out)}.

event(tick, S) ->
    S;
event({propose, From, Proposal}, S) ->
    halley_cluster_talk:propose(From, Proposal, S);
event({link, Brain, Up}, #core{peers = Peers, now = Now} = S) ->
    %% A new link is told at once what it needs to know.
    S#core{peers = halley_cluster_peers:link(Brain, Up, Now, Peers), beat_due = 0};
event({message, Brain, Message}, S) ->
    halley_cluster_talk:message(Brain, Message, S);
event({result, Ref, Result}, S) ->
    halley_cluster_log:result(Ref, Result, S);
event({claimed, Token, Known}, #core{orderer = Orderer} = S) ->
    S#core{orderer = halley_cluster_orderer:claimed(Token, Known, Orderer)}.

begin_due(S) ->
    Steps = [fun halley_cluster_log:open/1, fun halley_cluster_talk:role/1, fun roles/1,
             fun halley_cluster_log:reader_calls/1, fun halley_cluster_log:append/1,
             fun halley_cluster_talk:scan/1, fun halley_cluster_talk:beats/1, fun readiness/1],
    lists:foldl(fun(Step, Each) -> Step(Each) end, S, Steps).

%% The roles besides that of ordering, as the shell knows them.
roles(#core{wanted = []} = S) ->
    S;
roles(#core{wanted = Wanted, roles = Roles, now = Now, held = Held} = S) ->
    lists:foldl(fun(Role, Each) ->
                    Before = maps:get(Role, Held, none),
                    case halley_cluster_roles:held(Role, Now, Roles) of
                        Before -> Each;
                        After -> role(Role, After, Each)
                    end
                end, S, Wanted).

role(Role, none, #core{held = Held} = S) ->
    halley_cluster_state:emit([{role, Role, lost}], S#core{held = maps:remove(Role, Held)});
role(Role, Term, #core{held = Held} = S) ->
    halley_cluster_state:emit([{role, Role, {held, Term}}], S#core{held = Held#{Role => Term}}).

readiness(#core{readiness = Before} = S) ->
    case halley_cluster_state:readiness(S) of
        Before -> S;
        Readiness -> halley_cluster_state:emit([{readiness, Readiness}],
                                               S#core{readiness = Readiness})
    end.

%% For metrics and tests.
-spec info(halley_cluster_state:core()) -> #{atom() => term()}.
info(#core{mode = Mode, reader = Reader, proposals = Proposals, orderer = Orderer} = S) ->
    #{answer_ms_max := AnswerMs} = S#core.bounds,
    #{mode => Mode, answer_ms_max => AnswerMs, readiness => halley_cluster_state:readiness(S),
      head => halley_cluster_reader:get(head, Reader),
      safe => halley_cluster_reader:get(safe, Reader),
      epoch => halley_cluster_reader:get(newest, Reader),
      window => halley_cluster_window:size(halley_cluster_reader:get(window, Reader)),
      own => halley_cluster_proposals:info(Proposals),
      queue => halley_cluster_orderer:info(Orderer)}.
