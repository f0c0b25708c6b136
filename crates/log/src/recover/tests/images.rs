//! Where replay begins: with an image, whatever lies before it, or with the oldest extent.

use super::*;
use crate::disk::DelayDisk;
use crate::error::LogError;

/// What a disk holds is cut off before extent `upto`, as far as opening and reading goes.
fn forbid(disk: &MemoryDisk, upto: u64) {
    for sequence in 0..upto {
        for on in [FaultOn::Open, FaultOn::Read] {
            let (prefix, error) = (extent_name(sequence), std::io::ErrorKind::Other);
            disk.inject(Fault { on, prefix, after: 0, times: u64::MAX, error });
        }
    }
}

fn replay(
    disk: &MemoryDisk,
    begin: Begin,
) -> Result<(Recovery, Report, Vec<Record>), ReplayError<LogError>> {
    let recovery = Recovery::open(shared(disk), Options::small(), LOG_ID);
    let mut recovery = recovery.map_err(ReplayError::Log)?;
    let mut records = Vec::new();
    let take = |lsn, bytes: &[u8]| {
        records.push((lsn, bytes.to_vec()));
        Ok(())
    };
    let report = recovery.replay_from(begin, take, |_, _| {})?;
    Ok((recovery, report, records))
}

#[test]
fn extents_before_the_image_are_neither_opened_nor_read() {
    let disk = MemoryDisk::new();
    // Twenty runs to an extent.
    let written = write_with_images(&disk, 200, &[(150, "first"), (190, "second")]);
    let last = written.ends[190].0 / EXTENT_BYTES_MIN;
    assert!(last > 8);
    forbid(&disk, last);
    let (recovery, report, records) = replay(&disk, Begin::Image).unwrap();
    assert_eq!(records, written.records[191..]);
    assert_eq!(report.batches, 9, "no batch before the image is read");
    assert!(recovery.image().is_some_and(|image| image.is_newest && image.version == 2));

    // A body in one of them is read when it is asked for, and not before.
    let watch = Watch::new();
    let log = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>).unwrap();
    let (lsn, body) = &written.records[3];
    let location = towline_types::BodyLocation { lsn: *lsn, bytes: 9_000 };
    assert!(matches!(log.read(location), Err(LogError::Io { .. })));
    disk.heal();
    assert_eq!(log.read(location).unwrap(), *body);
    assert_eq!(watch.failures(), 0, "the log goes on");
}

#[test]
fn what_lies_before_the_image_may_be_damaged_and_is_found_when_it_is_read() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 100, &[(80, "image")]);
    disk.change(&extent_name(0), |file| file[20] ^= 1);
    disk.change(&extent_name(1), |file| file[50_000] ^= 1);
    let (recovery, report, records) = replay(&copy(&disk), Begin::Image).unwrap();
    assert_eq!((records.as_slice(), report.findings.len()), (&written.records[81..], 0));
    drop(recovery);
    let Err(ReplayError::Log(LogError::Damaged(found))) = replay(&copy(&disk), Begin::Oldest)
    else {
        panic!("the header of extent 0 is damaged");
    };
    assert_eq!((found.extent, found.what), (0, Damage::ExtentHeader));
    // A missing one is seen by its name, a short one when it is read.
    let gone = copy(&disk);
    gone.remove(&extent_name(1)).unwrap();
    let (_, report, records) = recover(&shared(&copy(&gone)), Options::small()).unwrap();
    let found = &report.findings[0];
    assert!(matches!((found.extent, found.what), (0, Damage::LeftOver(_))), "{found}");
    assert_eq!(records.as_slice(), &written.records[81..]);
    let Err(ReplayError::Log(LogError::Damaged(found))) = replay(&gone, Begin::Oldest) else {
        panic!("extent 1 is missing");
    };
    assert!(matches!((found.extent, found.what), (1, Damage::ExtentMissing(_))), "{found}");
    disk.change(&extent_name(0), |file| file[20] ^= 1);
    disk.change(&extent_name(1), |file| file.truncate(100_000));
    replay(&copy(&disk), Begin::Image).unwrap();
    let Err(ReplayError::Log(LogError::Damaged(found))) = replay(&copy(&disk), Begin::Oldest)
    else {
        panic!("extent 1 is short");
    };
    assert_eq!((found.extent, found.what), (1, Damage::ExtentLength));
}

#[test]
fn from_the_oldest_extent_everything_is_replayed() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 100, &[(40, "a"), (80, "b")]);
    let (_, report, records) = replay(&copy(&disk), Begin::Oldest).unwrap();
    assert_eq!((records, report.batches), (written.records.clone(), 100));
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    log.reclaim(log.durable()).unwrap();
    drop(log);
    // The older image still has its log.
    let first = written.ends[40].0 / EXTENT_BYTES_MIN;
    assert!(first > 0 && disk.files().contains_key(&extent_name(first)));
    assert!(!disk.files().contains_key(&extent_name(first - 1)));
    let (_, _, records) = replay(&disk, Begin::Oldest).unwrap();
    let kept = written.records.iter().filter(|(lsn, _)| lsn.0 >= first * EXTENT_BYTES_MIN);
    assert!(kept.eq(records.iter()));
}

#[test]
fn a_run_that_lies_across_a_mark_is_replayed_whole_or_not_at_all() {
    let disk = MemoryDisk::new();
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let (_, before) = append(&log, &[vec![1; 100]], Urgency::Forced);
    // Some batches of 32 KiB.
    let run: Vec<Vec<u8>> = (0..20).map(|byte| vec![byte; 9_000]).collect();
    let (places, end) = append(&log, &run, Urgency::Forced);
    watch.wait_durable(end);
    let (last, after) = append(&log, &[vec![2; 100]], Urgency::Forced);
    watch.wait_durable(after);
    let whole: Vec<Record> = places.iter().copied().zip(run).collect();
    let behind = (last[0], vec![2; 100]);
    for (at, with_run) in [(before, true), (places[10], true), (Lsn(end.0 - 1), true), (end, false)]
    {
        image(&log, at, b"image");
        let (recovery, _, records) = replay(&copy(&disk), Begin::Image).unwrap();
        assert_eq!(recovery.image().map(|image| image.at), Some(at));
        let mut expected = if with_run { whole.clone() } else { Vec::new() };
        expected.push(behind.clone());
        assert!(records == expected, "image at {at}");
    }
}

#[test]
fn a_position_that_is_not_durable_or_too_old_has_no_mark() {
    let disk = MemoryDisk::new();
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    assert!(log.mark_at(log.durable()).is_some(), "the beginning of a log is a mark");
    disk.hold_syncs();
    let (_, end) = append(&log, &[vec![1; 100]], Urgency::Forced);
    disk.wait_for_syncs(1);
    assert_eq!(log.mark_at(end), None);
    disk.open_gate();
    watch.wait_durable(end);
    assert_eq!(log.mark_at(end).map(|mark| mark.at()), Some(end));
    drop(log);
    let log = start(&shared(&disk), Options::small(), &watch);
    assert_eq!(log.mark_at(Lsn(end.0 - 1)), None, "before the start");
    assert_eq!(log.mark_at(end).map(|mark| mark.at()), Some(end));
}

/// It may be whole, and what an older one does not know may be gone for good reasons.
#[test]
fn an_image_that_cannot_be_read_refuses_the_start_and_is_used_when_it_can_be_read() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 60, &[(20, "older"), (40, "newer")]);
    let before = disk.files();
    let fails = |name: &str| {
        let error = std::io::ErrorKind::Other;
        let prefix = name.to_owned();
        disk.inject(Fault { on: FaultOn::Read, prefix, after: 0, times: 1, error });
    };
    let newest = image_name(written.ends[40]);
    fails(&newest);
    let why = replay(&disk, Begin::Image).map(drop).unwrap_err().to_string();
    assert!(why.contains(&newest) && why.contains("try again"), "{why}");
    assert_eq!(disk.files(), before, "a refused folder was changed");
    let (recovery, report, records) = replay(&disk, Begin::Image).unwrap();
    let found = recovery.image().unwrap();
    assert_eq!((found.at, found.is_newest), (written.ends[40], true));
    assert_eq!((records.as_slice(), report.findings.len()), (&written.records[41..], 0));
    drop(recovery);
    disk.change(&newest, |file| file[BLOCK_BYTES] ^= 1);
    let older = image_name(written.ends[20]);
    fails(&older);
    let why = replay(&disk, Begin::Image).map(drop).unwrap_err().to_string();
    assert!(why.contains(&older) && why.contains("try again"), "{why}");
    let (recovery, report, _) = replay(&disk, Begin::Image).unwrap();
    assert_eq!(recovery.image().unwrap().at, written.ends[20]);
    assert_eq!(report.findings[0].what, Damage::Image);
}

#[test]
fn an_image_of_a_later_version_is_refused_as_a_downgrade() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 20, &[(10, "image")]);
    let name = image_name(written.ends[10]);
    disk.change(&name, |file| {
        file[8] = 3;
        let sum = crc32c::crc32c(&file[..52]);
        file[52..56].copy_from_slice(&sum.to_le_bytes());
    });
    let before = disk.files();
    match replay(&disk, Begin::Image) {
        Err(ReplayError::Log(LogError::Version { file, found: 3, supported: 2 })) => {
            assert_eq!(file, name);
        }
        other => panic!("{:?}", other.map(|(_, report, _)| report)),
    }
    assert_eq!(disk.files(), before, "a refused folder was changed");
}

#[test]
fn the_caller_may_pass_over_an_image_and_see_what_the_older_one_holds() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 60, &[(20, "older"), (40, "newer")]);
    let mut recovery = Recovery::open(shared(&disk), Options::small(), LOG_ID).unwrap();
    let older = recovery.older_image().unwrap().unwrap();
    assert_eq!((older.at, older.bytes.as_ref()), (written.ends[20], b"older".as_slice()));
    assert!(recovery.pass_over_image().unwrap());
    assert_eq!(recovery.image(), Some(Image { is_newest: false, ..older }));
    assert!(!recovery.pass_over_image().unwrap(), "there is none behind it");
    let mut count = 0;
    let report = recovery
        .replay(|_, _| {
            count += 1;
            Ok::<(), LogError>(())
        })
        .unwrap();
    assert_eq!((count, report.findings.len()), (39, 1));
    assert!(disk.files().contains_key(&format!("damaged-{}", image_name(written.ends[40]))));
}

#[test]
fn an_old_copy_of_the_extent_before_the_image_is_noticed() {
    let disk = MemoryDisk::new();
    write(&disk, 3, 9_000, false);
    let old = disk.files()[&extent_name(0)].clone();
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let (_, end) = append(&log, &[vec![1; 100]], Urgency::Forced);
    watch.wait_durable(end);
    image(&log, end, b"image");
    let (_, end) = append(&log, &[vec![2; 100]], Urgency::Forced);
    watch.wait_durable(end);
    drop(log);
    disk.change(&extent_name(0), |file| *file = old.clone());
    for begin in [Begin::Image, Begin::Oldest] {
        match replay(&disk, begin) {
            Err(ReplayError::Log(LogError::Damaged(found))) => {
                assert_eq!(found.what, Damage::EndsBeforeImage, "{begin:?}");
            }
            other => panic!("{begin:?}: {:?}", other.map(|(_, report, _)| report)),
        }
    }
}

#[test]
fn replay_reads_little_more_than_the_tail_in_few_reads_and_says_how_far_it_is() {
    let disk = MemoryDisk::new();
    let options =
        Options { extent_bytes: 16 << 20, batch_bytes_target: 64 * 1024, ..Options::default() };
    let watch = Watch::new();
    let log = start(&shared(&disk), options.clone(), &watch);
    let records = vec![vec![7; 50_000]; 100];
    let mut end = Lsn::ZERO;
    for round in 0..6 {
        end = append(&log, &records, Urgency::Forced).1;
        watch.wait_durable(end);
        if round == 2 {
            image(&log, end, b"image");
        }
    }
    drop(log);
    // Every read is a while in coming: the second thread fetches what comes next.
    let slow: Arc<dyn Disk> = Arc::new(DelayDisk::new(shared(&disk), Duration::from_micros(1)));
    let mut recovery = Recovery::open(slow, options, LOG_ID).unwrap();
    let (mut count, mut told) = (0, Vec::new());
    let take = |_: Lsn, _: &[u8]| {
        count += 1;
        Ok::<(), LogError>(())
    };
    let report =
        recovery.replay_from(Begin::Image, take, |done, total| told.push((done, total))).unwrap();
    assert_eq!((count, report.tail), (300, end));
    assert!(told.is_sorted() && told.iter().all(|(done, total)| done <= total), "{told:?}");
    assert_eq!(told.last().map(|(done, total)| done == total), Some(true));
    // What is left of the newest extent and the beginning of the ready ones is looked at too.
    let tail = report.bytes + 16 * (1 << 20) * 4;
    assert!(report.bytes_read < tail, "{report:?}");
    assert!(report.reads < 8 + report.bytes_read / (1 << 20), "{report:?}");
}

/// The folder that version 1 wrote: made by the last program that knew no other. In it: three lives
/// of twelve runs, an image in the way of that version, the first extent reclaimed, an end as in a
/// crash. Zeros at the end of each file are left off.
fn golden_v1() -> (MemoryDisk, Vec<(u64, Record, Lsn)>) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/recover/golden/v1");
    let mut files = Vec::new();
    let mut expected = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if name == "expected.txt" {
            for line in String::from_utf8(bytes).unwrap().lines() {
                let numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
                let numbers: Vec<u64> = numbers.collect();
                let [run, lsn, byte, length, end] = numbers[..] else { panic!("{line}") };
                let byte = byte.to_le_bytes()[0];
                let record = (0..length).map(|at| byte ^ at.to_le_bytes()[0]).collect();
                expected.push((run, (Lsn(lsn), record), Lsn(end)));
            }
            continue;
        }
        let whole = if name.starts_with("extent-") { 256 * 1024 } else { 8_192 };
        bytes.resize(whole, 0);
        files.push((name, bytes));
    }
    (MemoryDisk::with_files(files), expected)
}

#[test]
fn a_log_with_an_image_of_version_1_is_opened_and_replayed_as_before() {
    let (disk, expected) = golden_v1();
    let from = EXTENT_BYTES_MIN;
    let expected: Vec<Record> = expected
        .into_iter()
        .filter(|(_, (lsn, _), _)| lsn.0 >= from)
        .map(|(_, record, _)| record)
        .collect();
    for begin in [Begin::Image, Begin::Oldest] {
        let (recovery, report, records) = replay(&copy(&disk), begin).unwrap();
        let found = recovery.image().unwrap();
        assert_eq!((found.at, found.version, found.is_newest), (Lsn(from + 1), 1, true));
        assert_eq!(found.bytes.as_ref(), b"an image of version 1");
        assert!(records == expected, "{begin:?}");
        assert_eq!(report.findings, []);
    }
    assert!(offline::verify_disk(&shared(&disk)).unwrap().is_sound());
    // It goes on, and the next image is of version 2.
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let (places, end) = append(&log, &[vec![5; 500]], Urgency::Forced);
    watch.wait_durable(end);
    image(&log, end, b"new");
    log.reclaim(end).unwrap();
    let (more, end) = append(&log, &[vec![6; 500]], Urgency::Forced);
    watch.wait_durable(end);
    drop(log);
    let (recovery, _, records) = replay(&disk, Begin::Image).unwrap();
    assert_eq!(recovery.image().map(|image| image.version), Some(2));
    assert_eq!(records, [(more[0], vec![6; 500])]);
    drop(recovery);
    // The image of version 1 is the older one now, and its log is still there.
    let (_, _, records) = replay(&disk, Begin::Oldest).unwrap();
    assert_eq!(records.len(), expected.len() + 2);
    assert_eq!(records[expected.len()], (places[0], vec![5; 500]));
}

#[test]
fn a_run_longer_than_memory_allows_is_yielded_whole_all_the_same() {
    let disk = MemoryDisk::new();
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let mut written = Vec::new();
    let mut commit = |records: Vec<Vec<u8>>| {
        let (places, end) = append(&log, &records, Urgency::Forced);
        written.extend(places.into_iter().zip(records));
        watch.wait_durable(end);
        end
    };
    commit(vec![vec![1; 10]]);
    // Several extents long, after one that was given up in the middle; and one right behind it.
    let mut given_up = log.appender();
    for _ in 0..40 {
        given_up.record(9_000, |buffer| buffer.resize(buffer.len() + 9_000, 9));
    }
    drop(given_up);
    let long: Vec<Vec<u8>> = (0..90_u8).map(|byte| vec![byte; usize::from(byte) * 100]).collect();
    let end = commit(long.clone());
    commit(long);
    commit(vec![Vec::new(), vec![2; 30_000], Vec::new()]);
    image(&log, Lsn(end.0 - 1), b"in the middle of the first long run");
    drop(log);
    for cache_bytes in [0, 1_000, 100_000, 1 << 20] {
        let options = Options { cache_bytes, ..Options::small() };
        for (begin, first) in [(Begin::Oldest, 0), (Begin::Image, 1)] {
            let mut recovery =
                Recovery::open(shared(&copy(&disk)), options.clone(), LOG_ID).unwrap();
            let mut records = Vec::new();
            let take = |lsn, bytes: &[u8]| {
                records.push((lsn, bytes.to_vec()));
                Ok::<(), LogError>(())
            };
            let report = recovery.replay_from(begin, take, |_, _| {}).unwrap();
            assert!(records == written[first..], "{cache_bytes} {begin:?}");
            assert_eq!(report.records, records.len() as u64);
        }
    }
}

#[test]
fn where_room_is_wanting_the_newest_image_must_do() {
    let disk = MemoryDisk::new();
    let written = write_with_images(&disk, 100, &[(40, "a"), (80, "b")]);
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    log.reclaim(log.durable()).unwrap();
    let held = log.stats().extents;
    log.drop_older_images().unwrap();
    assert_eq!(log.images(), [written.ends[80]]);
    log.reclaim(log.durable()).unwrap();
    assert!(log.stats().extents < held, "what only the older one needed is gone");
    drop(log);
    let (_, _, records) = replay(&disk, Begin::Image).unwrap();
    assert_eq!(records.as_slice(), &written.records[81..]);
}

#[test]
fn an_older_image_that_made_way_does_not_come_back_without_the_log_that_it_needs() {
    let written_to = MemoryDisk::new();
    write_with_images(&written_to, 100, &[(40, "a"), (80, "b")]);
    let disk = MemoryDisk::recording_with_files(written_to.files());
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    log.reclaim(log.durable()).unwrap();
    let from = disk.journal().len();
    log.drop_older_images().unwrap();
    log.reclaim(log.durable()).unwrap();
    drop(log);
    let journal = disk.journal();
    let mut alone = 0;
    for number in 10 * from..10 * (journal.len() + 1) {
        let rule = CrashRule { keep_percent: 50, unit_bytes: 512, seed: number as u64 };
        let found = journal.crash_with_names_in_any_order(CrashPoint(number / 10), rule);
        let mut recovery = Recovery::open(shared(&found), Options::small(), LOG_ID).unwrap();
        // What would be done if the newest one turned out to be damaged.
        let has_older = recovery.pass_over_image();
        assert!(has_older.is_ok(), "after operation {}, {rule:?}: {has_older:?}", number / 10);
        alone += usize::from(matches!(has_older, Ok(false)));
    }
    assert!(alone > 0, "the older one goes in the end");
}

/// Each of these extents is needed by no image; but the log is read from its oldest extent when all
/// images are damaged, and a gap would refuse that start.
#[test]
fn of_extents_that_go_together_none_comes_back_without_those_behind_it() {
    let written_to = MemoryDisk::new();
    write_with_images(&written_to, 200, &[(190, "a"), (195, "b")]);
    let disk = MemoryDisk::recording_with_files(written_to.files());
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    let from = disk.journal().len();
    log.reclaim(log.durable()).unwrap();
    drop(log);
    let journal = disk.journal();
    let mut went = 0;
    for number in 5 * from..5 * (journal.len() + 1) {
        let rule = CrashRule { keep_percent: 50, unit_bytes: 512, seed: number as u64 };
        let found = journal.crash_with_names_in_any_order(CrashPoint(number / 5), rule);
        let files = found.files();
        let there = |sequence: &u64| files.contains_key(&extent_name(*sequence));
        let first = (0..).find(there).unwrap();
        let gap = (first..first.max(7)).find(|sequence| !there(sequence));
        assert_eq!(gap, None, "from {first}, after operation {}, {rule:?}", number / 5);
        went = went.max(first);
    }
    assert!(went > 4, "several go: {went}");
}
