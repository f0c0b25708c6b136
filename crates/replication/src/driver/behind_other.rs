//! This instance was elected, and its log says that another group is live.
//!
//! A member that is marked for a promotion begins a history then. One that is not marked (it was
//! blank when the others were) may not, and must not serve behind the history of another group: it
//! restarts, in the mode that its log says (`towline_group::Mode::at_start`).
//!
//! Not here: what the log says (the caller). Invariant: the next start knows as much of the log to
//! be committed as this process.

use towline_group::Mode;
use towline_log::{Listener, LogError};

use super::Driver;
use crate::lifecycle::EndReason;

impl Driver {
    /// It leads, has applied all that it leads from, and that says that another group is live.
    /// Whether it may become active all the same; if not, the process ends.
    pub fn leads_behind_other(&self) -> bool {
        let mut core = self.core.lock();
        if core.member.mode() == Mode::Promoting {
            return true;
        }
        let noted = core.member.noted();
        if let Err(error) = self.disk.keeping(|| core.hard_state_file.note_durably(&noted)) {
            let error = LogError::io("note what is committed", "group-committed", error);
            Listener::failed(self, &error);
        }
        self.ends(&mut core, EndReason::LostLeadership);
        false
    }
}
