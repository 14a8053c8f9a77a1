//! A session without sockets: a client's bytes come in pieces of any size, with foreign bytes, and
//! answers to it may come at any time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, Error, PeerMisbehaved,
    ProtocolVersion, RootCertStore, ServerConfig, SupportedCipherSuite,
};

use crate::conns::tls::session::{Buffers, HANDSHAKE_BYTES_MAX, RECORD_BYTES_MAX, Session, Stage};
use crate::outbox::Outbox;

/// Both sides' configuration; for each version one of the client's.
struct Configs {
    server: Arc<ServerConfig>,
    clients: [Arc<ClientConfig>; 2],
}

fn configs() -> &'static Configs {
    static CONFIGS: OnceLock<Configs> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("halley-tls-tests-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.current_dir(&dir).stderr(Stdio::null());
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", "k", "-out"]);
        openssl.args(["c", "-addext", "subjectAltName=DNS:localhost"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        assert!(openssl.status().unwrap().success());
        let certificate = CertificateDer::from_pem_file(dir.join("c")).unwrap();
        let key = PrivateKeyDer::from_pem_file(dir.join("k")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let client = |version| {
            let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.enable_secret_extraction = true;
            Arc::new(config)
        };
        Configs { server: Arc::new(server), clients: [client(&TLS12), client(&TLS13)] }
    })
}

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// So many of the client's bytes arrive.
    Arrive(usize),
    /// One that the client did not send, in place of one that is on its way.
    Damage(usize, u8),
    /// The client sends.
    Say(usize),
    /// The client takes new keys (RFC 8446 section 4.6.3).
    NewKeys,
    /// Something is sealed for the client.
    Seal(usize),
    /// The client has said all.
    ClientClose,
    /// We have said all.
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..400_usize).prop_map(Step::Arrive),
        4 => (1..40_000_usize).prop_map(Step::Arrive),
        1 => (0..2_000_usize, any::<u8>()).prop_map(|(at, byte)| Step::Damage(at, byte)),
        3 => (1..20_000_usize).prop_map(Step::Say),
        1 => Just(Step::NewKeys),
        4 => (1..40_000_usize).prop_map(Step::Seal),
        1 => Just(Step::ClientClose),
        1 => Just(Step::Close),
    ]
}

/// Both ends and what is between them.
struct Pair {
    client: ClientConnection,
    session: Session,
    buffers: Buffers,
    arriving: VecDeque<u8>,
    damaged: bool,
    /// The client has said that it sends no more.
    client_done: bool,
    /// What each has said, and what of it the other has read.
    said: [Vec<u8>; 2],
    read: [Vec<u8>; 2],
}

impl Pair {
    fn new(version: usize) -> Pair {
        let config = Arc::clone(&configs().clients[version]);
        Pair {
            client: ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap(),
            session: Session::new(Arc::clone(&configs().server)).unwrap(),
            buffers: Buffers::default(),
            arriving: VecDeque::new(),
            damaged: false,
            client_done: false,
            said: Default::default(),
            read: Default::default(),
        }
    }

    /// Both sides may send.
    fn open(version: usize) -> Pair {
        let mut pair = Pair::new(version);
        pair.send();
        while !pair.arriving.is_empty() {
            assert!(pair.arrive(usize::MAX));
        }
        assert_eq!(pair.session.stage, Stage::Open);
        pair
    }

    /// The client's bytes are on their way.
    fn send(&mut self) {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        self.arriving.extend(bytes);
    }

    /// So many of them arrive; false when the session has failed.
    fn arrive(&mut self, bytes: usize) -> bool {
        let mut incoming = vec![0; 3 * RECORD_BYTES_MAX];
        let begun = self.session.begin(&mut incoming);
        let most = match self.session.stage {
            Stage::Handshake => HANDSHAKE_BYTES_MAX,
            Stage::Open => RECORD_BYTES_MAX,
            Stage::ClientDone | Stage::Over => 0,
        };
        assert!(begun <= most, "{begun} bytes kept");
        let new = bytes.min(self.arriving.len()).min(RECORD_BYTES_MAX);
        for (place, byte) in incoming[begun..].iter_mut().zip(self.arriving.drain(..new)) {
            *place = byte;
        }
        let mut plain = vec![0; incoming.len()];
        match self.session.open(&mut incoming[..begun + new], new, &mut plain) {
            Ok(n) => self.read[0].extend(&plain[..n]),
            Err(error) => {
                assert!(self.damaged, "{error}");
                return false;
            }
        }
        self.flush(&[]);
        true
    }

    /// Seals for the client and lets it read all that is sealed.
    fn flush(&mut self, plain: &[u8]) {
        let mut outbox = Outbox::default();
        outbox.push(plain.into());
        let mut sealed = Vec::new();
        let flushed = self.session.flush(&mut outbox, &mut sealed, &mut self.buffers);
        if flushed.is_ok() {
            self.said[1].extend(plain);
        }
        let mut rest = sealed.as_slice();
        while !rest.is_empty() && self.client.read_tls(&mut rest).is_ok() {
            if self.client.process_new_packets().is_err() {
                assert!(self.damaged);
                return;
            }
            let _ = self.client.reader().read_to_end(&mut self.read[1]);
        }
        self.send();
    }

    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Arrive(bytes) => return self.arrive(*bytes),
            Step::Damage(at, byte) => {
                if let Some(place) = self.arriving.get_mut(*at) {
                    self.damaged |= *place != *byte;
                    *place = *byte;
                }
            }
            // What comes behind the client's last word is nothing that it said.
            Step::Say(bytes) if self.client_done => self.arriving.extend(vec![23; *bytes]),
            Step::Say(bytes) => {
                let bytes: Vec<u8> = (0..*bytes).map(|n| n as u8).collect();
                // It may have met what was damaged, and have failed.
                let taken = self.client.writer().write(&bytes);
                assert!(taken.is_ok() || self.damaged, "{taken:?}");
                self.said[0].extend(&bytes[..taken.unwrap_or(0)]);
                self.send();
            }
            Step::NewKeys if !self.client_done => {
                let _ = self.client.refresh_traffic_keys();
                self.send();
            }
            Step::ClientClose if !self.client.is_handshaking() => {
                self.client.send_close_notify();
                self.client_done = true;
                self.send();
            }
            Step::NewKeys | Step::ClientClose => {}
            Step::Seal(bytes) if matches!(self.session.stage, Stage::Open | Stage::ClientDone) => {
                self.flush(&(0..*bytes).map(|n| (n * 7) as u8).collect::<Vec<u8>>());
            }
            Step::Seal(_) => {}
            Step::Close => {
                self.session.close();
                self.flush(&[]);
                return false;
            }
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever comes and when, nothing panics, and what was read is what was said.
    #[test]
    fn anything_in_any_pieces(
        version in 0..2_usize,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut pair = Pair::new(version);
        pair.send();
        let goes_on = steps.iter().all(|step| pair.step(step));
        if goes_on && !pair.damaged {
            while !pair.arriving.is_empty() {
                prop_assert!(pair.arrive(usize::MAX));
            }
            let stage = if pair.client_done { Stage::ClientDone } else { Stage::Open };
            prop_assert_eq!(pair.session.stage, stage);
            prop_assert_eq!(&pair.said, &pair.read);
        } else {
            for (said, read) in pair.said.iter().zip(&pair.read) {
                prop_assert!(said.starts_with(read));
            }
        }
    }
}

/// RFC 8446 section 5.1: a record's content is at most 2^14 bytes; one more is an error, and the
/// client is told.
#[test]
fn a_record_that_is_too_long() {
    let mut session = Session::new(Arc::clone(&configs().server)).unwrap();
    let mut bytes = [22, 3, 1, 0xff, 0xff];
    assert!(session.open(&mut bytes, 5, &mut [0; 5]).is_err());
    assert_eq!(session.stage, Stage::Over);
    assert!(session.unsent() > 0);
}

/// Seals records of any kind with a TLS 1.3 client's keys, in its place.
struct Forger {
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
}

impl Forger {
    /// Of a client whose session is open.
    fn open() -> (Forger, Session) {
        let pair = Pair::open(1);
        let suite = pair.client.negotiated_cipher_suite();
        let Some(SupportedCipherSuite::Tls13(suite)) = suite else { panic!("{suite:?}") };
        let (number, secrets) = pair.client.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("{suite:?}") };
        (Forger { encrypter: suite.aead_alg.encrypter(key, iv), number }, pair.session)
    }

    fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let (version, payload) = (ProtocolVersion::TLSv1_3, OutboundChunks::Single(payload));
        let message = OutboundPlainMessage { typ, version, payload };
        self.number += 1;
        self.encrypter.encrypt(message, self.number - 1).unwrap().encode()
    }
}

/// Bytes that come behind those that are kept; gives how many are kept then.
fn take(session: &mut Session, bytes: &[u8]) -> Result<usize, Error> {
    let mut incoming = vec![0; RECORD_BYTES_MAX + bytes.len()];
    let begun = session.begin(&mut incoming);
    let end = begun + bytes.len();
    incoming[begun..end].copy_from_slice(bytes);
    let opened = session.open(&mut incoming[..end], bytes.len(), &mut vec![0; end]);
    let kept = session.begin(&mut incoming);
    assert!(kept <= RECORD_BYTES_MAX);
    opened.map(|_| kept)
}

/// The first bytes of a KeyUpdate that is going to have 60,000.
const BEGUN_MESSAGE: [u8; 8] = [24, 0, 0xea, 0x60, 0, 0, 0, 0];
/// RFC 8446 section 6.1: a warning, close_notify.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// http.md 15.10: "has its end within a record; beyond that the connection is closed", over however
/// many records it is spread.
#[test]
fn a_message_that_does_not_end() {
    let (mut client, mut session) = Forger::open();
    let mut part = BEGUN_MESSAGE.to_vec();
    part.resize(10_000, 0);
    let first = client.record(ContentType::Handshake, &part);
    assert_eq!(take(&mut session, &first), Ok(first.len()));
    let second = client.record(ContentType::Handshake, &[0; 10_000]);
    let too_long = Error::General("a message is too long".into());
    assert_eq!(take(&mut session, &second), Err(too_long));
    assert_eq!(session.stage, Stage::Over);
}

/// RFC 8446 section 5.1: between the parts of a message there is no record of another kind. So a
/// client never is done while rustls remembers a place in what is kept, which is emptied then.
#[test]
fn no_last_word_within_a_message() {
    for at_once in [false, true] {
        let (mut client, mut session) = Forger::open();
        let mut bytes = client.record(ContentType::Handshake, &BEGUN_MESSAGE);
        let kept = bytes.len();
        if !at_once {
            assert_eq!(take(&mut session, &bytes), Ok(kept));
            // What is said to the client meanwhile leaves the begun message alone.
            let mut outbox = Outbox::default();
            outbox.push(b"hello"[..].into());
            session.flush(&mut outbox, &mut Vec::new(), &mut Buffers::default()).unwrap();
            assert_eq!(session.begin(&mut [0; 100]), kept);
            bytes.clear();
        }
        bytes.extend(client.record(ContentType::Alert, &CLOSE_NOTIFY));
        let mixed = PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into();
        assert_eq!(take(&mut session, &bytes), Err(mixed));
        assert_eq!(session.stage, Stage::Over);
        let mut outbox = Outbox::default();
        session.flush(&mut outbox, &mut Vec::new(), &mut Buffers::default()).unwrap();
        assert!(!session.close());
    }
}

/// RFC 8446 section 6.1: what comes after a close_notify is ignored, be it a message that has
/// begun; and what was kept is not missed when the server says more.
#[test]
fn nothing_behind_the_last_word() {
    let (mut client, mut session) = Forger::open();
    let mut bytes = client.record(ContentType::Alert, &CLOSE_NOTIFY);
    bytes.extend(client.record(ContentType::Handshake, &BEGUN_MESSAGE));
    assert_eq!(take(&mut session, &bytes), Ok(0));
    assert_eq!(session.stage, Stage::ClientDone);
    let (mut outbox, mut sealed) = (Outbox::default(), Vec::new());
    outbox.push(b"hello"[..].into());
    session.flush(&mut outbox, &mut sealed, &mut Buffers::default()).unwrap();
    assert!(sealed.len() > 5 && session.close());

    for version in [0, 1] {
        for behind in [&[][..], &[23], &[23, 3, 3, 0xff, 0xff], &[22; 600]] {
            let mut pair = Pair::open(version);
            pair.step(&Step::Say(100));
            pair.step(&Step::ClientClose);
            pair.arriving.extend(behind);
            assert!(pair.arrive(usize::MAX) && pair.session.stage == Stage::ClientDone);
            pair.step(&Step::Seal(20_000));
            assert_eq!((&pair.said, pair.read[0].len()), (&pair.read, 100));
            pair.step(&Step::Close);
            assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
        }
    }
}
