//! The clients: streams that read, and publishers. One thread; commands come on the input:
//!
//! ```text
//! rate EVENTS_PER_S SECONDS   single events, each at its moment
//! most single|batch PUBLISHERS SECONDS   each publishes anew when it is answered
//! ```
//!
//! What is counted and timed are deliveries that were read within the window; their latency is from
//! the moment at which the event was due.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::TcpStream as StdStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use halley_sys::Timer;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::{LINE_BYTES, PIECE_BYTES};

const TIMER: Token = Token(usize::MAX - 1);

/// Of a piece, `{"t":` and 19 digits: when it was due.
const STAMP: std::ops::Range<usize> = 5..24;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn digits(text: &[u8]) -> u64 {
    text.iter().fold(0, |sum, digit| 10 * sum + u64::from(digit - b'0'))
}

struct Client {
    socket: TcpStream,
    /// Of a piece that was read in part.
    part: Vec<u8>,
}

struct Clients {
    poll: Poll,
    /// For the moments at which events are due: poll knows milliseconds only.
    timer: Timer,
    streams: Vec<Client>,
    publishers: Vec<TcpStream>,
    idle: Vec<usize>,
    answered: Vec<usize>,
    delivered_us: Vec<u32>,
    acked_us: Vec<u32>,
    buffer: Vec<u8>,
}

pub fn run(streams: usize, publishers: usize, ports: Vec<u16>) {
    let poll = Poll::new().unwrap();
    let buffer = vec![0; 65_536];
    let (delivered_us, acked_us) = (Vec::with_capacity(4_000_000), Vec::new());
    let timer = Timer::new().unwrap();
    poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE).unwrap();
    let mut clients = Clients {
        poll,
        timer,
        streams: Vec::new(),
        publishers: Vec::new(),
        idle: (0..publishers).collect(),
        answered: Vec::new(),
        delivered_us,
        acked_us,
        buffer,
    };
    let all = streams * ports.len();
    for (index, port) in ports.iter().enumerate() {
        for _ in 0..streams {
            let socket = clients.connect(*port, clients.streams.len());
            clients.streams.push(Client { socket, part: Vec::new() });
        }
        let mine = publishers / ports.len() + usize::from(index < publishers % ports.len());
        for _ in 0..mine {
            let socket = clients.connect(*port, all + clients.publishers.len());
            clients.publishers.push(socket);
        }
    }
    println!("connected");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let all = match words[..] {
            ["rate", rate, seconds] => clients.rate(crate::number(rate), crate::number(seconds)),
            ["most", kind, publishers, seconds] => {
                let letter = if kind == "batch" { b'B' } else { b'S' };
                clients.most(letter, crate::number(publishers), crate::number(seconds))
            }
            _ => panic!("what is {line}?"),
        };
        clients.report(all);
    }
}

impl Clients {
    fn connect(&self, port: u16, token: usize) -> TcpStream {
        let socket = StdStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut socket = TcpStream::from_std(socket);
        self.poll.registry().register(&mut socket, Token(token), Interest::READABLE).unwrap();
        socket
    }

    /// Deliveries in all, those within the window, and their p50 and p99 in microseconds; answers,
    /// likewise.
    fn report(&mut self, all: usize) {
        let per = |sorted: &[u32], part: usize| {
            sorted.get(sorted.len() * part / 1_000).copied().unwrap_or_default()
        };
        let mut columns = vec![all.to_string()];
        for times in [&mut self.delivered_us, &mut self.acked_us] {
            times.sort_unstable();
            columns.push(format!("{} {} {}", times.len(), per(times, 500), per(times, 990)));
            times.clear();
        }
        println!("figures {}", columns.join(" "));
        std::io::stdout().flush().unwrap();
    }

    fn publish(&mut self, letter: u8, due_ns: u64) -> bool {
        let Some(publisher) = self.idle.pop() else { return false };
        let line = format!("{}{due_ns:019}\n", char::from(letter));
        self.publishers[publisher].write_all(line.as_bytes()).unwrap();
        true
    }

    /// An event that finds no publisher free is late, and timed from when it was due.
    fn rate(&mut self, rate: usize, seconds: usize) -> usize {
        let mut events = Events::with_capacity(1_024);
        let gap = 1_000_000_000 / rate as u64;
        let (mut due, mut left) = (now_ns(), rate * seconds);
        while left > 0 {
            while left > 0 && due <= now_ns() && self.publish(b'S', due) {
                (due, left) = (due + gap, left - 1);
            }
            let pause = due.saturating_sub(now_ns());
            self.timer.set(halley_sys::monotonic_ns() + pause).unwrap();
            self.read(&mut events, Duration::from_millis(100));
        }
        self.settle(&mut events, self.publishers.len());
        self.delivered_us.len()
    }

    fn most(&mut self, letter: u8, publishers: usize, seconds: usize) -> usize {
        let mut events = Events::with_capacity(1_024);
        let end = now_ns() + seconds as u64 * 1_000_000_000;
        let resting = self.idle.split_off(publishers);
        while now_ns() < end {
            while self.publish(letter, now_ns()) {}
            self.read(&mut events, Duration::from_millis(1));
        }
        let within = (self.delivered_us.len(), self.acked_us.len());
        self.settle(&mut events, publishers);
        let all = self.delivered_us.len();
        self.delivered_us.truncate(within.0);
        self.acked_us.truncate(within.1);
        self.idle.extend(resting);
        all
    }

    /// Until all is answered and nothing has come for a while.
    fn settle(&mut self, events: &mut Events, publishers: usize) {
        let mut last = now_ns();
        while now_ns() < last + 100_000_000 || self.idle.len() < publishers {
            self.read(events, Duration::from_millis(20));
            if !events.is_empty() {
                last = now_ns();
            }
        }
    }

    fn read(&mut self, events: &mut Events, pause: Duration) {
        self.poll.poll(events, Some(pause)).unwrap();
        for event in events.iter() {
            let Token(token) = event.token();
            if event.token() == TIMER {
                continue;
            }
            match token.checked_sub(self.streams.len()) {
                None => self.read_stream(token),
                Some(publisher) => self.read_answer(publisher),
            }
        }
        self.idle.append(&mut self.answered);
    }

    fn read_stream(&mut self, index: usize) {
        let client = &mut self.streams[index];
        loop {
            let before = client.part.len();
            self.buffer[..before].copy_from_slice(&client.part);
            client.part.clear();
            match client.socket.read(&mut self.buffer[before..]) {
                Ok(0) => std::process::exit(0),
                Ok(n) => {
                    let now = now_ns();
                    let read = &self.buffer[..before + n];
                    let pieces = read.chunks_exact(PIECE_BYTES);
                    client.part.extend_from_slice(pieces.remainder());
                    for piece in pieces {
                        let us = now.saturating_sub(digits(&piece[STAMP])) / 1_000;
                        self.delivered_us.push(us as u32);
                    }
                    if before + n < self.buffer.len() {
                        return;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    client.part.extend_from_slice(&self.buffer[..before]);
                    return;
                }
                Err(e) => panic!("stream: {e}"),
            }
        }
    }

    fn read_answer(&mut self, publisher: usize) {
        let mut line = [0; LINE_BYTES];
        match self.publishers[publisher].read(&mut line) {
            Ok(LINE_BYTES) => {
                let us = now_ns().saturating_sub(digits(&line[1..20])) / 1_000;
                self.acked_us.push(us as u32);
                self.answered.push(publisher);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            other => panic!("answer: {other:?}"),
        }
    }
}
