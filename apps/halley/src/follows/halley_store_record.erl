%% Codec of what the files of the store are made of. Bytes in, bytes out.
%%
%%   header   magic:8 bytes version:16 0:16 store:32 number:64 sequence:64 previous:64 crc:32
%%   record   magic:32 length:32 crc:32 body                     length is that of the body
%%
%% A record's checksum covers its length and body and starts from a *salt*, the checksum of the
%% header of its file: a record of another file, or of an older file with the same name, isn't
%% valid.
%%
%% Any bytes give an error, never a crash, and no length is believed before it is compared with
%% what is there and with ?BODY_BYTES_MAX.
-module(halley_store_record).

-export([header/2, read_header/2, header_bytes/0, encode/2, decode/2, resync/1]).
-export_type([header/0, kind/0, salt/0]).

-type kind() :: checkpoint | journal.
-type salt() :: non_neg_integer().
%% `number': of the file. `sequence': of the last group before the file. `previous': where the
%% journal before this one ends; 0 in a checkpoint.
-type header() :: #{store := non_neg_integer(), number := non_neg_integer(),
                    sequence := non_neg_integer(), previous := non_neg_integer()}.

-define(VERSION, 1).
-define(HEADER_BYTES, 44).
-define(MAGIC, 16#FF485352).
-define(HEAD_BYTES, 12).
%% Above any group of follows: 100,000 pairs and a name for each, and what a last change brings.
-define(BODY_BYTES_MAX, (256 bsl 20)).

-spec header(kind(), header()) -> {binary(), salt()}.
header(Kind, #{store := Store, number := Number, sequence := Sequence, previous := Previous}) ->
    Fields = <<(magic(Kind))/binary, ?VERSION:16, 0:16, Store:32, Number:64, Sequence:64,
               Previous:64>>,
    Salt = erlang:crc32(Fields),
    {<<Fields/binary, Salt:32>>, Salt}.

%% The header that the bytes begin with. A version that this build doesn't know is told apart from
%% damage.
-spec read_header(kind(), binary()) ->
    {ok, header(), salt()} | {version, non_neg_integer()} | damaged.
read_header(Kind, <<Fields:(?HEADER_BYTES - 4)/binary, Salt:32, _/binary>>) ->
    Magic = magic(Kind),
    case {erlang:crc32(Fields), Fields} of
        {Salt, <<Magic:8/binary, ?VERSION:16, 0:16, Store:32, Number:64, Sequence:64,
                 Previous:64>>} ->
            {ok, #{store => Store, number => Number, sequence => Sequence, previous => Previous},
             Salt};
        {Salt, <<Magic:8/binary, Version:16, _/binary>>} ->
            {version, Version};
        _ ->
            damaged
    end;
read_header(_, _) ->
    damaged.

magic(checkpoint) -> <<"HALLEYCP">>;
magic(journal) -> <<"HALLEYJN">>.

-spec header_bytes() -> pos_integer().
header_bytes() -> ?HEADER_BYTES.

-spec encode(salt(), iodata()) -> iodata().
encode(Salt, Body) ->
    Length = iolist_size(Body),
    [<<?MAGIC:32, Length:32, (crc(Salt, Length, Body)):32>>, Body].

crc(Salt, Length, Body) -> erlang:crc32(Salt, [<<Length:32>> | Body]).

%% The record that the bytes begin with. `more': they end before it does; with so many it could be
%% told.
-spec decode(salt(), binary()) ->
    {ok, Body :: binary(), Rest :: binary()} | {more, pos_integer()} | damaged.
decode(Salt, <<?MAGIC:32, Length:32, Crc:32, Rest/binary>>) when Length =< ?BODY_BYTES_MAX ->
    case Rest of
        <<Body:Length/binary, After/binary>> ->
            case crc(Salt, Length, [Body]) of
                Crc -> {ok, Body, After};
                _ -> damaged
            end;
        _ ->
            {more, ?HEAD_BYTES + Length}
    end;
decode(_, <<_:?HEAD_BYTES/binary, _/binary>>) ->
    damaged;
decode(_, _) ->
    {more, ?HEAD_BYTES}.

%% The bytes from the next place on, behind their first byte, where a record may begin.
-spec resync(binary()) -> {ok, binary()} | none.
resync(Bytes) when byte_size(Bytes) > 1 ->
    case binary:match(Bytes, <<?MAGIC:32>>, [{scope, {1, byte_size(Bytes) - 1}}]) of
        {Position, _} -> {ok, binary_part(Bytes, Position, byte_size(Bytes) - Position)};
        nomatch -> none
    end;
resync(_) ->
    none.
