//! The format levels of the instances: what each reads that is connected, and what the log of this
//! one may hold.
//!
//! Not here: what a level is (`towline_core`), how levels are said and compared (`link`).
//!
//! Invariants: a level that is *announced* is about to be appended here, and one that is *stored*
//! may be in the log of this instance; both are said in hellos, and an instance that does not read
//! them gets nothing of the log, and is not listened to. The level that is *wanted* is the one that
//! a log has without being asked, and a later one once this is one of two regions. It is announced
//! only while this instance is active and each other configured one is connected, in both
//! directions, and reads it. One that is not there keeps the group where it is.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use towline_link::Peer;
use towline_os::sync::Mutex;
use towline_types::{
    Batch, FORMAT_LEVEL, FORMAT_LEVEL_FIRST, FORMAT_LEVEL_UNASKED, FormatLevels, LevelRaise,
};

use super::Driver;

/// What this process knows of format levels.
pub(crate) struct KnownLevels {
    table: Mutex<LevelTable>,
    /// `stored` of the table, for a look at each batch.
    stored: AtomicU8,
    /// By peer: what is connected under its name does not read what the log may hold.
    is_excluded: Vec<AtomicBool>,
    /// The level that this instance wants the log to have when it is active.
    wanted: AtomicU8,
    /// The level that this instance has applied while it was active.
    in_force: AtomicU8,
    /// The newest level that the other region reads; 0: it did not say so yet.
    of_region: AtomicU8,
}

struct LevelTable {
    /// Applied, in a batch that was stored, or in one that is being appended: what the log may
    /// hold.
    stored: u8,
    /// What it is about to hold.
    announced: u8,
    /// What each peer reads, as it said when it connected: what was dialled, and what came in.
    read: Vec<[Option<u8>; 2]>,
}

impl LevelTable {
    fn said(&self) -> u8 {
        self.stored.max(self.announced)
    }

    fn reads(&self, peer: Peer, wanted: u8) -> bool {
        let ends = self.read[peer];
        ends.iter().all(|read| read.is_some_and(|level| level >= wanted))
    }
}

impl KnownLevels {
    pub(crate) fn new(members: usize) -> KnownLevels {
        let table = LevelTable {
            stored: FORMAT_LEVEL_FIRST,
            announced: FORMAT_LEVEL_FIRST,
            read: vec![[None; 2]; members],
        };
        KnownLevels {
            table: Mutex::new(table),
            stored: AtomicU8::new(FORMAT_LEVEL_FIRST),
            is_excluded: (0..members).map(|_| AtomicBool::new(false)).collect(),
            wanted: AtomicU8::new(FORMAT_LEVEL_UNASKED),
            in_force: AtomicU8::new(FORMAT_LEVEL_FIRST),
            of_region: AtomicU8::new(0),
        }
    }

    /// Changes the table, and what follows from it.
    fn change<R>(&self, change: impl FnOnce(&mut LevelTable) -> R) -> R {
        let mut table = self.table.lock();
        let result = change(&mut table);
        self.stored.store(table.stored, Ordering::Release);
        for (ends, is_excluded) in table.read.iter().zip(&self.is_excluded) {
            let reads_less = ends.iter().flatten().any(|read| *read < table.said());
            is_excluded.store(reads_less, Ordering::Release);
        }
        result
    }

    /// Whether what is connected under this name may get, and say, anything.
    pub(crate) fn is_excluded(&self, peer: Peer) -> bool {
        self.is_excluded[peer].load(Ordering::Acquire)
    }

    /// No more than the other region reads, which holds the same log.
    fn wanted(&self) -> u8 {
        let wanted = self.wanted.load(Ordering::Acquire);
        match self.of_region.load(Ordering::Acquire) {
            0 => wanted,
            read => wanted.min(read),
        }
    }

    /// Every other one is connected and reads this level: it is announced.
    fn announce(&self, this: Peer, wanted: u8) -> bool {
        self.change(|table| {
            let mut others = (0..table.read.len()).filter(|peer| *peer != this);
            let all_read = others.all(|peer| table.reads(peer, wanted));
            if all_read {
                table.announced = wanted;
            }
            all_read
        })
    }
}

impl Driver {
    /// What this instance says of levels.
    pub fn levels(&self) -> FormatLevels {
        FormatLevels { in_force: self.levels.table.lock().said(), read: FORMAT_LEVEL }
    }

    /// The level of what the log of this instance may hold.
    pub fn stored_level(&self) -> u8 {
        self.levels.stored.load(Ordering::Acquire)
    }

    /// The log of this instance may hold what came with this level.
    pub fn note_level(&self, level: u8) {
        if level > self.stored_level() {
            self.levels.change(|table| table.stored = table.stored.max(level));
        }
    }

    /// These batches are in the log of this instance, or about to be: committed or not.
    pub fn note_levels_of(&self, batches: &[Batch]) {
        if self.stored_level() < FORMAT_LEVEL {
            let levels = batches.iter().map(|batch| (self.surroundings.level_of)(&batch.payload));
            levels.for_each(|level| self.note_level(level));
        }
    }

    /// An instance that says this of levels is about to be connected.
    ///
    /// # Errors
    /// The log may hold what it does not read. The links have compared that before, but a level may
    /// have been announced since.
    pub(crate) fn admits_levels(&self, peer: Peer, said: FormatLevels) -> Result<(), String> {
        let level = self.levels.table.lock().said();
        if said.read >= level { Ok(()) } else { Err(self.not_read(peer, level)) }
    }

    /// A connection stands to an instance that said this of levels, or stood.
    pub fn reads(&self, peer: Peer, incoming: bool, said: Option<FormatLevels>) {
        let read = said.map(|said| said.read);
        self.levels.change(|table| table.read[peer][usize::from(incoming)] = read);
    }

    /// Something came from a peer.
    ///
    /// # Errors
    /// It was connected before the log had what it does not read: it may not go on.
    pub fn may_be_heard(&self, peer: Peer) -> Result<(), String> {
        if !self.levels.is_excluded(peer) {
            return Ok(());
        }
        Err(self.not_read(peer, self.levels().in_force))
    }

    fn not_read(&self, peer: Peer, level: u8) -> String {
        let name = self.name(peer);
        format!("the log has, or gets, format level {level}, and '{name}' does not read that")
    }

    /// Has this instance, when it is active, raise the level of the log to this one, once all
    /// others read it. A lower one than is wanted already changes nothing.
    ///
    /// # Panics
    /// This program does not read it.
    pub fn wants_level(&self, level: u8) {
        assert!(level <= FORMAT_LEVEL, "a log at level {level} could not be read again");
        self.levels.wanted.fetch_max(level, Ordering::AcqRel);
    }

    /// The other region, which is connected, reads up to this level: this log gets no later one.
    pub fn region_reads(&self, level: u8) {
        self.levels.of_region.store(level.max(FORMAT_LEVEL_FIRST), Ordering::Release);
    }

    /// The instances that are not known to read the level that is wanted, while it is not in the
    /// log.
    #[must_use]
    pub fn keeps_level_down(&self) -> Vec<Peer> {
        let wanted = self.levels.wanted();
        if self.stored_level() >= wanted {
            return Vec::new();
        }
        let table = self.levels.table.lock();
        let others = (0..table.read.len()).filter(|peer| *peer != self.this());
        others.filter(|peer| !table.reads(*peer, wanted)).collect()
    }

    /// Their names.
    #[must_use]
    pub fn level_waits_for(&self) -> Vec<String> {
        let waits_for = self.keeps_level_down();
        waits_for.into_iter().map(|peer| self.name(peer).to_owned()).collect()
    }

    /// Has the active instance raise the level, if this is it and all others are connected and read
    /// the one that is wanted. To be called again and again: an absent instance, or a full log, is
    /// looked at anew.
    pub fn raise_level_if_all_read(&self) {
        let Some(active) = self.active() else { return };
        let wanted = self.levels.wanted();
        if self.levels.in_force.load(Ordering::Acquire) >= wanted {
            return;
        }
        // Said from here on: an earlier version that comes now would not read what is appended.
        if !self.levels.announce(self.this(), wanted) {
            return;
        }
        match active.raise_format_level(wanted) {
            LevelRaise::InForce => {
                self.note_level(wanted);
                self.levels.in_force.fetch_max(wanted, Ordering::AcqRel);
            }
            LevelRaise::OnItsWay => self.note_level(wanted),
            LevelRaise::Refused => {}
        }
        // What the log has speaks for itself now, and what it refused it does not have.
        self.levels.change(|table| table.announced = FORMAT_LEVEL_FIRST);
    }
}

#[cfg(test)]
mod tests;
