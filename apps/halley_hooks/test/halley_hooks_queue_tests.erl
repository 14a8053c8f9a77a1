%% Which files are segments of the queue. halley_hooks_disk_SUITE has their content.
-module(halley_hooks_queue_tests).

-include_lib("eunit/include/eunit.hrl").

%% A copy that somebody made beside a segment doesn't keep Halley from starting.
files_of_other_names_are_left_alone_test() ->
    Dir = string:trim(os:cmd("mktemp -d")),
    ok = application:set_env(halley, data_dir, Dir),
    try
        ok = filelib:ensure_dir(filename:join(halley_hooks_queue:folder(), "x")),
        [ok = file:write_file(filename:join(halley_hooks_queue:folder(), Name), <<>>)
         || Name <- ["x.queue", "copy of 000000000000000a.queue", "0a.queue", "new.tmp",
                     "00000000000000ZZ.queue"]],
        [ok = file:write_file(halley_hooks_queue:path(Number), <<>>) || Number <- [16#1f, 2]],
        ?assertEqual([2, 16#1f], halley_hooks_queue:numbers())
    after
        application:unset_env(halley, data_dir),
        file:del_dir_r(Dir)
    end.
