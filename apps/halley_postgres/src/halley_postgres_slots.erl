%% Whether the server has room for Halley's stream: a replication slot of its own, another one while
%% a table is copied anew, and a WAL sender. `./halley postgres check' calls it, before a stream
%% finds it out; a running stream has all it needs except for the copy.
-module(halley_postgres_slots).

-export([look/2, is_streaming/2]).

-import(halley_postgres_connection, [rows/3]).
-import(halley_postgres_finding, [by_hand/1]).

-type finding() :: halley_postgres_finding:finding().

-spec look(epgsql:connection(), halley_postgres_config:settings()) -> [finding()].
look(C, #{slot := Slot, follows := Tables}) ->
    %% Slots of copies are gone with these.
    [{SlotsMax, SendersMax, Slots, Senders, Unused}] = rows(C,
        "SELECT current_setting('max_replication_slots')::int4, "
        "current_setting('max_wal_senders')::int4, count(*)::int4, "
        "(SELECT count(*)::int4 FROM pg_stat_replication), "
        "coalesce(string_agg(slot_name, ', ' ORDER BY slot_name) "
        "FILTER (WHERE active_pid IS NULL AND slot_name <> $1), '') "
        "FROM pg_replication_slots WHERE NOT (temporary AND slot_name LIKE 'halley\\_copy\\_%')",
        [Slot]),
    Own = own(C, Slot),
    slots(length([own || Own =:= none]) + length([copy || Tables =/= []]), Slots, SlotsMax, Unused)
        ++ [larger("max_wal_senders", SendersMax, Senders, 1, "")
            || Own =:= none orelse not map_get(is_active, Own), Senders >= SendersMax]
        ++ [by_hand(["the slot ", Slot, Why, ": set postgres.slot"])
            || Own =/= none, #{is_other := Why} <- [Own], Why =/= none].

slots(Needed, Taken, Max, Unused) ->
    [larger("max_replication_slots", Max, Taken, Needed,
            [["; nobody streams from ", Unused] || Unused =/= <<>>])
     || Needed > 0, Taken + Needed > Max].

%% To drop what nobody uses would do as well, and what that is its owner knows.
larger(Setting, Max, Taken, Needed, More) ->
    #{what => [Setting, " is ", integer_to_list(Max), ", of which ", integer_to_list(Taken),
               " are taken, and Halley needs ", integer_to_list(Needed), " more", More],
      sql => ["ALTER SYSTEM SET ", Setting, " = ", integer_to_list(Taken + Needed)],
      how => restart}.

own(C, Slot) ->
    case rows(C, "SELECT active_pid IS NOT NULL, coalesce(plugin::text, '') = 'pgoutput', "
                 "coalesce(database::text, '') = current_database() "
                 "FROM pg_replication_slots WHERE slot_name = $1", [Slot]) of
        [] -> none;
        [{IsActive, IsPgoutput, IsHere}] ->
            #{is_active => IsActive, is_other => if
                not IsPgoutput -> " isn't one of pgoutput";
                not IsHere -> " is for another database";
                true -> none
            end}
    end.

%% Does somebody stream from Halley's slot?
-spec is_streaming(epgsql:connection(), halley_postgres_config:settings()) -> boolean().
is_streaming(C, #{slot := Slot}) ->
    case own(C, Slot) of
        none -> false;
        #{is_active := IsActive} -> IsActive
    end.
