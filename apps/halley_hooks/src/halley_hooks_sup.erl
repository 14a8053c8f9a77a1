%% The processes for hooks (`hooks.url') and for judgements of connects (`auth.connect_url'), as
%% configured. It owns the tables of the brain's changes, of judgements, and of users that are still
%% to be judged.
-module(halley_hooks_sup).
-behaviour(supervisor).

-export([start_link/1]).
-export([init/1]).

-spec start_link(none | halley_hooks_config:settings()) -> supervisor:startlink_ret().
start_link(Settings) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Settings).

-spec init(none | halley_hooks_config:settings()) ->
    {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(none) ->
    {ok, {#{}, []}};
init(#{connect := Connect} = Settings) ->
    _ = [ok = halley_hooks_connect:new() || Connect =/= none],
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10},
          [#{id => halley_hooks_connect, start => {halley_hooks_connect, start_link, [Connect]}}
           || Connect =/= none] ++ telling(Settings)}}.

telling(#{target := none}) -> [];
telling(#{events := Events} = Settings) ->
    ok = halley_hooked:on([published || lists:member(published, Events)]
                          ++ [changes || Events -- [published] =/= []]
                          ++ [{moves, {fun halley_hooks_moves_files:id_of/1,
                                       fun halley_history:drawn/0,
                                       fun() -> halley_limits:get(hooks_moves_max) end}}
                              || lists:member(undelivered, Events)]),
    ok = halley_hooks_progress:new(),
    ok = halley_hooks_moves:new(),
    [#{id => halley_hooks_telling_sup, type => supervisor,
       start => {halley_hooks_telling_sup, start_link, [Settings]}}].
