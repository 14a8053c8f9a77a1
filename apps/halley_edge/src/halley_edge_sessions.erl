%% The sessions of one link: what OPEN and CLOSE do. Held in the link's state; every function that
%% changes it gives it back.
%%
%% Ids become user numbers, looked up one by one and interned together. An id that is none is
%% refused with 400, alone; when no number is free, those that need one are refused with 503 and
%% the others open all the same.
%%
%% A session without a cursor is in the directory before its OPENED is sent, so that no event that
%% is published after the client's welcome is missed (protocol/link.md 6.2). One with a cursor is
%% *held* (10.2): it is in the directory only once its replay is nearly done, and this process alone
%% puts it there and takes it out, so a CLOSE that came first is never followed by an open.
%%
%% Sessions that live are not known here, only those whose replay goes on: the held ones, and those
%% that have *entered* the directory and still wait for the last of it. `halley_sessions' says which
%% are too many for their user; of those that are held a user has as many as of others, on one link,
%% and once they have entered they count there alone.
-module(halley_edge_sessions).

-export([new/4, open/2, close/2, enter/2, replay_ended/2]).
-export_type([sessions/0]).

-type opened() :: {halley_edge_codec:conn(), UserNumber :: non_neg_integer()}.

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
    writer :: halley_edge_writer:handle(),
    replays :: halley_edge_replays:handle(),
    %% How many of its own are in the directory.
    open = 0 :: non_neg_integer(),
    held = #{} :: #{halley_edge_codec:conn() => {UserNumber :: non_neg_integer(),
                                                 halley_sessions:rule()}},
    %% How many of them a user has.
    held_by = #{} :: #{UserNumber :: non_neg_integer() => pos_integer()},
    entered = #{} :: #{halley_edge_codec:conn() => []}
}).
-opaque sessions() :: #sessions{}.

-spec new(halley_links:slot(), Worker :: non_neg_integer(), halley_edge_writer:handle(),
          halley_edge_replays:handle()) -> sessions().
new(Slot, Worker, Writer, Replays) ->
    #sessions{slot = Slot, worker = Worker, writer = Writer, replays = Replays}.

%% OPEN came. OPENED goes out first for those that are held, then for the others.
-spec open([halley_edge_codec:session()], sessions()) ->
    {ok, sessions()} | {broken, halley_edge_codec:problem()}.
open(Opening, #sessions{writer = Writer, replays = Replays} = Sessions) ->
    {Here, Behind} = lists:partition(fun({_, _, _, Cursor}) -> Cursor =:= <<>> end, Opening),
    {Live, Refused} = numbers([{Conn, User} || {Conn, _, User, _} <- Here]),
    {Returning, AlsoRefused} = numbers([{Conn, User} || {Conn, _, User, _} <- Behind]),
    Polls = maps:from_list([{Conn, again} || {Conn, ?TRANSPORT_POLL, _, _} <- Opening]),
    case hold(Returning, Polls, fits(Opening, Live ++ Returning, Sessions), []) of
        {broken, _} = Broken ->
            Broken;
        {Waiting, Next} ->
            in_parts(Waiting, fun(Part) -> send({opened, <<>>, Part}, Writer) end),
            Waiting =:= [] orelse
                halley_edge_replays:add(Replays, replays(Behind, maps:from_list(Waiting))),
            Outcomes = [{Session, enter_one(Session, rule(Conn, Polls), Next)}
                        || {Conn, _} = Session <- Live],
            Entered = [Session || {Session, ok} <- Outcomes],
            in_parts(Entered, fun(Part) -> halley_edge_writer:opened(Writer, Part) end),
            NotEntered = [not_entered(Why, Conn) || {{Conn, _}, Why} <- Outcomes, Why =/= ok]
                ++ [not_entered(full, Conn) || {Conn, _} <- Returning -- Waiting],
            lists:foreach(fun(Refusal) -> send(Refusal, Writer) end,
                          Refused ++ AlsoRefused ++ NotEntered),
            {ok, Next#sessions{open = Next#sessions.open + length(Entered)}}
    end.

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

is_open(Number, Slot, Conn) ->
    lists:member({link, Slot, Conn}, halley_directory:sessions(Number)).

rule(Conn, Polls) ->
    maps:get(Conn, Polls, configured).

%% Gives those that are held now, and of all the others nothing.
hold(_, _, {broken, _} = Broken, _) ->
    Broken;
hold([], _, Sessions, Waiting) ->
    {lists:reverse(Waiting), Sessions};
hold([{Conn, Number} = Session | Rest], Polls, Sessions, Waiting) ->
    #sessions{held = Held, held_by = HeldBy} = Sessions,
    Count = maps:get(Number, HeldBy, 0),
    Rule = rule(Conn, Polls),
    case halley_sessions:is_full(Number, Count, Rule) of
        true ->
            hold(Rest, Polls, Sessions, Waiting);
        false ->
            ok = halley_directory_leaving:hold(Number, Sessions#sessions.slot),
            Next = Sessions#sessions{held = Held#{Conn => {Number, Rule}},
                                     held_by = HeldBy#{Number => Count + 1}},
            hold(Rest, Polls, Next, [Session | Waiting])
    end.

%% Held no longer, if it was.
release(Conn, #sessions{slot = Slot, held = Held, held_by = HeldBy} = Sessions) ->
    case maps:take(Conn, Held) of
        {{Number, _}, Rest} ->
            ok = halley_directory_leaving:release(Number, Slot),
            Others = case HeldBy of
                #{Number := 1} -> maps:remove(Number, HeldBy);
                #{Number := N} -> HeldBy#{Number := N - 1}
            end,
            Sessions#sessions{held = Rest, held_by = Others};
        error ->
            Sessions
    end.

%% Its replay is over, or there was none.
forget(Conn, #sessions{entered = Entered} = Sessions) ->
    release(Conn, Sessions#sessions{entered = maps:remove(Conn, Entered)}).

replays(Behind, Numbers) ->
    [{Conn, maps:get(Conn, Numbers), Transport, binary:copy(Cursor)}
     || {Conn, Transport, _, Cursor} <- Behind, is_map_key(Conn, Numbers)].

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
close(Closing, Sessions) ->
    lists:foldl(fun close_one/2, Sessions, Closing).

%% One that isn't this link's, or isn't there, changes nothing (6.8): not even what is remembered of
%% the user.
close_one({Conn, Number, Reason}, #sessions{slot = Slot, held = Held} = Sessions) ->
    case is_open(Number, Slot, Conn) of
        true ->
            ok = halley_directory:close(Number, {link, Slot, Conn}),
            ok = halley_groups:changed(Number),
            #sessions{open = Open} = Sessions,
            closed(Conn, Number, Reason, Sessions#sessions{open = Open - 1});
        false when element(1, map_get(Conn, Held)) =:= Number ->
            closed(Conn, Number, Reason, Sessions);
        false ->
            Sessions
    end.

closed(Conn, Number, Reason, #sessions{worker = Worker, replays = Replays} = Sessions) ->
    ok = halley_closings:record(Number, #{worker => Worker, conn => Conn,
                                          reason => reason(Reason)}),
    #sessions{held = Held, entered = Entered} = Sessions,
    (is_map_key(Conn, Held) orelse is_map_key(Conn, Entered))
        andalso halley_edge_replays:cancel(Replays, Conn),
    forget(Conn, Sessions).

%% protocol/link.md 2.8
reason(1) -> closed;
reason(2) -> vanished;
reason(3) -> slow_consumer;
reason(4) -> close_sessions;
reason(5) -> edge_stops;
reason(6) -> broke_protocol;
reason(7) -> poll_answered;
reason(8) -> token_expired.

%% Replays that are nearly done: those that are still held go into the directory. One that is too
%% many by now is closed, and its replay with it when it says so.
-spec enter([halley_edge_codec:conn()], sessions()) -> sessions().
enter(Conns, #sessions{slot = Slot, held = Held, replays = Replays} = Sessions) ->
    Entering = maps:to_list(maps:with(Conns, Held)),
    Outcomes = [{Conn, enter_one({Conn, Number}, Rule, Sessions)}
                || {Conn, {Number, Rule}} <- Entering],
    lists:foreach(fun({Outcome, Reason}) ->
        Refused = [Conn || {Conn, Its} <- Outcomes, Its =:= Outcome],
        Refused =:= [] orelse halley_links:close_sessions(Slot, Refused, Reason)
    end, [{full, ?TOO_MANY}, {gone, ?GONE}]),
    In = [Conn || {Conn, ok} <- Outcomes],
    ok = halley_edge_replays:entered(Replays, In),
    lists:foldl(fun(Conn, S) ->
        #sessions{open = Open, entered = Entered} = Next = release(Conn, S),
        Next#sessions{open = Open + 1, entered = Entered#{Conn => []}}
    end, Sessions, In).

%% Nothing more is replayed to this session.
-spec replay_ended(halley_edge_codec:conn(), sessions()) -> sessions().
replay_ended(Conn, Sessions) ->
    forget(Conn, Sessions).

%%% Numbers

%% Those that have one now, in order, and the REFUSED frames.
-spec numbers([{halley_edge_codec:conn(), User :: binary()}]) ->
    {[opened()], [halley_edge_codec:frame()]}.
numbers(Opening) ->
    {Known, Unknown, Bad} = sort(Opening, [], [], []),
    {New, Full} = intern(Unknown),
    {lists:reverse(Known, New), Bad ++ Full}.

sort([{Conn, User} | Rest], Known, Unknown, Bad) ->
    case halley_ids:lookup(User) of
        undefined ->
            case halley_id:check(User) of
                ok -> sort(Rest, Known, [{Conn, User} | Unknown], Bad);
                {error, Reason} -> sort(Rest, Known, Unknown, [bad_id(Conn, Reason) | Bad])
            end;
        Number ->
            sort(Rest, [{Conn, Number} | Known], Unknown, Bad)
    end;
sort([], Known, Unknown, Bad) ->
    {Known, lists:reverse(Unknown), Bad}.

intern([]) ->
    {[], []};
intern(Unknown) ->
    {Conns, Users} = lists:unzip(Unknown),
    case halley_ids:intern(Users) of
        {ok, Numbers} -> {lists:zip(Conns, Numbers), []};
        {error, _} -> one_by_one(Unknown, [], [])
    end.

%% Not enough numbers for all is enough for some, or for those that another link interned meanwhile.
one_by_one([], New, Full) ->
    {lists:reverse(New), Full};
one_by_one([{Conn, User} | Rest], New, Full) ->
    case halley_ids:intern([User]) of
        {ok, [Number]} -> one_by_one(Rest, [{Conn, Number} | New], Full);
        {error, _} -> one_by_one(Rest, New, [full(Conn) | Full])
    end.

bad_id(Conn, Reason) ->
    {refused, Conn, 400, 0, <<"bad_user">>, halley_id:explain(Reason)}.

not_entered(full, Conn) ->
    {refused, Conn, 429, ?RETRY_AFTER_S, <<"too_many_sessions">>,
     <<"this user has as many sessions as it may; close one first">>};
%% Its id was given back between the look-up and now: nobody has too many of anything.
not_entered(gone, Conn) ->
    {refused, Conn, 503, ?GONE_RETRY_AFTER_S, <<"unavailable">>,
     <<"this user was just being forgotten, as nobody had used it; try again">>}.

full(Conn) ->
    ok = halley_metrics:incr(users_refused),
    {refused, Conn, 503, ?RETRY_AFTER_S, <<"too_many_users">>,
     <<"the server has no room for another user; raise limits.ids_max">>}.

send(Frame, Writer) ->
    halley_edge_writer:send(Writer, [iolist_to_binary(halley_edge_codec:encode(Frame))]).
