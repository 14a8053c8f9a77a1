%% GET /v1/subjects/S/events?limit=&before=&after= : what was published about a subject before, the
%% newest first, in pages.
%%
%%   {"events":[{"cursor":C,"id":…}…],"gaps":[…],"next":C,"cursor":C}
%%
%% Each event is as its subscribers saw it. `before' and `after' are cursors; `next' of the answer
%% is the `before' of the next page, or null. `cursor' is there without a `before': a stream that is
%% opened with it goes on where the page begins.
%%
%% Users get the same by `/v1/me/subjects/S/events' (`halley_api_me_h'). Each request has its user's
%% name, so that one user doesn't delay another (`halley_past_turns'), and pages are read at a low
%% priority while the link has room for them: events that are published come first.
%%
%% A subject that nothing was published about has no events; it is not an error.
-module(halley_api_past_h).
-behaviour(halley_api).

-export([handle/3, page/3, turn/2, newest/3]).

-include("halley_api_limits.hrl").

%% Between looks whether the link has room.
-define(ROOM_MS, 2).

-spec handle(get, [binary()], halley_api:request()) -> halley_api:response().
handle(get, [Subject], Request) ->
    case halley_api_id:check(Subject, <<"subject">>) of
        {ok, Id} -> page(Id, server, Request);
        {error, Error} -> halley_api_error:response(Error)
    end.

%% For who may read it.
-spec page(halley_id:id(), Who :: server | {user, halley_id:id()}, halley_api:request()) ->
    halley_api:response().
page(Subject, Who, #{query := Query} = Request) ->
    LimitMax = halley_limits:get(past_events_max),
    Default = min(?PAST_LIMIT_DEFAULT, LimitMax),
    case halley_api_reply:limit(Query, Default, LimitMax) of
        {ok, Limit} ->
            ok = turn(Who, Request),
            Before = cursor(<<"before">>, Query),
            After = cursor(<<"after">>, Query),
            answer(halley_past:page(Subject, Before, After, Limit));
        {error, Error} ->
            halley_api_error:response(Error)
    end.

cursor(Name, Query) ->
    case proplists:get_value(Name, Query, <<>>) of
        <<>> -> none;
        Cursor -> Cursor
    end.

%% Waits until a page may be read for somebody.
-spec turn(Who :: term(), halley_api:request() | halley_requests:operation()) -> ok.
turn(Who, #{link := Link, has_room := HasRoom}) ->
    ok = halley_past_turns:take(Link, Who),
    _ = process_flag(priority, low),
    wait_for_room(HasRoom);
turn(_, _) ->
    ok.

wait_for_room(HasRoom) ->
    case HasRoom() of
        true ->
            ok;
        false ->
            receive after ?ROOM_MS -> ok end,
            wait_for_room(HasRoom)
    end.

answer({ok, #{events := Events, gaps := Gaps, kept := Kept, next := Next, cursor := Cursor}}) ->
    halley_api_reply:json(200, ["{\"events\":[", lists:join($,, [event(E) || E <- Events]),
                                "],\"gaps\":[", lists:join($,, [gap(Gap) || Gap <- Gaps]),
                                "],\"next\":", token(Next),
                                [[",\"kept\":", Kept] || Kept =/= none],
                                [[",\"cursor\":", token(Cursor)] || Cursor =/= none], "}\n"]);
answer({error, Reason}) ->
    halley_api_error:response(refused(Reason)).

%% For a session that is subscribed now: the newest of what was before, the oldest first. A
%% subscription stands, whatever becomes of these.
-spec newest({Added :: 0 | 1, Already :: 0 | 1}, halley_id:id(),
             {ok, halley_past:page()} | {error, behind}) -> halley_api_outcome:outcome().
newest({Added, Already}, Subject, Page) ->
    Kept = [Json || {ok, #{json := Json}} <- [halley_history:kept(Subject)]],
    {Events, Gaps} = case Page of
        {ok, #{events := Read, gaps := Unread}} ->
            {lists:reverse(Read), [Gap || #{reason := damaged} = Gap <- Unread]};
        {error, behind} ->
            {[], [#{from => 0, to => halley_clock:wall_ms(), reason => damaged}]}
    end,
    {ok, ["{\"added\":", integer_to_binary(Added), ",\"already\":", integer_to_binary(Already),
          ",\"events\":[", lists:join($,, [event(E) || E <- Events]),
          "],\"gaps\":[", lists:join($,, [gap(Gap) || Gap <- Gaps]), "]",
          [[",\"kept\":", Json] || Json <- Kept], "}"]}.

refused(behind) ->
    {503, <<"history_behind">>,
     "what was published last is still being written; ask again soon"};
refused({bad_cursor, Name, Why}) ->
    Parameter = atom_to_binary(Name),
    {400, <<"bad_", Parameter/binary>>,
     [Parameter, why(Why),
      ": leave it out to begin with the newest event and go on to the oldest"]}.

why(malformed) ->
    " is a cursor, of an event, of a stream, or `next' of a page, and this is none";
why(other_store) ->
    " is a cursor of another data directory, so nothing here is before or after it".

%% As in the streams of JSON: the cursor is the first member.
event({Cursor, <<${, Members/binary>>}) ->
    ["{\"cursor\":", token(Cursor), $,, Members].

gap(#{from := From, to := To, reason := Reason}) ->
    ["{\"from\":", time(From), ",\"to\":", time(To), ",\"reason\":\"", atom_to_binary(Reason),
     "\"}"].

time(0) -> "null";
time(Ms) -> integer_to_binary(Ms).

%% Letters, digits, `-' and `_'.
token(none) -> "null";
token(Cursor) -> [$", Cursor, $"].
