//! Backups on disks in memory: what comes back is what was there, at any position, after any power
//! cut, and never from damaged bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use towline_types::{Lsn, PageRef, SeededRandom, Time};

mod copies;
mod damage;
mod folders;
mod terms;

use super::*;
use crate::manifest::MANIFEST_VERSION;
use towline_log::Options;
use towline_log::Pages;
use towline_log::Recovery;
use towline_log::disk::{CrashPoint, CrashRule, Disk, MemoryDisk};
use towline_log::offline;
use towline_log::testing::{LOG_ID, Record, Watch, append, body, recover, start};
use towline_log::time_index::Row;
use towline_log::{Damage, LogError};
use towline_log::{Log, Urgency};

/// A running log with pages; its image is the list of its pages.
struct Rig {
    disk: Arc<dyn Disk>,
    memory: MemoryDisk,
    log: Log,
    watch: Arc<Watch>,
    pages: Pages,
    used: Vec<PageRef>,
    image_at: Lsn,
    random: SeededRandom,
    /// All runs: their end, and their records.
    runs: Vec<(Lsn, Vec<Record>)>,
    now: u64,
}

impl Rig {
    fn new(seed: u64) -> Rig {
        println!("seed {seed}");
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let pages = Pages::open(Arc::clone(&disk), []).unwrap();
        let (random, image_at) = (SeededRandom::new(seed), Lsn::ZERO);
        Rig {
            disk,
            memory,
            log,
            watch,
            pages,
            used: vec![],
            image_at,
            random,
            runs: vec![],
            now: 0,
        }
    }

    /// With a backup, on a disk that records what is done to it, to which there is much to add; and
    /// where it ends.
    fn backed_up_and_grown(seed: u64) -> (Rig, MemoryDisk, Lsn) {
        let mut rig = Rig::new(seed);
        let first = MemoryDisk::new();
        rig.append(30);
        rig.image(0, 6);
        rig.back_up(&first, &choices(1)).unwrap();
        let end = rig.end();
        rig.append(40);
        rig.image(2, 3);
        (rig, MemoryDisk::recording_with_files(first.files()), end)
    }

    /// Appends runs of up to three records, some of them without waiting for the one before.
    fn append(&mut self, runs: u64) {
        for _ in 0..runs {
            let count = self.random.below(3) + 1;
            let records: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let bytes = self.random.below(9_000) + 1;
                    body(&mut self.random, bytes)
                })
                .collect();
            let (places, end) = append(&self.log, &records, Urgency::Forced);
            if self.random.below(3) == 0 {
                self.watch.wait_durable(end);
            }
            self.runs.push((end, places.into_iter().zip(records).collect()));
        }
        self.watch.wait_durable(self.end());
    }

    fn end(&self) -> Lsn {
        self.runs.last().unwrap().0
    }

    /// Takes an image that refers to `keep` of the pages so far and some new ones.
    fn image(&mut self, keep: usize, new: u64) {
        self.used.truncate(keep);
        for _ in 0..new {
            let bytes = self.random.below(9_000) + 1;
            let content = body(&mut self.random, bytes);
            self.used.push(self.pages.write(&content).unwrap());
        }
        self.pages.sync().unwrap();
        self.image_at = self.end();
        let mark = self.log.mark_at(self.image_at).unwrap();
        self.log.write_image(mark, &image_of(&self.used)).unwrap();
    }

    fn back_up(&mut self, to: &MemoryDisk, choices: &Choices) -> Result<BackupReport, BackupError> {
        let mut backup = Backup::open_disk(Arc::new(to.clone()))?;
        self.now += 1_000;
        let (now, keep_from) = (Time(self.now), self.log.first_held());
        let source = Source::running(&self.log, self.image_at, keep_from)?.unwrap();
        let rows = [Row { at: now, upto: self.log.durable() }];
        let choices = Choices { now, ..choices.clone() };
        let pages = SourcePages { file: Some(&self.pages), used: &self.used };
        backup.add(&source, pages, &rows, &choices, &mut |_| {})
    }

    /// What a restart over the image at `at` must find in a log that was restored to `upto`.
    fn records(&self, at: Lsn, upto: Lsn) -> Vec<Record> {
        let wanted = self.runs.iter().filter(|(end, _)| *end > at && *end <= upto);
        wanted.flat_map(|(_, records)| records.clone()).collect()
    }

    /// The end of the last run that ends at or before a position.
    fn run_before(&self, upto: Lsn) -> Lsn {
        self.runs.iter().map(|(end, _)| *end).filter(|end| *end <= upto).max().unwrap()
    }
}

fn image_of(pages: &[PageRef]) -> Vec<u8> {
    let numbers = pages.iter().flat_map(|page| [page.unit, page.bytes, page.checksum]);
    numbers.flat_map(u32::to_le_bytes).collect()
}

fn pages_of(image: &Bytes) -> Result<Vec<PageRef>, String> {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let page = |row: &[u8]| PageRef {
        unit: number(&row[..4]),
        bytes: number(&row[4..8]),
        checksum: number(&row[8..]),
    };
    Ok(image.chunks_exact(12).map(page).collect())
}

fn choices(keep_points: usize) -> Choices {
    let (now, instead, lacks) = (Time(0), false, nothing as Lacks);
    Choices { full: false, keep_points, queue_manager: None, now, instead, lacks }
}

/// No message of these logs lives anywhere.
fn nothing(_: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    Ok(None)
}

fn check(backup: &MemoryDisk) -> CheckReport {
    let backup = Backup::look_disk(Arc::new(backup.clone())).unwrap();
    backup.check(&pages_of, nothing, &mut |_| {}).unwrap()
}

/// Restores, and gives back the records behind the image and what the restore came to. The log that
/// came back goes on, and its pages are whole.
fn brought_back(
    backup: &MemoryDisk,
    upto: Upto,
) -> Result<(RestoreReport, Vec<Record>), BackupError> {
    let backup = Backup::look_disk(Arc::new(backup.clone()))?;
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let restored = restore(&backup, &disk, upto, &mut |_| {})?;
    let term = backup.manifest().unwrap().newest().unwrap().end.term;
    let records = opened(&disk, &restored, term);
    Ok((restored, records))
}

fn opened(disk: &Arc<dyn Disk>, restored: &RestoreReport, term: u32) -> Vec<Record> {
    let found = offline::verify_disk(disk).unwrap().findings;
    let noted = |lsn: Lsn| restored.damaged.iter().any(|damaged| damaged.lsn == lsn);
    assert!(found.iter().all(|found| found.what == Damage::Batch && noted(found.lsn)), "{found:?}");
    assert_eq!(found.len(), restored.damaged.len(), "{found:?}");
    let (recovery, report, records) = recover(disk, Options::small()).unwrap();
    assert_eq!(report.findings, []);
    let image = recovery.image().unwrap();
    assert_eq!(Some(image.at), restored.image);
    let used = pages_of(&image.bytes).unwrap();
    let pages = Pages::open(Arc::clone(disk), used.iter().copied()).unwrap();
    assert!(pages.read_all(&used).iter().all(Result::is_ok));
    let watch = Watch::new();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn towline_log::Listener>).unwrap();
    assert!(towline_log::testing::term(&log) > term + 1, "nothing of the old log can follow");
    let (_, end) = append(&log, &[b"goes on".to_vec()], Urgency::Forced);
    watch.wait_durable(end);
    records
}

#[test]
fn incremental_backups_bring_back_the_end_and_write_only_what_is_new() {
    let mut rig = Rig::new(1);
    let to = MemoryDisk::new();
    rig.append(60);
    rig.image(0, 9);
    let full = rig.back_up(&to, &choices(1)).unwrap();
    assert!(full.full && full.end == rig.end());
    for _ in 0..3 {
        rig.append(20);
        rig.image(7, 2);
        rig.append(3);
        let done = rig.back_up(&to, &choices(1)).unwrap();
        assert!(!done.full && done.bytes < full.bytes, "{done:?}");
        assert_eq!((done.end, done.image), (rig.end(), Some(rig.image_at)));
        assert_eq!(check(&to).findings, Vec::<String>::new());
        let (restored, records) = brought_back(&to, Upto::End).unwrap();
        assert_eq!((restored.end, restored.at), (rig.end(), Some(Time(rig.now))));
        assert_eq!(records, rig.records(rig.image_at, rig.end()));
    }
    let nothing_new = rig.back_up(&to, &choices(1)).unwrap();
    // When the log was how long is written down anew.
    assert_eq!((nothing_new.files, nothing_new.bytes), (1, 4_096));
}

#[test]
fn a_restore_to_any_position_brings_back_the_whole_runs_before_it_and_no_other() {
    let mut rig = Rig::new(2);
    let to = MemoryDisk::new();
    for _ in 0..3 {
        rig.append(25);
        rig.image(3, 3);
        rig.append(15);
        rig.back_up(&to, &choices(3)).unwrap();
    }
    let first = rig.back_up(&to, &choices(3)).unwrap().first;
    let ends: Vec<Lsn> = rig.runs.iter().map(|(end, _)| *end).filter(|end| *end >= first).collect();
    for end in ends {
        for upto in [end, Lsn(end.0 + 1), Lsn(end.0 + 40)] {
            if upto > rig.end() {
                continue;
            }
            let (restored, records) = brought_back(&to, Upto::Lsn(upto)).unwrap();
            assert_eq!(restored.end, rig.run_before(upto), "up to {upto}");
            assert_eq!(records, rig.records(restored.image.unwrap(), upto), "up to {upto}");
        }
    }
    for beyond in [Lsn(first.0 - 1), Lsn(rig.end().0 + 1)] {
        let refused = brought_back(&to, Upto::Lsn(beyond)).unwrap_err();
        assert!(refused.to_string().contains(&first.to_string()), "{refused}");
        assert!(matches!(refused, BackupError::OutOfReach { .. }));
    }
}

#[test]
fn a_restore_to_a_time_goes_to_the_last_position_known_then() {
    let mut rig = Rig::new(3);
    let to = MemoryDisk::new();
    let mut known = Vec::new();
    for _ in 0..3 {
        rig.append(10);
        rig.image(0, 2);
        rig.append(5);
        rig.back_up(&to, &choices(3)).unwrap();
        known.push((rig.now, rig.end()));
    }
    for (at, end) in &known {
        let (restored, records) = brought_back(&to, Upto::Time(Time(*at))).unwrap();
        assert_eq!((restored.end, restored.at), (*end, Some(Time(*at))));
        assert_eq!(records, rig.records(restored.image.unwrap(), *end));
    }
    let between = brought_back(&to, Upto::Time(Time(known[1].0 - 1))).unwrap();
    assert_eq!(between.0.end, known[0].1);
    for beyond in [known[0].0 - 1, known[2].0 + 1] {
        let refused = brought_back(&to, Upto::Time(Time(beyond))).unwrap_err();
        assert!(matches!(refused, BackupError::OutOfReach { .. }), "{refused}");
    }
}

#[test]
fn a_log_at_rest_is_backed_up_to_its_end_without_a_torn_tail() {
    let mut rig = Rig::new(4);
    rig.append(40);
    rig.image(0, 5);
    rig.append(10);
    let mut files = rig.memory.files();
    let (image_at, end) = (rig.image_at, rig.end());
    // Half a batch behind the end.
    let extent = towline_log::folder::names::extent_name(end.0 / Options::small().extent_bytes);
    let offset = usize::try_from(end.0 % Options::small().extent_bytes).unwrap();
    let tail = offset.next_multiple_of(4_096);
    // The extent may still be filled by the thread that makes extents ready.
    let file = files.get_mut(&extent).unwrap();
    file.resize(file.len().max(tail + 4_096), 0);
    file[tail..tail + 100].fill(b'T');
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::with_files(files));
    let source = Source::at_rest(Arc::clone(&disk)).unwrap();
    assert_eq!(source.end(), end);
    let used = pages_of(source.image().unwrap()).unwrap();
    let pages = Pages::open(disk, used.iter().copied()).unwrap();
    let to = MemoryDisk::new();
    let mut backup = Backup::open_disk(Arc::new(to.clone())).unwrap();
    let pages = SourcePages { file: Some(&pages), used: &used };
    backup.add(&source, pages, &[], &choices(1), &mut |_| {}).unwrap();
    assert!(check(&to).is_sound());
    let (restored, records) = brought_back(&to, Upto::End).unwrap();
    assert_eq!((restored.end, records), (end, rig.records(image_at, end)));
}

#[test]
fn a_power_cut_at_any_moment_of_a_backup_leaves_one_that_can_be_restored() {
    let (mut rig, target, old_end) = Rig::backed_up_and_grown(5);
    rig.back_up(&target, &choices(1)).unwrap();
    let (journal, mut new) = (target.journal(), 0);
    for point in 0..=journal.len() {
        for keep_percent in [0, 50, 100] {
            let rule = CrashRule { keep_percent, unit_bytes: 512, seed: point as u64 };
            let found = journal.crash(CrashPoint(point), rule);
            assert_eq!(check(&found).findings, Vec::<String>::new(), "point {point}, {rule:?}");
            let (restored, _) = brought_back(&found, Upto::End).unwrap();
            assert!([old_end, rig.end()].contains(&restored.end), "point {point}");
            new += u64::from(restored.end == rig.end());
            // And the next one is made as if nothing had been.
            if keep_percent == 50 {
                rig.back_up(&found, &choices(1)).unwrap();
                assert!(check(&found).is_sound(), "point {point}");
                let named = Backup::look_disk(Arc::new(found.clone())).unwrap();
                let named = named.manifest().unwrap().files().count();
                assert_eq!(found.files().len(), named + 1, "nothing is left over");
            }
        }
        for seed in 0..12 {
            let rule = CrashRule { keep_percent: 0, unit_bytes: 512, seed };
            let found = journal.crash_with_names_in_any_order(CrashPoint(point), rule);
            assert!(check(&found).findings.is_empty(), "point {point}, {rule:?}");
        }
    }
    assert!(new > 0);
}

#[test]
fn a_power_cut_at_any_moment_of_a_restore_leaves_a_log_that_is_whole_or_refused() {
    let mut rig = Rig::new(6);
    let to = MemoryDisk::new();
    rig.append(30);
    rig.image(0, 6);
    rig.append(10);
    rig.back_up(&to, &choices(1)).unwrap();
    let backup = Backup::look_disk(Arc::new(to)).unwrap();
    let term = backup.manifest().unwrap().newest().unwrap().end.term;
    let target = MemoryDisk::recording();
    let into: Arc<dyn Disk> = Arc::new(target.clone());
    let restored = restore(&backup, &into, Upto::End, &mut |_| {}).unwrap();
    let journal = target.journal();
    let (mut whole, mut refused) = (0, 0);
    for number in 0..12 * (journal.len() + 1) {
        let point = number / 12;
        let rule = CrashRule { keep_percent: 50, unit_bytes: 512, seed: number as u64 };
        // Whether the file system orders names or not.
        let found = match number % 12 {
            0 => journal.crash(CrashPoint(point), rule),
            _ => journal.crash_with_names_in_any_order(CrashPoint(point), rule),
        };
        if found.files().is_empty() {
            continue;
        }
        let disk: Arc<dyn Disk> = Arc::new(found.clone());
        match Recovery::open(Arc::clone(&disk), Options::small(), LOG_ID) {
            Err(LogError::Restoring { .. }) => {
                refused += 1;
                assert_eq!(restore(&backup, &disk, Upto::End, &mut |_| {}).unwrap(), restored);
            }
            Ok(_) => whole += 1,
            Err(other) => panic!("point {point}: {other}"),
        }
        let records = opened(&disk, &restored, term);
        assert_eq!(records, rig.records(rig.image_at, rig.end()), "point {point}");
    }
    assert!(whole > 0 && refused > 10, "{whole} {refused}");
}

#[test]
fn a_flipped_bit_in_any_file_is_found_and_refused() {
    let mut rig = Rig::new(7);
    let to = MemoryDisk::new();
    rig.append(30);
    rig.image(0, 6);
    rig.append(10);
    rig.back_up(&to, &choices(2)).unwrap();
    let files = to.files();
    for (name, bytes) in &files {
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let damaged = MemoryDisk::with_files(files.clone());
            damaged.change(name, |bytes| bytes[at] ^= 4);
            let refused = brought_back(&damaged, Upto::End);
            if name == "manifest.json" && refused.is_ok() {
                // A blank between two words, or behind the end.
                continue;
            }
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(name), "{name} at {at}: {refused}");
            if name == "manifest.json" {
                assert!(Backup::look_disk(Arc::new(damaged)).is_err());
            } else {
                let found = check(&damaged).findings;
                assert!(found.len() == 1 && found[0].contains(name), "{name} at {at}: {found:?}");
            }
        }
        let mut short = files.clone();
        short.get_mut(name).unwrap().truncate(bytes.len() - 4_096);
        assert!(
            brought_back(&MemoryDisk::with_files(short), Upto::End).is_err(),
            "{name} is short"
        );
        let mut without = files.clone();
        without.remove(name);
        assert!(brought_back(&MemoryDisk::with_files(without), Upto::End).is_err(), "no {name}");
    }
}

#[test]
fn a_full_disk_leaves_the_backup_that_was_there() {
    let mut rig = Rig::new(9);
    let to = MemoryDisk::new();
    rig.append(30);
    rig.image(0, 6);
    let done = rig.back_up(&to, &choices(1)).unwrap();
    let before = to.files();
    rig.append(60);
    rig.image(1, 6);
    for more in (0..3_072 * 1_024).step_by(96 * 1_024) {
        to.set_capacity(Some(done.bytes_held + 8_192 + more));
        match rig.back_up(&to, &choices(1)) {
            Ok(_) => {
                assert!(check(&to).is_sound() && more > 0);
                return;
            }
            Err(BackupError::Log(error)) => assert!(error.is_full(), "{error}"),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(to.files(), before, "{more} bytes of room");
    }
    panic!("3 MiB are enough");
}

#[test]
fn what_is_no_backup_of_this_log_is_not_touched() {
    let mut rig = Rig::new(10);
    rig.append(10);
    rig.image(0, 1);
    let strange = MemoryDisk::with_files([("letter.txt".to_owned(), vec![1])]);
    let refused = rig.back_up(&strange, &choices(1)).unwrap_err();
    assert!(refused.to_string().contains("letter.txt"), "{refused}");
    assert_eq!(strange.files().len(), 1);
    let to = MemoryDisk::new();
    rig.back_up(&to, &choices(1)).unwrap();
    // A log of another id.
    let before = to.files();
    let mut bytes = before.get("manifest.json").unwrap().clone();
    let mut manifest = Backup::look_disk(Arc::new(to.clone())).unwrap().manifest.unwrap();
    manifest.log_id = "00000000000000000000000000000007".into();
    bytes.fill(b' ');
    bytes.splice(.., manifest.encode());
    to.change("manifest.json", |there| *there = bytes.clone());
    for full in [false, true] {
        let refused = rig.back_up(&to, &Choices { full, ..choices(1) }).unwrap_err();
        assert!(matches!(refused, BackupError::OtherLog { .. }), "{refused}");
    }
    manifest.version = MANIFEST_VERSION + 1;
    to.change("manifest.json", |there| *there = manifest.encode());
    let refused = rig.back_up(&to, &choices(1)).unwrap_err();
    assert!(matches!(refused, BackupError::Version { .. }), "{refused}");
    assert!(brought_back(&to, Upto::End).unwrap_err().to_string().contains("version 3"));
}

#[test]
fn a_log_that_was_brought_back_and_went_on_is_not_added_to_the_old_backup() {
    let mut rig = Rig::new(11);
    let to = MemoryDisk::new();
    rig.append(20);
    rig.image(0, 1);
    rig.append(20);
    rig.back_up(&to, &choices(1)).unwrap();
    let earlier = rig.runs[30].0;
    let backup = Backup::look_disk(Arc::new(to.clone())).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    restore(&backup, &disk, Upto::Lsn(earlier), &mut |_| {}).unwrap();
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let old_end = rig.end();
    let pages = Pages::open(Arc::clone(&disk), rig.used.clone()).unwrap();
    (rig.disk, rig.log, rig.watch, rig.pages) = (disk, log, watch, pages);
    rig.runs.truncate(31);
    for step in 0..2 {
        if step == 1 {
            while rig.end() <= old_end {
                rig.append(5);
            }
            rig.image(1, 0);
        }
        let refused = rig.back_up(&to, &choices(1)).unwrap_err();
        assert!(matches!(refused, BackupError::OtherHistory { .. }), "{refused}");
        assert!(check(&to).is_sound());
    }
    let done = rig.back_up(&to, &Choices { full: true, ..choices(1) }).unwrap();
    assert!(done.full);
    let (restored, records) = brought_back(&to, Upto::End).unwrap();
    assert_eq!((restored.end, records), (rig.end(), rig.records(rig.image_at, rig.end())));
}

#[test]
fn a_gap_between_two_backups_is_told_and_both_sides_of_it_can_be_had() {
    let mut rig = Rig::new(12);
    let to = MemoryDisk::new();
    rig.append(30);
    rig.image(0, 2);
    rig.append(3);
    rig.back_up(&to, &choices(2)).unwrap();
    let before = rig.end();
    // The log is let go before it is copied.
    while rig.end().0 < before.0 + 4 * Options::small().extent_bytes {
        rig.append(20);
        rig.image(0, 2);
    }
    rig.image(0, 2);
    rig.log.reclaim(rig.end()).unwrap();
    assert!(rig.log.first_held() > before);
    rig.append(10);
    rig.back_up(&to, &choices(2)).unwrap();
    assert_eq!(check(&to).findings, Vec::<String>::new());
    let refused = brought_back(&to, Upto::Lsn(Lsn(before.0 + 50_000))).unwrap_err();
    match refused {
        BackupError::Gap { before: left, behind, .. } => {
            assert_eq!((left, behind), (before, rig.image_at));
        }
        other => panic!("{other}"),
    }
    for upto in [before, rig.image_at, rig.end()] {
        let (restored, records) = brought_back(&to, Upto::Lsn(upto)).unwrap();
        assert_eq!(restored.end, upto);
        assert_eq!(records, rig.records(restored.image.unwrap(), upto));
    }
}

#[test]
fn files_that_no_point_needs_are_removed_and_pages_that_are_the_same_are_kept_once() {
    let mut rig = Rig::new(13);
    let to = MemoryDisk::new();
    rig.append(10);
    rig.image(0, 40);
    rig.back_up(&to, &choices(2)).unwrap();
    let kinds = |to: &MemoryDisk| {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for name in to.files().keys().filter_map(|name| name.split_once('-')) {
            *kinds.entry(name.0.to_owned()).or_default() += 1;
        }
        kinds
    };
    rig.append(2);
    rig.image(40, 0);
    let done = rig.back_up(&to, &choices(2)).unwrap();
    assert!(done.bytes < 100_000, "no page was copied: {done:?}");
    assert_eq!((kinds(&to)["pages"], kinds(&to)["places"], kinds(&to)["image"]), (1, 2, 2));
    rig.append(2);
    rig.image(30, 30);
    rig.back_up(&to, &choices(2)).unwrap();
    assert_eq!((kinds(&to)["pages"], kinds(&to)["places"], kinds(&to)["image"]), (2, 2, 2));
    // Little is left of the first pack: the rest of it is copied once more.
    rig.append(2);
    rig.image(5, 2);
    rig.back_up(&to, &choices(1)).unwrap();
    assert_eq!((kinds(&to)["pages"], kinds(&to)["places"], kinds(&to)["image"]), (1, 1, 1));
    assert!(check(&to).is_sound());
    brought_back(&to, Upto::End).unwrap();
}
