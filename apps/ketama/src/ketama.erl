%% Consistent hashing: which server owns a key, as libketama, libmemcached and spymemcached say it.
%%
%% A ring is made once (`new/2') and asked often (`owner/2'). It is a term that any process may
%% hold; asking it copies nothing and asks no process. A ring that follows a `ketama.servers' file
%% is kept by a process (`start_link/2'), which puts it where `ring/1' and `getserver/1' find it.
%%
%% `start_link/0,1,2' and `getserver/1' are those of R. Jones's driver for libketama (2008), without
%% its port program.
%%
%% Whatever a ring is made of is checked: `new/2' fails with the reason as an error, such as
%% `{bad_server, {<<"a">>, 0}}'.
-module(ketama).

-export([new/2, without/2, owner/2, owner/3, owners/3, points/1, servers/1, hash/1, read_file/1]).
-export([start_link/0, start_link/1, start_link/2, getserver/1, ring/1, status/1]).
-export_type([ring/0, server/0, weight/0, key/0]).

-type ring() :: ketama_ring:ring().
%% Usually `host:port'; `ketama_address' says what the modes but `libketama' take.
-type server() :: ketama_mode:server().
-type weight() :: ketama_mode:weight().
%% libketama's keys are C strings: in its mode a key ends at its first NUL.
-type key() :: iodata().

-define(SERVERS_FILE, "/web/site/GLOBAL/ketama.servers").

%% A ring of these servers. `mode' is `libketama' (if not given), `libmemcached',
%% `libmemcached_unweighted' or `spy' (`ketama_mode'). Weights are from 1 to 2^63 - 1 in
%% `libketama', and from 0 to 2^32 - 1 in the others, where 0 counts as 1.
-spec new([{server(), weight()}], ketama_mode:options()) -> ring().
new(Servers, Options) -> made(ketama_ring:new(Servers, Options)).

%% The ring without some of its servers, such as those that are down: only their keys have another
%% owner. A ring that is made anew without them moves more, since the number of a server's points
%% depends on all weights. Fails with `no_servers' if nobody is left who has a point.
-spec without([server()], ring()) -> ring().
without(Gone, Ring) -> made(ketama_ring:without(Gone, Ring)).

made({ok, Ring}) -> Ring;
made({error, Reason}) -> error(Reason).

-spec owner(key(), ring()) -> server().
owner(Key, Ring) when is_binary(Key) -> ketama_ring:owner(Key, Ring);
owner(Key, Ring) -> ketama_ring:owner(iolist_to_binary(Key), Ring).

%% The first server from the key's place on that holds less than its bound, so that no server holds
%% more than `factor' times its share (`ketama_load'). `load' is called in this process. Fails with
%% `{bad_option, Name}'.
-spec owner(key(), ring(), ketama_load:options()) -> server().
owner(Key, Ring, Options) -> made(ketama_load:owner(iolist_to_binary(Key), Ring, Options)).

%% The first N different servers from the key's place on, the owner first; all if there are fewer.
%% Servers that are too light for a point come last.
-spec owners(key(), N :: pos_integer(), ring()) -> [server(), ...].
owners(Key, N, Ring) when is_integer(N), N > 0 ->
    Found = ketama_ring:walk(fun(Index, {Left, Servers}) ->
        More = [ketama_ring:server(Index, Ring) | Servers],
        case Left of
            1 -> {stop, {0, More}};
            _ -> {next, {Left - 1, More}}
        end
    end, {N, []}, iolist_to_binary(Key), Ring),
    lists:reverse(element(2, Found)).

%% All points in ascending order.
-spec points(ring()) -> [{Point :: 0..16#FFFFFFFF, server()}].
points(Ring) -> ketama_ring:points(Ring).

%% In the order in which they were given; one that was given twice is there once, with the sum of
%% its weights.
-spec servers(ring()) -> [{server(), weight()}].
servers(Ring) -> ketama_ring:servers(Ring).

%% What libketama's `ketama_hashi' gives: the first four bytes of the MD5, little-endian.
-spec hash(key()) -> 0..16#FFFFFFFF.
hash(Key) -> ketama_hash:key(c_string, iolist_to_binary(Key)).

%% The servers of a `ketama.servers' file, read as libketama reads it (`ketama_servers_file').
-spec read_file(file:name_all()) ->
    {ok, [{server(), weight()}, ...]} | {error, ketama_servers_file:reason()}.
read_file(File) ->
    case ketama_servers_file:read(File) of
        {ok, Content} -> ketama_servers_file:parse(Content);
        {error, _} = Error -> Error
    end.

%% --- a ring that follows a file ----------------------------------------------------------------

%% Of the file that the application's environment names as `servers_file', else of the article's.
-spec start_link() -> gen_server:start_ret().
start_link() -> start_link(application:get_env(ketama, servers_file, ?SERVERS_FILE)).

-spec start_link(file:name_all()) -> gen_server:start_ret().
start_link(File) -> start_link(File, #{}).

%% The options are those of `ketama_ring_server'. A path in their place is the article's driver,
%% which isn't needed any more. Fails if the file is not good.
-spec start_link(file:name_all(), ketama_ring_server:options() | Driver :: file:name_all()) ->
    gen_server:start_ret().
start_link(File, Driver) when is_list(Driver); is_binary(Driver) -> start_link(File, #{});
start_link(File, Options) -> ketama_ring_server:start_link(File, Options).

%% The owner by the ring of the file. Exits with `{noproc, _}' if there is none.
-spec getserver(key()) -> server().
getserver(Key) -> owner(Key, ring(ketama)).

%% The ring in force of the process that was started under this name. Ask for it anew each time: one
%% that is held doesn't change with the file.
-spec ring(Name :: atom()) -> ring().
ring(Name) -> ketama_ring_server:ring(Name).

%% What is in force, and why the file as it is isn't.
-spec status(Name :: atom()) -> ketama_ring_server:status().
status(Name) -> ketama_ring_server:status(Name).
