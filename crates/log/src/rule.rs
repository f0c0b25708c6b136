//! Group commit without a timer: when an idle writer takes the open batch.
//!
//! A batch is what arrived while earlier ones were being written. With nothing in flight, a forced
//! run is written at once. On a fast disk one write at a time is best: a second one would only be
//! smaller, and cost processor time and latency (measured: docs/benchmarks). On a slow disk the
//! open batch goes beside others when it holds at least as many forced runs as all of them
//! together: so each further write at least doubles what is on its way, a few writes are enough for
//! any number of clients, and of N clients nearly all travel in one batch instead of in two
//! alternating halves. A full batch goes in any case.
//!
//! When batches held many forced runs lately, the thread that takes the next one first yields its
//! processor: where all processors are busy, it yields to clients and connections whose messages
//! then travel along; where one is idle it costs a microsecond.
//!
//! Pure: facts in, decision out. Time is an argument.

use std::time::Duration;
use towline_os::time::Instant;

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Content of the open batch, header included; zero when no batch is open or it is empty.
    pub(crate) open_bytes: usize,
    /// Forced runs in it.
    pub(crate) open_forced: u64,
    /// When its first lazy run came.
    pub(crate) lazy_since: Option<Instant>,
    /// Batches handed to the disk and not back.
    pub(crate) in_flight: usize,
    /// Forced runs in those.
    pub(crate) in_flight_forced: u64,
    /// Writes lately took longer than `Options::slow_write`.
    pub(crate) disk_is_slow: bool,
    /// Bytes of the open batch from which on it goes beside others however few commits it holds:
    /// what a batch costs by itself is little then, and on the way to other instances many small
    /// ones overlap where one large one does not. `usize::MAX` for a single instance.
    pub(crate) beside_from_bytes: usize,
    /// The log is being shut down.
    pub(crate) closing: bool,
    /// Only the reserve is left.
    pub(crate) log_is_full: bool,
}

/// How many times longer lazy runs gather while the log is full: each batch takes a block of the
/// reserve, however little is in it, and the runs that free space (gets) are lazy.
const FULL_LAZY_FACTOR: u32 = 20;

/// Typical time of a write: a moving average that forgets in about eight writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TypicalWrite {
    us: u64,
}

impl TypicalWrite {
    /// A write took this long.
    pub(crate) fn enter(&mut self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.us = (self.us.saturating_mul(7).saturating_add(took_us)) / 8;
    }

    pub(crate) fn is_slow(self, slow_write: Duration) -> bool {
        Duration::from_micros(self.us) >= slow_write
    }
}

/// Typical number of forced runs in a batch: a moving average that forgets in about eight batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TypicalCompany {
    sixteenths: u64,
}

impl TypicalCompany {
    /// From so many on, other threads have something to add. A few clients only lose time by
    /// waiting.
    const MANY: u64 = 4;

    /// A batch with so many forced runs leaves.
    pub(crate) fn enter(&mut self, forced: u64) {
        self.sixteenths = (self.sixteenths.saturating_mul(7).saturating_add(forced * 16)) / 8;
    }

    fn is_many(self) -> bool {
        self.sixteenths >= TypicalCompany::MANY * 16
    }
}

/// Times that a writer lets others go first.
pub(crate) const YIELDS_MAX: u32 = 3;
/// How long it does so: one of them may keep the processor for a slice of the system's, a
/// millisecond or two, and then it is enough.
pub(crate) const YIELD_FOR: Duration = Duration::from_micros(200);

/// Whether a writer that may take the open batch lets others go first.
pub(crate) fn expects_company(facts: &Facts, typical: TypicalCompany) -> bool {
    facts.open_forced > 0 && !facts.closing && typical.is_many()
}

/// What an idle writer does about the open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Write it.
    Take,
    /// Look again when something was appended or a batch came back.
    Wait,
    /// Look again then, and at this time at the latest.
    WaitUntil(Instant),
}

/// The rule.
pub(crate) fn decide(
    facts: &Facts,
    bytes_target: usize,
    lazy_delay: Duration,
    now: Instant,
) -> Decision {
    if facts.open_bytes == 0 {
        return Decision::Wait;
    }
    if facts.open_bytes >= bytes_target || facts.closing {
        return Decision::Take;
    }
    if facts.open_forced > 0 {
        let beside = facts.disk_is_slow && facts.open_forced >= facts.in_flight_forced
            || facts.open_bytes >= facts.beside_from_bytes;
        return if facts.in_flight == 0 || beside { Decision::Take } else { Decision::Wait };
    }
    let factor = if facts.log_is_full { FULL_LAZY_FACTOR } else { 1 };
    let lazy_delay = lazy_delay.saturating_mul(factor);
    match facts.lazy_since.map(|since| since + lazy_delay) {
        // Behind a write in flight a lazy run waits on: the completed write may cause a forced one.
        Some(due) if due <= now && facts.in_flight == 0 => Decision::Take,
        Some(due) if facts.in_flight == 0 => Decision::WaitUntil(due),
        Some(_) | None => Decision::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: usize = 1_000;
    const LAZY: Duration = Duration::from_millis(1);

    fn facts(open_forced: u64, in_flight: usize, in_flight_forced: u64) -> Facts {
        let lazy_since = None;
        Facts {
            open_bytes: 100,
            open_forced,
            lazy_since,
            in_flight,
            in_flight_forced,
            disk_is_slow: true,
            beside_from_bytes: usize::MAX,
            closing: false,
            log_is_full: false,
        }
    }

    fn now_decide(facts: &Facts) -> Decision {
        decide(facts, TARGET, LAZY, Instant::now())
    }

    /// After so many batches of so many forced runs each.
    fn typical(batches: usize, forced: u64) -> TypicalCompany {
        let mut typical = TypicalCompany::default();
        (0..batches).for_each(|_| typical.enter(forced));
        typical
    }

    #[test]
    fn company_is_expected_when_batches_held_many_forced_runs_lately() {
        let open = facts(1, 0, 0);
        assert!(!expects_company(&open, typical(0, 0)));
        assert!(!expects_company(&open, typical(100, 3)));
        assert!(!expects_company(&open, typical(1, 30)), "one batch is no habit");
        assert!(expects_company(&open, typical(8, 10)));
        let mut ended = typical(100, 100);
        (0..30).for_each(|_| ended.enter(1));
        assert!(!expects_company(&open, ended), "those who came are gone");
    }

    #[test]
    fn nobody_waits_for_company_at_the_end_or_for_a_lazy_run() {
        assert!(!expects_company(&Facts { closing: true, ..facts(9, 0, 0) }, typical(100, 9)));
        assert!(!expects_company(&facts(0, 0, 0), typical(100, 9)));
    }

    #[test]
    fn a_forced_run_goes_at_once_when_nothing_is_in_flight() {
        assert_eq!(now_decide(&facts(1, 0, 0)), Decision::Take);
    }

    #[test]
    fn behind_writes_in_flight_a_batch_goes_when_it_holds_as_many_forced_runs() {
        assert_eq!(now_decide(&facts(6, 2, 7)), Decision::Wait);
        assert_eq!(now_decide(&facts(7, 2, 7)), Decision::Take);
        assert_eq!(now_decide(&facts(1, 1, 0)), Decision::Take);
    }

    #[test]
    fn in_a_group_a_batch_that_is_large_enough_goes_beside_others() {
        let group = Facts { beside_from_bytes: 100, ..facts(1, 3, 50) };
        assert_eq!(now_decide(&group), Decision::Take);
        assert_eq!(now_decide(&Facts { open_bytes: 99, ..group }), Decision::Wait);
    }

    #[test]
    fn on_a_fast_disk_one_write_at_a_time_goes() {
        let fast = Facts { disk_is_slow: false, ..facts(9, 1, 1) };
        assert_eq!(now_decide(&fast), Decision::Wait);
        let mut typical = TypicalWrite::default();
        typical.enter(Duration::from_micros(100));
        typical.enter(Duration::from_millis(6));
        assert!(!typical.is_slow(Duration::from_millis(1)), "one late write is not a slow disk");
        (0..8).for_each(|_| typical.enter(Duration::from_millis(5)));
        assert!(typical.is_slow(Duration::from_millis(1)));
    }

    #[test]
    fn a_full_batch_goes_in_any_case() {
        let full = Facts { open_bytes: TARGET, ..facts(0, 3, 50) };
        assert_eq!(now_decide(&full), Decision::Take);
    }

    #[test]
    fn a_lazy_run_waits_for_its_delay_and_for_the_disk() {
        let now = Instant::now();
        let lazy = Facts { lazy_since: Some(now), ..facts(0, 0, 0) };
        assert_eq!(decide(&lazy, TARGET, LAZY, now), Decision::WaitUntil(now + LAZY));
        assert_eq!(decide(&lazy, TARGET, LAZY, now + LAZY), Decision::Take);
        let full = Facts { log_is_full: true, ..lazy };
        assert_eq!(decide(&full, TARGET, LAZY, now + LAZY), Decision::WaitUntil(now + LAZY * 20));
        let behind = Facts { in_flight: 1, ..lazy };
        assert_eq!(decide(&behind, TARGET, LAZY, now + LAZY), Decision::Wait);
        let ridden = Facts { open_forced: 1, ..lazy };
        assert_eq!(decide(&ridden, TARGET, LAZY, now), Decision::Take);
    }

    #[test]
    fn nothing_is_written_when_there_is_nothing() {
        let nothing = Facts { open_bytes: 0, closing: true, ..facts(0, 0, 0) };
        assert_eq!(now_decide(&nothing), Decision::Wait);
    }

    /// 64 clients in a closed loop, each sync one tick of virtual time, four writers: nearly all
    /// must travel in every tick. (Half of them would be what one batch in flight gives.)
    #[test]
    fn sixty_four_clients_reach_forty_times_the_rate_of_one() {
        assert!(commits_in_ticks(1, 100) <= 100);
        let commits = commits_in_ticks(64, 100);
        assert!(commits >= 40 * 100, "{commits} commits in 100 ticks");
    }

    /// Simulates `clients` for the duration of `ticks` syncs. Within a tick, the answered clients
    /// commit again, one after the other, and an idle writer looks after each.
    fn commits_in_ticks(clients: u64, ticks: u64) -> u64 {
        let steps = 1_000; // steps of virtual time in one sync
        let mut flights: Vec<(u64, u64)> = Vec::new(); // (done at step, forced)
        let mut open = 0;
        let mut answered = clients;
        let mut commits = 0;
        for step in 0..ticks * steps {
            let back: u64 = flights.iter().filter(|f| f.0 <= step).map(|f| f.1).sum();
            flights.retain(|f| f.0 > step);
            answered += back;
            commits += back;
            for _ in 0..answered.min(4) {
                answered -= 1;
                open += 1;
                let in_flight_forced = flights.iter().map(|f| f.1).sum();
                let facts = facts(open, flights.len(), in_flight_forced);
                if flights.len() < 4 && now_decide(&facts) == Decision::Take {
                    flights.push((step + steps, open));
                    open = 0;
                }
            }
            let in_flight_forced = flights.iter().map(|f| f.1).sum();
            let facts = facts(open, flights.len(), in_flight_forced);
            if open > 0 && flights.len() < 4 && now_decide(&facts) == Decision::Take {
                flights.push((step + steps, open));
                open = 0;
            }
        }
        commits
    }
}
