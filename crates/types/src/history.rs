//! Histories: stretches of a log, each of which one group was live for.
//!
//! Two regions have one log. When the other group becomes live, a new history begins, and it is a
//! record of the log itself that says so: what two groups decided after they parted has two
//! histories, and is never taken for the same.
//!
//! Not here: the chain of all histories of a log (`histories`), and what two chains say of two logs
//! (`standing`).

use std::fmt;

use crate::limits::{GROUP_NAME_BYTES_MAX, HISTORY_CAUSE_BYTES_MAX};
use crate::{Lsn, Time};

/// Names one history. Random: two groups that begin one without knowing of each other begin two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryId(pub [u8; 16]);

impl HistoryId {
    /// Its first four bytes as a number: for names that people read, not to tell histories apart.
    #[must_use]
    pub const fn short(self) -> u32 {
        let [first, second, third, fourth, ..] = self.0;
        u32::from_be_bytes([first, second, third, fourth])
    }
}

impl fmt::Display for HistoryId {
    /// 32 hexadecimal digits.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for HistoryId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HistoryId({self})")
    }
}

/// One stretch of a log that one group was live for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Its name.
    pub id: HistoryId,
    /// The history that it goes on from; `None`: it is the first one of its log.
    pub parent: Option<HistoryId>,
    /// Where it parts from its parent: the end of the last batch that is the parent's in this log.
    /// The first one of a log has all of the log, from [`Lsn::ZERO`] on: what was there before it
    /// had a name is its own.
    pub fork: Lsn,
    /// Name of the group that is live for it, 1 to 48 bytes.
    pub live: String,
    /// When it began, by the wall clock of the instance that decided it.
    pub began: Time,
    /// Why, for people: at most 256 bytes.
    pub cause: String,
}

impl History {
    /// Whether its texts are within their bounds, and its fork can be.
    ///
    /// # Errors
    /// They are not.
    pub fn check(&self) -> Result<(), HistoryFault> {
        if self.live.is_empty() || self.live.len() > GROUP_NAME_BYTES_MAX {
            return Err(HistoryFault::LiveLength { bytes: self.live.len() });
        }
        if self.cause.len() > HISTORY_CAUSE_BYTES_MAX {
            return Err(HistoryFault::CauseLength { bytes: self.cause.len() });
        }
        if self.parent.is_none() && self.fork != Lsn::ZERO {
            return Err(HistoryFault::Fork);
        }
        Ok(())
    }
}

/// Why a history does not go on from those that a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryFault {
    /// The log has one of this name.
    Known(HistoryId),
    /// It goes on from another one than the newest.
    Parent,
    /// It parts before its parent began.
    Fork,
    /// The name of its live group is empty or too long.
    LiveLength {
        /// How long it is.
        bytes: usize,
    },
    /// Its cause is too long.
    CauseLength {
        /// How long it is.
        bytes: usize,
    },
}

impl fmt::Display for HistoryFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryFault::Known(id) => write!(out, "history {id} is in the log already"),
            HistoryFault::Parent => {
                out.write_str("a history goes on from another one than the newest of the log")
            }
            HistoryFault::Fork => out.write_str("a history parts before its parent began"),
            HistoryFault::LiveLength { bytes } => write!(
                out,
                "the name of a live group has {bytes} bytes: it must have 1 to \
                 {GROUP_NAME_BYTES_MAX}"
            ),
            HistoryFault::CauseLength { bytes } => write!(
                out,
                "the cause of a history has {bytes} bytes: at most {HISTORY_CAUSE_BYTES_MAX}"
            ),
        }
    }
}

impl std::error::Error for HistoryFault {}

/// What a group is in the newest history of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionRole {
    /// It decides.
    Live,
    /// Another group decides, and this one applies it.
    Recovery,
    /// The log has no history: there is no other region.
    NoRegion,
}

impl RegionRole {
    /// The word for it, as GRPROLE of the status has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RegionRole::Live => "live",
            RegionRole::Recovery => "recovery",
            RegionRole::NoRegion => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_shown_as_32_digits_and_its_short_name_is_the_first_eight() {
        let id = HistoryId([0xab, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f]);
        assert_eq!(id.to_string(), "ab00000100000000000000000000000f");
        assert_eq!(format!("{:08x}", id.short()), "ab000001");
    }

    #[test]
    fn the_name_of_a_live_group_and_a_cause_have_bounds_and_the_first_history_has_all_of_its_log() {
        let id = HistoryId([1; 16]);
        let parent = Some(HistoryId([2; 16]));
        let of = |parent, fork, live: usize, cause: usize| {
            let (live, cause) = ("g".repeat(live), "c".repeat(cause));
            History { id, parent, fork, live, began: Time(1), cause }.check()
        };
        assert_eq!(of(parent, Lsn(8), GROUP_NAME_BYTES_MAX, HISTORY_CAUSE_BYTES_MAX), Ok(()));
        assert_eq!(of(None, Lsn::ZERO, 1, 0), Ok(()));
        let too_long = Err(HistoryFault::LiveLength { bytes: GROUP_NAME_BYTES_MAX + 1 });
        assert_eq!(of(parent, Lsn(8), GROUP_NAME_BYTES_MAX + 1, 0), too_long);
        assert_eq!(of(parent, Lsn(8), 0, 0), Err(HistoryFault::LiveLength { bytes: 0 }));
        let too_long = Err(HistoryFault::CauseLength { bytes: HISTORY_CAUSE_BYTES_MAX + 1 });
        assert_eq!(of(parent, Lsn(8), 1, HISTORY_CAUSE_BYTES_MAX + 1), too_long);
        assert_eq!(of(None, Lsn(8), 1, 0), Err(HistoryFault::Fork));
    }
}
