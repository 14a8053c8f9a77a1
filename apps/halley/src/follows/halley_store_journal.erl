%% The journal: files of groups of changes, in the order in which they were committed.
%%
%% `<dir>/journal-<number>', sixteen hex digits. A header, then a record a group (see
%% `halley_store_record'); a body is <<Sequence:64, Entries/binary>>, and sequences count up by one
%% through all files. `halley_store_entries' says what entries are.
%%
%% `append/2' returns when the group is on disk under the file's name, and only then may callers be
%% answered. If it fails, the written part of the group is cut off. If it can't be, or if a sync
%% failed, the kernel's idea of the file can't be trusted: the next group begins a new file, whose
%% header says where the one before ends. The journal's end is also noted outside of the folder
%% (`halley_position'), so that a lost tail shows. The note is written soon after a group, not with
%% it, so no caller waits for it.
%%
%% Written by one process, the owner of the follows.
-module(halley_store_journal).

-export([create/3, open/2, append/2, rotate/1, probe/1, close/1]).
-export([place/1, note/1, is_empty/1, last_group/2]).
-export([read/5, read_header/2, path/2, numbers/2, describe/1]).
-export_type([journal/0, tail/0]).

-record(journal, {dir :: file:name_all(), store :: non_neg_integer(),
                  number :: non_neg_integer(), salt :: halley_store_record:salt(),
                  file :: halley_store_file:file(),
                  position :: non_neg_integer(),        % where the next group goes
                  sequence :: non_neg_integer(),        % of the last group
                  trusted = true :: boolean()}).
-opaque journal() :: #journal{}.
-type entries() :: halley_store_entries:entries().
%% How a file ends: behind its last whole group there is nothing, a part of one that was being
%% written, or something with a whole group behind it.
-type tail() :: whole | torn | damaged.
-type number_() :: non_neg_integer().

-define(PROBE_BYTES, 65536).

%% --- writing -------------------------------------------------------------------------------------

%% The first file of a journal: what follows the group with this sequence.
-spec create(file:name_all(), Store :: non_neg_integer(),
             {Number :: number_(), Sequence :: non_neg_integer(), Previous :: non_neg_integer()}) ->
    {ok, journal()} | {error, term()}.
create(Dir, Store, {Number, Sequence, Previous}) ->
    {Header, Salt} = halley_store_record:header(
                       journal, #{store => Store, number => Number, sequence => Sequence,
                                  previous => Previous}),
    case halley_store_file:create(path(Dir, Number), Header) of
        {ok, File} ->
            Journal = #journal{dir = Dir, store = Store, number = Number, salt = Salt, file = File,
                               position = byte_size(Header), sequence = Sequence},
            {ok, noted(Journal)};
        Error ->
            Error
    end.

%% The last file, to go on behind its last whole group; and the entries of that group.
-spec open(file:name_all(), number_()) ->
    {ok, journal(), Last :: entries()} | {error, term()}.
open(Dir, Number) ->
    case read(Dir, Number, infinity, fun(Entries, _) -> Entries end, <<>>) of
        {ok, #{header := #{store := Store} = Header, position := Position,
               sequence := Sequence}, Last} ->
            {_, Salt} = halley_store_record:header(journal, Header),
            case halley_store_file:open(path(Dir, Number), Position) of
                {ok, File} ->
                    opened(#journal{dir = Dir, store = Store, number = Number, salt = Salt,
                                    file = File, position = Position, sequence = Sequence}, Last);
                Error ->
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

%% The last group is written again: if its sync had failed, what was read of it may be in the
%% kernel's memory alone.
opened(Journal, <<>>) ->
    {ok, noted(Journal), <<>>};
opened(#journal{file = File, position = End, sequence = Sequence} = Journal, Last) ->
    Record = halley_store_record:encode(Journal#journal.salt, [<<Sequence:64>>, Last]),
    case halley_store_file:append(File, End - iolist_size(Record), Record) of
        ok ->
            {ok, noted(Journal), Last};
        Error ->
            ok = close(Journal),
            Error
    end.

%% The entries of the last whole group of a file; <<>> if it has none, or can't be read.
-spec last_group(file:name_all(), number_()) -> entries().
last_group(Dir, Number) ->
    case read(Dir, Number, infinity, fun(Entries, _) -> Entries end, <<>>) of
        {ok, _, Last} -> Last;
        {error, _} -> <<>>
    end.

%% Whether there is no group in this file yet.
-spec is_empty(journal()) -> boolean().
is_empty(#journal{position = Position}) -> Position =:= halley_store_record:header_bytes().

%% Writes a group; returns when it is on disk. `undone': it is certain that nothing of it will be
%% read again. `unknown': it may be.
-spec append([iodata()], journal()) ->
    {ok, Bytes :: pos_integer(), journal()} | {error, undone | unknown, term(), journal()}.
append(Entries, Journal = #journal{trusted = false}) ->
    case rotate(Journal) of
        {ok, Rotated} -> append(Entries, Rotated);
        {error, Reason} -> {error, undone, Reason, Journal}
    end;
append(Entries, Journal = #journal{salt = Salt, position = Position, sequence = Sequence}) ->
    Record = halley_store_record:encode(Salt, [<<(Sequence + 1):64>> | Entries]),
    Bytes = iolist_size(Record),
    case write(Journal, Record) of
        ok ->
            {ok, Bytes, Journal#journal{position = Position + Bytes, sequence = Sequence + 1}};
        {error, Reason} ->
            failed(Reason, Journal)
    end.

write(#journal{file = File, position = Position}, Bytes) ->
    case halley_store_file:append(File, Position, Bytes) of
        ok -> halley_store_file:check(File);
        Error -> Error
    end.

%% Where there was no room the file is sound once the part that was written is cut off.
failed(Reason, Journal = #journal{file = File, position = Position}) ->
    Cut = case halley_store_file:cut(File, Position) of
              ok -> halley_store_file:sync(File);
              Error -> Error
          end,
    case {Cut, Reason} of
        {ok, Full} when Full =:= enospc; Full =:= edquot; Full =:= moved ->
            {error, undone, Reason, Journal};
        {ok, _} ->
            {error, undone, Reason, Journal#journal{trusted = false}};
        {_, _} ->
            {error, unknown, Reason, Journal#journal{trusted = false}}
    end.

%% Begins the next file.
-spec rotate(journal()) -> {ok, journal()} | {error, term()}.
rotate(#journal{dir = Dir, store = Store, number = Number, file = File, position = Position,
                sequence = Sequence} = Journal) ->
    case halley_store_file:is_in_place(File) of
        true ->
            case create(Dir, Store, {Number + 1, Sequence, Position}) of
                {ok, Next} ->
                    close(Journal),
                    {ok, Next};
                Error ->
                    Error
            end;
        false ->
            {error, moved}
    end.

%% Whether a group could be written now.
-spec probe(journal()) -> {ok, journal()} | {error, term(), journal()}.
probe(Journal = #journal{trusted = false}) ->
    case rotate(Journal) of
        {ok, Rotated} -> probe(Rotated);
        {error, Reason} -> {error, Reason, Journal}
    end;
probe(Journal) ->
    case write(Journal, <<0:(8 * ?PROBE_BYTES)>>) of
        ok -> undo_probe(Journal);
        {error, Reason} ->
            {error, _, _, Failed} = failed(Reason, Journal),
            {error, Reason, Failed}
    end.

undo_probe(Journal = #journal{file = File, position = Position}) ->
    case halley_store_file:cut(File, Position) of
        ok -> {ok, Journal};
        {error, Reason} -> {error, Reason, Journal#journal{trusted = false}}
    end.

noted(Journal) ->
    ok = note(Journal),
    Journal.

%% Notes where the journal stands.
-spec note(journal()) -> ok.
note(#journal{store = Store, number = Number, position = Position, sequence = Sequence}) ->
    halley_position:write(follows, <<Store:32, Number:64, Position:64, Sequence:64>>).

-spec close(journal()) -> ok.
close(#journal{file = File}) -> halley_store_file:close(File).

%% The store, the file's number, and the sequence of the last group.
-spec place(journal()) ->
    {Store :: non_neg_integer(), number_(), Sequence :: non_neg_integer()}.
place(#journal{store = Store, number = Number, sequence = Sequence}) -> {Store, Number, Sequence}.

%% --- reading -------------------------------------------------------------------------------------

-spec path(file:name_all(), number_()) -> file:name_all().
path(Dir, Number) -> filename:join(Dir, name(Number)).

name(Number) -> lists:flatten(io_lib:format("journal-~16.16.0b", [Number])).

%% The numbers of the files with this prefix among names, ascending.
-spec numbers(Prefix :: string(), [file:filename()]) -> [number_()].
numbers(Prefix, Names) ->
    lists:sort([list_to_integer(Digits, 16)
                || Name <- Names, [] =:= Prefix -- Name,
                   {match, [Digits]} <- [re:run(Name, "^" ++ Prefix ++ "([0-9a-f]{16})$",
                                                [{capture, all_but_first, list}])]]).

-record(scan, {salt :: halley_store_record:salt(), function :: fun((entries(), term()) -> term()),
               acc :: term(), position :: non_neg_integer(), limit :: non_neg_integer() | infinity,
               sequence :: non_neg_integer()}).

-spec read_header(file:name_all(), number_()) ->
    {ok, halley_store_record:header(), halley_store_record:salt()} | {error, term()}.
read_header(Dir, Number) ->
    halley_store_file:read_header(path(Dir, Number), journal, Number).

%% Gives the entries of each group of a file to `Fun', in order, up to the first that isn't whole,
%% or to a position.
-spec read(file:name_all(), number_(), Limit :: non_neg_integer() | infinity,
           fun((entries(), Acc) -> Acc), Acc) ->
    {ok, #{header := halley_store_record:header(), position := non_neg_integer(),
           sequence := non_neg_integer(), tail := tail()}, Acc}
    | {error, term()}.
read(Dir, Number, Limit, Fun, Acc) ->
    case read_header(Dir, Number) of
        {ok, #{sequence := Sequence} = Header, Salt} ->
            Begin = halley_store_record:header_bytes(),
            Scan = #scan{salt = Salt, function = Fun, acc = Acc, position = Begin, limit = Limit,
                         sequence = Sequence},
            scanned(Header,
                    halley_store_file:fold(path(Dir, Number), Begin, fun groups/2, Scan));
        {error, _} = Error ->
            Error
    end.

scanned(Header, {ok, Left, Scan}) ->
    {ok, #{header => Header, position => Scan#scan.position, sequence => Scan#scan.sequence,
           tail => tail(Left, Scan#scan.salt)}, Scan#scan.acc};
scanned(Header, {stopped, Scan}) ->
    scanned(Header, {ok, <<>>, Scan});
scanned(_, {error, _} = Error) ->
    Error.

groups(_, #scan{position = Limit, limit = Limit} = Scan) ->
    {stop, Scan};
groups(Bytes, #scan{salt = Salt, sequence = Sequence, position = Position} = Scan) ->
    case halley_store_record:decode(Salt, Bytes) of
        {ok, <<Next:64, Entries/binary>>, Rest} when Next =:= Sequence + 1 ->
            Acc = (Scan#scan.function)(Entries, Scan#scan.acc),
            Size = byte_size(Bytes) - byte_size(Rest),
            groups(Rest, Scan#scan{acc = Acc, sequence = Next, position = Position + Size});
        {more, Wanted} ->
            {Bytes, Wanted - byte_size(Bytes), Scan};
        _ ->
            %% The rest of the file is read for what stands behind it.
            {Bytes, byte_size(Bytes), Scan}
    end.

%% One group can be torn, the last: no group is written before the one before it is on disk.
tail(<<>>, _) ->
    whole;
tail(Left, Salt) ->
    case halley_store_record:decode(Salt, Left) of
        {ok, _, _} ->
            damaged;
        _ ->
            case halley_store_record:resync(Left) of
                none -> torn;
                {ok, Rest} -> tail(Rest, Salt)
            end
    end.

-spec describe(term()) -> string().
describe({version, Version}) ->
    lists:flatten(io_lib:format("has the format ~b of a later version of Halley", [Version]));
describe(damaged_header) -> "has a damaged header";
describe(moved) -> "was moved or removed";
describe(Posix) when is_atom(Posix) -> file:format_error(Posix);
describe(Other) -> lists:flatten(io_lib:format("~0tp", [Other])).
