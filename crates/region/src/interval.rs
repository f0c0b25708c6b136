//! The figures of the live side over an interval, as IBM MQ publishes them for a recovery group
//! (NHAREPLICA, RECOVERY): what was sent in it, and averages.
//!
//! Averages of a state (backlog, round trip) are means over time, each value weighted with how long
//! it lasted. Averages of work (compression) are per frame of the log. The interval is the real
//! one: a rate is divided by it.
//!
//! Not here: when an interval ends, and where it is shown. Time is an argument. Invariant: a
//! counter that falls, because a process began anew, counts as nothing.

use towline_types::{Lsn, Time};

use crate::backlog::BacklogSample;

/// Counters and states of the live side at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionFigures {
    /// Bytes of log sent, before compression.
    pub sent_bytes: u64,
    /// Frames of the log sent.
    pub sent_frames: u64,
    /// Bytes that went over the link, compressed.
    pub wire_bytes: u64,
    /// Time spent on compression, microseconds.
    pub compression_us: u64,
    /// Bytes of log that recovery received and unpacked, as it reports.
    pub received_bytes: u64,
    /// Time that it spent on decompression, microseconds.
    pub decompression_us: u64,
    /// Copies that recovery has begun.
    pub rebases: u64,
    /// Up to where a majority of recovery has the log.
    pub recovery: Lsn,
    /// Round trip of the link, microseconds; `None`: not known.
    pub round_trip_us: Option<u64>,
}

/// One interval, in the words and the order of IBM MQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionInterval {
    /// The real length of the interval, microseconds.
    pub interval_us: u64,
    /// Log bytes sent.
    pub log_bytes_sent: u64,
    /// Backlog bytes, at its end.
    pub backlog_bytes: u64,
    /// Backlog average bytes.
    pub backlog_average_bytes: u64,
    /// Average network round trip time, microseconds; `None`: it was not known.
    pub round_trip_average_us: Option<u64>,
    /// Compressed log bytes sent.
    pub compressed_log_bytes_sent: u64,
    /// Log data average compression time, microseconds a frame.
    pub compression_average_us: u64,
    /// Log bytes decompressed, by recovery.
    pub log_bytes_decompressed: u64,
    /// Log data average decompression time, microseconds a frame.
    pub decompression_average_us: u64,
    /// Rebase count, since there is a recovery group.
    pub rebases: u64,
    /// Recovery LSN, at its end.
    pub recovery: Lsn,
}

/// The interval that is under way.
#[derive(Clone, Debug)]
pub struct RegionIntervals {
    began: Time,
    /// At its beginning.
    first: RegionFigures,
    /// As seen last.
    round_trip_us: Option<u64>,
    seen: Time,
    /// Microseconds squared, and the time in which it was known.
    round_trips: (u128, u128),
}

impl RegionIntervals {
    /// Begins.
    #[must_use]
    pub fn begin(figures: RegionFigures, now: Time) -> RegionIntervals {
        RegionIntervals {
            began: now,
            first: figures,
            round_trip_us: figures.round_trip_us,
            seen: now,
            round_trips: (0, 0),
        }
    }

    /// How long it lasts by now, microseconds.
    #[must_use]
    pub fn lasts_us(&self, now: Time) -> u64 {
        now.0.saturating_sub(self.began.0)
    }

    /// Looks: the round trip until now was the one seen before.
    pub fn look(&mut self, round_trip_us: Option<u64>, now: Time) {
        let lasted = u128::from(now.0.saturating_sub(self.seen.0));
        if let Some(us) = self.round_trip_us {
            self.round_trips.0 += u128::from(us) * lasted;
            self.round_trips.1 += lasted;
        }
        (self.round_trip_us, self.seen) = (round_trip_us, self.seen.max(now));
    }

    /// Ends it, with the backlog over the same time, and begins the next one.
    pub fn end(
        &mut self,
        figures: RegionFigures,
        backlog: &BacklogSample,
        now: Time,
    ) -> RegionInterval {
        self.look(figures.round_trip_us, now);
        let first = self.first;
        let of =
            |counter: fn(&RegionFigures) -> u64| counter(&figures).saturating_sub(counter(&first));
        let frames = of(|it| it.sent_frames);
        let each = |us: u64| us.checked_div(frames).unwrap_or(0);
        let (area, known) = self.round_trips;
        let round_trip = area.checked_div(known).map(|us| u64::try_from(us).unwrap_or(u64::MAX));
        let interval = RegionInterval {
            interval_us: self.lasts_us(now),
            log_bytes_sent: of(|it| it.sent_bytes),
            backlog_bytes: backlog.bytes,
            backlog_average_bytes: backlog.average_bytes,
            round_trip_average_us: round_trip.or(figures.round_trip_us),
            compressed_log_bytes_sent: of(|it| it.wire_bytes),
            compression_average_us: each(of(|it| it.compression_us)),
            log_bytes_decompressed: of(|it| it.received_bytes),
            decompression_average_us: each(of(|it| it.decompression_us)),
            rebases: figures.rebases,
            recovery: figures.recovery,
        };
        *self = RegionIntervals::begin(figures, now);
        interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(times: u64, round_trip_us: Option<u64>) -> RegionFigures {
        RegionFigures {
            sent_bytes: 1_000 * times,
            sent_frames: 10 * times,
            wire_bytes: 300 * times,
            compression_us: 50 * times,
            received_bytes: 900 * times,
            decompression_us: 20 * times,
            rebases: times,
            recovery: Lsn(900 * times),
            round_trip_us,
        }
    }

    #[test]
    fn an_interval_has_what_happened_in_it_and_its_real_length() {
        let mut intervals = RegionIntervals::begin(figures(1, Some(100)), Time(1_000));
        let backlog = BacklogSample { bytes: 7, average_bytes: 9, ..BacklogSample::default() };
        let interval = intervals.end(figures(3, Some(100)), &backlog, Time(11_500));
        let wanted = RegionInterval {
            interval_us: 10_500,
            log_bytes_sent: 2_000,
            backlog_bytes: 7,
            backlog_average_bytes: 9,
            round_trip_average_us: Some(100),
            compressed_log_bytes_sent: 600,
            compression_average_us: 5,
            log_bytes_decompressed: 1_800,
            decompression_average_us: 2,
            rebases: 3,
            recovery: Lsn(2_700),
        };
        assert_eq!(interval, wanted);
        let next = intervals.end(figures(4, Some(100)), &backlog, Time(12_000));
        assert_eq!((next.interval_us, next.log_bytes_sent), (500, 1_000));
    }

    #[test]
    fn the_round_trip_is_weighted_with_time_and_what_is_not_known_has_no_weight() {
        let mut intervals = RegionIntervals::begin(figures(1, Some(100)), Time(0));
        intervals.look(None, Time(30));
        intervals.look(Some(400), Time(100));
        let interval = intervals.end(figures(1, None), &BacklogSample::default(), Time(110));
        // 30 us of 100, 70 us of nothing, 10 us of 400.
        assert_eq!(interval.round_trip_average_us, Some(175));
        let unknown = intervals.end(figures(1, None), &BacklogSample::default(), Time(120));
        assert_eq!(unknown.round_trip_average_us, None);
    }

    #[test]
    fn an_interval_without_frames_or_of_no_length_divides_by_nothing() {
        let mut intervals = RegionIntervals::begin(figures(5, None), Time(10));
        let interval = intervals.end(figures(2, None), &BacklogSample::default(), Time(10));
        assert_eq!((interval.interval_us, interval.compression_average_us), (0, 0));
        assert_eq!(interval.log_bytes_sent, 0, "a process that began anew");
    }
}
