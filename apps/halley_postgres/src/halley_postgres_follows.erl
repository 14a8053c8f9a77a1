%% Changes of follows into the brain's store, and into the files that say which are a table's own.
%%
%% A table is the truth about its pairs: a row makes a follow, and its end ends it, even if the API
%% made the same follow. A pair that other rows have as well, of this table or another one, stays: a
%% query of PostgreSQL, as it is now, comes before each removal (`halley_postgres_still').
%%
%% The store may refuse for a while: then this waits, and so does PostgreSQL.
-module(halley_postgres_follows).

-export([changes/3, slice/1, copied/2, all_copied/1, disown/4, settle/4]).
-export_type([source/0, sources/0, change/0, slice/0]).

-include_lib("kernel/include/logger.hrl").

-type source() :: #{spec := halley_postgres_config:table(), types := {binary(), binary()},
                    is_unique := boolean(), pairs := halley_postgres_pairs:file(), _ => _}.
-type sources() :: #{Table :: binary() => source()}.
-opaque slice() :: {[halley_postgres_pairs:pair()], Block :: iodata(),
                    Bad :: [halley_postgres_pairs:pair()]}.
-type change() :: {add | remove, Table :: binary(), halley_postgres_pairs:pair()}
                | {clear, Table :: binary()}.

-define(SLICE, 100000).
%% Slices of a copy that go into the store at once.
-define(STORING, 2).
-define(BUSY_MS, 20).
-define(REFUSED_MS, 1000).
%% Transactions that a question must see all of.
-define(XIDS_MAX, 1000).

%% Takes changes of several tables in their order, made by the transactions `Xids'.
-spec changes([change()], Xids :: [non_neg_integer()], Env) -> Env
    when Env :: #{settings := halley_postgres_config:settings(), c := epgsql:connection(),
                  sources := sources(), wait := fun(() -> term()), xids := [non_neg_integer()],
                  _ => _}.
changes(Changes, Xids, #{sources := Sources, xids := Seen} = Env) ->
    case is_told_by_its_row(maps:values(Sources)) andalso not is_written(Env) of
        true -> changes(Changes, #{}, Env, 0);
        false -> bounded(changes(Changes, #{}, Env#{xids := Xids ++ Seen}, 0))
    end.

bounded(#{xids := Xids} = Env) when length(Xids) > ?XIDS_MAX -> halley_postgres_still:forget(Env);
bounded(Env) -> Env.

%% Then `settle/4' asks about pairs.
is_written(#{settings := #{writes := Table}}) -> Table =/= none.

%% No other row has a pair of the only table.
is_told_by_its_row([#{is_unique := true}]) -> true;
is_told_by_its_row(_) -> false.

%% Of a pair only the last change counts. A truncation ends what is gathered.
changes([{clear, Table} | Rest], Last, Env, N) ->
    changes(Rest, #{}, cleared(Table, settled(Last, Env)), N);
changes([{Operation, Table, Pair} | Rest], Last, Env, N) ->
    case is_pair(Pair) of
        true -> changes(Rest, latest(Operation, Table, Pair, Last), Env, N + 1);
        false ->
            ok = refused(Table, Pair),
            changes(Rest, Last, Env, N)
    end;
changes([], Last, Env, N) ->
    ok = halley_metrics:incr(postgres_changes, N),
    settled(Last, Env).

%% The last change, and the tables that have had the pair meanwhile.
latest(Operation, Table, Pair, Last) ->
    {_, Adders} = maps:get(Pair, Last, {none, []}),
    Last#{Pair => {{Operation, Table}, [Table || Operation =:= add] ++ Adders}}.

%% A file has a pair at least as long as its table: added before it is followed, removed behind.
settled(Last, Env) when map_size(Last) =:= 0 -> Env;
settled(Last, #{sources := Sources} = Env) ->
    All = maps:to_list(Last),
    Added = [{Table, {add, Pair}} || {Pair, {_, Tables}} <- All, Table <- lists:usort(Tables)],
    Env1 = Env#{sources := recorded(Added, Sources)},
    ok = follow([Pair || {Pair, {{add, _}, _}} <- All], Env1),
    Removed = maps:groups_from_list(fun({Table, _}) -> Table end, fun({_, Pair}) -> Pair end,
                                    [{Table, Pair} || {Pair, {{remove, Table}, _}} <- All]),
    maps:fold(fun(Table, Pairs, Acc) ->
        {Gone, Acc1} = removed(Table, Pairs, Acc),
        %% Of two rows that came together one went.
        Left = maps:keys(maps:without(Gone, maps:with(Pairs, Last))),
        ok = follow([Pair || Pair <- Left, {_, [_ | _]} <- [map_get(Pair, Last)]], Acc1),
        Acc1
    end, Env1, Removed).

recorded(Records, Sources) ->
    maps:fold(fun record/3, Sources,
              maps:groups_from_list(fun({Table, _}) -> Table end, fun({_, R}) -> R end, Records)).

removed(Table, Pairs, #{sources := Sources} = Env) ->
    {Gone, Env1} = case is_told_by_its_row(maps:values(Sources)) of
        true -> {Pairs, Env};
        false ->
            #{Table := #{types := Types}} = Sources,
            halley_postgres_still:gone(Pairs, Types, Env)
    end,
    ok = unfollow(Gone, Env1),
    Records = [{remove, Pair} || Pair <- Gone],
    {Gone, Env1#{sources := maps:map(fun(_, #{pairs := File} = Source) ->
        Source#{pairs := halley_postgres_pairs:append(Records, File)}
    end, Sources)}}.

record(Table, Records, Sources) ->
    #{Table := #{pairs := File} = Source} = Sources,
    Sources#{Table := Source#{pairs := halley_postgres_pairs:append(Records, File)}}.

cleared(Table, #{sources := Sources} = Env) ->
    #{Table := #{pairs := File, path := Path, types := Types}} = Sources,
    ok = halley_postgres_pairs:sync(File),
    Env1 = disown([{Path, #{}}], [], Types, Env),
    Env1#{sources := record(Table, [clear], Sources)}.

%% A slice of a table's copy, with what its file of pairs gets. Made beside the store's work.
-spec slice([halley_postgres_pairs:pair()]) -> slice().
slice(Rows) ->
    {Pairs, Bad} = lists:partition(fun is_pair/1, Rows),
    {Pairs, halley_postgres_pairs:block([{add, Pair} || Pair <- Pairs]), Bad}.

%% Into the file, then into the store by a process of its own: while that waits for the owner of the
%% follows the next one sorts its pairs. Their order doesn't matter, as a copy only adds.
-spec copied(slice(), Env) -> Env
    when Env :: #{table := binary(), pairs := halley_postgres_pairs:file(),
                  wait := fun(() -> term()), storing := [{pid(), reference()}], _ => _}.
copied({Pairs, Block, Bad}, #{pairs := File, table := Table, wait := Wait} = Env) ->
    _ = [refused(Table, Each) || Each <- Bad],
    File1 = halley_postgres_pairs:add(Block, File),
    #{storing := Storing} = Env1 = awaited(?STORING - 1, Env),
    Owner = self(),
    Next = spawn_opt(fun() -> Owner ! {stored, self(), followed(Pairs, #{wait => Wait})} end,
                     [link, monitor]),
    Env1#{pairs := File1, storing := Storing ++ [Next]}.

-spec all_copied(Env) -> Env when Env :: #{storing := [{pid(), reference()}], _ => _}.
all_copied(Env) -> awaited(0, Env).

%% Until no more than so many store. What the store refused is said here, as lines are counted where
%% they are said.
awaited(Left, #{storing := [{Pid, Monitor} | Rest] = Storing} = Env) when length(Storing) > Left ->
    receive
        {stored, Pid, Refused} ->
            true = demonitor(Monitor, [flush]),
            ok = told(Refused),
            awaited(Left, Env#{storing := Rest});
        {'DOWN', Monitor, process, Pid, Reason} -> exit(Reason)
    end;
awaited(_, Env) -> Env.

%% Ends the follows that are in files and not in others, unless rows have them now.
-spec disown([halley_postgres_owned:part()], Except :: [file:filename()],
             Types :: {binary(), binary()}, Env) ->
    Env when Env :: #{c := epgsql:connection(), sources := sources(), wait := fun(() -> term()),
                      xids := [non_neg_integer()], _ => _}.
disown(Files, Except, Types, Env) ->
    {Damaged, Env1} = halley_postgres_owned:fold(Files, Except, fun(Pairs, Acc) ->
        {Gone, Acc1} = halley_postgres_still:gone(Pairs, Types, Acc),
        ok = unfollow(Gone, Acc1),
        Acc1
    end, Env),
    Damaged =:= 0 orelse
        ?LOG_ERROR("postgres: ~b files of data.dir's folder postgres are damaged; follows that "
                   "were in the damaged part and whose rows are gone stay", [Damaged]),
    Env1.

%% Makes follows of pairs as the tables have them now, whatever they were before; gives those that
%% no row has. It is asked behind a write of ours, in the stream's order: a later change of such a
%% pair comes behind this.
-spec settle(Table :: binary(), [halley_postgres_pairs:pair()], Types :: {binary(), binary()},
             Env) -> {Gone :: [halley_postgres_pairs:pair()], Env}
    when Env :: #{c := epgsql:connection(), sources := sources(), wait := fun(() -> term()),
                  xids := [non_neg_integer()], _ => _}.
settle(Table, Pairs, Types, Env) ->
    {Gone, #{sources := Sources} = Env1} = halley_postgres_still:gone(Pairs, Types, Env),
    ok = unfollow(Gone, Env1),
    case Pairs -- Gone of
        [] -> {Gone, Env1};
        Left ->
            Env2 = Env1#{sources := record(Table, [{add, Pair} || Pair <- Left], Sources)},
            ok = follow(Left, Env2),
            {Gone, Env2}
    end.

slices([], _) -> [];
slices(List, N) when length(List) =< N -> [List];
slices(List, N) ->
    {Slice, Rest} = lists:split(N, List),
    [Slice | slices(Rest, N)].

follow(Pairs, Env) -> told(followed(Pairs, Env)).

unfollow(Pairs, Env) ->
    told(store(fun(Slice) -> halley_follows:stored(remove, Slice) end, Pairs, Env)).

%% What was refused of them.
followed(Pairs, Env) -> store(fun(Slice) -> halley_follows:stored(add, Slice) end, Pairs, Env).

store(_, [], _) -> [];
store(Change, Pairs, Env) ->
    lists:append([stored(Change, Slice, Env) || Slice <- slices(Pairs, ?SLICE)]).

%% How many, with one of them.
stored(Change, Pairs, #{wait := Wait} = Env) ->
    case Change(Pairs) of
        {ok, #{errors := Errors}} ->
            case [Error || {_, Reason} = Error <- Errors, Reason =/= self] of
                [] -> [];
                [{Index, Reason} | _] = Refused ->
                    [{length(Refused), lists:nth(Index + 1, Pairs), Reason}]
            end;
        {error, Reason} ->
            _ = Wait(),
            timer:sleep(case Reason of overloaded -> ?BUSY_MS; _ -> ?REFUSED_MS end),
            stored(Change, Pairs, Env)
    end.

told(Refused) ->
    lists:foreach(fun({Count, Pair, Reason}) ->
        ok = halley_metrics:incr(postgres_follows_refused, Count),
        halley_postgres_said:once_a_second(refused_follow, Count, fun(N) ->
            ?LOG_WARNING("postgres: ~b follows were refused; of the latest ~0tp: ~0tp",
                         [N, Pair, Reason])
        end)
    end, Refused).

%% Itself is followed by everybody, and nulls are nobody.
is_pair({Id, Id}) when is_binary(Id) -> halley_id:check(Id) =:= ok;
is_pair({User, Subject}) -> halley_id:check(User) =:= ok andalso halley_id:check(Subject) =:= ok.

refused(Table, Pair) ->
    ok = halley_metrics:incr(postgres_follows_refused),
    halley_postgres_said:once_a_second(bad_follow, 1, fun(N) ->
        ?LOG_WARNING("postgres: ~b rows of ~ts aren't follows, as an id is empty, null, too long "
                     "or has control characters; the latest: ~0tp", [N, Table, Pair])
    end).
