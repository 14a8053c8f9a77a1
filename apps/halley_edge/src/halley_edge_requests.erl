%% The open requests of one link: which process answers for which connection, how much body the
%% worker may send for it, and until when it must have answered. Held in the link's state; every
%% function takes it and gives it back.
%%
%% A request ends when its process ends; the answer goes to the writer directly, before that. So the
%% worker may know of an end that is still on its way here: a new REQUEST on the same connection
%% replaces the old one, and the bound on requests in flight (protocol/link.md 5) is doubled before
%% exceeding it breaks 8.1.
%%
%% An answer that is given here, for a process that was killed or out of time, closes the client's
%% connection (CLOSE): if the process had sent its own a moment before, the client can't take the
%% second one for the answer to its next request.
-module(halley_edge_requests).

-export([new/1, open/2, body/4, gone/2, credit/4, ended/3, tick/1]).
-export_type([requests/0]).

-include_lib("kernel/include/logger.hrl").
-include("halley_edge.hrl").

%% budget: body bytes that the worker may still send; whole: none may come any more.
-record(request, {pid :: pid(), budget :: integer(), whole :: boolean(), alive_at :: integer()}).

-record(requests, {
    writer :: halley_edge_writer:handle(),
    context :: halley_edge_exchange:context(),
    window :: pos_integer(),
    open_max :: pos_integer(),
    response_ms_max :: pos_integer(),
    by_conn = #{} :: #{halley_edge_codec:conn() => #request{}},
    by_pid = #{} :: #{pid() => halley_edge_codec:conn()}
}).
-opaque requests() :: #requests{}.
-type result() :: requests() | {broken, halley_edge_codec:problem()}.

%% To be made by the link: requests are linked to the process that opens them.
-spec new(halley_edge_writer:handle()) -> requests().
new(Writer) ->
    Window = halley_limits:get(request_window_bytes),
    #requests{writer = Writer, window = Window,
              context = halley_edge_exchange:context(Writer, Window),
              open_max = 2 * halley_limits:get(requests_in_flight_max),
              response_ms_max = halley_limits:get(response_ms_max)}.

%% A REQUEST frame came.
-spec open(halley_edge_codec:frame(), requests()) -> result().
open(_, #requests{by_pid = ByPid, open_max = Max}) when map_size(ByPid) >= Max ->
    broken(<<"8.1">>, "more than ~b requests in flight", [Max div 2]);
open({request, Conn, _, Flags, _, _, _, Body} = Request, #requests{window = Window} = Requests) ->
    Whole = Flags band ?FLAG_END =/= 0,
    Granted = case Flags band ?FLAG_EXPECT of 0 -> Window; _ -> 0 end,
    case Granted - byte_size(Body) of
        Budget when Whole; Budget >= 0 ->
            start(Conn, Request, Budget, Whole, Requests);
        _ ->
            over_window()
    end.

start(Conn, Request, Budget, Whole, #requests{context = Context} = Requests) ->
    #requests{by_conn = ByConn, by_pid = ByPid} = Requests,
    case ByConn of
        #{Conn := #request{pid = Old}} -> exit(Old, kill);
        #{} -> ok
    end,
    Pid = halley_edge_exchange:start(Request, Context),
    Entry = #request{pid = Pid, budget = Budget, whole = Whole, alive_at = now_ms()},
    Requests#requests{by_conn = ByConn#{Conn => Entry}, by_pid = ByPid#{Pid => Conn}}.

%% A REQUEST_BODY frame came. One without a request is skipped: the answer came first (8.5, 8.6).
-spec body(halley_edge_codec:conn(), Flags :: 0 | 1, binary(), requests()) -> result().
body(Conn, Flags, Data, #requests{by_conn = ByConn} = Requests) ->
    case ByConn of
        #{Conn := #request{whole = true}} ->
            broken(<<"8.3">>, "body after its end", []);
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
                #{Conn := #request{pid = Pid}} ->
                    answer_for(Conn, Reason, Rest),
                    Rest#requests{by_conn = maps:remove(Conn, ByConn)};
                #{} ->
                    Rest
            end;
        error ->
            Requests
    end.

answer_for(_, normal, _) ->
    ok;
answer_for(Conn, killed, Requests) ->
    ?LOG_WARNING("a request was stopped at the bound of its memory"),
    Message = <<"the request needs more memory than one may have; send it in smaller parts">>,
    answer(Conn, 413, <<"request_too_large">>, Message, Requests);
answer_for(Conn, Reason, Requests) ->
    ?LOG_ERROR("a request's process died: ~0tP", [halley_log_data:without(Reason), 20]),
    answer(Conn, 500, <<"internal">>, <<"the request failed inside the server">>, Requests).

%% Ends what had no progress for `response_ms_max'. To be called about once a second.
-spec tick(requests()) -> requests().
tick(#requests{by_conn = ByConn} = Requests) when map_size(ByConn) =:= 0 ->
    Requests;
tick(#requests{by_conn = ByConn, response_ms_max = MsMax} = Requests) ->
    Oldest = now_ms() - MsMax,
    Late = [{Conn, Entry} || {Conn, #request{alive_at = At} = Entry} <- maps:to_list(ByConn),
                             At < Oldest],
    lists:foldl(fun({Conn, Entry}, Acc) ->
        late(Conn, Entry, Acc),
        kill(Conn, Acc)
    end, Requests, Late).

%% A body that may go on and doesn't is the client's silence, everything else is ours.
late(Conn, #request{whole = false, budget = Budget}, Requests) when Budget > 0 ->
    answer(Conn, 408, <<"body_timeout">>, <<"the body of the request stopped coming">>, Requests);
late(Conn, _, Requests) ->
    answer(Conn, 504, <<"response_timeout">>, <<"the server did not answer in time">>, Requests).

%% The process stays in by_pid, and so in the bound, until it has really ended.
kill(Conn, #requests{by_conn = ByConn} = Requests) ->
    case maps:take(Conn, ByConn) of
        {#request{pid = Pid}, Rest} ->
            exit(Pid, kill),
            Requests#requests{by_conn = Rest};
        error ->
            Requests
    end.

answer(Conn, Status, Code, Message, #requests{writer = Writer}) ->
    {Status, Headers, Body} = halley_edge_request:error_response(Status, Code, Message),
    send(halley_edge_request:response(Conn, Status, Headers, Body, ?FLAG_CLOSE), Writer).

send(Frames, Writer) ->
    halley_edge_writer:send(Writer, Frames).

put_entry(Conn, Entry, #requests{by_conn = ByConn} = Requests) ->
    Requests#requests{by_conn = ByConn#{Conn := Entry}}.

over_window() ->
    broken(<<"8.3">>, "more of a body than the window allows", []).

broken(Clause, Format, Args) ->
    {broken, {Clause, iolist_to_binary(io_lib:format(Format, Args))}}.

now_ms() ->
    erlang:monotonic_time(millisecond).
