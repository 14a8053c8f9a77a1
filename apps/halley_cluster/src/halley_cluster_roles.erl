%% The roles of a brain, by lease: one brain at a time orders, one calls hooks, one reads from the
%% operator's PostgreSQL.
%%
%% A lease ends by the engine's clock. The holder counts from before it asked, by its own clock, so
%% it stops no later than another may begin, unless one of the clocks runs at another speed. The
%% order of the log doesn't rely on that: two orderers are slow, and never wrong.
%%
%% The holder renews its lease well before the end; other brains try to get it at intervals.
%%
%% Pure.
-module(halley_cluster_roles).

-export([new/1, due/3, asked/3, answered/4, failed/2, drop/2, ask/3, held/3]).
-export_type([roles/0]).

%% The order is free soon after its holder has died; nothing but speed depends on it.
-define(ORDER_TTL_MS, 3000).
-define(TTL_MS, 6000).
-define(ORDER_AGAIN_MS, 500).
-define(AGAIN_MS, 2000).

-record(lease, {
    term = 0 :: non_neg_integer(),
    until = none :: none | integer(),
    due = 0 :: integer()
}).
-opaque roles() :: #{halley_log_engine:role() => #lease{}}.

-spec new([halley_log_engine:role()]) -> roles().
new(Roles) ->
    maps:from_keys(Roles, #lease{}).

%% A role that is to be asked for now, of those that the caller wants, with its term and the time
%% that it is wanted for.
-spec due(Now :: integer(), [halley_log_engine:role()], roles()) ->
    {halley_log_engine:role(), Term :: non_neg_integer(), TtlMs :: pos_integer()} | none.
due(Now, Wanted, Roles) ->
    case [{Due, Role, Term} || {Role, #lease{due = Due, term = Term}} <- maps:to_list(Roles),
                               Due =< Now, lists:member(Role, Wanted)] of
        [] -> none;
        Waiting ->
            {_, Role, Term} = lists:min(Waiting),
            {Role, Term, ttl(Role)}
    end.

ttl(order) -> ?ORDER_TTL_MS;
ttl(_) -> ?TTL_MS.

again(order) -> ?ORDER_AGAIN_MS;
again(_) -> ?AGAIN_MS.

%% It is being asked for.
-spec asked(halley_log_engine:role(), Now :: integer(), roles()) -> roles().
asked(Role, Now, Roles) ->
    update(Role, fun(Lease) -> Lease#lease{due = Now + again(Role)} end, Roles).

-spec answered(halley_log_engine:role(),
               {held, pos_integer()} | {other, binary(), non_neg_integer()},
               AskedAt :: integer(), roles()) -> roles().
answered(Role, {held, Term}, AskedAt, Roles) ->
    update(Role, fun(Lease) ->
                     Lease#lease{term = Term, until = AskedAt + ttl(Role)}
                 end, Roles);
answered(Role, {other, _, _}, _, Roles) ->
    drop(Role, Roles).

%% The answer didn't come. What is held stays held until its time.
-spec failed(Now :: integer(), roles()) -> roles().
failed(Now, Roles) ->
    maps:map(fun(_, Lease) -> Lease#lease{due = min(Now, Lease#lease.due)} end, Roles).

%% Another brain has it.
-spec drop(halley_log_engine:role(), roles()) -> roles().
drop(Role, Roles) ->
    update(Role, fun(Lease) -> Lease#lease{until = none, term = 0} end, Roles).

%% Ask at once.
-spec ask(halley_log_engine:role(), Now :: integer(), roles()) -> roles().
ask(Role, Now, Roles) ->
    update(Role, fun(Lease) -> Lease#lease{due = min(Now, Lease#lease.due)} end, Roles).

update(Role, Fun, Roles) ->
    case Roles of
        #{Role := Lease} -> Roles#{Role := Fun(Lease)};
        _ -> Roles
    end.

%% The term, if this brain has the role.
-spec held(halley_log_engine:role(), Now :: integer(), roles()) -> pos_integer() | none.
held(Role, Now, Roles) ->
    case Roles of
        #{Role := #lease{until = Until, term = Term}} when is_integer(Until), Now < Until -> Term;
        _ -> none
    end.
