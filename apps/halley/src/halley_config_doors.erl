%% What the configuration says about who comes in at the edge: addresses that limits don't concern.
%% Pure.
-module(halley_config_doors).

-export([networks/1, edge_settings/1]).

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

%% By the names of link.md 5.
-spec edge_settings(#{atom() => term()}) -> [{binary(), binary()}].
edge_settings(#{limits_exempt := Exempt}) ->
    [{<<"limits_exempt">>, unicode:characters_to_binary(Exempt)}].
