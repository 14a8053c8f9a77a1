%% SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, the client's side: RFC 5802, RFC 7677, RFC 5929 for what
%% the channel is bound to (`tls-server-end-point').
%%
%% Pure, but for the nonce, which is handed in. The server proves that it knows the password, too:
%% `verify/2' must be called. The user's name is empty, since PostgreSQL takes that of the startup
%% message ("SASL Authentication").
-module(epgsql_scram).

-export([mechanism/2, first/2, final/3, verify/2, nonce/0]).

-export_type([state/0, binding/0, reason/0]).

%% More is no protection but a way to keep clients busy: PostgreSQL's default is 4,096.
-define(ITERATIONS_MAX, 10000000).
-define(KEY_SIZE, 32).

%% Hash of the server's certificate; `none': the connection has no TLS; `unsupported': it has, and
%% the server offers no mechanism for it.
-type binding() :: none | unsupported | {tls_server_end_point, binary()}.
-type reason() :: bad_server_first | bad_server_final | nonce_mismatch | {iterations, integer()}
                | server_not_verified | {server_error, binary()}.
-record(scram, {binding :: binding(), nonce :: binary(), first_bare :: binary(),
                signature :: binary() | undefined}).
-opaque state() :: #scram{}.

-spec nonce() -> binary().
nonce() -> base64:encode(crypto:strong_rand_bytes(18)).

%% Which of the offered ones: the bound one, wherever there is a channel to bind to.
-spec mechanism([binary()], {tls_server_end_point, binary()} | none) ->
          {ok, binary(), binding()} | none.
mechanism(Offered, Channel) ->
    HasPlus = lists:member(<<"SCRAM-SHA-256-PLUS">>, Offered),
    HasPlain = lists:member(<<"SCRAM-SHA-256">>, Offered),
    case Channel of
        {tls_server_end_point, _} when HasPlus -> {ok, <<"SCRAM-SHA-256-PLUS">>, Channel};
        {tls_server_end_point, _} when HasPlain -> {ok, <<"SCRAM-SHA-256">>, unsupported};
        none when HasPlain -> {ok, <<"SCRAM-SHA-256">>, none};
        _ -> none
    end.

-spec first(binding(), binary()) -> {iodata(), state()}.
first(Binding, Nonce) ->
    Bare = <<"n=,r=", Nonce/binary>>,
    {[header(Binding), Bare], #scram{binding = Binding, nonce = Nonce, first_bare = Bare}}.

%% RFC 5802, 7: the flag says whether the client could have bound the channel, so that nobody in
%% between can take the offer away.
header(none) -> <<"n,,">>;
header(unsupported) -> <<"y,,">>;
header({tls_server_end_point, _}) -> <<"p=tls-server-end-point,,">>.

%% The answer to the server's first message.
-spec final(binary(), iodata(), state()) -> {ok, iodata(), state()} | {error, reason()}.
final(ServerFirst, Password, #scram{nonce = Nonce} = State) ->
    Size = byte_size(Nonce),
    case attributes(ServerFirst) of
        #{$r := <<Nonce:Size/binary, More/binary>> = Both, $s := Salt64, $i := Count}
          when More =/= <<>> ->
            case {decoded(Salt64), number(Count)} of
                {{ok, Salt}, {ok, Iterations}} when Iterations > 0, Iterations =< ?ITERATIONS_MAX ->
                    proof(Both, Salt, Iterations, ServerFirst, Password, State);
                {{ok, _}, {ok, Iterations}} -> {error, {iterations, Iterations}};
                _ -> {error, bad_server_first}
            end;
        #{$r := _, $s := _, $i := _} -> {error, nonce_mismatch};
        _ -> {error, bad_server_first}
    end.

proof(Nonce, Salt, Iterations, ServerFirst, Password,
      #scram{binding = Binding, first_bare = FirstBare} = State) ->
    Salted = crypto:pbkdf2_hmac(sha256, epgsql_saslprep:prepare(Password), Salt, Iterations,
                                ?KEY_SIZE),
    ClientKey = hmac(Salted, <<"Client Key">>),
    Channel = case Binding of
                  {tls_server_end_point, Hash} -> [header(Binding), Hash];
                  _ -> header(Binding)
              end,
    WithoutProof = iolist_to_binary(["c=", base64:encode(iolist_to_binary(Channel)),
                                     ",r=", Nonce]),
    Message = [FirstBare, $,, ServerFirst, $,, WithoutProof],
    Signature = hmac(crypto:hash(sha256, ClientKey), Message),
    Proof = crypto:exor(ClientKey, Signature),
    {ok, [WithoutProof, ",p=", base64:encode(Proof)],
     State#scram{signature = hmac(hmac(Salted, <<"Server Key">>), Message)}}.

-spec verify(binary(), state()) -> ok | {error, reason()}.
verify(ServerFinal, #scram{signature = Signature}) ->
    case attributes(ServerFinal) of
        #{$e := Error} -> {error, {server_error, Error}};
        #{$v := Signature64} ->
            case decoded(Signature64) of
                {ok, Signature} -> ok;
                _ -> {error, server_not_verified}
            end;
        _ -> {error, bad_server_final}
    end.

hmac(Key, Data) -> crypto:mac(hmac, sha256, Key, Data).

attributes(Message) ->
    maps:from_list([{Name, Value} || <<Name, "=", Value/binary>>
                                         <- binary:split(Message, <<",">>, [global])]).

decoded(Text) ->
    try {ok, base64:decode(Text)} catch error:_ -> error end.

number(Text) ->
    try {ok, binary_to_integer(Text)} catch error:badarg -> error end.
