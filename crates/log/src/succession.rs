//! Taking over a folder from a predecessor that may still be alive: files that it can no longer
//! write are linked, files that it could still write are copied.
//!
//! Not here: which instance may take over, and when; reading the log. In the old folder no file
//! that holds log is changed.
//!
//! What the old owner could still write: extents that lie within `window_bytes` of the last batch
//! that is there (so far apart are the oldest and the newest of the writes that were under way),
//! the page file, the time index. An image and an extent before those are never written again,
//! as long as extents are not recycled ([`crate::Options::recycle_extents`]). Extents that hold no
//! batch, spares and half-made files are left out.
//!
//! Invariants: no file of the new folder that its owner may write has a second name; all of it is
//! synced when [`succeed`] returns, but for the new folder's own name; an extent is copied from its
//! end to its beginning, and newer extents before older ones, so that a batch is only there when
//! all that was durable when it was written is there too.

use std::io;
use std::path::Path;

use towline_os::fs::{self, File, FileExt, OpenOptions, OpenOptionsExt};
use towline_types::Lsn;

use crate::error::LogError;
use crate::folder::names::{NEW_IMAGE_NAME, NEW_NAME, extent_name, number_in_name};
use crate::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, ExtentHeader, size,
};

/// Read and written at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Files of the old folder that are of no use to another owner.
const LEFT_OUT: &[&str] = &["lock", "probe", NEW_NAME, NEW_IMAGE_NAME, "new-times"];

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Succession {
    /// Files that both folders have.
    pub linked: u64,
    /// Files that were copied.
    pub copied: u64,
    /// Their bytes.
    pub bytes_copied: u64,
}

/// Fills the folder `to`, which is there and empty, with the log of the folder `from`.
/// `window_bytes`: how far apart the writes of the old owner can have been at a time
/// ([`crate::Options::stray_bytes`]).
///
/// # Errors
/// [`LogError::Io`], also when the old owner removes files meanwhile; what is then in `to` is of no
/// use.
pub fn succeed(from: &Path, to: &Path, window_bytes: u64) -> Result<Succession, LogError> {
    let listed = |e| LogError::io("list the log folder", &from.display().to_string(), e);
    let mut done = Succession::default();
    let mut extents = Vec::new();
    for entry in fs::read_dir(from).map_err(listed)? {
        let entry = entry.map_err(listed)?;
        let is_file = entry.file_type().map_err(listed)?.is_file();
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !is_file || LEFT_OUT.contains(&name.as_str()) || name.starts_with("spare-") {
            continue;
        }
        if let Some(sequence) = number_in_name("extent-", &name) {
            extents.push(sequence);
        } else if number_in_name("image-", &name).is_some() {
            link(from, to, &name, &mut done)?;
        } else {
            copy(from, to, &name, &mut done)?;
        }
    }
    extents.sort_unstable();
    give_extents(from, to, &extents, window_bytes, &mut done)?;
    let synced = File::open(to).and_then(|folder| folder.sync_all());
    synced.map_err(|e| LogError::io("sync the log folder", &to.display().to_string(), e))?;
    Ok(done)
}

/// Removes what no successor takes over from the folder `from`: spares, and extents that hold no
/// batch. On a full disk that frees space for what must be copied. Returns how many files went.
///
/// # Errors
/// [`LogError::Io`].
pub fn make_room(from: &Path) -> Result<u64, LogError> {
    let listed = |e| LogError::io("list the log folder", &from.display().to_string(), e);
    let (mut extents, mut useless) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(from).map_err(listed)? {
        let Ok(name) = entry.map_err(listed)?.file_name().into_string() else { continue };
        if let Some(sequence) = number_in_name("extent-", &name) {
            extents.push(sequence);
        } else if name.starts_with("spare-") || name == NEW_NAME {
            useless.push(name);
        }
    }
    extents.sort_unstable();
    for &sequence in extents.iter().skip(1).rev() {
        let name = extent_name(sequence);
        let held = look(&from.join(&name), sequence);
        if held.map_err(|e| LogError::io("look at an extent", &name, e))?.has_batch {
            break;
        }
        useless.push(name);
    }
    for name in &useless {
        let removed = fs::remove_file(from.join(name));
        removed.map_err(|e| LogError::io("remove an empty extent", name, e))?;
    }
    Ok(useless.len() as u64)
}

/// Newest first.
fn give_extents(
    from: &Path,
    to: &Path,
    extents: &[u64],
    window_bytes: u64,
    done: &mut Succession,
) -> Result<(), LogError> {
    let mut last: Option<Held> = None;
    for &sequence in extents.iter().rev() {
        let name = extent_name(sequence);
        let Some(newest) = last else {
            let held = look(&from.join(&name), sequence);
            let held = held.map_err(|e| LogError::io("look at an extent", &name, e))?;
            // One that cannot be understood is for recovery to judge, as is the only one.
            if held.has_batch || Some(&sequence) == extents.first() {
                copy_extent(from, to, &name, true, done)?;
                last = Some(held);
            }
            continue;
        };
        if newest.reaches(sequence, window_bytes) {
            copy_extent(from, to, &name, false, done)?;
        } else {
            link(from, to, &name, done)?;
        }
    }
    Ok(())
}

/// What the first blocks of an extent say.
#[derive(Clone, Copy)]
struct Held {
    sequence: u64,
    extent_bytes: u64,
    has_batch: bool,
}

impl Held {
    /// Whether the extent `sequence` ends within the window before this one. That the window is
    /// counted from where this one begins, and not from its last batch, makes it larger, never
    /// smaller.
    fn reaches(&self, sequence: u64, window_bytes: u64) -> bool {
        let between = self.sequence.saturating_sub(sequence).saturating_sub(1);
        between.saturating_mul(self.extent_bytes) < window_bytes
    }
}

fn look(path: &Path, sequence: u64) -> io::Result<Held> {
    let file = File::open(path)?;
    let mut bytes = vec![0; EXTENT_HEADER_BYTES + BATCH_HEADER_BYTES];
    let count = read_upto(&file, &mut bytes, 0)?;
    let bytes = &bytes[..count];
    let (header, first) = bytes.split_at_checked(EXTENT_HEADER_BYTES).unwrap_or((bytes, &[]));
    let Ok(header) = ExtentHeader::decode(header) else {
        // Taken to hold log, and to be as small as can be: more is copied than need be.
        return Ok(Held { sequence, extent_bytes: crate::EXTENT_BYTES_MIN, has_batch: true });
    };
    let begin = header.extent_bytes.checked_mul(sequence);
    let begin = begin.map(|begin| Lsn(begin).after(EXTENT_HEADER_BYTES as u64));
    let batch = BatchHeader::decode(first);
    let has_batch = batch.is_some_and(|batch| Some(batch.lsn) == begin);
    Ok(Held { sequence, extent_bytes: header.extent_bytes, has_batch })
}

fn link(from: &Path, to: &Path, name: &str, done: &mut Succession) -> Result<(), LogError> {
    let linked = fs::hard_link(from.join(name), to.join(name));
    linked.map_err(|e| LogError::io("link a file of the log", name, e))?;
    done.linked += 1;
    Ok(())
}

fn copy(from: &Path, to: &Path, name: &str, done: &mut Succession) -> Result<(), LogError> {
    let copied = fs::copy(from.join(name), to.join(name))
        .and_then(|bytes| File::open(to.join(name))?.sync_all().map(|()| bytes));
    let bytes = copied.map_err(|e| LogError::io("copy a file of the log", name, e))?;
    done.copied += 1;
    done.bytes_copied = done.bytes_copied.saturating_add(bytes);
    Ok(())
}

/// Copies an extent from its end to its beginning; `trims`: zeros at its end are left out,
/// and preallocation fills them in again.
fn copy_extent(
    from: &Path,
    to: &Path,
    name: &str,
    trims: bool,
    done: &mut Succession,
) -> Result<(), LogError> {
    let copied = copy_backwards(&from.join(name), &to.join(name), trims);
    let bytes = copied.map_err(|e| LogError::io("copy an extent", name, e))?;
    done.copied += 1;
    done.bytes_copied = done.bytes_copied.saturating_add(bytes);
    Ok(())
}

fn copy_backwards(from: &Path, to: &Path, mut trims: bool) -> io::Result<u64> {
    let old = File::open(from)?;
    let mut options = OpenOptions::new();
    let new = options.write(true).create_new(true).mode(0o600).open(to)?;
    let length = old.metadata()?.len();
    let mut buffer = vec![0; size(PIECE_BYTES)];
    let zeros = vec![0; size(PIECE_BYTES)];
    let (mut end, mut written) = (length, 0);
    while end > 0 {
        // Pieces begin at multiples of their size: only the first one taken may be shorter.
        let begin = (end - 1) / PIECE_BYTES * PIECE_BYTES;
        let piece = &mut buffer[..size(end - begin)];
        old.read_exact_at(piece, begin)?;
        let mut kept = piece.len();
        if trims {
            // Compared as a whole first: there may be many of them.
            let used = match zeros.get(..piece.len()) {
                Some(zeros) if *piece == *zeros => 0,
                Some(_) | None => piece.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1),
            };
            // A file is never shorter than its header.
            let least = if begin == 0 { EXTENT_HEADER_BYTES } else { 0 };
            kept = used.next_multiple_of(BLOCK_BYTES).max(least).min(piece.len());
            trims = kept == 0;
        }
        new.write_all_at(&piece[..kept], begin)?;
        written += kept as u64;
        end = begin;
    }
    new.sync_all()?;
    Ok(written)
}

fn read_upto(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, LinuxDisk};
    use crate::listener::Urgency;
    use crate::log::Log;
    use crate::offline;
    use crate::options::Options;
    use crate::testing::{Watch, append, image, start};

    fn options() -> Options {
        Options { recycle_extents: false, ..Options::small() }
    }

    fn running(folder: &Path) -> (Log, Arc<Watch>) {
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder).unwrap());
        let watch = Watch::new();
        (start(&disk, options(), &watch), watch)
    }

    /// Fills about `extents` extents; the end of each run.
    fn fill(log: &Log, watch: &Watch, extents: u64) -> Vec<Lsn> {
        let mut ends = Vec::new();
        while log.durable().0 < extents * options().extent_bytes {
            let (_, end) = append(log, &[vec![7; 20_000]], Urgency::Forced);
            watch.wait_durable(end);
            ends.push(end);
        }
        ends
    }

    fn new_folder(scratch: &Path, name: &str) -> PathBuf {
        let folder = scratch.join(name);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn names_of_files(folder: &Path) -> Vec<(String, u64)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, entry.metadata().unwrap().nlink())
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_the_old_owner_writes_on_is_not_in_the_new_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let (old, new) = (scratch.path().join("old"), new_folder(scratch.path(), "new"));
        let (log, watch) = running(&old);
        let ends = fill(&log, &watch, 3);
        let last = *ends.last().unwrap();
        succeed(&old, &new, options().stray_bytes()).unwrap();
        let before = offline::verify(&new).unwrap();
        assert_eq!(before.last, Some(last));
        // It was stopped, and goes on.
        fill(&log, &watch, 6);
        let after = offline::verify(&new).unwrap();
        assert_eq!((after.batches, after.last), (before.batches, before.last));
        assert!(after.is_sound(), "{:?}", after.findings);
    }

    #[test]
    fn a_file_that_has_two_names_is_never_written_by_the_new_owner() {
        let scratch = tempfile::tempdir().unwrap();
        let (old, new) = (scratch.path().join("old"), new_folder(scratch.path(), "new"));
        let (log, watch) = running(&old);
        let ends = fill(&log, &watch, 40);
        image(&log, ends[5], b"image");
        let done = succeed(&old, &new, options().stray_bytes()).unwrap();
        assert!(done.linked > 10 && done.copied > 1, "{done:?}");
        let shared: Vec<_> = names_of_files(&new).into_iter().filter(|name| name.1 == 2).collect();
        assert_eq!(shared.len() as u64, done.linked);
        let content = |name: &str| fs::read(old.join(name)).unwrap();
        let before: Vec<_> = shared.iter().map(|(name, _)| content(name)).collect();
        drop(log);
        let (log, watch) = running(&new);
        assert_eq!(log.durable(), *ends.last().unwrap());
        let ends = fill(&log, &watch, 45);
        image(&log, *ends.last().unwrap(), b"later");
        image(&log, log.durable(), b"latest");
        log.reclaim(log.durable()).unwrap();
        fill(&log, &watch, 60);
        for ((name, _), before) in shared.iter().zip(before) {
            assert!(content(name) == before, "{name} was written");
        }
        // A running log makes and renames files under the eyes of the one that lists them.
        drop(log);
        assert!(names_of_files(&new).iter().all(|(name, _)| !name.starts_with("spare-")));
    }

    #[test]
    fn extents_within_the_window_are_copied_and_those_before_it_are_linked() {
        let held = Held { sequence: 9, extent_bytes: 100, has_batch: true };
        for (sequence, window, copied) in [
            (8, 0, false),
            (8, 1, true),
            (7, 100, false),
            (7, 101, true),
            (0, 800, false),
            (0, 801, true),
        ] {
            assert_eq!(held.reaches(sequence, window), copied, "{sequence} {window}");
        }
    }

    #[test]
    fn extents_that_were_used_before_and_hold_no_batch_yet_are_left_out() {
        let scratch = tempfile::tempdir().unwrap();
        let (old, new) = (scratch.path().join("old"), new_folder(scratch.path(), "new"));
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(&old).unwrap());
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let ends = fill(&log, &watch, 6);
        let (older, newer) = (ends[ends.len() - 2], ends[ends.len() - 1]);
        image(&log, older, b"image");
        image(&log, newer, b"image");
        log.reclaim(newer).unwrap();
        fill(&log, &watch, 8);
        log.shutdown();
        let end = log.durable();
        drop(log);
        // An extent made ready from one that held log: its old batches are still in it.
        let ready = 1 + names_of_files(&old)
            .iter()
            .filter_map(|(name, _)| number_in_name("extent-", name))
            .max()
            .unwrap();
        let mut used = fs::read(old.join(extent_name(end.0 / options().extent_bytes))).unwrap();
        let log_id = ExtentHeader::decode(&used[..EXTENT_HEADER_BYTES]).unwrap().log_id;
        used.resize(size(options().extent_bytes), 1);
        let header = ExtentHeader { log_id, sequence: ready, extent_bytes: options().extent_bytes };
        used[..EXTENT_HEADER_BYTES].copy_from_slice(&header.encode());
        fs::write(old.join(extent_name(ready)), used).unwrap();
        succeed(&old, &new, options().stray_bytes()).unwrap();
        assert!(!new.join(extent_name(ready)).exists());
        let (log, _watch) = running(&new);
        assert_eq!(log.durable(), end);
    }

    #[test]
    fn room_is_made_of_what_nobody_takes_over_and_of_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let (old, new) = (scratch.path().join("old"), new_folder(scratch.path(), "new"));
        let (log, watch) = running(&old);
        fill(&log, &watch, 4);
        log.shutdown();
        let end = log.durable();
        drop(log);
        fs::write(old.join("spare-0000000000000000"), b"spare").unwrap();
        let current = end.0 / options().extent_bytes;
        let ready = ExtentHeader {
            log_id: crate::LogId(1),
            sequence: current + 1,
            extent_bytes: options().extent_bytes,
        };
        fs::write(old.join(extent_name(current + 1)), ready.encode()).unwrap();
        assert!(make_room(&old).unwrap() >= 2);
        assert!(!old.join(extent_name(current + 1)).exists());
        succeed(&old, &new, options().stray_bytes()).unwrap();
        let (ours, theirs) = (offline::verify(&new).unwrap(), offline::verify(&old).unwrap());
        assert_eq!((ours.last, theirs.last), (Some(end), Some(end)));
        assert_eq!(make_room(&old).unwrap(), 0);
        assert_eq!(running(&new).0.durable(), end);
    }

    #[test]
    fn an_empty_folder_and_one_with_a_new_log_can_be_succeeded() {
        let scratch = tempfile::tempdir().unwrap();
        let (old, new) = (new_folder(scratch.path(), "old"), new_folder(scratch.path(), "new"));
        assert_eq!(succeed(&old, &new, 1 << 20).unwrap(), Succession::default());
        let begin = running(&old).0.durable();
        fs::write(old.join("pages"), b"pages").unwrap();
        succeed(&old, &new, 1 << 20).unwrap();
        assert_eq!(fs::read(new.join("pages")).unwrap(), b"pages");
        assert!(new.join(extent_name(0)).exists() && !new.join("lock").exists());
        assert_eq!(running(&new).0.durable(), begin);
    }
}
