%% The times at which users came and went, on disk: whether an event is owed to a user depends on
%% them (`halley_hooks_owed'), so a kill of the brain must not lose them.
%%
%% Files `<data.dir>/hooks/<16 hex digits>.moves', of one writer: the taker writes the new moves
%% once a round (`halley_hooked_moves:unwritten/1'), and syncs once a second. So a kill loses the
%% moves since the last round, and a power cut those of the last second. `moves', which is
%% overwritten once a round, has two times: up to when everything is written, and when the brain
%% last knew all sessions.
%%
%% A *whole* file begins with all users who were there then: a user without a later move has been
%% there, or away, ever since. A start never writes to an older file. It begins another one, and a
%% whole one as soon as the brain knows all sessions; the next one comes after an hour, or after so
%% many bytes. Files before a whole one are deleted once all events published before it are judged.
%%
%% A table, which outlives the taker, has the moves that a start found (`halley_hooks_moves_read'),
%% and the doubts since.
-module(halley_hooks_moves).

-export([new/0, start/2, write/2, begin_whole/2, doubted/2, judged/2, cleared/1, keep/2]).
-export_type([moves/0]).

-include_lib("kernel/include/logger.hrl").

-define(FILE_BYTES, 16777216).
%% So long are ids there of users that left.
-define(FILE_MS, 3600000).
-define(IDS, 500).
-define(MOVES, 1000).
-define(PARTS, 20).
-define(SYNC_MS, 1000).
-define(FIRST_MAX, 1000).
%% A move has its time a moment before it can be seen.
-define(SEEN_MS, 20).

-type patterns() :: halley_hooks_config:patterns().
-record(moves, {users :: patterns(),
                number :: non_neg_integer(),
                file = none :: none | file:io_device(),
                mark = none :: none | file:io_device(),
                bytes = 0 :: non_neg_integer(),
                head_bytes = 0 :: non_neg_integer(),
                is_whole = false :: boolean(),
                %% The oldest first, with the one that is written.
                files :: [halley_hooks_moves_read:file()],
                %% What is written before any move.
                first = [] :: [halley_hooks_moves_entry:entry()],
                is_lost_said = false :: boolean(),
                %% All before the next whole one means nothing any more.
                drops = false :: boolean(),
                %% When it was synced last, and how many bytes.
                synced_ms = now_ms() :: integer(),
                synced = 0 :: non_neg_integer(),
                %% Not again before that.
                open_ms = now_ms() :: integer()}).
-opaque moves() :: off | #moves{}.

%% The caller owns the table.
-spec new() -> ok.
new() ->
    _ = ets:whereis(?MODULE) =:= undefined andalso ets:new(?MODULE, [public, named_table]),
    true = ets:delete_all_objects(?MODULE),
    true = ets:insert(?MODULE, {began, now_ms()}),
    ok.

%% Loads what is on disk, unless that was done since `new/0'. `Told' were there according to the
%% queue, for where these files say nothing.
-spec start(halley_hooks_config:settings(), Told :: [halley_id:id()]) ->
    {moves(), halley_hooks_moves_read:facts()}.
start(#{events := Events, users := Users}, Told) ->
    case lists:member(undelivered, Events) of
        false -> {off, #{doubts => [], unsure => [], doubt => {since, now_ms()},
                         is_damaged => false, files => []}};
        true -> started(Users, Told)
    end.

started(Users, Told) ->
    {First, Facts} = case ets:lookup(?MODULE, facts) of
        [{_, #{doubt := Doubt} = Known}] ->
            {[], Known#{is_damaged := false,
                        doubt := case Doubt of
                                     {since, _} -> Doubt;
                                     {known, _} -> {since, now_ms()}
                                 end}};
        [] -> halley_hooks_moves_read:recover(Told, ets:lookup_element(?MODULE, began, 2))
    end,
    true = ets:insert(?MODULE, {facts, Facts}),
    Numbers = halley_hooks_moves_files:numbers(),
    {#moves{users = Users, files = files(Numbers, Facts), first = First,
            number = lists:max([0 | Numbers])}, Facts}.

%% Those of a taker before this one are not among the facts.
files(Numbers, #{files := Files}) ->
    [case lists:keyfind(Number, 1, Files) of
         false -> {Number, false, now_ms()};
         File -> File
     end || Number <- Numbers].

%% For a taker that begins again: what was in doubt, and whether it is.
-spec keep(halley_hooks_owed:doubts(), {since | known, Ms :: integer()}) -> ok.
keep(Doubts, Doubt) ->
    _ = [ets:insert(?MODULE, {facts, Facts#{doubts := Doubts, doubt := Doubt}})
         || {_, Facts} <- ets:lookup(?MODULE, facts)],
    ok.

%% --- a round -----------------------------------------------------------------------------------

%% All that is new. `KnownMs': when it was known last who is there.
-spec write(KnownMs :: integer(), moves()) -> moves().
write(_, off) -> off;
write(KnownMs, Moves0) ->
    case opened(lost(Moves0)) of
        #moves{file = none} = Moves ->
            Moves;
        Moves ->
            Stamp = before(?SEEN_MS, halley_history_clock:stamp()),
            case parts(?PARTS, Moves) of
                {all, Next} -> marked(Stamp, KnownMs, synced(Next));
                {more, Next} -> synced(Next);
                {failed, Next} -> Next
            end
    end.

lost(#moves{is_lost_said = false, first = First} = Moves) ->
    case halley_hooked_moves:lost() of
        none -> Moves;
        WallMs -> Moves#moves{is_lost_said = true,
                              first = First ++ [{lost, halley_history_clock:stamp(), WallMs}]}
    end;
lost(Moves) -> Moves.

parts(0, Moves) ->
    {more, Moves};
parts(Left, #moves{first = First, users = Users} = Moves) ->
    Rows = halley_hooked_moves:unwritten(?MOVES),
    Its = [{WallMs, Drawn, Id, What} || {_, _, WallMs, Drawn, Id, What} <- Rows,
                                        halley_hooks_config:matches(Id, Users)],
    case written(First ++ [{moves, halley_history_clock:stamp(), Its} || Its =/= []], Moves) of
        {ok, Next} ->
            ok = halley_hooked_moves:written(Rows),
            case length(Rows) < ?MOVES of
                true -> {all, Next#moves{first = []}};
                false -> parts(Left - 1, Next#moves{first = []})
            end;
        {error, Reason} ->
            {failed, failed(Reason, Moves)}
    end.

written([], Moves) ->
    {ok, Moves};
written(Entries, #moves{file = File, bytes = Bytes} = Moves) ->
    Text = [halley_hooks_moves_entry:encode(Entry) || Entry <- Entries],
    case file:write(File, Text) of
        ok -> {ok, Moves#moves{bytes = Bytes + iolist_size(Text)}};
        Error -> Error
    end.

%% A second later another file is tried: this one may end with a part of a record.
failed(Reason, #moves{file = File, mark = Mark} = Moves) ->
    _ = halley_hooks_said:seldom(moves, fun() ->
        ?LOG_ERROR("hooks: when users came and went can't be written in ~ts: ~ts; a kill of the "
                   "brain would take it", [halley_hooks_queue:folder(), file:format_error(Reason)])
    end),
    _ = [file:close(Each) || Each <- [File, Mark], Each =/= none],
    Moves#moves{file = none, mark = none, is_whole = false, open_ms = now_ms() + ?SYNC_MS}.

%% A folder that was moved or removed takes what is written with it.
synced(#moves{file = File, number = Number, bytes = Bytes, synced = Synced,
              synced_ms = LastMs} = Moves) ->
    NowMs = now_ms(),
    Path = halley_hooks_moves_files:path(Number),
    Sync = [fun() -> file:datasync(File) end || Bytes =/= Synced],
    case NowMs - LastMs >= ?SYNC_MS andalso
             halley_steps:run(Sync ++ [fun() -> halley_hooks_queue:is_there(Path) end]) of
        false -> Moves;
        ok -> Moves#moves{synced_ms = NowMs, synced = Bytes};
        {error, Reason} -> failed(Reason, Moves)
    end.

marked(_, _, #moves{mark = none} = Moves) ->
    Moves;
marked(Stamp, KnownMs, #moves{mark = Mark} = Moves) ->
    {_, UptimeMs, _} = Now = halley_history_clock:stamp(),
    Known = before(min(UptimeMs, max(0, now_ms() - KnownMs)), Now),
    case file:pwrite(Mark, 0, halley_hooks_moves_files:marked(Stamp, Known)) of
        ok -> Moves;
        {error, Reason} -> failed(Reason, Moves)
    end.

before(Ms, {Boot, UptimeMs, WallMs}) -> {Boot, max(0, UptimeMs - Ms), WallMs - Ms}.

%% --- files -------------------------------------------------------------------------------------

opened(#moves{file = none, open_ms = OpenMs} = Moves) ->
    case now_ms() >= OpenMs of
        true -> next([], false, Moves);
        false -> Moves
    end;
opened(Moves) -> Moves.

%% A file of its own for what comes, with these behind its header.
next(Head, IsWhole, #moves{number = Last, file = Old, mark = OldMark, files = Files} = Moves) ->
    Number = Last + 1,
    Header = {header, halley_history:store(), halley_history_clock:stamp()},
    Text = [halley_hooks_moves_entry:encode(Entry) || Entry <- [Header | Head]],
    Made = halley_steps:run([
        fun() -> halley_data_dir:make_directory(halley_hooks_queue:folder()) end,
        fun() -> halley_hooks_queue:write_new(halley_hooks_moves_files:path(Number), Text) end,
        fun() -> halley_data_dir:sync_directory(halley_hooks_queue:folder()) end]),
    case Made =:= ok andalso opened_both(Number) of
        {ok, File, Mark} ->
            _ = [file:close(Each) || Each <- [Old, OldMark], Each =/= none],
            Bytes = iolist_size(Text),
            Moves#moves{number = Number, file = File, mark = Mark, bytes = Bytes,
                        head_bytes = Bytes, synced = Bytes, is_whole = IsWhole,
                        files = Files ++ [{Number, IsWhole, now_ms()}]};
        Failed ->
            _ = file:delete(halley_hooks_moves_files:path(Number)),
            {error, Reason} = case Failed of false -> Made; Error -> Error end,
            failed(Reason, Moves)
    end.

opened_both(Number) ->
    case file:open(halley_hooks_moves_files:path(Number), [append, raw, binary]) of
        {ok, File} ->
            case file:open(halley_hooks_moves_files:mark(), [read, write, raw, binary]) of
                {ok, Mark} ->
                    _ = halley_data_dir:make_private(halley_hooks_moves_files:mark()),
                    {ok, File, Mark};
                Error ->
                    _ = file:close(File),
                    Error
            end;
        Error -> Error
    end.

%% It is known who is there. Whoever comes or goes while that is read has a move behind it.
-spec begin_whole(KnownMs :: integer(), moves()) -> moves().
begin_whole(_, #moves{file = none} = Moves) ->
    Moves;
begin_whole(_, off) ->
    off;
begin_whole(KnownMs, Moves) ->
    case is_due(Moves) andalso write(KnownMs, Moves) of
        false -> Moves;
        #moves{file = none} = Failed -> Failed;
        #moves{users = Users} = Written ->
            There = [{there, Part} || Part <- in_parts(there(Users))],
            dropped(next(There ++ [{whole, halley_history_clock:stamp()}], true, Written))
    end.

is_due(#moves{is_whole = false}) -> true;
is_due(#moves{bytes = Bytes, head_bytes = Head, files = Files}) ->
    {_, _, SinceMs} = lists:last(Files),
    Bytes > ?FILE_BYTES + 2 * Head
        orelse (Bytes > Head andalso now_ms() - SinceMs > ?FILE_MS).

there(Users) ->
    All = ets:new(there, [set]),
    ok = halley_directory_leaving:there(fun(User) ->
        Id = halley_hooks_moves_files:id_of(User),
        _ = Id =/= undefined andalso halley_hooks_config:matches(Id, Users)
            andalso ets:insert(All, {Id}),
        ok
    end),
    Ids = [Id || {Id} <- ets:tab2list(All)],
    true = ets:delete(All),
    Ids.

in_parts([]) -> [];
in_parts(Ids) ->
    {Part, Rest} = lists:split(min(?IDS, length(Ids)), Ids),
    [Part | in_parts(Rest)].

dropped(#moves{drops = true, is_whole = true, number = Number, files = Files} = Moves) ->
    Moves#moves{drops = false, files = without_before(Number, Files)};
dropped(Moves) -> Moves.

without_before(Number, Files) ->
    {Gone, Left} = lists:partition(fun({Each, _, _}) -> Each < Number end, Files),
    lists:foreach(fun({Each, _, _}) -> file:delete(halley_hooks_moves_files:path(Each)) end,
                  Gone),
    Left.

%% In between it wasn't known who is there.
-spec doubted({FromMs :: integer(), ToMs :: integer()}, moves()) -> moves().
doubted(_, off) -> off;
doubted({FromMs, ToMs}, #moves{first = First} = Moves) ->
    Now = halley_history_clock:stamp(),
    NowMs = now_ms(),
    Doubt = {doubt, before(max(0, NowMs - FromMs), Now), before(max(0, NowMs - ToMs), Now)},
    Moves#moves{first = with_doubt(Doubt, First)}.

%% While the disk refuses, the last of ?FIRST_MAX grows.
with_doubt({doubt, _, To} = Doubt, First) ->
    case length(First) < ?FIRST_MAX orelse lists:last(First) of
        {doubt, From, _} -> lists:droplast(First) ++ [{doubt, From, To}];
        _ -> First ++ [Doubt]
    end.

%% Nobody asks any more what was before that.
-spec judged(BeforeMs :: integer(), moves()) -> moves().
judged(_, off) -> off;
judged(BeforeMs, #moves{files = Files} = Moves) ->
    case [Number || {Number, true, SinceMs} <- Files, SinceMs =< BeforeMs] of
        [] -> Moves;
        Whole -> Moves#moves{files = without_before(lists:last(Whole), Files)}
    end.

%% What was lost has been told: it begins anew.
-spec cleared(moves()) -> moves().
cleared(off) -> off;
cleared(Moves) -> Moves#moves{is_whole = false, drops = true, is_lost_said = false, first = []}.

now_ms() -> erlang:monotonic_time(millisecond).
