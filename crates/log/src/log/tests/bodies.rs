//! A damaged byte costs the body that it is in, and no other of its batch.

use crate::folder::names::extent_name;
use std::sync::Arc;

use towline_types::{BodyLocation, SeededRandom};

use super::{fill, memory};
use crate::disk::{Disk, MemoryDisk};
use crate::error::LogError;
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, ExtentHeader};
use crate::listener::Urgency;
use crate::log::Log;
use crate::offline;
use crate::options::Options;
use crate::testing::{LOG_ID, Watch, append, body, head_of, image, recover, start};

/// A log with one batch of twenty bodies in its first extent, and others behind it.
fn written(disk: &Arc<dyn Disk>) -> Vec<(BodyLocation, Vec<u8>)> {
    let watch = Watch::new();
    let log = start(disk, Options::small(), &watch);
    let mut random = SeededRandom::new(5);
    let records: Vec<Vec<u8>> = (1..=20).map(|count| body(&mut random, count * 100)).collect();
    let (places, end) = append(&log, &records, Urgency::Forced);
    watch.wait_durable(end);
    fill(&log, &watch, &mut random, 10);
    // A start behind an image, as of a queue manager: what lies before is not read then.
    image(&log, log.durable(), b"image");
    log.shutdown();
    let located = places.into_iter().zip(records).map(|(lsn, record)| {
        let head = head_of(record.len());
        let bytes = u32::try_from(record.len() - head).unwrap();
        (BodyLocation { lsn: lsn.after(head as u64), bytes }, record[head..].to_vec())
    });
    located.collect()
}

fn flip(disk: &MemoryDisk, offset: u64) {
    let at = usize::try_from(offset).unwrap();
    disk.change(&extent_name(0), |bytes| bytes[at] ^= 4);
}

fn read(log: &Log, location: BodyLocation) -> Option<Vec<u8>> {
    match log.read(location) {
        Ok(bytes) => Some(bytes.to_vec()),
        Err(LogError::Damaged(finding)) => {
            assert_eq!((finding.extent, finding.lsn), (0, location.lsn));
            None
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn one_damaged_byte_costs_one_body_wherever_it_is() {
    let (memory, disk) = memory();
    let bodies = written(&disk);
    for (hit, (location, bytes)) in bodies.iter().enumerate() {
        let inside = [0, bytes.len() as u64 / 2, bytes.len() as u64 - 1];
        // The last two are of its check.
        for at in inside.into_iter().chain([bytes.len() as u64 + 1, bytes.len() as u64 + 5]) {
            flip(&memory, location.lsn.0 + at);
            let log = start(&disk, Options::small(), &Watch::new());
            for (other, (location, bytes)) in bodies.iter().enumerate() {
                let expected = (other != hit).then_some(bytes);
                assert_eq!(read(&log, *location).as_ref(), expected, "{other} of {hit} at {at}");
            }
            log.shutdown();
            let report = offline::verify_disk(&disk).unwrap();
            assert_eq!((report.batches_damaged, report.bodies_damaged), (1, 1), "{hit} at {at}");
            flip(&memory, location.lsn.0 + at);
        }
    }
    assert!(offline::verify_disk(&disk).unwrap().is_sound());
}

#[test]
fn a_damaged_header_of_a_batch_or_prefix_of_a_record_costs_no_body() {
    let (memory, disk) = memory();
    let bodies = written(&disk);
    let first_record = BLOCK_BYTES + BATCH_HEADER_BYTES;
    for at in [BLOCK_BYTES, BLOCK_BYTES + 5, BLOCK_BYTES + 20, first_record, first_record + 1] {
        flip(&memory, at as u64);
        let log = start(&disk, Options::small(), &Watch::new());
        for (location, bytes) in &bodies {
            assert_eq!(read(&log, *location).as_ref(), Some(bytes), "byte {at} is wrong");
        }
        log.shutdown();
        flip(&memory, at as u64);
    }
}

#[test]
fn a_body_of_another_place_or_length_does_not_pass() {
    let (memory, disk) = memory();
    let bodies = written(&disk);
    let (location, bytes) = bodies[7].clone();
    let extent = memory.files()[&extent_name(0)].clone();
    let at = usize::try_from(location.lsn.0).unwrap();
    let passes = |bytes: &[u8], length, log_id, lsn| {
        crate::record::body_is_whole(bytes, length, log_id, lsn)
    };
    assert!(passes(&extent[at..], bytes.len(), LOG_ID, location.lsn));
    assert!(!passes(&extent[at..], bytes.len(), LOG_ID, location.lsn.after(BLOCK_BYTES as u64)));
    assert!(!passes(&extent[at..], bytes.len(), crate::LogId(1), location.lsn));
    assert!(!passes(&extent[at..], bytes.len() - 1, LOG_ID, location.lsn));
    assert!(!passes(&extent[at..at + bytes.len()], bytes.len(), LOG_ID, location.lsn));
}

/// Makes extents look as version 1 wrote them: their headers say so.
fn age(memory: &MemoryDisk) {
    for (name, bytes) in memory.files() {
        if let Ok(header) = ExtentHeader::decode(&bytes) {
            assert!(name.starts_with("extent-"), "{header:?}");
            memory.change(&name, |bytes| {
                bytes[8] = 1;
                let sum = crc32c::crc32c(&bytes[..48]);
                bytes[48..52].copy_from_slice(&sum.to_le_bytes());
            });
        }
    }
}

fn version(memory: &MemoryDisk, sequence: u64) -> u8 {
    memory.files()[&extent_name(sequence)][8]
}

#[test]
fn an_extent_of_version_1_says_2_before_a_batch_of_ours_is_durable_in_it() {
    let (memory, disk) = memory();
    written(&disk);
    age(&memory);
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    assert_eq!(version(&memory, 0), 1, "a start alone changes nothing");
    let (_, end) = append(&log, &[vec![7; 10]], Urgency::Forced);
    watch.wait_durable(end);
    assert_eq!(version(&memory, 0), 2);
    log.shutdown();
    assert!(offline::verify_disk(&disk).unwrap().is_sound());
    let (_, report, _) = recover(&disk, Options::small()).unwrap();
    assert_eq!(report.findings, []);
}
