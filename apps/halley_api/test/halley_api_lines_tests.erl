%% Lines and the two formats of follows; that cutting a body changes nothing is in prop_halley_api.
-module(halley_api_lines_tests).
-include_lib("eunit/include/eunit.hrl").

blocks_are_whole_lines_test() ->
    {<<>>, A} = halley_api_lines:feed(<<"on">>, halley_api_lines:new(10)),
    {<<"one\ntwo\n">>, B} = halley_api_lines:feed(<<"e\ntwo\nth">>, A),
    {<<>>, C} = halley_api_lines:feed(<<>>, B),
    ?assertEqual(<<"th\n">>, halley_api_lines:finish(C)).

a_long_line_holds_no_memory_test() ->
    Feed = fun(Chunk, Lines) ->
                   {<<>>, Next} = halley_api_lines:feed(Chunk, Lines),
                   Next
           end,
    Chunks = lists:duplicate(100, binary:copy(<<"x">>, 1000)),
    Fed = lists:foldl(Feed, halley_api_lines:new(10), Chunks),
    {Block, End} = halley_api_lines:feed(<<"xx\nnext\n">>, Fed),
    ?assertEqual(<<"xxxxxxxxxxx\nnext\n">>, Block),
    ?assertEqual(<<>>, halley_api_lines:finish(End)).

%% A line in pieces of one byte takes some tenths of a second. To copy what is there of it for each
%% piece moves 180 GB, which takes more than ten.
a_line_in_pieces_of_a_byte_costs_what_its_bytes_cost_test_() ->
    {timeout, 120, fun() ->
        {Us, Bytes} = timer:tc(fun() -> in_bytes(600000) end),
        ?assertEqual(600001, Bytes),
        ?assert(Us < 4000000)
    end}.

in_bytes(Bytes) ->
    Lines = lists:foldl(fun(_, Lines) ->
        {<<>>, Next} = halley_api_lines:feed(<<"x">>, Lines),
        Next
    end, halley_api_lines:new(Bytes), lists:seq(1, Bytes)),
    {Block, _} = halley_api_lines:feed(<<"\n">>, Lines),
    byte_size(Block).

%% Nothing of a line that is too long stays, and what stands in its place begins as it did.
a_line_that_is_too_long_leaves_its_first_character_test_() ->
    Feed = fun(Chunk, {Blocks, Lines}) ->
        {Block, Next} = halley_api_lines:feed(Chunk, Lines),
        {[Block | Blocks], Next}
    end,
    [begin
         {_, Lines} = lists:foldl(Feed, {[], halley_api_lines:new(4)}, Chunks),
         ?_assertEqual(Left, halley_api_lines:finish(Lines))
     end || {Chunks, Left} <-
                [{[<<"ab">>, <<"cde">>], <<"aaaaa\n">>}, {[<<"  ">>, <<" {\"u\"">>], <<"{{{{{\n">>},
                 {[<<"     ">>, <<"  ">>, <<" x">>, <<"y">>], <<"xxxxx\n">>},
                 {[<<"      ">>], <<"     \n">>}, {[<<"ab">>, <<"cd">>], <<"abcd\n">>},
                 {[<<"abcdef\nx">>, <<"y">>], <<"xy\n">>}]].

edge_list_test_() ->
    Id255 = binary:copy(<<"x">>, 255),
    Id256 = binary:copy(<<"x">>, 256),
    [{Text, ?_assertEqual(Parsed, edge_list(<<Text/binary, "\n">>))}
     || {Text, Parsed} <-
            [{<<"1 2\n1 3\n2 3">>,
              {[{<<"1">>, <<"2">>}, {<<"1">>, <<"3">>}, {<<"2">>, <<"3">>}], 3, []}},
             {<<"1\t2\r\n  3   4\t ">>, {[{<<"1">>, <<"2">>}, {<<"3">>, <<"4">>}], 2, []}},
             {<<"\n \t\r\na b\n">>,
              {[{<<"a">>, <<"b">>}], 4, [{0, blank}, {1, blank}, {3, blank}]}},
             {<<"ä ö"/utf8>>, {[{<<"ä"/utf8>>, <<"ö"/utf8>>}], 1, []}},
             {<<"a\na b c\nd e">>,
              {[{<<"d">>, <<"e">>}], 3, [{0, 400, bad_line}, {1, 400, bad_line}]}},
             {<<"a ", 255>>, {[], 1, [{0, 400, bad_subject}]}},
             {<<255, " a">>, {[], 1, [{0, 400, bad_user}]}},
             {<<"a b", 127>>, {[], 1, [{0, 400, bad_subject}]}},
             {<<0, " b">>, {[], 1, [{0, 400, bad_user}]}},
             {<<Id255/binary, " ", Id255/binary>>, {[{Id255, Id255}], 1, []}},
             {<<Id256/binary, " ", Id255/binary>>, {[], 1, [{0, 400, bad_user}]}},
             {<<Id255/binary, " ", Id256/binary>>, {[], 1, [{0, 400, bad_subject}]}}]].

a_line_that_is_too_long_is_an_error_in_its_place_test() ->
    Blanks = binary:copy(<<" ">>, 5000),
    ?assertEqual({[{<<"a">>, <<"b">>}, {<<"c">>, <<"d">>}], 3, [{1, 413, line_too_long}]},
                 edge_list(<<"a b\na", Blanks/binary, "b\nc d\n">>)),
    NdJson = <<"{\"user\":", Blanks/binary, "1,\"subject\":2}\n">>,
    ?assertEqual({[], 1, [{0, 413, line_too_long}]}, codes(halley_api_follow_lines:parse(NdJson))).

ndjson_test_() ->
    [{Text, ?_assertEqual(Parsed, codes(halley_api_follow_lines:parse(<<Text/binary, "\n">>)))}
     || {Text, Parsed} <-
            [{<<"{\"user\":\"a b\",\"subject\":7}\n{\"subject\":\"x\",\"user\":1}\r">>,
              {[{<<"a b">>, <<"7">>}, {<<"1">>, <<"x">>}], 2, []}},
             {<<"\n\r\n{\"user\":1,\"subject\":2}">>,
              {[{<<"1">>, <<"2">>}], 3, [{0, blank}, {1, blank}]}},
             {<<"{\"user\":1}\n{}\n{\"user\":1,\"user\":2}">>,
              {[], 3, [{N, 400, bad_follow} || N <- [0, 1, 2]]}},
             {<<"x\n[]\n{\"user\":1,\"subject\":2}{}">>,
              {[], 3, [{N, 400, bad_json} || N <- [0, 1, 2]]}},
             {<<"{\"user\":\"\",\"subject\":2}\n{\"user\":1,\"subject\":null}">>,
              {[], 2, [{0, 400, bad_user}, {1, 400, bad_subject}]}}]].

edge_list(Block) ->
    codes(halley_api_edge_list:parse(Block)).

codes({Pairs, Lines, Skipped}) ->
    {Pairs, Lines, [case Why of
                        blank -> {N, blank};
                        {Status, Code, Message} ->
                            true = iolist_size(Message) > 0,
                            {N, Status, binary_to_atom(Code)}
                    end || {N, Why} <- Skipped]}.
