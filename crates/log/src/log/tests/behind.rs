//! Runs that the log does not take because it would have to be waited for.

use super::*;
use crate::shared::SEALED_BYTES_MAX;

const MIB: usize = 1024 * 1024;

/// Appends lazy runs of one record each until the log takes no more; how many bytes it took.
fn fill(log: &Log, record: &[u8]) -> usize {
    let mut bytes = 0;
    while let Some(mut appender) = log.try_appender(record.len()) {
        appender.record(record.len(), |buffer| buffer.extend_from_slice(record));
        appender.commit(Urgency::Lazy).unwrap();
        bytes += record.len();
    }
    bytes
}

/// Waits until preallocation has nothing more to do.
fn wait_until_ready(log: &Log) {
    let is_ready = || {
        let state = log.shared().state();
        !state.extents.wants_ready() && state.extents.unfilled().is_none()
    };
    while !is_ready() {
        std::thread::yield_now();
    }
}

fn take(log: &Log, record: &[u8]) -> Option<Lsn> {
    let mut appender = log.try_appender(record.len())?;
    appender.record(record.len(), |buffer| buffer.extend_from_slice(record));
    Some(appender.commit(Urgency::Forced).unwrap())
}

#[test]
fn a_log_whose_writers_are_behind_takes_no_run_and_says_when_it_would() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let extent_bytes = 32 * MIB as u64;
    let log = start(&disk, Options { extent_bytes, ..Options::default() }, &watch);
    wait_until_ready(&log);
    memory.hold_syncs();
    let record = record(1, MIB / 2);
    let taken = fill(&log, &record);
    let in_flight = 4 * (MIB + record.len());
    assert!(taken > SEALED_BYTES_MAX, "{taken}");
    assert!(taken < SEALED_BYTES_MAX + in_flight + 2 * MIB, "{taken}");
    assert_eq!(watch.caught_up(), 0);
    memory.open_gate();
    watch.wait_caught_up();
    let end = take(&log, &record).unwrap();
    watch.wait_durable(end);
    assert_eq!(watch.caught_up(), 0, "said once");
    log.shutdown();
}

#[test]
fn a_run_that_finds_no_extent_ready_is_not_taken_until_there_is_one() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let record = record(1, 50_000);
    let first = take(&log, &record).unwrap();
    watch.wait_durable(first);
    memory.hold_syncs();
    let taken = fill(&log, &record);
    assert!(taken < MIB, "{taken} bytes in extents that were not ready");
    memory.open_gate();
    watch.wait_caught_up();
    // It may have been said for one of the extents, and the next run waits for another.
    let end = loop {
        match take(&log, &record) {
            Some(end) => break end,
            None => watch.wait_caught_up(),
        }
    };
    watch.wait_durable(end);
    log.shutdown();
}

#[test]
fn a_run_longer_than_all_that_is_ever_ready_is_taken_all_the_same() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let piece = record(3, 100_000);
    let pieces = 40;
    let mut appender = loop {
        match log.try_appender(pieces * piece.len()) {
            Some(appender) => break appender,
            None => watch.wait_caught_up(),
        }
    };
    for _ in 0..pieces {
        appender.record(piece.len(), |buffer| buffer.extend_from_slice(&piece));
    }
    let end = appender.commit(Urgency::Forced).unwrap();
    watch.wait_durable(end);
    log.shutdown();
}
