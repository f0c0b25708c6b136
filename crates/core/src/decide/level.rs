//! The format level of the log: what it may hold.
//!
//! Not here: when it may be raised (`engine`, `replica`: once all programs that read the log know
//! it), and what came with each level (`record/fields.rs`).

use towline_types::{FORMAT_LEVEL, LevelRaise};

use crate::fact::{Durability, Fact};
use crate::request::Decision;
use crate::{QueueManager, Refusal};

impl QueueManager {
    /// The format level in force: of what was applied.
    #[must_use]
    pub fn format_level(&self) -> u8 {
        self.level
    }

    /// Raises the format level to the newest one that this program knows: once; what was decided is
    /// not decided again while it is on its way.
    ///
    /// # Errors
    /// The log is full, or the queue manager is ending.
    pub fn raise_level(&mut self, out: &mut Decision) -> Result<LevelRaise, Refusal> {
        out.begin();
        if self.level >= FORMAT_LEVEL {
            return Ok(LevelRaise::InForce);
        }
        if !self.raises_level {
            self.check_accepting()?;
            self.raises_level = true;
            out.push_logged(Fact::Level { level: FORMAT_LEVEL }, Durability::Forced);
        }
        Ok(LevelRaise::OnItsWay)
    }
}
