//! The harness against a broker that misbehaves: what a broker does wrong must show, and what it
//! does right must not.

#![expect(clippy::unwrap_used, reason = "in a test a failed step ends the test")]

#[cfg(test)]
mod broker;

use broker::{Broker, Fault};
use clap::Parser;
use serde_json::Value;
use towline_load::LoadArgs;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs a load; the result as JSON.
fn load(broker: &Broker, line: &str) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let url = broker.url();
    let mut words = vec!["load"];
    words.extend(line.split_whitespace());
    words.extend(["--url", &url, "--quiet", "--json", file.path().to_str().unwrap()]);
    let never = std::sync::atomic::AtomicBool::new(false);
    let _status = towline_load::run(Command::try_parse_from(words).unwrap().load, &never);
    serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap()
}

/// The fields that a broker's fault shows in: lost, duplicated, reordered.
fn faults(report: &Value) -> [u64; 3] {
    ["lost", "duplicated", "reordered"].map(|field| report["verdict"][field].as_u64().unwrap())
}

const STREAM: &str = "stream --count 400 --window 64 --size 100";

#[test]
fn a_stream_over_a_good_broker_is_clean() {
    let report = load(&Broker::start(Fault::Nothing), STREAM);
    assert_eq!(faults(&report), [0, 0, 0]);
    assert_eq!(report["verdict"]["received"], 400);
    assert_eq!(report["passed"], true);
}

#[test]
fn a_confirmed_message_that_vanishes_is_lost() {
    let report = load(&Broker::start(Fault::Loses), STREAM);
    assert_eq!((faults(&report), &report["passed"]), ([1, 0, 0], &Value::Bool(false)));
}

#[test]
fn a_message_that_comes_twice_fails_unless_it_may() {
    let report = load(&Broker::start(Fault::Doubles), STREAM);
    assert_eq!((faults(&report), &report["passed"]), ([0, 1, 0], &Value::Bool(false)));
    let line = format!("{STREAM} --allow-duplicates");
    assert_eq!(load(&Broker::start(Fault::Doubles), &line)["passed"], true);
}

#[test]
fn messages_out_of_order_are_reordered() {
    // No consumer takes the 49th away before the 50th comes.
    let broker = Broker::start(Fault::Swaps);
    load(&broker, "put --count 400 --size 100");
    let report = load(&broker, "get --until-empty 0.3");
    assert_eq!((faults(&report), &report["passed"]), ([0, 0, 1], &Value::Bool(false)));
}

#[test]
fn a_refused_put_is_counted_and_not_lost() {
    let report = load(&Broker::start(Fault::Refuses), STREAM);
    assert_eq!(faults(&report), [0, 0, 0]);
    assert_eq!((&report["refused"], &report["verdict"]["accepted"]), (&1.into(), &399.into()));
}

#[test]
fn pairs_on_a_shared_queue_are_clean_with_and_without_prefetch() {
    for line in ["", "--prefetch 0", "--threads 2", "--queue q%d --queues 3"] {
        let line = format!("requester --clients 7 --count 300 --size 100 {line}");
        let report = load(&Broker::start(Fault::Nothing), &line);
        assert_eq!(faults(&report), [0, 0, 0], "{line}");
        assert_eq!(report["verdict"]["received"], 300, "{line}");
        assert_eq!(report["passed"], true, "{line}");
    }
}

#[test]
fn requests_get_their_replies() {
    let line = "requester --reply --responders 2 --clients 5 --count 200 --size 100";
    let report = load(&Broker::start(Fault::Nothing), line);
    assert_eq!(faults(&report), [0, 0, 0]);
    assert_eq!((&report["verdict"]["received"], &report["passed"]), (&200.into(), &true.into()));
}

#[test]
fn a_drain_finds_what_was_put() {
    let line = "put --clients 2 --count 300 --size 100 --verify-drain";
    assert_eq!(faults(&load(&Broker::start(Fault::Nothing), line)), [0, 0, 0]);
    assert_eq!(faults(&load(&Broker::start(Fault::Loses), line)), [1, 0, 0]);
}

#[test]
fn a_lost_connection_is_made_again_and_leaves_puts_in_doubt() {
    let broker = Broker::start(Fault::HangsUp);
    let report = load(&broker, &format!("{STREAM} --reconnect"));
    assert_eq!(faults(&report), [0, 0, 0]);
    assert_eq!(report["reconnects"], 1);
    assert!(report["verdict"]["in_doubt"].as_u64().unwrap() > 0);
    let accepted = report["verdict"]["accepted"].as_u64().unwrap();
    assert!(report["verdict"]["received"].as_u64().unwrap() >= accepted);
}

#[test]
fn idle_connections_stand_beside_a_load() {
    let line = "put --count 50 --size 100 --idle 5";
    let report = load(&Broker::start(Fault::Nothing), line);
    assert_eq!((&report["clients"], &report["passed"]), (&6.into(), &true.into()));
}

#[test]
fn a_rate_is_kept() {
    let line = "requester --clients 4 --rate 400 --seconds 1 --size 100";
    let report = load(&Broker::start(Fault::Nothing), line);
    let rate = report["pairs"]["per_second"].as_f64().unwrap();
    assert!((350.0..=410.0).contains(&rate), "{rate}");
}

#[test]
fn a_large_message_comes_in_many_frames_and_is_whole() {
    let line = "requester --clients 2 --count 20 --size 300000";
    let report = load(&Broker::start(Fault::Nothing), line);
    assert_eq!(faults(&report), [0, 0, 0]);
    assert_eq!(report["verdict"]["received"], 20);
}
