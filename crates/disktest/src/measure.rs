//! One slice of measuring: writes of one size in one way, one after the other round the file, for a
//! fixed time, as the recovery log does.
//!
//! Reads the monotonic clock itself: writes into memory take two microseconds, and the harness's
//! own clock counts whole ones. Not here: which slices there are.
//!
//! Invariant: a slice has at least one write.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::file::{Aligned, TestFile, Way};

/// Longest latency with a bucket of its own: ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;
/// Three decimal digits: an error below 0.1 %.
const DIGITS: u8 = 3;
/// Rates are of intervals of this length.
const INTERVAL: Duration = Duration::from_secs(1);
/// An unfinished interval counts when nothing else is there, or when it is nearly whole.
const NEARLY_WHOLE: f64 = 0.5;

/// What a slice found.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) way: Way,
    pub(crate) block_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency: Latency,
    /// Bytes per second of each interval of one second, in order.
    pub(crate) rates: Vec<u64>,
}

/// Time of a write and its sync, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    #[serde(rename = "latency_min_us")]
    pub(crate) min: f64,
    #[serde(rename = "latency_avg_us")]
    pub(crate) avg: f64,
    #[serde(rename = "latency_p50_us")]
    pub(crate) p50: f64,
    #[serde(rename = "latency_p99_us")]
    pub(crate) p99: f64,
    #[serde(rename = "latency_p999_us")]
    pub(crate) p999: f64,
    #[serde(rename = "latency_max_us")]
    pub(crate) max: f64,
}

impl Slice {
    pub(crate) fn written_bytes(&self) -> u64 {
        self.writes * self.block_bytes
    }

    pub(crate) fn rate_min(&self) -> u64 {
        self.rates.iter().copied().min().unwrap_or(0)
    }

    pub(crate) fn rate_max(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Over the whole slice, in bytes per second.
    pub(crate) fn rate_avg(&self) -> u64 {
        per_second(self.written_bytes(), self.elapsed)
    }
}

/// Writes for `time`, at least once. `progress` often gets the time since the slice began.
///
/// # Errors
/// Of a write or a sync; what a file system that takes no direct I/O says, too.
pub(crate) fn slice(
    file: &TestFile,
    way: Way,
    block_bytes: u64,
    time: Duration,
    progress: &mut dyn FnMut(Duration),
) -> io::Result<Slice> {
    let writer = file.open(way)?;
    let mut buffer = Aligned::noise(block_bytes, block_bytes);
    let mut times = Times::new()?;
    let mut intervals = Intervals::default();
    let mut offset = 0;
    let mut writes = 0;
    let began = Instant::now();
    let mut now = began;
    while writes == 0 || now - began < time {
        writes += 1;
        buffer.stamp(writes);
        let from = Instant::now();
        writer.write(buffer.bytes(), offset)?;
        now = Instant::now();
        times.record(now - from);
        intervals.add(now - began, block_bytes);
        progress(now - began);
        offset = next(offset, block_bytes, file.bytes());
    }
    if way == Way::Buffered {
        // Not measured: what is left in memory must not be paid for by the next slice.
        writer.sync()?;
    }
    let elapsed = now - began;
    let (latency, rates) = (times.latency(), intervals.rates(elapsed));
    Ok(Slice { way, block_bytes, writes, elapsed, latency, rates })
}

/// How long this thread has been waiting for a processor since it began: time that looks like the
/// disk's and is not. `None` where the kernel does not count it (schedstat, linux/sched).
pub(crate) fn processor_wait() -> Option<Duration> {
    wait_of(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The second of three numbers: nanoseconds on a run queue.
fn wait_of(schedstat: &str) -> Option<Duration> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The offset of the next write: round the file, in whole blocks.
fn next(offset: u64, block_bytes: u64, file_bytes: u64) -> u64 {
    let after = offset + block_bytes;
    if after + block_bytes > file_bytes { 0 } else { after }
}

struct Times(Histogram<u64>);

impl Times {
    fn new() -> io::Result<Times> {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        histogram.map(Times).map_err(io::Error::other)
    }

    fn record(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(LONGEST_NS);
        self.0.saturating_record(took.max(1));
    }

    fn latency(&self) -> Latency {
        let us = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
        let at = |quantile| us(self.0.value_at_quantile(quantile));
        Latency {
            min: us(self.0.min()),
            avg: (self.0.mean() / 100.0).round() / 10.0,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: us(self.0.max()),
        }
    }
}

/// Bytes of each interval. A write counts where it ended.
#[derive(Default)]
struct Intervals(Vec<u64>);

impl Intervals {
    fn add(&mut self, since: Duration, bytes: u64) {
        let index = usize::try_from(since.as_secs() / INTERVAL.as_secs()).unwrap_or(usize::MAX);
        // A stall of seconds is as many intervals in which nothing was written.
        while self.0.len() <= index {
            self.0.push(0);
        }
        if let Some(last) = self.0.last_mut() {
            *last += bytes;
        }
    }

    /// Bytes per second. The last interval is cut short: it counts, in proportion, when it is long
    /// enough to be worth something or when there is no other.
    fn rates(mut self, elapsed: Duration) -> Vec<u64> {
        let whole = self.0.len().saturating_sub(1);
        let rest = elapsed.saturating_sub(INTERVAL * u32::try_from(whole).unwrap_or(u32::MAX));
        if whole > 0 && rest.as_secs_f64() < NEARLY_WHOLE {
            self.0.pop();
        } else if let Some(last) = self.0.last_mut() {
            *last = per_second(*last, rest);
        }
        self.0
    }
}

/// Bytes per second; of no time at all, the bytes themselves.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a quotient of two positive numbers; `as` saturates"
)]
fn per_second(bytes: u64, time: Duration) -> u64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_go_round_the_file_in_whole_blocks() {
        assert_eq!(next(0, 4096, 3 * 4096), 4096);
        assert_eq!(next(2 * 4096, 4096, 3 * 4096), 0);
        assert_eq!(next(0, 8192, 3 * 4096), 0);
        assert_eq!(next(0, 4096, 4096), 0);
    }

    #[test]
    fn a_second_without_writes_is_seen() {
        let mut intervals = Intervals::default();
        intervals.add(Duration::from_millis(10), 100);
        intervals.add(Duration::from_millis(2_500), 300);
        assert_eq!(intervals.rates(Duration::from_millis(3_000)), [100, 0, 300]);
    }

    #[test]
    fn a_short_rest_counts_only_when_there_is_nothing_else() {
        let mut intervals = Intervals::default();
        intervals.add(Duration::from_millis(200), 100);
        assert_eq!(intervals.rates(Duration::from_millis(200)), [500]);
        let mut intervals = Intervals::default();
        intervals.add(Duration::from_millis(500), 100);
        intervals.add(Duration::from_millis(1_100), 900);
        assert_eq!(intervals.rates(Duration::from_millis(1_100)), [100]);
    }

    #[test]
    fn waiting_for_a_processor_is_counted() {
        assert_eq!(wait_of("93046 4101 7\n"), Some(Duration::from_nanos(4101)));
        assert_eq!(wait_of(""), None);
        assert!(processor_wait() <= processor_wait());
    }

    #[test]
    fn latencies_are_in_microseconds() {
        let mut times = Times::new().unwrap();
        for us in 1..=100 {
            times.record(Duration::from_micros(us));
        }
        let latency = times.latency();
        assert!((latency.min - 1.0).abs() < 0.1 && (latency.max - 100.0).abs() < 0.2);
        assert!((latency.p50 - 50.0).abs() < 0.2 && (latency.avg - 50.5).abs() < 0.2);
    }
}
