%% Frames of small messages: which are accepted, which are refused and why, which are malformed.
-module(teleport_codec_tests).

-include_lib("eunit/include/eunit.hrl").

-define(PEER, 'peer@127.0.0.1').

decode(Term) -> teleport_codec:decode(term_to_binary(Term), ?PEER).

taken_test() ->
    Elements = [[self() | hello], [name | #{<<"k">> => [1.5, -1, 1 bsl 90 | tail]}],
                {call, make_ref(), self(), {request, "text"}}, {demonitor, make_ref()}],
    ?assertEqual({ok, Elements}, decode(Elements)).

%% Pids and references of a node that is neither.
foreign(What) ->
    Name = <<119, 9, "a@1.2.3.4">>,
    case What of
        pid -> <<131, 88, Name/binary, 1:32, 0:32, 7:32>>;
        port -> <<131, 89, Name/binary, 1:32, 7:32>>;
        reference -> <<131, 90, 1:16, Name/binary, 7:32, 1:32>>
    end.

refused_test_() ->
    _ = 'a@1.2.3.4',
    [?_assertEqual({ok, [{refused, {other, Why}}, [self() | fine]]},
                   decode([[self() | Bad], [self() | fine]]))
     || {Bad, Why} <- [{fun() -> ok end, a_fun}, {fun lists:sort/1, a_fun},
                       {#{key => [{fun() -> ok end}]}, a_fun},
                       {#{fun() -> ok end => 1}, a_fun},
                       {[a | fun() -> ok end], a_fun},
                       {binary_to_term(foreign(pid)), a_pid_of_another_node},
                       {{1, binary_to_term(foreign(port))}, a_port_of_another_node},
                       {[binary_to_term(foreign(reference))], a_reference_of_another_node}]].

%% The atom is put together here, so that it isn't in any table.
unknown(Elements) ->
    Name = <<"never_seen_", (integer_to_binary(erlang:unique_integer([positive])))/binary>>,
    Size = byte_size(Name),
    <<131, List/binary>> = term_to_binary(Elements),
    [Before, After] = binary:split(List, <<109, 4:32, "HERE">>),
    {Name, <<131, Before/binary, 119, Size, Name/binary, After/binary>>}.

unknown_atom_test() ->
    Ref = make_ref(),
    {Name, Frame} = unknown([[self() | first], {call, Ref, self(), {<<"HERE">>}},
                             [self() | last]]),
    ?assertEqual({ok, [[self() | first], {refused, {call, Ref, unknown_atom}}, [self() | last]]},
                 teleport_codec:decode(Frame, ?PEER)),
    ?assertError(badarg, binary_to_existing_atom(Name)).

%% Who is told of a refused element.
whom_to_tell_test_() ->
    Ref = make_ref(),
    Bad = fun() -> ok end,
    [?_assertEqual({ok, [{refused, Refused}]}, decode([Element]))
     || {Element, Refused} <- [{{call, Ref, self(), Bad}, {call, Ref, a_fun}},
                               {{reply, Ref, {ok, Bad}}, {reply, Ref, a_fun}},
                               {{down, Ref, self(), {Bad}}, {down, Ref, self(), a_fun}},
                               {{monitor, Ref, self(), Bad}, {monitor, Ref, self(), a_fun}},
                               {{reply, no_reference, Bad}, {other, a_fun}},
                               {[self() | Bad], {other, a_fun}}]].

malformed_test_() ->
    Good = term_to_binary([[self() | hello]]),
    [?_assertEqual({error, malformed}, teleport_codec:decode(Frame, ?PEER))
     || Frame <- [<<>>, <<131>>, <<130, 106>>, term_to_binary(no_list), term_to_binary(["a" | b]),
                  term_to_binary([{refused, {other, a_fun}}]),
                  binary:part(Good, 0, byte_size(Good) - 1), <<Good/binary, 0>>,
                  %% Small on the wire, and a megabyte if it were read.
                  term_to_binary([[self() | binary:copy(<<0>>, 1 bsl 20)]], [compressed]),
                  %% More elements than there are bytes.
                  <<131, 108, 16#ffffffff:32, 97, 1>>]].

%% Cut apart as if one atom were unknown, with every tag that OTP writes.
every_tag_test() ->
    Terms = [1, 1000, -1, 1 bsl 100, 1 bsl 3000, 1.5, a, 'grün', self(), make_ref(), "text",
             [1000, 2000], [a | b], [], {}, {1}, erlang:make_tuple(300, 0), #{a => #{}}, <<"b">>,
             <<1:3>>, hd(erlang:ports()), fun lists:sort/1, fun() -> Terms0 = 1, Terms0 end],
    <<131, List/binary>> = term_to_binary(Terms),
    {ok, Parts, <<>>} = teleport_etf:elements(List),
    ?assertEqual(Terms, [binary_to_term(<<131, Part/binary>>) || Part <- Parts]).

deep_test() ->
    Deep = lists:foldl(fun(_, Term) -> {Term} end, <<"HERE">>, lists:seq(1, 100000)),
    {_, Frame} = unknown([[self() | Deep], [self() | fine]]),
    ?assertEqual({ok, [{refused, {other, unknown_atom}}, [self() | fine]]},
                 teleport_codec:decode(Frame, ?PEER)).
