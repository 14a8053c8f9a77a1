%% The design of the article "A Million-user Comet Application with Mochiweb" (2008), written anew:
%% what Halley started from, and is measured against.
%%
%%     comet_web --login--> comet_router --get_subscribers--> comet_subsmanager --> Mnesia
%%
%% As there: one process per connection, which hibernates between messages; one router, which knows
%% who is logged in; one subscription manager, which keeps who follows whom in Mnesia. The
%% differences are demands of seventeen years, each marked in its place: supervision, the tuple
%% modules of today's mochiweb, a way to publish and to follow over HTTP.
%%
%% It is not made faster. Its figures are those of the design.
-module(comet).

-behaviour(supervisor).

-export([start/1, init/1]).

%% @doc Starts all of it on a port of the loopback interface. Mnesia's directory is what
%% `-mnesia dir` says.
-spec start([Port :: string()]) -> ok.
start([Port]) ->
    ok = comet_subsmanager:first_run(),
    {ok, Pid} = supervisor:start_link({local, ?MODULE}, ?MODULE, list_to_integer(Port)),
    %% The caller is `erl -run`, which ends.
    unlink(Pid),
    ok.

-spec init(inet:port_number()) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Port) ->
    {ok, {#{strategy => rest_for_one}, [
        #{id => subsmanager, start => {comet_subsmanager, start_link, []}},
        #{id => router, start => {comet_router, start_link, []}},
        #{id => web, start => {comet_web, start_link, [Port]}}
    ]}}.
