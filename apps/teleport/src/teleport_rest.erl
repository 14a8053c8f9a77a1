%% How long a node isn't dialled after a dial that failed. Pure.
%%
%% A node that isn't there may be back at once, so the rest is short (?REST_MS). A node that refuses
%% does so until its operator, or this node's, changes something: with each refusal in a row the
%% rest doubles, up to ?REST_MS_MAX. Of each rest up to ?SPREAD_PERCENT are left out at random, so
%% that nodes that were refused together don't come back together.
%%
%% A link that lived for ?STEADY_MS, or that the peer dialled, ends the row. One that is up and is
%% refused its next connection doesn't: its first connection may have reached another node than the
%% next one, as behind a balancer.
-module(teleport_rest).

-export([new/0, failed/4, ended/4, is_over/2, is_refusal/1]).
-export_type([rest/0]).

-define(REST_MS, 20).
-define(REST_MS_MAX, 5000).
-define(DOUBLED_MAX, 8).
-define(SPREAD_PERCENT, 50).
-define(STEADY_MS, 10000).

-opaque rest() :: {Refusals :: non_neg_integer(), UntilMs :: integer() | none}.

-spec new() -> rest().
new() -> {0, none}.

%% Of a dial that led to no link. `Random': from 0 to 1.
-spec failed(Reason :: term(), rest(), NowMs :: integer(), Random :: float()) -> rest().
failed(Reason, {Refusals, _}, NowMs, Random) ->
    case is_refusal(Reason) of
        true -> {Refusals + 1, NowMs + spread(doubled(Refusals), Random)};
        false -> {0, NowMs + ?REST_MS}
    end.

%% Of a link that was up for so long.
-spec ended(Reason :: term(), rest(), {UpMs :: integer(), NowMs :: integer()}, float()) -> rest().
ended(Reason, Rest, {UpMs, NowMs}, Random) ->
    case is_refusal(Reason) of
        true when UpMs < ?STEADY_MS -> failed(Reason, Rest, NowMs, Random);
        true -> failed(Reason, new(), NowMs, Random);
        false -> new()
    end.

-spec is_over(rest(), NowMs :: integer()) -> boolean().
is_over({_, none}, _) -> true;
is_over({_, UntilMs}, NowMs) -> NowMs >= UntilMs.

%% What stays so until somebody changes it. A dial that crosses another, or comes when all places
%% for a handshake are taken, succeeds a little later.
-spec is_refusal(Reason :: term()) -> boolean().
is_refusal({dial, {refused, Why}}) -> not lists:member(Why, [crossed, stale, no_link, too_many]);
is_refusal({dial, Why}) -> lists:member(Why, [malformed, bad_secret, other_node]);
is_refusal(_) -> false.

doubled(Refusals) -> min(?REST_MS_MAX, ?REST_MS bsl min(Refusals, ?DOUBLED_MAX)).

spread(Ms, Random) -> Ms - round(Ms * ?SPREAD_PERCENT * Random / 100).
