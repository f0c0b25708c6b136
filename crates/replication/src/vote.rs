//! Operations on the hard state of an instance that does not run: take its vote away
//! (`towline instance replace`), read it, or give the vote back (`towline instance force-vote`).
//!
//! Not here: asking the operator, and what it may cost (the command). Invariant: the caller holds
//! the lock of the log meanwhile.

use std::io::ErrorKind;
use std::path::Path;

use towline_group::HardState;
use towline_os::fs;
use towline_types::Lsn;

use crate::frames::peer_of;
use crate::hard_state_file::HardStateFile;
use crate::incarnation;

/// What an instance that does not run has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardStateReport {
    /// The newest term that it took part in.
    pub term: u64,
    /// Whether it may vote, if its log is the one for which this was kept.
    pub may_vote: bool,
    /// Whether it is.
    pub is_of_this_log: bool,
    /// Index of a batch that was known to be committed.
    pub committed: u64,
    /// Members of the group that it was kept in.
    pub members_count: usize,
    /// Position of its member among them, ordered by name; `None`: it is not known.
    pub position: Option<usize>,
}

impl HardStateReport {
    /// Whether the member at `position` of a group of `members_count` has a vote with this, as its
    /// next start judges it: that of another member is none, nor, in a group of one, that of one of
    /// several.
    #[must_use]
    pub fn votes_as(&self, position: Option<usize>, members_count: usize) -> bool {
        let is_of_member = self.position.is_none() || self.position == position;
        let had_others = members_count == 1 && self.members_count > 1;
        self.may_vote && self.is_of_this_log && is_of_member && !had_others
    }
}

/// The hard state in a data folder; `None` when there is none that is whole: then it does not
/// vote.
///
/// # Errors
/// What the disk said, or that a later version of Towline wrote the hard state.
pub fn hard_state(data: &Path) -> std::io::Result<Option<HardStateReport>> {
    let hard_state_file = HardStateFile::of(data);
    hard_state_file.refuse_later_version()?;
    let is_of_this_log = incarnation::is_own(data, hard_state_file.mark()?)?;
    let position = instance_position(data)?;
    let members_count = hard_state_file.members_count()?.unwrap_or_default();
    let state = |HardState { term, may_vote, committed, .. }| HardStateReport {
        term,
        may_vote,
        is_of_this_log,
        committed,
        members_count,
        position,
    };
    Ok(hard_state_file.read()?.map(state))
}

/// Which instance of its group a data folder belongs to: its position among the members, ordered by
/// name. `None`: it is not known.
///
/// # Errors
/// What the disk said.
pub fn instance_position(data: &Path) -> std::io::Result<Option<usize>> {
    Ok(HardStateFile::of(data).owner()?.map(peer_of))
}

/// Takes the vote away, durably, because the log is about to be set aside: what was known to be
/// committed stays. Whether its term is the newest one is not known then: the next start asks the
/// others.
///
/// # Errors
/// What the disk said, or that a later version of Towline wrote the hard state.
pub fn give_up_vote(data: &Path) -> std::io::Result<()> {
    let hard_state_file = HardStateFile::of(data);
    hard_state_file.refuse_later_version()?;
    // Without a hard state that is whole there is no vote either.
    let Some(hard_state) = hard_state_file.read()? else { return Ok(()) };
    // Also its term is not trusted: the operator may have put the whole folder back from a
    // snapshot.
    hard_state_file.write(&hard_state.forgotten())?;
    fs::File::open(data)?.sync_all()
}

/// More terms than an instance can have taken part in and forgotten: each is an election.
const FORGOTTEN_TERMS: u64 = 1 << 16;

/// Gives the vote back, durably, for the log that is there as it is: what was known to be committed
/// beyond it is given up. Its term stays, or becomes `term` if that is newer; it is taken for the
/// newest one, so that the next start asks no other instance for it. When it may have forgotten
/// terms that none of those that answered knows, it goes on behind all of them: in one of them it
/// may have voted, and there may be a leader that cannot be asked. It is the folder of a group of
/// `members_count` from here on. `drawn` is a random number.
///
/// # Errors
/// What the disk said, or that a later version of Towline wrote the hard state.
pub fn force_vote(data: &Path, term: u64, members_count: usize, drawn: u64) -> std::io::Result<()> {
    let hard_state_file = HardStateFile::of(data);
    hard_state_file.refuse_later_version()?;
    // Without one that is whole nothing is known: the operator says what counts.
    let hard_state = hard_state_file.read()?.unwrap_or_default();
    // The note would take the vote away again.
    match fs::remove_file(hard_state_file.note_path()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mark = hard_state_file.mark()?;
    let knows = hard_state.has_newest_term() && incarnation::is_own(data, mark)?;
    let newest = hard_state.term.max(term);
    let term = if knows { newest } else { newest.saturating_add(FORGOTTEN_TERMS) };
    let newer = term > hard_state.term;
    let hard_state = HardState {
        term,
        vote: if newer { None } else { hard_state.vote },
        may_vote: true,
        knows_term: true,
        committed: 0,
        committed_end: Lsn::ZERO,
        ..hard_state
    };
    hard_state_file.prepare()?;
    fs::File::open(data)?.sync_all()?;
    // The vote is of use only once the last step made the number of the log its own.
    incarnation::adopt(data, &hard_state_file, &hard_state, (members_count, drawn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Membership;

    fn with_state(promised: &HardState) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("log")).unwrap();
        let file = HardStateFile::of(folder.path());
        let membership = Membership { member: towline_group::MemberId(1), members_count: 3 };
        incarnation::renew(folder.path(), &file, promised, membership, 7).unwrap();
        folder
    }

    #[test]
    fn a_vote_that_is_given_up_leaves_term_vote_and_what_is_owed() {
        let vote = Some(towline_group::MemberId(2));
        let committed = 9;
        let committed_end = Lsn(900);
        let promised = HardState {
            term: 5,
            vote,
            may_vote: true,
            knows_term: true,
            committed,
            committed_end,
            ..HardState::default()
        };
        let folder = with_state(&promised);
        give_up_vote(folder.path()).unwrap();
        let read = HardStateFile::of(folder.path()).read().unwrap().unwrap();
        assert_eq!(read, promised.forgotten());
        let blank = tempfile::tempdir().unwrap();
        give_up_vote(blank.path()).unwrap();
        assert_eq!(hard_state(blank.path()).unwrap(), None, "there was none to give up");
    }

    #[test]
    fn a_data_folder_says_which_instance_it_belongs_to() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(instance_position(folder.path()).unwrap(), None);
        let folder = with_state(&HardState::default());
        assert_eq!(instance_position(folder.path()).unwrap(), Some(0));
    }

    #[test]
    fn a_vote_that_is_forced_counts_for_the_log_that_is_there_and_no_note_takes_it_away() {
        let promised =
            HardState { term: 5, committed: 9, committed_end: Lsn(900), ..HardState::default() };
        let folder = with_state(&promised);
        let data = folder.path();
        let file = HardStateFile::of(folder.path());
        file.note_durably(&HardState { committed: 12, ..promised }).unwrap();
        // Another log.
        std::fs::remove_file(data.join("log/incarnation")).unwrap();
        let state = hard_state(data).unwrap().unwrap();
        assert_eq!((state.may_vote, state.is_of_this_log, state.committed), (false, false, 12));
        force_vote(data, 8, 3, 71).unwrap();
        let state = hard_state(data).unwrap().unwrap();
        let term = 8 + FORGOTTEN_TERMS;
        let forced = HardStateReport {
            term,
            may_vote: true,
            is_of_this_log: true,
            committed: 0,
            members_count: 3,
            position: None,
        };
        assert_eq!(state, forced);
        force_vote(data, 3, 3, 72).unwrap();
        assert_eq!(hard_state(data).unwrap().unwrap(), forced, "a term never goes down");
    }

    #[test]
    fn a_vote_of_one_of_three_is_none_of_a_group_of_one_before_it_is_forced() {
        let promised =
            HardState { term: 5, may_vote: true, knows_term: true, ..HardState::default() };
        let folder = with_state(&promised);
        let votes = |position, count| {
            let state = hard_state(folder.path()).unwrap().unwrap();
            state.votes_as(Some(position), count)
        };
        assert!(votes(0, 3) && !votes(0, 1), "the two others may have gone on");
        assert!(!votes(1, 3), "it is that of the first one");
        force_vote(folder.path(), 5, 1, 71).unwrap();
        assert!(votes(0, 1) && votes(0, 3));
    }

    #[test]
    fn a_vote_that_is_forced_is_given_in_no_term_that_may_have_been_forgotten() {
        let promised =
            HardState { term: 5, may_vote: true, knows_term: true, ..HardState::default() };
        let folder = with_state(&promised.forgotten());
        // The one that answers knows term 6; in 7 this one may have voted for the one that does
        // not.
        force_vote(folder.path(), 6, 3, 73).unwrap();
        assert!(hard_state(folder.path()).unwrap().unwrap().term > 6 + 1_000);
        // It took a copy, and its hard state is the newest.
        let folder = with_state(&promised.without_vote());
        force_vote(folder.path(), 6, 3, 73).unwrap();
        assert_eq!(hard_state(folder.path()).unwrap().unwrap().term, 6);
    }
}
