%% The gaps for a cursor from before a damaged range.
%%
%% A range may have held unfollows as well as events. A user that unfollowed a subject then gets
%% nothing about it any more, not even what was published before and missed. So the gap comes before
%% the first event, and begins with what the cursor lacks. A gap with the times of the range alone
%% would hide older events; one at the range's place would come too late for a client that leaves in
%% the middle.
%%
%% Not here: where the ranges come from (`halley_history_recovery', `halley_history_disk').
-module(halley_history_damage).

-export([gap/4]).

-type vector() :: halley_cursor:vector().
-type seq() :: halley_cursor:seq().

%% One gap over all ranges between two vectors that end above `Told', and up to where they are told
%% then. `SinceMs': what the first vector lacks is no older.
-spec gap(vector(), UpTo :: vector(), Told :: seq(), SinceMs :: non_neg_integer()) ->
    {[halley_cursor:gap()], Told :: seq()}.
gap(From, UpTo, Told, SinceMs) ->
    case [Range || {First, Last, _, _} = Range <- halley_history_index:damaged(), Last > Told,
                   halley_vector:is_crossed(First, Last, From, UpTo)] of
        [] ->
            {[], Told};
        Ranges ->
            {[#{from => lists:min([SinceMs | [FromMs || {_, _, FromMs, _} <- Ranges]]),
                to => lists:max([ToMs || {_, _, _, ToMs} <- Ranges]), reason => damaged}],
             lists:max([Last || {_, Last, _, _} <- Ranges])}
    end.
