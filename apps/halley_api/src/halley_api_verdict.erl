%% Whether a user got an event, and why: from what a trace found.
%%
%% Pure. A sentence begins with the answer to "did the user get it?": Yes, No or Not known. It
%% claims no more than is known: that bytes were given to a socket, not that a person has read them.
%% Yes needs a session that was there when the event was published, or came with a cursor from
%% before it. No needs that no other session can have got it: all that ended since are known, and
%% the event was not for the user, or each session began too late. All else is Not known.
%%
%% The session that says most decides, because one that has the event is the answer to whether the
%% user got it.
-module(halley_api_verdict).

-export([sentence/1, answer/1]).
-export_type([answer/0]).

-type answer() :: yes | no | not_known.
%% `passed': the event is not above what has been sent on the session's link.
-type session() :: #{state := atom(), began := halley_began:began(), passed := boolean(),
                     outbox_bytes => non_neg_integer(), dropped => non_neg_integer(),
                     conflated => non_neg_integer(), _ => _}.
-type ended() :: #{reason := atom(), _ => _}.
%% As `halley_trace' has them. `ended' are sessions that ended after the event was published, the
%% latest first.
-type found() :: #{meant := followed | follows_just_then | subscribed | no, private := boolean(),
                   sessions := [session()], held := non_neg_integer(), ended := [ended()],
                   unsubscribed := boolean(), is_complete := boolean(), deleted := boolean(),
                   _ => _}.

-spec sentence(found()) -> unicode:chardata().
sentence(Found) ->
    {Answer, Why} = judge(Found),
    [word(Answer), Why].

-spec answer(found()) -> answer().
answer(Found) ->
    case judge(Found) of
        {yes, _} -> yes;
        {No, _} when No =:= no; No =:= no_not_yet -> no;
        _ -> not_known
    end.

word(yes) -> "Yes: ";
word(no) -> "No: ";
word(no_not_yet) -> "No, not yet: ";
word(not_known) -> "Not known: ";
word(not_known_yet) -> "Not known yet: ".

judge(#{meant := no, private := true}) ->
    {no, "it was published to some users alone, and this user is none of them. It was never meant "
         "for this user."};
judge(#{deleted := true}) ->
    {not_known, "the user was deleted after the event was published. What was published before is "
                "hidden from whoever comes by this name now."};
judge(#{meant := no} = Found) ->
    case is_nobody_else(Found) of
        true ->
            {no, "the user did not follow the subject when the event was published, and does not "
                 "now, nor is a session of the user subscribed to it. It was never meant for this "
                 "user."};
        false ->
            {not_known, "the user did not follow the subject. A session of the user that was "
                        "subscribed to it when the event was published, and is not now, may have "
                        "got it."}
    end;
judge(#{meant := follows_just_then}) ->
    {not_known, "the follow was being made when the event was published. What is published in "
                "that moment may count as before the follow."};
judge(#{sessions := Sessions, held := Held} = Found) ->
    Judged = [judge_one(Session) || Session <- Sessions] ++ [held() || Held > 0],
    case Judged of
        [] -> no_session(Found);
        _ ->
            case lists:max(Judged) of
                {0, _, _} -> too_late(Found);
                {_, Answer, Why} -> {Answer, Why}
            end
    end.

%% Whether all sessions that can have had the event are those that were found.
is_nobody_else(#{ended := [], held := 0, unsubscribed := false, is_complete := true}) -> true;
is_nobody_else(_) -> false.

no_session(#{ended := [#{reason := Reason} | _]}) ->
    {not_known, ["the user has no session now, and the last one ended (", words(Reason), ") after "
                 "the event was published. If the event was not written by then, it comes with "
                 "that session's cursor, within the retention."]};
no_session(Found) ->
    case is_nobody_else(Found) of
        true ->
            {no_not_yet, "the user had no session since the event was published. It comes to one "
                         "that begins with a cursor from before the event, within the retention."};
        false ->
            {not_known, ["the user has no session now. ", not_remembered()]}
    end.

%% Each session began behind the event.
too_late(#{ended := [#{reason := Reason} | _]}) ->
    {not_known, [too_late(), " Another one ended (", words(Reason), ") after the event was "
                 "published, and may have got it."]};
too_late(Found) ->
    case is_nobody_else(Found) of
        true -> {no, too_late()};
        false -> {not_known, [too_late(), $\s, not_remembered()]}
    end.

too_late() ->
    "each session that the user has now began after the event was published, without a cursor from "
    "before it, so it has not got it.".

not_remembered() ->
    "Halley does not remember all sessions that ended since the event was published: it was "
    "restarted, lost an edge, or too many have ended.".

held() ->
    {5, not_known_yet, "a session has just come back and is sent what it missed. The event is "
                       "among that if the session's cursor is from before it."}.

%% The further, the larger. First those that can't have it from where they began; then by how far it
%% has come to the others.
judge_one(#{transport := remote}) ->
    {8, not_known, "the user's session is a process of an Erlang back end on another node, which "
                   "is sent what it asks for. Whether it has the event is not known here."};
judge_one(#{began := 'after'}) ->
    {0, no, ""};
judge_one(#{began := unknown}) ->
    {4, not_known, "Halley does not remember whether the user's session was there when the event "
                   "was published: it began before a restart or too long ago, or just at that "
                   "time."};
judge_one(#{began := cursor_after}) ->
    {3, not_known, "the client of the user's session came with a cursor that already has the "
                   "event, so it is not sent again. Whether it had come before is not known."};
judge_one(#{began := newest}) ->
    {3, not_known, "the user's session began after the event was published, with the newest events "
                   "about its subjects. The event may be among them."};
judge_one(#{began := subscribed}) ->
    {3, not_known, "the user does not follow the subject, and the session was subscribed to it "
                   "after the event was published. It may have come with the newest events."};
judge_one(#{transport := process}) ->
    {9, yes, "it was sent to the Erlang process that is the session, which was there when the "
             "event was published."};
judge_one(#{state := State}) when State =:= opening; State =:= held ->
    {6, not_known_yet, "a session has just begun, and is sent what comes first. The event is among "
                       "that, or comes right after."};
judge_one(#{state := State}) when State =:= closing; State =:= gone ->
    {5, not_known, "the session is closing. If the event was not written there, it comes with the "
                   "cursor of the next one, within the retention."};
judge_one(#{state := unknown}) ->
    {5, not_known, "it was for a session whose worker does not answer now."};
judge_one(#{passed := false}) ->
    {5, not_known_yet, "the link to the session's worker is behind. If the event was not sent "
                       "before that, it comes from the history when what waits there has drained."};
judge_one(#{outbox_bytes := Bytes}) when Bytes > 0 ->
    {7, not_known, ["it was sent to the worker of a live session, and may be among the ",
                    integer_to_list(Bytes),
                    " bytes that wait there for a client that reads slowly."]};
judge_one(#{dropped := Dropped, conflated := Conflated}) when Dropped > 0; Conflated > 0 ->
    {7, not_known, "it was written to the connection of a live session, or it is among the events "
                   "that were dropped there, or replaced by newer ones, because the client was too "
                   "slow."};
judge_one(#{transport := poll}) ->
    {5, not_known, "it is for a poll that waits. The poll is answered by it, or was opened just "
                   "then."};
judge_one(#{began := before}) ->
    {9, yes, "it was written to the connection of a live session, which was there when the event "
             "was published, and nothing waits there."};
judge_one(#{began := cursor_before}) ->
    {9, yes, "it was written to the connection of a live session, which came with a cursor from "
             "before the event and was sent what it missed, and nothing waits there."}.

words(Reason) ->
    string:replace(atom_to_binary(Reason), "_", " ", all).
