//! A group that is not there: three sockets that answer as instances do, and remember what they
//! were asked. An instance that begins anew loses its connections, and is out of sync for a few
//! looks.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// What the instances share.
#[derive(Default)]
struct State {
    active: String,
    /// Per instance: out of sync for so many looks at the group (`u64::MAX`: for ever).
    looks_until_in_sync: [u64; 3],
    /// So many after each restart.
    looks_after_restart: u64,
    versions: [String; 3],
    /// A switch asked of the active gets no answer: it begins anew before.
    forgets_to_answer: bool,
    refuses: Option<String>,
    asked: Vec<String>,
    connections: [Vec<UnixStream>; 3],
}

/// The group.
pub(crate) struct Fake {
    folder: TempDir,
    state: Arc<Mutex<State>>,
}

impl Fake {
    /// `a` is active, all are in sync.
    pub(crate) fn start() -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let versions = ["1.0", "1.0", "1.0"].map(ToOwned::to_owned);
        let state =
            State { active: "a".into(), looks_after_restart: 3, versions, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        for (at, name) in NAMES.iter().enumerate() {
            let data = folder.path().join(name);
            std::fs::create_dir(&data).unwrap();
            let listener = UnixListener::bind(data.join("towline-control.sock")).unwrap();
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || serve(at, &stream, &state));
                }
            });
        }
        Fake { folder, state }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn data(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// What was asked for, but for looks.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    pub(crate) fn refuse(&self, why: &str) {
        self.state.lock().unwrap().refuses = Some(why.into());
    }

    pub(crate) fn forget_to_answer(&self) {
        self.state.lock().unwrap().forgets_to_answer = true;
    }

    /// From now on it is not in sync.
    pub(crate) fn out_of_sync(&self, at: usize) {
        self.state.lock().unwrap().looks_until_in_sync[at] = u64::MAX;
    }

    /// Instances that begin anew do not get in sync.
    pub(crate) fn never_in_sync_again(&self) {
        self.state.lock().unwrap().looks_after_restart = u64::MAX;
    }
}

fn serve(at: usize, stream: &UnixStream, state: &Mutex<State>) {
    state.lock().unwrap().connections[at].push(stream.try_clone().unwrap());
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let request: Value = serde_json::from_str(&line).unwrap();
        let mut state = state.lock().unwrap();
        let (reply, anew) = state.answer(at, &request);
        if let Some(reply) = reply {
            // The caller may have gone.
            writeln!(&mut &*stream, "{reply}").ok();
        }
        if let Some(anew) = anew {
            state.begin_anew(anew);
        }
    }
}

impl State {
    /// The answer, and the instance that re-executes then.
    fn answer(&mut self, at: usize, request: &Value) -> (Option<Value>, Option<usize>) {
        let name = NAMES[at];
        if request["do"] == "status" {
            return (Some(json!({ "ok": self.status(at) })), None);
        }
        if request["do"] == "process" {
            return (Some(json!({ "ok": process(name) })), None);
        }
        self.asked.push(format!("{name} {request}"));
        if let Some(why) = &self.refuses {
            return (Some(json!({ "error": why })), None);
        }
        match request["do"].as_str().unwrap() {
            "restart" => (Some(json!({ "ok": {} })), Some(at)),
            "switch" => {
                let from = std::mem::take(&mut self.active);
                let others = NAMES.iter().find(|other| **other != from).unwrap();
                let to = request["to"].as_str().unwrap_or(others);
                self.active = to.to_owned();
                let old = NAMES.iter().position(|other| **other == from);
                let reply = json!({ "ok": { "from": from, "to": to, "took_ms": 12 } });
                ((!self.forgets_to_answer).then_some(reply), old)
            }
            other => panic!("{other}"),
        }
    }

    fn begin_anew(&mut self, at: usize) {
        self.looks_until_in_sync[at] = self.looks_after_restart;
        self.versions[at] = "1.1".into();
        for stream in self.connections[at].drain(..) {
            // It may have ended itself.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    fn status(&mut self, at: usize) -> Value {
        for looks in &mut self.looks_until_in_sync {
            if *looks != u64::MAX {
                *looks = looks.saturating_sub(1);
            }
        }
        let in_sync = self.looks_until_in_sync.map(|looks| looks == 0);
        let role = |name: &str| if name == self.active { "active" } else { "replica" };
        let rows: Vec<Value> = NAMES
            .iter()
            .zip(in_sync)
            .zip(&self.versions)
            .map(|((name, in_sync), version)| {
                json!({
                    "instance": name,
                    "role": role(name),
                    "connected": true,
                    "connected_here": true,
                    "in_sync": in_sync,
                    "backlog_kb": if in_sync { 0 } else { 77 },
                    "ack_lsn": "<0:0:2:31232>",
                    "status": if in_sync { "normal" } else { "synchronizing" },
                    "sync_time": 1,
                    "version": version,
                    "of_a_later_version": "kept",
                })
            })
            .collect();
        let group = json!({
            "instance": NAMES[at],
            "role": role(NAMES[at]),
            "in_sync": in_sync[at],
            "in_sync_count": in_sync.iter().filter(|in_sync| **in_sync).count(),
            "configured_count": 3,
            "group_lsn": "<0:0:2:31232>",
            "group_name": "QM1",
            "group_role": "live",
            "active": self.active,
            "term": 7,
            "serving": true,
            "instances": rows,
        });
        let active = self.active == NAMES[at];
        let status = active.then(|| json!({ "name": "QM1", "state": "running", "pid": 42 }));
        json!({ "process": process(NAMES[at]), "group": group, "status": status })
    }
}

fn process(instance: &str) -> Value {
    let pid = std::process::id();
    json!({ "queue_manager": "QM1", "pid": pid, "mode": "group", "phase": "running",
            "instance": instance, "of_a_later_version": "ignored" })
}
