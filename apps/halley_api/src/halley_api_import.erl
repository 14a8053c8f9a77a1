%% A body of follows, of any size: chunks to lines, lines to pairs, pairs to batches, batches to the
%% store.
%%
%% Batches commit, each in a process of its own, while the next is read and parsed; when as many are
%% on their way as may be, it waits for the oldest. So an import holds a few batches at most, and
%% the store looks up the ids of one while it writes another. A commit that waits stops the reading,
%% and that stops the client.
%%
%% Invariants: batches are accounted for in the order of the lines; since all do the same, it
%% doesn't matter which of two reaches the store first. A line that gives no follow is an error with
%% its number and spoils no other. If the client leaves or the store refuses, the lines before are
%% applied and stay so, perhaps some after them too: an import may be repeated, and its earlier
%% follows are `already'. Batches of one and the same user commit one after the other: how many
%% subjects it may follow yet is looked at when a batch begins, and follows beyond it must take no
%% ids.
%%
%% It doesn't know whether it follows or unfollows: that is the function it is given.
-module(halley_api_import).

-export([run/3]).
-export([commit/2]).
-export_type([outcome/0, apply/0, format/0]).

-include("halley_api_limits.hrl").

%% `undeclared': a body that begins with a brace is NDJSON.
-type format() :: ndjson | edge_list | undeclared
                | {lines, fun((Block :: binary()) -> halley_api_follow_lines:parsed())}.
%% Counts of what was done by name, such as `added', and the lines that failed. `lines' were read.
-type outcome() :: #{counts := #{atom() => non_neg_integer()},
                     errors := [{Line :: pos_integer(), halley_api_error:error()}],
                     errors_total := non_neg_integer(),
                     lines := non_neg_integer()}.
-type pairs() :: [halley_api_follow_lines:pair()].
-type apply() :: fun((pairs()) ->
    {ok, #{errors := [{non_neg_integer(), term()}], atom() => term()}} | {error, term()}).

-record(batch, {
    first_line :: pos_integer(),
    %% Of its first pair.
    user = none :: none | halley_id:id(),
    lines = 0 :: non_neg_integer(),
    count = 0 :: non_neg_integer(),
    blocks = [] :: [pairs()],
    %% Lines that gave no pair, the latest first.
    skipped = [] :: halley_api_follow_lines:skipped()
}).
-record(import, {
    apply :: apply(),
    format :: format(),
    lines = halley_api_lines:new(?FOLLOW_LINE_BYTES_MAX) :: halley_api_lines:lines(),
    batch = #batch{first_line = 1} :: #batch{},
    %% On their way to the store, the oldest first.
    commits = [] :: [{reference(), #batch{}}],
    counts = #{} :: #{atom() => non_neg_integer()},
    errors = [] :: [{pos_integer(), halley_api_error:error()}],
    errors_total = 0 :: non_neg_integer()
}).

%% Runs an import to its end. `{stopped, Error, Outcome}': the store refused a batch; the outcome is
%% of what was done before.
-spec run(halley_api:request(), format(), apply()) ->
    {ok, outcome()} | {stopped, halley_api_error:error(), outcome()} | closed.
run(Request, Format, Apply) ->
    Import = #import{format = Format, apply = Apply},
    case halley_api_body:fold(fun chunk/2, Import, Request) of
        {done, Read} -> finish(Read);
        {stop, {Error, At}} -> {stopped, Error, outcome(At)};
        {closed, At} -> _ = settle(At, 0), closed
    end.

chunk(Chunk, #import{lines = Lines} = Import) ->
    {Block, Next} = halley_api_lines:feed(Chunk, Lines),
    commit_if_full(add(Block, Import#import{lines = Next})).

finish(#import{lines = Lines} = Import) ->
    Settle = fun({ok, Last}) -> settle(Last, 0); (Stop) -> Stop end,
    case Settle(commit(add(halley_api_lines:finish(Lines), Import))) of
        {ok, End} -> {ok, outcome(End)};
        {stop, {Error, At}} -> {stopped, Error, outcome(At)}
    end.

add(<<>>, Import) ->
    Import;
add(Block, #import{format = Declared, batch = Batch} = Import) ->
    Format = format(Declared, Block),
    {Pairs, Lines, Skipped} = parse(Format, Block),
    #batch{lines = Before, count = Count, blocks = Blocks, skipped = Earlier} = Batch,
    Import#import{format = Format, batch = Batch#batch{
        lines = Before + Lines,
        count = Count + length(Pairs),
        blocks = [Pairs | Blocks],
        skipped = lists:foldl(fun({N, Why}, Acc) -> [{Before + N, Why} | Acc] end, Earlier, Skipped)
    }}.

%% A block of blank lines decides nothing yet.
format(undeclared, Block) ->
    case halley_api_lines:first(Block) of
        none -> undeclared;
        ${ -> ndjson;
        _ -> edge_list
    end;
format(Declared, _) ->
    Declared.

parse({lines, Parse}, Block) -> Parse(Block);
parse(ndjson, Block) -> halley_api_follow_lines:parse(Block);
parse(_, Block) -> halley_api_edge_list:parse(Block).

commit_if_full(#import{batch = #batch{lines = Lines}} = Import) when Lines < ?FOLLOW_BATCH_LINES ->
    {ok, Import};
commit_if_full(Import) ->
    commit(Import).

%% Waits until one more commit may be in flight, then starts it.
commit(#import{batch = #batch{blocks = Blocks} = Full, commits = InFlight} = Import) ->
    Pairs = lists:append(lists:reverse(Blocks)),
    User = user(Pairs),
    case settle(Import, commits_left(User, InFlight)) of
        {ok, #import{apply = Apply, commits = Commits} = Settled} ->
            Batch = Full#batch{user = User, blocks = []},
            {_, Commit} = spawn_monitor(?MODULE, commit, [Apply, Pairs]),
            Next = #batch{first_line = Batch#batch.first_line + Batch#batch.lines},
            {ok, Settled#import{batch = Next,
                                commits = Commits ++ [{Commit, Batch}]}};
        Stop ->
            Stop
    end.

user([{User, _} | _]) -> binary:copy(User);
user([]) -> none.

%% Bodies come sorted by user: a batch that begins with the user of the one before follows on a
%% batch of that user alone.
commits_left(User, InFlight) ->
    case [Batch || {_, #batch{user = Same} = Batch} <- InFlight, Same =:= User] of
        [] -> ?FOLLOW_COMMITS_MAX - 1;
        _ -> 0
    end.

%% What the process of one batch runs; the result is the reason of its end.
-spec commit(apply(), pairs()) -> no_return().
commit(Apply, Pairs) ->
    exit({result, apply_batch(Apply, Pairs, 0)}).

apply_batch(_, [], _) ->
    {ok, #{errors => []}};
apply_batch(Apply, Pairs, Tries) ->
    case Apply(Pairs) of
        {error, overloaded} when Tries < ?FOLLOW_BATCH_TRIES_MAX ->
            timer:sleep(?FOLLOW_BATCH_RETRY_MS),
            apply_batch(Apply, Pairs, Tries + 1);
        Result ->
            Result
    end.

%% Accounts for the oldest commits until at most `Left' are in flight.
settle(#import{commits = Commits} = Import, Left) when length(Commits) =< Left ->
    {ok, Import};
settle(#import{commits = [{Commit, Batch} | Commits]} = Import, Left) ->
    receive
        {'DOWN', Commit, process, _, {result, {ok, Result}}} ->
            settle(settled(Result, Batch, Import#import{commits = Commits}), Left);
        {'DOWN', Commit, process, _, {result, {error, Reason}}} ->
            {stop, {halley_api_error:reason(Reason), stopped(Batch, Import)}};
        {'DOWN', Commit, process, _, Reason} ->
            {stop, {halley_api_error:reason(Reason), stopped(Batch, Import)}}
    end.

settled(#{errors := Failed} = Result, Batch, #import{counts = Counts} = Import) ->
    Add = fun(_, A, B) -> A + B end,
    Done = maps:filter(fun(_, Value) -> is_integer(Value) end, Result),
    Sums = maps:merge_with(Add, Counts, Done),
    #batch{first_line = First, skipped = Skipped} = Batch,
    Bad = [{First + N, Error} || {N, Error} <- lists:reverse(Skipped), Error =/= blank],
    Refused = refused(Failed, Batch),
    list_errors(lists:merge(Bad, Refused), Import#import{counts = Sums}).

%% Pairs that the store refused, by line: their places, from 0, are those among the lines not
%% skipped.
refused([], _) ->
    [];
refused(Failed, #batch{first_line = First, skipped = Skipped}) ->
    refused(lists:keysort(1, Failed), 0, 0, lists:reverse(Skipped), First).

refused([{Index, Reason} | Rest], At, Line, Skipped, First) ->
    case skip(Index - At, Line, Skipped) of
        {Found, Left} ->
            [{First + Found, halley_api_error:reason(Reason)} |
             refused(Rest, Index + 1, Found + 1, Left, First)]
    end;
refused([], _, _, _, _) ->
    [].

%% The line of the pair that comes after `Pairs' others, from `Line' on.
skip(Pairs, Line, [{Line, _} | Skipped]) -> skip(Pairs, Line + 1, Skipped);
skip(0, Line, Skipped) -> {Line, Skipped};
skip(Pairs, Line, [{Next, _} | _] = Skipped) ->
    Step = min(Pairs, Next - Line),
    skip(Pairs - Step, Line + Step, Skipped);
skip(Pairs, Line, []) -> {Line + Pairs, []}.

list_errors(New, #import{errors = Listed, errors_total = Total} = Import) ->
    Room = max(0, ?FOLLOW_ERRORS_LISTED_MAX - Total),
    Import#import{errors = Listed ++ lists:sublist(New, Room), errors_total = Total + length(New)}.

%% What was done ends before the batch that failed.
stopped(#batch{first_line = First}, Import) ->
    Import#import{batch = #batch{first_line = First}}.

outcome(#import{counts = Counts, errors = Errors, errors_total = Total, batch = Batch}) ->
    #{counts => Counts, errors => Errors, errors_total => Total,
      lines => Batch#batch.first_line + Batch#batch.lines - 1}.
