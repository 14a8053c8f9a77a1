%% Which sessions are subscribed to a subject: what a publish asks.
%%
%% For each subject the words of its sessions (`halley_directory': link slot and connection id), in
%% ascending order, in pages of at most ?PAGE_WORDS: rows {{Subject, Fence}, Words} of an ETS
%% ordered_set. One process writes (`halley_subscriptions'), anyone reads without locks.
%%
%% Invariants, for every reader at every moment: a page holds only words from its fence on; every
%% word is in some page, as a page that splits writes its right half before it shrinks. So a reader
%% may meet a word twice, never miss one, and drops what it meets twice. A page that becomes empty
%% is deleted, and with the last page of a subject nothing of the subject is left.
%%
%% A word names one connection for ever (protocol/link.md 2.4), so a reader that is late names one
%% that is gone, never another's.
%%
%% `Filter': how many subjects there are for each hash. A look-up of a subject without subscribers
%% reads no more than a cell of it; before the first subscription there is none.
-module(halley_subscriptions_table).

-export([new/0, add/2, remove/2, words/1, words/2, count/1, has_any/1, keys/1, clear/0]).

-define(FILTER, {?MODULE, filter}).
%% 2 MB, from the first subscription on.
-define(FILTER_CELLS, (1 bsl 18)).
-define(PAGE_WORDS, 256).
-define(CONN_BITS, 48).

-type word() :: halley_directory:word().

-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [ordered_set, public, named_table, {read_concurrency, true}]),
    ok.

%% Only the one writer adds and removes.
-spec add(halley_id:id(), word()) -> ok.
add(Subject, Word) ->
    case ets:prev(?MODULE, {Subject, Word + 1}) of
        {Subject, Fence} ->
            [{_, Words}] = ets:lookup(?MODULE, {Subject, Fence}),
            put_page(Subject, Fence, insert(Words, Word));
        _ ->
            ok = counted(Subject, 1),
            ok = put_page(Subject, 0, <<Word:64>>),
            hooked(fun halley_hooked:came/1, Subject)
    end.

%% Words mostly come in ascending order. A page is built whole: what is appended to has room to
%% grow, outside of the table.
insert(Words, Word) ->
    At = position(Words, Word, 0, byte_size(Words) div 8),
    case Words of
        <<_:At/binary-unit:64, Word:64, _/binary>> -> Words;
        <<Below:At/binary-unit:64, Above/binary>> ->
            iolist_to_binary([Below, <<Word:64>>, Above])
    end.

%% How many words of a page are below this one.
position(_, _, From, From) ->
    From;
position(Words, Word, From, To) ->
    Middle = (From + To) div 2,
    <<_:Middle/binary-unit:64, Found:64, _/binary>> = Words,
    case Found < Word of
        true -> position(Words, Word, Middle + 1, To);
        false -> position(Words, Word, From, Middle)
    end.

put_page(Subject, Fence, Words) when byte_size(Words) =< 8 * ?PAGE_WORDS ->
    true = ets:insert(?MODULE, {{Subject, Fence}, Words}),
    ok;
put_page(Subject, Fence, Words) ->
    %% The last page of a subject grows at its end: it is left full.
    Left = case ets:next(?MODULE, {Subject, Fence}) of
        {Subject, _} -> ?PAGE_WORDS div 2;
        _ -> ?PAGE_WORDS - 1
    end,
    <<Lower:Left/binary-unit:64, Upper/binary>> = Words,
    <<First:64, _/binary>> = Upper,
    true = ets:insert(?MODULE, {{Subject, First}, binary:copy(Upper)}),
    true = ets:insert(?MODULE, {{Subject, Fence}, binary:copy(Lower)}),
    ok.

-spec remove(halley_id:id(), word()) -> ok.
remove(Subject, Word) ->
    case ets:prev(?MODULE, {Subject, Word + 1}) of
        {Subject, Fence} ->
            [{_, Words}] = ets:lookup(?MODULE, {Subject, Fence}),
            At = position(Words, Word, 0, byte_size(Words) div 8),
            case Words of
                <<Word:64>> ->
                    true = ets:delete(?MODULE, {Subject, Fence}),
                    left(Subject, ets:next(?MODULE, {Subject, -1}));
                <<Below:At/binary-unit:64, Word:64, Above/binary>> ->
                    Rest = iolist_to_binary([Below, Above]),
                    true = ets:insert(?MODULE, {{Subject, Fence}, Rest}),
                    ok;
                _ ->
                    ok
            end;
        _ ->
            ok
    end.

left(Subject, {Subject, _}) -> ok;
left(Subject, _) ->
    ok = counted(Subject, -1),
    hooked(fun halley_hooked:left/1, Subject).

%% Of what isn't an id nobody is told.
hooked(Tell, Subject) ->
    case halley_own:is_id(Subject) of
        true -> Tell({subject, Subject});
        false -> ok
    end.

%% Before the first page of a subject, and behind its last: never lower than what readers find.
counted(Subject, N) ->
    atomics:add(filter(persistent_term:get(?FILTER, none)), cell(Subject), N).

filter(none) ->
    Filter = atomics:new(?FILTER_CELLS, []),
    persistent_term:put(?FILTER, Filter),
    Filter;
filter(Filter) ->
    Filter.

cell(Subject) ->
    erlang:phash2(Subject, ?FILTER_CELLS) + 1.

%% Those of a subject, ascending.
-spec words(halley_id:id()) -> [word()].
words(Subject) ->
    case has_some(Subject) of
        true -> words(Subject, ets:next(?MODULE, {Subject, -1}), -1, []);
        false -> []
    end.

%% Those at these slots.
-spec words(halley_id:id(), halley_fanout:there()) -> [word()].
words(Subject, Slots) ->
    [Word || Word <- words(Subject), is_map_key(Word bsr ?CONN_BITS, Slots)].

%% How many there are; while a page splits it may count some of them twice.
-spec count(halley_id:id()) -> non_neg_integer().
count(Subject) ->
    case has_some(Subject) of
        true -> count(Subject, ets:next(?MODULE, {Subject, -1}), 0);
        false -> 0
    end.

count(Subject, {Subject, _} = Key, Count) ->
    Here = case ets:lookup(?MODULE, Key) of
        [{_, Words}] -> byte_size(Words) div 8;
        [] -> 0
    end,
    count(Subject, ets:next(?MODULE, Key), Count + Here);
count(_, _, Count) ->
    Count.

next('$end_of_table') -> {none, none};
next(Key) -> Key.

%% All that begin with this and have one.
-spec keys(Prefix :: binary()) -> [binary()].
keys(Prefix) -> keys(Prefix, next(ets:next(?MODULE, {Prefix, -1}))).

keys(_, {none, _}) ->
    [];
keys(Prefix, {Key, _}) ->
    case binary:longest_common_prefix([Prefix, Key]) =:= byte_size(Prefix) of
        true -> [Key | keys(Prefix, next(ets:next(?MODULE, {Key, infinity})))];
        false -> []
    end.

has_some(Subject) ->
    case persistent_term:get(?FILTER, none) of
        none -> false;
        Filter -> atomics:get(Filter, cell(Subject)) > 0
    end.

%% Whether any session is subscribed to it.
-spec has_any(halley_id:id()) -> boolean().
has_any(Subject) ->
    case has_some(Subject) andalso ets:next(?MODULE, {Subject, -1}) of
        {Subject, _} -> true;
        _ -> false
    end.

%% Above `Last'.
words(Subject, {Subject, _} = Key, Last, Acc) ->
    {NewLast, Found} = case ets:lookup(?MODULE, Key) of
        [{_, Words}] -> page(Words, Last, Acc);
        [] -> {Last, Acc}
    end,
    words(Subject, ets:next(?MODULE, Key), NewLast, Found);
words(_, _, _, Acc) ->
    lists:reverse(Acc).

page(<<Word:64, Rest/binary>>, Last, Acc) when Word =< Last -> page(Rest, Last, Acc);
page(<<Word:64, Rest/binary>>, _, Acc) -> page(Rest, Word, [Word | Acc]);
page(<<>>, Last, Acc) -> {Last, Acc}.

-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    persistent_term:get(?FILTER, none) =:= none
        orelse persistent_term:put(?FILTER, atomics:new(?FILTER_CELLS, [])),
    halley_hooked:left(all).
