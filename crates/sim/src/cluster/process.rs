//! One process of an instance of a group: what the daemon is, without sockets and signals. It opens
//! the data folder, connects to the others, applies and serves, and does what the daemon does when
//! it cannot go on as it is.
//!
//! Not here: anything of that itself: it is the product's code (`towline_replica` and below).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Plain;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use towline_admin::status::RegionConditionStatus;
use towline_config::{Config, GroupConfig};
use towline_engine::{AdminJobs, BackupFolders, Door, GroupView, RunningInstance, StartOptions};
use towline_group::Progress;
use towline_link::{Inbox, LinkStream, Peer, RegionDialler, RegionInbox, StreamPurpose};
use towline_node::Farewell;
use towline_os::process::exit;
use towline_os::task::{Handle, JoinSet, interval, sleep};
use towline_process::Clock;
use towline_replica::active::ElectedInstance;
use towline_replica::region::ReplicaRegion;
use towline_replica::replica::forget_old_places;
use towline_replica::{OpenReplica, open, threads};
use towline_replication::copy::CopySource;
use towline_replication::inbox::{GroupInbox, InboxHost};
use towline_replication::lifecycle::EndReason;
use towline_replication::region_condition::CONDITION_INTERVAL;
use towline_replication::region_part::{RegionPart, RegionTerms};
use towline_replication::{disk_probe, hand_over, no_active, reexec};

use super::look;
use super::network::{Ports, Wires};
use crate::served::no_view::NoView;

/// Between two looks at what may be forgotten.
const FORGET_INTERVAL: Duration = Duration::from_millis(500);
/// Between two looks of the run at the group.
const SHOW_INTERVAL: Duration = Duration::from_millis(50);
/// Before an instance with a full log re-executes.
const FULL_PAUSE: Duration = Duration::from_secs(2);

/// What a process gets from the one that re-executed itself as it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    pub(crate) start: Option<u64>,
    pub(crate) copies_failed: u32,
}

/// What a process is given.
pub(crate) struct ProcessArgs {
    pub(crate) data: PathBuf,
    pub(crate) config: Config,
    pub(crate) group: GroupConfig,
    pub(crate) this: Peer,
    pub(crate) network: Arc<Wires>,
    /// Connects it to the other region, if there is one.
    pub(crate) region: Option<RegionPlug>,
    pub(crate) before: Before,
    /// The format level that its program reads.
    pub(crate) reads_level: u8,
    /// Queues of the clients.
    pub(crate) queues: Vec<String>,
    pub(crate) board: Arc<Board>,
}

/// Connects a process to the network between two regions.
pub(crate) type RegionPlug = Box<dyn Fn(Arc<dyn RegionInbox>) -> Arc<dyn RegionDialler> + Send>;

/// What a process shows to the run.
#[derive(Default)]
pub(crate) struct Board {
    /// The replica, once it is open.
    pub(crate) opened: Plain<Option<Arc<OpenReplica>>>,
    /// Its part in the traffic with the other region, once it is open.
    pub(crate) region: Plain<Option<Arc<RegionPart>>>,
    /// The group as the process sees it, a moment ago, and whether it leads.
    pub(crate) group: Plain<Option<(Progress, bool)>>,
    /// Instances that this process has been connected with, both ways.
    pub(crate) met: Plain<[bool; 3]>,
    /// The door and the term in which it was opened.
    pub(crate) served: Plain<Option<(Arc<Door>, u64)>>,
    /// Why it ended, when it ended by itself.
    pub(crate) end: Plain<Option<End>>,
    /// An end in order is wanted.
    pub(crate) stop: tokio::sync::Notify,
}

/// How a process ended by itself.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It re-executed itself.
    Again(Before),
    /// The start was refused.
    Refused(String),
    /// Its log has what its program does not read.
    TooOld,
    Stopped,
}

enum ProcessEvent {
    Active(RunningInstance),
    Ends(EndReason),
    DiskAnswers,
    Copied(bool),
    Stop,
}

/// Runs a process to its end.
pub(crate) fn run(args: &ProcessArgs) {
    let end = serve(args);
    *args.board.end.lock() = Some(end);
    exit(0);
}

fn serve(args: &ProcessArgs) -> End {
    let ProcessArgs { data, config, group, this, network, before, board, .. } = args;
    let clock = Clock::start();
    let wishes = StartOptions::default();
    let about = (config, group, *this);
    let opened = match open("QMS", data, about, wishes, (clock, before.start)) {
        Ok(opened) => Arc::new(opened),
        Err(error) => return End::Refused(error.to_string()),
    };
    let driver = &opened.driver;
    let reads = args.reads_level;
    if driver.stored_level() > reads {
        return End::TooOld;
    }
    let (events, mut happened) = unbounded_channel();
    driver.ask_for_copies_after(reexec::copy_pause(before.copies_failed));
    let of_end = events.clone();
    driver.set_on_end(move |why| drop(of_end.send(ProcessEvent::Ends(why))));
    let host = Host { opened: Arc::clone(&opened) };
    let inbox: Arc<dyn Inbox> = Arc::new(GroupInbox { driver: Arc::clone(driver), host });
    let Ok(ports) = Ports::start(network, *this, &inbox) else { return End::Stopped };
    driver.set_links(ports);
    let region = match take_part(args, &opened) {
        Ok(region) => region,
        Err(error) => return End::Refused(error.to_string()),
    };
    *board.region.lock() = region.clone();
    *board.opened.lock() = Some(Arc::clone(&opened));
    let started = threads::start(&opened, (config, group), on_elected(args, &opened, &events));
    assert!(started.is_ok(), "a coroutine costs nothing");
    let mut tasks = JoinSet::new();
    if let Some(region) = &region {
        threads::serve_beside_region(&mut tasks, config, &opened);
        tasks.spawn(tell(Arc::clone(region), Arc::clone(&opened), group.clone()));
    }
    tasks.spawn(no_active::watch(Arc::clone(driver), group.heartbeat_timeout()));
    let (shown, seen) = (Arc::clone(driver), Arc::clone(board));
    tasks.spawn(async move {
        let mut ticks = interval(SHOW_INTERVAL);
        loop {
            ticks.tick().await;
            assert!(shown.stored_level() <= reads, "its log has what its program does not read");
            let now = (shown.group(), shown.leads());
            *seen.group.lock() = Some(now);
            let mut met = *seen.met.lock();
            for (peer, met) in met.iter_mut().enumerate() {
                *met |= peer != shown.this() && shown.is_connected(peer);
            }
            *seen.met.lock() = met;
        }
    });
    let (wanted, to_stop) = (Arc::clone(board), events.clone());
    tasks.spawn(async move {
        wanted.stop.notified().await;
        to_stop.send(ProcessEvent::Stop).ok();
    });
    let running = None;
    let mut attending = Attending { args, opened: &opened, region, events, tasks, running };
    let handle = Handle::current();
    loop {
        let Some(event) = handle.block_on(happened.recv()) else { return End::Stopped };
        if let Some(end) = attending.event(&handle, event) {
            return end;
        }
    }
}

/// As the daemon does, if there is another region.
fn take_part(
    args: &ProcessArgs,
    opened: &Arc<OpenReplica>,
) -> std::io::Result<Option<Arc<RegionPart>>> {
    let ProcessArgs { config, group, region, .. } = args;
    let (Some(plug), Some(recovery)) = (region, &group.recovery) else { return Ok(None) };
    let host = ReplicaRegion::new(Arc::clone(opened), group.name.clone(), config.log.reserve_bytes);
    let terms = RegionTerms {
        queue_manager: "QMS".into(),
        config: config.clone(),
        group: group.clone(),
        recovery: recovery.clone(),
        extent_bytes: opened.extent_bytes,
    };
    let part = RegionPart::new(Arc::clone(&opened.driver), Arc::new(host), terms)?;
    part.start(plug(Arc::clone(&part) as Arc<dyn RegionInbox>))?;
    Ok(Some(part))
}

/// Reports to the other region how this group is: what a switch looks at.
async fn tell(part: Arc<RegionPart>, opened: Arc<OpenReplica>, group: GroupConfig) {
    let mut ticks = interval(CONDITION_INTERVAL);
    let all = group.member.len();
    loop {
        ticks.tick().await;
        let driver = &opened.driver;
        let connected =
            (0..all).filter(|peer| *peer == driver.this() || driver.is_connected(*peer));
        let condition = RegionConditionStatus {
            instance: group.instance.clone(),
            configured_count: all as u64,
            connected_count: connected.count() as u64,
            ..RegionConditionStatus::default()
        };
        part.tell(&condition, part.saying_time());
    }
}

fn on_elected(
    args: &ProcessArgs,
    opened: &Arc<OpenReplica>,
    events: &UnboundedSender<ProcessEvent>,
) -> impl FnOnce(towline_node::Restart, towline_types::BatchPlace) + Send + 'static {
    let (elected, config, board) =
        (Arc::clone(opened), args.config.clone(), Arc::clone(&args.board));
    let (events, queues) = (events.clone(), args.queues.clone());
    move |restart, tail| {
        let jobs = AdminJobs { name: "QMS".into(), backup_folders: backup_folders() };
        let about: (Vec<String>, Arc<dyn GroupView>) = (Vec::new(), Arc::new(NoView));
        let instance = ElectedInstance::of(&config, &elected, (restart, tail), about);
        let door = Arc::clone(instance.door());
        let Ok(running) = instance.serve(&config, jobs, &Handle::current()) else { return };
        look::define(&door, &queues);
        *board.served.lock() = Some((door, tail.term));
        events.send(ProcessEvent::Active(running)).ok();
    }
}

fn backup_folders() -> Arc<BackupFolders> {
    Arc::new(BackupFolders::default())
}

struct Attending<'a> {
    args: &'a ProcessArgs,
    opened: &'a Arc<OpenReplica>,
    region: Option<Arc<RegionPart>>,
    events: UnboundedSender<ProcessEvent>,
    tasks: JoinSet<()>,
    running: Option<RunningInstance>,
}

impl Attending<'_> {
    /// As the daemon does.
    fn event(&mut self, handle: &Handle, event: ProcessEvent) -> Option<End> {
        let ProcessArgs { data, config, .. } = self.args;
        match event {
            ProcessEvent::Active(running) => {
                threads::serve_as_active(&mut self.tasks, config, self.opened);
                let forgets = Arc::clone(self.opened);
                self.tasks.spawn(async move {
                    let mut ticks = interval(FORGET_INTERVAL);
                    loop {
                        ticks.tick().await;
                        forget_old_places(&forgets.driver);
                    }
                });
                self.running = Some(running);
                let serves = self.region.as_ref().map(RegionPart::serve_as_live);
                assert!(serves.is_none_or(|serves| serves.is_ok()), "a coroutine costs nothing");
            }
            ProcessEvent::Ends(
                EndReason::LostLeadership
                | EndReason::PutBack
                | EndReason::TakesLogId
                | EndReason::Rebased
                | EndReason::ChangesPart,
            ) => {
                self.close_clients();
                return Some(self.again(self.args.before.copies_failed));
            }
            ProcessEvent::Ends(EndReason::DiskHangs) => {
                let answers = self.events.clone();
                self.tasks.abort_all();
                self.running.iter_mut().for_each(RunningInstance::stop_housekeeping);
                let of_clients = Arc::clone(self.opened);
                let close_clients = move || {
                    if let Some(door) = of_clients.door() {
                        door.end(Farewell::NotActive);
                    }
                };
                disk_probe::wait_for_disk(data, close_clients, move || {
                    answers.send(ProcessEvent::DiskAnswers).ok();
                });
            }
            ProcessEvent::DiskAnswers => return Some(self.again(self.args.before.copies_failed)),
            ProcessEvent::Ends(EndReason::LogFull) => {
                handle.block_on(sleep(FULL_PAUSE));
                return Some(self.again(self.args.before.copies_failed));
            }
            ProcessEvent::Ends(EndReason::NeedsCopy(peer)) => {
                let events = self.events.clone();
                threads::start_copy(self.opened, data, peer, move |came| {
                    events.send(ProcessEvent::Copied(came)).ok();
                });
            }
            ProcessEvent::Copied(true) => return Some(self.again(0)),
            ProcessEvent::Copied(false) => {
                return Some(self.again(self.args.before.copies_failed.saturating_add(1)));
            }
            ProcessEvent::Stop => return Some(self.leave()),
        }
        None
    }

    fn close_clients(&self) {
        if let Some(door) = self.opened.door() {
            door.end(Farewell::NotActive);
        }
    }

    fn again(&self, copies_failed: u32) -> End {
        let start = Some(self.opened.driver.own_start().nonce);
        End::Again(Before { start, copies_failed })
    }

    /// An end in order, as an operator wants it.
    fn leave(&mut self) -> End {
        let driver = &self.opened.driver;
        self.region.iter().for_each(|region| region.end());
        if let Some(door) = self.opened.door().filter(|_| driver.leads())
            && hand_over::hand_over(driver, None).is_err()
        {
            door.end(Farewell::Ending);
        }
        if driver.overdue().is_none() {
            driver.end();
            let images = &self.opened.images;
            let image = match self.opened.door() {
                Some(door) => images.take_last(door.as_ref()),
                None => images.take_last(self.opened.replica.as_ref()),
            };
            drop(image);
            driver.note_committed().ok();
            if let Some(links) = driver.links() {
                links.stop();
            }
            driver.shutdown();
        }
        End::Stopped
    }
}

struct Host {
    opened: Arc<OpenReplica>,
}

impl InboxHost for Host {
    fn build(&self, _peer: Peer, _build: &str) {}

    fn is_connected(&self) {}

    fn rows(&self, _peer: Peer, _body: &[u8]) {}

    fn live(&self, _peer: Peer, _body: &[u8]) {}

    fn takes_clients(&self) -> bool {
        false
    }

    fn client(&self, _peer: Peer, _purpose: StreamPurpose, _stream: LinkStream) {}

    fn answers(&self) -> bool {
        false
    }

    fn answer(&self, _stream: LinkStream) {}

    fn copy_source(&self) -> Arc<dyn CopySource> {
        self.opened.clone()
    }
}
