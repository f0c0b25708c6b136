//! What the chains of histories of two logs say of their bytes: whether one is the beginning of the
//! other, and where they part.
//!
//! Each byte of a log belongs to a history: the last one in its chain that begins at or before it.
//! One group decides in a history, and what it decided is copied, byte by byte, and never decided
//! anew. So two logs have the same bytes up to where their histories differ, or to where the
//! shorter one ends. A group that was put back from a backup and served on has decided anew what it
//! had lost: that is not seen here, and what gives up or ships anything compares batches too.
//!
//! Not here: which group ships, and what a group does about its standing.

use crate::{Histories, Lsn};

/// A log as one region describes it to the other.
#[derive(Clone, Copy, Debug)]
pub struct RegionLog<'a> {
    /// Its histories: what the instance has applied, and
    ///
    /// - of a group that is being promoted, the history that it is about to begin;
    /// - of a group that follows, those of which its log has bytes and has not applied the record:
    ///   the chain of the live group when it began to follow, as far as its log goes
    ///   ([`Histories::up_to`]).
    pub histories: &'a Histories,
    /// End of its last batch, committed or not. [`Lsn::ZERO`]: it is empty. Not what is known to be
    /// committed: a batch may have been acknowledged by an instance that does not know so any more.
    pub end: Lsn,
}

/// How the log of the region that would ship stands to that of the one that would receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The receiving log is empty: it takes all from the beginning, or a copy.
    Empty,
    /// The receiving log is the beginning of the shipping one, and goes on at its end.
    Continues,
    /// The receiving log went on in a history that had ended: behind `fork` it has a tail that the
    /// shipping one does not have. The receiving group is Partitioned.
    ReceivingHasTail {
        /// Up to here both are the same.
        fork: Lsn,
    },
    /// The receiving log has all of the shipping one, in the same history, and more. The shipping
    /// group is not the live one of that history, or has lost a part of its log: it may not ship.
    ReceivingIsAhead,
    /// The receiving log went on in a history that the shipping one does not know: the shipping
    /// group is an old live one, and is Partitioned.
    ShippingIsOld {
        /// Up to here both are the same, unless the shipping one ends before.
        fork: Lsn,
        /// The shipping one has a tail behind it, which the other one does not have.
        has_tail: bool,
    },
    /// Both went on in histories that the other one does not know: both are Partitioned.
    Diverged {
        /// Up to here both are the same.
        fork: Lsn,
    },
    /// They have no history in common, or parted longer ago than is known. Both are Partitioned.
    Unrelated,
}

impl Standing {
    /// Whether the group that would ship must stop: it takes no client and ships nothing.
    #[must_use]
    pub const fn partitions_shipping(self) -> bool {
        match self {
            Standing::Empty | Standing::Continues | Standing::ReceivingHasTail { .. } => false,
            Standing::ReceivingIsAhead
            | Standing::ShippingIsOld { .. }
            | Standing::Diverged { .. }
            | Standing::Unrelated => true,
        }
    }

    /// Whether the group that would receive must not: it has what an operator must look at first.
    #[must_use]
    pub const fn partitions_receiving(self) -> bool {
        match self {
            Standing::Empty
            | Standing::Continues
            | Standing::ReceivingIsAhead
            | Standing::ShippingIsOld { .. } => false,
            Standing::ReceivingHasTail { .. } | Standing::Diverged { .. } | Standing::Unrelated => {
                true
            }
        }
    }

    /// Compares two logs.
    #[must_use]
    pub fn of(shipping: RegionLog<'_>, receiving: RegionLog<'_>) -> Standing {
        if receiving.end == Lsn::ZERO && receiving.histories.is_empty() {
            return Standing::Empty;
        }
        let Some(common) = common(shipping.histories, receiving.histories) else {
            return Standing::Unrelated;
        };
        let goes_on = |log: RegionLog<'_>| log.histories.at(common).map(|next| next.fork);
        match (goes_on(shipping), goes_on(receiving)) {
            (None, None) if receiving.end > shipping.end => Standing::ReceivingIsAhead,
            (Some(fork), None) if receiving.end > fork => Standing::ReceivingHasTail { fork },
            (None | Some(_), None) => Standing::Continues,
            (None, Some(fork)) => Standing::ShippingIsOld { fork, has_tail: shipping.end > fork },
            (Some(one), Some(other)) => Standing::Diverged { fork: one.min(other) },
        }
    }
}

/// How many histories both chains have in common, from the first one on. `None`: none, or that is
/// not known any more.
fn common(one: &Histories, other: &Histories) -> Option<u64> {
    let both = one.count().min(other.count());
    let known = one.folded().max(other.folded());
    let same = |ordinal: &u64| match (one.at(*ordinal), other.at(*ordinal)) {
        (Some(one), Some(other)) => one.id == other.id,
        (None, _) | (_, None) => false,
    };
    // Those that have one name have one past: the last ones with the same name decide.
    (known..both).rev().find(same).map(|ordinal| ordinal + 1)
}

#[cfg(test)]
mod tests;
