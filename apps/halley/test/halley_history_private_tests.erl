%% Private events in the history: found by each of their users, kept over a kill, and what a build
%% makes of records that it doesn't know.
-module(halley_history_private_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, halley_history_helper).
-define(SHARD, 3).

private_test_() ->
    {foreach, fun() -> ok end, fun(_) -> ok end,
     [{timeout, 120, {Title, fun() -> ?H:silently(fun() -> ?H:with([], Fun) end) end}}
      || {Title, Fun} <- cases()]}.

cases() ->
    [{"each of its users finds it", fun found/0},
     {"a brain that is killed finds it again", fun killed/0},
     {"a chosen id is known again", fun chosen/0},
     {"a long chain is read in stretches", fun stretches/0},
     {"whether there are any is one look", fun any/0},
     {"what can't be written is lost for all of its seqs", fun lost/0},
     {"a build that doesn't know its record tells a gap", fun unknown_kind/0}].

entry(Users, More) ->
    Seq = halley_history:draw(?SHARD, length(Users)),
    Id = maps:get(id, More, <<"e", (integer_to_binary(Seq))/binary>>),
    Private = halley_event:private(Id, Users, <<"1">>),
    Event = halley_event:private_event(Private, <<>>, {?SHARD, Seq}, 5),
    maps:merge(Event#{sessions := 2}, More).

publish(Users) -> publish(Users, #{}).

publish(Users, More) ->
    #{seq := Seq} = Entry = entry(Users, More),
    Ref = make_ref(),
    ok = halley_history:append(?SHARD, [Entry], [{{self(), Ref}, ok}]),
    receive {Ref, ok} -> Seq after 60000 -> error(no_answer) end.

chain(User) -> chain(User, 0, element(?SHARD, halley_history:written())).

chain(_, UpTo, UpTo) -> [];
chain(User, After, UpTo) ->
    {Seqs, To, Looks} = halley_history:stretch(?SHARD, {to, ?SHARD, User}, After, UpTo),
    ?assert(Looks < 4000),
    Seqs ++ chain(User, To, UpTo).

%% The events of a user, by what their records say.
events(User) ->
    Reader = halley_history_reader:new(),
    [begin
         {ok, 5, Body, _} = halley_history_reader:event(Seq, {to, ?SHARD, User}, Reader),
         {ok, #{id := Id}} = halley_history_record:body(Body),
         Id
     end || Seq <- chain(User)].

id(Seq) -> <<"e", (integer_to_binary(Seq))/binary>>.

found() ->
    A = publish([<<"ann">>, <<"bob">>]),
    B = publish([<<"bob">>]),
    C = publish([<<"ann">>, <<"bob">>, <<"eve">>]),
    ?assertEqual([A - 1, C - 2], chain(<<"ann">>)),
    ?assertEqual([A, B, C - 1], chain(<<"bob">>)),
    ?assertEqual([id(A), id(B), id(C)], events(<<"bob">>)),
    ?assertEqual([id(C)], events(<<"eve">>)),
    ?assertEqual([], chain(<<"stranger">>)),
    ?assertEqual({[], C, 0}, halley_history:stretch(?SHARD, <<"bob">>, 0, C)),
    ?assertNot(halley_history:has_events(<<"bob">>)),
    ?assertEqual({ok, C}, halley_history:find(id(C))),
    {ok, #{kind := private, seq := C, first := First}, _} =
        halley_history_reader:read(C - 1, halley_history_reader:new()),
    ?assertEqual(C - 2, First),
    ?assertEqual(3, ?H:events()).

killed() ->
    Users = [<<"u", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 700)],
    Ids = [id(publish(Users)) || _ <- lists:seq(1, 20)],
    Last = id(publish([<<"u7">>])),
    ?H:restart(),
    ?assertEqual(Ids ++ [Last], events(<<"u7">>)),
    ?assertEqual(Ids, events(<<"u700">>)),
    ?assertEqual([], maps:get(damaged, halley_history:info())),
    ?assertEqual(21, ?H:events()),
    ?assert(halley_history:has_private(0)).

chosen() ->
    More = #{id => <<"mine">>, chosen => true},
    ?assertEqual(fresh, halley_history:claim(?SHARD, <<"mine">>)),
    Seq = publish([<<"ann">>, <<"bob">>], More),
    Known = {known, #{id => <<"mine">>, sessions => 2}},
    ?assertEqual(Known, halley_history:claim(1, <<"mine">>)),
    ?H:restart(),
    ?assertEqual(Known, halley_history:claim(?SHARD, <<"mine">>)),
    ?assertEqual({ok, Seq}, halley_history:find(<<"mine">>)).

stretches() ->
    Seqs = [publish([<<"ann">>, <<"bob">>], #{}) || _ <- lists:seq(1, 3000)],
    ?assertEqual(Seqs, chain(<<"bob">>)),
    ?assertEqual([S - 1 || S <- Seqs], chain(<<"ann">>)),
    {Oldest, To, _} = halley_history:stretch(?SHARD, {to, ?SHARD, <<"bob">>}, 0, lists:last(Seqs)),
    ?assert(To < lists:last(Seqs)),
    ?assertEqual(Oldest, lists:sublist(Seqs, length(Oldest))).

any() ->
    {ok, Before} = ?H:publish(<<"s">>, <<"1">>),
    ?assertNot(halley_history:has_private(0)),
    Seq = publish([<<"ann">>]),
    ?assert(Seq > Before),
    ?assert(halley_history:has_private(Seq - 1)),
    ?assertNot(halley_history:has_private(Seq)).

lost() ->
    Fails = fun(_, _, _) -> {error, eio} end,
    #{seq := Last} = Entry = entry([<<"ann">>, <<"bob">>, <<"eve">>], #{}),
    ?H:mocked([halley_history_segment], fun() ->
        ?H:held(fun() ->
            ok = meck:expect(halley_history_segment, write, Fails),
            ok = meck:expect(halley_history_segment, write_through, Fails)
        end),
        ok = halley_history:append(?SHARD, [Entry], [none]),
        ok = halley_history:await(setelement(?SHARD, {0, 0, 0, 0, 0, 0, 0, 0}, Last), 60000)
    end),
    ?assertMatch([{First, Last, _, _}] when First =:= Last - 2,
                 maps:get(damaged, halley_history:info())).

%% As a build reads a kind of record that came after it: here one that none has.
unknown_kind() ->
    {ok, Before} = ?H:publish(<<"s">>, <<"1">>),
    Seq = publish([<<"ann">>, <<"bob">>]),
    {ok, #{offset := Offset}} = halley_history_index:lookup(Seq),
    {ok, After} = ?H:publish(<<"s">>, <<"2">>),
    Path = ?H:newest(),
    Store = halley_history:store(),
    ?H:kill(),
    {ok, All} = file:read_file(Path),
    <<Head:Offset/binary, Magic:4/binary, Length:32, _:32, Kind, Behind/binary>> = All,
    {6, <<Body:(Length - 1)/binary, Rest/binary>>} = {Kind, Behind},
    Crc = erlang:crc32(Store, [<<Length:32>>, 99, Body]),
    ok = file:write_file(Path, [Head, Magic, <<Length:32, Crc:32, 99>>, Body, Rest]),
    ?H:start(new),
    ?assertEqual([{Before, ok}, {After, ok}], ?H:readable([Before, After])),
    ?assert(lists:any(fun({From, To, _, _}) -> Seq >= From andalso Seq =< To end,
                      maps:get(damaged, halley_history:info()))).
