%% The handshake's frames: a peer that knows the secret is let in, and no other.
-module(teleport_handshake_tests).

-include_lib("eunit/include/eunit.hrl").

hello() ->
    #{kind => lane, lane => 3, nonce => teleport_handshake:nonce(),
      link => crypto:strong_rand_bytes(16), epoch => 7, instance => crypto:strong_rand_bytes(16),
      from => <<"a@h">>, to => <<"b@h">>}.

about() -> #{message_bytes_max => 1 bsl 20, lanes => 4, epoch => 9}.

%% What both sides send, by a secret each.
run(DialerSecret, AcceptorSecret) ->
    Dialer = teleport_handshake:key(DialerSecret),
    Acceptor = teleport_handshake:key(AcceptorSecret),
    Hello = teleport_handshake:hello(hello()),
    Challenge = teleport_handshake:challenge(teleport_handshake:nonce(), <<0:128>>),
    Proof = teleport_handshake:proof(Dialer, Hello, Challenge, about()),
    Welcome = teleport_handshake:welcome(Acceptor, Hello, Challenge, Proof, about()),
    {Hello, Challenge, Proof, Welcome,
     teleport_handshake:read_proof(Acceptor, Hello, Challenge, Proof),
     teleport_handshake:read_welcome(Dialer, {Hello, Challenge}, Proof, Welcome)}.

one_secret_test() ->
    {_, Challenge, _, _, Dialer, Acceptor} = run(<<"s">>, <<"s">>),
    ?assertEqual({ok, about()}, Dialer),
    ?assertEqual({ok, about()}, Acceptor),
    ?assertEqual({ok, <<0:128>>}, teleport_handshake:read_challenge(Challenge)).

two_secrets_test() ->
    {_, _, _, _, Dialer, Acceptor} = run(<<"s">>, <<"t">>),
    ?assertEqual({error, bad_secret}, Dialer),
    ?assertEqual({error, bad_secret}, Acceptor).

hello_test() ->
    Hello = hello(),
    ?assertEqual({ok, Hello}, teleport_handshake:read_hello(teleport_handshake:hello(Hello))).

%% Each bit of each frame is under a proof.
every_bit_counts_test() ->
    {Hello, Challenge, Proof, Welcome, _, _} = run(<<"s">>, <<"s">>),
    Key = teleport_handshake:key(<<"s">>),
    Bad = [teleport_handshake:read_proof(Key, H, C, P)
           || {H, C, P} <- [{H, Challenge, Proof} || H <- flipped(Hello)]
                           ++ [{Hello, C, Proof} || C <- flipped(Challenge)]
                           ++ [{Hello, Challenge, P} || P <- flipped(Proof)]]
        ++ [teleport_handshake:read_welcome(Key, {Hello, Challenge}, Proof, W)
            || W <- flipped(Welcome)],
    ?assertEqual([], [V || {ok, _} = V <- Bad]).

flipped(Bytes) ->
    [begin
         <<Before:N/bitstring, Bit:1, After/bitstring>> = Bytes,
         <<Before/bitstring, (1 - Bit):1, After/bitstring>>
     end || N <- lists:seq(0, bit_size(Bytes) - 1)].

%% A proof sent back to who made it, or of another connection, proves nothing.
replayed_test() ->
    Key = teleport_handshake:key(<<"s">>),
    {Hello, Challenge, Proof, _, _, _} = run(<<"s">>, <<"s">>),
    ?assertEqual({error, bad_secret},
                 teleport_handshake:read_welcome(Key, {Hello, Challenge}, Proof, Proof)),
    Other = teleport_handshake:challenge(teleport_handshake:nonce(), <<0:128>>),
    ?assertEqual({error, bad_secret}, teleport_handshake:read_proof(Key, Hello, Other, Proof)).

refusals_test() ->
    ?assertEqual({refused, crossed},
                 teleport_handshake:read_challenge(teleport_handshake:refusal(crossed))),
    ?assertEqual({error, malformed}, teleport_handshake:read_challenge(<<0, "because">>)),
    <<Magic:8/binary, Version, Rest/binary>> = teleport_handshake:hello(hello()),
    [?assertEqual({error, bad_version},
                  teleport_handshake:read_hello(<<Magic/binary, Other, Rest/binary>>))
     || Other <- [Version - 1, Version + 1]].
