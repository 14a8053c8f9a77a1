%% Events that the history could not write.
-module(halley_history_lost_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).

record_is_not_synced_test_() ->
    {timeout, 60, fun() -> ?H:silently(fun() -> ?H:with([], fun record_is_not_synced/0) end) end}.

%% Found by the checker: the disk failed in the midst of a write and went read-only, so the event
%% stayed in the file. A client came back over its seq; then the brain was killed, the event was
%% found, and its publisher was told that it is known.
write_that_cant_be_undone_test_() ->
    [{timeout, 60, {Title, fun() ->
         ?H:silently(fun() -> ?H:with([], fun() -> cant_be_undone(Cut, Sync) end) end)
     end}} || {Title, Cut, Sync} <- [{"it can't be cut off", {error, erofs}, ok},
                                     {"nobody knows whether it is cut off", ok, {error, eio}}]].

cant_be_undone(Cut, Sync) ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    Seq = ?H:mocked([halley_history_segment, halley_history_disk], fun() ->
        meck:expect(halley_history_disk, probe, fun(Disk) -> {error, eio, Disk} end),
        meck:expect(halley_history_segment, write_through, fun(File, At, Bytes) ->
            ok = meck:passthrough([File, At, Bytes]),
            {error, eio}
        end),
        meck:expect(halley_history_segment, cut, fun(_, _) -> Cut end),
        meck:expect(halley_history_segment, sync, fun(_) -> Sync end),
        Chosen = #{id => <<"x">>, chosen => true},
        {{error, history_failed}, Failed} = ?H:publish(<<"s">>, <<"2">>, Chosen),
        ?assertMatch([{Failed, Failed, _, _}], maps:get(damaged, halley_history:info())),
        Failed
    end),
    ?H:kill(),
    ?H:start(new),
    ?assertEqual([Seq, First], ?H:chain(<<"s">>, 0, Seq)).

%% A turn of a shard has events that were answered already, and others.
mixed_turn_test_() ->
    [{timeout, 60, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
     || {Title, Fun} <- [{"what was answered is tried beside what is refused", fun mixed/0},
                         {"what was answered alone is lost", fun mixed_lost/0}]].

%% Seqs of four, of which the publisher of the first and the last waits.
turn() ->
    Entries = [?H:entry(<<"s">>, <<"1">>, More)
               || More <- [#{id => <<"x">>, chosen => true}, #{ack => memory}, #{ack => memory},
                           #{}]],
    Ref = make_ref(),
    ok = halley_history:append(halley_shards:of_subject(<<"s">>), Entries,
                               [none, {{self(), Ref}, ok}]),
    receive {Ref, Answer} -> {Answer, [Seq || #{seq := Seq} <- Entries]}
    after 60000 -> exit(no_answer)
    end.

mixed() ->
    {ok, First} = ?H:publish(<<"s">>, <<"1">>),
    {Second, Third} = ?H:mocked([halley_history_segment, halley_history_disk], fun() ->
        meck:expect(halley_history_disk, probe, fun(Disk) -> {error, enospc, Disk} end),
        room_below(4000),
        {{error, disk_full}, _} = ?H:publish(<<"s">>, binary:copy(<<"2">>, 5000)),
        {{error, disk_full}, [_, A, B, Last]} = turn(),
        ?assertEqual(Last, element(halley_shards:of_subject(<<"s">>), halley_history:written())),
        ?assertEqual([], maps:get(damaged, halley_history:info())),
        ?assertEqual(fresh, halley_history:claim(1, <<"x">>)),
        ok = halley_history_pending_ids:ended(<<"x">>),
        {A, B}
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    {ok, Newest} = ?H:publish(<<"s">>, <<"4">>),
    Chain = [Newest, Third, Second, First],
    ?assertEqual(Chain, ?H:chain(<<"s">>, 0, Newest)),
    ?H:restart(),
    ?assertEqual([], maps:get(damaged, halley_history:info())),
    ?assertEqual([{Seq, ok} || Seq <- Chain], ?H:readable(Chain)).

%% Large records find no room.
room_below(Bytes) ->
    [meck:expect(halley_history_segment, Write, fun(File, Position, Records) ->
         case iolist_size(Records) < Bytes of
             true -> meck:passthrough([File, Position, Records]);
             false -> {error, enospc}
         end
     end) || Write <- [write, write_through]].

mixed_lost() ->
    {ok, _} = ?H:publish(<<"s">>, <<"1">>),
    {Second, Third} = ?H:mocked([halley_history_segment], fun() ->
        room_below(1),
        {{error, disk_full}, [_, A, B, _]} = turn(),
        ?assertMatch([{A, B, _, _}], maps:get(damaged, halley_history:info())),
        {A, B}
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    {ok, _} = ?H:publish(<<"s">>, <<"4">>),
    ?H:restart(),
    ?assertMatch([{Second, Third, _, _}], maps:get(damaged, halley_history:info())).

%% The sync said that all is well, and the file system takes no writes any more.
sync_that_lied_test_() ->
    {timeout, 60, fun() -> ?H:silently(fun() -> ?H:with([], fun sync_that_lied/0) end) end}.

sync_that_lied() ->
    {ok, _} = ?H:publish(<<"s">>, <<"1">>),
    ?H:mocked([halley_data_dir], fun() ->
        meck:expect(halley_data_dir, check_writable, fun(_) -> {error, erofs} end),
        ?assertMatch({{error, history_failed}, _}, ?H:publish(<<"s">>, <<"2">>)),
        ?assertEqual(failed, halley_history:refusing())
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    {ok, _} = ?H:publish(<<"s">>, <<"3">>).

%% The segment that has its record is left, as nobody knows what of it is on disk. So the next one
%% has it as well.
record_is_not_synced() ->
    {ok, _} = ?H:publish(<<"s">>, <<"1">>),
    Entry = #{seq := Seq, at := At} = ?H:entry(<<"s">>, <<"2">>),
    Store = halley_history_atomics:get(store),
    {Record, _} = halley_history_record:lost(Store, [{Seq, Seq, At, At}]),
    Refused = fun() -> halley_history:refusing() =/= false end,
    Has = fun(Path) ->
        {ok, Bytes} = file:read_file(Path),
        binary:match(Bytes, iolist_to_binary(Record)) =/= nomatch
    end,
    ?H:mocked([halley_history_segment], fun() ->
        meck:expect(halley_history_segment, write, fun(_, _, _) -> {error, enospc} end),
        ok = halley_history:append(halley_shards:of_subject(<<"s">>), [Entry], [none]),
        ?H:until(Refused),
        Me = self(),
        meck:expect(halley_history_segment, sync, fun(_) ->
            Newest = ?H:newest(),
            Has(Newest) andalso (Me ! {not_synced, Newest}),
            {error, eio}
        end),
        meck:expect(halley_history_segment, write,
                    fun(File, At0, Bytes) -> meck:passthrough([File, At0, Bytes]) end),
        %% Earlier syncs are no proof: the failed write was cut off, and that was synced.
        Left = receive {not_synced, Path} -> Path after 30_000 -> error(never_synced) end,
        meck:expect(halley_history_segment, sync, fun(File) -> meck:passthrough([File]) end),
        ?H:until(fun() -> not Refused() end),
        ?assertNotEqual(Left, ?H:newest())
    end),
    ?assert(Has(?H:newest())).
