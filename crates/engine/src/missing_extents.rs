//! Extents of the log that hold live messages and are missing: they were removed by hand, or the
//! file system lost them. A start that reads only the log behind its image would not notice.
//!
//! Not here: damage inside an extent (the log finds it); what becomes of messages that cannot be
//! read (`towline_core::SetAside`).
//!
//! Invariant: an extent that was reclaimed is never reported as missing. Batches that were read and
//! not applied, because it is not known that the group has committed them, may remove the messages
//! before the oldest extent; after that, reclaiming removed those extents. So with such batches
//! only a gap counts at the start, because reclaiming leaves no gap. Messages before the oldest
//! extent are a [`Doubt`], judged when those batches are applied, and before this instance serves a
//! client.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use towline_log::Recovery;
use towline_node::Restart;
use towline_types::PageRef;

/// Extents that are named one by one.
const NAMED_MAX: usize = 8;

/// The extents that are missing, and how many messages, or parts of large ones, each one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingExtents {
    extents: BTreeMap<u64, u64>,
    /// The same of messages that were set aside: their notes become messages again with the extent.
    noted: BTreeMap<u64, u64>,
}

impl MissingExtents {
    /// Compares the extents of live messages with the extents of the log, after replay. Messages
    /// that were set aside as damaged are counted separately: they are given up already, and each
    /// is a note on the dead-letter queue. A page that `read` cannot give counts as one without
    /// notes.
    #[must_use]
    pub fn find(
        restart: &Restart,
        recovery: &Recovery,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> MissingExtents {
        let from = if recovery.held_back() { recovery.oldest_extent() } else { 0 };
        let is_missing = |extent| extent >= from && !recovery.has_extent(extent);
        MissingExtents::among(restart, &is_missing, read)
    }

    /// The live messages in extents that are missing.
    fn among(
        restart: &Restart,
        is_missing: &dyn Fn(u64) -> bool,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> MissingExtents {
        let mut extents = restart.live_extents();
        extents.retain(|extent, _| is_missing(*extent));
        let mut noted = BTreeMap::new();
        if !extents.is_empty() {
            noted = restart.set_aside_in(&|extent| extents.contains_key(&extent), read);
            for (extent, count) in &mut extents {
                *count = count.saturating_sub(noted.get(extent).copied().unwrap_or_default());
            }
            extents.retain(|_, count| *count > 0);
        }
        MissingExtents { extents, noted }
    }

    /// Whether none is missing that holds more than what was set aside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Messages, or parts of large ones, in all of them.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.extents.values().sum()
    }

    /// Number and messages of each extent.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.extents.iter().map(|(extent, messages)| (*extent, *messages))
    }

    /// Messages, or parts of large ones, that were set aside and whose extents are missing.
    #[must_use]
    pub fn notes(&self) -> u64 {
        self.noted.values().sum()
    }

    /// What is missing for the notes alone.
    #[must_use]
    pub fn of_notes(&self) -> MissingExtents {
        MissingExtents { extents: self.noted.clone(), noted: BTreeMap::new() }
    }

    /// What is missing for messages and notes together: a repair recovers it, and a backup needs
    /// it.
    #[must_use]
    pub fn of_all(&self) -> MissingExtents {
        let mut extents = self.extents.clone();
        for (extent, count) in &self.noted {
            *extents.entry(*extent).or_default() += count;
        }
        MissingExtents { extents, noted: BTreeMap::new() }
    }
}

impl fmt::Display for MissingExtents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (extent, messages)) in self.extents().take(NAMED_MAX).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(out, "{comma}extent-{extent:016x} ({messages})")?;
        }
        match self.extents.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(out, " and {more} further ones"),
        }
    }
}

/// Extents before the oldest one of the log that hold live messages, as far as the log was applied
/// at the start. Batches that were read and not applied may have removed those messages; then the
/// extents were reclaimed.
#[derive(Debug)]
pub struct Doubt {
    extents: BTreeSet<u64>,
    /// The newest batch that was read.
    last: u64,
}

impl Doubt {
    /// `None`: all batches were applied, or no message lives before the oldest extent.
    #[must_use]
    pub fn of(restart: &Restart, recovery: &Recovery) -> Option<Doubt> {
        if !recovery.held_back() {
            return None;
        }
        let mut extents = restart.live_extents();
        extents.retain(|extent, _| *extent < recovery.oldest_extent());
        let known = recovery.places();
        let last = known.batches.last().unwrap_or(&known.base).index;
        (!extents.is_empty()).then(|| Doubt { extents: extents.into_keys().collect(), last })
    }

    /// Whether it can be judged when all batches up to `applied` are applied. A leader has applied
    /// all committed batches when it serves the first client, even if its log was longer once.
    #[must_use]
    pub fn is_due(&self, applied: u64, leads: bool) -> bool {
        leads || applied >= self.last
    }

    /// What is missing for the messages that live now.
    #[must_use]
    pub fn judge(
        &self,
        restart: &Restart,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> MissingExtents {
        MissingExtents::among(restart, &|extent| self.extents.contains(&extent), read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_missing_extents_are_counted_and_eight_are_named() {
        let extents = (2..12).map(|extent| (extent, 3)).collect();
        let missing = MissingExtents { extents, ..MissingExtents::default() };
        let text = missing.to_string();
        assert!(text.starts_with("extent-0000000000000002 (3), extent-0000000000000003 (3)"));
        assert!(text.ends_with("extent-0000000000000009 (3) and 2 further ones"), "{text}");
        assert_eq!((missing.messages(), missing.is_empty()), (30, false));
        assert!(MissingExtents::default().is_empty());
    }

    #[test]
    fn what_was_set_aside_counts_for_a_repair_and_a_backup_and_not_for_a_start() {
        let noted = BTreeMap::from([(1, 2), (3, 4)]);
        let missing = MissingExtents { extents: BTreeMap::from([(3, 1)]), noted: noted.clone() };
        assert_eq!((missing.messages(), missing.notes()), (1, 6));
        assert_eq!(missing.of_all().extents().collect::<Vec<_>>(), [(1, 2), (3, 5)]);
        assert_eq!(missing.of_notes().extents().collect::<Vec<_>>(), [(1, 2), (3, 4)]);
        let given_up = MissingExtents { noted, ..MissingExtents::default() };
        assert!(given_up.is_empty() && !given_up.of_all().is_empty());
    }
}
