//! Where a page of a queue's index is.

/// A page in the page file: what must be known to read it and to distinguish it from any other
/// content at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageRef {
    /// Its position, in units of [`PAGE_UNIT_BYTES`] from the start of the file.
    pub unit: u32,
    /// Its length in bytes, 1 or more; it takes whole units.
    pub bytes: u32,
    /// CRC-32C of its bytes.
    pub checksum: u32,
}

/// The page file is given out in units of this size.
pub const PAGE_UNIT_BYTES: u64 = UNIT_BYTES as u64;

const UNIT_BYTES: u32 = 4096;

impl PageRef {
    /// Units that it takes.
    #[must_use]
    pub fn units(self) -> u32 {
        self.bytes.div_ceil(UNIT_BYTES)
    }
}
