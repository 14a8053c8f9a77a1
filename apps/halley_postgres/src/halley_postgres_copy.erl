%% The rows of a table's copy, as pairs, in slices. A process of its own reads them and makes the
%% next slice of them while the caller puts one into the store, whose disk takes its time.
%%
%% One slice waits for the caller at most, and one is being made: then PostgreSQL waits. The reader
%% ends with its caller; if it fails, or hears nothing for too long, the caller ends by its reason.
-module(halley_postgres_copy).

-export([fold/6]).

-define(SLICE, 20000).

%% `Make' makes a slice, in the reader.
-spec fold(epgsql:connection(), epgsql:sql_query(), SilentMs :: pos_integer(),
           Make :: fun(([halley_postgres_pairs:pair()]) -> Slice), fun((Slice, Acc) -> Acc), Acc) ->
          {ok, Count :: non_neg_integer(), Acc} | {error, term()}.
fold(C, Sql, SilentMs, Make, Fun, Acc) ->
    Owner = self(),
    Tag = make_ref(),
    {Reader, Monitor} = spawn_opt(fun() -> read(C, Sql, SilentMs, Make, {Owner, Tag}) end,
                                  [link, monitor]),
    Result = slices(Tag, Reader, Monitor, Fun, Acc),
    true = unlink(Reader),
    true = demonitor(Monitor, [flush]),
    Result.

slices(Tag, Reader, Monitor, Fun, Acc) ->
    receive
        {Tag, slice, Slice} ->
            Reader ! {Tag, taken},
            slices(Tag, Reader, Monitor, Fun, Fun(Slice, Acc));
        {Tag, over, {ok, Count}} -> {ok, Count, Acc};
        {Tag, over, {error, _} = Error} -> Error;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end.

read(C, Sql, SilentMs, Make, {Owner, Tag} = To) ->
    Watch = halley_postgres_silence:watch(SilentMs),
    Ahead = fun(Lines, {N, Pairs, IsTaken}) ->
        case {N + length(Lines), made(Lines, Pairs)} of
            {More, All} when More >= ?SLICE ->
                ok = halley_postgres_silence:busy(Watch),
                ok = give(Make(lists:reverse(All)), IsTaken, To),
                ok = halley_postgres_silence:waits(Watch),
                {0, [], false};
            {More, All} -> {More, All, IsTaken}
        end
    end,
    Result = epgsql:copy_to_stdout(epgsql:with_timeout(C, infinity), Sql, Ahead, {0, [], true}),
    ok = halley_postgres_silence:over(Watch),
    Owner ! {Tag, over, case Result of
                            {ok, Count, {_, Last, IsTaken}} ->
                                ok = give(Make(lists:reverse(Last)), IsTaken, To),
                                {ok, Count};
                            {error, _} = Error -> Error
                        end},
    ok.

%% Last first.
made(Lines, Pairs) ->
    lists:foldl(fun(Line, Acc) -> [halley_postgres_copy_row:pair(Line) | Acc] end, Pairs, Lines).

give(Slice, IsTaken, {Owner, Tag}) ->
    ok = case IsTaken of
             true -> ok;
             false -> receive {Tag, taken} -> ok end
         end,
    Owner ! {Tag, slice, Slice},
    ok.
