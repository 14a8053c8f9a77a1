%% The behaviour of an engine: the log of a cluster, in a service that several brains share.
%%
%% The log is one chain of rows. A row holds the records of a group, and names the last seq of the
%% row before it; that pair is unique. So the engine alone decides which group is next
%% (*compare-and-append*), and brains need no agreement of their own. A row that was answered with
%% `{ok, _}' is never lost while the engine keeps its promise; a lost tail is an *epoch* (below).
%%
%% Seqs: a row covers the seqs from `prev' + 1 to `last', one for each event in it, and at least
%% one. They grow by one chain for all shards.
%%
%% Epochs: the engine gives each stretch of the chain a store id. A new stretch begins where rows
%% may have been lost: after a failover, or after an old dump was restored. Cursors name the store
%% id, so a cursor of an older store is good up to that epoch's `after'; beyond it the brain reports
%% a gap.
%%
%% A handle belongs to the process that opened it. A brain opens one to append and one to read.
%% Every call returns within its own time limit, and no failure of the service is thrown.
-module(halley_log_engine).

-export_type([seq/0, token/0, row/0, group/0, change/0, epoch/0, opened/0, away/0, role/0, brain/0,
              engine/0, settings/0, snapshot_rows/0, at_ms/0]).

-type seq() :: halley_cursor:seq().
%% Milliseconds since the epoch of 1970, by the engine's clock.
-type at_ms() :: integer().
%% Random, 16 bytes: finds out whether an append whose answer was lost has taken place.
-type token() :: <<_:128>>.
-type row() :: #{prev := seq(), last := seq(), at := at_ms(), token := token(), body := binary()}.
%% `body': versioned records (`halley_cluster_records'). `changes' go to the engine's own tables in
%% the same transaction, in order.
-type group() :: #{last := seq(), body := binary(), changes := [change()]}.
-type change() :: {follow | unfollow, User :: halley_id:id(), Subject :: halley_id:id()}
                | {forget, halley_id:id()}          % no follows of it or to it any more
                | {keep, Subject :: halley_id:id(), seq(), Event :: binary()}
                | {clear, Subject :: halley_id:id()}
                | {key, Id :: binary(), Record :: binary() | removed}.
%% `after': of the stretch before it, the last seq that is good. The first epoch's is 0.
-type epoch() :: #{n := pos_integer(), store := halley_cursor:store(), 'after' := seq()}.
%% `floor': reading can begin after this seq. `epochs': the newest first, at least one.
-type opened() :: #{last := seq(), floor := seq(), epochs := [epoch(), ...], at := at_ms()}.
%% The service can't be reached, or takes no writes. `full': its disk. Nothing was done.
-type away() :: away | full | read_only | {refused, iodata()}.
-type role() :: order | ingest | hooks.
-type brain() :: #{name := binary(), address := binary(), version := pos_integer(), head := seq(),
                   seen := at_ms()}.
-type engine() :: term().
-type settings() :: map().
%% Rows of one kind; a snapshot calls for each kind as often as it needs. `at_ms()': of the row that
%% had the value.
-type snapshot_rows() :: {follows, [{User :: halley_id:id(), Subject :: halley_id:id()}]}
                       | {kept, [{Subject :: halley_id:id(), seq(), at_ms(), Event :: binary()}]}
                       | {keys, [{Id :: binary(), Record :: binary()}]}.

%% Connects, and checks that the tables are there and of a version that this brain knows. If the
%% service's stretch is another one than that of the newest epoch, it begins an epoch.
-callback open(settings()) -> {ok, engine(), opened()} | {error, away() | no_tables}.

-callback close(engine()) -> ok.

%% Appends one row after `Prev'. `conflict': another row is there; its chain goes on to `Last'.
%% `unknown': the row may be there or not, now or later; only a reader that finds the token, or
%% another row after `Prev', knows. After `unknown' and `new_stretch' the handle is good for `close'
%% alone. `new_stretch': the service has failed over since `open'; nothing was appended.
-callback append(Prev :: seq(), token(), group(), engine()) ->
    {ok, at_ms()} | {conflict, Last :: seq()} | unknown | new_stretch | {error, away()}.

%% The rows after `After', in order, of about `MaxBytes', and at least one if there is one.
%% `too_old': the log begins later, so the reader needs a snapshot. `ahead': the chain doesn't have
%% that seq, as it lost its tail.
-callback read(After :: seq(), MaxBytes :: pos_integer(), engine()) ->
    {ok, [row()]} | too_old | ahead | {error, away()}.

%% The follows, kept values and keys as they are after one row, whose last seq is returned; one
%% transaction. What the fun gets is of one kind at a time, in no order.
-callback snapshot(fun((snapshot_rows()) -> ok), engine()) -> {ok, At :: seq()} | {error, away()}.

%% Removes rows that are older, if they are in the way of nothing; another brain may do the same at
%% once. Returns the floor.
-callback trim(OlderThan :: at_ms(), engine()) -> {ok, Floor :: seq()} | {error, away()}.

%% Takes the role, or keeps it, for `TtlMs' by the engine's clock. `Term' is the one that the brain
%% has, or 0. A term grows whenever the role changes hands.
-callback take(role(), Brain :: binary(), Term :: non_neg_integer(), TtlMs :: pos_integer(),
               engine()) ->
    {held, Term :: pos_integer()} | {other, Brain :: binary(), Term :: pos_integer()}
  | {error, away()}.

%% Gives the role back, if the brain has it by this term.
-callback give(role(), Brain :: binary(), Term :: pos_integer(), engine()) -> ok | {error, away()}.

%% Writes this brain's row and returns all rows, and the engine's time.
-callback brains(brain(), engine()) -> {ok, [brain()], at_ms()} | {error, away()}.

%% A consumer's place: that of the hooks, or of the PostgreSQL consumer.
-callback position(Consumer :: binary(), engine()) -> {ok, binary() | none} | {error, away()}.
-callback save_position(Consumer :: binary(), binary(), engine()) -> ok | {error, away()}.
