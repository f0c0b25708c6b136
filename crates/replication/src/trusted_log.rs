//! How far a hard state and the log beside it are believed at a start.
//!
//! Not here: reading the log back (the caller). Invariant: a log that is not the one for which the
//! promises were made, or lacks what was noted, gives no vote.
//!
//! A group of one has no other instance that it could learn from, so that less makes it wait: see
//! `KeptPromises::judged_alone`.

use std::path::Path;

use towline_admin::catalogue::{GROUP_ALONE_WITHOUT_VOTE, GROUP_LOG_FORGOT};
use towline_group::{HardState, RecoveredLog};

use crate::agreement::of_process_before;
use crate::hard_state_file::HardStateFile;
use crate::incarnation;
use crate::log_identity;
use crate::membership::Membership;
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
/// folder of another member gives no vote either: it knows nothing of what this one promised.
///
/// # Errors
/// As `read_back`; what the disk said, and that a later version of Towline wrote the hard state, as
/// `refused` puts it.
pub fn read_back<L, E>(
    data: &Path,
    membership: Membership,
    hard_state_file: &HardStateFile,
    read_back: impl Fn(u64) -> Result<(L, RecoveredLog), E>,
    refused: impl Fn(std::io::Error) -> E,
) -> Result<TrustedLog<L>, E> {
    hard_state_file.refuse_later_version().map_err(&refused)?;
    let kept = KeptPromises::read(data, membership, hard_state_file).map_err(&refused)?;
    let hard_state = kept.hard_state;
    // While it may not vote, its note is owed, not had.
    let known = if kept.is_own && hard_state.may_vote { hard_state.committed } else { 0 };
    let (log, recovered) = read_back(known)?;
    let has_noted = recovered.has(&hard_state);
    let is_older = hard_state.is_older_than(recovered.last());
    let judged = match membership.is_alone() {
        true => kept.judged_alone(&recovered),
        false => judged(hard_state, kept.is_own && !is_older, has_noted),
    };
    let is_news = judged != hard_state && hard_state.may_vote;
    if !judged.may_vote && (is_news || membership.is_alone()) {
        kept.say_no_vote(membership, is_older, &recovered);
    }
    if !is_news || known == 0 {
        return Ok(TrustedLog { hard_state: judged, recovered, log });
    }
    drop(log);
    let (log, recovered) = read_back(0)?;
    Ok(TrustedLog { hard_state: judged, recovered, log })
}

/// What was kept beside a log, and whether it is about this log and this instance.
struct KeptPromises {
    /// Without any hard state that is whole, it is not known what was promised, nor in which term:
    /// it has at most what was noted as committed then.
    hard_state: HardState,
    /// There is none that is whole.
    is_lost: bool,
    /// The folder is that of this instance, in a group of as many members if that is one.
    is_ours: bool,
    /// And the log in it is the one that the promises are about.
    is_own: bool,
}

impl KeptPromises {
    fn read(
        data: &Path,
        membership: Membership,
        hard_state_file: &HardStateFile,
    ) -> std::io::Result<KeptPromises> {
        let kept = hard_state_file.read()?;
        let lost = || {
            let noted = hard_state_file.noted()?.filter(|_| membership.is_alone());
            let HardState { committed, committed_end, .. } = noted.unwrap_or_default();
            Ok::<_, std::io::Error>(HardState { committed, committed_end, ..HardState::default() })
        };
        let hard_state = of_process_before(kept.map_or_else(lost, Ok)?);
        let owner = hard_state_file.owner()?;
        // Two others may have gone on without it.
        let noted = log_identity::owner(data)?.map(|owner| owner.members_count);
        let kept_count = hard_state_file.members_count()?;
        let had_others = kept_count.or(noted).is_some_and(|count| count > 1);
        let is_ours = owner.is_none_or(|owner| owner == membership.member)
            && !(membership.is_alone() && had_others);
        let is_own = is_ours && incarnation::is_own(data, hard_state_file.mark()?)?;
        Ok(KeptPromises { hard_state, is_lost: kept.is_none(), is_ours, is_own })
    }

    /// What counts in a group of one. No other instance knows more, or has more: what its log holds
    /// is what there is, and the newest term is above those in it. So it needs no hard state, and
    /// begins with an empty folder. But a log that is *known* to lack something gives no vote:
    /// clients must not be served as if nothing were missing before an operator has decided that.
    fn judged_alone(&self, recovered: &RecoveredLog) -> HardState {
        let hard_state = self.hard_state;
        let last = recovered.last();
        let has_noted = recovered.has(&hard_state);
        let never_promised = (last.index, hard_state.term, hard_state.committed) == (0, 0, 0);
        // Not where the log was that of one of three: the others may know, and have, more.
        if never_promised || (self.is_lost && self.is_ours && has_noted) {
            return HardState { may_vote: true, knows_term: true, ..hard_state };
        }
        if self.is_own && has_noted && hard_state.may_vote {
            hard_state
        } else {
            hard_state.forgotten()
        }
    }

    fn say_no_vote(&self, membership: Membership, is_older: bool, recovered: &RecoveredLog) {
        let last = recovered.last().index.to_string();
        let noted = self.hard_state.committed.to_string();
        let has_noted = recovered.has(&self.hard_state);
        if membership.is_alone() {
            let what = match (self.is_ours, has_noted) {
                (false, _) => "the data folder of another instance, or of one of three",
                (true, false) => "a log that lacks what was committed",
                (true, true) => "another log than the one that it had",
            };
            return say(&GROUP_ALONE_WITHOUT_VOTE, &[what, &last, &noted]);
        }
        let what = match (self.is_ours, self.is_own && !is_older) {
            (false, _) => "the data folder of another instance",
            (true, true) => "an older copy of its log",
            (true, false) => "another log, or another hard state",
        };
        say(&GROUP_LOG_FORGOT, &[what, &last, &noted]);
    }
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

    use towline_group::MemberId;
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::{FileSystem, Verdict};
    use towline_types::{BatchPlace, Lsn};

    use super::*;

    const EIO: i32 = 5;

    fn of_three(member: u64) -> Membership {
        Membership { member: MemberId(member), members_count: 3 }
    }

    #[test]
    fn the_data_folder_of_another_instance_gives_no_vote() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        std::fs::create_dir(data.join("log")).unwrap();
        let file = HardStateFile::of(data);
        let voting =
            HardState { term: 7, may_vote: true, knows_term: true, ..HardState::default() };
        incarnation::renew(data, &file, &voting, of_three(2), 11).unwrap();
        for (this, is_trusted) in [(of_three(2), true), (of_three(1), false)] {
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
            let read = read_back(data, of_three(2), &file, log, |error| error);
            let starts = file.starts();
            read.and_then(|read| Ok((read.hard_state, starts?.own().nonce)))
        };
        let files = FileSystem::new();
        assert!(files.make_folder("/data/log"));
        let before = move || {
            let (data, file) = (Path::new(DATA), HardStateFile::of(Path::new(DATA)));
            incarnation::renew(data, &file, &voting, of_three(2), 11).unwrap();
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
        let read = read_back(folder.path(), of_three(1), &file, log, |error| error).unwrap();
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

    const ALONE: Membership = Membership { member: MemberId(1), members_count: 1 };

    /// A log of so many batches, all of one term.
    fn log_of(batches: u64, term: u64) -> RecoveredLog {
        let place = |index: u64| {
            let lsn = Lsn(index * 4_096);
            BatchPlace { index, term, lsn, end: Lsn(lsn.0 + 40) }
        };
        let places = (1..=batches).map(place).collect();
        RecoveredLog { places, ..RecoveredLog::default() }
    }

    fn folder_with_log() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("log")).unwrap();
        folder
    }

    /// What the only instance of a group begins with in this folder, whose log is this long.
    fn begins(data: &Path, batches: u64, term: u64) -> HardState {
        let log = |_| Ok(((), log_of(batches, term)));
        let file = HardStateFile::of(data);
        read_back(data, ALONE, &file, log, |error: std::io::Error| error).unwrap().hard_state
    }

    /// A hard state as the process before this one kept it, of a group of so many.
    fn kept(data: &Path, hard_state: &HardState, members_count: usize) {
        let membership = Membership { members_count, ..ALONE };
        incarnation::renew(data, &HardStateFile::of(data), hard_state, membership, 11).unwrap();
    }

    const VOTING: HardState = HardState {
        term: 7,
        vote: None,
        may_vote: true,
        knows_term: true,
        committed: 5,
        committed_end: Lsn(5 * 4_096 + 40),
        mode: towline_group::Mode::Voting,
        promoted_to: [0; 16],
        left_term: 0,
        led_term: 0,
        returned_term: 0,
    };

    #[test]
    fn a_group_of_one_begins_with_an_empty_folder_and_goes_on_with_its_log_when_its_hard_state_is_lost()
     {
        let folder = folder_with_log();
        for (batches, term) in [(0, 0), (9, 4)] {
            let found = begins(folder.path(), batches, term);
            assert!(found.may_vote && found.has_newest_term(), "{batches} batches: {found:?}");
        }
        // An older copy of it says less than the log: there is no other to ask.
        kept(folder.path(), &HardState { term: 2, ..VOTING }, 1);
        assert!(begins(folder.path(), 9, 4).may_vote);
    }

    #[test]
    fn a_group_of_one_whose_log_lacks_what_was_committed_gives_itself_no_vote() {
        let folder = folder_with_log();
        let data = folder.path();
        kept(data, &VOTING, 1);
        assert_eq!(begins(data, 5, 7), VOTING);
        assert!(!begins(data, 4, 7).may_vote, "the end of its log is gone");
        assert!(!begins(data, 0, 0).may_vote, "all of it is");
        // Also when only the note was left of it.
        HardStateFile::of(data).note_durably(&VOTING).unwrap();
        std::fs::remove_file(data.join("group-state")).unwrap();
        let without = begins(data, 4, 7);
        assert_eq!((without.may_vote, without.committed), (false, 5));
        assert!(begins(data, 5, 7).may_vote, "the note is borne out");
        // As long, and another one.
        kept(data, &VOTING, 1);
        std::fs::remove_file(data.join("log/incarnation")).unwrap();
        let without = begins(data, 9, 7);
        assert!(!without.may_vote);
        kept(data, &without, 1);
        assert!(!begins(data, 9, 7).may_vote, "no start gives a vote that another one took");
    }

    #[test]
    fn the_folder_of_one_of_three_gives_a_group_of_one_no_vote_unless_it_promised_nothing() {
        let folder = folder_with_log();
        let data = folder.path();
        kept(data, &HardState::default(), 3);
        assert!(begins(data, 0, 0).may_vote, "it never met the others");
        kept(data, &VOTING, 3);
        assert!(!begins(data, 9, 7).may_vote, "the two others may have gone on");
        // Nor when that is only noted with the log.
        std::fs::remove_file(data.join("group-state")).unwrap();
        assert!(begins(data, 9, 7).may_vote, "nothing says that there were others");
        log_identity::note_owner(data, "G", 3, true).unwrap();
        assert!(!begins(data, 9, 7).may_vote);
        kept(data, &HardState::default(), 1);
        assert!(!begins(data, 9, 7).may_vote, "no start gives a vote that another one took");
        // A version that did not say how many there were had three.
        let folder = folder_with_log();
        HardStateFile::of(folder.path()).write(&VOTING).unwrap();
        assert!(!begins(folder.path(), 9, 7).may_vote);
        // The other way it is a member like any other.
        let folder = folder_with_log();
        kept(folder.path(), &VOTING, 1);
        let (file, log) = (HardStateFile::of(folder.path()), |_| Ok(((), log_of(5, 7))));
        let read = read_back(folder.path(), of_three(1), &file, log, |error: std::io::Error| error);
        assert_eq!(read.unwrap().hard_state, VOTING);
    }
}
