%% A client for one request after the other to the operator's own server: HTTP/1.1 over TCP or TLS.
%%
%% The server isn't trusted: each line of an answer and their number are bounded, a body is read to
%% keep the connection and thrown away, at most `hooks_answer_bytes_max' of it, and the whole
%% request has one time limit. Redirects are answers like others: nothing is followed. A certificate
%% is checked, and its name, by the system's CAs or by a file's.
%%
%% OTP parses the answers' headers (`{packet, httph_bin}'); OTP's own client isn't used since it
%% holds an answer of any size in memory (docs/internals/dependencies.md).
%%
%% Addresses aren't judged: the URL is the operator's own, and may be a private one.
-module(halley_hooks_http).

-export([post/5, close/1, explain/1]).
-export_type([connection/0, header/0]).

-type connection() :: none | {gen_tcp | ssl, gen_tcp:socket() | ssl:sslsocket()}.
-type header() :: {binary(), iodata()}.

-define(LINE_BYTES_MAX, 8192).
-define(HEADERS_MAX, 100).

%% A kept connection that the other side has closed is opened anew, once.
-spec post(halley_hooks_config:target(), [header()], iodata(), TimeoutMs :: pos_integer(),
           connection()) -> {ok, Status :: 100..999, connection()} | {error, term()}.
post(Target, Headers, Body, TimeoutMs, Connection) ->
    Due = now_ms() + TimeoutMs,
    Request = request(Target, Headers, Body),
    case Connection of
        none -> fresh(Target, Request, Due);
        _ ->
            case exchange(Connection, Request, Due) of
                {error, closed} -> fresh(Target, Request, Due);
                Result -> Result
            end
    end.

fresh(Target, Request, Due) ->
    case connect(Target, Due) of
        {ok, Connection} -> exchange(Connection, Request, Due);
        {error, Reason} -> {error, {connect, Reason}}
    end.

request(#{path := Path, authority := Authority}, Headers, Body) ->
    [<<"POST ">>, Path, <<" HTTP/1.1\r\nhost: ">>, Authority,
     <<"\r\nuser-agent: halley\r\ncontent-length: ">>, integer_to_list(iolist_size(Body)),
     <<"\r\n">>, [[Name, <<": ">>, Value, <<"\r\n">>] || {Name, Value} <- Headers], <<"\r\n">>,
     Body].

connect(#{tls := IsTls, host := Host} = Target, Due) ->
    {Address, Family} = case inet:parse_address(Host) of
        {ok, {_, _, _, _} = V4} -> {V4, []};
        {ok, V6} -> {V6, [inet6]};
        {error, _} -> {Host, []}
    end,
    case dial(IsTls, Address, Family, Target, Due) of
        {error, nxdomain} when is_list(Address), Family =:= [] ->
            dial(IsTls, Address, [inet6], Target, Due);
        Result -> Result
    end.

dial(IsTls, Address, Family, #{port := Port} = Target, Due) ->
    Options = Family ++ [binary, {active, false}, {packet, line}, {nodelay, true},
                         {packet_size, ?LINE_BYTES_MAX}, {recbuf, 65536},
                         {send_timeout, left(Due)}, {send_timeout_close, true}],
    Module = case IsTls of true -> ssl; false -> gen_tcp end,
    case cas(Target) of
        {ok, Cas} ->
            Tls = case IsTls of true -> Cas ++ tls(Target); false -> [] end,
            case Module:connect(Address, Port, Options ++ Tls, left(Due)) of
                {ok, Socket} -> {ok, {Module, Socket}};
                {error, _} = Error -> Error
            end;
        {error, _} = Error -> Error
    end.

%% OTP raises where the system has none.
cas(#{tls := true, ca := none}) ->
    try {ok, [{cacerts, public_key:cacerts_get()}]}
    catch error:_ -> {error, no_cas}
    end;
cas(#{tls := true, ca := File}) -> {ok, [{cacertfile, File}]};
cas(#{tls := false}) -> {ok, []}.

tls(#{host := Host}) ->
    Name = case inet:parse_address(Host) of
        {ok, _} -> [];
        {error, _} -> [{server_name_indication, Host}]
    end,
    Match = public_key:pkix_verify_hostname_match_fun(https),
    Name ++ [{verify, verify_peer}, {depth, 10}, {versions, ['tlsv1.2', 'tlsv1.3']},
             {customize_hostname_check, [{match_fun, Match}]}, {log_level, none}].

exchange({Module, Socket} = Connection, Request, Due) ->
    try
        %% The connection may have been made for another request, with another time left.
        said(setopts(Module, Socket, [{send_timeout, left(Due)}])),
        said(Module:send(Socket, Request)),
        {Status, Keeps} = head(Connection, Due),
        case Keeps of
            true -> {ok, Status, Connection};
            false ->
                ok = close(Connection),
                {ok, Status, none}
        end
    catch throw:{failed, Reason} ->
        %% Without it closing waits, for minutes, that the other side reads what it was sent.
        _ = setopts(Module, Socket, [{linger, {true, 0}}]),
        ok = close(Connection),
        {error, Reason}
    end.

said(ok) -> ok;
said({error, Reason}) -> throw({failed, Reason}).

%% OTP's parser of status lines takes any version and any number, so the line is read here.
head({Module, Socket} = Connection, Due) ->
    said(setopts(Module, Socket, [{packet, line}])),
    case recv(Connection, 0, Due) of
        {ok, Line} ->
            {Version, Status} = status(Line),
            said(setopts(Module, Socket, [{packet, httph_bin}])),
            Headers = headers(Connection, Due, ?HEADERS_MAX, #{}),
            case Status < 200 of
                true -> head(Connection, Due);
                false -> {Status, keeps(Version, Status, Headers, Connection, Due)}
            end;
        {error, Reason} ->
            throw({failed, Reason})
    end.

%% RFC 9112 section 4, and a line that ends with its code, as some servers have it.
status(Line) ->
    case re:run(Line, "^HTTP/1\\.([01]) ([1-9][0-9]{2})(?: [^\\r\\n]*)?\\r?\\n$",
                [{capture, all_but_first, binary}]) of
        {match, [Minor, Status]} -> {{1, binary_to_integer(Minor)}, binary_to_integer(Status)};
        nomatch -> throw({failed, no_http})
    end.

headers(_, _, 0, _) ->
    throw({failed, too_many_headers});
headers(Connection, Due, Left, Headers) ->
    case recv(Connection, 0, Due) of
        {ok, {http_header, _, Name, _, Value}} ->
            Key = lowercase(case is_atom(Name) of
                                true -> atom_to_binary(Name);
                                false -> Name
                            end),
            headers(Connection, Due, Left - 1, Headers#{Key => Value});
        {ok, http_eoh} -> Headers;
        {ok, _} -> throw({failed, no_http});
        {error, Reason} -> throw({failed, Reason})
    end.

%% A body of a known length is read, so that the next request can follow.
keeps({1, 1}, Status, Headers, Connection, Due) ->
    Says = lowercase(maps:get(<<"connection">>, Headers, <<>>)),
    case Headers of
        _ when Says =:= <<"close">> -> false;
        #{<<"transfer-encoding">> := _} -> false;
        #{<<"content-length">> := Text} -> skipped(Text, Connection, Due);
        #{} -> Status =:= 204 orelse Status =:= 304
    end;
keeps(_, _, _, _, _) ->
    false.

skipped(Text, {Module, Socket} = Connection, Due) ->
    Max = halley_limits:get(hooks_answer_bytes_max),
    case string:to_integer(Text) of
        {0, <<>>} -> true;
        {Bytes, <<>>} when Bytes > 0, Bytes =< Max ->
            ok =:= setopts(Module, Socket, [{packet, raw}])
                andalso element(1, recv(Connection, Bytes, Due)) =:= ok;
        _ -> false
    end.

%% What is there isn't waited for, so an answer without end is ended here.
recv({Module, Socket}, Bytes, Due) ->
    case now_ms() < Due of
        true -> Module:recv(Socket, Bytes, left(Due));
        false -> {error, timeout}
    end.

%% Of whatever bytes somebody says.
lowercase(Bytes) -> << <<(string:to_lower(Byte))>> || <<Byte>> <= Bytes >>.

setopts(gen_tcp, Socket, Options) -> inet:setopts(Socket, Options);
setopts(ssl, Socket, Options) -> ssl:setopts(Socket, Options).

-spec close(connection()) -> ok.
close(none) -> ok;
close({Module, Socket}) ->
    _ = Module:close(Socket),
    ok.

left(Due) -> max(1, Due - now_ms()).

now_ms() -> erlang:monotonic_time(millisecond).

%% For a person.
-spec explain(term()) -> iodata().
explain({connect, Reason}) -> ["it can't be reached: ", explain(Reason)];
explain({tls_alert, {_, Text}}) -> ["TLS failed: ", string:replace(Text, "\n", " ", all)];
explain(timeout) -> "it didn't answer in time";
explain(closed) -> "it closed the connection without an answer";
explain(emsgsize) -> "its answer has a line that is too long";
explain(no_cas) -> "this system has no certificates of CAs; install ca-certificates, or set "
                   "hooks.tls_ca";
explain(no_http) -> "its answer isn't HTTP";
explain(too_many_headers) -> "its answer has too many headers";
explain(Reason) when is_atom(Reason) -> inet:format_error(Reason);
explain(Reason) -> io_lib:format("~0tP", [Reason, 12]).
