%% Damaged stores: one to damage, and what may happen to its files.
-module(halley_damage_helper).

-export([aged_store/1, copy/2, damage/3, damage/4, names/1, pairs/2]).

-import(halley_store_helper, [id/1, agree/0]).

%% A store with two checkpoints and groups since, stopped, and an older copy of it.
aged_store(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "store"),
    Older = Dir ++ "-older",
    Sup = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:follow(pairs(1, 2000)),
    ok = halley_follows_owner:checkpoint(),
    {ok, _} = halley_follows:follow(pairs(2000, 1000)),
    ok = halley_follows_owner:checkpoint(),
    {ok, _} = halley_follows:follow(pairs(5000, 50)),
    halley_store_helper:close(Sup),
    copy(Dir, Older),
    Again = halley_store_helper:open(Dir),
    {ok, _} = halley_follows:unfollow(pairs(1, 100)),
    {ok, _} = halley_follows:follow(pairs(6000, 50)),
    Pairs = lists:sort(agree()),
    Names = names(Pairs),
    halley_store_helper:close(Again),
    {Dir, Older, Pairs, Names}.

%% Whose number each one is.
names(Pairs) ->
    Ids = lists:usort(lists:append([[U, S] || {U, S} <- Pairs])),
    [{Id, halley_ids:lookup(Id)} || Id <- Ids].

copy(From, To) -> "" = os:cmd("cp -a " ++ From ++ " " ++ To).

damage(Dir, Older, State) ->
    Files = filelib:wildcard("follows.position", Dir) ++ filelib:wildcard("follows/*", Dir),
    {I, State1} = rand:uniform_s(length(Files), State),
    {K, State2} = rand:uniform_s(4, State1),
    {X, State3} = rand:uniform_s(State2),
    Name = lists:nth(I, Files),
    Path = filename:join(Dir, Name),
    Kind = lists:nth(K, [flip, cut, remove, older]),
    ok = damage(Kind, X, Path, filename:join(Older, Name)),
    {{Kind, X, Name}, State3}.

damage(flip, X, Path, _) ->
    {ok, Bytes} = file:read_file(Path),
    At = trunc(X * byte_size(Bytes)),
    <<Before:At/binary, Byte, After/binary>> = Bytes,
    Bit = 1 bsl (trunc(X * 1000003) rem 8),
    file:write_file(Path, <<Before/binary, (Byte bxor Bit), After/binary>>);
damage(cut, X, Path, _) ->
    {ok, Bytes} = file:read_file(Path),
    file:write_file(Path, binary_part(Bytes, 0, trunc(X * byte_size(Bytes))));
damage(remove, _, Path, _) ->
    file:delete(Path);
damage(older, _, Path, Older) ->
    case filelib:is_regular(Older) of
        true -> {ok, _} = file:copy(Older, Path), ok;
        false -> ok
    end.

pairs(First, Count) ->
    [{id(N), <<"s", (id(N rem 37))/binary>>} || N <- lists:seq(First, First + Count - 1)].
