%% Reads the queue in order, from a place on. Of one process; holds one descriptor.
%%
%% The end of a segment is where the next one's header says that its good bytes end. Bytes before
%% that which can't be read are `damaged', and the endpoint gets a gap.
-module(halley_hooks_read).

-export([new/1, next/2, place/1]).
-export_type([reader/0, read/0]).

-record(reader, {number :: non_neg_integer(), offset :: non_neg_integer(),
                 file = none :: none | file:io_device(),
                 %% The segment's, from its header.
                 name = {0, 0} :: {Name :: non_neg_integer(), Store :: non_neg_integer()}}).
-opaque reader() :: #reader{}.
%% An entry, what names its place for ever, the store of the history that its seqs are of, and where
%% the next one begins.
-type read() :: {halley_hooks_entry:entry() | damaged,
                 {Name :: non_neg_integer(), Offset :: non_neg_integer()},
                 Store :: non_neg_integer(), End :: place()}.
-type place() :: halley_hooks_progress:place().

-define(CHUNK_BYTES, 2097152).

-spec new(place()) -> reader().
new({Number, Offset}) -> #reader{number = Number, offset = Offset}.

-spec place(reader()) -> place().
place(#reader{number = Number, offset = Offset}) -> {Number, Offset}.

%% The next entries up to where the queue was written; none: there are no more for now.
-spec next(place(), reader()) -> {[read()], reader()}.
next({Number, Offset}, #reader{number = Number, offset = Offset} = Reader) ->
    {[], Reader};
next(UpTo, #reader{file = none, number = Number} = Reader) ->
    case file:open(halley_hooks_queue:path(Number), [read, raw, binary]) of
        {ok, File} -> next(UpTo, named(Reader#reader{file = File}));
        {error, _} -> following(UpTo, damaged(Reader), Reader)
    end;
next({Last, LastOffset} = UpTo, #reader{number = Number, offset = Offset, file = File} = Reader) ->
    End = case Number of
        Last -> LastOffset;
        _ -> good_bytes(Number)
    end,
    case file:pread(File, Offset, max(0, min(?CHUNK_BYTES, End - Offset))) of
        {ok, <<_, _/binary>> = Bytes} ->
            IsEnd = Offset + byte_size(Bytes) >= End,
            {Taken, Entries} = entries(Bytes, 0, IsEnd, Reader, []),
            {Entries, Reader#reader{offset = Offset + Taken}};
        _ when Number =:= Last, Offset < End ->
            %% It was cut, or taken away.
            {damaged(Reader), Reader#reader{offset = End}};
        _ when Number =:= Last -> {[], Reader};
        _ when Offset < End -> following(UpTo, damaged(Reader), Reader);
        _ -> following(UpTo, [], Reader)
    end.

damaged(#reader{name = {Name, Store}, offset = Offset} = Reader) ->
    [{damaged, {Name, Offset}, Store, place(Reader)}].

%% One that is followed by none that can be read: all that is there.
good_bytes(Number) ->
    Next = [N || N <- halley_hooks_queue:numbers(), N > Number],
    case Next =/= [] andalso header(hd(Next)) of
        {header, _, _, Before} when hd(Next) =:= Number + 1 -> Before;
        _ -> filelib:file_size(halley_hooks_queue:path(Number))
    end.

header(Number) ->
    case file:open(halley_hooks_queue:path(Number), [read, raw, binary]) of
        {ok, File} ->
            Read = file:pread(File, 0, 64),
            _ = file:close(File),
            case Read of
                {ok, Bytes} ->
                    case halley_hooks_entry:decode(Bytes) of
                        {ok, Header, _} -> Header;
                        _ -> none
                    end;
                _ -> none
            end;
        {error, _} -> none
    end.

named(#reader{number = Number} = Reader) ->
    case header(Number) of
        {header, Name, Store, _} -> Reader#reader{name = {Name, Store}};
        _ -> Reader#reader{name = {0, 0}}
    end.

following({Last, _} = UpTo, Before, #reader{number = Number, file = File} = Reader) ->
    _ = [file:close(File) || File =/= none],
    case [N || N <- halley_hooks_queue:numbers(), N > Number, N =< Last] of
        [] -> {Before, Reader#reader{file = none, number = Last, offset = element(2, UpTo)}};
        [Next | _] ->
            Moved = Reader#reader{file = none, number = Next, offset = 0},
            case Before of
                [] -> next(UpTo, Moved);
                _ -> {Before, Moved}
            end
    end.

%% Where a record seems to go on behind the end, its length is damaged.
entries(Bytes, From, IsEnd, #reader{number = Number, offset = Base, name = {Name, Store}} = Reader,
        Acc) ->
    <<_:From/binary, Rest/binary>> = Bytes,
    Read = fun(Entry, To) -> {Entry, {Name, Base + From}, Store, {Number, Base + To}} end,
    case halley_hooks_entry:decode(Rest) of
        {ok, Entry, Size} ->
            entries(Bytes, From + Size, IsEnd, Reader, [Read(Entry, From + Size) | Acc]);
        more when Rest =:= <<>>; not IsEnd ->
            {From, lists:reverse(Acc)};
        _ ->
            Next = case halley_hooks_entry:resync(Bytes, From + 1) of
                {ok, Found} -> Found;
                none -> byte_size(Bytes)
            end,
            entries(Bytes, Next, IsEnd, Reader, [Read(damaged, Next) | Acc])
    end.
