%% The form of single values of the configuration. Pure; the schema's validators call it.
-module(halley_config_check).

-export([node_name/1, listen/1, address/1, is_loopback/1, origins/1, patterns/1]).

%% Pages that open a WebSocket have the origin of their own scheme, and `null' may be anybody's.
-define(ORIGIN, "^(?:(?i:file)://|(?!(?i:wss?|file):)[A-Za-z][A-Za-z0-9+.-]*://"
                "(?:[A-Za-z0-9._-]+|\\[(?<address>[0-9A-Fa-f:.]+)\\])"
                "(?::(?<port>[0-9]{1,5}))?)$").

-spec node_name(string()) -> boolean().
node_name(Name) ->
    matches(Name, "^[A-Za-z0-9_-]{1,64}@[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)+$").

%% `Address:Port', with an IPv6 address in brackets.
-spec listen(string()) -> boolean().
listen(Text) ->
    case parse_listen(Text) of
        {ok, _, Port} -> Port >= 1 andalso Port =< 65535;
        error -> false
    end.

%% For a text that `listen/1' accepts.
-spec address(string()) -> {inet:ip_address(), inet:port_number()}.
address(Text) ->
    {ok, Address, Port} = parse_listen(Text),
    {Address, Port}.

%% Whether only this machine reaches the address; for a text that `listen/1' accepts.
-spec is_loopback(string()) -> boolean().
is_loopback(Text) ->
    case parse_listen(Text) of
        {ok, {127, _, _, _}, _} -> true;
        {ok, {0, 0, 0, 0, 0, 0, 0, 1}, _} -> true;
        _ -> false
    end.

parse_listen(Text) ->
    case re:run(Text, "^(?:\\[([0-9a-fA-F:.]+)\\]|([0-9.]+)):([0-9]{1,5})$",
                [unicode, {capture, all_but_first, list}]) of
        {match, [V6, "", Port]} -> address(inet:parse_ipv6strict_address(V6), Port);
        {match, ["", V4, Port]} -> address(inet:parse_ipv4strict_address(V4), Port);
        nomatch -> error
    end.

address({ok, Address}, Port) -> {ok, Address, list_to_integer(Port)};
address({error, einval}, _) -> error.

-spec origins(string()) -> boolean().
origins("") -> true;
origins("*") -> true;
origins("localhost") -> true;
origins(Text) ->
    %% It travels in a setting of the link, which is 65535 bytes at most.
    length(Text) =< 8192 andalso
        lists:all(fun(Origin) -> origin(string:trim(Origin)) end, string:split(Text, ",", all)).

%% As the edge reads them (`halley-wire', origin.rs): protocol/origins.json has examples for both.
origin("*") -> true;
origin("localhost") -> true;
origin(Origin) ->
    case re:run(Origin, ?ORIGIN, [unicode, dollar_endonly, {capture, ["address", "port"], list}]) of
        {match, [Address, Port]} ->
            (Address =:= "" orelse element(1, inet:parse_ipv6strict_address(Address)) =:= ok)
                andalso (Port =:= "" orelse list_to_integer(Port) =< 65535);
        nomatch ->
            false
    end.

%% Ids and prefixes. Elsewhere than at the end a `*' would be a letter of an id, and what its author
%% means (`room/*/news') isn't known here.
-spec patterns(string()) -> boolean().
patterns(Text) ->
    lists:all(fun(Part) -> lists:member(string:find(string:trim(Part), "*"), [nomatch, "*"]) end,
              string:split(Text, ",", all)).

matches(Text, Pattern) ->
    re:run(Text, Pattern, [unicode, dollar_endonly, {capture, none}]) =:= match.
