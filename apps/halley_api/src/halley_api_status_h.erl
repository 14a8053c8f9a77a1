%% GET /v1/status : how it goes, for a page that shows it: the console's is made of it.
%%
%% With `?after=' the time of the last sample that the reader has, it is answered with the next one,
%% within ?STATUS_WAIT_MS: a reader asks again at once and hears each second. Without, it has the
%% samples of the last minutes.
%%
%% GET /v1/status/stream : the same as events, each second. It is a session of the edge's, so it
%% comes here from an edge of a build before it, which passes it on, or as HEAD.
-module(halley_api_status_h).
-behaviour(halley_api).

-export([handle/3, text/1]).

-include("halley_api_limits.hrl").

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [<<"stream">>], #{method := <<"HEAD">>}) ->
    {200, [{<<"content-type">>, <<"text/event-stream">>}], []};
handle(get, [<<"stream">>], _) ->
    halley_api_error:response({404, <<"not_found">>,
                               "this edge is of a build before the stream: ask GET /v1/status"});
handle(get, [], #{query := Query}) ->
    case last(proplists:get_value(<<"after">>, Query, <<"0">>)) of
        {ok, At} -> answer(halley_status:since(At, ?STATUS_WAIT_MS));
        error -> halley_api_error:response({400, <<"bad_after">>,
                                            "after is the time of a sample in milliseconds, as an "
                                            "answer gave it"})
    end.

answer({error, too_many}) ->
    halley_api_error:response(
        {503, <<"too_many_readers">>,
         ["as many as may, ", integer_to_list(halley_limits:get(status_readers_max)),
          ", wait for the next sample: ask again later, without after= for what there is, or raise "
          "limits.status_readers_max"]}, [{<<"retry-after">>, <<"1">>}]);
answer(Samples) ->
    halley_api_reply:json(status(Samples)).

%% The answer with these samples, as JSON on one line.
-spec text([halley_status:sample()]) -> binary().
text(Samples) ->
    iolist_to_binary(jiffy:encode(status(Samples))).

last(Text) when byte_size(Text) =< ?TIME_DIGITS_MAX ->
    try binary_to_integer(Text) of
        At when At >= 0 -> {ok, At};
        _ -> error
    catch
        error:badarg -> error
    end;
last(_) ->
    error.

status(Samples) ->
    {State, Why} = state(),
    {[{<<"node">>, atom_to_binary(node())},
      {<<"version">>, version()},
      {<<"uptime_s">>, element(1, erlang:statistics(wall_clock)) div 1000},
      {<<"state">>, State},
      {<<"why">>, Why},
      {<<"sessions">>, map_get(sessions, halley_directory:online())},
      {<<"drain_ms">>, application:get_env(halley, drain_ms, 0)},
      {<<"auth_mode">>, atom_to_binary(halley_api_config:auth_mode())},
      {<<"public_port">>, halley_api_config:port(public)},
      {<<"columns">>, halley_status:columns()},
      {<<"samples">>, [[At | Values] || {At, Values} <- Samples]},
      {<<"erlang_bytes">>, {[{atom_to_binary(Kind), Bytes} || {Kind, Bytes} <- erlang:memory()]}},
      {<<"workers">>, workers()}
      | counters(halley_status:lately())]}.

state() ->
    case halley_drain:is_draining() of
        true -> {<<"draining">>, null};
        false ->
            case halley_api_health_h:problem() of
                none -> {<<"ready">>, null};
                Problem -> {<<"not_ready">>, unicode:characters_to_binary(Problem)}
            end
    end.

version() ->
    case application:get_key(halley, vsn) of
        {ok, Version} -> list_to_binary(Version);
        undefined -> null
    end.

workers() ->
    Said = halley_metrics:workers(),
    [worker(Link, maps:get(Slot, Said, #{})) || #{slot := Slot} = Link <- links()].

links() ->
    lists:sort(fun(#{info := A, slot := SlotA}, #{info := B, slot := SlotB}) ->
        {place(A), SlotA} =< {place(B), SlotB}
    end, halley_links:list()).

place(Info) ->
    {maps:get(pid, Info, 0), maps:get(worker, Info, 0)}.

worker(#{slot := Slot, since := Since, queue_bytes := Queue, info := Info}, Said) ->
    {Edge, Worker} = place(Info),
    {[{<<"edge">>, Edge}, {<<"worker">>, Worker}, {<<"since">>, Since},
      {<<"behind">>, halley_links_backpressure:is_behind(Slot)}, {<<"queue_bytes">>, Queue}]
     ++ [{Name, maps:get(<<"halley_edge_", Name/binary>>, Said, null)}
         || Name <- [<<"connections">>, <<"sessions">>, <<"waiting">>, <<"held_sessions">>,
                     <<"outbox_bytes">>, <<"delivered_total">>, <<"slow_consumers_total">>,
                     <<"memory_available_bytes">>]]}.

%% Those that have counted anything: in all, and since `since'.
counters({Now, {At, Before}}) ->
    [{<<"since">>, At},
     {<<"counted">>, {[{Name, [Value, Value - maps:get(Name, Before, 0)]}
                       || {Name, Value} <- lists:sort(maps:to_list(Now)), Value > 0]}}].
