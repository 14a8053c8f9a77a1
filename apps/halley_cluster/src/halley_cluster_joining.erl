%% Where a brain with empty data begins: at the newest epoch's `after', or at the log's floor if
%% that is later. To be called before the history is opened, which gets the store and that seq
%% (`new_store' in the environment of `halley').
%%
%% Rows of older epochs aren't for its history: their events have ids of another store, and cursors
%% of that store are a gap here. The ids that publishers chose in them are read all the same. A
%% publisher whose answer was lost when the service was started anew publishes again, to whichever
%% brain; that is one event.
-module(halley_cluster_joining).

-export([place/1]).
-export_type([place/0]).

-type place() :: #{store := halley_cursor:store(), head := halley_cursor:seq(),
                   epoch := pos_integer(), ids := #{halley_event:id() => halley_cursor:seq()}}.

-define(READ_BYTES_MAX, (4 bsl 20)).
%% Each time the log was trimmed meanwhile, or has begun another epoch.
-define(TRIES, 5).

%% `changing': the log is changed all the time by others; try again later.
-spec place({module(), halley_log_engine:settings()}) ->
    {ok, place()} | {error, halley_log_engine:away() | no_tables | changing}.
place(Engine) -> place(Engine, ?TRIES).

place(_, 0) ->
    {error, changing};
place({Module, Settings} = Engine, Tries) ->
    case Module:open(Settings) of
        {ok, Handle, #{floor := Floor, epochs := [Newest | _]}} ->
            #{n := N, store := Store, 'after' := After} = Newest,
            Read = read(Floor, After, #{}, {Module, Handle}),
            ok = Module:close(Handle),
            case Read of
                {ok, Ids} ->
                    {ok, #{store => Store, head => max(After, Floor), epoch => N, ids => Ids}};
                again -> place(Engine, Tries - 1);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

%% The ids of the rows up to `To'.
read(After, To, Ids, _) when After >= To ->
    {ok, Ids};
read(After, To, Ids, {Module, Handle} = Engine) ->
    case Module:read(After, ?READ_BYTES_MAX, Handle) of
        {ok, [_ | _] = Rows} ->
            Old = [Row || #{last := Last} = Row <- Rows, Last =< To],
            read(maps:get(last, lists:last(Rows)), To, lists:foldl(fun chosen/2, Ids, Old), Engine);
        {error, _} = Error -> Error;
        %% What was open is no more as it was.
        _ -> again
    end.

%% A row that isn't understood is of a newer version: the core will stop at such rows.
chosen(#{prev := Prev, body := Body}, Ids) ->
    case halley_cluster_records:decode(Body) of
        {ok, _, Portions} -> maps:merge(Ids, copies(halley_cluster_rows:chosen(Prev, Portions)));
        {error, _} -> Ids
    end.

%% A part of the row's body would keep all of it in memory.
copies(Ids) ->
    maps:from_list([{binary:copy(Id), Seq} || {Id, Seq} <- maps:to_list(Ids)]).
