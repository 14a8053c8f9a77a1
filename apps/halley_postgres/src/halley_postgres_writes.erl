%% Changes of follows by Halley's own API, written into the table: `halley_follows_backend' calls
%% this with `store.backend = postgres'.
%%
%% One statement, a transaction of its own, changes up to 1,000 pairs and leaves a message with its
%% outcome. The stream brings the message after the changes, and then the caller is answered: the
%% change is committed, and in effect here. Where a connection ends at a commit, the same message
%% shows whether it was one. A change that hasn't come back in time is answered with what is known
%% of it; a repetition does no harm.
%%
%% Bounds on follows and new ids are looked at before a row is written. Pairs that a follow from
%% before this table stands for, or a row that was refused once, are settled by the stream's process
%% (`halley_postgres_follows:settle/4').
-module(halley_postgres_writes).

-export([change/2, pool/1, gauges/0]).

-include_lib("kernel/include/logger.hrl").
-include_lib("epgsql/include/epgsql.hrl").

-define(POOL, halley_postgres_writers).
-define(CONNECTIONS, 8).
-define(IDLE_MS, 60000).
-define(SLICE, 1000).
%% After a deadlock, or when transactions can't be put into an order.
-define(TRIES, 3).
%% Of the time of a change: the rest is for its way back.
-define(STATEMENT_PERCENT, 70).

-type pair() :: halley_postgres_pairs:pair().
-type numbered() :: [{Index :: non_neg_integer(), pair()}].
-type errors() :: [{Index :: non_neg_integer(), halley_follows:error()}].

%% What the supervisor starts: connections that are opened when somebody writes.
-spec pool(halley_postgres_config:server()) -> supervisor:child_spec().
pool(Server) ->
    epgsql_pool:child_spec(?POOL, #{
        connect => halley_postgres_connection:options(Server, writes),
        opened => fun(C) -> halley_postgres_connection:settle(C, writes) end, size => ?CONNECTIONS,
        min => 0, idle_ms => ?IDLE_MS, queue_max => halley_limits:get(postgres_writes_max)}).

%% Of the pool, on /metrics.
-spec gauges() -> ok.
gauges() ->
    Counted = [{postgres_pool_waiting, waiting}, {postgres_pool_taken, taken},
               {postgres_pool_waited, waited}, {postgres_pool_refused, refused},
               {postgres_pool_timed_out, timed_out}, {postgres_pool_opened, opened},
               {postgres_pool_closed, closed}, {postgres_pool_failed, failed}],
    halley_metrics:gauges([postgres_pool_connections | [Name || {Name, _} <- Counted]], fun() ->
        case epgsql_pool:metrics(?POOL) of
            #{} = Said ->
                maps:from_list(
                    [{postgres_pool_connections,
                      [{["state=\"", atom_to_list(State), "\""], map_get(State, Said)}
                       || State <- [idle, in_use, opening]]}
                     | [{Name, map_get(Its, Said)} || {Name, Its} <- Counted]]);
            {error, no_pool} -> #{}
        end
    end).

-spec change(halley_follows:asked(), [pair()]) -> halley_follows:changed().
change(Operation, Pairs) ->
    case change(Operation, Pairs, 0, 0, []) of
        {ok, Changed, Errors} ->
            ok = halley_metrics:incr(postgres_writes, Changed),
            {ok, Changed, length(Pairs) - Changed - length(Errors), Errors};
        {error, Reason} = Error ->
            _ = [halley_metrics:incr(Metric) || {Why, Metric} <- failures(), Why =:= Reason],
            Error
    end.

failures() ->
    [{postgres_away, postgres_writes_away}, {postgres_unknown, postgres_writes_unknown},
     {postgres_late, postgres_writes_late}].

change(_, [], _, Changed, Errors) ->
    {ok, Changed, lists:append(lists:reverse(Errors))};
change(Operation, Pairs, Index, Changed, Errors) ->
    {Slice, Rest} = lists:split(min(?SLICE, length(Pairs)), Pairs),
    case slice(Operation, Slice) of
        {ok, More, Failed} ->
            Placed = [{Index + I, Reason} || {I, Reason} <- lists:keysort(1, Failed)],
            change(Operation, Rest, Index + ?SLICE, Changed + More, [Placed | Errors]);
        {error, _} = Error -> Error
    end.

slice(Operation, Pairs) ->
    case {halley_postgres_waiting:target(), halley_follows:admitted(Operation, Pairs)} of
        {none, _} -> {error, postgres_away};
        {_, {error, _} = Error} -> Error;
        {{ok, Target}, {ok, Numbered, Errors}} ->
            {Fitting, Others} = fitting(Numbered, Target),
            Kind = kind(Operation),
            case written(Kind, Fitting, Target) of
                {ok, Done, Failed} ->
                    Strange = [not_of_table(I, Target) || {I, _} <- Others],
                    case settled(Kind, Numbered, Done, Failed ++ Strange, Target) of
                        {ok, Changed, More} -> {ok, length(Changed), Errors ++ More};
                        {error, _} = Error -> Error
                    end;
                {error, _} = Error -> Error
            end
    end.

kind({add, _}) -> add;
kind(remove) -> remove.

fitting(Numbered, #{types := {UserType, SubjectType}}) ->
    lists:partition(fun({_, {User, Subject}}) ->
        halley_postgres_sql:is_text_of(User, UserType)
            andalso halley_postgres_sql:is_text_of(Subject, SubjectType)
    end, Numbered).

not_of_table(Index, #{types := {Type, Type}}) -> {Index, {not_of_table, Type}};
not_of_table(Index, #{types := {UserType, SubjectType}}) ->
    {Index, {not_of_table, <<UserType/binary, " or ", SubjectType/binary>>}}.

%% --- what has come back, and isn't so yet --------------------------------------------------------

%% What can't be in the table isn't in it: to unfollow it is no error.
settled(remove, Numbered, Done, Failed, #{types := Types} = Target) ->
    Elsewhere = [Each || {_, followed_elsewhere} = Each <- Failed],
    Left = [Each || {I, Pair} = Each <- Numbered, not lists:keymember(I, 1, Elsewhere),
                    is_followed(Pair)],
    {Strange, Own} = lists:partition(fun({I, _}) -> lists:keymember(I, 1, Failed) end, Left),
    case {settle(Own, Types, Target), settle(Strange, {<<"unknown">>, <<"unknown">>}, Target)} of
        {{ok, _}, {ok, _}} ->
            Kept = Elsewhere ++ [{I, followed_elsewhere} || {I, Pair} <- Strange,
                                                            is_followed(Pair)],
            Ended = [I || {I, Pair} <- Left, not is_followed(Pair)],
            {ok, lists:usort(Done ++ Ended) -- [I || {I, _} <- Kept], Kept};
        {{error, _} = Error, _} -> Error;
        {_, {error, _} = Error} -> Error
    end;
settled(add, Numbered, Done, Failed, Target) ->
    ok = halley_metrics:incr(postgres_writes_refused, length(Failed)),
    case settled_new(without(Done, Failed, Numbered), Target, ?TRIES) of
        {ok, More, Refused} -> {ok, Done ++ More, Failed ++ Refused};
        {error, _} = Error -> Error
    end.

%% Neither new nor there: either somebody has removed it just now, or the table takes no such row,
%% as its trigger leaves it out. Trying again tells.
settled_new(Numbered, #{types := Types} = Target, Tries) ->
    Left = [Each || {_, Pair} = Each <- Numbered, not is_followed(Pair)],
    case settle(Left, Types, Target) of
        {ok, []} -> {ok, [], []};
        {ok, Gone} when Tries > 0 ->
            Again = [Each || {_, Pair} = Each <- Left, lists:member(Pair, Gone)],
            case written(add, Again, Target) of
                {ok, Done, Failed} ->
                    Rest = without(Done, Failed, Again),
                    case settled_new(Rest, Target, Tries - 1) of
                        {ok, More, Refused} -> {ok, Done ++ More, Failed ++ Refused};
                        {error, _} = Error -> Error
                    end;
                {error, _} = Error -> Error
            end;
        {ok, Gone} ->
            {ok, [], [{I, refused_by_table} || {I, Pair} <- Left, lists:member(Pair, Gone)]};
        {error, _} = Error -> Error
    end.

without(Done, Failed, Numbered) ->
    Known = maps:from_keys(Done ++ [I || {I, _} <- Failed], true),
    [Each || {I, _} = Each <- Numbered, not is_map_key(I, Known)].

is_followed({User, Subject}) ->
    case {halley_ids:lookup(User), halley_ids:lookup(Subject)} of
        {U, S} when is_integer(U), is_integer(S) -> halley_follows_graph:is_follower(U, S);
        _ -> false
    end.

%% Asks the stream's process to look at the tables and make the follows as they are there. Gives the
%% pairs that no row has.
settle([], _, _) -> {ok, []};
settle(Numbered, Types, #{worker := Worker, table := #{text := Table}}) ->
    Reference = alias([reply]),
    Worker ! {settle, Reference, Table, [Pair || {_, Pair} <- Numbered], Types},
    receive {Reference, Gone} -> {ok, Gone}
    after halley_limits:get(postgres_write_ms_max) ->
        _ = unalias(Reference),
        receive {Reference, Gone} -> {ok, Gone} after 0 -> {error, postgres_late} end
    end.

%% --- a statement ---------------------------------------------------------------------------------

%% What a row of it breaks the table's rules with is found by halves.
-spec written(add | remove, numbered(), halley_postgres_waiting:target()) ->
    {ok, Done :: [non_neg_integer()], errors()} | {error, halley_follows:failure()}.
written(_, [], _) -> {ok, [], []};
written(Kind, Numbered, Target) ->
    case {asked(Kind, [Pair || {_, Pair} <- Numbered], Target, ?TRIES), Numbered} of
        {{done, Done, Bad, Elsewhere}, _} ->
            Indexes = list_to_tuple([I || {I, _} <- Numbered]),
            {ok, [element(Place, Indexes) || Place <- Done],
             [not_of_table(element(Place, Indexes), Target) || Place <- Bad]
             ++ [{element(Place, Indexes), followed_elsewhere} || Place <- Elsewhere]};
        {{refused, not_of_table}, [{Index, _}]} -> {ok, [], [not_of_table(Index, Target)]};
        {{refused, Reason}, [{Index, _}]} -> {ok, [], [{Index, Reason}]};
        {{refused, _}, _} ->
            {First, Second} = lists:split(length(Numbered) div 2, Numbered),
            both(written(Kind, First, Target), fun() -> written(Kind, Second, Target) end);
        {{error, _} = Error, _} -> Error
    end.

both({error, _} = Error, _) -> Error;
both({ok, Done, Failed}, Second) ->
    case Second() of
        {ok, More, Others} -> {ok, Done ++ More, Failed ++ Others};
        {error, _} = Error -> Error
    end.

asked(Kind, Pairs, Target, Tries) ->
    MsMax = halley_limits:get(postgres_write_ms_max),
    UntilMs = erlang:monotonic_time(millisecond) + MsMax,
    case halley_postgres_waiting:enter(UntilMs) of
        full -> {error, overloaded};
        {ok, {Token, Reference} = Place} ->
            {Users, Subjects} = lists:unzip(Pairs),
            Ms = MsMax * ?STATEMENT_PERCENT div 100,
            Answer = epgsql_pool:equery(?POOL, halley_postgres_sql:write(Kind, Target),
                                        [Users, Subjects, Token], #{wait_ms => Ms, timeout => Ms}),
            Outcome = case outcome(Answer) of
                committed -> come(Reference, UntilMs, postgres_late);
                unknown -> come(Reference, UntilMs, postgres_unknown);
                Other -> Other
            end,
            ok = halley_postgres_waiting:leave(Place),
            case Outcome of
                again when Tries > 1 -> asked(Kind, Pairs, Target, Tries - 1);
                again -> {error, postgres_away};
                _ -> Outcome
            end
    end.

%% An error of the server has undone the transaction; one that ends the connection may have come
%% behind its commit.
outcome({ok, _, _}) -> committed;
outcome({error, pool_full}) -> {error, overloaded};
outcome({error, Reason}) when Reason =:= pool_timeout; Reason =:= no_pool ->
    {error, postgres_away};
outcome({error, {no_connection, Reason}}) ->
    ok = said("PostgreSQL can't be written: ", halley_postgres_connection:explain(Reason)),
    {error, postgres_away};
outcome({error, #error{severity = error, code = <<"40", _/binary>>}}) -> again;
outcome({error, #error{severity = error, code = <<"22", _/binary>>}}) -> {refused, not_of_table};
outcome({error, #error{severity = error, code = <<Class:2/binary, _/binary>>, message = Message}})
  when Class =:= <<"23">>; Class =:= <<"44">>; Class =:= <<"P0">> ->
    ok = said("the table refuses a follow that was asked for here: ", Message),
    {refused, refused_by_table};
outcome({error, #error{severity = error} = Error}) ->
    ok = said("follows that were asked for here aren't written: ",
              halley_postgres_connection:explain(Error)),
    {error, postgres_away};
outcome({error, _}) -> unknown.

said(What, Why) ->
    halley_postgres_said:once_a_second(written, 1, fun(_) ->
        ?LOG_WARNING("postgres: ~ts~ts", [What, Why])
    end).

come(Reference, UntilMs, Reason) ->
    receive {Reference, Said} -> done(binary:split(Said, <<" ">>, [global]))
    after max(0, UntilMs - erlang:monotonic_time(millisecond)) -> {error, Reason}
    end.

%% As `halley_postgres_sql:write/2' writes it.
done([Done, Bad, Elsewhere]) ->
    {done, places(Done), places(Bad), places(Elsewhere)}.

places(<<"-">>) -> [];
places(Text) -> [binary_to_integer(Place) || Place <- binary:split(Text, <<",">>, [global])].
