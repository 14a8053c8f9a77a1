%% `<data.dir>/revocations': whose tokens are revoked, and since when (`halley_revocations').
%%
%% One user on a line. The first line names the format, the last one has a CRC-32 of all before it:
%% with a line less, a revoked token would be good again. So a file that can't be read whole is an
%% error, and the brain doesn't start.
%%
%% It is written as a whole: a new file, synced, takes the name, and the name is synced.
-module(halley_revocations_file).

-export([read/1, write/2]).
-export_type([revocation/0]).

%% Tokens that were issued before this second are refused, until that second.
-type revocation() :: {User :: halley_id:id(), IssuedBefore :: non_neg_integer(),
                       Until :: non_neg_integer() | never}.

-define(FIRST_LINE, "{\"revocations\":1}\n").
-define(LAST_LINE(Crc), "{\"crc32\":\"", (Crc):8/binary, "\"}\n").
%% Of `LAST_LINE' in all.
-define(LAST_LINE_BYTES, 21).

%% The error is one sentence.
-spec read(DataDir :: file:filename_all()) -> {ok, [revocation()]} | {error, unicode:chardata()}.
read(DataDir) ->
    Path = path(DataDir),
    case {halley_data_dir:check_owner(Path), file:read_file(Path)} of
        {{error, Sentence}, _} -> {error, ["data.dir: ", Sentence]};
        {ok, {error, enoent}} -> {ok, []};
        {ok, {error, Reason}} -> {error, ["data.dir: ", Path, ": ", file:format_error(Reason)]};
        {ok, {ok, Bytes}} ->
            case parse(Bytes) of
                {ok, _} = Read -> Read;
                damaged ->
                    {error, ["data.dir: ", Path, " is damaged, so it isn't known whose tokens are "
                             "revoked: put back a copy; or remove it, start, and revoke them "
                             "again by PUT /v1/users/U/revocation"]}
            end
    end.

path(DataDir) -> filename:join(DataDir, "revocations").

parse(Bytes) ->
    Before = byte_size(Bytes) - ?LAST_LINE_BYTES,
    case Bytes of
        <<Content:Before/binary, ?LAST_LINE(Crc)>> ->
            case {crc(Content), Content} of
                {Crc, <<?FIRST_LINE, Lines/binary>>} -> lines(Lines);
                _ -> damaged
            end;
        _ ->
            damaged
    end.

crc(Bytes) -> binary:encode_hex(<<(erlang:crc32(Bytes)):32>>).

lines(Lines) ->
    Read = [line(Line) || Line <- binary:split(Lines, <<"\n">>, [global, trim])],
    case lists:member(damaged, Read) of
        true -> damaged;
        false -> {ok, Read}
    end.

line(Line) ->
    try jiffy:decode(Line, [return_maps]) of
        #{<<"user">> := User, <<"issued_before">> := Before} = Said
          when is_binary(User), is_integer(Before) ->
            case maps:get(<<"until">>, Said, never) of
                Until when is_integer(Until); Until =:= never -> {User, Before, Until};
                _ -> damaged
            end;
        _ ->
            damaged
    catch
        error:_ -> damaged;
        throw:_ -> damaged
    end.

-spec write(DataDir :: file:filename_all(), [revocation()]) -> ok | {error, term()}.
write(DataDir, Revocations) ->
    Content = iolist_to_binary([?FIRST_LINE | [text(One) || One <- Revocations]]),
    Crc = crc(Content),
    halley_data_dir:replace_file(path(DataDir), [Content, <<?LAST_LINE(Crc)>>]).

text({User, Before, Until}) ->
    [jiffy:encode({[{<<"user">>, User}, {<<"issued_before">>, Before}
                    | [{<<"until">>, Until} || Until =/= never]]}), $\n].
