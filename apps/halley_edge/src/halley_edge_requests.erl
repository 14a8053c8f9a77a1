%% The open requests and operations of one link, or of all workers of a trunk, where a connection is
%% a word of slot and id: which process answers for which connection, how much body the worker may
%% send for it, and until when it must have answered. Held in the link's state; every function takes
%% it and gives it back.
%%
%% A small request that publishes one event has no process: the event is posted (`halley_posts')
%% with those of the other requests that came by the same read, and answered from here.
%%
%% A request ends when its process ends; the answer goes to the writer directly, before that. So the
%% worker may know of an end that is still on its way here: a new REQUEST on the same connection
%% replaces the old one, and the bound on requests in flight (protocol/link.md 5) is doubled before
%% exceeding it breaks 8.1.
%%
%% An answer that is given here, for a process that was killed or out of time, closes the client's
%% connection (CLOSE): if the process had sent its own a moment before, the client can't take the
%% second one for the answer to its next request. That to an operation has the operation's number.
-module(halley_edge_requests).

-export([new/2, open/2, send/1, body/4, gone/2, slot_ended/2, credit/4, ended/3, tick/1]).
-export([posted/2, shard_down/2, late/2]).
-export_type([requests/0, wish/0]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

%% budget: body bytes that the worker may still send; whole: none may come any more.
-record(request, {asker :: halley_edge_exchange:asker(), pid :: pid(), budget :: integer(),
                  whole :: boolean(), alive_at :: integer()}).
-record(post, {asker :: halley_edge_exchange:asker(), tag :: halley_posts:tag(),
               alive_at :: integer()}).

-record(requests, {
    writer :: halley_edge_sender:handle(),
    context :: halley_edge_exchange:context(),
    window :: pos_integer(),
    open_max :: pos_integer(),
    response_ms_max :: pos_integer(),
    by_conn = #{} :: #{halley_edge_codec:conn() => #request{} | #post{}},
    by_pid = #{} :: #{pid() => halley_edge_codec:conn()},
    posts = halley_posts:new() :: halley_posts:posts()
}).
-opaque requests() :: #requests{}.
-type result() :: requests() | {broken, halley_edge_codec:problem()}.
%% What the link has to do for a session: it knows the sessions, and answers.
-type wish() :: {add | remove | state, halley_edge_codec:conn(), User :: binary(),
                 halley_id:id() | State :: binary(),
                 Answer :: fun((halley_requests:changed()) -> ok)}
              | {watch, halley_edge_codec:conn(), User :: binary(), halley_presence_views:view(),
                 Answer :: fun((halley_requests:changed()) -> ok)}
              | {add_from, halley_edge_codec:conn(), User :: binary(), halley_id:id(),
                 Answer :: fun(({halley_requests:changed(), halley_history:vector()})
                               -> ok)}.

%% To be made by the link, which has so many workers: requests are linked to the process that opens
%% them.
-spec new(halley_edge_sender:handle(), Workers :: pos_integer()) -> requests().
new(Writer, Workers) ->
    Window = halley_limits:get(request_window_bytes),
    #requests{writer = Writer, window = Window,
              context = halley_edge_exchange:context(Writer, Window),
              open_max = 2 * Workers * halley_limits:get(requests_in_flight_max),
              response_ms_max = halley_limits:get(response_ms_max)}.

%% A REQUEST or an OPERATION frame came.
-spec open(halley_edge_codec:frame(), requests()) -> result() | {wish, wish(), requests()}.
open(Request, #requests{by_pid = ByPid, posts = Posts, open_max = Max} = Requests) ->
    case map_size(ByPid) + halley_posts:count(Posts) >= Max of
        true ->
            broken(<<"8.1">>, "more than ~b requests in flight", [Max div 2]);
        false ->
            case halley_edge_exchange:prepare(Request) of
                later -> open_stream(Request, Requests);
                Prepared -> prepared(halley_edge_exchange:asker(Request), Prepared, Requests)
            end
    end.

prepared(Asker, Prepared, #requests{writer = Writer} = Requests) ->
    Conn = halley_edge_exchange:conn(Asker),
    Free = kill(Conn, Requests),
    case Prepared of
        {answer, Frames} ->
            send(Frames, Writer),
            Free;
        {subscription, What, User, Subject, Told} ->
            Answer = fun(Result) -> send(told(Asker, Told, Result), Writer) end,
            {wish, {What, Conn, User, Subject, Answer}, Free};
        {publish, Item, Told} ->
            post(Asker, Item, Told, Free)
    end.

post(Asker, Item, Told, #requests{posts = Posts, by_conn = ByConn} = Requests) ->
    case halley_posts:post(Item, {Asker, Item, Told}, Posts) of
        {ok, Tag, Posted} ->
            Entry = #post{asker = Asker, tag = Tag, alive_at = now_ms()},
            Conn = halley_edge_exchange:conn(Asker),
            Requests#requests{posts = Posted, by_conn = ByConn#{Conn => Entry}};
        {error, _} = Refused ->
            send(told(Asker, Told, Refused), Requests#requests.writer),
            Requests
    end.

told(Asker, Told, Result) ->
    halley_edge_exchange:answer(Asker, Told, Result).

%% What came by one read is all here.
-spec send(requests()) -> requests().
send(#requests{posts = Posts} = Requests) ->
    Requests#requests{posts = halley_posts:send(Posts)}.

%% Answers to posts, which a shard or the log sent.
-spec posted([{halley_posts:tag(), halley_shard:posted()}], requests()) -> requests().
posted(Answers, #requests{posts = Posts} = Requests) ->
    results(halley_posts:answered(Answers, Posts), Requests).

%% A process that was monitored has died.
-spec shard_down(Monitor :: reference(), requests()) -> requests().
shard_down(Monitor, #requests{posts = Posts} = Requests) ->
    case halley_posts:down(Monitor, Posts) of
        none -> Requests;
        Down -> results(Down, Requests)
    end.

%% The timer of posts came.
-spec late(Timer :: reference(), requests()) -> requests().
late(Timer, #requests{posts = Posts} = Requests) ->
    results(halley_posts:late(Timer, Posts), Requests).

%% In one message to the writer.
results({Results, Posts}, #requests{writer = Writer} = Requests) ->
    {Frames, Left} = lists:mapfoldl(fun result/2, Requests#requests{posts = Posts}, Results),
    case lists:append(Frames) of
        [] -> ok;
        Some -> send(Some, Writer)
    end,
    Left.

result({{Asker, Item, Told}, busy}, #requests{context = Context} = Requests) ->
    Pid = halley_edge_exchange:start_again(Asker, Item, Told, Context),
    {[], started(Asker, Pid, 0, true, Requests)};
result({{Asker, _, Told}, Result}, #requests{by_conn = ByConn} = Requests) ->
    Conn = halley_edge_exchange:conn(Asker),
    {told(Asker, Told, Result), Requests#requests{by_conn = maps:remove(Conn, ByConn)}}.

open_stream({operation, _, _, _} = Operation, Requests) ->
    start(Operation, 0, true, Requests);
open_stream({request, _, _, Flags, _, _, _, Body} = Request,
            #requests{window = Window} = Requests) ->
    Whole = Flags band ?FLAG_END =/= 0,
    Granted = case Flags band ?FLAG_EXPECT of 0 -> Window; _ -> 0 end,
    case Granted - byte_size(Body) of
        Budget when Whole; Budget >= 0 ->
            start(Request, Budget, Whole, Requests);
        _ ->
            over_window()
    end.

start(Request, Budget, Whole, #requests{context = Context} = Requests) ->
    Asker = halley_edge_exchange:asker(Request),
    Free = kill(halley_edge_exchange:conn(Asker), Requests),
    started(Asker, halley_edge_exchange:start(Request, Context), Budget, Whole, Free).

started(Asker, Pid, Budget, Whole, #requests{by_conn = ByConn, by_pid = ByPid} = Requests) ->
    Conn = halley_edge_exchange:conn(Asker),
    Entry = #request{asker = Asker, pid = Pid, budget = Budget, whole = Whole,
                     alive_at = now_ms()},
    Requests#requests{by_conn = ByConn#{Conn => Entry}, by_pid = ByPid#{Pid => Conn}}.

%% A REQUEST_BODY frame came. One without a request is skipped: the answer came first (8.5, 8.6).
-spec body(halley_edge_codec:conn(), Flags :: 0 | 1, binary(), requests()) -> result().
body(Conn, Flags, Data, #requests{by_conn = ByConn} = Requests) ->
    case ByConn of
        #{Conn := #request{whole = true}} ->
            body_after_end();
        #{Conn := #post{}} ->
            body_after_end();
        #{Conn := #request{budget = Budget}} when byte_size(Data) > Budget ->
            over_window();
        #{Conn := #request{pid = Pid, budget = Budget} = Entry} ->
            Pid ! {body, Flags, Data},
            put_entry(Conn, Entry#request{budget = Budget - byte_size(Data), alive_at = now_ms(),
                                          whole = Flags band ?FLAG_END =/= 0}, Requests);
        #{} ->
            Requests
    end.

%% A REQUEST_GONE frame came: nobody waits for the answer.
-spec gone(halley_edge_codec:conn(), requests()) -> requests().
gone(Conn, Requests) ->
    kill(Conn, Requests).

%% A worker of a trunk has lost its slot: nobody waits for its answers.
-spec slot_ended(halley_links:slot(), requests()) -> requests().
slot_ended(Slot, #requests{by_conn = ByConn} = Requests) ->
    lists:foldl(fun kill/2, Requests, [Word || Word <- maps:keys(ByConn), Word bsr 48 =:= Slot]).

%% The process of a request has consumed body bytes.
-spec credit(pid(), halley_edge_codec:conn(), pos_integer(), requests()) -> requests().
credit(Pid, Conn, Bytes, #requests{by_conn = ByConn, writer = Writer} = Requests) ->
    case ByConn of
        #{Conn := #request{pid = Pid, whole = false, budget = Budget} = Entry} ->
            send([halley_edge_codec:encode({request_credit, Conn, Bytes})], Writer),
            put_entry(Conn, Entry#request{budget = Budget + Bytes, alive_at = now_ms()}, Requests);
        #{} ->
            Requests
    end.

%% A process that was linked ended. `normal' means that it has answered.
-spec ended(pid(), Reason :: term(), requests()) -> requests().
ended(Pid, Reason, #requests{by_pid = ByPid, by_conn = ByConn} = Requests) ->
    case maps:take(Pid, ByPid) of
        {Conn, Pids} ->
            Rest = Requests#requests{by_pid = Pids},
            case ByConn of
                #{Conn := #request{pid = Pid, asker = Asker}} ->
                    answer_for(Asker, Reason, Rest),
                    Rest#requests{by_conn = maps:remove(Conn, ByConn)};
                #{} ->
                    Rest
            end;
        error ->
            Requests
    end.

answer_for(_, normal, _) ->
    ok;
answer_for(Asker, killed, Requests) ->
    ?LOG_WARNING("a request was stopped: it reached its memory limit"),
    Message = <<"the request needs more memory than a request may use; send it in smaller parts">>,
    answer(Asker, 413, <<"request_too_large">>, Message, Requests);
answer_for(Asker, Reason, Requests) ->
    ok = halley_metrics:incr(requests_internal),
    ?LOG_ERROR("a request's process died: ~0tP", [halley_log_data:without(Reason), 20]),
    answer(Asker, 500, <<"internal">>, <<"the request failed inside the server">>, Requests).

%% Ends what had no progress for `response_ms_max'. To be called about once a second.
-spec tick(requests()) -> requests().
tick(#requests{by_conn = ByConn} = Requests) when map_size(ByConn) =:= 0 ->
    Requests;
tick(#requests{by_conn = ByConn, response_ms_max = MsMax} = Requests) ->
    Oldest = now_ms() - MsMax,
    Late = [{Conn, Entry} || {Conn, Entry} <- maps:to_list(ByConn), alive_at(Entry) < Oldest],
    lists:foldl(fun({Conn, Entry}, Acc) ->
        out_of_time(Entry, Acc),
        kill(Conn, Acc)
    end, Requests, Late).

alive_at(#request{alive_at = At}) -> At;
alive_at(#post{alive_at = At}) -> At.

%% A body that may go on and doesn't is the client's silence, everything else is ours.
out_of_time(#request{asker = Asker, whole = false, budget = Budget}, Requests)
  when Budget > 0 ->
    answer(Asker, 408, <<"body_timeout">>, <<"the body of the request stopped coming">>, Requests);
out_of_time(Entry, Requests) ->
    answer(asker(Entry), 504, <<"response_timeout">>, <<"the server did not answer in time">>,
           Requests).

asker(#request{asker = Asker}) -> Asker;
asker(#post{asker = Asker}) -> Asker.

%% The process stays in by_pid, and so in the bound, until it has really ended; a post counts until
%% it is answered.
kill(Conn, #requests{by_conn = ByConn, posts = Posts} = Requests) ->
    case maps:take(Conn, ByConn) of
        {#request{pid = Pid}, Rest} ->
            exit(Pid, kill),
            Requests#requests{by_conn = Rest};
        {#post{tag = Tag}, Rest} ->
            Requests#requests{by_conn = Rest, posts = halley_posts:forget(Tag, Posts)};
        error ->
            Requests
    end.

answer(Asker, Status, Code, Message, #requests{writer = Writer}) ->
    send(halley_edge_exchange:error(Asker, Status, Code, Message), Writer).

send(Frames, Writer) ->
    halley_edge_sender:send(Writer, Frames).

put_entry(Conn, Entry, #requests{by_conn = ByConn} = Requests) ->
    Requests#requests{by_conn = ByConn#{Conn := Entry}}.

body_after_end() ->
    broken(<<"8.3">>, "body after its end", []).

over_window() ->
    broken(<<"8.3">>, "more of a body than the window allows", []).

broken(Clause, Format, Args) ->
    {broken, {Clause, iolist_to_binary(io_lib:format(Format, Args))}}.

now_ms() ->
    erlang:monotonic_time(millisecond).
