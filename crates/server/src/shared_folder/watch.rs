//! When a standby may take over: the table, and what it has to remember for it.
//!
//! Not here: reading files, reading clocks.
//!
//! Why a lease that has run out for us has run out for its holder: the holder counts it from before
//! the write of a renewal, we count from after the read that first saw it, so we count from later;
//! both clocks go on while the machine sleeps; and how much faster ours may go is in the margin. A
//! renewal that ends after the lease does not count for the holder, so that what we did not see
//! when we looked last cannot have prolonged it.

use std::time::Duration;

use super::record::{RECORD_BYTES, Record};

/// What a look at the folder found of the newest epoch.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) epoch: u64,
    /// Its file, as far as there is one.
    pub(super) content: [u8; RECORD_BYTES],
    /// Somebody who lives has its lock.
    pub(super) is_locked: bool,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its holder may be active.
    Wait,
    /// The next epoch may begin.
    Take(Reason),
}

/// Why the next epoch may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is no epoch yet.
    New,
    /// Its holder said that it has ended.
    GivenUp,
    /// Its holder's lock is free: the process is gone.
    Gone,
    /// Nothing was heard of its holder for longer than its lease: it may be stopped, or cut off.
    Silent,
}

impl Reason {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Reason::New => "no instance was active before",
            Reason::GivenUp => "the active instance has ended",
            Reason::Gone => "the process of the active instance has ended",
            Reason::Silent => "the lease of the active instance has expired",
        }
    }
}

/// How much longer than a lease lasts it is waited: clocks may differ by a quarter in speed.
pub(super) fn with_margin(lease: Duration) -> Duration {
    lease.saturating_add(lease / 4)
}

/// What one standby has seen.
#[derive(Debug)]
pub(super) struct Watch {
    /// Taken where the holder's own lease cannot be read.
    own_lease: Duration,
    /// Whether a free lock is taken for a dead holder.
    trusts_lock: bool,
    seen: Option<(Look, Duration)>,
}

impl Watch {
    pub(super) fn new(own_lease: Duration, trusts_lock: bool) -> Watch {
        Watch { own_lease, trusts_lock, seen: None }
    }

    /// `look` was read between `began` and `now`; `None`: there is no epoch. What is seen for the
    /// first time is at most as old as `now`; what is seen still is at least as new as `began`,
    /// however long we stood still after that.
    pub(super) fn judge(&mut self, look: Option<&Look>, began: Duration, now: Duration) -> Verdict {
        let Some(look) = look else { return Verdict::Take(Reason::New) };
        let record = Record::decode(&look.content);
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
        let record =
            Record { given_up: false, lease_ms: 1_000, epoch, counter, window_bytes: 0, holder };
        Look { epoch, content: record.encode(), is_locked: true }
    }

    fn given_up(mut look: Look) -> Look {
        let record = Record::decode(&look.content).unwrap();
        look.content = Record { given_up: true, ..record }.encode();
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
    fn a_renewal_begins_the_time_again_and_so_does_another_epoch() {
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
        // Read in time, and only then were we stopped.
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
