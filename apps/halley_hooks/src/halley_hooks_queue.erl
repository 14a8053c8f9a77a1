%% The queue of hooks on disk, as its one writer has it: `halley_hooks_taker'.
%%
%% Segments `<data.dir>/hooks/<16 hex digits>.queue' are appended to and synced. Each begins with
%% all that was reported as there (users with sessions, subjects with subscribers), so older ones
%% are deleted as soon as the endpoint has taken them. A start never writes to a segment that is
%% there: it begins the next one. A torn end of the last one was never synced, so it was never sent,
%% and its writer writes it again.
%%
%% `acked' has the place up to which the endpoint has taken hooks. It may be older: then some are
%% sent again. It is written under another name and renamed; without it sending begins at the oldest
%% segment.
%%
%% A write that fails ends the segment: the caller forgets what it wanted to append, and opens the
%% next one when there is room (`reopen/3').
%%
%% `<data.dir>/hooks.made' says that there was a queue: without it a folder that is gone would look
%% like a first start.
-module(halley_hooks_queue).

-export([open/0, append/2, reopen/3, is_open/1, acked/2, waiting/2, folder/0, path/1,
         numbers/0, numbers/1, write_new/2, is_there/1]).
-export_type([queue/0, recovered/0]).

-record(queue, {number = 0 :: non_neg_integer(),
                file = none :: none | file:io_device(),
                bytes = 0 :: non_neg_integer(),
                head_bytes = 0 :: non_neg_integer(),
                %% Those before it, the oldest first.
                older = [] :: [{Number :: non_neg_integer(), Bytes :: non_neg_integer()}]}).
-opaque queue() :: #queue{}.
-type vectors() :: {halley_cursor:vector(), halley_cursor:vector()}.
%% `new': there never was one. `lost': there was.
-type recovered() :: new | lost
                   | #{store := non_neg_integer(), vectors := vectors(), told := told(),
                       acked := halley_hooks_progress:place()}.
-type told() :: #{halley_hooks_entry:key() => []}.

-define(SEGMENT_BYTES, 16777216).
-define(KEYS, 500).

-spec folder() -> file:filename().
folder() -> filename:join(halley_data_dir:path(), "hooks").

-spec path(non_neg_integer()) -> file:filename().
path(Number) -> filename:join(folder(), lists:flatten(io_lib:format("~16.16.0b.queue", [Number]))).

%% Of the segments that are there. A file of any other name is none of ours.
-spec numbers() -> [non_neg_integer()].
numbers() -> numbers("queue").

-spec numbers(Extension :: string()) -> [non_neg_integer()].
numbers(Extension) ->
    lists:sort([list_to_integer(Digits, 16)
                || Path <- filelib:wildcard(filename:join(folder(), "*." ++ Extension)),
                   {match, [Digits]} <- [re:run(filename:basename(Path, "." ++ Extension),
                                                "^([0-9a-f]{16})$",
                                                [{capture, all_but_first, list}])]]).

%% What is there. Nothing is written.
-spec open() -> {queue(), recovered()}.
open() ->
    Numbers = numbers(),
    Older = [{Number, filelib:file_size(path(Number))} || Number <- Numbers],
    Queue = #queue{number = lists:max([0 | Numbers]), older = Older},
    %% Of those that may be torn, what follows their good bytes doesn't count.
    {Good, Recovered} = recovered(lists:reverse(Numbers), []),
    Known = lists:foldl(fun({Number, _} = Each, All) -> lists:keyreplace(Number, 1, All, Each) end,
                        Older, Good),
    case Recovered of
        none ->
            {Queue#queue{older = Known},
             case Numbers =:= [] andalso not filelib:is_file(mark()) of
                 true -> new;
                 false -> lost
             end};
        #{} ->
            {Queue#queue{older = Known}, Recovered#{acked => read_acked(Numbers)}}
    end.

mark() -> filename:join(halley_data_dir:path(), "hooks.made").

%% The newest one that says everything; of it and of newer ones their good bytes.
recovered([], Good) -> {Good, none};
recovered([Number | Older], Good) ->
    Bytes = case file:read_file(path(Number)) of {ok, All} -> All; {error, _} -> <<>> end,
    case fold(Bytes, 0, #{told => #{}}) of
        {Its, #{vectors := _, store := _} = Found} -> {[{Number, Its} | Good], Found};
        {Its, _} -> recovered(Older, [{Number, Its} | Good])
    end.

%% Damage in the middle is skipped here; the sender tells of it.
fold(Bytes, Offset, Found) ->
    <<_:Offset/binary, Rest/binary>> = Bytes,
    case halley_hooks_entry:decode(Rest) of
        {ok, Entry, Size} -> fold(Bytes, Offset + Size, found(Entry, Found));
        _ ->
            case halley_hooks_entry:resync(Bytes, Offset + 1) of
                {ok, Next} -> resumed(fold(Bytes, Next, Found), Next, {Offset, Found});
                none -> {Offset, Found}
            end
    end.

%% A magic with nothing good behind it is part of the torn end.
resumed({Next, _}, Next, Before) -> Before;
resumed(Resumed, _, _) -> Resumed.

found({header, _, Store, _}, Found) -> Found#{store => Store};
found({told, Keys}, #{told := Told} = Found) ->
    Found#{told := maps:merge(Told, maps:from_keys(Keys, []))};
found({complete, A, B}, Found) -> Found#{vectors => {A, B}};
found({position, A, B}, #{vectors := _} = Found) -> Found#{vectors := {A, B}};
found({opened, _, Id}, #{told := Told} = Found) -> Found#{told := Told#{{user, Id} => []}};
found({occupied, _, Id}, #{told := Told} = Found) -> Found#{told := Told#{{subject, Id} => []}};
found({closed, _, Id}, #{told := Told} = Found) -> Found#{told := maps:remove({user, Id}, Told)};
found({vacated, _, Id}, #{told := Told} = Found) ->
    Found#{told := maps:remove({subject, Id}, Told)};
found(_, Found) -> Found.

begun(Keys, {A, B}, #queue{number = Last, older = Older} = Queue) ->
    Number = Last + 1,
    Before = proplists:get_value(Last, Older, 0),
    <<Name:32>> = crypto:strong_rand_bytes(4),
    Head = [halley_hooks_entry:encode(E)
            || E <- [{header, Name, halley_history:store(), Before}
                     | [{told, Part} || Part <- parts(Keys)]] ++ [{complete, A, B}]],
    Made = halley_steps:run([
        fun() -> halley_data_dir:make_directory(folder()) end,
        fun() -> ensure_mark() end,
        fun() -> write_new(path(Number), Head) end,
        fun() -> halley_data_dir:sync_directory(folder()) end]),
    case Made =:= ok andalso file:open(path(Number), [append, raw, binary]) of
        {ok, File} ->
            Bytes = iolist_size(Head),
            {ok, Queue#queue{number = Number, file = File, bytes = Bytes, head_bytes = Bytes}};
        Failed ->
            _ = file:delete(path(Number)),
            {error, _} = Error = case Failed of false -> Made; _ -> Failed end,
            {error, element(2, Error), Queue}
    end.

parts([]) -> [];
parts(Keys) ->
    {Part, Rest} = lists:split(min(?KEYS, length(Keys)), Keys),
    [Part | parts(Rest)].

ensure_mark() ->
    case filelib:is_file(mark()) of
        true -> ok;
        false -> file:write_file(mark(), <<>>, [raw])
    end.

%% A file with this, on disk when it returns; its name may not be yet.
-spec write_new(file:filename(), iodata()) -> ok | {error, term()}.
write_new(Path, Bytes) ->
    case file:open(Path, [write, raw, binary]) of
        {ok, File} ->
            Result = halley_steps:run([fun() -> halley_data_dir:make_private(Path) end,
                                       fun() -> file:write(File, Bytes) end,
                                       fun() -> file:datasync(File) end]),
            _ = file:close(File),
            Result;
        Error -> Error
    end.

-spec is_open(queue()) -> boolean().
is_open(#queue{file = File}) -> File =/= none.

%% On disk when it returns; where the queue ends then, and whether it should begin a segment.
-spec append([halley_hooks_entry:entry()], queue()) ->
    {ok, halley_hooks_progress:place(), go_on | reopen, queue()} | {error, file:posix(), queue()}.
append(Entries, #queue{number = Number, file = File, bytes = Bytes, head_bytes = Head} = Queue) ->
    Text = [halley_hooks_entry:encode(Entry) || Entry <- Entries],
    Written = halley_steps:run([fun() -> file:write(File, Text) end,
                                fun() -> file:datasync(File) end,
                                fun() -> is_there(path(Number)) end]),
    case Written of
        ok ->
            Now = Bytes + iolist_size(Text),
            Full = Now > ?SEGMENT_BYTES + 2 * Head,
            {ok, {Number, Now}, case Full of true -> reopen; false -> go_on end,
             Queue#queue{bytes = Now}};
        {error, Reason} ->
            {error, Reason, ended(Queue)}
    end.

%% A folder that was moved or removed takes what is written with it.
-spec is_there(file:filename()) -> ok | {error, enoent}.
is_there(Path) ->
    case filelib:is_file(Path) of
        true -> ok;
        false -> {error, enoent}
    end.

%% What a failed write left behind the good bytes is cut off, if the disk lets it.
ended(#queue{number = Number, file = File, bytes = Bytes, older = Older} = Queue) ->
    _ = file:close(File),
    _ = case file:open(path(Number), [read, write, raw]) of
        {ok, Cut} ->
            _ = file:position(Cut, Bytes),
            _ = file:truncate(Cut),
            file:close(Cut);
        Error -> Error
    end,
    Queue#queue{file = none, older = Older ++ [{Number, Bytes}]}.

%% Begins a segment, with what is told; the queue is appended to there from then on.
-spec reopen([halley_hooks_entry:key()], vectors(), queue()) ->
    {ok, halley_hooks_progress:place(), queue()} | {error, file:posix(), queue()}.
reopen(Keys, Vectors, #queue{file = none} = Queue) ->
    case begun(Keys, Vectors, Queue) of
        {ok, #queue{number = Number, bytes = Bytes} = Open} -> {ok, {Number, Bytes}, Open};
        Error -> Error
    end;
reopen(Keys, Vectors, #queue{number = Number, file = File, bytes = Bytes, older = Older} = Queue) ->
    case begun(Keys, Vectors, Queue#queue{older = Older ++ [{Number, Bytes}]}) of
        {ok, #queue{number = New, bytes = NewBytes} = Next} ->
            ok = file:close(File),
            {ok, {New, NewBytes}, Next};
        %% The old one may take some more.
        {error, Reason, _} -> {error, Reason, Queue}
    end.

%% --- what was taken ------------------------------------------------------------------------------

%% The endpoint has taken everything up to there: that is noted, and what is older is deleted.
-spec acked(halley_hooks_progress:place(), queue()) -> queue().
acked({Number, Offset}, #queue{older = Older} = Queue) ->
    Fields = <<Number:64, Offset:64>>,
    Path = filename:join(folder(), "acked"),
    Note = [Fields, <<(erlang:crc32(Fields)):32>>],
    _ = halley_steps:run([
        fun() -> file:write_file(Path ++ ".new", Note, [raw]) end,
        fun() -> file:rename(Path ++ ".new", Path) end]),
    {Done, Left} = lists:splitwith(fun({Each, _}) -> Each < Number end, Older),
    lists:foreach(fun({Each, _}) -> file:delete(path(Each)) end, Done),
    Queue#queue{older = Left}.

read_acked([Oldest | _] = Numbers) ->
    case file:read_file(filename:join(folder(), "acked")) of
        {ok, <<Fields:16/binary, Crc:32>>} ->
            <<Number:64, Offset:64>> = Fields,
            case erlang:crc32(Fields) =:= Crc andalso lists:member(Number, Numbers) of
                true -> {Number, Offset};
                false -> {Oldest, 0}
            end;
        _ -> {Oldest, 0}
    end.

%% Bytes that the endpoint hasn't taken.
-spec waiting(halley_hooks_progress:place(), queue()) -> non_neg_integer().
waiting({Number, Offset}, #queue{number = Last, bytes = Bytes, older = Older, file = File}) ->
    Now = [{Last, Bytes} || File =/= none],
    lists:sum([case N of Number -> max(0, B - Offset); _ -> B end
               || {N, B} <- Older ++ Now, N >= Number]).
