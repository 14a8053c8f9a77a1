%% Publishes the server's status, each second, as an event about `halley_own:status/0': so the
%% sessions that follow it, the console's among them, have what any session has: an order, cursors,
%% what they missed, a bound on what waits for them.
%%
%% Without followers nothing is published. The first event after a pause has the samples of the last
%% ?BEFORE_MS, and so has one after others that were refused: a reader that was away for that long
%% has a sample of each second.
%%
%% An event that can't be published, as the disk is full or a shard hangs, is left out; readers that
%% hear nothing ask `GET /v1/status', which needs neither.
%%
%% When server keys change it has all these sessions closed (`halley_status_streams'), a second
%% later: by then who was judged by the keys of before has its place among them.
-module(halley_api_status_feed).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(LOOK_MS, 1000).
-define(WAIT_MS, 1500).
-define(BEFORE_MS, 60000).

-record(state, {at = 0 :: halley_status:at(),    % of the last sample that was published
                keys :: term(),
                closes = false :: boolean()}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    look_in(?LOOK_MS),
    {ok, #state{keys = halley_server_keys:in_force()}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, {error, unknown_call}, #state{}}.
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, State) ->
    {WaitMs, Next} = look(keys(State)),
    look_in(WaitMs),
    {noreply, Next};
handle_info(_, State) ->
    {noreply, State}.

look_in(Ms) ->
    _ = erlang:send_after(Ms, self(), look),
    ok.

keys(#state{keys = Before, closes = Closes} = State) ->
    _ = Closes andalso halley_status_streams:close(<<"the server keys have changed">>),
    Now = halley_server_keys:in_force(),
    State#state{keys = Now, closes = Now =/= Before}.

%% Waits for the next sample, if somebody is there to get it. What was published last is waited
%% for at once; after anything else there is a pause.
look(State) ->
    case halley_subscriptions_table:has_any(halley_own:status()) of
        true -> published(samples(State), State);
        false -> {?LOOK_MS, State}
    end.

samples(#state{at = At}) ->
    After = max(At, halley_clock:wall_ms() - ?BEFORE_MS),
    case halley_status:since(After, ?WAIT_MS) of
        {error, too_many} -> [];
        Samples -> lists:nthtail(max(0, length(Samples) - ?BEFORE_MS div ?LOOK_MS), Samples)
    end.

published([], State) ->
    {?LOOK_MS, State};
published(Samples, State) ->
    case halley_router:publish_own(halley_own:status(), halley_api_status_h:text(Samples)) of
        {ok, _} ->
            {At, _} = lists:last(Samples),
            {0, State#state{at = At}};
        {error, _} ->
            {?LOOK_MS, State}
    end.
