%% Forgotten users: events about them, or for them alone, from before that are shown to no client,
%% although the log has it until retention takes it.
%%
%% In the log such a user is a record like that of a follow: the user follows itself, from there on
%% (`halley_history_record'). Nothing else writes one, as that follow is no record, and a build that
%% doesn't know it reads what it says. It is on disk before it counts, survives restarts and
%% backups, and leaves with its segment, after all that it hides: then the last trace of the user is
%% gone, and the log says so.
%%
%% In memory it is a row of ETS, written by the log's process and at recovery, and one word: the
%% newest such record. Without forgotten users, a reader pays for one look at that.
-module(halley_history_forgotten).

-export([new/0, clear/0, met/3, is_gone/2, seq/1, newest/0, drop_below/1, count/0]).

-include_lib("kernel/include/logger.hrl").

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    ok.

%% For a log that starts.
-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    halley_history_atomics:put(forgotten, 0).

%% A follow was written, or found on disk.
-spec met(User :: binary(), Subject :: binary(), halley_history:seq()) -> ok.
met(User, User, Seq) ->
    true = ets:insert(?MODULE, {User, Seq}),
    halley_history_atomics:put(forgotten, max(Seq, halley_history_atomics:get(forgotten)));
met(_, _, _) ->
    ok.

%% Whether what has this seq and is about this subject, or for this user alone, is hidden.
-spec is_gone(halley_history:seq(), halley_history:about()) -> boolean().
is_gone(Seq, About) ->
    Seq =< halley_history_atomics:get(forgotten) andalso
        Seq =< seq(name(About)).

name({_, _, Name}) -> Name;
name(Subject) -> Subject.

%% Up to where all about a user is hidden; 0 if it wasn't forgotten.
-spec seq(User :: binary()) -> halley_history:seq().
seq(User) ->
    case ets:lookup(?MODULE, User) of
        [{_, Seq}] -> Seq;
        [] -> 0
    end.

%% The last such record: what was read before is as it was while this is the same.
-spec newest() -> halley_history:seq().
newest() -> halley_history_atomics:get(forgotten).

%% Retention has taken all up to this seq.
-spec drop_below(Floor :: halley_history:seq()) -> ok.
drop_below(Floor) ->
    case ets:select_delete(?MODULE, [{{'_', '$1'}, [{'=<', '$1', Floor}], [true]}]) of
        0 -> ok;
        %% Their ids would be a trace.
        Users -> ?LOG_NOTICE("history: the last trace of ~b forgotten user~ts has left it",
                             [Users, [$s || Users > 1]])
    end.

%% How many have traces left.
-spec count() -> non_neg_integer().
count() -> ets:info(?MODULE, size).
