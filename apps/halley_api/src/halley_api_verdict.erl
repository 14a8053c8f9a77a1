%% Whether a user got an event, and why: from what a trace found.
%%
%% Pure. A sentence begins with the answer to "did the user get it?": Yes, No or Not known. It says
%% what is known and not more: that bytes were given to a socket, not that somebody has read them;
%% and nobody remembers where a session that is live now has begun. The session that is furthest
%% decides, because one that has the event is the answer to whether the user got it.
-module(halley_api_verdict).

-export([sentence/1]).

%% `passed': the event is not above what has been sent on the session's link.
-type session() :: #{state := atom(), passed := boolean(), outbox_bytes => non_neg_integer(),
                     dropped => non_neg_integer(), _ => _}.
-type ended() :: #{at := integer(), reason := atom(), _ => _}.

%% `ended' are sessions that ended after the event was published, the latest first.
-spec sentence(#{followed := boolean(), private => boolean(), sessions := [session()],
                 ended := [ended()], _ => _}) -> unicode:chardata().
sentence(#{followed := false, private := true}) ->
    "No: it was published to some users alone, and this user is none of them. It was never meant "
    "for this user.";
sentence(#{followed := false}) ->
    "No: the user did not follow the subject when the event was published, and does not now. It "
    "was never meant for this user.";
sentence(#{sessions := [], ended := []}) ->
    "No, not yet: the user had no session since the event was published. It comes with the cursor "
    "of the next one, within the retention.";
sentence(#{sessions := [], ended := [#{reason := Reason} | _]}) ->
    ["Not known: the user has no session now, and the last one ended (", words(Reason), ") after "
     "the event was published. If the event was not written by then, it comes with that session's "
     "cursor, within the retention."];
sentence(#{sessions := Sessions}) ->
    {_, Sentence} = lists:max([judge(Session) || Session <- Sessions]),
    Sentence.

%% The further, the larger.
judge(#{state := live, passed := true, outbox_bytes := 0, dropped := 0}) ->
    {9, ["Yes: it was written to the connection of a live session, and nothing waits there. ",
         unless_later()]};
judge(#{state := live, passed := true, transport := process}) ->
    {8, ["Yes: it is in the mailbox of the Erlang process that is the session. ", unless_later()]};
judge(#{state := live, passed := true, outbox_bytes := 0}) ->
    {7, "Not known: it was written to the connection of a live session, or it is among the events "
        "that were dropped there because the client was too slow; a gap event told it so."};
judge(#{state := live, passed := true, outbox_bytes := Bytes}) ->
    {6, ["Not known: it was sent to the worker of a live session, and may be among the ",
         integer_to_list(Bytes), " bytes that wait there for a client that reads slowly."]};
judge(#{state := State}) when State =:= opening; State =:= held ->
    {5, "Not known yet: a session has just come back and is sent what it missed. The event is "
        "among that, or comes right after."};
judge(#{state := State}) when State =:= closing; State =:= gone ->
    {3, "Not known: the session is closing. If the event was not written there, it comes with the "
        "cursor of the next one, within the retention."};
judge(#{passed := true}) ->
    {2, "Not known: it was sent to the worker of a session, and that worker does not answer now."};
judge(#{}) ->
    {1, "No, not yet: it waits for the link to the session's worker, which is behind. It comes "
        "from the history when what waits there has drained."}.

unless_later() ->
    "Only a session that was opened after the event, without a cursor from before it, has not got "
    "it.".

words(Reason) ->
    string:replace(atom_to_binary(Reason), "_", " ", all).
