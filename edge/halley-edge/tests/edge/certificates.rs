//! Certificates for one test, by `openssl`: a CA, and what it has signed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
};

use crate::brain::Edge;
use crate::client::Client;

/// Kinds of keys, as `openssl req -newkey` wants them.
const EC: [&str; 3] = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: [&str; 1] = ["rsa:3072"];

/// A directory with `<name>.pem` and `<name>.key`.
pub struct Certificates {
    dir: PathBuf,
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Certificates {
    /// A CA and a certificate `server` for `localhost`.
    pub fn new() -> Certificates {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(format!("halley-certificates-{pid}-{n}"));
        std::fs::create_dir_all(&dir).unwrap();
        let certificates = Certificates { dir };
        certificates.authority("ca");
        certificates.sign("server", "ca");
        certificates
    }

    pub fn file(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    /// The same, but what `server` signs is dear.
    pub fn dear() -> Certificates {
        let certificates = Certificates::new();
        certificates.sign_by(&RSA, "server", "ca");
        certificates
    }

    fn request(&self, kind: &[&str], name: &str, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        command.current_dir(&self.dir).args(["req", "-x509", "-newkey"]).args(kind);
        command.args(["-nodes", "-days", "2"]);
        command.arg("-subj").arg(format!("/CN={name}")).args(arguments);
        command.arg("-keyout").arg(format!("{name}.key")).arg("-out").arg(format!("{name}.pem"));
        assert!(command.stderr(Stdio::null()).status().unwrap().success(), "openssl: {name}");
    }

    /// A CA of its own.
    pub fn authority(&self, name: &str) {
        self.request(&EC, name, &[]);
    }

    /// A certificate, new if there was one of that name.
    pub fn sign(&self, name: &str, authority: &str) {
        self.sign_by(&EC, name, authority);
    }

    fn sign_by(&self, kind: &[&str], name: &str, authority: &str) {
        let (pem, key) = (format!("{authority}.pem"), format!("{authority}.key"));
        let constraints = "basicConstraints=critical,CA:FALSE";
        let name_of = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let arguments = ["-CA", &*pem, "-CAkey", &*key, "-addext", constraints, "-addext", name_of];
        self.request(kind, name, &arguments);
    }

    /// A certificate of version 1 of X.509, which has no extensions.
    pub fn sign_version_1(&self, name: &str) {
        self.sign(name, "ca");
        let run = |arguments: &str| {
            let mut command = Command::new("openssl");
            command.current_dir(&self.dir).args(arguments.split(' ')).stderr(Stdio::null());
            assert!(command.status().unwrap().success(), "openssl {arguments}");
        };
        run(&format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -set_serial 7 -out {name}.pem"
        ));
    }

    /// A handshake by `openssl`, as rustls wouldn't show what it doesn't take itself.
    pub fn connect_with(&self, name: &str, address: &str) {
        let (pem, key) = (format!("{name}.pem"), format!("{name}.key"));
        let mut command = Command::new("openssl");
        command.current_dir(&self.dir).args(["s_client", "-connect", address]);
        command.args(["-cert", &*pem, "-key", &*key]).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().unwrap();
    }

    /// The edge's arguments for TLS on a listener.
    pub fn arguments(&self, listener: &str) -> [String; 4] {
        let (certificate, key) = (format!("--{listener}-certificate"), format!("--{listener}-key"));
        [certificate, self.file("server.pem"), key, self.file("server.key")]
    }

    /// What a client is made of that trusts the CA; with a certificate of its own, if it is named.
    pub fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        own: Option<&str>,
    ) -> ClientConfig {
        self.client_of(version, own, default_provider().kx_groups)
    }

    /// The same, of one that has these groups for its key exchange.
    pub fn client_of(
        &self,
        version: &'static SupportedProtocolVersion,
        own: Option<&str>,
        kx_groups: Vec<&'static dyn SupportedKxGroup>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.dir.join("ca.pem"))).unwrap();
        let provider = CryptoProvider { kx_groups, ..default_provider() };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.dir.join(format!("{name}.key")));
                let own = certificate(&self.dir.join(format!("{name}.pem")));
                builder.with_client_auth_cert(vec![own], key.unwrap()).unwrap()
            }
        }
    }
}

pub fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// The two versions, as rustls names them and as they are told.
pub const VERSIONS: [(&SupportedProtocolVersion, ProtocolVersion); 2] =
    [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)];

/// Lets a client that has said nothing yet speak TLS.
pub fn sealed(mut client: Client, config: &Arc<ClientConfig>) -> Client {
    let name = "localhost".try_into().unwrap();
    client.tls = Some(Box::new(ClientConnection::new(Arc::clone(config), name).unwrap()));
    client
}

/// The same, of the public listener and with a handshake that is over.
pub fn public(edge: &Edge, config: &Arc<ClientConfig>) -> Client {
    let mut client = sealed(edge.public(), config);
    client.shake_hands().unwrap();
    client
}
