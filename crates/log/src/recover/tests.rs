//! What comes back after a crash, and what is refused.

mod durable;
mod history;
mod images;
mod read_errors;

use crate::folder::names::{extent_name, image_name};
use std::collections::BTreeMap;
use std::sync::Arc;

use towline_types::{Lsn, SeededRandom};

use super::*;
use crate::disk::{CrashPoint, CrashRule, Fault, FaultOn, LinuxDisk, MemoryDisk};
use crate::format::{BLOCK_BYTES, ExtentHeader, LogId};
use crate::listener::Urgency;
use crate::offline;
use crate::options::EXTENT_BYTES_MIN;
use crate::testing::{LOG_ID, Record, Watch, append, body, image, recover, start};

/// A log of some runs on a disk in memory, and where each run ended.
struct Written {
    disk: MemoryDisk,
    records: Vec<Record>,
    ends: Vec<Lsn>,
}

fn shared(disk: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn copy(disk: &MemoryDisk) -> MemoryDisk {
    MemoryDisk::with_files(disk.files())
}

/// Writes `runs` runs of `bytes` bytes, each durable before the next; ends as a crash would.
fn write(disk: &MemoryDisk, runs: u64, bytes: u64, orderly: bool) -> Written {
    let watch = Watch::new();
    let log = start(&shared(disk), Options::small(), &watch);
    let mut written = Written { disk: disk.clone(), records: Vec::new(), ends: Vec::new() };
    let mut random = SeededRandom::new(runs + bytes);
    for _ in 0..runs {
        let record = body(&mut random, bytes);
        let (places, end) = append(&log, std::slice::from_ref(&record), Urgency::Forced);
        watch.wait_durable(end);
        written.records.push((places[0], record));
        written.ends.push(end);
    }
    if orderly {
        log.shutdown();
    }
    written
}

fn image_of(recovery: &Recovery) -> Option<(Lsn, Bytes)> {
    recovery.image().map(|image| (image.at, image.bytes))
}

fn damage_of(result: Result<(Recovery, Report, Vec<Record>), LogError>) -> Finding {
    match result {
        Err(LogError::Damaged(finding)) => finding,
        Err(other) => panic!("refused, but not as damaged: {other}"),
        Ok((_, report, _)) => panic!("not refused: {report:?}"),
    }
}

#[test]
fn an_empty_folder_becomes_an_empty_log() {
    let disk = MemoryDisk::new();
    let (recovery, report, records) = recover(&shared(&disk), Options::small()).unwrap();
    assert_eq!((recovery.log_id(), image_of(&recovery)), (LOG_ID, None));
    assert_eq!((records.len(), report.batches, report.findings.len()), (0, 0, 0));
    assert_eq!(offline::verify_disk(&shared(&disk)).unwrap(), offline::VerifyReport::default());
}

#[test]
fn the_last_batch_torn_at_any_sector_is_cut_off_and_the_log_goes_on() {
    let written = write(&MemoryDisk::new(), 5, 9_000, false);
    let (last, before) = (written.ends[4], written.ends[3]);
    let begin = before.0.next_multiple_of(BLOCK_BYTES as u64);
    let mut cut = begin;
    while cut < last.0 {
        // Bytes before `cut` arrived, those behind it did not.
        let disk = copy(&written.disk);
        let from = usize::try_from(cut).unwrap();
        disk.change(&extent_name(0), |file| file[from..].fill(0));
        let (recovery, report, records) = recover(&shared(&disk), Options::small()).unwrap();
        assert_eq!(records, written.records[..4], "cut at {cut}");
        assert_eq!(report.tail, before);
        let torn = usize::from(cut > begin);
        assert_eq!(report.findings.len(), torn, "cut at {cut}: {report:?}");
        drop(recovery);
        // It is gone from the disk: the next start finds an end, and nothing torn.
        let (recovery, report, _) = recover(&shared(&disk), Options::small()).unwrap();
        assert_eq!(report.findings, [], "cut at {cut}");
        drop(recovery);
        let again = write(&disk, 2, 500, false);
        let (_, report, records) = recover(&shared(&disk), Options::small()).unwrap();
        assert_eq!(records[..4], written.records[..4]);
        assert_eq!(records[4..], again.records);
        assert_eq!(report.findings, []);
        assert_eq!(offline::verify_disk(&shared(&disk)).unwrap().findings, []);
        cut += 512;
    }
}

#[test]
fn the_last_batch_torn_at_any_byte_is_not_taken_for_whole() {
    let written = write(&MemoryDisk::new(), 3, 300, false);
    let begin = usize::try_from(written.ends[1].0).unwrap().next_multiple_of(BLOCK_BYTES);
    let end = usize::try_from(written.ends[2].0).unwrap();
    let disk = copy(&written.disk);
    for at in begin..end {
        disk.change(&extent_name(0), |file| file[at] ^= 1);
        let report = offline::verify_disk(&shared(&disk)).unwrap();
        assert_eq!(report.records, 2, "byte {at}");
        let (_, _, records) = recover(&shared(&copy(&disk)), Options::small()).unwrap();
        assert_eq!(records, written.records[..2], "byte {at}");
        disk.change(&extent_name(0), |file| file[at] ^= 1);
    }
}

#[test]
fn a_flipped_byte_anywhere_before_the_tail_is_reported_with_its_place() {
    let written = write(&MemoryDisk::new(), 60, 9_000, true);
    let seed = 5;
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    for _ in 0..200 {
        let run = usize::try_from(random.below(60)).unwrap();
        let end = written.ends[run].0;
        // The batch of the run: header, prefix of three bytes, record.
        let batch = written.records[run].0.0 - 40 - 3;
        let at = batch + random.below(end - batch);
        let disk = copy(&written.disk);
        let name = extent_name(at / EXTENT_BYTES_MIN);
        let offset = usize::try_from(at % EXTENT_BYTES_MIN).unwrap();
        let bit = 1 << random.below(8);
        disk.change(&name, |file| file[offset] ^= bit);
        let before = disk.files();
        let finding = damage_of(recover(&shared(&disk), Options::small()));
        // When the first batch of an extent is hit, the finding is where the chain broke off.
        assert!(finding.lsn <= Lsn(at) && finding.lsn.0 + EXTENT_BYTES_MIN > at, "{finding}");
        assert_eq!(disk.files(), before, "a refused log was changed");
        let report = offline::verify_disk(&shared(&disk)).unwrap();
        assert!(!report.is_sound());
        assert_eq!(report.records, 59, "verify goes on behind the damage: {report:?}");
    }
}

#[test]
fn a_block_of_zeros_before_the_tail_is_damage_and_not_the_end() {
    let written = write(&MemoryDisk::new(), 20, 9_000, false);
    for run in 0..19 {
        let disk = copy(&written.disk);
        let at = written.records[run].0.0 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let offset = usize::try_from(at).unwrap();
        disk.change(&extent_name(0), |file| file[offset..offset + BLOCK_BYTES].fill(0));
        let finding = damage_of(recover(&shared(&disk), Options::small()));
        assert_eq!((finding.lsn, finding.what), (Lsn(at), Damage::Batch));
    }
}

#[test]
fn an_unreadable_block_is_neither_the_end_nor_skipped() {
    let written = write(&MemoryDisk::new(), 3, 100, false);
    let disk = copy(&written.disk);
    let (on, error) = (FaultOn::Read, std::io::ErrorKind::Other);
    // The header is read, then no batch.
    disk.inject(Fault { on, prefix: extent_name(0), after: 1, times: 1_000_000, error });
    let result = recover(&shared(&disk), Options::small());
    assert_eq!(damage_of(result).what, Damage::Unreadable);
}

#[test]
fn a_missing_extent_is_reported() {
    let written = write(&MemoryDisk::new(), 100, 9_000, false);
    let disk = copy(&written.disk);
    disk.remove(&extent_name(1)).unwrap();
    let finding = damage_of(recover(&shared(&disk), Options::small()));
    assert!(matches!((finding.extent, finding.what), (1, Damage::ExtentMissing(_))), "{finding}");
    let disk = copy(&written.disk);
    disk.remove(&extent_name(0)).unwrap();
    let finding = damage_of(recover(&shared(&disk), Options::small()));
    assert_eq!(finding.what, Damage::ImageMissing);
}

#[test]
fn each_unusable_file_is_refused_for_its_own_reason() {
    let written = write(&MemoryDisk::new(), 100, 9_000, false);
    let name = extent_name(1);
    let old = |sequence, log_id| {
        ExtentHeader { log_id, sequence, extent_bytes: EXTENT_BYTES_MIN }.encode()
    };
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let disk = copy(&written.disk);
        disk.change(&name, |file| change(file));
        recover(&shared(&disk), Options::small())
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let kinds: [(Change<'_>, Damage); 6] = [
        (&|file| file.clear(), Damage::ExtentLength),
        (&|file| file.truncate(100), Damage::ExtentLength),
        (&|file| file.truncate(100_000), Damage::ExtentLength),
        (&|file| file.truncate(20 * BLOCK_BYTES), Damage::ExtentLength),
        (&|file| file[20] ^= 1, Damage::ExtentHeader),
        (&|file| file[..BLOCK_BYTES].copy_from_slice(&old(0, LOG_ID)), Damage::ExtentSequence),
    ];
    for (change, what) in kinds {
        let finding = damage_of(refused(change));
        assert_eq!((finding.extent, finding.what, finding.file), (1, what, name.clone()));
    }
    let other = refused(&|file| file[..BLOCK_BYTES].copy_from_slice(&old(1, LogId(9))));
    assert!(matches!(other, Err(LogError::OtherLog { file }) if file == name));
    let newer = refused(&|file| {
        file[8] = 3;
        let sum = crc32c::crc32c(&file[..48]);
        file[48..52].copy_from_slice(&sum.to_le_bytes());
    });
    assert!(matches!(newer, Err(LogError::Version { found: 3, supported: 2, .. })));
}

#[test]
fn an_old_copy_of_an_extent_is_told_from_the_current_one() {
    let disk = MemoryDisk::new();
    write(&disk, 10, 9_000, false);
    let old = disk.files()[&extent_name(0)].clone();
    let written = write(&disk, 60, 9_000, false);
    assert!(written.ends[59].0 > EXTENT_BYTES_MIN, "a second extent holds log");
    disk.change(&extent_name(0), |file| *file = old.clone());
    let finding = damage_of(recover(&shared(&disk), Options::small()));
    assert_eq!((finding.extent, finding.what), (0, Damage::Batch));
}

#[test]
fn an_old_copy_of_the_newest_extent_is_noticed_by_the_image() {
    let disk = MemoryDisk::new();
    write(&disk, 3, 9_000, false);
    let old = disk.files()[&extent_name(0)].clone();
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let (_, end) = append(&log, &[vec![1; 100]], Urgency::Forced);
    watch.wait_durable(end);
    image(&log, end, b"image");
    drop(log);
    disk.change(&extent_name(0), |file| *file = old.clone());
    let finding = damage_of(recover(&shared(&disk), Options::small()));
    assert_eq!(finding.what, Damage::EndsBeforeImage);
}

/// A log in which each run is durable before the next, with images behind some runs.
fn write_with_images(disk: &MemoryDisk, runs: usize, images: &[(usize, &str)]) -> Written {
    let watch = Watch::new();
    let log = start(&shared(disk), Options::small(), &watch);
    let mut written = Written { disk: disk.clone(), records: Vec::new(), ends: Vec::new() };
    let mut random = SeededRandom::new(runs as u64);
    for run in 0..runs {
        let record = body(&mut random, 9_000);
        let (places, end) = append(&log, std::slice::from_ref(&record), Urgency::Forced);
        watch.wait_durable(end);
        written.records.push((places[0], record));
        written.ends.push(end);
        for (_, text) in images.iter().filter(|(behind, _)| *behind == run) {
            image(&log, end, text.as_bytes());
            assert_eq!(log.image_at(), Some(end));
        }
    }
    written
}

#[test]
fn replay_begins_at_the_image() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 100, &[(10, "a"), (60, "b"), (80, "c")]);
    assert!(!disk.files().contains_key(&image_name(written.ends[10])), "two images are kept");
    let (recovery, _, records) = recover(&shared(&disk), Options::small()).unwrap();
    assert_eq!(image_of(&recovery), Some((written.ends[80], Bytes::from_static(b"c"))));
    assert_eq!(records, written.records[81..]);
    drop(recovery);

    // A damaged image is passed over, said so, and kept aside.
    let name = image_name(written.ends[80]);
    disk.change(&name, |file| file[BLOCK_BYTES] ^= 1);
    let (recovery, report, records) = recover(&shared(&disk), Options::small()).unwrap();
    assert_eq!(image_of(&recovery), Some((written.ends[60], Bytes::from_static(b"b"))));
    assert_eq!(records, written.records[61..]);
    assert_eq!(report.findings.len(), 1);
    assert_eq!((report.findings[0].what, &report.findings[0].file), (Damage::Image, &name));
    drop(recovery);
    let (_, report, _) = recover(&shared(&disk), Options::small()).unwrap();
    assert_eq!(report.findings, []);
}

#[test]
fn a_torn_image_is_no_image() {
    let disk = MemoryDisk::recording();
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let (_, end) = append(&log, &[vec![1; 100]], Urgency::Forced);
    watch.wait_durable(end);
    let before = disk.journal().len();
    let content = body(&mut SeededRandom::new(1), 20_000);
    image(&log, end, &content);
    drop(log);
    let journal = disk.journal();
    for point in before..=journal.len() {
        for keep_percent in [0, 50, 100] {
            let rule = CrashRule { keep_percent, unit_bytes: 512, seed: point as u64 };
            let found = journal.crash(CrashPoint(point), rule);
            let (recovery, report, _) = recover(&shared(&found), Options::small()).unwrap();
            assert_eq!(report.findings, [], "an image gets its name when it is whole");
            if let Some((at, bytes)) = image_of(&recovery) {
                assert_eq!((at, bytes), (end, Bytes::from(content.clone())));
            } else {
                assert!(point < journal.len());
            }
        }
    }
}

/// Four batches that were all in flight when the power went, on disk whole.
fn four_in_flight() -> (MemoryDisk, Vec<Record>, Vec<Lsn>) {
    let disk = MemoryDisk::recording();
    let before = write(&disk, 2, 300, false);
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    disk.hold_syncs();
    let mut records = before.records;
    let mut batches = Vec::new();
    for (batch, commits) in [1_u8, 1, 2, 4].into_iter().enumerate() {
        for _ in 0..commits {
            let record = vec![commits; 5_000];
            let (places, _) = append(&log, std::slice::from_ref(&record), Urgency::Forced);
            records.push((places[0], record));
        }
        disk.wait_for_syncs(batch + 1);
        let first = &records[records.len() - usize::from(commits)];
        batches.push(Lsn(first.0.0 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64));
    }
    let found = disk.journal().crash(
        CrashPoint(disk.journal().len()),
        CrashRule { keep_percent: 100, unit_bytes: 512, seed: 1 },
    );
    disk.open_gate();
    (found, records, batches)
}

#[test]
fn of_batches_in_flight_together_those_behind_a_torn_one_are_cut_off() {
    let (disk, records, batches) = four_in_flight();
    assert_eq!(recover(&shared(&copy(&disk)), Options::small()).unwrap().2, records);
    // Any of the four may be missing; the records before it are 2, 3, 4 or 6.
    for (batch, before) in batches.iter().zip([2, 3, 4, 6]) {
        let disk = copy(&disk);
        let offset = usize::try_from(batch.0).unwrap() + BLOCK_BYTES;
        disk.change(&extent_name(0), |file| file[offset] ^= 1);
        let (recovery, report, found) = recover(&shared(&disk), Options::small()).unwrap();
        assert_eq!(found, records[..before]);
        assert_eq!((report.findings[0].what, report.findings[0].lsn), (Damage::TornTail, *batch));
        go_on_after_crash(&disk, recovery, &found);
    }
}

/// A crash may tear all that was in flight. Were only whole batches erased, a log that grew up to
/// the location of a torn one would be reported as torn, after an orderly end.
#[test]
fn of_batches_in_flight_together_the_torn_ones_are_erased_too() {
    let (disk, records, batches) = four_in_flight();
    for first_is_lost in [false, true] {
        let disk = copy(&disk);
        for (batch, lsn) in batches.iter().enumerate() {
            let offset = usize::try_from(lsn.0).unwrap();
            disk.change(&extent_name(0), |file| match batch {
                0 if first_is_lost => file[offset..][..BLOCK_BYTES].fill(0),
                _ => file[offset + BLOCK_BYTES] ^= 1,
            });
        }
        let (recovery, report, found) = recover(&shared(&disk), Options::small()).unwrap();
        assert_eq!(found, records[..2]);
        assert_eq!(report.findings[0].what, Damage::TornTail, "{first_is_lost}");
        let watch = Watch::new();
        let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
        let (_, end) = append(&log, &[vec![9; 5_000]], Urgency::Forced);
        watch.wait_durable(end);
        drop(log);
        assert_eq!(Lsn(end.0.next_multiple_of(BLOCK_BYTES as u64)), batches[1]);
        assert_eq!(recover(&shared(&disk), Options::small()).unwrap().1.findings, []);
    }
}

#[test]
fn what_a_later_batch_proves_durable_is_damage_even_if_others_were_in_flight() {
    let (disk, _, batches) = four_in_flight();
    // The second run was durable before the four: they prove it.
    let at = usize::try_from(batches[0].0).unwrap() - BLOCK_BYTES;
    disk.change(&extent_name(0), |file| file[at + 20] ^= 1);
    let finding = damage_of(recover(&shared(&disk), Options::small()));
    assert_eq!((finding.offset, finding.what), (at as u64, Damage::Batch));
}

/// One random life of a log: several commits side by side, large runs, given-up runs, images and
/// reclaim, then the journal of all of it.
fn live(disk: &MemoryDisk, random: &mut SeededRandom, rounds: u64) -> BTreeMap<Lsn, Vec<Record>> {
    let watch = Watch::noting(disk);
    let options = Options { reserve_bytes: 0, ..Options::small() };
    let log = start(&shared(disk), options, &watch);
    let mut runs = BTreeMap::new();
    for _ in 0..rounds {
        let mut last = log.tail();
        for _ in 0..=random.below(6) {
            let count = 1 + random.below(3);
            let big = random.below(12) == 0;
            let records: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let bytes = random.below(if big { 40_000 } else { 900 });
                    body(random, bytes)
                })
                .collect();
            if random.below(10) == 0 {
                let mut appender = log.appender();
                for record in &records {
                    appender.record(record.len(), |buffer| buffer.extend_from_slice(record));
                }
                continue;
            }
            let forced = random.below(4) > 0;
            let urgency = if forced { Urgency::Forced } else { Urgency::Lazy };
            let (places, end) = append(&log, &records, urgency);
            runs.insert(end, places.into_iter().zip(records).collect());
            if forced {
                last = end;
            }
        }
        if random.below(3) == 0 && last > log.durable() {
            watch.wait_durable(last);
        }
        if random.below(25) == 0 && log.durable() > Lsn(4_096) {
            let durable = log.durable();
            let at = runs.range(..=durable).next_back().map_or(Lsn::ZERO, |(end, _)| *end);
            image(&log, at, &at.0.to_le_bytes());
            log.reclaim(at).unwrap();
        }
    }
    if random.below(2) == 0 {
        log.shutdown();
    }
    runs
}

/// Whatever was found after a crash must be the runs in order from the image on, up to some run
/// that is not before the last one reported durable.
fn check_prefix(
    runs: &BTreeMap<Lsn, Vec<Record>>,
    recovery: &Recovery,
    found: &[Record],
    reported: Lsn,
) {
    let from = recovery.image().map_or(Lsn::ZERO, |image| image.at);
    let mut found = found.iter();
    for (end, records) in runs.iter().filter(|(end, _)| **end > from) {
        let mut whole = true;
        for record in records {
            match found.next() {
                Some(next) => assert_eq!(next, record, "not the runs in order"),
                None => whole = false,
            }
        }
        if !whole {
            assert!(found.next().is_none(), "half a run was yielded");
            assert!(*end > reported, "the run that ends at {end} was reported durable: {reported}");
            break;
        }
    }
    assert!(found.next().is_none(), "more was found than was written");
}

#[test]
fn a_power_cut_at_any_moment_leaves_a_prefix_with_all_that_was_durable() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut random = SeededRandom::new(seed);
        let disk = MemoryDisk::recording();
        let runs = live(&disk, &mut random, 60);
        let journal = disk.journal();
        let step = (journal.len() / 150).max(1);
        for point in (0..=journal.len()).step_by(step) {
            let reported = journal.notes_before(CrashPoint(point)).last().copied();
            let reported = Lsn(reported.unwrap_or(0));
            let keep_percent = [0, 30, 70, 100][usize::try_from(random.below(4)).unwrap()];
            let unit_bytes = [512, 4_096][usize::try_from(random.below(2)).unwrap()];
            let rule = CrashRule { keep_percent, unit_bytes, seed: random.next_u64() };
            let found = journal.crash(CrashPoint(point), rule);
            let options = Options { reserve_bytes: 0, ..Options::small() };
            let recovered = recover(&shared(&found), options.clone());
            let (recovery, _, records) =
                recovered.unwrap_or_else(|e| panic!("seed {seed}, point {point}, {rule:?}: {e}"));
            check_prefix(&runs, &recovery, &records, reported);
            if random.below(8) == 0 {
                go_on_after_crash(&found, recovery, &records);
            }
        }
    }
}

/// The log goes on after a crash, and a second start finds both halves and nothing between.
fn go_on_after_crash(found: &MemoryDisk, recovery: Recovery, before: &[Record]) {
    let watch = Watch::new();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
    let mut expected = before.to_vec();
    for byte in 0..10 {
        let record = vec![byte; 700];
        let (places, end) = append(&log, std::slice::from_ref(&record), Urgency::Forced);
        watch.wait_durable(end);
        expected.push((places[0], record));
    }
    drop(log);
    let options = Options { reserve_bytes: 0, ..Options::small() };
    let (_, report, records) = recover(&shared(found), options).unwrap();
    assert_eq!(report.findings, []);
    assert!(records == expected, "the log did not go on where it ended");
    assert_eq!(offline::verify_disk(&shared(found)).unwrap().findings, []);
}

#[test]
fn extents_used_again_never_bring_old_records_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder.path()).unwrap());
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let mut kept = Vec::new();
    let mut image_end = Lsn::ZERO;
    for round in 0_u8..60 {
        let record = vec![round; 50_000];
        let (places, end) = append(&log, std::slice::from_ref(&record), Urgency::Forced);
        watch.wait_durable(end);
        kept.push((places[0], record));
        if round % 10 == 9 && round < 55 {
            image(&log, end, &[round]);
            log.reclaim(end).unwrap();
            image_end = end;
            kept.clear();
        }
    }
    let stats = log.stats();
    // Twenty runs since the older of two images, four in an extent.
    assert!(stats.bytes_in_use <= 7 * EXTENT_BYTES_MIN, "{stats:?}");
    drop(log);
    let (recovery, _, records) = recover(&disk, Options::small()).unwrap();
    assert_eq!(image_of(&recovery), Some((image_end, Bytes::from(vec![49]))));
    assert!(records == kept);
    let names = disk.list().unwrap();
    assert!(names.len() < 20, "files are used again: {names:?}");
}
