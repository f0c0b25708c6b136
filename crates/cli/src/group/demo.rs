//! `towline group demo`: three instances, or one, as child processes, until Ctrl-C. One that is
//! killed or fails is started again, as a process supervisor would do; one that ended in order, or
//! cannot start, is left alone.
//!
//! Not here: what it writes (`plan`). The children have a process group of their own, so that
//! Ctrl-C is ours: the active one ends first, while the others still confirm what it finishes.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal};
use towline_admin::status::{GroupRole, GroupStatus, group_table};
use towline_server::shell_word;

use super::plan::{Plan, PlannedInstance};
use crate::arguments::Demo;
use crate::control::ControlClient;
use crate::failure::Failure;
use crate::process::Process;
use crate::signals::{self, SignalMeaning};
use crate::{progress, show};

/// A start takes seconds, on a slow and busy machine too.
const START_MAX: Duration = Duration::from_secs(120);
/// An orderly end: units of work have ten seconds.
const END_MAX: Duration = Duration::from_secs(30);
/// Between two looks while the group starts.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// An instance that does not answer in this time is busy; it is asked again.
const ANSWER: Duration = Duration::from_secs(2);
/// An instance that fails sooner after its start would fail again.
const FAILS_AGAIN: Duration = Duration::from_secs(3);
/// Lines of what an instance printed that are shown when it cannot start.
const LAST_LINES: usize = 5;

enum DemoEvent {
    Signal,
    Ended(usize, ExitStatus),
}

/// Runs the command.
pub(super) fn run(arguments: &Demo) -> Result<(), Failure> {
    let plan = Plan::of(arguments)?;
    for instance in &plan.instances {
        if ControlClient::connect(&instance.data, ANSWER)?.is_some() {
            let folder = instance.data.display();
            return Err(Failure::Failed(format!(
                "an instance is already running in {folder}; stop it, or choose another --dir"
            )));
        }
    }
    plan.write()?;
    let (tell, events) = channel();
    let told = tell.clone();
    signals::listen(move |signal| {
        signal != SignalMeaning::End || told.send(DemoEvent::Signal).is_ok()
    })?;
    let mut group =
        Running { plan: &plan, tell, events, processes: Vec::new(), started: Vec::new() };
    let outcome = group.serve();
    let ended = group.end();
    outcome.and(ended)
}

/// The instances while they run.
struct Running<'a> {
    plan: &'a Plan,
    tell: Sender<DemoEvent>,
    events: Receiver<DemoEvent>,
    /// In the order of the plan; `None`: it ended.
    processes: Vec<Option<Process>>,
    /// When each was started.
    started: Vec<Instant>,
}

impl Running<'_> {
    /// Starts all, and stays until it is asked to end or no instance runs any more.
    fn serve(&mut self) -> Result<(), Failure> {
        for (at, instance) in self.plan.instances.iter().enumerate() {
            let process = start(self.plan, at, instance, &self.tell)?;
            self.processes.push(Some(process));
            self.started.push(Instant::now());
        }
        let Some(status) = self.until_it_serves()? else { return Ok(()) };
        self.welcome(&status)?;
        while self.processes.iter().any(Option::is_some) {
            match self.events.recv() {
                Ok(DemoEvent::Signal) | Err(_) => return Ok(()),
                Ok(DemoEvent::Ended(at, status)) => self.ended(at, status)?,
            }
        }
        Ok(())
    }

    /// Waits until all instances are in sync. `None`: it was asked to end.
    fn until_it_serves(&mut self) -> Result<Option<GroupStatus>, Failure> {
        let spinner = progress::spinner(false);
        spinner.set_message(match self.plan.instances.len() {
            1 => "starting one instance",
            _ => "starting three instances",
        });
        let began = Instant::now();
        while began.elapsed() < START_MAX {
            match self.events.recv_timeout(LOOK_INTERVAL) {
                Ok(DemoEvent::Signal) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Ok(DemoEvent::Ended(at, status)) => {
                    self.forget(at);
                    return Err(self.cannot_start(at, status));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let Some(group) = self.active() else { continue };
            if group.serving && group.in_sync_count == group.configured_count {
                spinner.finish_and_clear();
                return Ok(Some(group));
            }
            spinner.set_message(format!("instances in sync: {}", group.quorum()));
        }
        let seconds = START_MAX.as_secs();
        let dir = self.plan.dir.display();
        Err(Failure::Failed(format!("not in sync after {seconds} s: see {dir}/*.log")))
    }

    /// What the active instance says of the group.
    fn active(&self) -> Option<GroupStatus> {
        let groups = self.plan.instances.iter().filter_map(|instance| {
            ControlClient::connect(&instance.data, ANSWER).ok().flatten()?.group().ok()
        });
        groups.into_iter().find(|group| group.role == GroupRole::Active)
    }

    fn forget(&mut self, at: usize) {
        if let Some(process) = self.processes.get_mut(at) {
            *process = None;
        }
    }

    fn cannot_start(&self, at: usize, status: ExitStatus) -> Failure {
        let Some(instance) = self.plan.instances.get(at) else { return Failure::Silent };
        let said = std::fs::read_to_string(&instance.log).unwrap_or_default();
        let mut last: Vec<&str> = said.lines().rev().take(LAST_LINES).collect();
        last.reverse();
        Failure::Failed(format!("instance {}: {status}\n{}", instance.name, last.join("\n")))
    }

    /// An instance ended although this program did not ask it to.
    fn ended(&mut self, at: usize, status: ExitStatus) -> Result<(), Failure> {
        self.forget(at);
        let plan = self.plan;
        let Some(instance) = plan.instances.get(at) else { return Ok(()) };
        let ran = self.started.get(at).map(Instant::elapsed).unwrap_or_default();
        let failed = !status.success() && ran >= FAILS_AGAIN;
        if status.signal().is_some() || failed {
            let process = start(plan, at, instance, &self.tell)?;
            let pid = process.number();
            if let Some(place) = self.processes.get_mut(at) {
                *place = Some(process);
            }
            if let Some(started) = self.started.get_mut(at) {
                *started = Instant::now();
            }
            return show::line(&format!(
                "instance {}: {status}; started again, process {pid}",
                instance.name
            ));
        }
        show::lines(&format!(
            "instance {}: {status}. Start it again, here or elsewhere, with:\n  {}",
            instance.name,
            command(plan, instance)
        ))
    }

    fn welcome(&self, group: &GroupStatus) -> Result<(), Failure> {
        let towline = shell_word(&called());
        let data = |name: &str| {
            let found = self.plan.instances.iter().find(|instance| instance.name == name);
            found.map(|found| shell_word(&found.data.display().to_string())).unwrap_or_default()
        };
        let url = |at: usize| {
            let instance = self.plan.instances.get(at);
            instance.map(|found| format!("amqp://{}", found.listener)).unwrap_or_default()
        };
        let pid = self.plan.instances.iter().zip(&self.processes);
        let pid = pid.filter(|(instance, _)| instance.name == group.active);
        let pid = pid.filter_map(|(_, process)| process.as_ref()).map(Process::number).next();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        show::lines(&group_table(group, None, now))?;
        if let [only] = self.plan.instances.as_slice() {
            return show::lines(&format!(
                "Try in another terminal:\n  \
                 {towline} status --watch --data {data}\n  \
                 {towline} put DEV.QUEUE.1 hello --url {url}\n  \
                 kill -9 {pid}  # it is started again\n  \
                 {towline} get DEV.QUEUE.1 --url {url}\n\
                 What the instance says is in {log}.\n\
                 Ctrl-C here ends the group in order.",
                data = data(only.name),
                url = url(0),
                pid = pid.unwrap_or_default(),
                log = only.log.display(),
            ));
        }
        let (a, b) = (data("a"), data("b"));
        show::lines(&format!(
            "Try in another terminal:\n  \
             {towline} status --watch --data {b}\n  \
             {towline} put DEV.QUEUE.1 hello --url {second}\n  \
             {towline} get DEV.QUEUE.1 --url {third}\n  \
             {towline} switch --data {a}\n  \
             kill -9 {pid}  # the active one; it is started again\n  \
             {towline} rolling-restart --dir {dir}\n\
             From JMS (Qpid): new JmsConnectionFactory(\"failover:({first},{second},{third})\")\n\
             What the instances say is in {shown}/*.log.\n\
             Ctrl-C here ends the group in order.",
            first = url(0),
            second = url(1),
            third = url(2),
            pid = pid.unwrap_or_default(),
            dir = shell_word(&self.plan.dir.display().to_string()),
            shown = self.plan.dir.display(),
        ))
    }

    /// Ends all: the active one, then the others. A second signal shortens the shutdown.
    fn end(&mut self) -> Result<(), Failure> {
        if self.processes.iter().all(Option::is_none) {
            return Ok(());
        }
        show::line("ending the group").ok();
        let active = self.active().map(|group| group.active).unwrap_or_default();
        let is_active = |at: usize| {
            let instance = self.plan.instances.get(at);
            instance.is_some_and(|instance| instance.name == active)
        };
        let all = 0..self.processes.len();
        let (first, then): (Vec<usize>, Vec<usize>) = all.partition(|at| is_active(*at));
        let ended = self.end_these(&first);
        self.end_these(&then).and(ended)
    }

    fn end_these(&mut self, these: &[usize]) -> Result<(), Failure> {
        self.signal(these, Signal::TERM)?;
        let began = Instant::now();
        while these.iter().any(|at| self.processes.get(*at).is_some_and(Option::is_some)) {
            match self.events.recv_timeout(END_MAX.saturating_sub(began.elapsed())) {
                Ok(DemoEvent::Ended(at, _)) => self.forget(at),
                // An instance ends at once at the second signal.
                Ok(DemoEvent::Signal) => self.signal(these, Signal::TERM)?,
                Err(_) => {
                    self.signal(these, Signal::KILL)?;
                    let seconds = END_MAX.as_secs();
                    return Err(Failure::Failed(format!("not ended in {seconds} s, killed")));
                }
            }
        }
        Ok(())
    }

    fn signal(&self, these: &[usize], signal: Signal) -> Result<(), Failure> {
        for process in these.iter().filter_map(|at| self.processes.get(*at)?.as_ref()) {
            process.signal(signal)?;
        }
        Ok(())
    }
}

/// Starts an instance; its end becomes an event.
fn start(
    plan: &Plan,
    at: usize,
    instance: &PlannedInstance,
    tell: &Sender<DemoEvent>,
) -> Result<Process, Failure> {
    let of = |error| Failure::about(instance.log.display(), error);
    let said =
        OpenOptions::new().create(true).append(true).mode(0o600).open(&instance.log).map_err(of)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", &plan.name, "--data"]).arg(&instance.data);
    command.arg("--config").arg(&instance.config).process_group(0).stdin(Stdio::null());
    let mut child = command.stdout(said.try_clone()?).stderr(said).spawn()?;
    // Before any thread waits for it: until then the number is its own.
    let process = Process::open(Pid::from_child(&child))?;
    let tell = tell.clone();
    std::thread::Builder::new().name(format!("instance {}", instance.name)).spawn(move || {
        if let Ok(status) = child.wait() {
            // When the demonstration is over, no receiver is left.
            tell.send(DemoEvent::Ended(at, status)).ok();
        }
    })?;
    Ok(process)
}

/// How an instance is started by hand.
fn command(plan: &Plan, instance: &PlannedInstance) -> String {
    let path = |path: &std::path::Path| shell_word(&path.display().to_string());
    let (towline, name) = (shell_word(&called()), shell_word(&plan.name));
    let (data, config) = (path(&instance.data), path(&instance.config));
    format!("{towline} run {name} --data {data} --config {config}")
}

/// How we were called, as it can be typed again.
fn called() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(|| "towline".to_owned(), |name| name.to_string_lossy().into_owned())
}
