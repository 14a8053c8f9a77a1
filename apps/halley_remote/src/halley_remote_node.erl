%% Which node the remote Halley is, and calls to what back ends reach there.
-module(halley_remote_node).

-export([put/1, get/0, call/2, send/1, confirm/1, words/0]).

-define(SERVER, halley_backends).

%% The atoms of what Halley says, beside the problems in `halley_remote:explain/1': a node reads no
%% others than it knows.
-spec words() -> [atom()].
words() ->
    [id, user, sessions, subject, subjects, private, at, data, cursor,
     reason, from, to, malformed, other_store, too_old, damaged,
     added, already, removed, absent, errors, following, followers, done,
     halley_remote, batch, event, gap, broken, closed].

-spec put(node()) -> ok.
put(Node) -> persistent_term:put(?MODULE, Node).

%% It raises `not_started' if the application doesn't run.
-spec get() -> node().
get() ->
    case persistent_term:get(?MODULE, none) of
        none -> error(not_started);
        Node -> Node
    end.

%% The answer, or why there is none.
-spec call(Request :: term(), Ms :: pos_integer()) -> term().
call(Request, Ms) ->
    try teleport:call({?SERVER, ?MODULE:get()}, Request, Ms)
    catch
        error:not_started -> {error, not_started};
        exit:{too_large, _} -> {error, too_large};
        exit:{{refused, _}, _} -> {error, bad_request};
        exit:_ -> {error, unavailable}
    end.

%% That a batch of the calling proxy's session was handed over. If nothing can be sent, the caller
%% waits; if the link ends, so does the session, and the next one begins behind what was handed
%% over.
-spec confirm(Session :: pos_integer()) -> ok.
confirm(Id) ->
    _ = teleport:send({?SERVER, ?MODULE:get()}, {acknowledge, Id, self()}),
    ok.

%% Without waiting, if there is a link: without one there is no such login any more.
-spec send(Message :: term()) -> ok.
send(Message) ->
    Node = ?MODULE:get(),
    _ = [teleport:send({?SERVER, Node}, Message, #{full => busy})
         || lists:member(Node, teleport:peers())],
    ok.
