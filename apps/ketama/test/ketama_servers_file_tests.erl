%% ketama.servers, by libketama's rules and quirks (RJ/ketama 18cf9a7, libketama/ketama.c).
-module(ketama_servers_file_tests).

-include_lib("eunit/include/eunit.hrl").

-import(ketama_servers_file, [parse/1]).

its_own_file_test() ->
    Text = ["#------ Server -------\t-Mem-#\n#255.255.255.255:65535\t66666#\n\n",
            [[Name, $\t, integer_to_binary(Weight), $\n]
             || {Name, Weight} <- ketama_test_rings:eight()]],
    ?assertEqual({ok, ketama_test_rings:eight()}, parse(iolist_to_binary(Text))).

good_test_() ->
    [{Text, ?_assertEqual({ok, [{Name, Weight}]}, parse(Text))}
     || {Text, Name, Weight} <- [
            {<<"a:1\t600\n">>, <<"a:1">>, 600},
            {<<"a:1 600\n">>, <<"a:1">>, 600},
            {<<" \t a:1 \t 600\n">>, <<"a:1">>, 600},
            {<<"a:1 600\r\n">>, <<"a:1">>, 600},
            {<<"#x\n\na:1 600\n">>, <<"a:1">>, 600},
            %% The last character of the weight is taken for the newline.
            {<<"a:1 600">>, <<"a:1">>, 60},
            {<<"a:1 600 \n">>, <<"a:1">>, 60},
            {<<"a:1 112 9\n">>, <<"a:1">>, 11},
            {<<"a:1 600 # ours\n">>, <<"a:1">>, 60},
            %% strtol()
            {<<"a:1 12ab\n">>, <<"a:1">>, 12},
            {<<"a:1 +7\n">>, <<"a:1">>, 7},
            {<<"a:1 \v7\n">>, <<"a:1">>, 7},
            {<<"a:1 007\n">>, <<"a:1">>, 7},
            {<<"a:1 1.5\n">>, <<"a:1">>, 1},
            {<<"a:1 9223372036854775807\n">>, <<"a:1">>, 9223372036854775807},
            %% C strings
            {<<"a:1 600\0rest\n">>, <<"a:1">>, 60},
            {<<0, "a:1 1\nb:1 2\n">>, <<"b:1">>, 2},
            {<<"255.255.255.255:65535 1\n">>, <<"255.255.255.255:65535">>, 1},
            {<<"12345678901234567890123 1\n">>, <<"12345678901234567890123">>, 1}]].

refused_test_() ->
    [{Text, ?_assertEqual({error, Reason}, parse(Text))}
     || {Text, Reason} <- [
            {<<>>, no_servers},
            {<<"\n\n#a:1 1\n">>, no_servers},
            {<<"a:1 1\nb:1\n">>, {line, 2, no_weight}},
            {<<"a:1 1\n\n#\nb:1 two\n">>, {line, 4, bad_weight}},
            {<<"a:1 1\nb:1 0\n">>, {line, 2, bad_weight}},
            {<<"a:1 1\nb:1 -5\n">>, {line, 2, bad_weight}},
            {<<"a:1 6">>, {line, 1, bad_weight}},
            {<<"a:1 \n">>, {line, 1, bad_weight}},
            {<<"a:1 9223372036854775808\n">>, {line, 1, bad_weight}},
            {<<" \n">>, {line, 1, no_weight}},
            {<<"\r\n">>, {line, 1, no_weight}},
            {<<"  ">>, {line, 1, no_name}},
            {<<" #x\n">>, {line, 1, no_weight}},
            {<<"123456789012345678901234 1\n">>, {line, 1, name_too_long}}]].

%% fgets() of 127: what a line has beyond 126 bytes is a line of its own.
long_lines_are_cut_test() ->
    Comment = fun(N) -> <<$#, (binary:copy(<<"x">>, N - 1))/binary>> end,
    ?assertEqual({ok, [{<<"b:1">>, 20}]}, parse(<<(Comment(126))/binary, "b:1 20\n">>)),
    ?assertEqual({ok, [{<<"b:1">>, 20}]}, parse(<<(Comment(125))/binary, "\nb:1 20\n">>)),
    ?assertEqual({error, {line, 1, no_weight}}, parse(<<(Comment(140))/binary, "\nb:1 20\n">>)),
    ?assertEqual({error, {line, 3, no_weight}},
                 parse(<<"a:1 1\n", (Comment(126))/binary, "\nb:1\n">>)).

every_reason_is_explained_test() ->
    [?assert(io_lib:printable_unicode_list(ketama_servers_file:explain(Reason)))
     || Reason <- [{line, 3, Why} || Why <- [no_name, name_too_long, no_weight, bad_weight]]
            ++ [no_servers, too_large, not_regular, {file, enoent}, {bad_server, {<<"a:b">>, 1}},
                {too_many_servers, 16777216}, weights_too_large, {bad_option, mode}]].

read_test() ->
    ?assertEqual({error, {file, enoent}}, ketama:read_file("/nowhere/ketama.servers")),
    ?assertEqual({error, not_regular}, ketama:read_file("/dev/null")),
    ?assertEqual({error, not_regular}, ketama:read_file(<<"/tmp">>)).
