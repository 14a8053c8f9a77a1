%% The meaning of `postgres.*': a server, tables, and refused values.
-module(halley_postgres_config_tests).

-include_lib("eunit/include/eunit.hrl").

settings(Keys) -> halley_postgres_config:settings(Keys).

server(Keys) ->
    {ok, #{server := Server}} = settings(Keys#{publish => on}),
    Server().

tables(Text) ->
    {ok, #{follows := Tables}} = settings(#{host => "localhost", follows => Text}),
    Tables.

says(Words, Keys) ->
    {error, Line} = settings(maps:merge(#{publish => on}, Keys)),
    ?assertNotEqual({Words, nomatch}, {Words, string:find(iolist_to_binary(Line), Words)}).

nothing_is_configured_test() ->
    ?assertEqual(none, settings(#{publish => off, slot => "halley", publication => "halley"})),
    says("postgres.url", #{follows => "f(a, b)"}),
    says("postgres.url", #{publish => on}),
    says("postgres.url", #{publish => outbox}).

outbox_test() ->
    ?assertMatch({ok, #{publish := outbox, follows := []}},
                 settings(#{host => "db", publish => outbox})),
    says("set it to on", #{host => "db", publish => outbox, follows => "f(a, b)"}).

written_table_test() ->
    Base = #{host => "db", store_backend => postgres},
    ?assertMatch({ok, #{writes := #{name := <<"f">>}}},
                 settings(Base#{follows => "f(a, b); g(a, b) where (ok)"})),
    ?assertMatch({ok, #{writes := none}}, settings(#{host => "db", follows => "f(a, b)"})),
    says("needs postgres.follows", Base#{publish => on}),
    says("a `where (...)'", Base#{follows => "f(a, b) where (ok); g(a, b)"}).

url_test() ->
    #{password := Password} = Server =
        server(#{url => "postgres://ann:s%3Acret@db.example.org:6432/shop?sslmode=verify-full"}),
    ?assertMatch(#{host := "db.example.org", port := 6432, user := "ann", database := "shop",
                   tls := true, tls_ca := none}, Server),
    ?assertEqual(<<"s:cret">>, Password()),
    ?assertMatch(#{host := "localhost", port := 5432, user := "halley", database := "postgres",
                   password := none, tls := false}, server(#{url => "postgresql://localhost"})),
    ?assertMatch(#{host := "/run/postgresql", tls := false},
                 server(#{url => "postgres://%2Frun%2Fpostgresql/shop"})),
    ?assertMatch(#{host := "::1", port := 6432, tls := false},
                 server(#{url => "postgres://ann@[::1]:6432/shop"})),
    says("postgres://user", #{url => "mysql://ann@db"}),
    says("sslmode", #{url => "postgres://db/x?sslmode=prefer"}),
    says("one of them", #{url => "postgres://db", host => "db"}).

%% What stands in a URL as it is, and by escapes; a password is bytes.
url_letters_test_() ->
    Password = fun(Text) ->
        #{password := Fun} = server(#{url => "postgres://ann:" ++ Text ++ "@db/shop"}),
        Fun()
    end,
    [?_assertEqual({Text, Expected}, {Text, Password(Text)})
     || {Text, Expected} <- [{"p%40ss", <<"p@ss">>}, {"a:b", <<"a:b">>}, {"a%3ab", <<"a:b">>},
                             {"%2F%3F%23%20%25", <<"/?# %">>}, {"\x{e9}", <<"\x{e9}"/utf8>>},
                             {"%C3%A9", <<"\x{e9}"/utf8>>}, {"%E9", <<16#e9>>}, {"", <<>>},
                             {"\x{5bc6}", <<"\x{5bc6}"/utf8>>}, {"a+b", <<"a+b">>}]]
    ++ [?_assertMatch(#{user := "\x{f6} x", database := "\x{5bc6}/", host := "/run/\x{e9}"},
                      server(#{url => "postgres://%C3%B6%20x@%2Frun%2F%C3%A9/\x{5bc6}%2F"})),
        ?_assertMatch(#{user := "halley"}, server(#{url => "postgres://:secret@db/shop"})),
        ?_assertMatch(#{port := 5432}, server(#{url => "postgres://db:/shop"}))]
    ++ [?_test(says(Words, #{url => Url}))
        || {Words, Url} <- [{"%40 for @", "postgres://ann:p@ss@db/shop"},
                            {"%40 for @", "postgres://ann:a/b@db/shop"},
                            {"%40 for @", "postgres://ann:a b@db/shop"},
                            {"%25", "postgres://ann:50%@db"}, {"%25", "postgres://ann:%zz@db"},
                            {"%00", "postgres://ann:a%00@db"}, {"UTF-8", "postgres://%E9@db"},
                            {"its port", "postgres://db:65536"}, {"its port", "postgres://db:0"}]].

client_certificate_test() ->
    Both = #{host => "db", tls_certificate => "/c", tls_key => "/k"},
    ?assertMatch(#{certificate := {"/c", "/k"}}, server(Both)),
    ?assertMatch(#{certificate := none}, server(#{host => "db"})),
    says("set postgres.tls_key, too", maps:remove(tls_key, Both)),
    says("set postgres.tls_certificate, too", maps:remove(tls_certificate, Both)),
    says("there is no TLS", Both#{tls => off}).

%% A server on another machine gets no password in the clear unless somebody says so.
tls_test() ->
    ?assertMatch(#{tls := true}, server(#{host => "db"})),
    ?assertMatch(#{tls := false}, server(#{host => "127.0.0.1"})),
    ?assertMatch(#{tls := true}, server(#{host => "127.0.0.1", tls => on})),
    ?assertMatch(#{tls := false}, server(#{host => "db", tls => off})).

password_file_test() ->
    ?assertMatch(#{password := {file, "/p"}}, server(#{host => "db", password_file => "/p"})),
    says("password", #{url => "postgres://a:b@db", password_file => "/p"}).

tables_test() ->
    ?assertEqual([#{schema => <<"public">>, name => <<"follows">>, user => <<"a">>,
                    subject => <<"b">>, where => none, text => <<"Follows(a,b)">>}],
                 tables(" Follows(a,b) ")),
    ?assertMatch([#{schema := <<"s">>, name := <<"T; x">>, user := <<"A\"a">>,
                    where := <<"kind = ') ;' and (x or y)">>},
                  #{schema := <<"public">>, name := <<"u">>, where := none,
                    text := <<"u ( c , d )">>}],
                 tables("s.\"T; x\" (\"A\"\"a\", b) where (kind = ') ;' and (x or y)); "
                        "u ( c , d )")),
    [says("postgres.follows", #{host => "db", follows => Bad})
     || Bad <- ["f", "f(a)", "f(a,b) where", "f(a,b) where (x", "f(a,b) g(a,b)", "f(a,b);f(c,d)",
                "1(a,b)", "\"\"(a,b)"]].

name_test() ->
    ?assert(halley_postgres_config:name("halley_2")),
    ?assertNot(halley_postgres_config:name("")),
    ?assertNot(halley_postgres_config:name("Halley")),
    ?assertNot(halley_postgres_config:name(lists:duplicate(64, $a))).
