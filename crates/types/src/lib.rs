//! Types that every crate uses: positions, times, payloads, limits. No logic but what belongs to a
//! value alone.
//!
//! Reading order: [`Lsn`] (a position in the recovery log), [`Batch`] (what is written, and
//! replicated, at once), [`PageRef`] (a position in the page file), [`Time`] (an argument, never
//! read here), [`CivilTime`] (the same for people), [`Payload`] (bytes on their way from a socket
//! to the log), [`History`] and [`Standing`] (of two regions with one log), [`ChangeCause`] (why
//! roles changed), [`limits`],
//! [`SeededRandom`] (for simulation and tests).

#![forbid(unsafe_code)]

mod batch;
mod change_cause;
mod civil_time;
mod fitting;
mod format_level;
mod histories;
mod history;
mod history_bytes;
pub mod limits;
mod lsn;
mod page;
mod payload;
mod printable;
mod random;
mod standing;
mod time;
mod version;

pub use batch::{BATCH_HEADER_BYTES, Batch, BatchPlace};
pub use change_cause::{ChangeCause, ChangeKind};
pub use civil_time::CivilTime;
pub use fitting::fitting;
pub use format_level::{
    FORMAT_LEVEL, FORMAT_LEVEL_FIRST, FORMAT_LEVEL_OF_REGIONS, FORMAT_LEVEL_UNASKED, FormatLevels,
    LevelRaise,
};
pub use histories::Histories;
pub use history::{History, HistoryFault, HistoryId, RegionRole};
pub use history_bytes::HistoryBytesError;
pub use lsn::{BodyLocation, Lsn, LsnSyntaxError};
pub use page::{PAGE_UNIT_BYTES, PageRef};
pub use payload::Payload;
pub use printable::{is_unprintable, printable, printable_entry, printable_json, printable_lines};
pub use random::SeededRandom;
pub use standing::{RegionLog, Standing};
pub use time::Time;
pub use version::program_version;
