%% One request and its answer; or one operation of a WebSocket, which has the same way and comes as
%% terms instead of HTTP (protocol/link.md 20).
%%
%% A small request that is whole, and may change something, is first shown to `prepare/1' of the
%% handler, in the link's own process (docs/internals/publish.md): it answers at once, or gives an
%% event to publish and how to make the answer. A crash becomes a 500 for that request alone. If the
%% handler has no `prepare/1', or it says `later', the request gets a process. For an operation
%% `operate/1' is what `prepare/1' is for a request, and `operate_apart/1' what `handle/1' is.
%%
%% A process per REQUEST runs the handler and dies alone. The link spawns it linked, so it never
%% outlives its link. It parses the target, calls `handle/1' of the module that the environment
%% names (`halley_edge', `handler'; its behaviour is `halley_requests'), and sends the answer from
%% here to the writer. A crash of the handler, or an invalid answer, becomes a 500. Its heap is
%% bounded; if it is killed for that, the link answers for it.
%%
%% A body that isn't whole in REQUEST is read by a fun, chunk by chunk: the link sends {body, Flags,
%% Data}, and the edge gets credit for what the handler has consumed, that is, when it asks for more
%% (protocol/link.md 8.3). In portions of half the window: the edge always has the other half to go
%% on with.
-module(halley_edge_exchange).

-export([prepare/1, asker/1, conn/1, answer/3, error/4, start/2, start_again/4, context/2]).
-export([run/2, run_again/4]).
-export_type([context/0, asker/0]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

-opaque context() :: {Link :: pid(), halley_edge_sender:handle(), Window :: pos_integer()}.
%% Who gets the answer, and in which form.
-opaque asker() :: {request, halley_edge_codec:conn(), Method :: binary()}
                 | {operation, halley_edge_codec:conn(), Number :: non_neg_integer(),
                    halley_requests:what()}.

%% What a handler may keep on its heap; binaries above 64 bytes are not on it. 64 MiB: some hundred
%% times the largest JSON that fits a frame, so reaching it is a fault.
-define(HEAP_WORDS_MAX, ((64 bsl 20) div 8)).
%% Room for a small request and its answer without a collection: one twentieth less CPU of the
%% brain at 4,000 requests a second than with the default.
-define(HEAP_WORDS_MIN, 1598).
-define(BODY, {?MODULE, body}).
%% What a link's process takes time for: parsing it takes less than a read of the socket.
-define(SMALL_BYTES_MAX, 8192).

-type prepared() :: {answer, Frames :: [binary()]} | halley_requests:wish()
                  | halley_requests:wish(halley_requests:outcome()).

%% What every exchange of a link shares. To be made by the link.
-spec context(halley_edge_sender:handle(), RequestWindow :: pos_integer()) -> context().
context(Writer, RequestWindow) ->
    {self(), Writer, RequestWindow}.

%% Of a {request, ...} or {operation, ...} frame.
-spec asker(halley_edge_codec:frame()) -> asker().
asker({request, Conn, _, _, Method, _, _, _}) -> {request, Conn, Method};
asker({operation, Conn, Number, #{what := What}}) -> {operation, Conn, Number, What}.

-spec conn(asker()) -> halley_edge_codec:conn().
conn(Asker) -> element(2, Asker).

%% `later': start/2 is to be called. Takes a {request, ...} or {operation, ...} frame.
-spec prepare(halley_edge_codec:frame()) -> later | prepared().
prepare({request, _, _, Flags, Method, _, _, Body} = Request)
  when Flags band ?FLAG_END =/= 0, byte_size(Body) =< ?SMALL_BYTES_MAX,
       Method =/= <<"GET">>, Method =/= <<"HEAD">> ->
    Asker = asker(Request),
    attempted(Asker, fun() -> parsed(Asker, Request, Body) end);
prepare({operation, _, _, Operation} = Frame) ->
    Asker = asker(Frame),
    case halley_edge_operation:bytes(Operation) =< ?SMALL_BYTES_MAX of
        true -> attempted(Asker, fun() -> prepared(Asker, operate, Operation) end);
        false -> later
    end;
prepare(_) ->
    later.

attempted(Asker, Prepare) ->
    try Prepare()
    catch
        Class:Reason:Stack -> {answer, crashed(Asker, Class, Reason, Stack)}
    end.

parsed(Asker, {request, _, Listener, _, Method, Target, Headers, _}, Body) ->
    case halley_edge_request:parse(Listener, Method, Target, Headers) of
        {ok, Parsed} -> prepared(Asker, prepare, Parsed#{body => {full, Body}});
        {error, Answer} -> {answer, frames(Asker, Answer)}
    end.

prepared(Asker, Function, Asked) ->
    case application:get_env(halley_edge, handler) of
        {ok, Handler} ->
            case erlang:function_exported(Handler, Function, 1) andalso Handler:Function(Asked) of
                false -> later;
                {answer, Answer} -> {answer, frames(Asker, Answer)};
                LaterOrWish -> LaterOrWish
            end;
        undefined ->
            later
    end.

%% The frames of an answer to what was published, or subscribed.
-spec answer(asker(), halley_requests:told(),
             halley_router:result() | halley_requests:changed()) -> [binary(), ...].
answer(Asker, Told, Result) ->
    try frames(Asker, Told(Result))
    catch
        Class:Reason:Stack -> crashed(Asker, Class, Reason, Stack)
    end.

frames({request, Conn, _}, {Status, Headers, Body}) ->
    halley_edge_request:response(Conn, Status, Headers, Body, 0);
frames({operation, Conn, Number, _}, Outcome) ->
    halley_edge_request:outcome(Conn, Number, Outcome).

%% The frames of an error that the link gives in place of a process, which may have answered a
%% moment before: so a request's connection ends by it. An operation's answer has a number.
-spec error(asker(), Status :: 400..599, Code :: binary(), Message :: binary()) ->
    [binary(), ...].
error({request, Conn, _}, Status, Code, Message) ->
    {Status, Headers, Body} = halley_edge_request:error_response(Status, Code, Message),
    halley_edge_request:response(Conn, Status, Headers, Body, ?FLAG_CLOSE);
error(Asker, Status, Code, Message) ->
    frames(Asker, failure(Asker, Status, Code, Message)).

failure({request, _, _}, Status, Code, Message) ->
    halley_edge_request:error_response(Status, Code, Message);
failure({operation, _, _, _}, Status, Code, Message) ->
    halley_edge_request:error_outcome(Status, Code, Message).

%% Takes a {request, ...} or {operation, ...} frame; the process is linked to the caller and ends
%% with `normal' once it has answered.
-spec start(halley_edge_codec:frame(), context()) -> pid().
start(Request, Context) ->
    spawn_bounded(run, [Request, Context]).

%% The same for an event whose id someone else is publishing: it waits for that one's answer.
-spec start_again(asker(), halley_router:item(), halley_requests:told(), context()) -> pid().
start_again(Asker, Item, Told, Context) ->
    spawn_bounded(run_again, [Asker, Item, Told, Context]).

spawn_bounded(Function, Args) ->
    HeapBound = #{size => ?HEAP_WORDS_MAX, kill => true, error_logger => false},
    Options = [link, {min_heap_size, ?HEAP_WORDS_MIN}, {max_heap_size, HeapBound}],
    Pid = spawn_opt(?MODULE, Function, Args, Options),
    true = is_pid(Pid),
    Pid.

-spec run_again(asker(), halley_router:item(), halley_requests:told(), context()) -> ok.
run_again(Asker, {Subject, Data, Opts}, Told, {_, Writer, _}) ->
    Result = halley_router:publish(Subject, Data, Opts),
    halley_edge_sender:send(Writer, answer(Asker, Told, Result)).

-spec run(halley_edge_codec:frame(), context()) -> ok.
run(Frame, {_, Writer, _} = Context) ->
    Asker = asker(Frame),
    Frames =
        try
            frames(Asker, done(Frame, Context))
        catch
            Class:Reason:Stack -> crashed(Asker, Class, Reason, Stack)
        end,
    halley_edge_sender:send(Writer, Frames).

done({request, Conn, Listener, Flags, Method, Target, Headers, Body} = Frame, Context) ->
    case halley_edge_request:parse(Listener, Method, Target, Headers) of
        {ok, Parsed} ->
            Whole = Parsed#{body => body(Conn, Flags, Body, Context)},
            call(handle, with_link(Whole, Conn, Context), asker(Frame));
        {error, Answer} ->
            Answer
    end;
done({operation, Conn, _, Operation} = Frame, Context) ->
    call(operate_apart, with_link(Operation, Conn, Context), asker(Frame)).

%% For answers that make much work: which link it is, and whether little waits for it. And a way to
%% have the session of this connection subscribed, since a session is the link's.
with_link(Asked, Conn, {Link, Writer, _}) ->
    HasRoom = fun() ->
        halley_edge_sender:queue_bytes(Writer) < halley_limits:get(replay_queue_bytes_max)
    end,
    Subscribe = fun(User, Subject) ->
        Ref = make_ref(),
        Link ! {subscribe, {self(), Ref}, Conn, User, Subject},
        receive {Ref, Result} -> Result end
    end,
    Asked#{link => Link, has_room => HasRoom, subscribe => Subscribe}.

call(Function, Asked, Asker) ->
    case application:get_env(halley_edge, handler) of
        {ok, Handler} -> Handler:Function(Asked);
        undefined -> failure(Asker, 503, <<"no_handler">>, <<"the API is not running">>)
    end.

%% The target isn't logged, it may carry a token; nor is what the handler had in its hands.
crashed(Asker, Class, Reason, Stack) ->
    IsOfAnother = is_of_another(Class, Reason, Stack),
    ?LOG_ERROR("a handler of ~0tp crashed: ~0tp:~0tp ~0tp",
               [named(Asker), Class | halley_log_data:without([Reason, Stack])]),
    frames(Asker, case IsOfAnother of
        true ->
            ok = halley_metrics:incr(requests_unavailable),
            failure(Asker, 503, <<"unavailable">>,
                    <<"a part of the server has just ended and is started again; it isn't known "
                      "whether this was done: try again soon, and publish with the same id">>);
        false ->
            ok = halley_metrics:incr(requests_internal),
            failure(Asker, 500, <<"internal">>, <<"the request failed inside the server">>)
    end).

named({request, _, Method}) -> Method;
named({operation, _, _, What}) -> What.

%% What it asked has ended meanwhile, or a table with it: the next attempt may do. A process that
%% failed over what it was asked isn't meant.
is_of_another(exit, {Why, {Module, call, _}}, _)
  when Module =:= gen_server orelse Module =:= gen_statem ->
    case Why of
        {shutdown, _} -> true;
        _ -> lists:member(Why, [noproc, normal, killed, shutdown])
    end;
is_of_another(error, badarg, [{ets, _, [Table | _], _} | _]) when is_atom(Table) ->
    ets:whereis(Table) =:= undefined;
is_of_another(_, _, _) ->
    false.

body(_, Flags, Body, _) when Flags band ?FLAG_END =/= 0 ->
    {full, Body};
body(Conn, Flags, First, {_, _, Window} = Context) ->
    Owed = case Flags band ?FLAG_EXPECT of 0 -> 0; _ -> Window end,
    put(?BODY, {First, Owed, 0}),
    {stream, fun() -> read(Conn, Context) end}.

%% State in the dictionary: a read fun without arguments has no other place. {Next, Owed, Last}: a
%% chunk that is here already, bytes consumed but not yet given back, and bytes that the handler
%% holds; or done.
read(Conn, {Link, _, Window}) ->
    case get(?BODY) of
        done ->
            done;
        {First, Owed, 0} when First =/= <<>> ->
            put(?BODY, {<<>>, Owed, byte_size(First)}),
            {ok, First};
        {<<>>, Owed, Held} ->
            more(give_back(Owed + Held, Window, Link, Conn))
    end.

give_back(Owed, Window, Link, Conn) when Owed * 2 >= Window ->
    Link ! {request_credit, self(), Conn, Owed},
    0;
give_back(Owed, _, _, _) ->
    Owed.

more(Owed) ->
    receive
        {body, Flags, <<>>} when Flags band ?FLAG_END =:= 0 ->
            more(Owed);
        {body, Flags, Data} when Flags band ?FLAG_END =:= 0 ->
            put(?BODY, {<<>>, Owed, byte_size(Data)}),
            {ok, Data};
        {body, _, <<>>} ->
            put(?BODY, done),
            done;
        {body, _, Data} ->
            put(?BODY, done),
            {ok, Data}
    end.
