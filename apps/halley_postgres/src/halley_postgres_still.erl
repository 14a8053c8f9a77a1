%% Which pairs are in no row any more: asked of PostgreSQL, as it is now.
%%
%% The stream is late, and the query is right all the same: after the last change of a pair it sees
%% all rows. But PostgreSQL sends a transaction as soon as its commit is on disk, a moment before
%% others see it. So the answer counts only if its snapshot shows every transaction that the stream
%% has brought; else the query is repeated.
-module(halley_postgres_still).

-export([gone/3, forget/1, await/2]).

-include_lib("epgsql/include/epgsql.hrl").

-define(UNTRANSLATABLE, <<"22P05">>).
-define(NO_TEXT, <<"22021">>).
%% So many pairs are asked for in one query.
-define(ASKED, 5000).
-define(AGAIN_MS, 2).
-define(HALF, 16#80000000).

%% The types are those of the columns that the pairs come from. What was seen to be visible needn't
%% be asked for again.
-spec gone([halley_postgres_pairs:pair()], Types :: {binary(), binary()}, Env) ->
    {[halley_postgres_pairs:pair()], Env}
    when Env :: #{c := epgsql:connection(), sources := halley_postgres_follows:sources(),
                  xids := [non_neg_integer()], wait := fun(() -> term()), _ => _}.
gone(Pairs, _, #{sources := Sources} = Env) when map_size(Sources) =:= 0 ->
    {Pairs, Env};
gone(Pairs, {User, Subject} = Types, #{sources := Sources} = Env) ->
    {Typed, Other} = lists:partition(fun({U, S}) ->
        halley_postgres_sql:is_text_of(U, User) andalso halley_postgres_sql:is_text_of(S, Subject)
    end, Pairs),
    Tables = maps:values(Sources),
    {Gone, Env1} = gone(Typed, halley_postgres_sql:still(Tables, Types), Env, []),
    %% Values that these columns can't have any more.
    {More, Env2} = gone(Other, halley_postgres_sql:still(Tables, {<<"unknown">>, <<"unknown">>}),
                        Env1, []),
    {Gone ++ More, Env2}.

gone([], _, Env, Gone) ->
    {lists:append(Gone), Env};
gone(Pairs, Sql, #{c := C, xids := Xids, wait := Wait} = Env, Gone) ->
    {Asked, Rest} = lists:split(min(?ASKED, length(Pairs)), Pairs),
    {Users, Subjects} = lists:unzip(Asked),
    case epgsql:equery(C, Sql, [Users, Subjects]) of
        {ok, _, Rows} ->
            {[{null, Snapshot}], Still} = lists:partition(fun({U, _}) -> U =:= null end, Rows),
            case unseen(lists:usort(Xids), Snapshot) of
                [] ->
                    gone(Rest, Sql, Env#{xids := []},
                         [maps:keys(maps:without(Still, maps:from_keys(Asked, true))) | Gone]);
                Left ->
                    _ = Wait(),
                    timer:sleep(?AGAIN_MS),
                    gone(Pairs, Sql, Env#{xids := Left}, Gone)
            end;
        {error, #error{code = Code}} when Code =:= ?UNTRANSLATABLE; Code =:= ?NO_TEXT ->
            one_by_one(Asked, Rest, Sql, Env, Gone);
        {error, Error} -> exit({query_failed, Error})
    end.

%% The database's encoding hasn't all of these letters: no row has such a pair.
one_by_one([_] = Asked, Rest, Sql, Env, Gone) ->
    gone(Rest, Sql, Env, [Asked | Gone]);
one_by_one(Asked, Rest, Sql, Env, Gone) ->
    {First, Second} = lists:split(length(Asked) div 2, Asked),
    {More, Env1} = gone(First, Sql, Env, []),
    {Others, Env2} = gone(Second, Sql, Env1, []),
    gone(Rest, Sql, Env2, [More, Others | Gone]).

%% Transactions that all see by now. To be called before `xids' gets long.
-spec forget(Env) -> Env
    when Env :: #{c := epgsql:connection(), xids := [non_neg_integer()], _ => _}.
forget(#{c := C, xids := Xids} = Env) ->
    case epgsql:equery(C, "SELECT pg_current_snapshot()::text", []) of
        {ok, _, [{Snapshot}]} -> Env#{xids := unseen(lists:usort(Xids), Snapshot)};
        {error, Error} -> exit({query_failed, Error})
    end.

%% Waits until everybody sees these transactions.
-spec await(Xids :: [non_neg_integer()], Env) -> ok
    when Env :: #{c := epgsql:connection(), wait := fun(() -> term()), _ => _}.
await(Xids, #{wait := Wait} = Env) ->
    case forget(Env#{xids => Xids}) of
        #{xids := []} -> ok;
        #{xids := Left} ->
            _ = Wait(),
            timer:sleep(?AGAIN_MS),
            await(Left, Env)
    end.

%% `10:20:11,15': all before 10 have ended, none from 20 on has, of those between 11 and 15 haven't.
%% The stream has only the low 32 bits of a transaction's number.
unseen(Xids, Snapshot) ->
    [_, Max, Running] = binary:split(Snapshot, <<":">>, [global]),
    End = low(Max),
    InProgress = [low(Xid) || Xid <- binary:split(Running, <<",">>, [global, trim_all])],
    [Xid || Xid <- Xids, not is_before(Xid, End) orelse lists:member(Xid, InProgress)].

low(Text) -> binary_to_integer(Text) band 16#ffffffff.

is_before(Xid, End) ->
    Distance = (End - Xid) band 16#ffffffff,
    Distance > 0 andalso Distance < ?HALF.
