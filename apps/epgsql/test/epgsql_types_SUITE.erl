%% Types against a real PostgreSQL: the server shows each written value as the right text, and its
%% values are read as the right terms.
-module(epgsql_types_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include("epgsql.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [values, numeric_of_every_shape, numeric_as_decimals, dates_as_the_server_counts, infinities,
     ranges_with_bounds, arrays, rows_of_all_builtin_types].

init_per_suite(Config) ->
    Server = epgsql_test_server:start(),
    [{server, Server} | Config].

end_per_suite(Config) -> epgsql_test_server:stop(?config(server, Config)).

connect(Config, More) ->
    {ok, C} = epgsql:connect(epgsql_test_server:options(?config(server, Config), More)),
    C.

%% Value, type, the server's text of it.
values() ->
    [{{1.0, 2.5}, "point", "(1,2.5)"}, {{1.0, -1.0, 0.0}, "line", "{1,-1,0}"},
     {{{0.0, 0.0}, {1.0, 1.0}}, "lseg", "[(0,0),(1,1)]"},
     {{{1.0, 1.0}, {0.0, 0.0}}, "box", "(1,1),(0,0)"},
     {{open, [{0.0, 0.0}, {1.0, 1.0}]}, "path", "[(0,0),(1,1)]"},
     {{closed, [{0.0, 0.0}, {1.0, 1.0}]}, "path", "((0,0),(1,1))"},
     {[{0.0, 0.0}, {1.0, 1.0}, {2.0, 0.0}], "polygon", "((0,0),(1,1),(2,0))"},
     {{{0.0, 0.0}, 2.0}, "circle", "<(0,0),2>"},
     {<<"12.340">>, "numeric", "12.340"},
     {{1, 5}, "int4range", "[1,5)"}, {empty, "int4range", "empty"},
     {{minus_infinity, 5}, "int8range", "(,5)"},
     {{<<"1.5">>, <<"2.5">>}, "numrange", "[1.5,2.5)"},
     {[{1, 3}, {5, plus_infinity}], "int4multirange", "{[1,3),[5,)}"}, {[], "int4multirange", "{}"},
     {[{minus_infinity, -5}, {1, 2}], "int8multirange", "{(,-5),[1,2)}"},
     {[{<<"1.5">>, <<"2">>}], "nummultirange", "{[1.5,2)}"},
     {[{{2008, 1, 2}, {2008, 1, 3}}], "datemultirange", "{[2008-01-02,2008-01-03)}"},
     {[{{{2008, 1, 2}, {0, 0, 0.0}}, plus_infinity}], "tsmultirange",
      "{[\"2008-01-02 00:00:00\",)}"},
     {[{{{2008, 1, 2}, {0, 0, 0.0}}, plus_infinity}], "tstzmultirange",
      "{[\"2008-01-02 00:00:00+00\",)}"},
     {{{10, 0, 0, 0}, 8}, "inet", "10.0.0.0/8"}, {{10, 0, 0, 1}, "inet", "10.0.0.1/32"},
     {{{10, 0, 0, 0}, 8}, "cidr", "10.0.0.0/8"},
     {{8193, 0, 0, 0, 0, 0, 0, 1}, "inet", "2001::1/128"},
     {{8, 0, 43, 1, 2, 3, 4, 5}, "macaddr8", "08:00:2b:01:02:03:04:05"},
     {<<"550e8400-e29b-41d4-a716-446655440000">>, "uuid", "550e8400-e29b-41d4-a716-446655440000"},
     {{{-1, -2, -3.5}, 4, -5}, "interval", "-5 mons +4 days -01:02:03.5"},
     {{{0, 0, 0.0}, 0, 0}, "interval", "00:00:00"},
     {{{1, 2, 3.25}, 3600}, "timetz", "01:02:03.25-01"}].

values(Config) ->
    C = connect(Config, #{}),
    {ok, [], []} = epgsql:squery(C, "set timezone = 'UTC'"),
    [begin
         Sql = ["select $1::", Type, ", $1::", Type, "::text, '", Text, "'::", Type],
         {ok, [#column{type = Name} | _], [Row]} = epgsql:equery(C, Sql, [Value]),
         ?assertEqual({Type, {Value, list_to_binary(Text), Value}}, {Type, Row}),
         ?assertEqual(Type, atom_to_list(Name))
     end || {Value, Type, Text} <- values()].

numeric_of_every_shape(Config) ->
    C = connect(Config, #{}),
    Texts = ["0", "0.0", "0.000", "1", "-1", "10000", "9999", "99990000", "0.0001", "0.00001",
             "-0.00000000000000000001", "123456789012345678901234567890.123456789", "1.5000",
             "NaN", "Infinity", "-Infinity", "1" ++ lists:duplicate(500, $0),
             "0." ++ lists:duplicate(400, $0) ++ "7"],
    [?assertMatch({_, {ok, _, [{Same, Same, Same}]}} when Same =:= Text,
                  {Text, epgsql:equery(C, ["select $1::numeric, $1::numeric::text, '", Text,
                                           "'::numeric"], [Text])})
     || Text <- lists:map(fun list_to_binary/1, Texts)],
    [?assertMatch({Given, {ok, _, [{Shown}]}} when Shown =:= Text,
                  {Given, epgsql:equery(C, "select $1::numeric::text", [Given])})
     || {Given, Text} <- [{7, <<"7">>}, {-1.25, <<"-1.25">>},
                         {{-1234, 2}, <<"-12.34">>}, {"1e3", <<"1000">>},
                         {".5", <<"0.5">>},
                         {nan, <<"NaN">>}, {minus_infinity, <<"-Infinity">>}]].

numeric_as_decimals(Config) ->
    C = connect(Config, #{codecs => [{epgsql_codec_numeric, decimal}]}),
    ?assertMatch({ok, _, [{{-12340, 3}, nan}]},
                 epgsql:equery(C, "select -12.340::numeric, 'NaN'::numeric")).

%% The server writes the date that it was sent, over all years that it knows.
dates_as_the_server_counts(Config) ->
    C = connect(Config, #{}),
    {ok, [], []} = epgsql:squery(C, "set datestyle = 'ISO'"),
    {ok, _, Rows} = epgsql:equery(C,
        "select d, extract(year from d)::int, extract(month from d)::int, extract(day from d)::int"
        " from (select '4713-01-01 BC'::date + 997 * i as d from generate_series(0, 8000) i) x"),
    [?assertEqual({case Y < 0 of true -> Y + 1; false -> Y end, M, D}, Date)
     || {Date, Y, M, D} <- Rows],
    {_, Written} = epgsql:execute_batch(C, "select $1::date", [[Date] || {Date, _, _, _} <- Rows]),
    ?assertEqual([Date || {Date, _, _, _} <- Rows], [Date || {ok, [{Date}]} <- Written]).

infinities(Config) ->
    C = connect(Config, #{}),
    [begin
         {ok, _, [Row]} = epgsql:equery(C, ["select $1::", Type, ", $1::", Type, "::text"],
                                        [Value]),
         ?assertEqual({Value, Text}, Row)
     end || Type <- ["date", "timestamp", "timestamptz"],
            {Value, Text} <- [{plus_infinity, <<"infinity">>},
                              {minus_infinity, <<"-infinity">>}]].

ranges_with_bounds(Config) ->
    C = connect(Config, #{codecs => [{epgsql_codec_timerange, bounds},
                                     {epgsql_codec_multirange, bounds}]}),
    Ends = {{{2008, 1, 2}, {0, 0, 0.0}}, {{2008, 1, 3}, {0, 0, 0.0}}},
    [begin
         Range = erlang:append_element(Ends, Bounds),
         ?assertMatch({ok, _, [{Range}]}, epgsql:equery(C, "select $1::tsrange", [Range])),
         ?assertMatch({ok, _, [{[Range]}]}, epgsql:equery(C, "select $1::tsmultirange", [[Range]]))
     end || Bounds <- ['[]', '[)', '(]', '()']].

arrays(Config) ->
    C = connect(Config, #{}),
    [?assertMatch({Type, {ok, _, [{Same}]}} when Same =:= Value,
                  {Type, epgsql:equery(C, ["select $1::", Type, "[]"], [Value])})
     || {Type, Value} <- [{"int4", []}, {"int4", [[1, 2], [3, null]]}, {"text", [<<"a">>, null]},
                          {"numeric", [<<"1.5">>, null]}, {"point", [{1.0, 2.0}]},
                          {"polygon", [[{0.0, 0.0}, {1.0, 1.0}], [{2.0, 2.0}]]},
                          {"int4multirange", [[{1, 2}], [], null]}]],
    ?assertExit({{{array_not_rectangular, _}, _}, _},
                (fun() ->
                    process_flag(trap_exit, true),
                    epgsql:equery(C, "select $1::int4[]", [[[1], [2, 3]]])
                end)()).

%% Every type that the table of OIDs names is one of this server, with these OIDs.
rows_of_all_builtin_types(Config) ->
    C = connect(Config, #{}),
    {ok, _, Rows} = epgsql:equery(C, "select typname::text, oid::int8, typarray::int8"
                                    " from pg_type"),
    Known = maps:from_list([{Name, {Oid, Array}} || {Name, Oid, Array} <- Rows]),
    [?assertEqual({Name, {Oid, Array}}, {Name, maps:get(atom_to_binary(Name), Known)})
     || {Name, Oid, Array} <- epgsql_oid_db:builtin()].
