//! The file of a member's hard state: what must outlive its process beside the log. The bytes of
//! the hard state itself: `towline_group::HardState`.
//!
//! The file is overwritten, never replaced, because a vote waits for it: it has two slots, and a
//! write overwrites the older one with one sync and no change of metadata. The checksum shows a
//! torn slot; then the other slot counts, and the vote that was being written was not given. Each
//! slot has two copies, so that a sector that is damaged later cannot pass for a torn write and
//! take back a vote that was given. A second file of the same format notes how far the log is known
//! to be committed, now and then and mostly without a sync.
//!
//! ```text
//! group-state, group-committed: 16,384 bytes, a slot at 0 and one at 4,096, both again 8,192 behind
//! (no two in one sector)
//!   0    8  magic "TOWLINES"
//!   8    2  format version: 5; 6 while the member is in recovery or promoting
//!   10   6  zero
//!   16   8  sequence, from 1: the slot with the higher one is the newer
//!   24  64  `HardState`, of its version 2; in version 6, of its version 3
//!   88   8  incarnation of the log that this was promised for; 0: it has none
//!   96   8  the incarnation that the log is about to get; 0: none (see `incarnation`)
//!   104  8  how often a process took part with this hard state
//!   112  8  the member that it belongs to; 0: not said
//!   120  4  members of the group that it was kept in; 0: not said, three
//!   124 1136 `towline_group::Starts`: of this instance and of the others
//!   1260 4  CRC-32C of bytes 0..1260
//! ```
//!
//! A program that knows no recovery refuses to start with version 6; a member that votes is kept as
//! before. Version 4 is the same with a `HardState` of version 1. Version 3 ended behind the zeros
//! at 112 with the checksum of bytes 0..124; it is read as one that knows no start. Version 2 ended
//! behind `HardState` with 4 zero bytes and the checksum of bytes 0..92 at 92; it is read as one
//! without an incarnation. Version 1 of these files was a `HardState` alone, at 0. It counts while
//! no slot is whole, and the first slot that is written beside it is the one at 4,096.
//!
//! Invariants: what `write` was given is what the next start reads, or what was there before; never
//! a mixture. A write of a `HardState` alone leaves the incarnation and the starts as they are.
//! Several threads write (votes under the driver's lock, starts beside it): the file's lock is held
//! from the reading of what is there until the new slot is synced, and the newer slot is on the
//! disk before the older one is written over. So each moment leaves one whole slot, with all that
//! was kept by a call that returned. Nothing is kept in a file in which an earlier version could
//! still read a slot.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use towline_group::{HardState, MemberId, Mode, Starts};
use towline_os::fs::{self, File};
use towline_os::sync::Mutex;

use crate::membership::Membership;
use medium::Medium;
pub use of_group::is_folder_of_group;

mod medium;
mod of_group;

const NAME: &str = "group-state";
const NOTE: &str = "group-committed";

const MAGIC: &[u8; 8] = b"TOWLINES";
const VERSION: u16 = 6;
/// Of a member that votes.
const VERSION_VOTING: u16 = 5;
/// With a hard state of version 1.
const VERSION_BEFORE: u16 = 4;
/// Without starts, and shorter.
const VERSION_WITHOUT_STARTS: u16 = 3;
/// Without an incarnation, and shorter still.
const VERSION_UNMARKED: u16 = 2;
/// What a disk writes, or loses, as one: its physical sectors have 512 or 4,096 bytes. No two slots
/// share one. Part of the format: it does not follow the page size of a machine.
const SECTOR_BYTES_MAX: usize = 4_096;
/// Where the slots begin.
const SLOTS: [u64; 2] = [0, SECTOR_BYTES_MAX as u64];
/// Distance from each slot to its second copy.
const AGAIN: u64 = 2 * SECTOR_BYTES_MAX as u64;
/// Two slots, twice.
const FILE_BYTES: usize = 4 * SECTOR_BYTES_MAX;
const HARD_STATE_AT: usize = 24;
const MARK_AT: usize = HARD_STATE_AT + HardState::BYTES;
const WHOSE_AT: usize = 112;
const MEMBERS_AT: usize = 120;
const STARTS_AT: usize = 124;
const SUMMED_BYTES: usize = STARTS_AT + Starts::BYTES;
const SLOT_BYTES: usize = SUMMED_BYTES + 4;
const SUMMED_BYTES_WITHOUT_STARTS: usize = 124;
const SUMMED_BYTES_UNMARKED: usize = 92;

const _: () = assert!(SLOT_BYTES < SECTOR_BYTES_MAX, "a slot ends before the next one");

/// Which log the promises were made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Incarnation of that log; 0: none was drawn yet.
    pub incarnation: u64,
    /// The one that it is about to get: promises for it are made when it has become `incarnation`.
    pub next: u64,
    /// Processes that took part with it.
    pub starts: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct HardStateFile {
    folder: PathBuf,
    /// Sequence of the newest slot that this process has synced; 0: none. Used under the file's
    /// lock.
    synced: Arc<AtomicU64>,
    /// The starts that this process has made durable last: a disk that cannot be read for a moment
    /// must not have it pass for one that knows none, which the others take for a copy.
    starts: Arc<Mutex<Option<Starts>>>,
}

impl HardStateFile {
    /// The files in a data folder.
    pub fn of(data: &Path) -> HardStateFile {
        HardStateFile { folder: data.to_owned(), synced: Arc::default(), starts: Arc::default() }
    }

    /// The data folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is kept; `None` when there is nothing, or nothing that is whole: then it is not known
    /// what this member promised, and it must not promise anything before it has caught up.
    ///
    /// # Errors
    /// The disk cannot be read: what was promised may still be there.
    pub fn read(&self) -> std::io::Result<Option<HardState>> {
        let Some(Slot { hard_state, .. }) = self.newest(NAME)? else { return Ok(None) };
        // Whatever was once known to be committed is so.
        let note = self.newest(NOTE)?.map(|slot| slot.hard_state);
        let note = note.filter(|note| note.committed > hard_state.committed);
        let Some(note) = note else { return Ok(Some(hard_state)) };
        Ok(Some(HardState {
            committed: note.committed,
            committed_end: note.committed_end,
            ..hard_state
        }))
    }

    /// For which log it was kept; all zero when nothing is kept, or no incarnation is known.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn mark(&self) -> std::io::Result<Mark> {
        Ok(self.newest(NAME)?.map(|slot| slot.mark).unwrap_or_default())
    }

    /// The starts that this folder knows.
    ///
    /// # Errors
    /// The disk cannot be read, and this process has made none durable.
    pub fn starts(&self) -> std::io::Result<Starts> {
        match self.newest(NAME) {
            Ok(newest) => Ok(newest.map(|slot| slot.starts).unwrap_or_default()),
            Err(error) => self.starts.lock().clone().ok_or(error),
        }
    }

    /// Refuses a hard state that a later version of Towline wrote: this one cannot read what was
    /// promised in it, and must not take an older slot beside it for the newest.
    ///
    /// # Errors
    /// Which version wrote it; the disk cannot be read.
    pub fn refuse_later_version(&self) -> std::io::Result<()> {
        let Some(bytes) = self.bytes(NAME)? else { return Ok(()) };
        match SLOTS.into_iter().find_map(|at| later_version(&bytes, at)) {
            None => Ok(()),
            Some(version) => Err(std::io::Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{NAME} has format version {version}, and this version of Towline reads up to \
                     {VERSION}: start the version that wrote it"
                ),
            )),
        }
    }

    /// What counts of one of the files; nothing when it is not there, or damaged. Then nothing is
    /// known of what was promised, which is what the start acts on (`trusted_log`).
    fn newest(&self, name: &str) -> std::io::Result<Option<Slot>> {
        Ok(self.bytes(name)?.and_then(|bytes| decode(&bytes)))
    }

    /// A disk that fails for a moment must not have this member forget what it promised: two that
    /// forget at once are a group without a majority.
    fn bytes(&self, name: &str) -> std::io::Result<Option<Vec<u8>>> {
        match fs::read(self.folder.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(name, &error)),
        }
    }

    /// Allocates the slots, durably, so that no vote waits for that, and the note has its blocks on
    /// a disk that becomes full. What is kept stays, and is durable then: what a start reads may be
    /// a write that the process before it did not live to sync, and an answer that repeats such a
    /// vote is sent without another write.
    ///
    /// # Errors
    /// What the system said.
    pub fn prepare(&self) -> std::io::Result<()> {
        let file = self.whole(NAME)?;
        locked(&file, || {
            let bytes = file.content()?;
            // Also when the sync of the process before failed: what is read then passes for synced.
            self.synced.store(0, Ordering::SeqCst);
            self.settle(&file, &bytes, &slots(&bytes))?;
            self.take_over(&file, bytes)?;
            file.sync_all()
        })?;
        if let Err(error) = self.whole(NOTE) {
            // What is noted is refused later, perhaps, and may as well be forgotten.
            tracing::warn!(%error, "no blocks for the note of what is committed");
        }
        Ok(())
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub fn write(&self, hard_state: &HardState) -> std::io::Result<()> {
        self.put_durably(|slot| slot.hard_state = *hard_state)
    }

    /// The same, and for which log.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub fn write_marked(&self, hard_state: &HardState, mark: Mark) -> std::io::Result<()> {
        self.put_durably(|slot| (slot.hard_state, slot.mark) = (*hard_state, mark))
    }

    /// The same by the word of an operator: what this folder once promised in starts that it does
    /// not know is given up. The group has so many members from here on.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub fn write_forced(
        &self,
        hard_state: &HardState,
        mark: Mark,
        members_count: usize,
    ) -> std::io::Result<()> {
        self.put_durably(|slot| {
            (slot.hard_state, slot.mark) = (*hard_state, mark);
            slot.members_count = members_count_kept(members_count);
            slot.starts.overrule();
            // Also in the folder of another member: the next start makes it its own.
            slot.owner = None;
        })
    }

    /// The same, and that a process of this member starts. What another one knew of starts is not
    /// known.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub fn write_start(
        &self,
        hard_state: &HardState,
        mark: Mark,
        Membership { member, members_count }: Membership,
        nonce: u64,
    ) -> std::io::Result<()> {
        self.put_durably(|slot| {
            (slot.hard_state, slot.mark) = (*hard_state, mark);
            if slot.owner.is_some_and(|owner| owner != member) {
                slot.starts = Starts::default();
            }
            slot.owner = Some(member);
            slot.members_count = members_count_kept(members_count);
            slot.starts.begin(nonce);
        })
    }

    /// Makes the starts durable that this folder knows, and `hard_state` with them if there is one.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub fn write_starts(
        &self,
        starts: &Starts,
        hard_state: Option<&HardState>,
    ) -> std::io::Result<()> {
        self.put_durably(|slot| {
            slot.starts = starts.clone();
            slot.hard_state = hard_state.copied().unwrap_or(slot.hard_state);
        })
    }

    fn put_durably(&self, change: impl FnOnce(&mut Slot)) -> std::io::Result<()> {
        self.put_in(&self.whole(NAME)?, change)
    }

    fn put_in(&self, file: &impl Medium, change: impl FnOnce(&mut Slot)) -> std::io::Result<()> {
        locked(file, || {
            let bytes = file.content()?;
            self.settle(file, &bytes, &slots(&bytes))?;
            let bytes = self.take_over(file, bytes)?;
            // Until all of it is done, it is not known.
            self.synced.store(0, Ordering::SeqCst);
            let mut starts = None;
            let sequence = put(file, &bytes, slots(&bytes), |slot| {
                change(slot);
                starts = Some(slot.starts.clone());
            })?;
            file.sync()?;
            self.synced.store(sequence, Ordering::SeqCst);
            *self.starts.lock() = starts;
            Ok(())
        })
    }

    /// Makes the newest slot durable where it stands, unless this process has done so: the older
    /// one, which counts if that is torn, is about to be written over.
    fn settle(
        &self,
        file: &impl Medium,
        bytes: &[u8],
        slots: &[Option<Slot>; 2],
    ) -> std::io::Result<()> {
        let Some((at, newest)) = newest_of(slots) else { return Ok(()) };
        if newest.sequence == self.synced.load(Ordering::SeqCst) {
            return Ok(());
        }
        let place = |at: u64| bytes.get(usize::try_from(at).ok()?..)?.get(..SLOT_BYTES);
        let whole = [at, at + AGAIN].into_iter().filter_map(place);
        let mut whole = whole.filter(|place| Slot::decode(place).as_ref() == Some(newest));
        // The same bytes, so that nothing of them can be torn.
        if let Some(same) = whole.next() {
            file.write(same, at)?;
            file.write(same, at + AGAIN)?;
            file.sync()?;
            self.synced.store(newest.sequence, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Writes the newest slot anew, twice, when anything in the file is of an earlier version: so a
    /// program of that version finds nothing that it can read, and not a slot that is out of date.
    /// A crash in between leaves both with the same content. Yields what the file holds then.
    fn take_over(&self, file: &impl Medium, mut bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
        for _ in SLOTS {
            let there = slots(&bytes);
            let is_known = there.iter().any(Option::is_some) || of_version_1(&bytes).is_some();
            if !is_known || !holds_earlier_version(&bytes) {
                break;
            }
            self.synced.store(0, Ordering::SeqCst);
            let sequence = put(file, &bytes, there, |_| {})?;
            file.sync()?;
            self.synced.store(sequence, Ordering::SeqCst);
            bytes = file.content()?;
        }
        Ok(bytes)
    }

    /// Writes down how far the log is known to be committed, in a file of its own and without
    /// waiting for the disk: this may as well be forgotten.
    ///
    /// # Errors
    /// What the system said.
    pub fn note(&self, hard_state: &HardState) -> std::io::Result<()> {
        note_in(&open(&self.folder.join(NOTE))?, hard_state)
    }

    /// The same, and the note is on the disk, with its name, when this returns.
    ///
    /// # Errors
    /// What the disk said.
    pub fn note_durably(&self, hard_state: &HardState) -> std::io::Result<()> {
        let file = open(&self.folder.join(NOTE))?;
        note_in(&file, hard_state)?;
        file.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    /// The file of the note.
    pub fn note_path(&self) -> PathBuf {
        self.folder.join(NOTE)
    }

    /// One of the files, with its name and all its blocks on the disk.
    fn whole(&self, name: &str) -> std::io::Result<File> {
        let file = open(&self.folder.join(name))?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if let Some(missing) = FILE_BYTES.checked_sub(bytes).filter(|missing| *missing > 0) {
            // Zeros that are written rather than a hole: no slot must wait for blocks to be found.
            file.write(&vec![0; missing], bytes as u64)?;
            file.sync_all()?;
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(file)
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> std::io::Error {
    // Without the hard state, or with that of another moment than its note, a log that lost its end
    // could pass for whole.
    let lost = if name == NAME { NAME.to_owned() } else { format!("{name} and {NAME}") };
    std::io::Error::new(
        error.kind(),
        format!(
            "{name} cannot be read: {error}; what this instance promised is not known, so that it \
             cannot take part: try again when the disk can be read. If the file is lost for good, \
             move {lost} away: the instance then has no vote until it has caught up with the others"
        ),
    )
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

fn members_count_kept(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn note_in(file: &File, hard_state: &HardState) -> std::io::Result<()> {
    locked(file, || {
        let bytes = file.content()?;
        put(file, &bytes, slots(&bytes), |slot| slot.hard_state = *hard_state).map(drop)
    })
}

/// Reads and writes as the only one, of all processes.
fn locked<R>(file: &impl Medium, act: impl FnOnce() -> std::io::Result<R>) -> std::io::Result<R> {
    file.lock()?;
    let done = act();
    file.unlock()?;
    done
}

/// Writes the newest slot, changed, over the older one; yields its sequence.
fn put(
    file: &impl Medium,
    bytes: &[u8],
    slots: [Option<Slot>; 2],
    change: impl FnOnce(&mut Slot),
) -> std::io::Result<u64> {
    // When neither is whole: at the front there may be a file of version 1.
    let newest_at = newest_of(&slots).map_or(SLOTS[0], |(at, _)| at);
    let at = if newest_at == SLOTS[0] { SLOTS[1] } else { SLOTS[0] };
    let [first, second] = slots;
    let mut slot = newer(first, second).or_else(|| of_version_1(bytes)).unwrap_or_default();
    slot.sequence = slot.sequence.saturating_add(1);
    change(&mut slot);
    let written = slot.encode();
    file.write(&written, at)?;
    file.write(&written, at + AGAIN)?;
    Ok(slot.sequence)
}

/// What counts of these bytes.
fn decode(bytes: &[u8]) -> Option<Slot> {
    let [first, second] = slots(bytes);
    newer(first, second).or_else(|| of_version_1(bytes))
}

fn of_version_1(bytes: &[u8]) -> Option<Slot> {
    Some(Slot { hard_state: HardState::decode(bytes.get(..HardState::BYTES)?)?, ..Slot::default() })
}

/// The format version that stands at an offset; `None` where there is no slot.
fn version_at(bytes: &[u8], at: u64) -> Option<u16> {
    let slot = bytes.get(usize::try_from(at).ok()?..)?;
    let version = slot.strip_prefix(MAGIC)?.get(..2)?.try_into().ok()?;
    Some(u16::from_le_bytes(version))
}

/// The version of a slot that a later version of Towline wrote. Both its copies say it: one alone
/// may be damaged, or torn.
fn later_version(bytes: &[u8], at: u64) -> Option<u16> {
    let version = version_at(bytes, at).filter(|version| *version > VERSION)?;
    (version_at(bytes, at + AGAIN) == Some(version)).then_some(version)
}

/// Whether a version of Towline that cannot read the newest slot could read anything here.
fn holds_earlier_version(bytes: &[u8]) -> bool {
    let newest = newest_of(&slots(bytes)).map_or(VERSION_VOTING, |(_, slot)| slot.version());
    let mut places = SLOTS.into_iter().flat_map(|at| [at, at + AGAIN]);
    places.any(|at| version_at(bytes, at).is_some_and(|version| version < newest))
        || of_version_1(bytes).is_some()
}

fn newer(first: Option<Slot>, second: Option<Slot>) -> Option<Slot> {
    [first, second].into_iter().flatten().max_by_key(|slot| slot.sequence)
}

/// The newest slot, and where it stands.
fn newest_of(slots: &[Option<Slot>; 2]) -> Option<(u64, &Slot)> {
    let there = SLOTS.into_iter().zip(slots);
    let there = there.filter_map(|(at, slot)| Some((at, slot.as_ref()?)));
    there.max_by_key(|(_, slot)| slot.sequence)
}

/// Of each slot the newer of its two copies that is whole.
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
    hard_state: HardState,
    mark: Mark,
    /// The member that it belongs to, if that was said.
    owner: Option<MemberId>,
    /// Members of its group; 0: not said.
    members_count: u32,
    starts: Starts,
}

impl Slot {
    fn version(&self) -> u16 {
        match self.hard_state.mode {
            Mode::Voting => VERSION_VOTING,
            Mode::Recovery | Mode::Promoting => VERSION,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.version().to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        assert_eq!(bytes.len(), HARD_STATE_AT, "as it is drawn");
        bytes.extend_from_slice(&self.hard_state.encode());
        assert_eq!(bytes.len(), MARK_AT, "as it is drawn");
        let Mark { incarnation, next, starts } = self.mark;
        for number in [incarnation, next, starts] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(bytes.len(), WHOSE_AT, "as it is drawn");
        bytes.extend_from_slice(&self.owner.map_or(0, |member| member.0).to_le_bytes());
        bytes.extend_from_slice(&self.members_count.to_le_bytes());
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
            VERSION | VERSION_VOTING | VERSION_BEFORE => SUMMED_BYTES,
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
        let hard_state = HardState::decode(summed.get(HARD_STATE_AT..MARK_AT)?)?;
        let mark = match version {
            VERSION_UNMARKED => Mark::default(),
            _ => Mark {
                incarnation: number(MARK_AT)?,
                next: number(MARK_AT + 8)?,
                starts: number(MARK_AT + 16)?,
            },
        };
        let starts = match version {
            VERSION | VERSION_VOTING | VERSION_BEFORE => Starts::decode(summed.get(STARTS_AT..)?)?,
            // Nothing was said of it, so that nothing was noted of it either.
            _ => Starts::default(),
        };
        let owner = match version {
            VERSION_UNMARKED => None,
            _ => Some(number(WHOSE_AT)?).filter(|member| *member != 0).map(MemberId),
        };
        let members_count = match version {
            VERSION_UNMARKED => 0,
            _ => u32::from_le_bytes(summed.get(MEMBERS_AT..STARTS_AT)?.try_into().ok()?),
        };
        right.then_some(Slot { sequence, hard_state, mark, owner, members_count, starts })
    }
}

#[cfg(test)]
mod tests;
