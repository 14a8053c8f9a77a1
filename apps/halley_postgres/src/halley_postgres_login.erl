%% Why there is no connection to PostgreSQL, in one line that names the key of the configuration and
%% the remedy. Pure.
%%
%% Passwords are in none of it. The server's own message is quoted: only the server knows which line
%% of pg_hba.conf is missing.
-module(halley_postgres_login).

-export([explain/2, missing_file/3, quoted/1]).

-include_lib("epgsql/include/epgsql.hrl").

-spec explain(term(), halley_postgres_config:server()) -> unicode:chardata().
explain(#error{code = <<"28P01">>, message = Message}, Server) ->
    ["PostgreSQL says: ", quoted(Message), "; it knows another password than ", password(Server)];
explain(#error{code = <<"28000">>, message = Message}, Server) ->
    ["PostgreSQL says: ", quoted(Message), "; ", refused(words(Message), Server)];
explain(#error{code = <<"3D000">>, message = Message}, #{said := Said}) ->
    ["PostgreSQL says: ", quoted(Message), "; ", Said, " or postgres.database names it"];
explain(#error{message = Message}, _) ->
    ["PostgreSQL says: ", quoted(Message)];
explain(password_missing, _) ->
    "PostgreSQL asks for a password, and there is none: set postgres.password_file, or put one "
    "into postgres.url";
explain({password_file, File, Reason}, _) ->
    missing_file("postgres.password_file", File, Reason);
explain({file, Key, File, Reason}, _) ->
    missing_file(Key, File, Reason);
explain({unsupported_auth_method, Method}, _) ->
    [io_lib:format("PostgreSQL asks for a login by ~0tp, which Halley can't", [Method]),
     ": let pg_hba.conf say scram-sha-256, md5, password, cert, peer or trust for this role"];
explain({sasl_server_final, _}, Server) ->
    ["the server doesn't prove that it knows the password: it isn't the right server, or it has "
     "another one than ", password(Server)];
explain({sasl, Reason}, _) ->
    io_lib:format("the server's answer to SCRAM is none (~0tp): is it PostgreSQL?", [Reason]);
explain(ssl_not_available, #{said := Said}) ->
    ["the server of ", Said, " has no TLS: turn it on there (ssl = on), or set postgres.tls = off "
     "where nobody can listen on the way to it"];
explain({ssl_negotiation_failed, Reason}, Server) ->
    ["TLS to PostgreSQL fails: ", tls(Reason, Server)];
explain(timeout, Server) ->
    ["no answer from ", address(Server)];
explain(Reason, Server) when is_atom(Reason) ->
    ["no connection to ", address(Server), ": ", inet:format_error(Reason)];
explain(Reason, _) ->
    io_lib:format("no connection to PostgreSQL: ~0tP", [Reason, 12]).

%% Before the login it may have another encoding than UTF-8.
-spec quoted(binary()) -> unicode:chardata().
quoted(Message) ->
    case unicode:characters_to_binary(Message) of
        <<_/binary>> = Text -> Text;
        _ -> unicode:characters_to_binary(Message, latin1)
    end.

-spec missing_file(Key :: string(), file:filename(), term()) -> unicode:chardata().
missing_file(Key, File, Reason) ->
    [Key, ": ", File, " cannot be read: ", file:format_error(Reason)].

address(#{host := [$/ | _] = Folder, said := Said}) -> ["the socket in ", Folder, " (", Said, ")"];
address(#{host := Host, port := Port, said := Said}) ->
    [Host, ":", integer_to_list(Port), " (", Said, ")"].

password(#{password := {file, File}}) -> ["in postgres.password_file (", File, ")"];
password(#{password := none}) -> "none: set postgres.password_file";
password(#{said := Said}) -> ["in ", Said].

%% The server's words may be of another language; then the general remedy stands.
words(Message) ->
    case [Key || {Key, Words} <- [{certificate, "valid client certificate"},
                                  {other_certificate, "certificate authentication failed"},
                                  {peer, "eer authentication failed"},
                                  {plain, "no encryption"}],
                 string:find(Message, Words) =/= nomatch] of
        [Key | _] -> Key;
        [] -> other
    end.

refused(certificate, #{certificate := none}) ->
    "set postgres.tls_certificate and postgres.tls_key";
refused(certificate, _) ->
    "it doesn't know the CA of postgres.tls_certificate";
refused(other_certificate, #{user := User}) ->
    ["postgres.tls_certificate must have the name (CN) ", User,
     ", or pg_ident.conf a map for its name"];
refused(peer, #{user := User}) ->
    ["Halley must run as the system's user ", User, ", or pg_ident.conf needs a map for its user"];
refused(plain, #{tls := false}) ->
    "pg_hba.conf needs a line for it, or one for TLS is there, and postgres.tls must be on";
refused(_, #{said := Said}) ->
    ["pg_hba.conf needs a line that lets it in, or ", Said, " must name another role, database or "
     "address"].

tls({tls_alert, {unknown_ca, _}}, _) ->
    "its certificate comes from no CA that is known here; postgres.tls_ca names the file with the "
    "right one";
tls({tls_alert, {certificate_expired, _}}, _) ->
    "its certificate has run out";
tls({tls_alert, {What, Text}}, #{host := Host, said := Said}) ->
    case string:find(Text, "hostname_check_failed") of
        nomatch -> io_lib:format("~0tp (~ts)", [What, string:trim(Text)]);
        _ -> ["its certificate isn't for the name ", Host, " of ", Said]
    end;
tls({options, Reason}, _) ->
    io_lib:format("postgres.tls_ca, postgres.tls_certificate or postgres.tls_key isn't right: "
                  "~0tP", [Reason, 12]);
tls(Reason, _) when is_atom(Reason) ->
    inet:format_error(Reason);
tls(Reason, _) ->
    io_lib:format("~0tP", [Reason, 12]).
