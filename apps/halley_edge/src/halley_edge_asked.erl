%% Sessions of one worker that want to open, and for which another server's answer comes first
%% (`auth.connect_url', docs/internals/hooks.md). Part of the worker's state; every function that
%% changes it returns it.
%%
%% Nothing waits: who is known already opens at once, the others when their judgement comes. A
%% connection that ends meanwhile waits for its OPENED as any other (protocol/link.md 6.4), so there
%% is nothing to cancel. Visitors have no user, and aren't asked about.
%%
%% Sessions of a sync have been let in before: they open, and the request follows. It doesn't come
%% earlier, as a refusal may be there at once, and closes the sessions that are open then.
-module(halley_edge_asked).

-export([new/0, sift/5, behind/2, judged/2, late/1]).
-export_type([asked/0]).

-type session() :: halley_edge_codec:session().
-type said() :: halley_edge_subscriptions:aside().
-type refused() :: {session(), halley_hooked:judgement()}.
-record(asked, {sessions = #{} :: #{halley_edge_codec:conn() =>
                                        {session(), said(), Bytes :: non_neg_integer(),
                                         SinceMs :: integer()}},
                bytes = 0 :: non_neg_integer()}).
-opaque asked() :: #asked{}.

%% That wait for a judgement, and what was said of them: more than the asker takes.
-define(ASKED_MAX, 8192).
-define(ASKED_BYTES_MAX, 16777216).
%% Longer than a judgement takes: who asks has died.
-define(LATE_MS, 10000).

-spec new() -> asked().
new() -> #asked{}.

%% Those that may open now, and those that may not.
-spec sift(halley_edge_codec:worker(), running | done, [session()],
           halley_edge_sessions:sessions(), asked()) ->
    {[session()], [refused()], halley_edge_sessions:sessions(), asked()} | twice.
sift(Index, Sync, Opening, Sessions, Asked) ->
    case halley_hooked:is_judged() of
        false ->
            {Opening, [], Sessions, Asked};
        true when Sync =:= running ->
            {Opening, [], Sessions, Asked};
        true ->
            sift(Index, Opening, {[], [], Sessions, Asked})
    end.

%% All that may open now are open, or held: those that weren't asked about before are.
-spec behind(running | done, [session()]) -> ok.
behind(done, _) ->
    ok;
behind(running, Opening) ->
    _ = halley_hooked:is_judged() andalso
        [ask(User, {later, binary:copy(User)})
         || User <- lists:usort([User || {_, _, User, _} <- Opening]), User =/= <<>>],
    ok.

ask(User, Tag) -> halley_hooked:ask(binary:copy(User), Tag).

sift(_, [], {Now, Refused, Sessions, Asked}) ->
    {lists:reverse(Now), Refused, Sessions, Asked};
sift(_, [{Conn, _, _, _} | _], {_, _, _, #asked{sessions = Waiting}})
  when is_map_key(Conn, Waiting) ->
    twice;
sift(Index, [{_, _, <<>>, _} = Session | Rest], {Now, Refused, Sessions, Asked}) ->
    sift(Index, Rest, {[Session | Now], Refused, Sessions, Asked});
sift(Index, [{Conn, _, User, _} = Session | Rest], {Now, Refused, Sessions, Asked}) ->
    Judgement = case has_room(Asked) of
        true -> ask(User, {Index, Conn});
        false -> unavailable()
    end,
    sift(Index, Rest, case Judgement of
        allow ->
            {[Session | Now], Refused, Sessions, Asked};
        asked ->
            {Said, Bytes, Left} = halley_edge_sessions:aside(Conn, Sessions),
            {Now, Refused, Left, waits(copied(Session), Said, Bytes, Asked)};
        _ ->
            {_, _, Left} = halley_edge_sessions:aside(Conn, Sessions),
            {Now, [{Session, Judgement} | Refused], Left, Asked}
    end).

has_room(#asked{sessions = Waiting, bytes = Bytes}) ->
    map_size(Waiting) < ?ASKED_MAX andalso Bytes < ?ASKED_BYTES_MAX.

waits({Conn, _, _, _} = Session, Said, Bytes, #asked{sessions = Waiting, bytes = All}) ->
    #asked{sessions = Waiting#{Conn => {Session, Said, Bytes, now_ms()}}, bytes = All + Bytes}.

%% It doesn't keep the frame that it came in.
copied({Conn, Transport, User, Cursor}) ->
    {Conn, Transport, binary:copy(User), binary:copy(Cursor)}.

%% The session that a judgement is about, and what was said of it; `none': its worker has lost it
%% meanwhile.
-spec judged(halley_edge_codec:conn(), asked()) -> {session(), said(), asked()} | none.
judged(Conn, #asked{sessions = Waiting, bytes = All}) ->
    case maps:take(Conn, Waiting) of
        error -> none;
        {{Session, Said, Bytes, _}, Left} ->
            {Session, Said, #asked{sessions = Left, bytes = All - Bytes}}
    end.

%% Those whose judgement doesn't come any more.
-spec late(asked()) -> {[refused()], asked()}.
late(#asked{sessions = Waiting} = Asked) when map_size(Waiting) =:= 0 ->
    {[], Asked};
late(#asked{sessions = Waiting} = Asked) ->
    Before = now_ms() - ?LATE_MS,
    Late = [Session || {Session, _, _, SinceMs} <- maps:values(Waiting), SinceMs < Before],
    {[{Session, unavailable()} || Session <- Late],
     lists:foldl(fun({Conn, _, _, _}, A) -> element(3, judged(Conn, A)) end, Asked, Late)}.

unavailable() ->
    {refuse, 503, 1, <<"connect_unavailable">>,
     <<"whether this user may connect can't be said just now; try again">>}.

now_ms() -> erlang:monotonic_time(millisecond).
