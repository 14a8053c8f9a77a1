%% The directory: who is online, and where.
%%
%% One word for each user number (`halley_directory_atomics'). A word is
%%   0         the user is offline;
%%   SEVERAL   the user's sessions are rows of the ETS bag `halley_directory_rows';
%%   LEAVING   the user is offline, and no session opens (`halley_directory_leaving');
%%   else      the user has one session, on a link: slot (10 bits, 1..1023) and conn (48 bits).
%% A word is below 2^59, so it stays an immediate integer: reading one makes no garbage. Slot 0 is
%% no slot, so SEVERAL = 1 and LEAVING = 2 are no sessions. A row is {user number, word | pid}.
%%
%% Reads take no lock and ask no process. A link opens and closes the only session of a user by one
%% compare-and-exchange. Whatever involves rows goes through the owner, this gen_server.
%%
%% Which process may change a word, and why that is enough:
%%   0 -> session      any process (open). session -> 0: any process (close), if it is that session.
%%   0 -> LEAVING -> 0: the owner of the user numbers.
%%   session -> SEVERAL, SEVERAL -> anything: the owner only.
%% So a word that is SEVERAL is stable for the owner, and any other word can change beneath it:
%% the owner exchanges, and starts again where it lost.
%%   * Rows are inserted before the word becomes SEVERAL, and deleted after it is no longer. Under
%%     SEVERAL there is always a row, even if the owner is killed between two steps. A reader that
%%     saw SEVERAL and finds no rows came while the word went back to one session: it reads again.
%%   * One link process opens and closes its sessions in order, and waits for the owner where it
%%     needs it. So a close never overtakes its open, and closing what isn't there changes nothing.
%%   * `purge/2' shuts the slot, then scans words and rows. The slot stays shut until another link
%%     gets it (`mark/2', `halley_directory_slots'), as the process may still have frames to read. A
%%     process that puts a session into a word looks at the slot afterwards, and takes its session
%%     back if the slot is shut. Either it saw that the slot is shut, or the scan saw its word:
%%     nothing of a dead link stays. Slots are given out in turn, the one that was free for the
%%     longest first. So where k slots are free, a process would have to outlive its link until k
%%     others have begun to put a session into one of theirs.
%%   * A process that ends is logged out by the owner, which then calls `Ended' for each of its
%%     users. A link that closes a session needs no such call.
%%   * A killed owner is restarted over the same chunks and rows (they belong to the supervisor); it
%%     deletes rows of words that aren't SEVERAL and monitors the processes again. The counts of
%%     users and sessions may then be off by the one step that the kill interrupted.
%%
%% It is not durable, and knows neither ids nor follows.
-module(halley_directory).
-behaviour(gen_server).

-export([new/0, start_link/1]).
-export([open/3, close/2, logout/1, lookup/2, sessions/1, online/0]).
-export([mark/2, shut_slots/0, purge/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([session/0, slot/0, conn/0, word/0]).

-include("halley_directory.hrl").

-type slot() :: 1..1023.
-type conn() :: 0..16#FFFFFFFFFFFF.
-type session() :: {link, slot(), conn()} | pid().
%% A session on a link as one integer; sorting words groups them by slot.
-type word() :: pos_integer().
-type user_number() :: non_neg_integer().

-define(ROWS, halley_directory_rows).
-define(CONN_BITS, 48).
-define(CONN_MAX, 16#FFFFFFFFFFFF).
-define(SLOT_MAX, 1023).
-define(USER_NUMBER_MAX, 16#FFFFFFFF).
-define(PURGE_ROWS, 500).

-define(COUNTS, {?MODULE, counts}).
-define(USERS, 1).
-define(SESSIONS, 2).

-record(state, {
    ended :: fun((user_number()) -> ok),
    processes = #{} :: #{pid() => {reference(), [user_number()]}}
}).

%% Makes the tables. The caller, a supervisor, owns them and outlives the owner of their contents.
-spec new() -> ok.
new() ->
    ?ROWS = ets:new(?ROWS, [bag, named_table, public, {read_concurrency, true}]),
    ok = halley_directory_leaving:new(),
    persistent_term:put(?COUNTS, counters:new(2, [atomics])),
    ok = halley_directory_slots:new(),
    ok = halley_metrics:gauges([users, sessions], fun online/0),
    halley_directory_atomics:new().

%% Ended is called in the owner for each user of whom a session that is a process has ended. It must
%% not wait, nor ask the owner.
-spec start_link(Ended :: fun((user_number()) -> ok)) -> gen_server:start_ret().
start_link(Ended) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Ended, []).

%% Opens a session, unless the user has as many as `Max'. Others that it has are told, the oldest
%% first. Opening the same one again changes nothing. `leaving': the number is about to be freed,
%% and its owner must be asked to keep it first.
-spec open(user_number(), session(), Max :: pos_integer() | infinity) ->
    ok | {several, Others :: [session()]} | full | leaving.
open(User, {link, Slot, Conn}, Max) ->
    Word = word(Slot, Conn),
    case exchange(User, 0, Word) of
        ok ->
            first(User),
            take_back_if_shut(User, Word);
        Word ->
            ok;
        ?LEAVING ->
            leaving;
        _ ->
            call({open, User, Word, Max})
    end;
open(User, Pid, Max) when is_pid(Pid), User =< ?USER_NUMBER_MAX ->
    call({open, User, Pid, Max}).

%% Closes exactly this session; if it isn't there, nothing changes.
-spec close(user_number(), session()) -> ok.
close(User, {link, Slot, Conn}) ->
    close_word(User, word(Slot, Conn));
close(User, Pid) when is_pid(Pid) ->
    call({close, User, Pid}).

%% Closes all sessions of a process.
-spec logout(pid()) -> ok.
logout(Pid) ->
    call({logout, Pid}).

-spec sessions(user_number()) -> [session()].
sessions(User) ->
    case lookup(halley_directory_atomics:chunks(), User) of
        0 -> [];
        Word when is_integer(Word) -> [session(Word)];
        Rows -> [session(Row) || Row <- Rows]
    end.

%% 0, one word, or several words and pids. A fan-out fetches the chunks once.
-spec lookup(halley_directory_atomics:chunks(), user_number()) -> 0 | word() | [word() | pid()].
lookup(Chunks, User) ->
    case halley_directory_atomics:get(Chunks, User) of
        ?SEVERAL -> lookup_rows(Chunks, User);
        ?LEAVING -> 0;
        Word -> Word
    end.

lookup_rows(Chunks, User) ->
    case ets:lookup(?ROWS, User) of
        [] -> lookup(Chunks, User);
        Rows -> [Row || {_, Row} <- Rows]
    end.

%% The session that a look-up's word or pid stands for.
session(Word) when is_integer(Word) -> {link, Word bsr ?CONN_BITS, Word band ?CONN_MAX};
session(Pid) when is_pid(Pid) -> Pid.

%% A slot whose link has ended takes no session, until it is given to another one.
-spec mark(slot(), given | ended) -> ok.
mark(Slot, Mark) -> halley_directory_slots:mark(Slot, Mark).

%% The slots that still have to be purged.
-spec shut_slots() -> [slot()].
shut_slots() -> halley_directory_slots:to_purge().

%% Forgets every session of a link that ended, in the caller's process,
%% so nobody else waits for the scan. The slot may be given to a new link when this returns.
%% Purged is called for each user that had a session there, behind its end.
-spec purge(slot(), Purged :: fun((user_number()) -> ok)) -> ok.
purge(Slot, Purged) ->
    ok = mark(Slot, ended),
    Purge = fun(User, Word) -> purge_word(Slot, User, Word, Purged) end,
    halley_directory_atomics:foreach(Purge),
    true = ets:safe_fixtable(?ROWS, true),
    Low = word(Slot, 0),
    High = word(Slot, ?CONN_MAX),
    Spec = [{{'$1', '$2'}, [{'=<', Low, '$2'}, {'=<', '$2', High}], [{{'$1', '$2'}}]}],
    try purge_rows(ets:select(?ROWS, Spec, ?PURGE_ROWS), Purged)
    after ets:safe_fixtable(?ROWS, false)
    end,
    ok = halley_directory_leaving:forget(Slot),
    halley_directory_slots:mark(Slot, purged).

purge_word(Slot, User, Word, Purged) when Word bsr ?CONN_BITS =:= Slot ->
    _ = close_word(User, Word),
    Purged(User);
purge_word(_, _, _, _) ->
    ok.

purge_rows('$end_of_table', _) ->
    ok;
purge_rows({Rows, Continuation}, Purged) ->
    lists:foreach(fun({User, Word}) ->
        ok = call({close, User, Word}),
        Purged(User)
    end, Rows),
    purge_rows(ets:select(Continuation), Purged).

-spec online() -> #{users := non_neg_integer(), sessions := non_neg_integer()}.
online() ->
    Counts = persistent_term:get(?COUNTS),
    #{users => counters:get(Counts, ?USERS), sessions => counters:get(Counts, ?SESSIONS)}.

%% --- words -------------------------------------------------------------------------------------

word(Slot, Conn) when Slot >= 1, Slot =< ?SLOT_MAX, Conn >= 0, Conn =< ?CONN_MAX ->
    Slot bsl ?CONN_BITS bor Conn.

%% In the owner it never finds SEVERAL, or it would call itself: it is called for words that are
%% none, and nobody else makes them so.
close_word(User, Word) ->
    case exchange(User, Word, 0) of
        ok -> last(User);
        ?SEVERAL -> call({close, User, Word});
        _ -> ok
    end.

%% Looks at the mark after the word was put: see the header about purge.
take_back_if_shut(User, Word) ->
    case halley_directory_slots:is_shut(Word bsr ?CONN_BITS) of
        true -> close_word(User, Word);
        false -> ok
    end.

%% `ok', or what was found in place of what was expected.
exchange(User, Expected, New) ->
    case halley_directory_atomics:exchange(User, Expected, New) of
        no_chunk when Expected =:= 0 ->
            ok = call({grow, User}),
            exchange(User, Expected, New);
        no_chunk ->
            0;
        Result ->
            Result
    end.

%% The word says so already.
first(User) ->
    count(1, 1),
    ok = halley_directory_leaving:came(User),
    halley_hooked:came({user, User}).

last(User) ->
    count(-1, -1),
    ok = halley_directory_leaving:left(User),
    halley_hooked:left({user, User}).

count(Users, Sessions) ->
    Counts = persistent_term:get(?COUNTS),
    counters:add(Counts, ?USERS, Users),
    counters:add(Counts, ?SESSIONS, Sessions).

%% The owner is local and never waits for others, so a call has no time limit: it ends when the
%% owner answers or dies.
call(Request) ->
    gen_server:call(?MODULE, Request, infinity).

%% --- the owner ---------------------------------------------------------------------------------

-spec init(fun((user_number()) -> ok)) -> {ok, #state{}}.
init(Ended) ->
    {ok, recover(ets:first(?ROWS), #state{ended = Ended})}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({grow, User}, _, State) ->
    {reply, halley_directory_atomics:grow(User), State};
handle_call({open, User, Row, Max}, _, State) ->
    ok = halley_directory_atomics:grow(User),
    case owner_open(User, Row, Max) of
        NotOpen when NotOpen =:= full; NotOpen =:= leaving -> {reply, NotOpen, State};
        Opened -> {reply, Opened, monitor_process(User, Row, State)}
    end;
handle_call({close, User, Row}, _, State) ->
    owner_close(User, Row),
    {reply, ok, demonitor_process(User, Row, State)};
handle_call({logout, Pid}, _, State) ->
    {reply, ok, owner_logout(Pid, State)}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'DOWN', _, process, Pid, _}, State) ->
    {noreply, owner_logout(Pid, State)};
handle_info(_, State) ->
    {noreply, State}.

owner_open(User, Row, Max) ->
    case lookup(halley_directory_atomics:chunks(), User) of
        Rows when is_list(Rows) ->
            case {lists:member(Row, Rows), length(Rows) >= Max} of
                {true, _} ->
                    ok;
                {false, true} ->
                    full;
                {false, false} ->
                    true = ets:insert(?ROWS, {User, Row}),
                    count(0, 1),
                    close_if_shut(User, Row),
                    %% A bag gives its rows in the order of their insertion.
                    {several, lists:map(fun session/1, Rows)}
            end;
        Row ->
            ok;
        0 when is_integer(Row) ->
            case exchange(User, 0, Row) of
                ok ->
                    first(User),
                    take_back_if_shut(User, Row);
                ?LEAVING ->
                    leaving;
                _ ->
                    owner_open(User, Row, Max)
            end;
        Word when Word =/= 0, Max =< 1 ->
            full;
        Word when is_integer(Word) ->
            to_several(User, Word, Row, Max)
    end.

to_several(User, Word, Row, Max) ->
    %% One by one: a list would not keep its order.
    [true = ets:insert(?ROWS, {User, R}) || R <- [Word, Row], R =/= 0],
    case exchange(User, Word, ?SEVERAL) of
        ok ->
            case Word of 0 -> first(User); _ -> count(0, 1) end,
            close_if_shut(User, Row),
            case Word of 0 -> ok; _ -> {several, [session(Word)]} end;
        Found ->
            true = ets:delete(?ROWS, User),
            case Found of ?LEAVING -> leaving; _ -> owner_open(User, Row, Max) end
    end.

close_if_shut(User, Word) when is_integer(Word) ->
    case halley_directory_slots:is_shut(Word bsr ?CONN_BITS) of
        true -> owner_close(User, Word);
        false -> ok
    end;
close_if_shut(_, _) ->
    ok.

owner_close(User, Row) ->
    case lookup(halley_directory_atomics:chunks(), User) of
        Rows when is_list(Rows) ->
            case lists:delete(Row, Rows) of
                Rows ->
                    ok;
                [] ->
                    to_word(User, 0),
                    last(User);
                [Word] when is_integer(Word) ->
                    to_word(User, Word),
                    count(0, -1),
                    take_back_if_shut(User, Word);
                _ ->
                    true = ets:delete_object(?ROWS, {User, Row}),
                    count(0, -1)
            end;
        Row ->
            close_word(User, Row);
        _ ->
            ok
    end.

to_word(User, Word) ->
    ok = exchange(User, ?SEVERAL, Word),
    true = ets:delete(?ROWS, User).

owner_logout(Pid, #state{processes = Processes, ended = Ended} = State) ->
    case maps:take(Pid, Processes) of
        {{Monitor, Users}, Rest} ->
            true = demonitor(Monitor, [flush]),
            lists:foreach(fun(User) ->
                owner_close(User, Pid),
                ok = Ended(User)
            end, Users),
            State#state{processes = Rest};
        error ->
            State
    end.

monitor_process(User, Pid, #state{processes = Processes} = State) when is_pid(Pid) ->
    Known = case Processes of
        #{Pid := {Monitor, Users}} -> {Monitor, lists:usort([User | Users])};
        #{} -> {monitor(process, Pid), [User]}
    end,
    State#state{processes = Processes#{Pid => Known}};
monitor_process(_, _, State) ->
    State.

demonitor_process(User, Pid, #state{processes = Processes, ended = Ended} = State)
  when is_map_key(Pid, Processes) ->
    ok = Ended(User),
    case map_get(Pid, Processes) of
        {Monitor, [User]} ->
            true = demonitor(Monitor, [flush]),
            State#state{processes = maps:remove(Pid, Processes)};
        {Monitor, Users} ->
            State#state{processes = Processes#{Pid := {Monitor, lists:delete(User, Users)}}}
    end;
demonitor_process(_, _, State) ->
    State.

%% After a restart: rows without a word that points to them are left-overs of an interrupted step.
recover('$end_of_table', State) ->
    State;
recover(User, State) ->
    Next = ets:next(?ROWS, User),
    case lookup(halley_directory_atomics:chunks(), User) of
        Rows when is_list(Rows) ->
            Monitor = fun(Row, S) -> monitor_process(User, Row, S) end,
            recover(Next, lists:foldl(Monitor, State, Rows));
        _ ->
            true = ets:delete(?ROWS, User),
            recover(Next, State)
    end.
