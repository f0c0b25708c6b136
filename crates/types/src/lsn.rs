//! Positions in the recovery log.

use std::fmt;

/// A log sequence number: a byte position in the recovery log, counted from the log's first extent.
///
/// Shown as four 16-bit words in decimal, `<0:1157:41026:59250>`, as IBM MQ shows it; `{:#}` shows
/// hexadecimal, `0x00000485a042e772`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first byte of any log.
    pub const ZERO: Lsn = Lsn(0);

    /// The position `bytes` further on.
    ///
    /// # Panics
    /// When the sum passes 2^64: no log of ours can be that long.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Lsn {
        let sum = self.0.checked_add(bytes);
        assert!(sum.is_some(), "a log sequence number passed 2^64");
        Lsn(self.0 + bytes)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if out.alternate() {
            return write!(out, "0x{:016x}", self.0);
        }
        let word = |shift: u32| (self.0 >> shift) & 0xffff;
        write!(out, "<{}:{}:{}:{}>", word(48), word(32), word(16), word(0))
    }
}

/// Where the log keeps one body (or one chunk of a large body): `bytes` bytes from `lsn` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyLocation {
    /// Position of the first byte.
    pub lsn: Lsn,
    /// Length in bytes; a body longer than a log record is kept in chunks.
    pub bytes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsn_is_shown_as_the_published_report_shows_it() {
        let lsn = Lsn(0x0000_0485_a042_e772);
        assert_eq!(lsn.to_string(), "<0:1157:41026:59250>");
        assert_eq!(format!("{lsn:#}"), "0x00000485a042e772");
    }
}
