//! What a running log promises.

mod behind;
mod bodies;
mod crashes;
mod faults;
mod names;
mod threads_end;

use std::sync::Arc;

use towline_types::{BodyLocation, Lsn, SeededRandom};

use super::*;
use crate::disk::{Disk, Fault, FaultOn, LinuxDisk, MemoryDisk};
use crate::listener::{Listener, Urgency};
use crate::options::{EXTENT_BYTES_MIN, Options};
use crate::testing::{Record, Watch, append, body, recover, start};

fn memory() -> (MemoryDisk, Arc<dyn Disk>) {
    let memory = MemoryDisk::new();
    (memory.clone(), Arc::new(memory))
}

fn record(byte: u8, bytes: usize) -> Vec<u8> {
    vec![byte; bytes]
}

/// Appends `count` runs of random shape; waits until they are durable.
fn fill(log: &Log, watch: &Watch, random: &mut SeededRandom, count: u64) -> Vec<Record> {
    let mut written = Vec::new();
    let mut end = Lsn::ZERO;
    for _ in 0..count {
        let records = 1 + random.below(4);
        let records: Vec<Vec<u8>> = (0..records)
            .map(|_| {
                let bytes = random.below(3_000);
                body(random, bytes)
            })
            .collect();
        let (places, run_end) = append(log, &records, Urgency::Forced);
        written.extend(places.into_iter().zip(records));
        end = run_end;
    }
    watch.wait_durable(end);
    written
}

#[test]
fn a_log_whose_listener_is_gone_goes_on() {
    let (_, disk) = memory();
    let (recovery, _, _) = recover(&disk, Options::small()).unwrap();
    let log = recovery.start(Watch::new() as Arc<dyn Listener>).unwrap();
    append(&log, &[record(7, 100)], Urgency::Forced);
    log.shutdown();
    let (_, _, records) = recover(&disk, Options::small()).unwrap();
    assert_eq!(records.len(), 1);
}

#[test]
fn runs_come_back_in_order_after_an_orderly_end() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let written = fill(&log, &watch, &mut SeededRandom::new(1), 300);
    log.shutdown();
    assert!(log.stats().extents > 1, "the test crosses extents");
    let (_, report, found) = recover(&disk, Options::small()).unwrap();
    assert_eq!(found, written);
    assert_eq!(report.records, written.len() as u64);
    assert_eq!(report.findings, []);
}

#[test]
fn runs_come_back_from_a_real_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for round in 0..3 {
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder.path()).unwrap());
        let watch = Watch::new();
        let (recovery, _, found) = recover(&disk, Options::small()).unwrap();
        assert_eq!(found, written, "round {round}");
        let listener: Arc<dyn Listener> = Arc::clone(&watch) as Arc<dyn Listener>;
        let log = recovery.start(listener).unwrap();
        written.extend(fill(&log, &watch, &mut SeededRandom::new(round), 100));
        if round == 1 {
            log.shutdown();
        }
    }
    let report = crate::offline::verify(folder.path()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(report.records, written.len() as u64);
}

#[test]
fn the_first_start_fills_little_before_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder.path()).unwrap());
    let (recovery, _, _) = recover(&disk, Options::default()).unwrap();
    let length = disk.list().unwrap().iter().find(|f| f.0.starts_with("extent-")).unwrap().1;
    assert_eq!(length, 4 * 1024 * 1024);
    // The rest is filled while the log is used, and batches go behind what was filled.
    let watch = Watch::new();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
    let mut end = Lsn::ZERO;
    let mut written = Vec::new();
    for byte in 0..12 {
        let records = vec![record(byte, 1_000_000)];
        let (places, run_end) = append(&log, &records, Urgency::Forced);
        written.push((places[0], records[0].clone()));
        end = run_end;
    }
    watch.wait_durable(end);
    drop(log);
    let (_, _, found) = recover(&disk, Options::default()).unwrap();
    assert!(found == written);
}

#[test]
fn a_record_lies_at_the_position_it_was_given() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    for (place, bytes) in fill(&log, &watch, &mut SeededRandom::new(2), 200) {
        let file = crate::folder::names::extent_name(place.0 / EXTENT_BYTES_MIN);
        let offset = usize::try_from(place.0 % EXTENT_BYTES_MIN).unwrap();
        assert_eq!(memory.files()[&file][offset..offset + bytes.len()], bytes);
    }
}

#[test]
fn a_wrong_hint_changes_nothing() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let mut end = Lsn::ZERO;
    let mut written = Vec::new();
    for (hint, bytes) in [(0, 30_000), (30_000, 0), (10, 200_000), (5, 6), (0, 100_000)] {
        let mut appender = log.appender();
        let place = appender.record(hint, |buffer| buffer.extend(record(7, bytes)));
        end = appender.commit(Urgency::Forced).unwrap();
        written.push((place, record(7, bytes)));
    }
    watch.wait_durable(end);
    log.shutdown();
    assert!(recover(&disk, Options::small()).unwrap().2 == written);
}

#[test]
fn a_run_larger_than_any_batch_is_one_run() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let records: Vec<Vec<u8>> = (0..100).map(|byte| record(byte, 10_000)).collect();
    let (places, end) = append(&log, &records, Urgency::Forced);
    watch.wait_durable(end);
    assert!(log.stats().writes > 10);
    drop(log);
    let written: Vec<Record> = places.into_iter().zip(records).collect();
    assert!(recover(&disk, Options::small()).unwrap().2 == written);
}

#[test]
fn a_run_that_is_dropped_leaves_nothing_to_replay() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let (first, _) = append(&log, &[record(1, 10)], Urgency::Forced);
    for count in [1, 100] {
        let mut appender = log.appender();
        for _ in 0..count {
            appender.record(10_000, |buffer| buffer.extend(record(2, 10_000)));
        }
        drop(appender);
    }
    let (second, end) = append(&log, &[record(3, 10)], Urgency::Forced);
    watch.wait_durable(end);
    assert_eq!(log.unsynced_bytes(), 0);
    drop(log);
    let (_, _, found) = recover(&disk, Options::small()).unwrap();
    assert_eq!(found, [(first[0], record(1, 10)), (second[0], record(3, 10))]);
}

#[test]
fn unsynced_bytes_are_those_appended_and_not_durable() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    memory.hold_syncs();
    let (_, end) = append(&log, &[record(1, 1_000)], Urgency::Forced);
    memory.wait_for_syncs(1);
    assert_eq!(log.unsynced_bytes(), 1_000 + 2 + 7 + 40);
    assert!(log.durable() < end);
    memory.open_gate();
    watch.wait_durable(end);
    assert_eq!(log.unsynced_bytes(), 0);
    assert_eq!((log.durable(), log.tail()), (end, end));
}

#[test]
fn what_arrives_during_a_write_shares_the_next_one() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let options = Options { writes_in_flight_max: 1, ..Options::small() };
    let log = start(&disk, options, &watch);
    memory.hold_syncs();
    let mut end = append(&log, &[record(0, 10)], Urgency::Forced).1;
    memory.wait_for_syncs(1);
    for byte in 0..50 {
        end = append(&log, &[record(byte, 10)], Urgency::Forced).1;
    }
    memory.open_gate();
    watch.wait_durable(end);
    let stats = log.stats();
    assert_eq!((stats.commits, stats.writes, stats.syncs), (51, 2, 2));
}

#[test]
fn writes_side_by_side_at_least_double() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    memory.hold_syncs();
    let mut end = Lsn::ZERO;
    for (commit, held) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 3), (7, 3), (8, 4)] {
        end = append(&log, &[record(1, 10)], Urgency::Forced).1;
        memory.wait_for_syncs(held);
        assert_eq!(memory.syncs_held(), held, "after commit {commit}");
    }
    memory.open_gate();
    watch.wait_durable(end);
    assert_eq!(log.stats().syncs, 4);
}

#[test]
fn a_later_write_that_is_back_first_is_not_reported_before_the_earlier_one() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    memory.hold_syncs();
    let first = append(&log, &[record(1, 10)], Urgency::Forced).1;
    memory.wait_for_syncs(1);
    let second = append(&log, &[record(2, 10)], Urgency::Forced).1;
    memory.wait_for_syncs(2);
    // Whichever of the two is let go: nothing, or the first, is reported; never the second alone.
    memory.release_syncs(1);
    memory.release_syncs(1);
    watch.wait_durable(second);
    let reported = watch.durable();
    assert!(reported == [first, second] || reported == [second], "{reported:?}");
    memory.open_gate();
}

#[test]
fn a_lazy_run_rides_with_the_next_forced_one_or_goes_after_its_delay() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let options = Options { lazy_delay: Duration::from_secs(3_600), ..Options::small() };
    let log = start(&disk, options, &watch);
    memory.hold_syncs();
    let lazy = append(&log, &[record(1, 10)], Urgency::Lazy).1;
    let forced = append(&log, &[record(2, 10)], Urgency::Forced).1;
    memory.wait_for_syncs(1);
    assert!(lazy < forced);
    memory.open_gate();
    watch.wait_durable(forced);
    assert_eq!(log.stats().syncs, 1);
    drop(log);

    let log = start(&disk, Options::small(), &watch);
    let lazy = append(&log, &[record(3, 10)], Urgency::Lazy).1;
    watch.wait_durable(lazy);
}

#[test]
fn an_orderly_end_writes_what_is_open() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let options = Options { lazy_delay: Duration::from_secs(3_600), ..Options::small() };
    let log = start(&disk, options.clone(), &watch);
    let (places, end) = append(&log, &[record(1, 10)], Urgency::Lazy);
    log.shutdown();
    log.shutdown();
    assert!(log.durable() >= end);
    let mut appender = log.appender();
    appender.record(1, |buffer| buffer.push(1));
    assert!(matches!(appender.commit(Urgency::Forced), Err(LogError::Stopped)));
    drop(log);
    assert_eq!(recover(&disk, options).unwrap().2, [(places[0], record(1, 10))]);
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_reported_durable() {
    for on in [FaultOn::Write, FaultOn::Sync] {
        let (memory, disk) = memory();
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let first = append(&log, &[record(1, 10)], Urgency::Forced).1;
        watch.wait_durable(first);
        let error = std::io::ErrorKind::Other;
        let prefix = "extent-".to_owned();
        memory.inject(Fault { on, prefix, after: 0, times: 1, error });
        append(&log, &[record(2, 10)], Urgency::Forced);
        assert!(watch.wait_failed().contains("write a batch"));
        let mut appender = log.appender();
        appender.record(1, |buffer| buffer.push(1));
        assert!(matches!(appender.commit(Urgency::Forced), Err(LogError::Failed)));
        log.shutdown();
        assert_eq!(watch.failures(), 1);
        assert_eq!(watch.durable().last(), Some(&first));
        assert_eq!(memory.syncs_held(), 0);
    }
}

#[test]
fn a_failed_sync_of_the_folder_ends_the_log() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let (recovery, _, _) = recover(&disk, Options::small()).unwrap();
    let error = std::io::ErrorKind::Other;
    let on = FaultOn::SyncNames;
    memory.inject(Fault { on, prefix: String::new(), after: 0, times: 1, error });
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
    watch.wait_failed();
    log.shutdown();
    assert_eq!(watch.failures(), 1);
}

#[test]
fn bodies_are_read_back_through_a_cache_smaller_than_the_log() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let options = Options { cache_bytes: 600 * 1024, ..Options::small() };
    let log = start(&disk, options.clone(), &watch);
    let written = fill(&log, &watch, &mut SeededRandom::new(3), 1_000);
    log.shutdown();
    drop(log);
    let log = start(&disk, options, &watch);
    let seed = 4;
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let read = |(place, bytes): &Record| {
        let location = BodyLocation { lsn: *place, bytes: u32::try_from(bytes.len()).unwrap() };
        let back = log.resident(location).map_or_else(|| log.read(location), Ok).unwrap();
        assert_eq!(back, bytes);
    };
    written.iter().for_each(read);
    let in_order = log.stats();
    assert!(in_order.cache_hits > 20 * in_order.cache_misses, "{in_order:?}");
    for _ in 0..300 {
        read(&written[usize::try_from(random.below(written.len() as u64)).unwrap()]);
    }
    // A part of a record is a body too.
    let (place, bytes) = written.iter().find(|(_, bytes)| bytes.len() > 1_000).unwrap();
    let part = BodyLocation { lsn: place.after(500), bytes: 100 };
    assert_eq!(log.read(part).unwrap(), bytes[500..600]);
    assert!(log.stats().cache_bytes <= 600 * 1024);
}

#[test]
fn a_damaged_body_is_never_given_out() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let options = Options { cache_bytes: 0, ..Options::small() };
    let log = start(&disk, options, &watch);
    let (places, end) = append(&log, &[record(1, 5_000), record(2, 10)], Urgency::Forced);
    watch.wait_durable(end);
    let location = BodyLocation { lsn: places[0], bytes: 5_000 };
    assert_eq!(log.read(location).unwrap(), record(1, 5_000));
    let offset = usize::try_from(places[0].0 + 4_500).unwrap();
    memory.change(&crate::folder::names::extent_name(0), |file| file[offset] ^= 0x10);
    assert!(matches!(log.read(location), Err(LogError::Damaged(_))));
    let error = std::io::ErrorKind::Other;
    memory.inject(Fault { on: FaultOn::Read, prefix: String::new(), after: 0, times: 9, error });
    assert!(matches!(log.read(location), Err(LogError::Io { .. })));
}

#[test]
fn appenders_on_many_threads_lose_nothing_and_mix_nothing() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let options = Options { log_bytes_max: 1 << 30, ..Options::small() };
    let log = start(&disk, options.clone(), &watch);
    let append_many = |thread: u8| {
        let mut ends = Vec::new();
        for run in 0_u8..100 {
            let records: Vec<Vec<u8>> = (0..3).map(|part| vec![thread, run, part]).collect();
            let (_, end) = append(&log, &records, Urgency::Forced);
            ends.push(end);
            if run % 10 == 0 {
                watch.wait_durable(end);
            }
        }
        ends.last().copied().unwrap()
    };
    let last = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let append_many = &append_many;
                scope.spawn(move || append_many(thread))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    watch.wait_durable(last);
    log.shutdown();
    let (_, _, found) = recover(&disk, options).unwrap();
    assert_eq!(found.len(), 8 * 100 * 3);
    let mut next = [0_u8; 8];
    for run in found.chunks(3) {
        let (thread, number) = (run[0].1[0], run[0].1[1]);
        assert_eq!(number, next[usize::from(thread)]);
        next[usize::from(thread)] += 1;
        for (part, record) in (0_u8..).zip(run) {
            assert_eq!(record.1, [thread, number, part]);
        }
    }
}

#[test]
fn who_waits_for_an_extent_hears_that_the_disk_has_no_room_for_it_after_all() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(5 * EXTENT_BYTES_MIN + 8_192));
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let watch = Watch::new();
    let log = start(&shared, Options::small(), &watch);
    loop {
        let mut appender = log.appender();
        appender.record(20_000, |buffer| buffer.extend_from_slice(&[7; 20_000]));
        match appender.commit(Urgency::Forced) {
            Ok(end) => watch.wait_durable(end),
            Err(error) => break assert!(matches!(error, LogError::Full), "{error}"),
        }
    }
    let mut state = log.shared().state();
    // As it is when all of an extent is used before preallocation, which made it, asks the disk
    // again.
    state.extents.disk_room = 1;
    let (state, opened) = log.shared().open_batch(state, 30_000);
    assert_eq!(opened, OpenOutcome::Full);
    drop(state);
}
