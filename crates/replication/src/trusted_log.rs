//! How far a hard state and the log beside it are believed at a start.
//!
//! Not here: reading the log back (the caller). Invariant: a log that is not the one for which the
//! promises were made, or lacks what was noted, gives no vote.

use std::path::Path;

use towline_admin::catalogue::GROUP_LOG_FORGOT;
use towline_group::{HardState, MemberId, RecoveredLog};

use crate::agreement::of_process_before;
use crate::hard_state_file::HardStateFile;
use crate::incarnation;
use towline_logging::log as say;

/// A log that was read back, and what of its hard state still counts.
#[derive(Debug)]
pub struct TrustedLog<L> {
    /// What counts.
    pub hard_state: HardState,
    /// What the member must know of the log.
    pub recovered: RecoveredLog,
    /// The log, as the caller read it back.
    pub log: L,
}

/// Reads the log back as far as its hard state bears it out: `read_back` gets the index up to which
/// batches behind the newest image are known to be committed; what follows may never have been. The
/// folder of another member gives no vote either: it knows nothing of what `this` promised.
///
/// # Errors
/// As `read_back`; what the disk said, and that a later version of Towline wrote the hard state, as
/// `refused` puts it.
pub fn read_back<L, E>(
    data: &Path,
    this: MemberId,
    hard_state_file: &HardStateFile,
    read_back: impl Fn(u64) -> Result<(L, RecoveredLog), E>,
    refused: impl Fn(std::io::Error) -> E,
) -> Result<TrustedLog<L>, E> {
    hard_state_file.refuse_later_version().map_err(&refused)?;
    // Without any hard state that is whole, it is not known what was promised, nor in which
    // term.
    let hard_state = hard_state_file.read().map_err(&refused)?.unwrap_or_default();
    let hard_state = of_process_before(hard_state);
    let owner = hard_state_file.owner().map_err(&refused)?;
    let is_ours = owner.is_none_or(|owner| owner == this);
    let mark = hard_state_file.mark().map_err(&refused)?;
    let is_own = is_ours && incarnation::is_own(data, mark).map_err(&refused)?;
    // While it may not vote, its note is owed, not had.
    let known = if is_own && hard_state.may_vote { hard_state.committed } else { 0 };
    let (log, recovered) = read_back(known)?;
    let has_noted = recovered.has(&hard_state);
    let is_older = hard_state.is_older_than(recovered.last());
    let judged = judged(hard_state, is_own && !is_older, has_noted);
    if judged == hard_state || !hard_state.may_vote {
        return Ok(TrustedLog { hard_state: judged, recovered, log });
    }
    let last = recovered.last().index.to_string();
    let noted = hard_state.committed.to_string();
    let what = match (is_ours, is_own && !is_older) {
        (false, _) => "the data folder of another instance",
        (true, true) => "an older copy of its log",
        (true, false) => "another log, or another hard state",
    };
    say(&GROUP_LOG_FORGOT, &[what, &last, &noted]);
    if known == 0 {
        return Ok(TrustedLog { hard_state: judged, recovered, log });
    }
    drop(log);
    let (log, recovered) = read_back(0)?;
    Ok(TrustedLog { hard_state: judged, recovered, log })
}

/// What still counts of a hard state, beside this log. Which of both is an older one cannot be
/// known, so neither the vote nor the term is believed; what is owed is.
fn judged(hard_state: HardState, is_own: bool, has_noted: bool) -> HardState {
    // While it has no vote it is known to lack what was noted.
    if is_own && (has_noted || !hard_state.may_vote) { hard_state } else { hard_state.forgotten() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use towline_os::simulated::crash;
    use towline_os::simulated::fs::{FileSystem, Verdict};

    use super::*;

    const EIO: i32 = 5;

    #[test]
    fn the_data_folder_of_another_instance_gives_no_vote() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        std::fs::create_dir(data.join("log")).unwrap();
        let file = HardStateFile::of(data);
        let voting =
            HardState { term: 7, may_vote: true, knows_term: true, ..HardState::default() };
        incarnation::renew(data, &file, &voting, MemberId(2), 11).unwrap();
        for (this, is_trusted) in [(MemberId(2), true), (MemberId(1), false)] {
            let log = |_| Ok(((), RecoveredLog::default()));
            let read = read_back(data, this, &file, log, |error| error).unwrap();
            let HardState { may_vote, knows_term, .. } = read.hard_state;
            assert_eq!((may_vote, knows_term), (is_trusted, is_trusted), "as {this:?}");
        }
    }

    #[test]
    fn a_disk_that_cannot_be_read_for_a_moment_refuses_the_start_and_does_not_take_its_vote() {
        const DATA: &str = "/data";
        let voting =
            HardState { term: 7, may_vote: true, knows_term: true, ..HardState::default() };
        let noted = HardState { committed: 9, ..voting };
        let start = || {
            let (data, log) = (Path::new(DATA), |_| Ok(((), RecoveredLog::default())));
            let file = HardStateFile::of(data);
            let read = read_back(data, MemberId(2), &file, log, |error| error);
            let starts = file.starts();
            read.and_then(|read| Ok((read.hard_state, starts?.own().nonce)))
        };
        let files = FileSystem::new();
        assert!(files.make_folder("/data/log"));
        let before = move || {
            let (data, file) = (Path::new(DATA), HardStateFile::of(Path::new(DATA)));
            incarnation::renew(data, &file, &voting, MemberId(2), 11).unwrap();
            file.note_durably(&noted).unwrap();
        };
        crash::in_process(&files, 1, before).unwrap();
        let sound = crash::in_process(&files, 1, start).unwrap().unwrap();
        for (number, refusals) in (1..).zip(0..) {
            let files = files.copy();
            let was_met = Arc::new(AtomicBool::new(false));
            let met = Arc::clone(&was_met);
            files.set_faults(move |operation| {
                let fails = operation.number == number;
                met.fetch_or(fails, Ordering::Relaxed);
                if fails { Verdict::Fails(EIO) } else { Verdict::Goes }
            });
            let found = crash::in_process(&files, number, start).unwrap();
            if !was_met.load(Ordering::Relaxed) {
                assert_eq!(found.unwrap(), sound);
                assert!(refusals > 6, "each file is read, and by several steps");
                return;
            }
            let why = found.expect_err("at each of its operations").to_string();
            assert!(why.contains("cannot be read") || why.contains("os error 5"), "{why}");
        }
    }

    #[test]
    fn an_empty_disk_gives_no_vote() {
        let folder = tempfile::tempdir().unwrap();
        let file = HardStateFile::of(folder.path());
        let log = |_| Ok(((), RecoveredLog::default()));
        let read = read_back(folder.path(), MemberId(1), &file, log, |error| error).unwrap();
        let HardState { may_vote, knows_term, .. } = read.hard_state;
        assert_eq!((may_vote, knows_term), (false, false));
    }

    #[test]
    fn beside_another_log_neither_vote_nor_term_is_believed_and_without_a_vote_only_the_number_tells()
     {
        let voting = HardState { term: 7, may_vote: true, committed: 9, ..HardState::default() };
        assert_eq!(judged(voting, true, true), voting);
        for (is_own, has) in [(false, true), (true, false), (false, false)] {
            let judged = judged(voting, is_own, has);
            assert_eq!((judged.may_vote, judged.has_newest_term()), (false, false));
            assert_eq!((judged.term, judged.committed), (7, 9), "what is owed stays");
        }
        // It took a copy, or ended before it had caught up.
        let catches_up = voting.without_vote();
        assert_eq!(judged(catches_up, true, false), catches_up);
        assert!(!judged(catches_up, false, true).has_newest_term());
        assert!(!judged(HardState::default(), true, true).has_newest_term(), "there is none");
    }
}
