%% One worker of an edge: what its frames ask for, besides requests (protocol/link.md 6, 10). Part
%% of the state of halley_edge_link and used in its process; every function that changes it gives it
%% back.
%%
%% It opens and closes the worker's sessions (halley_edge_sessions), hands on what is for their
%% replays, counts metrics, and keeps inspections. Its slot is the worker's place on the trunk.
%%
%% Not here: requests, which all workers have in common, and the link.
-module(halley_edge_worker).

-export([new/5, ended/1, slot/1, replays/1, frame/2, judged/3, wish/2, enter/2, replay_ended/2,
         told/3, inspect/4, tick/1]).
-export_type([worker/0, index/0, metrics/0]).

-include("halley_edge.hrl").

-define(REPLAYS_WAITING_MAX, 1000000). % that came, went or answered and weren't looked at

-type index() :: halley_edge_codec:worker().
%% How many values STATS has, and what they are called.
-type metrics() :: {non_neg_integer(), halley_metrics:list_number()}.
-record(worker, {
    index :: index(),
    asked = halley_edge_asked:new() :: halley_edge_asked:asked(),
    slot :: halley_links:slot(),
    writer :: halley_edge_sender:handle(),
    metrics :: metrics(),
    %% Whether it says again whom its sessions may see (link.md 19).
    keeps_views :: boolean(),
    replays :: halley_edge_replays:handle(),
    sessions :: halley_edge_sessions:sessions(),
    inspections = halley_edge_inspections:new() :: halley_edge_inspections:inspections(),
    sync = before :: before | running | done
}).
-opaque worker() :: #worker{}.
-type result() :: worker() | {broken, halley_edge_codec:problem()}.

%% To be made by the link's process, which its replays are linked to.
-spec new(index(), halley_links:slot(), halley_edge_sender:handle(), metrics(),
          Hello :: map()) -> worker().
new(Index, Slot, Writer, Metrics, Hello) ->
    Replays = halley_edge_replays:start_link(self(), Slot, Writer),
    #worker{index = Index, slot = Slot, writer = Writer, metrics = Metrics, replays = Replays,
            keeps_views = halley_edge_rights:keeps_views(Hello),
            sessions = halley_edge_sessions:new(Slot, Index, Writer, Replays)}.

%% It has lost its place.
-spec ended(worker()) -> ok.
ended(#worker{slot = Slot, writer = Writer} = Worker) ->
    Replays = replays(Worker),
    unlink(Replays),
    exit(Replays, kill),
    ok = halley_edge_sender:gone(Writer),
    ok = halley_subscriptions:ended(Slot),
    halley_links:end_worker(Slot).

-spec slot(worker()) -> halley_links:slot().
slot(#worker{slot = Slot}) -> Slot.

%% The process of its replays.
-spec replays(worker()) -> pid().
replays(#worker{replays = Replays}) -> halley_edge_replays:pid(Replays).

%% A costly frame came that is about no request.
-spec frame(halley_edge_codec:frame(), worker()) -> result().
frame({sync_begin, Sessions, Cursor},
      #worker{sync = before, writer = Writer, slot = Slot} = Worker) ->
    Start = halley_edge_catchup:begins(Sessions, Cursor, halley_history:store(),
                                       halley_history:heads(), halley_clock:wall_ms()),
    ok = halley_edge_sender:sync_begin(Writer, Start),
    ok = halley_began:syncs(Slot),
    Worker#worker{sync = running};
frame(sync_end, #worker{sync = running, writer = Writer, slot = Slot,
                        sessions = Sessions} = Worker) ->
    ok = halley_edge_sender:sync_end(Writer),
    Synced = halley_edge_sessions:synced(Sessions),
    ok = halley_links_synced:synced(Slot),
    Worker#worker{sync = done, sessions = Synced};
frame({stats, Values}, Worker) ->
    stats(Values, Worker);
frame({open, Opening}, #worker{sync = Sync, index = Index, sessions = Sessions,
                               asked = Asked} = Worker) when Sync =/= before ->
    case halley_edge_asked:sift(Index, Sync, Opening, Sessions, Asked) of
        twice -> broken(<<"6.3">>, "a session that opens already", []);
        {Now, Refused, Left, Waiting} ->
            ok = refuse(Refused, Left),
            Opened = open(Now, Worker#worker{sessions = Left, asked = Waiting}),
            ok = halley_edge_asked:behind(Sync, Now),
            Opened
    end;
frame({subscriptions, Conn, Rights, Subjects}, #worker{sync = Sync, sessions = Sessions} = Worker)
  when Sync =/= before ->
    case halley_edge_sessions:subscriptions(Conn, Rights, Subjects, Sessions) of
        {broken, _} = Broken -> Broken;
        Announced -> Worker#worker{sessions = Announced}
    end;
frame({rights, Conn, Rights}, #worker{sync = Sync, slot = Slot, writer = Writer,
                                      keeps_views = KeepsViews} = Worker)
  when Sync =/= before ->
    ok = halley_edge_rights:changed(Conn, Rights, KeepsViews, {Slot, Writer}),
    Worker;
frame({close, Closing}, #worker{sync = Sync, sessions = Sessions} = Worker) when Sync =/= before ->
    bounded(Worker#worker{sessions = halley_edge_sessions:close(Closing, Sessions)});
frame({replayed, Conn}, #worker{replays = Replays} = Worker) ->
    ok = halley_edge_replays:replayed(Replays, Conn),
    bounded(Worker);
frame({inspected, Token, Conn, Seen}, #worker{inspections = Inspections} = Worker) ->
    Worker#worker{inspections = halley_edge_inspections:answered(Token, Conn, Seen, Inspections)};
frame({behind, Token, Slow}, #worker{inspections = Inspections} = Worker) ->
    Worker#worker{inspections = halley_edge_inspections:behind(Token, Slow, Inspections)};
frame(Frame, _) ->
    case halley_edge_codec:is_from_edge(Frame) of
        true -> broken(<<"6.1">>, "a frame out of its place in the sync", []);
        false -> broken(<<"2.3">>, "a frame of the other direction", [])
    end.

open([], Worker) ->
    Worker;
open(Opening, #worker{sessions = Sessions} = Worker) ->
    case halley_edge_sessions:open(Opening, Sessions) of
        {ok, Opened} -> bounded(Worker#worker{sessions = Opened});
        {broken, _} = Broken -> Broken
    end.

refuse(Refused, Sessions) ->
    lists:foreach(fun({Session, Judgement}) ->
        ok = halley_edge_sessions:refuse(Session, Judgement, Sessions)
    end, Refused).

%% Whether a session may open, about which somebody was asked.
-spec judged(halley_edge_codec:conn(), halley_hooked:judgement(), worker()) -> result().
judged(Conn, Judgement, #worker{asked = Asked, sessions = Sessions} = Worker) ->
    case halley_edge_asked:judged(Conn, Asked) of
        none ->
            Worker;
        {Session, Said, Left} when Judgement =:= allow ->
            case said(Conn, Said, Sessions) of
                {broken, _} = Broken -> Broken;
                Known -> open([Session], Worker#worker{sessions = Known, asked = Left})
            end;
        {Session, _, Left} ->
            ok = refuse([{Session, Judgement}], Sessions),
            Worker#worker{asked = Left}
    end.

said(_, none, Sessions) -> Sessions;
said(Conn, {Rights, Subjects}, Sessions) ->
    halley_edge_sessions:subscriptions(Conn, Rights, Subjects, Sessions).

%% A session wants to be subscribed to a subject, or no longer. Its connection is a word.
-spec wish(halley_edge_requests:wish(), worker()) -> ok.
wish({What, Word, User, Subject, Answer}, #worker{sessions = Sessions}) ->
    halley_edge_sessions:wish({What, Word band (?CONN_LIMIT - 1), User, Subject, Answer}, Sessions).

%% The replays have a low priority, so a worker that says much may be ahead of them (4.7).
bounded(#worker{replays = Replays} = Worker) ->
    case halley_edge_replays:waiting(Replays) of
        Waiting when Waiting =< ?REPLAYS_WAITING_MAX -> Worker;
        Waiting -> broken(<<"4.7">>, "~b sessions wait for the replays", [Waiting])
    end.

stats(Values, #worker{metrics = {Count, List}, slot = Slot} = Worker)
  when length(Values) =:= Count ->
    ok = halley_metrics:edge(Slot, List, Values),
    Worker;
stats(Values, #worker{metrics = {Count, _}}) ->
    broken(<<"3.4">>, "~b values for ~b metrics", [length(Values), Count]).

%% Its replays say that these are nearly done.
-spec enter([halley_edge_codec:conn()], worker()) -> worker().
enter(Conns, #worker{sessions = Sessions} = Worker) ->
    Worker#worker{sessions = halley_edge_sessions:enter(Conns, Sessions)}.

%% Its replays say that this one is over.
-spec replay_ended(halley_edge_codec:conn(), worker()) -> worker().
replay_ended(Conn, #worker{sessions = Sessions} = Worker) ->
    Worker#worker{sessions = halley_edge_sessions:replay_ended(Conn, Sessions)}.

%% The sessions of a user are to be closed, those that are held as well; or a server has ended
%% subscriptions of a session. The hello is the edge's.
-spec told({close_user, halley_id:user_number(), Reason :: binary()}
           | {subscriptions_ended, halley_edge_codec:conn(), [binary()]}, map(), worker()) -> ok.
told({close_user, Number, Reason}, _, #worker{sessions = Sessions}) ->
    halley_edge_sessions:close_user(Number, Reason, Sessions);
told({subscriptions_ended, Conn, Subjects}, Hello, #worker{slot = Slot, writer = Writer}) ->
    halley_edge_rights:ended(Conn, Subjects, halley_edge_rights:is_known(Hello), {Slot, Writer}).

%% Asks what a connection has waiting; From is answered then.
-spec inspect(gen_server:from(), halley_edge_codec:conn(), TimeoutMs :: pos_integer(), worker()) ->
    {ok, worker()} | full.
inspect(From, Conn, TimeoutMs, #worker{inspections = Inspections, writer = Writer} = Worker) ->
    case halley_edge_inspections:ask(From, Conn, TimeoutMs, Inspections) of
        {Frame, Asked} ->
            Encoded = iolist_to_binary(halley_edge_codec:encode(Frame)),
            ok = halley_edge_sender:send(Writer, [Encoded]),
            {ok, Worker#worker{inspections = Asked}};
        full ->
            full
    end.

%% To be called about once a second.
-spec tick(worker()) -> worker().
tick(#worker{inspections = Inspections, asked = Asked, sessions = Sessions} = Worker) ->
    {Late, Left} = halley_edge_asked:late(Asked),
    ok = refuse(Late, Sessions),
    Worker#worker{inspections = halley_edge_inspections:expire(Inspections), asked = Left}.

broken(Clause, Format, Args) ->
    {broken, {Clause, iolist_to_binary(io_lib:format(Format, Args))}}.
