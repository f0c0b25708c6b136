//! The control socket with real processes: a single one, and several on one data folder.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod process;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use process::Daemon;

const CONTROL: &str = "towline-control.sock";

impl Daemon {
    fn pid(&self) -> String {
        self.process.id().to_string()
    }

    fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits until it has ended in order.
    fn ended(&mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

fn towline(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL").args(arguments);
    command.arg("--data").arg(data).output().unwrap()
}

fn said(data: &Path, arguments: &[&str], code: i32) -> String {
    let output = towline(data, arguments);
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let text = out.unwrap() + &err.unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

fn control_sockets(data: &Path) -> Vec<String> {
    let names = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("towline-control")).collect()
}

/// A data folder, which a process can make itself.
fn folder() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    (folder, data)
}

#[test]
fn each_process_of_a_shared_folder_is_asked_and_stopped_by_itself() {
    let (_folder, data) = folder();
    // Of a process that was killed, and of one of another machine.
    std::fs::create_dir(&data).unwrap();
    drop(UnixListener::bind(data.join("towline-control-00000000-1.sock")).unwrap());
    let mut active = Daemon::start(&data, &["--standby"]);
    active.says("ready");
    let mut standby = Daemon::start(&data, &["--standby"]);
    standby.says("standby");
    // The one that serves is meant where nothing is said.
    let status: Value = serde_json::from_str(&said(&data, &["status", "--json"], 0)).unwrap();
    assert_eq!(status["pid"], active.process.id());
    assert_eq!(status["process"]["mode"], "multi_instance");
    assert_eq!(status["shared"]["role"], "active");
    let of_standby = ["status", "--pid", &standby.pid()];
    let text = said(&data, &of_standby, 0);
    assert!(text.contains(&format!("standby, process {}, up", standby.pid())), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json = said(&data, &[&of_standby[..], &["--json"]].concat(), 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    let name = json["process"]["active"].as_str().unwrap();
    assert!(name.ends_with(&format!(":{}", active.pid())), "{name}");
    let reloaded = said(&data, &["reload", "--pid", &standby.pid()], 0);
    assert_eq!(reloaded, "nothing has changed\n");
    let unknown = said(&data, &["status", "--pid", "1"], 4);
    assert!(unknown.contains("no process 1 runs in data folder"), "{unknown}");
    assert!(unknown.contains(&active.pid()), "{unknown}");
    let refused = said(&data, &["switch"], 1);
    assert!(refused.contains("is not in a group"), "{refused}");

    said(&data, &["stop", "--pid", &standby.pid()], 0);
    standby.ended();
    assert!(active.runs());
    let mut standby = Daemon::start(&data, &["--standby"]);
    standby.says("standby");
    let ended = said(&data, &["stop"], 0);
    assert!(ended.starts_with(&format!("process {} ended", active.pid())), "{ended}");
    active.ended();
    standby.says("ready");
    let mut killed = Daemon::start(&data, &["--standby"]);
    killed.says("standby");
    killed.signal(Signal::KILL);
    killed.process.wait().unwrap();
    said(&data, &["stop"], 0);
    standby.ended();
    assert_eq!(control_sockets(&data), ["towline-control-00000000-1.sock"]);
}

#[test]
fn of_several_processes_that_stand_by_one_must_be_chosen() {
    let (_folder, data) = folder();
    let mut active = Daemon::start(&data, &["--standby"]);
    active.says("ready");
    let mut standbys = [(); 2].map(|()| Daemon::start(&data, &["--standby"]));
    standbys.iter_mut().for_each(|standby| drop(standby.says("standby")));
    // As if it ran on another machine.
    let found = control_sockets(&data);
    let of_active = found.iter().find(|name| name.contains(&format!("-{}.", active.pid())));
    std::fs::remove_file(data.join(of_active.unwrap())).unwrap();
    let refused = said(&data, &["stop"], 1);
    for standby in &standbys {
        assert!(refused.contains(&format!("{} (standby)", standby.pid())), "{refused}");
    }
    assert!(refused.contains("choose one with --pid"), "{refused}");
    let stopped = said(&data, &["stop", "--pid", &standbys[0].pid()], 0);
    assert!(stopped.starts_with(&format!("process {} ended", standbys[0].pid())), "{stopped}");
    // The only one that is left on this machine.
    said(&data, &["stop"], 0);
    standbys[1].ended();
    assert!(active.runs());
    said(&data, &["stop"], 0);
    active.ended();
}

#[test]
fn a_process_without_its_control_socket_gets_a_signal_and_the_line_says_so() {
    let (_folder, data) = folder();
    let mut daemon = Daemon::start(&data, &[]);
    daemon.says("ready");
    std::fs::remove_file(data.join(CONTROL)).unwrap();
    let refused = said(&data, &["reload"], 4);
    assert!(refused.contains("no queue manager is running in data folder"), "{refused}");
    let text = said(&data, &["stop"], 0);
    let line = format!("process {} has no control socket; it was sent SIGTERM", daemon.pid());
    assert!(text.contains(&line), "{text}");
    daemon.ended();
    said(&data, &["stop"], 4);
}

#[test]
fn a_process_that_stands_still_gets_a_signal_unless_it_is_of_a_group() {
    let (_folder, data) = folder();
    let mut daemon = Daemon::start(&data, &[]);
    daemon.says("ready");
    daemon.signal(Signal::STOP);
    let stop = ["stop", "--timeout", "0.2"];
    // As an instance of a group has it.
    let hard_state = data.join("group-state");
    std::fs::write(&hard_state, [0; 4_096]).unwrap();
    let refused = said(&data, &stop, 1);
    assert!(refused.contains("--force sends it SIGTERM"), "{refused}");
    std::fs::remove_file(&hard_state).unwrap();
    let late = said(&data, &stop, 1);
    assert!(late.contains("did not answer within 0.2 s"), "{late}");
    assert!(late.contains("has not ended in 0.2 s"), "{late}");
    daemon.signal(Signal::CONT);
    daemon.ended();
}

#[test]
fn a_second_start_in_a_folder_is_refused_and_takes_nothing_from_the_first() {
    let (_folder, data) = folder();
    let mut daemon = Daemon::start(&data, &[]);
    daemon.says("ready");
    let output = towline(&data, &["run", "QMT", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let status = said(&data, &["status"], 0);
    assert!(status.contains(&format!("running, process {}", daemon.pid())), "{status}");
    // What a killed process leaves is replaced.
    daemon.signal(Signal::KILL);
    daemon.process.wait().unwrap();
    assert_eq!(control_sockets(&data), [CONTROL]);
    said(&data, &["status"], 4);
    let mut daemon = Daemon::start(&data, &[]);
    daemon.says("ready");
    said(&data, &["stop"], 0);
    daemon.ended();
    assert_eq!(control_sockets(&data), [""; 0]);
}

#[test]
fn a_stop_waits_for_open_units_and_a_second_one_waits_for_the_same_end() {
    let (_folder, data) = folder();
    let mut daemon = Daemon::start(&data, &[]);
    daemon.says("ready");
    let mut control = UnixStream::connect(data.join(CONTROL)).unwrap();
    let mut asked = |request: Value| {
        writeln!(control, "{request}").unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while byte != *b"\n" {
            control.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        serde_json::from_slice::<Value>(&line).unwrap()
    };
    let mut get = Command::new(env!("CARGO_BIN_EXE_towline"));
    get.args(["get", "DEV.QUEUE.1", "--transaction", "2", "--follow", "--data"]).arg(&data);
    let mut get = get.stdout(Stdio::piped()).spawn().unwrap();
    said(&data, &["put", "DEV.QUEUE.1", "one"], 0);
    // It has got the message, in a unit of work that stays open.
    get.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let status = || serde_json::from_str::<Value>(&said(&data, &["status", "--json"], 0)).unwrap();
    assert!((0..500).any(|_| status()["units"]["open"] == 1), "{}", status()["units"]);
    assert_eq!(asked(json!({ "do": "stop" })), json!({ "ok": {} }));
    assert_eq!(asked(json!({ "do": "stop" })), json!({ "ok": {} }));
    let phase = asked(json!({ "do": "status" }))["ok"]["process"]["phase"].clone();
    assert_eq!(phase, "ending", "it waits for the unit");
    said(&data, &["status"], 0);
    let refused = said(&data, &["put", "DEV.QUEUE.1", "two"], 4);
    let what = format!("queue manager QMT (process {}) is ending", daemon.pid());
    assert!(refused.contains(&what) && refused.contains("start it again"), "{refused}");
    get.kill().unwrap();
    get.wait().unwrap();
    daemon.ended();
}
