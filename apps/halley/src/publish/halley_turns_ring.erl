%% Turns of sessions that wait, shared evenly between users. Pure.
%%
%% Users take turns, whatever the number of their sessions; a user's sessions take its turns in the
%% order in which they came. A session that has yielded stays the first of its user's, and its user
%% takes the next turn among the late ones: one of these comes after ?TURNS_PER_LATE other turns.
%%
%% Invariant: a user is in one of the two rings exactly while a session of it waits.
%%
%% Not here: what is done in a turn, and what bounds the sessions (`halley_turns').
-module(halley_turns_ring).

-export([new/0, add/3, yielded/4, take/1, remove/4, waits/2, is_empty/1]).
-export_type([turns/0, place/0, user/0]).

%% Turns of others between two of those that have yielded.
-define(TURNS_PER_LATE, 4).

%% A user by its number or its id; a visitor is a user of its own.
-type user() :: term().
-type session() :: term().
%% Where a session stands among its user's.
-type place() :: non_neg_integer().
-type ring() :: gb_sets:set({non_neg_integer(), user()}).
-record(turns, {
    users = #{} :: #{user() => {turns | late, non_neg_integer(),
                                gb_sets:set({place(), session()})}},
    turns = gb_sets:new() :: ring(),
    late = gb_sets:new() :: ring(),
    since_late = 0 :: non_neg_integer(),              % turns
    order = 0 :: non_neg_integer()
}).
-opaque turns() :: #turns{}.

-spec new() -> turns().
new() -> #turns{}.

%% A session waits for a turn, the last of its user's.
-spec add(user(), session(), turns()) -> {place(), turns()}.
add(User, Session, #turns{users = Users, order = Place} = Turns) ->
    Next = Turns#turns{order = Place + 1},
    case Users of
        #{User := {Ring, Order, Sessions}} ->
            More = gb_sets:add({Place, Session}, Sessions),
            {Place, Next#turns{users = Users#{User := {Ring, Order, More}}}};
        #{} ->
            {Place, in(User, turns, gb_sets:singleton({Place, Session}), Next)}
    end.

%% A session that took its turn, has nothing to show for it and wants to go on.
-spec yielded(user(), session(), place(), turns()) -> turns().
yielded(User, Session, Place, Turns) ->
    {Sessions, Without} = out(User, Turns),
    in(User, late, gb_sets:add({Place, Session}, Sessions), Without).

%% The session whose turn it is. Its user goes behind the others if more of its sessions wait.
-spec take(turns()) -> {user(), session(), place(), turns()}.
take(#turns{turns = Ring, late = Late, since_late = Since} = Turns) ->
    case gb_sets:is_empty(Ring)
             orelse Since >= ?TURNS_PER_LATE andalso not gb_sets:is_empty(Late) of
        true -> taken(gb_sets:smallest(Late), Turns#turns{since_late = 0});
        false -> taken(gb_sets:smallest(Ring), Turns#turns{since_late = Since + 1})
    end.

taken({_, User}, Turns) ->
    {Sessions, Without} = out(User, Turns),
    {{Place, Session}, Rest} = gb_sets:take_smallest(Sessions),
    {User, Session, Place, in(User, turns, Rest, Without)}.

%% A session that waits there waits no more.
-spec remove(user(), session(), place(), turns()) -> turns().
remove(User, Session, Place, #turns{users = Users} = Turns) ->
    #{User := {Ring, Order, Sessions}} = Users,
    Rest = gb_sets:delete({Place, Session}, Sessions),
    case gb_sets:is_empty(Rest) of
        true -> element(2, out(User, Turns));
        false -> Turns#turns{users = Users#{User := {Ring, Order, Rest}}}
    end.

%% Whether any session of a user waits for a turn.
-spec waits(user(), turns()) -> boolean().
waits(User, #turns{users = Users}) -> is_map_key(User, Users).

-spec is_empty(turns()) -> boolean().
is_empty(#turns{users = Users}) -> map_size(Users) =:= 0.

%% The last of a ring, unless none of its sessions waits.
in(User, Ring, Sessions, #turns{users = Users, order = Order} = Turns) ->
    case gb_sets:is_empty(Sessions) of
        true ->
            Turns;
        false ->
            Entered = Turns#turns{users = Users#{User => {Ring, Order, Sessions}},
                                  order = Order + 1},
            change(Ring, fun(Users1) -> gb_sets:add({Order, User}, Users1) end, Entered)
    end.

%% Its sessions, and the turns without them.
out(User, #turns{users = Users} = Turns) ->
    case maps:take(User, Users) of
        {{Ring, Order, Sessions}, Others} ->
            {Sessions, change(Ring, fun(Users1) -> gb_sets:delete({Order, User}, Users1) end,
                              Turns#turns{users = Others})};
        error ->
            {gb_sets:new(), Turns}
    end.

change(turns, Change, #turns{turns = Ring} = Turns) -> Turns#turns{turns = Change(Ring)};
change(late, Change, #turns{late = Ring} = Turns) -> Turns#turns{late = Change(Ring)}.
