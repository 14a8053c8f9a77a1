%% The reading end of one lane: takes frames of small messages and delivers their elements in order.
%%
%% Delivering is sending to a local process, so the reader never waits. It monitors called and
%% watched processes itself, since the next message may end that process; their 'DOWN's go to the
%% link's teleport_watch. A server replies to a lane's writer. An element that is refused is
%% counted, and reported to its sender. How many elements were delivered stands in `seen', for the
%% peer and for large elements that wait for those before them.
-module(teleport_reader).

-export([start_link/1, go/2, will_rest/1, rest/2, deliver/2]).
-export([init/2]).
-export_type([args/0]).

-include("teleport.hrl").

-type args() :: #{node := node(), number := pos_integer(), seen := atomics:atomics_ref(),
                  stats := atomics:atomics_ref(), watch := pid(), calls := teleport_calls:calls(),
                  reply_to := tuple(), writers := tuple(), bytes_max := pos_integer(),
                  receivers := all | [atom()]}.

%% How a call is watched: `own' if the calling process takes 'DOWN's.
-define(OWN(Args), maps:get(own, Args, false)).

%% Frames that may wait in the mailbox.
-define(FRAMES, 10).

-spec start_link(args()) -> pid().
start_link(Args) ->
    spawn_opt(?MODULE, init, [self(), Args], [link, {min_bin_vheap_size, 131072},
                                              {message_queue_data, off_heap}]).

%% The socket is its own by now.
-spec go(pid(), teleport_socket:socket()) -> ok.
go(Reader, Socket) ->
    Reader ! {go, Socket},
    ok.

%% The peer will close the connection, which has nothing more.
-spec will_rest(pid()) -> ok.
will_rest(Reader) ->
    Reader ! will_rest,
    ok.

%% All that came was read: it closes the connection. It stays while it watches somebody. A reader of
%% large elements watches nobody.
-spec rest(lane | large, pid()) -> ok.
rest(lane, Reader) ->
    Reader ! rest,
    ok;
rest(large, Reader) ->
    true = unlink(Reader),
    MRef = erlang:monitor(process, Reader),
    true = exit(Reader, kill),
    receive {'DOWN', MRef, process, Reader, _} -> ok end,
    receive {'EXIT', Reader, _} -> ok after 0 -> ok end.

-spec init(pid(), args()) -> no_return().
init(Link, Args) ->
    receive
        {go, Socket} -> activate(Socket, Args#{link => Link, own => true})
    end.

activate(Socket, Args) ->
    case teleport_socket:activate(Socket, ?FRAMES) of
        ok -> loop(Socket, Args);
        {error, _} when is_map_key(will_rest, Args) -> watch_only(Args);
        {error, Reason} -> exit({read, Reason})
    end.

loop(Socket, #{watch := Watch} = Args) ->
    receive
        {'DOWN', _, process, _, _} = Down ->
            Watch ! Down,
            loop(Socket, Args);
        {demonitor, MRef} ->
            true = erlang:demonitor(MRef, [flush]),
            loop(Socket, Args);
        will_rest ->
            loop(Socket, Args#{will_rest => true});
        rest ->
            ok = teleport_socket:abort(Socket),
            watch_only(Args);
        Message ->
            case teleport_socket:message(Message, Socket) of
                {frame, Frame} -> frame(Frame, Args), loop(Socket, Args);
                passive -> activate(Socket, Args);
                {ended, _} when is_map_key(will_rest, Args) -> watch_only(Args);
                {ended, Reason} -> exit({read, Reason});
                _ -> loop(Socket, Args)
            end
    end.

%% Without its connection it still watches for the peer who it watched before.
-spec watch_only(map()) -> no_return().
watch_only(Args) ->
    case process_info(self(), monitors) of
        {monitors, []} -> exit(normal);
        {monitors, Monitors} -> watch_only(length(Monitors), Args)
    end.

%% None of so many goes without a message, so that many come before it's worth to look again.
-spec watch_only(non_neg_integer(), map()) -> no_return().
watch_only(0, Args) ->
    watch_only(Args);
watch_only(Left, #{watch := Watch} = Args) ->
    receive
        {'DOWN', _, process, _, _} = Down ->
            Watch ! Down,
            watch_only(Left - 1, Args);
        {demonitor, MRef} ->
            true = erlang:demonitor(MRef, [flush]),
            watch_only(Left - 1, Args);
        _ ->
            watch_only(Left, Args)
    end.

frame(Frame, #{node := Peer, number := Number, seen := Seen, stats := Stats} = Args) ->
    case teleport_codec:decode(Frame, Peer) of
        {ok, Elements} ->
            Count = deliver_all(Elements, Args, 0),
            ok = atomics:add(Seen, Number, Count),
            ok = atomics:add(Stats, ?RECEIVED, Count);
        {error, Reason} ->
            exit(Reason)
    end.

deliver_all([Element | Rest], Args, Count) ->
    ok = deliver(Element, Args),
    deliver_all(Rest, Args, Count + 1);
deliver_all([], _, Count) ->
    Count.

%% Elements have passed teleport_codec:check/2, so references and pids are of one of both nodes.
-spec deliver(teleport_codec:element() | {refused, teleport_codec:refused()}, map()) -> ok.
deliver(Element, #{receivers := all} = Args) -> take(Element, Args);
deliver(Element, #{receivers := Names} = Args) -> take(allowed(Element, Names), Args).

%% What isn't for one of these is refused, as what can't be read is.
allowed([To | _] = Element, Names) -> allowed(To, Names, Element, {other, no_receiver});
allowed({call, Alias, To, _} = Element, Names) when is_reference(Alias) ->
    allowed(To, Names, Element, {call, Alias, no_receiver});
allowed({monitor, Ref, Watcher, To} = Element, Names) when is_reference(Ref), is_pid(Watcher) ->
    allowed(To, Names, Element, {monitor, Ref, Watcher, no_receiver});
allowed(Element, _) -> Element.

allowed(To, Names, Element, Refused) ->
    case lists:member(To, Names) of
        true -> Element;
        false -> {refused, Refused}
    end.

take([To | Message], _) when is_pid(To), node(To) =:= node() ->
    To ! Message,
    ok;
take([To | Message], _) when is_atom(To) ->
    case whereis(To) of
        undefined -> ok;
        Process -> Process ! Message, ok
    end;
take({reply, Alias, {What, _} = Result}, _)
  when is_reference(Alias), node(Alias) =:= node(), (What =:= ok orelse What =:= exit) ->
    Alias ! {Alias, Result},
    ok;
take({call, Alias, To, Request}, #{node := Peer, watch := Watch, reply_to := ReplyTo} = Args)
  when is_reference(Alias), node(Alias) =:= Peer ->
    case local(To) of
        undefined ->
            answer({reply, Alias, {exit, noproc}}, Args);
        Process ->
            MRef = begin_call(Alias, Process, Args),
            Tag = [[alias | teleport_post:lane(Process, ReplyTo)] | MRef],
            Process ! {'$gen_call', {Watch, Tag}, Request},
            ok
    end;
take({cancel, Alias}, #{calls := Calls}) when is_reference(Alias) ->
    teleport_calls:cancelled(Calls, Alias);
take({monitor, Ref, Watcher, To}, #{node := Peer, watch := Watch, own := true} = Args)
  when is_reference(Ref), is_pid(Watcher), node(Watcher) =:= Peer ->
    case local(To) of
        undefined ->
            answer({down, Ref, Watcher, noproc}, Args);
        Process ->
            MRef = erlang:monitor(process, Process),
            teleport_watch:monitor(Watch, Ref, Watcher, MRef)
    end;
take({demonitor, Ref}, #{watch := Watch}) when is_reference(Ref) ->
    teleport_watch:demonitor(Watch, Ref);
take({down, Ref, Watcher, Reason}, _) when is_reference(Ref), is_pid(Watcher) ->
    teleport_monitors:down(Ref, Watcher, Reason);
take({refused, Refused}, #{stats := Stats} = Args) ->
    ok = atomics:add(Stats, ?REFUSED, 1),
    refused(Refused, Args);
take(_, _) ->
    exit(malformed).

begin_call(Alias, Process, #{calls := Calls, watch := Watch} = Args) ->
    case ?OWN(Args) of
        true ->
            MRef = erlang:monitor(process, Process),
            ok = teleport_calls:begun(Calls, MRef, Alias, Process, self()),
            MRef;
        false ->
            teleport_watch:call_apart(Watch, Calls, Alias, Process)
    end.

answer(Element, #{writers := Writers}) ->
    teleport_writer:answer(teleport_post:lane(self(), Writers), self(), Element).

local(To) when is_pid(To), node(To) =:= node() -> To;
local(To) when is_atom(To) ->
    case whereis(To) of
        Port when is_port(Port) -> undefined;
        Found -> Found
    end;
local(_) -> exit(malformed).

refused({call, Alias, Why}, Args) ->
    answer({reply, Alias, {exit, {refused, Why}}}, Args);
refused({reply, Alias, Why}, Args) when node(Alias) =:= node() ->
    take({reply, Alias, {exit, {refused, Why}}}, Args);
refused({monitor, Ref, Watcher, Why}, Args) ->
    answer({down, Ref, Watcher, {refused, Why}}, Args);
refused({down, Ref, Watcher, Why}, _) ->
    teleport_monitors:down(Ref, Watcher, {refused, Why});
refused(_, _) ->
    ok.
