%% Every bound and time of Halley that can matter to its operator, in one table.
%%
%% A row is {Name, Default, Unit, Scope, Help}. The name ends in what it bounds. Scope is
%%   config   set by the key `limits.<name>', used in the brain;
%%   edge     the same, and sent to every edge in the link's handshake (protocol/link.md 5);
%%   fixed    part of a protocol or of a data layout: it can be read here, not set.
%% The configuration schema, the handshake and the reference page are made from this table. The rows
%% of applications above the brain are in their parts (`halley_part'), and come last.
-module(halley_limits).

-export([table/0, get/1, part/2, of_users/1, set/1, for_edge/0, former_names/0]).
-compile({no_auto_import, [get/1]}).
-export_type([name/0, row/0, scope/0, whose/0]).

%% Limits of the edge that had another name. An edge ignores a name that it doesn't know
%% (protocol/link.md 3.3), so one of a build before would take its default: it is sent both.
-define(FORMER_NAMES, [{newcomers_percent_max, pending_connections_percent_max}]).

-type name() :: atom().
-type scope() :: config | edge | fixed.
-type row() :: {name(), Default :: non_neg_integer(), Unit :: bytes | ms | count | percent, scope(),
                Help :: string()}.

%% Who asks for a part of what all share.
-type whose() :: users | servers.

-spec table() -> [row()].
table() ->
    of_shares() ++ of_ids_and_follows() ++ of_brain() ++ of_the_past() ++ of_presence()
        ++ of_admission() ++ of_link_and_edge()
        ++ lists:append([Part:limits() || {_, Part} <- halley_part:all()]).

%% Of what all share (docs/internals/shares.md).
of_shares() ->
    [{user_share_percent_max, 5, percent, edge,
      "share that one user may have of the room for kept values, beyond it 409, of "
      "requests_in_flight_max, beyond it 429, and of what traces remember"},
     {servers_share_percent, 10, percent, edge,
      "share of kept values' room, of ids_max, of the queues of events, of "
      "requests_in_flight_max and of connections that is the servers' alone; users are refused "
      "before it"}].

of_ids_and_follows() ->
    [{id_bytes_max, 255, bytes, fixed, "longest id of a user, subject or event"},
     {ids_max, 16777216, count, config, "users and subjects together"},
     {ids_for_sessions_percent, 10, percent, config,
      "share of ids_max that is kept for users that connect; follows that name new ids get 507 "
      "before it"},
     {new_ids_per_user_max, 10000, count, config,
      "new ids that the follow requests of one user may name in new_ids_per_user_ms, and at once; "
      "beyond it 429"},
     {new_ids_per_user_ms, 3600000, ms, config, "see new_ids_per_user_max"},
     {follows_queue_max, 1000000, count, config,
      "follows that wait to be written; beyond it follows are refused"},
     {follows_per_user_max, 100000, count, config, "subjects that one user may follow"},
     {id_quarantine_ms, 60000, ms, config,
      "how long the number of an id that nothing refers to rests before another id gets it"}].

of_brain() ->
    [{sessions_per_user_max, 1000, count, config,
      "sessions of one user at the same time; beyond it sessions.over_limit decides"},
     {subscriptions_per_session_max, 100, count, edge,
      "subjects that one session may be subscribed to; beyond it 400"},
     {subscriptions_max, 16777216, count, config,
      "subscriptions of all sessions together; beyond it 503"},
     {event_data_bytes_max, 65536, bytes, config, "largest data of an event"},
     {event_data_depth_max, 256, count, config,
      "arrays and objects in one another in an event's data; beyond it 400"},
     {private_users_max, 1000, count, fixed, "users that one private event is for"},
     {publish_batch_max, 512, count, config, "events that a shard takes in one go"},
     {publish_ms_max, 5000, ms, config, "how long a publisher waits for its shard"},
     {shard_queue_events_max, 10000, count, config,
      "events that wait for one shard; beyond it publishing is refused"},
     {links_max, 1023, count, fixed, "workers that can be linked at the same time"},
     {deliver_conns_max, 8192, count, fixed, "connections in one DELIVER frame"},
     {frame_bytes_max, 262144, bytes, fixed, "largest frame of the link"},
     {link_window_bytes, 8388608, bytes, config,
      "bytes that may be on the way from the edge to the brain"},
     {link_queue_bytes_max, 67108864, bytes, edge,
      "bytes that may wait for one link; events beyond it come from the history later"},
     {link_queue_refuse_bytes, 33554432, bytes, config,
      "with this much waiting for every link, publishing is refused"},
     {history_segment_bytes, 67108864, bytes, config, "a segment of the history log"},
     {history_queue_bytes_max, 67108864, bytes, config,
      "events that wait to be written to the history; beyond it publishing is refused"},
     {history_commit_bytes_max, 4194304, bytes, config, "events that are written in one go"},
     {history_cache_bytes_max, 67108864, bytes, config,
      "blocks of the history that are kept in memory for replays"},
     {replays_max, 256, count, config, "replays at the same time on one link"},
     {replay_events_max, 256, count, config, "events of a replay that are sent in one go"},
     {replay_bytes_max, 131072, bytes, config, "bytes of a replay that are sent in one go"},
     {replay_queue_bytes_max, 1048576, bytes, config,
      "with this much waiting for a link, its replays pause"},
     {catchup_events_max, 512, count, config,
      "events that a link gets in one go after its queue was full"},
     {group_followers_min, 10000, count, config,
      "with so many followers a subject becomes a group, whose members the workers hold"},
     {group_followers_low, 8000, count, config, "with fewer followers a group ends"},
     {groups_max, 256, count, config,
      "groups at the same time; for other subjects the followers are looked up"},
     {group_fill_per_s_max, 200000, count, config,
      "followers that are looked up in a second to fill a new group"},
     {group_marks_max, 20000, count, config,
      "changes of groups that wait to be sent to the workers; beyond it sessions open slower"},
     {closings_max, 100000, count, config, "ended sessions that are remembered for traces"},
     {openings_max, 20000, count, config,
      "beginnings of sessions, and changes of their subscriptions, that are remembered for traces"},
     {requests_per_s_per_key_max, 10000, count, config,
      "requests that come with one server key in a second, and at once; beyond it 429"},
     {bytes_per_user_per_s_max, 1048576, bytes, config,
      "events and follows that one user may send in a second; beyond it 429"},
     {revocations_bytes_max, 131072, bytes, edge,
      "users whose tokens are revoked, all together, 163840 at most: each counts its id and 22 "
      "bytes more; beyond it 507"},
     {server_keys_max, 1000, count, fixed, "server keys"},
     {token_keys_bytes_max, 262144, bytes, fixed, "largest file of keys for clients' tokens"}].

of_the_past() ->
    [{event_subjects_max, 16, count, fixed, "subjects that one event is about"},
     {forgotten_users_max, 1000000, count, config,
      "deleted users of whom the history still has traces; beyond it deleting another gets 507"},
     {status_readers_max, 256, count, edge,
      "readers of /v1/status that wait for the next sample, and as many of its stream; beyond it "
      "503"},
     {history_per_user_percent_max, 25, percent, config,
      "share of history.bytes that one user's events and follows may fill in a retention, and at "
      "once; beyond it 429"},
     {kept_bytes_max, 16777216, bytes, config,
      "values that are kept beyond the retention, all subjects together, and never more than an "
      "eighth of history.bytes; beyond it 507"},
     {last_events_max, 100, count, edge,
      "newest events about each of its subjects that a session may begin with; beyond it 400"},
     {past_events_max, 1000, count, config,
      "events in one page of a subject's past"},
     {past_bytes_max, 262144, bytes, config,
      "bytes of events in one such page; it has one at least"},
     {past_pages_max, 2, count, config,
      "such pages that are read and sent at the same time on one link; others wait"}].

of_presence() ->
    [{presence_listed_max, 10000, count, config,
      "followers, or subscribed sessions, of a subject whose presence names users; beyond it they "
      "are counted alone"},
     {presence_users_max, 200, count, config,
      "users in a subject whose joins and leaves are sent by name; beyond it their number"},
     {presence_counts_ms, 2000, ms, config, "shortest time between two such numbers"},
     {session_state_bytes_max, 1024, bytes, edge,
      "largest state of a session, 4096 at most; each 253 bytes of it count as a subscription"},
     {presence_states_ms, 1000, ms, config, "shortest time between two states of a user"}].

%% How streams and polls become sessions (protocol/http.md 13).
of_admission() ->
    [{stream_open_ms_max, 10000, ms, edge, "how long a stream waits for its session before 503"},
     {admission_wait_ms_max, 5000, ms, edge,
      "how long a stream may wait to be admitted; beyond it the client gets a time to come back"},
     {brain_away_ms_max, 15000, ms, edge,
      "how long a stream waits for a brain that is away; beyond it the same"},
     {opens_in_flight_max, 1024, count, edge,
      "streams that the brain opens at the same time, each worker an equal part, 16 at least; more "
      "of them wait to be admitted"}].

of_link_and_edge() ->
    [{heartbeat_ms, 1000, ms, fixed, "time between two PING of a link"},
     {silence_ms, 10000, ms, fixed, "a link that is silent for longer is closed"},
     {handshake_ms_max, 5000, ms, fixed, "time for a link's handshake"},
     {redial_ms_max, 1000, ms, fixed,
      "longest pause before a worker whose links don't last is dialled again"},
     {request_line_bytes_max, 8192, bytes, edge, "longest request line; beyond it 414"},
     {header_bytes_max, 16384, bytes, edge, "all headers of a request; beyond it 431"},
     {headers_max, 64, count, edge, "headers of a request; beyond it 431"},
     {request_ms_max, 30000, ms, edge,
      "time for a request's head to arrive, and for an idle keep-alive connection to stay"},
     {first_byte_ms_max, 10000, ms, edge,
      "how long a connection may stay without having sent anything"},
     {pace_bytes_per_s_min, 1000, bytes, edge,
      "a request's body that comes slower gets 408; a client that reads slower is closed"},
     {pace_grace_ms, 10000, ms, edge, "how late a request's body may be by that pace"},
     {tls_handshake_ms_max, 10000, ms, edge, "time for a TLS handshake"},
     {proxy_header_bytes_max, 1024, bytes, edge,
      "longest header of the PROXY protocol, 16384 at most; beyond it the connection is closed"},
     {proxy_header_ms_max, 5000, ms, edge, "time for that header to arrive"},
     {trunk_window_bytes, 16777216, bytes, edge,
      "unprocessed bytes of a trunk, all workers together, 524288 at least; a worker that leaves "
      "half of it unprocessed for too long loses its place until it has caught up"},
     {response_ms_max, 30000, ms, edge, "time for the brain's answer before 504"},
     {request_window_bytes, 262144, bytes, edge,
      "how much of a request's body is on its way to the brain"},
     {requests_in_flight_max, 4096, count, edge,
      "requests of one worker that wait for the brain; beyond it 503"},
     {connections_per_address_max, 10000, count, edge,
      "connections of one address, an IPv6 address counting as its /64; beyond it 429"},
     {pending_connections_percent_max, 50, percent, edge,
      "share of edge.connections_max that may be pending, without a whole request yet; beyond it "
      "the oldest of these are closed"},
     {memory_free_streams_percent_min, 5, percent, edge,
      "with less of the memory left, of machine or control group, no stream is opened: 503"},
     {memory_free_connections_percent_min, 3, percent, edge,
      "with less of it left, no connection is taken at public.listen: 503"},
     {requests_per_address_per_s_max, 1000, count, edge,
      "requests of one address in a second at public.listen; beyond it 429"},
     {requests_per_user_per_s_max, 1000, count, edge,
      "requests of one user in a second at public.listen, and lines of them; beyond it 429"},
     {requests_burst_ms, 10000, ms, edge,
      "an address or a user may send as many requests at once as its rate allows in this time"},
     {outbox_bytes_max, 1048576, bytes, edge,
      "bytes that may wait for one connection; beyond it public.slow_consumer decides"},
     {outbox_ms_max, 30000, ms, edge,
      "how long a client may read nothing while something waits for it; beyond it the same"},
     {hold_bytes_max, 1048576, bytes, edge,
      "live events that are held for one session while missed events are replayed"},
     {poll_ms_max, 60000, ms, edge, "longest timeout of a long-poll"},
     {outboxes_bytes_max, 268435456, bytes, edge,
      "all outboxes of a worker together; beyond it the connections with the longest are closed"},
     {message_bytes_max, 65536, bytes, edge, "largest WebSocket message from a client"},
     {operations_waiting_max, 16, count, edge,
      "messages of one WebSocket that wait for their turn; more are refused"},
     {token_bytes_max, 8192, bytes, edge, "longest token of a client"}].

%% The value in force.
-spec get(name()) -> non_neg_integer().
get(Name) ->
    case persistent_term:get(?MODULE, #{}) of
        #{Name := Value} -> Value;
        #{} -> default(Name)
    end.

default(Name) ->
    {Name, Default, _, _, _} = lists:keyfind(Name, 1, table()),
    Default.

%% How much of a bound that all share these may have together: servers all of it.
-spec part(whose(), name()) -> non_neg_integer().
part(servers, Name) -> get(Name);
part(users, Name) -> of_users(get(Name)).

%% The same of so much, which is a part of several bounds.
-spec of_users(Max :: non_neg_integer()) -> non_neg_integer().
of_users(Max) -> Max - Max * min(100, get(servers_share_percent)) div 100.

%% Puts values in force, the defaults for what isn't named. Done once, before anything reads them.
-spec set(#{name() => non_neg_integer()}) -> ok.
set(Values) ->
    Defaults = maps:from_list([{Name, Default} || {Name, Default, _, _, _} <- table()]),
    persistent_term:put(?MODULE, maps:merge(Defaults, Values)).

%% The settings for HELLO_BRAIN: names and values as text.
-spec for_edge() -> [{binary(), binary()}].
for_edge() ->
    Limits = [{atom_to_binary(Name), integer_to_binary(get(Name))}
              || {Name, _, _, edge, _} <- table()],
    Choices = application:get_env(halley, edge_settings, []),
    Choices ++ Limits ++ by_former_names().

by_former_names() ->
    [{atom_to_binary(Former), integer_to_binary(get(Name))} || {Former, Name} <- ?FORMER_NAMES].

%% Limits that have been renamed: the former name and the one of now.
-spec former_names() -> [{Former :: atom(), name()}].
former_names() -> ?FORMER_NAMES.
