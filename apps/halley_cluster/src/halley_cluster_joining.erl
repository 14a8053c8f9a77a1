%% Where a brain with empty data begins: at the log's floor, in the epoch of that seq. It reads the
%% whole retention from there, and adopts the later epochs where they begin. To be called before the
%% history is opened, which gets the store and the seq (`new_store' in the environment of `halley').
-module(halley_cluster_joining).

-export([place/1]).
-export_type([place/0]).

-type place() :: #{store := halley_cursor:store(), head := halley_cursor:seq(),
                   epoch := pos_integer()}.

-spec place({module(), halley_log_engine:settings()}) ->
    {ok, place()} | {error, halley_log_engine:away() | no_tables}.
place({Module, Settings}) ->
    case Module:open(Settings) of
        {ok, Handle, #{floor := Floor, epochs := Epochs}} ->
            ok = Module:close(Handle),
            {ok, place(Floor, Epochs)};
        {error, _} = Error ->
            Error
    end.

%% The engine names its newest epochs only; of what is older than these nothing is known.
place(Floor, [#{'after' := After} | Older]) when After > Floor, Older =/= [] ->
    place(Floor, Older);
place(Floor, [#{n := N, store := Store, 'after' := After} | _]) ->
    #{store => Store, head => max(After, Floor), epoch => N}.
