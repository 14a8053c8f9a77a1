%% Both ends of a lane's connection with a model of their surroundings: two writers, the control
%% connection's two directions, a dial, and the wait until all was delivered. Every order in which
%% their events can come is gone through, from the beginning until no state is new.
%%
%% In none of them is an event malformed; and wherever nothing is on its way both ends agree, and no
%% writer waits for a connection.
-module(teleport_connection_tests).

-include_lib("eunit/include/eunit.hrl").

%% `d' dialed the link and opens connections, `a' accepted it. Of each: `state', its link's inbox
%% (`link'), its writer's (`inbox'), whether that has a `socket', has something to write (`work'),
%% and wrote since it was asked to rest (`used'). `control': frames to this end. `dialed': a
%% connection that is there, and that this end's link hasn't heard of yet.
-define(END, #{state => none, link => [], inbox => [], socket => none, work => false,
               used => false, control => [], dialed => false}).
%% Its writer is asked again although it, or its link, is late.
-define(ASKED_MAX, 2).

every_order_test_() ->
    {timeout, 300, fun() ->
        {Worlds, Events} = explore([#{d => ?END, a => ?END}], #{}, #{}),
        ?assertEqual([], [World || World <- maps:keys(Worlds), not is_settled(World)]),
        %% What this is about did come.
        ?assertEqual([], [{a, none, {peer, rest}}, {a, open, {peer, rest}},
                          {a, parked, {peer, rest}}, {a, parked, want}, {a, parked, opened},
                          {a, asked, {writer, stays}}, {d, resting, {peer, rests}},
                          {d, resting, {peer, stays}}, {d, resting, want}, {d, closing, want}]
                         -- maps:keys(Events))
    end}.

%% All worlds that can be, and which events came in which states.
explore([], Seen, Events) -> {Seen, Events};
explore([World | Rest], Seen, Events) when is_map_key(World, Seen) -> explore(Rest, Seen, Events);
explore([World | Rest], Seen, Events) ->
    {Nexts, Handled} = lists:unzip([Step() || Step <- steps(World)]),
    explore(Nexts ++ Rest, Seen#{World => true},
            maps:merge(Events, maps:from_keys(lists:append(Handled), true))).

%% Or something is left to do, for others than those who send.
is_settled(#{d := D, a := A} = World) ->
    inner(d, World) ++ inner(a, World) =/= [] orelse
        case {D, A} of
            {#{work := true}, _} -> false;
            {_, #{work := true}} -> false;
            {#{state := {open, _, _}}, #{state := {open, _, _}}} -> true;
            {#{state := none}, #{state := none}} -> true;
            {#{state := none}, #{state := {parked, _}}} -> true;
            _ -> false
        end.

%% --- what can happen next ------------------------------------------------------------------------

steps(World) -> lists:append([inner(End, World) ++ outer(End, World) || End <- [d, a]]).

%% Somebody sends; it is time to ask if what is open is used.
outer(End, World) ->
    #{End := #{work := Work, state := State, inbox := Inbox, link := Link} = This} = World,
    Asked = [rest || rest <- Inbox] ++ [answer || {writer, _} <- Link],
    [fun() -> {World#{End := This#{work := true}}, []} end || not Work]
    ++ [fun() -> {World#{End := This#{inbox := Inbox ++ [rest]}}, []} end
        || End =:= d, name(State) =:= open, length(Asked) < ?ASKED_MAX].

inner(End, World) ->
    #{End := #{link := Link, control := Control, dialed := IsDialed} = This} = World,
    [fun() -> heard(hd(Link), End, World#{End := This#{link := tl(Link)}}) end || Link =/= []]
    ++ [fun() -> handle({seen, 0}, End, World#{End := This#{link := Later}}) end
        || [look | Later] <- [Link]]
    ++ [fun() -> frame(hd(Control), End, World#{End := This#{control := tl(Control)}}) end
        || Control =/= []]
    ++ [fun() -> opened(End, World#{End := This#{dialed := false}}) end || IsDialed]
    ++ [fun() -> {World#{End := Next}, []} end || Next <- writer(This)].

heard(look, End, World) -> handle({seen, 1}, End, World);
heard(Event, End, World) -> handle(Event, End, World).

frame(open, End, World) -> handle(want, End, World);
frame(Frame, End, World) -> handle({peer, Frame}, End, World).

%% As teleport_link does it.
opened(End, World) ->
    {#{End := #{state := opening}} = Next, Before} = handle(opened, End, World),
    {Ready, Behind} = handle({ready, {tcp, socket}, self()}, End, Next),
    {Ready, Before ++ Behind}.

%% The next step of a teleport_writer.
writer(#{socket := none, work := true, link := Link} = This) ->
    [This#{socket := opening, link := Link ++ [want]} | taken(This)];
writer(#{socket := opening, inbox := Inbox} = This) ->
    [This#{socket := open, inbox := Inbox -- [socket]} || lists:member(socket, Inbox)];
writer(#{socket := open, work := true} = This) ->
    [This#{work := false, used := true} | taken(This)];
writer(This) -> taken(This).

taken(#{inbox := []}) -> [];
taken(#{inbox := [socket | Rest]} = This) -> [This#{inbox := Rest, socket := open}];
taken(#{inbox := [rest | Rest], socket := open, used := false, work := false,
        link := Link} = This) ->
    [This#{inbox := Rest, socket := none, link := Link ++ [{writer, {rests, 1}}]}];
taken(#{inbox := [rest | Rest], link := Link} = This) ->
    [This#{inbox := Rest, used := false, link := Link ++ [{writer, stays}]}].

%% --- the machine, and what it asks for -----------------------------------------------------------

handle(Event, End, World) ->
    #{End := #{state := State} = This} = World,
    {Next, Actions} = teleport_connection:handle(Event, State),
    ?assertEqual({End, State, Event, []},
                 {End, State, Event, [Action || malformed = Action <- Actions]}),
    {lists:foldl(fun(Action, Acc) -> act(Action, End, Acc) end,
                 World#{End := This#{state := Next}}, Actions),
     [{End, name(State), kind(Event)}]}.

act(open, d, World) -> dialed(d, dialed(a, World));
act(open, a, World) -> put_in(d, control, open, World);
act(Look, End, World) when Look =:= look; Look =:= look_later -> put_in(End, link, look, World);
act(ask, End, World) -> put_in(End, inbox, rest, World);
act({give, _}, End, World) -> put_in(End, inbox, socket, World);
act({say, What}, d, World) -> put_in(a, control, What, World);
act({say, What}, a, World) -> put_in(d, control, What, World);
act({What, _}, _, World) when What =:= will_rest; What =:= rest -> World.

%% One at a time.
dialed(End, World) ->
    #{End := #{dialed := false} = This} = World,
    World#{End := This#{dialed := true}}.

put_in(End, Where, What, World) ->
    #{End := #{Where := Before} = This} = World,
    World#{End := This#{Where := Before ++ [What]}}.

name(State) when is_atom(State) -> State;
name(State) -> element(1, State).

kind({Who, {What, _}}) when Who =:= peer; Who =:= writer -> {Who, What};
kind({Who, What}) when Who =:= peer; Who =:= writer -> {Who, What};
kind({What, _}) -> What;
kind({What, _, _}) -> What;
kind(Event) -> Event.
