//! Which group the log in a data folder belongs to, and which id it gets.
//!
//! The id of a log is in its extents, images and checks. The groups of two regions hold the same
//! log, so a new one gets an id of the queue manager's name alone ([`crate::membership::log_id`]);
//! one that was made otherwise (by an earlier version, or in no group) keeps its id, and an
//! instance with an empty log takes that of the others. So an id does not name a group. Two
//! files in the log folder do, beside `incarnation`, each written whole:
//!
//! ```text
//! log/group   the name of the group, and how many members it had when this instance voted in it
//!             last, or more since: two lines
//! log/log-id  the id of the log that is to be made here: 32 hexadecimal digits
//! ```
//!
//! They go where the log goes: a folder that was copied to another group is refused there, and so
//! is a log alone. A copy has neither, and is known by its incarnation.
//!
//! Not here: whether the log is the one of the hard state (`incarnation`). Invariants: a log with
//! batches never gets another id; the name is written once.

use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;

use towline_group::HardState;
use towline_log::LogId;
use towline_os::fs::{self, File};

use crate::hard_state_file::HardStateFile;
use crate::incarnation;
use crate::log_swap;

const LOG: &str = "log";
const GROUP: &str = "group";
const ID: &str = "log-id";

/// Which group a log belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOwner {
    /// Name of the group.
    pub group: String,
    /// Members that it had.
    pub members_count: usize,
}

/// The group of the log in a data folder; `None`: it does not say one. That of an earlier version
/// does not, nor that of a queue manager in no group, nor a copy, nor a backup that was restored.
///
/// # Errors
/// The disk cannot be read, or the file is damaged.
pub fn owner(data: &Path) -> Result<Option<LogOwner>> {
    let Some(text) = text_of(data, GROUP)? else { return Ok(None) };
    let owner = text.split_once('\n').and_then(|(group, count)| {
        let members_count = count.trim_end().parse().ok()?;
        Some(LogOwner { group: group.to_owned(), members_count })
    });
    match owner {
        Some(owner) => Ok(Some(owner)),
        None => Err(damaged(GROUP, "it names no group")),
    }
}

/// Notes to which group the log belongs. The number of members becomes smaller only with a vote:
/// until then it says that others may have gone on without this instance.
///
/// # Errors
/// What the disk said; not that it is full: gets free space, and the next start tries again.
pub fn note_owner(data: &Path, group: &str, members_count: usize, may_vote: bool) -> Result<()> {
    let noted = owner(data)?;
    let is_news = noted.is_none_or(|noted| match may_vote {
        true => noted.members_count != members_count,
        false => noted.members_count < members_count,
    });
    if !is_news {
        return Ok(());
    }
    match write(&data.join(LOG), GROUP, &format!("{group}\n{members_count}\n")) {
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            tracing::warn!(%error, "the name of the group cannot be written beside the log");
            Ok(())
        }
        written => written,
    }
}

/// Whether this log, which says no group, may be that of a group that would make one with the id
/// `made`, or made one with the id `before`: it has one of these ids, or the one that it was to
/// get, or this instance took it as a copy.
///
/// # Errors
/// The disk cannot be read.
pub fn may_be_of_group(
    data: &Path,
    hard_state_file: &HardStateFile,
    id: LogId,
    [made, before]: [LogId; 2],
) -> Result<bool> {
    if id == made || id == before || wanted_id(data)? == Some(id) {
        return Ok(true);
    }
    let has_promised = hard_state_file.read()?.is_some();
    Ok(has_promised && incarnation::is_own(data, hard_state_file.mark()?)?)
}

/// The id that a log is to get that is made in this folder, if one was said.
///
/// # Errors
/// The disk cannot be read, or the file is damaged.
pub fn wanted_id(data: &Path) -> Result<Option<LogId>> {
    let Some(text) = text_of(data, ID)? else { return Ok(None) };
    match u128::from_str_radix(text.trim_end(), 16) {
        Ok(id) => Ok(Some(LogId(id))),
        Err(_) => Err(damaged(ID, "it holds no id")),
    }
}

/// The log of this instance is empty, and is to have this id: the next start makes it anew. The
/// promises stand: they are about no batch. `drawn` is a random number.
///
/// # Errors
/// What the disk said: the log is as it was.
pub(crate) fn replace_empty(
    data: &Path,
    id: LogId,
    hard_state: &HardState,
    drawn: u64,
) -> Result<()> {
    let made = log_swap::begin(data)?;
    let log = made.join(LOG);
    write(&log, ID, &format!("{:032x}\n", id.0))?;
    if let Some(LogOwner { group, members_count }) = owner(data)? {
        write(&log, GROUP, &format!("{group}\n{members_count}\n"))?;
    }
    // The folder's own name must be there before it gets another one.
    File::open(&made)?.sync_all()?;
    log_swap::hand_in(data, &made, hard_state, drawn)
}

fn text_of(data: &Path, name: &str) -> Result<Option<String>> {
    match fs::read(data.join(LOG).join(name)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(error.kind(), format!("{LOG}/{name}: {error}"))),
    }
}

fn damaged(name: &str, why: &str) -> Error {
    let text = format!("{LOG}/{name} is damaged: {why}; if the folder is the right one, remove it");
    Error::new(ErrorKind::InvalidData, text)
}

fn write(log: &Path, name: &str, text: &str) -> Result<()> {
    let new = log.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, log.join(name))?;
    File::open(log)?.sync_all()
}

#[cfg(test)]
mod tests {
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;

    use super::*;
    use crate::membership::Membership;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(LOG)).unwrap();
        folder
    }

    fn noted(data: &Path) -> (String, usize) {
        let LogOwner { group, members_count } = owner(data).unwrap().unwrap();
        (group, members_count)
    }

    #[test]
    fn a_log_names_its_group_once_and_has_fewer_members_only_with_a_vote() {
        let folder = folder();
        let data = folder.path();
        assert_eq!(owner(data).unwrap(), None);
        for (count, may_vote, then) in
            [(3, false, 3), (1, false, 3), (1, true, 1), (3, false, 3), (3, true, 3)]
        {
            note_owner(data, "G", count, may_vote).unwrap();
            assert_eq!(noted(data), ("G".to_owned(), then), "{count} {may_vote}");
        }
        std::fs::write(data.join("log/group"), "G").unwrap();
        assert!(owner(data).unwrap_err().to_string().contains("log/group is damaged"));
    }

    #[test]
    fn a_log_that_names_no_group_is_known_by_its_id_or_as_a_copy() {
        let folder = folder();
        let data = folder.path();
        let file = HardStateFile::of(data);
        let ids = [LogId(1), LogId(2)];
        let may_be = |id| may_be_of_group(data, &file, LogId(id), ids).unwrap();
        assert_eq!([1, 2, 3].map(may_be), [true, true, false]);
        std::fs::write(data.join("log/log-id"), "00000000000000000000000000000003\n").unwrap();
        assert_eq!([3, 4].map(may_be), [true, false]);
        let membership = Membership { member: towline_group::MemberId(1), members_count: 3 };
        let hard_state = HardState { may_vote: true, ..HardState::default() };
        incarnation::renew(data, &file, &hard_state, membership, 7).unwrap();
        assert!(may_be(4), "this instance has it since its last start");
        incarnation::expect_copy(&data.join(LOG), &file, &hard_state.without_vote(), 8).unwrap();
        std::fs::remove_file(data.join("log/incarnation")).unwrap();
        assert!(may_be(4), "it took it as a copy");
        file.write(&hard_state).unwrap();
        std::fs::write(data.join("log/incarnation"), "of another").unwrap();
        assert!(!may_be(4));
    }

    #[test]
    fn a_crash_at_any_operation_leaves_the_empty_log_or_one_with_the_other_id_and_the_promises() {
        let data = Path::new("/data");
        let hard_state = HardState { term: 3, may_vote: true, ..HardState::default() };
        let membership = Membership { member: towline_group::MemberId(1), members_count: 3 };
        let system = FileSystem::new();
        system.make_folder(data.join(LOG));
        let begins = move || {
            let file = HardStateFile::of(data);
            incarnation::renew(data, &file, &hard_state, membership, 11).unwrap();
            note_owner(data, "G", 3, true).unwrap();
        };
        crash::in_process(&system, 1, begins).unwrap();
        system.sync();
        let replaces = move || replace_empty(data, LogId(9), &hard_state, 12).unwrap();
        let runs = crash::at_each_operation(&system, 6, replaces, |left, run| {
            let next = move || {
                log_swap::settle(data, "marker").unwrap();
                let mark = HardStateFile::of(data).mark().unwrap();
                let is_own = incarnation::is_own(data, mark).unwrap();
                (is_own, owner(data).unwrap(), wanted_id(data).unwrap())
            };
            let (is_own, owner, wanted) = crash::in_process(left, 1, next).unwrap();
            assert!(is_own, "{run}");
            assert_eq!(owner, Some(LogOwner { group: "G".into(), members_count: 3 }), "{run}");
            assert!(wanted.is_none_or(|id| id == LogId(9)), "{run}");
        });
        assert!(runs > 50, "{runs}");
    }
}
