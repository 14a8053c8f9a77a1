%% Reads the files of `halley_hooks_moves' at a start: the times at which users came and went go
%% back into `halley_hooked_moves', as if the brain had been there all the time. All sessions ended
%% when it was killed, as by a link that is cut: all users left at the start, and come again when a
%% worker sends their sessions.
%%
%% The moves between the last write and the kill are unknown. An event of that time is *unsure*:
%% `halley_hooks_owed' decides by the other facts about it, and rather names a user too many.
-module(halley_hooks_moves_read).

-export([recover/2]).
-export_type([facts/0, file/0]).

%% So long before a start without a good mark nobody knows; and no longer with one, as hooks may
%% have been off since.
-define(UNKNOWN_MS, 30000).
-define(LOAD, 5000).
%% Twice the time between two syncs.
-define(UNSYNCED_MS, 2000).

%% `SinceMs': when it began, or was whole. By the monotonic clock, as all here.
-type file() :: {Number :: pos_integer(), IsWhole :: boolean(), SinceMs :: integer()}.
%% `unsure': between what a brain that was killed had written and the begin of the next one.
-type facts() :: #{doubts := halley_hooks_owed:doubts(), unsure := halley_hooks_owed:doubts(),
                   doubt := {since | known, Ms :: integer()}, is_damaged := boolean(),
                   files := [file()]}.

-record(found, {there :: ets:table(),
                offset_ms :: integer(),      % the wall's clock less the monotonic one, now
                now :: halley_history_clock:stamp(), now_ms :: integer(),
                store :: non_neg_integer(),
                files = [] :: [file()],
                doubts = [] :: halley_hooks_owed:doubts(),
                unsure = [] :: halley_hooks_owed:doubts(),
                is_damaged = false :: boolean()}).

%% Where no file says who was there, those of `Told' were. What to write first, and the facts.
-spec recover(Told :: [halley_id:id()], BeganMs :: integer()) ->
    {[halley_hooks_moves_entry:entry()], facts()}.
recover(Told, BeganMs) ->
    %% Of a taker that was killed while it did this.
    ok = halley_hooked_moves:forget(BeganMs),
    There = ets:new(there, [set]),
    true = ets:insert(There, [{Id} || Id <- Told]),
    Now = halley_history_clock:stamp(),
    NowMs = erlang:monotonic_time(millisecond),
    Found0 = #found{there = There, now = Now, now_ms = NowMs, store = halley_history:store(),
                    offset_ms = halley_clock:wall_ms() - NowMs},
    Found1 = lists:foldl(fun file/2, Found0, halley_hooks_moves_files:numbers()),
    {Written, KnownMs} = mark(BeganMs, Found1),
    Drawn = halley_history:drawn(),
    ok = stand(There),
    Found = began(Written, BeganMs, Drawn, Found1),
    true = ets:delete(There),
    #found{files = Files, doubts = Doubts, unsure = Unsure, is_damaged = IsDamaged} = Found,
    {[{began, stamp(Written, Found), stamp(BeganMs, Found), Drawn}],
     #{doubts => Doubts, unsure => Unsure, doubt => {since, KnownMs}, is_damaged => IsDamaged,
       files => lists:reverse(Files)}}.

%% Where the table of moves was lost, and the brain is the same, sessions stand.
stand(There) ->
    halley_directory_leaving:there(fun(User) ->
        true = ets:delete(There, halley_hooks_moves_files:id_of(User)),
        ok
    end).

mark(BeganMs, #found{files = Files} = Found) ->
    case halley_hooks_moves_files:read_mark() of
        {Written, Known} when Files =/= [] ->
            {min(BeganMs, ms(Written, Found)) - unsynced_ms(Written, Found),
             min(BeganMs, ms(Known, Found))};
        _ -> unknown(BeganMs)
    end.

%% A power cut may keep the mark and lose moves from before it.
unsynced_ms({Boot, _, _}, #found{now = {Boot, _, _}}) -> 0;
unsynced_ms(_, _) -> ?UNSYNCED_MS.

unknown(BeganMs) -> {BeganMs - ?UNKNOWN_MS, BeganMs - ?UNKNOWN_MS}.

%% --- files -------------------------------------------------------------------------------------

file(Number, #found{store = Store} = Found) ->
    case file:read_file(halley_hooks_moves_files:path(Number)) of
        {ok, Bytes} ->
            case halley_hooks_moves_entry:decode(Bytes) of
                {ok, {header, Store, Stamp}, Size} ->
                    File = {Number, false, ms(Stamp, Found)},
                    {_, Next} = records(Bytes, Size, {[], Found#found{
                        files = [File | Found#found.files]}}),
                    Next;
                %% Of another store, or it has no header: it was never written, or is damaged.
                {ok, {header, _, _}, _} -> Found;
                _ -> Found#found{is_damaged = byte_size(Bytes) > 0 orelse Found#found.is_damaged}
            end;
        {error, _} -> Found#found{is_damaged = true}
    end.

%% `Parts' are those who were there, until a record says that they are all.
records(Bytes, Offset, {Parts, Found} = Acc) ->
    <<_:Offset/binary, Rest/binary>> = Bytes,
    case halley_hooks_moves_entry:decode(Rest) of
        {ok, {there, Ids}, Size} -> records(Bytes, Offset + Size, {[Ids | Parts], Found});
        {ok, {whole, Stamp}, Size} ->
            records(Bytes, Offset + Size, {[], whole(Parts, ms(Stamp, Found), Found)});
        {ok, Entry, Size} -> records(Bytes, Offset + Size, {Parts, found(Entry, Found)});
        _ when Rest =:= <<>> -> Acc;
        %% Torn at its end, or damaged in between.
        _ ->
            case halley_hooks_entry:resync(Bytes, Offset + 1) of
                {ok, Next} -> resumed(records(Bytes, Next, Acc), Acc);
                none -> Acc
            end
    end.

resumed({_, Found}, {_, Found} = Acc) -> Acc;
resumed({Parts, Found}, _) -> {Parts, Found#found{is_damaged = true}}.

whole(Parts, Ms, #found{there = There, files = [{Number, _, _} | Files]} = Found) ->
    true = ets:delete_all_objects(There),
    true = ets:insert(There, [{Id} || Part <- Parts, Id <- Part]),
    Found#found{files = [{Number, true, Ms} | Files]}.

found({moves, {_, _, StampWallMs} = Stamp, Moves}, #found{there = There} = Found) ->
    Ms = ms(Stamp, Found),
    ok = halley_hooked_moves:load([{Ms - (StampWallMs - WallMs), WallMs, Drawn, Id, What}
                                   || {WallMs, Drawn, Id, What} <- Moves]),
    lists:foreach(fun({_, _, Id, left}) -> ets:delete(There, Id);
                     ({_, _, Id, _}) -> ets:insert(There, {Id})
                  end, Moves),
    Found;
found({began, From, To, Drawn}, Found) -> began(ms(From, Found), ms(To, Found), Drawn, Found);
found({doubt, From, To}, #found{doubts = Doubts} = Found) ->
    Found#found{doubts = halley_hooks_owed:doubted({ms(From, Found), ms(To, Found)}, Doubts)};
found({lost, _, WallMs}, Found) ->
    ok = halley_hooked_moves:lose(WallMs),
    Found;
found(_, Found) -> Found.

%% All who were there left when a brain began.
began(WrittenMs, BeganMs, Drawn, #found{there = There, offset_ms = OffsetMs,
                                        unsure = Unsure} = Found) ->
    ok = left(ets:select(There, [{'_', [], ['$_']}], ?LOAD), {BeganMs, BeganMs + OffsetMs, Drawn}),
    true = ets:delete_all_objects(There),
    Span = {max(WrittenMs, BeganMs - ?UNKNOWN_MS), BeganMs},
    Found#found{unsure = halley_hooks_owed:doubted(Span, Unsure)}.

left('$end_of_table', _) -> ok;
left({Rows, Continuation}, {Ms, WallMs, Drawn} = Began) ->
    ok = halley_hooked_moves:load([{Ms, WallMs, Drawn, Id, left} || {Id} <- Rows]),
    left(ets:select(Continuation), Began).

%% --- times -------------------------------------------------------------------------------------

ms(Stamp, #found{now = Now, now_ms = NowMs}) -> NowMs - halley_history_clock:age_ms(Stamp, Now).

stamp(Ms, #found{now = {Boot, UptimeMs, WallMs}, now_ms = NowMs}) ->
    {Boot, max(0, UptimeMs - (NowMs - Ms)), WallMs - (NowMs - Ms)}.
