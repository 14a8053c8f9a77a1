//! Checks of the server's machine, if this is it: limits of the edge's process, settings of the
//! kernel, the disk of `data.dir`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Finding, State};
use crate::out::{bytes, count};
use crate::settings::data_dir_of_launcher;

/// A hundred thousand connections, and some more descriptors.
const FILES_MIN: u64 = 110_000;
const DISK_FAILURE_BYTES: u64 = 256 << 20;
const DISK_WARNING_BYTES: u64 = 4 << 30;

/// Settings of the kernel: what each must be at least, and what for.
const SYSCTLS: [(&str, u64, &str); 5] = [
    ("net.core.somaxconn", 4_096, "clients that connect at the same moment"),
    ("net.ipv4.tcp_max_syn_backlog", 4_096, "clients that connect at the same moment"),
    ("fs.nr_open", 1 << 20, "connections of one process"),
    ("fs.file-max", 1 << 20, "connections of all processes"),
    ("net.netfilter.nf_conntrack_max", 262_144, "connections that the firewall remembers"),
];

/// All checks, if the edge of this status runs here.
pub fn check(status: &Value) -> Vec<Finding> {
    let workers = status["workers"].as_array().into_iter().flatten();
    let here = workers.filter_map(|worker| worker["edge"].as_u64()).find(|pid| is_edge(*pid));
    let Some(edge) = here else {
        return vec![Finding::ok("machine", "not looked at: the server runs on another one")];
    };
    let limits = fs::read_to_string(format!("/proc/{edge}/limits")).unwrap_or_default();
    let mut findings = vec![files(&limits)];
    findings.extend(sysctls(|name| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
    }));
    findings.extend(disk());
    findings
}

/// What may be wrong where no server answers.
pub fn without_server() -> Vec<Finding> {
    disk().into_iter().collect()
}

fn is_edge(pid: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "halley-edge")
}

/// Of the text of `/proc/PID/limits`.
fn files(limits: &str) -> Finding {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|rest| rest.split_whitespace().next()).unwrap_or("0");
    let soft = if soft == "unlimited" { u64::MAX } else { soft.parse().unwrap_or(0) };
    let found = format!("the edge may open {}", count(soft));
    if soft >= FILES_MIN {
        return Finding::ok("open files", found);
    }
    let remedy = "LimitNOFILE=1048576 in the unit, or `ulimit -n 1048576` before the start: a \
                  connection takes one";
    Finding::wrong("open files", State::Warning, found, remedy)
}

/// Of the kernel's values; one that isn't there doesn't count.
fn sysctls(value: impl Fn(&str) -> Option<u64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, min, what) in SYSCTLS {
        let Some(value) = value(name) else { continue };
        let found = format!("{name} = {value}");
        findings.push(if value >= min {
            Finding::ok("kernel", found)
        } else {
            let remedy = format!(
                "`sysctl -w {name}={min}`, and in /etc/sysctl.d/halley.conf: it bounds {what}"
            );
            Finding::wrong("kernel", State::Warning, found, remedy)
        });
    }
    findings
}

fn disk() -> Option<Finding> {
    let dir = data_dir_of_launcher()?;
    let output =
        Command::new("df").args(["-Pk", "--"]).arg(&dir).env("LC_ALL", "C").output().ok()?;
    free_of_df(&String::from_utf8_lossy(&output.stdout), &dir)
}

/// Of the output of `df -Pk` (POSIX: the fourth column of the second line is what is free).
fn free_of_df(text: &str, dir: &Path) -> Option<Finding> {
    let free_kib: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    let free = free_kib.saturating_mul(1_024);
    let found = format!("{} free at {}", bytes(free), dir.display());
    let state = match free {
        0..DISK_FAILURE_BYTES => State::Failure,
        DISK_FAILURE_BYTES..DISK_WARNING_BYTES => State::Warning,
        _ => return Some(Finding::ok("disk", found)),
    };
    let remedy = "free some, or lower history.bytes: on a full disk nothing is published";
    Some(Finding::wrong("disk", state, found, remedy))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn few_open_files_are_a_warning() {
        let line =
            |soft: &str| format!("Limit  Soft  Hard\nMax open files    {soft}   4096  files\n");
        assert_eq!(files(&line("1024")).state, State::Warning);
        assert_eq!(files(&line("1048576")).state, State::Ok);
        assert_eq!(files(&line("unlimited")).state, State::Ok);
        assert_eq!(files("").state, State::Warning);
    }

    #[test]
    fn a_setting_that_is_too_low_is_named_with_its_command() {
        let found = sysctls(|name| (name == "net.core.somaxconn").then_some(128));
        assert_eq!(found.len(), 1);
        assert!(found[0].remedy.contains("sysctl -w net.core.somaxconn=4096"));
        assert_eq!(sysctls(|_| Some(u64::MAX)).iter().filter(|f| f.state != State::Ok).count(), 0);
    }

    #[test]
    fn a_full_disk_is_a_failure() {
        let df = |free: u64| {
            format!(
                "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                                      /dev/vda1 1000 1 {free} 1% /\n"
            )
        };
        let state = |free| free_of_df(&df(free), Path::new("/data")).unwrap().state;
        assert_eq!(state(1_000), State::Failure);
        assert_eq!(state(1 << 20), State::Warning);
        assert_eq!(state(1 << 30), State::Ok);
        assert_eq!(free_of_df("", Path::new("/data")), None);
    }
}
