//! A damaged batch of a running log is as it was, byte for byte, or nothing was written.

use std::io;
use std::sync::Arc;

use super::*;
use crate::disk::{CrashPoint, CrashRule, Disk, Fault, FaultOn, MemoryDisk};
use crate::listener::Urgency;
use crate::log::Log;
use crate::mend::tests::{copy, extents, is_sound, other_instance};
use crate::options::Options;
use crate::testing::{LOG_ID, Watch, append, body, head_of, image, start};
use towline_types::SeededRandom;

/// Disks of two instances: the same records, headers of their own.
struct Pair {
    here: MemoryDisk,
    there: MemoryDisk,
    /// The bodies and where they are.
    bodies: Vec<(BodyLocation, Vec<u8>)>,
}

/// Logs of several extents, here with an image of their end: a start passes over what is before.
fn pair() -> Pair {
    let here = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(here.clone());
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let (mut random, mut bodies, mut last) = (SeededRandom::new(3), Vec::new(), Lsn::ZERO);
    for _ in 0..120 {
        let records: Vec<Vec<u8>> = (0..4).map(|_| body(&mut random, 2_000)).collect();
        let (places, end) = append(&log, &records, Urgency::Forced);
        watch.wait_durable(end);
        for (lsn, record) in places.into_iter().zip(records) {
            let head = head_of(record.len());
            let lsn = lsn.after(head as u64);
            let body = record.get(head..).unwrap().to_vec();
            bodies.push((BodyLocation { lsn, bytes: u32::try_from(body.len()).unwrap() }, body));
        }
        last = end;
    }
    let there = {
        let whole = copy(&here);
        // Ends in order, as the other does.
        drop(start(&(Arc::new(whole.clone()) as Arc<dyn Disk>), Options::small(), &Watch::new()));
        other_instance(&whole)
    };
    image(&log, last, b"all");
    log.shutdown();
    Pair { here, there, bodies }
}

fn begun(disk: &MemoryDisk) -> (Log, Arc<Watch>) {
    let watch = Watch::new();
    (start(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Options::small(), &watch), watch)
}

impl Pair {
    /// What the other instance says of a part.
    fn asked(&self, part: BodyLocation) -> Bytes {
        begun(&self.there).0.batch_over(part).unwrap()
    }

    /// The bodies of the second extent, one for each batch of it, and the position of the batch.
    fn batches(&self) -> Vec<(BodyLocation, Vec<u8>, usize)> {
        let extent_bytes = Options::small().extent_bytes;
        let (log, _) = begun(&self.there);
        let mut found: Vec<(BodyLocation, Vec<u8>, usize)> = Vec::new();
        for (part, body) in self.bodies.iter().filter(|(at, _)| at.lsn.0 / extent_bytes == 1) {
            let header = BatchHeader::decode(&log.batch_over(*part).unwrap()).unwrap();
            let offset = size(header.lsn.0 % extent_bytes);
            if found.last().is_none_or(|(_, _, last)| *last != offset) {
                found.push((*part, body.clone(), offset));
            }
        }
        found
    }

    /// A copy of this instance's disk with a byte of the second extent changed.
    fn damaged(&self, at: usize) -> MemoryDisk {
        let disk = copy(&self.here);
        disk.change(&extent_name(1), |file| file[at] ^= 8);
        disk
    }
}

#[test]
fn a_damaged_batch_is_written_again_from_what_another_instance_has() {
    let pair = pair();
    let batches = pair.batches();
    assert!(batches.len() > 5 && batches[0].2 == EXTENT_HEADER_BYTES, "{}", batches.len());
    // One at the beginning of an extent, with its neighbour in another file, and one at the end.
    for (part, body, offset) in [&batches[0], &batches[3], &batches[batches.len() - 1]] {
        let came = pair.asked(*part);
        // Each field of the header, its checksum, the body.
        for byte in [0, 5, 9, 14, 20, 25, 29, 33] {
            mends(&pair, (*part, body, offset + byte), &came);
        }
        let in_body = size(part.lsn.0 % Options::small().extent_bytes) + 100;
        mends(&pair, (*part, body, in_body), &came);
    }
}

fn mends(pair: &Pair, (part, body, at): (BodyLocation, &[u8], usize), came: &[u8]) {
    let disk = pair.damaged(at);
    let (log, _watch) = begun(&disk);
    assert!(log.batch_over(part).is_err(), "byte {at} is damaged");
    let mended = log.mend_batch(part, came).unwrap().unwrap();
    let bytes = padded(came.len() as u64);
    assert_eq!((mended.file, mended.bytes), (extent_name(1), bytes), "byte {at}");
    assert_eq!(log.read(part).unwrap(), body, "byte {at}");
    assert!(extents(&disk)[&extent_name(1)] == extents(&pair.here)[&extent_name(1)], "byte {at}");
    assert!(log.mend_batch(part, came).unwrap().is_none(), "byte {at}: nothing is left");
    log.shutdown();
    assert!(is_sound(&disk), "byte {at}");
}

#[test]
fn what_is_not_what_stood_here_is_refused_and_nothing_is_written() {
    let pair = pair();
    let batches = pair.batches();
    let (part, _, offset) = batches[3];
    let came = pair.asked(part);
    let payload = &came[BATCH_HEADER_BYTES..];
    let changed = |change: &dyn Fn(&mut BatchHeader), log_id: crate::LogId, payload: &[u8]| {
        let mut header = BatchHeader::decode(&came).unwrap();
        change(&mut header);
        header.checksum = header.sum(payload_sum(log_id, payload));
        [&header.encode(), payload].concat()
    };
    let mut flipped = came.to_vec();
    flipped[1_000] ^= 1;
    let mut other_content = payload.to_vec();
    other_content[1_000] ^= 1;
    let same = |_: &mut BatchHeader| {};
    let extent_bytes = Options::small().extent_bytes;
    let refusals: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "it is no batch"),
        (vec![0; 12_000], "it is no batch"),
        (came[..came.len() - 1].to_vec(), "its length is wrong"),
        ([&came, &[0][..]].concat(), "its length is wrong"),
        (flipped, "its checksum is wrong"),
        (changed(&same, crate::LogId(7), payload), "its checksum is wrong"),
        (pair.asked(batches[4].0).to_vec(), "it has another position"),
        (changed(&|header| header.lsn.0 += 4_096, LOG_ID, payload), "it has another position"),
        (
            changed(&|header| header.lsn.0 += extent_bytes, LOG_ID, payload),
            "it has another position",
        ),
        (changed(&|header| header.lsn = Lsn(u64::MAX), LOG_ID, payload), "it has another position"),
        // Whole, of this log and this position, and yet another batch.
        (changed(&|header| header.term += 1, LOG_ID, payload), PROOF),
        (changed(&|header| header.index += 1, LOG_ID, payload), PROOF),
        (changed(&same, LOG_ID, &other_content), PROOF),
    ];
    // The header is damaged, or the content.
    for at in [offset + 9, offset + 5_000] {
        let disk = pair.damaged(at);
        let before = disk.files();
        let (log, watch) = begun(&disk);
        for (number, (came, expected)) in refusals.iter().enumerate() {
            match log.mend_batch(part, came) {
                Err(NotMended::Refused(why)) => assert_eq!(why, *expected, "{number} at {at}"),
                other => panic!("{number} at {at}: {other:?}"),
            }
        }
        assert_eq!(watch.failures(), 0);
        assert!(extents(&disk)[&extent_name(1)] == before[&extent_name(1)]);
    }
}

const PROOF: &str = "it cannot be proven to be what was here";

#[test]
fn all_that_is_damaged_is_found_and_mended_in_a_log_that_runs() {
    let pair = pair();
    let batches = pair.batches();
    // The first of an extent, neighbours, and the last.
    let hit = [0, 3, 4, batches.len() - 1];
    let disk = pair.damaged(batches[0].2 + 9);
    for batch in &hit[1..] {
        disk.change(&extent_name(1), |file| file[batches[*batch].2 + 100] ^= 8);
    }
    let (log, _watch) = begun(&disk);
    let source = begun(&pair.there).0;
    let mut rounds = Vec::new();
    loop {
        let parts = log.damaged_parts().unwrap();
        let mut mended = 0;
        for part in parts.iter().filter(|part| log.batch_over(**part).is_err()) {
            let Ok(came) = source.batch_over(*part) else { continue };
            mended += usize::from(log.mend_batch(*part, &came).unwrap().is_some());
        }
        rounds.push(mended);
        if mended == 0 {
            break;
        }
    }
    assert_eq!(rounds, [3, 1, 0], "of neighbours the first is reported first");
    assert_eq!(log.damaged_parts().unwrap(), Vec::new());
    log.shutdown();
    assert!(extents(&disk)[&extent_name(1)] == extents(&pair.here)[&extent_name(1)]);
    assert!(is_sound(&disk));
}

#[test]
fn neighbours_that_have_both_lost_their_headers_are_left_and_those_with_headers_are_not() {
    let pair = pair();
    let batches = pair.batches();
    let (first, second) = (&batches[3], &batches[4]);
    for (byte, is_proven) in [(0, false), (9, true), (5_000, true)] {
        let disk = pair.damaged(first.2 + byte);
        disk.change(&extent_name(1), |file| file[second.2 + byte] ^= 8);
        let (log, _watch) = begun(&disk);
        for (part, ..) in [first, second] {
            let mended = log.mend_batch(*part, &pair.asked(*part));
            assert_eq!(mended.is_ok(), is_proven, "{byte}: {mended:?}");
        }
        log.shutdown();
        assert_eq!(is_sound(&disk), is_proven);
    }
}

/// At each step of a mend the power goes, and any part of what was not synced is there or not: all
/// else is as it was, the log starts, and the same mend does what the first one did not.
#[test]
fn a_power_cut_at_any_step_of_a_mend_leaves_the_batch_damaged_or_whole() {
    let pair = pair();
    let (part, body, offset) = pair.batches()[3].clone();
    let came = pair.asked(part);
    let good = extents(&pair.here);
    let (mut whole, mut damaged) = (0, 0);
    for at in [offset + 9, offset + 5_000] {
        let disk = MemoryDisk::recording_with_files(pair.damaged(at).files());
        let (log, _watch) = begun(&disk);
        log.mend_batch(part, &came).unwrap().unwrap();
        drop(log);
        let journal = disk.journal();
        for point in 0..=journal.len() {
            for (keep_percent, unit_bytes, seed) in rules() {
                let rule = CrashRule { keep_percent, unit_bytes, seed };
                let found = journal.crash(CrashPoint(point), rule);
                let what = format!("byte {at}, {point} of {}, {rule:?}", journal.len());
                let now = &extents(&found)[&extent_name(1)];
                let (then, end) = (&good[&extent_name(1)], offset + 12_288);
                assert!(now[..offset] == then[..offset] && now[end..] == then[end..], "{what}");
                let (log, _watch) = begun(&found);
                match log.mend_batch(part, &came).unwrap() {
                    None => whole += 1,
                    Some(_) => damaged += 1,
                }
                assert_eq!(log.read(part).unwrap(), body, "{what}");
                log.shutdown();
                assert!(is_sound(&found), "{what}");
            }
        }
    }
    assert!(whole > 0 && damaged > 0, "{whole} whole, {damaged} damaged");
}

fn rules() -> impl Iterator<Item = (u8, usize, u64)> {
    let torn = (0..6).flat_map(|seed| [(50, 512, seed), (50, 4_096, seed)]);
    [(0, 512, 0), (100, 512, 0)].into_iter().chain(torn)
}

#[test]
fn a_write_or_a_sync_that_fails_ends_the_log_as_any_other() {
    let pair = pair();
    let (part, _, offset) = pair.batches()[3];
    let came = pair.asked(part);
    for on in [FaultOn::Write, FaultOn::Sync] {
        let disk = pair.damaged(offset + 5_000);
        let (log, watch) = begun(&disk);
        let (prefix, error) = (extent_name(1), io::ErrorKind::Other);
        disk.inject(Fault { on, prefix, after: 0, times: 1, error });
        let mended = log.mend_batch(part, &came);
        assert!(matches!(mended, Err(NotMended::Log(LogError::Io { .. }))), "{on:?}: {mended:?}");
        assert!(watch.wait_failed().contains("write a damaged batch again"), "{on:?}");
        let again = log.mend_batch(part, &came);
        assert!(matches!(again, Err(NotMended::Log(LogError::Failed))), "{on:?}: {again:?}");
    }
}

#[test]
fn a_part_that_no_batch_has_is_gone_whatever_its_numbers() {
    let pair = pair();
    let (log, _watch) = begun(&pair.here);
    let extent_bytes = Options::small().extent_bytes;
    let durable = log.durable();
    let parts = [
        (0, 10),
        (extent_bytes, 10),
        (extent_bytes + FIRST - 1, 10),
        (2 * extent_bytes - 5, 10),
        (extent_bytes + FIRST, u32::MAX),
        (durable.0 - 5, 10),
        (durable.0 + 5, 10),
        (u64::MAX, u32::MAX),
        (u64::MAX - 5, 5),
    ];
    for (lsn, bytes) in parts {
        let part = BodyLocation { lsn: Lsn(lsn), bytes };
        let asked = log.batch_over(part);
        assert!(matches!(asked, Err(LogError::Gone { .. })), "{part:?}: {asked:?}");
        let mended = log.mend_batch(part, b"TB");
        assert!(matches!(mended, Err(NotMended::Log(LogError::Gone { .. }))), "{mended:?}");
    }
}

#[test]
fn an_extent_that_was_let_go_is_not_written() {
    let pair = pair();
    let (part, _, offset) = pair.batches()[3];
    let came = pair.asked(part);
    let (log, _watch) = begun(&pair.damaged(offset + 5_000));
    log.reclaim(log.durable()).unwrap();
    assert!(log.first_held() > part.lsn);
    for mended in
        [log.mend_batch(part, &came).err(), log.batch_over(part).err().map(NotMended::Log)]
    {
        assert!(matches!(mended, Some(NotMended::Log(LogError::Gone { .. }))), "{mended:?}");
    }
}

/// Seed 937250 of the simulator: with a header that was damaged, no message of the extent could be
/// read, no replica be sent a copy, and what other instances gave was not used.
#[test]
fn a_damaged_header_of_an_extent_is_written_again_when_the_extent_is_read() {
    let pair = pair();
    let (part, body, _) = pair.batches().remove(2);
    // Each field, and the checksum.
    for byte in [0, 9, 17, 27, 35, 45, 51] {
        let disk = pair.damaged(byte);
        let (log, watch) = begun(&disk);
        assert_eq!(log.read(part).unwrap(), body, "byte {byte}");
        assert_eq!(watch.headers_repaired(), [extent_name(1)], "byte {byte}");
        assert!(extents(&disk) == extents(&pair.here), "byte {byte}");
        log.shutdown();
        assert!(is_sound(&disk), "byte {byte}");
    }
    // Asked for by another instance; and beside a damaged batch.
    let disk = pair.damaged(27);
    disk.change(&extent_name(1), |file| file[size(part.lsn.0 % EXTENT) + 100] ^= 8);
    let (log, _watch) = begun(&disk);
    assert!(log.batch_over(part).is_err_and(|error| error.is_damage()));
    let came = pair.asked(part);
    assert!(log.mend_batch(part, &came).unwrap().is_some());
    assert!(extents(&disk) == extents(&pair.here));
}

const EXTENT: u64 = crate::EXTENT_BYTES_MIN;

#[test]
fn a_header_that_says_something_else_is_not_written_over() {
    let pair = pair();
    let (part, ..) = pair.batches().remove(2);
    let others = [
        crate::format::ExtentHeader { log_id: crate::LogId(7), sequence: 1, extent_bytes: EXTENT },
        crate::format::ExtentHeader { log_id: LOG_ID, sequence: 2, extent_bytes: EXTENT },
    ];
    for other in others {
        let disk = copy(&pair.here);
        let encoded = other.encode();
        disk.change(&extent_name(1), |file| file[..encoded.len()].copy_from_slice(&encoded));
        let before = extents(&disk);
        let (log, watch) = begun(&disk);
        assert!(log.read(part).is_err() && log.batch_over(part).is_err());
        assert!(extents(&disk) == before && watch.headers_repaired().is_empty());
    }
}

#[test]
fn a_header_that_cannot_be_written_again_stops_the_log() {
    let pair = pair();
    let (part, ..) = pair.batches().remove(2);
    let disk = pair.damaged(27);
    let (log, watch) = begun(&disk);
    let (prefix, error) = (extent_name(1), io::ErrorKind::Other);
    disk.inject(Fault { on: FaultOn::Write, prefix, after: 0, times: 1, error });
    assert!(matches!(log.read(part), Err(LogError::Io { .. })));
    assert_eq!((watch.failures(), watch.headers_repaired().len()), (1, 0));
}
