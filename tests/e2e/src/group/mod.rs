//! Three instances of a group as child processes on loopback: start, kill, pause, isolate, ask.
//!
//! Each group has addresses of its own below 127.0.0.0/8, held by a lease: an instance that is
//! started again finds its ports free, because no other process uses them, not even for outgoing
//! connections. Not here: clients (`workload`), judgement (`history`).

pub(crate) mod clock;
mod judgement;
pub(crate) mod lease;
mod net;
pub mod one;
pub mod texts;

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, process};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Site, said};
use crate::{Try, fail, paths, require, wait};

use clock::FakeClock;
pub use clock::Pace;
use lease::Lease;
pub use net::Net;

/// One of the three, from 0.
pub type Instance = usize;
/// All of them.
pub const THREE: [Instance; 3] = [0, 1, 2];
/// Their names.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Port of clients, on an address of the group's own.
const CLIENTS_PORT: u16 = 5672;
/// Port of links.
pub const LINKS_PORT: u16 = 5700;
/// Longer than a group takes to be whole again on a busy machine.
pub const WHOLE_MAX: Duration = Duration::from_secs(60);
/// An instance that does not answer in this time is stopped or gone.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Before what an instance says, in a reason.
pub const SAYS: &str = "\n--- ";

/// How long until instances miss each other, in tests: quick, and far above what a busy machine
/// delays.
pub const MISSED_AFTER: Duration = Duration::from_millis(1_500);
const TIMES: &str = "heartbeat_interval_ms = 100\n";

/// What a group is made of.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// Whether links go through proxies.
    pub net: bool,
    /// More of the configuration, before `[group]`.
    pub config: String,
    /// Whether each instance has a clock of its own (libfaketime).
    pub clocks: bool,
    /// How long until instances miss each other; `None`: [`MISSED_AFTER`].
    pub missed_after: Option<Duration>,
}

/// See the module.
pub struct Group {
    sites: Vec<Site>,
    daemons: Vec<Option<Daemon>>,
    paused: [bool; 3],
    /// None when they all have the machine's.
    clocks: Vec<FakeClock>,
    net: Option<Net>,
    /// Certificates and keys.
    papers: PathBuf,
    lease: Lease,
}

impl Group {
    /// A group with all instances running and in sync.
    ///
    /// # Errors
    /// When it does not form.
    pub fn formed() -> Try<Group> {
        Group::formed_as(&Design::default())
    }

    /// The same with links through proxies.
    ///
    /// # Errors
    /// When it does not form.
    pub fn formed_on_net() -> Try<Group> {
        Group::formed_as(&Design { net: true, ..Design::default() })
    }

    /// The same as designed.
    ///
    /// # Errors
    /// When it does not form.
    pub fn formed_as(design: &Design) -> Try<Group> {
        let mut group = Group::plan(design)?;
        for instance in THREE {
            group.start(instance)?;
        }
        group.until_whole()?;
        Ok(group)
    }

    /// A group of which nothing runs.
    ///
    /// # Errors
    /// When its files cannot be made.
    pub fn plan(design: &Design) -> Try<Group> {
        let lease = Lease::take()?;
        let sites = [Site::open()?, Site::open()?, Site::open()?];
        let papers = sites[0].scratch().join("papers");
        let links = THREE.map(|instance| format!("{}:{LINKS_PORT}", lease.address(instance)));
        let net = match design.net {
            true => Some(Net::between(IpAddr::V4(lease.address(THREE.len())), &links)?),
            false => None,
        };
        let mut group = Group {
            sites: sites.into(),
            daemons: vec![None, None, None],
            paused: [false; 3],
            clocks: Vec::new(),
            net,
            papers,
            lease,
        };
        group.issue_papers()?;
        if design.clocks {
            let clocks = group.sites.iter().map(|site| FakeClock::right(site.scratch()));
            group.clocks = clocks.collect::<Try<_>>()?;
        }
        let missed = design.missed_after.unwrap_or(MISSED_AFTER).as_millis();
        for instance in THREE {
            group.set_pace(instance, Pace::Even);
            let listen = format!("{}:{CLIENTS_PORT}", group.lease.address(instance));
            let config = format!("{}\n{}", design.config, group.section(instance, &links, missed));
            group.sites[instance].listen = listen;
            group.sites[instance].config = config;
        }
        Ok(group)
    }

    /// Certificates of the group's authority, made anew: running instances take them over.
    ///
    /// # Errors
    /// When the command fails.
    pub fn issue_papers(&self) -> Try {
        self.issue_papers_for(&THREE, 365)
    }

    /// The same for some instances, valid for so many days.
    ///
    /// # Errors
    /// When the command fails.
    pub fn issue_papers_for(&self, instances: &[Instance], days: u32) -> Try {
        let names: Vec<&str> = instances.iter().map(|at| NAMES[*at]).collect();
        let mut command = process::Command::new(paths::towline()?);
        command.args(["group", "certificates", "--name", "QM1", "--group", "G"]);
        command.args(["--instances", &names.join(","), "--days", &days.to_string(), "--out"]);
        let output = command.arg(&self.papers).output()?;
        require!(output.status.success(), "certificates: {}", said(&output));
        Ok(())
    }

    /// Folder of certificates and keys.
    #[must_use]
    pub fn papers(&self) -> &PathBuf {
        &self.papers
    }

    fn section(&self, instance: Instance, links: &[String; 3], missed_ms: u128) -> String {
        let papers = self.papers.display();
        let name = NAMES[instance];
        let mut text = format!(
            "[group]\nname = \"G\"\ninstance = \"{name}\"\n{TIMES}\
             heartbeat_timeout_ms = {missed_ms}\n\
             certificate = \"{papers}/{name}.pem\"\nprivate_key = \"{papers}/{name}-key.pem\"\n\
             authorities = \"{papers}/authority.pem\"\n"
        );
        for (member, name) in THREE.into_iter().zip(NAMES) {
            let proxy = self.net.as_ref().and_then(|net| net.address(instance, member));
            let address = proxy.map_or_else(|| links[member].clone(), |proxy| proxy.to_string());
            text += &format!("\n[[group.member]]\nname = \"{name}\"\naddress = \"{address}\"\n");
        }
        text
    }

    /// Starts an instance and waits until it takes clients.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(&mut self, instance: Instance) -> Try {
        require!(self.daemons[instance].is_none(), "{} runs", NAMES[instance]);
        self.daemons[instance] = Some(self.sites[instance].start()?);
        Ok(())
    }

    /// Starts some at once: each may need another one to begin.
    ///
    /// # Errors
    /// When one of them does not take clients.
    pub fn start_together(&mut self, instances: &[Instance]) -> Try {
        let sites = &self.sites;
        let started: Vec<(Instance, Try<Daemon>)> = std::thread::scope(|scope| {
            let starting = instances.iter().map(|at| (*at, scope.spawn(|| sites[*at].start())));
            let starting: Vec<_> = starting.collect();
            let ended = starting.into_iter().map(|(at, starting)| {
                let lost = |_| Err("a start that panicked".into());
                (at, starting.join().unwrap_or_else(lost))
            });
            ended.collect()
        });
        for (at, daemon) in started {
            self.daemons[at] = Some(daemon?);
        }
        Ok(())
    }

    /// kill -9. A paused one is killed as well.
    ///
    /// # Errors
    /// When it does not run, or had ended by itself.
    pub fn kill(&mut self, instance: Instance) -> Try {
        self.paused[instance] = false;
        match self.daemons[instance].take() {
            Some(daemon) => daemon.kill(),
            None => fail!("{} does not run", NAMES[instance]),
        }
    }

    /// SIGTERM; waits for an end with exit code 0.
    ///
    /// # Errors
    /// When it does not end so.
    pub fn stop(&mut self, instance: Instance) -> Try {
        match self.daemons[instance].take() {
            Some(daemon) => daemon.stop(),
            None => fail!("{} does not run", NAMES[instance]),
        }
    }

    /// SIGTERM; waits for an end, which is in order unless the program had hardly been executed, so
    /// that the signal itself ended it.
    ///
    /// # Errors
    /// When it does not end so.
    pub fn terminate(&mut self, instance: Instance) -> Try {
        let Some(mut daemon) = self.daemons[instance].take() else {
            fail!("{} does not run", NAMES[instance])
        };
        daemon.terminate()?;
        let ended = daemon.await_end(WHOLE_MAX).map_err(|error| self.explained(&error.to_string()));
        let status = ended?;
        let right = status.success() || status.signal() == Some(Signal::TERM.as_raw());
        require!(right, "{} ended with {status}", NAMES[instance]);
        Ok(())
    }

    /// Waits for the end of an instance that was asked to end.
    ///
    /// # Errors
    /// When it does not end, or not with exit code 0.
    pub fn await_end(&mut self, instance: Instance) -> Try {
        let Some(mut daemon) = self.daemons[instance].take() else {
            fail!("{} does not run", NAMES[instance])
        };
        let status = daemon.await_end(WHOLE_MAX)?;
        require!(status.success(), "{} ended with {status}", NAMES[instance]);
        Ok(())
    }

    /// SIGSTOP; it stands still when this returns.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&mut self, instance: Instance) -> Try {
        self.daemon(instance)?.pause()?;
        self.paused[instance] = true;
        Ok(())
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&mut self, instance: Instance) -> Try {
        self.daemon(instance)?.wake()?;
        self.paused[instance] = false;
        Ok(())
    }

    /// The process of an instance.
    ///
    /// # Errors
    /// When it does not run.
    pub fn daemon(&self, instance: Instance) -> Try<&Daemon> {
        let running = self.daemons[instance].as_ref();
        running.ok_or_else(|| format!("{} does not run", NAMES[instance]).into())
    }

    /// Whether it was started and not ended by us.
    #[must_use]
    pub fn runs(&self, instance: Instance) -> bool {
        self.daemons[instance].is_some()
    }

    /// Whether it stands still.
    #[must_use]
    pub fn is_paused(&self, instance: Instance) -> bool {
        self.paused[instance]
    }

    /// Whether its process ended without a request.
    pub fn has_ended(&mut self, instance: Instance) -> bool {
        self.daemons[instance].as_mut().is_some_and(|daemon| !daemon.is_running())
    }

    /// How a process that was not asked to end has ended, with the end of its log.
    pub fn ended(&mut self, instance: Instance) -> Option<String> {
        self.daemons[instance].as_mut().and_then(Daemon::ended)
    }

    /// Forgets a process that ended by itself, so that the instance can be started again.
    pub fn forget(&mut self, instance: Instance) {
        self.daemons[instance] = None;
        self.paused[instance] = false;
    }

    /// Leaves everything behind for people to look at; where it is.
    pub fn keep(&mut self) -> Vec<PathBuf> {
        self.sites.iter_mut().map(Site::keep).collect()
    }

    /// Everything that an instance had on its disk is gone, durably: a lost disk is another disk,
    /// and a later power cut restores nothing of it. The instance must not run.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn lose_disk(&mut self, instance: Instance) -> Try {
        require!(self.daemons[instance].is_none(), "{} runs", NAMES[instance]);
        // Not the folder: something may be mounted there.
        for entry in fs::read_dir(&self.sites[instance].data)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        Ok(fs::File::open(&self.sites[instance].data)?.sync_all()?)
    }

    /// The wall clock of an instance is so many seconds ahead from now on, also after its next
    /// start.
    ///
    /// # Errors
    /// When it has no clock of its own.
    pub fn shift_clock(&self, instance: Instance, seconds: i64) -> Try {
        self.clocks.get(instance).ok_or("no clocks in this group")?.shift(seconds)
    }

    /// How fast the clocks of an instance run from its next start on, if it has its own.
    pub fn set_pace(&mut self, instance: Instance, pace: Pace) {
        if let Some(clock) = self.clocks.get(instance) {
            self.sites[instance].environment = clock.environment(pace);
        }
    }

    /// Whether each instance has a clock of its own.
    #[must_use]
    pub fn has_clocks(&self) -> bool {
        !self.clocks.is_empty()
    }

    /// Folder and commands of an instance.
    #[must_use]
    pub fn site(&self, instance: Instance) -> &Site {
        &self.sites[instance]
    }

    /// The same, to be changed before a start.
    pub fn site_mut(&mut self, instance: Instance) -> &mut Site {
        &mut self.sites[instance]
    }

    /// The network between instances.
    ///
    /// # Errors
    /// When the design has none.
    pub fn net(&self) -> Try<&Net> {
        self.net.as_ref().ok_or_else(|| "no net in this group".into())
    }

    /// Host and port where an instance takes clients.
    #[must_use]
    pub fn address(&self, instance: Instance) -> &str {
        &self.sites[instance].listen
    }

    /// Host and port where its links come in.
    #[must_use]
    pub fn links_address(&self, instance: Instance) -> String {
        format!("{}:{LINKS_PORT}", self.lease.address(instance))
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self, instance: Instance) -> String {
        format!("amqp://{}", self.address(instance))
    }

    /// All of them: a fail-over list.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        THREE.iter().map(|instance| self.url(*instance)).collect()
    }

    /// Asks an instance on its control socket; what stands under `ok`.
    ///
    /// # Errors
    /// What it refused, or that it did not answer.
    pub fn ask(&self, instance: Instance, order: &Value) -> Try<Value> {
        let socket = self.sites[instance].data.join("towline-control.sock");
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        (&stream).write_all(format!("{order}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let mut answer: Value = serde_json::from_str(&line)?;
        match answer.get_mut("ok") {
            Some(ok) => Ok(ok.take()),
            None => fail!("{} refused: {answer}", NAMES[instance]),
        }
    }

    /// What an instance says of the group.
    ///
    /// # Errors
    /// When it does not answer, or is not open yet.
    pub fn status(&self, instance: Instance) -> Try<Value> {
        let mut told = self.ask(instance, &json!({ "do": "status" }))?;
        require!(!told["group"].is_null(), "{} says {told}", NAMES[instance]);
        Ok(told["group"].take())
    }

    /// `towline switch`, asked through an instance; returns the active instance.
    ///
    /// # Errors
    /// When there was no switch.
    pub fn switch(&self, through: Instance, to: Option<Instance>) -> Try<Instance> {
        let mut arguments = vec!["switch", "--json"];
        if let Some(to) = to {
            arguments.extend(["--to", NAMES[to]]);
        }
        let said = self.sites[through].runs(&arguments, 0);
        let said = said.map_err(|error| self.explained(&error.to_string()))?;
        let told: Value = serde_json::from_str(&said)?;
        let next = NAMES.iter().position(|name| told["to"] == *name);
        next.ok_or_else(|| format!("a switch to nobody: {told}").into())
    }

    /// Makes an instance the active one of a group that is whole, and waits until it is whole
    /// again. On a machine that is very busy an election may overtake a switch, which is then
    /// ordered once more.
    ///
    /// # Errors
    /// When it does not become active.
    pub fn make_active(&self, wanted: Instance) -> Try {
        let what = format!("{} is active", NAMES[wanted]);
        let waited = wait::until(&what, WHOLE_MAX, || {
            let active = self.until_whole().ok()?;
            if active != wanted {
                self.switch(active, Some(wanted)).ok();
            }
            (active == wanted).then_some(())
        });
        waited.map_err(|error| self.explained(&error.to_string()).into())
    }

    /// The active instance, if there is one that runs: of those that say so, the one of the newest
    /// term.
    #[must_use]
    pub fn active(&self) -> Option<Instance> {
        self.active_says().map(|(at, _)| at)
    }

    /// It, and what it says.
    fn active_says(&self) -> Option<(Instance, Value)> {
        let running = THREE.into_iter().filter(|at| self.runs(*at) && !self.paused[*at]);
        let said = running.filter_map(|at| Some((at, self.status(at).ok()?)));
        let active = said.filter(|(_, group)| group["role"] == "active");
        active.max_by_key(|(_, group)| group["term"].as_u64())
    }

    /// Waits until there is an active instance, another one than `not`.
    ///
    /// # Errors
    /// When none comes.
    pub fn until_active(&self, not: Option<Instance>) -> Try<Instance> {
        wait::until("an active instance", WHOLE_MAX, || {
            self.active().filter(|active| Some(*active) != not)
        })
        .map_err(|error| self.explained(&error.to_string()).into())
    }

    /// Waits until all three run, are connected and in sync; the active one.
    ///
    /// # Errors
    /// When they do not come to it.
    pub fn until_whole(&self) -> Try<Instance> {
        self.until_in_sync(THREE.len() as u64)
    }

    /// Waits until so many are in sync, as the active one says.
    ///
    /// # Errors
    /// When they do not come to it.
    pub fn until_in_sync(&self, count: u64) -> Try<Instance> {
        wait::until(&format!("{count} in sync"), WHOLE_MAX, || {
            let (active, group) = self.active_says()?;
            let in_sync = group["in_sync_count"].as_u64() == Some(count);
            (in_sync && group["serving"] == true).then_some(active)
        })
        .map_err(|error| self.explained(&error.to_string()).into())
    }

    /// Waits until no client is connected and no unit of work is open.
    ///
    /// # Errors
    /// When it does not come about.
    pub fn until_quiet(&self) -> Try {
        wait::until_true("no client is connected", WHOLE_MAX, || {
            let Some(active) = self.active() else { return false };
            let asked = self.ask(active, &json!({ "do": "status" }));
            asked.is_ok_and(|told| told["status"]["connections"] == 0)
        })
    }

    /// A reason with what the instances say, and the ends of their logs.
    #[must_use]
    pub fn explained(&self, reason: &str) -> String {
        let mut text = reason.to_owned();
        for instance in THREE {
            let log = self.sites[instance].log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines.split_at(lines.len().saturating_sub(25)).1.join("\n");
            let told = self.ask(instance, &json!({ "do": "status" }));
            text += &format!("{SAYS}{}: {}\n{end}", NAMES[instance], in_short(told));
        }
        text
    }
}

/// What is of interest in an instance's answer.
fn in_short(told: Try<Value>) -> String {
    let told = match told {
        Ok(told) => told,
        Err(why) => return why.to_string(),
    };
    let (group, status) = (&told["group"], &told["status"]);
    let rows = group["instances"].as_array().cloned().unwrap_or_default();
    let row = |row: &Value| format!("{} {} {}", row["instance"], row["status"], row["ack_lsn"]);
    let rows: Vec<String> = rows.iter().map(row).collect();
    let mut text =
        format!("{} of term {}, group at {}", group["role"], group["term"], group["group_lsn"]);
    text += &format!("; {}", rows.join(", "));
    if !status.is_null() {
        let (connections, log, units) = (&status["connections"], &status["log"], &status["units"]);
        text += &format!("\n{connections} connections, units {units}, log {log}");
        for queue in status["queues"].as_array().unwrap_or(&Vec::new()) {
            text += &format!("\n{queue}");
        }
    }
    text
}
