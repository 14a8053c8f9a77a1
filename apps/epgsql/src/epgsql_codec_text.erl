%% text, varchar, bytea: binaries. Written are also iodata, lists of characters (but for bytea), and
%% atoms and numbers, by their text.
-module(epgsql_codec_text).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3, bytes/2]).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [text | varchar | bytea].
names() -> [text, varchar, bytea].

-spec encode(any(), text | varchar | bytea, any()) -> iodata().
encode(Text, _, _) when is_binary(Text) -> Text;
encode(Text, Name, _) when is_list(Text) -> bytes(Text, Name);
encode(Atom, _, _) when is_atom(Atom) -> atom_to_binary(Atom);
encode(Number, _, _) when is_integer(Number) -> integer_to_binary(Number);
encode(Number, _, _) when is_float(Number) -> float_to_binary(Number).

%% A list of bytes is those bytes; one with other characters is their UTF-8.
-spec bytes(iodata() | string(), epgsql:type_name()) -> iodata().
bytes(Text, Name) ->
    try iolist_size(Text) of
        _ -> Text
    catch
        error:badarg when Name =/= bytea ->
            case unicode:characters_to_binary(Text) of
                Bytes when is_binary(Bytes) -> Bytes;
                _ -> error({not_text, Name, Text})
            end
    end.

-spec decode(binary(), text | varchar | bytea, any()) -> binary().
decode(Text, _, _) -> Text.
