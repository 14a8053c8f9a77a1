%% Ends the subscriptions that a user's sessions have to a subject, and what they are told of its
%% presence, as a server wants it (http.md 21.9).
%%
%% They end here at once, so nothing that is published afterwards finds them. The links are told, by
%% `{subscriptions_ended, Slot, Conn, Subjects}': the edge forgets them, too, and tells the client.
%% A session that is held by a link is found among the subscriptions of that link.
%%
%% What the session's token allows stays allowed: its client may subscribe anew.
-module(halley_subscriptions_end).

-export([of_user/2]).

%% Gives how many there were.
-spec of_user(User :: halley_id:id(), Subject :: halley_id:id()) -> non_neg_integer().
of_user(User, Subject) ->
    case halley_ids:lookup(User) of
        undefined ->
            0;
        Number ->
            Meant = [Subject, halley_presence_notes:key(Subject)],
            Ended = halley_subscriptions:drop(Number, sessions(Number), Meant),
            lists:foreach(fun tell_link/1, Ended),
            lists:sum([length(Subjects) || {_, _, Subjects} <- Ended])
    end.

%% One that a link moves to the directory meanwhile is in both.
sessions(Number) ->
    Held = [{Slot, Conn} || {Slot, _} <- halley_directory_leaving:held(Number),
                            Conn <- halley_subscriptions:of_user(Slot, Number)],
    lists:usort(Held ++ [{Slot, Conn}
                         || {link, Slot, Conn} <- halley_directory:sessions(Number)]).

tell_link({Slot, Conn, Subjects}) ->
    case halley_links:info(Slot) of
        #{link := Link} -> Link ! {subscriptions_ended, Slot, Conn, Subjects};
        _ -> gone
    end.
