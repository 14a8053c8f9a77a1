%% Keeps `halley.rejected' within `limits.postgres_rejected_max' rows and
%% `limits.postgres_rejected_ms_max': what is older, and the oldest beyond that many, is deleted.
%%
%% It is looked at once an hour, and when so many rows were kept since the last look that there may
%% be a tenth more than the bound. It has a connection of its own for each look, which waits for no
%% lock: the stream never waits for this, and what fails here is tried again at the next look.
-module(halley_postgres_rejected).
-behaviour(gen_server).

-export([start_link/1, kept/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("epgsql/include/epgsql.hrl").
-include_lib("kernel/include/logger.hrl").

-define(FIRST_MS, 60000).
-define(EVERY_MS, 3600000).
-define(LOCK_MS, "1000").
%% Deleted by one statement.
-define(ROWS, 10000).

-record(rejected, {settings :: halley_postgres_config:settings(),
                   %% Rows that may come before the next look.
                   left :: integer()}).

-spec start_link(halley_postgres_config:settings()) -> gen_server:start_ret().
start_link(Settings) -> gen_server:start_link({local, ?MODULE}, ?MODULE, Settings, []).

%% So many rows were written.
-spec kept(non_neg_integer()) -> ok.
kept(Rows) -> gen_server:cast(?MODULE, {kept, Rows}).

-spec init(halley_postgres_config:settings()) -> {ok, #rejected{}}.
init(Settings) ->
    %% A connection that ends takes only its look with it.
    process_flag(trap_exit, true),
    _ = erlang:send_after(?FIRST_MS, self(), look),
    {ok, #rejected{settings = Settings, left = margin()}}.

margin() -> max(1, halley_limits:get(postgres_rejected_max) div 10).

-spec handle_call(term(), gen_server:from(), #rejected{}) -> {reply, ok, #rejected{}}.
handle_call(_, _, State) -> {reply, ok, State}.

-spec handle_cast({kept, non_neg_integer()}, #rejected{}) -> {noreply, #rejected{}}.
handle_cast({kept, Rows}, #rejected{left = Left} = State) when Rows < Left ->
    {noreply, State#rejected{left = Left - Rows}};
handle_cast({kept, _}, State) ->
    {noreply, looked(State)}.

-spec handle_info(term(), #rejected{}) -> {noreply, #rejected{}}.
handle_info(look, State) ->
    _ = erlang:send_after(?EVERY_MS, self(), look),
    {noreply, looked(State)};
handle_info(_, State) ->
    {noreply, State}.

%% What can't be asked now is asked when as many have come again.
looked(#rejected{settings = #{server := Server}} = State) ->
    Left = try halley_postgres_connection:open(Server(), queries) of
        {ok, C} ->
            try within(C) after epgsql:close(C) end;
        {error, Reason} -> failed(Reason)
    catch
        exit:Reason -> failed(Reason)
    end,
    State#rejected{left = Left}.

within(C) ->
    Max = halley_limits:get(postgres_rejected_max),
    case deleted(C, Max, halley_limits:get(postgres_rejected_ms_max), 0) of
        {ok, Deleted, Rows} ->
            ok = said(Deleted),
            max(0, Max - Rows) + margin();
        %% Without the table there is nothing to delete.
        {error, #error{code = <<"42P01">>}} -> margin();
        {error, Reason} -> failed(Reason)
    end.

deleted(C, Max, MsMax, Before) ->
    case asked(C, Max, MsMax) of
        {ok, ?ROWS, _} -> deleted(C, Max, MsMax, Before + ?ROWS);
        {ok, Deleted, Rows} -> {ok, Before + Deleted, Rows};
        {error, _} = Error -> Error
    end.

%% One query of several statements is one transaction. The rows are found without sorting all.
asked(C, Max, MsMax) ->
    Answers = epgsql:squery(C, ["SET LOCAL lock_timeout = " ?LOCK_MS "; "
        "DELETE FROM halley.rejected WHERE ctid = ANY(ARRAY(SELECT ctid FROM halley.rejected "
        "WHERE rejected_at <= greatest(now() - interval '", integer_to_list(MsMax), " ms', "
        "(SELECT rejected_at FROM halley.rejected ORDER BY rejected_at DESC OFFSET ",
        integer_to_list(Max), " LIMIT 1)) LIMIT ", integer_to_list(?ROWS), ")); "
        "SELECT count(*) FROM halley.rejected"]),
    case Answers of
        [_, {ok, Deleted}, {ok, _, [{Rows}]}] -> {ok, Deleted, binary_to_integer(Rows)};
        {error, _} = Error -> Error;
        _ -> lists:last(Answers)
    end.

said(0) -> ok;
said(Deleted) ->
    ok = halley_metrics:incr(postgres_rejected_deleted, Deleted),
    halley_postgres_said:once_a_second(deleted, Deleted, fun(N) ->
        ?LOG_NOTICE("postgres: ~b rows of halley.rejected were deleted: they were older than "
                    "limits.postgres_rejected_ms_max, or the oldest of more than "
                    "limits.postgres_rejected_max", [N])
    end).

failed(Reason) ->
    ok = halley_postgres_said:once_a_second(failed, 1, fun(_) ->
        ?LOG_WARNING("postgres: halley.rejected can't be kept within its bounds: ~ts",
                     [halley_postgres_connection:explain(Reason)])
    end),
    margin().
