%% INSPECT frames that wait for their INSPECTED (protocol/link.md 10.8): which caller asked with
%% which token. Held in the link's state; every function takes it and gives it back.
%%
%% At most ?OUTSTANDING_MAX wait at the same time. One that is never answered leaves when its time
%% is over; its caller has left by then.
-module(halley_edge_inspections).

-export([new/0, ask/4, answered/4, behind/3, expire/1]).
-export_type([inspections/0]).

-define(OUTSTANDING_MAX, 64).
%% No connection has this id: who asks about it asks for the sessions that are behind. An edge of a
%% build before it says that it doesn't know it.
-define(NO_CONN, (1 bsl 47)).
-define(TOKEN_LIMIT, (1 bsl 32)).

-record(inspections, {
    next = 0 :: non_neg_integer(),
    outstanding = #{} :: #{Token :: non_neg_integer() =>
                               {gen_server:from(), halley_edge_codec:conn(), Deadline :: integer()}}
}).
-opaque inspections() :: #inspections{}.

-spec new() -> inspections().
new() ->
    #inspections{}.

%% Gives the frame to send, or `full'.
-spec ask(gen_server:from(), halley_edge_codec:conn(), TimeoutMs :: non_neg_integer(),
          inspections()) -> {halley_edge_codec:frame(), inspections()} | full.
ask(_, _, _, #inspections{outstanding = Outstanding})
  when map_size(Outstanding) >= ?OUTSTANDING_MAX ->
    full;
ask(From, Conn, TimeoutMs, #inspections{next = Token, outstanding = Outstanding}) ->
    Asked = {From, Conn, now_ms() + TimeoutMs},
    {{inspect, Token, Conn}, #inspections{next = (Token + 1) rem ?TOKEN_LIMIT,
                                          outstanding = Outstanding#{Token => Asked}}}.

%% INSPECTED came; one that nobody waits for is skipped.
-spec answered(Token :: non_neg_integer(), halley_edge_codec:conn(), halley_edge_codec:inspected(),
               inspections()) -> inspections().
answered(Token, Conn, Seen, #inspections{outstanding = Outstanding} = Inspections) ->
    case maps:take(Token, Outstanding) of
        {{From, Conn, _}, Rest} ->
            #{state := State, transport := Transport} = Seen,
            gen_server:reply(From, {ok, Seen#{state := state(State),
                                              transport := transport(Transport)}}),
            Inspections#inspections{outstanding = Rest};
        _ ->
            Inspections
    end.

%% BEHIND came, the answer to who asked about ?NO_CONN.
-spec behind(Token :: non_neg_integer(), [halley_edge_codec:slow()], inspections()) ->
    inspections().
behind(Token, Slow, #inspections{outstanding = Outstanding} = Inspections) ->
    case maps:take(Token, Outstanding) of
        {{From, ?NO_CONN, _}, Rest} ->
            gen_server:reply(From, {ok, [#{conn => Conn, user_number => Number,
                                           transport => transport(Transport),
                                           outbox_bytes => Bytes, outbox_pieces => Pieces,
                                           outbox_ms => Ms}
                                         || {Conn, Number, Transport, Bytes, Pieces, Ms} <- Slow]}),
            Inspections#inspections{outstanding = Rest};
        _ ->
            Inspections
    end.

%% To be called about once a second.
-spec expire(inspections()) -> inspections().
expire(#inspections{outstanding = Outstanding} = Inspections) when map_size(Outstanding) =:= 0 ->
    Inspections;
expire(#inspections{outstanding = Outstanding} = Inspections) ->
    Now = now_ms(),
    Inspections#inspections{outstanding = maps:filter(fun(_, {_, _, Deadline}) ->
        Deadline > Now
    end, Outstanding)}.

%% protocol/link.md 2.8
state(0) -> unknown;
state(1) -> opening;
state(2) -> held;
state(3) -> live;
state(4) -> closing.

%% protocol/link.md 2.6
transport(0) -> unknown;
transport(1) -> sse;
transport(2) -> ndjson;
transport(3) -> websocket;
transport(4) -> test;
transport(5) -> poll.

now_ms() ->
    erlang:monotonic_time(millisecond).
