%% Bounded loads: a key's owner is the first server from its place on that has room.
%%
%% By V. Mirrokni, M. Thorup and M. Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2016,
%% arXiv:1608.01350): with `Total' keys placed, none of the servers shall hold more than
%% ceil(Factor * (Total + 1) * its share of the weights) once one more is placed. These bounds add
%% up to more than `Total', so there is always room; and a key moves on to the next server only from
%% one that is full.
%%
%% It is not a counter. The caller's fun returns how many keys a server holds; should the loads move
%% so much between the calls that none has room, the key goes where least of the bound is used.
-module(ketama_load).

-export([owner/3]).
-export_type([options/0]).

%% `load': how many keys a server holds. `total': how many all hold, if the caller knows it; else
%% `load' is asked for each server. `factor': how far above its share a server may come, 1.25 if not
%% given.
-type options() :: #{load := fun((ketama_mode:server()) -> non_neg_integer()),
                     factor => number(), total => non_neg_integer()}.

-define(FACTOR, 1.25).
-define(FACTOR_MAX, 1000000).
-define(TOTAL_MAX, (1 bsl 64)).

-spec owner(binary(), ketama_ring:ring(), options()) ->
    {ok, ketama_mode:server()} | {error, {bad_option, term()}}.
owner(Key, Ring, Options) ->
    case check(Options) of
        {ok, Load, Factor} ->
            {ok, with_room(Key, Ring, Load, Factor * (total(Options, Ring) + 1))};
        {error, _} = Error ->
            Error
    end.

check(#{load := Load} = Options) when is_function(Load, 1) ->
    Factor = maps:get(factor, Options, ?FACTOR),
    Total = maps:get(total, Options, 0),
    IsFactor = is_number(Factor) andalso Factor >= 1 andalso Factor =< ?FACTOR_MAX,
    IsTotal = is_integer(Total) andalso Total >= 0 andalso Total =< ?TOTAL_MAX,
    case maps:keys(maps:without([load, factor, total], Options)) of
        [Unknown | _] -> {error, {bad_option, Unknown}};
        [] when not IsFactor -> {error, {bad_option, factor}};
        [] when not IsTotal -> {error, {bad_option, total}};
        [] -> {ok, Load, Factor}
    end;
check(_) ->
    {error, {bad_option, load}}.

total(#{total := Total}, _) -> Total;
total(#{load := Load}, Ring) ->
    lists:sum([Load(Server) || {Server, _} <- ketama_ring:servers(Ring)]).

%% `Room' is what all may hold. Divided last, a bound that is a whole number stays one.
with_room(Key, Ring, Load, Room) ->
    Weights = ketama_ring:total(Ring),
    Found = ketama_ring:walk(fun(Index, Least) ->
        Server = ketama_ring:server(Index, Ring),
        Most = ceil(Room * ketama_ring:weight(Index, Ring) / Weights),
        case Load(Server) of
            Held when Held < Most -> {stop, {room, Server}};
            Held -> {next, min(Least, {used, Held / Most, Index})}
        end
    end, {used, none, none}, Key, Ring),
    case Found of
        {room, Server} -> Server;
        {used, _, Index} -> ketama_ring:server(Index, Ring)
    end.
