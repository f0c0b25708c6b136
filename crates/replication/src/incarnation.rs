//! Whether the log in a data folder is the one for which its hard state was kept.
//!
//! The promises of a member (votes, acknowledged batches) are in `group-state`, and the log that
//! they are about is in `log`. A log that was replaced, restored, or put back from an older copy
//! lacks what was acknowledged, and must not help to elect an instance that lacks it too. So each
//! start of a process draws a random number, the *incarnation*, and makes it durable in both:
//!
//! ```text
//! 1  group-state: incarnation C, next N     2  log/incarnation: N      3  group-state: incarnation N
//! ```
//!
//! Nothing is promised before the third step. A crash in between leaves C or N in the log folder,
//! and both are named by `group-state`; any other number is that of another log, or of another hard
//! state.
//!
//! A copy has no number. The process that takes it gives it one, and names that as the next one,
//! when the copy holds everything that was promised. For a copy that gives no vote yet,
//! `group-state` says beforehand that a log without a number follows (`UNNUMBERED`): the hard state
//! is known to be the newest, and with it the term.
//!
//! ```text
//! log/incarnation, 32 bytes, replaced whole; on a full disk written over
//!   0   8  magic "TOWLINEI"
//!   8   2  format version (this offset and the checksum's never move)
//!   10  6  zero
//!   16  8  incarnation, never 0
//!   24  4  zero
//!   28  4  CRC-32C of bytes 0..28
//! ```
//!
//! Not here: a log that is shorter than what was noted as committed
//! (`towline_group::RecoveredLog::has`). This does not recognise a copy of log *and* hard state
//! together (a snapshot of the volume), nor a copy of the log that was made since the last start.
//! The other instances recognise both: the number is also that of the process's
//! [`towline_group::Start`], which is kept with the first step.

use std::io::{ErrorKind, Write};
use std::path::Path;

use towline_group::HardState;
use towline_os::fs::{self, File, FileExt};

use crate::hard_state_file::{HardStateFile, Mark};
use crate::membership::Membership;

const LOG: &str = "log";
const NAME: &str = "incarnation";
const NEW_NAME: &str = "incarnation-new";
const MAGIC: &[u8; 8] = b"TOWLINEI";
const VERSION: u16 = 1;
const NUMBER_AT: usize = 16;
const SUMMED_BYTES: usize = 28;
const BYTES: usize = 32;
/// Stands for a copy, which has no number, that replaces the log; never drawn.
const UNNUMBERED: u64 = u64::MAX;

/// Whether the log in `data` is the one of this hard state.
///
/// A log without a number is that of a hard state that knows none: both are of a version before
/// this one. A number that cannot be read is none of ours.
///
/// # Errors
/// What the disk said.
pub fn is_own(data: &Path, mark: Mark) -> std::io::Result<bool> {
    Ok(read(data)?.is_some_and(|number| knows(mark, number)))
}

fn read(data: &Path) -> std::io::Result<Option<u64>> {
    match fs::read(data.join(LOG).join(NAME)) {
        Ok(bytes) => Ok(decode(&bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

fn knows(mark: Mark, number: u64) -> bool {
    match number {
        0 => mark.incarnation == 0 || mark.next == UNNUMBERED,
        number => number == mark.incarnation || number == mark.next,
    }
}

/// Gives log and hard state of this member a new number, and makes `hard_state` durable with the
/// first step. The log is this process's alone.
///
/// # Errors
/// What the disk said; then nothing may be promised.
pub fn renew(
    data: &Path,
    hard_state_file: &HardStateFile,
    hard_state: &HardState,
    membership: Membership,
    drawn: u64,
) -> std::io::Result<()> {
    let next = drawn.clamp(1, UNNUMBERED - 1);
    let before = hard_state_file.mark()?;
    // After a crash behind the second step it is the next one of that start.
    let incarnation = match read(data)?.filter(|number| knows(before, *number)) {
        Some(number) => number,
        // The hard state is lost, and the log alone is believed, as in a group of one. First the
        // log's number: a crash before the hard state has it leaves one that is lost, and the next
        // start believes the log again.
        None if hard_state.may_vote => {
            write(&data.join(LOG), next)?;
            next
        }
        None => before.incarnation,
    };
    let mark = Mark { incarnation, next, ..before };
    hard_state_file.write_start(hard_state, mark, membership, next)?;
    write(&data.join(LOG), next)?;
    let starts = before.starts.saturating_add(1);
    hard_state_file.write_marked(hard_state, Mark { incarnation: next, next: 0, starts })
}

/// A copy, which is whole in `log`, is about to replace the log. The hard state stays
/// the newest there is, with the old log or with the copy: one that may vote with either gets its
/// number beforehand, so that no third log can pass for it.
///
/// # Errors
/// What the disk said.
pub fn expect_copy(
    log: &Path,
    hard_state_file: &HardStateFile,
    hard_state: &HardState,
    drawn: u64,
) -> std::io::Result<()> {
    let mark = hard_state_file.mark()?;
    if !hard_state.may_vote {
        return hard_state_file.write_marked(hard_state, Mark { next: UNNUMBERED, ..mark });
    }
    let next = drawn.clamp(1, UNNUMBERED - 1);
    write(log, next)?;
    hard_state_file.write_marked(hard_state, Mark { next, ..mark })
}

/// Makes the log that is there the one of this hard state, whatever it was before: the vote in
/// `hard_state` becomes durable with the last step. The group has so many members.
///
/// # Errors
/// What the disk said; then the vote is as it was.
pub fn adopt(
    data: &Path,
    hard_state_file: &HardStateFile,
    hard_state: &HardState,
    (members_count, drawn): (usize, u64),
) -> std::io::Result<()> {
    let next = drawn.clamp(1, UNNUMBERED - 1);
    let starts = hard_state_file.mark()?.starts;
    write(&data.join(LOG), next)?;
    let mark = Mark { incarnation: next, next: 0, starts };
    hard_state_file.write_forced(hard_state, mark, members_count)
}

fn write(log: &Path, number: u64) -> std::io::Result<()> {
    write_by(log, number, write_anew)
}

fn write_by(
    log: &Path,
    number: u64,
    write_anew: impl Fn(&Path, &[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let bytes = encode(number);
    match write_anew(log, &bytes) {
        // An instance with a full disk must start all the same: only gets free space.
        Err(error) if is_full(&error) => write_over(log, &bytes, error),
        written => written,
    }
}

fn write_anew(log: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = log.join(NEW_NAME);
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, log.join(NAME))?;
    File::open(log)?.sync_all()
}

/// Overwrites the number that is there, which has its block. Power that goes in the middle of
/// this one sector leaves the number of no log, and so an instance without a vote until it has
/// caught up.
fn write_over(log: &Path, bytes: &[u8], full: std::io::Error) -> std::io::Result<()> {
    // A file that was begun takes free space. If it stays, the next start empties it.
    fs::remove_file(log.join(NEW_NAME)).ok();
    let file = match File::options().write(true).open(log.join(NAME)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(full),
        opened => opened?,
    };
    if file.metadata()?.len() != bytes.len() as u64 {
        return Err(full);
    }
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn encode(number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 6]);
    assert_eq!(bytes.len(), NUMBER_AT, "as it is drawn");
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    assert_eq!(bytes.len(), SUMMED_BYTES, "as it is drawn");
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let summed = bytes.get(..SUMMED_BYTES).filter(|_| bytes.len() == BYTES)?;
    let sum = u32::from_le_bytes(bytes.get(SUMMED_BYTES..)?.try_into().ok()?);
    let version = u16::from_le_bytes(summed.get(8..10)?.try_into().ok()?);
    let number = u64::from_le_bytes(summed.get(NUMBER_AT..NUMBER_AT + 8)?.try_into().ok()?);
    let is_right = summed.starts_with(MAGIC) && version == VERSION && sum == crc32c::crc32c(summed);
    (is_right && number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;

    use super::*;

    const ME: Membership = Membership { member: towline_group::MemberId(1), members_count: 3 };

    /// Seed 51 of the simulator's kind `one`: an instance killed in the start after its hard state
    /// was lost had a vote for another log, and served no client.
    #[test]
    fn a_crash_in_the_start_that_believes_a_log_without_its_hard_state_leaves_it_believed() {
        let data = Path::new("/data");
        let hard_state =
            HardState { term: 3, may_vote: true, knows_term: true, ..HardState::default() };
        let begins = |number| {
            move || renew(data, &HardStateFile::of(data), &hard_state, ME, number).unwrap()
        };
        let system = FileSystem::new();
        system.make_folder(data.join(LOG));
        crash::in_process(&system, 1, begins(11)).unwrap();
        assert!(system.remove(data.join("group-state")));
        system.sync();
        let runs = crash::at_each_operation(&system, 6, begins(12), |left, run| {
            let is_believed = move || {
                let file = HardStateFile::of(data);
                file.read().unwrap().is_none() || is_own(data, file.mark().unwrap()).unwrap()
            };
            assert!(crash::in_process(left, 1, is_believed).unwrap(), "{run}");
        });
        assert!(runs > 20, "{runs}");
    }

    #[test]
    fn a_crash_or_a_power_cut_at_any_operation_of_a_start_leaves_a_log_that_is_ones_own() {
        let data = Path::new("/data");
        let hard_state = HardState { term: 3, may_vote: true, ..HardState::default() };
        let starts = |number| {
            move || renew(data, &HardStateFile::of(data), &hard_state, ME, number).unwrap()
        };
        let system = FileSystem::new();
        system.make_folder(data.join(LOG));
        crash::in_process(&system, 1, starts(11)).unwrap();
        // What it left is durable by itself: no sync of the whole system here.
        let runs = crash::at_each_operation(&system, 6, starts(12), |left, run| {
            let is_own = move || is_own(data, HardStateFile::of(data).mark().unwrap()).unwrap();
            let found = crash::in_process(left, 1, is_own);
            assert!(found.unwrap(), "{run}");
        });
        assert!(runs > 10 * 2 * 7, "{runs}");
    }

    fn folder() -> (tempfile::TempDir, HardStateFile) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(LOG)).unwrap();
        let file = HardStateFile::of(folder.path());
        (folder, file)
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::copy(from, to).unwrap();
    }

    #[test]
    fn the_log_of_the_last_start_is_ones_own_and_that_of_an_earlier_one_is_not() {
        let (folder, file) = folder();
        let data = folder.path();
        let own = || is_own(data, file.mark().unwrap()).unwrap();
        let hard_state = HardState { term: 3, may_vote: true, ..HardState::default() };
        assert!(own(), "neither has a number: both are of a version before this one");
        renew(data, &file, &hard_state, ME, 11).unwrap();
        assert_eq!((own(), file.read().unwrap()), (true, Some(hard_state)));
        let number = data.join(LOG).join(NAME);
        let (older, state) = (data.join("older"), data.join("older-state"));
        copy(&number, &older);
        copy(&data.join("group-state"), &state);
        renew(data, &file, &hard_state, ME, 12).unwrap();
        assert_eq!((own(), file.mark().unwrap().starts), (true, 2));
        copy(&older, &number);
        assert!(!own(), "an older log");
        std::fs::remove_file(&number).unwrap();
        assert!(!own(), "a blank log, or one of before the first number");
        renew(data, &file, &hard_state, ME, 13).unwrap();
        copy(&state, &data.join("group-state"));
        assert!(!own(), "an older hard state");
        std::fs::remove_file(data.join("group-state")).unwrap();
        assert!(!own(), "no hard state");
    }

    #[test]
    fn a_copy_leaves_the_hard_state_the_newest_and_an_older_log_instead_does_not() {
        let (folder, file) = folder();
        let data = folder.path();
        let own = || is_own(data, file.mark().unwrap()).unwrap();
        let hard_state = HardState { term: 3, may_vote: true, ..HardState::default() };
        renew(data, &file, &hard_state, ME, 31).unwrap();
        let number = data.join(LOG).join(NAME);
        let older = data.join("older");
        copy(&number, &older);
        renew(data, &file, &hard_state, ME, 32).unwrap();
        expect_copy(&data.join("copy"), &file, &hard_state.without_vote(), 0).unwrap();
        assert_eq!(file.read().unwrap(), Some(hard_state.without_vote()));
        assert!(hard_state.without_vote().has_newest_term());
        assert!(own(), "a crash before the copy is in its place");
        let newest = std::fs::read(&number).unwrap();
        copy(&older, &number);
        assert!(!own(), "an older log");
        std::fs::remove_file(&number).unwrap();
        assert!(own(), "the copy, which has no number");
        renew(data, &file, &hard_state, ME, 33).unwrap();
        std::fs::remove_file(&number).unwrap();
        assert!(!own(), "a log that was emptied by hand, one start later");
        std::fs::write(&number, newest).unwrap();
        assert!(!own());
        assert_eq!(file.mark().unwrap().incarnation, 33);
        renew(data, &file, &hard_state, ME, UNNUMBERED).unwrap();
        assert_ne!(file.mark().unwrap().incarnation, UNNUMBERED, "it is never drawn");
    }

    #[test]
    fn a_copy_that_votes_is_known_by_its_number_and_so_is_the_log_before_it_but_no_empty_one() {
        let (folder, file) = folder();
        let data = folder.path();
        let own = || is_own(data, file.mark().unwrap()).unwrap();
        let hard_state = HardState { term: 3, may_vote: true, ..HardState::default() };
        renew(data, &file, &hard_state, ME, 41).unwrap();
        let copied = data.join("copied");
        std::fs::create_dir(&copied).unwrap();
        expect_copy(&copied, &file, &hard_state, 42).unwrap();
        assert_eq!(
            (own(), file.read().unwrap()),
            (true, Some(hard_state)),
            "a crash before it is in its place"
        );
        let number = data.join(LOG).join(NAME);
        std::fs::remove_file(&number).unwrap();
        assert!(!own(), "an empty log");
        copy(&copied.join(NAME), &number);
        assert!(own(), "the copy");
        renew(data, &file, &hard_state, ME, 43).unwrap();
        copy(&copied.join(NAME), &number);
        assert!(!own(), "the same copy, put back one start later");
    }

    #[test]
    fn a_crash_between_any_two_steps_leaves_a_log_that_is_ones_own() {
        let (folder, file) = folder();
        let data = folder.path();
        let own = || is_own(data, file.mark().unwrap()).unwrap();
        let hard_state = HardState { may_vote: true, ..HardState::default() };
        renew(data, &file, &hard_state, ME, 21).unwrap();
        let mark = file.mark().unwrap();
        file.write_marked(&hard_state, Mark { next: 22, ..mark }).unwrap();
        assert!(own(), "after the first step");
        std::fs::write(data.join(LOG).join(NEW_NAME), b"torn").unwrap();
        assert!(own(), "in the second one");
        write(&data.join(LOG), 22).unwrap();
        assert!(own(), "after the second one");
        // The next start ends in the same way, behind its first step.
        std::fs::create_dir(data.join(LOG).join(NEW_NAME)).unwrap();
        renew(data, &file, &hard_state, ME, 24).unwrap_err();
        assert!(own(), "after the first step of another start");
        std::fs::remove_dir(data.join(LOG).join(NEW_NAME)).unwrap();
        renew(data, &file, &hard_state, ME, 23).unwrap();
        assert!(own());
        write(&data.join(LOG), 22).unwrap();
        assert!(!own(), "that start was never taken part with, and is over");
    }

    #[test]
    fn on_a_full_disk_the_number_is_written_over_and_a_first_one_is_refused_for_that() {
        let (folder, file) = folder();
        let data = folder.path();
        let log = folder.path().join(LOG);
        let full = |log: &Path, _: &[u8]| {
            std::fs::write(log.join(NEW_NAME), b"").unwrap();
            Err(ErrorKind::StorageFull.into())
        };
        let refused = write_by(&log, 50, full).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "there is none to write over");
        let hard_state = HardState { may_vote: true, ..HardState::default() };
        renew(data, &file, &hard_state, ME, 51).unwrap();
        let older = std::fs::read(log.join(NAME)).unwrap();
        file.write_marked(&hard_state, Mark { next: 52, ..file.mark().unwrap() }).unwrap();
        write_by(&log, 52, full).unwrap();
        assert_eq!(read(data).unwrap(), Some(52));
        assert!(is_own(data, file.mark().unwrap()).unwrap());
        assert!(!log.join(NEW_NAME).exists(), "what was begun takes no space");
        renew(data, &file, &hard_state, ME, 53).unwrap();
        std::fs::write(log.join(NAME), older).unwrap();
        assert!(!is_own(data, file.mark().unwrap()).unwrap(), "an older log");
        let denied = |_: &Path, _: &[u8]| Err(ErrorKind::PermissionDenied.into());
        write_by(&log, 54, denied).unwrap_err();
        assert_eq!(read(data).unwrap(), Some(51), "nothing is written over for another reason");
    }

    #[test]
    fn a_number_with_any_flipped_or_missing_bit_is_refused() {
        let whole = encode(77);
        assert_eq!((decode(&whole), whole.len()), (Some(77), BYTES));
        for bit in 0..8 * BYTES {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
        assert!((0..BYTES).all(|length| decode(&whole[..length]).is_none()));
        assert_eq!(decode(&encode(0)), None);
    }
}
