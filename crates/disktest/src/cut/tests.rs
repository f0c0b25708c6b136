//! What a power cut may take and what it may not.

use std::fs;

use super::*;

const PLAN: CutPlan =
    CutPlan { way: Way::BufferedSync, file_bytes: 8 * RECORD_BYTES as u64, records: None };

/// A file after `records` records in eight slots, as blocks.
fn blocks(records: u64) -> Vec<Option<Record>> {
    let mut blocks = vec![None; 8.min(usize::try_from(records).unwrap())];
    for number in 1..=records {
        let record = Record { run: 9, number, slots: 8 };
        blocks[usize::try_from(record.slot()).unwrap()] = Some(record);
    }
    blocks
}

fn missing(blocks: &[Option<Record>], acked: u64) -> Vec<(u64, u64)> {
    let report = report(blocks, Some(acked));
    assert_eq!(report.complete, report.missing_ranges.is_empty());
    report.missing_ranges
}

#[test]
fn what_is_written_is_found_and_each_number_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut");
    let mut told = Vec::new();
    write(&path, CutPlan { records: Some(20), ..PLAN }, &mut told).unwrap();
    let numbers: Vec<u64> =
        String::from_utf8(told).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.into_iter().eq(1..=20));
    assert_eq!(fs::metadata(&path).unwrap().len(), PLAN.file_bytes);
    let report = verify(&path, Some(20)).unwrap();
    assert!(report.complete && report.highest_number == 20 && report.expected_count == 7);
    let again = write(&path, PLAN, &mut Vec::new()).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn a_flipped_bit_anywhere_in_a_record_is_seen() {
    let mut block = vec![0; RECORD_BYTES];
    let record = Record { run: 1, number: 2, slots: 3 };
    record.encode(&mut block);
    assert_eq!(Record::decode(&block), Some(record));
    for at in [0, 9, 17, 25, 29, 32, 4095] {
        let mut flipped = block.clone();
        flipped[at] ^= 4;
        assert_eq!(Record::decode(&flipped), None, "byte {at}");
    }
    assert_eq!(Record::decode(&block[..100]), None);
}

#[test]
fn a_record_that_was_reported_and_is_not_there_is_missing() {
    assert_eq!(missing(&blocks(5), 5), []);
    assert_eq!(missing(&blocks(5), 6), [(6, 6)]);
    assert_eq!(missing(&blocks(12), 14), [(13, 14)]);
    assert_eq!(missing(&[], 0), []);
    assert_eq!(missing(&[], 3), [(1, 3)]);
    assert_eq!(missing(&[None, None], 3), [(1, 3)]);
}

#[test]
fn more_than_was_reported_is_fine() {
    assert_eq!(missing(&blocks(6), 5), []);
    assert_eq!(missing(&blocks(20), 3), []);
}

#[test]
fn a_gap_below_the_highest_number_is_a_loss_though_it_was_not_reported() {
    let mut with_gap = blocks(7);
    with_gap[2] = None;
    with_gap[3] = None;
    assert_eq!(report(&with_gap, None).missing_ranges, [(3, 4)]);
}

#[test]
fn the_record_that_was_being_written_over_may_be_torn() {
    // 13 was under way in the block of 5.
    let mut torn = blocks(12);
    torn[4] = None;
    assert_eq!(missing(&torn, 12), []);
    // 6 may not be gone: nothing was being written there.
    torn[5] = None;
    assert_eq!(missing(&torn, 12), [(6, 6)]);
}

#[test]
fn an_old_record_in_the_slot_of_a_newer_one_is_a_loss() {
    let mut old = blocks(12);
    old[1] = Some(Record { run: 9, number: 2, slots: 8 });
    assert_eq!(missing(&old, 12), [(10, 10)]);
}

#[test]
fn blocks_of_an_older_file_do_not_count() {
    let mut mixed = blocks(7);
    mixed[6] = Some(Record { run: 4, number: 7, slots: 8 });
    assert_eq!(missing(&mixed, 7), [(7, 7)]);
}
