%% How many are in subjects that are too large to name their users.
%%
%% A million followers take some tenths of a second to look up. So one process counts, one subject
%% at a time, at a low priority, and its result is the answer for ?FRESH_MS and for ?SHARE times as
%% long as it took: however many requests there are, it uses a small share of one processor.
%%
%% It remembers ?KEPT_MAX subjects, and nothing without requests.
-module(halley_presence_counter).
-behaviour(gen_server).

-export([start_link/0, count/2]).
-export([init/1, handle_call/3, handle_cast/2]).

-define(FRESH_MS, 1000).
-define(SHARE, 20).
-define(KEPT_MAX, 1000).

-type counted() :: {Count :: non_neg_integer(), Until :: integer()}.

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% `Count' is called where no count is fresh; it is the same for all who ask.
-spec count(halley_id:id(), Count :: fun((halley_id:id()) -> non_neg_integer())) ->
    non_neg_integer().
count(Subject, Count) ->
    gen_server:call(?MODULE, {count, Subject, Count}, infinity).

-spec init([]) -> {ok, #{halley_id:id() => counted()}}.
init([]) ->
    _ = process_flag(priority, low),
    {ok, #{}}.

-spec handle_call(tuple(), gen_server:from(), Counts) -> {reply, term(), Counts}
    when Counts :: #{halley_id:id() => counted()}.
handle_call({count, Subject, Fun}, _, Counts) ->
    Begin = erlang:monotonic_time(millisecond),
    case Counts of
        #{Subject := {Count, Until}} when Until > Begin ->
            {reply, Count, Counts};
        #{} ->
            Count = Fun(Subject),
            End = erlang:monotonic_time(millisecond),
            Until = End + max(?FRESH_MS, ?SHARE * (End - Begin)),
            {reply, Count, (room(End, Counts))#{binary:copy(Subject) => {Count, Until}}, hibernate}
    end.

%% Those that are fresh stay, if there are few.
room(_, Counts) when map_size(Counts) < ?KEPT_MAX -> Counts;
room(Now, Counts) ->
    case maps:filter(fun(_, {_, Until}) -> Until > Now end, Counts) of
        Fresh when map_size(Fresh) < ?KEPT_MAX -> Fresh;
        _ -> #{}
    end.

-spec handle_cast(term(), Counts) -> {noreply, Counts} when Counts :: #{}.
handle_cast(_, Counts) ->
    {noreply, Counts}.
