%% The handshake: before anything else is read from a connection, both sides prove that they know
%% the cluster's secret. Pure: bytes in, bytes out; teleport_greeting runs it on a socket.
%%
%% HELLO (the dialer: what connection this is, who it is, whom it wants, a nonce), CHALLENGE (the
%% acceptor: a nonce, its instance), PROOF (the dialer's HMAC-SHA-256 over both, and its limits),
%% WELCOME (the acceptor's, and its limits). The acceptor proves nothing to who hasn't proved; each
%% proof names its side, so that none can be sent back. A refusal is a frame of its own with a word
%% of ?REFUSALS. An answer may only take the place where it is expected.
%%
%% Names are compared, never made: the acceptor looks the dialer's up among the atoms there are.
%%
%% It is not a cipher. An attacker who can change bytes on the way can do so afterwards; TLS
%% prevents that.
-module(teleport_handshake).

-export([key/1, nonce/0, hello/1, read_hello/1, challenge/2, read_challenge/1]).
-export([proof/4, read_proof/4, welcome/5, read_welcome/4, refusal/1]).
-export_type([hello/0, about/0, refusal/0]).

%% `kind': what the connection is for; `lane': which of that kind. `link': the link's name, made by
%% who dials. `epoch': the dialer's count of links; of two links of an instance the higher is newer.
%% `instance': of the dialer, new with each start.
-type hello() :: #{kind := control | lane | large, lane := 0..255, nonce := <<_:256>>,
                   link := <<_:128>>, epoch := non_neg_integer(), instance := <<_:128>>,
                   from := binary(), to := binary()}.
%% What either side says of itself, under its proof.
-type about() :: #{message_bytes_max := pos_integer(), lanes := 1..255,
                   epoch := non_neg_integer()}.
-type refusal() :: bad_version | not_me | bad_secret | unknown_node | crossed | stale | no_link
                 | too_many.

-define(MAGIC, "TELEPORT").
-define(VERSION, 3).
-define(REFUSALS, [bad_version, not_me, bad_secret, unknown_node, crossed, stale, no_link,
                   too_many]).

-spec key(Secret :: binary()) -> binary().
key(Secret) -> mac(Secret, <<"teleport 1">>).

-spec nonce() -> <<_:256>>.
nonce() -> crypto:strong_rand_bytes(32).

-spec hello(hello()) -> binary().
hello(#{kind := Kind, lane := Lane, nonce := Nonce, link := Link, epoch := Epoch,
        instance := Instance, from := From, to := To}) ->
    <<?MAGIC, ?VERSION, (kind(Kind)), Lane, Nonce/binary, Link/binary, Epoch:64, Instance/binary,
      (byte_size(From)):16, From/binary, (byte_size(To)):16, To/binary>>.

kind(control) -> 0;
kind(lane) -> 1;
kind(large) -> 2.

-spec read_hello(binary()) -> {ok, hello()} | {error, malformed | bad_version}.
read_hello(<<?MAGIC, ?VERSION, Kind, Lane, Nonce:32/binary, Link:16/binary, Epoch:64,
             Instance:16/binary, F:16, From:F/binary, T:16, To:T/binary>>) when Kind =< 2 ->
    {ok, #{kind => element(Kind + 1, {control, lane, large}), lane => Lane, nonce => Nonce,
           link => Link, epoch => Epoch, instance => Instance, from => From, to => To}};
read_hello(<<?MAGIC, Version, _/binary>>) when Version =/= ?VERSION ->
    {error, bad_version};
read_hello(_) ->
    {error, malformed}.

-spec challenge(Nonce :: <<_:256>>, Instance :: <<_:128>>) -> binary().
challenge(Nonce, Instance) -> <<1, Nonce/binary, Instance/binary>>.

-spec read_challenge(binary()) ->
    {ok, Instance :: <<_:128>>} | {refused, refusal()} | {error, malformed}.
read_challenge(<<1, _:32/binary, Instance:16/binary>>) -> {ok, Instance};
read_challenge(Other) -> read_refusal(Other).

%% Both take HELLO and CHALLENGE as they were sent.
-spec proof(Key :: binary(), Hello :: binary(), Challenge :: binary(), about()) -> binary().
proof(Key, Hello, Challenge, About) ->
    Bytes = about(About),
    <<1, (mac(Key, [<<"dialer">>, Hello, Challenge, Bytes]))/binary, Bytes/binary>>.

-spec read_proof(Key :: binary(), Hello :: binary(), Challenge :: binary(), Proof :: binary()) ->
    {ok, about()} | {error, malformed | bad_secret}.
read_proof(Key, Hello, Challenge, <<1, Mac:32/binary, Bytes/binary>>) ->
    judge(Mac, mac(Key, [<<"dialer">>, Hello, Challenge, Bytes]), Bytes);
read_proof(_, _, _, _) ->
    {error, malformed}.

-spec welcome(Key :: binary(), Hello :: binary(), Challenge :: binary(), Proof :: binary(),
              about()) -> binary().
welcome(Key, Hello, Challenge, Proof, About) ->
    Bytes = about(About),
    <<1, (mac(Key, [<<"acceptor">>, Hello, Challenge, Proof, Bytes]))/binary, Bytes/binary>>.

-spec read_welcome(Key :: binary(), Sent :: {Hello :: binary(), Challenge :: binary()},
                   Proof :: binary(), Welcome :: binary()) ->
    {ok, about()} | {refused, refusal()} | {error, malformed | bad_secret}.
read_welcome(Key, {Hello, Challenge}, Proof, <<1, Mac:32/binary, Bytes/binary>>) ->
    judge(Mac, mac(Key, [<<"acceptor">>, Hello, Challenge, Proof, Bytes]), Bytes);
read_welcome(_, _, _, Other) ->
    read_refusal(Other).

-spec refusal(refusal()) -> binary().
refusal(Why) -> <<0, (atom_to_binary(Why))/binary>>.

read_refusal(<<0, Word/binary>>) ->
    case [Why || Why <- ?REFUSALS, atom_to_binary(Why) =:= Word] of
        [Why] -> {refused, Why};
        [] -> {error, malformed}
    end;
read_refusal(_) ->
    {error, malformed}.

about(#{message_bytes_max := Bytes, lanes := Lanes, epoch := Epoch}) ->
    <<Bytes:64, Lanes, Epoch:64>>.

judge(Mac, Expected, Bytes) ->
    case {crypto:hash_equals(Mac, Expected), Bytes} of
        {true, <<Max:64, Lanes, Epoch:64>>} when Max > 0, Lanes > 0 ->
            {ok, #{message_bytes_max => Max, lanes => Lanes, epoch => Epoch}};
        {true, _} -> {error, malformed};
        {false, _} -> {error, bad_secret}
    end.

mac(Key, Data) -> crypto:mac(hmac, sha256, Key, Data).
