%% Which user numbers the store's files may say something about: a bit each.
%%
%% A number gets its bit before it is first written, and keeps it until every kept file is newer
%% than the moment when it was freed (`halley_ids_waiting'). So no damage in the files can credit
%% what belongs to the number's next id to the id before.
%%
%% A number with its bit need not be durable (`halley_ids_pages'): one that was freed is durable no
%% more, and one whose group failed never was, but files may name both.
%%
%% The bits outlive the processes that write them: the owner of the follows puts them, `halley_ids'
%% takes them away. Both may meet in one word, so each change is a compare-and-exchange.
-module(halley_ids_written).

-export([new/1, put_up_to/1, put/1, clear/1, is/1, last/2]).
-compile({no_auto_import, [put/2]}).

%% More in one word would be an integer that is allocated.
-define(BITS, 32).

-type user_number() :: halley_id:user_number().

%% No bit is set. There are bits for numbers up to `Last'.
-spec new(Last :: user_number()) -> ok.
new(Last) ->
    Size = Last div ?BITS + 1,
    persistent_term:put(?MODULE, {atomics:new(Size, [{signed, false}]), Size}).

%% Every number up to this one: nobody knows which of them older files name. For the start, before
%% anything else is put. There may be more than the limit allows, if it was lowered since.
-spec put_up_to(user_number()) -> ok.
put_up_to(Last) ->
    {_, Size} = persistent_term:get(?MODULE),
    ok = new(max(Last, Size * ?BITS - 1)),
    {Words, _} = persistent_term:get(?MODULE),
    lists:foreach(fun(Index) -> ok = atomics:put(Words, Index, (1 bsl ?BITS) - 1) end,
                  lists:seq(1, Last div ?BITS)),
    atomics:put(Words, Last div ?BITS + 1, (2 bsl (Last rem ?BITS)) - 1).

%% Before they are written: a group that fails may be on disk all the same.
-spec put([user_number()]) -> ok.
put(Numbers) -> lists:foreach(fun(N) -> change(N, fun(Word, Bit) -> Word bor Bit end) end, Numbers).

-spec clear([user_number()]) -> ok.
clear(Numbers) ->
    lists:foreach(fun(N) -> change(N, fun(Word, Bit) -> Word band bnot Bit end) end, Numbers).

change(Number, Fun) ->
    {Words, _} = persistent_term:get(?MODULE),
    Index = Number div ?BITS + 1,
    exchange(Words, Index, atomics:get(Words, Index), 1 bsl (Number rem ?BITS), Fun).

exchange(Words, Index, Word, Bit, Fun) ->
    case atomics:compare_exchange(Words, Index, Word, Fun(Word, Bit)) of
        ok -> ok;
        Other -> exchange(Words, Index, Other, Bit, Fun)
    end.

-spec is(user_number()) -> boolean().
is(Number) ->
    {Words, Size} = persistent_term:get(?MODULE),
    Index = Number div ?BITS + 1,
    Index =< Size andalso (atomics:get(Words, Index) bsr (Number rem ?BITS)) band 1 =:= 1.

%% The highest of these numbers that has its bit.
-spec last(First :: user_number(), Last :: user_number()) -> user_number() | none.
last(First, Last) when Last < First -> none;
last(First, Last) ->
    case is(Last) of
        true -> Last;
        false -> last(First, Last - 1)
    end.
