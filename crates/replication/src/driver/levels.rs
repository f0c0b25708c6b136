//! The format levels of the instances: what each said that it reads, and what the log of this one
//! may hold.
//!
//! Not here: what a level is (`towline_core`), how levels are said and compared (`link`).
//!
//! Invariant: the level is raised only while this instance is active and each other configured one
//! has said, in the newest hello that it sent to this process, that it reads the newest level.
//! An instance that is not there keeps the group where it is.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use towline_link::Peer;
use towline_os::sync::Mutex;
use towline_types::{FORMAT_LEVEL, FORMAT_LEVEL_FIRST, FormatLevels};

use super::Driver;

/// What this process knows of format levels.
pub(crate) struct KnownLevels {
    /// Of the log of this instance: what it applied, and what it raised the level to.
    in_force: AtomicU8,
    /// This instance, as the active one, has the newest level in its log.
    is_raised: AtomicBool,
    /// The newest one that each instance reads, once it said so to this process.
    read: Mutex<Vec<Option<u8>>>,
}

impl KnownLevels {
    pub(crate) fn new(members: usize) -> KnownLevels {
        KnownLevels {
            in_force: AtomicU8::new(FORMAT_LEVEL_FIRST),
            is_raised: AtomicBool::new(false),
            read: Mutex::new(vec![None; members]),
        }
    }
}

impl Driver {
    /// What this instance says of levels.
    pub fn levels(&self) -> FormatLevels {
        FormatLevels { in_force: self.levels.in_force.load(Ordering::Acquire), read: FORMAT_LEVEL }
    }

    /// The log of this instance may hold what came with this level.
    pub fn note_level(&self, level: u8) {
        self.levels.in_force.fetch_max(level, Ordering::AcqRel);
    }

    /// What another instance said of levels.
    pub fn hears_levels(&self, peer: Peer, said: FormatLevels) {
        self.levels.read.lock()[peer] = Some(said.read);
    }

    /// The instances that are not known to read the newest level, while it is not in force.
    #[must_use]
    pub fn keeps_level_down(&self) -> Vec<Peer> {
        if self.levels().in_force >= FORMAT_LEVEL {
            return Vec::new();
        }
        let read = self.levels.read.lock();
        let reads = |level: Option<u8>| level.is_some_and(|level| level >= FORMAT_LEVEL);
        let others = read.iter().enumerate().filter(|(peer, _)| *peer != self.this());
        others.filter(|(_, level)| !reads(**level)).map(|(peer, _)| peer).collect()
    }

    /// Their names.
    #[must_use]
    pub fn level_waits_for(&self) -> Vec<String> {
        let waits_for = self.keeps_level_down();
        waits_for.into_iter().map(|peer| self.name(peer).to_owned()).collect()
    }

    /// Has the active instance raise the level, if this is it and all others read the newest one.
    pub fn raise_level_if_all_read(&self) {
        let is_raised = self.levels.is_raised.load(Ordering::Acquire);
        if is_raised || !self.keeps_level_down().is_empty() {
            return;
        }
        if let Some(active) = self.active() {
            // Said from here on: an earlier version that comes now would not read what is appended.
            self.note_level(FORMAT_LEVEL);
            // When the log is full, the next look tries again.
            self.levels.is_raised.store(active.raise_format_level(), Ordering::Release);
        }
    }
}
