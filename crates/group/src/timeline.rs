//! Terms of two groups that share one log: what keeps a term of one from meaning a batch of the
//! other.
//!
//! A recovery group's log holds batches in terms in which the live group elected; its own members
//! had no part in those elections, and the live group none in those that follow a promotion. With
//! terms that only count, both could make a batch with one index in one term: a member that was
//! away, with a tail that the live group shipped to it alone, would then take another batch for its
//! own, because logs are compared by index and term. So a promotion begins a *timeline* (the word
//! of PostgreSQL): terms far above all that the other group can reach by elections, marked with the
//! history that begins.
//!
//! ```text
//!   bit 31        22 21       13 12           0     (the log keeps terms of 32 bits)
//!       era          mark        count
//! ```
//!
//! The era is one more than that of the term before. The mark is of the history's id. The count
//! goes up with elections; past 8,191 it runs into the mark, which still orders terms. A group that
//! was never promoted is in era 0 and counts from 1, as always.
//!
//! Why an equal term in two *groups* does no harm where batches are compared: within a timeline one
//! group elects, by majority, so one leader makes all batches of a term. A recovery group takes the
//! first batch of a timeline when a majority of it keeps a term of that (`member::relay`), as if it
//! had voted there; a promotion has a majority behind it too, so it begins a timeline above those
//! of all batches that any member has, also of members that were not there. Two *groups* that were
//! promoted to different histories behind one term are kept apart before that, by the comparison of
//! histories in the hello between regions; the mark is for what passes that by mistake.
//!
//! Nine bits do not separate all histories: the name of one is drawn again if its mark
//! is that of the newest term ([`may_begin_behind`]).
//!
//! Not here: when a timeline begins (`member::promotion`).

/// Bits of elections in one timeline.
const COUNT_BITS: u32 = 13;
/// Bits of the history's mark.
const MARK_BITS: u32 = 9;
/// The newest era; a promotion behind it goes on counting in it. 1,023 changes of role.
const ERA_MAX: u64 = (1 << (32 - COUNT_BITS - MARK_BITS)) - 1;

/// The timeline of a term: equal within one, and greater in each that begins behind it.
pub(crate) fn timeline_of(term: u64) -> u64 {
    term >> COUNT_BITS
}

/// How many promotions there were before a term.
pub(crate) fn era_of(term: u64) -> u64 {
    timeline_of(term) >> MARK_BITS
}

fn mark_of(history: &[u8; 16]) -> u64 {
    let [low, high, ..] = *history;
    u64::from(u16::from_le_bytes([low, high])) & ((1 << MARK_BITS) - 1)
}

/// Whether a term is of the timeline that began with this history.
pub(crate) fn is_of(term: u64, history: &[u8; 16]) -> bool {
    timeline_of(term) & ((1 << MARK_BITS) - 1) == mark_of(history) && era_of(term) > 0
}

/// Whether a history may begin behind the timeline of a term: its mark is another one. A name that
/// has the same one, as one of 512 has, is drawn again: the timelines of both would be one.
#[must_use]
pub fn may_begin_behind(term: u64, history: &[u8; 16]) -> bool {
    !is_of(term, history)
}

/// The term behind which the elections of a new history begin: above `newest`.
pub(crate) fn begun_behind(newest: u64, history: &[u8; 16]) -> u64 {
    let era = era_of(newest).saturating_add(1).min(ERA_MAX);
    let begun = (era << MARK_BITS | mark_of(history)) << COUNT_BITS;
    begun.max(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_begins_above_all_terms_before_it_and_each_history_elsewhere() {
        let [first, second] = [[1; 16], [2; 16]];
        for newest in [0, 1, 7, 8_191, 8_192, 4_000_000, (1 << 32) - 1] {
            let begun = begun_behind(newest, &first);
            assert!(begun >= newest && u32::try_from(begun).is_ok(), "{newest}: {begun}");
        }
        let begun = begun_behind(7, &first);
        assert!(timeline_of(begun) > timeline_of(7) && is_of(begun, &first));
        assert_eq!(timeline_of(begun + 1), timeline_of(begun), "elections stay in it");
        assert_eq!(begun_behind(900, &first), begun, "whatever the group before counted to");
        assert_ne!(timeline_of(begun_behind(7, &second)), timeline_of(begun));
        assert!(timeline_of(begun_behind(begun + 3, &second)) > timeline_of(begun + 3));
        assert!(!is_of(7, &[0; 16]), "a group that was never promoted is of no history");
    }
}
