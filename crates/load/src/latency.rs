//! Latencies in microseconds: recorded per thread, added up at the end.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use towline_types::Time;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Put to accepted; in transactions: first put to commit confirmed.
    Put,
    /// Wish to message; in transactions: first credit to commit confirmed.
    Get,
    /// Put and get together.
    Pair,
    /// Commit sent to commit confirmed.
    Commit,
    /// Put by the producer to got by the consumer.
    Through,
}

impl Kind {
    /// All, in the order of the report.
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Put, Kind::Get, Kind::Pair, Kind::Commit, Kind::Through];

    /// Word in tables and JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Pair => "pair",
            Kind::Commit => "commit",
            Kind::Through => "through",
        }
    }
}

/// Longest latency with a bucket of its own: ten minutes.
const LONGEST_US: u64 = 600_000_000;
/// Three decimal digits: an error below 0.1 %.
const DIGITS: u8 = 3;

/// One histogram for each [`Kind`], made when first used.
#[derive(Default)]
pub(crate) struct Latencies {
    histograms: [Option<Histogram<u64>>; Kind::ALL.len()],
}

impl Latencies {
    /// Adds one.
    pub(crate) fn record(&mut self, kind: Kind, from: Time, to: Time) {
        let took = u64::try_from(to.since(from).as_micros()).unwrap_or(LONGEST_US);
        let slot = &mut self.histograms[kind as usize];
        if slot.is_none() {
            *slot = Histogram::new_with_bounds(1, LONGEST_US, DIGITS).ok();
        }
        if let Some(histogram) = slot {
            histogram.saturating_record(took.max(1));
        }
    }

    /// Forgets the warm-up.
    pub(crate) fn clear(&mut self) {
        for histogram in self.histograms.iter_mut().flatten() {
            histogram.reset();
        }
    }

    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: Latencies) {
        for (mine, theirs) in self.histograms.iter_mut().zip(other.histograms) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => {
                    let added = mine.add(&theirs);
                    assert!(added.is_ok(), "histograms of one shape add up");
                }
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }

    /// The figures of one kind, `None` when nothing was recorded.
    pub(crate) fn summary(&self, kind: Kind) -> Option<Summary> {
        let histogram = self.histograms[kind as usize].as_ref()?;
        (!histogram.is_empty()).then(|| Summary {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }
}

/// The figures of one histogram, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// Values recorded.
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

/// Microseconds as people read them: `850 us`, `12.3 ms`, `4.56 s`.
pub(crate) fn human(us: u64) -> String {
    let seconds = Duration::from_micros(us).as_secs_f64();
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let mut all = Latencies::default();
        for start in [0, 100] {
            let mut one = Latencies::default();
            for us in 1..=100 {
                one.record(Kind::Put, Time(10), Time(10 + start + us));
            }
            all.merge(one);
        }
        let summary = all.summary(Kind::Put).unwrap();
        assert_eq!((summary.count, summary.p50, summary.max), (200, 100, 200));
        assert!(all.summary(Kind::Get).is_none());
    }

    #[test]
    fn the_warm_up_is_forgotten() {
        let mut latencies = Latencies::default();
        latencies.record(Kind::Pair, Time(0), Time(5));
        latencies.clear();
        assert!(latencies.summary(Kind::Pair).is_none());
    }

    #[test]
    fn microseconds_read_in_the_unit_that_fits() {
        assert_eq!(human(850), "850 us");
        assert_eq!(human(12_345), "12.35 ms");
        assert_eq!(human(2_500_000), "2.50 s");
    }
}
