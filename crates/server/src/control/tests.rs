//! The control socket with real clients: no client keeps another one from its answer.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use towline_admin::status::{GroupStatus, ProcessMode, Status};
use towline_config::Config;
use towline_process::Clock;

use super::*;
use crate::reload::Reload;
use crate::signals::{LocalEvent, Signals};

/// Longer than any test needs.
const LONG: Duration = Duration::from_secs(60);

/// An open instance whose answers are as long as a test wants them.
struct FakeInstance {
    listener_bytes: usize,
    objection: Option<String>,
}

impl ControlledInstance for FakeInstance {
    fn report(&self) -> InstanceReport {
        let listeners = vec!["x".repeat(self.listener_bytes)];
        let status = Status { listeners, ..Status::default() };
        InstanceReport { group: Some(GroupStatus::default()), status: Some(status) }
    }

    fn objection_to_stop(&self) -> Option<String> {
        self.objection.clone()
    }

    fn switch(&self, to: Option<&str>) -> Result<Value, String> {
        to.map_or_else(|| Err("to which one".into()), |to| Ok(json!({ "to": to })))
    }

    fn can_restart(&self) -> Result<(), String> {
        Ok(())
    }
}

struct Desk {
    folder: tempfile::TempDir,
    signals: Signals,
    desk: Arc<ControlDesk>,
}

impl Desk {
    fn of(mode: ProcessMode) -> Desk {
        let reload = Reload::new(None, &Config::default()).unwrap();
        let signals = Signals::of_tests();
        let mode = (mode, "here:1".to_owned());
        let desk = ControlDesk::new("QM1", mode, Clock::start(), reload, signals.events());
        Desk { folder: tempfile::tempdir().unwrap(), signals, desk: Arc::new(desk) }
    }

    fn runs(&self, listener_bytes: usize, objection: Option<&str>) {
        let objection = objection.map(ToOwned::to_owned);
        self.desk.runs(Arc::new(FakeInstance { listener_bytes, objection }));
    }

    fn listens(&self, bounds: Bounds) -> PathBuf {
        self.serves(bounds).0
    }

    fn serves(&self, bounds: Bounds) -> (PathBuf, Arc<Connections>) {
        let path = self.folder.path().join("s");
        let connections = serve(UnixListener::bind(&path).unwrap(), &self.desk, bounds).unwrap();
        (path, connections)
    }

    fn answers(&self, request: &Value) -> Value {
        self.desk.answer(request.to_string().as_bytes()).0
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn of(path: &Path) -> Client {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    fn sends(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn reads(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn asks(&mut self, request: &str) -> Value {
        self.sends(&format!("{{\"do\":\"{request}\"}}\n"));
        self.reads()
    }

    /// Waits until the other side closes the connection; what came before.
    fn ends(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        rest
    }
}

#[test]
fn a_process_answers_before_its_instance_is_open_and_what_it_cannot_do_then_is_refused() {
    let desk = Desk::of(ProcessMode::MultiInstance);
    let report = &desk.answers(&json!({ "do": "process" }))["ok"];
    assert_eq!(report["pid"], std::process::id());
    assert_eq!(report["folder"], std::env::current_dir().unwrap().display().to_string());
    assert_eq!((&report["phase"], &report["mode"]), (&json!("starting"), &json!("multi_instance")));
    desk.desk.stands_by("there:2");
    let report = &desk.answers(&json!({ "do": "status" }))["ok"];
    assert_eq!(report["process"]["phase"], "standby");
    assert_eq!(report["process"]["active"], "there:2");
    assert_eq!((&report["group"], &report["status"]), (&Value::Null, &Value::Null));
    for request in [json!({ "do": "restart" }), json!({ "do": "switch", "to": "b" })] {
        let why = desk.answers(&request)["error"].to_string();
        assert!(why.contains("this process is standby"), "{why}");
    }
    desk.desk.takes_over();
    assert_eq!(desk.answers(&json!({ "do": "process" }))["ok"]["phase"], "starting");
    assert_eq!(desk.answers(&json!({ "do": "reload" }))["ok"]["failed"], json!([]));
    for wrong in ["", "{}", "{\"do\":\"more\"}", "{\"do\":\"stop\",\"how\":1}"] {
        let why = desk.desk.answer(wrong.as_bytes()).0["error"].to_string();
        assert!(why.contains("this is not understood"), "{wrong}: {why}");
    }
}

#[tokio::test]
async fn a_stop_is_refused_where_the_instance_objects_unless_it_is_forced() {
    let desk = Desk::of(ProcessMode::Group);
    desk.runs(0, Some("no quorum"));
    assert_eq!(desk.answers(&json!({ "do": "stop" })), json!({ "error": "no quorum" }));
    assert_eq!(desk.answers(&json!({ "do": "switch", "to": "b" })), json!({ "ok": { "to": "b" } }));
    assert_eq!(desk.answers(&json!({ "do": "switch" })), json!({ "error": "to which one" }));
    let path = desk.listens(BOUNDS);
    let mut client = Client::of(&path);
    assert_eq!(client.asks("restart"), json!({ "ok": {} }));
    assert_eq!(desk.signals.next().await, LocalEvent::Restart);
    client.sends("{\"do\":\"stop\",\"force\":true}\n");
    assert_eq!(client.reads(), json!({ "ok": {} }));
    assert_eq!(desk.signals.next().await, LocalEvent::Stop);
    desk.desk.ends();
    assert_eq!(client.asks("process")["ok"]["phase"], "ending");
    desk.signals.stop();
    let why = client.asks("restart")["error"].to_string();
    assert!(why.contains("executes its program again"), "{why}");
}

#[test]
fn clients_that_are_silent_make_way_for_those_that_ask() {
    let desk = Desk::of(ProcessMode::Single);
    let (path, connections) = desk.serves(Bounds { connections: 2, ..BOUNDS });
    let mut silent: Vec<Client> = Vec::new();
    for count in 1..=2 {
        let mut client = Client::of(&path);
        assert_eq!(client.asks("process")["ok"]["queue_manager"], "QM1");
        silent.push(client);
        // A client may have its answer before its thread knows that.
        while connections.idle() < count {
            std::thread::yield_now();
        }
    }
    let mut third = Client::of(&path);
    assert_eq!(third.asks("process")["ok"]["queue_manager"], "QM1");
    let rest = silent.remove(0).ends();
    assert!(rest.is_empty(), "the first one made way");
    assert_eq!(silent[0].asks("process")["ok"]["queue_manager"], "QM1", "the second one did not");
}

#[test]
fn a_client_that_does_not_read_its_answer_keeps_no_other_one_from_its_own() {
    let desk = Desk::of(ProcessMode::Single);
    // More than the buffers of a socket hold.
    desk.runs(16 << 20, None);
    let path = desk.listens(Bounds { connections: 1, stalled: Duration::ZERO, ..BOUNDS });
    let mut greedy = Client::of(&path);
    greedy.sends("{\"do\":\"status\"}\n{\"do\":\"status\"}\n");
    // The first byte of the answer: it is being written.
    greedy.0.get_mut().read_exact(&mut [0]).unwrap();
    assert_eq!(Client::of(&path).asks("process")["ok"]["phase"], "running");
    assert!(greedy.ends().len() < 16 << 20, "it was closed in the middle");
}

#[test]
fn a_client_that_says_nothing_or_too_much_is_disconnected() {
    let desk = Desk::of(ProcessMode::Single);
    let bounds = Bounds { request_bytes: 100, idle: Duration::from_millis(20), ..BOUNDS };
    let path = desk.listens(bounds);
    assert!(Client::of(&path).ends().is_empty(), "it said nothing");
    let mut endless = Client::of(&path);
    endless.sends(&"x".repeat(101));
    let why = endless.reads()["error"].to_string();
    assert!(why.contains("at most 100 bytes"), "{why}");
}

#[test]
fn one_more_client_is_refused_with_words_while_all_others_wait_for_answers() {
    let desk = Desk::of(ProcessMode::Single);
    desk.runs(16 << 20, None);
    let path = desk.listens(Bounds { connections: 1, stalled: LONG, ..BOUNDS });
    let mut busy = Client::of(&path);
    busy.sends("{\"do\":\"status\"}\n");
    busy.0.get_mut().read_exact(&mut [0]).unwrap();
    let why = Client::of(&path).reads()["error"].to_string();
    assert!(why.contains("all 1 connections"), "{why}");
}

#[test]
fn a_second_process_does_not_take_the_socket_and_the_owner_of_the_log_does() {
    let [first, second] = [ProcessMode::Single, ProcessMode::Single].map(Desk::of);
    let data = first.folder.path();
    let [old, new] = [&first, &second].map(|desk| ControlSocket::of(data, Arc::clone(&desk.desk)));
    old.start(data).unwrap();
    new.start(data).unwrap();
    first.desk.ends();
    let phase = || Client::of(old.path()).asks("process")["ok"]["phase"].clone();
    assert_eq!(phase(), "ending", "the first one still answers");
    new.insist().unwrap();
    assert_eq!(phase(), "starting", "the second one has the log");
    drop(old);
    assert!(new.path().exists(), "the file is not that of the first one any more");
    (new.remover())();
    assert!(!new.path().exists());
}
