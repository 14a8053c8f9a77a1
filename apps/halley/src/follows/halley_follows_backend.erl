%% Selects what decides a change of follows: the store (`halley_follows'), or, with `store.backend =
%% postgres', a function of another application. That writes its own truth, and calls
%% `halley_follows:stored/2' when the change is to be in effect.
%%
%% With that configuration no change bypasses the other truth: until its function is there, changes
%% are refused.
-module(halley_follows_backend).

-export([new/0, set/1, get/0]).
-compile({no_auto_import, [get/1]}).
-export_type([backend/0, error/0, failure/0]).

-type backend() :: store | fun((halley_follows:asked(), [{binary(), binary()}]) ->
                                   halley_follows:changed()).
%% Of one pair: the other truth can't have these ids; a rule of it refuses the pair; another table
%% than the one that is written has it.
-type error() :: {not_of_table, Type :: binary()} | refused_by_table | followed_elsewhere.
%% `postgres_away': nothing was done. `postgres_unknown': whether it was done isn't known.
%% `postgres_late': it is done there, and isn't in effect here yet.
-type failure() :: postgres_away | postgres_unknown | postgres_late.

%% Once, before the first change; and when the other application ends.
-spec new() -> ok.
new() ->
    case application:get_env(halley, store_backend, embedded) of
        postgres -> set(fun(_, _) -> {error, postgres_away} end);
        _ -> set(store)
    end.

-spec set(backend()) -> ok.
set(Backend) -> persistent_term:put(?MODULE, Backend).

-spec get() -> backend().
get() -> persistent_term:get(?MODULE, store).
