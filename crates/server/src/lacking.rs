//! Extents of the log that hold live messages and are not there: somebody removed them by hand, or the
//! file system lost them. A start that reads only what lies behind its image would not notice.
//!
//! Not here: damage inside an extent (the log's room finds it); what becomes of messages that cannot
//! be read (`towline_core::SetAside`).
//!
//! Invariant: an extent that was given back in order is never called missing. So where batches were
//! read and not applied, because it is not known that the group has committed them, only a gap counts:
//! those batches may take away what lived before the oldest extent, and gaps are not made by giving back.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use towline_core::{Limits, Pages as Trust};
use towline_log::{Disk, LinuxDisk, LogId, Options, Pages, Recovery};
use towline_node::Restart;
use towline_types::PageRef;

use crate::start::REBUILD_MARKER;

/// Extents that are named one by one.
const NAMED_MAX: usize = 8;

/// The extents that are missing, and how many messages, or parts of large ones, each one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    extents: BTreeMap<u64, u64>,
}

impl Lacking {
    /// Holds what lives against what is there, after replay.
    /// Messages that were set aside as damaged do not count: they are given up already, and each is
    /// a note on the dead-letter queue. A page that `read` cannot give is taken to have none of them.
    pub(crate) fn find(
        restart: &Restart,
        recovery: &Recovery,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Lacking {
        let from = if recovery.held_back() { recovery.oldest_extent() } else { 0 };
        let mut extents = restart.live_extents();
        extents.retain(|extent, _| *extent >= from && !recovery.has_extent(*extent));
        if !extents.is_empty() {
            let notes = restart.set_aside_in(&|extent| extents.contains_key(&extent), read);
            for (extent, count) in &mut extents {
                *count = count.saturating_sub(notes.get(extent).copied().unwrap_or_default());
            }
            extents.retain(|_, count| *count > 0);
        }
        Lacking { extents }
    }

    /// Whether none is missing.
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

/// Reads image and log of the queue manager in `data` as a start would, and changes nothing. Safe
/// beside a running one.
///
/// # Errors
/// Why it is not known which extents hold messages.
pub fn look(data: &Path) -> Result<Lacking, String> {
    look_with(data, Limits::default()).map(|(lacking, _)| lacking)
}

/// Names that are relied on and are not there, as `QueueManager::dangling` gives them.
type Dangling = (Option<String>, Vec<(String, String)>);

/// The same under the rules of a configuration, and the names that are relied on and are not there.
///
/// # Errors
/// As [`look`].
pub(crate) fn look_with(data: &Path, rules: Limits) -> Result<(Lacking, Dangling), String> {
    let folder = crate::log_folder(data).map_err(|error| error.to_string())?;
    let folder = folder.ok_or("there is no recovery log")?;
    if data.join(REBUILD_MARKER).exists() || folder.join(REBUILD_MARKER).exists() {
        return Err("the next start rebuilds the queues from the whole log".into());
    }
    let disk: Arc<dyn Disk> =
        Arc::new(LinuxDisk::read_only(&folder).map_err(|error| error.to_string())?);
    look_at(&disk, rules)
}

fn look_at(disk: &Arc<dyn Disk>, rules: Limits) -> Result<(Lacking, Dangling), String> {
    let recovery = Recovery::open(Arc::clone(disk), Options::default(), LogId(0));
    let mut recovery = recovery.map_err(|error| error.to_string())?;
    recovery.look_only();
    let image = recovery.image();
    if image.as_ref().is_some_and(|image| !image.is_newest) {
        return Err("the newest image is damaged".into());
    }
    let bytes = image.as_ref().map(|image| image.bytes.as_ref());
    let extent_bytes = recovery.extent_bytes();
    let restart = Restart::begin("", rules, extent_bytes, bytes, Trust::Whole);
    let mut restart = restart.map_err(|error| error.to_string())?;
    if image.is_some() && !restart.is_whole() {
        return Err("the image is of an older version".into());
    }
    let used: Vec<_> = restart.pages().collect();
    let pages = match used.is_empty() {
        // To open the file would make it anew.
        true => None,
        false => {
            let pages = Pages::open(Arc::clone(disk), used);
            Some(pages.map_err(|error| error.to_string())?)
        }
    };
    let read = |page| pages.as_ref().and_then(|pages| pages.read(page).ok());
    let replayed = recovery.replay(|lsn, record| restart.record(lsn, record, &read));
    replayed.map_err(|error| error.to_string())?;
    Ok((Lacking::find(&restart, &recovery, &read), restart.instance().dangling()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_missing_extents_are_counted_and_eight_are_named() {
        let lacking = Lacking { extents: (2..12).map(|extent| (extent, 3)).collect() };
        let text = lacking.to_string();
        assert!(text.starts_with("extent-0000000000000002 (3), extent-0000000000000003 (3)"));
        assert!(text.ends_with("extent-0000000000000009 (3) and 2 further ones"), "{text}");
        assert_eq!((lacking.messages(), lacking.is_empty()), (30, false));
        assert!(Lacking::default().is_empty());
    }
}
