mod power_cuts;

use std::cell::{Cell, RefCell};

use towline_group::{MemberId, Start};
use towline_types::Lsn;

use super::*;

fn hard_state(term: u64) -> HardState {
    HardState { term, vote: Some(MemberId(term % 3 + 1)), may_vote: true, ..HardState::default() }
}

/// A hard state as version 1 encoded it: a file of its own, or a part of a slot up to version 4.
fn of_version_1(hard_state: &HardState) -> [u8; HardState::BYTES] {
    let mut bytes = hard_state.encode();
    bytes[8] = 1;
    let fnv = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let sum = bytes[..60].iter().fold(0x811c_9dc5, fnv);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(HardState::decode(&bytes), Some(*hard_state));
    bytes
}

/// Each state that a write of `new` over `old` can leave when it is torn at one byte, either end
/// first, is read as what was there before, or as what was written.
fn torn(before: Option<HardState>, old: &[u8], new: &[u8], after: HardState) {
    assert_eq!(old.len(), new.len());
    let changed: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
    assert!(changed.len() > 8, "a write changes something");
    for cut in 0..=old.len() {
        for (front, back) in [(new, old), (old, new)] {
            let mixed = [&front[..cut], &back[cut..]].concat();
            // The new one counts as soon as one of its copies is whole.
            let is_whole = slots(&mixed).iter().flatten().any(|slot| slot.hard_state == after);
            assert!(is_whole || mixed != new);
            let expected = if is_whole { Some(after) } else { before };
            assert_eq!(decode(&mixed).map(|it| it.hard_state), expected, "torn at {cut}");
        }
    }
}

#[test]
fn what_was_written_last_is_read_whatever_a_torn_write_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    assert_eq!(file.read().unwrap(), None);
    file.prepare().unwrap();
    assert_eq!(file.read().unwrap(), None, "nothing was promised");
    let mut before = None;
    for term in 1..5 {
        let old = std::fs::read(&path).unwrap();
        file.write(&hard_state(term)).unwrap();
        assert_eq!(file.read().unwrap(), Some(hard_state(term)));
        torn(before, &old, &std::fs::read(&path).unwrap(), hard_state(term));
        before = Some(hard_state(term));
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
}

#[test]
fn a_file_of_the_version_before_is_read_and_counts_until_a_slot_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    std::fs::write(&path, of_version_1(&hard_state(7))).unwrap();
    assert_eq!(file.read().unwrap(), Some(hard_state(7)));
    file.prepare().unwrap();
    assert_eq!(file.read().unwrap(), Some(hard_state(7)));
    let mut before = Some(hard_state(7));
    for term in 8..11 {
        let old = std::fs::read(&path).unwrap();
        file.write(&hard_state(term)).unwrap();
        torn(before, &old, &std::fs::read(&path).unwrap(), hard_state(term));
        before = Some(hard_state(term));
    }
    // Also in a file that was not prepared.
    std::fs::write(&path, of_version_1(&hard_state(7))).unwrap();
    file.write(&hard_state(8)).unwrap();
    assert_eq!(file.read().unwrap(), Some(hard_state(8)));
}

/// A file of an earlier version, of which a slot has so many bytes before its checksum.
fn of_version(version: u8, summed_bytes: usize, slot: &Slot) -> Vec<u8> {
    let hard_state = of_version_1(&slot.hard_state);
    let mut slot = slot.encode()[..summed_bytes].to_vec();
    slot[8] = version;
    slot[HARD_STATE_AT..MARK_AT].copy_from_slice(&hard_state);
    let sum = crc32c::crc32c(&slot).to_le_bytes();
    slot.extend_from_slice(&sum);
    let mut file = vec![0; FILE_BYTES];
    file[4_096..4_096 + slot.len()].copy_from_slice(&slot);
    file
}

#[test]
fn the_version_without_starts_is_read_and_a_vote_leaves_the_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    let mark = Mark { incarnation: 7, next: 0, starts: 3 };
    let slot = Slot { sequence: 4, hard_state: hard_state(4), mark, ..Slot::default() };
    let before = of_version(3, SUMMED_BYTES_WITHOUT_STARTS, &slot);
    std::fs::write(&path, &before).unwrap();
    assert_eq!((file.read().unwrap(), file.mark().unwrap()), (Some(hard_state(4)), mark));
    let mut starts = file.starts().unwrap();
    assert_eq!(starts, Starts::default());
    starts.begin(8);
    starts.declare(MemberId(2), Start { number: 1, nonce: 9 });
    file.write_starts(&starts, None).unwrap();
    assert_eq!((file.read().unwrap(), file.mark().unwrap()), (Some(hard_state(4)), mark));
    for term in 5..8 {
        file.write(&hard_state(term)).unwrap();
        assert_eq!(
            (file.read().unwrap(), file.starts().unwrap()),
            (Some(hard_state(term)), starts.clone())
        );
    }
    starts.begin(10);
    let old = std::fs::read(&path).unwrap();
    file.write_starts(&starts, Some(&hard_state(8))).unwrap();
    torn(Some(hard_state(7)), &old, &std::fs::read(&path).unwrap(), hard_state(8));
    assert_eq!((file.starts().unwrap(), file.mark().unwrap()), (starts, mark));
}

#[test]
fn the_version_without_an_incarnation_is_read_and_a_vote_leaves_the_mark() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    let slot = Slot { sequence: 4, hard_state: hard_state(4), ..Slot::default() };
    let before = of_version(2, SUMMED_BYTES_UNMARKED, &slot);
    std::fs::write(&path, &before).unwrap();
    assert_eq!(
        (file.read().unwrap(), file.mark().unwrap()),
        (Some(hard_state(4)), Mark::default())
    );
    file.prepare().unwrap();
    assert_eq!(
        (file.read().unwrap(), file.mark().unwrap()),
        (Some(hard_state(4)), Mark::default())
    );
    let before = std::fs::read(&path).unwrap();
    let mark = Mark { incarnation: 7, next: u64::MAX, starts: 3 };
    file.write_marked(&hard_state(5), mark).unwrap();
    torn(Some(hard_state(4)), &before, &std::fs::read(&path).unwrap(), hard_state(5));
    for term in 6..9 {
        file.write(&hard_state(term)).unwrap();
        assert_eq!((file.read().unwrap(), file.mark().unwrap()), (Some(hard_state(term)), mark));
    }
}

#[test]
fn a_damaged_sector_takes_no_vote_back_and_damage_of_all_copies_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    file.write(&hard_state(1)).unwrap();
    file.write(&hard_state(2)).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let [Some(first), Some(second)] = slots(&bytes) else { panic!("two slots") };
    assert_eq!((first.hard_state, second.hard_state), (hard_state(2), hard_state(1)));
    for bit in 0..8 * SLOT_BYTES {
        let mut damaged = bytes.clone();
        let mut flip = |at: usize| {
            damaged[at + bit / 8] ^= 1 << (bit % 8);
            decode(&damaged).map(|slot| slot.hard_state)
        };
        assert_eq!(flip(0), Some(hard_state(2)), "bit {bit}");
        assert_eq!(flip(8_192), Some(hard_state(1)), "bit {bit}");
        assert_eq!(flip(12_288), Some(hard_state(1)), "bit {bit}");
        assert_eq!(flip(4_096), None, "bit {bit}");
    }
    // What is damaged is written anew.
    std::fs::write(&path, [7; FILE_BYTES]).unwrap();
    assert_eq!(file.read().unwrap(), None);
    for term in 3..6 {
        file.write(&hard_state(term)).unwrap();
        assert_eq!(file.read().unwrap(), Some(hard_state(term)));
    }
}

#[test]
fn a_note_says_how_far_and_nothing_of_votes() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NOTE));
    file.write(&hard_state(3)).unwrap();
    let noted = |index| HardState {
        term: 9,
        committed: index,
        committed_end: Lsn(10 * index),
        ..HardState::default()
    };
    let both = |index| {
        Some(HardState { term: 3, may_vote: true, vote: hard_state(3).vote, ..noted(index) })
    };
    // Of the version before.
    std::fs::write(&path, of_version_1(&noted(6))).unwrap();
    assert_eq!(file.read().unwrap(), both(6));
    for index in 7..10 {
        file.note(&noted(index)).unwrap();
        assert_eq!(file.read().unwrap(), both(index));
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
    assert_eq!(file.read().unwrap(), both(8));
    std::fs::write(&path, [7; 60]).unwrap();
    assert_eq!(file.read().unwrap(), Some(hard_state(3)));
}

/// A file on a disk that tears writes: of what was not synced, anything may be there.
#[derive(Default)]
struct Tears {
    /// What is read.
    now: RefCell<Vec<u8>>,
    durable: RefCell<Vec<u8>>,
    /// Written since the last sync: where, and what.
    pending: RefCell<Vec<(usize, Vec<u8>)>>,
    is_locked: Cell<bool>,
    /// The next sync fails, and what was written passes for synced from then on.
    fails: Cell<bool>,
    /// One of these is read after a crash, at any moment.
    allowed: RefCell<Vec<Option<Slot>>>,
    /// The same for a program of version 4, where that is looked at.
    allowed_to_version_4: RefCell<Option<Vec<Option<Slot>>>>,
}

impl Tears {
    fn new() -> Tears {
        let tears = Tears::default();
        (*tears.now.borrow_mut(), *tears.durable.borrow_mut()) =
            (vec![0; FILE_BYTES], vec![0; FILE_BYTES]);
        tears.allowed.borrow_mut().push(None);
        tears
    }

    /// The power is cut now: each write that is not synced is there, or not, or a part of it.
    fn crash_anyhow(&self) {
        let mut states = vec![self.durable.borrow().clone()];
        for (at, bytes) in &*self.pending.borrow() {
            let mut more = Vec::new();
            for state in &states {
                for cut in [1, 17, 40, 130, 512, 1_024, SUMMED_BYTES, bytes.len()] {
                    let mut front = state.clone();
                    front[*at..at + cut].copy_from_slice(&bytes[..cut]);
                    let mut back = state.clone();
                    back[at + cut..at + bytes.len()].copy_from_slice(&bytes[cut..]);
                    more.extend([front, back]);
                }
            }
            states.extend(more);
        }
        for state in &states {
            let read = decode(state);
            let allowed = self.allowed.borrow();
            assert!(allowed.contains(&read), "{read:?} is read, and none of {allowed:?}");
            if let Some(allowed) = &*self.allowed_to_version_4.borrow() {
                let read = as_version_4_reads(state);
                assert!(allowed.contains(&read), "version 4 reads {read:?}, none of {allowed:?}");
            }
        }
    }

    /// A process that has synced up to `synced` keeps something.
    fn keeps(&self, synced: &HardStateFile, change: impl Fn(&mut Slot)) -> bool {
        let mut slot = decode(&self.now.borrow()).unwrap_or_default();
        slot.sequence += 1;
        change(&mut slot);
        self.allowed.borrow_mut().push(Some(slot.clone()));
        self.crash_anyhow();
        let hard_state = synced.put_in(self, change).is_ok();
        if hard_state {
            *self.allowed.borrow_mut() = vec![Some(slot)];
        }
        self.crash_anyhow();
        assert!(!self.is_locked.get());
        hard_state
    }
}

impl Medium for Tears {
    fn lock(&self) -> std::io::Result<()> {
        assert!(!self.is_locked.replace(true));
        Ok(())
    }

    fn unlock(&self) -> std::io::Result<()> {
        assert!(self.is_locked.replace(false));
        Ok(())
    }

    fn content(&self) -> std::io::Result<Vec<u8>> {
        assert!(self.is_locked.get());
        Ok(self.now.borrow().clone())
    }

    fn write(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        assert!(self.is_locked.get());
        let at = usize::try_from(at).unwrap();
        self.now.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        self.pending.borrow_mut().push((at, bytes.to_vec()));
        self.crash_anyhow();
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        assert!(self.is_locked.get(), "another thread might write the other slot meanwhile");
        self.crash_anyhow();
        if self.fails.replace(false) {
            // A part of it is there, and the rest is not written again.
            for (at, bytes) in self.pending.borrow_mut().drain(..) {
                let half = bytes.len() / 2;
                self.durable.borrow_mut()[at..at + half].copy_from_slice(&bytes[..half]);
            }
            return Err(std::io::Error::other("the disk failed"));
        }
        self.pending.borrow_mut().clear();
        self.durable.borrow_mut().clone_from(&self.now.borrow());
        self.crash_anyhow();
        Ok(())
    }
}

/// Votes, starts and numbers of logs, one after the other.
fn changes() -> Vec<fn(&mut Slot)> {
    vec![
        |slot| slot.hard_state = hard_state(slot.sequence),
        |slot| slot.starts.begin(slot.sequence),
        |slot| slot.mark.next = slot.sequence,
        |slot| (slot.hard_state, slot.owner) = (hard_state(slot.sequence), Some(MemberId(2))),
        |slot| slot.starts = Starts::default(),
    ]
}

#[test]
fn a_crash_at_any_moment_leaves_one_whole_slot_with_all_that_was_kept() {
    let (tears, file) = (Tears::new(), HardStateFile::of(Path::new("")));
    for change in changes().iter().cycle().take(12) {
        assert!(tears.keeps(&file, change));
    }
}

#[test]
fn a_slot_that_another_process_wrote_is_synced_before_the_older_one_is_written_over() {
    // It did not live to sync it, or its sync failed: what is read passes for synced then.
    for failing in 0..4 {
        let (tears, mut file) = (Tears::new(), HardStateFile::of(Path::new("")));
        for (turn, change) in changes().iter().cycle().take(10).enumerate() {
            tears.fails.set(turn % 4 == failing);
            if !tears.keeps(&file, change) && turn % 3 > 0 {
                file = HardStateFile::of(Path::new(""));
            }
        }
    }
}

#[test]
fn what_two_threads_keep_is_there_when_each_of_them_has_kept_it() {
    let folder = tempfile::tempdir().unwrap();
    // Also through another value for the same file.
    let (votes, starts) = (HardStateFile::of(folder.path()), HardStateFile::of(folder.path()));
    votes.prepare().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for term in 1..200 {
                votes.write(&hard_state(term)).unwrap();
            }
        });
        scope.spawn(|| {
            let mut known = starts.starts().unwrap();
            for nonce in 1..200 {
                known.begin(nonce);
                starts.write_starts(&known, None).unwrap();
            }
        });
    });
    assert_eq!(
        (votes.read().unwrap(), votes.starts().unwrap().own().nonce),
        (Some(hard_state(199)), 199)
    );
}

#[test]
fn a_folder_says_whose_it_is_and_one_of_another_member_brings_no_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = HardStateFile::of(folder.path());
    file.write(&hard_state(4)).unwrap();
    assert_eq!(file.owner().unwrap(), None, "of a version that did not say it");
    assert_eq!(file.members_count().unwrap(), Some(3), "nor this, and it had three");
    for (member, nonce, number) in [(1, 11, 1), (1, 12, 2), (2, 13, 1), (2, 14, 2)] {
        let membership = Membership { member: MemberId(member), members_count: 1 };
        file.write_start(&hard_state(4), Mark::default(), membership, nonce).unwrap();
        assert_eq!(file.members_count().unwrap(), Some(1));
        assert_eq!(file.owner().unwrap(), Some(MemberId(member)));
        assert_eq!(file.starts().unwrap().own(), Start { number, nonce });
    }
    file.write(&hard_state(5)).unwrap();
    assert_eq!(file.owner().unwrap(), Some(MemberId(2)), "a write of a vote leaves it");
    file.write_forced(&hard_state(5), Mark::default(), 3).unwrap();
    assert_eq!((file.owner().unwrap(), file.members_count().unwrap()), (None, Some(3)));
}

/// The front of a slot of version 4, as a program of that version wrote it, in hexadecimal; all
/// behind it up to the checksum is zero.
const OF_VERSION_4: &str = "\
    544f574c494e455304000000000000000200000000000000 \
    544f574c494e45470100010100000000 \
    08000000000000000200000000000000 \
    0c000000000000006c20000000000000 \
    000000000000000000000000ddfb6add \
    221100000000000044330000000000000500000000000000 \
    030000000000000000000000 \
    010000000000000000000000000000000100000000000000efcdab";
/// Its checksum.
const SUM_OF_VERSION_4: [u8; 4] = [0xdd, 0x36, 0x73, 0x49];

/// What that slot says.
fn slot_of_version_4() -> Slot {
    let hard_state = HardState {
        term: 8,
        vote: Some(MemberId(2)),
        may_vote: true,
        knows_term: true,
        committed: 12,
        committed_end: Lsn(8_300),
        ..HardState::default()
    };
    let mark = Mark { incarnation: 0x1122, next: 0x3344, starts: 5 };
    let mut starts = Starts::default();
    starts.begin(0xab_cdef);
    let owner = Some(MemberId(3));
    Slot { sequence: 2, hard_state, mark, owner, members_count: 0, starts }
}

/// A file of version 4: the slot above, and the one before it, which was kept in another term.
fn file_of_version_4() -> Vec<u8> {
    let digits: String = OF_VERSION_4.split_whitespace().collect();
    let mut slot: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    slot.resize(SUMMED_BYTES, 0);
    assert_eq!(crc32c::crc32c(&slot).to_le_bytes(), SUM_OF_VERSION_4);
    slot.extend_from_slice(&SUM_OF_VERSION_4);
    let mut older = slot.clone();
    // Sequence 1, and a hard state of `towline_group`'s golden test.
    older[16] = 1;
    older[HARD_STATE_AT + 16] = 7;
    older[MARK_AT - 4..MARK_AT].copy_from_slice(&[0x42, 0x57, 0xbc, 0x0a]);
    let sum = crc32c::crc32c(&older[..SUMMED_BYTES]).to_le_bytes();
    older[SUMMED_BYTES..].copy_from_slice(&sum);
    let mut file = vec![0; FILE_BYTES];
    for (at, bytes) in [(0, &slot), (8_192, &slot), (4_096, &older), (12_288, &older)] {
        file[at..at + SLOT_BYTES].copy_from_slice(bytes);
    }
    file
}

/// What a program of version 4 reads: to it no other version is a slot.
fn as_version_4_reads(bytes: &[u8]) -> Option<Slot> {
    let mut bytes = bytes.to_vec();
    for at in [0, 4_096, 8_192, 12_288] {
        if bytes[at + 8] != 4 {
            bytes[at] = 0;
        }
    }
    decode(&bytes)
}

#[test]
fn a_file_of_version_4_is_read_and_taken_over_whole_before_anything_is_kept_in_it() {
    let before = file_of_version_4();
    assert_eq!(decode(&before), Some(slot_of_version_4()));
    assert_eq!(as_version_4_reads(&before), Some(slot_of_version_4()));
    for act in [(|file| file.prepare()) as fn(&HardStateFile) -> std::io::Result<()>, |file| {
        file.write(&hard_state(9))
    }] {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
        std::fs::write(&path, &before).unwrap();
        act(&file).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(as_version_4_reads(&bytes), None, "not even the slot before");
        let read = decode(&bytes).unwrap();
        let Slot { mark, owner, starts, .. } = slot_of_version_4();
        assert_eq!((read.mark, read.owner, read.starts), (mark, owner, starts));
        assert!([slot_of_version_4().hard_state, hard_state(9)].contains(&read.hard_state));
    }
}

#[test]
fn a_crash_while_a_file_is_taken_over_leaves_to_each_version_what_was_kept_or_nothing() {
    let file = HardStateFile::of(Path::new(""));
    let tears = Tears::new();
    *tears.now.borrow_mut() = file_of_version_4();
    *tears.durable.borrow_mut() = file_of_version_4();
    let allowed = |sequence| Some(Slot { sequence, ..slot_of_version_4() });
    *tears.allowed.borrow_mut() = vec![allowed(2), allowed(3), allowed(4)];
    *tears.allowed_to_version_4.borrow_mut() = Some(vec![None, allowed(2)]);
    locked(&tears, || {
        let bytes = tears.content()?;
        file.settle(&tears, &bytes, &slots(&bytes))?;
        file.take_over(&tears, bytes).map(drop)
    })
    .unwrap();
    assert_eq!(decode(&tears.now.borrow()), allowed(4));
    assert_eq!(as_version_4_reads(&tears.now.borrow()), None);
    assert!(!holds_earlier_version(&tears.now.borrow()));
}

#[test]
fn a_hard_state_of_a_later_version_is_refused_and_a_damaged_version_is_not_one() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    file.refuse_later_version().unwrap();
    file.write(&hard_state(4)).unwrap();
    file.write(&hard_state(5)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 7;
    std::fs::write(&path, &bytes).unwrap();
    file.refuse_later_version().unwrap();
    bytes[8_192 + 8] = 7;
    std::fs::write(&path, &bytes).unwrap();
    let why = file.refuse_later_version().unwrap_err().to_string();
    assert!(
        why.starts_with("group-state has format version 7") && why.contains("up to 6"),
        "{why}"
    );
}

#[test]
fn only_a_member_in_recovery_is_kept_in_a_version_that_earlier_programs_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (HardStateFile::of(folder.path()), folder.path().join(NAME));
    let versions = || {
        let bytes = std::fs::read(&path).unwrap();
        let mut places = SLOTS.into_iter().flat_map(|at| [at, at + AGAIN]);
        std::array::from_fn(|_| version_at(&bytes, places.next().unwrap()))
    };
    let in_recovery = HardState { mode: Mode::Recovery, left_term: 3, ..hard_state(6) };
    file.write(&hard_state(4)).unwrap();
    file.write(&hard_state(5)).unwrap();
    assert_eq!(versions(), [Some(5); 4]);
    file.write(&in_recovery).unwrap();
    assert_eq!(file.read().unwrap(), Some(in_recovery));
    assert!(versions().contains(&Some(6)), "both copies of a slot say so");
    file.write(&in_recovery).unwrap();
    assert_eq!(versions(), [Some(6); 4], "and the vote of before is nowhere");
    for term in [7, 8] {
        file.write(&hard_state(term)).unwrap();
        assert_eq!(file.read().unwrap(), Some(hard_state(term)));
    }
    assert_eq!(versions(), [Some(5); 4]);
}

#[test]
fn a_disk_that_cannot_be_read_for_a_moment_does_not_hide_the_start_that_was_made_durable() {
    let folder = tempfile::tempdir().unwrap();
    let file = HardStateFile::of(folder.path());
    let membership = Membership { member: MemberId(1), members_count: 3 };
    file.write_start(&hard_state(4), Mark::default(), membership, 77).unwrap();
    let (there, away) = (folder.path().join(NAME), folder.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    std::fs::create_dir(&there).unwrap();
    assert_eq!(file.starts().unwrap().own().nonce, 77);
}

#[test]
fn a_file_that_cannot_be_read_is_none_that_is_missing_and_the_error_says_what_to_do() {
    for (name, away) in [(NAME, "move group-state away"), (NOTE, "group-committed and group-state")]
    {
        let folder = tempfile::tempdir().unwrap();
        let write = HardStateFile::of(folder.path());
        write.write(&hard_state(4)).unwrap();
        write.note_durably(&hard_state(4)).unwrap();
        // As a process that has written nothing.
        let file = HardStateFile::of(folder.path());
        let (there, aside) = (folder.path().join(name), folder.path().join("aside"));
        std::fs::rename(&there, &aside).unwrap();
        std::fs::create_dir(&there).unwrap();
        let why = file.read().unwrap_err();
        assert_eq!(why.kind(), ErrorKind::IsADirectory);
        assert!(why.to_string().starts_with(&format!("{name} cannot be read: ")), "{why}");
        assert!(why.to_string().contains(away), "{why}");
        if name == NAME {
            file.refuse_later_version().unwrap_err();
            file.mark().unwrap_err();
            file.owner().unwrap_err();
            file.starts().unwrap_err();
        }
        std::fs::remove_dir(&there).unwrap();
        std::fs::rename(&aside, &there).unwrap();
        assert_eq!(file.read().unwrap(), Some(hard_state(4)));
    }
}
