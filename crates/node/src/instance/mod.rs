//! The instance: requests are decided, facts are logged, durable facts are applied, available
//! messages are dispatched. Everything that can happen to it comes through [`Instance::step`].
//!
//! Invariants: a fact that goes to the log is applied when the log is durable up to its run, never
//! before; the reply to a forced run waits with it; applying follows log order.

mod client_work;
mod commit_space;
mod containers;
mod decide;
mod defaults;
mod holdings;
mod image;
mod pieces_ahead;
mod step;
mod units;
mod waiting_image;

use std::collections::{BTreeMap, VecDeque};

use slab::Slab;
use towline_core::{
    Body, ConnectionId, ConsumerId, Decision, Durability, Effect, Fact, FastMap, Limits,
    MessageSequence, Outputs, Principal, PutTarget, QueueId, QueueManager, Unreadable,
};
use towline_types::{Lsn, Time};

use self::client_work::ClientWork;
use self::containers::Containers;
use self::holdings::Holdings;
pub use self::image::{ImagePlan, OldBody};
pub use self::step::{
    Administration, AnswerWaits, Chore, ChoreTicket, Fetch, Input, Outbound, RoutedResponse,
};
use self::units::reusable;
use self::waiting_image::WaitingImage;
use crate::annotated::MessageAnnotations;
use crate::damaged::DamagedMessages;
use crate::journal::{Journal, NotAppended};
use crate::live::LiveExtents;
use crate::pending::{DurableRun, Pending};
use crate::request::{Request, Response};
use crate::selection::{Contents, FetchTicket};

/// One instance of a queue manager.
#[derive(Debug)]
pub struct Instance {
    pub(crate) name: String,
    pub(crate) rules: QueueManager,
    decision: Decision,
    outputs: Outputs,
    pending: Pending,
    durable: Lsn,
    applied: Lsn,
    durable_facts: Vec<Fact>,
    pub(crate) live: LiveExtents,
    contents: Contents,
    producers: Slab<Producer>,
    consumers: FastMap<ConsumerId, Consumer>,
    /// In order, so that a list of them is made in pieces.
    pub(crate) connections: BTreeMap<ConnectionId, ConnectedClient>,
    containers: Containers,
    holdings: Holdings,
    quiescing: bool,
    /// Scripts and the status are chores of the surroundings.
    pub(crate) is_administered_outside: bool,
    client_work: ClientWork,
    waiting_image: WaitingImage,
    /// Runs that the log did not take yet, in order; nothing overtakes them.
    stalled: VecDeque<StalledRun>,
    /// What they need of the space that the log has for puts.
    stalled_room: u64,
    /// Why the log did not take the first of them.
    stalled_for: NotAppended,
    /// Units of work that were rolled back for the sake of the log.
    units_ended_for_log: u64,
    pub(crate) damaged: DamagedMessages,
    pub(crate) annotated: MessageAnnotations,
}

/// A run that waits until the log takes it.
#[derive(Debug)]
struct StalledRun {
    facts: Vec<Fact>,
    logged: usize,
    durability: Durability,
    reply: Option<(ConnectionId, Response)>,
}

impl StalledRun {
    /// What it needs of the space that the log has for puts.
    fn log_room(&self) -> u64 {
        self.facts.iter().take(self.logged).map(Fact::log_room).sum()
    }
}

#[derive(Debug)]
struct Producer {
    connection: ConnectionId,
    target: PutTarget,
    /// The queue was made for this link and goes with it.
    dynamic: bool,
}

#[derive(Debug)]
struct Consumer {
    connection: ConnectionId,
    /// Messages dispatched to it in all; its credit limit counts from the same zero.
    dispatched: u64,
    /// The last word on its credit.
    flow: u64,
    /// A queue that was made for this link and goes with it.
    dynamic: Option<QueueId>,
}

/// What is known of a connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectedClient {
    pub(crate) container: String,
    pub(crate) user: Option<String>,
    pub(crate) address: String,
    /// Its container id is not open any more.
    has_left: bool,
}

impl Instance {
    /// A queue manager without objects, on a log with extents of `extent_bytes`.
    #[must_use]
    pub fn new(name: &str, limits: Limits, extent_bytes: u64) -> Instance {
        let limits = Limits { extent_bytes, ..limits };
        Instance::around(name, QueueManager::new(limits), extent_bytes)
    }

    pub(crate) fn around(name: &str, rules: QueueManager, extent_bytes: u64) -> Instance {
        let mut live = LiveExtents::new(extent_bytes);
        rules.shares().for_each(|share| live.stored_share(share));
        Instance {
            name: name.to_owned(),
            rules,
            decision: Decision::on_behalf_of(Principal::Internal),
            outputs: Outputs::default(),
            pending: Pending::default(),
            durable: Lsn::ZERO,
            applied: Lsn::ZERO,
            durable_facts: Vec::new(),
            live,
            contents: Contents::default(),
            producers: Slab::new(),
            consumers: FastMap::default(),
            connections: BTreeMap::new(),
            containers: Containers::default(),
            holdings: Holdings::default(),
            quiescing: false,
            is_administered_outside: false,
            client_work: ClientWork::default(),
            waiting_image: WaitingImage::default(),
            stalled: VecDeque::new(),
            stalled_room: 0,
            stalled_for: NotAppended::Behind,
            units_ended_for_log: 0,
            damaged: DamagedMessages::default(),
            annotated: MessageAnnotations::default(),
        }
    }

    /// The one way in.
    pub fn step(&mut self, now: Time, input: Input<'_>, journal: &dyn Journal, out: &mut Outbound) {
        match input {
            Input::Requests { connection, requests } => {
                self.requests(now, connection, requests, journal, out);
            }
            Input::Durable(upto) => self.durable(now, upto, journal, out),
            Input::Content { ticket, content } => {
                // One that cannot be read, of a message with no known location at the moment: it
                // may have been logged again and be on a page since. The waiting consumer asks once
                // more.
                if content.is_some() || self.body_of_fetch(ticket).is_some() {
                    self.contents.arrived(ticket, content);
                }
                self.rules.content_arrived(ticket.queue, ticket.sequence);
            }
            Input::Unreadable(found) => self.unreadable(now, &found, journal, out),
            Input::Relocate { queue, sequence, content } => {
                // While runs wait for the log, mere housekeeping must not queue among them.
                if self.stalled.is_empty()
                    && self.rules.relocate(queue, sequence, content, &mut self.decision)
                {
                    self.carry_out(now, None, journal, out);
                }
            }
            Input::Page { request, content } => {
                if let Err(error) = self.rules.page_arrived(request, content) {
                    out.damage = Some(error);
                    return;
                }
                self.rules.scan_on(now, &mut self.outputs);
                self.take_outputs(journal, out);
            }
            Input::ChoreDone { ticket, json, waits } => {
                self.answer_administrator(ticket, json, waits, journal, out);
            }
            Input::Administer(Administration { principal, act }) => {
                self.administered(now, principal, act, journal, out);
            }
            Input::Work { units } => self.do_work(now, units, journal, out),
            Input::Tick => {
                self.look_at_postponed(now);
                self.retry_stalled(journal);
                self.rules.tick(now, &mut self.outputs);
                self.take_outputs(journal, out);
            }
            Input::LogFull(full) => {
                self.retry_stalled(journal);
                self.rules.refuse_puts(full.then_some(towline_core::Refusal::LogFull));
            }
            Input::LogCaughtUp => self.retry_stalled(journal),
            Input::ClockStepped(by_us) => {
                self.waiting_image.clock_stepped();
                self.rules.clock_stepped(by_us);
            }
            Input::LogPressed(percent) => {
                // It would give nothing back before the log takes runs, and then the next one went.
                if !self.waits_for_log() && !self.gives_log_back() {
                    self.end_oldest_unit(now, percent, journal, out);
                }
            }
            Input::Quiesce => self.quiescing = true,
            Input::End(farewell) => {
                for connection in self.connections.keys() {
                    let connection = *connection;
                    let response = Response::Ending(farewell.clone());
                    out.routed.push(RoutedResponse { connection, response });
                }
            }
        }
        self.hurry_commits(now, journal, out);
        self.dispatch(now, journal, out);
    }

    fn requests(
        &mut self,
        now: Time,
        connection: ConnectionId,
        requests: &mut Vec<Request>,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let own = self.decides_for(connection);
        for request in requests.drain(..) {
            self.asked(now, connection, request, journal, out);
        }
        self.decision.principal = own;
    }

    /// What is decided next is asked for by this connection. Yields the principal of before.
    fn decides_for(&mut self, connection: ConnectionId) -> Principal {
        let asks = self.rules.principal(connection).clone();
        std::mem::replace(&mut self.decision.principal, asks)
    }

    fn unreadable(
        &mut self,
        now: Time,
        found: &Unreadable,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let aside = self.rules.set_aside(now, found, &mut self.decision);
        self.carry_out(now, None, journal, out);
        out.damaged.extend(self.damaged.enter(found, &aside));
        out.aside = Some(aside);
    }

    /// Everything before `tail` is in the queues already.
    pub(crate) fn resume_at(&mut self, tail: Lsn) {
        // What is pending has a position in the log of before: it would wait for the wrong one.
        assert!(self.pending.is_empty() && self.stalled.is_empty(), "a restart decides nothing");
        self.durable = tail;
        self.applied = tail;
    }

    /// When [`Input::Tick`] must come at the latest.
    #[must_use]
    pub fn next_tick(&self) -> Time {
        // Runs that wait for log space are retried at every tick; a log that has caught up says so.
        let waits = self.log_is_full() || self.has_postponed();
        if waits { Time::ZERO } else { self.rules.next_tick() }
    }

    /// Whether [`Input::Work`] has anything to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.rules.has_work() || self.has_work_for_log()
    }

    /// Where the body of a fetch is now; see [`Instance::body_now`].
    #[must_use]
    pub fn body_of_fetch(&self, ticket: FetchTicket) -> Option<Body> {
        self.body_now(ticket.queue, ticket.sequence)
    }

    /// Where the content of a message is now: one that is carried forward has moved. `None` when
    /// the message is gone.
    #[must_use]
    pub fn body_now(&self, queue: QueueId, sequence: MessageSequence) -> Option<Body> {
        self.rules.body_of(queue, sequence)
    }

    /// Runs that are decided and not durable yet, and commits of which not all is carried out; but
    /// for those that wait for space in the log.
    #[must_use]
    pub fn runs_pending(&self) -> usize {
        let waiting = self.stalled.len() + self.client_work.len();
        let parts = usize::from(self.rules.has_parts());
        self.pending.len() + parts + if self.log_is_full() { 0 } else { waiting }
    }

    fn durable(&mut self, now: Time, upto: Lsn, journal: &dyn Journal, out: &mut Outbound) {
        // Two log writers may report in either order; the later report says it all.
        self.durable = self.durable.max(upto);
        self.client_work.durable(self.durable);
        let mut facts = std::mem::take(&mut self.durable_facts);
        while let Some(run) = self.pending.take_durable(self.durable, &mut facts) {
            let DurableRun { end, reply } = run;
            for fact in facts.drain(..) {
                if !self.annotated.is_empty() {
                    self.annotated.follow(&fact);
                }
                self.rules.apply(now, fact, &mut self.outputs);
            }
            // A client that saw this run could lose it otherwise: the log may end before it.
            assert!(end <= self.durable, "a run is applied before it is durable");
            self.applied = self.applied.max(end);
            if let Some((connection, response)) = reply {
                out.routed.push(RoutedResponse { connection, response });
            }
        }
        self.durable_facts = reusable(facts);
        self.take_outputs(journal, out);
    }

    pub(crate) fn is_quiescing(&self) -> bool {
        self.quiescing
    }

    /// Answers when what was decided about objects is durable: what was opened, or shown, stays.
    /// Messages on their way are not waited for: the answer says nothing of them, and their disk
    /// may be slow.
    pub(crate) fn answer_defined(
        &mut self,
        connection: ConnectionId,
        response: Response,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        if self.rules.has_definitions_on_their_way() {
            return self.answer_durable(connection, response, journal, out);
        }
        out.routed.push(RoutedResponse { connection, response });
    }

    /// Answers when everything decided so far is durable: what was confirmed stays.
    pub(crate) fn answer_durable(
        &mut self,
        connection: ConnectionId,
        response: Response,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        if self.something_is_on_its_way() {
            let facts = Vec::new();
            let durability = Durability::Memory;
            let reply = Some((connection, response));
            self.log_run(StalledRun { facts, logged: 0, durability, reply }, journal);
        } else {
            out.routed.push(RoutedResponse { connection, response });
        }
    }

    /// Carries out what was decided without a waiting caller.
    pub(crate) fn carry_out_decision(
        &mut self,
        now: Time,
        decision: Decision,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        // What is decided next is not decided on behalf of this one's principal.
        let own = std::mem::replace(&mut self.decision, decision);
        self.carry_out(now, None, journal, out);
        self.decision = own;
    }

    /// Carries out what `self.decision` holds; `reply` goes when it is durable, or at once when no
    /// client has to wait.
    fn carry_out(
        &mut self,
        now: Time,
        reply: Option<(ConnectionId, Response)>,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let mut reply = reply;
        let behind = self.decision.behind && self.something_is_on_its_way();
        let decision = &mut self.decision;
        match decision.durability {
            Durability::Memory if behind => {
                let facts = std::mem::take(&mut self.decision.facts);
                let durability = Durability::Memory;
                let run = StalledRun { facts, logged: 0, durability, reply: None };
                self.decision.facts = self.log_run(run, journal);
            }
            Durability::Memory => {
                for fact in decision.facts.drain(..) {
                    if !self.annotated.is_empty() {
                        self.annotated.follow(&fact);
                    }
                    self.rules.apply(now, fact, &mut self.outputs);
                }
            }
            durability @ (Durability::Lazy | Durability::Forced) => {
                let waits = durability == Durability::Forced;
                let parked = if waits { reply.take() } else { None };
                let logged = decision.logged;
                let facts = std::mem::take(&mut decision.facts);
                let run = StalledRun { facts, logged, durability, reply: parked };
                self.decision.facts = self.log_run(run, journal);
            }
        }
        self.decision.clear();
        if let Some((connection, response)) = reply {
            out.routed.push(RoutedResponse { connection, response });
        }
        self.take_outputs(journal, out);
    }

    /// Whether a run waits for the log.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Whether a run waits for a log that is behind.
    #[must_use]
    pub fn waits_for_log(&self) -> bool {
        self.is_stalled() && self.stalled_for == NotAppended::Behind
    }

    /// Whether a run waits for space in the log.
    fn log_is_full(&self) -> bool {
        self.is_stalled() && self.stalled_for == NotAppended::Full
    }

    /// Bytes of the log that were decided on and are not in it: of runs that wait, and of large
    /// messages that have begun. What else is logged must leave them.
    #[must_use]
    pub fn log_room_promised(&self) -> u64 {
        self.stalled_room.saturating_add(self.rules.log_room_promised())
    }

    fn something_is_on_its_way(&self) -> bool {
        !self.pending.is_empty() || !self.stalled.is_empty()
    }

    /// Gives a run to the log, or parks it behind those that it did not take. Returns an empty
    /// vector to use again.
    fn log_run(&mut self, mut run: StalledRun, journal: &dyn Journal) -> Vec<Fact> {
        // A log that has caught up says so: with many runs, each of them would try in vain.
        if !self.waits_for_log() {
            self.retry_stalled(journal);
        }
        if !self.stalled.is_empty() || !self.append(&mut run, journal) {
            self.stalled_room += run.log_room();
            self.stalled.push_back(run);
            self.rules.wait_for_log(true);
            return Vec::new();
        }
        reusable(run.facts)
    }

    /// False: the log did not take it; the run is as it was.
    fn append(&mut self, run: &mut StalledRun, journal: &dyn Journal) -> bool {
        // What is left out of the log here would be acknowledged and gone after a restart.
        let Some(logged) = run.facts.get_mut(..run.logged) else {
            unreachable!("a run of {} facts logs {} of them", run.facts.len(), run.logged)
        };
        let end = match run.durability {
            Durability::Memory => Lsn::ZERO,
            durability @ (Durability::Lazy | Durability::Forced) => {
                match journal.append(logged, durability) {
                    Ok(end) => end,
                    Err(why) => {
                        self.stalled_for = why;
                        return false;
                    }
                }
            }
        };
        // It would be applied and answered by the next report, which may not have it.
        let is_late = run.durability != Durability::Memory && end <= self.durable;
        assert!(!is_late, "a run was appended at a position that is durable already");
        self.pending.park(end, run.facts.drain(..), run.reply.take());
        true
    }

    /// The log may take runs again.
    fn retry_stalled(&mut self, journal: &dyn Journal) {
        while let Some(mut run) = self.stalled.pop_front() {
            let room = run.log_room();
            if !self.append(&mut run, journal) {
                self.stalled.push_front(run);
                return;
            }
            // What is decided next counts on the log's space, less these.
            assert!(self.stalled_room >= room, "a run waited that was not counted");
            self.stalled_room -= room;
        }
        self.rules.wait_for_log(false);
    }

    /// Hands available messages to consumers, then does what followed from it.
    fn dispatch(&mut self, now: Time, journal: &dyn Journal, out: &mut Outbound) {
        let mut selection = self.contents.selection(journal);
        out.is_unfinished = self.rules.dispatch(now, &mut selection, &mut self.outputs);
        self.take_outputs(journal, out);
        out.is_unfinished |= self.has_client_work(journal);
    }

    /// Logs the facts that no client asked for, and turns effects into responses.
    fn take_outputs(&mut self, journal: &dyn Journal, out: &mut Outbound) {
        while !self.outputs.facts.is_empty() || !self.outputs.effects.is_empty() {
            let mut effects = std::mem::take(&mut self.outputs.effects);
            for effect in effects.drain(..) {
                self.take_effect(effect, out);
            }
            if self.outputs.effects.is_empty() {
                self.outputs.effects = effects;
            }
            let mut facts = std::mem::take(&mut self.outputs.facts);
            for fact in facts.drain(..) {
                let facts = vec![fact];
                let durability = Durability::Lazy;
                self.log_run(StalledRun { facts, logged: 1, durability, reply: None }, journal);
            }
            if self.outputs.facts.is_empty() {
                self.outputs.facts = facts;
            }
        }
    }

    fn take_effect(&mut self, effect: Effect, out: &mut Outbound) {
        let (connection, response) = match effect {
            Effect::Deliver(mut delivery) => {
                if !self.annotated.is_empty() {
                    delivery.annotations = self.annotated.of((delivery.queue, delivery.sequence));
                }
                // Its credit counts from here: one that is not counted would be one too many.
                let Some(consumer) = self.consumers.get_mut(&delivery.consumer) else {
                    unreachable!("a delivery to {:?}, which is not open", delivery.consumer)
                };
                assert_eq!(consumer.connection, delivery.connection, "a delivery goes to its own");
                consumer.dispatched += 1;
                (delivery.connection, Response::Deliver(Box::new(delivery)))
            }
            Effect::Stored { location } => return self.live.stored(location),
            Effect::Removed { location } => return self.live.removed(location),
            Effect::RemovedMany { locations } => {
                return locations.into_iter().for_each(|location| self.live.removed(location));
            }
            Effect::RemovedFrom { share } => return self.live.removed_share(share),
            Effect::LoadPage { request } => return out.pages.push(request),
            Effect::Fetch { queue, sequence, body } => {
                let ticket = FetchTicket { queue, sequence };
                return out.fetches.push(Fetch { ticket, body });
            }
            Effect::Drained { connection, consumer } => {
                let Some(known) = self.consumers.get(&consumer) else {
                    unreachable!("{consumer:?} is drained and not open")
                };
                (connection, Response::Drained { consumer, flow: known.flow })
            }
            // Its unsettled deliveries stay settleable until the connection closes it.
            Effect::ConsumerClosed { connection, consumer, reason } => {
                (connection, Response::ConsumerClosed { consumer, reason })
            }
            Effect::UnitRolledBack { connection, unit, reason } => {
                self.holdings.doomed.remove(connection, unit);
                self.annotated.end_unit((connection, unit), false);
                (connection, Response::UnitRolledBack { unit, reason })
            }
        };
        out.routed.push(RoutedResponse { connection, response });
    }
}

#[cfg(test)]
mod tests;
