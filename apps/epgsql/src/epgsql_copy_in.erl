%% The data of a COPY FROM STDIN, in the process of its connection: each write is answered when the
%% socket has taken it, so that who writes waits for the server.
%%
%% Meanwhile the process does other things (`epgsql_writer'). A write has a time, as a query has: if
%% it is over, the writer gets an error, and the connection can't be used any longer, since half a
%% message may have been written.
-module(epgsql_copy_in).

-include("epgsql_session.hrl").
-include("epgsql_subprotocol.hrl").
-include("protocol.hrl").

-export([rows/4, io_request/3, written/3, expired/2, closed/1]).

-export_type([waiting/0]).

-type reply_to() :: {call, gen_server:from()} | {io, pid(), ReplyAs :: any()}.
-type waiting() :: {reply_to(), Timer :: reference() | none}.

%% Rows as terms, for the binary format.
-spec rows([tuple() | [any()]], gen_server:from(), timeout(), #session{}) -> #session{}.
rows(Rows, From, Timeout, Session) ->
    write(encoded(Rows, Session), {call, From}, Timeout, Session).

encoded(_, #session{handler = Handler}) when Handler =/= on_copy_from_stdin ->
    {error, not_in_copy_mode};
encoded(_, #session{subproto_state = #copy{format = text}}) ->
    {error, not_binary_format};
encoded(_, #session{subproto_state = #copy{last_error = Error}}) when Error =/= undefined ->
    {error, Error};
encoded(Rows, #session{codec = Codec, subproto_state = #copy{encoder = Encoder}}) ->
    {data, [epgsql_wire:encode_copy_row_with_encoder(Row, Encoder, Codec) || Row <- Rows]}.

%% The connection is an I/O device for text and CSV: stdlib's "The Erlang I/O Protocol".
-spec io_request({pid(), ReplyAs :: any()}, any(), #session{}) -> #session{}.
io_request({From, ReplyAs}, Request, #session{connect_opts = Options} = Session) ->
    write(chars(Request, Session), {io, From, ReplyAs},
          maps:get(call_timeout, Options, infinity), Session).

chars(_, #session{handler = Handler}) when Handler =/= on_copy_from_stdin ->
    {error, not_in_copy_mode};
chars(_, #session{subproto_state = #copy{last_error = Error}}) when Error =/= undefined ->
    {error, Error};
chars(Request, _) ->
    chars(Request).

chars({put_chars, Encoding, Module, Function, Arguments}) ->
    try apply(Module, Function, Arguments) of
        Chars when is_list(Chars); is_binary(Chars) -> chars({put_chars, Encoding, Chars});
        Other -> {error, {fun_return_not_characters, Other}}
    catch
        Class:Reason:Stack -> {error, {fun_exception, {Class, Reason, Stack}}}
    end;
chars({put_chars, _, Chars}) when is_binary(Chars) ->
    {data, Chars};
chars({put_chars, Encoding, Chars}) ->
    case unicode:characters_to_binary(Chars, Encoding) of
        Bytes when is_binary(Bytes) -> {data, Bytes};
        _ -> {error, put_chars}
    end;
chars({requests, Requests}) ->
    all_chars(Requests, []);
chars(_) ->
    {error, request}.

all_chars([], Acc) -> {data, lists:reverse(Acc)};
all_chars([Request | Requests], Acc) ->
    case chars(Request) of
        {data, Data} -> all_chars(Requests, [Data | Acc]);
        {error, _} = Error -> Error
    end.

%% Their own process would copy many small parts one by one.
write({data, Data}, ReplyTo, Timeout, #session{transport = Transport, writing = Writing}
      = Session) ->
    Message = iolist_to_binary(epgsql_frontend:encode({?COPY_DATA, Data})),
    Monitor = epgsql_writer:send_monitored(Transport, Message),
    Timer = case Timeout of
                infinity -> none;
                _ -> erlang:start_timer(Timeout, self(), {written, Monitor})
            end,
    Session#session{writing = Writing#{Monitor => {ReplyTo, Timer}}};
write({error, _} = Error, ReplyTo, _, Session) ->
    ok = reply(ReplyTo, Error),
    Session.

%% The end of a writer, by its monitor.
-spec written(reference(), Reason :: any(), #session{}) -> {true, #session{}} | false.
written(Monitor, Reason, #session{writing = Writing} = Session) ->
    case maps:take(Monitor, Writing) of
        {{ReplyTo, Timer}, Others} ->
            _ = Timer =/= none andalso erlang:cancel_timer(Timer),
            ok = reply(ReplyTo, case Reason of
                                    {written, Result} -> Result;
                                    _ -> {error, closed}
                                end),
            {true, Session#session{writing = Others}};
        error -> false
    end.

%% Has a write's time run out before it was done? Then it is answered.
-spec expired(reference(), #session{}) -> {true, #session{}} | false.
expired(Monitor, #session{writing = Writing} = Session) ->
    case maps:take(Monitor, Writing) of
        {{ReplyTo, _}, Others} ->
            ok = reply(ReplyTo, {error, timeout}),
            {true, Session#session{writing = Others}};
        error -> false
    end.

%% The connection ends.
-spec closed(#session{}) -> ok.
closed(#session{writing = Writing}) ->
    lists:foreach(fun({ReplyTo, _}) -> reply(ReplyTo, {error, closed}) end, maps:values(Writing)).

reply({call, From}, Answer) -> gen_server:reply(From, Answer);
reply({io, From, ReplyAs}, Answer) -> From ! {io_reply, ReplyAs, Answer}, ok.
