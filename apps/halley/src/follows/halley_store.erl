%% The durable store of ids and follows: `<data.dir>/follows', opened before anything else of the
%% brain runs.
%%
%% Durable are a journal of changes (`halley_store_journal') and, now and then, a checkpoint of
%% everything (`halley_store_checkpoint'). While it runs the brain reads ETS tables, made from these
%% at the start (`halley_store_recovery') and owned by `halley_store_sup', so that they outlive a
%% crash of the processes that write them.
%%
%% This module is the order in which a store is opened, and whether it takes changes now. The owner
%% of the follows is the only one that writes.
-module(halley_store).

-export([open_data_dir/0, recover/0, close/0, directory/0, recovered/0, damaged/0]).
-export([refusing/0, set_refusing/1, reason/1]).
-export([journal/0, set_journal/1]).
-export_type([refusal/0]).

%% `disk_full': there is no room. `failed': the disk refuses for another reason.
%% `data_dir_moved': the folder isn't where it was.
-type refusal() :: disk_full | failed | data_dir_moved.

-spec open_data_dir() -> ok | {error, Line :: binary()}.
open_data_dir() -> halley_data_dir:open().

%% Fills the tables, which must be there and empty. The error is one sentence for the operator.
-spec recover() -> ok | {error, Line :: binary()}.
recover() ->
    Dir = directory(),
    ok = set_refusing(false),
    ok = halley_metrics:gauges([store_refusing, store_damaged], fun gauges/0),
    %% A folder that can't be made for want of room is made by the owner, later.
    _ = halley_data_dir:make_directory(Dir),
    case halley_store_takeover:run(Dir) of
        ok -> recover(Dir);
        {error, _} = Error -> Error
    end.

recover(Dir) ->
    case halley_store_recovery:recover(Dir) of
        {ok, Recovered} ->
            ok = set_journal(case Recovered of empty -> 1; #{number := Number} -> Number end),
            %% What was freed since the older checkpoint isn't told by the newer one.
            ok = halley_ids_written:put_up_to(halley_ids_pages:last()),
            persistent_term:put({?MODULE, recovered}, Recovered);
        {error, _} = Error -> Error
    end.

-spec close() -> ok.
close() -> halley_data_dir:close().

-spec directory() -> file:filename().
directory() -> filename:join(halley_data_dir:path(), "follows").

%% What the recovery found.
-spec recovered() -> empty | halley_store_recovery:recovered().
recovered() -> persistent_term:get({?MODULE, recovered}, empty).

%% How many files were damaged and made up for.
-spec damaged() -> non_neg_integer().
damaged() ->
    case recovered() of
        empty -> 0;
        #{damaged := Files} -> length(Files)
    end.

%% Why no change is taken now. Asked before any part of a change is accepted.
-spec refusing() -> false | refusal().
refusing() -> persistent_term:get({?MODULE, refusing}, false).

-spec set_refusing(false | refusal()) -> ok.
set_refusing(Refusal) -> persistent_term:put({?MODULE, refusing}, Refusal).

%% The number of the journal file that is written to, as far as it matters to numbers that were
%% freed: it was no later when the last of them was.
-spec journal() -> non_neg_integer().
journal() -> persistent_term:get({?MODULE, journal}).

-spec set_journal(non_neg_integer()) -> ok.
set_journal(Number) -> persistent_term:put({?MODULE, journal}, Number).

gauges() ->
    #{store_refusing => case refusing() of false -> 0; _ -> 1 end, store_damaged => damaged()}.

-spec reason(term()) -> refusal().
reason(enospc) -> disk_full;
reason(edquot) -> disk_full;
reason(moved) -> data_dir_moved;
reason(_) -> failed.
