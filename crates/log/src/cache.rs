//! Young and lately read parts of the log in memory, bounded.
//!
//! Not here: reading from disk (`read`).
//!
//! A walk through a deep queue reads much that is wanted once. It takes the space that is free, and
//! a quarter of what others use: their messages, which were written lately, stay.
//!
//! Invariants: a block is a piece of the log that passed its checksums (or was just written); what
//! is handed out is a slice of it, no copy; memory counted never exceeds `bytes_max` after an
//! insertion. What was handed out keeps its block alive, uncounted: holders bound it by how many
//! bodies they have in hand.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn};

use crate::format::size;

/// The part of the cache (one in so many) that blocks which were read from disk may have although
/// what was written needs it.
const SHARE_OF_READ: usize = 4;
/// Ends of read-ahead blocks, remembered as positions where a batch begins.
const STARTS_MAX: usize = 64;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    bytes: usize,
    /// Of these: of blocks that were read from disk.
    read_bytes: usize,
    /// By the position of the first byte.
    blocks: BTreeMap<Lsn, Block>,
    written: BlockOrder,
    read: BlockOrder,
    inserted: u64,
    starts: VecDeque<Lsn>,
    /// How often a part of the log was cut off.
    cuts: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// Blocks in order of insertion or second chance; may name some that are gone.
type BlockOrder = VecDeque<(Lsn, u64)>;

/// How a block came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Written,
    Read,
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    /// What it costs: the memory behind it may be longer.
    cost: usize,
    number: u64,
    used: bool,
    origin: Origin,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Cache {
        Cache {
            bytes_max,
            bytes: 0,
            read_bytes: 0,
            blocks: BTreeMap::new(),
            written: BlockOrder::new(),
            read: BlockOrder::new(),
            inserted: 0,
            starts: VecDeque::new(),
            cuts: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// To be asked before the disk is read, for [`Cache::insert_read`].
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Puts in a piece that was read from disk, unless some of the log was cut off since `cuts` was
    /// asked: it may be what is no longer there.
    pub(crate) fn insert_read(&mut self, lsn: Lsn, cuts: u64, bytes: Bytes, cost: usize) {
        if cuts == self.cuts {
            let end = lsn.after(bytes.len() as u64);
            self.enter(lsn, bytes, cost, Origin::Read);
            self.remember_start(end);
        }
    }

    /// Forgets all behind `end`: that part of the log was cut off.
    pub(crate) fn cut(&mut self, end: Lsn) {
        self.cuts += 1;
        self.starts.retain(|start| *start <= end);
        for (_, block) in self.blocks.split_off(&end) {
            self.is_gone(&block);
        }
        for (lsn, block) in &mut self.blocks {
            block.bytes.truncate(size(end.0 - lsn.0));
        }
    }

    /// Puts in a piece of the log that begins at `lsn`, as it was written.
    pub(crate) fn insert(&mut self, lsn: Lsn, bytes: Bytes, cost: usize) {
        self.enter(lsn, bytes, cost, Origin::Written);
    }

    fn enter(&mut self, lsn: Lsn, bytes: Bytes, cost: usize, origin: Origin) {
        if cost > self.bytes_max {
            return;
        }
        self.inserted += 1;
        let number = self.inserted;
        let block = Block { bytes, cost, number, used: false, origin };
        if let Some(old) = self.blocks.insert(lsn, block) {
            self.is_gone(&old);
        }
        self.bytes += cost;
        self.read_bytes += if origin == Origin::Read { cost } else { 0 };
        self.order(origin).push_back((lsn, number));
        while self.bytes > self.bytes_max {
            self.evict();
        }
    }

    fn order(&mut self, origin: Origin) -> &mut BlockOrder {
        match origin {
            Origin::Written => &mut self.written,
            Origin::Read => &mut self.read,
        }
    }

    /// A block was taken out.
    fn is_gone(&mut self, block: &Block) {
        self.bytes -= block.cost;
        self.read_bytes -= if block.origin == Origin::Read { block.cost } else { 0 };
    }

    fn evict(&mut self) {
        let reads_have_more = self.read_bytes > self.bytes_max / SHARE_OF_READ;
        let origin = match reads_have_more || self.written.is_empty() {
            true => Origin::Read,
            false => Origin::Written,
        };
        let oldest = self.order(origin).pop_front();
        assert!(oldest.is_some(), "what has bytes in the cache stands in an order");
        let Some((lsn, number)) = oldest else { return };
        match self.blocks.get_mut(&lsn) {
            Some(block) if block.number != number => {}
            Some(block) if block.used => {
                block.used = false;
                self.order(origin).push_back((lsn, number));
            }
            Some(_) => {
                if let Some(block) = self.blocks.remove(&lsn) {
                    self.is_gone(&block);
                }
            }
            None => {}
        }
    }

    /// The body, if it is here.
    pub(crate) fn get(&mut self, body: BodyLocation) -> Option<Bytes> {
        let found = self.find(body);
        match found {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        found
    }

    fn find(&mut self, body: BodyLocation) -> Option<Bytes> {
        let (lsn, block) = self.blocks.range_mut(..=body.lsn).next_back()?;
        let start = usize::try_from(body.lsn.0.checked_sub(lsn.0)?).ok()?;
        let end = start.checked_add(usize::try_from(body.bytes).ok()?)?;
        if end > block.bytes.len() {
            return None;
        }
        block.used = true;
        Some(block.bytes.slice(start..end))
    }

    /// Remembers that a batch begins at `lsn`.
    pub(crate) fn remember_start(&mut self, lsn: Lsn) {
        if self.starts.len() == STARTS_MAX {
            self.starts.pop_front();
        }
        self.starts.push_back(lsn);
    }

    /// The nearest position at or before `lsn`, not before `least`, where a batch is known to
    /// begin.
    pub(crate) fn nearest_start(&self, least: Lsn, lsn: Lsn) -> Option<Lsn> {
        self.starts.iter().copied().filter(|start| (least..=lsn).contains(start)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(lsn: u64, bytes: u32) -> BodyLocation {
        BodyLocation { lsn: Lsn(lsn), bytes }
    }

    #[test]
    fn a_body_is_a_slice_of_its_block() {
        let mut cache = Cache::new(1_000);
        cache.insert(Lsn(100), Bytes::from(vec![1; 50]), 50);
        cache.insert(Lsn(200), Bytes::from(vec![2; 50]), 50);
        assert_eq!(cache.get(body(210, 10)), Some(Bytes::from(vec![2; 10])));
        assert_eq!(cache.get(body(110, 40)), Some(Bytes::from(vec![1; 40])));
        assert_eq!(cache.get(body(110, 41)), None);
        assert_eq!(cache.get(body(99, 1)), None);
        assert_eq!((cache.hits, cache.misses), (2, 2));
    }

    #[test]
    fn memory_stays_in_bounds_and_what_is_used_stays_longer() {
        let mut cache = Cache::new(300);
        for place in 0..3 {
            cache.insert(Lsn(place * 100), Bytes::from(vec![0; 100]), 100);
        }
        assert!(cache.get(body(0, 1)).is_some());
        cache.insert(Lsn(300), Bytes::from(vec![0; 100]), 100);
        assert!(cache.get(body(0, 1)).is_some());
        assert!(cache.get(body(100, 1)).is_none());
        assert_eq!(cache.bytes(), 300);
        cache.insert(Lsn(400), Bytes::from(vec![0; 100]), 301);
        assert_eq!(cache.bytes(), 300);
    }

    #[test]
    fn a_walk_through_the_log_takes_free_space_and_a_quarter_of_what_was_written() {
        let mut cache = Cache::new(800);
        let block = || Bytes::from(vec![0; 100]);
        for place in 0..8 {
            cache.insert(Lsn(place * 100), block(), 100);
        }
        for place in 100..150 {
            cache.insert_read(Lsn(place * 100), 0, block(), 100);
            assert!(cache.bytes() <= 800);
        }
        let here = |cache: &mut Cache, places: std::ops::Range<u64>| {
            places.filter(|place| cache.get(body(place * 100, 1)).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(here(&mut cache, 0..8), [2, 3, 4, 5, 6, 7]);
        assert_eq!(here(&mut cache, 100..150), [148, 149]);
        let mut empty = Cache::new(800);
        for place in 0..20 {
            empty.insert_read(Lsn(place * 100), 0, block(), 100);
        }
        assert_eq!(here(&mut empty, 0..20), (12..20).collect::<Vec<_>>(), "all of it is free");
        empty.insert(Lsn(9_000), block(), 100);
        assert_eq!(here(&mut empty, 90..91), [90]);
        empty.cut(Lsn(0));
        assert_eq!((empty.bytes, empty.read_bytes), (0, 0));
    }

    #[test]
    fn a_block_put_in_again_is_counted_once() {
        let mut cache = Cache::new(300);
        for _ in 0..10 {
            cache.insert(Lsn(0), Bytes::from(vec![0; 100]), 100);
        }
        assert_eq!(cache.bytes(), 100);
        cache.insert(Lsn(100), Bytes::from(vec![0; 300]), 300);
        assert_eq!(cache.bytes(), 300);
        assert!(cache.get(body(0, 1)).is_none());
    }

    #[test]
    fn the_nearest_start_is_found() {
        let mut cache = Cache::new(0);
        for start in [4_096, 8_192, 40_960] {
            cache.remember_start(Lsn(start));
        }
        assert_eq!(cache.nearest_start(Lsn(0), Lsn(9_000)), Some(Lsn(8_192)));
        assert_eq!(cache.nearest_start(Lsn(8_193), Lsn(9_000)), None);
    }
}
