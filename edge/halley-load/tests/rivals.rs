//! The built program against doubles of other servers: are they driven as Halley is?

#![allow(clippy::unwrap_used)]

mod double;
mod program;
mod rival;

use program::{Clients, publish_to, run, stderr};
use rival::Rival;

const SERVERS: [&str; 4] = ["nchan", "chunked", "nats", "socketio"];

/// Twenty clients in four channels of five.
fn clients_of(rival: &Rival, speak: &str) -> Clients {
    let mut options = vec!["--connections", "20", "--group-size", "5", "--speak", speak];
    if speak == "chunked" {
        options.extend(["--path", "/test/{user}/{channel}"]);
    }
    let mut clients = Clients::of(&rival.url, &options);
    let ready = clients.ask("ready");
    assert_eq!((&ready["connected"], &ready["failed"]), (&20.into(), &0.into()), "{ready}");
    // Not every server's welcome says that the client has joined.
    let groups: Vec<(String, usize)> = (0..4).map(|n| (format!("g{n}"), 5)).collect();
    clients.report_when(|_| rival.channels() == groups);
    assert_eq!(rival.channels(), groups, "{speak}");
    clients
}

fn publish_url<'a>(rival: &'a Rival, speak: &str) -> &'a str {
    if speak == "nats" { &rival.nats_url } else { &rival.url }
}

#[test]
fn every_message_is_counted_once_for_every_server() {
    for speak in SERVERS {
        let rival = Rival::start();
        let mut clients = clients_of(&rival, speak);
        let options =
            ["--speak", speak, "--rate", "200", "--seconds", "0.5", "--subjects", "groups:4"];
        let (output, figures) = publish_to(publish_url(&rival, speak), speak, &options);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!((&figures["accepted"], &figures["refused"]), (&100.into(), &0.into()));
        let status = if speak == "nats" { "200" } else { "202" };
        assert_eq!(figures["requests"][status], 100, "{figures}");
        assert_eq!(figures["sessions"], if speak == "nats" { 0 } else { 500 });

        let report = clients.report_when(|report| report["events"] == 500);
        assert_eq!((&report["events"], &report["lost"]), (&500.into(), &0.into()), "{speak}");
        assert_eq!(
            (&report["latency_ms"]["count"], &report["events_unstamped"]),
            (&500.into(), &0.into())
        );
        let p50 = report["latency_ms"]["p50"].as_f64().unwrap();
        // By another clock it would be the longest that there is, ten minutes.
        assert!(p50 > 0.0 && p50 < 60_000.0, "{report}");
        // Socket.IO asks each client once, NATS with each message.
        let asked = match speak {
            "socketio" => 20,
            "nats" => 500,
            _ => 0,
        };
        clients.report_when(|_| rival.signs_of_life() >= asked);
        assert!(rival.signs_of_life() >= asked, "{speak}: {}", rival.signs_of_life());
        clients.quit();
    }
}

#[test]
fn a_closed_loop_takes_what_each_server_gives() {
    for speak in SERVERS {
        let rival = Rival::start();
        let mut clients = clients_of(&rival, speak);
        let options = ["--speak", speak, "--closed", "--subjects", "groups:4"];
        let options = [&options[..], &["--events", "600", "--seconds", "60"]].concat();
        let name = format!("closed-{speak}");
        let (output, figures) = publish_to(publish_url(&rival, speak), &name, &options);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!((&figures["accepted"], &figures["requests_broken"]), (&600.into(), &0.into()));
        let report = clients.report_when(|report| report["events"] == 3_000);
        assert_eq!(report["events"], 3_000, "{speak}");
        clients.quit();
    }
}

#[test]
fn what_nats_complains_of_is_shown() {
    let rival = Rival::complaining(Some("Authorization Violation"));
    let mut clients = Clients::of(&rival.url, &["--connections", "3", "--speak", "nats"]);
    let ready = clients.ask("ready");
    assert_eq!((&ready["connected"], &ready["failed"]), (&0.into(), &3.into()), "{ready}");
    assert!(ready["first_problem"].as_str().unwrap().contains("'Authorization Violation'"));
    clients.quit();
    let options = ["--speak", "nats", "--rate", "50", "--seconds", "0.2", "--subjects", "groups:1"];
    let (output, figures) = publish_to(&rival.nats_url, "complaint", &options);
    assert!(stderr(&output).contains("-ERR 'Authorization Violation'"), "{}", stderr(&output));
    assert_eq!(figures["accepted"], 0);
    assert!(figures["requests_broken"].as_u64().unwrap() > 0, "{figures}");
}

#[test]
fn options_that_dont_go_together_are_refused() {
    let publish = ["publish", "--rate", "1", "--subjects", "groups:1"];
    let cases: [(&str, &[&str]); 8] = [
        ("clients", &["--speak", "nchan", "--transport", "ws"]),
        ("clients", &["--speak", "nats", "--cursors"]),
        ("clients", &["--path", "/sub/{channel}"]),
        ("clients", &["--speak", "nchan", "--path", "sub"]),
        ("publish", &["--speak", "nchan", "--ids"]),
        ("publish", &["--speak", "socketio", "--batch", "2"]),
        ("publish", &["--speak", "nats", "--path", "/"]),
        ("publish", &["--speak", "chunked", "--path", "/{user}"]),
    ];
    for (subcommand, options) in cases {
        let start: &[&str] =
            if subcommand == "clients" { &["clients", "--connections", "1"] } else { &publish };
        let output = run(&[start, options].concat());
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        assert!(stderr(&output).contains("expected"), "{options:?}: {}", stderr(&output));
    }
}
