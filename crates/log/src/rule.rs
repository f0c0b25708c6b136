//! Group commit without a timer: when an idle writer takes the open batch.
//!
//! A batch is what arrived while earlier ones were being written. With nothing in flight, what
//! somebody waits for goes at once. With batches in flight, the open one goes when it holds at
//! least as many forced runs as all of them together: so each further write at least doubles what
//! is on its way, a few writes are enough for any number of clients, and of N clients on a slow
//! disk nearly all travel in one batch instead of in two alternating halves. A full batch goes in
//! any case.
//!
//! Pure: facts in, decision out. Time is an argument.

use std::time::{Duration, Instant};

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
    /// The log is being shut down.
    pub(crate) closing: bool,
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
        return if facts.in_flight == 0 || facts.open_forced >= facts.in_flight_forced {
            Decision::Take
        } else {
            Decision::Wait
        };
    }
    match facts.lazy_since.map(|since| since + lazy_delay) {
        // Behind a write in flight a lazy run waits on: what comes back may bring a forced one.
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
            closing: false,
        }
    }

    fn now_decide(facts: &Facts) -> Decision {
        decide(facts, TARGET, LAZY, Instant::now())
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

    /// Runs `clients` for `ticks` syncs' time. Within a tick, whoever was answered commits again,
    /// one after the other, and an idle writer looks after each.
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
