%% The meaning of `remote.*', and refused values.
-module(halley_backends_config_tests).

-include_lib("eunit/include/eunit.hrl").

says(Words, Keys) ->
    {error, Line} = halley_backends_config:settings(Keys),
    ?assertNotEqual({Words, nomatch}, {Words, string:find(iolist_to_binary(Line), Words)}).

settings_test() ->
    ?assertEqual(none, halley_backends_config:settings(#{})),
    {ok, Settings} = halley_backends_config:settings(
        #{listen => "[::1]:8090", secret_file => "/etc/s", backends => "a@h, b@10.0.0.7"}),
    ?assertEqual(#{ip => {0, 0, 0, 0, 0, 0, 0, 1}, port => 8090, secret_file => "/etc/s",
                   backends => ['a@h', 'b@10.0.0.7']}, Settings).

incomplete_test() ->
    says("remote.secret_file", #{listen => "127.0.0.1:1", backends => "a@h"}),
    says("remote.backends", #{listen => "127.0.0.1:1", secret_file => "s"}),
    says("remote.listen", #{secret_file => "s"}),
    says("remote.listen", #{backends => "a@h"}).

names_test() ->
    _ = [?assert(halley_backends_config:names(Text))
         || Text <- ["a@h", "a@h,b@h", " a@h , b@h.i "]],
    _ = [?assertNot(halley_backends_config:names(Text))
         || Text <- ["", "a", "a@h,", "a@h b@h", "'a'@h", "a@h;b@h"]],
    ?assertNot(halley_backends_config:names(
        lists:flatten(lists:join(",", lists:duplicate(257, "a@h"))))).
