//! The door of the node: one short lock. A thread with input steps the instance: a connection's
//! task with the requests of one read, or a log writer whose write became durable. What comes out
//! goes to the outboxes of the connections. So a message crosses two threads fewer than with a
//! thread of the node's own (docs/adr).

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;
use tokio::sync::Notify;
use towline_admin::catalogue::{
    BODY_UNREADABLE, DISK_FULL, LOG_EXTENT_REFUSED, LOG_FULL, LOG_HAS_ROOM, LOG_LOW,
    LOG_WRITE_FAILED, MESSAGE_BROWSED_DAMAGED, MESSAGE_SET_ASIDE, MESSAGE_STAYS_DAMAGED,
    PAGE_DAMAGED,
};
use towline_core::{
    ConnectionId, ConsumerId, FastMap, MessageSequence, PageRequest, QueueId, SetAside, Unreadable,
};
use towline_log::{Listener, Log, LogError, Space};
use towline_node::{
    ChoreTicket, Farewell, FetchTicket, Input, Instance, Outbound, Request, RoutedResponse, Whereabouts,
};
use towline_types::{Lsn, Payload, Time};

use crate::clerk::Clerk;
use crate::clock::Clock;
use crate::fetcher::Fetcher;
use crate::group::RepairQueue;
use crate::images::Taken;
use crate::journal::LogJournal;
use crate::net::{Arrivals, Departures};
use crate::outbox::{Filling, Outbox};
use crate::pager::Pager;
use crate::status::Surroundings;
use towline_logging::log;

/// Shared by all threads of the server.
pub(crate) struct Door {
    inner: Mutex<Inner>,
    /// Set once, between recovery and the first listener.
    log: OnceLock<Log>,
    chores: Chores,
    surroundings: Surroundings,
    /// In a group: what is damaged in the log is fetched from another instance.
    repairs: OnceLock<Arc<RepairQueue>>,
    clock: Clock,
    /// A step left something to the next tick.
    unfinished: Notify,
    halted: AtomicBool,
    /// Up to where the log is durable, as its writers said.
    durable_upto: AtomicU64,
    /// Up to where the instance was told so.
    durable_seen: AtomicU64,
    /// What the log last said of its room and the instance has not heard: `SPACE_*`.
    space_said: AtomicU8,
}

/// Who does what the instance asks for.
pub(crate) struct Chores {
    pub(crate) fetcher: Fetcher,
    pub(crate) pager: Pager,
    pub(crate) clerk: Clerk,
    /// The file that tells the next start not to trust the pages.
    pub(crate) rebuild_marker: PathBuf,
}

/// Who knows the group, for a status.
pub(crate) trait GroupView: Send + Sync {
    /// The group now.
    fn group(&self) -> towline_admin::status::GroupStatus;
}

const SPACE_HEARD: u8 = 0;
const SPACE_ENOUGH: u8 = 1;
const SPACE_FULL: u8 = 2;

struct Inner {
    instance: Instance,
    outboxes: FastMap<ConnectionId, Arc<Outbox>>,
    next_connection: u64,
    out: Outbound,
}

impl Door {
    pub(crate) fn new(
        instance: Instance,
        chores: Chores,
        surroundings: Surroundings,
        clock: Clock,
    ) -> Door {
        let inner = Inner {
            instance,
            outboxes: FastMap::default(),
            next_connection: 1,
            out: Outbound::default(),
        };
        let (inner, log, halted) = (Mutex::new(inner), OnceLock::new(), AtomicBool::new(false));
        Door {
            inner,
            log,
            chores,
            surroundings,
            repairs: OnceLock::new(),
            clock,
            unfinished: Notify::new(),
            halted,
            durable_upto: AtomicU64::new(0),
            durable_seen: AtomicU64::new(0),
            space_said: AtomicU8::new(SPACE_HEARD),
        }
    }

    /// The log is running from now on.
    pub(crate) fn set_log(&self, log: Log) {
        let set = self.log.set(log);
        assert!(set.is_ok(), "a door has one log");
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// The log; waits for `set_log`.
    pub(crate) fn log(&self) -> Log {
        self.running_log().clone()
    }

    fn journal(&self) -> LogJournal<'_> {
        LogJournal { log: self.running_log(), surroundings: &self.surroundings }
    }

    /// Large messages on their way in.
    pub(crate) fn arrivals(&self) -> &Arc<Arrivals> {
        &self.surroundings.arrivals
    }

    /// Large messages on their way out.
    pub(crate) fn departures(&self) -> &Arc<Departures> {
        &self.surroundings.departures
    }

    /// Tells the status which URLs clients can use.
    pub(crate) fn set_listeners(&self, urls: Vec<String>) {
        let set = self.surroundings.listeners.set(urls);
        assert!(set.is_ok(), "listeners are known once");
    }

    /// Runs `act` while no thread steps the instance: nothing is decided and nothing applied
    /// meanwhile.
    pub(crate) fn hold_still<R>(&self, act: impl FnOnce() -> R) -> R {
        let held = self.inner.lock();
        let result = act();
        drop(held);
        self.apply_durable();
        result
    }

    /// All that `towline status` shows.
    pub(crate) fn status(&self) -> towline_admin::status::Status {
        let (now, journal) = (self.clock.wall(), self.journal());
        self.look(|instance| instance.status(now, &journal))
    }

    /// Has the status show the group.
    pub(crate) fn set_group(&self, group: Arc<dyn GroupView>) {
        assert!(self.surroundings.group.set(group).is_ok(), "a group is known once");
    }

    /// Has damaged batches fetched from the other instances of the group.
    pub(crate) fn set_repairs(&self, repairs: Arc<RepairQueue>) {
        assert!(self.repairs.set(repairs).is_ok(), "a group is known once");
    }

    /// Who fetches damaged batches; an instance that is alone has none.
    pub(crate) fn repairs(&self) -> Option<&Arc<RepairQueue>> {
        self.repairs.get()
    }

    fn running_log(&self) -> &Log {
        self.log.wait()
    }

    /// A new connection: its id and its outbox.
    pub(crate) fn connect(&self) -> (ConnectionId, Arc<Outbox>) {
        self.with_inner(|inner| {
            let id = ConnectionId(inner.next_connection);
            inner.next_connection += 1;
            let outbox = Outbox::new();
            inner.outboxes.insert(id, Arc::clone(&outbox));
            (id, outbox)
        })
    }

    /// The connection is over: its units of work are rolled back, its messages go back.
    pub(crate) fn disconnect(&self, id: ConnectionId, lost: bool) {
        let mut requests = vec![Request::Disconnect { lost }];
        self.step(self.clock.now(), id, &mut requests);
        self.with_inner(|inner| inner.outboxes.remove(&id));
    }

    /// Takes all of `requests`; the answers go to the outbox of `connection` (which is not woken:
    /// the caller looks into it next) and of others (which are).
    pub(crate) fn step(&self, now: Time, connection: ConnectionId, requests: &mut Vec<Request>) {
        let now = self.clock.wall_at(now);
        self.step_instance(now, Some(connection), Input::Requests { connection, requests });
    }

    /// Whether time-driven work waits.
    pub(crate) fn tick_is_due(&self) -> bool {
        self.look(|instance| instance.next_tick()) <= self.clock.wall()
    }

    /// Returns when a step left something to the next tick.
    pub(crate) async fn unfinished(&self) {
        self.unfinished.notified().await;
    }

    /// Looks whether the wall clock was set.
    pub(crate) fn follow_clock(&self) {
        if let Some(by_us) = self.clock.follow() {
            self.step_instance(self.clock.wall(), None, Input::ClockStepped(by_us));
        }
    }

    /// Time-driven work: expiry, ages of units of work.
    pub(crate) fn tick(&self) {
        self.step_instance(self.clock.wall(), None, Input::Tick);
    }

    /// A body that a selector waits for was read, or cannot be.
    pub(crate) fn content(&self, ticket: FetchTicket, content: Option<Payload>) {
        self.step_instance(self.clock.wall(), None, Input::Content { ticket, content });
    }

    /// A page that was asked for was read.
    pub(crate) fn page(&self, request: PageRequest, content: &[u8]) {
        self.step_instance(self.clock.wall(), None, Input::Page { request, content });
    }

    /// A page that was asked for cannot be read. When nothing depends on it any more its slot may
    /// have been used again, and the waiting request looks again; else the page file is damaged.
    pub(crate) fn page_unreadable(&self, request: PageRequest, why: &str) {
        let mut inner = self.inner.lock();
        if inner.instance.needs_page(request) {
            self.page_damaged(why);
        }
        let input = Input::Page { request, content: &[] };
        let after = self.step_locked(&mut inner, self.clock.wall(), None, input);
        drop(inner);
        self.finish(after);
        self.apply_durable();
    }

    /// What an administrator asked for was done.
    pub(crate) fn chore_done(&self, ticket: ChoreTicket, json: String) {
        self.step_instance(self.clock.wall(), None, Input::ChoreDone { ticket, json });
    }

    /// Asks for the first page of each queue, so that the first gets need not wait for them.
    pub(crate) fn load_first_pages(&self) {
        let journal = self.journal();
        self.with_inner(|Inner { instance, out, .. }| {
            instance.load_first_pages(&journal, out);
            out.pages.drain(..).for_each(|request| self.chores.pager.send(request));
        });
    }

    /// A page cannot be read, or says what it should not. What it holds is in the log: the next
    /// start rebuilds the queues from there.
    pub(crate) fn page_damaged(&self, why: &str) -> ! {
        log(&PAGE_DAMAGED, &[why]);
        if let Err(error) = crate::start::mark_rebuild(&self.chores.rebuild_marker) {
            tracing::error!(%error, "the file that asks for a rebuild cannot be written");
        }
        std::process::exit(crate::EXIT_LOG_FAILED);
    }

    /// An image was taken: the status tells.
    pub(crate) fn image_taken(&self, taken: &Taken, now: Time) {
        self.surroundings.image_taken(taken, now);
    }

    /// What is on the disk is not known any more.
    pub(crate) fn log_failed(&self, error: &LogError) {
        Listener::failed(self, error);
    }

    /// Logs an old message again, with the content that was read.
    pub(crate) fn relocate(&self, queue: QueueId, sequence: MessageSequence, content: Payload) {
        self.step_instance(self.clock.wall(), None, Input::Relocate { queue, sequence, content });
    }

    /// The log is nearly full, in percent.
    pub(crate) fn log_pressed(&self, percent: u64) {
        self.step_instance(self.clock.wall(), None, Input::LogPressed(percent));
    }

    /// No new links and units of work from now on.
    pub(crate) fn quiesce(&self) {
        self.step_instance(self.clock.wall(), None, Input::Quiesce);
    }

    /// All connections are told to go.
    pub(crate) fn end(&self, farewell: Farewell) {
        self.step_instance(self.clock.wall(), None, Input::End(farewell));
    }

    /// Defines what a new queue manager starts with, when it has no object at all.
    pub(crate) fn define_defaults(&self) {
        let (now, journal) = (self.clock.wall(), self.journal());
        self.with_inner(|Inner { instance, out, .. }| {
            crate::defaults::define(instance, now, &journal, out);
            crate::defaults::tell_dangling(instance);
        });
    }

    /// Bytes of one extent of the log.
    pub(crate) fn extent_bytes(&self) -> u64 {
        self.look(|instance| instance.extent_bytes())
    }

    /// Runs `look` on the instance, for status and administration.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        self.with_inner(|inner| look(&mut inner.instance))
    }

    /// The body of a message could not be read: it is set aside, or the client that wanted it is
    /// notified. What became of it comes back.
    pub(crate) fn unreadable(
        &self,
        (queue, sequence): (QueueId, MessageSequence),
        consumer: Option<ConsumerId>,
        error: &LogError,
    ) -> SetAside {
        // The caller has looked where the body is now: a place that the log does not hold any more
        // is lost, as when an extent was removed by hand.
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
        self.apply_durable();
        aside
    }

    fn step_instance(&self, now: Time, own: Option<ConnectionId>, input: Input<'_>) {
        let after = self.step_locked(&mut self.inner.lock(), now, own, input);
        self.finish(after);
        self.apply_durable();
    }

    /// Steps the instance with what the log's threads posted: the durable position, and whether
    /// there is free space. Log threads must not block on this lock: its holder may be blocked on
    /// the log. They publish and try the lock; the holder looks again after it unlocked.
    fn apply_durable(&self) {
        loop {
            // Pairs with the fence of the other side: either we see the position that it stored, or
            // it finds the door free.
            fence(Ordering::SeqCst);
            let upto = self.durable_upto.load(Ordering::SeqCst);
            let nothing_new = upto <= self.durable_seen.load(Ordering::SeqCst);
            if nothing_new && self.space_said.load(Ordering::SeqCst) == SPACE_HEARD {
                return;
            }
            let Some(mut inner) = self.inner.try_lock() else { return };
            self.durable_seen.fetch_max(upto, Ordering::SeqCst);
            let now = self.clock.wall();
            let mut after = self.step_locked(&mut inner, now, None, Input::Durable(Lsn(upto)));
            let said = self.space_said.swap(SPACE_HEARD, Ordering::SeqCst);
            if said != SPACE_HEARD {
                let full = Input::LogFull(said == SPACE_FULL);
                after.join(self.step_locked(&mut inner, now, None, full));
            }
            drop(inner);
            self.finish(after);
        }
    }

    fn step_locked(
        &self,
        inner: &mut Inner,
        now: Time,
        own: Option<ConnectionId>,
        input: Input<'_>,
    ) -> After {
        if let Some(lease) = &self.surroundings.lease {
            // An instance that was stopped, and wakes beside another active one, answers no more.
            lease.need();
        }
        let mut after = After::default();
        let Inner { instance, outboxes, out, .. } = inner;
        instance.step(now, input, &self.journal(), out);
        post(out, outboxes, own, &mut after.to_wake);
        for fetch in out.fetches.drain(..) {
            self.chores.fetcher.send(fetch);
        }
        out.pages.drain(..).for_each(|request| self.chores.pager.send(request));
        out.chores.drain(..).for_each(|chore| self.chores.clerk.send(chore));
        for found in out.damaged.drain(..) {
            let message = match found.now {
                Whereabouts::Moved => &MESSAGE_SET_ASIDE,
                Whereabouts::Stays => &MESSAGE_STAYS_DAMAGED,
                Whereabouts::Browsed => &MESSAGE_BROWSED_DAMAGED,
            };
            log(message, &[&found.queue, &found.place]);
        }
        after.is_unfinished |= std::mem::take(&mut out.is_unfinished);
        if let Some(error) = out.damage.take() {
            self.page_damaged(&error.to_string());
        }
        after
    }

    fn finish(&self, after: After) {
        after.to_wake.into_iter().for_each(Waker::wake);
        if after.is_unfinished {
            self.unfinished.notify_one();
        }
    }

    fn with_inner<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        let result = act(&mut self.inner.lock());
        self.apply_durable();
        result
    }
}

/// What a step leaves to be done when the door is closed again.
#[derive(Default)]
struct After {
    to_wake: Vec<Waker>,
    /// A tick should come soon.
    is_unfinished: bool,
}

impl After {
    fn join(&mut self, other: After) {
        self.to_wake.extend(other.to_wake);
        self.is_unfinished |= other.is_unfinished;
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
        // One is closed before the next one is opened.
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

impl Listener for Door {
    fn durable(&self, upto: Lsn) {
        self.durable_upto.fetch_max(upto.0, Ordering::SeqCst);
        self.apply_durable();
    }

    fn failed(&self, error: &LogError) {
        // A failed write or sync is never retried: what the disk holds is unknown from here on, and
        // recovery at the next start is the only safe reader of it.
        if !self.halted.swap(true, Ordering::SeqCst) {
            log(&LOG_WRITE_FAILED, &[&error.to_string()]);
            std::process::exit(crate::EXIT_LOG_FAILED);
        }
    }

    fn hindered(&self, error: &LogError) {
        log(&LOG_EXTENT_REFUSED, &[&error.to_string()]);
    }

    fn space(&self, space: Space) {
        let said = if matches!(space, Space::Full) { SPACE_FULL } else { SPACE_ENOUGH };
        let stats = self.running_log().stats();
        let bytes = stats.bytes_in_use.to_string();
        match space {
            Space::Ample => log(&LOG_HAS_ROOM, &[]),
            Space::Low => log(&LOG_LOW, &[&bytes]),
            Space::Full if self.surroundings.is_at_its_limit(&stats) => log(&LOG_FULL, &[&bytes]),
            Space::Full => log(&DISK_FULL, &[&bytes]),
        }
        self.space_said.store(said, Ordering::SeqCst);
        self.apply_durable();
    }
}
