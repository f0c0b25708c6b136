//! The two shares of the memory for large messages: clients with long ones make each other wait,
//! and no others.
//!
//! Not here: which connections wait for a share, and which have it (`arrivals`, `departures`).

use std::time::Duration;

use towline_types::limits;

/// Which share a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Messages up to [`limits::MEDIUM_MESSAGE_BYTES_MAX`].
    Medium,
    /// Longer ones.
    Long,
}

impl Share {
    /// That of a connection that holds so many bytes.
    pub(super) fn of(bytes: u64) -> Share {
        if bytes <= limits::MEDIUM_MESSAGE_BYTES_MAX { Share::Medium } else { Share::Long }
    }

    /// How long one may stand still while others wait for its memory.
    pub(super) fn patience(self) -> Duration {
        match self {
            // All of it is here in four seconds from a client that is fast enough.
            Share::Medium => Duration::from_secs(5),
            Share::Long => Duration::from_secs(15),
        }
    }
}
