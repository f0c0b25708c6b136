//! The space in the log of commits in parts. It is free when a commit begins, and no put takes it;
//! but what ends messages (gets, backouts, expiry) is logged in any case, in the reserve. A commit
//! that found the log full half way would hold off the image that frees space, and wait for it.
//!
//! So it has its turns between those of others only as long as what puts may fill holds what was
//! promised. When others have begun to use that, it goes to its end at once, in front of all that
//! is decided later: it has the whole reserve for that, of which they used a little. A step that
//! takes long is better than a log that is full until the next start.
//!
//! Not here: a disk that others fill. Then it waits, with all that waits for space, until there is
//! some again.

use towline_types::Time;

use super::{Instance, Outbound};
use crate::journal::Journal;

impl Instance {
    /// Commits that have begun go to their end now where their space is being used up.
    pub(super) fn hurry_commits(&mut self, now: Time, journal: &dyn Journal, out: &mut Outbound) {
        while self.commits_lack_room(journal) {
            let Some((connection, commit)) = self.client_work.take_commit() else { return };
            let own = self.decides_for(connection);
            while self.rules.next_part(commit.id, &mut self.decision) {
                self.carry_out(now, None, journal, out);
            }
            self.finish_commit(now, connection, commit, journal, out);
            self.decision.principal = own;
        }
    }

    fn commits_lack_room(&self, journal: &dyn Journal) -> bool {
        self.rules.has_commits_in_parts()
            && !self.log_is_full()
            && journal.room_for_puts() < self.log_room_promised()
    }
}
