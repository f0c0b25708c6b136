//! The world of one run: its time, its events in order, three instances, clients, faults.
//!
//! Reading order: [`World::run`] (the phases), `life` (processes begin and end), `consensus` (what
//! a member wants done), `active` (an instance that serves clients), `people` (clients), `faults`,
//! `starts` (a disk that was put back), `verdict` (what is compared with what).
//!
//! Invariants: events happen in the order of their times, those of one time in the order in which
//! they were planned; what is addressed to a process reaches no later one; the same seed gives the
//! same run.

mod active;
mod consensus;
mod faults;
mod life;
mod people;
mod starts;
mod verdict;

use towline_core::{ConnectionId, PageRequest};
use towline_group::FetchOrder;
use towline_node::Request;
use towline_types::{Batch, Lsn, PageRef};

use crate::agenda::Agenda;
use crate::client::{Answer, Client};
use crate::disk::{Disk, Image};
use crate::history::History;
use crate::network::{Link, Network, Parcel};
use crate::plan::Plan;
use crate::process::Process;
use towline_types::SeededRandom;

/// The group must serve again, and all must have caught up, so long after faults have stopped.
const PEACE_US: u64 = 10_000_000;
/// How often peace is looked at.
const LOOK_US: u64 = 50_000;

/// Writes a line of the trace, when it is read.
macro_rules! tell {
    ($world:expr, $($text:tt)*) => {
        $crate::trace::write($world.now, format_args!($($text)*))
    };
}
pub(crate) use tell;

/// A process of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) node: usize,
    pub(crate) process: u64,
}

/// What happens.
pub(crate) enum Event {
    Arrives { link: Link, parcel: Parcel },
    Connect,
    Tick { at: At },
    Try { at: At },
    Synced { at: At },
    Flush { at: At },
    Fetch { at: At, order: FetchOrder },
    ImageWritten { at: At, image: Image, obsolete: Vec<PageRef>, keep_from: Option<Lsn> },
    PageRead { at: At, request: PageRequest },
    Asks { at: At, connection: ConnectionId, requests: Vec<Request> },
    Hears { client: usize, connection: ConnectionId, answer: Answer },
    Wakes { client: usize },
    Start { node: usize },
    Copied { node: usize, from: At },
    Slow { node: usize, factor: u64 },
    LogRoom { at: At },
    Resume { node: usize },
    Fault,
    Heal,
    Peace,
    Look,
}

impl Event {
    /// The process that must be running for it to be handled.
    fn node(&self) -> Option<usize> {
        match self {
            Event::Arrives { link, .. } => Some(link.to),
            Event::Tick { at }
            | Event::Try { at }
            | Event::Synced { at }
            | Event::Flush { at }
            | Event::Fetch { at, .. }
            | Event::ImageWritten { at, .. }
            | Event::PageRead { at, .. }
            | Event::LogRoom { at }
            | Event::Asks { at, .. } => Some(at.node),
            Event::Connect
            | Event::Hears { .. }
            | Event::Wakes { .. }
            | Event::Start { .. }
            | Event::Copied { .. }
            | Event::Slow { .. }
            | Event::Resume { .. }
            | Event::Fault
            | Event::Heal
            | Event::Peace
            | Event::Look => None,
        }
    }
}

/// One machine with one instance.
pub(crate) struct Node {
    pub(crate) disk: Disk,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until: u64,
    /// What came while it was paused, in order.
    held: Vec<Event>,
    /// Its wall clock against the true one, in microseconds.
    pub(crate) wall_us: u64,
    /// Which build runs on it.
    pub(crate) version: u64,
    pub(crate) slow_factor: u64,
    pub(crate) copying: bool,
    /// A copy of the disk, as it was after some process ended.
    pub(crate) older: Option<Disk>,
    /// The disk of another machine that was cloned from this one, or it from that: one of both is
    /// on at a time.
    pub(crate) twin: Option<Disk>,
    /// The whole disk was put back, and the process has not met both others since.
    pub(crate) put_back: bool,
    /// That happened in this run.
    pub(crate) was_put_back: bool,
    /// It forgot what it promised: it must have so many batches before it votes again.
    pub(crate) owes: Option<u64>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Faults come.
    Safety,
    /// No more faults, since then: everything must come back.
    Peace(u64),
    /// Clients leave, since then; then the verdict.
    Leaving(u64),
    Over,
}

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) faults: u64,
    pub(crate) starts: u64,
    pub(crate) activations: u64,
    pub(crate) copies: u64,
    pub(crate) images: u64,
    /// Times that the log of an active took no run for a while.
    pub(crate) logs_behind: u64,
    pub(crate) compared: u64,
    pub(crate) peace_us: u64,
}

/// Makes draws about format levels of a seed which no other draw depends on.
const FORMAT_LEVELS: u64 = 0x1e7e_1000;
/// The connection of the administrator.
pub(crate) const ADMINISTRATOR: ConnectionId = ConnectionId(0);
/// A queue that comes and goes.
pub(crate) const SCRATCH: &str = "SCRATCH";

/// See the module.
pub(crate) struct World {
    pub(crate) now: u64,
    events: Agenda<Event>,
    pub(crate) dice: SeededRandom,
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) nodes: [Node; 3],
    pub(crate) network: Network,
    pub(crate) clients: Vec<Client>,
    pub(crate) history: History,
    /// Everything that was ever committed, from index 1 on.
    pub(crate) committed: Vec<Batch>,
    pub(crate) processes: u64,
    pub(crate) connections: u64,
    pub(crate) phase: Phase,
    pub(crate) failure: Option<String>,
    /// In peace: what all members must have, once there is an active.
    pub(crate) goal: Option<u64>,
    pub(crate) counts: Counts,
    /// Changes with everything that happens: two runs of a seed have the same.
    pub(crate) fingerprint: u64,
    /// The first build that reads the newest format level: once all are of it, the level is raised.
    pub(crate) level_from_version: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut dice = SeededRandom::mixed(seed);
        let plan = Plan::draw(&mut dice);
        let nodes = std::array::from_fn(|node| Node {
            disk: Disk::default(),
            process: None,
            paused_until: 0,
            held: Vec::new(),
            wall_us: 1_700_000_000_000_000 + plan.clock_us[node],
            version: 0,
            slow_factor: 1,
            copying: false,
            older: None,
            twin: None,
            put_back: false,
            was_put_back: false,
            owes: None,
        });
        let clients = (0..plan.clients).map(|number| Client::new(number, &mut dice)).collect();
        World {
            now: 0,
            events: Agenda::default(),
            seed,
            nodes,
            network: Network::new(plan.network),
            clients,
            history: History::default(),
            committed: Vec::new(),
            processes: 0,
            connections: 0,
            phase: Phase::Safety,
            failure: None,
            goal: None,
            counts: Counts::default(),
            fingerprint: seed,
            level_from_version: SeededRandom::mixed(seed ^ FORMAT_LEVELS).below(3),
            dice,
            plan,
        }
    }

    /// Runs to the end, or to the first broken rule.
    pub(crate) fn run(&mut self) {
        for node in 0..3 {
            let after = self.dice.below(200_000);
            self.plan_in(after, Event::Start { node });
        }
        for client in 0..self.clients.len() {
            let after = self.dice.below(400_000);
            self.plan_in(after, Event::Wakes { client });
        }
        self.plan_in(0, Event::Connect);
        let first = 500_000 + self.dice.below(self.plan.fault_every_us);
        self.plan_in(first, Event::Fault);
        self.plan_in(self.plan.safety_us, Event::Peace);
        while self.failure.is_none() && self.phase != Phase::Over {
            let Some((time, event)) = self.events.next() else {
                return self.fail("nothing is planned any more".into());
            };
            self.now = time;
            self.counts.events += 1;
            self.fingerprint = (self.fingerprint.rotate_left(5) ^ time).wrapping_mul(0x9e37_79b9);
            if let Some(node) = event.node().filter(|node| self.is_paused(*node)) {
                self.nodes[node].held.push(event);
                continue;
            }
            self.happen(event);
        }
    }

    /// A paused process goes on, unless it was paused anew: it finds everything at once.
    pub(crate) fn resume(&mut self, node: usize) {
        if self.now < self.nodes[node].paused_until {
            return;
        }
        self.nodes[node].paused_until = 0;
        for event in std::mem::take(&mut self.nodes[node].held) {
            self.happen(event);
        }
    }

    pub(crate) fn is_paused(&self, node: usize) -> bool {
        self.nodes[node].paused_until > 0
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives { link, parcel } => self.arrives(link, parcel),
            Event::Connect => self.connect(),
            Event::Start { node } => self.start(node),
            Event::Copied { node, from } => self.copied(node, from),
            Event::Wakes { client } => self.wakes(client),
            Event::Hears { client, connection, answer } => self.hears(client, connection, answer),
            Event::Slow { node, factor } => self.nodes[node].slow_factor = factor,
            Event::Resume { node } => self.resume(node),
            Event::Fault => self.fault(),
            Event::Heal => self.heal(),
            Event::Peace => self.peace(),
            Event::Look => self.look(),
            Event::Tick { at } if self.lives(at) => self.tick(at),
            Event::Try { at } if self.lives(at) => self.try_again(at),
            Event::Synced { at } if self.lives(at) => self.synced(at),
            Event::Flush { at } if self.lives(at) => self.flush_lazy(at),
            Event::Fetch { at, order } if self.lives(at) => self.fetch(at, &order),
            Event::ImageWritten { at, image, obsolete, keep_from } if self.lives(at) => {
                self.image_written(at, image, &obsolete, keep_from);
            }
            Event::LogRoom { at } if self.lives(at) => self.fill_log(at, false),
            Event::PageRead { at, request } if self.lives(at) => self.page_read(at, request),
            Event::Asks { at, connection, mut requests } if self.lives(at) => {
                self.asks(at, connection, &mut requests);
            }
            Event::Tick { .. }
            | Event::Try { .. }
            | Event::Synced { .. }
            | Event::Flush { .. }
            | Event::Fetch { .. }
            | Event::ImageWritten { .. }
            | Event::PageRead { .. }
            | Event::LogRoom { .. }
            | Event::Asks { .. } => {}
        }
    }

    pub(crate) fn plan_at(&mut self, time: u64, event: Event) {
        self.events.plan(time, event);
    }

    pub(crate) fn plan_in(&mut self, after: u64, event: Event) {
        self.plan_at(self.now + after, event);
    }

    /// A rule is broken: the run ends.
    pub(crate) fn fail(&mut self, what: String) {
        tell!(self, "BROKEN: {what}");
        self.failure.get_or_insert(what);
    }

    pub(crate) fn check(&mut self, result: Result<(), String>) {
        if let Err(what) = result {
            self.fail(what);
        }
    }

    /// Whether this process is still there.
    pub(crate) fn lives(&self, at: At) -> bool {
        self.nodes[at.node].process.as_ref().is_some_and(|process| process.number == at.process)
    }

    pub(crate) fn process(&mut self, at: At) -> Option<&mut Process> {
        self.nodes[at.node].process.as_mut().filter(|process| process.number == at.process)
    }

    /// The process of a node, if it has one.
    pub(crate) fn at(&self, node: usize) -> Option<At> {
        let process = self.nodes[node].process.as_ref()?.number;
        Some(At { node, process })
    }
}
