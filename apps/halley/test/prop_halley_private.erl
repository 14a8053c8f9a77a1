%% The record of a private event, whoever it is for.
-module(prop_halley_private).

-export([prop_users/0]).

-import(proper_types, [binary/0, list/1, non_empty/1, oneof/1]).

-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(SHARD, 3).
-define(LAST, 1000000).

%% Whoever it names has it, at one seq of its own; nobody else has.
prop_users() ->
    ?FORALL({Ids, Stranger, Id},
            {non_empty(list(binary())), binary(), oneof([<<"i">>, binary:copy(<<"i">>, 255)])},
            begin
                Users = lists:usort([binary:part(<<"u", U/binary>>, 0, min(255, 1 + byte_size(U)))
                                     || U <- Ids]),
                {First, Named, Body} = recorded(Id, Users),
                Users =:= Named
                    andalso lists:seq(First, ?LAST)
                        =:= lists:append([seqs(User, First, Body) || User <- Users])
                    andalso (seqs(Stranger, First, Body) =:= [])
                        =:= not lists:member(Stranger, Users)
            end).

recorded(Id, For) ->
    Event = halley_event:private_event(halley_event:private(Id, For, <<"{}">>), <<>>,
                                       {?SHARD, ?LAST}, 7),
    {Record, Bytes} = halley_history_record:private(9, ?SHARD, Event),
    {ok, Body, Bytes} = halley_history_record:decode(9, iolist_to_binary(Record)),
    {ok, #{first := First, users := Users}} = halley_history_record:body(Body),
    {First, Users, Body}.

seqs(User, First, Body) ->
    [Seq || Seq <- lists:seq(First, ?LAST),
            {ok, 7} <- [halley_history_record:about({to, ?SHARD, User}, Seq, Body)]].
