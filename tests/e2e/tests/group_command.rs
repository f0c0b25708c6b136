//! A group of three instances as `make run-group` starts it, and the commands for it: status,
//! switch, stop, rolling restart, a lost log.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use towline_e2e::daemon::said;
use towline_e2e::{Try, fail, paths, require, wait};

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(120);
/// Ports of a demonstration, one after the other.
const PORTS: u16 = 6;
/// Where such ports are looked for.
const PLACES: u32 = 1_500;
/// The active instance reports to the others how each of them is.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
const Q: &str = "DEV.QUEUE.1";

/// `towline group demo`, ended with its test.
struct Demo {
    process: Child,
    lines: Receiver<String>,
    folder: TempDir,
    /// The first of its ports.
    port: u16,
}

impl Demo {
    fn start() -> Try<Demo> {
        let below = paths::target_folder()?.join("e2e").join("scratch");
        std::fs::create_dir_all(&below)?;
        let folder = tempfile::Builder::new().prefix("group-").tempdir_in(below)?;
        let port = free_ports()?;
        let errors = folder.path().join("demo.err");
        let errors = OpenOptions::new().create(true).append(true).open(errors)?;
        let mut command = Command::new(paths::towline()?);
        command.args(["group", "demo", "--port", &port.to_string(), "--dir"]).arg(folder.path());
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn()?;
        let Some(stdout) = process.stdout.take() else { fail!("no standard output") };
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            // Read to the end in any case: a program that prints must not have to wait.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                tell.send(line).ok();
            }
        });
        let demo = Demo { process, lines, folder, port };
        demo.until("Ctrl-C here ends the group in order.")?;
        Ok(demo)
    }

    /// Waits for a line that begins so.
    fn until(&self, start: &str) -> Try<String> {
        let mut heard = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            if line.starts_with(start) {
                return Ok(line);
            }
            heard.push(line);
        }
        let errors = std::fs::read_to_string(self.folder.path().join("demo.err"))?;
        fail!("the demonstration did not say {start:?}, but {heard:?} and {errors}")
    }

    fn data(&self, instance: &str) -> String {
        self.folder.path().join(instance).to_string_lossy().into_owned()
    }

    fn url(&self, at: u16) -> String {
        format!("amqp://127.0.0.1:{}", self.port + at)
    }

    /// Runs a command that must end with this code, and gives all that it said.
    fn runs(&self, arguments: &[&str], code: i32) -> Try<String> {
        let mut command = Command::new(paths::towline()?);
        command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL").stdin(Stdio::null());
        let output = command.args(arguments).output()?;
        let words = said(&output);
        let right = output.status.code() == Some(code);
        require!(right, "{arguments:?} gave {}, not {code}: {words}", output.status);
        Ok(words)
    }

    /// The process of an instance, as it says in its lock.
    fn pid(&self, instance: &str) -> Try<i32> {
        let lock = self.folder.path().join(instance).join("log").join("lock");
        Ok(std::fs::read_to_string(lock)?.trim().parse()?)
    }

    fn wait(&mut self) -> Try<ExitStatus> {
        wait::until("the end of the demonstration", LIMIT, || self.process.try_wait().ok()?)
    }

    fn status(&self, instance: &str) -> Option<Value> {
        let words = self.runs(&["status", "--json", "--data", &self.data(instance)], 0).ok()?;
        serde_json::from_str(&words).ok()
    }

    /// Waits until all are in sync, as the active instance sees it; gives what it says.
    fn whole(&self) -> Try<Value> {
        wait::until("a group of three in sync", LIMIT, || {
            let statuses = ["a", "b", "c"].iter().filter_map(|name| self.status(name));
            let mut active = statuses.filter(|status| status["group"]["role"] == "active");
            active.find(|status| status["group"]["in_sync_count"] == 3)
        })
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It ends its children; a second time at once.
        for _ in 0..2 {
            if matches!(self.process.try_wait(), Ok(None)) {
                kill_process(Pid::from_child(&self.process), Signal::TERM).ok();
            }
        }
        drop(self.wait());
    }
}

/// Free ports, below those that the system gives out by itself; others in each test of
/// this process, for the demonstration takes them a moment later.
fn free_ports() -> Try<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PLACES {
        let next = NEXT.fetch_add(1, Ordering::SeqCst);
        let place = u16::try_from((std::process::id() + next) % PLACES)?;
        let first = 12_000 + place * PORTS;
        let mut ports = first..first + PORTS;
        if ports.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ok(first);
        }
    }
    fail!("no {PORTS} free ports one after the other")
}

/// Elections from one status to a later one: more than the one that was wanted when the machine was
/// so busy that instances missed each other.
fn elections(before: &Value, after: &Value) -> u64 {
    let term = |status: &Value| status["group"]["term"].as_u64().unwrap_or(0);
    term(after).saturating_sub(term(before))
}

/// An instance started by hand, killed with its test.
struct ByHand(Child);

impl Drop for ByHand {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A process that stands still until this goes.
struct StandingStill(Pid);

impl StandingStill {
    fn new(pid: i32) -> Try<StandingStill> {
        let Some(pid) = Pid::from_raw(pid) else { fail!("no process {pid}") };
        kill_process(pid, Signal::STOP)?;
        Ok(StandingStill(pid))
    }
}

impl Drop for StandingStill {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).ok();
    }
}

#[test]
fn the_commands_that_a_demonstration_tells_work_and_ctrl_c_ends_it() -> Try {
    let mut demo = Demo::start()?;
    let first = demo.whole()?;
    let active = first["group"]["active"].as_str().unwrap_or_default().to_owned();
    for (at, name) in ["a", "b", "c"].iter().enumerate() {
        let text = demo.runs(&["status", "--data", &demo.data(name)], 0)?;
        require!(text.contains("\nInstance  ") || text.starts_with("Instance  "), "{text}");
        require!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let at = u16::try_from(at)?;
        demo.runs(&["put", Q, name, "--url", &demo.url(at)], 0)?;
    }
    // Put at each, got at any.
    let got = demo.runs(&["get", Q, "--all", "--url", &demo.url(1)], 0)?;
    require!(got == "a\nb\nc\n", "{got:?}");

    let switched = demo.runs(&["switch", "--data", &demo.data("b"), "--json"], 0)?;
    let switched: Value = serde_json::from_str(&switched)?;
    require!(
        switched["from"] == active.as_str() && switched["to"] != active.as_str(),
        "{switched}"
    );
    let status = demo.whole()?;
    let to = status["group"]["active"] == switched["to"];
    require!(to || elections(&first, &status) > 1, "{status}");

    // kill -9 of the active one: another takes over, and it is started again.
    let pid = demo.pid(status["group"]["active"].as_str().unwrap_or_default())?;
    let Some(pid) = Pid::from_raw(pid) else { fail!("no process {pid}") };
    demo.runs(&["put", Q, "stays", "--url", &demo.url(0)], 0)?;
    kill_process(pid, Signal::KILL)?;
    demo.until("instance ")?;
    let after = demo.whole()?;
    let other = after["group"]["active"] != status["group"]["active"];
    require!(other || elections(&status, &after) > 1, "{after}");
    let got = demo.runs(&["get", Q, "--url", &demo.url(2)], 0)?;
    require!(got == "stays\n", "{got:?}");

    kill_process(Pid::from_child(&demo.process), Signal::INT)?;
    let ended = demo.wait()?;
    require!(ended.success(), "{ended}");
    for name in ["a", "b", "c"] {
        demo.runs(&["status", "--data", &demo.data(name)], 4)?;
    }
    Ok(())
}

#[test]
fn a_rolling_restart_loses_nothing_and_ends_in_sync() -> Try {
    let demo = Demo::start()?;
    let dir = demo.folder.path().to_string_lossy().into_owned();
    let pids = |demo: &Demo| -> Try<Vec<i32>> {
        ["a", "b", "c"].iter().map(|name| demo.pid(name)).collect()
    };
    let before = demo.whole()?;
    let pids_before = pids(&demo)?;
    let mut put = String::new();
    for round in 0..2 {
        demo.runs(&["put", Q, &format!("m{round}"), "--url", &demo.url(round)], 0)?;
        put.push_str(&format!("m{round}\n"));
        let rolled = demo.runs(&["rolling-restart", "--json", "--dir", &dir], 0)?;
        let rolled: Value = serde_json::from_str(&rolled)?;
        require!(rolled["quorum"] == "3/3", "{rolled}");
        require!(rolled["restarted"].as_array().is_some_and(|all| all.len() == 3), "{rolled}");
        let last = &rolled["restarted"][2];
        require!(last["switched_to"] == rolled["active"], "{rolled}");
    }
    let after = demo.whole()?;
    require!(after["group"]["term"].as_u64() >= before["group"]["term"].as_u64(), "{after}");
    // The processes are the same ones.
    require!(pids(&demo)? == pids_before, "not {pids_before:?}");
    let got = demo.runs(&["get", Q, "--all", "--url", &demo.url(2)], 0)?;
    require!(got == put, "{got:?}");
    Ok(())
}

#[test]
fn a_stop_keeps_the_quorum_and_an_instance_that_lost_its_log_is_rebuilt() -> Try {
    let demo = Demo::start()?;
    let status = demo.whole()?;
    let active = status["group"]["active"].as_str().unwrap_or_default();
    let mut replicas = ["a", "b", "c"].into_iter().filter(|name| *name != active);
    let (Some(one), Some(other)) = (replicas.next(), replicas.next()) else { fail!("{status}") };
    demo.runs(&["put", Q, "first", "--data", &demo.data(active)], 0)?;
    demo.runs(&["stop", "--data", &demo.data(one)], 0)?;
    demo.until(&format!("instance {one}: "))?;
    let refused = demo.runs(&["stop", "--data", &demo.data(other)], 1)?;
    require!(refused.contains("--force"), "{refused}");
    let config = demo.folder.path().join(format!("{one}.toml"));
    let config = config.to_string_lossy().into_owned();
    let (replace, data) = (["instance", "replace", "--yes", "--config", &config], demo.data(one));
    let set_aside = demo.runs(&[&replace[..], &["--json", "--data", &data]].concat(), 0)?;
    let set_aside: Value = serde_json::from_str(&set_aside)?;
    let aside = PathBuf::from(set_aside["set_aside"].as_str().unwrap_or_default());
    require!(aside.join("lock").exists(), "{set_aside}");
    demo.runs(&["put", Q, "second", "--data", &demo.data(active)], 0)?;

    let said = OpenOptions::new().create(true).append(true).open(aside.join("started"))?;
    let mut command = Command::new(paths::towline()?);
    command.args(["run", "QM1", "--data", &data, "--config", &config]).stdin(Stdio::null());
    let _by_hand = ByHand(command.stdout(said.try_clone()?).stderr(said).spawn()?);
    demo.whole()?;
    // What it was rebuilt from is all there was.
    let switched = demo.runs(&["switch", "--to", one, "--data", &demo.data(other)], 0)?;
    require!(switched.starts_with(&format!("{one} is active")), "{switched}");
    demo.whole()?;
    let got = demo.runs(&["get", Q, "--all", "--data", &data], 0)?;
    require!(got == "first\nsecond\n", "{got:?}");
    Ok(())
}

#[test]
fn a_replica_that_lagged_a_moment_ago_does_not_keep_a_log_from_being_set_aside() -> Try {
    let demo = Demo::start()?;
    let status = demo.whole()?;
    let active = status["group"]["active"].as_str().unwrap_or_default();
    let mut replicas = ["a", "b", "c"].into_iter().filter(|name| *name != active);
    let (Some(one), Some(other)) = (replicas.next(), replicas.next()) else { fail!("{status}") };
    let still = StandingStill::new(demo.pid(other)?)?;
    demo.runs(&["put", Q, "first", "--data", &demo.data(active)], 0)?;
    wait::until_true("a replica that is not in sync", LIMIT, || {
        let status = demo.status(active).unwrap_or_default();
        let rows = status["group"]["instances"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["instance"] == other && row["in_sync"] == false)
    })?;
    // The active instance reports that to the replica twice a second.
    wait::pause(REPORT_INTERVAL);
    // Forced: on a busy machine the link to the one that stands still may be given up by now.
    demo.runs(&["stop", "--force", "--data", &demo.data(one)], 0)?;
    drop(still);
    let config = demo.folder.path().join(format!("{one}.toml"));
    let config = config.to_string_lossy().into_owned();
    let replace = ["instance", "replace", "--yes", "--config", &config, "--data", &demo.data(one)];
    let set_aside = demo.runs(&replace, 0)?;
    require!(set_aside.starts_with("The old log is in "), "{set_aside}");
    Ok(())
}
