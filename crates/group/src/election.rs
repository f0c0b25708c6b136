//! When a member that hears no leader asks to become one.
//!
//! The library would draw its own time-out from the system's randomness and wait a whole one
//! between tries; here the first try comes soon after the leader is known to be gone, and further
//! ones follow in short random pauses until there is a leader. That costs no stability: a member
//! that still hears the leader answers no such question (check-quorum, pre-vote). A member that
//! voted for another one gives it a pause to become the leader: an heir with a busy disk would
//! otherwise be overtaken.

use std::time::Duration;

use towline_types::{SeededRandom, Time};

/// The longest pause before the first try: two members seldom ask at once.
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(15);
/// Pause before a further try, without what chance adds.
const FURTHER_PAUSE: Duration = Duration::from_millis(40);
/// What chance adds at most.
const FURTHER_PAUSE_MORE: Duration = Duration::from_millis(80);
/// Pause after this member gave its vote to another, without what chance adds: that one's disk,
/// which must keep its own vote first, may be busy.
const FAVOUR_PAUSE: Duration = Duration::from_millis(250);
/// What chance adds at most.
const FAVOUR_PAUSE_MORE: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub(crate) struct Election {
    random: SeededRandom,
    at: Option<Time>,
    /// Newest term in which this member gave its vote to another.
    favoured_in: Option<u64>,
}

impl Election {
    pub(crate) fn new(seed: u64) -> Election {
        Election { random: SeededRandom::mixed(seed), at: None, favoured_in: None }
    }

    fn pause_below(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.random.below(most))
    }

    /// When the next try is; `None` while there is a leader.
    pub(crate) fn at(&self) -> Option<Time> {
        self.at
    }

    /// There is a leader, or this member is one.
    pub(crate) fn settled(&mut self) {
        self.at = None;
    }

    /// There is no leader; true when it is time to ask. `favoured_in`: the term, if this member
    /// gave its vote in it to another.
    pub(crate) fn is_due(&mut self, now: Time, favoured_in: Option<u64>) -> bool {
        if favoured_in > self.favoured_in {
            self.favoured_in = favoured_in;
            self.at = Some(now + FAVOUR_PAUSE + self.pause_below(FAVOUR_PAUSE_MORE));
            return false;
        }
        let at = match self.at {
            Some(at) => at,
            None => now + self.pause_below(FIRST_PAUSE_MAX),
        };
        if now < at {
            self.at = Some(at);
            return false;
        }
        self.at = Some(now + FURTHER_PAUSE + self.pause_below(FURTHER_PAUSE_MORE));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_try_comes_soon_and_further_ones_in_short_pauses() {
        let mut election = Election::new(3);
        let start = Time(1_000_000);
        let mut tries = Vec::new();
        for ms in 0..400 {
            let now = start + Duration::from_millis(ms);
            if election.is_due(now, None) {
                tries.push(ms);
            }
        }
        assert!(tries[0] <= 15, "{tries:?}");
        assert!((4..=10).contains(&tries.len()), "{tries:?}");
        election.settled();
        assert_eq!(election.at(), None);
    }

    #[test]
    fn a_member_that_gave_its_vote_waits_a_pause_and_asks_then() {
        let start = Time(1_000_000);
        for seed in 0..50 {
            let mut election = Election::new(seed);
            let first = (0..1_000).find(|ms| {
                let now = start + Duration::from_millis(*ms);
                election.is_due(now, (*ms >= 1).then_some(7))
            });
            let first = first.unwrap();
            // It may have asked before it gave its vote.
            assert!(first == 0 || (250..=501).contains(&first), "seed {seed}: {first} ms");
        }
    }
}
