%% The way to a server: TCP (IPv4 and IPv6) or a Unix socket, with TLS or without.
%%
%% A name is looked up by `addresses/2', and each of its addresses is a server of its own:
%% `hostaddr' is where to connect, and `host' what the server has to be (libpq's names).
%%
%% TLS checks the server's certificate and name, by the system's authorities, unless `ssl_opts' says
%% otherwise. All of opening a connection, its name's look-up and TLS included, is done within
%% `timeout'. Sockets are passive when they are handed out.
-module(epgsql_transport).

-export([prepare/1, addresses/2, connect/1, send/2, recv/2, close/1, is_pending/1, activate/2,
         channel/1, cancel/3, deadline/1, milliseconds/1, own/2, buffer/2]).

-export_type([transport/0, reason/0, deadline/0]).

-type transport() :: {gen_tcp, gen_tcp:socket()} | {ssl, ssl:sslsocket()}.
-type reason() :: inet:posix() | timeout | closed | ssl_not_available
                | {ssl_negotiation_failed, any()} | any().
-type deadline() :: infinity | integer().

-define(PORT, 5432).
-define(TIMEOUT_MS, 5000).
-define(BUFFER, 16384).
%% How long closing waits for TLS to say goodbye.
-define(LAST_WORD_MS, 200).
%% What the socket must be for the protocol to be read.
-define(OPTIONS, [{active, false}, {packet, raw}, {mode, binary}]).

%% What TLS needs of this machine: before the time of `connect/1' begins, since a server has no part
%% in it. The first time it is 25 times the work of a handshake.
-spec prepare(epgsql:connect_opts_map()) -> ok.
prepare(#{ssl := Wanted} = Options) when Wanted =/= false ->
    {ok, _} = application:ensure_all_started(ssl),
    _ = [code:ensure_modules_loaded(Modules)
         || code:get_mode() =:= interactive, code:is_loaded(tls_handshake) =:= false,
            Application <- [public_key, ssl],
            {ok, Modules} <- [application:get_key(Application, modules)]],
    _ = verified(none, maps:get(ssl_opts, Options, [])),
    ok;
prepare(_) -> ok.

%% Those of a name, IPv4 before IPv6: only if it has none of the first kind the others are taken.
%% `given': it is no name. By a process of its own, as a look-up can't be told when to end.
-spec addresses(epgsql:connect_opts_map(), timeout()) ->
          given | {ok, [inet:ip_address(), ...]} | {error, reason()}.
addresses(#{host := Host} = Options, Ms) ->
    case address(Host, 0) of
        {Name, 0} when is_list(Name); is_atom(Name) ->
            Families = case [Each || Each <- maps:get(tcp_opts, Options, []),
                                     Each =:= inet orelse Each =:= inet6] of
                [] -> [inet, inet6];
                [Family | _] -> [Family]
            end,
            {Pid, Monitor} = spawn_monitor(fun() -> exit({looked, found(Name, Families)}) end),
            receive {'DOWN', Monitor, process, Pid, {looked, Found}} -> Found;
                    {'DOWN', Monitor, process, Pid, Reason} -> {error, Reason}
            after Ms ->
                true = exit(Pid, kill),
                _ = demonitor(Monitor, [flush]),
                {error, timeout}
            end;
        _ -> given
    end.

found(Name, [Family | More]) ->
    case inet:getaddrs(Name, Family) of
        {error, nxdomain} when More =/= [] -> found(Name, More);
        Found -> Found
    end.

-spec connect(epgsql:connect_opts_map()) -> {ok, transport()} | {error, reason()}.
connect(#{host := Host} = Options) ->
    Deadline = deadline(maps:get(timeout, Options, ?TIMEOUT_MS)),
    {Address, Port} = address(maps:get(hostaddr, Options, Host), maps:get(port, Options, ?PORT)),
    case gen_tcp:connect(Address, Port, socket_options(Address, Options), milliseconds(Deadline)) of
        {ok, Socket} ->
            ok = tune(Socket, Options),
            secure(Socket, maps:get(ssl, Options, false), Options, Deadline);
        {error, _} = Error -> Error
    end.

%% A folder is where PostgreSQL's Unix socket is, as libpq has it.
address([$/ | _] = Folder, Port) -> address(list_to_binary(Folder), Port);
address(<<"/", _/binary>> = Folder, Port) ->
    {{local, filename:join(Folder, [".s.PGSQL.", integer_to_list(Port)])}, 0};
address({local, _} = Address, _) -> {Address, 0};
address(Host, Port) -> {named(Host), Port}.

%% A name, or an address, also if it is given as text.
named(Host) when is_binary(Host) -> named(binary_to_list(Host));
named(Host) when is_list(Host) ->
    case inet:parse_strict_address(Host) of
        {ok, Address} -> Address;
        {error, einval} -> Host
    end;
named(Host) -> Host.

socket_options({local, _}, Options) -> ?OPTIONS ++ allowed(maps:get(tcp_opts, Options, []));
socket_options(Address, #{tcp_opts := Given}) ->
    ?OPTIONS ++ family(Address, Given) ++ allowed(Given);
socket_options(Address, _) ->
    ?OPTIONS ++ family(Address, []) ++ [{nodelay, true}, {keepalive, true}].

family(Address, Given) when tuple_size(Address) =:= 8 ->
    [inet6 || not lists:member(inet6, Given)];
family(_, _) -> [].

%% These would change what is read.
allowed(Given) ->
    case [Option || Option <- Given,
                    lists:member(name(Option), [binary, list, mode, packet, packet_size, header,
                                                active])] of
        [] -> Given;
        Forbidden -> error({forbidden_tcp_opts, Forbidden})
    end.

name({Name, _}) -> Name;
name(Name) -> Name.

%% What one read takes at most. Its memory is taken anew for each read, so more than that costs a
%% small answer much: `buffer/2' is for those who know that much is coming.
tune(_, #{tcp_opts := _}) -> ok;
tune(Socket, _) -> inet:setopts(Socket, [{buffer, ?BUFFER}]).

%% A larger buffer, or the first one again. TLS has its own.
-spec buffer(transport(), pos_integer() | default) -> pos_integer().
buffer(Transport, default) -> buffer(Transport, ?BUFFER);
buffer({gen_tcp, Socket}, Size) ->
    _ = inet:setopts(Socket, [{buffer, Size}]),
    Size;
buffer({ssl, _}, Size) -> Size.

secure(Socket, false, _, _) -> {ok, {gen_tcp, Socket}};
secure(Socket, Wanted, Options, Deadline) ->
    _ = gen_tcp:send(Socket, epgsql_frontend:ssl_request()),
    case gen_tcp:recv(Socket, 1, milliseconds(Deadline)) of
        {ok, <<"S">>} -> handshake(Socket, Options, Deadline);
        {ok, <<"N">>} when Wanted =:= true -> {ok, {gen_tcp, Socket}};
        {ok, <<"N">>} -> failed(Socket, ssl_not_available);
        {ok, _} -> failed(Socket, {malformed, ssl_response});
        {error, Reason} -> failed(Socket, Reason)
    end.

handshake(Socket, #{host := Host} = Options, Deadline) ->
    Given = maps:get(ssl_opts, Options, []),
    TlsOptions = [{active, false} | verified(named(Host), Given)],
    case ssl:connect(Socket, TlsOptions, milliseconds(Deadline)) of
        {ok, Secure} -> {ok, {ssl, Secure}};
        {error, Reason} -> failed(Socket, {ssl_negotiation_failed, Reason})
    end.

%% What isn't given is safe: verified by the system's authorities, for this name. Without one `ssl'
%% compares the address that it is connected to with those of the certificate.
verified(Host, Given) ->
    case proplists:get_value(verify, Given) of
        verify_none -> Given;
        _ ->
            Names = [{server_name_indication, Host}
                     || is_list(Host), not lists:keymember(server_name_indication, 1, Given)],
            Check = [{customize_hostname_check,
                      [{match_fun, public_key:pkix_verify_hostname_match_fun(https)}]}
                     || not lists:keymember(customize_hostname_check, 1, Given)],
            Authorities = [{cacerts, public_key:cacerts_get()}
                           || not lists:keymember(cacerts, 1, Given),
                              not lists:keymember(cacertfile, 1, Given)],
            Rest = proplists:delete(verify, Given),
            Authorities ++ Check ++ Names ++ [{verify, verify_peer} | Rest]
    end.

failed(Socket, Reason) ->
    _ = gen_tcp:close(Socket),
    {error, Reason}.

-spec send(transport(), iodata()) -> ok | {error, reason()}.
send({gen_tcp, Socket}, Data) -> gen_tcp:send(Socket, Data);
send({ssl, Socket}, Data) -> ssl:send(Socket, Data).

-spec recv(transport(), timeout()) -> {ok, binary()} | {error, reason()}.
recv({gen_tcp, Socket}, Timeout) -> gen_tcp:recv(Socket, 0, Timeout);
recv({ssl, Socket}, Timeout) -> ssl:recv(Socket, 0, Timeout).

%% Doesn't wait for a server that takes no more.
-spec close(transport()) -> ok.
close(Transport) ->
    case is_pending(Transport) of
        true ->
            _ = option(Transport, {linger, {true, 0}}),
            closed(Transport, 0);
        false -> closed(Transport, ?LAST_WORD_MS)
    end.

%% TLS waits 5 s for its last word to be sent. It may still have data that it hasn't given to the
%% kernel, and the kernel says that nothing is pending then.
closed({gen_tcp, _} = Transport, _) -> closed(Transport);
closed({ssl, _} = Transport, Ms) ->
    {_, Monitor} = spawn_monitor(fun() -> closed(Transport) end),
    receive {'DOWN', Monitor, process, _, _} -> ok
    after Ms ->
        true = demonitor(Monitor, [flush]),
        ok
    end.

closed({Module, Socket}) ->
    _ = Module:close(Socket),
    ok.

%% Are there bytes that the kernel hasn't taken?
-spec is_pending(transport()) -> boolean().
is_pending({gen_tcp, Socket}) -> is_pending_in(inet:getstat(Socket, [send_pend]));
is_pending({ssl, Socket}) -> is_pending_in(ssl:getstat(Socket, [send_pend])).

is_pending_in({ok, [{send_pend, Bytes}]}) -> Bytes > 0;
is_pending_in({error, _}) -> false.

-spec activate(transport(), boolean() | once | integer()) -> ok | {error, reason()}.
activate(Transport, Active) -> option(Transport, {active, Active}).

option({gen_tcp, Socket}, Option) -> inet:setopts(Socket, [Option]);
option({ssl, Socket}, Option) -> ssl:setopts(Socket, [Option]).

-spec own(transport(), pid()) -> ok | {error, reason()}.
own({Module, Socket}, Pid) -> Module:controlling_process(Socket, Pid).

%% What SCRAM binds itself to. RFC 5929, 4.1: the hash is that of the certificate's signature, with
%% SHA-256 in the place of MD5 and SHA-1.
-spec channel(transport()) -> {tls_server_end_point, binary()} | none.
channel({gen_tcp, _}) -> none;
channel({ssl, Socket}) ->
    {ok, Certificate} = ssl:peercert(Socket),
    try public_key:pkix_sign_types(signature_algorithm(Certificate)) of
        {Hash, _} when Hash =:= md5; Hash =:= sha -> end_point(sha256, Certificate);
        {none, _} -> none;
        {Hash, _} -> end_point(Hash, Certificate)
    catch
        error:_ -> none
    end.

end_point(Hash, Certificate) -> {tls_server_end_point, crypto:hash(Hash, Certificate)}.

%% The OID of `Certificate', `signatureAlgorithm', `algorithm'.
signature_algorithm(Certificate) ->
    Plain = public_key:pkix_decode_cert(Certificate, plain),
    element(2, element(3, Plain)).

%% Asks the server, over a connection of its own, to end what another one is doing.
-spec cancel(epgsql:connect_opts_map(), Pid :: integer(), Key :: integer()) ->
          ok | {error, reason()}.
cancel(Options, Pid, Key) ->
    case connect(Options) of
        {ok, Transport} ->
            Sent = send(Transport, epgsql_frontend:cancel_request(Pid, Key)),
            %% The server closes when it has passed the request on.
            _ = recv(Transport, maps:get(timeout, Options, ?TIMEOUT_MS)),
            close(Transport),
            Sent;
        {error, _} = Error -> Error
    end.

-spec deadline(timeout()) -> deadline().
deadline(infinity) -> infinity;
deadline(Milliseconds) -> erlang:monotonic_time(millisecond) + Milliseconds.

-spec milliseconds(deadline()) -> timeout().
milliseconds(infinity) -> infinity;
milliseconds(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).
