%% Subjects of Halley's own: each begins with a byte that no id has, so no door can name one.
%% Whoever publishes, follows, subscribes or reads says an id, and `halley_id' refuses this byte.
%%
%% An event about one is an event as any other: it has its place in its shard's order and in the
%% history, and goes to who is subscribed. It isn't counted among the events of publishers, is in no
%% list of busy subjects, and no hook tells of it.
%%
%% `status/0' is what the console follows (`halley_status_streams').
-module(halley_own).

-export([status/0, is_own/1, is_id/1]).

%% Presence has 1 (`halley_presence_keys'), states have 2 (`halley_session_states').
-define(OWN, 3).
%% Below it are control characters.
-define(FIRST_OF_IDS, 16#20).

-spec status() -> <<_:16, _:_*8>>.
status() -> <<?OWN, "status">>.

-spec is_own(binary()) -> boolean().
is_own(<<?OWN, _/binary>>) -> true;
is_own(_) -> false.

%% Whether what a session is subscribed to is an id, and nothing that stands for something else.
-spec is_id(binary()) -> boolean().
is_id(<<First, _/binary>>) -> First >= ?FIRST_OF_IDS.
