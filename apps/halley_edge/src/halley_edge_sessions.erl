%% Opens sessions for what OPEN lists: ids become user numbers, numbers become sessions in the
%% directory.
%%
%% Numbers are looked up one by one and interned together. An id that is none is refused with 400,
%% alone; when no number is free, those that need one are refused with 503 and the others open all
%% the same.
-module(halley_edge_sessions).

-export([open/2]).

-type opening() :: {halley_edge_codec:conn(), Transport :: 1..4, User :: binary()}.
-type opened() :: {halley_edge_codec:conn(), UserNumber :: non_neg_integer()}.

-define(RETRY_AFTER_S, 5).

%% What OPENED lists, in order, and the REFUSED frames.
-spec open(halley_links:slot(), [opening()]) -> {[opened()], [halley_edge_codec:frame()]}.
open(Slot, Opening) ->
    {Known, Unknown, Bad} = sort(Opening, [], [], []),
    {New, Full} = intern(Unknown),
    Opened = lists:reverse(Known, New),
    lists:foreach(fun({Conn, Number}) ->
        ok = halley_directory:open(Number, {link, Slot, Conn})
    end, Opened),
    {Opened, Bad ++ Full}.

sort([{Conn, _, User} | Rest], Known, Unknown, Bad) ->
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
    {refused, Conn, 503, ?RETRY_AFTER_S, <<"too_many_users">>,
     <<"the server has no room for another user; raise limits.ids_max">>}.
