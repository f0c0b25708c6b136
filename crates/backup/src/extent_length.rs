//! An extent in a copy of a log, and how much of it the copy has.
//!
//! Not here: where its bytes are (`view`, `stream`).

/// An extent, and how much of it is there from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentLength {
    /// Its number.
    pub(super) sequence: u64,
    /// Bytes of it.
    pub(super) bytes: u64,
}
