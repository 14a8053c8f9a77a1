%% Follows in Mnesia: the article's `subsmanager`.
%%
%% One `bag` of rows (subscriber, subscribee) with an index over the second, on disk and in memory.
%% Look-ups are done by a process of their own, so that a slow one holds no other up; writes are
%% dirty, as the article found transactions too slow for loading.
-module(comet_subsmanager).

-behaviour(gen_server).

-export([first_run/0, start_link/0]).
-export([add_subscriptions/1, remove_subscriptions/1, get_subscribers/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-export_type([id/0]).

%% The article's are integers; other words stay words.
-type id() :: non_neg_integer() | binary().

-record(subscription, {subscriber :: id() | '_', subscribee :: id() | '_'}).

-define(LOAD_MS_MAX, 30_000).

%% @doc Makes the schema and the table; once per directory.
-spec first_run() -> ok.
first_run() ->
    ok = mnesia:create_schema([node()]),
    ok = mnesia:start(),
    {atomic, ok} = mnesia:create_table(subscription, [
        {disc_copies, [node()]},
        {attributes, record_info(fields, subscription)},
        {index, [subscribee]},
        {type, bag}
    ]),
    ok.

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec add_subscriptions([{Subscriber :: id(), Subscribee :: id()}]) -> ok.
add_subscriptions(Pairs) ->
    gen_server:call(?MODULE, {add_subscriptions, Pairs}, infinity).

-spec remove_subscriptions([{Subscriber :: id(), Subscribee :: id()}]) -> ok.
remove_subscriptions(Pairs) ->
    gen_server:call(?MODULE, {remove_subscriptions, Pairs}, infinity).

-spec get_subscribers(id()) -> [id()].
get_subscribers(Subscribee) ->
    gen_server:call(?MODULE, {get_subscribers, Subscribee}).

-spec init([]) -> {ok, no_state}.
init([]) ->
    ok = mnesia:wait_for_tables([subscription], ?LOAD_MS_MAX),
    {ok, no_state}.

-spec handle_call(term(), gen_server:from(), no_state) ->
    {reply, ok, no_state} | {noreply, no_state}.
handle_call({add_subscriptions, Pairs}, _From, State) ->
    lists:foreach(fun(Pair) -> ok = mnesia:dirty_write(row(Pair)) end, Pairs),
    {reply, ok, State};
handle_call({remove_subscriptions, Pairs}, _From, State) ->
    lists:foreach(fun(Pair) -> ok = mnesia:dirty_delete_object(row(Pair)) end, Pairs),
    {reply, ok, State};
handle_call({get_subscribers, Subscribee}, From, State) ->
    spawn(fun() ->
        Rows = mnesia:dirty_index_read(subscription, Subscribee, #subscription.subscribee),
        gen_server:reply(From, [Subscriber || #subscription{subscriber = Subscriber} <- Rows])
    end),
    {noreply, State}.

-spec handle_cast(term(), no_state) -> {noreply, no_state}.
handle_cast(_, State) ->
    {noreply, State}.

row({Subscriber, Subscribee}) ->
    #subscription{subscriber = Subscriber, subscribee = Subscribee}.
