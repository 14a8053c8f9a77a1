%% Past events about a subject: pages of them, the newest event first.
%%
%% A page begins where a cursor says, or now, and goes back along the subject's chains in the index
%% (`halley_past_chains'), so it costs what it gives, however long the history is or the
%% subject's part of it. It ends after so many events or bytes, or after ?LOOKS_MAX entries of the
%% index: a bucket of it may hold a stranger with a million events. Then `next' says where to go on.
%%
%% Where it begins is a vector (`halley_cursor'): the page has what the vector has, and a session
%% that comes with it is sent what it lacks. So a page and a stream from one cursor have each event
%% once. A page that begins now gives such a cursor. It waits until all that was published up to
%% there is in the index.
%%
%% A subject may show no more than its newest N (`halley_history_shown'). Where they end each page
%% asks the index anew, so it is as of now. It reads no record for that but the one where it ends,
%% whatever N is. `halley_replay_newest' counts in the same way.
%%
%% Invariants: what lies between the first event of a page and its end, and isn't in it although it
%% was published, is in one of its gaps. The next page begins exactly where this one ends.
%%
%% It reads in the process that calls; whose turn it is, and who may read what, is for the caller.
-module(halley_past).

-export([page/4, page/5]).
-export_type([page/0, gap/0, reason/0]).

%% Both newest first. An event's JSON text is that of its publishing.
%% `kept': the subject's kept value, on a page that begins now.
-type page() :: #{events := [{halley_cursor:token(), Json :: binary()}], gaps := [gap()],
                  kept := Json :: binary() | none,
                  next := halley_cursor:token() | none, cursor := halley_cursor:token() | none}.
%% Milliseconds since 1970, 0 where nobody knows.
-type gap() :: #{from := non_neg_integer(), to := non_neg_integer(), reason := too_old | damaged}.
-type bound() :: none | halley_cursor:token().
%% `behind': what was published up to there isn't in the index yet.
-type reason() :: {bad_cursor, before | 'after', malformed | other_store} | behind.

-define(AWAIT_MS, 2000).
%% Entries of the index for one page.
-define(LOOKS_MAX, 65536).
%% Of an event's member `cursor'.
-define(CURSOR_BYTES, 64).

-record(reading, {chains :: halley_past_chains:chains(),
                  events = [] :: [{halley_cursor:token(), binary()}],     % oldest first
                  %% What couldn't be read; the first has no `from' until an older event is read.
                  unread = [] :: [gap()],
                  is_open = false :: boolean(),
                  at :: non_neg_integer(),             % of what was read last; milliseconds
                  %% From here down it is beyond the subject's count.
                  beyond :: halley_history:seq(),
                  events_left :: integer(), bytes_left :: integer(), looks_left = ?LOOKS_MAX,
                  store :: halley_cursor:store(), reader :: halley_history_reader:reader()}).

%% What `Before' has and `After' lacks, at most so many events.
-spec page(halley_id:id(), Before :: bound(), After :: bound(), Limit :: pos_integer()) ->
    {ok, page()} | {error, reason()}.
page(Subject, Before, After, Limit) ->
    page(Subject, Before, After, Limit, halley_limits:get(past_bytes_max)).

%% The same, with at most one event beyond so many bytes.
-spec page(halley_id:id(), Before :: bound(), After :: bound(), Limit :: pos_integer(),
           BytesMax :: pos_integer()) -> {ok, page()} | {error, reason()}.
page(Subject, Before, After, Limit, BytesMax) ->
    Size = {Limit, BytesMax},
    AtMs = halley_clock:wall_ms(),
    Heads = halley_history:heads(),
    case {bound(before, Before), bound('after', After)} of
        {{ok, none}, {ok, Low}} ->
            Cursor = halley_cursor:encode(halley_history:store(), AtMs div 1000, Heads),
            with_kept(Subject, written(Subject, Heads, Low, Size, Heads, Cursor));
        {{ok, #{vector := High}}, {ok, Low}} ->
            written(Subject, High, Low, Size, Heads, none);
        {{error, _} = Error, _} ->
            Error;
        {_, {error, _} = Error} ->
            Error
    end.

with_kept(Subject, {ok, Page}) ->
    case halley_history:kept(Subject) of
        {ok, #{json := Json}} -> {ok, Page#{kept := Json}};
        none -> {ok, Page}
    end;
with_kept(_, Error) ->
    Error.

%% Nobody was given what was never drawn (`halley_replay').
bound(_, none) ->
    {ok, none};
bound(Name, Token) ->
    Store = halley_history:store(),
    case halley_history:cursor(Token) of
        {ok, #{store := Store, vector := Vector} = Bound} ->
            case halley_vector:largest(Vector) > halley_history:drawn() of
                true -> {error, {bad_cursor, Name, malformed}};
                false -> {ok, Bound}
            end;
        {ok, _} -> {error, {bad_cursor, Name, other_store}};
        error -> {error, {bad_cursor, Name, malformed}}
    end.

written(Subject, High, Low, Size, Heads, Cursor) ->
    %% What a vector has above the heads was never drawn.
    Wanted = halley_vector:lowest(High, Heads),
    case halley_history:await(Wanted, ?AWAIT_MS) of
        ok -> {ok, (read(Subject, High, Low, Size, Heads))#{cursor => Cursor}};
        timeout -> {error, behind}
    end.

read(Subject, High, Low, {Limit, BytesMax}, Heads) ->
    {Lacked, SinceMs} = low(Low),
    Chains = halley_past_chains:new(Subject, High, Lacked),
    Reading = #reading{chains = Chains, beyond = beyond(Subject, Heads),
                       at = halley_clock:wall_ms(), events_left = Limit,
                       bytes_left = BytesMax,
                       store = halley_history:store(), reader = halley_history_reader:new()},
    {Next, Read} = back(Reading),
    ok = halley_history_reader:close(Read#reading.reader),
    ok = halley_metrics:incr(past_pages),
    #reading{events = Events, unread = Unread, store = Store} = Read,
    Events =:= [] orelse halley_metrics:incr(past_events, length(Events)),
    UpTo = halley_past_chains:up_to(Chains),
    After = halley_past_chains:'after'(Chains),
    #{events => lists:reverse(Events), kept => none,
      gaps => lists:reverse(Unread) ++ damaged(UpTo, Next, After) ++ too_old(Next, After, SinceMs),
      next => case Next of
                  none -> none;
                  _ -> halley_cursor:encode(Store, 0, list_to_tuple(all(Next)))
              end}.

%% All shards there: a cursor has no time for a seq that wasn't read, and none is the oldest.
all(Seq) -> lists:duplicate(halley_shards:count(), Seq).

low(none) -> {list_to_tuple(all(0)), 0};
low(#{at := At, vector := Vector}) -> {Vector, halley_cursor:lacks_since_ms(At)}.

%% --- the count -----------------------------------------------------------------------------------

%% A page from a cursor on doesn't wait for all that was drawn: what isn't in the index yet is
%% counted by the next one.
beyond(Subject, Heads) ->
    case halley_history_shown:count(Subject) of
        all ->
            0;
        Count ->
            Chains = halley_past_chains:retained(
                Subject, halley_vector:lowest(Heads, halley_history:written())),
            halley_past_chains:behind(Chains, Count, ?LOOKS_MAX)
    end.

%% What is beyond the count, where the page ends: it says up to when there is more.
more({Seq, About}, #reading{reader = Reader, at = LastMs} = Reading) ->
    case halley_history_reader:event(Seq, About, Reader) of
        {ok, AtMs, _, Later} -> {none, old(AtMs, Reading#reading{reader = Later})};
        {{old, AtMs}, Later} -> {none, old(AtMs, Reading#reading{reader = Later})};
        {damaged, Later} -> {none, old(LastMs, Reading#reading{reader = Later})};
        {expired, Later} -> {none, Reading#reading{reader = Later}};
        {other, Later} -> {Seq, Reading#reading{reader = Later}}
    end.

%% --- events --------------------------------------------------------------------------------------

%% `none': there is nothing older that is wanted and retained.
back(#reading{chains = Chains, events_left = Events, bytes_left = Bytes} = Reading)
  when Events =< 0; Bytes =< 0 ->
    {What, _, _} = halley_past_chains:next(Chains, 0),
    ended(What, Reading);
back(#reading{chains = Chains, looks_left = Looks} = Reading) ->
    {What, Next, Left} = halley_past_chains:next(Chains, Looks),
    take(What, Reading#reading{chains = Next, looks_left = Left}).

take({Seq, _} = What, #reading{beyond = Beyond} = Reading) when is_integer(Seq), Seq =< Beyond ->
    case more(What, Reading) of
        {none, _} = End -> End;
        {Seq, Next} -> back(Next)
    end;
take({Seq, About}, #reading{reader = Reader} = Reading) when is_integer(Seq) ->
    case halley_history_reader:event(Seq, About, Reader) of
        {ok, AtMs, Body, Later} -> back(event(AtMs, Body, Reading#reading{reader = Later}));
        {other, Later} -> back(Reading#reading{reader = Later});
        %% All before it is too old as well.
        {{old, OldMs}, Later} -> {none, old(OldMs, Reading#reading{reader = Later})};
        {damaged, Later} -> back(unread(Reading#reading{reader = Later}));
        {expired, Later} -> {none, Reading#reading{reader = Later}}
    end;
take(What, Reading) ->
    ended(What, Reading).

ended(done, Reading) -> {none, Reading};
ended({tired, Seq}, Reading) -> {Seq, Reading};
ended({Seq, _} = What, #reading{beyond = Beyond} = Reading) when Seq =< Beyond ->
    more(What, Reading);
ended({Seq, {in, _, _}}, #reading{reader = Reader} = Reading) ->
    {Last, Later} = last(Seq, halley_history_reader:read(Seq, Reader)),
    {Last, Reading#reading{reader = Later}};
ended({Seq, _}, Reading) -> {Seq, Reading}.

%% All seqs of an event about several subjects lie on one side of a cursor.
last(_, {ok, #{seq := Last}, Reader}) -> {Last, Reader};
last(Seq, {ok, _, Reader}) -> {Seq, Reader};
last(Seq, {_, Reader}) -> {Seq, Reader}.

%% The text is copied: it is a part of a block of the log.
event(AtMs, Body, #reading{events = Events, events_left = EventsLeft, bytes_left = BytesLeft,
                           store = Store} = Reading) ->
    {_, Seq, _, _, _, _, Json} = halley_history_record:item(Body),
    Cursor = halley_cursor:encode(Store, AtMs div 1000, list_to_tuple(all(Seq))),
    closed(AtMs, Reading#reading{events = [{Cursor, binary:copy(Json)} | Events],
                                 events_left = EventsLeft - 1,
                                 bytes_left = BytesLeft - byte_size(Json) - ?CURSOR_BYTES}).

%% --- gaps ----------------------------------------------------------------------------------------

%% Between two events that can be read any number may be damaged: they are one gap, and as one event
%% of the page, so that a damaged segment is no endless one.
unread(#reading{is_open = true, events_left = Left} = Reading) ->
    Reading#reading{events_left = Left - 1};
unread(#reading{unread = Unread, at = AtMs, events_left = Left} = Reading) ->
    Reading#reading{unread = [#{from => 0, to => AtMs, reason => damaged} | Unread],
                    is_open = true, events_left = Left - 1}.

old(AtMs, #reading{unread = Unread} = Reading) ->
    Reading#reading{unread = [#{from => 0, to => AtMs, reason => too_old} | Unread]}.

closed(AtMs, #reading{is_open = true, unread = [#{to := ToMs} = Gap | Gaps]} = Reading) ->
    %% The clock may have been set back between the events around it.
    Reading#reading{unread = [Gap#{from => min(AtMs, ToMs)} | Gaps], is_open = false, at = AtMs};
closed(AtMs, Reading) ->
    Reading#reading{at = AtMs}.

%% Ranges of the log that can't be read and that the page goes over.
damaged(UpTo, Next, After) ->
    Low = case Next of none -> After; _ -> Next end,
    [#{from => min(FromMs, ToMs), to => ToMs, reason => damaged}
     || {From, To, FromMs, ToMs} <- lists:reverse(lists:sort(halley_history:damaged())),
        From =< UpTo, To > Low].

%% What retention took, if the page would have gone there.
too_old(none, After, SinceMs) ->
    case halley_history:floor() > After of
        true ->
            #{floor_at := FloorMs} = halley_history:info(),
            [#{from => min(SinceMs, FloorMs), to => FloorMs, reason => too_old}];
        false ->
            []
    end;
too_old(_, _, _) ->
    [].
