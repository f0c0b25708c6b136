//! Young and lately read parts of the log in memory, bounded.
//!
//! Not here: reading from disk (`read`).
//!
//! Invariants: a block is a piece of the log that passed its checksums (or was just written); what
//! is handed out is a slice of it, no copy; memory counted never exceeds `bytes_max` after an
//! insertion, nor what was read from disk `read_bytes_max`: a client that browses a deep queue
//! neither pushes out what all others wrote a moment ago, nor makes the process grow by all of it.
//! What was handed out keeps its block alive, uncounted: holders bound it by how many bodies they
//! have in hand.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn};

use crate::format::size;

/// Bytes read from disk at a time.
pub(crate) const READ_AHEAD_BYTES: u64 = 1024 * 1024;
/// Ends of read-ahead blocks, remembered as positions where a batch begins.
const STARTS_MAX: usize = 64;

/// A cache of less is for what was read as a whole: a part of it would not hold what is read ahead
/// for a few readers, and each of their messages would be a read of its own.
/// A half of this holds the longest piece that is read at once, too.
const DIVIDED_BYTES_MIN: u64 = 32 * READ_AHEAD_BYTES;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    /// Of what was read from disk: a half.
    read_bytes_max: usize,
    bytes: usize,
    read_bytes: usize,
    /// By the position of the first byte.
    blocks: BTreeMap<Lsn, Block>,
    /// In order of insertion or second chance, which their numbers say; may name blocks that are
    /// gone.
    written: VecDeque<(Lsn, u64)>,
    /// The same of what was read from disk.
    read: VecDeque<(Lsn, u64)>,
    numbered: u64,
    starts: VecDeque<Lsn>,
    /// How often a part of the log was cut off.
    cuts: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    /// What it costs: the memory behind it may be longer.
    cost: usize,
    number: u64,
    origin: Origin,
    used: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Written,
    Read,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Cache {
        Cache {
            bytes_max,
            read_bytes_max: if (bytes_max as u64) < DIVIDED_BYTES_MIN {
                bytes_max
            } else {
                bytes_max / 2
            },
            bytes: 0,
            read_bytes: 0,
            blocks: BTreeMap::new(),
            written: VecDeque::new(),
            read: VecDeque::new(),
            numbered: 0,
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
            self.put(lsn, bytes, cost, Origin::Read);
            self.remember_start(end);
        }
    }

    /// Forgets all behind `end`: that part of the log was cut off.
    pub(crate) fn cut(&mut self, end: Lsn) {
        self.cuts += 1;
        self.starts.retain(|start| *start <= end);
        for (_, block) in self.blocks.split_off(&end) {
            self.count_off(&block);
        }
        for (lsn, block) in &mut self.blocks {
            block.bytes.truncate(size(end.0 - lsn.0));
        }
    }

    /// Puts in a piece of the log that begins at `lsn` and was just written.
    pub(crate) fn insert(&mut self, lsn: Lsn, bytes: Bytes, cost: usize) {
        self.put(lsn, bytes, cost, Origin::Written);
    }

    fn put(&mut self, lsn: Lsn, bytes: Bytes, cost: usize, origin: Origin) {
        let cost_max = if origin == Origin::Read { self.read_bytes_max } else { self.bytes_max };
        if cost > cost_max {
            return;
        }
        if let Some(old) = self.blocks.remove(&lsn) {
            self.count_off(&old);
        }
        // Before it is here: with all others used a moment ago, it would be the first to leave.
        while origin == Origin::Read && self.read_bytes + cost > self.read_bytes_max {
            self.evict(Origin::Read);
        }
        while self.bytes + cost > self.bytes_max {
            self.evict(self.oldest());
        }
        self.numbered += 1;
        let block = Block { bytes, cost, number: self.numbered, origin, used: false };
        self.bytes += cost;
        self.read_bytes += if origin == Origin::Read { cost } else { 0 };
        let entry = (lsn, self.numbered);
        self.order_of(origin).push_back(entry);
        self.blocks.insert(lsn, block);
    }

    fn order_of(&mut self, origin: Origin) -> &mut VecDeque<(Lsn, u64)> {
        match origin {
            Origin::Written => &mut self.written,
            Origin::Read => &mut self.read,
        }
    }

    fn count_off(&mut self, block: &Block) {
        self.bytes -= block.cost;
        self.read_bytes -= if block.origin == Origin::Read { block.cost } else { 0 };
    }

    /// Where the block is that is next to leave.
    fn oldest(&self) -> Origin {
        let number = |order: &VecDeque<(Lsn, u64)>| order.front().map_or(u64::MAX, |next| next.1);
        if number(&self.written) < number(&self.read) { Origin::Written } else { Origin::Read }
    }

    fn evict(&mut self, origin: Origin) {
        let Some((lsn, number)) = self.order_of(origin).pop_front() else { return };
        match self.blocks.get_mut(&lsn) {
            Some(block) if block.number != number => {}
            Some(block) if block.used => {
                block.used = false;
                self.numbered += 1;
                block.number = self.numbered;
                let again = (lsn, self.numbered);
                self.order_of(origin).push_back(again);
            }
            Some(_) => {
                if let Some(block) = self.blocks.remove(&lsn) {
                    self.count_off(&block);
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
    fn what_is_read_has_half_of_a_cache_and_all_of_a_small_one() {
        const MIB: usize = 1024 * 1024;
        let filled = |cache_bytes: usize| {
            let mut cache = Cache::new(cache_bytes);
            for number in 0..64 {
                cache.insert_read(Lsn(number * MIB as u64), 0, Bytes::from(vec![0; 8]), MIB);
            }
            cache.bytes()
        };
        assert_eq!(filled(64 * MIB), 32 * MIB);
        assert_eq!(filled(32 * MIB), 16 * MIB);
        assert_eq!(filled(32 * MIB - 1), 31 * MIB);
        assert_eq!(filled(MIB), MIB);
    }

    #[test]
    fn what_is_read_pushes_out_the_oldest_of_what_was_read_first() {
        const MIB: usize = 1024 * 1024;
        let mut cache = Cache::new(32 * MIB);
        let is_here = |cache: &mut Cache, lsn| cache.get(body(lsn, 1)).is_some();
        for written in 0..16 {
            cache.insert(Lsn(written * 100), Bytes::from(vec![0; 8]), MIB);
        }
        for read in 20..37 {
            cache.insert_read(Lsn(read * 100), 0, Bytes::from(vec![0; 8]), MIB);
        }
        assert_eq!((cache.bytes(), cache.read_bytes), (32 * MIB, 16 * MIB));
        assert!(!is_here(&mut cache, 2_000));
        // What is written may have all of it: the oldest leaves, wherever it came from.
        cache.insert(Lsn(4_000), Bytes::from(vec![0; 8]), MIB);
        assert_eq!(cache.read_bytes, 16 * MIB);
        assert!(!is_here(&mut cache, 0) && is_here(&mut cache, 2_100));
        for written in 41..100 {
            cache.insert(Lsn(written * 100), Bytes::from(vec![0; 8]), MIB);
        }
        assert_eq!((cache.bytes(), cache.read_bytes), (32 * MIB, 0));
    }

    #[test]
    fn a_block_that_just_came_stays_though_all_others_were_used() {
        const MIB: usize = 1024 * 1024;
        let mut cache = Cache::new(4 * MIB);
        for read in 0..4 {
            cache.insert_read(Lsn(read * 100), 0, Bytes::from(vec![0; 8]), MIB);
        }
        for read in 4..20 {
            (0..read).for_each(|before| drop(cache.get(body(before * 100, 1))));
            cache.insert_read(Lsn(read * 100), 0, Bytes::from(vec![0; 8]), MIB);
            assert!(cache.get(body(read * 100, 1)).is_some(), "{read}");
            assert_eq!(cache.bytes(), 4 * MIB);
        }
    }

    #[test]
    fn a_piece_that_is_too_long_pushes_out_nothing() {
        const MIB: usize = 1024 * 1024;
        let mut cache = Cache::new(32 * MIB);
        cache.insert_read(Lsn(0), 0, Bytes::from(vec![0; 8]), MIB);
        cache.insert_read(Lsn(100), 0, Bytes::from(vec![0; 8]), 16 * MIB + 1);
        assert!(cache.get(body(0, 1)).is_some() && cache.get(body(100, 1)).is_none());
    }

    #[test]
    fn a_block_that_is_put_in_again_or_cut_off_is_counted_by_where_it_came_from_last() {
        let mut cache = Cache::new(1_000);
        cache.insert(Lsn(0), Bytes::from(vec![0; 100]), 100);
        cache.insert_read(Lsn(0), 0, Bytes::from(vec![0; 100]), 200);
        assert_eq!((cache.bytes(), cache.read_bytes), (200, 200));
        cache.insert(Lsn(0), Bytes::from(vec![0; 100]), 100);
        assert_eq!((cache.bytes(), cache.read_bytes), (100, 0));
        cache.insert_read(Lsn(300), 0, Bytes::from(vec![0; 100]), 100);
        cache.cut(Lsn(200));
        assert_eq!((cache.bytes(), cache.read_bytes), (100, 0));
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
