//! A disk that stalls, fails or is full: nothing is acknowledged that is not durable, and what can
//! go on goes on.

use std::io::ErrorKind;
use std::sync::Arc;

use towline_types::{BodyLocation, Lsn, SeededRandom};

use super::{fill, memory, record};
use crate::disk::{Disk, Fault, FaultOn, MemoryDisk};
use crate::error::LogError;
use crate::listener::Urgency;
use crate::log::Log;
use crate::options::{EXTENT_BYTES_MIN, Options};
use crate::pages::Pages;
use crate::testing::{Watch, append, image, recover, start};

fn fault(on: FaultOn, prefix: &str, error: ErrorKind) -> Fault {
    Fault { on, prefix: prefix.to_owned(), after: 0, times: 1, error }
}

/// A log with one durable run and an image of it.
fn imaged(disk: &Arc<dyn Disk>, watch: &Arc<Watch>) -> (Log, Lsn) {
    let log = start(disk, Options::small(), watch);
    let (_, end) = append(&log, &[record(1, 10)], Urgency::Forced);
    watch.wait_durable(end);
    image(&log, end, b"old");
    (log, end)
}

fn newest_image(disk: &Arc<dyn Disk>) -> Vec<u8> {
    let (recovery, _, _) = recover(disk, Options::small()).unwrap();
    recovery.image().unwrap().bytes.to_vec()
}

#[test]
fn while_the_disk_stalls_nothing_is_acknowledged_and_then_all_goes_on() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let (_, first) = append(&log, &[record(1, 10)], Urgency::Forced);
    watch.wait_durable(first);
    assert_eq!(log.stats().write_waiting_us, 0);
    memory.hold_syncs();
    let mut last = first;
    for byte in 0..50 {
        last = append(&log, &[record(byte, 5_000)], Urgency::Forced).1;
    }
    memory.wait_for_syncs(1);
    // How long it has been stalling shows, and grows.
    let mut seen = 0;
    while seen < 20_000 {
        let now = log.stats().write_waiting_us;
        assert!(now >= seen, "{now} after {seen}");
        seen = now;
        std::thread::yield_now();
    }
    assert_eq!((watch.durable().last(), log.durable()), (Some(&first), first));
    assert_eq!(log.mark_at(last), None, "no image of what is not durable");
    memory.open_gate();
    watch.wait_durable(last);
    assert!(log.stats().write_latency.max_us >= 20_000);
    log.shutdown();
    assert_eq!((log.stats().write_waiting_us, watch.failures()), (0, 0));
}

#[test]
fn a_body_that_cannot_be_read_is_an_error_of_its_own_and_the_log_goes_on() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options { cache_bytes: 0, ..Options::small() }, &watch);
    let written = fill(&log, &watch, &mut SeededRandom::new(3), 20);
    let (lsn, bytes) = &written[7];
    let body = BodyLocation { lsn: *lsn, bytes: u32::try_from(bytes.len()).unwrap() };
    for on in [FaultOn::Open, FaultOn::Read] {
        log.running.shared.handles.forget(0);
        memory.inject(fault(on, "extent-", ErrorKind::Other));
        assert!(matches!(log.read(body), Err(LogError::Io { .. })), "{on:?}");
        assert_eq!(log.read(body).unwrap(), *bytes);
    }
    fill(&log, &watch, &mut SeededRandom::new(4), 20);
    assert_eq!(watch.failures(), 0);
}

#[test]
fn an_image_that_cannot_be_written_leaves_the_old_one_and_the_log_goes_on() {
    for error in [ErrorKind::Other, ErrorKind::StorageFull] {
        for on in [FaultOn::Create, FaultOn::Write, FaultOn::Sync, FaultOn::Rename] {
            let (memory, disk) = memory();
            let watch = Watch::new();
            let (log, old) = imaged(&disk, &watch);
            let (_, end) = append(&log, &[record(2, 10)], Urgency::Forced);
            watch.wait_durable(end);
            memory.inject(fault(on, "new-image", error));
            let refused = log.write_image(log.mark_at(end).unwrap(), b"new").unwrap_err();
            assert_eq!(refused.is_full(), error == ErrorKind::StorageFull, "{on:?} {refused}");
            assert_eq!(log.image_at(), Some(old));
            assert!(!memory.files().contains_key("new-image"), "what is useless takes no room");
            assert_eq!(newest_image(&(Arc::new(copy(&memory)) as Arc<dyn Disk>)), b"old");
            let (_, end) = append(&log, &[record(3, 10)], Urgency::Forced);
            watch.wait_durable(end);
            image(&log, end, b"new");
            drop(log);
            assert_eq!(newest_image(&disk), b"new");
            assert_eq!(watch.failures(), 0);
        }
    }
}

#[test]
fn an_old_image_that_cannot_be_removed_is_no_failure_of_the_new_one() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let (log, first) = imaged(&disk, &watch);
    let mut ends = vec![first];
    for byte in 0..3 {
        let (_, end) = append(&log, &[record(byte, 10)], Urgency::Forced);
        watch.wait_durable(end);
        if byte == 1 {
            memory.inject(fault(FaultOn::Rename, "image-", ErrorKind::Other));
        }
        image(&log, end, &[byte]);
        ends.push(end);
        let kept = if byte == 1 { 3 } else { 2 };
        assert_eq!(log.images(), ends[ends.len() - kept..]);
    }
    drop(log);
    assert_eq!(newest_image(&disk), [2]);
}

fn copy(disk: &MemoryDisk) -> MemoryDisk {
    MemoryDisk::with_files(disk.files())
}

#[test]
fn a_page_that_cannot_be_written_leaves_the_old_image_whole_and_the_log_goes_on() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let (log, _) = imaged(&disk, &watch);
    let pages = Pages::open(Arc::clone(&disk), []).unwrap();
    let old = pages.write(b"page of the old image").unwrap();
    pages.sync().unwrap();
    for error in [ErrorKind::Other, ErrorKind::StorageFull] {
        memory.inject(fault(FaultOn::Write, "pages", error));
        assert!(pages.write(b"page of the new image").is_err());
        fill(&log, &watch, &mut SeededRandom::new(5), 5);
        assert_eq!(pages.read(old).unwrap(), b"page of the old image".as_slice());
    }
    assert_eq!(watch.failures(), 0);
}

#[test]
fn a_failed_sync_of_names_while_housekeeping_ends_the_log() {
    for in_reclaim in [false, true] {
        let (memory, disk) = memory();
        let watch = Watch::new();
        let (log, _) = imaged(&disk, &watch);
        let mut end = Lsn::ZERO;
        while end.0 < 3 * EXTENT_BYTES_MIN {
            end = append(&log, &[record(2, 20_000)], Urgency::Forced).1;
            watch.wait_durable(end);
        }
        image(&log, end, b"one");
        if in_reclaim {
            image(&log, end, b"two");
            let (_, later) = append(&log, &[record(3, 10)], Urgency::Forced);
            watch.wait_durable(later);
            image(&log, later, b"three");
            end = later;
        }
        let fault = Fault { times: u64::MAX, ..fault(FaultOn::SyncNames, "", ErrorKind::Other) };
        memory.inject(fault);
        let failed = if in_reclaim {
            log.reclaim(end)
        } else {
            log.write_image(log.mark_at(end).unwrap(), b"new")
        };
        assert!(failed.is_err());
        watch.wait_failed();
        memory.heal();
        log.shutdown();
        assert_eq!(watch.failures(), 1);
    }
}

#[test]
fn the_figures_say_what_is_needed_of_the_log() {
    let (memory, disk) = memory();
    let room = 40 * EXTENT_BYTES_MIN;
    memory.set_capacity(Some(2 * room));
    let watch = Watch::new();
    let options = Options { log_bytes_max: room, ..Options::small() };
    let log = start(&disk, options, &watch);
    let fill_to = |extents: u64| {
        let mut end = log.tail();
        while end.0 < extents * EXTENT_BYTES_MIN {
            end = append(&log, &[record(1, 20_000)], Urgency::Forced).1;
            watch.wait_durable(end);
        }
        end
    };
    let percent = |bytes: u64| (bytes * 100).div_ceil(room);
    let first = fill_to(4);
    let stats = log.stats();
    assert_eq!((stats.bytes_for_restart, stats.bytes_for_media), (first.0, first.0));
    assert_eq!(
        (stats.in_use_percent, stats.workload_percent),
        (percent(first.0), percent(first.0))
    );
    assert_eq!(stats.write_bytes_avg, stats.physical_bytes_written / stats.writes);
    assert_eq!(stats.file_system_bytes_max, 2 * room);
    assert!(
        (4 * EXTENT_BYTES_MIN..=8 * EXTENT_BYTES_MIN).contains(&stats.file_system_bytes_in_use)
    );

    image(&log, first, b"a");
    let second = fill_to(8);
    image(&log, second, b"b");
    let third = fill_to(9);
    let stats = log.stats();
    assert_eq!(stats.bytes_for_restart, third.0 - second.0 + 1);
    assert_eq!(stats.bytes_for_media, third.0, "nobody said that bodies are not needed");
    log.reclaim(second).unwrap();
    let stats = log.stats();
    assert_eq!(stats.bytes_for_media, third.0 - first.0 + 1, "the older image needs its log");
    assert_eq!(stats.workload_percent, percent(third.0));
    assert!(stats.bytes_reusable >= 4 * EXTENT_BYTES_MIN, "{stats:?}");
    assert!(stats.in_use_percent < stats.workload_percent);
}

#[test]
fn of_many_old_extents_only_some_are_open_at_a_time() {
    let (_, disk) = memory();
    let watch = Watch::new();
    let options = Options { cache_bytes: 0, ..Options::small() };
    let log = start(&disk, options.clone(), &watch);
    let mut written = Vec::new();
    while log.tail().0 < 100 * EXTENT_BYTES_MIN {
        let bytes = record(written.len().to_le_bytes()[0], 120_000);
        let (places, end) = append(&log, std::slice::from_ref(&bytes), Urgency::Forced);
        written.push((places[0], bytes));
        watch.wait_durable(end);
    }
    let read_all = |log: &Log| {
        for (lsn, bytes) in &written {
            let body = BodyLocation { lsn: *lsn, bytes: 120_000 };
            assert_eq!(log.read(body).unwrap(), *bytes);
        }
        log.running.shared.handles.open_count()
    };
    assert_eq!(read_all(&log), 64);
    image(&log, log.durable(), b"image");
    drop(log);
    let log = start(&disk, options, &watch);
    assert!(log.running.shared.handles.open_count() < 5);
    assert_eq!(read_all(&log), 64);
}

#[test]
fn what_the_disk_does_not_answer_is_named_with_the_time_since_when() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let (_, first) = append(&log, &[record(1, 10)], Urgency::Forced);
    watch.wait_durable(first);
    assert_eq!(log.overdue(), None, "nothing is on its way");
    memory.hold_syncs();
    let (_, last) = append(&log, &[record(2, 10)], Urgency::Forced);
    memory.wait_for_syncs(1);
    let before = log.overdue().unwrap();
    assert!(before.file.starts_with("extent-0000"), "{before:?}");
    while log.overdue().unwrap().since <= before.since {
        std::thread::yield_now();
    }
    memory.open_gate();
    watch.wait_durable(last);
    assert_eq!(log.overdue(), None);
}

#[test]
fn a_log_that_is_given_up_lets_those_go_that_wait_for_a_hanging_disk() {
    let (memory, disk) = memory();
    let watch = Watch::new();
    let log = Arc::new(start(&disk, Options::small(), &watch));
    let (_, first) = append(&log, &[record(1, 10)], Urgency::Forced);
    watch.wait_durable(first);
    memory.hold_syncs();
    let appending = Arc::clone(&log);
    let full = std::thread::spawn(move || {
        loop {
            let mut appender = appending.appender();
            appender.record(60_000, |bytes| bytes.resize(bytes.len() + 60_000, 7));
            if let Err(error) = appender.commit(Urgency::Forced) {
                return error;
            }
        }
    });
    memory.wait_for_syncs(1);
    log.give_up();
    assert!(matches!(full.join().unwrap(), LogError::Failed));
    memory.open_gate();
    log.shutdown();
    assert_eq!((watch.durable(), watch.failures()), (vec![first], 0));
}
