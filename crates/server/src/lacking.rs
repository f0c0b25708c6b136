//! Extents of the log that hold live messages and are not there: somebody removed them by hand, or
//! the file system lost them. A start that reads only what lies behind its image would not notice.
//!
//! Not here: damage inside an extent (the log's room finds it); what becomes of messages that
//! cannot be read (`towline_core::SetAside`).
//!
//! Invariant: an extent that was given back in order is never called missing. So where batches were
//! read and not applied, because it is not known that the group has committed them, only a gap
//! counts at the start: those batches may take away what lived before the oldest extent, and gaps
//! are not made by giving back. What lived there is a [`Doubt`], judged when those batches are
//! applied, and before this instance serves a client.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use towline_core::{Limits, Pages as Trust};
use towline_log::{Disk, LinuxDisk, LogId, Options, Pages, Recovery, ReplayError};
use towline_node::Restart;
use towline_types::PageRef;

use crate::start::{REBUILD_MARKER, StartError, refusal};

/// Extents that are named one by one.
const NAMED_MAX: usize = 8;

/// The extents that are missing, and how many messages, or parts of large ones, each one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    extents: BTreeMap<u64, u64>,
    /// The same of messages that were set aside: their notes become messages again with the extent.
    noted: BTreeMap<u64, u64>,
}

impl Lacking {
    /// Holds what lives against what is there, after replay. Messages that were set aside as
    /// damaged count apart: they are given up already, and each is a note on the dead-letter queue.
    /// A page that `read` cannot give is taken to have none of them.
    pub(crate) fn find(
        restart: &Restart,
        recovery: &Recovery,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Lacking {
        let from = if recovery.held_back() { recovery.oldest_extent() } else { 0 };
        let is_missing = |extent| extent >= from && !recovery.has_extent(extent);
        Lacking::among(restart, &is_missing, read)
    }

    /// What lives in extents that are missing.
    fn among(
        restart: &Restart,
        is_missing: &dyn Fn(u64) -> bool,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Lacking {
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
        Lacking { extents, noted }
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
    pub fn of_notes(&self) -> Lacking {
        Lacking { extents: self.noted.clone(), noted: BTreeMap::new() }
    }

    /// What is missing for messages and notes together: what a repair brings back, and what a
    /// backup cannot do without.
    #[must_use]
    pub fn of_all(&self) -> Lacking {
        let mut extents = self.extents.clone();
        for (extent, count) in &self.noted {
            *extents.entry(*extent).or_default() += count;
        }
        Lacking { extents, noted: BTreeMap::new() }
    }
}

impl fmt::Display for Lacking {
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

/// Extents before the oldest one that is there, in which messages live as far as the log was
/// applied at the start. What was read and not applied may have taken those messages away; then the
/// extents were given back in order.
#[derive(Debug)]
pub(crate) struct Doubt {
    extents: BTreeSet<u64>,
    /// The newest batch that was read.
    last: u64,
}

impl Doubt {
    /// `None`: nothing was held back, or nothing lives before the oldest extent.
    pub(crate) fn of(restart: &Restart, recovery: &Recovery) -> Option<Doubt> {
        if !recovery.held_back() {
            return None;
        }
        let mut extents = restart.live_extents();
        extents.retain(|extent, _| *extent < recovery.oldest_extent());
        let (base, places) = recovery.places();
        let last = places.last().unwrap_or(&base).index;
        (!extents.is_empty()).then(|| Doubt { extents: extents.into_keys().collect(), last })
    }

    /// Whether it can be judged by what was applied up to batch `applied`. A leader has applied all
    /// that was ever committed when it serves the first client, though its log may have been longer
    /// once.
    pub(crate) fn is_due(&self, applied: u64, leads: bool) -> bool {
        leads || applied >= self.last
    }

    /// What is missing, as messages live now.
    pub(crate) fn judge(
        &self,
        restart: &Restart,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Lacking {
        Lacking::among(restart, &|extent| self.extents.contains(&extent), read)
    }
}

/// Why it is not known which extents hold messages.
#[derive(Debug)]
pub(crate) enum Unknown {
    /// A start is refused for it.
    Refused(StartError),
    /// A start reads the log in another way, or makes it.
    OtherWay(String),
}

impl Unknown {
    fn other(why: impl fmt::Display) -> Unknown {
        Unknown::OtherWay(why.to_string())
    }
}

impl From<StartError> for Unknown {
    fn from(error: StartError) -> Unknown {
        // With damaged pages the queues are rebuilt from the log.
        match error.is_of_pages() {
            true => Unknown::other(error),
            false => Unknown::Refused(error),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Refused(error) => error.fmt(out),
            Unknown::OtherWay(why) => out.write_str(why),
        }
    }
}

/// Reads image and log of the queue manager in `data` as a start would, and changes nothing. Safe
/// beside a running one.
///
/// # Errors
/// Why it is not known which extents hold messages.
pub fn look(data: &Path) -> Result<Lacking, String> {
    let looked = look_with(data, Limits::default());
    looked.map(|(lacking, _)| lacking).map_err(|why| why.to_string())
}

/// Names that are relied on and are not there, as `QueueManager::dangling` gives them.
type Dangling = (Option<String>, Vec<(String, String)>);

/// The same under the rules of a configuration, and the names that are relied on and are not there.
///
/// # Errors
/// As [`look`].
pub(crate) fn look_with(data: &Path, rules: Limits) -> Result<(Lacking, Dangling), Unknown> {
    let folder = crate::log_folder(data).map_err(Unknown::other)?;
    let folder = folder.ok_or_else(|| Unknown::other("there is no recovery log"))?;
    if data.join(REBUILD_MARKER).exists() || folder.join(REBUILD_MARKER).exists() {
        return Err(Unknown::other("the next start rebuilds the queues from the whole log"));
    }
    let disk = LinuxDisk::read_only(&folder).map_err(StartError::Log)?;
    look_at(&(Arc::new(disk) as Arc<dyn Disk>), rules)
}

/// The extents that a copy of a log lacks for its messages, in words; `None`: it has them all.
///
/// # Errors
/// As [`look`].
pub(crate) fn in_copy(disk: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    let (lacking, _) = look_at(disk, Limits::default()).map_err(|why| why.to_string())?;
    Ok((!lacking.is_empty()).then(|| lacking.to_string()))
}

/// The same for its messages and for those that were set aside.
///
/// # Errors
/// As [`look`].
pub(crate) fn in_copy_with_notes(disk: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    let (lacking, _) = look_at(disk, Limits::default()).map_err(|why| why.to_string())?;
    let all = lacking.of_all();
    Ok((!all.is_empty()).then(|| all.to_string()))
}

fn look_at(disk: &Arc<dyn Disk>, rules: Limits) -> Result<(Lacking, Dangling), Unknown> {
    let recovery = Recovery::open(Arc::clone(disk), Options::default(), LogId(0));
    let mut recovery = recovery.map_err(StartError::Log)?;
    recovery.look_only();
    let image = recovery.image();
    if image.as_ref().is_some_and(|image| !image.is_newest) {
        return Err(Unknown::other("the newest image is damaged"));
    }
    let bytes = image.as_ref().map(|image| image.bytes.as_ref());
    let image_at = image.as_ref().map(|image| image.at).unwrap_or_default();
    let extent_bytes = recovery.extent_bytes();
    let refused = |error| refusal(error, image_at, extent_bytes);
    let restart = Restart::begin("", rules, extent_bytes, bytes, Trust::Whole);
    let mut restart = restart.map_err(refused)?;
    if image.is_some() && !restart.is_whole() {
        return Err(Unknown::other("the image is of an older version"));
    }
    let used: Vec<_> = restart.pages().collect();
    let pages = match used.is_empty() {
        // To open the file would make it anew.
        true => None,
        false => {
            let pages = Pages::open(Arc::clone(disk), used);
            Some(pages.map_err(StartError::Pages)?)
        }
    };
    let read = |page| pages.as_ref().and_then(|pages| pages.read(page).ok());
    let replayed = recovery.replay(|lsn, record| restart.record(lsn, record, &read));
    replayed.map_err(|error| match error {
        ReplayError::Log(error) => StartError::Log(error),
        ReplayError::Record { error, .. } => refused(error),
    })?;
    Ok((Lacking::find(&restart, &recovery, &read), restart.instance().dangling()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_missing_extents_are_counted_and_eight_are_named() {
        let extents = (2..12).map(|extent| (extent, 3)).collect();
        let lacking = Lacking { extents, ..Lacking::default() };
        let text = lacking.to_string();
        assert!(text.starts_with("extent-0000000000000002 (3), extent-0000000000000003 (3)"));
        assert!(text.ends_with("extent-0000000000000009 (3) and 2 further ones"), "{text}");
        assert_eq!((lacking.messages(), lacking.is_empty()), (30, false));
        assert!(Lacking::default().is_empty());
    }

    #[test]
    fn what_was_set_aside_counts_for_a_repair_and_a_backup_and_not_for_a_start() {
        let noted = BTreeMap::from([(1, 2), (3, 4)]);
        let lacking = Lacking { extents: BTreeMap::from([(3, 1)]), noted: noted.clone() };
        assert_eq!((lacking.messages(), lacking.notes()), (1, 6));
        assert_eq!(lacking.of_all().extents().collect::<Vec<_>>(), [(1, 2), (3, 5)]);
        assert_eq!(lacking.of_notes().extents().collect::<Vec<_>>(), [(1, 2), (3, 4)]);
        let given_up = Lacking { noted, ..Lacking::default() };
        assert!(given_up.is_empty() && !given_up.of_all().is_empty());
    }
}
