%% hstore: `{[{Key, Value}]}', or a map or a list by the option `return => map | proplist'; values
%% are binaries, or NULL by the option `nulls'. Keys and values may be written as atoms and numbers.
%%
%% An extension's type: `CREATE EXTENSION hstore' is the application's.
-module(epgsql_codec_hstore).
-behaviour(epgsql_codec).

-include("protocol.hrl").

-export([init/2, names/0, encode/3, decode/3]).

-record(hstore, {return :: jiffy | map | proplist, nulls :: [any(), ...]}).

-spec init(#{return => jiffy | map | proplist, nulls => [any(), ...]} | [],
           epgsql_sock:pg_sock()) -> #hstore{}.
init([], Session) -> init(#{}, Session);
init(Options, _) ->
    #hstore{return = maps:get(return, Options, jiffy),
            nulls = maps:get(nulls, Options, [null, undefined])}.

-spec names() -> [hstore].
names() -> [hstore].

-spec encode(map() | {list()}, hstore, #hstore{}) -> iodata().
encode(Map, hstore, State) when is_map(Map) -> pairs(maps:to_list(Map), State);
encode({Pairs}, hstore, State) when is_list(Pairs) -> pairs(Pairs, State).

pairs(Pairs, #hstore{nulls = Nulls}) ->
    [<<(length(Pairs)):32>>
     | [[text(Key) | case lists:member(Value, Nulls) of
                         true -> <<-1:32>>;
                         false -> text(Value)
                     end] || {Key, Value} <- Pairs]].

text(Text) when is_binary(Text) -> [<<(byte_size(Text)):32>> | Text];
text(Text) when is_list(Text) -> text(iolist_to_binary(Text));
text(Atom) when is_atom(Atom) -> text(atom_to_binary(Atom));
text(Number) when is_integer(Number) -> text(integer_to_binary(Number));
text(Number) when is_float(Number) -> text(float_to_binary(Number, [short])).

-spec decode(binary(), hstore, #hstore{}) -> map() | {list()} | list().
decode(<<Count:32, Bin/binary>>, hstore, #hstore{return = Return, nulls = [Null | _]}) ->
    Pairs = read(Count, Bin, Null),
    case Return of
        jiffy -> {Pairs};
        map -> maps:from_list(Pairs);
        proplist -> Pairs
    end.

read(0, <<>>, _) -> [];
read(Count, <<KeySize:32, Key:KeySize/binary, -1:?int32, Rest/binary>>, Null) ->
    [{Key, Null} | read(Count - 1, Rest, Null)];
read(Count, <<KeySize:32, Key:KeySize/binary, Size:32, Value:Size/binary, Rest/binary>>, Null) ->
    [{Key, Value} | read(Count - 1, Rest, Null)].
