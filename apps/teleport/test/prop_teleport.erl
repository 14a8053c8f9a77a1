%% The promises of the codecs for any terms and any bytes.
-module(prop_teleport).

-include("teleport_proper.hrl").

-export([prop_round_trip/0, prop_large_round_trip/0, prop_any_bytes/0, prop_damaged/0,
         prop_cut_apart/0, prop_control/0, prop_greeting/0]).

-define(PEER, 'peer@127.0.0.1').

%% Terms that are taken, with all tags that they may have. They are made from a seed: generators of
%% PropEr for terms of any shape take a second for each.
seed() -> range(1, 1 bsl 58).

terms(Seed) ->
    _ = rand:seed(exsss, Seed),
    [term(12) || _ <- lists:seq(1, rand:uniform(8))].

term(Size) when Size =< 0 -> leaf(rand:uniform(16));
term(Size) ->
    Some = fun() -> [term(Size div 2 - 1) || _ <- lists:seq(1, rand:uniform(4))] end,
    case rand:uniform(8) of
        1 -> Some();
        2 -> list_to_tuple(Some());
        3 -> [term(Size div 2) | leaf(rand:uniform(16))];
        4 -> maps:from_list([{term(0), Term} || Term <- Some()]);
        5 -> [];
        _ -> term(0)
    end.

leaf(1) -> rand:uniform(256) - 1;
leaf(2) -> rand:uniform(1 bsl 32) - 1 bsl 31;
leaf(3) -> 1 bsl (32 + rand:uniform(3000));
leaf(4) -> -(1 bsl (32 + rand:uniform(3000)));
leaf(5) -> rand:normal();
leaf(6) -> rand:bytes(rand:uniform(20) - 1);
leaf(7) -> <<(rand:uniform(1 bsl 20)):(rand:uniform(20))>>;
leaf(8) -> binary_to_list(rand:bytes(rand:uniform(20)));
leaf(9) -> rand:bytes(60 + rand:uniform(10));
leaf(10) -> erlang:make_tuple(250 + rand:uniform(20), a);
leaf(11) -> self();
leaf(12) -> make_ref();
leaf(13) -> 'with space';
leaf(14) -> 'grün';
leaf(15) -> teleport;
leaf(16) -> <<>>.

bytes(Io) -> iolist_to_binary(Io).

prop_round_trip() ->
    ?FORALL(Seed, seed(),
            begin
                Elements = [[self() | Message] || Message <- terms(Seed)],
                {ok, Elements} =:= teleport_codec:decode(bytes(teleport_codec:encode(Elements)),
                                                         ?PEER)
            end).

%% Binaries are cut out wherever they are, and come back.
prop_large_round_trip() ->
    ?FORALL({Seed, Size}, {seed(), range(32768, 40000)},
            begin
                [First | More] = terms(Seed),
                Large = binary:copy(<<Size:16>>, Size),
                Message = case Size rem 4 of
                    0 -> Large;
                    1 -> {First, Large, [Large, More | Large]};
                    2 -> #{First => Large, more => [More, {Large}]};
                    3 -> [Large | More]
                end,
                {Rest, Cut} = teleport_large:encode([some_name | Message]),
                Cut =/= [] andalso {ok, [some_name | Message]}
                    =:= teleport_large:decode(bytes(Rest), Cut, ?PEER)
            end).

%% Any bytes are elements, each taken or refused, or are malformed.
prop_any_bytes() ->
    ?FORALL(Bytes, oneof([binary(), ?LET(B, binary(), <<131, B/binary>>),
                          ?LET({N, B}, {byte(), binary()}, <<131, 108, 0, 0, 0, N, B/binary>>)]),
            judged(Bytes)).

%% A frame in which bytes were changed or lost.
prop_damaged() ->
    ?FORALL({Seed, Places, Keep}, {seed(), list({nat(), byte()}), range(1, 100)},
            begin
                Frame = bytes(teleport_codec:encode([[self() | M] || M <- terms(Seed)])),
                judged(damage(Frame, Places, Keep))
            end).

damage(Frame, Places, Keep) ->
    Cut = binary:part(Frame, 0, max(1, byte_size(Frame) * Keep div 100)),
    lists:foldl(fun({At, Byte}, Bytes) ->
        Place = At rem byte_size(Bytes),
        <<Before:Place/binary, _, After/binary>> = Bytes,
        <<Before/binary, Byte, After/binary>>
    end, Cut, Places).

judged(Bytes) ->
    case teleport_codec:decode(Bytes, ?PEER) of
        {ok, Elements} -> lists:all(fun is_taken/1, Elements);
        {error, malformed} -> true
    end.

is_taken({refused, _}) -> true;
is_taken(Element) -> teleport_codec:check(Element, ?PEER) =:= ok.

%% Elements that are cut apart without being read are those that were put together.
prop_cut_apart() ->
    ?FORALL({Seed, Rest}, {seed(), binary()},
            begin
                Terms = terms(Seed),
                <<131, List/binary>> = term_to_binary([{Term} || Term <- Terms]),
                {ok, Parts, Rest} = teleport_etf:elements(<<List/binary, Rest/binary>>),
                [{Term} || Term <- Terms] =:= [binary_to_term(<<131, Part/binary>>)
                                               || Part <- Parts]
            end).

prop_control() ->
    ?FORALL({Bytes, Kind, Number, Times}, {binary(), oneof([lane, large]), range(1, 255),
                                           list(range(0, 1 bsl 63))},
            begin
                Frames = [{ping, 7}, {pong, 7, Times}, {open, Kind, Number}, {done, Number, Times},
                          {close, <<"why">>}, {stays, Kind, Number}]
                         ++ [{What, Kind, Number, Time} || What <- [rest, rests], Time <- Times],
                Decoded = [teleport_control:decode(teleport_control:encode(F)) || F <- Frames],
                Decoded =:= [{ok, F} || F <- Frames]
                    andalso case teleport_control:decode(Bytes) of
                                {ok, _} -> true;
                                {error, malformed} -> true
                            end
            end).

%% Whatever comes instead of a greeting's frame, it isn't taken for one that knows the secret.
prop_greeting() ->
    ?FORALL({Junk, Key}, {oneof([binary(), binary(49), ?LET(B, binary(49), <<1, B/binary>>)]),
                          binary(32)},
            begin
                Hello = <<"h">>,
                Challenge = <<"c">>,
                Read = [teleport_handshake:read_hello(Junk),
                        teleport_handshake:read_challenge(<<2, Junk/binary>>),
                        teleport_handshake:read_proof(Key, Hello, Challenge, Junk),
                        teleport_handshake:read_welcome(Key, {Hello, Challenge}, <<"p">>, Junk)],
                lists:all(fun({Verdict, _}) -> Verdict =/= ok end, Read)
            end).
