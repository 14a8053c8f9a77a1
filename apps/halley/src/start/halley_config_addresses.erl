%% The configuration of addresses: those that limits don't apply to, and proxies that name the
%% client. Pure.
-module(halley_config_addresses).

-export([check/1, networks/1, edge_settings/1]).

%% As much of a header as the edge looks at.
-define(PROXY_HEADER_BYTES_MAX, 16384).

%% A list of addresses and networks such as 10.0.0.0/8, separated by commas; it may be empty.
-spec networks(string()) -> boolean().
networks(Text) ->
    %% As many as the edge takes.
    Members = [string:trim(Member) || Member <- string:split(Text, ",", all)],
    Members =:= [""] orelse length(Members) =< 256 andalso lists:all(fun network/1, Members).

network(Text) ->
    case string:split(Text, "/") of
        [Address] -> prefix_max(Address) > 0;
        [Address, Prefix] -> prefix(Prefix) =< prefix_max(Address)
    end.

prefix_max(Text) ->
    case {inet:parse_ipv4strict_address(Text), inet:parse_ipv6strict_address(Text)} of
        {{ok, _}, _} -> 32;
        {_, {ok, _}} -> 128;
        _ -> 0
    end.

prefix(Text) ->
    case re:run(Text, "^(0|[1-9][0-9]{0,2})$", [{capture, none}, dollar_endonly]) of
        match -> list_to_integer(Text);
        nomatch -> infinity
    end.

%% Values of the application `halley', as the schema names them. The error is one line.
-spec check(#{atom() => term()}) -> ok | {error, iodata()}.
check(#{limits := Limits, proxy_trusted := Trusted} = Brain) ->
    Bytes = proplists:get_value(proxy_header_bytes_max, Limits),
    Needs = [Key || {Name, Key} <- [{public_proxy_protocol, "public.proxy_protocol"},
                                    {api_proxy_protocol, "api.proxy_protocol"},
                                    {proxy_forwarded_for, "proxy.forwarded_for"}],
                    maps:get(Name, Brain) =:= on],
    case {Needs, string:trim(Trusted)} of
        {[Key | _], ""} ->
            {error, [Key, ": is on, and no proxy is trusted; set proxy.trusted to the addresses of "
                     "the proxies"]};
        _ when Bytes > ?PROXY_HEADER_BYTES_MAX ->
            {error, ["limits.proxy_header_bytes_max: must be ",
                     integer_to_list(?PROXY_HEADER_BYTES_MAX), " at most; it is ",
                     integer_to_list(Bytes)]};
        _ ->
            ok
    end.

%% By the names of link.md 5.
-spec edge_settings(#{atom() => term()}) -> [{binary(), binary()}].
edge_settings(#{limits_exempt := Exempt, proxy_trusted := Trusted,
                public_proxy_protocol := Public, api_proxy_protocol := Api,
                proxy_forwarded_for := ForwardedFor}) ->
    [{<<"limits_exempt">>, unicode:characters_to_binary(Exempt)},
     {<<"proxy_trusted">>, unicode:characters_to_binary(Trusted)},
     {<<"public_proxy_protocol">>, atom_to_binary(Public)},
     {<<"api_proxy_protocol">>, atom_to_binary(Api)},
     {<<"proxy_forwarded_for">>, atom_to_binary(ForwardedFor)}].
