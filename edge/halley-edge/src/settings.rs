//! The brain's limits and choices for a worker, from HELLO_BRAIN (`protocol/link.md` §5).

use std::rc::Rc;

use halley_link::{List, Pair};
use halley_token::Rules;
use halley_wire::http1::cors::Origins;
use halley_wire::http1::head::HeadLimits;

use crate::limits::networks::Networks;
use crate::proxies::Proxies;

/// Largest value of `request_line_bytes_max` and `header_bytes_max`; a header's value is a `str16`
/// on the link.
const HEAD_LINES_BYTES_MAX: usize = 32_768;
/// Largest value of `headers_max` (http.md 1.8).
const HEADERS_MAX: usize = 100;
/// Least window of a side of the link (link.md 4.1).
const WINDOW_BYTES_MIN: u32 = 524_288;

/// What each worker may have of `opens_in_flight_max` at least, so that a turn of a busy machine
/// opens more than a few (http.md 13.8).
const OPENS_PER_WORKER_MIN: u64 = 16;

/// Walks of the sweep over the table in `stream_heartbeat_ms` (`worker/sweep.rs`).
pub const WALKS: u64 = 3;

/// What happens to a slow consumer (http.md 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowConsumer {
    /// It is disconnected; with its cursor it loses nothing.
    Disconnect,
    /// The oldest events that wait are dropped, and a gap says so.
    DropOldest,
    /// Of each subject only the newest event waits.
    LatestPerSubject,
}

/// How clients say who they are (http.md 14.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// By `?user=`, and are believed.
    None,
    /// By a token.
    Jwt,
}

/// One worker's settings. Lengths of time are in milliseconds, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest silence on a stream.
    pub stream_heartbeat_ms: u64,
    /// `retry:` of SSE.
    pub stream_retry_ms: u32,
    /// How long a stream may wait for its session.
    pub stream_open_ms_max: u64,
    /// Limits of HTTP heads.
    pub head: HeadLimits,
    /// For a whole head to arrive, and for an idle keep-alive connection.
    pub request_ms_max: u64,
    /// For the first byte of a connection.
    pub first_byte_ms_max: u64,
    /// Connections of one address.
    pub connections_per_address_max: u32,
    /// Requests of one address in a second.
    pub requests_per_address_per_s_max: u32,
    /// The same of one user.
    pub requests_per_user_per_s_max: u32,
    /// What of the two may come at once: as much as in so long.
    pub requests_burst_ms: u64,
    /// Of the connections that may be, how many percent may not have asked for anything yet.
    pub pending_connections_percent_max: usize,
    /// Percent of the memory that must be left for a new stream or poll.
    pub memory_free_streams_percent_min: u64,
    /// The same for a new connection.
    pub memory_free_connections_percent_min: u64,
    /// Slowest pace of a request's body, and of a client that takes an answer.
    pub pace_bytes_per_s_min: u64,
    /// How far a body may be behind it.
    pub pace_grace_ms: u64,
    /// Addresses that limits by address don't concern.
    pub exempt: Rc<Networks>,
    /// For TLS to be agreed on.
    pub tls_handshake_ms_max: u64,
    /// The proxies that are trusted to name the client.
    pub proxies: Proxies,
    /// For the brain's answer.
    pub response_ms_max: u64,
    /// How much of a request's body may be on its way to the brain.
    pub request_window_bytes: usize,
    /// Requests that wait for the brain.
    pub requests_in_flight_max: u64,
    /// Percent of what all share that one user may have.
    pub user_share_percent_max: u64,
    /// Percent of what all share that is the servers' alone.
    pub servers_share_percent: u64,
    /// One connection's outbox.
    pub outbox_bytes_max: usize,
    /// How long a client may take nothing of what waits for it.
    pub outbox_ms_max: u64,
    /// What happens beyond the two.
    pub slow_consumer: SlowConsumer,
    /// Live events held for one session while its replay runs.
    pub hold_bytes_max: usize,
    /// Longest `timeout` of a long-poll.
    pub poll_ms_max: u64,
    /// Streams and polls that get their session in a second.
    pub admission_per_s_max: u32,
    /// How long a stream may wait for that.
    pub admission_wait_ms_max: u64,
    /// How long a stream may wait for a brain that is away.
    pub brain_away_ms_max: u64,
    /// Streams and polls that wait for the brain's OPENED at the same time: all workers' in
    /// HELLO_BRAIN, then this worker's part ([`Settings::share_opens`]).
    pub opens_in_flight_max: u64,
    /// All outboxes of the worker.
    pub outboxes_bytes_max: usize,
    /// A WebSocket message from a client.
    pub message_bytes_max: usize,
    /// May WebSockets agree on permessage-deflate?
    pub websocket_compression: bool,
    /// Messages of one WebSocket that wait for their turn.
    pub operations_waiting_max: usize,
    /// Does the brain take operations as OPERATION?
    pub operation_frames: bool,
    /// Frames that wait for the link.
    pub link_queue_bytes_max: usize,
    /// What a trunk's owner grants: what some workers leave for a moment stops the others later
    /// than that. A worker that leaves half of it for too long loses its place (link.md 13.7).
    pub trunk_window_bytes: u32,
    /// How clients say who they are.
    pub auth_mode: AuthMode,
    /// What is asked of a token besides its signature.
    pub token_rules: Rules,
    /// What visitors without a token may do, as JSON; empty where there are none.
    pub anonymous: Rc<str>,
    /// Does the brain know of subscriptions?
    pub subscriptions: bool,
    /// How many of a subject's newest events a session may begin with; 0: the brain knows of none.
    pub last_events_max: u32,
    /// Does the brain tell of presence?
    pub presence: bool,
    /// Does the brain know whom a session may see?
    pub views: bool,
    /// Does the brain know what sessions say of themselves?
    pub states: bool,
    /// Does the brain judge anew what sessions are subscribed to, by other rights?
    pub rights: bool,
    /// Does the brain know of sessions that follow its status?
    pub status_streams: bool,
    /// Which pages may read answers.
    pub origins: Rc<Origins>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            stream_heartbeat_ms: 30_000,
            stream_retry_ms: 2_000,
            stream_open_ms_max: 10_000,
            head: HeadLimits::default(),
            request_ms_max: 30_000,
            first_byte_ms_max: 10_000,
            connections_per_address_max: 10_000,
            requests_per_address_per_s_max: 1_000,
            requests_per_user_per_s_max: 1_000,
            requests_burst_ms: 10_000,
            pending_connections_percent_max: 50,
            memory_free_streams_percent_min: 5,
            memory_free_connections_percent_min: 3,
            pace_bytes_per_s_min: 1_000,
            pace_grace_ms: 10_000,
            exempt: Rc::default(),
            tls_handshake_ms_max: 10_000,
            proxies: Proxies::default(),
            response_ms_max: 60_000,
            request_window_bytes: 262_144,
            requests_in_flight_max: 4_096,
            user_share_percent_max: 5,
            servers_share_percent: 10,
            outbox_bytes_max: 1_048_576,
            outbox_ms_max: 30_000,
            slow_consumer: SlowConsumer::Disconnect,
            hold_bytes_max: 1_048_576,
            poll_ms_max: 60_000,
            admission_per_s_max: 10_000,
            admission_wait_ms_max: 5_000,
            brain_away_ms_max: 15_000,
            // A brain of an earlier build doesn't bound it.
            opens_in_flight_max: u64::MAX,
            outboxes_bytes_max: 268_435_456,
            message_bytes_max: 65_536,
            websocket_compression: false,
            operations_waiting_max: 16,
            operation_frames: false,
            link_queue_bytes_max: 16_777_216,
            trunk_window_bytes: 16_777_216,
            auth_mode: AuthMode::None,
            token_rules: Rules { token_bytes_max: 8_192, nobody_allowed: true, ..Rules::default() },
            anonymous: Rc::from(""),
            subscriptions: false,
            last_events_max: 0,
            presence: false,
            views: false,
            states: false,
            rights: false,
            status_streams: false,
            origins: Rc::default(),
        }
    }
}

impl Settings {
    /// How long written bytes may stay unacknowledged: a heartbeat's last part (`worker/sweep.rs`).
    pub fn user_timeout_ms(&self) -> u64 {
        self.stream_heartbeat_ms / WALKS
    }

    /// Of the opens that may be in flight, takes the part of one of so many workers (http.md 13.8).
    pub fn share_opens(&mut self, workers: u16) {
        let part = self.opens_in_flight_max / u64::from(workers.max(1));
        self.opens_in_flight_max = part.max(OPENS_PER_WORKER_MIN);
    }

    /// Reads the list of a HELLO_BRAIN over the defaults (3.3).
    ///
    /// # Errors
    /// The name whose value can't be used.
    pub fn read(list: List<'_, Pair<'_>>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for Pair { name, value } in list.iter() {
            let text = std::str::from_utf8(value).ok();
            if text.and_then(|value| settings.set(name, value)).is_none() {
                return Err(String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(settings)
    }

    /// `None` when the value can't be used; a name that is not known is ignored.
    fn set(&mut self, name: &[u8], value: &str) -> Option<()> {
        let number = || value.parse::<u32>().ok().filter(|n| *n > 0);
        let ms = || number().map(u64::from);
        let bytes = || number().map(|n| n as usize);
        // A head travels in one frame (link.md 2.1), with a body of up to three reads behind it.
        let of_head = || bytes().filter(|n| *n <= HEAD_LINES_BYTES_MAX);
        match name {
            b"stream_heartbeat_ms" => self.stream_heartbeat_ms = ms().filter(|n| *n >= 100)?,
            b"stream_retry_ms" => self.stream_retry_ms = number()?,
            b"stream_open_ms_max" => self.stream_open_ms_max = ms()?,
            b"request_line_bytes_max" => self.head.request_line_bytes_max = of_head()?,
            b"header_bytes_max" => self.head.header_bytes_max = of_head()?,
            b"headers_max" => self.head.headers_max = bytes().filter(|n| *n <= HEADERS_MAX)?,
            b"request_ms_max" => self.request_ms_max = ms()?,
            b"first_byte_ms_max" => self.first_byte_ms_max = ms()?,
            b"connections_per_address_max" => self.connections_per_address_max = number()?,
            b"requests_per_address_per_s_max" => {
                self.requests_per_address_per_s_max = number()?;
            }
            b"requests_per_user_per_s_max" => self.requests_per_user_per_s_max = number()?,
            b"requests_burst_ms" => self.requests_burst_ms = ms()?,
            // The second is its name from a brain of a build before (link.md 5).
            b"pending_connections_percent_max" | b"newcomers_percent_max" => {
                self.pending_connections_percent_max = bytes().filter(|n| *n <= 100)?;
            }
            b"pace_bytes_per_s_min" => self.pace_bytes_per_s_min = ms()?,
            b"memory_free_streams_percent_min" => self.memory_free_streams_percent_min = ms()?,
            b"memory_free_connections_percent_min" => {
                self.memory_free_connections_percent_min = ms()?;
            }
            b"pace_grace_ms" => self.pace_grace_ms = ms()?,
            b"limits_exempt" => self.exempt = Rc::new(Networks::parse(value)?),
            b"tls_handshake_ms_max" => self.tls_handshake_ms_max = ms()?,
            b"response_ms_max" => self.response_ms_max = ms()?,
            b"request_window_bytes" => self.request_window_bytes = bytes()?,
            b"outbox_bytes_max" => self.outbox_bytes_max = bytes()?,
            b"outbox_ms_max" => self.outbox_ms_max = ms()?,
            b"slow_consumer" => {
                self.slow_consumer = match value {
                    "disconnect" => SlowConsumer::Disconnect,
                    "drop_oldest" => SlowConsumer::DropOldest,
                    "latest_per_subject" => SlowConsumer::LatestPerSubject,
                    _ => return None,
                }
            }
            b"hold_bytes_max" => self.hold_bytes_max = bytes()?,
            b"poll_ms_max" => self.poll_ms_max = ms()?,
            b"admission_per_s_max" => self.admission_per_s_max = number()?,
            b"admission_wait_ms_max" => self.admission_wait_ms_max = ms()?,
            b"outboxes_bytes_max" => self.outboxes_bytes_max = bytes()?,
            b"message_bytes_max" => self.message_bytes_max = bytes()?,
            b"operations_waiting_max" => self.operations_waiting_max = bytes()?,
            b"websocket_compression" => self.websocket_compression = is_on(value)?,
            b"cors_origins" => self.origins = Rc::new(Origins::parse(value).ok()?),
            _ => return self.set_link(name, value),
        }
        Some(())
    }

    /// Likewise, of what is about the link and what waits for the brain.
    fn set_link(&mut self, name: &[u8], value: &str) -> Option<()> {
        let number = || value.parse::<u32>().ok().filter(|n| *n > 0);
        let percent = || number().filter(|n| *n <= 100).map(u64::from);
        match name {
            b"brain_away_ms_max" => self.brain_away_ms_max = number()?.into(),
            b"opens_in_flight_max" => self.opens_in_flight_max = number()?.into(),
            b"requests_in_flight_max" => self.requests_in_flight_max = number()?.into(),
            b"user_share_percent_max" => self.user_share_percent_max = percent()?,
            b"servers_share_percent" => self.servers_share_percent = percent()?,
            b"operation_frames" => self.operation_frames = is_on(value)?,
            b"link_queue_bytes_max" => self.link_queue_bytes_max = number()? as usize,
            b"trunk_window_bytes" => self.trunk_window_bytes = number()?.max(WINDOW_BYTES_MIN),
            _ => return self.set_auth(name, value),
        }
        Some(())
    }

    /// Likewise, of what is about tokens.
    fn set_auth(&mut self, name: &[u8], value: &str) -> Option<()> {
        let number = || value.parse::<u32>().ok();
        match name {
            b"auth_mode" => {
                self.auth_mode = match value {
                    "none" => AuthMode::None,
                    "jwt" => AuthMode::Jwt,
                    _ => return None,
                }
            }
            b"auth_anonymous" => self.anonymous = Rc::from(value),
            b"subscriptions_per_session_max" => self.subscriptions = number()? > 0,
            b"last_events_max" => self.last_events_max = number()?,
            b"presence" => self.presence = is_on(value)?,
            b"presence_views" => self.views = is_on(value)?,
            b"session_state_bytes_max" => self.states = number()? > 0,
            b"revocations_bytes_max" => self.rights = number()? > 0,
            b"status_readers_max" => self.status_streams = number()? > 0,
            b"auth_issuer" => self.token_rules.issuer = value.to_owned(),
            b"auth_audience" => self.token_rules.audience = value.to_owned(),
            b"auth_leeway_ms" => {
                self.token_rules.leeway_s = u64::from(number()?).div_ceil(1_000);
            }
            b"token_bytes_max" => self.token_rules.token_bytes_max = number()?.max(1) as usize,
            _ => return self.proxies.set(name, value),
        }
        Some(())
    }
}

fn is_on(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}
