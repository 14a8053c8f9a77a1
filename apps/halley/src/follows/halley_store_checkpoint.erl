%% Checkpoints: all ids and follows at a time, in one file, so that the journal before it needn't
%% be kept.
%%
%% `<dir>/checkpoint-<number>', sixteen hex digits: everything up to where `journal-<number>'
%% begins. A header, records, and an end (`halley_store_record'). A body is
%%
%%   1 Page:32 IdPage        durable ids, a page of `halley_ids_pages'
%%   2 Fence:64 Page         a page of halley_following (`halley_pages')
%%   3 Fence:64 Page         a page of halley_followers
%%   9 Ids:64 Following:64 Followers:64 Crc:32     how many pages of each there are, and a
%%                           checksum of their checksums, in order
%%
%% It is written while the owner of the follows works, from tables that change meanwhile. It reads
%% as every reader does, so it has all that stood when it began and stands still, and may have some
%% of what came since. The journal from its number on decides about all that changed since. A pair
%% that it meets twice, because a page was split meanwhile, is dropped on load
%% (`halley_pages_table:load/2').
%%
%% The file appears whole or not at all (`halley_store_file:replace/2'), and one that isn't whole,
%% or has one bit turned, is not believed: `read/2' fails.
-module(halley_store_checkpoint).

-export([write/4, read/2, row/1, path/2]).
-export_type([contents/0, row/0]).

-define(IDS, 1).
-define(FOLLOWING, 2).
-define(FOLLOWERS, 3).
-define(END, 9).
-define(WRITE_BYTES, 262144).

-type number_() :: non_neg_integer().
-type row() :: {ids | halley_following | halley_followers, Key :: non_neg_integer(), binary()}.
%% Rows of each kind, ascending.
-type contents() :: #{ids := [{halley_ids_pages:page_number(), binary()}],
                      halley_following := [{halley_pages:key(), halley_pages:page()}],
                      halley_followers := [{halley_pages:key(), halley_pages:page()}]}.

-record(output, {append :: fun((iodata()) -> ok), salt :: halley_store_record:salt(),
                 buffer = [] :: iodata(), bytes = 0 :: non_neg_integer(),
                 crc = 0 :: non_neg_integer()}).

-spec path(file:name_all(), number_()) -> file:name_all().
path(Dir, Number) ->
    filename:join(Dir, lists:flatten(io_lib:format("checkpoint-~16.16.0b", [Number]))).

%% Writes what the tables hold. `Sequence' is that of the last group before `journal-<Number>'.
-spec write(file:name_all(), Store :: non_neg_integer(), number_(),
            Sequence :: non_neg_integer()) -> {ok, Bytes :: pos_integer()} | {error, term()}.
write(Dir, Store, Number, Sequence) ->
    {Header, Salt} = halley_store_record:header(
                       checkpoint, #{store => Store, number => Number, sequence => Sequence,
                                     previous => 0}),
    halley_store_file:replace(path(Dir, Number), fun(Append) ->
        ok = Append(Header),
        Output0 = #output{append = Append, salt = Salt},
        {Ids, Output1} = lists:foldl(fun id_page/2, {0, Output0},
                                     lists:sort(halley_ids_pages:page_numbers())),
        {Following, Output2} = table(?FOLLOWING, halley_following, Output1),
        {Followers, Output3} = table(?FOLLOWERS, halley_followers, Output2),
        End = <<?END, Ids:64, Following:64, Followers:64, (Output3#output.crc):32>>,
        #output{bytes = Bytes} = flushed(put_record(End, Output3)),
        byte_size(Header) + Bytes
    end).

id_page(P, {N, Output}) ->
    case halley_ids_pages:durable_page(P) of
        {ok, Page} -> {N + 1, put_record(<<?IDS, P:32, Page/binary>>, Output)};
        none -> {N, Output}
    end.

%% Upwards, so that a split meanwhile hides nothing.
table(Kind, Table, Output) -> table(Kind, Table, ets:first(Table), 0, Output).

table(_, _, '$end_of_table', N, Output) -> {N, Output};
table(Kind, Table, Fence, N, Output) ->
    case ets:lookup(Table, Fence) of
        [{_, Page}] ->
            table(Kind, Table, ets:next(Table, Fence), N + 1,
                  put_record([<<Kind, Fence:64>>, Page], Output));
        [] ->
            table(Kind, Table, ets:next(Table, Fence), N, Output)
    end.

put_record(Body, #output{salt = Salt, buffer = Buffer, bytes = Bytes, crc = Crc} = Output) ->
    [<<_:64, RecordCrc:4/binary>> | _] = Record = halley_store_record:encode(Salt, Body),
    New = Output#output{buffer = [Buffer | Record], bytes = Bytes + iolist_size(Record),
                        crc = erlang:crc32(Crc, RecordCrc)},
    case New#output.bytes div ?WRITE_BYTES > Bytes div ?WRITE_BYTES of
        true -> flushed(New);
        false -> New
    end.

flushed(#output{append = Append, buffer = Buffer} = Output) ->
    ok = Append(Buffer),
    Output#output{buffer = []}.

%% --- reading -------------------------------------------------------------------------------------

-record(input, {salt :: halley_store_record:salt(), crc = 0 :: non_neg_integer(),
                counts = {0, 0, 0} :: {integer(), integer(), integer()},
                rows = {[], [], []} :: {list(), list(), list()},
                is_ended = false :: boolean()}).

%% All of it, or the reason why it is not to be believed.
-spec read(file:name_all(), number_()) ->
    {ok, halley_store_record:header(), contents()} | {error, term()}.
read(Dir, Number) ->
    Path = path(Dir, Number),
    case halley_store_file:read_header(Path, checkpoint, Number) of
        {ok, Header, Salt} ->
            Begin = halley_store_record:header_bytes(),
            case halley_store_file:fold(Path, Begin, fun records/2, #input{salt = Salt}) of
                {ok, <<>>, #input{is_ended = true, rows = {Ids, Following, Followers}}} ->
                    {ok, Header, #{ids => lists:reverse(Ids),
                                   halley_following => lists:reverse(Following),
                                   halley_followers => lists:reverse(Followers)}};
                {error, _} = Error -> Error;
                _ -> {error, damaged}
            end;
        {error, _} = Error ->
            Error
    end.

records(Bytes, #input{is_ended = true} = Input) when Bytes =/= <<>> ->
    {stop, Input};
records(Bytes, #input{salt = Salt} = Input) ->
    case halley_store_record:decode(Salt, Bytes) of
        {ok, Body, Rest} ->
            <<_:64, Crc:4/binary, _/binary>> = Bytes,
            case taken(row(Body), Crc, Input) of
                damaged -> {stop, Input};
                Taken -> records(Rest, Taken)
            end;
        {more, Wanted} ->
            {Bytes, Wanted - byte_size(Bytes), Input};
        damaged ->
            {stop, Input}
    end.

%% What a record's body says. Copied: the block that was read must not stay for it.
-spec row(Body :: binary()) ->
    row() | {the_end, {non_neg_integer(), non_neg_integer(), non_neg_integer()},
             Crc :: non_neg_integer()} | damaged.
row(<<?IDS, P:32, Page/binary>>) -> {ids, P, binary:copy(Page)};
row(<<?FOLLOWING, Fence:64, Page/binary>>) -> {halley_following, Fence, binary:copy(Page)};
row(<<?FOLLOWERS, Fence:64, Page/binary>>) -> {halley_followers, Fence, binary:copy(Page)};
row(<<?END, Ids:64, Following:64, Followers:64, Crc:32>>) ->
    {the_end, {Ids, Following, Followers}, Crc};
row(_) -> damaged.

taken({the_end, Counts, Crc}, _, #input{counts = Counts, crc = Crc} = Input) ->
    Input#input{is_ended = true};
taken({Kind, Key, Page}, Crc, #input{counts = Counts, rows = Rows, crc = CrcBefore} = Input)
  when Kind =/= the_end ->
    I = place(Kind),
    Input#input{counts = setelement(I, Counts, element(I, Counts) + 1),
                rows = setelement(I, Rows, [{Key, Page} | element(I, Rows)]),
                crc = erlang:crc32(CrcBefore, Crc)};
taken(_, _, _) ->
    damaged.

place(ids) -> 1;
place(halley_following) -> 2;
place(halley_followers) -> 3.
