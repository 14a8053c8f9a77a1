%% The content of a frame of small messages: a list of elements in the external term format, made by
%% one `term_to_iovec' and read by one `binary_to_term'; and which terms are accepted.
%%
%% An element is `[To | Message]' or one of the tuples below. To is a pid of the reader's node or
%% the name of a process there.
%%
%% Reading makes no atoms. It takes no funs, and pids, ports and references of the two nodes alone.
%% An element that breaks this is refused by itself, with a reason; the others of its frame are
%% taken. A frame that is no list of elements is malformed, and so is a compressed one, which could
%% be small and make much. Memory: a byte makes at most 16 (a list of small numbers), so a bound on
%% frames is one on their terms.
-module(teleport_codec).

-export([encode/1, decode/2, check/2]).
-export_type([element/0, refused/0, why/0]).

-type to() :: pid() | atom().
-type element() :: nonempty_improper_list(to(), Message :: term())
    | {call, Alias :: reference(), to(), Request :: term()}
    | {cancel, Alias :: reference()}
    | {reply, Alias :: reference(), {ok, term()} | {exit, term()}}
    | {monitor, reference(), Watcher :: pid(), to()}
    | {demonitor, reference()}
    | {down, reference(), Watcher :: pid(), Reason :: term()}.
%% What can be saved of a refused element: whom to tell.
-type refused() :: {call, reference(), why()} | {reply, reference(), why()}
    | {monitor, reference(), pid(), why()} | {down, reference(), pid(), why()} | {other, why()}.
-type why() :: unknown_atom | a_fun | a_pid_of_another_node | a_reference_of_another_node
    | a_port_of_another_node | no_receiver.

%% Elements, or whatever else is read as a list of terms.
-spec encode([element() | term()]) -> [binary()].
encode(Elements) -> term_to_iovec(Elements).

%% Elements in order, the refused among them.
-spec decode(binary(), Peer :: node()) ->
    {ok, [element() | {refused, refused()} | term()]} | {error, malformed}.
decode(<<131, Tag, _/binary>> = Frame, Peer) when Tag =/= 80 ->
    try binary_to_term(Frame, [safe, used]) of
        {Elements, Used} when Used =:= byte_size(Frame), is_list(Elements) ->
            judge(Elements, Peer, []);
        _ ->
            {error, malformed}
    catch
        error:badarg -> one_by_one(Frame, Peer)
    end;
decode(_, _) ->
    {error, malformed}.

judge([{refused, _} | _], _, _) ->
    {error, malformed};
judge([Element | Rest], Peer, Judged) ->
    case check(Element, Peer) of
        ok -> judge(Rest, Peer, [Element | Judged]);
        Why -> judge(Rest, Peer, [{refused, refused(Element, Why)} | Judged])
    end;
judge([], _, Judged) ->
    {ok, lists:reverse(Judged)};
judge(_, _, _) ->
    {error, malformed}.

refused({What, Ref, _, _}, Why) when What =:= call, is_reference(Ref) -> {call, Ref, Why};
refused({reply, Ref, _}, Why) when is_reference(Ref) -> {reply, Ref, Why};
refused({What, Ref, Watcher, _}, Why)
  when is_reference(Ref), is_pid(Watcher), (What =:= monitor orelse What =:= down) ->
    {What, Ref, Watcher, Why};
refused(_, Why) -> {other, Why}.

%% Either an element names an atom that isn't here, or the frame is malformed: the elements are cut
%% apart without reading them, and each is read alone.
one_by_one(<<131, Term/binary>>, Peer) ->
    case teleport_etf:elements(Term) of
        {ok, Parts, <<>>} -> judge_parts(Parts, Peer, []);
        _ -> {error, malformed}
    end.

judge_parts([Part | Rest], Peer, Judged) ->
    case read(Part) of
        {ok, {refused, _}} ->
            {error, malformed};
        {ok, Element} ->
            case check(Element, Peer) of
                ok -> judge_parts(Rest, Peer, [Element | Judged]);
                Why -> judge_parts(Rest, Peer, [{refused, refused(Element, Why)} | Judged])
            end;
        error ->
            judge_parts(Rest, Peer, [{refused, saved(Part, Peer)} | Judged])
    end;
judge_parts([], _, Judged) ->
    {ok, lists:reverse(Judged)}.

read(Part) ->
    try {ok, binary_to_term(<<131, Part/binary>>, [safe])} catch error:badarg -> error end.

saved(Part, Peer) ->
    case teleport_etf:elements(Part) of
        {ok, [_ | _] = Parts, <<>>} ->
            Read = [case read(P) of {ok, T} -> T; error -> {} end || P <- Parts],
            Known = [case check(T, Peer) of ok -> T; _ -> {} end || T <- Read],
            refused(list_to_tuple(Known), unknown_atom);
        _ ->
            {other, unknown_atom}
    end.

%% Whether a term from this peer is taken.
-spec check(term(), Peer :: node()) -> ok | why().
check(T, _) when is_bitstring(T); is_number(T); is_atom(T); T =:= [] -> ok;
check([Head | Tail], Peer) ->
    case check(Head, Peer) of
        ok -> check(Tail, Peer);
        Why -> Why
    end;
check(T, Peer) when is_tuple(T) -> check_tuple(T, tuple_size(T), Peer);
check(T, Peer) when is_map(T) -> check_map(maps:next(maps:iterator(T)), Peer);
check(T, Peer) when is_pid(T) -> check_node(node(T), Peer, a_pid_of_another_node);
check(T, Peer) when is_reference(T) -> check_node(node(T), Peer, a_reference_of_another_node);
check(T, Peer) when is_port(T) -> check_node(node(T), Peer, a_port_of_another_node);
check(T, _) when is_function(T) -> a_fun.

check_tuple(_, 0, _) -> ok;
check_tuple(T, N, Peer) ->
    case check(element(N, T), Peer) of
        ok -> check_tuple(T, N - 1, Peer);
        Why -> Why
    end.

check_map(none, _) -> ok;
check_map({Key, Value, Iterator}, Peer) ->
    case check(Key, Peer) of
        ok ->
            case check(Value, Peer) of
                ok -> check_map(maps:next(Iterator), Peer);
                Why -> Why
            end;
        Why -> Why
    end.

check_node(Node, _, _) when Node =:= node() -> ok;
check_node(Peer, Peer, _) -> ok;
check_node(_, _, Why) -> Why.
