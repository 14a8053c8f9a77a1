//! The built program against a double of the server: does it count right?

#![allow(clippy::unwrap_used)]

mod double;
mod program;

use std::process::Stdio;
use std::time::Duration;

use double::{Double, Faults};
use program::{Clients, Scratch, publish, run, stderr, tool};

#[test]
fn every_event_is_counted_once_for_every_transport() {
    for transport in ["sse", "ndjson", "ws", "test"] {
        let double = Double::start(Faults::default());
        let options = ["--connections", "20", "--transport", transport, "--users", "101-120"];
        let mut clients = Clients::start(&double, &options);
        let ready = clients.ask("ready");
        assert_eq!((&ready["connected"], &ready["failed"]), (&20.into(), &0.into()), "{ready}");
        assert_eq!(ready["welcome_ms"]["count"], 20);
        assert!(ready["connects_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(double.users(), (101..=120).map(|n| n.to_string()).collect::<Vec<_>>());

        assert_eq!(clients.ask("mark run")["marked"], "run");
        let (output, figures) = publish(
            &double,
            transport,
            &["--rate", "200", "--seconds", "0.5", "--subjects", "uniform:1-9"],
        );
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(figures["accepted"], 100);
        assert_eq!(figures["sessions"], 2000);
        assert_eq!(figures["requests"]["200"], 100);
        assert_eq!(figures["latency_ms"]["count"], 100);

        let report = clients.report_when(|report| report["events"] == 2000);
        assert_eq!((&report["name"], &report["events"]), (&"run".into(), &2000.into()));
        assert_eq!((&report["events_unstamped"], &report["lost"]), (&0.into(), &0.into()));
        let latency = &report["latency_ms"];
        assert_eq!(latency["count"], 2000);
        let p50 = latency["p50"].as_f64().unwrap();
        // By another clock it would be the longest that there is, ten minutes.
        assert!(p50 > 0.0 && p50 < 60_000.0, "{report}");
        assert_eq!(clients.ask("mark again")["marked"], "again");
        let report = clients.ask("report");
        assert_eq!((&report["events"], &report["connected"]), (&0.into(), &20.into()));
        clients.quit();
    }
}

#[test]
fn batches_are_as_many_events_as_lines() {
    let double = Double::start(Faults { bad_subject: Some("g0"), ..Faults::default() });
    let mut clients = Clients::start(&double, &["--connections", "3", "--transport", "sse"]);
    clients.ask("ready");
    let options = ["--rate", "400", "--seconds", "0.5", "--batch", "20", "--subjects", "groups:2"];
    let (_, figures) = publish(&double, "batches", &options);
    let of = |name: &str| figures[name].as_u64().unwrap();
    assert_eq!(of("accepted") + of("refused"), 200);
    assert!((60..140).contains(&of("refused")), "half are about g0: {figures}");
    assert_eq!(figures["requests"]["200"], 10);
    assert_eq!(of("sessions"), 3 * of("accepted"));
    let expected = of("sessions");
    let report = clients.report_when(|report| report["events"] == expected);
    assert_eq!(report["events"], expected);
    clients.quit();
}

/// Coordinated omission: a stall of 400 ms in a run of 800 ms must show in half of the latencies.
/// A tool that measures from the sending would see one slow request in 160.
#[test]
fn a_stalled_server_shows_as_latency() {
    let stall = Some((20, Duration::from_millis(400)));
    let double = Double::start(Faults { stall, ..Faults::default() });
    let mut clients = Clients::start(&double, &["--connections", "4", "--transport", "sse"]);
    clients.ask("ready");
    let rate = ["--rate", "200", "--seconds", "0.8", "--subjects", "uniform:1-9"];
    let (_, figures) =
        publish(&double, "stall", &[&rate[..], &["--connections", "2"][..]].concat());
    assert_eq!(figures["accepted"], 160, "all that was due was sent: {figures}");
    assert_eq!(figures["requests_unsent"], 0);
    let report = clients.report_when(|report| report["events"] == 640);
    for latency in [&figures["latency_ms"], &report["latency_ms"]] {
        let (p90, max) = (latency["p90"].as_f64().unwrap(), latency["max"].as_f64().unwrap());
        assert!((380.0..20_000.0).contains(&max), "{latency}");
        assert!(p90 > 250.0, "{latency}");
    }
    clients.quit();
}

#[test]
fn refusals_and_broken_connections_are_told_apart() {
    let faults = Faults { refuse_every: Some(5), drop_every: Some(7), ..Faults::default() };
    let double = Double::start(faults);
    let options = ["--rate", "100", "--seconds", "0.7", "--subjects", "uniform:1-9"];
    let (output, figures) = publish(&double, "refusals", &options);
    assert!(output.status.success());
    // Of 70 requests every seventh was dropped, and every fifth refused that wasn't dropped.
    assert_eq!(figures["requests_broken"], 10, "{figures}");
    assert_eq!(
        (&figures["requests"]["503"], &figures["requests"]["200"]),
        (&12.into(), &48.into())
    );
    assert_eq!((&figures["accepted"], &figures["refused"]), (&48.into(), &12.into()));
    assert!(figures["first_problem"].as_str().unwrap().contains("closed"));
}

#[test]
fn a_closed_loop_takes_what_the_server_gives() {
    let double = Double::start(Faults::default());
    let options = ["--closed", "--connections", "4", "--subjects", "zipf:1-9:1"];
    let options = [&options[..], &["--events", "600", "--seconds", "60"]].concat();
    let (output, figures) = publish(&double, "closed", &options);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((&figures["accepted"], &figures["requests_broken"]), (&600.into(), &0.into()));
}

#[test]
fn streams_that_end_are_lost_and_come_back_only_if_asked() {
    let double = Double::start(Faults::default());
    let count = ["--connections", "5", "--transport", "sse"];
    let mut stays_away = Clients::start(&double, &count);
    let mut comes_back = Clients::start(&double, &[&count[..], &["--reconnect"][..]].concat());
    stays_away.ask("ready");
    comes_back.ask("ready");
    double.cut_streams();
    let report = stays_away.report_when(|report| report["lost"] == 5);
    assert_eq!((&report["lost"], &report["connected"]), (&5.into(), &0.into()));
    comes_back.report_when(|report| report["lost"] == 5);
    let report = comes_back.report_when(|report| report["connected"] == 5);
    assert_eq!((&report["lost"], &report["connected"]), (&5.into(), &5.into()));
    stays_away.quit();
    comes_back.quit();
}

#[test]
fn an_event_in_two_pieces_is_one() {
    let double = Double::start(Faults::default());
    let mut clients = Clients::start(&double, &["--connections", "3", "--transport", "ndjson"]);
    clients.ask("ready");
    double.send_raw(b"10\r\n{\"data\":{\"t\":1}\n\r\n");
    let report = clients.report_when(|report| report["events"] == 3);
    assert_eq!((&report["events"], &report["events_unstamped"]), (&3.into(), &0.into()));
    assert_eq!((&report["lost"], &report["connected"]), (&0.into(), &3.into()));
    clients.quit();
}

#[test]
fn refused_streams_are_counted_by_status() {
    let double = Double::start(Faults { stream_status: Some(503), ..Faults::default() });
    let mut clients = Clients::start(&double, &["--connections", "7"]);
    let ready = clients.ask("ready");
    assert_eq!((&ready["failed"], &ready["refused"]["503"]), (&7.into(), &7.into()), "{ready}");
    assert_eq!((&ready["connected"], &ready["lost"]), (&0.into(), &0.into()));
    assert!(clients.ask("dance")["error"].as_str().unwrap().contains("expected mark NAME"));
    drop(clients.commands);
    assert!(clients.child.wait().unwrap().success(), "the end of stdin is an end");
}

#[test]
fn clients_from_several_addresses_and_threads_hold_for_a_while() {
    let double = Double::start(Faults::default());
    let file = Scratch::new("hold");
    let output = run(&[
        "clients",
        "--url",
        &double.url,
        "--connections",
        "30",
        "--sources",
        "3",
        "--threads",
        "4",
        "--hold",
        "0.2",
        "--rate",
        "300",
        "--users",
        "1:10",
        "--json",
        file.path(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.lines().any(|line| line.starts_with("connected ") && line.ends_with(" 30")),
        "{table}"
    );
    let figures = file.json();
    assert_eq!(figures["connected"], 30);
    // Thirty connections at 300 a second: each of four threads has the last of its eight after
    // seven 75ths of a second, however late it was with the first.
    let ns = |name: &str| figures[name].as_u64().unwrap();
    let took_ms = (ns("last_welcome_ns") - ns("marked_ns")) / 1_000_000;
    assert!(took_ms >= 93, "{took_ms} ms");
    assert!(figures["connects_per_s"].as_f64().unwrap() > 0.0, "{figures}");
    assert_eq!(double.users().iter().filter(|user| *user == "7").count(), 3);
}

#[test]
fn a_graph_is_the_same_whatever_wrote_it() {
    let file = Scratch::new("graph");
    let graph = ["graph", "--users", "3000", "--degree", "5", "--seed", "9"];
    let to_stdout = run(&[&graph[..], &["--threads", "1"]].concat());
    let to_file = run(&[&graph[..], &["--threads", "3", "--out", file.path()]].concat());
    assert!(to_stdout.status.success() && to_file.status.success());
    let text = std::fs::read(&file.0).unwrap();
    assert_eq!(to_stdout.stdout, text);
    let lines = String::from_utf8(text).unwrap();
    assert_eq!(lines.lines().count(), 5 * 3000 - 15);
    assert!(lines.starts_with("2 1\n3 1\n3 2\n"));
    assert!(String::from_utf8(to_file.stdout).unwrap().contains("follows  14,985\n"));
}

#[test]
fn a_reader_who_leaves_is_no_panic() {
    let double = Double::start(Faults::default());
    let mut child = tool()
        .args(["publish", "--url", &double.url, "--rate", "50", "--seconds", "0.1"])
        .args(["--subjects", "groups:1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn groups_have_their_size() {
    let output = run(&["graph", "--groups", "3", "--size", "2"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 g0\n2 g0\n3 g1\n4 g1\n5 g2\n6 g2\n");
    let output = run(&["graph", "--groups", "3", "--size", "2", "--users", "3"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 g0\n2 g0\n3 g1\n");
}

#[test]
fn the_floor_counts_what_was_received() {
    let file = Scratch::new("floor");
    let output = run(&[
        "floor",
        "--connections",
        "51",
        "--threads",
        "2",
        "--bytes",
        "79",
        "--seconds",
        "0.3",
        "--json",
        file.path(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let figures = file.json();
    assert!(figures["sends"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["cpu_s_per_million"].as_f64().unwrap() > 0.0);
    assert_eq!((&figures["connections"], &figures["pairs"]), (&51.into(), &2.into()));
}

#[test]
fn what_cant_work_is_one_clear_line_and_exit_1() {
    let cases: [(&[&str], &str); 6] = [
        (&["clients", "--connections", "1", "--url", "ftp://x"], "expected http://host:port"),
        (&["clients", "--connections", "1", "--users", "x"], "expected first-last"),
        (&["publish", "--rate", "1", "--subjects", "x"], "expected uniform:LO-HI"),
        (&["publish", "--rate", "0", "--subjects", "groups:1"], "expected a number above 0"),
        (&["graph", "--users", "9", "--out", "/nowhere/x"], "can't create /nowhere/x"),
        (
            &[
                "publish",
                "--rate",
                "50",
                "--seconds",
                "0.1",
                "--subjects",
                "groups:1",
                "--url",
                "http://127.0.0.1:9",
            ],
            "no event was accepted: Connection refused",
        ),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

/// `protocol/http.md` 14.2: a token in `Authorization`, and one for each user.
#[test]
fn clients_show_tokens() {
    let double = Double::start(Faults::default());
    let secret = Scratch::new("secret");
    std::fs::write(&secret.0, "a secret of more than thirty-two bytes\n").unwrap();
    let options = ["--connections", "3", "--users", "7-9", "--token-secret-file", secret.path()];
    let mut clients = Clients::start(&double, &options);
    assert_eq!(clients.ask("ready")["connected"], 3);
    assert_eq!(double.users(), ["token of 7", "token of 8", "token of 9"]);
    clients.quit();
    let missing = run(&["clients", "--connections", "1", "--token-secret-file", "/no/such/file"]);
    assert!(stderr(&missing).contains("can't read /no/such/file"), "{}", stderr(&missing));
    let file = secret.path();
    for other in [["--transport", "test"], ["--speak", "nats"]] {
        let all = [&["clients", "--connections", "1", "--token-secret-file", file], &other[..]];
        let wrong = run(&all.concat());
        assert!(stderr(&wrong).contains("--token-secret-file: "), "{}", stderr(&wrong));
    }
}
