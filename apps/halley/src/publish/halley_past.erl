%% What was published about a subject before: pages of it, the newest event first.
%%
%% A page begins where a cursor says, or now, and goes back along the subject's chain in the index
%% (`halley_history:back/5'), so it costs what it gives, however long the history is or the
%% subject's part of it. It ends after so many events or bytes, or after ?LOOKS_MAX entries of the
%% index: a bucket of it may hold a stranger with a million events. Then `next' says where to go on.
%%
%% Where it begins is a vector (`halley_cursor'): the page has what the vector has, and a session
%% that comes with it is sent what it lacks. So a page and a stream from one cursor have each event
%% once. A page that begins now gives such a cursor. It waits until all that was published up to
%% there is in the index.
%%
%% Invariants: what lies between the first event of a page and its end, and isn't in it although it
%% was published, is in one of its gaps. The next page begins exactly where this one ends.
%%
%% It reads in the process that calls; whose turn it is, and who may read what, is for the caller.
-module(halley_past).

-export([page/4]).
-export_type([page/0, gap/0, reason/0]).

%% Both newest first. An event's JSON text is that of its publishing.
-type page() :: #{events := [{halley_cursor:token(), Json :: binary()}], gaps := [gap()],
                  next := halley_cursor:token() | none, cursor := halley_cursor:token() | none}.
%% Milliseconds since 1970, 0 where nobody knows.
-type gap() :: #{from := non_neg_integer(), to := non_neg_integer(), reason := too_old | damaged}.
-type bound() :: none | halley_cursor:token().
%% `behind': what was published up to there isn't in the index yet.
-type reason() :: {bad_cursor, before | 'after', malformed | other_store} | behind.

-define(AWAIT_MS, 2000).
%% Entries of the index: in one go, and for one page.
-define(LOOKS, 256).
-define(LOOKS_MAX, 65536).
%% Of an event's member `cursor'.
-define(CURSOR_BYTES, 64).

-record(reading, {subject :: halley_id:id(), shard :: halley_shards:index(),
                  up_to :: halley_cursor:seq(), 'after' :: halley_cursor:seq(),
                  events = [] :: [{halley_cursor:token(), binary()}],     % oldest first
                  %% What couldn't be read; the first has no `from' until an older event is read.
                  unread = [] :: [gap()],
                  is_open = false :: boolean(),
                  at :: non_neg_integer(),             % of what was read last; milliseconds
                  events_left :: integer(), bytes_left :: integer(), looks_left = ?LOOKS_MAX,
                  store :: halley_cursor:store(), reader :: halley_history_reader:reader()}).

%% What `Before' has and `After' lacks, at most so many events.
-spec page(halley_id:id(), Before :: bound(), After :: bound(), Limit :: pos_integer()) ->
    {ok, page()} | {error, reason()}.
page(Subject, Before, After, Limit) ->
    AtMs = erlang:system_time(millisecond),
    Heads = halley_history:heads(),
    case {bound(before, Before, Heads), bound('after', After, Heads)} of
        {{ok, none}, {ok, Low}} ->
            Cursor = halley_cursor:encode(halley_history:store(), AtMs div 1000, Heads),
            written(Subject, Heads, Low, Limit, Cursor);
        {{ok, #{vector := High}}, {ok, Low}} ->
            written(Subject, High, Low, Limit, none);
        {{error, _} = Error, _} ->
            Error;
        {_, {error, _} = Error} ->
            Error
    end.

%% Nobody was given what was never drawn.
bound(_, none, _) ->
    {ok, none};
bound(Name, Token, Heads) ->
    Store = halley_history:store(),
    case halley_cursor:decode(Token) of
        {ok, #{store := Store, vector := Vector} = Bound} ->
            case halley_vector:largest(Vector) > halley_vector:largest(Heads) of
                true -> {error, {bad_cursor, Name, malformed}};
                false -> {ok, Bound}
            end;
        {ok, _} -> {error, {bad_cursor, Name, other_store}};
        error -> {error, {bad_cursor, Name, malformed}}
    end.

written(Subject, High, Low, Limit, Cursor) ->
    Shard = halley_shards:of_subject(Subject),
    UpTo = element(Shard, High),
    Wanted = erlang:make_tuple(halley_shards:count(), 0, [{Shard, UpTo}]),
    case halley_history:await(Wanted, ?AWAIT_MS) of
        ok -> {ok, (read(Subject, Shard, UpTo, Low, Limit))#{cursor => Cursor}};
        timeout -> {error, behind}
    end.

read(Subject, Shard, UpTo, Low, Limit) ->
    {After, SinceMs} = low(Shard, Low),
    Reading = #reading{subject = Subject, shard = Shard, up_to = UpTo, 'after' = After,
                       at = erlang:system_time(millisecond), events_left = Limit,
                       bytes_left = halley_limits:get(past_bytes_max),
                       store = halley_history:store(), reader = halley_history_reader:new()},
    {Next, Read} = back(UpTo, Reading),
    ok = halley_history_reader:close(Read#reading.reader),
    ok = halley_metrics:incr(past_pages),
    #reading{events = Events, unread = Unread, store = Store} = Read,
    Events =:= [] orelse halley_metrics:incr(past_events, length(Events)),
    #{events => lists:reverse(Events),
      gaps => lists:reverse(Unread) ++ damaged(UpTo, Next, After) ++ too_old(Next, After, SinceMs),
      next => case Next of
                  none -> none;
                  _ -> halley_cursor:encode(Store, 0, list_to_tuple(all(Next)))
              end}.

%% All shards there: a cursor has no time for a seq that wasn't read, and none is the oldest.
all(Seq) -> lists:duplicate(halley_shards:count(), Seq).

low(_, none) -> {0, 0};
low(Shard, #{at := At, vector := Vector}) ->
    {element(Shard, Vector), halley_cursor:lacks_since_ms(At)}.

%% --- events --------------------------------------------------------------------------------------

%% `none': there is nothing older that is wanted and retained. The way to what is wanted may begin
%% above it.
back(From, #reading{subject = Subject, shard = Shard, 'after' = After} = Reading) ->
    {Seqs, Next, Left} = halley_history:back(Shard, Subject, From, After, ?LOOKS),
    Looks = ?LOOKS - Left,
    take(Seqs, Next, Reading#reading{looks_left = Reading#reading.looks_left - Looks}).

take([Seq | Seqs], Next, #reading{up_to = UpTo} = Reading) when Seq > UpTo ->
    take(Seqs, Next, Reading);
take([Seq | _], _, #reading{events_left = Events, bytes_left = Bytes} = Reading)
  when Events =< 0; Bytes =< 0 ->
    {Seq, Reading};
take([Seq | Seqs], Next, #reading{subject = Subject, reader = Reader} = Reading) ->
    case halley_history_reader:event(Seq, Subject, Reader) of
        {ok, AtMs, Body, Later} ->
            take(Seqs, Next, event(Seq, AtMs, Body, Reading#reading{reader = Later}));
        {other, Later} ->
            take(Seqs, Next, Reading#reading{reader = Later});
        {damaged, Later} ->
            take(Seqs, Next, unread(Reading#reading{reader = Later}));
        {expired, Later} ->
            {none, Reading#reading{reader = Later}}
    end;
take([], done, Reading) ->
    {none, Reading};
take([], Next, #reading{up_to = UpTo, looks_left = Looks, events_left = Events,
                        bytes_left = Bytes} = Reading)
  when Looks =< 0; Events =< 0; Bytes =< 0 ->
    {min(Next, UpTo), Reading};
take([], Next, Reading) ->
    back(Next, Reading).

%% The text is copied: it is a part of a block of the log.
event(Seq, AtMs, Body, #reading{events = Events, events_left = EventsLeft, bytes_left = BytesLeft,
                                store = Store} = Reading) ->
    {_, _, _, _, _, _, Json} = halley_history_record:item(Body),
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

closed(AtMs, #reading{is_open = true, unread = [Gap | Gaps]} = Reading) ->
    Reading#reading{unread = [Gap#{from => AtMs} | Gaps], is_open = false, at = AtMs};
closed(AtMs, Reading) ->
    Reading#reading{at = AtMs}.

%% Ranges of the log that can't be read and that the page goes over.
damaged(UpTo, Next, After) ->
    Low = case Next of none -> After; _ -> Next end,
    [#{from => FromMs, to => ToMs, reason => damaged}
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
