//! Calls that give, take and remove names of files fail, each once: the log goes on, and the next
//! start takes what is there.

use crate::folder::names::{extent_name, image_name};
use std::io::ErrorKind;
use std::sync::Arc;

use towline_types::{BodyLocation, Lsn};

use super::memory;
use crate::disk::{CrashPoint, CrashRule, Disk, Fault, FaultOn, MemoryDisk};
use crate::error::{Damage, LogError};
use crate::listener::Urgency;
use crate::log::Log;
use crate::offline;
use crate::options::{EXTENT_BYTES_MIN, Options};
use crate::record::CHECK_BYTES;
use crate::testing::{LOG_ID, Record, Watch, append, recover, start};
use crate::{Begin, Recovery, ReplayError};

const ERRORS: [ErrorKind; 3] =
    [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::Other];

fn options() -> Options {
    Options { reserve_bytes: 0, cache_bytes: 0, ..Options::small() }
}

/// What a life came to.
struct Life {
    runs: Vec<(Lsn, Record)>,
    failed: bool,
    /// Calls about images and free space that were refused.
    refused: usize,
}

/// Fills extents, takes images, lets extents go, and goes on when any of that is refused; ends when
/// the log does.
fn live(disk: &Arc<dyn Disk>) -> Life {
    let mut life = Life { runs: Vec::new(), failed: false, refused: 0 };
    let Ok((recovery, _, _)) = recover(disk, options()) else {
        return Life { failed: true, ..life };
    };
    let watch = Watch::new();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn crate::Listener>).unwrap();
    for round in 0_u8..16 {
        let record = vec![round; 60_000];
        for _ in 0..4 {
            let mut appender = log.appender();
            let place = appender.record(record.len(), |buffer| buffer.extend_from_slice(&record));
            let end = match appender.commit(Urgency::Forced) {
                Ok(end) => end,
                Err(LogError::Full) => continue,
                Err(_) => return Life { failed: true, ..life },
            };
            if !watch.wait_durable_or_failed(end) {
                return Life { failed: true, ..life };
            }
            life.runs.push((end, (place, record.clone())));
        }
        let durable = log.durable();
        let Some(mark) = log.mark_at(durable) else { continue };
        life.refused += usize::from(log.write_image(mark, &[round]).is_err());
        life.refused += usize::from(log.reclaim(durable).is_err());
        if round % 5 == 4 {
            life.refused += usize::from(log.drop_older_images().is_err());
            life.refused += usize::from(log.reclaim(durable).is_err());
        }
    }
    life.failed = watch.failures() > 0;
    life
}

/// The next start finds all that was durable, agrees with the check, and has the space again.
fn check_next_start(disk: &Arc<dyn Disk>, life: &Life, what: &str) {
    let checked = offline::verify_disk(disk).unwrap();
    assert!(checked.is_sound(), "{what}: {:?}", checked.findings);
    let (recovery, _, found) =
        recover(disk, options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let from = recovery.image().map_or(Lsn::ZERO, |image| image.at);
    let runs = life.runs.iter().filter(|(end, _)| *end > from);
    let wanted: Vec<Record> = runs.map(|(_, record)| record.clone()).collect();
    assert!(found.get(..wanted.len()) == Some(&wanted[..]), "{what}: a durable run is gone");
    let watch = Watch::new();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn crate::Listener>).unwrap();
    let (_, end) = append(&log, &[vec![1; 100]], Urgency::Forced);
    watch.wait_durable(end);
    for _ in 0..2 {
        log.write_image(log.mark_at(end).unwrap(), b"last").unwrap();
        log.drop_older_images().unwrap();
        log.reclaim(end).unwrap();
    }
    assert_eq!(log.shared().first_held().0 / EXTENT_BYTES_MIN, (end.0 - 1) / EXTENT_BYTES_MIN);
}

/// How often each kind of call that changes names comes up in such a life, with some to spare.
const CALLS: u64 = 70;

#[test]
fn a_call_about_names_that_fails_once_ends_nothing_and_leaves_no_gap() {
    let mut refused = 0;
    for error in ERRORS {
        for on in [FaultOn::Rename, FaultOn::Create, FaultOn::Reserve] {
            for after in 0..CALLS {
                let (memory, disk) = memory();
                // The first extent is made by the start, which may be refused.
                drop(start(&disk, options(), &Watch::new()));
                memory.inject(Fault { on, prefix: String::new(), after, times: 1, error });
                let life = live(&disk);
                let what = format!("{on:?} number {after} fails: {error}");
                let in_start = life.runs.is_empty();
                assert!(!life.failed || in_start, "{what}: the log ended");
                refused += life.refused;
                memory.heal();
                check_next_start(&disk, &life, &what);
            }
        }
    }
    assert!(refused > 20, "calls were hit: {refused}");
}

#[test]
fn a_sync_of_names_that_fails_ends_the_log_and_the_next_start_takes_what_is_there() {
    for error in ERRORS {
        for after in 0..CALLS {
            let (memory, disk) = memory();
            let on = FaultOn::SyncNames;
            memory.inject(Fault { on, prefix: String::new(), after, times: 1, error });
            let life = live(&disk);
            memory.heal();
            check_next_start(&disk, &life, &format!("sync {after} fails: {error}"));
        }
    }
}

#[test]
fn whatever_change_of_the_disk_fails_once_the_next_start_takes_what_is_there_after_a_power_cut() {
    for (number, error) in ERRORS.into_iter().enumerate() {
        for after in (0..420).skip(number).step_by(3) {
            let memory = MemoryDisk::recording();
            let disk: Arc<dyn Disk> = Arc::new(memory.clone());
            let on = FaultOn::Change;
            memory.inject(Fault { on, prefix: String::new(), after, times: 1, error });
            let life = live(&disk);
            memory.heal();
            let journal = memory.journal();
            let rule = CrashRule { keep_percent: 30, unit_bytes: 4_096, seed: after };
            let crashed = journal.crash(CrashPoint(journal.len()), rule);
            let what = format!("change {after} fails: {error}");
            check_next_start(&(Arc::new(crashed) as Arc<dyn Disk>), &life, &what);
            check_next_start(&disk, &life, &what);
        }
    }
}

/// Seed 9628439 of clusters: the page file had outlived the first extent, which an earlier start
/// had made and not made durable. The next start was refused: "the log existed".
#[test]
fn a_first_extent_of_a_start_that_failed_outlives_what_the_next_start_makes() {
    let memory = MemoryDisk::recording();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let (on, error) = (FaultOn::SyncNames, ErrorKind::Other);
    memory.inject(Fault { on, prefix: String::new(), after: 0, times: 1, error });
    assert!(Recovery::open(Arc::clone(&disk), options(), LOG_ID).is_err(), "the first start");
    memory.heal();
    let before = memory.journal().len();
    drop(Recovery::open(Arc::clone(&disk), options(), LOG_ID).unwrap());
    // As the queue manager does before the recovery ends.
    disk.create("pages").unwrap();
    let journal = memory.journal();
    for (at, seed) in (before..=journal.len()).flat_map(|at| (0..20).map(move |seed| (at, seed))) {
        let rule = CrashRule { keep_percent: 30, unit_bytes: 4_096, seed };
        let crashed = journal.crash_with_names_in_any_order(CrashPoint(at), rule);
        let opened = Recovery::open(Arc::new(crashed) as Arc<dyn Disk>, options(), LOG_ID);
        assert!(opened.is_ok(), "cut at {at}, seed {seed}: {:?}", opened.err());
    }
}

#[test]
fn an_extent_that_could_not_be_let_go_is_tried_again_at_the_next_call() {
    for error in ERRORS {
        let (memory, disk) = memory();
        let (log, ends) = long(&disk, 6);
        let end = *ends.last().unwrap();
        log.write_image(log.mark_at(end).unwrap(), b"image").unwrap();
        // The rename of the first fails, and so does the removal that is tried then.
        let (on, prefix) = (FaultOn::Rename, extent_name(0));
        memory.inject(Fault { on, prefix, after: 0, times: 2, error });
        assert!(matches!(log.reclaim(end), Err(LogError::Io { .. })));
        assert_eq!(log.shared().first_held(), Lsn::ZERO);
        assert!(memory.files().contains_key(&extent_name(1)), "none goes before an older one");
        log.reclaim(end).unwrap();
        assert_eq!(log.shared().first_held().0 / EXTENT_BYTES_MIN, end.0 / EXTENT_BYTES_MIN);
        // Its threads rename files of the disk until it has ended.
        drop(log);
        // Where a name is refused and a removal is not, the space is free at once.
        let (log, ends) = long(&disk, 12);
        let end = *ends.last().unwrap();
        log.write_image(log.mark_at(end).unwrap(), b"image").unwrap();
        log.drop_older_images().unwrap();
        let (on, prefix) = (FaultOn::Rename, "extent-".to_owned());
        memory.inject(Fault { on, prefix, after: 0, times: 1, error });
        log.reclaim(end).unwrap();
        assert_eq!(log.shared().first_held().0 / EXTENT_BYTES_MIN, end.0 / EXTENT_BYTES_MIN);
    }
}

/// A log of so many extents, one run after the other durable, and where each ended.
fn long(disk: &Arc<dyn Disk>, extents: u64) -> (Log, Vec<Lsn>) {
    let watch = Watch::new();
    let log = start(disk, options(), &watch);
    let mut ends = Vec::new();
    while log.tail().0 < extents * EXTENT_BYTES_MIN {
        let (_, end) = append(&log, &[vec![ends.len().to_le_bytes()[0]; 60_000]], Urgency::Forced);
        watch.wait_durable(end);
        ends.push(end);
    }
    (log, ends)
}

#[test]
fn extents_before_a_gap_that_no_image_needs_are_left_over_and_go_when_nothing_in_them_lives() {
    let (memory, disk) = memory();
    let (log, ends) = long(&disk, 8);
    let end = *ends.last().unwrap();
    log.write_image(log.mark_at(end).unwrap(), b"image").unwrap();
    drop(log);
    // As a log before this version left it, which went on behind an extent that it could not
    // rename.
    for gone in [2, 3, 4] {
        disk.remove(&extent_name(gone)).unwrap();
    }
    let checked = offline::verify_disk(&disk).unwrap();
    let found = checked.findings.first().map(ToString::to_string).unwrap_or_default();
    assert!(
        found.contains("(extents 0 to 1, 5 to ") && found.contains("; 2 to 4 missing"),
        "{found}"
    );
    assert!(checked.is_sound() && checked.findings.len() == 1);
    let (_, report, _) = recover(&disk, options()).unwrap();
    assert_eq!(report.findings, checked.findings, "a start finds what the check found");
    let log = start(&disk, options(), &Watch::new());
    // A message may live there still, and then it is kept.
    let body = BodyLocation { lsn: Lsn(ends[0].0 - 60_000 - CHECK_BYTES as u64), bytes: 60_000 };
    assert_eq!(log.read(body).unwrap(), vec![0; 60_000]);
    log.reclaim(Lsn(EXTENT_BYTES_MIN)).unwrap();
    assert!(!memory.files().contains_key(&extent_name(0)));
    assert!(memory.files().contains_key(&extent_name(1)));
    assert!(matches!(log.read(body), Err(LogError::Gone { .. })));
    log.reclaim(end).unwrap();
    assert!(!memory.files().contains_key(&extent_name(1)));
    drop(log);
    assert_eq!(offline::verify_disk(&disk).unwrap().findings, []);
    assert_eq!(recover(&disk, options()).unwrap().1.findings, []);
}

#[test]
fn a_gap_a_missing_extent_of_the_image_and_no_extent_at_all_are_told_apart() {
    let (memory, disk) = memory();
    let (log, ends) = long(&disk, 8);
    let middle = ends[ends.len() / 2];
    log.write_image(log.mark_at(ends[ends.len() - 1]).unwrap(), b"newer").unwrap();
    let needed = (ends[ends.len() - 1].0 - 1) / EXTENT_BYTES_MIN;
    assert!(middle.0 / EXTENT_BYTES_MIN < needed);
    drop(log);
    let files = memory.files();
    let refused = |gone: &dyn Fn(&str) -> bool| {
        let left: Vec<_> = files.clone().into_iter().filter(|(name, _)| !gone(name)).collect();
        let images = left.iter().filter(|(name, _)| name.starts_with("image-")).count() as u64;
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::with_files(left));
        let Err(LogError::Damaged(finding)) = recover(&disk, options()) else {
            panic!("not refused");
        };
        // What a start refuses, the check finds, in the same words.
        let checked = offline::verify_disk(&disk).unwrap();
        assert!(!checked.is_sound() && checked.findings.contains(&finding), "{checked:?}");
        assert_eq!(checked.images, images, "they are there: {checked:?}");
        let times = checked.findings.iter().filter(|found| **found == finding).count();
        assert_eq!(times, 1, "it is said once: {checked:?}");
        finding
    };
    let is = |name: &str, sequence: u64| name == extent_name(sequence);
    let first_gone = refused(&|name| is(name, needed));
    assert!(matches!(first_gone.what, Damage::ImageExtentMissing(_)), "{first_gone}");
    let text = first_gone.to_string();
    assert!(text.contains(&format!("; the image needs {needed:x} on)")), "{text}");
    assert!(text.contains("'towline instance replace'") && text.contains("backup"), "{text}");
    let none = refused(&|name| name.starts_with("extent-"));
    assert!(matches!(none.what, Damage::NoExtents(_)), "{none}");
    let without_image = refused(&|name| is(name, 0) || name.starts_with("image-"));
    assert_eq!(without_image.what, Damage::ImageMissing);
    let gap = refused(&|name| is(name, 2) || name.starts_with("image-"));
    assert!(matches!((gap.extent, gap.what), (2, Damage::ExtentMissing(_))), "{gap}");
    // From an older image on, the gap lies in what is needed.
    let log = start(&disk, options(), &Watch::new());
    drop(log);
    let broken = MemoryDisk::with_files(files.clone());
    broken.remove(&extent_name(1)).unwrap();
    let nothing = |_: Lsn, _: &[u8]| Ok::<(), std::convert::Infallible>(());
    let mut recovery =
        Recovery::open(Arc::new(broken) as Arc<dyn Disk>, options(), LOG_ID).unwrap();
    let rebuilt = recovery.replay_from(Begin::Oldest, nothing, |_, _| {});
    assert!(matches!(rebuilt, Err(ReplayError::Log(LogError::Damaged(_)))));
    // Files beside the extents say that there was a log, also before its first image.
    let lost = MemoryDisk::with_files([("pages".to_owned(), Vec::new())]);
    let opened = Recovery::open(Arc::new(lost) as Arc<dyn Disk>, options(), LOG_ID);
    assert!(matches!(opened.err(), Some(LogError::Damaged(_))));
    assert!(!files.contains_key(&image_name(middle)));
}
