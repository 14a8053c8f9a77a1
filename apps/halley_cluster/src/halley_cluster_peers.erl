%% The other brains, as this one hears of them: which are linked, and which of them orders.
%%
%% Each brain sends each brain that it has a link to a *beat*, twice a second and whenever its role
%% changes. A brain is reachable if its link is up, it was heard within `silent_ms', and its beats
%% say that it hears this one. So a link that has broken one way counts as broken.
%%
%% Only a brain's own beats make it the orderer here, with the highest term of those that are heard.
%% Whether this brain itself may order is decided by the engine (`halley_cluster_roles').
%%
%% Pure.
-module(halley_cluster_peers).

-export([new/1, link/4, beat/4, heard/3, hears/3, distrust/3, no_orderer/2, orderer/2, term/2,
         linked/1]).
-export_type([peers/0, beat/0]).

-record(peer, {
    up = false :: boolean(),
    heard = none :: none | integer(),
    hears_me = true :: boolean(),
    term = none :: none | pos_integer(),      % of its role, if it orders
    distrusted = 0 :: integer()               % until then it isn't followed
}).
-record(peers, {silent_ms :: pos_integer(), all = #{} :: #{binary() => #peer{}}}).
-opaque peers() :: #peers{}.
%% `epoch': the newest that it knows. `safe': see `halley_cluster_reader'. `order': its term, if it
%% orders. `hears': whether it hears the brain that the beat is for.
-type beat() :: #{epoch := non_neg_integer(), safe := halley_cursor:seq(),
                  order := none | pos_integer(), hears := boolean()}.

-spec new(SilentMs :: pos_integer()) -> peers().
new(SilentMs) ->
    #peers{silent_ms = SilentMs}.

%% A link that is up is heard from then on, until it is silent for too long.
-spec link(binary(), up | down, Now :: integer(), peers()) -> peers().
link(Name, up, Now, #peers{all = All} = Peers) ->
    Peer = maps:get(Name, All, #peer{}),
    Peers#peers{all = All#{Name => Peer#peer{up = true, heard = Now, hears_me = true,
                                             term = none}}};
link(Name, down, _, #peers{all = All} = Peers) ->
    Peers#peers{all = maps:remove(Name, All)}.

-spec heard(binary(), Now :: integer(), peers()) -> peers().
heard(Name, Now, Peers) ->
    update(Name, fun(Peer) -> Peer#peer{heard = Now} end, Peers).

-spec beat(binary(), beat(), Now :: integer(), peers()) -> peers().
beat(Name, #{order := Term, hears := Hears}, Now, Peers) ->
    update(Name, fun(Peer) -> Peer#peer{heard = Now, term = Term, hears_me = Hears} end, Peers).

%% It says itself that it doesn't order.
-spec no_orderer(binary(), peers()) -> peers().
no_orderer(Name, Peers) ->
    update(Name, fun(Peer) -> Peer#peer{term = none} end, Peers).

%% It has taken proposals and placed none of them; others may do better until then.
-spec distrust(binary(), Until :: integer(), peers()) -> peers().
distrust(Name, Until, Peers) ->
    update(Name, fun(Peer) -> Peer#peer{distrusted = Until} end, Peers).

update(Name, Fun, #peers{all = All} = Peers) ->
    case All of
        #{Name := Peer} -> Peers#peers{all = All#{Name := Fun(Peer)}};
        _ -> Peers
    end.

%% What a beat for this brain says.
-spec hears(binary(), Now :: integer(), peers()) -> boolean().
hears(Name, Now, #peers{all = All} = Peers) ->
    is_heard(maps:get(Name, All, #peer{}), Now, Peers).

is_heard(#peer{up = true, heard = Heard}, Now, #peers{silent_ms = Silent})
  when is_integer(Heard) ->
    Now - Heard < Silent;
is_heard(_, _, _) ->
    false.

%% Whom this brain may send its proposals to.
-spec orderer(Now :: integer(), peers()) -> binary() | none.
orderer(Now, Peers) ->
    case ordering(Now, Peers, fun(#peer{hears_me = HearsMe, distrusted = Until}) ->
                                  HearsMe andalso Until =< Now
                              end) of
        [] -> none;
        Ordering -> element(2, lists:max(Ordering))
    end.

%% The highest term of those that order, as far as this brain hears.
-spec term(Now :: integer(), peers()) -> non_neg_integer().
term(Now, Peers) ->
    lists:max([0 | [Term || {Term, _} <- ordering(Now, Peers, fun(_) -> true end)]]).

ordering(Now, #peers{all = All} = Peers, Fun) ->
    [{Term, Name} || {Name, #peer{term = Term} = Peer} <- maps:to_list(All), is_integer(Term),
                     is_heard(Peer, Now, Peers), Fun(Peer)].

%% Whom messages can be sent to.
-spec linked(peers()) -> [binary()].
linked(#peers{all = All}) ->
    [Name || {Name, #peer{up = true}} <- maps:to_list(All)].
