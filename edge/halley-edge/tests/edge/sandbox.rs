//! `docs/internals/sandbox.md`: the rights that a running edge has given up. `halley-edge`'s own
//! tests try the refused calls, from inside.

use std::fs;
use std::process::Stdio;

use crate::brain::{Edge, WINDOW, command};
use crate::client::sse;

/// A field of `/proc/<pid>/task/<tid>/status` of each thread, with its name.
pub fn of_each_thread(edge: &Edge, field: &str) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", edge.child.id())).unwrap();
    let value = |status: &str, field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
    };
    tasks
        .map(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            (value(&status, "Name"), value(&status, field))
        })
        .collect()
}

/// "In every thread, before a client is accepted": `NoNewPrivs` is 1, `Seccomp` is 2, a filter.
#[test]
fn every_thread_is_in_it() {
    let (edge, _brain) = Edge::start_with(&["--workers", "3"], &[], WINDOW);
    let privileges = of_each_thread(&edge, "NoNewPrivs");
    // The workers, the first thread, that of signals, the allocator's.
    assert!(privileges.len() >= 5, "{privileges:?}");
    assert!(privileges.iter().all(|(_, value)| value == "1"), "{privileges:?}");
    let filters = of_each_thread(&edge, "Seccomp");
    assert!(filters.iter().all(|(_, value)| value == "2"), "{filters:?}");
    let both = of_each_thread(&edge, "Seccomp_filters");
    assert!(both.iter().all(|(_, value)| value == "2"), "{both:?}");
}

/// "Root's capabilities": none is left in any thread. It shows something where root runs the tests.
#[test]
fn no_thread_has_capabilities() {
    let (edge, _brain) = Edge::start_with(&["--workers", "2"], &[], WINDOW);
    for field in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        let sets = of_each_thread(&edge, field);
        let none = |value: &str| value.chars().all(|digit| digit == '0');
        assert!(sets.iter().all(|(_, value)| none(value)), "{field}: {sets:?}");
    }
}

/// "`edge.sandbox = off`"
#[test]
fn it_can_be_left_out() {
    let (edge, mut brain) = Edge::start_with(&["--sandbox", "off"], &[], WINDOW);
    sse(&edge, &mut brain, "u");
    let filters = of_each_thread(&edge, "Seccomp");
    assert!(filters.iter().all(|(_, value)| value == "0"), "{filters:?}");
}

/// "A directory that isn't there is said in a line, as without it."
#[test]
fn a_socket_directory_that_is_missing() {
    let (mut command, dir) = command(&[]);
    fs::remove_dir_all(&dir).unwrap();
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("socket-dir"), "{said}");
}
