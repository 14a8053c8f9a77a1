%% The start of the history: reads all segments in order, fills the index, and returns the ranges
%% that are missing.
%%
%% Damage is a range of seqs. It begins after the highest seq met before, and ends at the next proof
%% of the highest seq written by then: a `place' record, the base of the next segment, or, at the
%% end, the note of the last sync or the reservation. Only its upper end decides which cursors get a
%% gap, and that end is never too low.
%%
%% A brain that is killed while it writes leaves a torn tail: it is cut, and no acknowledged event
%% is lost. But if the note of the last sync, or the one outside of the folder, says that more was
%% on disk, then the file was cut short, or an older copy was put back. It isn't known then how far
%% the missing part went, so the range ends with all that could have been drawn. The same holds if
%% `store' is gone, as in a folder that comes from a backup, where it is no error
%% (`halley_history_copied').
%%
%% Nothing in the files can stop it, nor a disk that can't be written: what is there is read, and
%% what is to be cut or deleted stays until the disk can be written.
-module(halley_history_recovery).

-export([recover/2]).
-export_type([recovered/0]).

-include_lib("kernel/include/logger.hrl").

-type recovered() :: #{ledger := halley_history_ledger:ledger(),
                       store := non_neg_integer(),
                       counter := non_neg_integer(),  % no seq above it was drawn
                       highest := non_neg_integer(),  % none above it was written
                       segments := [halley_history_retention:segment()],
                       number := non_neg_integer(),   % free for the next segment
                       spare := [non_neg_integer()],  % without records: to be deleted after that
                       damaged := [halley_history:range()],
                       lost := [halley_history:range()],   % of these, what no segment shows
                       %% When segments began, the oldest first, and now.
                       stamps := [{halley_history_clock:stamp(), non_neg_integer()}, ...]}.

-record(found, {dir :: file:name_all(), store :: non_neg_integer(),
                now :: halley_history_clock:stamp(), now_ms :: integer(),
                segment :: halley_history_retention:segment() | undefined,
                segments = [] :: [halley_history_retention:segment()],
                %% Whether a header said what was written before it.
                is_based = false :: boolean(),
                last_seq = 0 :: non_neg_integer(), last_at = none :: integer() | none,
                spare = [] :: [non_neg_integer()],
                stamps = [] :: [{halley_history_clock:stamp(), Base :: non_neg_integer()}],
                torn = none :: none | {non_neg_integer(), non_neg_integer()},
                %% Damage whose upper end isn't known yet.
                open = none :: none | {From :: non_neg_integer(), FromMs :: integer(),
                                       ToMs :: integer() | none},
                damaged = [] :: [halley_history:range()]}).

%% Above whatever could have been drawn since the newest segment began.
-define(UNKNOWN_RESERVATION, (1 bsl 32)).

%% The words and the index must be new. Fills the index; the words are left to the caller. `Step':
%% so many seqs at most were reserved at a time.
-spec recover(file:name_all(), Step :: pos_integer()) -> {ok, recovered()} | {error, term()}.
recover(Dir, Step) ->
    case made(halley_data_dir:make_directory(Dir)) of
        ok ->
            case {halley_history_ledger:open(Dir), halley_history_segment:list(Dir)} of
                {{ok, Ledger}, {ok, Numbers}} -> {ok, recover(Dir, Step, Ledger, Numbers)};
                {{ok, Ledger}, Error} -> ok = halley_history_ledger:close(Ledger), Error;
                {Error, _} -> Error
            end;
        Error -> Error
    end.

made({error, Reason} = Error) ->
    case halley_history_home:may_pass(Reason) of
        true -> ok;
        false -> Error
    end;
made(ok) ->
    ok.

recover(Dir, Step, Ledger0, Numbers) ->
    Position = halley_history_ledger:last_position(),
    IsCopy = halley_history_copied:begins(Dir) andalso Position =:= none,
    {Store, Reserved, Ledger} = identity(Dir, Step, Ledger0, Numbers, IsCopy),
    Begun = #found{dir = Dir, store = Store, now = halley_history_clock:stamp(),
                   now_ms = erlang:monotonic_time(millisecond)},
    Scanned = lists:foldl(fun segment/2, Begun, Numbers),
    IsKnown = Reserved =/= unknown andalso is_ours(Position, Store, Numbers),
    Noted = [N || #{store := S, reserved := N} <- [Position], S =:= Store],
    Counter = counter(IsKnown, Noted ++ [Reserved || Reserved =/= unknown],
                      Scanned#found.last_seq),
    Synced = halley_history_ledger:last_synced(Ledger, Store),
    IsBegun = IsCopy andalso Reserved =:= unknown,
    Cut = cut(IsBegun, Scanned),
    IsShort = not IsKnown orelse is_short(Synced, Cut) orelse is_behind(Position, Numbers, Cut),
    {Lost, Ended} = ended(IsShort, Counter, Cut),
    ok = missed(IsShort, IsBegun, Counter, Cut),
    #found{segments = Segments, damaged = Damaged, spare = Spare, now = Now} = Ended,
    #{ledger => halley_history_ledger:name(Store, Ledger), store => Store, counter => Counter,
      stamps => lists:reverse([{Now, Counter} | Ended#found.stamps]),
      damaged => Damaged, highest => highest(Counter, Ended), lost => Lost, spare => Spare,
      segments => lists:reverse(aged(Synced, Ended, Segments)),
      number => 1 + lists:max([0 | Numbers] ++ [N || #{segment := N} <- [Synced, Position]])}.

%% A folder that another store's note stands beside may be an older copy.
is_ours(none, _, _) -> true;
is_ours(#{store := Store}, Store, _) -> true;
is_ours(_, _, Numbers) -> Numbers =:= [].

%% No seq above it was ever drawn.
counter(true, Reserved, LastSeq) -> lists:max([LastSeq | Reserved]);
counter(false, Reserved, LastSeq) -> lists:max([LastSeq + ?UNKNOWN_RESERVATION | Reserved]).

%% A directory whose segments are gone says nothing about what they had. One segment that never had
%% a record says it all the same: a brain that kept nothing, killed, has nothing to miss.
highest(Counter, #found{segments = [], is_based = false}) -> Counter;
highest(_, #found{last_seq = LastSeq, damaged = Damaged}) ->
    lists:max([LastSeq | [To || {_, To, _, _} <- Damaged]]).

%% The store's id is in the ledger and in every header.
identity(Dir, Step, Ledger, Numbers, IsCopy) ->
    case halley_history_ledger:read(Ledger, Step) of
        {ok, Store, Reserved, Read} -> {Store, Reserved, Read};
        none -> identity_from_headers(Dir, Ledger, Numbers, IsCopy)
    end.

identity_from_headers(_, Ledger, [], _) ->
    {Store, Before} = new_store(),
    {Store, Before, Ledger};
identity_from_headers(Dir, Ledger, [Number | Numbers], IsCopy) ->
    case halley_history_segment:read_header(Dir, Number) of
        {ok, #{store := Store}} ->
            _ = [?LOG_WARNING("history: ~ts/store is missing or damaged; the segments name the "
                              "store, and each client that comes back gets a gap", [Dir])
                 || not IsCopy],
            {Store, unknown, Ledger};
        none when Numbers =:= [] ->
            {Store, _} = new_store(),
            {Store, unknown, Ledger};
        none ->
            identity_from_headers(Dir, Ledger, Numbers, IsCopy)
    end.

%% Its id, and the seq behind which it begins: what is older in a cursor of that store is a gap. The
%% brains of a cluster have one store, which its log names.
new_store() ->
    case application:get_env(halley, new_store) of
        {ok, {_, _} = Given} ->
            Given;
        undefined ->
            <<Store:32>> = crypto:strong_rand_bytes(4),
            {Store, 0}
    end.

%% --- one segment ---------------------------------------------------------------------------------

segment(Number, Found = #found{dir = Dir, store = Store, last_seq = LastSeq}) ->
    Segment = #{number => Number, base => LastSeq, bytes => 0, events => 0, first_at => none,
                last_at => none, began_ms => Found#found.now_ms, ended_ms => unknown},
    Begun = Found#found{segment = Segment},
    Path = halley_history_segment:path(Dir, Number),
    case halley_history_segment:scan(Path, Store, fun met/2, Begun) of
        {ok, End, Scanned = #found{segment = Ended}} ->
            push(Ended#{bytes := End}, Scanned);
        {error, Reason} ->
            ?LOG_ERROR("history: ~ts cannot be read: ~ts", [Path, file:format_error(Reason)]),
            push(Segment#{bytes := filelib:file_size(Path)}, damage(Begun))
    end.

push(Segment, Found = #found{segments = Segments}) ->
    Found#found{segment = undefined, segments = [Segment | Segments]}.

met({record, Offset, #{kind := event} = Record}, Found = #found{segment = #{number := Number}}) ->
    #{shard := Shard, seq := Seq, id := Id, subject := Subject, sessions := Sessions,
      chosen := Chosen, at := At} = Record,
    case Shard >= 1 andalso Shard =< halley_shards:count() of
        true ->
            ok = halley_history_index:event(Shard, {Seq, Id, Subject}, Chosen, Sessions, Number,
                                            Offset),
            ok = case Record of
                #{keep := Keep, body := Body} ->
                    halley_history_kept:met(Number, Seq, {Subject, Keep, Body});
                #{} ->
                    ok
            end,
            count(Seq, At, Found);
        false -> damage(Found)
    end;
met({record, Offset, #{kind := private, users := Users} = Record}, Found) ->
    several(Offset, Users, Record, Found);
met({record, Offset, #{kind := joint, subjects := Subjects} = Record}, Found) ->
    several(Offset, Subjects, Record, Found);
met({record, Offset, #{kind := Kind} = Record}, Found = #found{segment = #{number := Number}})
  when Kind =:= follow; Kind =:= unfollow ->
    #{shard := Shard, seq := Seq, subject := User, id := Subject, at := At} = Record,
    ok = halley_history_index:change(Kind, Shard, {Seq, User, Subject}, Number, Offset),
    count(Seq, At, Found);
met({record, _, #{kind := kept} = Record}, Found = #found{segment = #{number := Number}}) ->
    #{seq := Seq, at := At, subject := Subject, body := Body} = Record,
    {_, First, _, _, _, _, _} = halley_history_record:item(Body),
    ok = halley_history_kept:met(Number, First, {Subject, keep, Body}),
    count(Seq, At, Found);
met({record, _, #{kind := place, seq := Seq}}, Found) ->
    close(Seq, Found);
met({record, _, #{kind := lost} = Lost}, Found = #found{damaged = Damaged}) ->
    #{from := From, seq := To, from_at := FromAt, at := ToAt} = Lost,
    Found#found{damaged = halley_history_retention:merge({From, To, FromAt, ToAt}, Damaged)};
met({damaged, From, To}, Found = #found{segment = #{number := Number}}) ->
    ?LOG_ERROR("history: ~b bytes are damaged in segment ~.16b at ~b", [To - From, Number, From]),
    damage(Found#found{torn = none});
met({torn, 0, To}, Found = #found{torn = {_, _}}) ->
    %% No header that could say whether the torn tail before it matters.
    damage(Found#found{torn = {0, To}});
met({torn, From, To}, Found) ->
    Found#found{torn = {From, To}};
met({header, Header}, Found) ->
    header(Header, Found).

several(Offset, Names, Record, Found = #found{segment = #{number := Number}}) ->
    #{kind := Kind, shard := Shard, seq := Last, id := Id, sessions := Sessions,
      chosen := Chosen, at := At} = Record,
    case Shard >= 1 andalso Shard =< halley_shards:count() of
        true ->
            ok = halley_history_index:several(Kind, Shard, {Last, Id, Names}, Chosen, Sessions,
                                              Number, Offset),
            count(Last, At, Found);
        false -> damage(Found)
    end.

count(Seq, At, Found = #found{segment = Segment, last_seq = LastSeq, open = Open}) ->
    #{events := Events, first_at := FirstAt} = Segment,
    First = case FirstAt of none -> At; _ -> FirstAt end,
    Found#found{segment = Segment#{events := Events + 1, first_at := First, last_at := At},
                last_seq = max(Seq, LastSeq), last_at = At,
                open = passed(Open, At)}.

passed({From, FromMs, none}, At) -> {From, FromMs, At};
passed(Open, _) -> Open.

%% Something is missing here.
damage(Found = #found{open = {From, FromMs, _}}) ->
    Found#found{open = {From, FromMs, none}};
damage(Found = #found{open = none, last_seq = Seq, last_at = At}) ->
    Found#found{open = {Seq + 1, case At of none -> 0; _ -> At end, none}}.

%% No record before here has a seq above this one.
close(_, Found = #found{open = none}) ->
    Found;
close(Seq, Found = #found{open = {From, FromMs, ToMs}, damaged = Damaged, now = {_, _, NowMs}}) ->
    Range = {min(From, Seq), Seq, FromMs, case ToMs of none -> NowMs; _ -> ToMs end},
    Found#found{open = none, damaged = halley_history_retention:merge(Range, Damaged)}.

%% A header says what must stand before it.
header(#{base := Base, stamp := Stamp} = Header, Found0) ->
    Found = #found{segments = Segments, segment = Segment, last_seq = LastSeq} =
        judge_previous(Header, Found0),
    BeganMs = Found#found.now_ms - halley_history_clock:age_ms(Stamp, Found#found.now),
    Aged = case Segments of
        [Previous | Others] -> [Previous#{ended_ms := BeganMs} | Others];
        [] -> []
    end,
    Stamps = [{Stamp, Base} | Found#found.stamps],
    close(Base, Found#found{stamps = Stamps, segment = Segment#{base := Base, began_ms := BeganMs},
                            segments = Aged, is_based = true, last_seq = max(LastSeq, Base)}).

judge_previous(_, Found = #found{segments = []}) ->
    Found;
judge_previous(#{previous := Number, previous_bytes := Bytes},
               Found = #found{segments = [#{number := Number, bytes := End} | _]}) ->
    case End < Bytes of
        true ->
            ?LOG_ERROR("history: ~b bytes are missing at the end of segment ~.16b",
                       [Bytes - End, Number]),
            damage(Found#found{torn = none});
        false -> Found#found{torn = none}
    end;
judge_previous(#{previous := Previous}, Found) ->
    ?LOG_ERROR("history: segment ~.16b is missing", [Previous]),
    damage(Found#found{torn = none}).

%% --- the end -------------------------------------------------------------------------------------

%% What the notes show is lost is shown by no segment once the next one has begun.
ended(false, Counter, Found) ->
    {[], close(Counter, Found)};
ended(true, 0, Found) ->
    {[], close(0, Found)};
ended(true, Counter, Found = #found{now = {_, _, NowMs}}) ->
    Damaged = #found{open = {From, FromMs, _}} = damage(Found),
    {[{min(From, Counter), Counter, FromMs, NowMs}],
     close(Counter, Damaged#found{open = {From, FromMs, NowMs}})}.

%% What isn't in a backup was never meant to be here.
missed(true, false, Counter, _) when Counter > 0 ->
    ?LOG_ERROR("history: the files end before the last event that was on disk, or it isn't known "
               "which that was; events up to seq ~b may be lost", [Counter]),
    ok;
missed(true, true, Counter, #found{dir = Dir, last_seq = LastSeq}) ->
    ?LOG_NOTICE("history: begins from a backup; new events have seqs above ~b, and each client "
                "that comes back with a cursor of before gets a gap", [Counter]),
    halley_history_copied:began(Dir, [{LastSeq + 1, Counter}]);
missed(_, _, _, _) ->
    ok.

%% By the note that stands beside the segments.
is_short(none, _) ->
    false;
is_short(#{highest := Highest}, #found{last_seq = LastSeq}) when Highest > LastSeq ->
    true;
is_short(#{position := Position}, #found{segments = []}) ->
    Position > halley_history_segment:header_bytes();
is_short(#{segment := Number, position := Position},
         #found{segments = [#{number := Last, bytes := End} | _]}) ->
    Number > Last andalso Position > halley_history_segment:header_bytes()
        orelse Number =:= Last andalso Position > End.

%% By the note outside. A segment is only deleted after the next one is noted.
is_behind(none, _, _) ->
    false;
is_behind(#{store := Store}, _, #found{store = Own}) when Store =/= Own ->
    false;
is_behind(#{segment := Number} = Position, Numbers, Found) ->
    Number > lists:max([0 | Numbers]) orelse is_short(Position, Found).

%% Cuts the torn tail. A segment without any record is spared until there is another one: its header
%% says how far seqs had come.
cut(_, Found = #found{segments = []}) ->
    Found;
cut(IsBegun, Found = #found{segments = [#{number := Number, bytes := End} | Segments], dir = Dir,
                   torn = Torn}) ->
    Path = halley_history_segment:path(Dir, Number),
    _ = case Torn of
        none -> ok;
        {From, To} ->
            %% A backup may have been made in the middle of a record.
            _ = [?LOG_WARNING("history: the torn tail of ~ts is cut, ~b bytes", [Path, To - From])
                 || not IsBegun],
            halley_history_segment:truncate(Dir, Number, End)
    end,
    case End =< halley_history_segment:header_bytes() of
        true -> Found#found{segments = Segments, spare = [Number], torn = none};
        false -> Found#found{torn = none}
    end.

%% When the newest records were written: the header of the next segment said so, or the note, or
%% else the record itself by the wall clock.
aged(Note, Found, Segments) ->
    [case Segment of
         #{ended_ms := unknown} -> Segment#{ended_ms := ended_ms(Note, Segment, Found)};
         #{} -> Segment
     end || Segment <- Segments].

ended_ms(#{segment := Number, stamp := Stamp}, #{number := Number},
         #found{now = Now, now_ms = NowMs}) ->
    NowMs - halley_history_clock:age_ms(Stamp, Now);
ended_ms(_, #{last_at := none}, #found{now_ms = NowMs}) ->
    NowMs;
ended_ms(_, #{last_at := At}, #found{now = Now, now_ms = NowMs}) ->
    NowMs - halley_history_clock:age_ms({0, 0, At}, Now).
