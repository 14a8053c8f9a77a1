//! Requests to the server, one at a time and blocking: paths and bodies in, answers out.
//!
//! An answer of any status is an [`Answer`]; [`Answer::ok`] makes errors of the server's refusals.
//! A client may be cloned and used by several threads, which share its connections. It holds no
//! answer that is longer than [`ANSWER_BYTES_MAX`], and knows no resource of the API.

use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::{Method, Request, Response, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Proxy};

use crate::failure::{Failure, Refusal, Result};
use crate::settings::Settings;

/// The longest answer that is read: results of 100,000 events have some MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Between two tries of a request that may succeed later: doubled each time, from one to the other.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How much longer a server's `Retry-After` may make it.
const RETRY_AFTER_S_MAX: u64 = 60;

/// Which listener a request is for, and with which credential.
#[derive(Debug, Clone, Copy)]
pub enum Door {
    /// The API listener, with the server key.
    Api,
    /// The public listener, with the user's token.
    Public,
}

/// One listener of one server.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    /// Of the environment, as `host:port`, if requests go through it.
    proxy: Option<String>,
    credential: Option<String>,
}

/// What the server answered.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
}

impl Client {
    /// A client of that listener; no connection is opened yet.
    ///
    /// # Errors
    /// If the CAs' file can't be read or has no certificate.
    pub fn new(settings: &Settings, door: Door) -> Result<Self> {
        let (base, credential) = match door {
            Door::Api => (&settings.url, &settings.key),
            Door::Public => (&settings.public_url, &settings.token),
        };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(settings.timeout))
            .timeout_resolve(Some(settings.timeout))
            .timeout_send_body(Some(settings.answer_timeout))
            .timeout_recv_response(Some(settings.answer_timeout))
            .timeout_recv_body(Some(settings.answer_timeout))
            .user_agent(concat!("halley/", env!("CARGO_PKG_VERSION")));
        let proxy = proxy_of(base);
        if proxy.is_none() {
            config = config.proxy(None);
        }
        if let Some(path) = &settings.ca {
            let name = path.display();
            let pem = std::fs::read(path).map_err(Failure::io(format!("can't read {name}")))?;
            let certificates: Vec<_> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                return Err(Failure::Usage(format!("{name} has no certificate in PEM")));
            }
            let roots = RootCerts::Specific(Arc::new(certificates));
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let credential = credential.as_ref().map(|secret| format!("Bearer {secret}"));
        Ok(Self { agent: config.build().new_agent(), base: base.clone(), proxy, credential })
    }

    /// The answer of a GET, as JSON.
    ///
    /// # Errors
    /// If there is none, it is an error, or no JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, None)?.ok()?.json()
    }

    /// Whether this is a Halley that takes the key, before a command that waits long for a server
    /// begins. A server that is busy or starts is waited for later.
    ///
    /// # Errors
    /// If the address or the key is wrong.
    pub fn knock(&self) -> Result<()> {
        match self.get("/v1/key") {
            Err(Failure::Refused(refusal)) if refusal.is_passing() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// The answer of a DELETE without a body, as JSON.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.send(Method::DELETE, path, None)?.ok()?.json()
    }

    /// Sends a request, with a body of this `Content-Type`, and reads the answer whole.
    ///
    /// # Errors
    /// If no answer came.
    pub fn send(&self, method: Method, path: &str, body: Option<(&str, &[u8])>) -> Result<Answer> {
        let response = match body {
            None => self.run(self.request(method, path, &[])?.body(()))?,
            Some((media_type, bytes)) => {
                let request = self.request(method, path, &[("content-type", media_type)])?;
                self.run(request.body(bytes))?
            }
        };
        let status = response.status().as_u16();
        let retry_after_s = header(&response, "retry-after").and_then(|text| text.parse().ok());
        let mut body = Vec::new();
        response
            .into_body()
            .into_reader()
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut body)
            .map_err(|error| self.broken(&error))?;
        Ok(Answer { status, retry_after_s, body })
    }

    /// Opens a stream: the answer's body is read as it comes, for as long as it comes. A read that
    /// gets nothing for `silence` fails.
    ///
    /// # Errors
    /// If no answer came, or it is an error.
    pub fn stream(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        silence: Duration,
    ) -> Result<impl Read + use<>> {
        let request = self.request(Method::GET, path, headers)?.body(());
        let request = request.map_err(|error| Failure::Usage(format!("no request: {error}")))?;
        let request = self.agent.configure_request(request).timeout_recv_body(None);
        let request = request.timeout_per_read(Some(silence)).build();
        let response = self.agent.run(request).map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response.into_body().into_reader());
        }
        let status = response.status().as_u16();
        let retry_after_s = header(&response, "retry-after").and_then(|text| text.parse().ok());
        let mut body = Vec::new();
        let reader = response.into_body().into_reader();
        reader.take(1 << 16).read_to_end(&mut body).map_err(|error| self.broken(&error))?;
        Err(Failure::Refused(Answer { status, retry_after_s, body }.refusal()))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<ureq::http::request::Builder> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(credential) = &self.credential {
            let value = ureq::http::HeaderValue::from_str(credential).map_err(|_| {
                Failure::Usage("the key or token has characters that no header may have".to_owned())
            })?;
            request = request.header("authorization", value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(request)
    }

    fn run<S: ureq::AsSendBody>(
        &self,
        request: std::result::Result<Request<S>, ureq::http::Error>,
    ) -> Result<Response<Body>> {
        let request = request.map_err(|error| Failure::Usage(format!("no request: {error}")))?;
        // DELETE /v1/follows has a body.
        let request = self.agent.configure_request(request).allow_non_standard_methods(true);
        self.agent.run(request.build()).map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let through = self.proxy.as_ref().map(|proxy| {
            format!(" through the proxy {proxy} of the environment (NO_PROXY excepts hosts)")
        });
        let through = through.unwrap_or_default();
        Failure::Unreachable(format!("{} doesn't answer{through}: {error}", self.base))
    }

    fn broken(&self, error: &std::io::Error) -> Failure {
        Failure::Unreachable(format!("the answer of {} broke off: {error}", self.base))
    }
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

/// The proxy by which the environment wants this address to be reached, as `host:port`.
fn proxy_of(base: &str) -> Option<String> {
    let address = base.parse::<Uri>().ok()?;
    let proxy = Proxy::try_from_env().filter(|proxy| !proxy.is_no_proxy(&address))?;
    (!is_loopback(base)).then(|| format!("{}:{}", proxy.host(), proxy.port()))
}

/// Whether the address is one of this machine alone.
#[must_use]
pub fn is_loopback(base: &str) -> bool {
    let address = base.parse::<Uri>().ok();
    let host = address.as_ref().and_then(Uri::host).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Answer {
    /// Itself, if its status is 2xx.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn ok(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            Ok(self)
        } else {
            Err(Failure::Refused(self.refusal()))
        }
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// If it is none: the address isn't a Halley's.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).map_err(|_| {
            Failure::Unreachable("the answer isn't JSON: is this the address of a Halley?".into())
        })
    }

    /// The body as a JSON object with this member, which every such answer has.
    ///
    /// # Errors
    /// If it is none: something else has answered.
    pub fn object_with(&self, member: &str) -> Result<Value> {
        let value = self.json()?;
        match value.get(member) {
            Some(_) => Ok(value),
            None => Err(Failure::Unreachable(format!(
                "the answer has no `{member}`: is this the address of a Halley?"
            ))),
        }
    }

    /// What the server refused, from the body if it has that.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let error = &body["error"];
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let unsaid = if (300..400).contains(&self.status) {
            "the answer is a redirect, which isn't followed: give the address that it leads to"
        } else {
            "the answer is an error without a reason: is this the address of a Halley?"
        };
        Refusal {
            status: self.status,
            code: text("code").unwrap_or_default(),
            message: text("message").unwrap_or_else(|| unsaid.to_owned()),
            retry_after_s: self.retry_after_s,
        }
    }
}

/// Repeats what may succeed later, until `patience` is over without success.
///
/// # Errors
/// The last failure.
pub fn patiently<T>(patience: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    // A patience that ends behind the clock's last second has no end.
    let deadline = Instant::now().checked_add(patience);
    let mut pause = RETRY_PAUSE_MIN;
    loop {
        let (failure, after_s) = match attempt() {
            Err(failure @ Failure::Unreachable(_)) => (failure, 0),
            Err(Failure::Refused(refusal)) if refusal.is_passing() => {
                let after_s = refusal.retry_after_s.unwrap_or(0).min(RETRY_AFTER_S_MAX);
                (Failure::Refused(refusal), after_s)
            }
            other => return other,
        };
        let left = deadline
            .map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(failure);
        }
        std::thread::sleep(pause.max(Duration::from_secs(after_s)).min(left));
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

/// An id as one segment of a path, or as a value in a query.
#[must_use]
pub fn segment(id: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(id.len());
    // A segment of dots alone would be a step in the path.
    let dots = id == "." || id == "..";
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !dots) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_id_is_one_segment() {
        assert_eq!(segment("room/7"), "room%2F7");
        assert_eq!(segment("a b%é"), "a%20b%25%C3%A9");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("v1.2"), "v1.2");
    }

    #[test]
    fn an_answer_of_something_else_is_no_success() {
        let answer = |body: &str| Answer { status: 200, retry_after_s: None, body: body.into() };
        assert_eq!(answer(r#"{"added":1}"#).object_with("added").unwrap()["added"], 1);
        for body in ["{}", "[]", "\"added\"", r#"{"ok":true}"#, "<html>"] {
            let failure = answer(body).object_with("added").unwrap_err();
            assert!(matches!(failure, Failure::Unreachable(_)), "{body}");
        }
    }

    #[test]
    fn a_refusal_is_read_from_the_body() {
        let body = br#"{"error":{"code":"bad_id","message":"no"}}"#.to_vec();
        let refusal = Answer { status: 400, retry_after_s: None, body }.refusal();
        assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("bad_id", "no"));
        let refusal =
            Answer { status: 502, retry_after_s: Some(3), body: b"<html>".to_vec() }.refusal();
        assert_eq!((refusal.code.as_str(), refusal.retry_after_s), ("", Some(3)));
        assert!(refusal.is_passing());
    }

    #[test]
    fn loopback_is_a_host_and_no_beginning() {
        for base in ["http://localhost:8081", "http://127.0.0.2", "https://[::1]:8081/halley"] {
            assert!(is_loopback(base), "{base}");
        }
        for base in ["http://localhost.example.org", "http://127.example.org", "http://10.0.0.1"] {
            assert!(!is_loopback(base), "{base}");
        }
    }

    #[test]
    fn patience_may_be_longer_than_any_clock_counts() {
        let mut tries = 0;
        let result = patiently(Duration::MAX, || {
            tries += 1;
            if tries < 2 { Err(Failure::Unreachable(String::new())) } else { Ok(tries) }
        });
        assert_eq!(result.unwrap(), 2);
    }

    /// A server on loopback that gives this one answer and keeps the connection open meanwhile.
    fn with_answer(answer: &'static [u8], body: impl FnOnce(&Client)) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let settings = Settings {
            url: url.clone(),
            public_url: url,
            key: None,
            token: None,
            ca: None,
            timeout: Duration::from_secs(1),
            answer_timeout: Duration::from_secs(1),
            json: false,
        };
        let client = Client::new(&settings, Door::Api).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                std::io::Write::write_all(&mut connection, answer).unwrap();
                // Until the client has gone.
                let _ = std::io::copy(&mut connection, &mut std::io::sink());
            });
            body(&client);
            drop(client);
        });
    }

    #[test]
    fn an_answer_that_doesnt_end_is_given_up() {
        with_answer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"half\":", |client| {
            let failure = client.get("/v1/status").unwrap_err();
            assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
        });
    }

    #[test]
    fn a_redirect_is_named_and_not_followed() {
        let answer = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\
                       content-length: 0\r\n\r\n";
        with_answer(answer, |client| {
            let failure = client.get("/v1/status").unwrap_err();
            assert_eq!(failure.status(), 1);
            assert!(failure.to_string().contains("a redirect"), "{failure}");
        });
    }

    #[test]
    fn patience_ends_with_the_last_failure() {
        let mut tries = 0;
        let result: Result<()> = patiently(Duration::from_millis(250), || {
            tries += 1;
            Err(Failure::Unreachable(format!("try {tries}")))
        });
        assert!(tries >= 2, "{tries}");
        assert_eq!(result.unwrap_err().to_string(), format!("try {tries}"));
    }

    #[test]
    fn what_is_refused_for_good_is_tried_once() {
        let mut tries = 0;
        let refusal = Refusal {
            status: 400,
            code: String::new(),
            message: String::new(),
            retry_after_s: None,
        };
        let result: Result<()> = patiently(Duration::from_secs(60), || {
            tries += 1;
            Err(Failure::Refused(refusal.clone()))
        });
        assert!(result.is_err());
        assert_eq!(tries, 1);
    }
}
