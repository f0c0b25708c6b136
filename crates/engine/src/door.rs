//! The door of the instance: one short lock. The thread that has input steps the instance: the task
//! of a connection with the requests of one read, or a log writer whose write became durable. The
//! responses go to the outboxes of the connections. So a message crosses two threads fewer than
//! with a thread for the instance (docs/adr).
//!
//! Not here: the rules (`towline_node`), and the threads that read and write for the instance
//! ([`workers`](crate::workers)).
//!
//! Invariants: the instance is stepped under the lock only; with a lease, no step is made without
//! it; a thread of the log never waits for the lock.

mod log_reports;
mod page_requests;
mod unasked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use towline_os::sync::OnceLock;
use towline_os::time::Instant;

use towline_admin::catalogue::{
    BODY_UNREADABLE, FORMAT_LEVEL_RAISED, MESSAGE_BROWSED_DAMAGED, MESSAGE_SET_ASIDE,
    MESSAGE_STAYS_DAMAGED,
};
use towline_admin::status::{QueueStatus, Status};
use towline_admin::target::Target;
use towline_core::{
    ConnectionId, ConsumerId, FastMap, MessageSequence, Principal, QueueId, SetAside, Unreadable,
};
use towline_delegation::DelegationLock;
use towline_log::{Log, LogError};
use towline_logging::log;
use towline_node::{
    Administration, AnswerWaits, ChoreTicket, DamagedMessage, Farewell, FetchTicket, Input,
    Instance, Journal, Outbound, Request, RoutedResponse, Whereabouts,
};
use towline_process::Clock;
use towline_types::{Lsn, Payload, Time};

use crate::backlog::{Backlog, LogShare};
use crate::connection_accounts::ConnectionAccounts;
use crate::journal::LogJournal;
use crate::large::{Arrivals, Departures};
use crate::list_pieces::in_pieces;
use crate::outbox::{Filling, Outbox};
use crate::process_status::{GroupView, ProcessStatus};
use crate::repairs::Repairs;
use crate::wake_ups::{InstanceNeeds, ToNotify, WakeUps};
use crate::workers::Workers;

/// An instance behind its lock; shared by all threads of the process.
pub struct Door {
    inner: DelegationLock<Inner>,
    /// Set once, between recovery and the first listener.
    log: OnceLock<Log>,
    workers: Workers,
    process: ProcessStatus,
    /// In a group: damaged parts of the log are fetched from another instance.
    repairs: OnceLock<Arc<dyn Repairs>>,
    clock: Clock,
    wake_ups: WakeUps,
    halted: AtomicBool,
    /// The position up to which the log is durable, as its writers reported.
    durable_upto: AtomicU64,
    /// Up to where the other region has the log, as far as replies wait for that; all ones: they do
    /// not.
    region_upto: AtomicU64,
    /// The last report of the log about its free space, until the instance is stepped with it:
    /// `SPACE_*`.
    space_report: AtomicU8,
    /// The log takes runs again, until the instance is stepped with it.
    log_caught_up: AtomicBool,
    backlog: Backlog,
}

const SPACE_NO_REPORT: u8 = 0;
const SPACE_ENOUGH: u8 = 1;
const SPACE_FULL: u8 = 2;

struct Inner {
    instance: Instance,
    outboxes: FastMap<ConnectionId, Arc<Outbox>>,
    next_connection: u64,
    out: Outbound,
    /// The durable position that the instance was stepped with.
    durable_seen: u64,
    /// The position of the other region that it was stepped with.
    region_seen: u64,
    /// What the threads and tasks around the instance were last notified of.
    needs: InstanceNeeds,
    /// The format level of the log of which the operator knows.
    level_said: u8,
}

impl Door {
    pub(crate) fn new(
        mut instance: Instance,
        workers: Workers,
        process: ProcessStatus,
        clock: Clock,
    ) -> Door {
        // A script, or a status of ten thousand queues, would be one step.
        instance.administer_outside();
        let level_said = instance.format_level();
        let inner = Inner {
            instance,
            outboxes: FastMap::default(),
            next_connection: 1,
            out: Outbound::default(),
            durable_seen: 0,
            region_seen: u64::MAX,
            needs: InstanceNeeds::NONE,
            level_said,
        };
        Door {
            inner: DelegationLock::new(inner),
            log: OnceLock::new(),
            workers,
            process,
            repairs: OnceLock::new(),
            clock,
            wake_ups: WakeUps::new(),
            halted: AtomicBool::new(false),
            durable_upto: AtomicU64::new(0),
            region_upto: AtomicU64::new(u64::MAX),
            space_report: AtomicU8::new(SPACE_NO_REPORT),
            log_caught_up: AtomicBool::new(false),
            backlog: Backlog::default(),
        }
    }

    /// The log runs from now on.
    pub(crate) fn set_log(&self, log: Log) {
        let set = self.log.set(log);
        assert!(set.is_ok(), "a door has one log");
    }

    /// The clock of the process.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The log; waits for `set_log`.
    pub fn log(&self) -> Log {
        self.running_log().clone()
    }

    fn journal(&self) -> LogJournal<'_> {
        LogJournal { log: self.running_log(), process: &self.process }
    }

    /// Whether the log has taken much more than its disk has written, or was and has not caught up:
    /// what adds to it is to wait. A few atomics.
    pub fn log_is_behind(&self, was: bool) -> bool {
        self.backlog.is_behind(self.running_log().unsynced_bytes(), was)
    }

    /// Whether a log that is behind takes so much of a connection that has little on its way and
    /// has added `own` already.
    pub fn log_takes_share(&self, own: &mut LogShare, bytes: u64) -> bool {
        self.backlog.takes_share(own, bytes)
    }

    /// Wakes the task of a connection when the log has caught up. False: it has already.
    pub fn wake_when_written(&self, connection: ConnectionId, context: &Context<'_>) -> bool {
        let log = self.running_log();
        self.backlog.wake_later(connection, context, || log.unsynced_bytes())
    }

    /// The disk of the log has written more.
    pub fn written(&self) {
        let log = self.running_log();
        self.backlog.look(|| log.unsynced_bytes());
        if self.log_lets_work() {
            self.workers.work_is_left();
        }
    }

    fn log_lets_work(&self) -> bool {
        let log = self.running_log();
        self.backlog.lets_work(|| log.unsynced_bytes())
    }

    /// Large messages on their way in.
    pub fn arrivals(&self) -> &Arc<Arrivals> {
        &self.process.arrivals
    }

    /// Large messages on their way out.
    pub fn departures(&self) -> &Arc<Departures> {
        &self.process.departures
    }

    /// What connections hold.
    pub fn connections(&self) -> &Arc<ConnectionAccounts> {
        &self.process.connections
    }

    /// The URLs that clients can use, for the status.
    pub fn set_listeners(&self, urls: Vec<String>) {
        let set = self.process.listeners.set(urls);
        assert!(set.is_ok(), "listeners are known once");
    }

    /// Runs `act` while no thread steps the instance: nothing is decided and nothing applied
    /// meanwhile.
    pub fn hold_still<R>(&self, act: impl FnOnce() -> R) -> R {
        let locked = self.inner.lock();
        let result = act();
        drop(locked);
        self.take_reports();
        result
    }

    /// All that `towline status` shows.
    pub fn status(&self) -> Status {
        let now = self.clock.wall();
        // Files of /proc, and locks that threads hold that are at work: nothing waits meanwhile.
        let surroundings = self.journal().surroundings(now);
        let status = self.look(|instance| instance.status_without_queues(surroundings));
        let mut queues = Vec::new();
        let behind = |last: Option<&QueueStatus>, most| {
            let last = last.map(|last| last.name.as_str());
            self.look(|instance| instance.queue_rows_after(now, last, most))
        };
        in_pieces(behind, |row| queues.push(row.clone()));
        Status { queues, ..status }
    }

    /// The status shows this group from now on.
    pub fn set_group(&self, group: Arc<dyn GroupView>) {
        assert!(self.process.group.set(group).is_ok(), "a group is known once");
    }

    /// Damaged parts of the log are repaired by `repairs` from now on.
    pub fn set_repairs(&self, repairs: Arc<dyn Repairs>) {
        assert!(self.repairs.set(repairs).is_ok(), "a group is known once");
    }

    /// The repairs; an instance that is alone has none.
    pub fn repairs(&self) -> Option<&Arc<dyn Repairs>> {
        self.repairs.get()
    }

    fn running_log(&self) -> &Log {
        self.log.wait()
    }

    /// A new connection: its id and its outbox.
    pub fn connect(&self) -> (ConnectionId, Arc<Outbox>) {
        self.with_inner(|inner| {
            let id = ConnectionId(inner.next_connection);
            inner.next_connection += 1;
            let outbox = Outbox::new();
            inner.outboxes.insert(id, Arc::clone(&outbox));
            (id, outbox)
        })
    }

    /// The connection has ended: its units of work are rolled back, its messages are backed out.
    pub fn disconnect(&self, id: ConnectionId, lost: bool) {
        let mut requests = vec![Request::Disconnect { lost }];
        self.step(self.clock.now(), id, &mut requests);
        self.backlog.leave(id);
        self.with_inner(|inner| inner.outboxes.remove(&id));
    }

    /// Takes all of `requests`; the responses go to the outbox of `connection` (which is not woken:
    /// the caller reads it next) and to those of other connections (which are).
    pub fn step(&self, now: Time, connection: ConnectionId, requests: &mut Vec<Request>) {
        let now = self.clock.wall_at(now);
        self.step_instance(now, Some(connection), Input::Requests { connection, requests });
    }

    /// Whether time-driven work waits.
    pub(crate) fn tick_is_due(&self) -> bool {
        self.wake_ups.next_tick() <= self.clock.wall()
    }

    /// What wakes the tasks of housekeeping.
    pub(crate) fn wake_ups(&self) -> &WakeUps {
        &self.wake_ups
    }

    /// Checks whether the wall clock was set.
    pub(crate) fn follow_clock(&self) {
        if let Some(by_us) = self.clock.follow() {
            self.step_instance(self.clock.wall(), None, Input::ClockStepped(by_us));
        }
    }

    /// Time-driven work: expiry, ages of units of work.
    pub fn tick(&self) {
        self.step_instance(self.clock.wall(), None, Input::Tick);
    }

    /// A slice of work, of at most about `units`; what it cost is taken off. Then a thread that
    /// waits for the lock has it next.
    pub(crate) fn slice(&self, units: &mut u32) -> Slice {
        let mut inner = self.inner.lock();
        let began = Instant::now();
        let after = self.step_locked(&mut inner, self.clock.wall(), None, Input::Work { units });
        let took = began.elapsed();
        DelegationLock::release_fairly(inner);
        let slice = Slice { took, more: after.is_unfinished };
        self.finish(After { is_unfinished: false, ..after });
        self.take_reports();
        slice
    }

    /// A body that a selector waits for was read, or cannot be.
    pub(crate) fn content(&self, ticket: FetchTicket, content: Option<Payload>) {
        self.step_instance(self.clock.wall(), None, Input::Content { ticket, content });
    }

    /// An administration job is done.
    pub(crate) fn chore_done(&self, ticket: ChoreTicket, json: String, waits: AnswerWaits) {
        self.step_instance(self.clock.wall(), None, Input::ChoreDone { ticket, json, waits });
    }

    /// Carries out a command of an administrator, as one step.
    pub(crate) fn administer<R>(
        &self,
        principal: &Principal,
        act: impl FnOnce(&mut dyn Target) -> R,
    ) -> R {
        let (mut act, mut result) = (Some(act), None);
        let mut once = |target: &mut dyn Target| result = act.take().map(|act| act(target));
        let input = Input::Administer(Administration { principal, act: &mut once });
        self.step_instance(self.clock.wall(), None, input);
        match result {
            Some(result) => result,
            None => unreachable!("a step carries out what it is given"),
        }
    }

    /// Relocates an old message: logs it again, with the content that was read.
    pub(crate) fn relocate(&self, queue: QueueId, sequence: MessageSequence, content: Payload) {
        self.step_instance(self.clock.wall(), None, Input::Relocate { queue, sequence, content });
    }

    /// The log is nearly full, in percent.
    pub(crate) fn log_pressed(&self, percent: u64) {
        self.step_instance(self.clock.wall(), None, Input::LogPressed(percent));
    }

    /// No new links and units of work from now on.
    pub fn quiesce(&self) {
        self.step_instance(self.clock.wall(), None, Input::Quiesce);
    }

    /// All connections are closed, with this reason.
    pub fn end(&self, farewell: Farewell) {
        self.step_instance(self.clock.wall(), None, Input::End(farewell));
    }

    /// Bytes of one extent of the log.
    pub(crate) fn extent_bytes(&self) -> u64 {
        self.look(|instance| instance.extent_bytes())
    }

    /// Runs `look` on the instance, for status and administration.
    pub fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        self.with_inner(|inner| look(&mut inner.instance))
    }

    /// The body of a message could not be read: it is set aside, or the client that requested it is
    /// notified. Yields which.
    pub fn unreadable(
        &self,
        queue: QueueId,
        sequence: MessageSequence,
        consumer: Option<ConsumerId>,
        error: &LogError,
    ) -> SetAside {
        // The caller used the current position of the body: if the log does not hold that position
        // any more the body is lost, as when an extent was removed by hand.
        let lasts = error.is_damage() || matches!(error, LogError::Gone { .. });
        let place = error.to_string();
        if !lasts {
            log(&BODY_UNREADABLE, &[&place]);
        }
        let input = Input::Unreadable(Unreadable { queue, sequence, consumer, place, lasts });
        let mut inner = self.inner.lock();
        let after = self.step_locked(&mut inner, self.clock.wall(), None, input);
        let aside = inner.out.aside.take().unwrap_or(SetAside::Gone);
        drop(inner);
        self.finish(after);
        self.take_reports();
        aside
    }

    fn step_instance(&self, now: Time, own: Option<ConnectionId>, input: Input<'_>) {
        let after = self.step_locked(&mut self.inner.lock(), now, own, input);
        self.finish(after);
        self.take_reports();
    }

    /// Steps the instance with the reports of the log's threads: what became durable, and whether
    /// there is free space. A thread that holds the lock meanwhile does it when it leaves: a thread
    /// of the log never waits for the instance, because the instance may wait for the log.
    fn take_reports(&self) {
        self.inner.take_posted(|inner| self.step_reports(inner), |after| self.finish(after));
    }

    fn step_reports(&self, inner: &mut Inner) -> After {
        let now = self.clock.wall();
        let mut after = After::default();
        let upto = self.durable_upto.load(Ordering::SeqCst);
        if upto > inner.durable_seen {
            inner.durable_seen = upto;
            after = self.step_locked(inner, now, None, Input::Durable(Lsn(upto)));
            let level = inner.instance.format_level();
            if level > inner.level_said {
                // Now, and not when it was decided: until it is durable there is a way back.
                inner.level_said = level;
                log(&FORMAT_LEVEL_RAISED, &[&level.to_string()]);
            }
        }
        let region = self.region_upto.load(Ordering::SeqCst);
        if region != inner.region_seen {
            inner.region_seen = region;
            after.join(self.step_locked(inner, now, None, Input::RegionHas(Lsn(region))));
        }
        let report = self.space_report.swap(SPACE_NO_REPORT, Ordering::SeqCst);
        if report != SPACE_NO_REPORT {
            let full = Input::LogFull(report == SPACE_FULL);
            after.join(self.step_locked(inner, now, None, full));
        }
        if self.log_caught_up.swap(false, Ordering::SeqCst) {
            after.join(self.step_locked(inner, now, None, Input::LogCaughtUp));
        }
        after
    }

    fn step_locked(
        &self,
        inner: &mut Inner,
        now: Time,
        own: Option<ConnectionId>,
        input: Input<'_>,
    ) -> After {
        if let Some(lease) = &self.process.lease {
            // A process that was stopped, and wakes beside another active instance, answers no
            // client any more.
            lease.need();
        }
        let mut after = After::default();
        let Inner { instance, outboxes, out, .. } = inner;
        instance.step(now, input, &self.journal(), out);
        post(out, outboxes, own, &mut after.to_wake);
        for client in out.caught_up.drain(..) {
            after.to_wake.extend(outboxes.get(&client).and_then(|outbox| outbox.reopen()));
        }
        if let Some(own) = own.filter(|own| instance.has_enough_of(*own))
            && let Some(outbox) = outboxes.get(&own)
        {
            outbox.shut();
        }
        for fetch in out.fetches.drain(..) {
            self.workers.fetch(fetch);
        }
        out.pages.drain(..).for_each(|request| self.workers.request_page(request));
        out.chores.drain(..).for_each(|chore| self.workers.administer(chore));
        // Whoever reads standard error may be slow: they are logged when the lock is released.
        after.damaged.append(&mut out.damaged);
        after.is_unfinished |= std::mem::take(&mut out.is_unfinished);
        after.is_unstalled |= self.backlog.stalls(instance.holds_clients_up());
        let has_work = instance.has_work_for_log();
        self.backlog.has_work(has_work);
        // What was written before that was not seen.
        after.is_unfinished |= has_work && self.log_lets_work();
        if let Some(error) = out.damage.take() {
            self.page_refused(&error);
        }
        after.to_notify = self.note_needs(inner);
        after
    }

    /// Notes what the instance needs. Each thread that may have changed it does so before it
    /// releases the lock.
    fn note_needs(&self, inner: &mut Inner) -> ToNotify {
        let needs = InstanceNeeds::of(&inner.instance);
        let before = std::mem::replace(&mut inner.needs, needs);
        if needs.eviction && !before.eviction {
            self.workers.evict();
        }
        self.wake_ups.changed(before, needs)
    }

    fn finish(&self, after: After) {
        after.to_wake.into_iter().for_each(Waker::wake);
        self.wake_ups.notify(after.to_notify);
        for found in after.damaged {
            let message = match found.now {
                Whereabouts::Moved => &MESSAGE_SET_ASIDE,
                Whereabouts::Stays => &MESSAGE_STAYS_DAMAGED,
                Whereabouts::Browsed => &MESSAGE_BROWSED_DAMAGED,
            };
            log(message, &[&found.queue, &found.place]);
        }
        if after.is_unfinished {
            self.workers.work_is_left();
        }
        if after.is_unstalled {
            self.written();
        }
    }

    fn with_inner<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = act(&mut inner);
        let to_notify = self.note_needs(&mut inner);
        drop(inner);
        self.wake_ups.notify(to_notify);
        self.take_reports();
        result
    }
}

/// A slice of work that was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// How long the lock was held.
    pub(crate) took: Duration,
    /// Something is left.
    pub(crate) more: bool,
}

/// Work that a step leaves until the lock is released.
#[derive(Default)]
struct After {
    to_wake: Vec<Waker>,
    /// A slice of work should follow.
    is_unfinished: bool,
    to_notify: ToNotify,
    /// Messages that cannot be read, to be logged.
    damaged: Vec<DamagedMessage>,
    /// Runs waited for the log, and do not any more.
    is_unstalled: bool,
}

impl After {
    fn join(&mut self, other: After) {
        self.to_wake.extend(other.to_wake);
        self.is_unfinished |= other.is_unfinished;
        self.to_notify.join(other.to_notify);
        self.damaged.extend(other.damaged);
        self.is_unstalled |= other.is_unstalled;
    }
}

/// Puts each response into the outbox of its connection; `own` is not woken.
fn post(
    out: &mut Outbound,
    outboxes: &FastMap<ConnectionId, Arc<Outbox>>,
    own: Option<ConnectionId>,
    to_wake: &mut Vec<Waker>,
) {
    let mut last: Option<(ConnectionId, Filling<'_>)> = None;
    for RoutedResponse { connection, response } in out.routed.drain(..) {
        if let Some((known, outbox)) = &mut last
            && *known == connection
        {
            outbox.push(response);
            continue;
        }
        // Each outbox is unlocked before the next one is locked.
        drop(last.take());
        let Some(outbox) = outboxes.get(&connection) else { continue };
        let mut outbox = outbox.open();
        if own != Some(connection) {
            to_wake.extend(outbox.take_waker());
        }
        outbox.push(response);
        last = Some((connection, outbox));
    }
}

#[cfg(test)]
mod tests;
