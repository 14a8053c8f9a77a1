%% GET /v1/behind : slow sessions: those whose clients don't take what waits for them, with most
%% waiting first, ?BEHIND_LISTED_MAX at most.
%%
%% The workers know it. They are called in parallel, each within ?INSPECT_MS_MAX, by the function
%% that the environment names (`halley', `behind'), called with a slot and a time in milliseconds.
%% `unknown' counts the workers that didn't answer: their sessions aren't in the list.
-module(halley_api_behind_h).
-behaviour(halley_api).

-export([handle/3]).

-include("halley_api_limits.hrl").

%% A visitor's session has this in place of a user's number (link.md 14.2).
-define(NOBODY, 16#ffffffff).

-spec handle(get, [], halley_api:request()) -> halley_api:response().
handle(get, [], _) ->
    Links = [{Slot, Info} || #{slot := Slot, info := Info} <- halley_links:list()],
    Askers = [{Info, spawn_monitor(fun() -> exit({said, ask(Slot)}) end)} || {Slot, Info} <- Links],
    Answers = [{Info, said(Asker)} || {Info, Asker} <- Askers],
    Known = [{Info, Slow} || {Info, {ok, Slow}} <- Answers],
    Rows = [Row || {Info, Slow} <- Known, One <- Slow, Row <- row(Info, One)],
    Sorted = lists:sort(fun(#{outbox_bytes := A}, #{outbox_bytes := B}) -> A >= B end, Rows),
    halley_api_reply:json(
        {[{<<"behind">>, [json(Row) || Row <- lists:sublist(Sorted, ?BEHIND_LISTED_MAX)]},
          {<<"unknown">>, length(Answers) - length(Known)}]}).

ask(Slot) ->
    halley_inspection:behind(Slot, ?INSPECT_MS_MAX).

said({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {said, Said}} -> Said;
        {'DOWN', Monitor, process, Pid, _} -> unknown
    end.

%% A worker's word about a user may be a lie, or late.
row(Info, #{user_number := ?NOBODY} = Slow) ->
    [Slow#{user => null, info => Info}];
row(Info, #{user_number := Number} = Slow) ->
    try [Slow#{user => halley_ids:name(Number), info => Info}]
    catch error:_ -> []
    end.

json(#{user := User, info := Info, transport := Transport, outbox_bytes := Bytes,
       outbox_pieces := Pieces, outbox_ms := Ms}) ->
    {[{<<"user">>, User}, {<<"worker">>, maps:get(worker, Info, 0)},
      {<<"edge">>, maps:get(pid, Info, 0)}, {<<"transport">>, atom_to_binary(Transport)},
      {<<"outbox_bytes">>, Bytes}, {<<"outbox_events">>, Pieces}, {<<"outbox_ms">>, Ms}]}.
