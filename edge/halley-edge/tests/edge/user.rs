//! `docs/internals/sandbox.md`, "A user of its own": the user that root's edge becomes, and
//! refusals at its start. Cases that need root run where root runs the tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::brain::{Edge, WINDOW, command};
use crate::certificates::{Certificates, public};
use crate::sandbox::of_each_thread;
use crate::tls::open_sse;

/// Debian's users of everybody's machine.
const USER: &str = "daemon";
const OTHER: u32 = 2;

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    root.is_ok_and(|uid| uid == 0)
}

/// Numbers of a user and its group, by `/etc/passwd`.
fn ids(name: &str) -> (u32, u32) {
    let table = fs::read_to_string("/etc/passwd").unwrap();
    let row = table.lines().find(|row| row.split(':').next() == Some(name)).unwrap();
    let number = |place| row.split(':').nth(place).unwrap().parse().unwrap();
    (number(2), number(3))
}

/// What an edge says that doesn't start, in one line; as another user than root if it is named.
fn refusal(arguments: &[&str], uid: Option<u32>) -> String {
    let (mut command, dir) = command(arguments);
    if let Some(uid) = uid {
        chown(&dir, Some(uid), Some(uid)).unwrap();
        command.uid(uid).gid(uid);
    }
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let _ = fs::remove_dir_all(dir);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    said
}

/// "all threads are that user's, with its groups and without any capability"
#[test]
fn all_threads_are_another_user() {
    if !is_root() {
        return;
    }
    let (uid, gid) = ids(USER);
    for sandbox in ["on", "off"] {
        let arguments = ["--workers", "2", "--sandbox", sandbox, "--user", USER];
        // Both workers serve after their handshakes.
        let (edge, _brain) = Edge::start_with(&arguments, &[], WINDOW);
        for (field, own) in [("Uid", uid), ("Gid", gid)] {
            let found = of_each_thread(&edge, field);
            let wanted = [own; 4].map(|id| id.to_string()).join("\t");
            assert!(found.len() >= 4 && found.iter().all(|(_, ids)| *ids == wanted), "{found:?}");
        }
        let groups = of_each_thread(&edge, "Groups");
        assert!(!groups.iter().any(|(_, groups)| groups.split(' ').any(|group| group == "0")));
        for field in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let sets = of_each_thread(&edge, field);
            assert!(sets.iter().all(|(_, set)| set.chars().all(|digit| digit == '0')), "{sets:?}");
        }
    }
}

/// "A user that doesn't exist, that has root's rights, or that the edge can't become is refused"
#[test]
fn users_that_are_none() {
    let said = refusal(&["--user", "no-such-user"], None);
    assert!(said.contains("edge.user = no-such-user: this machine has no such user"), "{said}");
    let said = refusal(&["--user", "root"], None);
    assert!(said.contains("edge.user = root: it has root's rights"), "{said}");
    let said = refusal(&["--user", USER], is_root().then_some(OTHER));
    assert!(said.contains("edge.user = daemon: only root can become another user"), "{said}");
}

/// "A file that the user can't read is refused at the start", and one of its groups' is not.
#[test]
fn certificates_are_the_users_to_read() {
    if !is_root() {
        return;
    }
    let certificates = Certificates::new();
    let key = certificates.file("server.key");
    let [certificate, key_file] = ["server.pem", "server.key"].map(|name| certificates.file(name));
    let arguments =
        ["--public-certificate", &certificate, "--public-key", &key_file, "--user", USER];
    let mode = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let said = refusal(&arguments, None);
    assert!(said.starts_with("halley-edge: public.tls.key: "), "{said}");
    assert!(said.contains("can't be read by daemon"), "{said}");
    mode(0o640);
    chown(&key, None, Some(ids(USER).1)).unwrap();
    let (edge, mut brain) = Edge::start_with(&arguments, &[], WINDOW);
    let config = std::sync::Arc::new(certificates.client(&rustls::version::TLS13, None));
    open_sse(&mut public(&edge, &config), &mut brain);
}

/// "An edge that is started as that user already changes nothing."
#[test]
fn the_same_user_is_no_other() {
    let (name, uid) = match is_root() {
        true => ("bin".to_owned(), Some(OTHER)),
        false => (std::env::var("USER").unwrap_or_default(), None),
    };
    if uid.is_none() && name.is_empty() {
        return;
    }
    let (mut command, dir) = command(&["--user", &name]);
    if let Some(uid) = uid {
        chown(&dir, Some(uid), Some(uid)).unwrap();
        command.uid(uid).gid(uid);
    }
    let child = command.spawn().unwrap();
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let edge = Edge { child, dir, public: nowhere, api: nowhere };
    let mut brain = edge.dial();
    brain.hello(&[], WINDOW);
    assert!(matches!(brain.next(), crate::brain::Seen::HelloEdge { .. }));
}
