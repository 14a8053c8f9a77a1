//! A listener's certificates and CAs for TLS: read from files at the start, and again when they
//! change.
//!
//! One place in the process looks ([`Certificates::watch`]); workers take what is in force at each
//! handshake ([`Certificates::config`]), so a change concerns new connections alone. Files that
//! can't be used, or don't go together, change nothing: they are counted, and told once for each
//! content.
//!
//! Sessions are resumed by tickets that only this process can read; rustls rotates their keys. Each
//! listener has its own keys, and new certificates have new ones: a ticket holds only under the
//! files that it was checked with. Clients with certificates get no tickets: they are checked each
//! time.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig};

use crate::config::Config;
use crate::log;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The one protocol that is spoken inside.
const ALPN: &[u8] = b"http/1.1";

/// A listener's files.
#[derive(Clone, Debug)]
struct Files {
    /// Of the listener, in configuration keys: `public` or `api`.
    listener: &'static str,
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// What was in them.
#[derive(Hash)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// One listener that speaks TLS.
struct Listener {
    files: Files,
    in_force: RwLock<Arc<ServerConfig>>,
    /// The hash of what was looked at last.
    seen: Mutex<u64>,
}

/// See the module.
pub struct Certificates {
    public: Option<Listener>,
    api: Option<Listener>,
    hasher: RandomState,
    /// How often other files were put in force.
    pub read: AtomicU64,
    /// How often other files could not be.
    pub unusable: AtomicU64,
}

impl Certificates {
    /// Reads the files that the command line names.
    ///
    /// # Errors
    /// A sentence that names the configuration's key.
    pub fn load(config: &Config) -> Result<Certificates, String> {
        let hasher = RandomState::new();
        let files = |listener, certificate: &Option<PathBuf>, key: &Option<PathBuf>, ca| {
            let (certificate, key) = (certificate.clone()?, key.clone()?);
            Some(Files { listener, certificate, key, client_ca: ca })
        };
        let (public, api) = (
            files("public", &config.public_certificate, &config.public_key, None),
            files("api", &config.api_certificate, &config.api_key, config.api_client_ca.clone()),
        );
        let listen = |files: Files| {
            let contents = files.read();
            let seen = Mutex::new(hasher.hash_one(&contents));
            let in_force = RwLock::new(Arc::new(files.server_config(&contents?)?));
            Ok::<_, String>(Listener { files, in_force, seen })
        };
        Ok(Certificates {
            public: public.map(&listen).transpose()?,
            api: api.map(&listen).transpose()?,
            hasher,
            read: AtomicU64::new(0),
            unusable: AtomicU64::new(0),
        })
    }

    fn listener(&self, api: bool) -> Option<&Listener> {
        if api { self.api.as_ref() } else { self.public.as_ref() }
    }

    /// Does the listener speak TLS?
    pub fn has(&self, api: bool) -> bool {
        self.listener(api).is_some()
    }

    /// Is there a listener that speaks TLS?
    pub fn any(&self) -> bool {
        self.has(false) || self.has(true)
    }

    /// What is in force at a listener for the next handshake; `None` if it speaks no TLS.
    pub fn config(&self, api: bool) -> Option<Arc<ServerConfig>> {
        let in_force = self.listener(api)?.in_force.read();
        Some(Arc::clone(&in_force.unwrap_or_else(PoisonError::into_inner)))
    }

    /// Looks at the files for as long as the process lives.
    pub fn watch(&self) {
        loop {
            std::thread::sleep(LOOK_EVERY);
            self.look();
        }
    }

    fn look(&self) {
        for listener in [&self.public, &self.api].into_iter().flatten() {
            let contents = listener.files.read();
            let hash = self.hasher.hash_one(&contents);
            let mut seen = listener.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut *seen, hash) == hash {
                continue;
            }
            let name = listener.files.listener;
            match contents.and_then(|contents| listener.files.server_config(&contents)) {
                Ok(config) => {
                    let mut in_force =
                        listener.in_force.write().unwrap_or_else(PoisonError::into_inner);
                    *in_force = Arc::new(config);
                    self.read.fetch_add(1, Ordering::Relaxed);
                    log!("{name}.tls: the certificates changed; new connections get the new ones");
                }
                Err(sentence) => {
                    self.unusable.fetch_add(1, Ordering::Relaxed);
                    log!("{sentence}; those that were read before stay in force");
                }
            }
        }
    }
}

impl Files {
    fn read(&self) -> Result<Contents, String> {
        let read = |key: &str, path: &Path| {
            fs::read(path).map_err(|e| self.wrong(key, path, &format!("can't be read ({e})")))
        };
        Ok(Contents {
            certificate: read("certificate", &self.certificate)?,
            key: read("key", &self.key)?,
            client_ca: self.client_ca.as_ref().map(|path| read("client_ca", path)).transpose()?,
        })
    }

    fn wrong(&self, key: &str, path: &Path, what: &str) -> String {
        format!("{}.tls.{key}: {} {what}", self.listener, path.display())
    }

    fn certificates(
        &self,
        key: &str,
        path: &Path,
        pem: &[u8],
    ) -> Result<Vec<CertificateDer<'static>>, String> {
        let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        all.ok()
            .filter(|all| !all.is_empty())
            .ok_or_else(|| self.wrong(key, path, "has no certificates in PEM"))
    }

    fn server_config(&self, contents: &Contents) -> Result<ServerConfig, String> {
        let chain = self.certificates("certificate", &self.certificate, &contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|_| self.wrong("key", &self.key, "has no private key in PEM"))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|e| self.wrong("key", &self.key, &format!("can't be used ({e})")))?;
        let builder = match (&self.client_ca, &contents.client_ca) {
            (Some(path), Some(pem)) => {
                builder.with_client_cert_verifier(self.verifier(path, pem, provider)?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let what = format!("is not the key of {}", self.certificate.display());
                self.wrong("key", &self.key, &what)
            }
            e => self.wrong("certificate", &self.certificate, &format!("can't be used ({e})")),
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if self.client_ca.is_none() {
            config.ticketer = ring::Ticketer::new()
                .map_err(|e| format!("{}.tls: no key for tickets ({e})", self.listener))?;
        } else {
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }

    fn verifier(
        &self,
        path: &Path,
        pem: &[u8],
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates("client_ca", path, pem)? {
            roots.add(certificate).map_err(|e| {
                self.wrong("client_ca", path, &format!("can't be used as a CA ({e})"))
            })?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| self.wrong("client_ca", path, &format!("can't be used ({e})")))
    }
}
