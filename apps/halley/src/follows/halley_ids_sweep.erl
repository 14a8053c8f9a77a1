%% Finds numbers that nothing refers to, so that ids that are never seen again don't stay for ever.
%%
%% Once a second it looks at a slice of all numbers, and so at all of them in some minutes. It asks
%% the owner of the follows to let numbers leave that have no session and no follow (`halley_ids'
%% says what leaving is), and to free those that left `id_quarantine_ms' ago. It decides nothing:
%% the owner looks again. It also asks for a checkpoint if freed numbers wait for one that nothing
%% else would begin (`halley_ids_waiting').
%%
%% Anything that holds a number for longer than the quarantine must be known to
%% `halley_directory', to the follows or to `halley_groups_table'.
-module(halley_ids_sweep).
-behaviour(gen_server).

-export([start_link/0, round/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(TICK_MS, 1000).
%% A slice has at least so many numbers, and at least this part of all of them.
-define(SLICE_MIN, 4096).
-define(SLICES_MAX, 256).
%% Freed at a time; and more don't leave at a time.
-define(BATCH_MAX, 16384).
-define(LEAVING_MAX, 1000000).

-record(state, {next = 1 :: halley_ids:user_number()}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], [{spawn_opt, [{priority, low}]}]).

%% Looks at all numbers, now. For tests and tools.
-spec round() -> ok.
round() -> gen_server:call(?MODULE, round, infinity).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    {ok, #state{}}.

-spec handle_call(round, gen_server:from(), #state{}) -> {reply, ok, #state{}}.
handle_call(round, _, State) ->
    ok = free(),
    _ = slice(1, halley_ids_pages:last()),
    ok = press(),
    {reply, ok, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(tick, #state{}) -> {noreply, #state{}}.
handle_info(tick, #state{next = Next} = State) ->
    _ = erlang:send_after(?TICK_MS, self(), tick),
    case whereis(halley_directory) of
        undefined ->
            {noreply, State};
        _ ->
            {noreply, State#state{next = looked(Next)}}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% A process that dies meanwhile has been restarted by the next look.
looked(Next) ->
    try
        ok = free(),
        ok = press(),
        slice(Next)
    catch
        exit:{_, {gen_server, call, _}} -> Next
    end.

free() ->
    case halley_ids:due(?BATCH_MAX) of
        [] ->
            ok;
        Due ->
            ok = halley_closings:freed(Due),
            ok = halley_openings:forget(Due),
            halley_metrics:incr(ids_freed, halley_follows_owner:free(Due))
    end.

press() ->
    case halley_ids:is_pressing(halley_follows_owner:count()) of
        true -> halley_follows_owner:checkpoint_soon();
        false -> ok
    end.

slice(Next) ->
    Last = halley_ids_pages:last(),
    case Next > Last of
        true -> 1;
        false ->
            Size = max(?SLICE_MIN, Last div ?SLICES_MAX),
            slice(Next, min(Last, Next + Size - 1))
    end.

slice(First, Last) ->
    Room = ?LEAVING_MAX - halley_ids:leaving(),
    Idle = lists:sublist(idle(First, Last, halley_directory_atomics:chunks()), max(0, Room)),
    leave(Idle),
    Last + 1.

leave([]) -> ok;
leave(Numbers) ->
    {Now, Later} = lists:split(min(?BATCH_MAX, length(Numbers)), Numbers),
    ok = halley_follows_owner:leave(Now),
    leave(Later).

idle(N, Last, _) when N > Last -> [];
idle(N, Last, Chunks) ->
    case halley_directory_atomics:get(Chunks, N) =:= 0 andalso not halley_ids_use:is_followed(N)
        andalso halley_ids_pages:id(N) =/= <<>> of
        true -> [N | idle(N + 1, Last, Chunks)];
        false -> idle(N + 1, Last, Chunks)
    end.
