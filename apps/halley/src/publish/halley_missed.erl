%% The events that a user missed, for sessions that are processes of this node: the process that
%% calls reads them.
%%
%% A call waits until all that was published before it is on disk, and gives the next events above
%% the cursor, oldest first, each with its own cursor. It holds no state: the cursor is all of it,
%% so a caller may wait, hibernate or die between two calls. A gap stands in its place among the
%% events.
%%
%% A live message to a session is sent before the log has the event, so a session that reads at each
%% message lacks nothing: what the message is about was drawn before the call. It never gets an
%% event that a brain which is killed forgets.
%%
%% It is for few events a call. A replay of very much yields and goes on in the same call, and so
%% does one after a gap: a batch is bounded, the time until it is found is not.
-module(halley_missed).

-export([now/0, read/3]).
-export_type([item/0, options/0]).

%% Of an event the same as in a live message, and its cursor. With `json' its text instead of
%% subject and data: {"id":…,"subject":…,"at":…,"data":…}.
-type item() :: {event, #{id := halley_event:id(), cursor := halley_cursor:token(), atom() => _}}
              | {gap, halley_cursor:gap()}.
-type options() :: #{events_max => pos_integer(), as => data | json}.

%% The log writes within milliseconds; a disk that stands still longer is reported.
-define(WRITE_MS_MAX, 10000).
-define(EVENTS_MAX, 100).

%% The cursor of a session that lacks nothing of what is published from now on.
-spec now() -> halley_cursor:token().
now() ->
    Second = halley_clock:wall_s(),
    halley_cursor:encode(halley_history:store(), Second, halley_history:heads()).

%% `more': the caller should read again at once.
-spec read(halley_id:id(), halley_cursor:token(), options()) ->
    {ok, #{items := [item()], cursor := halley_cursor:token(), more := boolean()}}
    | {error, unavailable}.
read(User, Cursor, Options) ->
    Heads = halley_history:heads(),
    case halley_history:await_as_session(Heads, ?WRITE_MS_MAX) of
        ok ->
            Reader = halley_history_reader:new(),
            {Result, Last} = begun(halley_replay:new(User, Cursor), limits(Options),
                                   maps:get(as, Options, data), Reader),
            ok = halley_history_reader:close(Last),
            {ok, Result};
        timeout ->
            {error, unavailable}
    end.

limits(Options) ->
    #{events_max => maps:get(events_max, Options, ?EVENTS_MAX),
      bytes_max => halley_limits:get(replay_bytes_max)}.

begun({ok, Replay}, Limits, As, Reader) -> next(Replay, [], Limits, As, Reader);
begun({gap, Gap, Replay}, Limits, As, Reader) -> next(Replay, [{gap, Gap}], Limits, As, Reader).

next(Replay, Before, Limits, As, Reader) ->
    Take = fun(Body, Cursor, Items) -> [{event, event(As, Body, Cursor)} | Items] end,
    case halley_replay:next(Replay, halley_history:written(), Limits, Take, Before, Reader) of
        {Items, yield, Next, Later} -> next(Next, Items, Limits, As, Later);
        {Items, {gap, Gap}, Next, Later} ->
            Left = maps:get(events_max, Limits) - (length(Items) - length(Before)),
            behind(Next, [{gap, Gap} | Items], Limits#{events_max := Left}, As, Later);
        {Items, What, Next, Later} ->
            {result(Items, Next, What =:= more), Later}
    end.

behind(Replay, Items, #{events_max := 0}, _, Reader) -> {result(Items, Replay, true), Reader};
behind(Replay, Items, Limits, As, Reader) -> next(Replay, Items, Limits, As, Reader).

result(Items, Replay, More) ->
    #{items => lists:reverse(Items), cursor => halley_replay:cursor(Replay), more => More}.

%% The record is a part of a block of the log: what is kept of it is copied.
event(As, Body, Cursor) ->
    {ok, #{id := Id, at := At} = Record} = halley_history_record:body(Body),
    Event = #{id => binary:copy(Id), cursor => Cursor},
    case As of
        json -> Event#{json => binary:copy(maps:get(json, Record))};
        data -> maps:merge(Event#{at => At, data => halley_event:data(Record)}, about(Record))
    end.

about(#{kind := event, subject := Subject}) -> #{subject => binary:copy(Subject)};
about(#{kind := joint, subjects := Subjects}) -> #{subjects => [binary:copy(S) || S <- Subjects]};
about(#{kind := private}) -> #{private => true}.
