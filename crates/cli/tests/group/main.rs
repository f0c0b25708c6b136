//! Commands for a group of instances: what they ask for, print and refuse, against a group that
//! only answers. Real groups are started in tests/e2e.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod fake;
mod terminal;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::assert::Assert;
use serde_json::Value;

use fake::Fake;
use terminal::Terminal;

fn towline(arguments: &[&str]) -> Assert {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_towline"));
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL");
    command.args(arguments).assert()
}

fn plain(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL").args(arguments);
    command
}

fn out(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

fn err(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

#[test]
fn a_replica_shows_the_group_and_the_active_its_status_too() {
    let fake = Fake::start();
    let replica = out(&towline(&["status", "--data", &fake.data("b")]).success());
    let pid = std::process::id();
    let head = format!(
        "State               running, process {pid}\nInstance            b, replica, in sync\n"
    );
    assert!(replica.starts_with(&head), "{replica}");
    assert!(replica.contains("\nQUORUM              3/3\n"), "{replica}");
    assert!(replica.contains("\nc        replica yes    yes        0 <0:0:2:31232>"), "{replica}");
    assert!(replica.lines().all(|line| line.chars().count() <= 80), "{replica}");
    let active = out(&towline(&["status", "--data", &fake.data("a")]).success());
    assert!(active.starts_with("Queue manager       QM1\n"), "{active}");
    assert!(active.contains("process 42"), "{active}");
    assert!(active.contains("\nInstance            a, active, in sync\n"), "{active}");

    let json = |name: &str| -> Value {
        let text = out(&towline(&["status", "--json", "--data", &fake.data(name)]).success());
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(json("a")["pid"], 42);
    assert_eq!(json("b")["pid"], pid, "its own");
    for name in fake::NAMES {
        let status = json(name);
        assert_eq!(status["group"]["instance"], name);
        assert_eq!(status["group"]["instances"][2]["of_a_later_version"], "kept");
    }
}

/// A program that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_watch_without_a_terminal_prints_one_block_after_the_other() {
    let fake = Fake::start();
    let data = fake.data("b");
    let mut command = plain(&["status", "--watch", "0.1", "--data", &data]);
    let mut watch = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines = lines.inspect(|line| assert!(!line.contains('\u{1b}'), "{line:?}"));
    let blocks = lines.filter(|line| line.starts_with("QUORUM")).take(3).count();
    assert_eq!(blocks, 3);
}

#[test]
fn a_watch_as_json_is_an_object_a_line() {
    let fake = Fake::start();
    let data = fake.data("b");
    let mut command = plain(&["status", "--json", "--watch", "0.1", "--data", &data]);
    let mut watch = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().take(3);
    for line in lines {
        let status: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(status["group"]["active"], "a");
    }
}

#[test]
fn a_watch_redraws_and_puts_the_terminal_right() {
    let fake = Fake::start();
    for key in [b'q', 3] {
        let data = fake.data("b");
        let mut terminal = Terminal::start(plain(&["status", "--watch", "0.1", "--data", &data]));
        terminal.until("QUORUM");
        for _ in 0..3 {
            terminal.until("\u{1b}[H");
            terminal.until("every 0.1 s, q ends");
        }
        assert!(!terminal.is_as_ever());
        assert!(terminal.seen.starts_with("\u{1b}[?1049h"), "{:?}", terminal.seen);
        terminal.key(key);
        terminal.until("\u{1b}[?1049l");
        // What was seen last stays.
        terminal.until("QUORUM");
        assert!(terminal.child.wait().unwrap().success());
        assert!(terminal.is_as_ever());
    }
}

#[test]
fn a_watch_goes_on_while_the_instance_is_away() {
    let fake = Fake::start();
    let data = fake.data("b");
    let mut terminal = Terminal::start(plain(&["status", "--watch", "0.1", "--data", &data]));
    terminal.until("QUORUM");
    std::fs::rename(&data, format!("{data}.away")).unwrap();
    terminal.until("not now: ");
    std::fs::rename(format!("{data}.away"), &data).unwrap();
    terminal.until("q ends\u{1b}[H");
    terminal.key(b'q');
    assert!(terminal.child.wait().unwrap().success());
}

#[test]
fn a_switch_says_which_instance_took_over_and_how_long_it_took() {
    let fake = Fake::start();
    let switched = out(&towline(&["switch", "--data", &fake.data("b")]).success());
    assert_eq!(switched, "b is active instead of a, 12 ms\n");
    let json = towline(&["switch", "--to", "c", "--json", "--data", &fake.data("a")]).success();
    let json: Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!((&json["from"], &json["to"]), (&"b".into(), &"c".into()));
    assert_eq!(
        fake.asked(),
        ["b {\"do\":\"switch\",\"to\":null}", "a {\"do\":\"switch\",\"to\":\"c\"}"]
    );
}

#[test]
fn a_switch_to_the_active_instance_says_so_and_asks_for_nothing() {
    let fake = Fake::start();
    let done = towline(&["switch", "--to", "a", "--data", &fake.data("b")]).success();
    assert_eq!(out(&done), "a is active already\n");
    let (c, dir) = (fake.data("c"), fake.dir());
    std::fs::remove_file(format!("{c}/towline-control.sock")).unwrap();
    let refused = towline(&["rolling-restart", "--dir", dir.to_str().unwrap()]).code(1);
    let why = format!("no instance c is running below {}: start it first", dir.display());
    assert!(err(&refused).contains(&why), "{}", err(&refused));
    assert_eq!(fake.asked(), [""; 0]);
}

#[test]
fn a_switch_is_believed_in_when_its_answer_was_lost() {
    let fake = Fake::start();
    fake.forget_to_answer();
    let switched = out(&towline(&["switch", "--to", "c", "--data", &fake.data("a")]).success());
    assert!(switched.starts_with("c is active instead of a, "), "{switched}");
}

#[test]
fn what_an_instance_refuses_is_exit_code_1_with_its_words() {
    let fake = Fake::start();
    fake.refuse("stopping it would leave 1 of 3");
    let data = fake.data("b");
    for command in [&["switch"][..], &["stop"], &["stop", "--force"]] {
        let refused = towline(&[command, &["--data", &data]].concat()).code(1);
        assert_eq!(err(&refused), "towline: stopping it would leave 1 of 3\n");
    }
    let refused = towline(&["stop", "--json", "--data", &data]).code(1);
    let json: Value = serde_json::from_str(&out(&refused)).unwrap();
    assert_eq!(json["error"], "stopping it would leave 1 of 3");
    assert_eq!(fake.asked()[1], "b {\"do\":\"stop\",\"force\":false}");
    assert_eq!(fake.asked()[2], "b {\"do\":\"stop\",\"force\":true}");
}

#[test]
fn nobody_there_is_exit_code_4() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    // As a killed instance leaves it.
    let left = UnixListener::bind(folder.path().join("towline-control.sock"));
    drop(left);
    for command in ["switch", "stop", "rolling-restart", "status"] {
        towline(&[command, "--data", data]).code(4).stdout("");
    }
    towline(&["rolling-restart", "--dir", data]).code(4).stdout("");
}

#[test]
fn a_rolling_restart_takes_replicas_first_and_the_active_after_a_switch() {
    let fake = Fake::start();
    let rolled = towline(&["rolling-restart", "--dir", fake.dir().to_str().unwrap()]).success();
    let asked =
        ["b {\"do\":\"restart\"}", "c {\"do\":\"restart\"}", "b {\"do\":\"switch\",\"to\":null}"];
    assert_eq!(fake.asked(), asked);
    let text = out(&rolled);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("b restarted, in sync after "), "{text}");
    assert!(lines[0].ends_with(" ms, version 1.0 -> 1.1"), "{text}");
    assert!(lines[2].starts_with("a restarted after a switch to b, in sync after "), "{text}");
    assert_eq!(lines[3], "QM1: restarted 3, b is active, quorum 3/3");
}

#[test]
fn a_rolling_restart_reports_as_json_what_it_did() {
    let fake = Fake::start();
    let (a, b, c) = (fake.data("a"), fake.data("b"), fake.data("c"));
    let rolled = towline(&["rolling-restart", "--json", "--data", &a, &b, &c]).success();
    let json: Value = serde_json::from_str(&out(&rolled)).unwrap();
    assert_eq!(json["quorum"], "3/3");
    assert_eq!(json["restarted"][2]["instance"], "a");
    assert_eq!(json["restarted"][2]["switched_to"], "b");
    assert_eq!(json["restarted"][0]["version_after"], "1.1");
}

#[test]
fn a_rolling_restart_does_not_begin_without_all_in_sync_unless_forced() {
    let fake = Fake::start();
    fake.out_of_sync(2);
    let dir = fake.dir();
    let dir = dir.to_str().unwrap();
    let refused = towline(&["rolling-restart", "--dir", dir]).code(1);
    assert!(err(&refused).contains("2 of 3 instances are in sync (not c)"), "{}", err(&refused));
    assert_eq!(fake.asked(), [""; 0]);
    towline(&["rolling-restart", "--force", "--dir", dir]).success();
    assert_eq!(fake.asked().len(), 3);
}

#[test]
fn a_rolling_restart_ends_where_an_instance_does_not_get_in_sync() {
    let fake = Fake::start();
    fake.never_in_sync_again();
    let dir = fake.dir();
    let dir = dir.to_str().unwrap();
    let failed = towline(&["rolling-restart", "--timeout", "0.5", "--dir", dir]).code(1);
    let why = "b: it is not in sync: synchronizing, backlog 77 KB after 0.5 s; nothing more";
    assert!(err(&failed).contains(why), "{}", err(&failed));
    assert_eq!(fake.asked(), ["b {\"do\":\"restart\"}"]);
}

#[test]
fn one_instance_is_restarted_where_each_machine_has_one() {
    let fake = Fake::start();
    let (a, b) = (fake.data("a"), fake.data("b"));
    towline(&["rolling-restart", "--this-one", "--data", &b]).success();
    towline(&["rolling-restart", "--this-one", "--data", &a]).success();
    assert_eq!(fake.asked(), ["b {\"do\":\"restart\"}", "a {\"do\":\"switch\",\"to\":null}"]);
}

#[test]
fn a_rolling_restart_needs_all_instances_of_one_group() {
    let fake = Fake::start();
    let (a, b) = (fake.data("a"), fake.data("b"));
    for (arguments, why) in [
        (&["--data", &a, &b][..], "the data folder of c is not given"),
        (&["--data", &a, &b, &a], "instance a is named twice"),
        (&["--this-one", "--data", &a, &b], "--this-one needs exactly one"),
        (&[], "--data"),
        (&["--this-one"], "--data"),
        (&["--dir", &a, "--data", &b], "cannot be used with"),
    ] {
        let refused = towline(&[&["rolling-restart"], arguments].concat()).code(2);
        assert!(err(&refused).contains(why), "{}", err(&refused));
    }
    assert_eq!(fake.asked(), [""; 0]);
}

/// A process that listens and never answers, as one that was stopped does.
fn silent(data: &str) -> [UnixListener; 2] {
    ["towline-control.sock", "towline.sock"].map(|name| {
        let socket = format!("{data}/{name}");
        std::fs::remove_file(&socket).ok();
        UnixListener::bind(socket).unwrap()
    })
}

#[test]
fn every_time_out_holds_and_names_the_process_that_does_not_answer() {
    // Far more than half a second, and less than any default.
    const SOON: Duration = Duration::from_secs(9);
    let fake = Fake::start();
    let (data, dir) = (fake.data("b"), fake.dir());
    let _silent = silent(&data);
    // It is of a group: so `stop` sends it no signal.
    std::fs::write(format!("{data}/group-state"), b"").unwrap();
    let dir = dir.to_str().unwrap();
    let listener = format!("process {}", std::process::id());
    for command in [
        &["switch", "--data", &data][..],
        &["stop", "--data", &data],
        &["reload", "--data", &data],
        &["status", "--data", &data],
        &["rolling-restart", "--dir", dir],
        &["rolling-restart", "--this-one", "--data", &data],
        &["put", "Q", "one", "--data", &data],
        &["get", "Q", "--data", &data],
        &["browse", "Q", "--data", &data],
        &["move", "Q", "R", "--data", &data],
        &["mqsc", "--command", "PING QMGR", "--data", &data],
        &["image", "--data", &data],
    ] {
        let began = Instant::now();
        let failed = towline(&[command, &["--timeout", "0.5"]].concat()).failure();
        let (took, said) = (began.elapsed(), err(&failed));
        assert!(took < SOON, "{command:?}: {took:?}: {said}");
        assert!(said.contains(&listener), "{command:?}: {said}");
    }
    assert_eq!(fake.asked(), [""; 0]);
}
