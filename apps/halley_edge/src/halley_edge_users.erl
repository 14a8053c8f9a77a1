%% The user numbers of sessions that open (protocol/link.md 6). Ids that have one are looked up one
%% by one; the others are interned together. An invalid id is refused with 400, alone; when no
%% number is free, those that need one are refused with 503.
-module(halley_edge_users).

-export([numbers/2]).

-include("halley_edge.hrl").

-define(RETRY_AFTER_S, 5).

%% Those that have one now, in order, and the REFUSED frames. A visitor has ?NOBODY.
-spec numbers([{halley_edge_codec:conn(), User :: binary()}],
              halley_edge_subscriptions:subjects()) ->
    {[{halley_edge_codec:conn(), UserNumber :: non_neg_integer()}], [halley_edge_codec:frame()]}.
numbers(Opening, Subjects) ->
    {Visitors, Users} = lists:partition(fun({Conn, User}) ->
        User =:= <<>> andalso is_map_key(Conn, Subjects)
    end, Opening),
    {Known, Unknown, Bad} = sort(Users, [], [], []),
    {New, Full} = intern(Unknown),
    {[{Conn, ?NOBODY} || {Conn, _} <- Visitors] ++ lists:reverse(Known, New), Bad ++ Full}.

sort([{Conn, User} | Rest], Known, Unknown, Bad) ->
    case halley_ids:lookup(User) of
        undefined ->
            case halley_id:check(User) of
                ok -> sort(Rest, Known, [{Conn, User} | Unknown], Bad);
                {error, Reason} -> sort(Rest, Known, Unknown, [bad_id(Conn, Reason) | Bad])
            end;
        Number ->
            sort(Rest, [{Conn, Number} | Known], Unknown, Bad)
    end;
sort([], Known, Unknown, Bad) ->
    {Known, lists:reverse(Unknown), Bad}.

intern([]) ->
    {[], []};
intern(Unknown) ->
    {Conns, Users} = lists:unzip(Unknown),
    case halley_ids:intern(Users) of
        {ok, Numbers} -> {lists:zip(Conns, Numbers), []};
        {error, _} -> one_by_one(Unknown, [], [])
    end.

%% Not enough numbers for all is enough for some, or for those that another link interned meanwhile.
one_by_one([], New, Full) ->
    {lists:reverse(New), Full};
one_by_one([{Conn, User} | Rest], New, Full) ->
    case halley_ids:intern([User]) of
        {ok, [Number]} -> one_by_one(Rest, [{Conn, Number} | New], Full);
        {error, _} -> one_by_one(Rest, New, [full(Conn) | Full])
    end.

bad_id(Conn, Reason) ->
    {refused, Conn, 400, 0, <<"bad_user">>, halley_id:explain(Reason)}.

full(Conn) ->
    ok = halley_metrics:incr(users_refused),
    {refused, Conn, 503, ?RETRY_AFTER_S, <<"too_many_users">>,
     <<"the server has no room for another user; raise limits.ids_max">>}.
