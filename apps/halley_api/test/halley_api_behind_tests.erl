%% Slow sessions, by the workers' answers.
-module(halley_api_behind_tests).

-include_lib("eunit/include/eunit.hrl").

-export([behind/2]).

-import(halley_api_fake, [json/1]).

behind_test_() ->
    halley_api_fake:cases([fun the_most_first/0, fun not_known/0, fun at_most/0]).

%% Answers of workers, by slot.
with(Said) ->
    meck:expect(halley_links, list,
                fun() -> [#{slot => Slot, info => #{worker => Slot - 1, pid => 77}}
                          || Slot <- lists:sort(maps:keys(Said))] end),
    meck:expect(halley_links, said_for_test, fun(Slot) -> map_get(Slot, Said) end),
    meck:expect(halley_ids, name, fun(7) -> <<"bob">>; (8) -> <<"eve">>;
                                     (Number) -> error({no_such_user_number, Number}) end),
    halley_inspection:set(?MODULE),
    json(halley_api_fake:get("/v1/behind")).

behind(Slot, Ms) when Ms > 0 -> halley_links:said_for_test(Slot).

slow(Number, Bytes) ->
    #{conn => 1, user_number => Number, transport => sse, outbox_bytes => Bytes,
      outbox_pieces => 2, outbox_ms => 3}.

row(User, Worker, Bytes) ->
    #{<<"user">> => User, <<"worker">> => Worker, <<"edge">> => 77, <<"transport">> => <<"sse">>,
      <<"outbox_bytes">> => Bytes, <<"outbox_events">> => 2, <<"outbox_ms">> => 3}.

the_most_first() ->
    Said = #{1 => {ok, [slow(7, 30), slow(16#ffffffff, 10)]}, 2 => {ok, [slow(8, 20)]}},
    ?assertEqual(#{<<"behind">> => [row(<<"bob">>, 0, 30), row(<<"eve">>, 1, 20),
                                    row(null, 0, 10)], <<"unknown">> => 0}, with(Said)).

%% Workers that don't say, and one that names a user who is none.
not_known() ->
    Said = #{1 => unknown, 2 => timeout, 3 => gone, 4 => {ok, [slow(9, 5), slow(8, 4)]}},
    ?assertEqual(#{<<"behind">> => [row(<<"eve">>, 3, 4)], <<"unknown">> => 3}, with(Said)),
    ?assertEqual(#{<<"behind">> => [], <<"unknown">> => 0}, with(#{})).

at_most() ->
    Said = maps:from_list([{Slot, {ok, [slow(7, Slot * 100 + N) || N <- lists:seq(1, 20)]}}
                           || Slot <- [1, 2]]),
    #{<<"behind">> := Rows} = with(Said),
    ?assertEqual([N || N <- lists:seq(220, 201, -1)],
                 [Bytes || #{<<"outbox_bytes">> := Bytes} <- Rows]).
