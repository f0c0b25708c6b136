//! How far recovery is behind: what would be lost if the live region were gone now (RPA, the
//! recovery point actual), in bytes, messages and time.
//!
//! Bytes and messages are differences of two positions and of two counts that both groups keep of
//! the same log: exact, whatever was restarted in between. The age is that of the oldest commit
//! that is not received; for it this value remembers when positions were committed, at most
//! [`MARKS_MAX`] of them. When there are more, two neighbours become one with the earlier time: the
//! age is then too high, never too low. When something was committed that it did not see, or that
//! recovery had and lost again, is asked for ([`Backlog::is_before_marks`]): the log knows it.
//!
//! Not here: objectives, alarms. Time is an argument.

use std::collections::VecDeque;

use towline_types::{Lsn, Time};

use crate::wire::{Counts, RecoveryPoint};

/// Commits of remembered time: 96 KiB.
const MARKS_MAX: usize = 4_096;

/// What would be lost now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Bytes of log.
    pub bytes: u64,
    /// Puts of messages that would be gone. A message that was removed as well counts in both
    /// numbers, and is not lost to any client: no more messages than that would be lost.
    pub puts: u64,
    /// Removals of messages that would be gone: no more messages than that would come again.
    pub removals: u64,
    /// Age of the oldest commit that is not received, microseconds; 0: all is.
    pub age_us: u64,
}

/// Counts of messages, and the end of the log of which they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedLog {
    /// Of all up to there, and of nothing behind it.
    pub counts: Counts,
    /// A position that is committed.
    pub end: Lsn,
}

impl CountedLog {
    /// The newest counts of a log that is reported up to `end`; `seen`: what is counted by now.
    /// What is counted may be further than what is reported, after a promotion even in another
    /// history: live would take messages for safe that are not there. Without counts of before,
    /// none are there.
    #[must_use]
    pub fn upto(self, end: Lsn, seen: CountedLog) -> CountedLog {
        match (seen.end <= end, self.end <= end) {
            (true, _) => seen,
            (false, true) => self,
            (false, false) => CountedLog::default(),
        }
    }
}

/// The backlog over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogSample {
    /// The real length of the interval, microseconds.
    pub interval_us: u64,
    /// Now.
    pub bytes: u64,
    /// The mean over time, each value weighted with how long it lasted.
    pub average_bytes: u64,
    /// The most.
    pub bytes_max: u64,
}

/// All that was committed up to `end` and after the mark before was committed at `at` or later.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: Lsn,
    at: Time,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Backlog {
    committed: Lsn,
    counts: Counts,
    point: Lsn,
    point_counts: Counts,
    /// Recovery had all up to here: what stood in the log then it has counted, or will.
    had_all: (Lsn, Counts),
    /// In order of position and of time; only of what is not received.
    marks: VecDeque<Mark>,
    /// Up to here the marks do not know when it was committed, but that it was before this time.
    unmarked: Mark,
    sampled_at: Time,
    changed_at: Time,
    /// Byte-microseconds since the last sample.
    area: u128,
    bytes_max: u64,
}

impl Backlog {
    /// Of a live log that ends at `committed`, with `counts`; nothing is known of recovery but that
    /// it has `point`, with `point_counts`.
    #[must_use]
    pub fn new(
        (committed, counts): (Lsn, Counts),
        (point, point_counts): (Lsn, Counts),
        now: Time,
    ) -> Backlog {
        let unmarked = Mark { end: committed, at: now };
        let marks = if committed > point { [unmarked].into() } else { VecDeque::new() };
        Backlog {
            committed,
            counts,
            point,
            point_counts,
            had_all: (Lsn::ZERO, Counts::default()),
            marks,
            unmarked,
            sampled_at: now,
            changed_at: now,
            area: 0,
            bytes_max: committed.0.saturating_sub(point.0),
        }
    }

    /// More was committed: up to `end`, after which `counts` stand. One that counted before another
    /// one may say so behind it.
    pub fn committed(&mut self, end: Lsn, counts: Counts, now: Time) {
        self.weigh(now);
        self.counts.put = self.counts.put.max(counts.put);
        self.counts.removed = self.counts.removed.max(counts.removed);
        if end <= self.committed {
            return self.notes_all();
        }
        self.committed = end;
        if end > self.point {
            self.marks.push_back(Mark { end, at: now });
            if self.marks.len() > MARKS_MAX {
                self.halve();
            }
        }
        self.bytes_max = self.bytes_max.max(self.bytes());
        self.notes_all();
    }

    /// Recovery counts what it has applied, a moment after it has it. When it has all of the log it
    /// has, by then, all that is counted here: the counts here are of what is committed, or less.
    fn notes_all(&mut self) {
        if self.bytes() == 0 {
            self.had_all = (self.committed, self.counts);
        }
        let (end, counts) = self.had_all;
        if self.point >= end {
            let known = &mut self.point_counts;
            known.put = known.put.max(counts.put);
            known.removed = known.removed.max(counts.removed);
        }
    }

    /// Whether something behind this position was committed when this value did not look: the age
    /// of what is behind it is not known here.
    #[must_use]
    pub fn is_before_marks(&self, position: Lsn) -> bool {
        position < self.unmarked.end.max(self.point)
    }

    /// What is behind the point was committed at `at` or later, by the log: it counts where the
    /// marks do not know better. `None`: the log does not say either.
    pub fn began_behind_point(&mut self, at: Option<Time>) {
        let latest = self.marks.get(1).map_or(self.unmarked.at, |next| next.at);
        let Some(first) = self.marks.front_mut().filter(|it| it.end <= self.unmarked.end) else {
            return;
        };
        first.at = at.unwrap_or(first.at).min(latest).min(self.unmarked.at);
    }

    /// Recovery reported. A position before an earlier one is believed: recovery may have lost a
    /// disk. When what was committed in between was, the marks do not know any more.
    pub fn reported(&mut self, point: &RecoveryPoint, now: Time) {
        self.weigh(now);
        if point.place.end < self.point {
            // Times ascend with positions.
            let at = self.marks.front().map_or(now, |mark| mark.at.min(now));
            self.marks.push_front(Mark { end: self.point, at });
            if self.point >= self.unmarked.end {
                self.unmarked = Mark { end: self.point, at };
            }
        }
        (self.point, self.point_counts) = (point.place.end, point.counts);
        while self.marks.front().is_some_and(|mark| mark.end <= self.point) {
            self.marks.pop_front();
        }
        self.bytes_max = self.bytes_max.max(self.bytes());
        self.notes_all();
    }

    /// What recovery has counted at its point, or will have.
    #[must_use]
    pub fn point_counts(&self) -> Counts {
        self.point_counts
    }

    /// What would be lost now.
    #[must_use]
    pub fn exposure(&self, now: Time) -> Exposure {
        let age = self.marks.front().map_or(0, |mark| now.0.saturating_sub(mark.at.0));
        let bytes = self.bytes();
        // Recovery counts what it has applied, a moment after it has it: with all of the log it
        // lacks no message, whatever it has counted.
        let lacks = |all: u64, has: u64| if bytes == 0 { 0 } else { all.saturating_sub(has) };
        Exposure {
            bytes,
            puts: lacks(self.counts.put, self.point_counts.put),
            removals: lacks(self.counts.removed, self.point_counts.removed),
            age_us: age,
        }
    }

    /// The interval since the last call, which ends now.
    pub fn sample(&mut self, now: Time) -> BacklogSample {
        self.weigh(now);
        let interval_us = now.0.saturating_sub(self.sampled_at.0);
        let average = self.area.checked_div(u128::from(interval_us));
        let average =
            average.map_or(self.bytes(), |bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        let sample = BacklogSample {
            interval_us,
            bytes: self.bytes(),
            average_bytes: average,
            bytes_max: self.bytes_max,
        };
        (self.sampled_at, self.area, self.bytes_max) = (now, 0, self.bytes());
        sample
    }

    fn bytes(&self) -> u64 {
        self.committed.0.saturating_sub(self.point.0)
    }

    fn weigh(&mut self, now: Time) {
        let lasted = now.0.saturating_sub(self.changed_at.0);
        self.area += u128::from(self.bytes()) * u128::from(lasted);
        self.changed_at = self.changed_at.max(now);
    }

    /// Makes one mark of each two, with the earlier time.
    fn halve(&mut self) {
        let marks = std::mem::take(&mut self.marks);
        let mut pairs = marks.into_iter();
        while let Some(first) = pairs.next() {
            let end = pairs.next().map_or(first.end, |second| second.end);
            self.marks.push_back(Mark { end, at: first.at });
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_types::SeededRandom;

    use super::*;

    fn point(end: u64, put: u64, removed: u64) -> RecoveryPoint {
        let mut point = RecoveryPoint { received: Lsn(end), ..RecoveryPoint::default() };
        point.place.end = Lsn(end);
        point.counts = Counts { put, removed };
        point
    }

    fn counts(put: u64, removed: u64) -> Counts {
        Counts { put, removed }
    }

    fn fresh() -> Backlog {
        Backlog::new((Lsn(0), counts(0, 0)), (Lsn(0), counts(0, 0)), Time(0))
    }

    #[test]
    fn what_is_at_risk_are_bytes_puts_removals_and_the_age_of_the_oldest_commit() {
        let mut backlog = fresh();
        assert_eq!(backlog.exposure(Time(50)), Exposure::default());
        backlog.committed(Lsn(100), counts(3, 0), Time(100));
        backlog.committed(Lsn(300), counts(4, 2), Time(200));
        let all = Exposure { bytes: 300, puts: 4, removals: 2, age_us: 150 };
        assert_eq!(backlog.exposure(Time(250)), all);
        backlog.reported(&point(100, 3, 0), Time(260));
        let tail = Exposure { bytes: 200, puts: 1, removals: 2, age_us: 70 };
        assert_eq!(backlog.exposure(Time(270)), tail);
        backlog.reported(&point(300, 3, 1), Time(280));
        assert_eq!(backlog.exposure(Time(290)), Exposure::default(), "it has not counted yet");
    }

    /// The link was cut in the half second in which it would have said so: 20 messages that it had
    /// were called at risk for as long as the cut.
    #[test]
    fn what_recovery_had_when_it_had_all_is_not_at_risk_before_it_has_counted_it() {
        let mut backlog = fresh();
        backlog.committed(Lsn(100), counts(20, 3), Time(1));
        backlog.reported(&point(100, 0, 0), Time(2));
        backlog.committed(Lsn(200), counts(24, 4), Time(3));
        let more = Exposure { bytes: 100, puts: 4, removals: 1, age_us: 1 };
        assert_eq!(backlog.exposure(Time(4)), more);
        backlog.reported(&point(100, 11, 0), Time(5));
        assert_eq!(backlog.exposure(Time(6)), Exposure { age_us: 3, ..more }, "it counts still");
        backlog.reported(&point(60, 11, 0), Time(7));
        let exposure = backlog.exposure(Time(8));
        assert_eq!((exposure.puts, exposure.removals), (13, 4), "it lost a disk");
    }

    #[test]
    fn what_is_counted_is_no_further_than_what_is_reported() {
        let counted = |end, put| CountedLog { counts: counts(put, 0), end: Lsn(end) };
        let has = CountedLog::default().upto(Lsn(100), counted(90, 3));
        assert_eq!(has, counted(90, 3), "it is counted a moment after it is there");
        let has = has.upto(Lsn(100), counted(110, 4));
        assert_eq!(has, counted(90, 3));
        assert_eq!(has.upto(Lsn(110), counted(110, 4)), counted(110, 4));
        assert_eq!(has.upto(Lsn(80), counted(110, 4)), CountedLog::default(), "a disk was lost");
    }

    #[test]
    fn who_counted_before_and_says_so_later_takes_nothing_back() {
        let mut backlog = Backlog::new((Lsn(0), counts(0, 0)), (Lsn(0), counts(0, 0)), Time(0));
        backlog.committed(Lsn(300), counts(4, 2), Time(200));
        backlog.committed(Lsn(300), counts(3, 1), Time(201));
        let exposure = Exposure { bytes: 300, puts: 4, removals: 2, age_us: 50 };
        assert_eq!(backlog.exposure(Time(250)), exposure);
    }

    #[test]
    fn the_average_is_weighted_with_time() {
        let mut backlog = fresh();
        backlog.committed(Lsn(1_000), counts(1, 0), Time(90));
        backlog.reported(&point(800, 1, 0), Time(100));
        // 90 us of 0, 10 us of 1,000, 100 us of 200.
        let sample =
            BacklogSample { interval_us: 200, bytes: 200, average_bytes: 150, bytes_max: 1_000 };
        assert_eq!(backlog.sample(Time(200)), sample);
        assert_eq!(backlog.sample(Time(200)).average_bytes, 200, "an interval of no length");
        assert_eq!(backlog.sample(Time(300)).bytes_max, 200);
    }

    #[test]
    fn a_recovery_that_lost_a_disk_is_further_behind() {
        let mut backlog = fresh();
        backlog.committed(Lsn(100), counts(1, 0), Time(1));
        backlog.reported(&point(100, 1, 0), Time(2));
        backlog.reported(&point(40, 0, 0), Time(5));
        let exposure = Exposure { bytes: 60, puts: 1, removals: 0, age_us: 4 };
        assert_eq!(backlog.exposure(Time(9)), exposure);
    }

    #[test]
    fn what_recovery_lost_with_its_disk_is_as_old_as_the_log_says() {
        let mut backlog = fresh();
        backlog.committed(Lsn(100), counts(1, 0), Time(1_000));
        backlog.reported(&point(100, 1, 0), Time(1_010));
        assert!(!backlog.is_before_marks(Lsn(100)) && backlog.is_before_marks(Lsn(99)));
        backlog.committed(Lsn(150), counts(2, 0), Time(8_000));
        backlog.reported(&point(0, 0, 0), Time(9_000));
        backlog.began_behind_point(Some(Time(1_000)));
        assert_eq!(backlog.exposure(Time(9_500)).age_us, 8_500, "and not from the loss on");
        // As it gets it again, what is left is younger; what the log says is never the newer one.
        backlog.reported(&point(60, 1, 0), Time(9_600));
        assert!(backlog.is_before_marks(Lsn(60)));
        backlog.began_behind_point(Some(Time(7_000)));
        assert_eq!(backlog.exposure(Time(9_600)).age_us, 2_600);
        backlog.began_behind_point(Some(Time(9_000)));
        assert_eq!(backlog.exposure(Time(9_600)).age_us, 1_600, "the next mark is of 8,000");
        backlog.reported(&point(100, 1, 0), Time(9_700));
        assert!(!backlog.is_before_marks(Lsn(100)));
        backlog.began_behind_point(Some(Time(1)));
        assert_eq!(backlog.exposure(Time(9_700)).age_us, 1_700, "the mark knows that");
    }

    #[test]
    fn what_was_committed_before_this_instance_became_active_is_as_old_as_the_log_says() {
        let known = (Lsn(40), counts(1, 0));
        let mut backlog = Backlog::new((Lsn(100), counts(3, 1)), known, Time(5_000));
        let exposure = Exposure { bytes: 60, puts: 2, removals: 1, age_us: 10 };
        assert_eq!(backlog.exposure(Time(5_010)), exposure, "at least");
        backlog.began_behind_point(Some(Time(2_000)));
        assert_eq!(backlog.exposure(Time(5_010)).age_us, 3_010);
        backlog.reported(&point(50, 1, 0), Time(5_020));
        backlog.began_behind_point(None);
        assert_eq!(backlog.exposure(Time(5_020)).age_us, 3_020, "never younger than known");
    }

    #[test]
    fn memory_is_bounded_and_the_age_is_never_too_low() {
        for seed in 0..50 {
            println!("seed {seed}");
            let mut random = SeededRandom::new(seed);
            let mut backlog = fresh();
            let (mut end, mut have, mut now) = (0, 0, 0);
            let mut commits: VecDeque<(u64, u64)> = VecDeque::new();
            for _ in 0..20_000 {
                now += random.below(100);
                if random.below(10) < 9 {
                    end += 1 + random.below(5_000);
                    commits.push_back((end, now));
                    backlog.committed(Lsn(end), counts(0, 0), Time(now));
                } else {
                    have += random.below((end - have) / 4 + 1);
                    backlog.reported(&point(have, 0, 0), Time(now));
                }
                while commits.front().is_some_and(|(end, _)| *end <= have) {
                    commits.pop_front();
                }
                let exact = commits.front().map_or(0, |(_, at)| now - at);
                let exposure = backlog.exposure(Time(now));
                assert_eq!(exposure.bytes, end - have);
                assert!(exposure.age_us >= exact, "{} of {exact}", exposure.age_us);
                assert!(backlog.marks.len() <= MARKS_MAX);
            }
        }
    }
}
