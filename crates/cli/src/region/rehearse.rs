//! `towline region rehearse`: a queue manager of its own at the recovery point of a recovery
//! instance, for one check, while the log is received as ever. It reads the log of the instance
//! where it is; what it writes is gone with it.
//!
//! Reading order: here what happens when; `report` (what is said of it), `scratch` (the process,
//! its folder and its configuration). Not here: what the instance holds for it, as long as the
//! connection to it stands. Invariant: whatever ends this command, the queue manager ends with it,
//! and the instance removes what is left.

mod report;
mod scratch;

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};

use super::change::user;
use crate::arguments::RegionRehearse;
use crate::control::{ControlClient, understood};
use crate::failure::Failure;
use crate::patience::Patience;
use crate::signals::{self, SignalMeaning};
use crate::{progress, show};
use report::{CheckReport, RehearsalReport};
use scratch::{Scratch, ScratchPlan};

pub(crate) use scratch::part;

/// What this command waits for.
enum RehearsalEvent {
    /// The queue manager serves at this address.
    Serves(String),
    /// It ended by itself.
    Ended(ExitStatus),
    /// The instance has let the log go, and why.
    LetGo(String),
    /// The check has ended.
    Checked(ExitStatus),
    /// A signal to end; or what was to be waited for with --keep.
    Enough,
}

/// What the instance answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Held {
    group: String,
    instance: String,
    shared: Value,
    lsn: String,
    image_lsn: String,
    image_was_taken: bool,
    at: String,
    log_was_longer_at: Option<String>,
    took_ms: u64,
}

/// Runs the command.
pub(super) fn run(arguments: &RegionRehearse) -> Result<(), Failure> {
    let longest = Duration::from_secs_f64(arguments.timeout);
    let (began, patience) = (Instant::now(), Patience::of(longest));
    let mut asking = ControlClient::reach(&arguments.data, patience.left())?;
    let process = asking.report()?;
    asking.wait_at_most(patience.left());
    let order = json!({ "do": "region_rehearse", "room_bytes": arguments.room, "by": user() });
    let held: Held = understood(asking.ask(&order)?)?;
    let (tell, events) = channel();
    let told = tell.clone();
    signals::listen(move |signal| {
        signal != SignalMeaning::End || told.send(RehearsalEvent::Enough).is_ok()
    })?;
    // The command only waits: the instance goes first, on a busy machine too.
    rustix::process::nice(scratch::NICE).ok();
    let plan = ScratchPlan::of(arguments, &process, &held.shared)?;
    let lease = watch_lease(asking, &tell)?;
    let done = Scratch::start(plan, &lease, &tell).and_then(|scratch| {
        let rehearsal = Rehearsal { arguments, events, tell, patience, scratch };
        rehearsal.go(held, began)
    });
    // The queue manager has ended: only now the instance may let go.
    lease.shutdown(std::net::Shutdown::Both).ok();
    let report = done?;
    match arguments.json {
        true => show::json(&serde_json::to_value(&report).unwrap_or_default())?,
        false => show::line("thrown away: nothing of it is left")?,
    }
    match report.check.is_some_and(|check| check.exit_code != Some(0)) {
        true => Err(Failure::Unfit),
        false => Ok(()),
    }
}

/// Says when the instance ends it; yields the connection.
fn watch_lease(
    asked: ControlClient,
    tell: &Sender<RehearsalEvent>,
) -> Result<std::os::unix::net::UnixStream, Failure> {
    let mut stream = asked.into_stream()?;
    let lease = stream.try_clone()?;
    let tell = tell.clone();
    std::thread::Builder::new().name("lease".into()).spawn(move || {
        let mut said = String::new();
        let read = stream.read_to_string(&mut said);
        let why = serde_json::from_str::<Value>(said.trim()).ok();
        let why = why.as_ref().and_then(|why| why["ended"].as_str());
        let why = match (why, read) {
            (Some(why), _) => why.to_owned(),
            (None, _) => "its process ended, or executes its program again".to_owned(),
        };
        tell.send(RehearsalEvent::LetGo(why)).ok();
    })?;
    Ok(lease)
}

/// A rehearsal that goes on. The queue manager ends when it is dropped.
struct Rehearsal<'a> {
    arguments: &'a RegionRehearse,
    events: Receiver<RehearsalEvent>,
    tell: Sender<RehearsalEvent>,
    patience: Patience,
    scratch: Scratch,
}

impl Rehearsal<'_> {
    fn go(self, held: Held, began: Instant) -> Result<RehearsalReport, Failure> {
        let spinner = progress::spinner(self.arguments.json);
        spinner.set_message("starting");
        let url = self.until_it_serves();
        spinner.finish_and_clear();
        let url = url?;
        let serving_ms = ms(began);
        let mut report = RehearsalReport::of(held, serving_ms);
        report.queue_manager.clone_from(&self.scratch.plan.name);
        report.url.clone_from(&url);
        report.queues = self.scratch.queues(self.patience.left())?;
        report.messages = report.queues.iter().map(|queue| queue.depth).sum();
        if !self.arguments.json {
            report.show()?;
        }
        if !self.arguments.command.is_empty() {
            report.check = Some(self.check(&url, &report)?);
        }
        if self.arguments.keep {
            self.keep(&url)?;
        }
        report.written_bytes = self.scratch.written_bytes();
        report.took_ms = ms(began);
        Ok(report)
    }

    /// The next event that is not one of a queue manager or an instance that has ended.
    fn next(&self) -> Result<RehearsalEvent, Failure> {
        match self.events.recv_timeout(self.patience.left()) {
            Ok(RehearsalEvent::LetGo(why)) => {
                Err(Failure::Failed(format!("the instance ended the rehearsal: {why}")))
            }
            Ok(RehearsalEvent::Ended(status)) => {
                let said = self.scratch.last_lines();
                Err(Failure::Failed(format!("its queue manager ended: {status}\n{said}")))
            }
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Failure::Failed(format!(
                    "the rehearsal took more than {} s: see --timeout",
                    self.arguments.timeout
                )))
            }
        }
    }

    fn until_it_serves(&self) -> Result<String, Failure> {
        loop {
            match self.next()? {
                RehearsalEvent::Serves(url) => return Ok(url),
                RehearsalEvent::Enough => return Err(interrupted()),
                _ => {}
            }
        }
    }

    /// Runs the check, and waits for its end.
    fn check(&self, url: &str, report: &RehearsalReport) -> Result<CheckReport, Failure> {
        let Some((program, rest)) = self.arguments.command.split_first() else {
            return Err(Failure::Silent);
        };
        let began = Instant::now();
        let mut command = Command::new(program);
        command.args(rest).stdin(Stdio::null()).process_group(0);
        command.envs(self.scratch.environment(url)).env("TOWLINE_REHEARSAL_LSN", &report.lsn);
        if self.arguments.json {
            // Standard output is the report's.
            command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
        }
        let started = command.spawn();
        let mut child = started.map_err(|e| Failure::about(program.display(), e))?;
        let group = Pid::from_child(&child);
        let tell = self.tell.clone();
        std::thread::Builder::new().name("check".into()).spawn(move || {
            if let Ok(status) = child.wait() {
                tell.send(RehearsalEvent::Checked(status)).ok();
            }
        })?;
        let ended = loop {
            match self.next() {
                Ok(RehearsalEvent::Checked(status)) => break Ok(status),
                Ok(RehearsalEvent::Enough) => break Err(interrupted()),
                Ok(_) => {}
                Err(failure) => break Err(failure),
            }
        };
        if ended.is_err() {
            // With what it started; it may have ended just now.
            kill_process_group(group, Signal::KILL).ok();
        }
        let status = ended?;
        let check = CheckReport {
            command: self.arguments.command.iter().map(|it| it.display().to_string()).collect(),
            exit_code: status.code(),
            ended: status.to_string(),
            took_ms: ms(began),
        };
        if !self.arguments.json {
            check.show()?;
        }
        Ok(check)
    }

    /// Waits for a line, the end of standard input, or a signal.
    fn keep(&self, url: &str) -> Result<(), Failure> {
        if !self.arguments.json {
            let data = self.scratch.plan.data();
            let (user, password) = (scratch::USER, &self.scratch.plan.password);
            show::lines(&format!(
                "it serves at {url}, user {user}, password {password}; or --data {}\n\
                 press Enter to throw it away",
                data.display()
            ))?;
        }
        let tell = self.tell.clone();
        std::thread::Builder::new().name("keep".into()).spawn(move || {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).ok();
            tell.send(RehearsalEvent::Enough).ok();
        })?;
        loop {
            if let RehearsalEvent::Enough = self.next()? {
                return Ok(());
            }
        }
    }
}

fn interrupted() -> Failure {
    Failure::Failed("the rehearsal was interrupted, and is thrown away".to_owned())
}

fn ms(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
