%% Checks of `limits.*' that `halley_limits' and the schema don't make for each alone: bounds of the
%% link's protocol, limits that contradict each other, and those that give one user more than its
%% share of what all share (docs/internals/shares.md).
-module(halley_config_limits).

-export([wrong/1, notices/1]).

-define(LINK_WINDOW_BYTES_MIN, 524288).
-define(SESSION_STATE_BYTES_MAX, 4096).
%% KEYS of 229,376 bytes (link.md 12.2) has 65,536 of keys.
-define(REVOCATIONS_BYTES_MAX, 163840).
%% A DELIVER frame of 262,144 bytes has 8,192 connections and an event; ids take some of it.
-define(EVENT_DATA_BYTES_MAX, 180224).
%% link.md 11.2
-define(GROUPS_MAX, 1024).

%% A sentence for each.
-spec wrong(#{atom() => term()}) -> [string()].
wrong(Limits) ->
    [lists:flatten(io_lib:format(Format, Values))
     || {false, Format, Values} <- together(Limits) ++ windows(Limits) ++ percents(Limits)].

%% What is accepted, but of note.
-spec notices(#{atom() => term()}) -> [string()].
notices(#{sessions_per_user_max := Sessions, subscriptions_per_session_max := Each,
          subscriptions_max := Max, user_share_percent_max := Percent}) ->
    Share = Max * Percent div 100,
    [lists:flatten(io_lib:format(
        "limits.subscriptions_max: one user may have ~b of its ~b, as limits.sessions_per_user_max "
        "(~b) times limits.subscriptions_per_session_max (~b) allow, which is more than the ~b of "
        "limits.user_share_percent_max (~b); raise the first, or lower one of the other two, so "
        "that no user takes what others need",
        [min(Max, Sessions * Each), Max, Sessions, Each, Share, Percent]))
     || Sessions * Each > Share].

together(#{link_queue_bytes_max := Queue, link_queue_refuse_bytes := Refuse,
           event_data_bytes_max := Data, groups_max := Groups,
           session_state_bytes_max := State,
           revocations_bytes_max := Revocations}) ->
    [{Refuse < Queue,
      "limits.link_queue_refuse_bytes: must be less than limits.link_queue_bytes_max; "
      "it is ~b of ~b", [Refuse, Queue]},
     {Data =< ?EVENT_DATA_BYTES_MAX,
      "limits.event_data_bytes_max: must be ~b at most, so that an event fits a frame of the "
      "link; it is ~b", [?EVENT_DATA_BYTES_MAX, Data]},
     {State =< ?SESSION_STATE_BYTES_MAX,
      "limits.session_state_bytes_max: must be ~b at most, as many as an edge takes; it is ~b",
      [?SESSION_STATE_BYTES_MAX, State]},
     {Revocations =< ?REVOCATIONS_BYTES_MAX,
      "limits.revocations_bytes_max: must be ~b at most, as an edge gets them in one frame; "
      "it is ~b", [?REVOCATIONS_BYTES_MAX, Revocations]},
     {Groups =< ?GROUPS_MAX,
      "limits.groups_max: must be ~b at most, as many as a worker takes; it is ~b",
      [?GROUPS_MAX, Groups]}].

windows(Limits) ->
    [{Window >= ?LINK_WINDOW_BYTES_MIN, "limits.~ts: must be ~b at least; it is ~b",
      [Name, ?LINK_WINDOW_BYTES_MIN, Window]}
     || Name <- [link_window_bytes, trunk_window_bytes], Window <- [maps:get(Name, Limits)]].

percents(Limits) ->
    [{Percent =< 100, "limits.~ts: must be 100 at most; it is ~b", [Name, Percent]}
     || {Name, _, percent, _, _} <- halley_limits:table(), Percent <- [maps:get(Name, Limits)]].
