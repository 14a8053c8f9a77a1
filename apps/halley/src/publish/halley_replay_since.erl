%% Which candidates of a replay's pass the user followed when they were published: follows count
%% from when they were made.
%%
%% It goes over the changes of the user's follows from the newest back to the oldest candidate, and
%% over the candidates with it. The first later change of its subject decides about an event. If
%% that is an unfollow, the event was the user's. If it is a follow, it wasn't, unless the event is
%% above the seq from which that follow counts. Without a later change the subject is followed now,
%% since otherwise the event would be no candidate; so it is the user's.
%%
%% Private events have nothing to do with follows, and are always the user's.
%%
%% Invariants: it keeps a change only if a candidate is about its subject, and one for each. So it
%% holds what the pass holds, however often the user followed and unfollowed. It works in slices.
%%
%% A record that can't be read may have been an unfollow. It decides nothing, and is reported.
-module(halley_replay_since).

-export([new/2, work/3]).
-export_type([filter/0]).

-type seq() :: halley_cursor:seq().
-type candidate() :: {seq(), halley_history:about()}.
-record(filter, {user :: halley_id:id(),
                 from = newest :: newest | seq(),
                 %% Below all candidates.
                 floor :: seq(),
                 %% Descending.
                 left :: [candidate()],
                 %% Of those that are decided, ascending.
                 kept = [] :: [candidate()],
                 %% Subjects of the candidates: up to which seq they aren't the user's.
                 since :: #{halley_history:about() => seq()},
                 lacking = false :: boolean()}).               % a change is damaged
-opaque filter() :: #filter{}.

%% Ascending candidates.
-spec new(halley_id:id(), [candidate(), ...]) -> filter().
new(User, [{Lowest, _} | _] = Candidates) ->
    #filter{user = User, floor = Lowest - 1, left = lists:reverse(Candidates),
            since = maps:from_list([{key(About), 0} || {_, About} <- Candidates])}.

%% A subject stands for what is about it and others as well.
key({in, _, Subject}) -> Subject;
key(About) -> About.

%% As far as so many entries of the index go; and how many records were read.
-spec work(filter(), Looks :: pos_integer(), halley_history_reader:reader()) ->
    {more, filter(), Reads :: non_neg_integer(), halley_history_reader:reader()}
    | {done, [candidate()], IsLacking :: boolean(), halley_history_reader:reader()}.
work(#filter{user = User, from = From, floor = Floor} = Filter, Looks, Reader) ->
    {Seqs, Next} = halley_history:changes(User, From, Floor, Looks),
    {Decided, Later} = lists:foldl(fun change/2, {Filter, Reader}, Seqs),
    case Next of
        done -> {done, (decided(0, Decided))#filter.kept, Decided#filter.lacking, Later};
        _ -> {more, Decided#filter{from = Next}, length(Seqs), Later}
    end.

change(Seq, {#filter{user = User} = Filter, Reader}) ->
    case halley_history_reader:read(Seq, Reader) of
        {ok, #{kind := follow, subject := User, id := Subject, from := From}, Next} ->
            {since(Subject, From, decided(Seq, Filter)), Next};
        {ok, #{kind := unfollow, subject := User, id := Subject}, Next} ->
            {since(Subject, 0, decided(Seq, Filter)), Next};
        {damaged, Next} ->
            {Filter#filter{lacking = true}, Next};
        {expired, Next} ->
            {Filter, Next};
        {ok, _, Next} ->
            {Filter, Next}
    end.

since(Subject, From, #filter{since = Since} = Filter) when is_map_key(Subject, Since) ->
    Filter#filter{since = Since#{Subject := From}};
since(_, _, Filter) ->
    Filter.

%% Candidates above a change are behind it: what was met before decides on them.
decided(Seq, #filter{left = [{At, Subject} = Candidate | Left], kept = Kept} = Filter)
  when At > Seq ->
    case map_get(key(Subject), Filter#filter.since) of
        From when At =< From -> decided(Seq, Filter#filter{left = Left});
        _ -> decided(Seq, Filter#filter{left = Left, kept = [Candidate | Kept]})
    end;
decided(_, Filter) ->
    Filter.
