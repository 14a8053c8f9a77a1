%% Runs the handshake (teleport_handshake) on a new connection, in the caller's process and bounded
%% in time. It returns a connection whose other end knows the cluster's secret.
-module(teleport_greeting).

-export([dial/3, dial_again/3, answer/2, welcome/2, refuse/2]).
-export_type([asked/0]).

%% An accepted connection, proven, that waits for its welcome.
-opaque asked() :: #{socket := teleport_socket:socket(), key := binary(), hello := binary(),
                     challenge := binary(), proof := binary()}.
-type address() :: {Host :: term(), inet:port_number(), Instance :: binary() | any}.
-type problem() :: {refused, teleport_handshake:refusal()} | malformed | bad_secret | other_node
                 | {connect, term()} | {greeting, term()}.

-define(AGAIN_MS, 50).

%% Gives the socket, the peer's instance, and what it says of itself. The instance asked for is
%% `any' where nobody knows it.
-spec dial(address(), teleport_handshake:hello(), teleport_handshake:about()) ->
    {ok, teleport_socket:socket(), Instance :: binary(), teleport_handshake:about()}
    | {error, problem()}.
dial({Host, Port, Instance}, Hello, About) ->
    #{secret := Secret, connect_ms_max := Ms} = Options = teleport_options:get(),
    case teleport_socket:connect(Host, Port, Options, Ms) of
        {ok, Socket} ->
            Sent = teleport_handshake:hello(Hello),
            Key = teleport_handshake:key(Secret),
            case greet(Socket, Sent, Key, Instance, About, Ms) of
                {ok, Found, Theirs} ->
                    {ok, Socket, Found, Theirs};
                {error, _} = Error ->
                    ok = teleport_socket:abort(Socket),
                    Error
            end;
        {error, Reason} ->
            {error, {connect, Reason}}
    end.

%% Of a link that is there: strangers may take the peer's last place for a greeting, so who isn't
%% heard tries again as long as connecting may take.
-spec dial_again(address(), teleport_handshake:hello(), teleport_handshake:about()) ->
    {ok, teleport_socket:socket()} | {error, problem()}.
dial_again(Address, Hello, About) ->
    #{connect_ms_max := Ms} = teleport_options:get(),
    dial_until(now_ms() + Ms, Address, Hello, About).

dial_until(UntilMs, Address, Hello, About) ->
    case dial(Address, Hello#{nonce := teleport_handshake:nonce()}, About) of
        {ok, Socket, _, _} ->
            {ok, Socket};
        {error, {What, _}} = Error when What =:= connect; What =:= greeting ->
            case now_ms() < UntilMs of
                true -> timer:sleep(?AGAIN_MS), dial_until(UntilMs, Address, Hello, About);
                false -> Error
            end;
        {error, _} = Error ->
            Error
    end.

now_ms() -> erlang:monotonic_time(millisecond).

greet(Socket, Hello, Key, Instance, About, Ms) ->
    maybe_do([
        fun(none) -> exchange(Socket, Hello, Ms) end,
        fun(Challenge) ->
            case teleport_handshake:read_challenge(Challenge) of
                {ok, Found} when Found =:= Instance; Instance =:= any ->
                    {ok, {Challenge, Found}};
                {ok, _} -> {error, other_node};
                {refused, _} = Refused -> {error, Refused};
                {error, _} = Error -> Error
            end
        end,
        fun({Challenge, Found}) ->
            Proof = teleport_handshake:proof(Key, Hello, Challenge, About),
            case exchange(Socket, Proof, Ms) of
                {ok, Welcome} ->
                    Sent = {Hello, Challenge},
                    case teleport_handshake:read_welcome(Key, Sent, Proof, Welcome) of
                        {ok, Theirs} -> {ok, Found, Theirs};
                        {refused, _} = Refused -> {error, Refused};
                        {error, _} = Error -> Error
                    end;
                {error, _} = Error -> Error
            end
        end], none).

maybe_do([Last], Value) -> Last(Value);
maybe_do([First | Rest], Value) ->
    case First(Value) of
        {ok, Next} -> maybe_do(Rest, Next);
        {error, _} = Error -> Error
    end.

exchange(Socket, Frame, Ms) ->
    case teleport_socket:write(Socket, Frame) of
        ok -> receive_frame(Socket, Ms);
        {error, Reason} -> {error, {greeting, Reason}}
    end.

receive_frame(Socket, Ms) ->
    case teleport_socket:recv(Socket, 0, Ms) of
        {ok, Frame} -> {ok, Frame};
        {error, Reason} -> {error, {greeting, Reason}}
    end.

%% The accepting side up to the dialer's proof.
-spec answer(teleport_socket:socket(), Instance :: binary()) ->
    {ok, teleport_handshake:hello(), teleport_handshake:about(), asked()} | {error, problem()}.
answer(Socket, Instance) ->
    #{secret := Secret, connect_ms_max := Ms} = teleport_options:get(),
    Key = teleport_handshake:key(Secret),
    maybe_do([
        fun(none) -> receive_frame(Socket, Ms) end,
        fun(Sent) ->
            case teleport_handshake:read_hello(Sent) of
                {ok, #{to := To} = Hello} ->
                    case atom_to_binary(node()) of
                        To -> {ok, {Sent, Hello}};
                        _ -> refuse_early(Socket, not_me)
                    end;
                {error, bad_version} -> refuse_early(Socket, bad_version);
                {error, _} = Error -> Error
            end
        end,
        fun({Sent, Hello}) ->
            Challenge = teleport_handshake:challenge(teleport_handshake:nonce(), Instance),
            case exchange(Socket, Challenge, Ms) of
                {ok, Proof} ->
                    case teleport_handshake:read_proof(Key, Sent, Challenge, Proof) of
                        {ok, About} ->
                            {ok, Hello, About,
                             #{socket => Socket, key => Key, hello => Sent,
                               challenge => Challenge, proof => Proof}};
                        {error, bad_secret} -> refuse_early(Socket, bad_secret);
                        {error, _} = Error -> Error
                    end;
                {error, _} = Error -> Error
            end
        end], none).

refuse_early(Socket, Why) ->
    _ = teleport_socket:write(Socket, teleport_handshake:refusal(Why)),
    {error, {refused, Why}}.

-spec welcome(asked(), teleport_handshake:about()) -> ok | {error, closed}.
welcome(#{socket := Socket, key := Key, hello := Hello, challenge := Challenge, proof := Proof},
        About) ->
    teleport_socket:write(Socket, teleport_handshake:welcome(Key, Hello, Challenge, Proof, About)).

-spec refuse(asked(), teleport_handshake:refusal()) -> ok.
refuse(#{socket := Socket}, Why) ->
    _ = teleport_socket:write(Socket, teleport_handshake:refusal(Why)),
    ok.
