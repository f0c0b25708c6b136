//! The chain of the histories of one log, from its first one to its newest.
//!
//! The newest 1,000 are kept. Of older ones only their number stays, and the name of the newest of
//! them. That is enough to compare: a name is random and belongs to one chain, and each history
//! says which one it goes on from; so two chains of which the n-th histories have one name have the
//! same names before it, kept or not. What is lost is the fork of two chains that parted more than
//! 1,000 histories ago: they count as unrelated. No log reaches back so far.
//!
//! Not here: what two chains say of two logs (`standing`), and their bytes (`history_bytes`; in
//! records and images of a log `core`).
//!
//! Invariants: each history goes on from the one before it; forks do not descend; there is a newest
//! one, which is kept, if there is any.

use std::collections::VecDeque;

use crate::limits::{HISTORIES_MAX, ROLE_CHANGES_SHOWN};
use crate::{History, HistoryFault, HistoryId, Lsn, RegionRole};

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histories {
    /// How many there were before those that are kept.
    folded: u64,
    kept: VecDeque<History>,
}

impl Histories {
    /// The chain of a log of which the first `folded` histories are not kept.
    ///
    /// # Errors
    /// They do not go on from each other, or there are more than are kept.
    pub fn of(folded: u64, kept: Vec<History>) -> Result<Histories, HistoryFault> {
        let mut histories = Histories { folded, kept: VecDeque::new() };
        if kept.len() > HISTORIES_MAX || (folded > 0 && kept.is_empty()) {
            return Err(HistoryFault::Parent);
        }
        for history in kept {
            // Of the oldest one that is kept the parent is not known: any name can be.
            let is_oldest = histories.kept.is_empty() && folded > 0;
            match history.parent {
                Some(_) if is_oldest => {
                    history.check()?;
                    histories.kept.push_back(history);
                }
                None if is_oldest => return Err(HistoryFault::Parent),
                Some(_) | None => histories.push(history)?,
            }
        }
        Ok(histories)
    }

    /// Whether [`Histories::push`] would take it.
    ///
    /// # Errors
    /// It would not.
    pub fn check_next(&self, history: &History) -> Result<(), HistoryFault> {
        history.check()?;
        let parent_of_kept = self.kept.front().and_then(|first| first.parent);
        if self.get(history.id).is_some() || parent_of_kept == Some(history.id) {
            return Err(HistoryFault::Known(history.id));
        }
        if history.parent != self.newest().map(|newest| newest.id) {
            return Err(HistoryFault::Parent);
        }
        if self.newest().is_some_and(|newest| history.fork < newest.fork) {
            return Err(HistoryFault::Fork);
        }
        Ok(())
    }

    /// The next one has begun. The oldest one that is kept makes way, if need be.
    ///
    /// # Errors
    /// It does not go on from the newest one.
    pub fn push(&mut self, history: History) -> Result<(), HistoryFault> {
        self.check_next(&history)?;
        self.kept.push_back(history);
        if self.kept.len() > HISTORIES_MAX {
            self.kept.pop_front();
            self.folded += 1;
        }
        assert!(self.kept.len() <= HISTORIES_MAX, "a chain has a bound");
        Ok(())
    }

    /// The same chain with no more than the `most` newest ones kept; one is in any case.
    #[must_use]
    pub fn folded_to(&self, most: usize) -> Histories {
        let gone = self.kept.len().saturating_sub(most.max(1));
        let kept = self.kept.iter().skip(gone).cloned().collect();
        Histories { folded: self.folded + gone as u64, kept }
    }

    /// The chain of a log that is the beginning, up to `end`, of a log with this chain: without
    /// those that begin there or behind it, of which it has no byte. An empty log has none.
    #[must_use]
    pub fn up_to(&self, end: Lsn) -> Histories {
        let begun = |history: &&History| history.fork < end;
        let kept: VecDeque<History> = self.kept.iter().take_while(begun).cloned().collect();
        // Of a chain that is cut before all that is kept nothing is known.
        let folded = if kept.is_empty() { 0 } else { self.folded };
        Histories { folded, kept }
    }

    /// How many there are, kept or not: the ordinal of the next one, counted from 0.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.folded + self.kept.len() as u64
    }

    /// How many of them are not kept.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Those that are kept, from the oldest to the newest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &History> + ExactSizeIterator {
        self.kept.iter()
    }

    /// The newest one.
    #[must_use]
    pub fn newest(&self) -> Option<&History> {
        self.kept.back()
    }

    /// The one of this name, if it is kept.
    #[must_use]
    pub fn get(&self, id: HistoryId) -> Option<&History> {
        self.kept.iter().rev().find(|history| history.id == id)
    }

    /// The one with this ordinal, counted from 0 at the first of the log, if it is kept.
    #[must_use]
    pub fn at(&self, ordinal: u64) -> Option<&History> {
        let kept = ordinal.checked_sub(self.folded)?;
        self.kept.get(usize::try_from(kept).ok()?)
    }

    /// What a group is in the newest one.
    #[must_use]
    pub fn role_of(&self, group: &str) -> RegionRole {
        match self.newest() {
            None => RegionRole::NoRegion,
            Some(newest) if newest.live == group => RegionRole::Live,
            Some(_) => RegionRole::Recovery,
        }
    }

    /// The newest changes of roles, the newest first: each is the history that began with it. The
    /// first one of a log changed nothing, and is not among them.
    pub fn role_changes(&self) -> impl Iterator<Item = &History> {
        let changes = self.kept.iter().rev().filter(|history| history.parent.is_some());
        changes.take(ROLE_CHANGES_SHOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn id(number: u64) -> HistoryId {
        HistoryId((u128::from(number) + 1).to_le_bytes())
    }

    fn history(number: u64) -> History {
        let parent = number.checked_sub(1).map(id);
        let live = if number.is_multiple_of(2) { "EAST" } else { "WEST" }.to_owned();
        let cause = format!("change {number}");
        History { id: id(number), parent, fork: Lsn(number * 100), live, began: Time(7), cause }
    }

    fn chain(count: u64) -> Histories {
        let mut histories = Histories::default();
        (0..count).for_each(|number| histories.push(history(number)).unwrap());
        histories
    }

    #[test]
    fn a_history_goes_on_from_the_newest_one_and_has_a_new_name() {
        let mut two = chain(2);
        let wrong = |change: &dyn Fn(&mut History)| {
            let mut next = history(2);
            change(&mut next);
            two.check_next(&next)
        };
        assert_eq!(wrong(&|next| next.parent = Some(id(0))), Err(HistoryFault::Parent));
        assert_eq!(wrong(&|next| next.id = id(1)), Err(HistoryFault::Known(id(1))));
        assert_eq!(wrong(&|next| next.fork = Lsn(99)), Err(HistoryFault::Fork));
        // The same fork: a history in which nothing was decided.
        assert_eq!(wrong(&|next| next.fork = Lsn(100)), Ok(()));
        two.push(history(2)).unwrap();
        assert_eq!((two.count(), two.newest()), (3, Some(&history(2))));
        let first = Histories::default().check_next(&history(1));
        assert_eq!(first, Err(HistoryFault::Parent), "a log begins with a first one");
    }

    #[test]
    fn what_is_beyond_the_bound_is_folded_and_ordinals_stay() {
        let most = HISTORIES_MAX as u64;
        let long = chain(most + 3);
        assert_eq!((long.count(), long.folded(), long.iter().len()), (most + 3, 3, HISTORIES_MAX));
        assert_eq!((long.at(2), long.at(3)), (None, Some(&history(3))));
        assert_eq!(long.at(most + 2), long.newest());
        let folded = long.check_next(&History { id: id(2), ..history(most + 3) });
        assert_eq!(folded, Err(HistoryFault::Known(id(2))), "the newest of those that are folded");
        assert_eq!(chain(5).folded_to(2), chain(6).folded_to(3).up_to(Lsn(500)).folded_to(2));
        assert_eq!(chain(5).folded_to(0).iter().len(), 1);
        let again = Histories::of(3, long.iter().cloned().collect());
        assert_eq!(again, Ok(long));
    }

    #[test]
    fn a_chain_that_is_put_together_of_parts_is_checked() {
        let of = |folded, kept: &[u64]| {
            Histories::of(folded, kept.iter().copied().map(history).collect())
        };
        assert_eq!(of(0, &[0, 1, 2]), Ok(chain(3)));
        assert_eq!(of(0, &[]), Ok(Histories::default()));
        let too_many: Vec<u64> = (0..=HISTORIES_MAX as u64).collect();
        for (folded, kept) in
            [(0, &[1, 2][..]), (0, &[0, 2]), (2, &[]), (2, &[0, 1]), (0, &too_many)]
        {
            assert_eq!(of(folded, kept), Err(HistoryFault::Parent), "{folded} {}", kept.len());
        }
    }

    #[test]
    fn a_group_is_live_in_the_newest_history_only_that_names_it() {
        assert_eq!(Histories::default().role_of("EAST"), RegionRole::NoRegion);
        let roles = |count| ["EAST", "WEST", "east"].map(|group| chain(count).role_of(group));
        let (live, recovery) = (RegionRole::Live, RegionRole::Recovery);
        assert_eq!(roles(1), [live, recovery, recovery]);
        assert_eq!(roles(2), [recovery, live, recovery]);
    }

    #[test]
    fn the_newest_changes_of_roles_are_shown_and_the_first_history_is_none() {
        let changes = |count| chain(count).role_changes().map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(changes(1), []);
        assert_eq!(changes(3), [id(2), id(1)]);
        let shown = changes(50);
        assert_eq!((shown.len(), shown[0], shown[19]), (ROLE_CHANGES_SHOWN, id(49), id(30)));
    }

    #[test]
    fn a_log_that_is_the_beginning_of_another_has_the_histories_of_which_it_has_bytes() {
        let count = |end| chain(3).up_to(Lsn(end)).count();
        assert_eq!([0, 1, 100, 101, 200, 201].map(count), [0, 1, 1, 2, 2, 3]);
    }
}
