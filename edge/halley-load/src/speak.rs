//! Which server the load is for: Halley, or a rival that gets the same load from the same program,
//! so that what is compared is the servers and not their clients.
//!
//! | `--speak` | streams | publishing |
//! | --- | --- | --- |
//! | `halley` | `GET /v1/stream`, `/v1/ws`, `/test/<user>` | `POST /v1/events` |
//! | `nchan` | SSE from `/sub/{channel}` | `POST /pub/{channel}` |
//! | `chunked` | lines in chunks from `/test/{user}` | `POST /publish/{channel}` |
//! | `nats` | the NATS protocol in WebSocket frames | the NATS protocol over TCP |
//! | `socketio` | Engine.IO 4, Socket.IO 5, in WebSocket frames | `POST /publish/{channel}` |
//!
//! Rivals know channels instead of follows. The channel of a user is its group's name ([`channel`])
//! and so the subject that `halley-load graph --groups` has it follow: the same users get the same
//! events from all servers.

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Speak {
    /// Halley's own streams and API
    Halley,
    /// Nchan: server-sent events, a publisher location
    Nchan,
    /// A chunked answer without end, one message a line: the article's servers
    Chunked,
    /// NATS: over WebSocket for clients, over TCP for publishers
    Nats,
    /// Socket.IO over WebSocket, published to by HTTP
    Socketio,
}

/// The channel of the user with this position, counted from 0, in groups of `group_size`.
#[must_use]
pub fn channel(position: u64, group_size: u64) -> String {
    format!("g{}", position / group_size.max(1))
}
