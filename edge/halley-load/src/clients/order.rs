//! Orders of the watching thread to the clients' threads.
//!
//! Each thread looks into its mailbox once per round of its loop and says in its window how many
//! orders it has obeyed, so that an answer can wait for all threads.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use super::follows::{Follows, Numbers};
use super::window::Windows;

/// Orders that wait for one thread; there is never more than one in fact.
const ORDERS_MAX: usize = 4;
/// For an order to be obeyed: a thread that is at work on many connections is late.
const OBEY_TIME_MAX: Duration = Duration::from_secs(30);
/// How often is looked whether it was.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// One order, for all clients.
#[derive(Debug, Clone)]
pub enum Order {
    /// Leave, as if the network had gone.
    Drop,
    /// Come back.
    Return {
        /// With the cursors they know; without, as strangers.
        with_cursors: bool,
        /// Connections per second and thread; 0 for as many as the server takes.
        opens_per_s: f64,
    },
    /// Say who hasn't seen all numbers up to these.
    Expect(Numbers),
    /// Say who gets events that were due after this time.
    Flow(u64),
}

/// The threads' mailboxes.
#[derive(Debug, Default)]
pub struct Orders {
    mailboxes: Vec<SyncSender<Order>>,
    given: u64,
    /// What the clients follow; without it there are no numbers to expect.
    pub follows: Option<Arc<Follows>>,
}

impl Orders {
    /// No threads yet.
    #[must_use]
    pub fn new(follows: Option<Arc<Follows>>) -> Self {
        Self { mailboxes: Vec::new(), given: 0, follows }
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// The mailbox of the next thread.
    pub fn mailbox(&mut self) -> Receiver<Order> {
        let (sender, receiver) = mpsc::sync_channel(ORDERS_MAX);
        self.mailboxes.push(sender);
        receiver
    }

    /// Gives an order to all threads and waits until they have obeyed. False if that takes too long
    /// or a thread is gone.
    pub fn give(&mut self, order: &Order, windows: &Windows) -> bool {
        self.given += 1;
        for mailbox in &self.mailboxes {
            if mailbox.try_send(order.clone()).is_err() {
                return false;
            }
        }
        let given = Instant::now();
        while windows.obeyed() < self.given {
            if given.elapsed() > OBEY_TIME_MAX {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        true
    }
}
