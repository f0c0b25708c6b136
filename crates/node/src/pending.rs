//! What was decided and is on its way to the log: facts wait here to be applied, replies wait here
//! to be sent, until the log is durable up to their position.

use std::collections::VecDeque;

use towline_core::Fact;
use towline_types::Lsn;

use crate::region_replies::ParkedReply;

/// Facts that the vector keeps capacity for when there are none.
const FACTS_KEPT: usize = 16_384;

/// Decided, not yet durable; in log order.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    runs: VecDeque<Run>,
    facts: VecDeque<Fact>,
}

#[derive(Debug)]
struct Run {
    end: Lsn,
    facts: usize,
    reply: Option<ParkedReply>,
}

/// A run that is durable, without its facts.
#[derive(Debug)]
pub(crate) struct DurableRun {
    /// Where it ends in the log.
    pub(crate) end: Lsn,
    /// The reply that waited for it.
    pub(crate) reply: Option<ParkedReply>,
}

impl Pending {
    /// Parks a run that is durable once the log is durable up to `end`. An `end` before that of the
    /// run parked last (facts that are not logged) waits for that one.
    pub(crate) fn park(
        &mut self,
        end: Lsn,
        facts: impl Iterator<Item = Fact>,
        reply: Option<ParkedReply>,
    ) {
        let before = self.facts.len();
        self.facts.extend(facts);
        let end = self.runs.back().map_or(end, |last| last.end.max(end));
        self.runs.push_back(Run { end, facts: self.facts.len() - before, reply });
    }

    /// The next run that is durable; its facts go to `facts`.
    pub(crate) fn take_durable(
        &mut self,
        durable: Lsn,
        facts: &mut Vec<Fact>,
    ) -> Option<DurableRun> {
        if self.runs.front()?.end > durable {
            return None;
        }
        let run = self.runs.pop_front()?;
        // Each fact belongs to one run. One without a run would never be applied, though it is
        // logged; one too few means that another run was applied in part.
        assert!(run.facts <= self.facts.len(), "a run with facts of which some are missing");
        facts.extend(self.facts.drain(..run.facts));
        assert!(!self.runs.is_empty() || self.facts.is_empty(), "facts that belong to no run");
        if self.facts.is_empty() && self.facts.capacity() > FACTS_KEPT {
            self.facts = VecDeque::new();
        }
        Some(DurableRun { end: run.end, reply: run.reply })
    }

    /// Where the newest run ends.
    pub(crate) fn end(&self) -> Option<Lsn> {
        self.runs.back().map(|run| run.end)
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of runs on their way.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_core::{MessageSequence, QueueId};

    fn got(sequence: u64) -> Fact {
        Fact::Got { queue: QueueId(1), sequence: MessageSequence(sequence) }
    }

    #[test]
    fn a_run_waits_until_the_log_is_durable_up_to_its_end() {
        let mut pending = Pending::default();
        pending.park(Lsn(100), [got(1), got(2)].into_iter(), None);
        let mut facts = Vec::new();
        assert!(pending.take_durable(Lsn(99), &mut facts).is_none());
        assert!(pending.take_durable(Lsn(100), &mut facts).is_some());
        assert_eq!(facts, [got(1), got(2)]);
        assert!(pending.is_empty());
    }

    #[test]
    fn unlogged_facts_wait_behind_what_was_decided_before_them() {
        let mut pending = Pending::default();
        pending.park(Lsn(100), [got(1)].into_iter(), None);
        pending.park(Lsn::ZERO, [got(2)].into_iter(), None);
        let mut facts = Vec::new();
        assert!(pending.take_durable(Lsn(50), &mut facts).is_none());
        assert!(pending.take_durable(Lsn(100), &mut facts).is_some());
        assert!(pending.take_durable(Lsn(100), &mut facts).is_some());
        assert_eq!(facts, [got(1), got(2)]);
    }
}
