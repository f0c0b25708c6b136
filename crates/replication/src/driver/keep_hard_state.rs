//! The hard state that a step yields is durable before any message of that step leaves: a vote that
//! is sent and then forgotten is a second vote.
//!
//! The types enforce the order: sending takes a [`HardStateDurable`], which only [`Driver::settle`]
//! makes. Not here: how it is written (`hard_state_file`), how a slow write is noticed
//! (`disk_stall`).

use towline_group::HardState;
use towline_log::{Listener, LogError};
use towline_types::BatchPlace;

use super::{Core, Driver};
use crate::lifecycle::{EndReason, Lifecycle};

/// What a step wanted kept is durable, if it wanted anything.
pub(crate) struct HardStateDurable(());

impl Driver {
    /// Makes durable what a step wants kept. A disk that refuses ends the process.
    pub(super) fn settle(&self, core: &Core, hard_state: Option<HardState>) -> HardStateDurable {
        let Some(hard_state) = hard_state else { return HardStateDurable(()) };
        if let Err(error) = self.disk.keeping(|| core.hard_state_file.write(&hard_state)) {
            // A vote that is not durable must not be given.
            let error = LogError::io("keep the state of the group", "group-state", error);
            Listener::failed(self, &error);
        }
        HardStateDurable(())
    }

    /// A copy that ends with `last` replaces the log at the next start. `hand_in`
    /// makes that durable with what is to be kept beside the copy; nothing is promised by this
    /// process any more.
    ///
    /// # Errors
    /// What `hand_in` said, or that the process ends for another reason.
    pub(crate) fn replaced_by(
        &self,
        last: BatchPlace,
        hand_in: impl FnOnce(&HardState) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        // A newer term that is heard now must not be kept beside another log than the one it was
        // heard with, nor be forgotten: what comes behind this lock is not heard.
        let mut core = self.core.lock();
        if !core.lifecycle.is_replaced() {
            let why = "this instance gave up what it had promised while the copy came";
            return Err(std::io::Error::other(why));
        }
        hand_in(&beside_copy(&core, last))
    }

    /// The same with a copy of the live group's log, which this instance followed until now: it was
    /// made beside, and it ends this process.
    ///
    /// # Errors
    /// What `hand_in` said, or that this instance does not follow any more: the log stays.
    pub(crate) fn rebased_by(
        &self,
        last: BatchPlace,
        hand_in: impl FnOnce(&HardState) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        // As above; and a promotion, which asks for a mark, finds the old log or the new one.
        let mut core = self.core.lock();
        if core.lifecycle != Lifecycle::Following || !core.member.may_be_rebased(last) {
            let why = "this instance does not follow the other region any more, or has more";
            return Err(std::io::Error::other(why));
        }
        hand_in(&beside_copy(&core, last))?;
        self.ends(&mut core, EndReason::Rebased);
        Ok(())
    }
}

/// What is kept beside a copy that ends with `last`: with the vote, if the copy bears out what was
/// promised.
fn beside_copy(core: &Core, last: BatchPlace) -> HardState {
    let hard_state = core.member.noted();
    let votes = hard_state.is_borne_out_by(core.member.last(), last);
    let hard_state = if votes { hard_state } else { hard_state.without_vote() };
    hard_state.with_copy(last)
}
