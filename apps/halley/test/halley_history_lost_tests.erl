%% What the history says of events that it could not write.
-module(halley_history_lost_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).

record_is_not_synced_test_() ->
    {timeout, 60, fun() -> ?H:silently(fun() -> ?H:with([], fun record_is_not_synced/0) end) end}.

%% The segment that has its record is left, as nobody knows what of it is on disk. So the next one
%% has it as well.
record_is_not_synced() ->
    {ok, _} = ?H:publish(<<"s">>, <<"1">>),
    Entry = #{seq := Seq, at := At} = ?H:entry(<<"s">>, <<"2">>),
    {Record, _} = halley_history_record:lost(halley_history_words:get(store), [{Seq, Seq, At, At}]),
    Refused = fun() -> halley_history:refusing() =/= false end,
    Has = fun(Path) ->
        {ok, Bytes} = file:read_file(Path),
        binary:match(Bytes, iolist_to_binary(Record)) =/= nomatch
    end,
    ?H:mocked([halley_history_segment], fun() ->
        meck:expect(halley_history_segment, write, fun(_, _, _) -> {error, enospc} end),
        ok = halley_history:append(halley_shards:of_subject(<<"s">>), [Entry], none),
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
