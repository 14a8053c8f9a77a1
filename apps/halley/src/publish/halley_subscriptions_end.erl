%% Subscriptions that end before their sessions do: by a token that doesn't allow them any more, or
%% as a server wants it (http.md 14.7, 21.9).
%%
%% They end in `halley_subscriptions' at once, so nothing that is published afterwards finds them.
%% The caller sees to it that the edge hears of it, which sends the rest to the next brain: the
%% process of a link for its own sessions (`drop/3'), and `of_user/2' for a server, by a message
%% `{subscriptions_ended, Slot, Conn, Subjects}' to the links.
%%
%% A session's state is named ?STATE_NAME among its subscriptions here, as on the link (link.md 18).
-module(halley_subscriptions_end).

-export([of_user/2, said/2, drop/3, view/3]).

-type slot() :: halley_links:slot().
-type conn() :: halley_directory:conn().

-define(TABLE, halley_subscriptions).
-define(CONN_BITS, 48).
%% No id, and no piece of a state.
-define(STATE_NAME, <<2>>).

%% What a user's sessions have of a subject, and what they are told of its presence. Gives how many
%% there were. What the session's token allows stays allowed: its client may subscribe anew.
-spec of_user(User :: halley_id:id(), Subject :: halley_id:id()) -> non_neg_integer().
of_user(User, Subject) ->
    case halley_ids:lookup(User) of
        undefined ->
            0;
        Number ->
            Ended = drop(Number, sessions(Number), [Subject, halley_presence_keys:key(Subject)]),
            lists:foreach(fun tell_link/1, Ended),
            lists:sum([length(Subjects) || {_, _, Subjects} <- Ended])
    end.

%% Those that a link holds are found among the subscriptions of that link. One that it moves to the
%% directory meanwhile is in both.
sessions(Number) ->
    Held = [{Slot, Conn} || {Slot, _} <- halley_directory_leaving:held(Number),
                            Conn <- held(Slot, Number)],
    lists:usort(Held ++ [{Slot, Conn}
                         || {link, Slot, Conn} <- halley_directory:sessions(Number)]).

%% It goes over all subscribed sessions of the slot.
held(Slot, User) ->
    held(ets:next(?TABLE, (Slot bsl ?CONN_BITS) - 1), (Slot + 1) bsl ?CONN_BITS, User).

held(Word, End, User) when is_integer(Word), Word < End ->
    Others = held(ets:next(?TABLE, Word), End, User),
    case halley_subscriptions:user(Word) of
        User -> [Word band ((1 bsl ?CONN_BITS) - 1) | Others];
        _ -> Others
    end;
held(_, _, _) ->
    [].

tell_link({Slot, Conn, Subjects}) ->
    case halley_links:info(Slot) of
        #{link := Link} -> Link ! {subscriptions_ended, Slot, Conn, Subjects};
        _ -> gone
    end.

%% Whose session it is, and what it has.
-spec said(slot(), conn()) -> {halley_subscriptions:user(), [binary()]} | none.
said(Slot, Conn) ->
    case ets:lookup(?TABLE, Slot bsl ?CONN_BITS bor Conn) of
        [{_, User, _, Packed}] ->
            All = [Subject || <<Bytes, Subject:Bytes/binary>> <= Packed],
            {_, Others} = halley_presence_views:split(All),
            case halley_session_states:split(Others) of
                {[], Subjects} -> {User, Subjects};
                {_, Subjects} -> {User, [?STATE_NAME | Subjects]}
            end;
        [] ->
            none
    end.

%% Ends these, of sessions of one user, and gives what has ended.
-spec drop(halley_subscriptions:user(), [{slot(), conn()}], [binary()]) ->
    [{slot(), conn(), Ended :: [binary(), ...]}].
drop(_, [], _) -> [];
drop(_, _, []) -> [];
drop(User, Sessions, Subjects) ->
    gen_server:call(halley_subscriptions, {drop, User, Sessions, Subjects}, infinity).

%% A session that is told of all whom its user follows may see these from now on.
-spec view(halley_subscriptions:user(), {slot(), conn()}, halley_presence_views:view()) -> ok.
view(User, Session, View) ->
    gen_server:call(halley_subscriptions, {view, User, Session, View}, infinity).
