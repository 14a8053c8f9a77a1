%% Reads what can be read of damaged files of the store, for `halley_store_repair'.
%%
%% A record is believed if its checksum holds, wherever it stands; what is between two such records
%% is a *hole*. A checksum begins with the salt of the file's header, so a damaged header must not
%% take its file with it: the salt is tried as it stands there, as the other fields of the header
%% give it, and as a header would have it that agrees with the files around it.
%%
%% A checkpoint's rows ascend, so a hole says which keys it may have held: they are *unknown*.
%%
%% Nothing is changed or decided here.
-module(halley_store_salvage).

-export([checkpoint/2, journal/4, header/2]).
-export_type([checkpoint/0, range/0, hole/0, kind/0]).

-type kind() :: ids | halley_following | halley_followers.
%% From a key to below another.
-type range() :: {From :: non_neg_integer(), To :: non_neg_integer() | infinity}.
%% Bytes of a file.
-type hole() :: {From :: non_neg_integer(), To :: non_neg_integer()}.
-type rows() :: [{Key :: non_neg_integer(), binary()}].
%% `unknown': what the holes may have held.
-type checkpoint() :: #{rows := #{kind() => rows()}, unknown := #{kind() => [range()]},
                        holes := [hole()]}.

-define(KINDS, [ids, halley_following, halley_followers]).
-define(END_PLACE, {4, 0}).

%% The header of a file, if it can be believed.
-spec header(halley_store_record:kind(), file:name_all()) ->
    {ok, halley_store_record:header()} | {version, non_neg_integer()} | damaged
    | {error, file:posix() | badarg | terminated | system_limit}.
header(Kind, Path) ->
    case halley_store_file:read(Path, halley_store_record:header_bytes()) of
        {ok, Bytes} ->
            case halley_store_record:read_header(Kind, Bytes) of
                {ok, Header, _} -> {ok, Header};
                Other -> Other
            end;
        {error, _} = Error -> Error
    end.

%% --- checkpoints ---------------------------------------------------------------------------------

%% `Expected': the header as files beside it tell it.
-spec checkpoint(file:name_all(), Expected :: none | halley_store_record:header()) ->
    {ok, checkpoint()} | {error, term()}.
checkpoint(Path, Expected) ->
    case file:read_file(Path) of
        {ok, Bytes} ->
            Begun = {{1, 0}, none, maps:from_list([{K, []} || K <- ?KINDS]),
                     maps:from_list([{K, []} || K <- ?KINDS])},
            {Holes, Met} = fold(checkpoint, Bytes, Expected, fun row/2, Begun),
            {_, _, Rows, Unknown} = met_end(Met),
            {ok, #{rows => reversed(Rows), unknown => reversed(Unknown), holes => Holes}};
        {error, _} = Error ->
            Error
    end.

reversed(Map) -> maps:map(fun(_, List) -> lists:reverse(List) end, Map).

%% `Place': up to where everything is known, kind and key. `Hole': whether there was one since.
row({hole, _, _}, {Place, _, Rows, Unknown}) ->
    {Place, hole, Rows, Unknown};
row({record, Body}, {Place, Hole, Rows, Unknown} = Met) ->
    case halley_store_checkpoint:row(Body) of
        {the_end, Counts, _} ->
            {?END_PLACE, none, Rows,
             complete(Counts, Rows, unknown(Hole, Place, ?END_PLACE, Unknown))};
        {Kind, Key, Page} ->
            Here = {number(Kind), Key},
            {behind(Kind, Key, Page), none, Rows#{Kind := [{Key, Page} | maps:get(Kind, Rows)]},
             unknown(Hole, Place, Here, Unknown)};
        damaged ->
            setelement(2, Met, hole)
    end.

%% The end says how many rows of each kind there are.
complete(Counts, Rows, Unknown) ->
    maps:map(fun(Kind, Ranges) ->
        case element(number(Kind), Counts) =:= length(maps:get(Kind, Rows)) of
            true -> [];
            false -> Ranges
        end
    end, Unknown).

met_end({?END_PLACE, _, _, _} = Met) -> Met;
met_end({Place, _, Rows, Unknown}) ->
    {?END_PLACE, none, Rows, unknown(hole, Place, ?END_PLACE, Unknown)}.

behind(ids, P, _) -> {1, P + 1};
behind(Kind, Fence, Page) ->
    case halley_pages:last_key(Page) of
        empty -> {number(Kind), Fence};
        Last -> {number(Kind), max(Fence, Last) + 1}
    end.

number(ids) -> 1;
number(halley_following) -> 2;
number(halley_followers) -> 3.

unknown(none, _, _, Unknown) ->
    Unknown;
unknown(hole, {K1, From}, {K2, To}, Unknown) ->
    lists:foldl(fun(Kind, U) ->
        K = number(Kind),
        Range = {case K of K1 -> From; _ -> 0 end, case K of K2 -> To; _ -> infinity end},
        case K >= K1 andalso K =< K2 andalso element(1, Range) < element(2, Range) of
            true -> U#{Kind := [Range | maps:get(Kind, U)]};
            false -> U
        end
    end, Unknown, ?KINDS).

%% --- journals ------------------------------------------------------------------------------------

%% Gives each group that can be read to `Fun', in order. The last hole may be no damage: a group
%% that was being written, or what a file system leaves behind the end.
-spec journal(file:name_all(), Expected :: none | halley_store_record:header(),
              fun((Sequence :: non_neg_integer(), halley_store_entries:entries(), Acc) -> Acc),
              Acc) ->
    {ok, #{bytes := non_neg_integer(), holes := [hole()]}, Acc} | {error, term()}.
journal(Path, Expected, Fun, Acc) ->
    case file:read_file(Path) of
        {ok, Bytes} ->
            Group = fun({record, <<Sequence:64, Entries/binary>>}, A) ->
                            case is_sound(Entries) of
                                true -> Fun(Sequence, Entries, A);
                                false -> A
                            end;
                       (_, A) -> A
                    end,
            {Holes, Result} = fold(journal, Bytes, Expected, Group, Acc),
            {ok, #{bytes => byte_size(Bytes), holes => Holes}, Result};
        {error, _} = Error ->
            Error
    end.

is_sound(Entries) ->
    try halley_store_entries:fold(fun(_, ok) -> ok end, ok, Entries) of ok -> true
    catch error:_ -> false
    end.

%% --- records -------------------------------------------------------------------------------------

fold(Kind, Bytes, Expected, Fun, Acc) ->
    Begin = min(halley_store_record:header_bytes(), byte_size(Bytes)),
    <<_:Begin/binary, Records/binary>> = Bytes,
    records(Records, {Begin, none}, salts(Kind, Bytes, Expected), Fun, {[], Acc}).

salts(Kind, Bytes, Expected) ->
    Fields = halley_store_record:header_bytes() - 4,
    Expectations = case Expected of
                       none -> [];
                       _ -> [element(2, halley_store_record:header(Kind, Expected))]
                   end,
    case Bytes of
        <<Header:Fields/binary, Salt:32, _/binary>> ->
            lists:usort([Salt, erlang:crc32(Header) | Expectations]);
        _ -> Expectations
    end.

records(<<>>, {Position, Hole}, _, Fun, Found) ->
    {Holes, Acc} = closed(Hole, Position, Fun, Found),
    {lists:reverse(Holes), Acc};
records(Bytes, {Position, Hole}, Salts, Fun, Found) ->
    case decode(Salts, Bytes) of
        {ok, Body, Rest} ->
            {Holes, Acc} = closed(Hole, Position, Fun, Found),
            Next = Position + byte_size(Bytes) - byte_size(Rest),
            records(Rest, {Next, none}, Salts, Fun, {Holes, Fun({record, Body}, Acc)});
        none ->
            Begun = case Hole of none -> Position; _ -> Hole end,
            Rest = case halley_store_record:resync(Bytes) of {ok, R} -> R; none -> <<>> end,
            records(Rest, {Position + byte_size(Bytes) - byte_size(Rest), Begun}, Salts, Fun,
                    Found)
    end.

decode([Salt | Salts], Bytes) ->
    case halley_store_record:decode(Salt, Bytes) of
        {ok, _, _} = Decoded -> Decoded;
        _ -> decode(Salts, Bytes)
    end;
decode([], _) ->
    none.

closed(none, _, _, Found) -> Found;
closed(From, To, Fun, {Holes, Acc}) -> {[{From, To} | Holes], Fun({hole, From, To}, Acc)}.
