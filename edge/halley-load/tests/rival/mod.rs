//! Servers that are no Halley, each just good enough to prove that the load tools count right.
//!
//! One port takes HTTP: streams, and messages by `POST` to a path that ends with the channel.
//! Another takes NATS publishers. A message to a channel goes to all of its streams. A thread per
//! connection. Every server sends clients pings now and then, and cuts its bytes into pieces as
//! small as its framing allows.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nchan,
    Chunked,
    Nats,
    SocketIo,
}

#[derive(Debug, Default)]
struct State {
    /// By channel.
    streams: Mutex<BTreeMap<String, Vec<(Kind, TcpStream)>>>,
    /// What NATS says to whoever says CONNECT, if that isn't what it should.
    complaint: Option<&'static str>,
    /// Answers to what servers asked clients and publishers.
    signs_of_life: AtomicU64,
}

/// Running servers.
#[derive(Debug)]
pub struct Rival {
    /// For HTTP and WebSockets.
    pub url: String,
    /// For NATS publishers.
    pub nats_url: String,
    state: Arc<State>,
}

impl Rival {
    pub fn start() -> Self {
        Self::complaining(None)
    }

    pub fn complaining(complaint: Option<&'static str>) -> Self {
        let state = Arc::new(State { complaint, ..State::default() });
        let http = listen(&state, serve_http);
        let nats = listen(&state, serve_nats);
        Self { url: format!("http://{http}"), nats_url: format!("nats://{nats}"), state }
    }

    /// The channels, and how many streams each has.
    pub fn channels(&self) -> Vec<(String, usize)> {
        let streams = self.state.streams.lock().unwrap();
        streams.iter().map(|(channel, streams)| (channel.clone(), streams.len())).collect()
    }

    /// How many questions whether somebody is there were answered.
    pub fn signs_of_life(&self) -> u64 {
        self.state.signs_of_life.load(Ordering::Relaxed)
    }
}

fn listen(
    state: &Arc<State>,
    serve: fn(TcpStream, &State) -> io::Result<()>,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::clone(state);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, state) = (socket.unwrap(), Arc::clone(&state));
            socket.set_nodelay(true).unwrap();
            // Whoever leaves in the middle has left.
            thread::spawn(move || drop(serve(socket, &state)));
        }
    });
    address
}

fn serve_http(socket: TcpStream, state: &State) -> io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    loop {
        let (mut target, mut length, mut line) = (String::new(), 0, String::new());
        while reader.read_line(&mut line)? > 2 {
            if target.is_empty() {
                target = line.split(' ').nth(1).unwrap_or_default().to_owned();
            } else if let Some(value) = line.strip_prefix("Content-Length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        if target.is_empty() {
            return Ok(());
        }
        let channel = target.rsplit('/').next().unwrap_or_default();
        if target.starts_with("/pub") {
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let text = format!("active subscribers: {}\r\n", deliver(state, channel, &body));
            let size = text.len();
            write!(&socket, "HTTP/1.1 202 Accepted\r\nContent-Length: {size}\r\n\r\n{text}")?;
        } else if target.starts_with("/socket.io/?EIO=4&transport=websocket") {
            return serve_socketio(socket, reader, state);
        } else if target == "/" {
            return serve_nats_client(socket, reader, state);
        } else {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let (kind, hi) = if target.starts_with("/sub/") {
                (Kind::Nchan, "6\r\n: hi\n\n\r\n")
            } else {
                (Kind::Chunked, "4\r\nwelc\r\n4\r\nome\n\r\n")
            };
            return join(state, channel, kind, socket, format!("{head}{hi}").as_bytes());
        }
    }
}

/// Registers a stream before it is welcomed: who has the welcome gets all from then on.
fn join(
    state: &State,
    channel: &str,
    kind: Kind,
    mut socket: TcpStream,
    welcome: &[u8],
) -> io::Result<()> {
    let mut streams = state.streams.lock().unwrap();
    socket.write_all(welcome)?;
    streams.entry(channel.to_owned()).or_default().push((kind, socket));
    Ok(())
}

fn deliver(state: &State, channel: &str, data: &[u8]) -> usize {
    let mut streams = state.streams.lock().unwrap();
    let Some(streams) = streams.get_mut(channel) else { return 0 };
    let text = String::from_utf8(data.to_vec()).unwrap();
    for (kind, socket) in streams.iter_mut() {
        let bytes = match kind {
            Kind::Nchan => chunk(&format!("id: 1:0\ndata: {text}\n\n")),
            Kind::Chunked => [chunk(&text[..9]), chunk(&format!("{}\n", &text[9..]))].concat(),
            Kind::Nats => {
                let operation = format!("MSG {channel} 1 {}\r\n{text}\r\nPING\r\n", text.len());
                let (before, after) = operation.as_bytes().split_at(20);
                [frame(0x82, before), frame(0x82, after)].concat()
            }
            Kind::SocketIo => frame(0x81, format!("42[\"m\",{text}]").as_bytes()),
        };
        let _ = socket.write_all(&bytes);
    }
    streams.len()
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let mut frame = vec![first];
    match u8::try_from(length) {
        Ok(short) if short < 126 => frame.push(short),
        _ => frame.extend([&[126][..], &length.to_be_bytes()].concat()),
    }
    frame.extend(payload);
    frame
}

/// Reads a client's frame; the mask must be there.
fn read_frame(reader: &mut impl Read) -> io::Result<String> {
    let mut head = [0; 2];
    reader.read_exact(&mut head)?;
    assert_eq!((head[0] & 0x80, head[1] & 0x80), (0x80, 0x80), "whole and masked");
    let mut length = u16::from(head[1] & 0x7f);
    if length == 126 {
        let mut bytes = [0; 2];
        reader.read_exact(&mut bytes)?;
        length = u16::from_be_bytes(bytes);
    }
    let (mut key, mut payload) = ([0; 4], vec![0; usize::from(length)]);
    reader.read_exact(&mut key)?;
    reader.read_exact(&mut payload)?;
    payload.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
    Ok(String::from_utf8(payload).unwrap())
}

fn upgrade(socket: &mut TcpStream) -> io::Result<()> {
    write!(socket, "HTTP/1.1 101 Switching Protocols\r\n{ACCEPT}\r\n\r\n")
}

fn serve_socketio(
    mut socket: TcpStream,
    mut reader: BufReader<TcpStream>,
    state: &State,
) -> io::Result<()> {
    upgrade(&mut socket)?;
    socket.write_all(&frame(0x81, b"0{\"sid\":\"a\",\"pingInterval\":25000}"))?;
    assert_eq!(read_frame(&mut reader)?, "40");
    socket.write_all(&frame(0x81, b"40{\"sid\":\"b\"}"))?;
    let packet = read_frame(&mut reader)?;
    let channel = packet.strip_prefix("42[\"join\",\"").and_then(|rest| rest.strip_suffix("\"]"));
    join(state, channel.unwrap(), Kind::SocketIo, socket.try_clone()?, &frame(0x81, b"2"))?;
    assert_eq!(read_frame(&mut reader)?, "3");
    state.signs_of_life.fetch_add(1, Ordering::Relaxed);
    // Nothing is to follow until the client leaves.
    assert!(read_frame(&mut reader).is_err());
    Ok(())
}

fn serve_nats_client(
    mut socket: TcpStream,
    mut reader: BufReader<TcpStream>,
    state: &State,
) -> io::Result<()> {
    upgrade(&mut socket)?;
    socket.write_all(&frame(0x82, b"INFO {\"version\":\"2\"}\r"))?;
    socket.write_all(&frame(0x82, b"\n"))?;
    let words = read_frame(&mut reader)?;
    if let Some(complaint) = state.complaint {
        let what = format!("-ERR '{complaint}'\r\n");
        return socket.write_all(&frame(0x82, what.as_bytes()));
    }
    let lines: Vec<&str> = words.split_terminator("\r\n").collect();
    let [connect, subscribe, "PING"] = lines[..] else { panic!("{words}") };
    assert!(connect.starts_with("CONNECT {"), "{words}");
    let channel = subscribe.strip_prefix("SUB ").and_then(|rest| rest.strip_suffix(" 1"));
    join(state, channel.unwrap(), Kind::Nats, socket, &frame(0x82, b"PONG\r\n"))?;
    while read_frame(&mut reader)? == "PONG\r\n" {
        state.signs_of_life.fetch_add(1, Ordering::Relaxed);
    }
    panic!("a client of NATS has nothing else to say");
}

fn serve_nats(mut socket: TcpStream, state: &State) -> io::Result<()> {
    socket.write_all(b"INFO {\"version\":\"2\"}\r\nPING\r\n")?;
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words[..].first().copied(), state.complaint) {
            (Some("CONNECT"), _) => {}
            (Some("PONG"), _) => {
                state.signs_of_life.fetch_add(1, Ordering::Relaxed);
            }
            (Some("PING"), None) => socket.write_all(b"PONG\r\n")?,
            (Some("PUB"), Some(complaint)) => {
                write!(socket, "-ERR '{complaint}'\r\n")?;
                // A socket that closes with something unread resets its peer, who may not have read
                // yet why.
                return io::copy(&mut reader, &mut io::sink()).map(drop);
            }
            (Some("PUB"), None) => {
                let mut payload = vec![0; words[2].parse::<usize>().unwrap() + 2];
                reader.read_exact(&mut payload)?;
                assert_eq!(payload.split_off(payload.len() - 2), b"\r\n");
                deliver(state, words[1], &payload);
            }
            _ => panic!("{line}"),
        }
        line.clear();
    }
    Ok(())
}
