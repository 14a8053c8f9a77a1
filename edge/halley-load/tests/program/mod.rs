//! The built program as tests use it.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::double::Double;

pub fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_halley-load"))
}

pub fn run(arguments: &[&str]) -> Output {
    tool().args(arguments).output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A path for this test alone, removed with the value.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("halley-load-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(&self.0).unwrap()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs `publish` and returns its figures.
pub fn publish(double: &Double, name: &str, arguments: &[&str]) -> (Output, Value) {
    publish_to(&double.url, name, arguments)
}

/// Runs `publish` for this server and returns its figures.
pub fn publish_to(url: &str, name: &str, arguments: &[&str]) -> (Output, Value) {
    let file = Scratch::new(name);
    let mut all = vec!["publish", "--url", url, "--json", file.path()];
    all.extend(arguments);
    let output = run(&all);
    (output, file.json())
}

/// Clients under control.
pub struct Clients {
    pub child: Child,
    pub commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Clients {
    pub fn start(double: &Double, arguments: &[&str]) -> Self {
        Self::of(&double.url, arguments)
    }

    /// Clients of this server.
    pub fn of(url: &str, arguments: &[&str]) -> Self {
        let mut child = tool()
            .args(["clients", "--control", "--url", url])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, answers }
    }

    pub fn ask(&mut self, command: &str) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Asks for reports until one satisfies `wanted`, for thirty seconds at most.
    pub fn report_when(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let report = self.ask("report");
            if wanted(&report) || Instant::now() > deadline {
                return report;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn quit(mut self) {
        writeln!(self.commands, "quit").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}
