//! Messages of consensus that come in, and the group as this member sees it.
//!
//! Not here: messages that leave (`driver`). Invariant: an instance whose member takes part in
//! nothing still learns which instance leads, for its clients.

use towline_group::{Input, Message, Progress, Role};

use super::disk_stall::LOOK_MAX;
use super::{Core, Driver};

impl Driver {
    /// A message came in: for the member, or only to learn which instance leads.
    ///
    /// # Errors
    /// It has batches that do not fit into this log: nothing of it was believed. What the member
    /// gives to the log was checked here; if the log refuses it all the same, this instance is
    /// wrong, not the peer, and ends.
    pub fn hear(&self, message: Message) -> Result<(), String> {
        let mut core = self.core.lock();
        if !core.lifecycle.is_aside() {
            self.check(&core, &message)?;
        }
        self.notes_heard(&message, core.leader);
        if !core.lifecycle.is_aside() {
            self.run(&mut core, Input::Message(message));
        } else if message.is_heartbeat() && message.term() >= core.heard_term {
            core.heard_term = message.term();
            self.led_by(&mut core, Some(message.from()));
        }
        drop(core);
        self.after();
        Ok(())
    }

    fn check(&self, core: &Core, message: &Message) -> Result<(), String> {
        let found = core.member.new_batches(message).map_err(|error| error.to_string())?;
        let Some((behind, batches)) = found else { return Ok(()) };
        let checked = self.log().check_batches(behind, &batches);
        checked.map_err(|error| format!("it sent a batch that does not fit: {error}"))
    }

    /// The group as it is seen from here; as it was last seen while the lock is not to be had.
    pub(crate) fn picture(&self) -> Progress {
        let Some(core) = self.core.try_lock_for(LOOK_MAX) else {
            return self.pictured.lock().clone();
        };
        let progress = seen_from(&core);
        drop(core);
        self.after();
        self.pictured.lock().clone_from(&progress);
        progress
    }
}

fn seen_from(core: &Core) -> Progress {
    let progress = core.member.progress();
    if !core.lifecycle.is_aside() {
        // One that takes nothing any more learns of no silence either.
        let is_in_sync = progress.is_in_sync && core.lifecycle.goes_on();
        return Progress { is_in_sync, ..progress };
    }
    let term = progress.term.max(core.heard_term);
    Progress { role: Role::Follower, leader: core.leader, term, is_in_sync: false, ..progress }
}
