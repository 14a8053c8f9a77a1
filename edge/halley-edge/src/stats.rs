//! The counters of a worker. The names travel in HELLO_EDGE, the values in STATS, in the same order
//! (3.4).

use halley_link::{Item, Metric, Value};

macro_rules! stats {
    ($($variant:ident $kind:ident $name:literal $help:literal;)*) => {
        /// Index of a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Stat { $(#[doc = $help] $variant),* }

        /// The table: name, kind (1 counter, 2 gauge), help.
        const TABLE: &[(&str, u8, &str)] =
            &[$((concat!("halley_edge_", $name), kind!($kind), $help)),*];
    };
}

macro_rules! kind {
    (counter) => {
        1
    };
    (gauge) => {
        2
    };
}

stats! {
    Connections gauge "connections" "Open client connections.";
    Sessions gauge "sessions" "Streams that are open, with a session.";
    Waiting gauge "waiting" "Streams that wait to be admitted.";
    Busy counter "busy_total" "Streams and polls sent away for some seconds: admission.rate.";
    BrainWaits counter "brain_away_waits_total"
        "Streams and polls that came while the brain was away or syncing, and waited for it.";
    BrainAway counter "brain_away_total"
        "Streams and polls sent away for some seconds: brain_away_ms_max.";
    Left gauge "left" "Streams whose clients left while the brain opened their session.";
    Opening gauge "opening" "Streams that wait for the brain to open their session.";
    Accepted counter "accepted_total" "Connections accepted.";
    Full counter "refused_connections_total" "Connections refused: edge.connections_max.";
    AddressFull counter "refused_by_address_total"
        "Connections refused: connections_per_address_max.";
    MemoryLow counter "memory_low_total"
        "Connections, streams and polls refused: memory_free_streams_percent_min and the like.";
    MemoryAvailable gauge "memory_available_bytes"
        "Memory that is left, of the machine or of the tightest control group.";
    PendingConnections gauge "pending_connections"
        "Connections that have not sent a whole request yet.";
    PendingDropped counter "pending_connections_dropped_total"
        "Pending connections closed to make room: pending_connections_percent_max.";
    AddressAsks counter "rate_by_address_total"
        "Requests refused: requests_per_address_per_s_max.";
    UserAsks counter "rate_by_user_total" "Requests refused: requests_per_user_per_s_max.";
    ProxyErrors counter "proxy_errors_total"
        "Connections closed: no header of the PROXY protocol, or none in time.";
    Requests counter "requests_total" "HTTP requests read.";
    PassedOn counter "requests_passed_on_total" "Requests passed on to the brain.";
    RequestsInFlight gauge "requests_in_flight" "Requests that wait for the brain.";
    UserInFlight counter "in_flight_by_user_total"
        "Requests refused: user_share_percent_max of requests_in_flight_max.";
    BadRequests counter "bad_requests_total" "Requests answered with 4xx by the edge itself.";
    Unavailable counter "unavailable_total" "Requests answered with 503 or 504 by the edge itself.";
    Timeouts counter "timeouts_total" "Connections closed because a deadline passed.";
    SlowBodies counter "slow_bodies_total" "Requests refused: pace_bytes_per_s_min of a body.";
    FormBytes gauge "form_bytes" "Bytes of the forms that wait for their rest.";
    FormsFull counter "forms_refused_total"
        "Forms refused: those that wait have forms_bytes_max of a worker.";
    SlowReaders counter "slow_readers_total"
        "Connections closed: pace_bytes_per_s_min of an answer.";
    OriginsRefused counter "origins_refused_total" "Requests refused: cors.origins.";
    Tokens counter "tokens_total" "Tokens accepted.";
    TokensMissing counter "tokens_missing_total"
        "Requests with no token, or two, where one is needed.";
    TokensMalformed counter "tokens_malformed_total" "Tokens refused: they can't be read.";
    TokensUnsigned counter "tokens_unsigned_total"
        "Tokens refused: their algorithm, key or signature isn't valid.";
    TokensOutOfTime counter "tokens_out_of_time_total"
        "Tokens refused: they have expired, or aren't valid yet.";
    TokensOfOthers counter "tokens_of_others_total"
        "Tokens refused: wrong iss, aud, sub or halley, or another user than was named.";
    TokensRevoked counter "tokens_revoked_total"
        "Tokens refused: they are from before their user's tokens were revoked.";
    TokensNoKeys counter "tokens_no_keys_total" "Tokens refused: there is no key.";
    TokensRenewed counter "tokens_renewed_total"
        "Tokens that replaced a WebSocket's earlier one.";
    Expired counter "sessions_expired_total" "Streams and polls ended: their token had expired.";
    SessionsRevoked counter "sessions_revoked_total"
        "Streams and polls ended: their user's tokens were revoked.";
    PresenceNarrowed counter "presence_narrowed_total"
        "Sessions with presence=* that get presence only of users whom their token lets them see.";
    SubscriptionsEnded counter "subscriptions_ended_total"
        "Subscriptions of sessions ended: by a server, or by a token that doesn't allow them.";
    Streams counter "streams_total" "Streams opened.";
    Delivered counter "delivered_total" "Events put into outboxes.";
    WrittenIn1 counter "written_in_1_ms_total"
        "Live events written in less than 1 ms after their time.";
    WrittenIn2 counter "written_in_2_ms_total" "Live events written 1 to 2 ms after their time.";
    WrittenIn3 counter "written_in_3_ms_total" "Live events written 2 to 3 ms after their time.";
    WrittenIn5 counter "written_in_5_ms_total" "Live events written 3 to 5 ms after their time.";
    WrittenIn10 counter "written_in_10_ms_total" "Live events written 5 to 10 ms after their time.";
    WrittenIn20 counter "written_in_20_ms_total"
        "Live events written 10 to 20 ms after their time.";
    WrittenIn50 counter "written_in_50_ms_total"
        "Live events written 20 to 50 ms after their time.";
    WrittenIn100 counter "written_in_100_ms_total"
        "Live events written 50 to 100 ms after their time.";
    WrittenIn200 counter "written_in_200_ms_total"
        "Live events written 100 to 200 ms after their time.";
    WrittenIn500 counter "written_in_500_ms_total"
        "Live events written 200 to 500 ms after their time.";
    WrittenIn1000 counter "written_in_1000_ms_total"
        "Live events written 500 to 1000 ms after their time.";
    WrittenLater counter "written_later_total" "Live events written later than that.";
    Held gauge "held_sessions" "Sessions that wait for the end of their replay.";
    HeldBytes gauge "held_bytes" "Bytes of the live events held for these sessions.";
    Replayed counter "replayed_total" "Events of replays put into outboxes and answers.";
    Polls counter "polls_total" "Polls answered.";
    Groups gauge "groups" "Groups that have members here.";
    GroupMembers gauge "group_members" "Members of all groups.";
    GroupEvents counter "group_events_total" "Events of groups read from the link.";
    GroupDelivered counter "group_delivered_total"
        "Events put into outboxes and answers of members.";
    InFlight gauge "group_events_in_flight" "Events of groups that not all members have yet.";
    PresenceTold counter "presence_told_total" "Joins, leaves, counts and states of presence sent.";
    Stale counter "stale_deliveries_total" "Events for connections that were gone.";
    Writes counter "writes_total" "Writes to client sockets.";
    Written counter "written_bytes_total" "Bytes written to client sockets.";
    Blocked counter "blocked_writes_total" "Writes to a socket that was full.";
    SlowConsumers counter "slow_consumers_total"
        "Connections closed: outbox_bytes_max, outbox_ms_max or hold_bytes_max.";
    EventsDropped counter "events_dropped_total" "Waiting events that drop_oldest dropped.";
    EventsConflated counter "events_conflated_total"
        "Waiting events that a newer one replaced: latest_per_subject.";
    OutboxFull counter "outboxes_full_total" "Connections closed: outboxes_bytes_max.";
    OutboxBytes gauge "outbox_bytes" "Bytes waiting in outboxes.";
    Heartbeats counter "heartbeats_total" "Heartbeats sent on silent streams.";
    Vanished counter "vanished_total" "Connections that ended in an error or didn't answer.";
    Messages counter "messages_total" "WebSocket messages received.";
    Operations counter "operations_total" "Operations of WebSockets passed on to the brain.";
    OperationsRefused counter "operations_refused_total"
        "Messages of WebSockets answered with an error by the edge itself.";
    ProtocolErrors counter "websocket_errors_total" "WebSocket connections failed by RFC 6455.";
    DeflateAgreed counter "deflate_websockets_total"
        "WebSockets that agreed on permessage-deflate.";
    DeflateDeclined counter "deflate_declined_total"
        "WebSockets whose offers of permessage-deflate were all declined.";
    Deflated counter "deflated_events_total"
        "Events compressed for WebSockets, each once per worker.";
    DeflatedFrom counter "deflated_from_bytes_total" "Bytes of these before.";
    DeflatedTo counter "deflated_to_bytes_total" "Bytes of these after.";
    Inflated counter "inflated_messages_total" "Compressed messages of WebSockets received.";
    InflatedFrom counter "inflated_from_bytes_total" "Bytes of these before.";
    InflatedTo counter "inflated_to_bytes_total" "Bytes of these after.";
    TlsConnections gauge "tls_connections" "Connections that speak TLS.";
    TlsHandshakes counter "tls_handshakes_total" "TLS handshakes that succeeded.";
    TlsResumed counter "tls_resumed_total" "Of these, sessions that were resumed by a ticket.";
    TlsLate counter "tls_handshakes_late_total"
        "Handshakes ended: tls_handshake_ms_max, or half of it before their first turn.";
    TlsIncompatible counter "tls_incompatible_total"
        "Handshakes with no version, cipher or protocol (ALPN) in common.";
    TlsClientRefused counter "tls_clients_refused_total"
        "Handshakes without the certificate that api.tls.client_ca asks for.";
    TlsClientVersion1 counter "tls_clients_version_1_total"
        "Of these, with a certificate of version 1 of X.509; it must be of version 3.";
    TlsAlerts counter "tls_alerts_total"
        "TLS ended by a client's alert, such as one that doesn't trust the certificate.";
    TlsBroken counter "tls_broken_total" "TLS ended by bytes that break it.";
    HttpsExpected counter "https_expected_total" "Plain HTTP where TLS is spoken.";
    TlsUnexpected counter "tls_unexpected_total" "TLS where plain HTTP is spoken.";
    CertificatesRead counter "certificates_read_total" "Changed certificates put in force.";
    CertificatesUnusable counter "certificates_unusable_total"
        "Changed certificates that can't be used.";
    LinkQueueBytes gauge "link_queue_bytes" "Bytes waiting for the link.";
    LinkHandshakes counter "link_handshakes_total" "Handshakes with a brain.";
    LinkErrors counter "link_errors_total" "Links closed because of a broken clause or silence.";
    RingBytes gauge "trunk_ring_bytes" "Bytes that came by the trunk and wait for a worker.";
    LeftBehind counter "trunk_left_behind_total"
        "Times that a worker lost its place on the trunk, as it left what came or stood still.";
}

/// The values of one worker.
pub struct Stats([u64; TABLE.len()]);

impl Stats {
    /// All zero.
    pub fn new() -> Self {
        Stats([0; TABLE.len()])
    }

    /// Counts one.
    pub fn count(&mut self, stat: Stat) {
        self.add(stat, 1);
    }

    /// Adds `n`.
    pub fn add(&mut self, stat: Stat, n: u64) {
        self.0[stat as usize] = self.0[stat as usize].wrapping_add(n);
    }

    /// Counts an error that the edge answers by itself.
    pub fn count_error(&mut self, status: u16) {
        self.count(match status {
            408 => Stat::Timeouts,
            503 | 504 => Stat::Unavailable,
            _ => Stat::BadRequests,
        });
    }

    /// Takes `n` off a gauge.
    pub fn sub(&mut self, stat: Stat, n: u64) {
        self.0[stat as usize] = self.0[stat as usize].saturating_sub(n);
    }

    /// Sets a gauge.
    pub fn set(&mut self, stat: Stat, value: u64) {
        self.0[stat as usize] = value;
    }

    /// Reads one.
    pub fn get(&self, stat: Stat) -> u64 {
        self.0[stat as usize]
    }

    /// The values as items of STATS.
    pub fn items(&self) -> (u16, Vec<u8>) {
        let mut out = Vec::with_capacity(8 * self.0.len());
        self.0.iter().for_each(|value| Value(*value).write(&mut out));
        (self.0.len() as u16, out)
    }
}

/// The names as items of HELLO_EDGE.
pub fn metrics() -> (u16, Vec<u8>) {
    let mut out = Vec::new();
    for (name, kind, help) in TABLE {
        Metric { name: name.as_bytes(), kind: *kind, help: help.as_bytes() }.write(&mut out);
    }
    (TABLE.len() as u16, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3.4: names match `[a-z][a-z0-9_]*`, start with `halley_edge_`, and no two are the same.
    #[test]
    fn names_are_those_of_prometheus() {
        let mut names: Vec<_> = TABLE.iter().map(|(name, ..)| *name).collect();
        for name in &names {
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
        }
        for (name, kind, help) in TABLE {
            assert_eq!(*kind == 1, name.ends_with("_total"), "{name}");
            assert!(help.len() < 256 && help.ends_with('.'));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
