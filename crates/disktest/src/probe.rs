//! Measures the signs that `honesty` judges: 4 KiB written with and without a sync, through memory
//! and past it, and megabytes synced at once.
//!
//! Not here: what they mean.

use std::io;
use std::time::{Duration, Instant};

use super::file::{Aligned, TestFile, Way, is_refusal};
use super::honesty::{PROBE_BYTES, Probe};
use super::measure;

/// Written into memory before each sync of many bytes: enough that the sync's own cost is lost in
/// it.
const BULK_BYTES: u64 = 8 << 20;
/// The best of so many counts: others may be busy on the disk during some of them.
const BULK_ROUNDS: u64 = 4;
/// Parts of the time: four ways of writing small, and the syncs of many bytes.
const PARTS: u32 = 5;

/// Measures for about `time`.
///
/// # Errors
/// Of writes and syncs.
pub(crate) fn probe(
    file: &TestFile,
    time: Duration,
    progress: &mut dyn FnMut(Duration),
) -> io::Result<Probe> {
    let part = time / PARTS;
    let mut done = Duration::ZERO;
    let mut p50 = |way| -> io::Result<f64> {
        let told = &mut |since: Duration| progress(done + since.min(part));
        let slice = measure::slice(file, way, PROBE_BYTES, part, told)?;
        done += part;
        Ok(slice.latency.p50)
    };
    let buffered_write_p50_us = p50(Way::Buffered)?;
    let buffered_sync_p50_us = p50(Way::BufferedSync)?;
    // A file system may take direct I/O or refuse it; both are fine.
    let direct_write_p50_us = unless_refused(p50(Way::Direct))?;
    let direct_sync_p50_us = unless_refused(p50(Way::DirectSync))?;
    let bulk_sync_bytes_per_s = bulk(file, part)?;
    Ok(Probe {
        buffered_write_p50_us,
        buffered_sync_p50_us,
        direct_write_p50_us,
        direct_sync_p50_us,
        bulk_sync_bytes_per_s,
    })
}

/// `None` where the file system takes no direct I/O.
fn unless_refused(measured: io::Result<f64>) -> io::Result<Option<f64>> {
    match measured {
        Err(error) if is_refusal(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// The best rate of some syncs of many bytes each, in bytes per second.
fn bulk(file: &TestFile, time: Duration) -> io::Result<f64> {
    let bytes = BULK_BYTES.min(file.bytes());
    let writer = file.open(Way::Buffered)?;
    let mut buffer = Aligned::noise(bytes, 3);
    let began = Instant::now();
    let mut best = 0.0_f64;
    for round in 0..BULK_ROUNDS {
        buffer.stamp(round);
        writer.write(buffer.bytes(), 0)?;
        let from = Instant::now();
        writer.sync()?;
        let took = from.elapsed().max(Duration::from_nanos(1));
        best = best.max(bytes as f64 / took.as_secs_f64());
        if began.elapsed() > time {
            break;
        }
    }
    Ok(best)
}
