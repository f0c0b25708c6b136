//! The judgement over a group after a round, which goes on at the new active instance when the one
//! that is asked fails over.
//!
//! Not here: the rules (`history`). Invariant: what is judged was read from one active instance
//! from beginning to end. It is only looked at first: what was read before a failover is read
//! again, and what a client takes away is not, when its answer was lost.

use std::collections::HashSet;
use std::time::Duration;

use crate::history::{Contents, History, Id, Queue, Tally};
use crate::{Try, fail, require, wait, workload};

use super::{Group, Instance};

/// Longer than clients are disconnected before another instance is elected.
const FAILOVER_MAX: Duration = Duration::from_secs(10);
/// More of them than a judgement meets on a busy machine.
const FAILOVERS_MAX: usize = 5;

impl Group {
    /// Reads and empties the round's queues through `at`, when nothing is under way any more, and
    /// judges.
    ///
    /// # Errors
    /// The first broken promise, with what the instances said.
    pub fn judge(&self, at: Instance, history: &History) -> Try<Tally> {
        self.judge_while(at, history, &mut |_, _| Ok(()))
    }

    /// The same; `each` is called after each message that is looked at, with its number in its
    /// queue.
    ///
    /// # Errors
    /// As [`Group::judge`].
    pub fn judge_while(
        &self,
        at: Instance,
        history: &History,
        each: &mut dyn FnMut(Queue, usize) -> Try,
    ) -> Try<Tally> {
        let mut judged = || {
            let (at, _, found) =
                self.through_failovers(at, |address| workload::browse_at(address, each))?;
            let tally = history.judge(&found)?;
            let (_, failovers, taken) = self.through_failovers(at, workload::drain_at)?;
            let taken_right = if failovers == 0 { taken == found } else { is_rest(&taken, &found) };
            require!(taken_right, "a browser sees {found:?}, and taken are {taken:?}");
            Ok(tally)
        };
        judged().map_err(|error: Box<dyn std::error::Error + Send + Sync>| {
            self.explained(&error.to_string()).into()
        })
    }

    /// Reads through an instance; when it is not the active one any more before all is read, once
    /// more from the beginning through the one that is. The instance and how many failovers there
    /// were.
    fn through_failovers<T>(
        &self,
        mut at: Instance,
        mut read: impl FnMut(&str) -> Try<T>,
    ) -> Try<(Instance, usize, T)> {
        for failovers in 0..FAILOVERS_MAX {
            let term = self.serving_term().map_or(0, |(_, term)| term);
            self.until_quiet()?;
            let found = read(self.address(at));
            // A part of it may have come from the next one, through a relay.
            if found.is_ok() && self.serving_term().is_some_and(|(_, now)| now == term) {
                return Ok((at, failovers, found?));
            }
            let next = wait::until("a failover", FAILOVER_MAX, || {
                self.serving_term().filter(|(_, newer)| *newer > term)
            });
            // Without one, what went wrong is a finding.
            let Ok((next, _)) = next else { return Ok((at, failovers, found?)) };
            at = next;
        }
        fail!("{FAILOVERS_MAX} failovers during the judgement")
    }

    /// The active instance, when it serves, and its term.
    fn serving_term(&self) -> Option<(Instance, u64)> {
        let (active, group) = self.active_says()?;
        (group["serving"] == true).then_some((active, group["term"].as_u64()?))
    }
}

/// Whether these are some of those messages, each once.
fn is_rest(taken: &Contents, found: &Contents) -> bool {
    taken.iter().all(|(queue, ids)| {
        let all: HashSet<Id> = found.get(queue).into_iter().flatten().copied().collect();
        let once: HashSet<Id> = ids.iter().copied().collect();
        once.len() == ids.len() && once.is_subset(&all)
    })
}
