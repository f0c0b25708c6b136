//! Bit rot: one bit of what was durable on the disk of an instance changes by itself.
//!
//! Not here: what the bytes mean; when a start is refused for them (`machines`).
//!
//! Invariants: only one machine at a time has such a byte, and both others have all that is
//! committed; the byte is in an extent behind which the log has gone on, in an image, in the page
//! file or in the hard state. The newest batch is left alone: its damage cannot be told from a torn
//! write.

use std::sync::atomic::Ordering;

use towline_os::simulated::fs::FileSystem;
use towline_types::SeededRandom;

use super::{Cluster, DATA, EXTENT_BYTES, RunPhase};

/// How often a byte is drawn until one was written.
const DRAWS_MAX: usize = 20;
/// How often the first bytes of a file, its header, are hit.
const HEADER_PER_MILLE: u64 = 150;
/// The header of each of these files, at least.
const HEADER_BYTES: u64 = 64;

/// A byte that changed.
#[derive(Clone, Debug)]
pub(super) struct RottenByte {
    path: String,
    offset: u64,
    is: u8,
}

impl RottenByte {
    /// Whether it is still on the disk.
    pub(super) fn remains(&self, disk: &FileSystem) -> bool {
        disk.is_synced(&self.path, self.offset, &[self.is])
    }
}

impl Cluster {
    /// A bit of the disk of an instance flips, if the group survives that. Whether it did.
    pub(super) fn rot(&mut self, node: usize) -> bool {
        if self.others_with_all(node).len() < 2 {
            return false;
        }
        let opened = self.machines[node].live.as_ref();
        let opened = opened.and_then(|live| live.board.opened.lock().clone());
        let Some(opened) = opened else { return false };
        let written = opened.driver.log().durable().0 / EXTENT_BYTES;
        let disk = self.machines[node].disk.clone();
        let Some((path, offset, was)) = draw_byte(&disk, written, &mut self.dice) else {
            return false;
        };
        // What it holds may have been committed because of it.
        self.shared.loses(node);
        let bit = self.dice.below(8);
        disk.flip_bit(&path, offset * 8 + bit);
        self.tell(format_args!("bit {bit} of byte {offset} of {path} of instance {node} flips"));
        self.count("bits flipped");
        self.shared.is_rotten[node].store(true, Ordering::Relaxed);
        self.machines[node].is_impaired = true;
        self.machines[node].rotten = Some(RottenByte { path, offset, is: was ^ (1 << bit) });
        if self.dice.chance(500) {
            let power = self.dice.chance(300);
            self.kill(node, power);
        }
        true
    }

    /// Whether damage was mended from the other instances, or its file is not needed any more. In
    /// peace an operator sets the log aside instead, once: what no start and no client reads,
    /// nothing finds.
    pub(super) fn look_for_rot(&mut self) {
        for node in 0..3 {
            let machine = &self.machines[node];
            let Some(rotten) = &machine.rotten else { continue };
            if !rotten.remains(&machine.disk) {
                self.machines[node].rotten = None;
                self.tell(format_args!("instance {node} has no flipped bit any more"));
                self.count("flipped bits gone");
            } else if matches!(self.phase, RunPhase::Peace(_)) && self.others_can_do_without(node) {
                self.replace_damaged(node);
                // Gone with the log; a new file there may have the same byte. What is damaged of
                // the hard state may stay so for good: the instance must do with the other copy.
                self.machines[node].rotten = None;
            }
        }
    }
}

/// A byte that is not zero, of a file that will not be written over there.
fn draw_byte(
    disk: &FileSystem,
    written: u64,
    dice: &mut SeededRandom,
) -> Option<(String, u64, u8)> {
    let being_written = format!("extent-{written:016x}");
    let is_eligible = |name: &String| match name.split_once('-') {
        Some(("extent", _)) => *name < being_written,
        Some(("image" | "group", _)) => true,
        _ => name == "pages",
    };
    let found = ["", "/log"].into_iter().flat_map(|folder| {
        let folder = format!("{DATA}{folder}");
        let names = disk.names(&folder).into_iter().filter(is_eligible);
        names.map(move |name| format!("{folder}/{name}")).collect::<Vec<_>>()
    });
    let mut paths: Vec<String> = found.collect();
    if paths.is_empty() {
        return None;
    }
    let path = paths.swap_remove(dice.index(paths.len()));
    let bytes = disk.bytes(&path)?;
    let length = bytes.len() as u64;
    let longest = if dice.chance(HEADER_PER_MILLE) { length.min(HEADER_BYTES) } else { length };
    for _ in 0..DRAWS_MAX {
        let offset = dice.below(longest.max(1));
        let byte = usize::try_from(offset).ok().and_then(|at| bytes.get(at)).copied()?;
        if byte != 0 && disk.is_synced(&path, offset, &[byte]) {
            return Some((path, offset, byte));
        }
    }
    None
}
