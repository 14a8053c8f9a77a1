%% Users that were forgotten, and what happens to the files: their past stays hidden.
-module(halley_history_forgotten_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).

forgotten_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 120, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
      || {Title, Fun} <- cases()]}.

cases() ->
    [{"a brain that is killed", fun killed/0},
     {"bits that flip in its record", fun flipped/0},
     {"a copy of the segments alone", fun backup/0},
     {"a full disk: it is refused, and done again", fun full_disk/0},
     {"it is counted once", fun counted_once/0}].

about_ann() ->
    {ok, Seq} = ?H:publish(<<"ann">>, <<"1">>),
    {ok, Other} = ?H:publish(<<"bob">>, <<"2">>),
    {Seq, Other}.

is_hidden(Seq) ->
    case halley_history_reader:read(Seq, halley_history_reader:new()) of
        {ok, #{kind := hidden}, _} -> true;
        {ok, #{kind := event}, _} -> false
    end.

killed() ->
    {Seq, Other} = about_ann(),
    ok = halley_history:forget(<<"ann">>),
    ?H:restart(),
    {ok, Later} = ?H:publish(<<"ann">>, <<"3">>),
    ?H:restart(),
    ?assertEqual([true, false, false], [is_hidden(S) || S <- [Seq, Other, Later]]).

flipped() ->
    [begin
         {Seq, Other} = about_ann(),
         ok = halley_history:forget(<<"ann">>),
         [Second, First] = lists:sublist(halley_history:changes(<<"ann">>, 0), 2),
         {ok, _} = ?H:publish(<<"bob">>, <<"4">>),
         Record = case Which of first -> First; second -> Second end,
         {ok, #{offset := Offset}} = halley_history_index:lookup(Record),
         ?H:damage(?H:newest(), Offset + 30, fun(Byte) -> Byte bxor 1 end),
         ?H:restart(),
         ?assertEqual([true, false], [is_hidden(S) || S <- [Seq, Other]])
     end || Which <- [first, second]].

backup() ->
    {Seq, Other} = about_ann(),
    ok = halley_history:forget(<<"ann">>),
    ?H:kill(),
    [ok = file:delete(filename:join(?H:directory(), Name)) || Name <- ["store", "synced"]],
    ?H:start(new),
    ?assertEqual([true, false], [is_hidden(S) || S <- [Seq, Other]]).

full_disk() ->
    {Seq, _} = about_ann(),
    Fails = fun(_, _, _) -> {error, enospc} end,
    ?H:mocked([halley_history_segment], fun() ->
        ?H:held(fun() ->
            ok = meck:expect(halley_history_segment, write, Fails),
            ok = meck:expect(halley_history_segment, write_through, Fails)
        end),
        ?assertEqual({error, disk_full}, halley_history:forget(<<"ann">>)),
        ?assertNot(is_hidden(Seq))
    end),
    ?H:until(fun() -> halley_history:refusing() =:= false end),
    ?assertEqual(ok, halley_history:forget(<<"ann">>)),
    ?H:restart(),
    ?assert(is_hidden(Seq)).

counted_once() ->
    about_ann(),
    ok = halley_history:forget(<<"ann">>),
    ok = halley_history:forget(<<"ann">>),
    ?assertEqual(1, halley_history_forgotten:count()).
