//! What was damaged is as it was again, byte for byte, or it is said why not.

use std::collections::BTreeMap;

use super::*;
use crate::disk::MemoryDisk;
use crate::format::ExtentHeader;
use crate::listener::Urgency;
use crate::offline::verify_disk;
use crate::options::Options;
use crate::testing::{Watch, append, body, image, start};
use towline_types::SeededRandom;

/// A log of several extents, shut down.
fn written() -> MemoryDisk {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let mut random = SeededRandom::new(3);
    for _ in 0..120 {
        let records: Vec<Vec<u8>> = (0..4).map(|_| body(&mut random, 2_000)).collect();
        let (_, end) = append(&log, &records, Urgency::Forced);
        watch.wait_durable(end);
    }
    log.shutdown();
    memory
}

pub(super) fn copy(disk: &MemoryDisk) -> MemoryDisk {
    MemoryDisk::with_files(disk.files())
}

/// Where the batches of the second extent begin.
fn places(disk: &MemoryDisk) -> Vec<usize> {
    let bytes = &disk.files()[&extent_name(1)];
    let blocks = (1..bytes.len() / BLOCK_BYTES).map(|block| block * BLOCK_BYTES);
    blocks.filter(|at| BatchHeader::decode(&bytes[*at..]).is_some()).collect()
}

fn mended(target: &MemoryDisk, source: &MemoryDisk) -> MendReport {
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(target.clone()), Arc::new(source.clone())];
    mend(&disks[0], &disks[1], &[], &mut |_, _| {}).unwrap()
}

pub(super) fn is_sound(disk: &MemoryDisk) -> bool {
    verify_disk(&(Arc::new(disk.clone()) as Arc<dyn Disk>)).unwrap().is_sound()
}

pub(super) fn extents(disk: &MemoryDisk) -> BTreeMap<String, Vec<u8>> {
    disk.files().into_iter().filter(|(name, _)| name.starts_with("extent-")).collect()
}

/// The same records at the same positions under headers of their own, as another instance has them.
pub(super) fn other_instance(disk: &MemoryDisk) -> MemoryDisk {
    let other = copy(disk);
    let mut previous = 0;
    for (name, bytes) in extents(disk) {
        let mut bytes = bytes;
        let mut at = BLOCK_BYTES;
        while let Some(mut header) = bytes.get(at..).and_then(BatchHeader::decode) {
            let end = at + size(header.batch_bytes());
            header.unsynced += 1;
            header.previous = previous;
            let sum = payload_sum(crate::testing::LOG_ID, &bytes[at + BATCH_HEADER_BYTES..end]);
            header.checksum = header.sum(sum);
            previous = header.checksum;
            bytes[at..at + BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
            at = end.next_multiple_of(BLOCK_BYTES);
        }
        other.change(&name, |file| file.clone_from(&bytes));
    }
    assert!(is_sound(&other) && extents(&other) != extents(disk));
    other
}

#[test]
fn a_damaged_batch_comes_back_from_a_copy_and_from_another_instance() {
    let original = written();
    let batches = places(&original);
    assert!(batches.len() > 10);
    for source in [copy(&original), other_instance(&original)] {
        // The header's fields, its checksum, records, padding that no code reads.
        for byte in [0, 5, 9, 14, 20, 29, 33, 41, 3_000] {
            for count in [1, 3] {
                let target = copy(&original);
                for at in &batches[4..4 + count] {
                    target.change(&extent_name(1), |file| file[at + byte] ^= 8);
                }
                // Of neighbours without headers no one names the others' checksums.
                let headers_are_lost = count > 1 && byte < 40;
                let is_other = extents(&source) != extents(&original);
                let report = mended(&target, &source);
                if headers_are_lost && is_other {
                    assert_eq!((report.bytes, report.left.len()), (0, 1), "byte {byte}");
                    continue;
                }
                assert!(report.left.is_empty(), "{count} at byte {byte}: {report:?}");
                assert_eq!(report.mended.len(), 1, "{count} at byte {byte}");
                assert!(extents(&target) == extents(&original), "{count} at byte {byte}");
            }
        }
    }
}

/// The batch before it filled its extent to the end, so the walk stands behind that end.
#[test]
fn a_damaged_batch_at_the_beginning_of_an_extent_comes_back() {
    let original = written();
    let target = copy(&original);
    let at = places(&original)[0];
    assert_eq!(at, BLOCK_BYTES, "the extent begins with a batch");
    target.change(&extent_name(1), |file| file[at + 100] ^= 4);
    let report = mended(&target, &copy(&original));
    assert!(report.left.is_empty() && report.mended.len() == 1, "{report:?}");
    assert_eq!(extents(&target), extents(&original));
}

#[test]
fn what_the_source_has_damaged_too_stays_and_is_said() {
    let original = written();
    let at = places(&original)[4] + 100;
    let (target, source) = (copy(&original), copy(&original));
    for disk in [&target, &source] {
        disk.change(&extent_name(1), |file| file[at] ^= 8);
    }
    let before = extents(&target);
    let report = mended(&target, &source);
    assert_eq!((report.mended.len(), report.left.len(), report.bytes), (0, 1, 0));
    assert!(extents(&target) == before);
}

#[test]
fn a_sound_log_is_not_written() {
    let original = written();
    let target = copy(&original);
    let report = mended(&target, &other_instance(&original));
    assert_eq!(report, MendReport::default());
    assert!(extents(&target) == extents(&original));
}

#[test]
fn an_extent_that_is_gone_or_has_no_header_comes_back() {
    let original = written();
    let target = copy(&original);
    target.change(&extent_name(1), |file| file[20] ^= 1);
    assert_eq!(mended(&target, &copy(&original)).mended[0].what, Damage::ExtentHeader);
    assert!(extents(&target) == extents(&original));

    let mut files = original.files();
    files.remove(&extent_name(1));
    let target = MemoryDisk::with_files(files.clone());
    assert!(!is_sound(&target));
    let what = mended(&target, &copy(&original)).mended[0].what;
    assert!(matches!(what, Damage::ExtentMissing(_)), "{what:?}");
    assert!(extents(&target) == extents(&original) && is_sound(&target));

    // Headers of another instance do not continue the chain: nothing is put there.
    let target = MemoryDisk::with_files(files);
    let report = mended(&target, &other_instance(&original));
    assert_eq!((report.mended.len(), report.left.len(), report.bytes), (0, 1, 0));
    assert!(!target.files().contains_key(&extent_name(1)));
}

#[test]
fn what_is_missing_is_named_by_what_it_is_to_the_log() {
    let original = written();
    let disk: Arc<dyn Disk> = Arc::new(original.clone());
    let log = start(&disk, Options::small(), &Watch::new());
    image(&log, log.durable(), b"image");
    log.shutdown();
    let last = extents(&original).len() as u64 - 1;
    let mended_without = |gone: &[u64]| {
        let mut files = original.files();
        gone.iter().for_each(|gone| drop(files.remove(&extent_name(*gone))));
        let target = MemoryDisk::with_files(files);
        let disks: [Arc<dyn Disk>; 2] = [Arc::new(target.clone()), Arc::new(copy(&original))];
        mend(&disks[0], &disks[1], gone, &mut |_, _| {}).unwrap()
    };
    let needed = (0..=last).rev().find(|extent| {
        let report = mended_without(&[*extent]);
        let mut all = report.mended.iter().chain(report.left.iter().map(|left| &left.found));
        all.any(|found| matches!(found.what, Damage::ImageExtentMissing(_)))
    });
    assert!(needed.is_some(), "the image needs one");
    for (gone, what) in [(0, "before the oldest one"), (1, "between others")] {
        let report = mended_without(&[gone]);
        assert_eq!(report.mended.len(), 1, "{report:?}");
        let text = report.mended[0].to_string();
        assert!(text.contains(&format!("an extent {what}")), "{text}");
    }
    let all: Vec<u64> = (0..=last).collect();
    let report = mended_without(&all);
    assert!(report.mended.is_empty(), "{report:?}");
    assert!(matches!(report.left[0].found.what, Damage::NoExtents(_)), "nothing is not sound");
}

#[test]
fn neighbours_that_are_gone_come_back_together_and_older_ones_when_they_are_wanted() {
    let original = written();
    let without = |gone: &[u64]| {
        let mut files = original.files();
        gone.iter().for_each(|gone| drop(files.remove(&extent_name(*gone))));
        MemoryDisk::with_files(files)
    };
    let target = without(&[1, 2]);
    assert_eq!(mended(&target, &copy(&original)).mended.len(), 2);
    assert!(extents(&target) == extents(&original));

    let target = without(&[0, 1]);
    let source: Arc<dyn Disk> = Arc::new(copy(&original));
    let disk: Arc<dyn Disk> = Arc::new(target.clone());
    mend(&disk, &source, &[], &mut |_, _| {}).unwrap();
    assert_eq!(
        extents(&target).len() + 2,
        extents(&original).len(),
        "they may have been given back"
    );
    let report = mend(&disk, &source, &[0], &mut |_, _| {}).unwrap();
    assert_eq!((report.mended.len(), report.left.len()), (2, 0));
    assert!(extents(&target) == extents(&original));

    let target = without(&[0, 1]);
    let disk: Arc<dyn Disk> = Arc::new(target.clone());
    let other: Arc<dyn Disk> = Arc::new(other_instance(&original));
    let report = mend(&disk, &other, &[0], &mut |_, _| {}).unwrap();
    assert_eq!((report.mended.len(), report.left.len()), (0, 2));
    assert!(!extents(&target).contains_key(&extent_name(1)));
}

#[test]
fn another_log_is_no_source() {
    let original = written();
    let other = copy(&original);
    for name in extents(&original).into_keys() {
        let sequence = crate::folder::names::number_in_name("extent-", &name).unwrap();
        let header = ExtentHeader {
            log_id: crate::LogId(9),
            sequence,
            extent_bytes: Options::small().extent_bytes,
        };
        other.change(&name, |file| file[..BLOCK_BYTES].copy_from_slice(&header.encode()));
    }
    let target = copy(&original);
    target.change(&extent_name(1), |file| file[places(&original)[4] + 100] ^= 8);
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(target.clone()), Arc::new(other)];
    let wrong = mend(&disks[0], &disks[1], &[], &mut |_, _| {});
    assert!(matches!(wrong, Err(LogError::OtherLog { .. })));
}

#[test]
fn what_a_start_refuses_comes_back_by_asking_for_one_batch_after_the_other() {
    let original = written();
    let batches = places(&original);
    let source = other_instance(&original);
    let disk: Arc<dyn Disk> = Arc::new(source.clone());
    let log = start(&disk, Options::small(), &Watch::new());
    for (damaged, from) in [(vec![0], 0), (vec![0], 1), (vec![4, 5, 9], 0), (vec![4], 1)] {
        let target = copy(&original);
        for at in &damaged {
            target.change(&extent_name(1), |file| file[batches[*at] + 100] ^= 8);
        }
        let (mut asked, disk) = (0, Arc::new(target.clone()) as Arc<dyn Disk>);
        let mut ask = |part| {
            asked += 1;
            log.batch_over(part).ok()
        };
        let report = mend_asked(&disk, from, &mut ask).unwrap();
        // Without the extent before, nothing whole lies before the first batch of one.
        if (damaged[0], from) == (0, 1) {
            assert_eq!((asked, report.mended.len(), report.bytes), (0, 0, 0), "{report:?}");
            continue;
        }
        assert_eq!(asked, damaged.len(), "no more than is damaged: {damaged:?}");
        assert!(report.left.is_empty(), "{damaged:?}: {report:?}");
        assert!(extents(&target) == extents(&original), "{damaged:?}");
    }
    // Answers that are none.
    let target = copy(&original);
    target.change(&extent_name(1), |file| file[batches[4] + 100] ^= 8);
    let before = extents(&target);
    let disk: Arc<dyn Disk> = Arc::new(target.clone());
    let other = log.batch_over(BodyLocation { lsn: Lsn(4_096), bytes: 40 }).unwrap();
    let cut = |part| log.batch_over(part).ok().map(|whole| whole.slice(..whole.len() - 1));
    let flipped = |part| {
        let mut bytes = log.batch_over(part).ok()?.to_vec();
        bytes[100] ^= 1;
        Some(Bytes::from(bytes))
    };
    let nothing = |_| None;
    let another = |_| Some(other.clone());
    let answers: [&dyn Fn(BodyLocation) -> Option<Bytes>; 4] = [&nothing, &another, &cut, &flipped];
    for answer in answers {
        let report = mend_asked(&disk, 0, &mut |part| answer(part)).unwrap();
        assert_eq!((report.mended.len(), report.left.len(), report.bytes), (0, 1, 0));
    }
    assert!(extents(&target) == before);
}

/// A log with its newest image in the extent in which it ends, or `back` batches before that.
fn with_image_at_its_end(back: usize) -> (MemoryDisk, u64) {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let mut random = SeededRandom::new(4);
    let mut needed = 0;
    for round in 0..120 {
        let records: Vec<Vec<u8>> = (0..4).map(|_| body(&mut random, 2_000)).collect();
        let (_, end) = append(&log, &records, Urgency::Forced);
        watch.wait_durable(end);
        if round == 119 - back {
            image(&log, log.durable(), b"image");
            needed = log.durable().0 / Options::small().extent_bytes;
        }
    }
    log.shutdown();
    (memory, needed)
}

#[test]
fn the_extent_in_which_the_log_ended_comes_back_up_to_the_image_or_further_and_that_is_said() {
    for back in [0, 5] {
        let (original, needed) = with_image_at_its_end(back);
        assert!(needed > 1);
        for from in [0, 1, needed] {
            let mut files = original.files();
            for gone in from..=needed {
                files.remove(&extent_name(gone));
            }
            files.insert(INCARNATION_NAME.to_owned(), vec![1]);
            for source in [copy(&original), without_what_is_unused(&original)] {
                let target = MemoryDisk::with_files(files.clone());
                assert!(!is_sound(&target));
                let report = mended(&target, &source);
                assert!(report.left.is_empty(), "{report:?}");
                assert!(report.ends_at.is_some(), "{back}, {from}: {report:?}");
                assert!(is_sound(&target), "{back}, {from}");
                let name = extent_name(needed);
                assert_eq!(target.files()[&name], original.files()[&name]);
                let is_known = target.files().contains_key(INCARNATION_NAME);
                assert!(!is_known, "what was promised for the longer log does not count");
            }
            // Another instance has the same records under other headers, and a source that ends
            // before the image is none.
            for source in [other_instance(&original), ended_before_the_image(&original)] {
                let target = MemoryDisk::with_files(files.clone());
                let report = mended(&target, &source);
                assert!(!report.left.is_empty() && report.mended.is_empty(), "{report:?}");
                assert!(target.files().contains_key(INCARNATION_NAME) && report.ends_at.is_none());
            }
        }
    }
}

/// Its last extent is as long as what was written of it: a backup.
fn without_what_is_unused(disk: &MemoryDisk) -> MemoryDisk {
    let is_used = |bytes: &[u8]| BatchHeader::decode(&bytes[BLOCK_BYTES..]).is_some();
    let used = extents(disk).into_iter().filter(|(_, bytes)| is_used(bytes)).count();
    let mut files = disk.files();
    for unused in used..extents(disk).len() {
        files.remove(&extent_name(unused as u64));
    }
    let backup = MemoryDisk::with_files(files);
    backup.change(&extent_name(used as u64 - 1), |file| {
        let end = file.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        file.truncate(end.next_multiple_of(BLOCK_BYTES));
    });
    backup
}

/// Its last batches are not there: a backup that was made before the image.
fn ended_before_the_image(disk: &MemoryDisk) -> MemoryDisk {
    let older = copy(disk);
    let Some((name, bytes)) = extents(disk)
        .into_iter()
        .rfind(|(_, bytes)| BatchHeader::decode(&bytes[BLOCK_BYTES..]).is_some())
    else {
        panic!("a log without batches");
    };
    let mut at = BLOCK_BYTES;
    let mut places = Vec::new();
    while let Some(header) = bytes.get(at..).and_then(BatchHeader::decode) {
        places.push(at);
        at += size(padded(header.batch_bytes()));
    }
    let cut = places[places.len().saturating_sub(8)];
    older.change(&name, |file| file[cut..].fill(0));
    older
}

#[test]
fn a_proven_repair_leaves_what_was_promised_for_the_log() {
    let original = written();
    let mut files = original.files();
    files.remove(&extent_name(1));
    files.insert(INCARNATION_NAME.to_owned(), vec![1]);
    let target = MemoryDisk::with_files(files);
    assert_eq!(mended(&target, &copy(&original)).ends_at, None);
    assert!(target.files().contains_key(INCARNATION_NAME) && is_sound(&target));
}

#[test]
fn two_logs_with_damage_in_different_batches_repair_each_other_at_rest() {
    let original = written();
    let batches = places(&original);
    let (one, other) = (copy(&original), other_instance(&original));
    let sound = other.files();
    one.change(&extent_name(1), |file| file[batches[4] + 100] ^= 8);
    other.change(&extent_name(1), |file| file[batches[7] + 100] ^= 8);
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(one.clone()), Arc::new(other.clone())];
    for (target, source) in [(0, 1), (1, 0)] {
        let mut ask = |part| rest::at_rest(&disks[source], part).unwrap();
        let report = mend_asked(&disks[target], 0, &mut ask).unwrap();
        assert_eq!((report.mended.len(), report.left.len()), (1, 0), "{report:?}");
    }
    assert!(extents(&one) == extents(&original) && other.files() == sound);
}

#[test]
fn a_damaged_header_is_written_again_at_a_start_without_asking_anybody() {
    let original = written();
    let target = copy(&original);
    target.change(&extent_name(1), |file| file[27] ^= 2);
    let disk: Arc<dyn Disk> = Arc::new(target.clone());
    let report = mend_asked(&disk, 0, &mut |_| panic!("nobody is asked")).unwrap();
    let what: Vec<Damage> = report.mended.iter().map(|found| found.what).collect();
    assert_eq!((what, report.left), (vec![Damage::ExtentHeader], Vec::new()));
    assert!(extents(&target) == extents(&original));
}
