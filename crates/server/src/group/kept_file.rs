//! The file in which a member keeps what must outlive its process beside the log: see
//! `towline_group::Kept` for the bytes.
//!
//! It is written in place, because a vote waits for it: two slots, of which the older one is written
//! anew and synced, once, with nothing of the file system's own to be written beside it. A slot that was
//! torn is known by its checksum, and then the other one counts: the vote that was about to be kept was
//! not given. Each slot stands there twice, so that a sector that is damaged later cannot pass for a torn
//! one, and give a vote back that was given. How far the log is known to be committed is noted in a
//! second file of the same make, now and then and mostly without a sync.
//!
//! ```text
//! group-state, group-committed: 16,384 bytes, a slot at 0 and one at 4,096, and both again 8,192 behind
//! (no two in one sector)
//!   0    8  magic "TOWLINES"
//!   8    2  format version: 4
//!   10   6  zero
//!   16   8  sequence, from 1: the slot with the higher one is the newer
//!   24  64  Kept
//!   88   8  incarnation of the log that this was promised for; 0: it has none
//!   96   8  the incarnation that the log is about to get; 0: none (see `incarnation`)
//!   104  8  how often a process took part with this hard state
//!   112 12  zero
//!   124 1136 `towline_group::Starts`: of this instance and of the others
//!   1260 4  CRC-32C of bytes 0..1260
//! ```
//!
//! Version 3 ended behind the zeros at 112 with the checksum of bytes 0..124; it is read as one that
//! knows no start. Version 2 ended behind `Kept` with 4 zero bytes and the checksum of bytes 0..92 at 92; it is read as
//! one without an incarnation. Version 1 of these files was a `Kept` alone, at 0. It counts while no slot
//! is whole, and the first slot that is written beside it is the one at 4,096.
//!
//! Invariants: what `write` was given is what the next start reads, or what was there before; never a
//! mixture. Who writes a `Kept` alone leaves the incarnation and the starts as they are.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use towline_group::{Kept, Starts};

const NAME: &str = "group-state";
const NOTE: &str = "group-committed";

const MAGIC: &[u8; 8] = b"TOWLINES";
const VERSION: u16 = 4;
/// Without starts, and shorter.
const VERSION_WITHOUT_STARTS: u16 = 3;
/// Without an incarnation, and shorter still.
const VERSION_UNMARKED: u16 = 2;
/// Where the slots begin: what a disk writes as one, at most, is not larger.
const SLOTS: [u64; 2] = [0, 4_096];
/// Where each slot stands a second time, behind its first place.
const AGAIN: u64 = 8_192;
const FILE_BYTES: usize = 16_384;
const KEPT_AT: usize = 24;
const MARK_AT: usize = KEPT_AT + Kept::BYTES;
const STARTS_AT: usize = 124;
const SUMMED_BYTES: usize = STARTS_AT + Starts::BYTES;
const SLOT_BYTES: usize = SUMMED_BYTES + 4;
const SUMMED_BYTES_WITHOUT_STARTS: usize = 124;
const SUMMED_BYTES_UNMARKED: usize = 92;

const _: () = assert!(SLOT_BYTES < 4_096, "a slot ends before the next one");

/// Which log the promises were made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Incarnation of that log; 0: none was drawn yet.
    pub(crate) incarnation: u64,
    /// The one that it is about to get: promises for it are made when it has become `incarnation`.
    pub(crate) next: u64,
    /// Processes that took part with it.
    pub(crate) starts: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct KeptFile {
    folder: PathBuf,
}

impl KeptFile {
    pub(crate) fn of(data: &Path) -> KeptFile {
        KeptFile { folder: data.to_owned() }
    }

    /// What is kept; `None` when there is nothing, or nothing that can be read: then it is not known
    /// what this member promised, and it must not promise anything before it has caught up.
    pub(crate) fn read(&self) -> Option<Kept> {
        let kept = self.newest(NAME)?.kept;
        // Whatever was once known to be committed is so.
        let note = self.newest(NOTE).map(|slot| slot.kept);
        let note = note.filter(|note| note.committed > kept.committed);
        let Some(note) = note else { return Some(kept) };
        Some(Kept { committed: note.committed, committed_end: note.committed_end, ..kept })
    }

    /// For which log it was kept; all zero when nothing can be read, or no incarnation is known.
    pub(crate) fn mark(&self) -> Mark {
        self.newest(NAME).map(|slot| slot.mark).unwrap_or_default()
    }

    /// The starts that this folder knows.
    pub(crate) fn starts(&self) -> Starts {
        self.newest(NAME).map(|slot| slot.starts).unwrap_or_default()
    }

    /// What counts of one of the files.
    fn newest(&self, name: &str) -> Option<Slot> {
        decode(&std::fs::read(self.folder.join(name)).ok()?)
    }

    /// Makes room for the slots, durably, so that no vote waits for that, and the note has its own on a
    /// disk that becomes full. What is kept stays, and is
    /// durable then: what a start reads may be a write that the process before it did not live to sync,
    /// and an answer that repeats such a vote is sent without another write.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn prepare(&self) -> std::io::Result<()> {
        self.whole(NAME)?.sync_all()?;
        if let Err(error) = self.whole(NOTE) {
            // What is noted is refused later, perhaps, and may as well be forgotten.
            tracing::warn!(%error, "room for the note of what is committed");
        }
        Ok(())
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub(crate) fn write(&self, kept: &Kept) -> std::io::Result<()> {
        self.put_durably(|slot| slot.kept = *kept)
    }

    /// The same, and for which log.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub(crate) fn write_marked(&self, kept: &Kept, mark: Mark) -> std::io::Result<()> {
        self.put_durably(|slot| (slot.kept, slot.mark) = (*kept, mark))
    }

    /// The same by the word of an operator: what this folder once promised in starts that it does not
    /// know is given up.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub(crate) fn write_forced(&self, kept: &Kept, mark: Mark) -> std::io::Result<()> {
        self.put_durably(|slot| {
            (slot.kept, slot.mark) = (*kept, mark);
            slot.starts.overrule();
        })
    }

    /// The same, and that a process starts.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub(crate) fn write_start(&self, kept: &Kept, mark: Mark, nonce: u64) -> std::io::Result<()> {
        self.put_durably(|slot| {
            (slot.kept, slot.mark) = (*kept, mark);
            slot.starts.begin(nonce);
        })
    }

    /// Makes the starts durable that this folder knows, and `kept` with them if there is one.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub(crate) fn write_starts(&self, starts: &Starts, kept: Option<&Kept>) -> std::io::Result<()> {
        self.put_durably(|slot| {
            slot.starts = starts.clone();
            slot.kept = kept.copied().unwrap_or(slot.kept);
        })
    }

    fn put_durably(&self, change: impl FnOnce(&mut Slot)) -> std::io::Result<()> {
        let file = self.whole(NAME)?;
        put(&file, change)?;
        file.sync_data()
    }

    /// Writes down how far the log is known to be committed, in a file of its own and without waiting
    /// for the disk: this may as well be forgotten.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn note(&self, kept: &Kept) -> std::io::Result<()> {
        put(&open(&self.folder.join(NOTE))?, |slot| slot.kept = *kept)
    }

    /// The same, and the note is on the disk, with its name, when this returns.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn note_durably(&self, kept: &Kept) -> std::io::Result<()> {
        let file = open(&self.folder.join(NOTE))?;
        put(&file, |slot| slot.kept = *kept)?;
        file.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    /// The file of the note.
    pub(crate) fn note_path(&self) -> PathBuf {
        self.folder.join(NOTE)
    }

    /// One of the files, with its name and all its blocks on the disk.
    fn whole(&self, name: &str) -> std::io::Result<File> {
        let file = open(&self.folder.join(name))?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if let Some(missing) = FILE_BYTES.checked_sub(bytes).filter(|missing| *missing > 0) {
            // Zeros that are written rather than a hole: no slot must wait for blocks to be found.
            file.write_all_at(&vec![0; missing], bytes as u64)?;
            file.sync_all()?;
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(file)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

/// Writes the newest slot, changed, in the place of the older one. Others of this process may write too:
/// each of them sees what was there.
fn put(file: &File, change: impl FnOnce(&mut Slot)) -> std::io::Result<()> {
    file.lock()?;
    let mut bytes = vec![0; FILE_BYTES];
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    let [first, second] = slots(&bytes);
    let is_first_older = match (&first, &second) {
        (Some(first), Some(second)) => first.sequence < second.sequence,
        // Also when neither is whole: at the front there may be a file of version 1.
        (first, second) => first.is_none() && second.is_some(),
    };
    let at = if is_first_older { SLOTS[0] } else { SLOTS[1] };
    let mut slot = newer(first, second).or_else(|| of_version_1(&bytes)).unwrap_or_default();
    slot.sequence = slot.sequence.saturating_add(1);
    change(&mut slot);
    let slot = slot.encode();
    file.write_all_at(&slot, at)?;
    file.write_all_at(&slot, at + AGAIN)?;
    file.unlock()
}

/// What counts of these bytes.
fn decode(bytes: &[u8]) -> Option<Slot> {
    let [first, second] = slots(bytes);
    newer(first, second).or_else(|| of_version_1(bytes))
}

fn of_version_1(bytes: &[u8]) -> Option<Slot> {
    Some(Slot { kept: Kept::decode(bytes.get(..Kept::BYTES)?)?, ..Slot::default() })
}

fn newer(first: Option<Slot>, second: Option<Slot>) -> Option<Slot> {
    [first, second].into_iter().flatten().max_by_key(|slot| slot.sequence)
}

/// Of each slot the newer of what is whole in its two places.
fn slots(bytes: &[u8]) -> [Option<Slot>; 2] {
    let whole = |at: u64| Slot::decode(bytes.get(usize::try_from(at).ok()?..)?);
    SLOTS.map(|at| {
        let places = [whole(at), whole(at + AGAIN)];
        places.into_iter().flatten().max_by_key(|slot| slot.sequence)
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slot {
    sequence: u64,
    kept: Kept,
    mark: Mark,
    starts: Starts,
}

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        assert_eq!(bytes.len(), KEPT_AT, "as it is drawn");
        bytes.extend_from_slice(&self.kept.encode());
        assert_eq!(bytes.len(), MARK_AT, "as it is drawn");
        let Mark { incarnation, next, starts } = self.mark;
        for number in [incarnation, next, starts] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 12]);
        assert_eq!(bytes.len(), STARTS_AT, "as it is drawn");
        bytes.extend_from_slice(&self.starts.encode());
        assert_eq!(bytes.len(), SUMMED_BYTES, "as it is drawn");
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// The slot at the front of the bytes; `None` when it is torn, damaged or of another version.
    fn decode(bytes: &[u8]) -> Option<Slot> {
        let version = u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?);
        let summed_bytes = match version {
            VERSION => SUMMED_BYTES,
            VERSION_WITHOUT_STARTS => SUMMED_BYTES_WITHOUT_STARTS,
            VERSION_UNMARKED => SUMMED_BYTES_UNMARKED,
            _ => return None,
        };
        let summed = bytes.get(..summed_bytes)?;
        let sum = bytes.get(summed_bytes..summed_bytes + 4)?.try_into().ok()?;
        let right = summed.starts_with(MAGIC) && u32::from_le_bytes(sum) == crc32c::crc32c(summed);
        let number = |at: usize| {
            let bytes = summed.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let sequence = number(16)?;
        let kept = Kept::decode(summed.get(KEPT_AT..MARK_AT)?)?;
        let mark = match version {
            VERSION_UNMARKED => Mark::default(),
            _ => Mark {
                incarnation: number(MARK_AT)?,
                next: number(MARK_AT + 8)?,
                starts: number(MARK_AT + 16)?,
            },
        };
        let starts = match version {
            VERSION => Starts::decode(summed.get(STARTS_AT..)?)?,
            // Nothing was said of it, so that nothing was noted of it either.
            _ => Starts::default(),
        };
        right.then_some(Slot { sequence, kept, mark, starts })
    }
}

#[cfg(test)]
mod tests {
    use towline_group::{MemberId, Start};
    use towline_types::Lsn;

    use super::*;

    fn kept(term: u64) -> Kept {
        Kept { term, vote: Some(MemberId(term % 3 + 1)), may_vote: true, ..Kept::default() }
    }

    /// Each state that a write of `new` over `old` can leave when it is torn at one byte, either end
    /// first, is read as what was there before, or as what was written.
    fn torn(before: Option<Kept>, old: &[u8], new: &[u8], after: Kept) {
        assert_eq!(old.len(), new.len());
        let changed: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
        assert!(changed.len() > 8, "a write changes something");
        for cut in 0..=old.len() {
            for (front, back) in [(new, old), (old, new)] {
                let mixed = [&front[..cut], &back[cut..]].concat();
                // The new one counts as soon as it is whole in one of its places.
                let is_whole = slots(&mixed).iter().flatten().any(|slot| slot.kept == after);
                assert!(is_whole || mixed != new);
                let expected = if is_whole { Some(after) } else { before };
                assert_eq!(decode(&mixed).map(|it| it.kept), expected, "torn at {cut}");
            }
        }
    }

    #[test]
    fn what_was_written_last_is_read_whatever_a_torn_write_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (KeptFile::of(folder.path()), folder.path().join(NAME));
        assert_eq!(file.read(), None);
        file.prepare().unwrap();
        assert_eq!(file.read(), None, "nothing was promised");
        let mut before = None;
        for term in 1..5 {
            let old = std::fs::read(&path).unwrap();
            file.write(&kept(term)).unwrap();
            assert_eq!(file.read(), Some(kept(term)));
            torn(before, &old, &std::fs::read(&path).unwrap(), kept(term));
            before = Some(kept(term));
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
    }

    #[test]
    fn a_file_of_the_version_before_is_read_and_counts_until_a_slot_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (KeptFile::of(folder.path()), folder.path().join(NAME));
        std::fs::write(&path, kept(7).encode()).unwrap();
        assert_eq!(file.read(), Some(kept(7)));
        file.prepare().unwrap();
        assert_eq!(file.read(), Some(kept(7)));
        let mut before = Some(kept(7));
        for term in 8..11 {
            let old = std::fs::read(&path).unwrap();
            file.write(&kept(term)).unwrap();
            torn(before, &old, &std::fs::read(&path).unwrap(), kept(term));
            before = Some(kept(term));
        }
        // Also without anybody who prepared it.
        std::fs::write(&path, kept(7).encode()).unwrap();
        file.write(&kept(8)).unwrap();
        assert_eq!(file.read(), Some(kept(8)));
    }

    /// A file of an earlier version, of which a slot has so many bytes before its checksum.
    fn of_version(version: u8, summed_bytes: usize, slot: &Slot) -> Vec<u8> {
        let mut slot = slot.encode()[..summed_bytes].to_vec();
        slot[8] = version;
        let sum = crc32c::crc32c(&slot).to_le_bytes();
        slot.extend_from_slice(&sum);
        let mut file = vec![0; FILE_BYTES];
        file[4_096..4_096 + slot.len()].copy_from_slice(&slot);
        file
    }

    #[test]
    fn the_version_without_starts_is_read_and_who_writes_votes_leaves_the_starts() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (KeptFile::of(folder.path()), folder.path().join(NAME));
        let mark = Mark { incarnation: 7, next: 0, starts: 3 };
        let slot = Slot { sequence: 4, kept: kept(4), mark, ..Slot::default() };
        let before = of_version(3, SUMMED_BYTES_WITHOUT_STARTS, &slot);
        std::fs::write(&path, &before).unwrap();
        assert_eq!((file.read(), file.mark()), (Some(kept(4)), mark));
        let mut starts = file.starts();
        assert_eq!(starts, Starts::default());
        starts.begin(8);
        starts.declare(MemberId(2), Start { number: 1, nonce: 9 });
        file.write_starts(&starts, None).unwrap();
        assert_eq!((file.read(), file.mark()), (Some(kept(4)), mark));
        for term in 5..8 {
            file.write(&kept(term)).unwrap();
            assert_eq!((file.read(), file.starts()), (Some(kept(term)), starts.clone()));
        }
        starts.begin(10);
        let old = std::fs::read(&path).unwrap();
        file.write_starts(&starts, Some(&kept(8))).unwrap();
        torn(Some(kept(7)), &old, &std::fs::read(&path).unwrap(), kept(8));
        assert_eq!((file.starts(), file.mark()), (starts, mark));
    }

    #[test]
    fn the_version_without_an_incarnation_is_read_and_who_writes_votes_leaves_the_mark() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (KeptFile::of(folder.path()), folder.path().join(NAME));
        let slot = Slot { sequence: 4, kept: kept(4), ..Slot::default() };
        let before = of_version(2, SUMMED_BYTES_UNMARKED, &slot);
        std::fs::write(&path, &before).unwrap();
        assert_eq!((file.read(), file.mark()), (Some(kept(4)), Mark::default()));
        let mark = Mark { incarnation: 7, next: u64::MAX, starts: 3 };
        file.write_marked(&kept(5), mark).unwrap();
        torn(Some(kept(4)), &before, &std::fs::read(&path).unwrap(), kept(5));
        for term in 6..9 {
            file.write(&kept(term)).unwrap();
            assert_eq!((file.read(), file.mark()), (Some(kept(term)), mark));
        }
    }

    #[test]
    fn a_damaged_sector_takes_no_vote_back_and_damage_of_all_places_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (KeptFile::of(folder.path()), folder.path().join(NAME));
        file.write(&kept(1)).unwrap();
        file.write(&kept(2)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let [Some(first), Some(second)] = slots(&bytes) else { panic!("two slots") };
        assert_eq!((first.kept, second.kept), (kept(2), kept(1)));
        for bit in 0..8 * SLOT_BYTES {
            let mut damaged = bytes.clone();
            let mut flip = |at: usize| {
                damaged[at + bit / 8] ^= 1 << (bit % 8);
                decode(&damaged).map(|slot| slot.kept)
            };
            assert_eq!(flip(0), Some(kept(2)), "bit {bit}");
            assert_eq!(flip(8_192), Some(kept(1)), "bit {bit}");
            assert_eq!(flip(12_288), Some(kept(1)), "bit {bit}");
            assert_eq!(flip(4_096), None, "bit {bit}");
        }
        // What is damaged is written anew.
        std::fs::write(&path, [7; FILE_BYTES]).unwrap();
        assert_eq!(file.read(), None);
        for term in 3..6 {
            file.write(&kept(term)).unwrap();
            assert_eq!(file.read(), Some(kept(term)));
        }
    }

    #[test]
    fn a_note_says_how_far_and_nothing_of_votes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (KeptFile::of(folder.path()), folder.path().join(NOTE));
        file.write(&kept(3)).unwrap();
        let noted = |index| Kept {
            term: 9,
            committed: index,
            committed_end: Lsn(10 * index),
            ..Kept::default()
        };
        let both =
            |index| Some(Kept { term: 3, may_vote: true, vote: kept(3).vote, ..noted(index) });
        // Of the version before.
        std::fs::write(&path, noted(6).encode()).unwrap();
        assert_eq!(file.read(), both(6));
        for index in 7..10 {
            file.note(&noted(index)).unwrap();
            assert_eq!(file.read(), both(index));
        }
        file.note_durably(&noted(9)).unwrap();
        file.note(&noted(8)).unwrap();
        file.note(&noted(9)).unwrap();
        let mut torn = std::fs::read(&path).unwrap();
        let [first, second] = slots(&torn).map(Option::unwrap);
        let newest = if first.sequence > second.sequence { 0 } else { 4_096 };
        torn[newest + 30] ^= 1;
        torn[newest + 8_192 + 30] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        assert_eq!(file.read(), both(8));
        std::fs::write(&path, [7; 60]).unwrap();
        assert_eq!(file.read(), Some(kept(3)));
    }
}
