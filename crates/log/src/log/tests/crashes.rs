//! A log in a folder, with its threads, over simulated files: a crash at each file operation, by a
//! kill and by a power cut.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use towline_os::simulated::crash;
use towline_os::simulated::fs::{FileSystem, OperationKind, Verdict};

use super::*;

const FOLDER: &str = "/data/log";
/// Enough for a few extents.
const RECORDS: u8 = 15;
const RECORD_BYTES: usize = 40_000;

fn disk() -> Arc<dyn Disk> {
    Arc::new(LinuxDisk::open(Path::new(FOLDER)).unwrap())
}

/// Appends the records that are not there yet, and counts each that is durable.
fn go_on(upto: u8, durable: &AtomicUsize) {
    let disk = disk();
    let watch = Watch::new();
    let (recovery, _, records) = recover(&disk, Options::small()).unwrap();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
    let there = u8::try_from(records.len()).unwrap();
    for byte in there..upto {
        let (_, end) = append(&log, &[record(byte, RECORD_BYTES)], Urgency::Forced);
        watch.wait_durable(end);
        durable.store(usize::from(byte) + 1, Ordering::SeqCst);
    }
}

/// How many records there are: the first ones, whole.
fn found(files: &FileSystem) -> usize {
    let records = crash::in_process(files, 1, || recover(&disk(), Options::small()).unwrap().2);
    let records = records.unwrap();
    for (byte, (_, bytes)) in records.iter().enumerate() {
        assert_eq!(bytes, &record(u8::try_from(byte).unwrap(), RECORD_BYTES));
    }
    records.len()
}

#[test]
fn what_was_durable_is_there_after_a_crash_at_any_operation_and_the_log_goes_on() {
    let files = FileSystem::new();
    files.make_folder("/data");
    let durable = Arc::new(AtomicUsize::new(0));
    let appends = Arc::clone(&durable);
    let first = move || go_on(RECORDS, &appends);
    let runs = crash::at_each_operation(&files, 1, first, |left, run| {
        let before = durable.swap(0, Ordering::SeqCst);
        let there = found(left);
        assert!(before <= there && there <= before + 1, "{run}: {there} of {before}");
        // What a start reads passes for durable.
        let started = left.copy();
        crash::in_process(&started, 2, || go_on(0, &AtomicUsize::new(0))).unwrap();
        started.power_cut(&mut SeededRandom::mixed(7));
        assert_eq!(found(&started), there, "{run}");
        let appends = Arc::clone(&durable);
        crash::in_process(left, 2, move || go_on(RECORDS + 2, &appends)).unwrap();
        assert_eq!(durable.swap(0, Ordering::SeqCst), usize::from(RECORDS) + 2, "{run}");
        left.power_cut(&mut SeededRandom::mixed(7));
        assert_eq!(found(left), usize::from(RECORDS) + 2, "{run}");
    });
    assert!(runs > 90 * 2 * 2, "{runs}");
}

/// Appends records, one behind the other, of which no sync succeeds.
fn fail_to_append(files: &FileSystem, bytes: std::ops::Range<u8>) {
    let disk = disk();
    let watch = Watch::new();
    let (recovery, _, _) = recover(&disk, Options::small()).unwrap();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
    files.set_faults(|operation| {
        let is_extent = operation.path.to_string_lossy().contains("extent-");
        let is_sync = is_extent && operation.kind == OperationKind::Sync;
        if is_sync { Verdict::FailsAfter(5) } else { Verdict::Goes }
    });
    let append = |byte| append(&log, &[record(byte, RECORD_BYTES)], Urgency::Forced).1;
    let ends: Vec<Lsn> = bytes.map(append).collect();
    assert!(!watch.wait_durable_or_failed(*ends.last().unwrap()));
}

/// Without direct I/O a failed sync may leave a batch in the system's memory alone, where a start
/// finds it and no later sync writes it.
#[test]
fn after_a_failed_sync_without_direct_io_what_a_start_reads_outlives_a_power_cut() {
    starts_after_failed_syncs(3, 3..4);
}

/// The first of them is the last one in its extent.
#[test]
fn after_a_failed_sync_without_direct_io_the_extent_before_the_tail_is_written_again_too() {
    starts_after_failed_syncs(5, 5..7);
}

fn starts_after_failed_syncs(before: u8, failing: std::ops::Range<u8>) {
    let mut in_memory_alone = 0;
    for seed in 0..20 {
        let files = FileSystem::new();
        files.make_folder("/data");
        files.set_takes_direct(false);
        crash::in_process(&files, seed, move || go_on(before, &AtomicUsize::new(0))).unwrap();
        let (on, bytes) = (files.clone(), failing.clone());
        crash::in_process(&files, seed, move || fail_to_append(&on, bytes)).unwrap();
        files.clear_faults();
        let cut = files.copy();
        let started = crash::in_process(&files, seed, || {
            let (recovery, _, records) = recover(&disk(), Options::small()).unwrap();
            // What it read passes for durable.
            let _log = recovery.start(Watch::new() as Arc<dyn Listener>).unwrap();
            records.len()
        });
        files.power_cut(&mut SeededRandom::mixed(seed));
        assert_eq!(found(&files), started.clone().unwrap(), "seed {seed}");
        cut.power_cut(&mut SeededRandom::mixed(seed));
        in_memory_alone += usize::from(found(&cut) < started.unwrap());
    }
    assert!(in_memory_alone > 0, "a start found what only the memory had");
}
