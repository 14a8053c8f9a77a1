%% POST /v1/drain : what SIGTERM does. Streams end evenly over `drain.time', each with its cursor,
%% then the server stops.
%%
%% The body names the node, `{"node":"halley@127.0.0.1"}': a drain can't be taken back, so a request
%% that reached the wrong server does nothing. It is done once: where SIGTERM a second time ends all
%% at once, a second request changes nothing.
-module(halley_api_drain_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

-spec handle(post, [], halley_api:request()) -> halley_api:response().
handle(post, [], Request) ->
    Node = atom_to_binary(node()),
    case node_of(Request) of
        Node -> drain(halley_drain:is_draining());
        _ ->
            Message = ["a drain stops this server for good; say which one you mean: {\"node\":\"",
                       Node, "\"}"],
            halley_api_error:response({400, <<"bad_node">>, Message})
    end.

node_of(#{body := {full, Body}}) when byte_size(Body) =< ?DRAIN_BODY_BYTES_MAX ->
    case halley_api_json:object(Body) of
        {ok, [{<<"node">>, Node}]} -> Node;
        _ -> none
    end;
node_of(_) ->
    none.

drain(true) -> answer();
drain(false) ->
    case halley_drain:ask() of
        true -> answer();
        false -> halley_api_error:response({503, <<"unavailable">>,
                                            "this server stops only as it was started"})
    end.

answer() ->
    #{sessions := Sessions} = halley_directory:online(),
    Text = jiffy:encode({[{<<"draining">>, true}, {<<"sessions">>, Sessions},
                          {<<"drain_ms">>, application:get_env(halley, drain_ms, 0)}]}),
    halley_api_reply:json(202, [Text, $\n]).
