%% Whose tokens are revoked: those that were issued before a second are refused (http.md 14.11).
%%
%% The edge checks tokens, so it has the list: `halley_token_keys' puts it among the keys, which the
%% edge gets in the handshake and after each change (link.md 12.10). It ends the user's sessions
%% when it first hears of it.
%%
%% One process changes the list. An answered change is on disk (`halley_revocations_file') before it
%% is in force, and outlives restarts, and the deletion of the user. An entry with an end lapses
%% then, when the last token that it is about has expired.
%%
%% Bound: `revocations_bytes_max', of the text that the edge gets; beyond it there is no new one.
-module(halley_revocations).
-behaviour(gen_server).

-export([new/0, start_link/0, check/0]).
-export([put/3, delete/1, find/1, page/2, text/0, is_newer/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([failure/0]).

-include_lib("kernel/include/logger.hrl").

-type revocation() :: halley_revocations_file:revocation().
-type failure() :: too_many_revocations | disk_full | {store_failed, term()}.

-define(LAPSE_MS, 10000).
%% Of `"":1234567890,' and what an id may grow by.
-define(ENTRY_BYTES, 20).
%% The row of the text; users are binaries.
-define(TEXT, text).

-record(state, {dir :: file:filename_all()}).

%% Rows {User, IssuedBefore, Until, MadeAtMs}, and {?TEXT, Version, Text}.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [ordered_set, public, named_table, {read_concurrency, true}]),
    ok = halley_metrics:gauges([revocations], fun() ->
        #{revocations => ets:info(?MODULE, size) - 1}
    end),
    {ok, Read} = halley_revocations_file:read(data_dir()),
    put_in_force(Read).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether the file can be read. The error is one sentence for the operator.
-spec check() -> ok | {error, string()}.
check() ->
    case halley_revocations_file:read(data_dir()) of
        {ok, _} -> ok;
        {error, Reason} -> {error, unicode:characters_to_list(Reason)}
    end.

data_dir() ->
    {ok, Dir} = application:get_env(halley, data_dir),
    Dir.

%% Tokens of the user that were issued before this second are refused from now on.
-spec put(halley_id:id(), IssuedBefore :: non_neg_integer(), Until :: non_neg_integer() | never) ->
    ok | {error, failure()}.
put(User, IssuedBefore, Until) ->
    gen_server:call(?MODULE, {put, {User, IssuedBefore, Until}}, infinity).

%% All of the user's tokens count again, as their signature and time say.
-spec delete(halley_id:id()) -> deleted | absent | {error, failure()}.
delete(User) ->
    gen_server:call(?MODULE, {delete, User}, infinity).

-spec find(halley_id:id()) -> revocation() | none.
find(User) ->
    case ets:lookup(?MODULE, User) of
        [{_, Before, Until, _}] -> {User, Before, Until};
        [] -> none
    end.

%% In the order of the ids.
-spec page(After :: halley_id:id() | start, Limit :: pos_integer()) ->
    {[revocation()], Next :: halley_id:id() | done}.
page(After, Limit) ->
    First = case After of start -> ?TEXT; _ -> After end,
    page(ets:next(?MODULE, First), Limit, []).

page('$end_of_table', _, Found) -> {lists:reverse(Found), done};
page(_, 0, [{Last, _, _} | _] = Found) -> {lists:reverse(Found), Last};
page(User, Left, Found) ->
    Next = ets:next(?MODULE, User),
    case find(User) of
        none -> page(Next, Left, Found);
        One -> page(Next, Left - 1, [One | Found])
    end.

%% What the edge gets: an object of seconds by user, on one line; and a version, another one after
%% each change.
-spec text() -> {Version :: integer(), binary()} | none.
text() ->
    case ets:lookup(?MODULE, ?TEXT) of
        [{_, _, <<"{}">>}] -> none;
        [{_, Version, Text}] -> {Version, Text};
        [] -> none
    end.

%% Whether the user's tokens were revoked at this time or later, by the monotonic clock.
-spec is_newer(halley_id:id(), SinceMs :: integer()) -> boolean().
is_newer(User, SinceMs) ->
    case ets:lookup(?MODULE, User) of
        [{_, _, _, MadeAtMs}] -> MadeAtMs >= SinceMs;
        [] -> false
    end.

%% --- the process ---------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    _ = erlang:send_after(?LAPSE_MS, self(), lapse),
    {ok, #state{dir = data_dir()}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({put, {User, _, _} = One}, _, State) ->
    Others = lists:keydelete(User, 1, lasting(all())),
    All = lists:keysort(1, [One | Others]),
    Bytes = lists:sum([cost(Each) || Each <- All]),
    case Bytes =< halley_limits:get(revocations_bytes_max) of
        true ->
            {reply, changed(All, State), State};
        false ->
            halley_metrics:incr(revocations_refused),
            {reply, {error, too_many_revocations}, State}
    end;
handle_call({delete, User}, _, State) ->
    case find(User) of
        none ->
            {reply, absent, State};
        _ ->
            case changed(lists:keydelete(User, 1, lasting(all())), State) of
                ok -> {reply, deleted, State};
                {error, _} = Error -> {reply, Error, State}
            end
    end.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

%% What has lapsed goes from the file with the next change.
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(lapse, State) ->
    _ = erlang:send_after(?LAPSE_MS, self(), lapse),
    All = all(),
    case lasting(All) of
        All -> ok;
        Lasting ->
            ok = put_in_force(Lasting),
            tell_links()
    end,
    {noreply, State};
handle_info(_, State) ->
    {noreply, State}.

all() ->
    {All, done} = page(start, 1 bsl 32),
    All.

lasting(All) ->
    NowS = halley_clock:wall_s(),
    [One || {_, _, Until} = One <- All, Until =:= never orelse Until > NowS].

cost({User, _, _}) -> iolist_size(jiffy:encode(User)) + ?ENTRY_BYTES.

changed(All, #state{dir = Dir}) ->
    case halley_revocations_file:write(Dir, All) of
        ok ->
            ok = put_in_force(All),
            tell_links();
        {error, enospc} ->
            {error, disk_full};
        {error, Reason} ->
            ?LOG_ERROR("data.dir: whose tokens are revoked could not be written: ~0tp", [Reason]),
            {error, {store_failed, Reason}}
    end.

%% Rows that stay are written before others go: a reader never misses one.
put_in_force(All) ->
    Now = erlang:monotonic_time(millisecond),
    Gone = [User || {User, _, _} <- all(), not lists:keymember(User, 1, All)],
    lists:foreach(fun({User, Before, Until}) ->
        MadeAt = case ets:lookup(?MODULE, User) of
            [{_, Before, _, At}] -> At;
            _ -> Now
        end,
        true = ets:insert(?MODULE, {User, Before, Until, MadeAt})
    end, All),
    lists:foreach(fun(User) -> true = ets:delete(?MODULE, User) end, Gone),
    Text = iolist_to_binary(jiffy:encode({[{User, Before} || {User, Before, _} <- All]})),
    true = ets:insert(?MODULE, {?TEXT, erlang:unique_integer(), Text}),
    ok.

tell_links() ->
    _ = [Link ! token_keys_changed || #{info := #{link := Link}} <- halley_links:list()],
    ok.
