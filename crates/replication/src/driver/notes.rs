//! What is written down of how far the log is committed, and which positions are forgotten.
//!
//! Not here: the files (`hard_state_file`), which positions a member needs (`towline_group`).

use towline_group::Input;
use towline_types::{BatchPlace, Lsn};

use super::Driver;

impl Driver {
    /// All batches up to this one are applied here, and none of them ends inside a run.
    pub fn seam(&self, place: BatchPlace) {
        self.step(Input::Seam(place));
    }

    /// Notes how far the log is known to be committed: a start then need not ask.
    pub fn note_committed(&self) -> std::io::Result<()> {
        let hard_state = self.look(|core| core.member.noted());
        // Not under the lock: a busy disk would stop the group with it.
        self.notes.note(&hard_state)?;
        self.keep_starts();
        Ok(())
    }

    /// The same, and waits for the disk.
    pub fn note_committed_durably(&self) -> std::io::Result<()> {
        let hard_state = self.look(|core| core.member.noted());
        self.notes.note_durably(&hard_state)
    }

    /// Positions of batches before this one are not needed any more, except where the log is
    /// retained for a replica. A hold may begin before the log: what is gone is forgotten all the
    /// same, because a replica that needs it gets a copy only then.
    pub fn forget(&self, before: Lsn) {
        let log = self.log();
        let needed = log.held_from().map_or(before, |held| held.min(before));
        self.step(Input::Forget(needed.max(log.first_held())));
    }
}
