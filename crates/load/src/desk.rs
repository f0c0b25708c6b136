//! What the clients of one worker share: the plan, bodies, and the notes of what happened.
//!
//! It knows no connection. Counts are kept here and moved to the board once per turn.

use std::sync::Arc;

use towline_amqp::types::{DeliveryState, Outcome};
use towline_types::{Payload, Time};

use crate::board::{Board, Counts, Phase};
use crate::content::{self, Content};
use crate::events::{Events, What};
use crate::latency::{Kind, Latencies};
use crate::plan::Plan;
use crate::stamp::Stamp;
use crate::verify::{Ledger, Order};

/// Different refusals shown in the report.
const REMARKS_MAX: usize = 5;

/// See the module.
pub(crate) struct Desk {
    pub(crate) plan: Arc<Plan>,
    pub(crate) board: Arc<Board>,
    pub(crate) content: Content,
    pub(crate) ledger: Ledger,
    pub(crate) latencies: Latencies,
    pub(crate) counts: Counts,
    pub(crate) phase: Phase,
    /// Time of this turn.
    pub(crate) now: Time,
    /// Refusals and oddities in the broker's words.
    pub(crate) remarks: Vec<String>,
    /// What happened to each client.
    pub(crate) events: Events,
    /// When the last put or unit was confirmed.
    confirmed_at: Option<Time>,
    /// Longest time between two confirmations while measuring, in microseconds.
    pub(crate) gap_max_us: u64,
}

impl Desk {
    /// A desk for one worker.
    pub(crate) fn new(plan: Arc<Plan>, board: Arc<Board>) -> Desk {
        Desk {
            content: Content::new(&plan),
            ledger: Ledger::new(plan.run, plan.adopts),
            latencies: Latencies::default(),
            counts: Counts::default(),
            phase: Phase::Connect,
            now: Time::ZERO,
            remarks: Vec::new(),
            events: Events::new(plan.keeps_events),
            confirmed_at: None,
            gap_max_us: 0,
            plan,
            board,
        }
    }

    /// Whether operations may begin.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Warm | Phase::Measure)
    }

    /// Moves to another phase: what the warm-up recorded is forgotten.
    pub(crate) fn enter(&mut self, phase: Phase) {
        if phase == Phase::Measure {
            self.latencies.clear();
            self.confirmed_at = None;
            self.gap_max_us = 0;
        }
        self.phase = phase;
    }

    /// Times something that ends now, while measuring.
    pub(crate) fn time(&mut self, kind: Kind, from: Time) {
        if self.phase == Phase::Measure {
            self.latencies.record(kind, from, self.now);
        }
    }

    /// A stamp for a message put now.
    pub(crate) fn stamp(&self, producer: u32, sequence: u64) -> Stamp {
        Stamp { run: self.plan.run, producer, sequence, put_at: self.now }
    }

    /// A put was confirmed.
    pub(crate) fn put_accepted(&mut self, producer: u32, sequence: u64) {
        self.ledger.accepted(producer, sequence);
        self.counts.puts += 1;
        self.event(producer, What::Put);
        if let Some(before) = self.confirmed_at.replace(self.now)
            && self.phase == Phase::Measure
        {
            let gap = u64::try_from(self.now.since(before).as_micros()).unwrap_or(u64::MAX);
            self.gap_max_us = self.gap_max_us.max(gap);
        }
    }

    /// Something happened to a client.
    pub(crate) fn event(&mut self, client: u32, what: What) {
        if !self.events.note(self.now, client, what) {
            self.remark("not all events could be kept".into());
        }
    }

    /// The stamp of a message that came.
    pub(crate) fn read_stamp(payload: &Payload) -> Option<Stamp> {
        content::body_start(payload)
    }

    /// A message was got for good.
    pub(crate) fn got(&mut self, stamp: Option<Stamp>, order: &mut Order) {
        if self.phase >= Phase::Stop || self.board.has_returned() {
            order.forget();
        }
        self.counts.gets += 1;
        self.counts.received += u64::from(stamp.is_some_and(|s| s.run == self.plan.run));
        self.ledger.received(stamp, order);
        if let Some(stamp) = stamp {
            self.time(Kind::Through, stamp.put_at);
        }
    }

    /// The broker did not accept something.
    pub(crate) fn refused(&mut self, what: &str, state: Option<&DeliveryState>) {
        self.counts.refused += 1;
        self.remark(format!("{what}: {}", describe(state)));
    }

    /// Keeps a sentence for the report.
    pub(crate) fn remark(&mut self, remark: String) {
        if self.remarks.len() < REMARKS_MAX && !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }
}

/// Whether a state is `accepted`, also inside a transactional one.
pub(crate) fn is_accepted(state: Option<&DeliveryState>) -> bool {
    matches!(
        state,
        Some(
            DeliveryState::Accepted
                | DeliveryState::Transactional { outcome: Some(Outcome::Accepted), .. }
        )
    )
}

fn describe(state: Option<&DeliveryState>) -> String {
    match state {
        Some(
            DeliveryState::Rejected { error }
            | DeliveryState::Transactional { outcome: Some(Outcome::Rejected { error }), .. },
        ) => match error {
            Some(error) => {
                let words = error.description.as_deref().unwrap_or("no description");
                format!("rejected, {}: {words}", error.condition)
            }
            None => "rejected".into(),
        },
        Some(other) => format!("{other:?}"),
        None => "settled without an outcome".into(),
    }
}
