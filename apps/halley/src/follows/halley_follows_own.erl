%% A user's follows, as the user itself may read them: a page reveals nothing else.
%%
%% `After' is an id that the user follows. Any other begins at the beginning, also one that was
%% unfollowed since the page that named it. So it makes no difference whether an id is known here.
%% By `halley_follows:following/3', which servers ask, one could find out who is online: an id that
%% no follow names is known while it is.
-module(halley_follows_own).

-export([page/3, number/2]).

-type id() :: halley_id:id().

-spec page(id(), After :: id() | start, Limit :: pos_integer()) ->
    {[id()], Next :: id() | done}.
page(User, After, Limit) ->
    case halley_ids:lookup(User) of
        undefined ->
            {[], done};
        Number ->
            From = number(Number, After),
            cut(halley_follows_graph:take_following(Number, From, Limit + 1), Limit)
    end.

cut(Numbers, Limit) when length(Numbers) > Limit ->
    Ids = lists:map(fun halley_ids:name/1, lists:sublist(Numbers, Limit)),
    {Ids, lists:last(Ids)};
cut(Numbers, _) ->
    {lists:map(fun halley_ids:name/1, Numbers), done}.

%% The number behind which a page begins.
-spec number(halley_id:user_number(), After :: id() | start) -> non_neg_integer().
number(_, start) ->
    0;
number(User, After) ->
    case halley_ids:lookup(After) of
        undefined -> 0;
        Number ->
            case halley_follows_graph:take_following(User, Number - 1, 1) of
                [Number] -> Number;
                _ -> 0
            end
    end.
