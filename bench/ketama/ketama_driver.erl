%% The gen_server of the article "Erlang libketama driver - Consistent Hashing" (2008), written
%% anew: it holds the port program (driver.c), hands it one key after the other, and waits for the
%% answer inside the call.
%%
%% It is not made faster. Its figures are those of the design.
-module(ketama_driver).
-behaviour(gen_server).

-export([start_link/2, stop/0, getserver/1]).
-export([init/1, handle_call/3, handle_cast/2, terminate/2]).

-define(ANSWER_MS_MAX, 1000).

-spec start_link(ServersFile :: file:filename(), Driver :: file:filename()) ->
    gen_server:start_ret().
start_link(ServersFile, Driver) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, {ServersFile, Driver}, []).

-spec stop() -> ok.
stop() -> gen_server:stop(?MODULE).

%% A key has 254 bytes at most.
-spec getserver(binary()) -> binary().
getserver(Key) -> gen_server:call(?MODULE, {getserver, Key}).

init({ServersFile, Driver}) ->
    {ok, open_port({spawn, Driver ++ " " ++ ServersFile}, [binary, {packet, 1}, use_stdio])}.

handle_call({getserver, Key}, _, Port) ->
    Port ! {self(), {command, Key}},
    receive
        {Port, {data, Server}} -> {reply, Server, Port}
    after ?ANSWER_MS_MAX ->
        {stop, ketama_port_timeout, Port}
    end.

handle_cast(_, Port) ->
    {noreply, Port}.

terminate(_, Port) ->
    port_close(Port).
