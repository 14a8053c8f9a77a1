%% The seqs that a history which began from backups never had.
-module(halley_history_copied_tests).

-include_lib("eunit/include/eunit.hrl").

-define(RANGE(From, To), {From, To, 1, 2}).

%% A copy, a copy of that, and what is damaged beside.
copies_of_copies_test() ->
    Dir = string:trim(os:cmd("mktemp -d")),
    Copied = filename:join(Dir, "copied"),
    try
        ?assertNot(halley_history_copied:begins(Dir)),
        ?assertEqual([?RANGE(1, 9)], halley_history_copied:without([?RANGE(1, 9)])),
        ok = file:write_file(Copied, halley_history_copied:text_for_backup(Dir)),
        ?assert(halley_history_copied:begins(Dir)),
        ok = halley_history_copied:began(Dir, [{10, 20}]),
        Damaged = [?RANGE(1, 9), ?RANGE(10, 20), ?RANGE(10, 21), ?RANGE(30, 40)],
        ?assertEqual([?RANGE(1, 9), ?RANGE(10, 21), ?RANGE(30, 40)],
                     halley_history_copied:without(Damaged)),
        %% At the next start, and in a copy of it.
        ?assertNot(halley_history_copied:begins(Dir)),
        ?assertEqual([?RANGE(1, 9)],
                     halley_history_copied:without([?RANGE(1, 9), ?RANGE(12, 20)])),
        ok = file:write_file(Copied, halley_history_copied:text_for_backup(Dir)),
        ?assert(halley_history_copied:begins(Dir)),
        ok = halley_history_copied:began(Dir, [{30, 40}]),
        ?assertNot(halley_history_copied:begins(Dir)),
        ?assertEqual([?RANGE(1, 9), ?RANGE(10, 21)], halley_history_copied:without(Damaged)),
        %% What isn't such a file says nothing.
        ok = file:write_file(Copied, <<0, "10 x\n-1 5\n", 255>>),
        ?assertNot(halley_history_copied:begins(Dir)),
        ?assertEqual(Damaged, halley_history_copied:without(Damaged))
    after
        ok = file:del_dir_r(Dir),
        halley_history_copied:begins(Dir)
    end.
