%% Shared by the suites of the link. They wait for conditions, not for a while, and for as long as a
%% slow and busy machine may take.
-module(halley_edge_helper).

-include("halley_edge_wait.hrl").

-export([until/1, next/2, alive/1, settled/1, linked/2, linked_beside/2]).
-export([link_process/0, writer/0, slot/0, slot/1, replays/0, counted/1, field/3]).

-define(POLL_MS, 20).

until(Condition) ->
    until(Condition, now_ms() + ?WAIT_MS).

until(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            now_ms() < Deadline orelse error({never_true, Condition}),
            timer:sleep(?POLL_MS),
            until(Condition, Deadline)
    end.

%% The next frame of its kind; others stay in the mailbox.
next(Edge, Tag) ->
    receive
        {Edge, Frame} when element(1, Frame) =:= Tag -> Frame
    after ?WAIT_MS ->
        error({frame_missing, Tag, process_info(self(), messages)})
    end.

%% All that was sent before has been dealt with, and the link stands.
alive(Edge) ->
    Nonce = erlang:unique_integer([positive]),
    ok = fake_edge:send(Edge, {ping, Nonce}),
    receive
        {Edge, {pong, Nonce}} -> ok
    after ?WAIT_MS ->
        error(link_is_gone)
    end.

%% What these links did to each other has been said by now, too.
settled(Edges) ->
    lists:foreach(fun alive/1, Edges ++ Edges).

%% A fake edge of one worker, with a link that stands.
linked(Dir, Hello) ->
    Edge = fake_edge:start(halley_edge_dial:path(Dir), Hello),
    ok = halley_edge_dialer:connect(Dir, self()),
    receive {link_up, _} -> ok after ?WAIT_MS -> error(not_up) end,
    Edge.

%% Another one, whose link isn't the dialer's: as that of an edge which is being replaced. The
%% link's process comes back as well.
linked_beside(Dir, Hello) ->
    Place = filename:join(Dir, "beside"),
    ok = filelib:ensure_path(Place),
    Path = halley_edge_dial:path(Place),
    Edge = fake_edge:start(Path, Hello),
    {ok, Link} = halley_edge_link_sup:start_link_process(Path),
    receive {up, Link, _} -> ok after ?WAIT_MS -> error(not_up) end,
    {Edge, Link}.

%% The dialer's link.
link_process() ->
    until(fun() -> halley_edge_dialer:link() =/= none end),
    {ok, Link} = halley_edge_dialer:link(),
    Link.

writer() ->
    #{writer := Writer} = about(link_process()),
    Writer.

%% Of the only worker, once it has one.
slot() -> slot(link_process()).

slot(Link) ->
    #{slot := Slot} = about(Link),
    Slot.

%% The process of the only worker's replays.
replays() ->
    [Replays] = maps:keys(element(field(halley_edge_link, state, by_replays),
                                  sys:get_state(link_process(), infinity))),
    Replays.

%% By its process: the registry may not know yet that the last link has ended.
about(Process) ->
    Its = fun() -> [L || #{info := #{link := P}} = L <- halley_links:list(), P =:= Process] end,
    until(fun() -> Its() =/= [] end),
    [Link] = Its(),
    Link.

%% The value of a metric, by its name and labels.
counted(Metric) ->
    Text = binary_to_list(iolist_to_binary(halley_metrics:render())),
    [_, Rest] = string:split(Text, "\n" ++ Metric ++ " "),
    {N, _} = string:to_integer(Rest),
    N.

%% The place of a record's field, as the module's own debug information has it.
field(Module, Record, Field) ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
    [Fields] = [Fields || {attribute, _, record, {Name, Fields}} <- Forms, Name =:= Record],
    [Place] = [Place || {Place, F} <- lists:enumerate(2, Fields), name(F) =:= Field],
    Place.

name({typed_record_field, Field, _}) -> name(Field);
name({record_field, _, {atom, _, Name}}) -> Name;
name({record_field, _, {atom, _, Name}, _}) -> Name.

now_ms() ->
    erlang:monotonic_time(millisecond).
