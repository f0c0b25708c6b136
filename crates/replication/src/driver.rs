//! Drives a member of the group: each thread with news (of the links, the log's writers, the
//! ticker) steps it under one short lock, and carries out what it says.
//!
//! Not here: applying what is committed (the caller); connections between instances
//! (`towline_link`).
//!
//! Invariants: what must be kept is durable before a message leaves; the member never hears of a
//! position of the log that it remembers from before a cut: positions are read under the lock; the
//! log's writers never wait for this lock while its holder may wait for the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use towline_os::sync::OnceLock;

use tokio::sync::watch;
use towline_admin::catalogue::{GROUP_DISK_FULL, GROUP_LED_BY, GROUP_LOST, GROUP_REFUSED_LOG};
use towline_delegation::DelegationLock;
use towline_group::{
    FetchOrder, HardState, Input, Member, MemberId, Message, Output, Progress, ShippedAnswer,
};
use towline_log::{Log, LogError, Replicator};
use towline_os::sync::{Condvar, Mutex};
use towline_types::{Batch, Lsn, Time};

use crate::active_instance::ActiveInstance;
use crate::applicable::CommittedBatches;
use crate::disk_condition::DiskConditions;
use crate::frames::{KIND_CONSENSUS, member_of, peer_of};
use crate::hard_state_file::HardStateFile;
use crate::lifecycle::{EndReason, Lifecycle};
use crate::repair_queue::RepairQueue;
use crate::retention::Retention;
pub use heard_live::{HeardLive, LiveSync, ToldLive};
use keep_hard_state::HardStateDurable;
pub use log_ids::MadeIds;
pub use region::RegionEvents;
pub use role::{MemberStand, PromotionOrder};
pub use surroundings::{Heartbeat, Surroundings};
use towline_link::{Connections, FrameBody, Peer, Standing, Where};
use towline_logging::log as say;

/// See the module.
pub struct Driver {
    /// News that is posted: the log became durable further than the member knows.
    core: DelegationLock<Core>,
    surroundings: Surroundings,
    log: OnceLock<Log>,
    links: OnceLock<Arc<dyn Connections>>,
    active: OnceLock<Arc<dyn ActiveInstance>>,
    /// End of the newest batch that may be applied.
    committed: AtomicU64,
    /// Wakes threads that wait for something to apply, or for leadership.
    progress: Mutex<ApplyProgress>,
    changed: Condvar,
    /// Wakes threads that wait for the end, or for leadership: commits do not concern them.
    turned: Condvar,
    place: watch::Sender<Where>,
    fetches: towline_os::sync::mpsc::Sender<FetchOrder>,
    /// Called once, when this instance lost leadership or needs a copy.
    on_end: OnceLock<Box<dyn Fn(EndReason) + Send + Sync>>,
    names: Vec<String>,
    notes: HardStateFile,
    starts: starts::KnownStarts,
    levels: levels::KnownLevels,
    retention: Retention,
    repairs: Arc<RepairQueue>,
    this: Peer,
    conditions: DiskConditions,
    disk: disk_stall::DiskDelay,
    liveness: liveness::Liveness,
    /// The group as it was last seen: a status shows it while another thread holds the lock.
    pictured: Mutex<Progress>,
    region: region::DriverRegion,
    role: role::RoleOrders,
    told_live: told_live::ToldLiveNote,
    fencing: fencing::Fencing,
}

/// What the applying thread looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyProgress {
    /// Index of the newest batch that may be applied.
    pub committed: u64,
    /// The first batch of this instance's term as leader.
    pub leads_from: Option<u64>,
    /// The process ends.
    pub ending: bool,
}

struct Core {
    member: Member,
    out: Output,
    hard_state_file: HardStateFile,
    /// The newest hello of each peer.
    standings: Vec<Option<Standing>>,
    leader: Option<MemberId>,
    lifecycle: Lifecycle,
    /// Not before this time is a copy asked for: the last one failed.
    copies_from: Time,
    /// The newest term of a leader from which a message came while the member gets none.
    heard_term: u64,
    unheard: term_wait::TermWait,
    /// What the member said last of what was shipped.
    shipped: Option<ShippedAnswer>,
}

impl Driver {
    /// Drives `member`. `names` are those of all members, in order; what the member wants to have
    /// read for replicas that lag goes to `fetches`.
    ///
    /// # Errors
    /// What the disk said: it is not known which starts the folder knows.
    pub fn new(
        member: Member,
        hard_state_file: HardStateFile,
        surroundings: Surroundings,
        names: Vec<String>,
        fetches: towline_os::sync::mpsc::Sender<FetchOrder>,
    ) -> std::io::Result<Driver> {
        let notes = hard_state_file.clone();
        let starts = starts::KnownStarts::new(notes.starts()?, names.len());
        let levels = levels::KnownLevels::new(names.len());
        let standings = names.iter().map(|_| None).collect();
        let seen = ApplyProgress { committed: member.committed(), ..ApplyProgress::default() };
        let core = Core {
            member,
            out: Output::default(),
            hard_state_file,
            standings,
            leader: None,
            lifecycle: Lifecycle::Following,
            copies_from: Time::ZERO,
            heard_term: 0,
            unheard: term_wait::TermWait::default(),
            shipped: None,
        };
        let this = peer_of(core.member.id());
        let pictured = Mutex::new(core.member.progress());
        let region = region::DriverRegion::beside(&notes.note_path(), names.len())?;
        let role = role::RoleOrders::new(&core.member.hard_state(), names.len());
        let fencing = fencing::Fencing::beside(&notes.note_path(), names.len())?;
        Ok(Driver {
            core: DelegationLock::new(core),
            surroundings,
            log: OnceLock::new(),
            links: OnceLock::new(),
            active: OnceLock::new(),
            committed: AtomicU64::new(0),
            progress: Mutex::new(seen),
            changed: Condvar::new(),
            turned: Condvar::new(),
            place: watch::Sender::new(Where::NoActive),
            fetches,
            on_end: OnceLock::new(),
            names,
            notes,
            starts,
            levels,
            retention: Retention::default(),
            repairs: Arc::default(),
            this,
            conditions: DiskConditions::default(),
            disk: disk_stall::DiskDelay::default(),
            liveness: liveness::Liveness::default(),
            pictured,
            region,
            role,
            told_live: told_live::ToldLiveNote::default(),
            fencing,
        })
    }

    /// Sets the log, as soon as it runs.
    pub fn set_log(&self, log: Log) {
        assert!(self.log.set(log).is_ok(), "a member has one log");
    }

    /// Sets the links. Until then nothing is sent.
    pub fn set_links(&self, links: Arc<dyn Connections>) {
        assert!(self.links.set(links).is_ok(), "a member has its links once");
    }

    /// This instance is active from now on. Clients are let in by [`Driver::lets_clients_in`].
    pub fn set_active(&self, active: Arc<dyn ActiveInstance>) {
        let upto = self.committed_end();
        assert!(self.active.set(Arc::clone(&active)).is_ok(), "an instance becomes active once");
        self.log().committed(upto);
        active.committed(upto);
        self.fences_active();
    }

    /// Sets what happens when this process cannot go on as it is.
    pub fn set_on_end(&self, on_end: impl Fn(EndReason) + Send + Sync + 'static) {
        assert!(self.on_end.set(Box::new(on_end)).is_ok(), "the end is set once");
        if let (true, Some(on_end)) = (self.is_over(), self.on_end.get()) {
            on_end(EndReason::ChangesPart);
        }
    }

    /// The log. Waits until it runs.
    pub fn log(&self) -> &Log {
        self.log.wait()
    }

    /// The links, as soon as they are set.
    pub fn links(&self) -> Option<&Arc<dyn Connections>> {
        self.links.get()
    }

    /// Whether both connections with a peer stand.
    pub fn is_connected(&self, peer: Peer) -> bool {
        // Before there are links nothing is connected.
        let state = self.links().map(|links| links.state(peer)).unwrap_or_default();
        state.connected_in && state.connected_out
    }

    /// What serves clients here, since this instance became active.
    pub fn active(&self) -> Option<&Arc<dyn ActiveInstance>> {
        self.active.get()
    }

    /// End of the newest batch that is committed.
    pub fn committed_end(&self) -> Lsn {
        Lsn(self.committed.load(Ordering::SeqCst))
    }

    /// Whether the process ends.
    pub fn is_ending(&self) -> bool {
        self.progress.lock().ending
    }

    /// The time now, which never jumps.
    pub fn now(&self) -> Time {
        (self.surroundings.now)()
    }

    /// Names of all members, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether this instance is its group by itself.
    pub fn is_alone(&self) -> bool {
        self.names.len() == 1
    }

    /// The name of a member.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn name(&self, peer: Peer) -> &str {
        match self.names.get(peer) {
            Some(name) => name,
            None => unreachable!("instance {peer} is none of {}", self.names.len()),
        }
    }

    /// Which member this is.
    pub fn this(&self) -> Peer {
        self.this
    }

    /// Which instance serves clients.
    pub fn whereabouts(&self) -> watch::Receiver<Where> {
        self.place.subscribe()
    }

    /// The group as this member sees it.
    pub fn group(&self) -> Progress {
        self.picture()
    }

    /// The position of this instance in the log, as its hello says.
    pub fn standing(&self) -> Standing {
        // What a step wants kept is on the disk before its lock is given back.
        let (last, hard_state) = self.look(|core| (core.member.last(), core.member.hard_state()));
        let HardState { may_vote, term, .. } = hard_state;
        let log = self.log().id().0;
        Standing { blank: !may_vote, last_index: last.index, last_term: last.term, term, log }
    }

    /// The position of another instance, as its newest hello said; of this instance, as it is now.
    pub fn standing_of(&self, peer: Peer) -> Option<Standing> {
        if peer == self.this() {
            return Some(self.standing());
        }
        self.look(|core| core.standings[peer])
    }

    /// Time passed.
    pub fn tick(&self) {
        self.ticks();
        self.step(Input::Tick);
        self.log_term_wait();
        self.say_roles_again();
    }

    /// The active instance, as far as it is known.
    pub fn active_peer(&self) -> Option<Peer> {
        self.picture().leader.map(peer_of)
    }

    /// When a step is wanted, at the latest, before the next tick.
    pub fn next_try(&self) -> Option<Duration> {
        let at = self.look(|core| core.member.next_try())?;
        Some(at.since(self.now()))
    }

    /// A connection with a peer stands.
    pub fn opened(&self, peer: Peer, standing: Standing) {
        self.region.connected(peer);
        self.say_return_first(peer);
        self.say_fence_first(peer);
        let mut core = self.core.lock();
        core.standings[peer] = Some(standing);
        self.report_opened(&mut core, peer, standing);
        if self.group_is_new(&core) {
            self.run(&mut core, Input::Form);
        }
        drop(core);
        self.after();
    }

    fn report_opened(&self, core: &mut Core, peer: Peer, standing: Standing) {
        let Standing { last_index, term, .. } = standing;
        self.run(core, Input::PeerOpened { peer: member_of(peer), last_index, term });
    }

    /// Whether the group is new: the log of each instance is empty.
    fn group_is_new(&self, core: &Core) -> bool {
        let others = core.standings.iter().enumerate();
        let empty = others.clone().filter(|(_, standing)| {
            standing.as_ref().is_some_and(|standing| standing.last_index == 0)
        });
        let is_empty = core.member.last().index == 0;
        // One that knows that something was committed has lost it, and so has this group.
        let knows_none = core.member.hard_state().committed == 0;
        // The only instance of a group has its vote from its start on, or lacks something.
        let has_others = core.standings.len() > 1;
        has_others && empty.count() + 1 == core.standings.len() && is_empty && knows_none
    }

    /// The connection from a peer ended: its process may be gone.
    pub fn closed(&self, peer: Peer) {
        self.step(Input::PeerClosed(member_of(peer)));
    }

    /// The batches of a fetch order were read.
    pub fn fetched(&self, order: u64, batches: Vec<Batch>) {
        self.step(Input::Fetched(order, batches));
    }

    /// Hands leadership to a peer.
    pub fn transfer(&self, to: Peer) {
        self.step(Input::Transfer(member_of(to)));
    }

    /// The log that is retained for other instances.
    pub fn retention(&self) -> &Retention {
        &self.retention
    }

    /// Damaged batches of this log, fetched from other instances.
    pub fn repairs(&self) -> &Arc<RepairQueue> {
        &self.repairs
    }

    /// The condition of the disks of the others, as they report it.
    pub fn conditions(&self) -> &DiskConditions {
        &self.conditions
    }

    /// Asks for no copy before this pause is over.
    pub fn ask_for_copies_after(&self, pause: Duration) {
        self.core.lock().copies_from = self.now() + pause;
    }

    /// Batches from behind `index` on that may be applied, of about `bytes_max` bytes; those that
    /// are in memory. When the first is not in memory: its position, and those of the batches after
    /// it.
    pub fn committed_behind(&self, index: u64, bytes_max: usize) -> CommittedBatches {
        self.look(|core| CommittedBatches::of(&core.member, index, bytes_max))
    }

    /// Whether a copy of this log keeps the vote of a taker that elected this instance: whether it
    /// has a batch of its own term, see [`HardState::is_borne_out_by`].
    pub(crate) fn shows_its_term(&self) -> bool {
        self.look(|core| core.member.shows_its_term())
    }

    /// Runs `look` on the member, and takes over the news that came meanwhile.
    fn look<R>(&self, look: impl FnOnce(&Core) -> R) -> R {
        let result = look(&self.core.lock());
        self.after();
        result
    }

    /// Steps the member, and carries out what it says.
    pub fn step(&self, input: Input) {
        assert!(!matches!(input, Input::Durable(_)), "it is read under the lock");
        let mut core = self.core.lock();
        self.run(&mut core, input);
        drop(core);
        self.after();
    }

    /// Takes over the news that the log's threads left, and reports what is committed.
    fn after(&self) {
        self.take_durable_news();
        self.report_committed();
    }

    /// Reports to the active instance what the group committed.
    fn report_committed(&self) {
        if let Some(active) = self.active.get() {
            let upto = self.committed_end();
            self.log().committed(upto);
            active.committed(upto);
        }
    }

    fn run(&self, core: &mut Core, input: Input) {
        if !core.lifecycle.takes(&input) {
            return;
        }
        let now = self.now();
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let Core { member, out, .. } = &mut *core;
            member.step(now, input, out);
            next = self.carry_out(core);
        }
        let committed = core.member.committed();
        let end = core.member.committed_place().end;
        if self.committed.fetch_max(end.0, Ordering::SeqCst) < end.0 {
            let mut seen = self.progress.lock();
            seen.committed = seen.committed.max(committed);
            drop(seen);
            self.changed.notify_all();
            self.region.committed();
        }
    }

    /// Carries out what the member said; yields what the member must learn of that.
    fn carry_out(&self, core: &mut Core) -> Option<Input> {
        let out = std::mem::take(&mut core.out);
        let settled = self.settle(core, out.hard_state);
        let lost = core.lifecycle.loses(&out);
        // Before they are there, and before anything is said that follows from them.
        self.note_levels_of(&out.receive);
        if !out.receive.is_empty()
            && !lost
            && let Err(error) = self.log().receive(&out.receive)
        {
            if !matches!(error, LogError::Full) {
                self.refused_by_log(&error);
            }
            self.log_is_full(core);
            return None;
        }
        if !lost {
            // What it would acknowledge now is not in its log.
            out.send.iter().for_each(|(to, message)| self.send(&settled, *to, message));
        }
        if let Some(answer) = out.shipped {
            core.shipped = Some(answer);
            self.region.answers(answer);
        }
        for order in out.fetch {
            // The thread ends with the process.
            self.fetches.send(order).ok();
        }
        if let Some(peer) = out.copy_from.map(peer_of)
            && self.now() >= core.copies_from
        {
            self.ends(core, EndReason::NeedsCopy(peer));
        }
        if out.begins_again {
            self.begins_again(core);
        } else if lost {
            say(&GROUP_LOST, &[&core.member.progress().term.to_string()]);
            self.ends(core, EndReason::LostLeadership);
        }
        self.publish_leader(core);
        let term = out.lead?;
        core.lifecycle.elected();
        match self.log().lead(term) {
            Ok(first) => {
                let mut seen = self.progress.lock();
                seen.leads_from = Some(first.index);
                drop(seen);
                self.changed.notify_all();
                self.turned.notify_all();
                Some(Input::Leading(first.place()))
            }
            Err(LogError::Full) => {
                self.log_is_full(core);
                None
            }
            Err(error) => self.refused_by_log(&error),
        }
    }

    /// What the member believes to be on its way to the disk is not: the process re-executes itself
    /// and starts from what is on the disk.
    fn log_is_full(&self, core: &mut Core) {
        say(&GROUP_DISK_FULL, &[]);
        self.ends(core, EndReason::LogFull);
    }

    fn send(&self, _settled: &HardStateDurable, to: MemberId, message: &Message) {
        let Some(links) = self.links.get() else { return };
        let peer = peer_of(to);
        if self.levels.is_excluded(peer) || !self.has_said_histories(peer) {
            return;
        }
        let (head, parts) = message.encode();
        // A message that does not fit into the queue is lost, as on any network: the algorithm
        // repeats it.
        let _taken =
            links.send(peer, KIND_CONSENSUS, message.is_urgent(), FrameBody { head, parts });
    }

    fn publish_leader(&self, core: &mut Core) {
        self.led_by(core, core.member.leader());
    }

    /// Publishes where clients are served, and logs it.
    fn led_by(&self, core: &mut Core, leader: Option<MemberId>) {
        if leader == core.leader {
            return;
        }
        core.leader = leader;
        let this = core.member.id();
        let place = match leader {
            // Only when it serves clients: see `set_active`.
            Some(leader) if leader == this => return,
            Some(leader) => {
                let name = self.name(peer_of(leader));
                let term = core.member.progress().term.max(core.heard_term);
                say(&GROUP_LED_BY, &[name, &term.to_string()]);
                Where::At(peer_of(leader))
            }
            None => Where::NoActive,
        };
        self.place.send_replace(place);
        self.changed.notify_all();
    }

    fn ends(&self, core: &mut Core, why: EndReason) {
        if core.lifecycle.ends(why)
            && let Some(on_end) = self.on_end.get()
        {
            on_end(why);
        }
    }

    /// The log refuses what the group decided: this instance cannot go on with it.
    fn refused_by_log(&self, error: &LogError) -> ! {
        say(&GROUP_REFUSED_LOG, &[&error.to_string()]);
        towline_os::process::exit(self.surroundings.log_failed_status);
    }
}

impl Replicator for Driver {
    fn leaves(&self, batch: Batch) {
        // Under a lock of the log: the holder of ours never waits for the log while this one leads.
        let mut core = self.core.lock();
        self.run(&mut core, Input::Left(batch));
        // News that came meanwhile are taken when this batch is durable: the same thread reports
        // it.
    }
}

mod behind_other;
mod disk_stall;
mod durable;
mod fencing;
mod heard_live;
mod keep_hard_state;
mod levels;
mod liveness;
mod log_ids;
mod log_reports;
mod messages;
mod notes;
mod region;
mod returning;
mod role;
mod shipped_log;
mod shipped_room;
mod starts;
mod surroundings;
mod term_wait;
mod told_live;
mod waiting;

#[cfg(test)]
pub(crate) mod tests;
