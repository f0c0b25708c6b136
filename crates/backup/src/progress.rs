//! How far a backup, a restore or a copy is.
//!
//! Not here: how often it is reported (`account`, `restore`).

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes copied.
    pub done: u64,
    /// Bytes to be copied.
    pub all: u64,
    /// Extents before this one are copied: they can be let go.
    pub extent: u64,
}
