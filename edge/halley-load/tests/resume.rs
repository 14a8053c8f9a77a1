//! Clients that leave and come back, and events that are numbered: is what went wrong counted, and
//! nothing else?

#![allow(clippy::unwrap_used)]

mod double;
mod program;

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use double::{Double, Faults};
use program::{Clients, Scratch, publish, run, stderr};
use serde_json::Value;

/// Three users who follow `g0`, two of them `g1` as well, and what was published so far.
struct Scene {
    name: String,
    double: Double,
    clients: Clients,
    numbers: Scratch,
    _follows: Scratch,
}

impl Scene {
    fn new(name: &str, transport: &str, faults: Faults) -> Self {
        let double = Double::start(faults);
        let (follows, numbers) =
            (Scratch::new(&format!("{name}-f")), Scratch::new(&format!("{name}-n")));
        fs::write(&follows.0, "1 g0\n2 g0\n3 g0\n1 g1\n2 g1\n").unwrap();
        let options = ["--connections", "3", "--reconnect", "--cursors", "--transport", transport];
        let options = [&options[..], &["--follows", follows.path()]].concat();
        let mut clients = Clients::start(&double, &options);
        let ready = clients.ask("ready");
        assert_eq!(ready["connected"], 3, "{ready}");
        Self { name: name.to_owned(), double, clients, numbers, _follows: follows }
    }

    /// Publishes so many numbered events, about `g0` and `g1` in turn.
    fn publish(&self, events: u64) -> Value {
        let (count, numbers) = (events.to_string(), self.numbers.path());
        let options = ["--closed", "--connections", "2", "--events", &count, "--in-turn"];
        let options = [&options[..], &["--subjects", "groups:2", "--numbers", numbers]].concat();
        let options = [&options[..], &["--seconds", "60"]].concat();
        let (output, figures) = publish(&self.double, &self.name, &options);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(figures["accepted"], events);
        figures
    }

    fn expect(&mut self) {
        let answer = self.clients.ask(&format!("expect {}", self.numbers.path()));
        assert_eq!(answer["done"], "expect", "{answer}");
    }

    /// The clients leave, ten events come, the clients return.
    fn miss_ten(&mut self, how: &str) -> Value {
        assert_eq!(self.clients.ask("drop")["done"], "drop");
        let report = self.clients.ask("report");
        assert_eq!((&report["connected"], &report["lost"]), (&0.into(), &0.into()));
        self.publish(10);
        self.expect();
        self.clients.ask("mark return");
        let answer = self.clients.ask(&format!("return {how}"));
        assert_eq!(answer["done"], "return", "{answer}");
        let ready = self.clients.ask("ready");
        assert_eq!((&ready["connected"], &ready["lost"]), (&3.into(), &0.into()), "{ready}");
        answer
    }
}

fn of<'a>(report: &'a Value, names: &[&str]) -> Vec<&'a Value> {
    names
        .iter()
        .map(|name| report.pointer(&format!("/{}", name.replace('.', "/"))).unwrap())
        .collect()
}

/// How many of the scene's users get an event.
fn followers(event: &Value) -> u64 {
    if event["subject"] == "g0" { 3 } else { 2 }
}

#[test]
fn who_comes_back_with_a_cursor_misses_nothing() {
    for transport in ["sse", "ndjson", "ws"] {
        let mut scene = Scene::new(&format!("back-{transport}"), transport, Faults::default());
        scene.publish(20);
        let report = scene.clients.report_when(|report| report["events"] == 60);
        // Thirty of g0's, twenty of g1's; the third user doesn't follow g1.
        let names = ["found.numbered", "found.gaps", "found.duplicates", "standing.cursors"];
        assert_eq!(of(&report, &names), [50, 0, 0, 3], "{report}");
        let returned = scene.miss_ten("cursors");
        // The last one may be of g1, which the third user gets without being owed it.
        let report = scene.clients.report_when(|report| report["events"] == 30);
        let names = ["standing.owing", "standing.owed", "found.caught_up", "events"];
        assert_eq!(of(&report, &names), [0, 0, 25, 30], "{report}");
        let names = ["found.gaps", "found.duplicates", "found.order_breaks", "found.gaps_told"];
        assert_eq!(of(&report, &names), [0, 0, 0, 0], "{report}");
        let at = |value: &Value| value.as_u64().unwrap();
        assert!(at(&report["standing"]["last_caught_up_ns"]) > at(&returned["at_ns"]));
        assert!(at(&report["last_welcome_ns"]) > at(&returned["at_ns"]));
        scene.clients.quit();
    }
}

#[test]
fn strangers_owe_nothing_and_see_no_gap() {
    let mut scene = Scene::new("strangers", "sse", Faults::default());
    scene.publish(4);
    scene.clients.report_when(|report| report["events"] == 12);
    scene.miss_ten("strangers 1000");
    scene.publish(4);
    let report = scene.clients.report_when(|report| report["events"] == 12);
    let names = ["events", "found.gaps", "found.duplicates", "standing.owed", "found.caught_up"];
    assert_eq!(of(&report, &names), [12, 0, 0, 0, 0], "{report}");
    scene.clients.quit();
}

#[test]
fn what_is_lost_repeated_or_forgotten_is_counted() {
    let lose = Faults { lose: Some(3), ..Faults::default() };
    let mut scene = Scene::new("lose", "sse", lose);
    scene.publish(8);
    scene.clients.report_when(|report| report["events"] == 21);
    scene.expect();
    let report = scene.clients.ask("report");
    let names = ["standing.owing", "standing.owed", "found.gaps", "found.order_breaks"];
    let lost = followers(&scene.double.events()[2]);
    assert_eq!(of(&report, &names), [lost, lost, lost, 0], "{report}");
    scene.clients.quit();

    let repeat = Faults { repeat: 2, ..Faults::default() };
    let mut scene = Scene::new("repeat", "ndjson", repeat);
    scene.publish(8);
    scene.clients.report_when(|report| report["events"] == 24);
    scene.miss_ten("cursors");
    let report = scene.clients.report_when(|report| report["events"] == 36);
    let repeated: u64 = scene.double.events()[6..8].iter().map(followers).sum();
    let names = ["standing.owed", "found.duplicates", "found.order_breaks", "found.gaps"];
    assert_eq!(of(&report, &names), [0, repeated, 0, 0], "{report}");
    scene.clients.quit();

    let forgetful = Faults { forgetful: true, ..Faults::default() };
    let mut scene = Scene::new("forgetful", "ws", forgetful);
    scene.publish(8);
    scene.clients.report_when(|report| report["events"] == 24);
    scene.miss_ten("cursors");
    let report = scene.clients.report_when(|report| report["found"]["gaps_told"] == 3);
    assert_eq!(of(&report, &["found.gaps_told", "standing.owing", "standing.owed"]), [3, 3, 25]);
    scene.clients.quit();
}

#[test]
fn busy_servers_are_left_alone_for_as_long_as_they_say() {
    let busy = Faults { busy: AtomicU64::new(2), ..Faults::default() };
    let double = Double::start(busy);
    let options = ["--connections", "3", "--reconnect", "--cursors"];
    let mut clients = Clients::start(&double, &options);
    let ready = clients.ask("ready");
    assert_eq!(of(&ready, &["connected", "busy", "failed"]), [3, 2, 2], "{ready}");
    let ns = |name: &str| ready[name].as_u64().unwrap();
    let waited_ms = (ns("last_welcome_ns") - ns("marked_ns")) / 1_000_000;
    assert!(waited_ms >= 1_450, "{waited_ms} ms: neither at once nor the default");
    clients.quit();
}

#[test]
fn numbered_events_are_sent_again_until_they_are_taken() {
    let faults = Faults { refuse_every: Some(5), drop_every: Some(7), ..Faults::default() };
    let scene = Scene::new("again", "sse", faults);
    let figures = scene.publish(60);
    assert!(figures["requests_resent"].as_u64().unwrap() > 15, "{figures}");
    assert_eq!(of(&figures, &["requests_broken", "requests_unsent", "refused"]), [0, 0, 0]);
    // What the double answered it has kept; what it refused came again with the same id.
    let events = scene.double.events();
    for subject in ["g0", "g1"] {
        let about = |event: &&Value| event["subject"] == subject;
        let numbers: Vec<u64> =
            events.iter().filter(about).map(|e| e["data"]["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=30).collect::<Vec<_>>(), "{subject}");
    }
    let mut ids: Vec<&str> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60);
    assert_eq!(scene.numbers.json(), serde_json::json!({"g0": 30, "g1": 30}));
    scene.clients.quit();
}

#[test]
fn publishers_are_closed_loops_that_may_choose_ids_and_acknowledgement() {
    let double = Double::start(Faults::default());
    let options = ["--publishers", "4", "--events", "50", "--seconds", "60"];
    let options = [&options[..], &["--subjects", "groups:9"]].concat();
    let (output, figures) =
        publish(&double, "publishers", &[&options[..], &["--ids", "--ack", "memory"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((&figures["accepted"], &figures["latency_ms"]["count"]), (&50.into(), &50.into()));
    let events = double.events();
    assert!(events.iter().all(|event| event["ack"] == "memory" && event["id"].is_string()));
    let (_, _) = publish(&double, "publishers", &options);
    let later = &double.events()[50..];
    assert_eq!(later.len(), 50);
    assert!(later.iter().all(|event| event.get("ack").is_none() && event.get("id").is_none()));
}

#[test]
fn flow_is_seen_by_whom_events_reach() {
    let mut scene = Scene::new("flow", "sse", Faults::default());
    scene.publish(2);
    scene.clients.report_when(|report| report["events"] == 6);
    assert_eq!(scene.clients.ask("flow")["done"], "flow");
    std::thread::sleep(Duration::from_millis(20));
    let before = scene.clients.ask("report");
    assert_eq!(of(&before, &["standing.flowing", "standing.first_flow_ns"]), [0, 0]);
    scene.publish(2);
    let report = scene.clients.report_when(|report| report["standing"]["flowing"] == 3);
    assert_eq!(report["standing"]["flowing"], 3, "{report}");
    assert!(
        report["standing"]["first_flow_ns"].as_u64() <= report["standing"]["last_flow_ns"].as_u64()
    );
    scene.clients.quit();
}

#[test]
fn orders_that_cant_be_obeyed_say_what_can() {
    let double = Double::start(Faults::default());
    let mut clients = Clients::start(&double, &["--connections", "2"]);
    clients.ask("ready");
    for (order, expected) in [
        ("return", "expected mark NAME"),
        ("return cursors x", "expected connections per second"),
        ("expect /nowhere", "expected --follows"),
        ("flow soon", "expected nanoseconds"),
        ("drop now", "expected mark NAME"),
    ] {
        let answer = clients.ask(order);
        assert!(answer["error"].as_str().unwrap().contains(expected), "{order}: {answer}");
    }
    assert_eq!(clients.ask("report")["connected"], 2);
    clients.quit();
    let output = run(&["clients", "--connections", "1", "--cursors", "--transport", "test"]);
    assert!(stderr(&output).contains("/test/<user> has none"), "{}", stderr(&output));
}
