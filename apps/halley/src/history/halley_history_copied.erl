%% The hole of a history that began from a backup: the seqs from the backup's end to where this life
%% begins.
%%
%% They are a damaged range to cursors, as a client may have got something of them in the other
%% life, and gets a gap. To a page of the past they are nothing, as no event of this life is in
%% them, nor to an operator. The file `copied' in the same folder records it: `./halley backup' puts
%% it into the copy with the line `new', and the first start there replaces that by the range.
%%
%%   text: "new\n", or a range as "FROM TO\n" for each backup that this history went through
%%
%% A file that can't be read or written costs this knowledge alone: then the range counts as
%% damaged.
-module(halley_history_copied).

-export([text_for_backup/1, begins/1, began/2, without/1]).

-include_lib("kernel/include/logger.hrl").

-type seqs() :: {From :: non_neg_integer(), To :: non_neg_integer()}.

path(Dir) -> filename:join(Dir, "copied").

%% What the file of a copy of this folder says.
-spec text_for_backup(Dir :: file:name_all()) -> iodata().
text_for_backup(Dir) -> ["new\n", text(ranges(lines(Dir)))].

text(Ranges) -> [io_lib:format("~b ~b\n", [From, To]) || {From, To} <- Ranges].

%% Whether the folder is a copy that nobody has begun on. To be asked before anything else here.
-spec begins(Dir :: file:name_all()) -> boolean().
begins(Dir) ->
    Lines = lines(Dir),
    ok = persistent_term:put(?MODULE, ranges(Lines)),
    lists:member(<<"new">>, Lines).

lines(Dir) ->
    case file:read_file(path(Dir)) of
        {ok, Text} -> binary:split(Text, <<"\n">>, [global, trim_all]);
        {error, _} -> []
    end.

ranges(Lines) ->
    [{binary_to_integer(From), binary_to_integer(To)}
     || Line <- Lines,
        {match, [From, To]} <- [re:run(Line, "^([0-9]{1,20}) ([0-9]{1,20})$",
                                       [{capture, all_but_first, binary}])]].

%% It has these from now on.
-spec began(Dir :: file:name_all(), [seqs()]) -> ok.
began(Dir, New) ->
    Ranges = persistent_term:get(?MODULE, []) ++ New,
    ok = persistent_term:put(?MODULE, Ranges),
    Path = path(Dir),
    case halley_data_dir:replace_file(Path, text(Ranges)) of
        ok -> ok;
        {error, Reason} ->
            ?LOG_NOTICE("history: ~ts can't be written: ~ts; later starts count what came behind "
                        "the backup as damaged", [Path, file:format_error(Reason)])
    end.

%% The ranges of which this life had something.
-spec without([halley_history:range()]) -> [halley_history:range()].
without(Damaged) ->
    Copied = persistent_term:get(?MODULE, []),
    [Range || {From, To, _, _} = Range <- Damaged,
              not lists:any(fun({First, Last}) -> First =< From andalso To =< Last end, Copied)].
