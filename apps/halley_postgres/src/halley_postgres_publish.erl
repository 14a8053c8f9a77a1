%% The end of events that have been published or refused: messages that can't be events go into
%% `halley.rejected', and published rows out of the outbox.
-module(halley_postgres_publish).

-export([events/3, reject/2, clean/2]).

-include_lib("epgsql/include/epgsql.hrl").
-include_lib("kernel/include/logger.hrl").

%% PostgreSQL's documentation, Appendix A: lock_not_available.
-define(LOCKED, <<"55P03">>).
-define(LOCK_MS, "1000").
%% When rows that nobody sees yet are looked at again.
-define(AGAIN_MS, 100).

-type env() :: #{c := epgsql:connection(), wait := fun(() -> term()), _ => _}.

%% When this returns, all of them are in the history on disk, or rejected.
-spec events([halley_postgres_flight:event()], env(), halley_postgres_flight:flight()) ->
    halley_postgres_flight:flight().
events(Events, Env, Flight) ->
    Landed = halley_postgres_flight:land(Env, halley_postgres_flight:post(Events, [], Env, Flight)),
    {Groups, Left} = halley_postgres_flight:landed(Landed),
    ok = reject(lists:append([Refused || {[], Refused} <- Groups]), Env),
    Left.

%% Without the table, or the right to write it, the log has to do.
-spec reject([halley_postgres_flight:refused()], env()) -> ok.
reject([], _) -> ok;
reject([{#{lsn := Lsn, source := Source}, Reason} | _] = Bad, #{c := C}) ->
    ok = halley_metrics:incr(postgres_rejected, length(Bad)),
    ok = halley_postgres_said:once_a_second(rejected, length(Bad), fun(N) ->
        ?LOG_WARNING("postgres: ~b events were rejected; the latest at ~ts (~ts): ~ts",
                     [N, epgsql_replication:lsn_text(Lsn), Source, Reason])
    end),
    keep(Bad, C).

%% What comes again is kept once: the source is the same then, and nothing else's. Whoever locks the
%% table holds up nothing either.
keep(Bad, C) ->
    {Rows, Contents} = lists:unzip([{{Source, epgsql_replication:lsn_text(Lsn)},
                                     {text(Reason), text(Content)}}
                                    || {#{lsn := Lsn, source := Source, content := Content},
                                        Reason} <- Bad]),
    {Sources, Lsns} = lists:unzip(Rows),
    {Reasons, Texts} = lists:unzip(Contents),
    ok = may_wait(?LOCK_MS, C),
    Kept = epgsql:equery(C, "INSERT INTO halley.rejected (source, lsn, reason, content, "
                            "rejected_at) SELECT s, l::pg_lsn, r, c, clock_timestamp() "
                            "FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) "
                            "AS t(s, l, r, c) ON CONFLICT (source) DO NOTHING",
                         [Sources, Lsns, Reasons, Texts]),
    ok = may_wait("0", C),
    case Kept of
        {ok, Count} -> halley_postgres_rejected:kept(Count);
        {error, #error{code = ?LOCKED} = Error} -> not_kept(length(Bad), Error);
        {error, Error} ->
            ok = lasting(Error),
            not_kept(length(Bad), Error)
    end.

may_wait(Ms, C) ->
    case epgsql:squery(C, ["SET lock_timeout = ", Ms]) of
        {ok, _, _} -> ok;
        {error, Error} -> exit({query_failed, Error})
    end.

not_kept(Count, Error) ->
    halley_postgres_said:once_a_second(not_kept, Count, fun(N) ->
        ?LOG_WARNING("postgres: ~b rejected events are not kept in halley.rejected: ~ts",
                     [N, halley_postgres_connection:explain(Error)])
    end).

%% A server that refuses this for good holds up nothing. One that ends, or is too busy, ends the
%% stream: then all of it comes again.
lasting(Error) ->
    case halley_postgres_connection:is_passing(Error) of
        true -> exit({query_failed, Error});
        false -> ok
    end.

%% What PostgreSQL takes as text: bytes that are none are shown in hex.
text(Content) ->
    case is_list(unicode:characters_to_list(Content)) andalso
        binary:match(Content, <<0>>) =:= nomatch of
        true -> Content;
        false -> <<"\\x", (binary:encode_hex(Content))/binary>>
    end.

%% Rows of the outbox that were published, and whose events are on disk, with the transactions that
%% inserted them. The stream brings a row a moment before others see it: where fewer are deleted
%% than were asked for, it is asked again when all are seen. Some may be gone since an earlier time.
-spec clean([{Row :: binary(), Xid :: non_neg_integer() | seen}], env()) -> ok.
clean([], _) -> ok;
clean(Rows, Env) ->
    Ids = [binary_to_integer(Row) || {Row, _} <- Rows],
    case deleted(Ids, Env) =:= length(Rows) of
        true -> ok;
        false -> clean_when_seen(Rows, Ids, [Xid || {_, Xid} <- Rows, Xid =/= seen], Env)
    end.

%% While the stream is what PostgreSQL takes for a standby, others may see them only when their
%% position is confirmed, so this must not wait.
clean_when_seen(Rows, Ids, Xids, #{is_standby := true} = Env) ->
    case halley_postgres_still:forget(Env#{xids => Xids}) of
        #{xids := []} -> deleted_rest(Ids, Env);
        _ ->
            _ = erlang:send_after(?AGAIN_MS, self(), {clean, Rows}),
            ok
    end;
clean_when_seen(_, Ids, Xids, Env) ->
    ok = halley_postgres_still:await(Xids, Env),
    deleted_rest(Ids, Env).

deleted_rest(Ids, Env) ->
    _ = deleted(Ids, Env),
    ok.

deleted(Ids, #{c := C}) ->
    case epgsql:equery(C, "DELETE FROM halley.outbox WHERE id = ANY($1::int8[])", [Ids]) of
        {ok, Count} -> Count;
        {error, Error} ->
            ok = lasting(Error),
            ok = halley_postgres_said:once_a_second(not_cleaned, length(Ids), fun(N) ->
                ?LOG_WARNING("postgres: ~b rows of halley.outbox can't be deleted: ~ts",
                             [N, halley_postgres_connection:explain(Error)])
            end),
            length(Ids)
    end.
