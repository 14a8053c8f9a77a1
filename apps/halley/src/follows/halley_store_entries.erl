%% Codec of what a group in the journal says: a row of
%%
%%   0 Count:32 (User:32 Subject:32) * Count     these are followed now, ascending
%%   1 Count:32 (User:32 Subject:32) * Count     these aren't, ascending
%%   2 Count:32 (Number:32 Length:8 Id) * Count  these numbers are these ids now, ascending
%%   3 Count:32 Number:32 * Count                these numbers are unused now, ascending
%%
%% A change says what is to be, so the last one about a pair or a number decides, and applying
%% entries twice, or to tables that saw some of them, gives the same. Bytes in, bytes out: the
%% checksum of the record around them is `halley_store_record''s.
-module(halley_store_entries).

-export([pairs/2, names/1, freed/1, fold/3]).
-export_type([entries/0]).

-type entries() :: binary().

-define(ADD, 0).
-define(REMOVE, 1).
-define(NAME, 2).
-define(FREE, 3).

-spec pairs(halley_pages:operation(), halley_pages:packed()) -> iodata().
pairs(_, <<>>) -> [];
pairs(Operation, Pairs) ->
    Code = case Operation of add -> ?ADD; remove -> ?REMOVE end,
    [<<Code, (byte_size(Pairs) div 8):32>>, Pairs].

-spec names([{halley_id:user_number(), halley_id:id()}]) -> iodata().
names([]) -> [];
names(Names) ->
    [<<?NAME, (length(Names)):32>>,
     [[<<Number:32, (byte_size(Id))>>, Id] || {Number, Id} <- Names]].

-spec freed([halley_id:user_number()]) -> iodata().
freed([]) -> [];
freed(Numbers) -> [<<?FREE, (length(Numbers)):32>>, << <<N:32>> || N <- Numbers >>].

%% Folds over entries. A body with anything else passed its checksum and is not one of ours.
-spec fold(fun((Entry, Acc) -> Acc), Acc, entries()) -> Acc when
      Entry :: {halley_pages:operation(), halley_pages:packed()}
             | {names, [{halley_id:user_number(), halley_id:id()}]}
             | {freed, [halley_id:user_number()]}.
fold(Fun, Acc, <<?ADD, Count:32, Pairs:Count/binary-unit:64, Rest/binary>>) ->
    fold(Fun, Fun({add, Pairs}, Acc), Rest);
fold(Fun, Acc, <<?REMOVE, Count:32, Pairs:Count/binary-unit:64, Rest/binary>>) ->
    fold(Fun, Fun({remove, Pairs}, Acc), Rest);
fold(Fun, Acc, <<?NAME, Count:32, Rest/binary>>) ->
    {Names, Behind} = take_names(Count, Rest, []),
    fold(Fun, Fun({names, Names}, Acc), Behind);
fold(Fun, Acc, <<?FREE, Count:32, Numbers:Count/binary-unit:32, Rest/binary>>) ->
    fold(Fun, Fun({freed, [N || <<N:32>> <= Numbers]}, Acc), Rest);
fold(_, Acc, <<>>) ->
    Acc.

take_names(0, Rest, Names) -> {lists:reverse(Names), Rest};
take_names(Count, <<Number:32, Length, Id:Length/binary, Rest/binary>>, Names) ->
    take_names(Count - 1, Rest, [{Number, Id} | Names]).
