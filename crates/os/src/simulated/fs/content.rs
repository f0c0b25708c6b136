//! The bytes of a file: what a reader sees, what is on the medium, and the single writes between.
//!
//! Not here: names, space, time.
//!
//! Invariants: after a sync what is on the medium is what a reader sees; no byte behind the length
//! of a file is anything but zero; a write or a sync costs what it touches, not what the file has.

use std::sync::{Arc, LazyLock};

use towline_types::SeededRandom;

/// Of an allocation, and the largest unit that a disk writes whole or not at all.
pub(super) const BLOCK_BYTES: usize = 4096;
/// The smallest unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

type Block = Arc<[u8; BLOCK_BYTES]>;

/// Shared by all blocks of zeros: extents are filled with them before they are used.
static ZEROS: LazyLock<Block> = LazyLock::new(|| Arc::new([0; BLOCK_BYTES]));

/// Bytes in shared blocks; a block that is missing reads as zeros.
#[derive(Clone, Debug, Default)]
struct Bytes {
    length: u64,
    blocks: Vec<Option<Block>>,
}

impl Bytes {
    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.length.saturating_sub(offset).min(buffer.len() as u64);
        let count = index(count);
        let mut filled = 0;
        while filled < count {
            let (at, from) = split(offset + filled as u64);
            let piece = (BLOCK_BYTES - from).min(count - filled);
            let target = &mut buffer[filled..filled + piece];
            match self.blocks.get(at).and_then(Option::as_ref) {
                Some(block) if !Arc::ptr_eq(block, &ZEROS) => {
                    target.copy_from_slice(&block[from..from + piece]);
                }
                // Most of an extent that is not full yet.
                Some(_) | None => target.fill(0),
            }
            filled += piece;
        }
        count
    }

    /// Whether these bytes are there.
    fn holds(&self, bytes: &[u8], offset: u64) -> bool {
        if offset + bytes.len() as u64 > self.length {
            return false;
        }
        let mut compared = 0;
        while compared < bytes.len() {
            let (at, from) = split(offset + compared as u64);
            let piece = (BLOCK_BYTES - from).min(bytes.len() - compared);
            let block = self.blocks.get(at).and_then(Option::as_ref).unwrap_or(&ZEROS);
            if block[from..from + piece] != bytes[compared..compared + piece] {
                return false;
            }
            compared += piece;
        }
        true
    }

    fn block(&self, at: usize) -> Option<Block> {
        self.blocks.get(at).cloned().flatten()
    }

    fn set_block(&mut self, at: usize, block: Option<Block>) {
        if at >= self.blocks.len() {
            self.blocks.resize(at + 1, None);
        }
        self.blocks[at] = block;
    }

    /// Changes bytes within one block. The block that came of it.
    fn change(&mut self, at: usize, from: usize, bytes: &[u8]) -> Block {
        let changed = match <&[u8; BLOCK_BYTES]>::try_from(bytes) {
            Ok(whole) if *whole == **ZEROS => Arc::clone(&ZEROS),
            Ok(whole) => Arc::new(*whole),
            Err(_) => {
                let before = self.blocks.get_mut(at).and_then(Option::take);
                let mut block = before.unwrap_or_else(|| Arc::clone(&ZEROS));
                Arc::make_mut(&mut block)[from..from + bytes.len()].copy_from_slice(bytes);
                block
            }
        };
        self.set_block(at, Some(Arc::clone(&changed)));
        changed
    }

    fn set_length(&mut self, length: u64) {
        self.length = length;
        let (at, from) = split(length);
        self.blocks.truncate(at + usize::from(from > 0));
        if let Some(Some(block)) = self.blocks.get_mut(at)
            && block[from..].iter().any(|byte| *byte != 0)
        {
            Arc::make_mut(block)[from..].fill(0);
        }
    }
}

/// What was done since the last sync, in order.
#[derive(Clone, Debug)]
enum Unsynced {
    /// Bytes `from` to `to` of a block, and the whole block after that.
    Piece { at: usize, from: usize, to: usize, block: Block },
    /// The length from here on.
    Length(u64),
}

/// The content of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// What a reader sees.
    now: Bytes,
    /// What is on the medium in any case.
    durable: Bytes,
    unsynced: Vec<Unsynced>,
    /// Whether readers see what no sync will write any more, because one failed.
    has_lost: bool,
    /// Syncs that failed.
    failed_syncs: u64,
    /// Blocks at the beginning that space was set aside for.
    reserved: usize,
}

impl Content {
    pub(super) fn length(&self) -> u64 {
        self.now.length
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        self.now.read(buffer, offset)
    }

    pub(super) fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && !self.has_lost
    }

    pub(super) fn failed_syncs(&self) -> u64 {
        self.failed_syncs
    }

    /// Whether these bytes are there after any power cut.
    pub(super) fn has_synced(&self, bytes: &[u8], offset: u64) -> bool {
        if !self.durable.holds(bytes, offset) {
            return false;
        }
        let end = offset + bytes.len() as u64;
        self.unsynced.iter().all(|change| match change {
            // Written again, and not synced: what is there must be the same.
            Unsynced::Piece { at, from, to, block } => {
                let block_begin = (at * BLOCK_BYTES) as u64;
                let low = offset.max(block_begin + *from as u64);
                let high = end.min(block_begin + *to as u64);
                low >= high
                    || block[index(low - block_begin)..index(high - block_begin)]
                        == bytes[index(low - offset)..index(high - offset)]
            }
            Unsynced::Length(length) => *length >= end,
        })
    }

    /// Blocks that it takes.
    pub(super) fn allocated(&self) -> usize {
        let beyond = self.now.blocks.iter().skip(self.reserved);
        self.reserved + beyond.filter(|block| block.is_some()).count()
    }

    /// How many bytes of a write fit when so many blocks are free, and how many blocks they take.
    pub(super) fn fitting(&self, bytes: usize, offset: u64, free: usize) -> (usize, usize) {
        let (mut fits, mut taken) = (0, 0);
        while fits < bytes {
            let (at, from) = split(offset + fits as u64);
            let is_there = at < self.reserved || matches!(self.now.blocks.get(at), Some(Some(_)));
            if !is_there && taken == free {
                break;
            }
            taken += usize::from(!is_there);
            fits += (BLOCK_BYTES - from).min(bytes - fits);
        }
        (fits, taken)
    }

    /// Blocks that a reservation of so many bytes takes on top.
    pub(super) fn missing(&self, bytes: u64) -> usize {
        let blocks = index(bytes.div_ceil(BLOCK_BYTES as u64));
        let is_missing = |at: &usize| !matches!(self.now.blocks.get(*at), Some(Some(_)));
        (self.reserved..blocks).filter(is_missing).count()
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.max(index(bytes.div_ceil(BLOCK_BYTES as u64)));
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let (at, from) = split(offset + done as u64);
            let piece = (BLOCK_BYTES - from).min(bytes.len() - done);
            let block = self.now.change(at, from, &bytes[done..done + piece]);
            self.unsynced.push(Unsynced::Piece { at, from, to: from + piece, block });
            done += piece;
        }
        let end = offset + bytes.len() as u64;
        if end > self.now.length {
            self.now.length = end;
            self.unsynced.push(Unsynced::Length(end));
        }
    }

    /// Cuts it, or adds a hole; gives back what was set aside behind that.
    pub(super) fn set_length(&mut self, length: u64) {
        if length != self.now.length {
            self.now.set_length(length);
            self.unsynced.push(Unsynced::Length(length));
        }
        self.reserved = self.reserved.min(index(length.div_ceil(BLOCK_BYTES as u64)));
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Unsynced::Piece { at, .. } => self.durable.set_block(at, self.now.block(at)),
                Unsynced::Length(length) => self.durable.set_length(length),
            }
        }
        self.durable.set_length(self.now.length);
    }

    /// A sync that fails: some of it is on the medium now. Of the rest the system forgets that it
    /// must be written, or it tries again at the next sync. Where it forgets, a reader goes on to
    /// see it in the system's memory; but not what was written past that (`direct`).
    pub(super) fn sync_partly(&mut self, is_direct: bool, dice: &mut SeededRandom) {
        self.failed_syncs += 1;
        self.durable = self.after_cut(dice);
        let changes = std::mem::take(&mut self.unsynced);
        if dice.chance(500) {
            self.has_lost = !is_direct;
            if is_direct {
                self.now = self.durable.clone();
            }
            return;
        }
        for change in changes {
            // The version of now: what is on the medium does not become older again.
            if let Unsynced::Piece { at, from, to, .. } = change
                && let Some(block) = self.now.block(at)
            {
                self.unsynced.push(Unsynced::Piece { at, from, to, block });
            }
        }
        self.unsynced.push(Unsynced::Length(self.now.length));
    }

    /// The power goes: what was not synced is there or not, sector by sector.
    pub(super) fn power_cut(&mut self, dice: &mut SeededRandom) {
        self.durable = self.after_cut(dice);
        self.lose_unsynced();
        // What was set aside is in the journal of the file system, or not yet.
        if dice.chance(500) {
            self.reserved = self.reserved.min(self.now.blocks.len());
        }
    }

    /// The power goes, and nothing of what was not synced is there.
    pub(super) fn lose_unsynced(&mut self) {
        self.unsynced.clear();
        self.has_lost = false;
        self.now = self.durable.clone();
    }

    /// What may be on the medium: of the changes of length the first ones, of the pieces any
    /// sectors. A sector is there in one of its versions, never a newer one under an older one.
    fn after_cut(&self, dice: &mut SeededRandom) -> Bytes {
        let mut found = self.durable.clone();
        let sector = if dice.chance(500) { SECTOR_BYTES } else { BLOCK_BYTES };
        let kept_per_mille = [0, 100, 500, 900, 1_000][dice.index(5)];
        let of_length = |change: &&Unsynced| matches!(change, Unsynced::Length(_));
        let lengths = self.unsynced.iter().filter(of_length).count();
        let lengths_kept = match dice.below(4) {
            0 => 0,
            1 => lengths,
            _ => dice.index(lengths + 1),
        };
        let (mut seen, mut length, mut length_kept) = (0, found.length, found.length);
        // What lies behind a cut that did not come through lies in blocks of no file.
        let mut behind = u64::MAX;
        for change in &self.unsynced {
            match change {
                Unsynced::Piece { at, from, to, block } => {
                    let mut begin = from - from % sector;
                    while begin < *to {
                        let end = begin + sector;
                        let is_of_file = ((at * BLOCK_BYTES + begin) as u64) < behind;
                        if dice.chance(kept_per_mille) && is_of_file {
                            found.change(*at, begin, &block[begin..end]);
                        }
                        begin = end;
                    }
                }
                Unsynced::Length(next) => {
                    seen += 1;
                    if seen <= lengths_kept {
                        if *next < length {
                            found.set_length(*next);
                        }
                        length_kept = *next;
                    } else if *next < length {
                        behind = behind.min(*next);
                    }
                    length = *next;
                }
            }
        }
        found.set_length(length_kept);
        found
    }

    /// Changes one bit, on the medium and for readers. False behind the end.
    pub(super) fn flip_bit(&mut self, bit: u64) -> bool {
        let (at, from) = split(bit / 8);
        let flips = bit / 8 < self.now.length;
        for bytes in [&mut self.now, &mut self.durable] {
            if bit / 8 < bytes.length {
                let byte = bytes.block(at).map_or(0, |block| block[from]);
                bytes.change(at, from, &[byte ^ (1 << (bit % 8))]);
            }
        }
        flips
    }
}

/// The block of a byte, and where in it.
fn split(offset: u64) -> (usize, usize) {
    (index(offset / BLOCK_BYTES as u64), index(offset % BLOCK_BYTES as u64))
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
