//! Positions in the recovery log.

use std::fmt;
use std::str::FromStr;

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

impl FromStr for Lsn {
    type Err = LsnSyntaxError;

    /// Reads `<a:b:c:d>`.
    fn from_str(text: &str) -> Result<Lsn, LsnSyntaxError> {
        let words = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        let words = words.ok_or(LsnSyntaxError)?.split(':').map(str::parse::<u16>);
        let words: Vec<u16> = words.collect::<Result<_, _>>().map_err(|_| LsnSyntaxError)?;
        match words.as_slice() {
            [_, _, _, _] => {
                Ok(Lsn(words.iter().fold(0, |lsn, word| (lsn << 16) | u64::from(*word))))
            }
            _ => Err(LsnSyntaxError),
        }
    }
}

/// A text is no position of the form `<a:b:c:d>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsnSyntaxError;

impl fmt::Display for LsnSyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("expected <a:b:c:d>, four numbers up to 65535")
    }
}

impl std::error::Error for LsnSyntaxError {}

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

    #[test]
    fn an_lsn_is_read_as_it_is_shown_and_nothing_else_is() {
        for lsn in [Lsn::ZERO, Lsn(0x0000_0485_a042_e772), Lsn(u64::MAX)] {
            assert_eq!(lsn.to_string().parse(), Ok(lsn));
        }
        for text in ["", "<>", "<1:2:3>", "<1:2:3:4:5>", "<1:2:3:70000>", "1:2:3:4", "<1:2:3:-4>"] {
            assert_eq!(text.parse::<Lsn>(), Err(LsnSyntaxError), "{text}");
        }
    }
}
