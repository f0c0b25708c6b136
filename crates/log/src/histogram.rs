//! Counts of what was written, and how long it took.
//!
//! Latencies fall into buckets of an eighth of a power of two: percentiles are true to an eighth.

use std::time::Duration;

use crate::format::size;

/// Write latency since start, in microseconds: from handing a batch to the disk to its sync's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// Batches measured.
    pub count: u64,
    /// Shortest.
    pub min_us: u64,
    /// Mean, rounded down.
    pub avg_us: u64,
    /// Median, to within an eighth.
    pub p50_us: u64,
    /// 99th percentile, to within an eighth.
    pub p99_us: u64,
    /// Longest.
    pub max_us: u64,
    /// The newest.
    pub last_us: u64,
}

/// Buckets for each power of two.
const PARTS: u64 = 8;
const BUCKETS: usize = size(64 * PARTS);

/// Figures of batches written since start.
#[derive(Debug)]
pub(crate) struct WriteFigures {
    pub(crate) logical_bytes: u64,
    pub(crate) physical_bytes: u64,
    pub(crate) batches: u64,
    buckets: Box<[u64; BUCKETS]>,
    total_us: u64,
    min_us: u64,
    max_us: u64,
    last_us: u64,
}

impl Default for WriteFigures {
    fn default() -> WriteFigures {
        WriteFigures {
            logical_bytes: 0,
            physical_bytes: 0,
            batches: 0,
            buckets: Box::new([0; BUCKETS]),
            total_us: 0,
            min_us: u64::MAX,
            max_us: 0,
            last_us: 0,
        }
    }
}

impl WriteFigures {
    /// Enters a batch.
    pub(crate) fn enter(&mut self, logical_bytes: u64, physical_bytes: u64, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.logical_bytes += logical_bytes;
        self.physical_bytes += physical_bytes;
        self.batches += 1;
        self.total_us = self.total_us.saturating_add(us);
        self.min_us = self.min_us.min(us);
        self.max_us = self.max_us.max(us);
        self.last_us = us;
        if let Some(bucket) = self.buckets.get_mut(bucket_of(us)) {
            *bucket += 1;
        }
    }

    /// Latencies so far; all zero when nothing was written.
    pub(crate) fn summary(&self) -> LatencySummary {
        if self.batches == 0 {
            return LatencySummary::default();
        }
        LatencySummary {
            count: self.batches,
            min_us: self.min_us,
            avg_us: self.total_us / self.batches,
            p50_us: self.percentile(50),
            p99_us: self.percentile(99),
            max_us: self.max_us,
            last_us: self.last_us,
        }
    }

    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.batches * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_max(bucket).clamp(self.min_us, self.max_us);
            }
        }
        self.max_us
    }
}

fn bucket_of(us: u64) -> usize {
    if us < PARTS {
        return size(us);
    }
    let power = u64::from(us.ilog2());
    let part = (us >> (power - 3)) - PARTS;
    size((power - 2) * PARTS + part)
}

/// Largest value that falls into the bucket.
fn bucket_max(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    ((PARTS + bucket % PARTS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        for us in 0..100_000 {
            let bucket = bucket_of(us);
            assert!(us <= bucket_max(bucket), "{us}");
            assert!(bucket == 0 || us > bucket_max(bucket - 1), "{us}");
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_are_true_to_an_eighth() {
        let mut written = WriteFigures::default();
        for us in 1..=1_000 {
            written.enter(10, 4_096, Duration::from_micros(us));
        }
        let summary = written.summary();
        assert_eq!((summary.min_us, summary.max_us, summary.last_us), (1, 1_000, 1_000));
        assert!((500..=563).contains(&summary.p50_us), "{summary:?}");
        assert!((990..=1_000).contains(&summary.p99_us), "{summary:?}");
        assert_eq!(summary.avg_us, 500);
    }
}
