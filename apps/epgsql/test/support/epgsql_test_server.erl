%% A PostgreSQL of its own for a suite: in a scratch folder, on a free port and a Unix socket there,
%% under another user than root, with certificates that are made for it.
-module(epgsql_test_server).

-export([start/0, start/1, start/2, stop/1, options/1, options/2, crash/1, restart/1, temporary/1,
         standby/1, standby/2, server_certificate/2, os_pid/1]).

-record(server, {folder :: string(), port :: inet:port_number(), os_pid :: integer()}).

-define(CONNECT_MS, 30000).
-define(USER, "ann").
-define(START_MS, 30000).

start() -> start([]).

%% `Settings': lines for postgresql.conf.
start(Settings) -> start(Settings, fun(_) -> ok end).

%% `Prepare': what is done to the folder before anything is in it.
start(Settings, Prepare) ->
    Folder = new_folder(Prepare),
    Data = filename:join(Folder, "data"),
    Port = free_port(),
    ok = sh(as_user(Folder, [program("initdb"), " -D ", Data, " -U ", ?USER, " -E UTF8",
                             " --locale C.UTF-8 -A trust -N"])),
    ok = certificates(Folder, Data),
    ok = file:write_file(filename:join(Data, "postgresql.conf"),
        ["listen_addresses = '127.0.0.1,::1'\nunix_socket_directories = '", Folder, "'\n",
         "fsync = off\nssl = on\nwal_level = logical\nmax_wal_senders = 8\n",
         "max_replication_slots = 8\nmax_connections = 60\nssl_ca_file = 'ca.crt'\n",
         io_lib:format("port = ~b\n", [Port]), [[Line, $\n] || Line <- Settings]]),
    ok = file:write_file(filename:join(Data, "pg_hba.conf"), hba()),
    Server = run(#server{folder = Folder, port = Port}),
    ok = roles(Server),
    Server.

new_folder(Prepare) ->
    Folder = string:trim(os:cmd("mktemp -d /tmp/epgsql-test.XXXXXX")),
    ok = Prepare(Folder),
    _ = [os:cmd("chown postgres " ++ Folder) || is_root()],
    Folder.

%% A standby that has what the server has now, and no way to what comes. It isn't promoted yet.
standby(Server) -> standby(Server, none).

%% One that follows the server, under this name, unless that is `none'.
standby(#server{port = From}, Name) ->
    Folder = new_folder(fun(_) -> ok end),
    Data = filename:join(Folder, "data"),
    Port = free_port(),
    ok = sh(as_user(Folder, [program("pg_basebackup"), " -h 127.0.0.1 -p ",
                             integer_to_list(From), " -U ", ?USER, " -X stream -c fast -D ", Data,
                             " && touch ", Data, "/standby.signal"])),
    ok = file:write_file(filename:join(Data, "postgresql.conf"),
                         [io_lib:format("port = ~b\nunix_socket_directories = '~s'\n",
                                        [Port, Folder]),
                          [io_lib:format("primary_conninfo = 'host=127.0.0.1 port=~b user=~s "
                                         "application_name=~s'\n", [From, ?USER, Name])
                           || Name =/= none]], [append]),
    run(#server{folder = Folder, port = Port}).

%% The server's own certificate, from its next connection on: one that has run out, a good one, or
%% one with the names of `{names, SubjectAltName}' alone.
server_certificate(#server{folder = Folder} = Server, Which) ->
    {Subject, Names, Days} = case Which of
                                 good -> {"localhost", "DNS:localhost", "30"};
                                 expired -> {"localhost", "DNS:localhost", "0"};
                                 {names, Given} -> {"server", Given, "30"}
                             end,
    ok = sh(as_user(Folder, certified(filename:join(Folder, "data"), "server", Subject, Names,
                                      Days))),
    %% It runs out within the second in which it is made.
    _ = [timer:sleep(2000) || Which =:= expired],
    {ok, C} = epgsql:connect(options(Server)),
    {ok, _, [{<<"t">>}]} = epgsql:squery(C, "select pg_reload_conf()"),
    epgsql:close(C).

certified(Data, Name, Subject, Names, Days) ->
    ["cd ", Data, " && openssl req -newkey rsa:2048 -nodes -keyout ", Name, ".key -subj /CN=",
     Subject, " -addext subjectAltName=", Names,
     " | openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days ", Days,
     " -copy_extensions copy -out ", Name, ".crt && chmod 600 *.key"].

hba() ->
    ["local   all all trust\nhostssl all plus all scram-sha-256\n"
     "hostssl all by_cert all cert\n",
     [[["host all ", Role, " ", Address, " ", Method, "\n"]
       || {Role, Method} <- [{"clear", "password"}, {"digest", "md5"},
                             {"scram,scram_unicode", "scram-sha-256"},
                             {"nobody", "reject"}, {"all", "trust"}]]
      || Address <- ["127.0.0.1/32", "::1/128"]],
     "host replication all 127.0.0.1/32 trust\n"].

roles(Server) ->
    {ok, C} = epgsql:connect(options(Server)),
    Results = epgsql:squery(C, unicode:characters_to_binary(
        "create role clear login password 'secret';"
        "set password_encryption = md5; create role digest login password 'secret';"
        "set password_encryption = 'scram-sha-256';"
        "create role scram login password 'secret';"
        "create role plus login password 'secret'; create role by_cert login;"
        "create role scram_unicode login password '\x{2168}\x{a0}\x{e9}';"
        "create role plain login; create extension hstore")),
    [] = [Error || {error, Error} <- Results],
    epgsql:close(C).

%% Of an authority of its own, for the name `localhost'.
certificates(Folder, Data) ->
    Openssl = ["cd ", Data, " && openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout ca.key",
               " -out ca.crt -subj /CN=authority",
               [[" && ", certified(Data, Name, Subject, "DNS:" ++ Subject, "30")]
                || {Name, Subject} <- [{"server", "localhost"}, {"by_cert", "by_cert"}]],
               " && cp ca.crt by_cert.* ", Folder, "/"],
    sh(as_user(Folder, Openssl)).

run(#server{folder = Folder} = Server) ->
    Data = filename:join(Folder, "data"),
    Command = as_user(Folder, ["exec ", program("postgres"), " -D ", Data]),
    Process = open_port({spawn_executable, "/bin/sh"},
                        [{args, ["-c", ["exec ", Command, " >", Folder, "/log 2>&1"]]},
                         exit_status]),
    {os_pid, OsPid} = erlang:port_info(Process, os_pid),
    ok = ready(Folder, erlang:monotonic_time(millisecond) + ?START_MS),
    Server#server{os_pid = OsPid}.

ready(Folder, Until) ->
    case file:read_file(filename:join(Folder, "log")) of
        {ok, Log} -> %% `connections', or `read-only connections'.
            ready(string:find(Log, "ready to accept"), Folder, Until);
        {error, enoent} -> ready(nomatch, Folder, Until)
    end.

ready(nomatch, Folder, Until) ->
    true = erlang:monotonic_time(millisecond) < Until,
    timer:sleep(50),
    ready(Folder, Until);
ready(_, _, _) ->
    ok.

stop(#server{folder = Folder} = Server) ->
    ok = finish(Server, "INT"),
    _ = os:cmd("rm -rf " ++ Folder),
    ok.

%% As a power cut would end it.
crash(Server) -> finish(Server, "QUIT").

restart(#server{folder = Folder} = Server) ->
    ok = file:delete(filename:join(Folder, "log")),
    run(Server).

finish(#server{os_pid = OsPid}, Signal) ->
    _ = os:cmd("kill -" ++ Signal ++ " " ++ integer_to_list(OsPid)),
    gone(OsPid, erlang:monotonic_time(millisecond) + ?START_MS).

gone(OsPid, Until) ->
    case os:cmd("kill -0 " ++ integer_to_list(OsPid)) of
        "" ->
            true = erlang:monotonic_time(millisecond) < Until,
            timer:sleep(20),
            gone(OsPid, Until);
        _ -> ok
    end.

temporary(#server{folder = Folder}) -> Folder.

os_pid(#server{os_pid = OsPid}) -> OsPid.

options(Server) -> options(Server, #{}).

%% A busy machine may take longer than the driver's own 5 s for a handshake of TLS.
options(#server{port = Port}, More) ->
    maps:merge(#{host => "127.0.0.1", port => Port, username => ?USER, database => "postgres",
                 timeout => ?CONNECT_MS}, More).

%% `EPGSQL_TEST_POSTGRES': the folder of another version's programs.
program(Name) ->
    Given = [Folder || Folder <- [os:getenv("EPGSQL_TEST_POSTGRES")], Folder =/= false],
    case [filename:join(Folder, Name) || Folder <- Given]
         ++ lists:reverse(filelib:wildcard("/usr/lib/postgresql/*/bin/" ++ Name)) of
        [] -> os:find_executable(Name);
        [Program | _] -> Program
    end.

is_root() -> string:trim(os:cmd("id -u")) =:= "0".

as_user(Folder, Command) ->
    Script = filename:join(Folder, "run-" ++ integer_to_list(erlang:unique_integer([positive]))),
    ok = file:write_file(Script, ["cd ", Folder, "\n", Command, "\n"]),
    case is_root() of
        true -> ["setpriv --reuid postgres --regid postgres --clear-groups sh ", Script];
        false -> ["sh ", Script]
    end.

sh(Command) ->
    Output = os:cmd(lists:flatten([Command, " 2>&1; echo status $?"])),
    case string:find(Output, "status 0\n", trailing) of
        nomatch -> {error, Output};
        _ -> ok
    end.

%% Below the ports that the kernel gives to connections: one of those may be taken at any moment.
free_port() ->
    Port = 10000 + rand:uniform(20000),
    case gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Port;
        {error, eaddrinuse} ->
            free_port()
    end.
