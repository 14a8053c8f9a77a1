%% The brain's top supervisor.
%%
%% It owns the tables of the directory, the links and the metrics, and so they outlive the
%% processes that write them: each of these is restarted alone over what it left.
%%
%% The store is different. Users that only logged in have their numbers in its memory, and the
%% directory is indexed by them: without the store its contents mean nothing. So when the store
%% gives up, the whole brain ends, and a new one links to the edges, which kept their connections.
%% So is the history's log: what it had taken and not yet written is only in its memory.
-module(halley_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = halley_metrics:new(),
    ok = halley_directory:new(),
    ok = halley_links:new(),
    ok = halley_links_synced:new(),
    ok = halley_closings:new(),
    ok = halley_openings:new(),
    ok = halley_follows_backend:new(),
    ok = halley_shard:new(),
    ok = halley_top:new(),
    ok = halley_history:new(),
    ok = halley_groups:new(),
    ok = halley_presence_dirty:new(),
    ok = halley_session_states:new(),
    ok = halley_status_streams:new(),
    ok = halley_subscriptions:new(),
    ok = halley_user_rate:new(),
    ok = halley_revocations:new(),
    ok = halley_token_keys:new(),
    ok = halley_server_keys:new(),
    Flags = #{strategy => one_for_one, intensity => 10, period => 10,
              auto_shutdown => any_significant},
    {ok, {Flags, [
        #{id => halley_store_sup,
          start => {halley_store_sup, start_link, [fun halley_groups:followed/1]},
          type => supervisor, restart => temporary, significant => true},
        #{id => halley_history_log, start => {halley_history_log, start_link, []},
          shutdown => 30000, restart => temporary, significant => true},
        #{id => halley_directory,
          start => {halley_directory, start_link, [fun halley_sessions:ended/1]}},
        #{id => halley_links,
          start => {halley_links, start_link, [fun halley_sessions:lost/1]}, shutdown => 60000},
        #{id => halley_groups, start => {halley_groups, start_link, []}},
        #{id => halley_subscriptions, start => {halley_subscriptions, start_link, []}},
        #{id => halley_presence, start => {halley_presence, start_link, []}},
        #{id => halley_presence_counter, start => {halley_presence_counter, start_link, []}},
        #{id => halley_past_turns, start => {halley_past_turns, start_link, []}},
        #{id => halley_token_keys, start => {halley_token_keys, start_link, []}},
        #{id => halley_revocations, start => {halley_revocations, start_link, []}},
        #{id => halley_server_keys, start => {halley_server_keys, start_link, []}},
        #{id => halley_shard_sup, start => {halley_shard_sup, start_link, []},
          type => supervisor},
        #{id => halley_status, start => {halley_status, start_link, []}},
        #{id => halley_launcher, start => {halley_launcher, start_link, []}}]}}.
