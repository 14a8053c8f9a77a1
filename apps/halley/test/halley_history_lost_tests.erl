%% What the history says of events that it could not write.
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
        meck:expect(halley_history_segment, sync, fun(_) -> {error, eio} end),
        meck:expect(halley_history_segment, write,
                    fun(File, At0, Bytes) -> meck:passthrough([File, At0, Bytes]) end),
        ?H:until(fun() -> Has(?H:newest()) end),
        Left = ?H:newest(),
        ?H:until(fun() -> meck:num_calls(halley_history_segment, sync, '_') > 0 end),
        meck:expect(halley_history_segment, sync, fun(File) -> meck:passthrough([File]) end),
        ?H:until(fun() -> not Refused() end),
        ?assertNotEqual(Left, ?H:newest())
    end),
    ?assert(Has(?H:newest())).
