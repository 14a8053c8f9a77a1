%% One edge takes the place of another that serves the same addresses (protocol/link.md 9.3).
%%
%% The brain links to the old edge first (`handshake/4'), so that its clients are served until their
%% streams are closed. The new edge then begins while it runs: both listen (SO_REUSEPORT), so no
%% client is refused. When the new one is ready, the old one gets the request to stop over
%% `drain.time' (`begin_drain/4'): it stops accepting clients at once, and closes its streams as for
%% SIGTERM. An old edge without a link, or one that ignores the request, gets a signal.
%%
%% The sockets of the new edge have the names of the old one's. So those are set aside before, as
%% `.old', and get their names again if the new edge doesn't come (`take_back/1'). And an edge of an
%% earlier build removes its names when it ends, which are the new one's by then: so each of these
%% has a second name meanwhile, by which halley_edge_dial finds it.
%%
%% Called by halley_edge_runner, in its process; it keeps the state and asks `is_over/1' now and
%% then.
-module(halley_edge_handover).

-export([take_back/1, handshake/4, begin_drain/4, shorten/2, is_over/1, kill/1, forget/2]).
-export_type([leaving/0]).

-include_lib("kernel/include/logger.hrl").

%% For the links to the old edge; it goes without them if they take longer.
-define(HANDSHAKE_MS_MAX, 5000).
%% Slots of links that two edges may take together.
-define(LINKS_MAX, 1000).

-record(leaving, {known :: {ok, halley_edge_process:identity()} | gone,
                  links :: [pid()],
                  %% When its drain is over; `undefined' until that has begun.
                  until_ms :: integer() | undefined}).
-opaque leaving() :: #leaving{}.

%% Links to all workers of the edge that is to go. The dialer has no other links then. `NewWorkers':
%% of the edge that is to come.
-spec handshake(file:filename_all(), Workers :: non_neg_integer(), NewWorkers :: pos_integer(),
           {ok, halley_edge_process:identity()} | gone) -> leaving().
handshake(Dir, Workers, NewWorkers, Known) when Workers > 0, Workers + NewWorkers =< ?LINKS_MAX ->
    ok = halley_edge_dialer:connect(Dir, Workers, self()),
    ok = await(lists:seq(0, Workers - 1), now_ms() + ?HANDSHAKE_MS_MAX),
    Links = halley_edge_dialer:leave(),
    ok = flush(),
    set_aside(Dir, Workers, #leaving{known = Known, links = Links});
handshake(Dir, Workers, _, Known) ->
    set_aside(Dir, Workers, #leaving{known = Known, links = []}).

await([], _) ->
    ok;
await(Awaited, Deadline) ->
    receive
        {link_up, Worker, _} -> await(lists:delete(Worker, Awaited), Deadline)
    after max(0, Deadline - now_ms()) ->
        ?LOG_WARNING("the edge that is to be replaced: its workers ~0tp are silent", [Awaited])
    end.

flush() ->
    receive {link_up, _, _} -> flush()
    after 0 -> ok
    end.

%% Asks it to close its connections within DrainMs and to stop. The new edge has NewWorkers.
-spec begin_drain(file:filename_all(), NewWorkers :: pos_integer(), DrainMs :: non_neg_integer(),
                  leaving()) -> leaving().
begin_drain(Dir, NewWorkers, DrainMs, Leaving) ->
    ok = keep(Dir, NewWorkers),
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
ask(DrainMs, #leaving{known = Known, links = Links}) ->
    case {lists:filter(fun is_process_alive/1, Links), Known} of
        {[Link | _], _} -> halley_edge_link:shutdown_edge(Link, DrainMs);
        {[], {ok, Identity}} -> halley_edge_process:terminate(Identity);
        {[], gone} -> ok
    end.

%% Is it gone? If not: how long is it late?
-spec is_over(leaving()) -> true | {false, LateMs :: integer()}.
is_over(#leaving{known = {ok, Identity}, until_ms = Until}) ->
    not halley_edge_process:is_alive(Identity) orelse {false, late(Until)};
is_over(#leaving{known = gone, links = Links, until_ms = Until}) ->
    not lists:any(fun is_process_alive/1, Links) orelse {false, late(Until)}.

late(undefined) -> 0;
late(Until) -> now_ms() - Until.

-spec kill(leaving()) -> ok.
kill(#leaving{known = {ok, Identity}}) -> halley_edge_process:kill(Identity);
kill(#leaving{known = gone, links = Links}) -> lists:foreach(fun halley_edge_link:stop/1, Links).

%% --- names of sockets --------------------------------------------------------------------------

%% A brain that dials the new edge must not reach the old one, whose links would end by that (1.2).
set_aside(Dir, Workers, Leaving) ->
    ok = each(fun(Path) ->
        _ = file:delete(halley_edge_dial:second_name(Path)),
        _ = file:rename(Path, old_name(Path)),
        ok
    end, Dir, Workers),
    Leaving.

%% An edge that was to be replaced, and wasn't, gets its names back. To be called before the socket
%% directory is searched for an edge.
-spec take_back(file:filename_all()) -> ok.
take_back(Dir) ->
    lists:foreach(fun(Old) ->
        Path = filename:rootname(Old),
        case file:read_link_info(Path) of
            {error, enoent} -> file:rename(Old, Path);
            _ -> file:delete(Old)
        end
    end, filelib:wildcard(filename:join(unicode:characters_to_list(Dir),
                                        "{worker-*,trunk}.sock.old"))).

old_name(Path) -> <<Path/binary, ".old">>.

%% Where there is no socket the new edge doesn't stand, or has no trunk.
keep(Dir, Workers) ->
    Trunk = halley_edge_dial:trunk_path(Dir),
    each(fun(Path) ->
        case file:make_link(Path, halley_edge_dial:second_name(Path)) of
            Linked when Linked =:= ok; Linked =:= {error, enoent}, Path =:= Trunk ->
                _ = file:delete(old_name(Path)),
                ok;
            {error, Reason} ->
                ?LOG_WARNING("~ts cannot get a second name: ~ts", [Path, file:format_error(Reason)])
        end
    end, Dir, Workers).

%% The old edge is gone: one name is enough.
-spec forget(file:filename_all(), Workers :: pos_integer()) -> ok.
forget(Dir, Workers) ->
    each(fun(Path) ->
        _ = halley_edge_dial:restore(Path),
        _ = file:delete(halley_edge_dial:second_name(Path)),
        ok
    end, Dir, Workers).

%% The trunk's, where there is one, as those of the workers.
each(Do, Dir, Workers) ->
    Trunk = halley_edge_dial:trunk_path(Dir),
    Trunks = [Trunk || filelib:wildcard(unicode:characters_to_list(<<Trunk/binary, "*">>)) =/= []],
    lists:foreach(fun(Path) -> ok = Do(Path) end,
                  Trunks ++ [halley_edge_dial:path(Dir, W) || W <- lists:seq(0, Workers - 1)]).

now_ms() ->
    erlang:monotonic_time(millisecond).
