//! What is wrong with bytes that are read. Only types and texts.

use std::fmt;

use towline_types::FORMAT_LEVEL;

/// Bytes that are not a record, a page or an image of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Where in the bytes.
    pub offset: usize,
    /// What was wrong there.
    pub what: &'static str,
    /// What a later version of this program wrote there; `None`: no version did.
    pub later: Option<LaterFormat>,
}

/// What a later version of this program wrote. It is never skipped: it may be what makes the rest
/// mean something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterFormat {
    /// The version of a layout.
    Version(u8),
    /// A record of this kind.
    Kind(u8),
    /// A field that this program does not know.
    Field {
        /// What has it.
        owner: &'static str,
        /// Its number.
        number: u64,
    },
    /// The format level of the log.
    Level(u64),
}

impl LaterFormat {
    /// What this program knows of the same, of a part with a layout that it reads up to
    /// `version`.
    #[must_use]
    pub fn known(self, version: u8) -> String {
        match self {
            LaterFormat::Version(_) => version.to_string(),
            LaterFormat::Level(_) => FORMAT_LEVEL.to_string(),
            LaterFormat::Kind(_) | LaterFormat::Field { .. } => {
                format!("format level {FORMAT_LEVEL}")
            }
        }
    }
}

impl RecordError {
    /// No version wrote that.
    #[must_use]
    pub const fn malformed(offset: usize, what: &'static str) -> RecordError {
        RecordError { offset, what, later: None }
    }

    /// A later version wrote that.
    #[must_use]
    pub const fn later(offset: usize, later: LaterFormat) -> RecordError {
        RecordError { offset, what: "a later version wrote it", later: Some(later) }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordError { offset, what, later } = self;
        match later {
            None => write!(out, "at byte {offset}: {what}"),
            Some(later) => write!(out, "at byte {offset}: {what}: {later}"),
        }
    }
}

impl std::error::Error for RecordError {}

impl fmt::Display for LaterFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaterFormat::Version(version) => write!(out, "format version {version}"),
            LaterFormat::Kind(kind) => write!(out, "a record of kind {kind}"),
            LaterFormat::Field { owner, number } => write!(out, "field {number} of {owner}"),
            LaterFormat::Level(level) => write!(out, "format level {level}"),
        }
    }
}

/// The log contradicts itself: it is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayError {
    /// What did not fit.
    pub what: String,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the log contradicts itself: {}", self.what)
    }
}

impl std::error::Error for ReplayError {}
