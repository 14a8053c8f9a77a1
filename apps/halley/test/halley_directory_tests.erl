%% The directory alone: its properties under concurrency, and single cases.
-module(halley_directory_tests).

-include_lib("eunit/include/eunit.hrl").

properties_test_() ->
    [{timeout, 60, {atom_to_list(Property),
                    ?_assert(proper:quickcheck(prop_halley_directory:Property(),
                                               [{numtests, Tests}, {to_file, user}, quiet]))}}
     || {Property, Tests} <- [{prop_state_equals_model, 300}, {prop_shut_slot_stays_empty, 100}]].

directory_test_() ->
    {foreach,
     fun() ->
         ok = halley_directory:new(),
         {ok, Owner} = halley_directory:start_link(fun(_) -> ok end),
         Owner
     end,
     fun(Owner) ->
         gen_server:stop(Owner),
         ets:delete(halley_directory_rows),
         ets:delete(halley_directory_held)
     end,
     [fun(_) -> {timeout, 60, {Name, Test}} end
      || {Name, Test} <- [{"one session is a word", fun one_session/0},
                          {"several sessions and back", fun several_and_back/0},
                          {"as many as may be, the oldest first", fun bounded/0},
                          {"closing what is not there", fun close_absent/0},
                          {"the largest word is an immediate integer", fun largest_word/0},
                          {"an unknown user is offline", fun unknown_user/0},
                          {"a process is several users", fun process_of_several_users/0},
                          {"a word is eight bytes", fun memory/0}]]}.

one_session() ->
    _ = halley_directory:open(7, {link, 3, 99}, infinity),
    _ = halley_directory:open(7, {link, 3, 99}, infinity),
    ?assert(is_integer(halley_directory:lookup(halley_directory_atomics:chunks(), 7))),
    ?assertEqual([{link, 3, 99}], halley_directory:sessions(7)),
    ?assertEqual(#{users => 1, sessions => 1}, halley_directory:online()).

several_and_back() ->
    [_ = halley_directory:open(7, Session, infinity)
     || Session <- [{link, 1, 1}, {link, 2, 1}, self()]],
    ?assertEqual(lists:sort([{link, 1, 1}, {link, 2, 1}, self()]),
                 lists:sort(halley_directory:sessions(7))),
    ok = halley_directory:close(7, self()),
    ok = halley_directory:close(7, {link, 1, 1}),
    ?assertEqual(#{users => 1, sessions => 1}, halley_directory:online()),
    ?assert(is_integer(halley_directory:lookup(halley_directory_atomics:chunks(), 7))),
    ok = halley_directory:close(7, {link, 2, 1}),
    ?assertEqual([], halley_directory:sessions(7)),
    ?assertEqual([], ets:tab2list(halley_directory_rows)).

bounded() ->
    Sessions = [{link, 9, 5}, {link, 2, 1}, self(), {link, 2, 7}],
    [A, B, C, D] = Sessions,
    ?assertEqual(ok, halley_directory:open(7, A, 1)),
    ?assertEqual(ok, halley_directory:open(7, A, 1)),
    ?assertEqual(full, halley_directory:open(7, B, 1)),
    ?assertEqual({several, [A]}, halley_directory:open(7, B, 3)),
    ?assertEqual({several, [A, B]}, halley_directory:open(7, C, 3)),
    ?assertEqual(full, halley_directory:open(7, D, 3)),
    ?assertEqual(ok, halley_directory:open(7, B, 3)),
    ok = halley_directory:close(7, B),
    ?assertEqual({several, [A, C]}, halley_directory:open(7, D, 3)),
    ?assertEqual([A, C, D], halley_directory:sessions(7)).

close_absent() ->
    ok = halley_directory:close(7, {link, 1, 1}),
    ok = halley_directory:close(7, self()),
    _ = halley_directory:open(7, {link, 1, 1}, infinity),
    ok = halley_directory:close(7, {link, 2, 1}),
    ?assertEqual([{link, 1, 1}], halley_directory:sessions(7)).

largest_word() ->
    _ = halley_directory:open(7, {link, 1023, 16#FFFFFFFFFFFF}, infinity),
    Word = halley_directory:lookup(halley_directory_atomics:chunks(), 7),
    ?assertEqual(0, erts_debug:flat_size(Word)),
    ?assertEqual([{link, 1023, 16#FFFFFFFFFFFF}], halley_directory:sessions(7)).

unknown_user() ->
    ?assertEqual([], halley_directory:sessions(0)),
    ?assertEqual([], halley_directory:sessions(16#FFFFFFFF)).

process_of_several_users() ->
    [_ = halley_directory:open(User, self(), infinity) || User <- [1, 2, 3]],
    ok = halley_directory:logout(self()),
    ?assertEqual(#{users => 0, sessions => 0}, halley_directory:online()).

memory() ->
    Before = erlang:memory(system),
    [_ = halley_directory:open(User, {link, 1, User}, infinity) || User <- lists:seq(0, 999999)],
    ?assertEqual(1000000, maps:get(users, halley_directory:online())),
    ?assert(erlang:memory(system) - Before < 9 * 1024 * 1024),
    ok = halley_directory:purge(1, fun(_) -> ok end),
    ?assertEqual(#{users => 0, sessions => 0}, halley_directory:online()).
