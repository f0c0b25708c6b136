//! When a standby may take over: the table, and what it must remember for it.
//!
//! Not here: reading files, reading clocks.
//!
//! Why a lease that has expired for a standby has expired for its holder: the holder counts it from
//! before the write of a renewal, the standby from after the read that first saw it, which is
//! later; both clocks go on while the machine sleeps; the margin covers clocks of different speed.
//! A renewal that ends after the lease does not count for the holder, so a renewal that the standby
//! did not see at its last look cannot have prolonged the lease.

use std::time::Duration;

use crate::record::{LeaseRecord, RECORD_BYTES};

/// The newest epoch, as a look at the folder found it.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) epoch: u64,
    /// Its file, as far as there is one.
    pub(crate) content: [u8; RECORD_BYTES],
    /// A living process has its lock.
    pub(crate) is_locked: bool,
}

/// Whether a standby may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its holder may be active.
    Wait,
    /// The next epoch may begin.
    Take(Reason),
}

/// Why the next epoch may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no epoch yet.
    New,
    /// Its holder wrote that it has ended.
    GivenUp,
    /// Its holder's lock is free: the process is gone.
    Gone,
    /// Its holder renewed nothing for longer than its lease: it may be stopped, or cut off.
    Silent,
}

impl Reason {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Reason::New => "no instance was active before",
            Reason::GivenUp => "the active instance has ended",
            Reason::Gone => "the process of the active instance has ended",
            Reason::Silent => "the lease of the active instance has expired",
        }
    }
}

/// How long a standby waits for a renewal: clocks may differ by a quarter in speed.
pub(crate) fn with_margin(lease: Duration) -> Duration {
    lease.saturating_add(lease / 4)
}

/// What one standby has observed.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Used when the lease of the holder cannot be read.
    own_lease: Duration,
    /// Whether a free lock means that the holder has ended.
    trusts_lock: bool,
    seen: Option<(Look, Duration)>,
}

impl Watch {
    pub(crate) fn new(own_lease: Duration, trusts_lock: bool) -> Watch {
        Watch { own_lease, trusts_lock, seen: None }
    }

    /// `look` was read between `began` and `now`; `None`: there is no epoch. A record that is new
    /// in this look counts from `now`; silence is counted up to `began`, however long this process
    /// stood still after that.
    pub(crate) fn judge(&mut self, look: Option<&Look>, began: Duration, now: Duration) -> Verdict {
        let Some(look) = look else { return Verdict::Take(Reason::New) };
        let record = LeaseRecord::decode(&look.content);
        let since = match &self.seen {
            Some((seen, since)) if seen.epoch == look.epoch && seen.content == look.content => {
                *since
            }
            Some(_) | None => now,
        };
        self.seen = Some((look.clone(), since));
        if record.as_ref().is_some_and(|record| record.given_up) {
            return Verdict::Take(Reason::GivenUp);
        }
        if self.trusts_lock && !look.is_locked {
            return Verdict::Take(Reason::Gone);
        }
        let lease = record.map(|record| Duration::from_millis(u64::from(record.lease_ms)));
        let silent = began.saturating_sub(since);
        if silent > with_margin(lease.unwrap_or(self.own_lease)) {
            Verdict::Take(Reason::Silent)
        } else {
            Verdict::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(1_000);

    fn look(epoch: u64, counter: u64) -> Look {
        let holder = "there:1".to_owned();
        let record = LeaseRecord {
            given_up: false,
            lease_ms: 1_000,
            epoch,
            counter,
            window_bytes: 0,
            holder,
        };
        Look { epoch, content: record.encode(), is_locked: true }
    }

    fn given_up(mut look: Look) -> Look {
        let record = LeaseRecord::decode(&look.content).unwrap();
        look.content = LeaseRecord { given_up: true, ..record }.encode();
        look
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(50_000 + ms)
    }

    #[test]
    fn without_an_epoch_the_first_one_begins() {
        assert_eq!(Watch::new(LEASE, true).judge(None, at(0), at(0)), Verdict::Take(Reason::New));
    }

    #[test]
    fn every_row_of_the_table_of_a_first_look() {
        let free = Look { is_locked: false, ..look(3, 1) };
        let torn = Look { content: [1; RECORD_BYTES], ..look(3, 1) };
        let torn_free = Look { is_locked: false, ..torn.clone() };
        let rows = [
            (look(3, 1), true, Verdict::Wait),
            (look(3, 1), false, Verdict::Wait),
            (free.clone(), true, Verdict::Take(Reason::Gone)),
            (free.clone(), false, Verdict::Wait),
            (given_up(look(3, 1)), true, Verdict::Take(Reason::GivenUp)),
            (given_up(look(3, 1)), false, Verdict::Take(Reason::GivenUp)),
            (given_up(free), false, Verdict::Take(Reason::GivenUp)),
            (torn.clone(), true, Verdict::Wait),
            (torn, false, Verdict::Wait),
            (torn_free.clone(), true, Verdict::Take(Reason::Gone)),
            (torn_free, false, Verdict::Wait),
        ];
        for (look, trusts_lock, verdict) in rows {
            let mut watch = Watch::new(LEASE, trusts_lock);
            assert_eq!(watch.judge(Some(&look), at(0), at(0)), verdict, "{look:?} {trusts_lock}");
        }
    }

    #[test]
    fn a_holder_that_is_silent_for_its_lease_and_the_margin_is_succeeded_although_it_has_the_lock()
    {
        for trusts_lock in [true, false] {
            let mut watch = Watch::new(LEASE * 100, trusts_lock);
            assert_eq!(watch.judge(Some(&look(3, 1)), at(0), at(0)), Verdict::Wait);
            assert_eq!(watch.judge(Some(&look(3, 1)), at(1_250), at(1_250)), Verdict::Wait);
            let verdict = watch.judge(Some(&look(3, 1)), at(1_251), at(1_251));
            assert_eq!(verdict, Verdict::Take(Reason::Silent));
        }
    }

    #[test]
    fn a_renewal_restarts_the_time_and_so_does_another_epoch() {
        let mut watch = Watch::new(LEASE, true);
        assert_eq!(watch.judge(Some(&look(3, 1)), at(0), at(0)), Verdict::Wait);
        assert_eq!(watch.judge(Some(&look(3, 2)), at(1_200), at(1_200)), Verdict::Wait);
        assert_eq!(watch.judge(Some(&look(3, 2)), at(2_450), at(2_450)), Verdict::Wait);
        assert_eq!(watch.judge(Some(&look(4, 1)), at(2_451), at(2_451)), Verdict::Wait);
        assert_eq!(watch.judge(Some(&look(4, 1)), at(3_701), at(3_701)), Verdict::Wait);
        assert_eq!(
            watch.judge(Some(&look(4, 1)), at(3_702), at(3_702)),
            Verdict::Take(Reason::Silent)
        );
    }

    #[test]
    fn a_look_that_took_long_proves_no_silence_while_it_lasted() {
        let mut watch = Watch::new(LEASE, true);
        assert_eq!(watch.judge(Some(&look(3, 1)), at(0), at(100)), Verdict::Wait);
        // Read in time; the process was stopped after that.
        assert_eq!(watch.judge(Some(&look(3, 1)), at(1_300), at(9_000)), Verdict::Wait);
        let verdict = watch.judge(Some(&look(3, 1)), at(9_001), at(9_001));
        assert_eq!(verdict, Verdict::Take(Reason::Silent));
    }

    #[test]
    fn half_a_record_is_waited_for_with_the_lease_of_ones_own() {
        let torn = Look { content: [1; RECORD_BYTES], ..look(3, 1) };
        let mut watch = Watch::new(LEASE * 2, true);
        assert_eq!(watch.judge(Some(&torn), at(0), at(0)), Verdict::Wait);
        assert_eq!(watch.judge(Some(&torn), at(2_500), at(2_500)), Verdict::Wait);
        assert_eq!(watch.judge(Some(&torn), at(2_501), at(2_501)), Verdict::Take(Reason::Silent));
    }
}
