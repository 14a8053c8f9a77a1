%% The newest events about each of some subjects, for a session that begins with them
%% (protocol/http.md 25): the candidates of a replay's first pass.
%%
%% It reads the chains of one subject after the other from their new end (`halley_past_chains').
%% Bucket and tag of an entry say whether it is about the subject as well as a checksum would, and
%% one word up to where a user was forgotten, so no record is read for that: the replay does. A
%% record that it can't read is one of them, and it tells a gap in its place. Only of what is about
%% other subjects as well the record is read, as one of these may have been forgotten.
%%
%% A subject's count (`halley_history_shown') is of entries, so these are among those that pages
%% show (`halley_past'): one that can't be read is one of them, and so is one that is hidden because
%% another subject of it was forgotten.
%%
%% It works in slices: `work/2' takes some hundred entries at most, and is called again.
%%
%% Invariants: all up to the vector must be in the index. An event about several of the subjects is
%% several candidates, as in any pass (`halley_replay').
-module(halley_replay_newest).

-export([new/3, work/2, left/4]).
-export_type([newest/0]).

%% Entries in one slice, and entries of the index for one subject.
-define(SLICE, 256).
-define(LOOKS_MAX, 65536).

-record(newest, {subjects :: [halley_id:id()], count :: pos_integer(),
                 vector :: halley_cursor:vector(),
                 %% Of the first of the subjects.
                 chains = none :: none | halley_past_chains:chains(),
                 looks = ?LOOKS_MAX :: integer(), left :: non_neg_integer(),
                 %% Of the subject's count.
                 shown = all :: non_neg_integer() | all,
                 found = [] :: [halley_replay_gather:candidate()]}).
-opaque newest() :: #newest{}.

-spec new([halley_id:id()], Count :: pos_integer(), UpTo :: halley_cursor:vector()) -> newest().
new(Subjects, Count, UpTo) ->
    #newest{subjects = Subjects, count = Count, vector = UpTo, left = Count}.

%% `done': the candidates, ascending.
-spec work(newest(), halley_history_reader:reader()) ->
    {more, newest(), halley_history_reader:reader()}
    | {done, [halley_replay_gather:candidate()], halley_history_reader:reader()}.
work(Newest, Reader) -> work(Newest, Reader, ?SLICE).

work(#newest{subjects = [], found = Found}, Reader, _) ->
    {done, lists:usort(Found), Reader};
work(Newest, Reader, Slice) when Slice =< 0 ->
    {more, Newest, Reader};
work(#newest{left = Left, shown = Shown} = Newest, Reader, Slice) when Left =:= 0; Shown =:= 0 ->
    work(next_subject(Newest), Reader, Slice);
work(#newest{subjects = [Subject | _], chains = none, vector = UpTo} = Newest, Reader, Slice) ->
    work(Newest#newest{chains = halley_past_chains:retained(Subject, UpTo),
                       shown = halley_history_shown:count(Subject)}, Reader, Slice);
work(#newest{chains = Chains, looks = Looks, shown = Shown} = Newest, Reader, Slice) ->
    {What, Next, Left} = halley_past_chains:next(Chains, Looks),
    candidate(What, Newest#newest{chains = Next, looks = Left, shown = fewer(Shown)}, Reader,
              Slice).

fewer(all) -> all;
fewer(Shown) -> Shown - 1.

candidate({Seq, Subject}, Newest, Reader, Slice) when is_integer(Seq), is_binary(Subject) ->
    work(one({Seq, Subject}, Newest), Reader, Slice - 1);
candidate({Seq, About}, Newest, Reader, Slice) when is_integer(Seq) ->
    case halley_history_reader:event(Seq, About, Reader) of
        {ok, _, _, Next} -> work(one({Seq, About}, Newest), Next, Slice - 1);
        {damaged, Next} -> work(one({Seq, About}, Newest), Next, Slice - 1);
        {other, Next} -> work(Newest, Next, Slice - 1);
        {{old, _}, Next} -> work(next_subject(Newest), Next, Slice - 1);
        {expired, Next} -> work(next_subject(Newest), Next, Slice - 1)
    end;
%% A stranger's million events hide the rest: it has what was found.
candidate(_, Newest, Reader, Slice) ->
    work(next_subject(Newest), Reader, Slice - 1).

one(Candidate, #newest{found = Found, left = Left} = Newest) ->
    Newest#newest{found = [Candidate | Found], left = Left - 1}.

next_subject(#newest{subjects = [_ | Subjects], count = Count} = Newest) ->
    Newest#newest{subjects = Subjects, chains = none, looks = ?LOOKS_MAX, left = Count,
                  shown = all}.

%% Of the candidates those above what was given and what retention took, and a vector below all of
%% them. The kept values that aren't among them come first, unless something was given.
-spec left([halley_replay_gather:candidate()], Given :: halley_cursor:seq(), [halley_id:id()],
           UpTo :: halley_cursor:vector()) ->
    {[{kept, Body :: binary()} | halley_replay_gather:candidate()],
     Below :: halley_cursor:vector()}.
left(Candidates, Given, Subjects, UpTo) ->
    Passed = max(Given, halley_history:floor()),
    case lists:dropwhile(fun({Seq, _}) -> Seq =< Passed end, Candidates) of
        [{Oldest, _} | _] = Left ->
            Below = list_to_tuple(lists:duplicate(halley_shards:count(), Oldest - 1)),
            {kept(Given, Subjects, Left, UpTo) ++ Left, halley_vector:lowest(Below, UpTo)};
        [] ->
            {kept(Given, Subjects, [], UpTo), UpTo}
    end.

%% The oldest first. One that was published since is above the vector: it comes behind them, as all
%% that is.
kept(0, Subjects, Candidates, UpTo) ->
    Values = [{Seq, {kept, Body}, Subject}
              || Subject <- Subjects,
                 {ok, #{seq := Seq, body := Body}} <- [halley_history:kept(Subject)],
                 Seq =< element(halley_shards:of_subject(Subject), UpTo)],
    [Kept || {Seq, Kept, Subject} <- lists:sort(Values),
             not lists:member({Seq, Subject}, Candidates)];
kept(_, _, _, _) ->
    [].
