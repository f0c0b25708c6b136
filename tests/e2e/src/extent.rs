//! The recovery log's files as bytes: where each batch is, so that a test can tear or damage one.
//!
//! Read from the picture in docs/internals/log-format.md, not with the product's code. Only whole
//! logs of the current format are understood; nothing is judged here.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::{Try, fail, require};

/// Batches and the header stand on multiples of this.
const BLOCK: u64 = 4096;
/// Bytes of a batch's header.
const HEADER: u64 = 40;

/// Where a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The extent's file.
    pub file: PathBuf,
    /// Offset in it.
    pub offset: u64,
    /// Header and payload, without padding.
    pub bytes: u64,
    /// 1, 2, 3, ... along the log.
    pub index: u64,
}

/// All batches of a log folder, in the log's order.
///
/// # Errors
/// When there is no extent, or the indexes do not follow one another.
pub fn batches(folder: &Path) -> Try<Vec<Batch>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(sequence) = name.strip_prefix("extent-") {
            let sequence = u64::from_str_radix(sequence, 16)?;
            batches_of(&file, sequence, &mut found)?;
        }
    }
    found.sort_by_key(|batch| batch.index);
    require!(!found.is_empty(), "no batch in {}", folder.display());
    let first = found.first().map_or(0, |batch| batch.index);
    for (at, batch) in (first..).zip(&found) {
        require!(at == batch.index, "batch {at} is missing, found {batch:?}");
    }
    Ok(found)
}

fn batches_of(file: &Path, sequence: u64, found: &mut Vec<Batch>) -> Try {
    let bytes = fs::read(file)?;
    require!(bytes.starts_with(b"TOWLINEX"), "{} is no extent", file.display());
    let extent_bytes = number(&bytes, 40, 8)?;
    let mut offset = BLOCK;
    while offset + HEADER <= bytes.len() as u64 {
        let at = usize::try_from(offset)?;
        let is_batch = bytes.get(at..at + 2) == Some(b"TB");
        if !is_batch || number(&bytes, at + 16, 8)? != sequence * extent_bytes + offset {
            break;
        }
        let length = HEADER + number(&bytes, at + 4, 4)?;
        let index = number(&bytes, at + 32, 8)?;
        found.push(Batch { file: file.into(), offset, bytes: length, index });
        offset += length.next_multiple_of(BLOCK);
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize, width: usize) -> Try<u64> {
    match bytes.get(at..at + width) {
        Some(field) => Ok(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
        None => fail!("no {width} bytes at {at}"),
    }
}

/// Copies a folder; files of zeros stay sparse.
///
/// # Errors
/// When something cannot be copied.
pub fn copy_folder(from: &Path, to: &Path) -> Try {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let new = to.join(path.file_name().unwrap_or_default());
        let kind = path.metadata()?.file_type();
        if kind.is_dir() {
            copy_folder(&path, &new)?;
        } else if kind.is_file() {
            copy_sparse(&path, &new)?;
        }
    }
    Ok(())
}

fn copy_sparse(from: &Path, to: &Path) -> Try {
    let bytes = fs::read(from)?;
    let mut file = fs::File::create(to)?;
    file.set_len(bytes.len() as u64)?;
    let mut offset = 0;
    for block in bytes.chunks(1 << 16) {
        if block.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(block)?;
        }
        offset += block.len() as u64;
    }
    Ok(())
}

/// Overwrites bytes of a file.
///
/// # Errors
/// When the file cannot be written.
pub fn overwrite(file: &Path, offset: u64, bytes: &[u8]) -> Try {
    let mut file = fs::OpenOptions::new().write(true).open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    Ok(file.write_all(bytes)?)
}

/// Flips one bit of a file.
///
/// # Errors
/// When the file is not that long.
pub fn flip(file: &Path, offset: u64, bit: u32) -> Try {
    let bytes = fs::read(file)?;
    let at = usize::try_from(offset)?;
    let Some(byte) = bytes.get(at) else { fail!("{} ends before {offset}", file.display()) };
    overwrite(file, offset, &[byte ^ (1 << (bit % 8))])
}
