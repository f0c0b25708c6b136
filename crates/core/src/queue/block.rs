//! A block of a lane: up to 256 messages that follow each other, in memory or away on a page.
//!
//! A block that is *here* has a sheet; one that is *away* has only an outline of what its page
//! says, and all of its messages are available. The writer of a page shares the sheet: a change
//! while it is shared is made to a copy, so that writing blocks no other thread.
//!
//! Not here: order between blocks (`lane`); bytes of a page (`page`); when a page is written or
//! read (`crate::page_cache`).
//!
//! Invariants: `live` and `available` count what the block holds; a block is away only when a page
//! says exactly what it holds and all of that is available; `stored` is set when a page of it is
//! in use, and `current` when that page says what the block holds; `indexed` are the kinds of keys
//! for which all that is available of it is in the key index, and for others nothing of it is.

use std::sync::Arc;

use towline_types::{BodyLocation, PageRef, Time};

use super::entry::{Entry, EntryBody, EntryState};
use super::extras::Extras;
use super::index::KeyKinds;
use super::keys::KeyFilter;
use crate::request::FilterKey;

/// Entries of one block; 18 KiB at 72 bytes each.
#[cfg(not(test))]
pub(crate) const BLOCK_ENTRIES: usize = 256;
/// Small, so that short histories have many blocks.
#[cfg(test)]
pub(crate) const BLOCK_ENTRIES: usize = 8;

/// What a block that is here holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    /// In order of their sequences, tombstones among them.
    pub(crate) entries: Vec<Entry>,
    /// What few of them have, by sequence.
    pub(crate) extras: Extras,
}

/// What is known of a page without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Where it is.
    pub page: PageRef,
    /// Sequence of its first message.
    pub first: u64,
    /// Sequence of its last message.
    pub last: u64,
    /// Messages on it, 1 to 256.
    pub live: u32,
    /// Of these: with an expiry time.
    pub expiring: u32,
    /// The earliest expiry time; [`Time::NEVER`] when there is none.
    pub expires_first: Time,
    /// When the first of them was put.
    pub put_at: Time,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Where the bodies are.
    pub extents: Box<[ExtentShare]>,
}

/// Bodies (or chunks) of one page in one extent of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentShare {
    /// Number of the extent: position divided by the length of extents.
    pub extent: u64,
    /// How many.
    pub bodies: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the page of a block that is away is being read for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PageNeed {
    /// Nothing: it is not.
    #[default]
    None,
    /// For the sake of this key only: if it is not there, the block stays away.
    OfKey(FilterKey),
    /// For all that it holds.
    OfAll,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Block {
    /// Sequence of the first entry, tombstones included; 0 while there is none.
    pub(crate) first: u64,
    pub(crate) live: u32,
    pub(crate) available: u32,
    /// Messages with a fact on its way to the log that needs them here, once for each such fact.
    /// By message, not as a count: when the block is cut, each half keeps its own.
    pins: Vec<u64>,
    /// Counts changes of what a page would say.
    pub(crate) version: u32,
    pub(crate) current: bool,
    /// The round of eviction in which it was read from its page; 0: it never was.
    pub(crate) came_in: u64,
    /// Whether its page was asked for, and what for.
    pub(crate) asked: PageNeed,
    /// The kinds of keys for which it is in the index. None while it is away.
    pub(crate) indexed: KeyKinds,
    /// It is away, and no consumer ever had any of it: a page does not say so.
    untouched: bool,
    sheet: Option<Arc<Sheet>>,
    pub(crate) stored: Option<Arc<Outline>>,
    /// The filter of the keys that are not in it, while it is away and if a consumer selects by
    /// key.
    pub(crate) filter: Option<KeyFilter>,
}

impl Block {
    /// One that holds nothing, and so is indexed for all these kinds of keys.
    pub(crate) fn new(indexed: KeyKinds) -> Block {
        Block { indexed, ..Block::of(Sheet::default()) }
    }

    pub(crate) fn of(sheet: Sheet) -> Block {
        let count = |wanted: &dyn Fn(&Entry) -> bool| {
            u32::try_from(sheet.entries.iter().filter(|entry| wanted(entry)).count())
                .unwrap_or(u32::MAX)
        };
        Block {
            // An empty block gets it with its first entry.
            first: sheet.entries.first().map_or(0, |entry| entry.sequence),
            live: count(&|entry| entry.state != EntryState::Gone),
            available: count(&|entry| entry.state == EntryState::Available),
            pins: Vec::new(),
            version: 0,
            current: false,
            came_in: 0,
            asked: PageNeed::None,
            indexed: KeyKinds::default(),
            untouched: false,
            sheet: Some(Arc::new(sheet)),
            stored: None,
            filter: None,
        }
    }

    /// A block that is away, as an image says.
    pub(crate) fn away(outline: Arc<Outline>) -> Block {
        Block {
            first: outline.first,
            live: outline.live,
            available: outline.live,
            pins: Vec::new(),
            version: 0,
            current: true,
            came_in: 0,
            asked: PageNeed::None,
            indexed: KeyKinds::default(),
            untouched: false,
            sheet: None,
            stored: Some(outline),
            filter: None,
        }
    }

    /// What is in it, for the last time.
    pub(crate) fn into_sheet(self) -> Sheet {
        self.sheet.map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    pub(crate) fn is_here(&self) -> bool {
        self.sheet.is_some()
    }

    /// What it holds, while it is here.
    pub(crate) fn sheet(&self) -> Option<&Arc<Sheet>> {
        self.sheet.as_ref()
    }

    /// What its extras take in memory, in bytes.
    pub(crate) fn extra_bytes(&self) -> u64 {
        self.sheet.as_ref().map_or(0, |sheet| sheet.extras.bytes())
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        self.sheet.as_ref().map_or(&[], |sheet| &sheet.entries)
    }

    /// What it holds, to be changed in a way that no page shows (states, tombstones).
    ///
    /// # Panics
    /// When the block is away.
    pub(crate) fn hidden_mut(&mut self) -> &mut Sheet {
        match &mut self.sheet {
            Some(sheet) => Arc::make_mut(sheet),
            None => unreachable!("a block that is away is not changed"),
        }
    }

    /// What it holds, to be changed in a way that a page must show.
    ///
    /// # Panics
    /// When the block is away.
    pub(crate) fn sheet_mut(&mut self) -> &mut Sheet {
        self.version = self.version.wrapping_add(1);
        self.current = false;
        self.hidden_mut()
    }

    /// The highest sequence in it, tombstones included; `None` when there is none.
    pub(crate) fn last(&self) -> Option<u64> {
        match (&self.sheet, &self.stored) {
            (Some(sheet), _) => sheet.entries.last().map(|entry| entry.sequence),
            (None, Some(outline)) => Some(outline.last),
            (None, None) => None,
        }
    }

    /// Index of the first entry with this sequence or a higher one.
    pub(crate) fn lower_bound(&self, sequence: u64) -> usize {
        let entries = self.entries();
        // Dense sequences are the ordinary case of a queue manager with one busy queue.
        if let Ok(guess) = usize::try_from(sequence.saturating_sub(self.first))
            && entries.get(guess).is_some_and(|entry| entry.sequence == sequence)
        {
            return guess;
        }
        entries.partition_point(|entry| entry.sequence < sequence)
    }

    /// Whether no consumer holds a message of it and a page could say all of it.
    pub(crate) fn can_leave(&self) -> bool {
        let in_log = |entry: &Entry| match entry.place {
            EntryBody::Log { .. } => entry.persistent || entry.state == EntryState::Gone,
            EntryBody::Memory(_) => false,
        };
        self.is_here()
            && self.pins.is_empty()
            && self.live > 0
            && self.available == self.live
            && self.entries().iter().all(in_log)
    }

    /// Lets go of what is in memory.
    ///
    /// # Panics
    /// When no page says what the block holds.
    pub(crate) fn leave(&mut self) -> Option<Arc<Sheet>> {
        assert!(self.current, "a page says what a block holds before it leaves");
        assert!(self.pins.is_empty(), "what a fact on its way needs stays here");
        assert_eq!(self.live, self.available, "a block with held messages stays in memory");
        let Some(outline) = &self.stored else { unreachable!("a current page is stored") };
        assert_eq!(outline.live, self.live, "a page says all");
        self.first = outline.first;
        let mut live = self.entries().iter().filter(|entry| entry.state != EntryState::Gone);
        self.untouched = live.all(|entry| !entry.marks.was_acquired());
        self.indexed = KeyKinds::default();
        self.sheet.take()
    }

    /// It is back: its page was read.
    pub(crate) fn come(&mut self, mut sheet: Sheet) {
        assert!(!self.is_here(), "a block comes when it is away");
        if !self.untouched {
            // Of some of it or all, or before this start: that is not known any more.
            sheet.entries.iter_mut().for_each(|entry| entry.marks.set_acquired());
        }
        self.sheet = Some(Arc::new(sheet));
        self.filter = None;
        self.asked = PageNeed::None;
    }

    /// Keeps the block here for the sake of this message.
    pub(crate) fn pin(&mut self, sequence: u64) {
        self.pins.push(sequence);
    }

    /// One fact less needs this message. None may have: replay pins nothing.
    pub(crate) fn unpin(&mut self, sequence: u64) {
        if let Some(at) = self.pins.iter().position(|pin| *pin == sequence) {
            self.pins.swap_remove(at);
        }
    }

    /// Whether a fact on its way needs something of it.
    pub(crate) fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Makes this what it holds, and yields the rest, if it is too long for one block, as the one
    /// behind it. Each half keeps the pins of its messages, and is indexed as this one was. Both go
    /// on counting versions where it was: a writer that still writes a page of it finds that it
    /// says too little.
    pub(crate) fn refill(&mut self, mut sheet: Sheet) -> Option<Block> {
        let mut pins = std::mem::take(&mut self.pins);
        let (version, indexed) = (self.version, self.indexed);
        let rest = (sheet.entries.len() > BLOCK_ENTRIES).then(|| {
            let entries = sheet.entries.split_off(BLOCK_ENTRIES / 2);
            let Some(from) = entries.first().map(|entry| entry.sequence) else {
                unreachable!("more than a block of entries has a second half")
            };
            let extras = sheet.extras.split_off(from);
            let behind = pins.extract_if(.., |pin| *pin >= from).collect();
            Block { pins: behind, version, indexed, ..Block::of(Sheet { entries, extras }) }
        });
        *self = Block { pins, version, indexed, ..Block::of(sheet) };
        rest
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        let Some(sheet) = &self.sheet else {
            assert!(self.pins.is_empty(), "what a fact on its way needs stays here");
            let stored = self.stored.as_ref();
            assert!(self.current && stored.is_some_and(|outline| outline.live == self.live));
            assert!(stored.is_some_and(|outline| outline.first == self.first), "first of a page");
            assert_eq!(self.live, self.available, "all of a block that is away is available");
            return;
        };
        assert_eq!(self.first, sheet.entries.first().map_or(0, |entry| entry.sequence));
        let count = |state| sheet.entries.iter().filter(|entry| entry.state == state).count();
        assert_eq!(self.available as usize, count(EntryState::Available), "available entries");
        assert_eq!(
            self.live as usize,
            sheet.entries.len() - count(EntryState::Gone),
            "live entries"
        );
        assert!(!self.current || self.stored.is_some(), "a current page is stored");
        for entry in &sheet.entries {
            let known = sheet.extras.get(entry.sequence).is_some();
            assert_eq!(known, entry.marks.has_extra() && entry.state != EntryState::Gone, "extras");
        }
        let here = |sequence: u64| sheet.entries.iter().any(|entry| entry.sequence == sequence);
        assert!(self.pins.iter().all(|pin| here(*pin)), "a pin belongs to an entry");
        let mut extras = sheet.extras.iter();
        assert!(extras.all(|(sequence, _)| here(sequence)), "an extra belongs to an entry");
    }
}

impl Outline {
    /// Whether this sequence may be on the page.
    pub(crate) fn spans(&self, sequence: u64) -> bool {
        (self.first..=self.last).contains(&sequence)
    }
}

/// Adds a body to the shares of extents.
pub(crate) fn add_share(shares: &mut Vec<ExtentShare>, body: BodyLocation, extent_bytes: u64) {
    let extent = body.lsn.0 / extent_bytes;
    let bytes = u64::from(body.bytes);
    // Bodies of one page lie in one extent or two.
    match shares.iter_mut().find(|share| share.extent == extent) {
        Some(share) => {
            share.bodies += 1;
            share.bytes += bytes;
        }
        None => shares.push(ExtentShare { extent, bodies: 1, bytes }),
    }
}
