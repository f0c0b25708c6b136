//! Free space: what happens when the log or the disk is full, and when there is space again.

use crate::folder::names::extent_name;
use std::sync::Arc;

use towline_types::Lsn;

use crate::disk::{Disk, Fault, FaultOn, MemoryDisk};
use crate::error::LogError;
use crate::extents::Space;
use crate::format::{BLOCK_BYTES, size};
use crate::listener::Urgency;
use crate::log::Log;
use crate::options::{EXTENT_BYTES_MIN, Options};
use crate::testing::{Record, Watch, append, image, recover, start};

/// Five extents, one of them the reserve.
fn five_extents() -> Options {
    Options {
        log_bytes_max: 5 * EXTENT_BYTES_MIN,
        reserve_bytes: EXTENT_BYTES_MIN,
        ..Options::small()
    }
}

fn try_append(log: &Log, byte: u8) -> Result<(Record, Lsn), LogError> {
    let record = vec![byte; 20_000];
    let mut appender = log.appender();
    let place = appender.record(record.len(), |buffer| buffer.extend_from_slice(&record));
    appender.commit(Urgency::Forced).map(|end| ((place, record), end))
}

/// Appends durable runs until the log says no; returns them, and the space seen before each.
fn fill(log: &Log, watch: &Watch) -> (Vec<Record>, Vec<Space>) {
    let mut written = Vec::new();
    let mut spaces = Vec::new();
    loop {
        spaces.push(log.space());
        match try_append(log, written.len().to_le_bytes()[0]) {
            Ok((record, end)) => {
                watch.wait_durable(end);
                written.push(record);
            }
            Err(LogError::Full) => return (written, spaces),
            Err(other) => panic!("{other}"),
        }
    }
}

fn check_full_and_back(disk: &MemoryDisk, options: &Options, give_room: impl FnOnce(&Log, Lsn)) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let watch = Watch::new();
    let log = start(&shared, options.clone(), &watch);
    let (mut written, spaces) = fill(&log, &watch);
    watch.wait_space(Space::Full);
    // Ample, then Low, then Full for the whole of the reserve, then refused.
    let count = |space| spaces.iter().filter(|seen| **seen == space).count();
    assert!(spaces.is_sorted_by_key(|space| *space as u8), "{spaces:?}");
    assert!(count(Space::Ample) > 10 && count(Space::Low) > 5, "{spaces:?}");
    let reserve_runs = usize::try_from(options.reserve_bytes).unwrap() / 24_576;
    assert!(count(Space::Full) >= reserve_runs, "{spaces:?}");
    assert!(matches!(try_append(&log, 0), Err(LogError::Full)));
    assert_eq!(log.unsynced_bytes(), 0);

    give_room(&log, log.durable());
    watch.wait_space(Space::Ample);
    let from = log.image_at().unwrap_or(Lsn::ZERO);
    written.retain(|(place, _)| *place > from);
    let (record, end) = try_append(&log, 99).unwrap();
    watch.wait_durable(end);
    written.push(record);
    drop(log);
    let (_, report, found) = recover(&shared, options.clone()).unwrap();
    assert_eq!(report.findings, []);
    assert!(found == written, "nothing that was acknowledged is lost");
    assert_eq!(watch.failures(), 0);
}

#[test]
fn at_log_bytes_max_the_reserve_stays_usable_and_reclaim_gives_room() {
    check_full_and_back(&MemoryDisk::new(), &five_extents(), |log, durable| {
        image(log, durable, b"all of it");
        log.reclaim(durable).unwrap();
    });
}

#[test]
fn runs_that_look_at_the_room_first_leave_the_reserve_although_nothing_was_told() {
    const RUN_BYTES: usize = 20_000;
    let shared: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let watch = Watch::new();
    let options = five_extents();
    let log = start(&shared, options.clone(), &watch);
    // Neither the listener nor the disk is waited for.
    let run = || append(&log, &[vec![7; RUN_BYTES]], Urgency::Forced).1;
    let mut end = run();
    while log.room_for_puts() >= 2 * RUN_BYTES as u64 {
        end = run();
    }
    assert_eq!(log.room_for_puts(), 0, "what does not fit any more is reported as a full log");
    assert_eq!(log.space(), Space::Full);
    watch.wait_space(Space::Full);
    watch.wait_durable(end);
    // Runs that free still have three quarters of the reserve at least: each a block of its own.
    let runs = size(options.reserve_bytes) * 3 / 4 / BLOCK_BYTES - 1;
    let part = options.reserve_bytes / 8;
    for left in (0..runs).rev() {
        watch.wait_durable(append(&log, &[vec![1; 20]], Urgency::Forced).1);
        // Old messages may be logged again until little of it is left.
        let for_relocation = log.room_for_relocation() + part;
        let left_bytes = (left * BLOCK_BYTES) as u64;
        assert!(for_relocation >= left_bytes.max(part), "{for_relocation} with {left} left");
    }
    assert!(log.room_for_relocation() <= part, "the last of it is for gets");
    image(&log, log.durable(), b"all of it");
    log.reclaim(log.durable()).unwrap();
    assert!(log.room_for_puts() >= 2 * RUN_BYTES as u64, "known when the extents are gone");
}

#[test]
fn on_a_full_disk_the_same_holds_and_room_is_noticed_when_it_comes_back() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(5 * EXTENT_BYTES_MIN + 8_192));
    check_full_and_back(&disk, &Options::small(), |_, _| disk.set_capacity(None));
}

#[test]
fn a_disk_that_refuses_a_file_although_it_has_room_is_asked_again() {
    let disk = MemoryDisk::new();
    let watch = Watch::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (recovery, _, _) = recover(&shared, Options::small()).unwrap();
    let error = std::io::ErrorKind::StorageFull;
    let on = FaultOn::Reserve;
    disk.inject(Fault { on, prefix: String::new(), after: 0, times: 3, error });
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn crate::Listener>).unwrap();
    // What is left of the first extent is less than the reserve and one extent.
    watch.wait_space(Space::Full);
    watch.wait_space(Space::Ample);
    // The preallocation thread says so when it has nothing more to make, and rests until something
    // is appended.
    assert!(!disk.files().contains_key("new"), "what was refused is not left behind");
    for _ in 0..30 {
        watch.wait_durable(append(&log, &[vec![1; 20_000]], Urgency::Forced).1);
    }
    assert_eq!(watch.failures(), 0);
}

#[test]
fn without_an_image_nothing_is_let_go() {
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let watch = Watch::new();
    let log = start(&shared, five_extents(), &watch);
    let (written, _) = fill(&log, &watch);
    log.reclaim(log.durable()).unwrap();
    assert!(log.stats().extents >= 4);
    drop(log);
    assert!(recover(&shared, five_extents()).unwrap().2 == written);
}

#[test]
fn a_body_in_a_reclaimed_extent_is_gone() {
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let watch = Watch::new();
    let options = Options { cache_bytes: 0, ..five_extents() };
    let log = start(&shared, options, &watch);
    let (written, _) = fill(&log, &watch);
    let location = towline_types::BodyLocation { lsn: written[0].0, bytes: 20_000 };
    assert_eq!(log.read(location).unwrap(), written[0].1);
    image(&log, log.durable(), b"");
    log.reclaim(log.durable()).unwrap();
    assert!(matches!(log.read(location), Err(LogError::Gone { lsn }) if lsn == location.lsn));
}

/// A log whose newest extent was part of a copy or comes from a backup: as long as what is in it.
/// Returns its end.
fn copied(disk: &MemoryDisk) -> Lsn {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let watch = Watch::new();
    let log = start(&shared, Options::small(), &watch);
    let mut end = Lsn::ZERO;
    while end.0 < 2 * EXTENT_BYTES_MIN + 30_000 {
        end = append(&log, &[vec![1; 20_000]], Urgency::Forced).1;
        watch.wait_durable(end);
    }
    drop(log);
    for sequence in 3..9 {
        drop(disk.remove(&extent_name(sequence)));
    }
    let length = size(end.0 % EXTENT_BYTES_MIN).next_multiple_of(BLOCK_BYTES);
    disk.change(&extent_name(2), |file| file.truncate(length));
    end
}

#[test]
fn a_disk_that_is_full_while_the_newest_extent_is_filled_is_no_room_and_no_failure() {
    // Where space can be preallocated, and where only the write shows that there is none.
    for by_write in [false, true] {
        let disk = MemoryDisk::new();
        let end = copied(&disk);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let watch = Watch::new();
        let used: usize = disk.files().values().map(Vec::len).sum();
        if by_write {
            let (prefix, error) = (extent_name(2), std::io::ErrorKind::StorageFull);
            let fault = Fault { on: FaultOn::Write, prefix, after: 0, times: u64::MAX, error };
            disk.inject(fault);
        } else {
            disk.set_capacity(Some(used as u64));
        }
        let log = start(&shared, Options::small(), &watch);
        watch.wait_space(Space::Full);
        assert_eq!(log.durable(), end);
        assert!(matches!(try_append(&log, 7), Err(LogError::Full)));
        disk.set_capacity(None);
        disk.heal();
        watch.wait_space(Space::Ample);
        for byte in 0..30 {
            let (_, end) = try_append(&log, byte).unwrap();
            watch.wait_durable(end);
        }
        assert_eq!(watch.failures(), 0);
        drop(log);
        let (_, report, found) = recover(&shared, Options::small()).unwrap();
        assert!(report.findings.is_empty() && found.len() > 30);
    }
}

#[test]
fn a_further_extent_that_cannot_be_made_is_told_once_and_tried_again() {
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let watch = Watch::new();
    let (recovery, _, _) = recover(&shared, Options::small()).unwrap();
    let (on, error) = (FaultOn::Create, std::io::ErrorKind::PermissionDenied);
    disk.inject(Fault { on, prefix: String::new(), after: 0, times: 3, error });
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn crate::Listener>).unwrap();
    watch.wait_space(Space::Full);
    watch.wait_space(Space::Ample);
    assert_eq!(watch.hindrances(), 1);
    for _ in 0..30 {
        watch.wait_durable(append(&log, &[vec![1; 20_000]], Urgency::Forced).1);
    }
    assert_eq!((watch.failures(), watch.hindrances()), (0, 1));
}

#[test]
fn a_failed_sync_of_an_extent_that_holds_batches_ends_the_log_also_while_it_is_filled() {
    let disk = MemoryDisk::new();
    copied(&disk);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let watch = Watch::new();
    let (recovery, _, _) = recover(&shared, Options::small()).unwrap();
    let (prefix, error) = (extent_name(2), std::io::ErrorKind::Other);
    disk.inject(Fault { on: FaultOn::Sync, prefix, after: 0, times: 1, error });
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn crate::Listener>).unwrap();
    while watch.failures() == 0 {
        assert_eq!(watch.hindrances(), 0, "it is tried again");
        std::thread::yield_now();
    }
    assert!(matches!(try_append(&log, 7), Err(LogError::Failed)));
}
