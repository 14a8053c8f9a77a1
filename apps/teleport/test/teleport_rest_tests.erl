%% How long a node isn't dialled after a dial that failed.
-module(teleport_rest_tests).

-include_lib("eunit/include/eunit.hrl").

-define(NOT_ME, {dial, {refused, not_me}}).

%% Each is the rest that follows; no part of it is left out at random.
rests(Reasons) ->
    {Rests, _} = lists:mapfoldl(fun(Reason, Rest) ->
        Next = teleport_rest:failed(Reason, Rest, 0, 0.0),
        {ms(Next), Next}
    end, teleport_rest:new(), Reasons),
    Rests.

ms(Rest) -> hd([Ms || Ms <- lists:seq(0, 10000), teleport_rest:is_over(Rest, Ms)]).

a_refusal_doubles_it_up_to_a_bound_test() ->
    ?assertEqual([20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000, 5000],
                 rests(lists:duplicate(11, ?NOT_ME))).

all_refusals_are_one_row_test() ->
    ?assertEqual([20, 40, 80, 160, 320],
                 rests([?NOT_ME, {dial, {refused, bad_secret}}, {dial, other_node},
                        {dial, {refused, unknown_node}}, {dial, malformed}])).

what_may_be_there_at_once_has_a_short_rest_and_ends_the_row_test() ->
    [?assertEqual({Passing, [20, 40, 20, 20, 20]},
                  {Passing, rests([?NOT_ME, ?NOT_ME, Passing, Passing, ?NOT_ME])})
     || Passing <- [{dial, {connect, econnrefused}}, {dial, {greeting, closed}}, unknown_address,
                    {dial, {refused, crossed}}, {dial, {refused, stale}},
                    {dial, {refused, no_link}}, {dial, {refused, too_many}}]].

up_to_half_is_left_out_at_random_test() ->
    Ninth = lists:foldl(fun(_, Rest) -> teleport_rest:failed(?NOT_ME, Rest, 0, 0.0) end,
                        teleport_rest:new(), lists:seq(1, 9)),
    ?assertEqual([5000, 3750, 2500],
                 [ms(teleport_rest:failed(?NOT_ME, Ninth, 0, Random))
                  || Random <- [0.0, 0.5, 1.0]]).

a_link_that_is_refused_its_next_connection_goes_on_with_the_row_test() ->
    Second = teleport_rest:failed(?NOT_ME, teleport_rest:failed(?NOT_ME, teleport_rest:new(), 0,
                                                                0.0), 0, 0.0),
    [?assertEqual({Reason, UpMs, Ms}, {Reason, UpMs, ms(teleport_rest:ended(Reason, Second,
                                                                           {UpMs, 0}, 0.0))})
     || {Reason, UpMs, Ms} <- [{?NOT_ME, 0, 80}, {?NOT_ME, 9999, 80}, {?NOT_ME, 10000, 20},
                               {{control, closed}, 0, 0}, {silent, 10000, 0}]].
