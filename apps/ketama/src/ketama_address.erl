%% Host and port of a server's name, where a mode makes the names of its points from them: those of
%% libmemcached.
%%
%% The forms are pylibmc's: `host', `host:port', `[host]', `[host]:port' (for IPv6), and `/path' of
%% a Unix socket. No port, or 0, is memcached's 11211; a socket has 0.
-module(ketama_address).

-export([parse/1]).

-define(PORT_DEFAULT, 11211).
-define(PORT_DIGITS_MAX, 5).

-spec parse(binary()) -> {ok, Host :: binary(), inet:port_number()} | error.
parse(<<$/, _/binary>> = Path) ->
    {ok, Path, 0};
parse(<<$[, Text/binary>>) ->
    case binary:split(Text, <<"]">>) of
        [Host, <<>>] -> with_port(Host, <<>>);
        [Host, <<$:, Port/binary>>] -> with_port(Host, Port);
        _ -> error
    end;
parse(Name) ->
    case binary:split(Name, <<":">>) of
        [Host] -> with_port(Host, <<>>);
        [Host, Port] -> with_port(Host, Port)
    end.

with_port(<<>>, _) -> error;
with_port(Host, <<>>) -> {ok, Host, ?PORT_DEFAULT};
with_port(Host, Digits) when byte_size(Digits) =< ?PORT_DIGITS_MAX -> with_number(Host, Digits, 0);
with_port(_, _) -> error.

with_number(Host, <<Digit, Rest/binary>>, Port) when Digit >= $0, Digit =< $9 ->
    with_number(Host, Rest, Port * 10 + Digit - $0);
with_number(Host, <<>>, 0) -> {ok, Host, ?PORT_DEFAULT};
with_number(Host, <<>>, Port) when Port < 1 bsl 16 -> {ok, Host, Port};
with_number(_, _, _) -> error.
