%% Reads what sessions of back ends get: from the history, in order, each event with its cursor. One
%% process, so that there is one reader, and sessions take turns (`halley_turns'), one batch each.
%%
%% A session asks with the heads that it must be given (`want/1') when something was published for
%% it, and has its turn once the log has written these. So a back end gets an event when it is on
%% disk: never one that a brain which is killed forgets. The answer is `{fed, Items, Cursor, What}':
%% oldest first, and `more' if it shall ask again.
%%
%% Live events wait for it as for the log, so it has the priority of any process, and no permit.
%%
%% Memory: the place of each session is small, but for one whose replay is in the midst of much, of
%% which ?KEPT_MAX are kept.
%%
%% It doesn't send: a session without a reader requests nothing.
-module(halley_backends_feed).
-behaviour(halley_turns).

-export([start_link/0, add/2, want/1]).
-export([init/1, handle/3, has_room/1, plan/4, batch/4, given/5, cursor/1]).
-export_type([item/0]).

-define(KEPT_MAX, 64).

-type item() :: {event, map()} | {gap, map()}.
%% gap: of one whose cursor can't be gone on from; from its login on it lacks nothing.
-type plan() :: halley_replay:replay() | {gap, halley_cursor:gap(), halley_replay:replay()}.
-record(state, {limits :: halley_replay:limits()}).

-spec start_link() -> gen_server:start_ret().
start_link() -> halley_turns:start_link(?MODULE, []).

%% The calling process, which is a session of this user by now, from its cursor on, or from now on.
%% Gives where it begins.
-spec add(halley_id:id(), none | halley_cursor:token()) -> halley_cursor:token().
add(User, Cursor) -> gen_server:call(?MODULE, {add, User, Cursor}, infinity).

-spec want(halley_history:vector()) -> ok.
want(Heads) -> gen_server:cast(?MODULE, {want, self(), Heads}).

-spec init([]) -> {halley_turns:options(), #state{}}.
init([]) ->
    {#{kept_max => ?KEPT_MAX, permits => false},
     #state{limits = #{events_max => halley_limits:get(replay_events_max),
                       bytes_max => halley_limits:get(replay_bytes_max)}}}.

-spec has_room(#state{}) -> true.
has_room(_) -> true.

-spec handle(term(), halley_turns:turns(), #state{}) -> {halley_turns:turns(), #state{}}.
handle({call, {Pid, _} = From, {add, User, Given}}, Turns, State) ->
    _ = erlang:monitor(process, Pid),
    Cursor = case Given of
        none ->
            Second = halley_clock:wall_s(),
            halley_cursor:encode(halley_history:store(), Second, halley_history:heads());
        _ -> Given
    end,
    Added = halley_turns:add(Pid, User, begins(User, Cursor), Turns),
    ok = gen_server:reply(From, Cursor),
    {Added, State};
handle({call, From, _}, Turns, State) ->
    ok = gen_server:reply(From, {error, unknown_call}),
    {Turns, State};
handle({want, Pid, Heads}, Turns, State) ->
    {halley_turns:await([Pid], Heads, written, Turns), State};
handle({'DOWN', _, process, Pid, _}, Turns, State) ->
    {halley_turns:remove(Pid, Turns), State};
handle(_, Turns, State) ->
    {Turns, State}.

%% Before the login is answered: what is published after it is no part of the gap, however late the
%% first turn is.
begins(User, Cursor) ->
    case halley_replay:new(User, Cursor) of
        {ok, _} -> {from, Cursor};
        {gap, _, _} = Gap -> {plan, Gap}
    end.

%% --- turns -------------------------------------------------------------------------------------

-spec plan(pid(), halley_id:id(), halley_cursor:token(), #state{}) -> plan().
plan(_, User, Cursor, _) ->
    case halley_replay:new(User, Cursor) of
        {ok, Replay} -> Replay;
        {gap, _, _} = Gap -> Gap
    end.

-spec cursor(halley_replay:replay()) -> halley_cursor:token().
cursor(Replay) -> halley_replay:cursor(Replay).

%% A gap at the beginning is a batch of its own. Items: the newest first.
-spec batch(plan(), halley_history:vector(), halley_history_reader:reader(), #state{}) ->
    {[item()], halley_turns:what(), halley_replay:replay(), none | halley_replay:gathered(),
     halley_history_reader:reader()}.
batch({gap, Gap, Replay}, _, Reader, _) ->
    {[], {gap, Gap}, Replay, none, Reader};
batch(Replay, UpTo, Reader, #state{limits = Limits}) ->
    {Items, What, Next, Later} =
        halley_replay:next(Replay, UpTo, Limits, fun item/3, [], Reader),
    {Found, Left} = halley_replay:gathered(Next),
    {Items, What, Left, Found, Later}.

-spec given(pid(), halley_turns:what(), [item()], {halley_turns:goal(), halley_replay:replay()},
            #state{}) -> {halley_turns:verdict(), #state{}}.
given(_, yield, [], _, State) ->
    {late, State};
given(Pid, {gap, Gap}, Items, {_, Replay}, State) ->
    fed(Pid, [{gap, Gap} | Items], more, Replay, State);
given(Pid, What, Items, {_, Replay}, State) ->
    fed(Pid, Items, What, Replay, State).

fed(Pid, Items, What, Replay, State) ->
    Pid ! {fed, lists:reverse(Items), halley_replay:cursor(Replay), What},
    {idle, State}.

%% The record is a part of a block of the log.
item(Body, Cursor, Items) ->
    {ok, #{kind := Kind, id := Id, at := At} = Record} = halley_history_record:body(Body),
    Event = #{id => binary:copy(Id), at => At, cursor => Cursor,
              data => halley_event:data(Record)},
    [{event, case Kind of
                 event -> Event#{subject => binary:copy(maps:get(subject, Record))};
                 joint -> Event#{subjects => [binary:copy(S) || S <- maps:get(subjects, Record)]};
                 private -> Event#{private => true}
             end} | Items].
