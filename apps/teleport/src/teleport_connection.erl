%% One connection of a lane, from the wish for it to its close: what its link does at each event.
%% Pure.
%%
%% A connection that isn't used is closed, with nothing on its way. Both sides write over it, so
%% both have to agree. From time to time the side that dialled requests the connection from its own
%% writer; a writer that has used it lately keeps it. Then it sends the peer `rest', with how many
%% elements its writer wrote in all. The peer waits until it has delivered those, requests the
%% connection from its own writer, and sends `rests' with that one's count, or `stays'. On `rests'
%% the dialer closes, once it has delivered as many. A writer that wants to write meanwhile requests
%% a connection as ever, and gets a new one after that close, or the old one back.
%%
%% So of a lane one reader delivers at a time, and the new one begins where the old one ended.
-module(teleport_connection).

-export([handle/2, sockets/1]).
-export_type([state/0, event/0, action/0]).

-type socket() :: teleport_socket:socket().
-type wanted() :: boolean().
%% `resting', `closing': the dialer's, after it said `rest' and heard `rests'. `asked', `parked':
%% the other side's, before and after it agreed.
-type state() :: none | opening | {open, socket(), Reader :: pid()}
               | {resting, socket(), pid(), wanted()}
               | {closing, socket(), pid(), Count :: non_neg_integer(), wanted()}
               | {asked, socket(), pid(), Count :: non_neg_integer()} | {parked, pid()}.
%% `want': a writer of one side has something to write. `opened': before its reader is there.
%% `seen': so many elements were delivered.
-type event() :: want | opened | {ready, socket(), pid()} | {seen, non_neg_integer()}
               | {writer, {rests, Count :: non_neg_integer()} | stays}
               | {peer, {rest | rests, Count :: non_neg_integer()} | stays}.
%% `look': at how many were delivered, now or a little later. `ask': the writer, to rest. `give': it
%% the socket. `will_rest', `rest': said to the reader.
-type action() :: open | look | look_later | ask | {give, socket()} | {say, term()}
                | {will_rest, pid()} | {rest, pid()} | malformed.

-spec handle(event(), state()) -> {state(), [action()]}.
handle(want, none) -> {opening, [open]};
handle(want, {resting, Socket, Reader, _}) -> {{resting, Socket, Reader, true}, []};
handle(want, {closing, Socket, Reader, Count, _}) -> {{closing, Socket, Reader, Count, true}, []};
handle(want, {parked, _} = State) -> {State, [open]};
handle(want, State) -> {State, []};
handle(opened, {parked, Reader}) -> {opening, [{rest, Reader}]};
handle(opened, State) when State =:= none; State =:= opening -> {opening, []};
handle(opened, State) -> {State, [malformed]};
handle({ready, Socket, Reader}, opening) -> {{open, Socket, Reader}, [{give, Socket}]};
handle({writer, {rests, Count}}, {open, Socket, Reader}) ->
    {{resting, Socket, Reader, false}, [{say, {rest, Count}}]};
handle({writer, {rests, Count}}, {asked, _, Reader, _}) ->
    %% The reader knows before the peer does.
    {{parked, Reader}, [{will_rest, Reader}, {say, {rests, Count}}]};
handle({writer, stays}, {asked, Socket, Reader, _}) -> {{open, Socket, Reader}, [{say, stays}]};
handle({writer, _}, State) -> {State, []};
handle({peer, {rest, Count}}, {open, Socket, Reader}) -> {{asked, Socket, Reader, Count}, [look]};
%% It was dialed and isn't here yet: who dialed was told before this side's link was.
handle({peer, {rest, _}}, State) when State =:= none; State =:= opening -> {State, [{say, stays}]};
handle({peer, {rest, _}}, {parked, _} = State) -> {State, [{say, stays}]};
handle({peer, {rests, Count}}, {resting, Socket, Reader, Wanted}) ->
    {{closing, Socket, Reader, Count, Wanted}, [look]};
handle({peer, stays}, {resting, Socket, Reader, _}) ->
    {{open, Socket, Reader}, [{give, Socket}]};
handle({peer, _}, State) -> {State, [malformed]};
handle({seen, Seen}, {asked, _, _, Count} = State) when Seen >= Count -> {State, [ask]};
handle({seen, Seen}, {closing, _, Reader, Count, Wanted}) when Seen >= Count ->
    case Wanted of
        true -> {opening, [{rest, Reader}, open]};
        false -> {none, [{rest, Reader}]}
    end;
handle({seen, _}, {asked, _, _, _} = State) -> {State, [look_later]};
handle({seen, _}, {closing, _, _, _, _} = State) -> {State, [look_later]};
handle({seen, _}, State) -> {State, []}.

%% Which socket is open, with its reader.
-spec sockets(state()) -> [{socket(), Reader :: pid()}].
sockets({open, Socket, Reader}) -> [{Socket, Reader}];
sockets({resting, Socket, Reader, _}) -> [{Socket, Reader}];
sockets({closing, Socket, Reader, _, _}) -> [{Socket, Reader}];
sockets({asked, Socket, Reader, _}) -> [{Socket, Reader}];
sockets(_) -> [].
