//! The only proof that a disk keeps its word: numbered records are written and synced, the number
//! of each is reported to another machine, the power goes; afterwards each number that was reported
//! must be there.
//!
//! The file grows for its first round, then is written over, as the recovery log does with its
//! extents. Each record is synced before the next is written, so a gap below the highest number is
//! a loss too. Not here: pulling the plug.
//!
//! A record, one block of 4 KiB, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TOWLCUT1` |
//! | 8 | 8 | run: random, one for a file |
//! | 16 | 8 | number, from 1 |
//! | 24 | 4 | slots: number `n` stands in block `(n - 1) mod slots` |
//! | 28 | 4 | crc32c of bytes 0..28 and 32..4096 |
//! | 32 | 4064 | noise |

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;

use super::file::{Aligned, Way, Writer, is_refusal};

const RECORD_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"TOWLCUT1";
/// Ranges of missing numbers that are named.
const RANGES_SHOWN_MAX: usize = 20;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutPlan {
    pub(crate) way: Way,
    /// Of the file when it is full.
    pub(crate) file_bytes: u64,
    /// Ends after so many.
    pub(crate) records: Option<u64>,
}

/// Writes records until the plan says so, an error comes, or the power goes. Reports each number
/// that is synced, as a line.
///
/// # Errors
/// The file is there already; of writes, syncs, and of `told`.
pub(crate) fn write(path: &Path, plan: CutPlan, told: &mut dyn Write) -> io::Result<()> {
    let run = getrandom::u64().map_err(io::Error::other)?;
    let slots = u32::try_from(plan.file_bytes / RECORD_BYTES as u64).unwrap_or(u32::MAX);
    // Never over an older file: its records could be taken for new ones that were lost.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    let mut writer = Writer::open(path, plan.way)?;
    let mut number = 0;
    while plan.records.is_none_or(|records| number < records) {
        number += 1;
        let record = Record { run, number, slots };
        let mut block = Aligned::noise(RECORD_BYTES as u64, run ^ number);
        record.encode(block.bytes_mut());
        let offset = record.slot() * RECORD_BYTES as u64;
        let written = writer.write(block.bytes(), offset);
        match written {
            // A file system that takes no direct I/O says so at the first write, if not before.
            Err(error) if number == 1 && is_refusal(&error) && plan.way == Way::DirectSync => {
                writer = Writer::open(path, Way::BufferedSync)?;
                writer.write(block.bytes(), offset)?;
            }
            other => other?,
        }
        writeln!(told, "{number}")?;
        told.flush()?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    run: u64,
    number: u64,
    slots: u32,
}

impl Record {
    fn slot(&self) -> u64 {
        self.number.saturating_sub(1) % u64::from(self.slots.max(1))
    }

    /// Writes the fields into a block of noise.
    fn encode(&self, block: &mut [u8]) {
        let mut head = [0; 28];
        let fields: [&[u8]; 4] =
            [MAGIC, &self.run.to_le_bytes(), &self.number.to_le_bytes(), &self.slots.to_le_bytes()];
        for (place, byte) in head.iter_mut().zip(fields.concat()) {
            *place = byte;
        }
        if let Some(place) = block.first_chunk_mut() {
            *place = head;
        }
        let sum = sum(block);
        if let Some(place) = block.get_mut(28..32) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// The record in a block, when there is a whole one.
    fn decode(block: &[u8]) -> Option<Record> {
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(*block.get(at..)?.first_chunk()?))
        };
        let short = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(*block.get(at..)?.first_chunk()?))
        };
        let whole = block.len() == RECORD_BYTES && block.starts_with(MAGIC);
        let record = Record { run: number(8)?, number: number(16)?, slots: short(24)? };
        (whole && short(28)? == sum(block) && record.number > 0 && record.slots > 0)
            .then_some(record)
    }
}

fn sum(block: &[u8]) -> u32 {
    let (head, rest) = (block.get(..28).unwrap_or(&[]), block.get(32..).unwrap_or(&[]));
    crc32c::crc32c_append(crc32c::crc32c(head), rest)
}

/// What is left of the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CutReport {
    /// Whether nothing is missing that was acknowledged.
    pub(crate) complete: bool,
    /// The highest number found; 0: none at all.
    pub(crate) highest_number: u64,
    /// What was reported as acknowledged.
    pub(crate) acked_number: Option<u64>,
    /// Numbers that must be there (the newest, as many as the file holds).
    pub(crate) expected_count: u64,
    pub(crate) missing_count: u64,
    /// First and last of each gap, the first twenty gaps.
    pub(crate) missing_ranges: Vec<(u64, u64)>,
}

/// Looks for the records. `acked`: the last number that was reported.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn verify(path: &Path, acked: Option<u64>) -> io::Result<CutReport> {
    let mut file = File::open(path)?;
    let mut blocks = Vec::new();
    let mut block = vec![0; RECORD_BYTES];
    loop {
        let count = read_block(&mut file, &mut block)?;
        if count == 0 {
            break;
        }
        blocks.push(Record::decode(block.get(..count).unwrap_or(&[])));
    }
    Ok(report(&blocks, acked))
}

fn read_block(file: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// `blocks`: what stands in each block of the file, in order.
fn report(blocks: &[Option<Record>], acked: Option<u64>) -> CutReport {
    // A disk may show blocks of an older, removed file: they do not count.
    let mut runs: HashMap<u64, usize> = HashMap::new();
    for record in blocks.iter().flatten() {
        *runs.entry(record.run).or_default() += 1;
    }
    let run = runs.into_iter().max_by_key(|(run, count)| (*count, *run)).map(|(run, _)| run);
    let mut found: HashMap<u64, u64> = HashMap::new();
    let mut slots = 0;
    for (slot, record) in (0..).zip(blocks) {
        if let Some(record) = record.filter(|record| Some(record.run) == run)
            && record.slot() == slot
        {
            slots = u64::from(record.slots);
            found.insert(record.number, slot);
        }
    }
    let highest = found.keys().copied().max().unwrap_or(0);
    let last = highest.max(acked.unwrap_or(0));
    // One less than there are slots: where the power went, the next record was being written over
    // the oldest one. Without any record, the number of slots is unknown.
    let kept = if slots == 0 { last } else { slots.saturating_sub(1) };
    let after = last.saturating_add(1);
    let first = after.saturating_sub(kept).max(1);
    let mut missing: Vec<(u64, u64)> = Vec::new();
    let mut missing_count = 0;
    if found.is_empty() {
        missing_count = last;
        missing.extend((last > 0).then_some((1, last)));
    } else {
        for number in (first..=last).filter(|number| !found.contains_key(number)) {
            missing_count += 1;
            match missing.last_mut() {
                Some((_, end)) if *end + 1 == number => *end = number,
                Some(_) | None => missing.push((number, number)),
            }
        }
    }
    missing.truncate(RANGES_SHOWN_MAX);
    CutReport {
        complete: missing_count == 0,
        highest_number: highest,
        acked_number: acked,
        expected_count: after.saturating_sub(first),
        missing_count,
        missing_ranges: missing,
    }
}

impl std::fmt::Display for CutReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CutReport { highest_number, expected_count, missing_count, .. } = self;
        match self.acked_number {
            Some(acked) => writeln!(f, "Highest number found {highest_number}, told {acked}.")?,
            None => writeln!(f, "Highest number found {highest_number}.")?,
        }
        if self.complete {
            return write!(f, "Complete: all {expected_count} that must be there are there.");
        }
        for (first, last) in &self.missing_ranges {
            writeln!(f, "Missing: {first} to {last}")?;
        }
        write!(
            f,
            "LOST: {missing_count} of {expected_count} records that were synced are gone. This disk \
             lies about sync."
        )
    }
}

#[cfg(test)]
mod tests;
