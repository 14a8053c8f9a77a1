%% The sessions of one link: what OPEN and CLOSE do. Held in the link's state; every function that
%% changes it gives it back.
%%
%% Ids become user numbers (`halley_edge_users'); those that get none are refused, and the others
%% open all the same.
%%
%% A session without a cursor is in the directory before its OPENED is sent, so that no event that
%% is published after the client's welcome is missed (protocol/link.md 6.2). One with a cursor is
%% *held* (10.2): it is in the directory only once its replay is nearly done, or at once if it lacks
%% nothing. This process alone puts it there and takes it out, so a CLOSE that came first is never
%% followed by an open.
%%
%% Sessions that live are not known here, only those whose replay goes on: the held ones, and those
%% that have *entered* the directory and still wait for the last of it. `halley_sessions' says which
%% are too many for their user; of those that are held a user has as many as of others, on one link,
%% and once they have entered they count there alone.
-module(halley_edge_sessions).

-export([new/4, subscriptions/4, open/2, synced/1, close/2, enter/2, replay_ended/2]).
-export([wish/2, refuse/3, aside/2, close_user/3]).
-export_type([sessions/0]).

-include("halley_edge.hrl").

-define(RETRY_AFTER_S, 5).
-define(TOO_MANY, <<"too_many_sessions: this user has as many sessions as it may">>).
-define(GONE, <<"unavailable: this user was just being forgotten; try again">>).
-define(GONE_RETRY_AFTER_S, 1).
-define(OPENED_MAX, 16384).          % per frame: OPEN's entries are smaller than OPENED's
%% The slots of a worker's table (2.4).
-define(SESSIONS_MAX, (1 bsl 24)).

-record(sessions, {
    slot :: halley_links:slot(),
    worker :: non_neg_integer(),
    writer :: halley_edge_sender:handle(),
    replays :: halley_edge_replays:handle(),
    %% What comes before OPEN.
    waiting = halley_edge_subscriptions:new() :: halley_edge_subscriptions:waiting(),
    %% Whether all that were there before the link have been said.
    is_synced = false :: boolean(),
    %% How many of its own are in the directory, or are visitors'.
    open = 0 :: non_neg_integer(),
    held = #{} :: #{halley_edge_codec:conn() => {UserNumber :: non_neg_integer(),
                                                 halley_sessions:rule()}},
    %% Which of them a user has.
    held_by = #{} :: #{UserNumber :: non_neg_integer() => [halley_edge_codec:conn(), ...]},
    entered = #{} :: #{halley_edge_codec:conn() => []}
}).
-opaque sessions() :: #sessions{}.

-spec new(halley_links:slot(), Worker :: non_neg_integer(), halley_edge_sender:handle(),
          halley_edge_replays:handle()) -> sessions().
new(Slot, Worker, Writer, Replays) ->
    #sessions{slot = Slot, worker = Worker, writer = Writer, replays = Replays}.

%% OPEN came. OPENED goes out first for those that are held, then for the others.
-spec open([halley_edge_codec:session()], sessions()) ->
    {ok, sessions()} | {broken, halley_edge_codec:problem()}.
open(Said, #sessions{waiting = Announced} = Before) ->
    {Opening, Subjects, NotEntitled, Left} = halley_edge_subscriptions:take(Said, Announced),
    Sessions = Before#sessions{waiting = Left},
    {Here, Behind} = lists:partition(fun({_, _, _, Cursor}) -> Cursor =:= <<>> end, Opening),
    Ids = fun(Of) -> [{Conn, User} || {Conn, _, User, _} <- Of] end,
    {Numbered, Refused} = halley_edge_users:numbers(Ids(Here), Subjects),
    {Held, AlsoRefused} = halley_edge_users:numbers(Ids(Behind), Subjects),
    case fits(Said, Numbered ++ Held, Sessions) of
        {broken, _} = Broken ->
            Broken;
        Sessions ->
            NoRoom = subscribed(Numbered, Held, Subjects, Sessions),
            Full = [halley_edge_subscriptions:refused(Conn, map_get(Conn, Subjects))
                    || Conn <- NoRoom],
            opened(Opening, with_room(Numbered, NoRoom), with_room(Held, NoRoom),
                   NotEntitled ++ Refused ++ AlsoRefused ++ Full, Sessions)
    end.

opened(Opening, Live, Returning, Refused, Sessions) ->
    #sessions{slot = Slot, writer = Writer} = Sessions,
    Polls = maps:from_list([{Conn, again} || {Conn, ?TRANSPORT_POLL, _, _} <- Opening]),
    {Waiting, Next} = hold(Returning, Polls, Sessions, []),
    {ToReplay, Began} = replays(Opening, maps:from_list(Waiting)),
    lists:foreach(fun({Conn, Behind}) ->
        send({replay, Conn, 0, Behind, [], []}, Writer)
    end, Began),
    ok = halley_began:held(Slot, [{Number, Conn, Cursor} || {Conn, Number, _, Cursor} <- ToReplay,
                                                            Number =/= ?NOBODY]),
    in_parts(Waiting, fun(Part) -> send({opened, <<>>, Part}, Writer) end),
    Back = come_back(ToReplay, Opening, Next),
    Written = case Live of [] -> none; _ -> halley_began:written(Slot) end,
    Outcomes = in_sync(Back, fun() ->
        [{Session, enter_one(Session, rule(Conn, Polls), Back)} || {Conn, _} = Session <- Live]
    end),
    Entered = [Session || {Session, ok} <- Outcomes],
    ok = began(Written, Entered, Sessions),
    in_parts(Entered, fun(Part) -> halley_edge_sender:opened(Writer, Part) end),
    NotEntered = [{Conn, Why} || {{Conn, _}, Why} <- Outcomes, Why =/= ok]
        ++ [{Conn, full} || {Conn, _} <- Returning -- Waiting],
    ok = halley_subscriptions:close(Slot, [Conn || {Conn, _} <- NotEntered]),
    lists:foreach(fun(Refusal) -> send(Refusal, Writer) end,
                  Refused ++ [not_entered(Why, Conn) || {Conn, Why} <- NotEntered]),
    {ok, Back#sessions{open = Back#sessions.open + length(Entered)}}.

%% Its OPENED is out. A session whose cursor has the heads lacks nothing: it needs no replay, but
%% for what is drawn until it is in the directory.
come_back([], _, Sessions) ->
    Sessions;
come_back(Held, Opening, #sessions{writer = Writer, replays = Replays} = Sessions) ->
    Users = maps:from_list([{Conn, User} || {Conn, _, User, _} <- Opening]),
    {Current, Behind} = current(Held, Users, halley_history:heads(), [], []),
    Behind =:= [] orelse halley_edge_replays:add(Replays, Behind),
    {In, Next} = to_directory([Conn || {{Conn, _, _, _}, _} <- Current], Sessions),
    Heads = halley_history:heads(),
    Entered = maps:from_keys(In, []),
    There = [One || {{Conn, _, _, _}, _} = One <- Current, is_map_key(Conn, Entered)],
    {Done, Lacking} = lists:partition(fun({_, Vector}) ->
        halley_vector:is_reached(Heads, Vector)
    end, There),
    Lacking =:= []
        orelse halley_edge_replays:add_entered(Replays, [One || {One, _} <- Lacking], Heads),
    lists:foldl(fun({{Conn, _, _, _}, _}, #sessions{entered = Waiting} = S) ->
        ok = halley_metrics:incr(replays),
        ok = halley_edge_sender:last(Writer, Conn, Heads, halley_edge_encoder:no_items()),
        S#sessions{entered = maps:remove(Conn, Waiting)}
    end, Next, Done).

%% Those that have the heads, with their vectors, and the others.
current([], _, _, Current, Behind) ->
    {lists:reverse(Current), lists:reverse(Behind)};
current([{Conn, Number, _, Cursor} = One | Rest], Users, Heads, Current, Behind) ->
    User = case Number of ?NOBODY -> nobody; _ -> map_get(Conn, Users) end,
    case halley_replay_point:stands_at(User, Cursor) of
        {ok, Vector} ->
            case halley_vector:is_reached(Heads, Vector) of
                true -> current(Rest, Users, Heads, [{One, Vector} | Current], Behind);
                false -> current(Rest, Users, Heads, Current, [One | Behind])
            end;
        gap ->
            current(Rest, Users, Heads, Current, [One | Behind])
    end.

in_sync(#sessions{is_synced = true}, Do) -> Do();
in_sync(_, Do) -> halley_hooked_moves:in_sync(Do).

%% What is said in a sync was there before.
began(_, _, #sessions{is_synced = false}) ->
    ok;
began(Written, Entered, #sessions{slot = Slot}) ->
    halley_began:opened(Written, [{Number, {link, Slot, Conn}} || {Conn, Number} <- Entered,
                                                                  Number =/= ?NOBODY]).

%% All that were there before have been said.
-spec synced(sessions()) -> sessions().
synced(#sessions{slot = Slot} = Sessions) ->
    ok = halley_began:synced(Slot),
    Sessions#sessions{is_synced = true}.

%% A session that was to open may not.
-spec refuse(halley_edge_codec:session(), halley_hooked:judgement(), sessions()) -> ok.
refuse({Conn, _, _, _}, {refuse, Status, RetryAfterS, Code, Message},
       #sessions{writer = Writer}) ->
    send({refused, Conn, Status, RetryAfterS, Code, Message}, Writer).

%% What was said of a session that is asked about before it opens.
-spec aside(halley_edge_codec:conn(), sessions()) ->
    {halley_edge_subscriptions:aside(), Bytes :: non_neg_integer(), sessions()}.
aside(Conn, #sessions{waiting = Waiting} = Sessions) ->
    {Said, Bytes, Left} = halley_edge_subscriptions:aside(Conn, Waiting),
    {Said, Bytes, Sessions#sessions{waiting = Left}}.

%% SUBSCRIPTIONS came: what a session that opens next is subscribed to.
-spec subscriptions(halley_edge_codec:conn(), Rights :: binary(), [binary()], sessions()) ->
    sessions() | {broken, halley_edge_codec:problem()}.
subscriptions(Conn, Rights, Subjects, #sessions{waiting = Waiting} = Sessions) ->
    case halley_edge_subscriptions:announced(Conn, Rights, Subjects, Waiting) of
        {broken, _} = Broken -> Broken;
        Announced -> Sessions#sessions{waiting = Announced}
    end.

%% Before the sessions are in the directory: whoever is found by follows is found by subscriptions.
%% Gives those for which there is no room.
subscribed(_, _, Subjects, _) when map_size(Subjects) =:= 0 ->
    [];
subscribed(Live, Held, Subjects, #sessions{slot = Slot}) ->
    halley_subscriptions:open(Slot,
        [{Conn, user(Number), As, map_get(Conn, Subjects)}
         || {As, Sessions} <- [{live, Live}, {held, Held}], {Conn, Number} <- Sessions,
            is_map_key(Conn, Subjects)]).

user(?NOBODY) -> nobody;
user(Number) -> Number.

with_room(Sessions, []) -> Sessions;
with_room(Sessions, NoRoom) -> [S || {Conn, _} = S <- Sessions, not lists:member(Conn, NoRoom)].

%% An edge that lies must not fill the directory. A connection is there once in an OPEN, refused or
%% not; one that lives is known to be open only for the same user, as the directory goes by users.
fits(Opening, Numbered, #sessions{open = Open, held = Held} = Sessions) ->
    case Open + map_size(Held) + length(Numbered) > ?SESSIONS_MAX of
        true ->
            {broken, {<<"2.4">>, <<"more sessions than a worker can have">>}};
        false ->
            Twice = length(lists:ukeysort(1, Opening)) < length(Opening)
                orelse lists:any(fun(Session) -> is_there(Session, Sessions) end, Numbered),
            case Twice of
                true -> {broken, {<<"6.3">>, <<"a session that is open already">>}};
                false -> Sessions
            end
    end.

is_there({Conn, Number}, #sessions{slot = Slot, held = Held, entered = Entered}) ->
    is_map_key(Conn, Held) orelse is_map_key(Conn, Entered) orelse is_open(Number, Slot, Conn).

is_open(?NOBODY, Slot, Conn) ->
    halley_subscriptions:user({Slot, Conn}) =:= nobody;
is_open(Number, Slot, Conn) ->
    lists:member({link, Slot, Conn}, halley_directory:sessions(Number)).

rule(Conn, Polls) ->
    maps:get(Conn, Polls, configured).

%% Gives those that are held now, and of all the others nothing.
hold([], _, Sessions, Waiting) ->
    {lists:reverse(Waiting), Sessions};
hold([{Conn, ?NOBODY} = Session | Rest], Polls, #sessions{held = Held} = Sessions, Waiting) ->
    Next = Sessions#sessions{held = Held#{Conn => {?NOBODY, rule(Conn, Polls)}}},
    hold(Rest, Polls, Next, [Session | Waiting]);
hold([{Conn, Number} = Session | Rest], Polls, Sessions, Waiting) ->
    #sessions{held = Held, held_by = HeldBy} = Sessions,
    Others = maps:get(Number, HeldBy, []),
    Rule = rule(Conn, Polls),
    case halley_sessions:is_full(Number, length(Others), Rule) of
        true ->
            hold(Rest, Polls, Sessions, Waiting);
        false ->
            ok = halley_directory_leaving:hold(Number, Sessions#sessions.slot),
            Next = Sessions#sessions{held = Held#{Conn => {Number, Rule}},
                                     held_by = HeldBy#{Number => [Conn | Others]}},
            hold(Rest, Polls, Next, [Session | Waiting])
    end.

%% Held no longer, if it was.
release(Conn, #sessions{slot = Slot, held = Held, held_by = HeldBy} = Sessions) ->
    case maps:take(Conn, Held) of
        {{?NOBODY, _}, Rest} ->
            Sessions#sessions{held = Rest};
        {{Number, _}, Rest} ->
            ok = halley_directory_leaving:release(Number, Slot),
            Others = case HeldBy of
                #{Number := [Conn]} -> maps:remove(Number, HeldBy);
                #{Number := Conns} -> HeldBy#{Number := lists:delete(Conn, Conns)}
            end,
            Sessions#sessions{held = Rest, held_by = Others};
        error ->
            Sessions
    end.

%% Its replay is over, or there was none.
forget(Conn, #sessions{entered = Entered} = Sessions) ->
    release(Conn, Sessions#sessions{entered = maps:remove(Conn, Entered)}).

%% To be asked for before OPENED goes out: a session begins with its welcome. Gives besides where
%% those begin that wish for the newest (14.7).
replays(Opening, Numbers) ->
    Sessions = [{Conn, Transport, halley_replay_wish:begins(Cursor)}
                || {Conn, Transport, _, Cursor} <- Opening, is_map_key(Conn, Numbers)],
    {[{Conn, maps:get(Conn, Numbers), Transport, binary:copy(Behind)}
      || {Conn, Transport, {_, Behind}} <- Sessions],
     [{Conn, Behind} || {Conn, _, {began, Behind}} <- Sessions]}.

enter_one({_, ?NOBODY}, _, _) ->
    ok;
enter_one({Conn, Number}, Rule, #sessions{slot = Slot}) ->
    case halley_sessions:open(Number, {link, Slot, Conn}, Rule) of
        ok -> halley_groups:changed(Number);
        full -> full;
        gone ->
            ok = halley_metrics:incr(sessions_gone),
            gone
    end.

in_parts([], _) ->
    ok;
in_parts(Opened, Send) ->
    {Now, Later} = lists:split(min(?OPENED_MAX, length(Opened)), Opened),
    ok = Send(Now),
    in_parts(Later, Send).

%% CLOSE came.
-spec close([{halley_edge_codec:conn(), UserNumber :: non_neg_integer(), Reason :: 1..8}],
            sessions()) -> sessions().
close(Closing, #sessions{slot = Slot} = Sessions) ->
    {Closed, Next} = lists:foldl(fun close_one/2, {[], Sessions}, Closing),
    ok = halley_subscriptions:close(Slot, Closed),
    Next.

%% One that isn't this link's, or isn't there, changes nothing (6.8): not even what is remembered of
%% the user.
close_one({Conn, Number, Reason}, {Closed, #sessions{held = Held, open = Open} = Sessions}) ->
    case Held of
        #{Conn := {Number, _}} ->
            {[Conn | Closed], closed(Conn, Number, Reason, Sessions)};
        #{} ->
            case leave(Number, Conn, Sessions) of
                true ->
                    Left = Sessions#sessions{open = Open - 1},
                    {[Conn | Closed], closed(Conn, Number, Reason, Left)};
                false ->
                    {Closed, Sessions}
            end
    end.

leave(?NOBODY, Conn, #sessions{slot = Slot}) ->
    is_open(?NOBODY, Slot, Conn);
leave(Number, Conn, #sessions{slot = Slot}) ->
    case is_open(Number, Slot, Conn) of
        true ->
            ok = halley_directory:close(Number, {link, Slot, Conn}),
            ok = halley_groups:changed(Number),
            true;
        false ->
            false
    end.

closed(Conn, Number, Reason, #sessions{replays = Replays} = Sessions) ->
    ok = ended(Conn, Number, reason(Reason), Sessions),
    #sessions{held = Held, entered = Entered} = Sessions,
    (is_map_key(Conn, Held) orelse is_map_key(Conn, Entered))
        andalso halley_edge_replays:cancel(Replays, Conn),
    forget(Conn, Sessions).

ended(_, ?NOBODY, _, _) ->
    ok;
ended(Conn, Number, Reason, #sessions{worker = Worker}) ->
    halley_closings:record(Number, #{worker => Worker, conn => Conn, reason => Reason,
                                     drawn => halley_history:drawn()}).

%% protocol/link.md 2.8
reason(1) -> closed;
reason(2) -> vanished;
reason(3) -> slow_consumer;
reason(4) -> close_sessions;
reason(5) -> edge_stops;
reason(6) -> broke_protocol;
reason(7) -> poll_answered;
reason(8) -> token_expired.

%% The edge is asked to close a user's sessions. Besides those that are held these are the ones in
%% the directory: some may have entered it since it was looked at for them.
-spec close_user(halley_id:user_number(), Reason :: binary(), sessions()) -> ok.
close_user(Number, Reason, #sessions{slot = Slot, held_by = HeldBy}) ->
    Entered = [Conn || {link, S, Conn} <- halley_directory:sessions(Number), S =:= Slot],
    case maps:get(Number, HeldBy, []) ++ Entered of
        [] -> ok;
        Conns -> halley_links_queue:close_sessions(Slot, Conns, Reason)
    end.

%% Replays that are nearly done: those that are still held go into the directory. One that is too
%% many by now is closed, and its replay with it when it says so.
-spec enter([halley_edge_codec:conn()], sessions()) -> sessions().
enter(Conns, #sessions{replays = Replays} = Sessions) ->
    {In, Next} = to_directory(Conns, Sessions),
    ok = halley_edge_replays:entered(Replays, In, halley_history:heads()),
    Next.

%% Gives those that are there now.
to_directory([], Sessions) ->
    {[], Sessions};
to_directory(Conns, #sessions{slot = Slot, held = Held} = Sessions) ->
    Entering = maps:to_list(maps:with(Conns, Held)),
    Outcomes = [{Conn, enter_one({Conn, Number}, Rule, Sessions)}
                || {Conn, {Number, Rule}} <- Entering],
    lists:foreach(fun({Outcome, Reason}) ->
        Refused = [Conn || {Conn, Its} <- Outcomes, Its =:= Outcome],
        Refused =:= [] orelse halley_links_queue:close_sessions(Slot, Refused, Reason)
    end, [{full, ?TOO_MANY}, {gone, ?GONE}]),
    In = [Conn || {Conn, ok} <- Outcomes],
    ok = halley_subscriptions:enter(Slot, In),
    {In, lists:foldl(fun(Conn, S) ->
        #sessions{open = Open, entered = Entered} = Next = release(Conn, S),
        Next#sessions{open = Open + 1, entered = Entered#{Conn => []}}
    end, Sessions, In)}.

%% Nothing more is replayed to this session. One that never entered the directory, as a poll that
%% was answered with what it missed, is over by that: its CLOSE finds nothing of it any more.
-spec replay_ended(halley_edge_codec:conn(), sessions()) -> sessions().
replay_ended(Conn, #sessions{slot = Slot, held = Held} = Sessions) ->
    _ = [begin
             ok = halley_subscriptions:close(Slot, [Conn]),
             ok = ended(Conn, Number, poll_answered, Sessions)
         end || #{Conn := {Number, _}} <- [Held]],
    forget(Conn, Sessions).

%%% Subscriptions of a session that is there

%% A subject more, or one less, for a session of this user.
-spec wish(halley_edge_requests:wish(), sessions()) -> ok.
wish({add, Conn, User, Subject, Answer}, Sessions) ->
    {Result, _} = subscribe(Conn, User, Subject, Sessions),
    Answer(Result);
wish({add_from, Conn, User, Subject, Answer}, Sessions) ->
    Answer(subscribe(Conn, User, Subject, Sessions));
wish({watch, Conn, User, View, Answer}, Sessions) ->
    Key = halley_presence_keys:key(<<"*">>),
    {Result, _} = subscribe(Conn, User, {Key, View}, Sessions),
    Answer(Result);
wish({remove, Conn, _, Subject, Answer}, Sessions) ->
    Answer(unsubscribe(Conn, Subject, Sessions));
wish({state, Conn, User, Text, Answer}, Sessions) ->
    Answer(state(Conn, User, Text, Sessions)).

subscribe(Conn, User, Subject, #sessions{slot = Slot, held = Held} = Sessions) ->
    case Held of
        #{Conn := {Number, _}} ->
            halley_subscriptions:add(Slot, {Conn, user(Number), held}, Subject);
        #{} ->
            case whose(Conn, User, Sessions) of
                no_session -> {no_session, halley_history:heads()};
                Whose -> halley_subscriptions:add(Slot, {Conn, Whose, live}, Subject)
            end
    end.

%% What the session says of itself; nothing for an empty text.
state(Conn, User, Text, #sessions{slot = Slot, held = Held} = Sessions) ->
    Pieces = case Text of
        <<>> -> [];
        _ -> halley_session_states:pieces(halley_session_states:stamp(), Text)
    end,
    case Held of
        #{Conn := {Number, _}} when Number =/= ?NOBODY ->
            halley_subscriptions:state(Slot, {Conn, Number, held}, Pieces);
        #{} ->
            case whose(Conn, User, Sessions) of
                Whose when is_integer(Whose) ->
                    halley_subscriptions:state(Slot, {Conn, Whose, live}, Pieces);
                _ ->
                    no_session
            end
    end.

whose(Conn, <<>>, #sessions{slot = Slot}) ->
    case is_open(?NOBODY, Slot, Conn) of
        true -> nobody;
        false -> no_session
    end;
whose(Conn, User, #sessions{slot = Slot}) ->
    Number = halley_ids:lookup(User),
    case Number =/= undefined andalso is_open(Number, Slot, Conn) of
        true -> Number;
        false -> no_session
    end.

unsubscribe(Conn, Subject, #sessions{slot = Slot}) ->
    case halley_subscriptions:user({Slot, Conn}) of
        unknown -> absent;
        _ -> halley_subscriptions:remove(Slot, Conn, Subject)
    end.

%%% Refusals

not_entered(full, Conn) ->
    {refused, Conn, 429, ?RETRY_AFTER_S, <<"too_many_sessions">>,
     <<"this user has as many sessions as it may; close one first">>};
%% Its id was given back between the look-up and now: nobody has too many of anything.
not_entered(gone, Conn) ->
    {refused, Conn, 503, ?GONE_RETRY_AFTER_S, <<"unavailable">>,
     <<"this user was just being forgotten, as nobody had used it; try again">>}.

send(Frame, Writer) ->
    halley_edge_sender:send(Writer, [iolist_to_binary(halley_edge_codec:encode(Frame))]).
