//! What the threads of a run share: the phase, counts, and the first failure.
//!
//! The main thread sets the phase and reads; each worker adds its counts and rewrites its own
//! cells. Nothing here is on the path of one message, except for the tickets of `get --count`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where a run stands. Only ever rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Connections are made.
    Connect,
    /// The load runs, unmeasured.
    Warm,
    /// The load runs, measured.
    Measure,
    /// Nothing new is begun; what is under way is finished.
    Stop,
    /// Connections are closed.
    End,
}

const PHASES: [Phase; 5] = [Phase::Connect, Phase::Warm, Phase::Measure, Phase::Stop, Phase::End];

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Puts confirmed.
    pub(crate) puts: u64,
    /// Messages got and settled.
    pub(crate) gets: u64,
    /// Pairs of one put and one get done by a requester.
    pub(crate) pairs: u64,
    /// Units of work committed.
    pub(crate) commits: u64,
    /// Replies put by a responder.
    pub(crate) replies: u64,
    /// Operations that the broker did not accept.
    pub(crate) refused: u64,
    /// Messages of this run got.
    pub(crate) received: u64,
    /// Connections made again.
    pub(crate) reconnects: u64,
}

/// Number of fields of [`Counts`].
const COUNTS: usize = 8;

impl Counts {
    const fn fields(self) -> [u64; COUNTS] {
        let Counts { puts, gets, pairs, commits, replies, refused, received, reconnects } = self;
        [puts, gets, pairs, commits, replies, refused, received, reconnects]
    }

    const fn from_fields(fields: [u64; COUNTS]) -> Counts {
        let [puts, gets, pairs, commits, replies, refused, received, reconnects] = fields;
        Counts { puts, gets, pairs, commits, replies, refused, received, reconnects }
    }

    /// What was done since `earlier`.
    pub(crate) fn since(self, earlier: Counts) -> Counts {
        let mut fields = self.fields();
        for (now, before) in fields.iter_mut().zip(earlier.fields()) {
            *now = now.saturating_sub(before);
        }
        Counts::from_fields(fields)
    }
}

/// The state of one worker's clients.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Clients with all their links up.
    pub(crate) ready: AtomicU32,
    /// Clients with an operation under way.
    pub(crate) busy: AtomicU32,
    /// Clients that drive and have not used up their quota.
    pub(crate) unfinished: AtomicU32,
}

/// The board.
#[derive(Debug)]
pub(crate) struct Board {
    phase: AtomicU8,
    counts: [AtomicU64; COUNTS],
    cells: Vec<Cells>,
    failure: Mutex<Option<String>>,
    tickets: AtomicU64,
    returned: AtomicBool,
}

impl Board {
    /// A board for `workers` threads.
    pub(crate) fn new(workers: u32) -> Board {
        Board {
            phase: AtomicU8::new(0),
            counts: Default::default(),
            cells: (0..workers).map(|_| Cells::default()).collect(),
            failure: Mutex::new(None),
            tickets: AtomicU64::new(0),
            returned: AtomicBool::new(false),
        }
    }

    /// Where the run stands.
    pub(crate) fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Moves on.
    pub(crate) fn set_phase(&self, phase: Phase) {
        assert!(phase >= self.phase(), "phases only rise");
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Adds what a worker did.
    pub(crate) fn add(&self, counts: Counts) {
        for (sum, count) in self.counts.iter().zip(counts.fields()) {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// What all workers did.
    pub(crate) fn counts(&self) -> Counts {
        Counts::from_fields(std::array::from_fn(|i| self.counts[i].load(Ordering::Relaxed)))
    }

    /// The cells of one worker.
    pub(crate) fn cells(&self, worker: usize) -> &Cells {
        &self.cells[worker]
    }

    /// Clients of all workers with their links up.
    pub(crate) fn ready(&self) -> u32 {
        self.cells.iter().map(|cells| cells.ready.load(Ordering::Acquire)).sum()
    }

    /// Clients of all workers with an operation under way.
    pub(crate) fn busy(&self) -> u32 {
        self.cells.iter().map(|cells| cells.busy.load(Ordering::Acquire)).sum()
    }

    /// Driving clients of all workers with quota left.
    pub(crate) fn unfinished(&self) -> u32 {
        self.cells.iter().map(|cells| cells.unfinished.load(Ordering::Acquire)).sum()
    }

    /// Notes what ends the run; the first one counts.
    pub(crate) fn fail(&self, reason: String) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(reason);
    }

    /// What ended the run.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes one of `count` tickets; false when all are gone.
    pub(crate) fn take_ticket(&self, count: u64) -> bool {
        self.tickets.fetch_add(1, Ordering::Relaxed) < count
    }

    /// A client gave messages back: from now on order proves nothing.
    pub(crate) fn messages_returned(&self) {
        self.returned.store(true, Ordering::Release);
    }

    /// Whether a client gave messages back.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_numbered_as_they_are_listed() {
        for (phase, number) in PHASES.into_iter().zip(0..) {
            assert_eq!(phase as u8, number);
        }
    }

    #[test]
    fn workers_add_up() {
        let board = Board::new(2);
        board.add(Counts { puts: 2, reconnects: 1, ..Counts::default() });
        let before = board.counts();
        board.add(Counts { puts: 3, ..Counts::default() });
        assert_eq!(board.counts().puts, 5);
        assert_eq!(board.counts().since(before), Counts { puts: 3, ..Counts::default() });
    }

    #[test]
    fn tickets_run_out() {
        let board = Board::new(1);
        assert!(board.take_ticket(2) && board.take_ticket(2) && !board.take_ticket(2));
    }

    #[test]
    fn the_first_failure_counts() {
        let board = Board::new(1);
        board.fail("one".into());
        board.fail("two".into());
        assert_eq!(board.failure().as_deref(), Some("one"));
    }
}
