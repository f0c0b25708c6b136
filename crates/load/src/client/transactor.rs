//! A client that works in units: put a batch and commit, get a batch and commit, again.
//!
//! The commit is sent right behind the last put or settlement, and the next unit is declared with
//! it: a unit waits for its broker once for its work and once for its commit. Messages count as put
//! and as received only when their unit is committed.

use std::sync::Arc;

use towline_amqp::Connection;
use towline_amqp::event::{Event, IncomingDelivery, LinkId};
use towline_amqp::types::{DeliveryState, Outcome, TxnId};
use towline_types::Time;

use super::links::{Asking, Sender};
use crate::content;
use crate::desk::{Desk, is_accepted};
use crate::latency::Kind;
use crate::pace::Pace;
use crate::plan::{Plan, Seat};
use crate::stamp::Stamp;
use crate::verify::Order;

/// See the module.
#[derive(Debug)]
pub(crate) struct Transactor {
    number: u32,
    index: u32,
    batch: u32,
    queue: Arc<str>,
    coordinator: Sender,
    sender: Sender,
    receiver: Option<LinkId>,
    attached: u8,
    /// A unit that was declared and not yet used.
    declared: Option<TxnId>,
    declare_is_sent: bool,
    /// Key of the next message to the coordinator; even ones declare, odd ones commit.
    commands: u64,
    unit: Unit,
    sequence: u64,
    order: Order,
    pace: Pace,
}

/// The unit under way.
#[derive(Debug)]
enum Unit {
    /// None, between pairs.
    Between,
    /// To be put as soon as a unit is declared.
    ToPut(Time),
    Put(Putting),
    /// To be got: since when the pair counts.
    ToGet(Time),
    Get(Getting),
}

#[derive(Debug)]
struct Putting {
    txn_id: TxnId,
    from: Time,
    sent: u32,
    accepted: u32,
    commit: Commit,
}

#[derive(Debug)]
struct Getting {
    txn_id: TxnId,
    pair_from: Time,
    from: Time,
    stamps: Vec<Option<Stamp>>,
    commit: Commit,
}

/// When the commit was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Commit {
    sent_at: Option<Time>,
}

const DECLARE: u64 = 0;
const COMMIT: u64 = 1;

impl Transactor {
    pub(super) fn new(seat: &Seat, plan: &Plan) -> Transactor {
        Transactor {
            number: seat.number,
            index: seat.index,
            batch: plan.batch,
            queue: seat.queue.clone(),
            coordinator: Sender::default(),
            sender: Sender::default(),
            receiver: None,
            attached: 0,
            declared: None,
            declare_is_sent: false,
            commands: 0,
            unit: Unit::Between,
            sequence: 0,
            order: Order::default(),
            pace: Pace::new(plan.interval, seat.quota),
        }
    }

    pub(super) fn open(&mut self, connection: &mut Connection, _: &mut Desk) {
        let mut asking = Asking::begin(connection, self.index);
        self.coordinator = Sender::new(asking.coordinator());
        self.sender = Sender::new(asking.sender(Some(&self.queue)));
        self.receiver = asking.receiver(Some(&self.queue));
    }

    pub(super) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        match event {
            Event::Attached(_) => self.attached += 1,
            Event::Flow(flow) => {
                self.coordinator.flow(flow);
                self.sender.flow(flow);
            }
            Event::Outcome { link, key, state, settled } if self.coordinator.is(link) => {
                if !settled {
                    self.coordinator.settle(connection, key);
                }
                if key % 2 == COMMIT {
                    self.commit_is_done(desk, state.as_ref());
                } else {
                    self.declare_is_done(desk, state.as_ref());
                }
            }
            Event::Outcome { key, state, settled, .. } => {
                if !settled {
                    self.sender.settle(connection, key);
                }
                self.put_is_done(desk, state.as_ref());
            }
            Event::Transfer(transfer) => self.take(connection, &transfer),
            _ => {}
        }
        self.turn(connection, desk);
    }

    fn put_is_done(&mut self, desk: &mut Desk, state: Option<&DeliveryState>) {
        if !is_accepted(state) {
            desk.refused("put in a unit of work", state);
        } else if let Unit::Put(unit) = &mut self.unit {
            unit.accepted += 1;
        }
    }

    fn take(&mut self, connection: &mut Connection, transfer: &IncomingDelivery) {
        let Unit::Get(unit) = &mut self.unit else { return };
        let outcome = Some(Outcome::Accepted);
        let state = DeliveryState::Transactional { txn_id: unit.txn_id, outcome };
        connection.settle_incoming(transfer.delivery, state);
        unit.stamps.push(Desk::read_stamp(&transfer.payload));
    }

    fn declare_is_done(&mut self, desk: &mut Desk, state: Option<&DeliveryState>) {
        self.declare_is_sent = false;
        match state {
            Some(DeliveryState::Declared { txn_id }) => self.declared = Some(*txn_id),
            other => desk.refused("declare", other),
        }
    }

    fn commit_is_done(&mut self, desk: &mut Desk, state: Option<&DeliveryState>) {
        let committed = is_accepted(state);
        if !committed {
            desk.refused("commit", state);
        }
        match std::mem::replace(&mut self.unit, Unit::Between) {
            Unit::Put(unit) if committed => {
                let first = self.sequence - u64::from(unit.sent);
                (first..self.sequence).for_each(|number| desk.put_accepted(self.number, number));
                if unit.accepted < unit.sent {
                    desk.remark("a unit was committed before its puts were confirmed".into());
                }
                finish(desk, Kind::Put, unit.from, unit.commit);
                self.unit = Unit::ToGet(unit.from);
            }
            Unit::Get(unit) if committed => {
                unit.stamps.iter().for_each(|stamp| desk.got(*stamp, &mut self.order));
                finish(desk, Kind::Get, unit.from, unit.commit);
                desk.time(Kind::Pair, unit.pair_from);
                desk.counts.pairs += 1;
            }
            // What was got goes back to the queue, and is got again.
            Unit::Get(unit) => {
                self.order.forget();
                self.unit = Unit::ToGet(unit.pair_from);
            }
            Unit::Put(_) | Unit::Between | Unit::ToPut(_) | Unit::ToGet(_) => {}
        }
    }

    pub(super) fn turn(&mut self, connection: &mut Connection, desk: &mut Desk) {
        if self.attached < 3 {
            return;
        }
        if matches!(self.unit, Unit::Between)
            && desk.is_running()
            && let Some(from) = self.pace.take(desk.now, false)
        {
            self.unit = Unit::ToPut(from);
        }
        self.begin_unit(connection, desk);
        self.work(connection, desk);
        // Behind the commit, never before it: a coordinator may allow one unit at a time.
        let wants_one = match &self.unit {
            Unit::Between => false,
            Unit::ToPut(_) | Unit::ToGet(_) => true,
            Unit::Put(Putting { commit, .. }) | Unit::Get(Getting { commit, .. }) => {
                commit.sent_at.is_some()
            }
        };
        if wants_one && self.declared.is_none() && !self.declare_is_sent {
            self.command(connection, DECLARE, content::declare());
        }
    }

    /// Uses the unit that was declared.
    fn begin_unit(&mut self, connection: &mut Connection, desk: &mut Desk) {
        let Some(txn_id) = self.declared else { return };
        let commit = Commit::default();
        match self.unit {
            Unit::ToPut(from) => {
                self.unit = Unit::Put(Putting { txn_id, from, sent: 0, accepted: 0, commit });
            }
            Unit::ToGet(pair_from) => {
                let stamps = Vec::with_capacity(self.batch as usize);
                let from = desk.now;
                self.unit = Unit::Get(Getting { txn_id, pair_from, from, stamps, commit });
                if let Some(link) = self.receiver {
                    connection.set_credit(link, self.batch);
                }
            }
            Unit::Between | Unit::Put(_) | Unit::Get(_) => return,
        }
        self.declared = None;
    }

    /// Puts what the credit allows, and commits a complete batch.
    fn work(&mut self, connection: &mut Connection, desk: &mut Desk) {
        let commit = match &mut self.unit {
            Unit::Put(unit) => {
                while unit.sent < self.batch && self.sender.credit() > 0 {
                    let message = desk.content.message(desk.stamp(self.number, self.sequence));
                    let state = DeliveryState::Transactional { txn_id: unit.txn_id, outcome: None };
                    self.sender.send(connection, self.sequence, message, Some(state));
                    self.sequence += 1;
                    unit.sent += 1;
                }
                (unit.sent == self.batch).then_some((unit.txn_id, &mut unit.commit))
            }
            Unit::Get(unit) => (unit.stamps.len() >= self.batch as usize)
                .then_some((unit.txn_id, &mut unit.commit)),
            Unit::Between | Unit::ToPut(_) | Unit::ToGet(_) => None,
        };
        if let Some((txn_id, commit)) = commit
            && commit.sent_at.is_none()
        {
            commit.sent_at = Some(desk.now);
            self.command(connection, COMMIT, content::commit(txn_id));
        }
    }

    fn command(&mut self, connection: &mut Connection, kind: u64, message: towline_types::Payload) {
        let key = self.commands * 2 + kind;
        self.commands += 1;
        self.declare_is_sent |= kind == DECLARE;
        self.coordinator.send(connection, key, message, None);
    }

    pub(super) fn lost(&mut self, desk: &mut Desk) {
        match std::mem::replace(&mut self.unit, Unit::Between) {
            // A commit under way may have been done; what was not committed was rolled back. The
            // application does it again in either case.
            Unit::Put(unit) => {
                if unit.commit.sent_at.is_some() {
                    let first = self.sequence - u64::from(unit.sent);
                    (first..self.sequence).for_each(|n| desk.ledger.in_doubt(self.number, n));
                }
                self.unit = Unit::ToPut(unit.from);
            }
            Unit::ToPut(from) => self.unit = Unit::ToPut(from),
            Unit::Get(unit) if unit.commit.sent_at.is_none() => {
                self.unit = Unit::ToGet(unit.pair_from);
            }
            // Got and perhaps committed: were it asked for again, it might never come.
            Unit::Get(unit) => {
                let stamps = unit.stamps.iter().flatten();
                stamps.for_each(|stamp| desk.ledger.perhaps_received(*stamp));
            }
            Unit::ToGet(from) => self.unit = Unit::ToGet(from),
            Unit::Between => {}
        }
        self.coordinator = Sender::default();
        self.sender = Sender::default();
        self.receiver = None;
        self.attached = 0;
        self.declared = None;
        self.declare_is_sent = false;
        self.order.forget();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.attached == 3
    }

    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.unit, Unit::Between)
    }

    pub(super) fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }
}

/// Notes a committed unit.
fn finish(desk: &mut Desk, kind: Kind, from: Time, commit: Commit) {
    desk.counts.commits += 1;
    desk.time(kind, from);
    if let Some(sent_at) = commit.sent_at {
        desk.time(Kind::Commit, sent_at);
    }
}
