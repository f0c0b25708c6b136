//! What a step wants kept is on the disk before any message of that step leaves: a vote that is sent and
//! then forgotten is a second vote.
//!
//! The order is a matter of types: to send takes a [`Settled`], which only [`Driver::settle`] makes. Not
//! here: how it is written (`kept_file`), what is watched meanwhile (`hanging`).

use towline_group::Kept;
use towline_log::{Listener, LogError};

use super::{Core, Driver};
use crate::group::life::Life;

/// What a step wanted kept is durable, if it wanted anything.
pub(super) struct Settled(());

impl Driver {
    /// Makes durable what a step wants kept. A disk that refuses ends the process.
    pub(super) fn settle(&self, core: &Core, kept: Option<Kept>) -> Settled {
        let Some(kept) = kept else { return Settled(()) };
        // While its log is about to be replaced, what comes to be kept (a newer term) must not say again
        // that it may vote: it may stop when there is no log in either place.
        let kept = if core.life == Life::Copying { kept.without_vote() } else { kept };
        if let Err(error) = self.disk.keeping(|| core.kept_file.write(&kept)) {
            // A vote that is not durable must not be given.
            let error = LogError::io("keep the state of the group", "group-state", error);
            Listener::failed(self, &error);
        }
        Settled(())
    }
}
