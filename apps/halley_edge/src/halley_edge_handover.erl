%% One edge takes the place of another that serves the same addresses (protocol/link.md 9.3).
%%
%% The brain links to the old edge first (`handshake/4'), so that its clients are served until their
%% streams are closed. The new edge then begins while it runs: both listen (SO_REUSEPORT), so no
%% client is refused. When the new one is ready, the old one gets the request to stop over
%% `drain.time' (`begin_drain/3'): it stops accepting clients at once, and closes its streams as for
%% SIGTERM. An old edge without a link, or one that ignores the request, gets a signal.
%%
%% The socket of the new edge has the name of the old one's. So that is set aside before, as `.old',
%% and gets its name again if the new edge doesn't come (`take_back/1'). And an edge of an earlier
%% build removes its name when it ends, which is the new one's by then: so the new one has a second
%% name meanwhile, by which halley_edge_dial finds it.
%%
%% An edge of an earlier build that has a link for each worker isn't linked to (link.md 1.4). Its
%% streams get no events until they are closed; their clients get these from the new edge, by their
%% cursors.
%%
%% Called by halley_edge_runner, in its process; it keeps the state and asks `is_over/1' now and
%% then.
-module(halley_edge_handover).

-export([take_back/1, handshake/4, begin_drain/3, shorten/2, is_over/1, kill/1, forget/1]).
-export_type([leaving/0]).

-include_lib("kernel/include/logger.hrl").

%% For the link to the old edge; it goes without it if that takes longer.
-define(HANDSHAKE_MS_MAX, 5000).
%% Slots that the workers of two edges may take together.
-define(SLOTS_MAX, 1000).

-record(leaving, {known :: {ok, halley_edge_process:identity()} | gone,
                  link :: {ok, pid()} | none,
                  %% When its drain is over; `undefined' until that has begun.
                  until_ms :: integer() | undefined}).
-opaque leaving() :: #leaving{}.

%% Links to the edge that is to go, which has so many workers; 0 if it can't be linked to. The
%% dialer has no other link then. `NewWorkers': of the edge that is to come.
-spec handshake(file:filename_all(), Workers :: non_neg_integer(), NewWorkers :: pos_integer(),
           {ok, halley_edge_process:identity()} | gone) -> leaving().
handshake(Dir, Workers, NewWorkers, Known) when Workers > 0, Workers + NewWorkers =< ?SLOTS_MAX ->
    ok = halley_edge_dialer:connect(Dir, self()),
    receive
        {link_up, _} -> ok
    after ?HANDSHAKE_MS_MAX ->
        ?LOG_WARNING("the edge that is to be replaced is silent")
    end,
    Link = halley_edge_dialer:leave(),
    ok = flush(),
    set_aside(Dir, #leaving{known = Known, link = Link});
handshake(Dir, _, _, Known) ->
    set_aside(Dir, #leaving{known = Known, link = none}).

flush() ->
    receive {link_up, _} -> flush()
    after 0 -> ok
    end.

%% Asks it to close its connections within DrainMs and to stop.
-spec begin_drain(file:filename_all(), DrainMs :: non_neg_integer(), leaving()) -> leaving().
begin_drain(Dir, DrainMs, Leaving) ->
    ok = keep(Dir),
    ok = ask(DrainMs, Leaving),
    Leaving#leaving{until_ms = now_ms() + DrainMs}.

%% The brain is to stop within DrainMs: so is this edge.
-spec shorten(DrainMs :: non_neg_integer(), leaving()) -> leaving().
shorten(DrainMs, #leaving{until_ms = Until} = Leaving) ->
    case now_ms() + DrainMs of
        Sooner when Until =:= undefined; Sooner < Until ->
            ok = ask(DrainMs, Leaving),
            Leaving#leaving{until_ms = Sooner};
        _ ->
            Leaving
    end.

%% The command line says over how long a first signal drains; a second one cuts it short.
ask(DrainMs, #leaving{known = Known} = Leaving) ->
    case {linked(Leaving), Known} of
        {{true, Link}, _} -> halley_edge_link:shutdown_edge(Link, DrainMs);
        {false, {ok, Identity}} -> halley_edge_process:terminate(Identity);
        {false, gone} -> ok
    end.

linked(#leaving{link = none}) -> false;
linked(#leaving{link = {ok, Link}}) -> is_process_alive(Link) andalso {true, Link}.

%% Is it gone? If not: how long is it late?
-spec is_over(leaving()) -> true | {false, LateMs :: integer()}.
is_over(#leaving{known = {ok, Identity}, until_ms = Until}) ->
    not halley_edge_process:is_alive(Identity) orelse {false, late(Until)};
is_over(#leaving{known = gone, until_ms = Until} = Leaving) ->
    linked(Leaving) =:= false orelse {false, late(Until)}.

late(undefined) -> 0;
late(Until) -> now_ms() - Until.

-spec kill(leaving()) -> ok.
kill(#leaving{known = {ok, Identity}}) -> halley_edge_process:kill(Identity);
kill(#leaving{known = gone, link = none}) -> ok;
kill(#leaving{known = gone, link = {ok, Link}}) -> halley_edge_link:stop(Link).

%% --- the socket's names ------------------------------------------------------------------------

%% A brain that dials the new edge must not reach the old one, whose link would end by that (1.2).
set_aside(Dir, Leaving) ->
    Path = halley_edge_dial:path(Dir),
    _ = file:delete(halley_edge_dial:second_name(Path)),
    _ = file:rename(Path, old_name(Path)),
    Leaving.

%% An edge that was to be replaced, and wasn't, gets its name back. To be called before the socket
%% directory is searched for an edge.
-spec take_back(file:filename_all()) -> ok.
take_back(Dir) ->
    Path = halley_edge_dial:path(Dir),
    _ = case file:read_link_info(Path) of
        {error, enoent} -> file:rename(old_name(Path), Path);
        _ -> file:delete(old_name(Path))
    end,
    ok.

old_name(Path) -> <<Path/binary, ".old">>.

%% Where there is no socket the new edge doesn't stand.
keep(Dir) ->
    Path = halley_edge_dial:path(Dir),
    case file:make_link(Path, halley_edge_dial:second_name(Path)) of
        ok ->
            _ = file:delete(old_name(Path)),
            ok;
        {error, Reason} ->
            ?LOG_WARNING("~ts cannot get a second name: ~ts", [Path, file:format_error(Reason)])
    end.

%% The old edge is gone: one name is enough. If it had a link for each worker, it has left these
%% sockets' names.
-spec forget(file:filename_all()) -> ok.
forget(Dir) ->
    Path = halley_edge_dial:path(Dir),
    _ = halley_edge_dial:restore(Path),
    _ = file:delete(halley_edge_dial:second_name(Path)),
    lists:foreach(fun file:delete/1,
                  filelib:wildcard(filename:join(unicode:characters_to_list(Dir),
                                                 "worker-*.sock*"))).

now_ms() ->
    erlang:monotonic_time(millisecond).
