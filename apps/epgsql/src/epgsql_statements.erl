%% The statements that a connection has prepared and keeps, by their text.
%%
%% At most as many as its bound: the one that was used the longest ago goes. Its name is kept until
%% a close for it was sent, with the next statement that is prepared. The caller decides what is
%% kept for a statement. A cache is an ETS table, so that one statement is read without copying the
%% others; it belongs to the process that made it, which may give it away.
-module(epgsql_statements).

-export([new/1, delete/1, is_there/1, find/2, name/1, add/4, forget/2, clear/1, to_close/1,
         give_away/2]).

-export_type([cache/0]).

%% Within 10 ms a use isn't written down again.
-define(FRESH, erlang:convert_time_unit(10, millisecond, native)).

-record(cache, {table :: ets:table(), max :: pos_integer()}).
-opaque cache() :: #cache{}.

-spec new(pos_integer()) -> cache().
new(Max) ->
    Table = ets:new(?MODULE, [set, public]),
    true = ets:insert(Table, [{next, 0}, {close, []}]),
    #cache{table = Table, max = Max}.

-spec delete(cache()) -> ok.
delete(#cache{table = Table}) ->
    true = ets:delete(Table),
    ok.

-spec is_there(cache()) -> boolean().
is_there(#cache{table = Table}) -> ets:info(Table, size) =/= undefined.

-spec find(binary(), cache()) -> {ok, any()} | none.
find(Sql, #cache{table = Table}) ->
    case ets:lookup(Table, Sql) of
        [{_, Used, _, Kept}] ->
            Now = erlang:monotonic_time(),
            _ = Now - Used > ?FRESH andalso ets:update_element(Table, Sql, {2, Now}),
            {ok, Kept};
        [] -> none
    end.

%% A name that this connection has given to no statement yet.
-spec name(cache()) -> binary().
name(#cache{table = Table}) ->
    <<"epgsql_", (integer_to_binary(ets:update_counter(Table, next, 1)))/binary>>.

-spec add(binary(), Name :: binary(), any(), cache()) -> ok.
add(Sql, Name, Kept, #cache{table = Table, max = Max} = Cache) ->
    ok = forget(Sql, Cache),
    ok = make_room(ets:info(Table, size) - 2 >= Max, Cache),
    true = ets:insert(Table, {Sql, erlang:monotonic_time(), Name, Kept}),
    ok.

make_room(false, _) -> ok;
make_room(true, #cache{table = Table} = Cache) ->
    [_, Oldest] = lists:min(ets:match(Table, {'$2', '$1', '_', '_'})),
    forget(Oldest, Cache).

%% It isn't what it was, or isn't there any more.
-spec forget(binary(), cache()) -> ok.
forget(Sql, #cache{table = Table}) ->
    case ets:take(Table, Sql) of
        [{_, _, Name, _}] ->
            true = ets:insert(Table, {close, [Name | ets:lookup_element(Table, close, 2)]}),
            ok;
        [] -> ok
    end.

%% After DISCARD and DEALLOCATE: what is left at the server isn't known.
-spec clear(cache()) -> ok.
clear(#cache{table = Table} = Cache) ->
    lists:foreach(fun([Sql]) -> forget(Sql, Cache) end, ets:match(Table, {'$1', '_', '_', '_'})).

%% The names that the server shall be told to close, once.
-spec to_close(cache()) -> [binary()].
to_close(#cache{table = Table}) ->
    Names = ets:lookup_element(Table, close, 2),
    true = ets:insert(Table, {close, []}),
    Names.

-spec give_away(cache(), pid()) -> ok.
give_away(#cache{table = Table}, Pid) ->
    true = ets:give_away(Table, Pid, statements),
    ok.
