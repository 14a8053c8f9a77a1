%% The frames of a link's control connection, on which nothing waits for messages. Pure.
-module(teleport_control).

-export([encode/1, decode/1]).
-export_type([frame/0]).

%% `pong' has the ping's time and, for each lane, how many small elements were delivered. `open'
%% asks who dialed to open a connection. `done': large elements of a lane that were delivered.
%% `close': why the sender ends the link. `rest', `rests', `stays': the dialer asks whether a
%% connection may be closed, and the answers (teleport_connection); with how many small elements
%% were written over the lane by the sender, who writes no more.
-type frame() :: {ping, integer()} | {pong, integer(), [non_neg_integer()]}
               | {open, lane | large, 1..255} | {done, 1..255, [non_neg_integer()]}
               | {close, binary()} | {rest | rests, lane | large, 1..255, non_neg_integer()}
               | {stays, lane | large, 1..255}.

-define(REASON_BYTES_MAX, 200).
-define(KIND(N), element(N, {lane, large})).
-define(IS_KIND(N), (N =:= 1 orelse N =:= 2)).

-spec encode(frame()) -> binary().
encode({ping, Time}) -> <<1, Time:64/signed>>;
encode({pong, Time, Seen}) -> <<2, Time:64/signed, << <<N:64>> || N <- Seen >>/binary>>;
encode({open, Kind, Number}) -> <<3, (kind(Kind)), Number>>;
encode({done, Number, Ids}) -> <<4, Number, << <<Id:64>> || Id <- Ids >>/binary>>;
encode({close, Reason}) -> <<5, (binary:part(Reason, 0, min(byte_size(Reason),
                                                            ?REASON_BYTES_MAX)))/binary>>;
encode({rest, Kind, Number, Count}) -> <<6, (kind(Kind)), Number, Count:64>>;
encode({rests, Kind, Number, Count}) -> <<7, (kind(Kind)), Number, Count:64>>;
encode({stays, Kind, Number}) -> <<8, (kind(Kind)), Number>>.

kind(lane) -> 1;
kind(large) -> 2.

-spec decode(binary()) -> {ok, frame()} | {error, malformed}.
decode(<<1, Time:64/signed>>) -> {ok, {ping, Time}};
decode(<<2, Time:64/signed, Seen/binary>>) when byte_size(Seen) rem 8 =:= 0 ->
    {ok, {pong, Time, [N || <<N:64>> <= Seen]}};
decode(<<3, Kind, Number>>) when ?IS_KIND(Kind) -> {ok, {open, ?KIND(Kind), Number}};
decode(<<4, Number, Ids/binary>>) when byte_size(Ids) rem 8 =:= 0 ->
    {ok, {done, Number, [Id || <<Id:64>> <= Ids]}};
decode(<<5, Reason/binary>>) when byte_size(Reason) =< ?REASON_BYTES_MAX -> {ok, {close, Reason}};
decode(<<6, Kind, Number, Count:64>>) when ?IS_KIND(Kind) ->
    {ok, {rest, ?KIND(Kind), Number, Count}};
decode(<<7, Kind, Number, Count:64>>) when ?IS_KIND(Kind) ->
    {ok, {rests, ?KIND(Kind), Number, Count}};
decode(<<8, Kind, Number>>) when ?IS_KIND(Kind) -> {ok, {stays, ?KIND(Kind), Number}};
decode(_) -> {error, malformed}.
