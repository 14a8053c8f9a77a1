%% Sessions, within the bound of their user: `sessions_per_user_max'.
%%
%% A user that has as many already is refused another (`sessions.over_limit = refuse'), or gets it
%% and loses the oldest (`newest_wins'). The oldest gets a request to close and stays in the
%% directory until it has: events that are published meanwhile are not lost to a client that comes
%% back with its cursor. So a user may have some more for a moment. With ?CLOSING_MAX of these it is
%% refused all the same: an edge that closes nothing must not have as many as it likes.
%%
%% The directory's owner checks one session of a user after the other, so the bound is exact.
-module(halley_sessions).

-export([open/3, login/2, is_full/3, of_user/1, close/3, close_user/2]).
-export([began/0, ended/1, lost/1, hands_on/0, is_handed_on/1]).
-export_type([rule/0]).

%% `again': a session that comes and goes, such as a poll. It pushes nobody out, or two of them
%% would do that to each other for ever; and it has one place more, since the one before it may be
%% on its way out.
-type rule() :: configured | again.

-define(CLOSING_MAX, 64).
-define(HANDS_ON, '$halley_hands_on').
-define(REASON, <<"too_many_sessions: this user's newer sessions took the place of this one">>).

%% A process becomes a session, and may be one.
-spec login(halley_id:user_number(), pid()) -> ok | full | gone.
login(Number, Pid) ->
    halley_began:login({Number, Pid}, fun() ->
        case open(Number, Pid, configured) of
            ok -> halley_groups:changed(Number);
            Refused -> Refused
        end
    end).

%% The calling process, which becomes a session, hands on what it gets to one on another node.
-spec hands_on() -> ok.
hands_on() ->
    _ = put(?HANDS_ON, true),
    ok.

-spec is_handed_on(pid()) -> boolean().
is_handed_on(Pid) ->
    case process_info(Pid, dictionary) of
        {dictionary, Kept} -> lists:keymember(?HANDS_ON, 1, Kept);
        undefined -> false
    end.

%% A brain begins: it doesn't know what sessions were there before it.
-spec began() -> ok.
began() ->
    Drawn = halley_history:drawn(),
    ok = halley_closings:lost(Drawn),
    halley_openings:began_at(Drawn).

%% A session that was a process has ended. Called in the directory's owner.
-spec ended(halley_id:user_number()) -> ok.
ended(Number) ->
    ok = halley_closings:record(Number, #{reason => closed, worker => none, conn => none,
                                          drawn => halley_history:drawn()}),
    halley_groups:ended(Number).

%% A user's session ended with its link, or will be said again by the next one.
-spec lost(halley_id:user_number()) -> ok.
lost(Number) ->
    ok = halley_closings:lost(halley_history:drawn()),
    halley_groups:changed(Number).

%% `gone': the number is nobody's any more, and the user has to be looked up again.
-spec open(halley_id:user_number(), halley_directory:session(), rule()) -> ok | full | gone.
open(Number, Session, Rule) ->
    Max = halley_limits:get(sessions_per_user_max),
    case halley_directory:open(Number, Session, room(Rule, Max)) of
        ok ->
            ok;
        {several, Others} when Rule =:= configured ->
            close_oldest(Number, length(Others) + 1 - Max, Others);
        {several, _} ->
            ok;
        full ->
            refused(),
            full;
        leaving ->
            case halley_ids:keep([Number]) of
                ok -> open(Number, Session, Rule);
                gone -> gone
            end
    end.

%% Whether a session that isn't in the directory yet would find no place there, next to `Waiting'
%% others of its kind.
-spec is_full(halley_id:user_number(), Waiting :: non_neg_integer(), rule()) -> boolean().
is_full(Number, Waiting, Rule) ->
    Max = halley_limits:get(sessions_per_user_max),
    Room = room(Rule, Max),
    IsFull = Waiting >= Max
        orelse Waiting + length(halley_directory:sessions(Number)) >= Room,
    IsFull andalso refused(),
    IsFull.

room(again, Max) ->
    Max + 1;
room(configured, Max) ->
    case application:get_env(halley, sessions_over_limit, newest_wins) of
        refuse -> Max;
        newest_wins -> Max + ?CLOSING_MAX
    end.

refused() ->
    halley_metrics:incr(sessions_refused),
    true.

%% Processes, and connections of links.
-spec of_user(halley_id:id()) -> [halley_directory:session()].
of_user(User) ->
    case halley_ids:lookup(User) of
        undefined -> [];
        Number -> halley_directory:sessions(Number)
    end.

%% Closes all sessions of a user, also those that a link holds because what they missed comes first.
%% Gives how many there were. It waits for no link, so a link's process may call it.
%%
%% Only the link moves a session from those that are held to the directory. So it is told before the
%% directory is read, by `{close_user, Slot, Number, Reason}': the link finds whatever isn't in the
%% directory yet. One that moves meanwhile may be counted twice, and asked twice to close.
-spec close_user(halley_id:id(), Reason :: binary()) -> non_neg_integer().
close_user(User, Reason) ->
    case halley_ids:lookup(User) of
        undefined ->
            0;
        Number ->
            Held = halley_directory_leaving:held(Number),
            lists:foreach(fun({Slot, _}) -> tell_link(Slot, Number, Reason) end, Held),
            Sessions = halley_directory:sessions(Number),
            ok = close(Number, Sessions, Reason),
            length(Sessions) + lists:sum([Count || {_, Count} <- Held])
    end.

tell_link(Slot, Number, Reason) ->
    case halley_links:info(Slot) of
        #{link := Link} -> Link ! {close_user, Slot, Number, Reason};
        _ -> gone
    end.

%% Those that were over already have been asked, and are asked again.
close_oldest(Number, Over, Others) when Over > 0 ->
    halley_metrics:incr(sessions_replaced),
    close(Number, lists:sublist(Others, Over), ?REASON);
close_oldest(_, _, _) ->
    ok.

%% Connections are closed by their edge, which is asked once for all of them; a process is logged
%% out at once and gets `{halley_closed, User}'.
-spec close(halley_id:user_number(), [halley_directory:session()], Reason :: binary()) -> ok.
close(Number, Sessions, Reason) ->
    {Processes, Conns} = lists:partition(fun is_pid/1, Sessions),
    maps:foreach(fun(Slot, OfLink) -> halley_links_queue:close_sessions(Slot, OfLink, Reason) end,
                 maps:groups_from_list(fun({link, Slot, _}) -> Slot end,
                                       fun({link, _, Conn}) -> Conn end, Conns)),
    lists:foreach(fun(Pid) ->
        ok = halley_directory:close(Number, Pid),
        Pid ! {halley_closed, halley_ids:name(Number)}
    end, Processes).
