//! What large units of work take of the log and of memory, and their end when it is too much.
//!
//! Not here: when the log is nearly full (the surroundings say so).

use towline_admin::status::UnitsStatus;
use towline_core::Fact;
use towline_types::{Lsn, Time};

use super::{Instance, Outbound};
use crate::journal::Journal;

/// Facts that the vector keeps capacity for: a run of a million is seldom.
const FACTS_KEPT: usize = 16_384;

/// An empty vector to use again, without the capacity for an unusually large run.
pub(super) fn reusable(facts: Vec<Fact>) -> Vec<Fact> {
    if facts.capacity() > FACTS_KEPT { Vec::new() } else { facts }
}

impl Instance {
    /// Units of work that are open.
    #[must_use]
    pub fn units_open(&self) -> usize {
        self.rules.open_units()
    }

    /// Where the oldest body is in the log that an open unit of work sent ahead, if there is one:
    /// the log cannot be reused from there on while the unit is open.
    #[must_use]
    pub fn oldest_of_units(&self) -> Option<Lsn> {
        self.rules.oldest_unit_in_log().map(|(_, at)| at)
    }

    /// Whether there may be bodies in the log to which no put refers yet, those of open units of
    /// work among them. Cheap: asked after each step.
    #[must_use]
    pub fn has_bodies_ahead(&self) -> bool {
        self.rules.has_bodies_ahead()
    }

    /// Whether bodies are being given up, in slices: it is not known yet how much of the log is
    /// needed.
    #[must_use]
    pub fn gives_log_back(&self) -> bool {
        self.rules.has_garbage()
    }

    /// What units of work take.
    #[must_use]
    pub fn units_status(&self) -> UnitsStatus {
        let oldest = self.oldest_of_units().map(|at| at.to_string());
        UnitsStatus {
            open: self.rules.open_units() as u64,
            memory_bytes: self.rules.staged_bytes(),
            log_bytes: self.rules.bytes_ahead(),
            oldest_lsn: oldest.unwrap_or_default(),
            ended_for_log: self.units_ended_for_log,
        }
    }

    /// Rolls back the unit of work that holds the oldest position of the log, if there is one.
    pub(super) fn end_oldest_unit(
        &mut self,
        now: Time,
        percent: u64,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let ended = self.rules.end_oldest_unit_in_log(now, percent, &mut self.outputs);
        self.units_ended_for_log += u64::from(ended);
        self.take_outputs(journal, out);
    }
}
