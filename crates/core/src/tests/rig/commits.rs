//! Commits in parts, as the node makes them.

use super::{CLIENT, Rig};
use crate::{CommitId, Durability, Refusal, UnitId};

impl Rig {
    /// All of it, and nothing between.
    pub(crate) fn commit_in_parts(&mut self, unit: UnitId) -> Result<(), Refusal> {
        let commit = self.core.begin_commit(CLIENT, unit)?;
        while self.next_part(commit) {}
        self.finish_commit(commit);
        Ok(())
    }

    /// False: there is none.
    pub(crate) fn next_part(&mut self, commit: CommitId) -> bool {
        let more = self.core.next_part(commit, &mut self.decision);
        assert_ne!(self.decision.durability, Durability::Forced, "no client waits for a part");
        self.carry_out();
        more
    }

    pub(crate) fn finish_commit(&mut self, commit: CommitId) {
        self.core.finish_commit(self.now, commit, &mut self.decision);
        self.carry_out();
        assert_eq!(self.last_durability, Durability::Forced, "the answer waits for it");
    }

    /// What a fact completed, before the next one.
    pub(crate) fn replay_completed(&mut self, before_image: bool) {
        loop {
            while let Some(request) = self.core.page_before_completed() {
                self.core.page_arrived(request, &self.pages[&request.page.unit]).unwrap();
            }
            if !self.core.replay_completed(before_image, &mut self.outputs).unwrap() {
                return;
            }
        }
    }
}
