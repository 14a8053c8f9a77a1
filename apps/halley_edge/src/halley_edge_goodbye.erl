%% How a broken clause is answered. Pure.
-module(halley_edge_goodbye).

-export([answer/1, counter/1]).

-include("halley_edge.hrl").

%% The GOODBYE that answers a broken clause (1.3, 2.7).
-spec answer(halley_edge_codec:problem()) -> {goodbye, Code :: 1..8, Reason :: binary()}.
answer({Clause, What}) ->
    {goodbye, code(Clause), <<Clause/binary, ": ", What/binary>>}.

%% What `halley_metrics' counts it as.
-spec counter(halley_edge_codec:problem()) -> halley_metrics:name().
counter({Clause, _}) ->
    case code(Clause) of
        ?GOODBYE_VERSION -> link_version;
        ?GOODBYE_HANDSHAKE -> link_handshake;
        ?GOODBYE_SILENCE -> link_silence;
        ?GOODBYE_OVERLOADED -> link_overloaded;
        ?GOODBYE_FLOW_CONTROL -> link_flow_control;
        ?GOODBYE_BAD_FRAME -> link_bad_frame
    end.

code(<<"3.2">>) -> ?GOODBYE_VERSION;
code(<<"3.", _/binary>>) -> ?GOODBYE_HANDSHAKE;
code(<<"4.1">>) -> ?GOODBYE_HANDSHAKE;
code(<<"4.5">>) -> ?GOODBYE_SILENCE;
code(<<"4.7">>) -> ?GOODBYE_OVERLOADED;
code(<<"4.", _/binary>>) -> ?GOODBYE_FLOW_CONTROL;
code(<<"8.1">>) -> ?GOODBYE_FLOW_CONTROL;
code(<<"8.3">>) -> ?GOODBYE_FLOW_CONTROL;
code(_) -> ?GOODBYE_BAD_FRAME.
