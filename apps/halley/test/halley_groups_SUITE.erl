%% A group while it is filled: the test plays the subject's shard and the filling step by step, so
%% that what takes microseconds in a brain has its races. A link's writer forwards what it gets.
-module(halley_groups_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("support/halley_wait.hrl").

-compile([export_all, nowarn_export_all]).
-import(halley_test_brain, [number/1, link_with/1, wait/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [a_portion_that_is_out_of_date, events_while_it_is_filled, a_shard_that_knows_nothing,
          members_that_are_processes, processes_that_end, a_mark_that_comes_too_late].

init_per_testcase(_, Config) -> halley_test_brain:start(Config).

end_per_testcase(_, Config) -> halley_test_brain:stop(Config).

%% Between the reading of a portion and its arrival one user unfollows, one logs in, one logs out
%% and in again elsewhere.
a_portion_that_is_out_of_date(_) ->
    [A, B, C, D] = followers([<<"a">>, <<"b">>, <<"c">>, <<"d">>]),
    {_, Slot, _} = Link = link_with([{A, 1}, {B, 2}, {D, 4}]),
    {_, OtherSlot, _} = Other = link_with([]),
    {Filling, Started} = started(),
    {all, Found} = halley_groups:followers(star(), -1),
    ok = halley:unfollow(<<"a">>, <<"star">>),
    _ = halley_directory:open(C, {link, Slot, 3}, infinity),
    ok = halley_directory:close(D, {link, Slot, 4}),
    _ = halley_directory:open(D, {link, OtherSlot, 5}, infinity),
    there = halley_groups_marks:leave(Filling, A),
    [new = halley_groups_marks:leave(Filling, User) || User <- [C, D]],
    {done, Touched} = halley_groups_shard:settle_some(Started),
    Filled = halley_groups_shard:handle({fill, star(), Filling, self(), all, Found}, Touched),
    ?assertEqual([{join, [2]}, {join, [3]}], lists:sort([told(Link), told(Link)])),
    ?assertEqual({join, [5]}, told(Other)),
    ?assertEqual(3, halley_groups_shard:members(Filled)),
    nothing(Link),
    nothing(Other).

%% One message for a link: to the group as far as it is filled, and by look-up beyond.
events_while_it_is_filled(_) ->
    [A, B, C] = followers([<<"a">>, <<"b">>, <<"c">>]),
    Link = link_with([{A, 1}, {B, 2}, {C, 3}, {star(), 9}]),
    Far = link_with([{C, 4}]),
    {Filling, Started} = started(),
    ?assertEqual({join, [9]}, told(Link)),
    Half = halley_groups_shard:handle({fill, star(), Filling, self(), A, [{A, found(A)}]}, Started),
    ?assertEqual({join, [1]}, told(Link)),
    {5, Sent} = halley_groups_shard:publish(event(1), star(), Half),
    ?assertEqual({star(), [2, 3]}, delivered(Link)),
    ?assertEqual({none, [4]}, delivered(Far)),
    Found = [{User, found(User)} || User <- [B, C]],
    Whole = halley_groups_shard:handle({fill, star(), Filling, self(), all, Found}, Sent),
    ?assertEqual({join, [2, 3]}, told(Link)),
    ?assertEqual({join, [4]}, told(Far)),
    {5, Again} = halley_groups_shard:publish(event(2), star(), Whole),
    ?assertEqual({star(), []}, delivered(Link)),
    ?assertEqual({star(), []}, delivered(Far)),
    Stopped = halley_groups_shard:handle({stop, star()}, Again),
    ?assertEqual(ended, told(Link)),
    ?assertNot(halley_groups_shard:is_group(star(), Stopped)),
    ?assertEqual([], halley_groups_table:lookup(star())).

%% A shard that was restarted, or a start that another one has replaced.
a_shard_that_knows_nothing(_) ->
    Filling = filling(),
    New = halley_groups_shard:new(shard()),
    ?assertEqual(New, halley_groups_shard:handle({fill, star(), Filling, self(), all, []}, New)),
    receive {lost, Star, Filling} -> ?assertEqual(star(), Star)
    after ?WAIT_MS -> error(not_told)
    end.

%% They are looked up for each event, and get one about a subject that two of their users follow
%% once.
members_that_are_processes(_) ->
    [A, B] = followers([<<"a">>, <<"b">>]),
    Link = link_with([{A, 1}]),
    [_ = halley_directory:open(User, self(), infinity) || User <- [A, B]],
    {Filling, Started} = started(),
    {all, Found} = halley_groups:followers(star(), -1),
    Filled = halley_groups_shard:handle({fill, star(), Filling, self(), all, Found}, Started),
    ?assertEqual({join, [1]}, told(Link)),
    {2, Sent} = halley_groups_shard:publish(event(1), star(), Filled),
    #{data := 1} = halley_test_brain:event(),
    ok = halley:logout(self()),
    {1, _} = halley_groups_shard:publish(event(2), star(), Sent),
    halley_test_brain:no_event().

%% However a process stops to be a session, its users leave the list of those who are looked up.
processes_that_end(_) ->
    [A, B, C] = followers([<<"a">>, <<"b">>, <<"c">>]),
    Dying = spawn(fun() -> receive die -> ok end end),
    [ok = halley:login(User, self()) || User <- [<<"a">>, <<"b">>]],
    ok = halley:login(<<"c">>, Dying),
    {Filling, Started} = started(),
    {all, Found} = halley_groups:followers(star(), -1),
    Filled = halley_groups_shard:handle({fill, star(), Filling, self(), all, Found}, Started),
    ?assertEqual([], halley_groups_marks:take_all(Filling)),
    {ok, 1} = halley:close_sessions(<<"a">>),
    ?assertEqual([A], halley_groups_marks:take_all(Filling)),
    ok = halley:logout(self()),
    ?assertEqual([B], halley_groups_marks:take_all(Filling)),
    Dying ! die,
    wait(fun() -> halley_groups_marks:count() =:= 1 end),
    ?assertEqual([C], halley_groups_marks:take_all(Filling)),
    _ = halley_groups_shard:handle({stop, star()}, Filled).

%% Somebody saw the group, and leaves its mark when the group has ended, or is another one.
a_mark_that_comes_too_late(_) ->
    [A] = followers([<<"a">>]),
    {_, Started} = started(),
    [Row] = halley_groups_table:lookup(star()),
    ?assertEqual(new, halley_groups_table:mark(Row, A)),
    _ = halley_groups_shard:handle({stop, star()}, Started),
    ?assertEqual(ended, halley_groups_table:mark(Row, A)),
    {_, Again} = started(),
    ?assertEqual(ended, halley_groups_table:mark(Row, A)),
    ?assertEqual(0, halley_groups_marks:count()),
    _ = halley_groups_shard:handle({stop, star()}, Again).

%% --- the shard's part ----------------------------------------------------------------------------

star() -> number(<<"star">>).

followers(Users) ->
    {ok, _} = halley:follow([{User, <<"star">>} || User <- Users]),
    [number(User) || User <- Users].

found(User) -> halley_directory:lookup(halley_directory_atomics:chunks(), User).

started() ->
    Filling = filling(),
    Row = {star(), shard(), Filling},
    Started = halley_groups_shard:handle({start, Row, self()}, halley_groups_shard:new(shard())),
    receive {filled, Filling, -1} -> {Filling, Started} after ?WAIT_MS -> error(not_started) end.

shard() -> halley_shards:of_subject(<<"star">>).

filling() -> erlang:unique_integer([positive, monotonic]).

event(Data) ->
    Draft = halley_event:draft(generated, <<"star">>, integer_to_binary(Data)),
    Prefix = halley_event:id_prefix(halley_history:store()),
    halley_event:event(Draft, Prefix, {1, Data}, 0).

%% --- what a writer got, but for marks and ends ---------------------------------------------------

told(Link) ->
    case next(Link) of
        {members, What, Group, Conns} ->
            ?assertEqual(star(), Group),
            {What, lists:sort([Conn || <<Conn:64>> <= Conns])};
        {end_group, _} ->
            ended
    end.

delivered(Link) ->
    {deliver, _, To} = next(Link),
    {Group, Conns} = case To of
        {group, G, C} -> {G, C};
        _ -> {none, To}
    end,
    {Group, lists:sort([Conn || <<Conn:64>> <= Conns])}.

next({Writer, _, _} = Link) ->
    receive
        {Writer, {mark, _, _}} -> next(Link);
        {Writer, {end_group, _} = Message} ->
            %% Of the start, before anything else.
            case get({begun, Writer}) of
                undefined -> put({begun, Writer}, yes), next(Link);
                yes -> Message
            end;
        {Writer, Message} -> Message
    after ?WAIT_MS -> error(nothing_told)
    end.

nothing({Writer, _, _}) ->
    receive {Writer, {members, _, _, _} = Message} -> error({unexpected, Message})
    after 50 -> ok
    end.
